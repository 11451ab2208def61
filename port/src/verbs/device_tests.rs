//! Tests that need two ports of RDMA devices that reach each other. `cargo xtask test --full` runs them in
//! the virtual machine, under AddressSanitizer.

use super::negotiation::address::Address;
use super::receive::{Member, Source};
use super::{Options, SendStop, Sent, VerbsPort, ports};
use crate::udp::Dst;
use crate::{Burst, PinId};
use erd_sys::clock::monotonic_ns;
use erd_types::Ecn;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

const PATHS: u16 = 4;
/// Longest wait for anything.
const LIMIT: Duration = Duration::from_secs(20);
/// More than the time after which a failed queue pair is made ready again.
const REST: Duration = Duration::from_millis(150);

/// An endpoint on a port of its own.
struct End {
    port: Arc<VerbsPort>,
    member: Member,
    got: Vec<(Vec<u8>, Source)>,
}

/// Sizes of a burst's datagrams, and the number sent before.
#[derive(Clone, Copy)]
struct Sizes {
    segment_bytes: u32,
    done: u32,
}

fn two_ends() -> [End; 2] {
    let (found, _) = ports().expect("RDMA devices");
    let [left, right, ..] = &found[..] else { panic!("two ports are needed: {found:?}") };
    [left, right].map(|port| {
        let options = Options {
            paths: PATHS,
            recv_slots: 512,
            qkey: 77,
            service: crate::verbs::Service::default(),
        };
        let port = Arc::new(VerbsPort::open(port, &options).expect("a port"));
        let member = Member::join(&port).expect("a member");
        End { port, member, got: Vec::new() }
    })
}

impl End {
    /// Sends `data` in datagrams of `segment_bytes`, as far as it goes.
    fn try_send(&self, to: &Member, path: u16, data: &[u8], segment_bytes: u32, done: u32) -> Sent {
        let sizes = Sizes { segment_bytes, done };
        self.try_send_to(to.address(), path, &[data], sizes, None)
    }

    /// Once the way there is known.
    fn try_send_parts(
        &self,
        to: &Member,
        path: u16,
        parts: &[&[u8]],
        sizes: Sizes,
        memory: Option<PinId>,
    ) -> Sent {
        let begun = Instant::now();
        loop {
            let sent = self.try_send_to(to.address(), path, parts, sizes, memory);
            if sent.stop != Some(SendStop::Resolving) {
                return sent;
            }
            assert!(begun.elapsed() < LIMIT, "no way is found");
        }
    }

    fn try_send_to(
        &self,
        to: Address,
        path: u16,
        parts: &[&[u8]],
        sizes: Sizes,
        memory: Option<PinId>,
    ) -> Sent {
        let iov: Vec<_> = parts
            .iter()
            .map(|part| libc::iovec {
                iov_base: part.as_ptr().cast_mut().cast(),
                iov_len: part.len(),
            })
            .collect();
        let burst = Burst {
            dst: &Dst::from(SocketAddr::from(([192, 0, 2, 1], 1))),
            path,
            ecn: Ecn::Ect0,
            iov: &iov,
            segment_bytes: sizes.segment_bytes,
            total_bytes: parts.iter().map(|part| part.len() as u32).sum(),
            done_segments: sizes.done,
            may_fragment: false,
            memory,
        };
        // SAFETY: the parts are slices.
        unsafe { self.port.send(&to, &burst) }
    }

    /// Sends all of it, while `other` receives.
    fn send(&self, other: &mut End, path: u16, data: &[u8], segment_bytes: u32) {
        let (begun, mut done) = (Instant::now(), 0);
        loop {
            let sent = self.try_send(&other.member, path, data, segment_bytes, done);
            done = sent.segments;
            if sent.stop.is_none() {
                return;
            }
            other.look();
            assert!(begun.elapsed() < LIMIT, "it is not sent: {sent:?}");
        }
    }

    /// Takes all arrivals: one call takes some, and arrivals that nobody takes fill the receives.
    fn look(&mut self) {
        let got = &mut self.got;
        while self.member.recv(|data, source| got.push((data.to_vec(), *source))) > 0 {}
    }

    /// The arrivals, once there are `count` datagrams.
    fn receive(&mut self, count: usize) -> Vec<(Vec<u8>, Source)> {
        let begun = Instant::now();
        while self.got.len() < count {
            assert!(begun.elapsed() < LIMIT, "{} of {count} datagrams came", self.got.len());
            self.look();
        }
        std::mem::take(&mut self.got)
    }
}

fn bytes(count: usize, seed: usize) -> Vec<u8> {
    (0..count).map(|at| (at * 31 + seed * 7) as u8).collect()
}

#[test]
#[ignore = "needs RDMA devices"]
fn datagrams_of_all_sizes_cross_on_all_paths() {
    let [left, mut right] = two_ends();
    let most = usize::from(left.port.address().mtu_bytes);
    for path in 0..PATHS {
        for size in [1, 64, 187, 188, 189, 1232, 2048, most] {
            let data = bytes(size, size + usize::from(path));
            left.send(&mut right, path, &data, size as u32);
            let got = right.receive(1);
            let (arrived, source) = &got[0];
            assert!(*arrived == data, "{size} bytes on path {path}");
            assert_eq!(source.qpn, left.port.address().senders[usize::from(path)]);
            assert_eq!((source.gid, source.ecn), (left.port.address().gid, Ecn::Ect0));
        }
    }
}

#[test]
#[ignore = "needs RDMA devices"]
fn more_than_a_queue_holds_is_sent_in_turn() {
    let [left, mut right] = two_ends();
    let data = bytes(300 * 1000 + 17, 3);
    left.send(&mut right, 1, &data, 1000);
    let got = right.receive(301);
    let joined: Vec<u8> = got.into_iter().flat_map(|(data, _)| data).collect();
    assert!(joined == data, "in order, as one queue pair sends");
}

#[test]
#[ignore = "needs RDMA devices"]
fn a_queue_pair_that_fails_is_stood_in_for_and_comes_back() {
    let [left, mut right] = two_ends();
    let senders = left.port.address().senders;
    left.send(&mut right, 0, b"before", 6);
    assert_eq!(right.receive(1)[0].1.qpn, senders[0]);
    left.port.break_sender(0);
    // The broken one loses its datagrams, which the engine repairs.
    let begun = Instant::now();
    while right.got.is_empty() {
        left.send(&mut right, 0, b"meanwhile", 9);
        std::thread::sleep(Duration::from_millis(2));
        right.look();
        assert!(begun.elapsed() < LIMIT, "nothing arrives");
    }
    assert_ne!(right.receive(1)[0].1.qpn, senders[0], "another queue pair stands in");
    std::thread::sleep(REST);
    left.send(&mut right, 0, b"after", 5);
    let got = loop {
        let got = right.receive(1);
        if let Some(found) = got.into_iter().find(|(data, _)| data == b"after") {
            break found;
        }
    };
    assert_eq!(got.1.qpn, senders[0], "it is back");
}

#[test]
#[ignore = "needs RDMA devices"]
fn a_receiving_queue_pair_that_fails_comes_back_with_all_its_slots() {
    let [left, mut right] = two_ends();
    for round in 0..3_u8 {
        right.port.break_receiver();
        let begun = Instant::now();
        while right.port.is_usable() {
            right.look();
            assert!(begun.elapsed() < LIMIT, "nobody notices");
        }
        while !right.port.is_usable() {
            std::thread::sleep(Duration::from_millis(5));
            assert!(begun.elapsed() < LIMIT, "it does not come back");
        }
        right.got.clear();
        let slots = right.port.recv_slots();
        for at in 0..slots {
            left.send(&mut right, at as u16 % PATHS, &[round, at as u8], 2);
        }
        let got = right.receive(slots as usize);
        assert!(got.iter().all(|(data, _)| data[0] == round));
    }
}

#[test]
#[ignore = "needs RDMA devices"]
fn address_handles_are_made_anew_while_requests_name_the_old_ones() {
    let [left, mut right] = two_ends();
    let data = bytes(40 * 1000, 9);
    for _ in 0..20 {
        left.send(&mut right, 2, &data, 1000);
        left.port.age_handles();
        right.look();
    }
    assert_eq!(right.receive(20 * 40).len(), 20 * 40);
}

#[test]
#[ignore = "needs RDMA devices"]
fn a_host_that_does_not_answer_delays_no_other() {
    let [left, mut right] = two_ends();
    left.send(&mut right, 0, b"before", 6);
    right.receive(1);
    // Another host of the right one's network, which nobody is.
    let mut nobody = right.member.address();
    nobody.gid.0[15] = 77;
    let (begun, sizes) = (Instant::now(), Sizes { segment_bytes: 1, done: 0 });
    let try_nobody = || left.try_send_to(nobody, 0, &[b"x"], sizes, None).stop;
    assert_eq!(try_nobody(), Some(SendStop::Resolving), "nobody waits until it is known");
    for path in 0..PATHS {
        left.send(&mut right, path, b"meanwhile", 9);
        right.receive(1);
    }
    while try_nobody() != Some(SendStop::Unreachable) {
        assert!(begun.elapsed() < LIMIT, "it is looked for still");
        std::thread::sleep(Duration::from_millis(5));
    }
    left.send(&mut right, 0, b"after", 5);
    assert_eq!(right.receive(1)[0].0, b"after");
}

#[test]
#[ignore = "needs RDMA devices"]
fn a_port_closes_while_it_looks_for_a_host() {
    let [left, right] = two_ends();
    let mut nobody = right.member.address();
    nobody.gid.0[15] = 78;
    let sizes = Sizes { segment_bytes: 1, done: 0 };
    assert_eq!(left.try_send_to(nobody, 0, &[b"x"], sizes, None).stop, Some(SendStop::Resolving));
    drop((left, right));
    let [left, mut right] = two_ends();
    left.send(&mut right, 0, b"another", 7);
    assert_eq!(right.receive(1)[0].0, b"another");
}

#[test]
#[ignore = "needs RDMA devices"]
fn members_of_a_port_get_their_own_and_may_leave_with_some_unread() {
    let [left, mut right] = two_ends();
    let other = Member::join(&right.port).expect("another member");
    let mut other = End { port: Arc::clone(&right.port), member: other, got: Vec::new() };
    for round in 0..100_u8 {
        left.send(&mut right, 0, &[1, round], 2);
        left.send(&mut other, 1, &[2, round], 2);
    }
    assert!(right.receive(100).iter().all(|(data, _)| data[0] == 1));
    assert!(other.receive(100).iter().all(|(data, _)| data[0] == 2));
    left.send(&mut other, 0, b"unread", 6);
    std::thread::sleep(Duration::from_millis(50));
    right.look();
    drop(other);
    left.send(&mut right, 0, b"last", 4);
    assert_eq!(right.receive(1)[0].0, b"last");
}

#[test]
#[ignore = "needs RDMA devices"]
fn registered_memory_is_sent_from_where_it_lies() {
    let [left, mut right] = two_ends();
    let memory = bytes(20_000, 5);
    let pin = left.port.pin(memory.as_ptr(), memory.len()).expect("a registration");
    let head = *b"head";
    // Whole datagrams of 1004 bytes, of which 1000 lie in the memory, and a last one that is short.
    let mut parts: Vec<&[u8]> = Vec::new();
    for part in memory[3000..7300].chunks(1000) {
        parts.extend([&head[..], part]);
    }
    let sizes = Sizes { segment_bytes: 1004, done: 0 };
    let sent = left.try_send_parts(&right.member, 2, &parts, sizes, Some(pin.id()));
    assert_eq!((sent.segments, sent.stop), (5, None));
    assert_eq!(sent.uncopied_bytes, 4000, "300 bytes are sooner copied");
    let got = right.receive(5);
    for ((datagram, _), part) in got.iter().zip(memory[3000..7300].chunks(1000)) {
        assert!(datagram[..4] == head && datagram[4..] == *part);
    }
    // It ends while its datagrams are under way, and then names nothing.
    let id = pin.id();
    let again = left.try_send_parts(&right.member, 2, &parts, sizes, Some(id));
    assert_eq!(again.uncopied_bytes, 4000);
    drop(pin);
    right.receive(5);
    let copied = left.try_send_parts(&right.member, 2, &parts, sizes, Some(id));
    assert_eq!((copied.stop, copied.uncopied_bytes), (None, 0));
    assert!(right.receive(5)[4].0[4..] == memory[7000..7300]);
}

#[test]
#[ignore = "needs RDMA devices"]
fn what_names_memory_can_be_thrown_away() {
    let [left, mut right] = two_ends();
    let memory = bytes(20_000, 6);
    let pin = left.port.pin(memory.as_ptr(), memory.len()).expect("a registration");
    let sizes = Sizes { segment_bytes: 2004, done: 0 };
    for round in 0..300_usize {
        // More often than there are epochs, so that none is mistaken for an older one.
        let parts: [&[u8]; 2] = [b"head", &memory[round..round + 2000]];
        let sent = left.try_send_parts(&right.member, 1, &parts, sizes, Some(pin.id()));
        assert_eq!((sent.stop, sent.uncopied_bytes), (None, 2000), "round {round}");
        left.port.discard(pin.id());
        // It is sent, or lost.
        right.look();
    }
    right.got.clear();
    left.send(&mut right, 1, b"after it", 8);
    let begun = Instant::now();
    while right.got.last().is_none_or(|(data, _)| data != b"after it") {
        assert!(begun.elapsed() < LIMIT, "what is sent later does not arrive");
        right.look();
    }
    drop(pin);
}

#[test]
#[ignore = "needs RDMA devices"]
fn memory_that_is_not_there_is_refused() {
    let [left, _] = two_ends();
    let nowhere = std::ptr::without_provenance(1 << 20);
    assert!(left.port.pin(nowhere, 4096).is_err());
}

/// Datagrams of a long burst.
const LONG: usize = 40;

#[test]
#[ignore = "needs RDMA devices"]
fn a_path_keeps_the_order_of_its_bursts() {
    let [left, mut right] = two_ends();
    let size = 1000;
    let mut next = 0;
    for round in 0..40_u8 {
        let data = bytes(LONG * size, 0);
        left.send(&mut right, 2, &data, size as u32);
        left.send(&mut right, 2, &[round; 3], 3);
        right.look();
    }
    let got = right.receive(40 * (LONG + 1));
    let path = left.port.address().senders[2];
    for (data, source) in got.iter().filter(|(data, _)| data.len() == 3) {
        assert_eq!((source.qpn, &data[..]), (path, &[next; 3][..]));
        next += 1;
    }
    assert_eq!(next, 40);
}

#[test]
#[ignore = "needs RDMA devices"]
fn memory_is_waited_for_until_long_bursts_have_left_it() {
    let [left, mut right] = two_ends();
    for round in 0..20_u8 {
        let memory = vec![round; LONG * 1000];
        let pin = left.port.pin(memory.as_ptr(), memory.len()).expect("a registration");
        let head = [round; 4];
        let mut parts: Vec<&[u8]> = Vec::new();
        for part in memory.chunks(1000) {
            parts.extend([&head[..], part]);
        }
        let sizes = Sizes { segment_bytes: 1004, done: 0 };
        let path = u16::from(round) % PATHS;
        let sent = left.try_send_parts(&right.member, path, &parts, sizes, Some(pin.id()));
        assert_eq!((sent.stop, sent.uncopied_bytes), (None, LONG as u64 * 1000));
        // Otherwise datagrams not sent within SETTLE_NS would be dropped.
        left.port.settle(pin.id(), monotonic_ns() + LIMIT.as_nanos() as u64);
        drop(pin);
        drop(memory);
        let got = right.receive(LONG);
        assert!(got.iter().all(|(data, _)| data.len() == 1004 && data.iter().all(|b| *b == round)));
    }
}

#[test]
#[ignore = "needs RDMA devices"]
fn queue_pairs_that_fail_one_after_another_all_come_back() {
    let [left, mut right] = two_ends();
    let data = bytes(LONG * 1000, 4);
    for round in 0..12 {
        left.send(&mut right, round % PATHS, &data, 1000);
        left.port.break_sender(usize::from(round % PATHS));
        right.look();
    }
    // All rest, or lose their datagrams.
    std::thread::sleep(REST);
    right.look();
    right.got.clear();
    let begun = Instant::now();
    let mut seen = [false; PATHS as usize];
    while seen.contains(&false) {
        assert!(begun.elapsed() < LIMIT, "some path does not come back: {seen:?}");
        for path in 0..PATHS {
            left.send(&mut right, path, &data, 1000);
        }
        right.look();
        let senders = left.port.address().senders;
        for (_, source) in right.got.drain(..) {
            let path = senders.iter().position(|sender| *sender == source.qpn);
            seen[path.expect("a path")] = true;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
#[ignore = "needs RDMA devices"]
fn a_port_closes_with_datagrams_under_way() {
    for _ in 0..20 {
        let [left, right] = two_ends();
        let (data, sizes) = (bytes(LONG * 1000, 8), Sizes { segment_bytes: 1000, done: 0 });
        let sent = left.try_send_parts(&right.member, 0, &[&data], sizes, None);
        assert_eq!((sent.segments, sent.stop), (LONG as u32, None));
        drop((left, right));
    }
}
