//! The engine's counters as one line of JSON per endpoint, written when it closes (`FI_ERD_STATS`).

use crate::run::link::Carried;
use erd_rd::stats::{DROP_NAMES, Stats};
use erd_rd::wire::remote::REFUSAL_NAMES;
use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::net::SocketAddr;

/// Writes the line to standard error (`to` is "1") or to the end of the file `to`.
///
/// # Errors
/// If the file cannot be written.
pub(super) fn write(
    to: &str,
    name: SocketAddr,
    stats: &Stats,
    kernel: u64,
    carried: Carried,
) -> io::Result<()> {
    let line = json(name, stats, kernel, carried);
    if to == "1" {
        return io::stderr().write_all(line.as_bytes());
    }
    // One write of the whole line: lines of several processes do not mix.
    OpenOptions::new().create(true).append(true).open(to)?.write_all(line.as_bytes())
}

fn json(name: SocketAddr, stats: &Stats, kernel_drops: u64, carried: Carried) -> String {
    let mut line = format!("{{\"endpoint\":\"{name}\",\"pid\":{}", std::process::id());
    counters(&mut line, stats, kernel_drops, carried);
    line.push_str("}\n");
    line
}

/// Adds all counters to the members of an object that is not empty.
pub fn counters(line: &mut String, stats: &Stats, kernel_drops: u64, carried: Carried) {
    let counters = [
        ("tx_data", stats.tx_data),
        ("tx_payload_bytes", stats.tx_payload_bytes),
        ("tx_control", stats.tx_control),
        ("tx_challenges", stats.tx_challenges),
        ("tx_resets", stats.tx_resets),
        ("tx_goodbye_confirmations", stats.tx_goodbye_confirmations),
        ("tx_version_refusals", stats.tx_version_refusals),
        ("answers_withheld", stats.answers_withheld),
        ("rx_data", stats.rx_data),
        ("rx_payload_bytes", stats.rx_payload_bytes),
        ("rx_control", stats.rx_control),
        ("rtx_nack", stats.rtx_nack),
        ("rtx_probe", stats.rtx_probe),
        ("rtx_order", stats.rtx_order),
        ("rtx_trim", stats.rtx_trim),
        ("rtx_spurious", stats.rtx_spurious),
        ("probes", stats.probes),
        ("size_probes", stats.size_probes),
        ("nacks", stats.nacks),
        ("messages_sent", stats.messages_sent),
        ("messages_received", stats.messages_received),
        ("sessions_opened", stats.sessions_opened),
        ("sessions_failed", stats.sessions_failed),
        ("lanes_opened", stats.lanes_opened),
        ("lane_tx_entries", stats.lane_tx_entries),
        ("lane_rx_entries", stats.lane_rx_entries),
        ("lane_pulled_bytes", stats.lane_pulled_bytes),
        ("rx_ce", stats.rx_ce),
        ("requests_served", stats.requests_served),
        ("kernel_drops", kernel_drops),
        ("verbs_tx_datagrams", carried.tx_datagrams),
        ("verbs_tx_bytes", carried.tx_bytes),
        ("verbs_tx_uncopied_bytes", carried.tx_uncopied_bytes),
        ("verbs_rx_datagrams", carried.rx_datagrams),
        ("verbs_rx_bytes", carried.rx_bytes),
        ("port_answers", carried.port_answers),
        ("port_drops", carried.port_drops),
        ("port_other_key", carried.port_other_key),
        ("port_forged", carried.port_forged),
        ("port_unasked", carried.port_unasked),
    ];
    for (name, value) in counters {
        // Writing to a string does not fail.
        let _ = write!(line, ",\"{name}\":{value}");
    }
    table(line, "refusals", &REFUSAL_NAMES, &stats.refusals);
    table(line, "drops", &DROP_NAMES, &stats.drops);
}

fn table(line: &mut String, what: &str, names: &[&str], values: &[u64]) {
    let _ = write!(line, ",\"{what}\":{{");
    for (index, (name, value)) in names.iter().zip(values).enumerate() {
        let comma = if index == 0 { "" } else { "," };
        let _ = write!(line, "{comma}\"{name}\":{value}");
    }
    line.push('}');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_names_every_counter_and_drop_reason() {
        let mut stats = Stats { tx_data: 7, ..Stats::default() };
        stats.drops[3] = 2;
        let line = json("127.0.0.1:9".parse().unwrap(), &stats, 5, Carried::default());
        assert!(
            line.starts_with("{\"endpoint\":\"127.0.0.1:9\",\"pid\":") && line.ends_with("}}\n")
        );
        assert!(line.contains("\"tx_data\":7,") && line.contains("\"kernel_drops\":5,"));
        assert!(line.contains(&format!("\"{}\":2", DROP_NAMES[3])));
        assert!(DROP_NAMES.iter().all(|name| line.contains(name)));
        assert_eq!(line.matches('\n').count(), 1);
    }
}
