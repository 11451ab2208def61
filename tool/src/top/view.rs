//! The table of `erd top`: a line for each endpoint, and one for each of its flows.

use super::snapshot::{CAUSES, Count, Endpoint, Flow, Process};
use crate::text;
use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;

/// Marks of a path's share, from nothing to the share of the busiest path.
const SHARES: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// Most paths whose shares are shown; more are only counted.
const PATHS_SHOWN: usize = 16;

/// Least width of a peer's name: room for every IPv4 address with its port.
const PEER_WIDTH: usize = 21;

/// A peer that was heard within this time is heard now.
const HEARD_NOW_NS: u64 = 1_000_000_000;

/// Kind of a line, which sets its look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    Title,
    Header,
    Endpoint,
    Flow,
    Remark,
}

/// One line of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    pub look: Look,
    pub text: String,
}

/// Results of an earlier look, by socket and endpoint.
struct Before<'a> {
    elapsed_s: f64,
    endpoint: &'a Endpoint,
}

/// Change per second; `None` without an earlier look.
fn per_second(now: u64, before: Option<(u64, f64)>) -> Option<f64> {
    let (before, elapsed_s) = before?;
    (elapsed_s > 0.0).then(|| now.saturating_sub(before) as f64 / elapsed_s)
}

fn or_dash(value: Option<f64>, show: fn(f64) -> String) -> String {
    value.map_or("-".to_owned(), show)
}

/// The table of `now`, with rates since `before`.
#[must_use]
pub fn rows(host: &str, before: &[Process], now: &[Process]) -> Vec<Row> {
    let mut earlier = HashMap::new();
    for process in before {
        for endpoint in &process.endpoints {
            earlier
                .insert((process.socket.as_str(), endpoint.name), (process.monotonic_ns, endpoint));
        }
    }
    let since = |process: &Process, name: SocketAddr| {
        let (at_ns, endpoint) = earlier.get(&(process.socket.as_str(), name))?;
        let elapsed_s = process.monotonic_ns.saturating_sub(*at_ns) as f64 / 1e9;
        Some(Before { elapsed_s, endpoint })
    };
    let mut rows = vec![title(host, now)];
    if now.is_empty() {
        rows.push(Row {
            look: Look::Remark,
            text: "no process with an endpoint of erd that this user may look at (erd(1) says how they are found)"
                .to_owned(),
        });
        return rows;
    }
    let flows = now.iter().flat_map(|process| &process.endpoints).flat_map(|it| &it.flows);
    let longest = flows.map(|flow| flow.peer.to_string().len()).max().unwrap_or(0);
    let width = longest.max(PEER_WIDTH);
    rows.push(Row { look: Look::Header, text: header(width) });
    for process in now {
        for endpoint in &process.endpoints {
            let before = since(process, endpoint.name);
            rows.extend(endpoint_rows(process, endpoint, before.as_ref(), width));
        }
        rows.extend(remarks(process));
    }
    rows
}

fn title(host: &str, now: &[Process]) -> Row {
    let endpoints: usize = now.iter().map(|process| process.endpoints.len()).sum();
    let flows: usize = now
        .iter()
        .flat_map(|process| &process.endpoints)
        .map(|endpoint| endpoint.flows.len())
        .sum();
    let s = |count: usize| if count == 1 { "" } else { "s" };
    let text = format!(
        "erd top on {host}: {} process{}, {endpoints} endpoint{}, {flows} flow{}",
        now.len(),
        if now.len() == 1 { "" } else { "es" },
        s(endpoints),
        s(flows),
    );
    Row { look: Look::Title, text }
}

fn header(width: usize) -> String {
    let [peer, via, heard, window, sent, rtt, base] =
        ["PEER", "VIA", "HEARD", "WINDOW", "SENT", "RTT", "BASE"];
    format!(
        "  {peer:<width$} {via:<5} {heard:>7} {window:>9} {sent:>9} {rtt:>7} {base:>7} {:>5} {:<12} PATHS",
        "MARKS", "REPEATED/s"
    )
}

fn endpoint_rows(
    process: &Process,
    endpoint: &Endpoint,
    before: Option<&Before<'_>>,
    width: usize,
) -> Vec<Row> {
    let Process { pid, user, command, .. } = process;
    let rate = |name: &str| {
        let earlier = before.map(|it| (it.endpoint.counter(name), it.elapsed_s));
        per_second(endpoint.counter(name), earlier)
    };
    let device = endpoint.device.as_ref().map_or(String::new(), |device| format!(" on {device}"));
    let messages =
        rate("messages_sent").zip(rate("messages_received")).map(|(out, r#in)| out + r#in);
    let line = format!(
        "{pid} {user} {command}  {} {}{device}  {}  out {}  in {}  messages {}/s",
        endpoint.iface,
        endpoint.name,
        endpoint.cc,
        or_dash(rate("tx_payload_bytes"), text::rate),
        or_dash(rate("rx_payload_bytes"), text::rate),
        or_dash(messages, text::count),
    );
    let mut rows = vec![Row { look: Look::Endpoint, text: line }];
    let kernel = ("kernel (buffer full)", endpoint.counter("kernel_drops"));
    for (what, table, more) in
        [("dropped", &endpoint.drops, Some(kernel)), ("refused", &endpoint.refusals, None)]
    {
        let told = counted(table, more);
        if !told.is_empty() {
            rows.push(Row { look: Look::Remark, text: format!("  {what} so far: {told}") });
        }
    }
    let mut flows: Vec<(f64, String)> = endpoint
        .flows
        .iter()
        .map(|flow| {
            let earlier = before.and_then(|it| {
                let found = it.endpoint.flows.iter().find(|other| other.peer == flow.peer)?;
                Some((found, it.elapsed_s))
            });
            flow_line(flow, earlier, process.monotonic_ns, width)
        })
        .collect();
    // The busiest first.
    flows.sort_by(|a, b| b.0.total_cmp(&a.0));
    rows.extend(flows.into_iter().map(|(_, text)| Row { look: Look::Flow, text }));
    rows
}

/// Values of a table that are not 0, by reason.
fn counted(table: &BTreeMap<String, u64>, more: Option<(&str, u64)>) -> String {
    let reasons = table.iter().map(|(reason, count)| (reason.as_str(), *count)).chain(more);
    let told = reasons.filter(|(_, count)| *count > 0);
    let told = told.map(|(reason, count)| format!("{reason} {}", text::count(count as f64)));
    told.collect::<Vec<_>>().join(", ")
}

/// A flow's bytes per second, and its line as of `now_ns`.
fn flow_line(
    flow: &Flow,
    before: Option<(&Flow, f64)>,
    now_ns: u64,
    width: usize,
) -> (f64, String) {
    // A new session of the same name begins at 0.
    let before = before.filter(|(earlier, _)| earlier.sent_bytes <= flow.sent_bytes);
    let rate = |of: Count| {
        per_second(of(flow), before.map(|(earlier, elapsed_s)| (of(earlier), elapsed_s)))
    };
    let sent = rate(|flow| flow.sent_bytes);
    let marked = before.map_or((flow.ce_bytes, flow.acked_bytes), |(earlier, _)| {
        (
            flow.ce_bytes.saturating_sub(earlier.ce_bytes),
            flow.acked_bytes.saturating_sub(earlier.acked_bytes),
        )
    });
    let marks = match marked {
        (0, _) | (_, 0) => "-".to_owned(),
        (ce, acked) => format!("{:.0} %", 100.0 * ce as f64 / acked as f64),
    };
    let window = match flow.pace_bytes_per_s {
        // Nothing was sent to it yet.
        0 if flow.window_bytes == 0 => "-".to_owned(),
        0 => text::bytes(flow.window_bytes),
        pace => text::rate(pace as f64),
    };
    let line = format!(
        "  {:<width$} {:<5} {:>7} {window:>9} {:>9} {:>7} {:>7} {marks:>5} {:<12} {}",
        flow.peer.to_string(),
        flow.carrier,
        heard(flow, now_ns),
        or_dash(sent, text::rate),
        text::time(flow.rtt_ns),
        text::time(flow.base_rtt_ns),
        repeated(&rate),
        paths(flow),
    );
    (sent.unwrap_or(0.0), line.trim_end().to_owned())
}

/// How long ago the peer was heard: "now" within the time in which a peer at work is.
fn heard(flow: &Flow, now_ns: u64) -> String {
    match (flow.last_heard_ns, now_ns.saturating_sub(flow.last_heard_ns)) {
        (0, _) => "-".to_owned(),
        (_, ago_ns) if ago_ns < HEARD_NOW_NS => "now".to_owned(),
        (_, ago_ns) => text::age(ago_ns),
    }
}

/// Packets sent again per second, by the cause of detection.
fn repeated(rate: &dyn Fn(Count) -> Option<f64>) -> String {
    let mut told = Vec::new();
    for (cause, of) in CAUSES {
        match rate(of) {
            None => return "-".to_owned(),
            Some(0.0) => {}
            Some(count) => told.push(format!("{cause} {}", text::count(count.ceil()))),
        }
    }
    if told.is_empty() { "0".to_owned() } else { told.join(" ") }
}

/// Number of used paths and of all, and a bar for each one's share.
fn paths(flow: &Flow) -> String {
    let kib = &flow.path_kib;
    let sum: u64 = kib.iter().sum();
    if sum == 0 {
        return "-".to_owned();
    }
    let used = kib.iter().filter(|kib| **kib > 0).count();
    let (full, most) = (SHARES.len() as u64 - 1, kib.iter().max().copied().unwrap_or(1));
    let bar = |kib: &u64| SHARES[(kib * full).div_ceil(most) as usize];
    let bars: String = kib.iter().take(PATHS_SHOWN).map(bar).collect();
    let more = kib.len().saturating_sub(PATHS_SHOWN);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{used}/{} {bars}{more}", kib.len())
}

fn remarks(process: &Process) -> Vec<Row> {
    let Process { pid, user, command, .. } = process;
    let mut texts: Vec<String> =
        process.remark.iter().map(|remark| format!("{pid} {user} {command}: {remark}")).collect();
    if process.busy > 0 {
        texts.push(format!(
            "{pid} {user} {command}: {} of its endpoints were at work all the time of the look",
            process.busy
        ));
    }
    for endpoint in &process.endpoints {
        let hidden = endpoint.peers.saturating_sub(endpoint.flows.len() as u64);
        if hidden > 0 {
            let s = if hidden == 1 { "" } else { "s" };
            texts.push(format!("  {}: {hidden} more peer{s}, without a session", endpoint.name));
        }
    }
    texts.into_iter().map(|text| Row { look: Look::Remark, text }).collect()
}

#[cfg(test)]
mod tests {
    use super::super::snapshot::tests::{ANSWER, process};
    use super::*;

    #[test]
    fn rates_are_differences_and_losses_have_their_cause() {
        let before = process(ANSWER);
        let later = ANSWER
            .replace("\"monotonic_ns\":1000000000", "\"monotonic_ns\":3000000000")
            .replace("\"sent_bytes\":1000000", "\"sent_bytes\":5000000")
            .replace("\"acked_bytes\":996000", "\"acked_bytes\":4996000")
            .replace("\"ce_bytes\":50000", "\"ce_bytes\":450000")
            .replace("\"rtx_nack\":4", "\"rtx_nack\":24")
            .replace("\"tx_payload_bytes\":9000", "\"tx_payload_bytes\":3009000");
        let rows = rows("here", &[before], &[process(&later)]);
        let looks: Vec<Look> = rows.iter().map(|row| row.look).collect();
        let [title, header, endpoint, flow, remark] =
            [Look::Title, Look::Header, Look::Endpoint, Look::Flow, Look::Remark];
        assert_eq!(looks, [title, header, endpoint, remark, flow, remark]);
        assert_eq!(rows[0].text, "erd top on here: 1 process, 1 endpoint, 1 flow");
        let endpoint = &rows[2].text;
        assert!(
            endpoint
                .starts_with("7 ann osu_bw  eth0 192.0.2.1:4000  nscc  out 1.50 MB/s  in 0 B/s"),
            "{endpoint}"
        );
        assert_eq!(rows[3].text, "  dropped so far: duplicate 5, kernel (buffer full) 1");
        let flow: Vec<&str> = rows[4].text.split_whitespace().collect();
        let expected = "192.0.2.2:5000 udp 2 s 512 KiB 2.00 MB/s 34.0 us 30.0 us 10 % nack 10 2/2 \u{2588}\u{2586}";
        assert_eq!(flow.join(" "), expected);
        assert!(rows[5].text.contains("1 more peer,"), "{}", rows[5].text);
    }

    #[test]
    fn a_first_look_has_no_rates() {
        let rows = rows("here", &[], &[process(ANSWER)]);
        assert!(rows[2].text.contains("out -  in -  messages -/s"), "{}", rows[2].text);
        assert!(super::rows("here", &[], &[])[1].text.starts_with("no process"));
    }
}
