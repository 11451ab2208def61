//! Endpoints as seen from outside the process.

use super::node::{Options, Pair, ok};
use erd_core::monitor::NAME_PREFIX;
use erd_ffi::fi::FI_ADDR_UNSPEC;
use erd_sys::visit::{names, visit};
use std::io::Read;
use std::time::{Duration, Instant};

/// The snapshot of this process.
pub fn snapshot() -> String {
    for name in names(NAME_PREFIX).expect("/proc") {
        let Ok((mut stream, who)) = visit(&name) else { continue };
        if who.pid == std::process::id() {
            let mut text = String::new();
            stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
            stream.read_to_string(&mut text).expect("an answer");
            return text;
        }
    }
    panic!("nobody listens");
}

#[test]
fn a_flow_is_seen_with_its_counters() {
    let pair = Pair::new(Options::APART);
    let mut got = vec![0; 4096];
    ok("recv", pair.b.recv(&mut got, FI_ADDR_UNSPEC, 1));
    ok("send", pair.a.send(&[5; 4096], pair.a_to_b, 2));
    assert!(pair.b.next(&[&pair.a]).is_ok() && pair.a.next(&[&pair.b]).is_ok());
    let [a, b] = [&pair.a, &pair.b].map(|node| node.name());
    let to = |from, to| {
        format!("{{\"kind\":\"flow\",\"endpoint\":\"{from}\",\"peer\":\"{to}\",\"carrier\":\"udp\"")
    };
    // The second is that of a peer that was never sent to.
    let (flow, passive) = (to(a, b), to(b, a));
    let end = Instant::now() + Duration::from_secs(20);
    // Tests beside this one have endpoints too, which may be busy at a look.
    let text = loop {
        let text = snapshot();
        let there = text.contains(&flow) && text.contains(&passive);
        if there || Instant::now() > end {
            break text;
        }
    };
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("{\"kind\":\"process\",\"format\":1,"), "{text}");
    assert!(lines[lines.len() - 1].starts_with("{\"kind\":\"end\","), "{text}");
    let line = |start: &str| lines.iter().find(|line| line.starts_with(start)).copied();
    let flow = line(&flow).expect("the flow");
    assert!(!flow.contains("\"sent_bytes\":0,") && !flow.contains("\"window_bytes\":0,"), "{flow}");
    assert!(!flow.contains("\"last_heard_ns\":0,"), "{flow}");
    let passive = line(&passive).expect("the flow to a peer that was not sent to");
    assert!(passive.contains("\"sent_bytes\":0,"), "{passive}");
    assert!(!passive.contains("\"last_heard_ns\":0,"), "{passive}");
    let endpoint =
        line(&format!("{{\"kind\":\"endpoint\",\"endpoint\":\"{a}\",")).expect("its endpoint");
    assert!(
        endpoint.contains("\"cc\":\"erd\",") && endpoint.contains("\"messages_sent\":1,"),
        "{endpoint}"
    );
}
