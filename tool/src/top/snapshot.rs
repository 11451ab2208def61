//! Snapshots of the flows of this host's processes (`erd_core::monitor` has the format).

use crate::system::System;
use crate::text::harmless;
use erd_core::monitor::{FORMAT, NAME_PREFIX};
use erd_sys::visit::{names, visit};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::io::{self, Read};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Most bytes of a process's snapshot; a regular one is shorter.
const ANSWER_BYTES_MAX: u64 = 16 << 20;
/// Longest wait for one process, which answers within milliseconds unless it stands still.
const PATIENCE: Duration = Duration::from_secs(1);

/// A process with endpoints.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Process {
    /// Name of its socket, which identifies it even if its process id is reused.
    pub socket: String,
    pub pid: u32,
    pub user: String,
    pub command: String,
    /// Version of the provider; empty if the process did not answer.
    pub version: String,
    /// The process's own time of the look.
    pub monotonic_ns: u64,
    pub endpoints: Vec<Endpoint>,
    /// Number of endpoints that were busy all the time, and are not in the list.
    pub busy: u64,
    /// A remark, such as that it did not answer.
    pub remark: Option<String>,
}

/// An endpoint. Counters are totals since it was enabled.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Endpoint {
    #[serde(rename = "endpoint")]
    pub name: SocketAddr,
    pub iface: String,
    /// The RDMA device that carries data beside UDP.
    pub device: Option<String>,
    pub cc: String,
    pub paths: u16,
    /// Peers known, with or without a session.
    pub peers: u64,
    pub recv_buffer_bytes: u64,
    pub refusals: BTreeMap<String, u64>,
    pub drops: BTreeMap<String, u64>,
    /// All other counters, by the names of `erd_rd::stats::Stats`.
    #[serde(flatten)]
    pub counters: BTreeMap<String, u64>,
    #[serde(skip_deserializing)]
    pub flows: Vec<Flow>,
}

/// The flow to one peer. Counters are totals since the session began.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Flow {
    #[serde(rename = "endpoint", skip_serializing)]
    pub local: SocketAddr,
    pub peer: SocketAddr,
    /// "udp", "verbs" or "shm".
    pub carrier: String,
    pub window_bytes: u64,
    /// 0 if the controller does not pace.
    pub pace_bytes_per_s: u64,
    pub in_flight_bytes: u64,
    pub rtt_ns: u64,
    pub base_rtt_ns: u64,
    pub typical_rtt_ns: u64,
    pub target_ns: u64,
    pub bdp_bytes: u64,
    /// Paths that the controller uses now; 0 if it does not report them.
    pub paths: u64,
    pub sent_bytes: u64,
    pub acked_bytes: u64,
    pub ce_bytes: u64,
    pub rtx_nack: u64,
    pub rtx_probe: u64,
    pub rtx_order: u64,
    pub rtx_trim: u64,
    pub rtx_spurious: u64,
    pub out_of_order_max: u64,
    /// Time at which the peer was heard last, in the process's own time; 0 if the provider does not report it.
    #[serde(default)]
    pub last_heard_ns: u64,
    /// KiB sent on each path since the flow was last idle.
    pub path_kib: Vec<u64>,
}

/// A counter of a flow.
pub type Count = fn(&Flow) -> u64;

/// Packets sent again, by the cause of detection.
pub const CAUSES: [(&str, Count); 4] = [
    ("nack", |flow| flow.rtx_nack),
    ("probe", |flow| flow.rtx_probe),
    ("order", |flow| flow.rtx_order),
    ("trim", |flow| flow.rtx_trim),
];

/// One line of an answer.
#[derive(Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum Line {
    Process {
        format: u32,
        version: String,
        pid: u32,
        monotonic_ns: u64,
    },
    Endpoint(Endpoint),
    Flow(Flow),
    End {
        busy: u64,
    },
    /// A kind of a newer provider.
    #[serde(other)]
    Other,
}

impl Endpoint {
    /// A counter, 0 if the provider has none of this name.
    #[must_use]
    pub fn counter(&self, name: &str) -> u64 {
        self.counters.get(name).copied().unwrap_or(0)
    }

    fn make_harmless(&mut self) {
        self.iface = harmless(&self.iface);
        self.cc = harmless(&self.cc);
        self.device = self.device.as_deref().map(harmless);
        for table in [&mut self.refusals, &mut self.drops, &mut self.counters] {
            *table =
                std::mem::take(table).into_iter().map(|(key, n)| (harmless(&key), n)).collect();
        }
    }
}

/// The remaining budget for the processes of one user. Anybody may make sockets of such names, so many or so slow that
/// they would hide others.
#[derive(Debug)]
struct Budget {
    sockets: usize,
    bytes: u64,
    patience: Duration,
    told: bool,
}

impl Budget {
    const FULL: Budget =
        Budget { sockets: 1024, bytes: 64 << 20, patience: Duration::from_secs(3), told: false };

    /// True if another socket may be asked.
    fn take(&mut self) -> bool {
        let left = self.sockets > 0 && self.bytes > 0 && !self.patience.is_zero();
        self.sockets = self.sockets.saturating_sub(1);
        left
    }
}

/// Takes snapshots of all processes that the user may observe.
///
/// # Errors
/// If /proc is not mounted.
pub fn look(system: &System) -> io::Result<Vec<Process>> {
    let mut budgets = HashMap::new();
    let mut found: Vec<Process> =
        names(NAME_PREFIX)?.iter().filter_map(|name| look_at(system, name, &mut budgets)).collect();
    found.sort_by(|a, b| (a.pid, &a.socket).cmp(&(b.pid, &b.socket)));
    Ok(found)
}

/// The flow of this process from its endpoint `local` to `peer`, if it is not busy now.
#[must_use]
pub fn flow_of(system: &System, local: SocketAddr, peer: SocketAddr) -> Option<Flow> {
    let own = look(system).ok()?.into_iter().find(|process| process.pid == std::process::id())?;
    let endpoint = own.endpoints.into_iter().find(|endpoint| endpoint.name == local)?;
    endpoint.flows.into_iter().find(|flow| flow.peer == peer)
}

/// `None` for one that has ended meanwhile, or does not talk to this user.
fn look_at(system: &System, name: &str, budgets: &mut HashMap<u32, Budget>) -> Option<Process> {
    let (mut stream, who) = visit(name).ok()?;
    let budget = budgets.entry(who.uid).or_insert(Budget::FULL);
    let may_ask = budget.take();
    if !may_ask && std::mem::replace(&mut budget.told, true) {
        return None;
    }
    let mut process = Process {
        socket: harmless(name),
        pid: who.pid,
        user: user(system, who.uid),
        command: String::new(),
        version: String::new(),
        monotonic_ns: 0,
        endpoints: Vec::new(),
        busy: 0,
        remark: None,
    };
    if !may_ask {
        process.remark = Some("other sockets of this user are not looked at: too much".to_owned());
        return Some(process);
    }
    let start = Instant::now();
    let answer = answer(&mut stream, PATIENCE.min(budget.patience));
    budget.patience = budget.patience.saturating_sub(start.elapsed());
    match answer {
        Ok(answer) if answer.is_empty() => return None,
        Ok(answer) => {
            budget.bytes = budget.bytes.saturating_sub(answer.len() as u64);
            process.take(&String::from_utf8_lossy(&answer));
        }
        Err(_) => {
            process.remark =
                Some("does not answer: it stands still, or is being debugged".to_owned())
        }
    }
    let command = system.read(format!("/proc/{}/comm", process.pid));
    process.command = harmless(&command.unwrap_or_else(|| "?".to_owned()));
    Some(process)
}

/// Reads to the end, for a bounded time.
fn answer(stream: &mut std::os::unix::net::UnixStream, patience: Duration) -> io::Result<Vec<u8>> {
    let end = Instant::now() + patience;
    let mut bytes = Vec::new();
    let mut chunk = vec![0; 64 << 10];
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut chunk) {
            Ok(0) => return Ok(bytes),
            Ok(count) => bytes.extend_from_slice(&chunk[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        if bytes.len() as u64 > ANSWER_BYTES_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
    }
}

impl Process {
    fn take(&mut self, answer: &str) {
        let mut ended = false;
        let mut places = HashMap::new();
        for line in answer.lines() {
            // The last line may be cut; other bad lines are of newer providers.
            match serde_json::from_str(line).unwrap_or(Line::Other) {
                Line::Process { format, version, pid, monotonic_ns } => {
                    // Of a process in another PID namespace only its own number is known.
                    self.pid = if self.pid == 0 { pid } else { self.pid };
                    (self.version, self.monotonic_ns) = (harmless(&version), monotonic_ns);
                    if format != FORMAT {
                        self.remark = Some(format!(
                            "speaks version {format} of the format, this is for {FORMAT}"
                        ));
                        return;
                    }
                }
                Line::Endpoint(mut endpoint) => {
                    endpoint.make_harmless();
                    places.insert(endpoint.name, self.endpoints.len());
                    self.endpoints.push(endpoint);
                }
                Line::Flow(mut flow) => {
                    flow.carrier = harmless(&flow.carrier);
                    if let Some(at) = places.get(&flow.local) {
                        self.endpoints[*at].flows.push(flow);
                    }
                }
                Line::End { busy } => (self.busy, ended) = (busy, true),
                Line::Other => {}
            }
        }
        if !ended {
            self.remark = Some("has more flows than it could tell of".to_owned());
        }
    }
}

/// The user's name, or number.
fn user(system: &System, uid: u32) -> String {
    let known = system.read("/etc/passwd").unwrap_or_default();
    let name = known.lines().find_map(|line| {
        let mut fields = line.split(':');
        let (name, _, id) = (fields.next()?, fields.next()?, fields.next()?);
        (id.parse() == Ok(uid)).then(|| name.to_owned())
    });
    name.unwrap_or_else(|| uid.to_string())
}

/// A process as tests want it.
#[cfg(test)]
pub mod tests {
    use super::*;

    /// A snapshot of this workspace's provider, shortened.
    pub const ANSWER: &str = concat!(
        r#"{"kind":"process","format":1,"version":"0.1.0","pid":7,"monotonic_ns":1000000000,"endpoints":1}"#,
        "\n",
        r#"{"kind":"endpoint","endpoint":"192.0.2.1:4000","iface":"eth0","device":null,"cc":"nscc","paths":4,"peers":2,"recv_buffer_bytes":8388608,"tx_data":10,"tx_payload_bytes":9000,"rx_payload_bytes":500,"messages_sent":3,"messages_received":2,"kernel_drops":1,"refusals":{"key":0},"drops":{"malformed":0,"duplicate":5}}"#,
        "\n",
        r#"{"kind":"flow","endpoint":"192.0.2.1:4000","peer":"192.0.2.2:5000","carrier":"udp","window_bytes":524288,"pace_bytes_per_s":0,"in_flight_bytes":4096,"rtt_ns":34000,"base_rtt_ns":30000,"typical_rtt_ns":31000,"target_ns":9000,"bdp_bytes":100000,"paths":2,"sent_bytes":1000000,"acked_bytes":996000,"ce_bytes":50000,"rtx_nack":4,"rtx_probe":1,"rtx_order":0,"rtx_trim":0,"rtx_spurious":1,"out_of_order_max":9,"last_heard_ns":500000000,"path_kib":[600,376]}"#,
        "\n",
        r#"{"kind":"end","flows":1,"busy":0}"#,
        "\n",
    );

    /// The process that tells `answer`.
    pub fn process(answer: &str) -> Process {
        let mut process = Process {
            socket: "erd-monitor-1".to_owned(),
            pid: 7,
            user: "ann".to_owned(),
            command: "osu_bw".to_owned(),
            version: String::new(),
            monotonic_ns: 0,
            endpoints: Vec::new(),
            busy: 0,
            remark: None,
        };
        process.take(answer);
        process
    }

    #[test]
    fn an_answer_is_understood() {
        let process = process(ANSWER);
        assert_eq!((process.version.as_str(), process.remark.as_deref()), ("0.1.0", None));
        let [endpoint] = process.endpoints.as_slice() else { panic!("{process:?}") };
        assert_eq!((endpoint.cc.as_str(), endpoint.counter("kernel_drops")), ("nscc", 1));
        assert_eq!((endpoint.drops["duplicate"], endpoint.flows.len()), (5, 1));
        assert_eq!(endpoint.flows[0].path_kib, [600, 376]);
    }

    #[test]
    fn a_cut_or_strange_answer_says_so_and_does_no_harm() {
        let cut = process(&ANSWER[..ANSWER.len() - 60]);
        assert!(cut.endpoints.len() == 1 && cut.endpoints[0].flows.is_empty());
        assert!(cut.remark.expect("a remark").contains("more flows"));
        let newer = process(&ANSWER.replace("\"format\":1", "\"format\":2"));
        assert!(
            newer.endpoints.is_empty() && newer.remark.expect("a remark").contains("version 2")
        );
        let odd = process(&ANSWER.replace("eth0", "\\u001b[2J"));
        assert_eq!(odd.endpoints[0].iface, "?[2J");
        assert!(process("{}\n\u{0}garbage").endpoints.is_empty());
    }

    #[test]
    fn one_user_cannot_hide_the_others() {
        let mut budget = Budget::FULL;
        assert_eq!((0..5000).filter(|_| budget.take()).count(), 1024);
        for spent in [
            Budget { bytes: 0, ..Budget::FULL },
            Budget { patience: Duration::ZERO, ..Budget::FULL },
        ] {
            let mut spent = spent;
            assert!(!spent.take(), "{spent:?}");
        }
    }

    #[test]
    fn users_have_names() {
        let system = System::planted(&[(
            "etc/passwd",
            "root:x:0:0::/:/bin/sh\nann:x:1000:1000::/:/bin/sh\n",
        )]);
        assert_eq!(
            (user(&system, 1000), user(&system, 1001)),
            ("ann".to_owned(), "1001".to_owned())
        );
    }
}
