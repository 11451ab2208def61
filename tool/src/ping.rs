//! `erd ping`: round trips on each path to a host, and the fate of its packets.

use crate::peer::{self, Header, Kind, Side};
use crate::system::{System, host};
use crate::top::{Flow, flow_of};
use crate::{PingArgs, text};
use anyhow::Result;
use erd::verbs::{AddressHandle, ContextOptions, Device, Opcode};
use erd_core::settings::{PATHS_DEFAULT, PATHS_LOOPBACK};
use erd_port::udp::{max_payload_bytes, path_mtu_bytes};
use serde::Serialize;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

/// Longest wait for an answer. The engine repeats packets, so a late one was lost more than once.
const PATIENCE: Duration = Duration::from_secs(8);

/// One path: a send socket of its own.
struct Path {
    side: Side,
    to: AddressHandle,
    sent: u32,
    rtts_ns: Vec<u64>,
}

/// Results of a path's pings.
#[derive(Debug, Serialize)]
struct Told {
    path: usize,
    sent: u32,
    answered: usize,
    /// Round trips from call to completion.
    min_ns: u64,
    median_ns: u64,
    max_ns: u64,
    /// The engine's estimate, without the time that the peer held the packets.
    network_ns: u64,
    /// Packets sent again.
    repeated: u64,
    /// Bytes that arrived with a congestion mark.
    marked_bytes: u64,
    carrier: String,
}

/// Pings; returns whether all were answered.
///
/// # Errors
/// The host is not known, no interface leads to it, or nobody serves there.
pub fn run(args: &PingArgs) -> Result<bool> {
    let (server, size) = (peer::resolve(&args.server)?, args.size as usize);
    let device = Device::towards(server)?;
    let default = if device.is_loopback() { PATHS_LOOPBACK } else { PATHS_DEFAULT };
    let mut paths = Vec::new();
    for _ in 0..args.paths.unwrap_or(default) {
        // The network is asked after, though the server be on this host.
        let options = ContextOptions::new().paths(1).setting("local", "udp");
        let side = Side::open(&device, &options, (0, 0))?;
        let to = side.pd.create_ah(server)?;
        paths.push(Path { side, to, sent: 0, rtts_ns: Vec::new() });
    }
    if !args.json {
        text::print(&begin(&device, server, size, paths.len()))?;
    }
    for number in 0..args.count {
        let end = Instant::now() + Duration::from_secs_f64(args.interval);
        let mut line = format!("{:>4}:", number + 1);
        for path in &mut paths {
            let rtt_ns = path.ping(server, number.into(), size)?;
            let shown = rtt_ns.map_or("no answer".to_owned(), text::time);
            // Writing to a string does not fail.
            let _ = write!(line, " {shown:>9}");
        }
        if !args.json {
            text::print(&format!("{line}\n"))?;
        }
        if number + 1 < args.count {
            thread::sleep(end.saturating_duration_since(Instant::now()));
        }
    }
    let told: Vec<Told> =
        paths.iter().enumerate().map(|(at, path)| path.told(at, server)).collect();
    let text = if args.json { serde_json::to_string_pretty(&told)? } else { summary(&told) };
    text::print(&format!("{text}\n"))?;
    Ok(told.iter().all(|path| path.answered == path.sent as usize))
}

fn begin(device: &Device, server: SocketAddr, size: usize, paths: usize) -> String {
    let (own, _) = host();
    let from = device.address();
    let mtu = path_mtu_bytes(from, server).map_or("unknown".to_owned(), |mtu| {
        let payload = max_payload_bytes(mtu, server.is_ipv6());
        format!("{mtu}, datagrams of {payload} bytes")
    });
    let s = if paths == 1 { "" } else { "s" };
    let heads: String = (1..=paths).map(|path| format!(" {:>9}", format!("path {path}"))).collect();
    format!(
        "{own} {from} on {} to {server}: {} bytes, {paths} path{s}, MTU {mtu}\nping:{heads}\n",
        device.name(),
        size,
    )
}

impl Path {
    /// The time until the answer, if it comes.
    fn ping(&mut self, server: SocketAddr, number: u64, size: usize) -> Result<Option<u64>> {
        self.side.qp.recv(0, vec![0; size])?;
        let start = Instant::now();
        self.sent += 1;
        self.side.send(&self.to, Header { kind: Kind::Ping, number }.message(size))?;
        while let Some(done) = self.side.done_within(PATIENCE.saturating_sub(start.elapsed()))? {
            let done = peer::check(done, server)?;
            let expected = Some(Header { kind: Kind::Echo, number });
            if done.completion.opcode == Opcode::Recv && Header::read(done.bytes()) == expected {
                let rtt_ns = start.elapsed().as_nanos() as u64;
                self.rtts_ns.push(rtt_ns);
                return Ok(Some(rtt_ns));
            }
        }
        Ok(None)
    }

    fn told(&self, at: usize, server: SocketAddr) -> Told {
        let mut sorted = self.rtts_ns.clone();
        sorted.sort_unstable();
        let flow: Option<Flow> = flow_of(&System::new(), self.side.qp.name(), server);
        let of = |value: fn(&Flow) -> u64| flow.as_ref().map_or(0, value);
        Told {
            path: at + 1,
            sent: self.sent,
            answered: sorted.len(),
            min_ns: sorted.first().copied().unwrap_or(0),
            median_ns: sorted.get(sorted.len() / 2).copied().unwrap_or(0),
            max_ns: sorted.last().copied().unwrap_or(0),
            network_ns: of(|flow| flow.rtt_ns),
            repeated: of(|flow| flow.rtx_nack + flow.rtx_probe + flow.rtx_order + flow.rtx_trim),
            marked_bytes: of(|flow| flow.ce_bytes),
            carrier: flow.map_or("-".to_owned(), |flow| flow.carrier),
        }
    }
}

fn summary(told: &[Told]) -> String {
    let mut table = text::table([
        "path", "via", "sent", "answered", "least", "median", "most", "network", "repeated",
        "marked",
    ]);
    for path in told {
        table.add_row([
            path.path.to_string(),
            path.carrier.clone(),
            path.sent.to_string(),
            path.answered.to_string(),
            text::time(path.min_ns),
            text::time(path.median_ns),
            text::time(path.max_ns),
            text::time(path.network_ns),
            path.repeated.to_string(),
            text::bytes(path.marked_bytes),
        ]);
    }
    format!("\n{table}")
}
