//! The process's flows for observers outside: `erd top`.
//!
//! The helper thread holds a `Monitor`, a listening socket that observers find in /proc/net/unix by its name. It costs
//! nothing until an observer connects. It sends one snapshot and closes: lines of JSON, each an object with a `kind`,
//! first `process`, then every `endpoint`, then each `flow`, and `end` last. Without the `end` the kernel did not take
//! all. `erd_rd::stats::Stats` and `erd_rd::FlowView` define the numbers; their units are in their names.
//!
//! Applications do not wait for it: a snapshot takes an endpoint's lock only when that is free,
//! holds it for some tens of microseconds, and gives up after some milliseconds.

use crate::domain::Domain;
use crate::endpoint::observe::{Flow, Head, Seen};
use crate::endpoint::{Endpoint, stats};
use erd_sys::clock::monotonic_ns;
use erd_sys::visit::{Listener, Visitor};
use std::fmt::Write as _;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// Prefix of such sockets' names. A random number follows: process ids may repeat across PID namespaces.
pub const NAME_PREFIX: &str = "erd-monitor-";
/// Version of the format. A change that a reader would misunderstand increases it.
pub const FORMAT: u32 = 1;

/// Most flows of one snapshot.
const FLOWS_MAX: usize = 8192;
/// Times that a snapshot comes back to busy endpoints, and the pause before each.
const PASSES: usize = 40;
const PAUSE: Duration = Duration::from_micros(100);
/// Most visitors that get the same snapshot.
const VISITORS_MAX: usize = 8;

/// The socket that observers connect to.
#[derive(Debug)]
pub struct Monitor {
    listener: Listener,
}

impl Monitor {
    /// `None` where there can be no such socket; everything else works without it.
    pub fn open() -> Option<Monitor> {
        let name = format!("{NAME_PREFIX}{:016x}", crate::random::u64());
        match Listener::open(&name) {
            Ok(listener) => Some(Monitor { listener }),
            Err(error) => {
                tracing::debug!(%error, "nobody can look in: no socket for it");
                None
            }
        }
    }

    /// The socket's descriptor, for a wait set.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.listener.fd()
    }

    /// The observers that wait. `None` if the socket has failed.
    pub(crate) fn visitors(&self) -> Option<Vec<Visitor>> {
        let mut found = Vec::new();
        while found.len() < VISITORS_MAX {
            match self.listener.accept() {
                Ok(Some(visitor)) => found.push(visitor),
                Ok(None) => break,
                Err(error) => {
                    tracing::debug!(%error, "nobody can look in any more");
                    return None;
                }
            }
        }
        Some(found)
    }
}

/// Sends the same snapshot to all visitors.
pub fn tell(visitors: Vec<Visitor>, snapshot: &str) {
    for visitor in visitors {
        if let Err(error) = visitor.tell(snapshot.as_bytes()) {
            tracing::debug!(%error, "a visitor left");
        }
    }
}

/// The snapshot of these endpoints, as lines of JSON.
pub fn snapshot<'a>(endpoints: impl Iterator<Item = &'a Endpoint>) -> String {
    let endpoints: Vec<&Endpoint> =
        endpoints.filter(|endpoint| endpoint.domain.settings.monitor).collect();
    let mut all = vec![Seen::default(); endpoints.len()];
    let mut left: Vec<usize> = (0..all.len()).collect();
    let mut room = FLOWS_MAX;
    for pass in 0..PASSES {
        if pass > 0 {
            std::thread::sleep(PAUSE);
        }
        left.retain(|&at| !look(endpoints[at], &mut all[at], &mut room));
        if left.is_empty() {
            break;
        }
    }
    let of = endpoints.iter().zip(&all);
    written(of.map(|(endpoint, seen)| (&*endpoint.domain, seen)), endpoints.len(), left.len())
}

/// Reads an endpoint until it is complete or busy with another thread; true if it is complete.
fn look(endpoint: &Endpoint, seen: &mut Seen, room: &mut usize) -> bool {
    loop {
        let (flows, looked) = (seen.flows.len(), seen.progress());
        let done = endpoint.observe(seen, *room);
        *room -= seen.flows.len() - flows;
        if done || looked == seen.progress() {
            return done;
        }
    }
}

fn written<'a>(
    seen: impl Iterator<Item = (&'a Domain, &'a Seen)> + Clone,
    endpoints: usize,
    busy: usize,
) -> String {
    let mut text = format!(
        "{{\"kind\":\"process\",\"format\":{FORMAT},\"version\":\"{}\",\"pid\":{},\
         \"monotonic_ns\":{},\"endpoints\":{endpoints}}}\n",
        env!("CARGO_PKG_VERSION"),
        std::process::id(),
        monotonic_ns(),
    );
    let heads = seen.clone().filter_map(|(domain, seen)| Some((domain, seen.head.as_ref()?, seen)));
    for (domain, head, _) in heads.clone() {
        endpoint_line(&mut text, domain, head);
    }
    let mut flows = 0;
    for (_, head, seen) in heads {
        seen.flows.iter().for_each(|flow| flow_line(&mut text, head, flow));
        flows += seen.flows.len();
    }
    // Writing to a string does not fail.
    let _ = writeln!(text, "{{\"kind\":\"end\",\"flows\":{flows},\"busy\":{busy}}}");
    text
}

fn endpoint_line(text: &mut String, domain: &Domain, head: &Head) {
    let device = domain.verbs.as_ref().map(|port| port.name());
    let _ = write!(
        text,
        "{{\"kind\":\"endpoint\",\"endpoint\":\"{}\",\"iface\":{},\"device\":{},\"cc\":\"{}\",\
         \"paths\":{},\"peers\":{},\"recv_buffer_bytes\":{}",
        head.name,
        quoted(&domain.iface),
        device.map_or("null".to_owned(), |name| quoted(&name)),
        head.scheme,
        domain.paths,
        head.peers,
        head.recv_buffer_bytes,
    );
    stats::counters(text, &head.stats, head.kernel_drops, head.carried);
    text.push_str("}\n");
}

fn flow_line(text: &mut String, head: &Head, flow: &Flow) {
    let (view, cc, again) = (&flow.view, &flow.view.controller, &flow.view.repeated);
    let _ = write!(
        text,
        "{{\"kind\":\"flow\",\"endpoint\":\"{}\",\"peer\":\"{}\",\"carrier\":\"{}\"",
        head.name, flow.peer, flow.carrier
    );
    for (name, value) in [
        ("window_bytes", view.window_bytes),
        ("pace_bytes_per_s", view.pace_bytes_per_s.unwrap_or(0)),
        ("in_flight_bytes", view.in_flight_bytes),
        ("rtt_ns", view.rtt_ns),
        ("base_rtt_ns", cc.base_rtt_ns),
        ("typical_rtt_ns", cc.typical_rtt_ns),
        ("target_ns", cc.target_ns),
        ("bdp_bytes", cc.bdp_bytes),
        ("paths", cc.paths.into()),
        ("sent_bytes", view.sent_bytes),
        ("acked_bytes", view.acked_bytes),
        ("ce_bytes", view.ce_bytes),
        ("rtx_nack", again.nack),
        ("rtx_probe", again.probe),
        ("rtx_order", again.order),
        ("rtx_trim", again.trim),
        ("rtx_spurious", again.spurious),
        ("out_of_order_max", view.out_of_order_max.into()),
        ("last_heard_ns", view.last_heard_ns),
    ] {
        let _ = write!(text, ",\"{name}\":{value}");
    }
    let kib: Vec<String> = flow.path_kib.iter().map(u32::to_string).collect();
    let _ = writeln!(text, ",\"path_kib\":[{}]}}", kib.join(","));
}

/// A string of JSON. Names of interfaces may contain anything except `/` and white space.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_those_of_json() {
        assert_eq!(quoted("eth0"), "\"eth0\"");
        assert_eq!(quoted("a\"b\\c\u{1b}"), "\"a\\\"b\\\\c\\u001b\"");
    }

    #[test]
    fn a_snapshot_of_nothing_has_a_beginning_and_an_end() {
        let text = snapshot(std::iter::empty());
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 2);
        assert!(lines[0].starts_with("{\"kind\":\"process\",\"format\":1,"), "{text}");
        assert_eq!(lines[1], "{\"kind\":\"end\",\"flows\":0,\"busy\":0}");
    }
}
