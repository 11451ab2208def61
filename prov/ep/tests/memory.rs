//! Peers' requests to registered memory, where a caller cannot see it or libfabric's calls do not
//! reach it.

use super::node::{Node, Options, Pair, ok, patience};
use crate::object;
use erd_core::endpoint::Endpoint;
use erd_core::endpoint::call::Call;
use erd_core::endpoint::driver::Driver;
use erd_core::endpoint::limits::UNREAD_MAX;
use erd_core::endpoint::ops::{Buffers, Handle};
use erd_core::endpoint::post_rma::RmaPost;
use erd_core::flags::Flags;
use erd_core::region::{Piece, Region};
use erd_core::run::guess::Lease;
use erd_core::run::sender::Outcome;
use erd_core::run::{Carriers, Driven};
use erd_ffi::fi::*;
use erd_rd::{Expected, Host, KeyIndex, Part, PeerId, Refusal, Remote, SendToken, Target, Targets};
use erd_sys::clock::monotonic_ns;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::ptr::null_mut;
use std::sync::Arc;
use std::time::Instant;

pub const KEY: u64 = 7;
/// An initiator on a host that [`expose`] makes known.
const ASKER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9);

pub fn with_driver<R>(node: &Node, f: impl FnOnce(&mut Driver) -> R) -> R {
    with_driver_of(node.ep, f)
}

/// Calls `f` with the locked inside of an open endpoint.
pub fn with_driver_of<R>(ep: *mut fid_ep, f: impl FnOnce(&mut Driver) -> R) -> R {
    // SAFETY: the endpoint is open.
    let ep = unsafe { object::inner::<Endpoint>(ep.cast()) };
    let mut answer = None;
    let rc = ep.post(|driver| {
        answer = Some(f(driver));
        Ok(())
    });
    rc.expect("a look inside");
    answer.expect("the endpoint is enabled")
}

/// Exposes memory; `len_bytes` from `start` on need not be there.
pub fn expose(node: &Node, start: usize, len_bytes: usize) -> Arc<Region> {
    let access = Flags::REMOTE;
    let region = Arc::new(Region::new(vec![Piece { start, len_bytes }], access, false));
    let insert = |driver: &mut Driver| driver.domain.regions.insert(Arc::clone(&region), KEY);
    with_driver(node, insert).expect("a key");
    node.knows_name(&ASKER);
    region
}

pub fn remote(addr: u64, len_bytes: u64, data: Option<u64>) -> Remote {
    let targets = Targets::new(&[Target { addr, len_bytes, key: KEY }]).expect("one");
    Remote {
        peer: PeerId { index: 0, generation: 0, key: KeyIndex(0) },
        name: ASKER,
        targets,
        data,
    }
}

#[test]
fn completion_data_of_peers_is_bounded_with_every_kind_of_request() {
    let node = Node::new(Options::default());
    let bytes = [5_u8; 8];
    expose(&node, bytes.as_ptr().expose_provenance(), bytes.len());
    with_driver(&node, |driver| {
        let host = &mut driver.host;
        for done in 0.. {
            let read = host.remote_read(&remote(0, 8, Some(1)));
            let Ok(token) = read else {
                assert_eq!((read, done), (Err(Refusal::Room), UNREAD_MAX));
                return;
            };
            assert!(done < UNREAD_MAX, "unread entries without a bound");
            host.sent(token, Ok(()));
        }
    });
}

#[test]
fn a_token_kept_too_long_reads_nobody_elses_bytes() {
    let node = Node::new(Options::default());
    let bytes = [5_u8; 8];
    expose(&node, bytes.as_ptr().expose_provenance(), bytes.len());
    with_driver(&node, |driver| {
        let served = driver.host.remote_read(&remote(0, 8, None)).expect("served");
        let stale = SendToken(Handle::from_token(served.0).0.token());
        let mut out = [0; 8];
        driver.host.read(stale, 0, &mut out);
        assert_eq!(out, [0; 8]);
        driver.host.read(served, 0, &mut out);
        assert_eq!(out, bytes);
    });
}

#[test]
fn a_region_is_let_go_when_its_session_fails() {
    let node = Node::new(Options::default());
    let bytes = [5_u8; 8];
    let region = expose(&node, bytes.as_ptr().expose_provenance(), bytes.len());
    with_driver(&node, |driver| {
        let admitted = driver.host.remote_write_later(&remote(0, 8, None)).expect("admitted");
        driver.host.received(admitted, Err(erd_rd::OpError::PeerTimeout));
        driver.domain.regions.remove(KEY);
    });
    assert_eq!(Arc::strong_count(&region), 1);
}

#[test]
fn what_waits_for_more_goes_out_when_a_later_call_fails() {
    let pair = Pair::new(Options::APART);
    let mut got = [0; 4];
    ok("recv", pair.b.recv(&mut got, FI_ADDR_UNSPEC, 1));
    ok("send", pair.a.send(&[1; 4], pair.a_to_b, 1));
    pair.b.next(&[&pair.a]).expect("received");
    pair.a.next(&[&pair.b]).expect("sent");
    let packets = || with_driver(&pair.a, |driver| driver.engine.stats().tx_data);
    let before = packets();
    ok("sendmsg", pair.a.sendmsg(&[&[2; 4]], pair.a_to_b, 2, FI_MORE | FI_COMPLETION));
    assert_eq!(pair.a.send(&[3; 4], 77, 3), -(FI_EINVAL as isize), "no such peer");
    assert_eq!(packets(), before + 1);
    pair.a.next(&[&pair.b]).expect("sent");
}

#[test]
fn a_request_for_missing_memory_is_refused_and_counted() {
    let pair = Pair::new(Options::APART);
    expose(&pair.b, 0, usize::MAX);
    let mut cell = [6_u8; 8];
    let there = cell.as_mut_ptr().expose_provenance() as u64;
    let mut own = [0_u8; 8];
    for (addr, make) in [
        (there, RmaPost::read as fn(Buffers, Targets, Call) -> RmaPost),
        (64, RmaPost::read),
        (64, RmaPost::write),
    ] {
        let targets = remote(addr, 8, None).targets;
        with_driver(&pair.a, |driver| {
            // SAFETY: the test waits for the completion.
            let buffers = unsafe { Buffers::one(own.as_mut_ptr().cast(), own.len()) };
            // A write that completes when it is copied does not report this.
            let flags = Flags::COMPLETION | Flags::DELIVERY_COMPLETE;
            let call = Call::new(pair.a_to_b, null_mut(), flags);
            driver.post_rma(&make(buffers, targets, call)).expect("posted");
        });
        let ended = pair.a.next(&[&pair.b]).map_err(|bad| bad.err);
        assert_eq!(ended.is_ok(), addr == there);
        assert!(ended.is_ok() || ended == Err(FI_EINVAL));
    }
    assert_eq!(own, cell);
    let refusals = with_driver(&pair.b, |driver| driver.engine.stats().refusals);
    assert_eq!(refusals[Refusal::Bounds as usize - 1], 2);
}

/// Posts a long write from `a` to the whole region of `b`. Calls `then` when some of it is there and the rest is
/// expected, with the length of the next datagram's payload. `a` goes on only as this says, and while `b` stands still:
/// both are locked, so that no helper thread ends the write on a slow machine.
fn write_under_way(pair: &Pair, own: &[u8], then: impl FnOnce(usize)) {
    let targets = remote(0, own.len() as u64, None).targets;
    with_driver(&pair.a, |a| {
        let own = pair.a.lend(own);
        // SAFETY: the buffer stays until the endpoint is closed, and is only read.
        let buffers = unsafe { Buffers::one(own.as_ptr().cast_mut().cast(), own.len()) };
        let call = Call::new(pair.a_to_b, null_mut(), Flags::COMPLETION);
        a.post_rma(&RmaPost::write(buffers, targets, call)).expect("posted");
        let end = Instant::now() + patience();
        while with_driver(&pair.b, |b| {
            let lease = b.carriers.guess.make(&b.engine, &mut b.host);
            let waits = !lease.is_some_and(|lease| lease.is_of_a_region());
            if waits {
                a.progress();
            }
            waits
        }) {
            assert!(Instant::now() < end, "the write does not begin");
            pair.b.poke();
        }
        let expected = |driver: &mut Driver| driver.carriers.guess.expected[0].len_bytes.into();
        then(with_driver(&pair.b, expected));
    });
}

/// What keeps the places from going where `node` would receive now.
fn lease(node: &Node) -> Option<Lease> {
    with_driver(node, |driver| driver.carriers.guess.make(&driver.engine, &mut driver.host))
}

#[test]
fn a_region_closes_between_arrivals_and_gets_nothing_more() {
    let pair = Pair::new(Options::APART);
    let (own, mut memory) = (vec![7_u8; 8 << 20], vec![1_u8; 8 << 20]);
    let region = expose(&pair.b, memory.as_mut_ptr().expose_provenance(), memory.len());
    let mut before = Vec::new();
    write_under_way(&pair, &own, |_| {
        let held = lease(&pair.b);
        assert!(held.is_some());
        let closing = Arc::clone(&region);
        let closer = std::thread::spawn(move || closing.close());
        while region.enter().is_some() {
            std::thread::yield_now();
        }
        assert!(!closer.is_finished(), "bytes may be on their way into it");
        drop(held);
        closer.join().expect("closed");
        before.clone_from(&memory);
    });
    assert!(before != own, "the test is to close it in the middle");
    let ended = pair.a.next(&[&pair.b]).map_err(|bad| bad.err);
    assert_eq!(ended.map(|_| ()), Err(FI_EKEYREJECTED));
    assert!(memory == before, "bytes came after the region was closed");
    assert!((0..100).all(|_| lease(&pair.b).is_none()));
}

#[test]
fn nothing_but_a_writes_own_bytes_comes_to_its_region() {
    let pair = Pair::new(Options::APART);
    let (own, mut memory) = (vec![7_u8; 8 << 20], vec![1_u8; 8 << 20]);
    expose(&pair.b, memory.as_mut_ptr().expose_provenance(), memory.len());
    let stranger = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    write_under_way(&pair, &own, |next_bytes| {
        let (forged, to) = (vec![0xee; Expected::HEAD_BYTES + next_bytes], pair.b.name());
        for _ in 0..100 {
            stranger.send_to(&forged, to).expect("sent");
            pair.b.poke();
            // What the helper thread receives is not received meanwhile: the endpoint is locked.
            let strange = with_driver(&pair.b, |_| memory.contains(&0xee));
            assert!(!strange, "a stranger's bytes are in the region");
        }
    });
    pair.a.next(&[&pair.b]).expect("written");
    assert!(memory == own);
}

/// Fills a burst with a message of `a` that goes to `to`, as if the sockets had not taken it yet; whether
/// bytes of the message are in it.
fn message_waits(pair: &Pair, a: &mut Driver, to: SocketAddr) -> bool {
    let text = pair.a.lend(&[7; 1200]);
    // SAFETY: the text stays until the endpoint is closed, and is only read.
    let buffers = unsafe { Buffers::one(text.as_ptr().cast_mut().cast(), text.len()) };
    let call = Call::new(pair.a_to_b, null_mut(), Flags::COMPLETION | Flags::MORE);
    a.post_send(&buffers, None, &call).expect("posted");
    let burst = a.carriers.sender.vacant().expect("nothing waits");
    assert!(a.engine.poll_transmit(monotonic_ns(), true, &mut a.host, burst));
    burst.to = to;
    let lent = burst.parts.iter().any(|part| matches!(part, Part::Payload { .. }));
    a.carriers.sender.filled();
    lent
}

#[test]
fn nothing_is_sent_of_an_operation_that_ended_while_its_burst_waited() {
    let pair = Pair::new(Options::APART);
    ok("send", pair.a.send(&[1; 4], pair.a_to_b, 1));
    pair.a.next(&[&pair.b]).expect("sent");
    let stranger = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    stranger.set_nonblocking(true).expect("set");
    let to = stranger.local_addr().expect("a name");
    for ends in [false, true] {
        with_driver(&pair.a, |a| {
            assert!(message_waits(&pair, a, to), "its bytes are to be read when they are sent");
            if ends {
                let peer = a.engine.peer_at(0).expect("the only one");
                a.engine.forget(peer, &mut a.host);
            }
            let (Driver { carriers, host, .. }, mut pending) = (a, false);
            let Carriers { sender, port, link, .. } = carriers;
            let sent = sender.send(monotonic_ns(), host, (port, link), &mut pending);
            assert_eq!(sent, Outcome::Empty);
        });
        assert_eq!(
            stranger.recv(&mut [0; 4096]).is_err(),
            ends,
            "a datagram comes unless it ended"
        );
    }
}

#[cfg(debug_assertions)]
#[test]
fn a_panic_in_a_send_lets_go_of_the_region() {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    let node = Node::new(Options::default());
    let bytes = [5_u8; 2000];
    let region = expose(&node, bytes.as_ptr().expose_provenance(), bytes.len());
    with_driver(&node, |driver| {
        let op = driver.host.remote_read(&remote(0, 2000, None)).expect("served");
        let burst = driver.carriers.sender.vacant().expect("nothing waits");
        burst.to = "127.0.0.1:9".parse().expect("an address");
        burst.parts = vec![Part::Payload { op, offset_bytes: 0, len_bytes: 2000 }];
        (burst.segment_bytes, burst.total_bytes) = (5, 5);
        driver.carriers.sender.filled();
        let (Driver { carriers, host, .. }, mut pending) = (driver, false);
        let Carriers { sender, port, link, .. } = carriers;
        let send = || sender.send(monotonic_ns(), host, (port, link), &mut pending);
        let sent = catch_unwind(AssertUnwindSafe(send));
        assert!(sent.is_err(), "a burst is as long as its parts");
    });
    let closing = std::thread::spawn(move || region.close());
    let end_ns = monotonic_ns() + 20_000_000_000;
    while !closing.is_finished() {
        assert!(monotonic_ns() < end_ns, "the region is held");
        std::thread::yield_now();
    }
}
