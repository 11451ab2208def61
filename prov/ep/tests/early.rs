//! Messages and writes that are complete when they are copied.

use super::late::count;
use super::memory::{expose, remote, with_driver};
use super::node::{EP_CONTEXT, Node, Options, Pair, ctx, ok};
use erd_core::endpoint::ORDERED_BYTES;
use erd_core::endpoint::call::Call;
use erd_core::endpoint::limits::{EARLY_BYTES_MAX, FEW_SENDS};
use erd_core::endpoint::ops::Buffers;
use erd_core::endpoint::post_rma::RmaPost;
use erd_core::flags::Flags;
use erd_core::run::Driven;
use erd_core::settings::INJECT_BYTES;
use erd_ffi::fi::*;

const AGAIN: isize = -(FI_EAGAIN as isize);

/// A pair whose session is open, with nothing under way.
/// Over the network path: what is written to shared memory is with the peer.
fn met(options: Options) -> Pair {
    let pair = Pair::new(Options { alone: true, ..options });
    let mut got = [0; 1];
    ok("recv", pair.b.recv(&mut got, FI_ADDR_UNSPEC, 1));
    ok("send", pair.a.send(&[1], pair.a_to_b, 2));
    let sent = || if options.counters_only { pair.a.counted().0 } else { read(&pair.a) };
    let mut count = 0;
    pair.until(|| {
        count += sent();
        count > 0
    });
    settle(&pair);
    while read(&pair.b) > 0 {}
    pair
}

/// Reads one completion, if there is one.
fn read(node: &Node) -> u64 {
    node.read(1).map_or(0, |done| done.len() as u64)
}

/// Until everything that `a` sent has been acknowledged.
fn settle(pair: &Pair) {
    pair.until(|| with_driver(&pair.a, |driver| driver.host.live_sends() == 0));
}

/// Calls `f` while `b` stands still: nobody acknowledges anything.
fn alone(pair: &Pair, f: impl FnOnce(&Node)) {
    with_driver(&pair.b, |_| f(&pair.a));
}

#[test]
fn what_is_copied_is_complete_and_arrives_as_it_was() {
    let pair = met(Options::default());
    for len in [0, 8, INJECT_BYTES, 4096, EARLY_BYTES_MAX as usize] {
        let (mut sent, mut got) = (vec![7; len], vec![0; len]);
        ok("recv", pair.b.recv(&mut got, FI_ADDR_UNSPEC, 3));
        alone(&pair, |a| {
            ok("send", a.send(&sent, pair.a_to_b, 4));
            let done = a.read(1).expect("complete")[0];
            assert_eq!((done.context, done.flags), (4, FI_MSG | FI_SEND), "{len} bytes");
            sent.fill(0);
        });
        assert_eq!(pair.b.next(&[&pair.a]).expect("received").len, len);
        assert!(got.iter().all(|byte| *byte == 7), "{len} bytes as they were");
        settle(&pair);
        assert_eq!(pair.a.read(1), Err(AGAIN), "one completion each");
    }
}

#[test]
fn a_write_that_is_copied_is_complete() {
    let pair = met(Options::default());
    let mut memory = [0_u8; 8];
    expose(&pair.b, memory.as_mut_ptr().expose_provenance(), memory.len());
    let mut own = [9_u8; 8];
    alone(&pair, |a| {
        post(a, &pair, &mut own, RmaPost::write, 0);
        assert_eq!(a.read(1).expect("complete")[0].flags, FI_RMA | FI_WRITE);
        own = [1; 8];
        post(a, &pair, &mut own, RmaPost::read, 0);
        assert_eq!(a.read(1), Err(AGAIN), "a read is not");
    });
    assert_eq!(pair.a.next(&[&pair.b]).expect("read").flags, FI_RMA | FI_READ);
    assert_eq!((own, memory), ([9; 8], [9; 8]));
}

/// A long write is not met at once, so that the read after it might be met first.
#[test]
fn a_write_that_may_be_overtaken_waits_for_the_peer() {
    let pair = met(Options::default());
    let mut memory = [0_u8; ORDERED_BYTES + 1];
    expose(&pair.b, memory.as_mut_ptr().expose_provenance(), memory.len());
    let mut own = [9_u8; ORDERED_BYTES + 1];
    alone(&pair, |a| {
        post(a, &pair, &mut own[1..], RmaPost::write, 0);
        assert_eq!(a.read(1).expect("it has its turn")[0].flags, FI_RMA | FI_WRITE);
        post(a, &pair, &mut own, RmaPost::write, 0);
        assert_eq!(a.read(1), Err(AGAIN), "one that is longer by a byte");
        post(a, &pair, &mut own, RmaPost::write, FI_INJECT_COMPLETE);
        assert_eq!(a.read(1).expect("as asked for")[0].flags, FI_RMA | FI_WRITE);
    });
    assert_eq!(pair.a.next(&[&pair.b]).expect("written").flags, FI_RMA | FI_WRITE);
    settle(&pair);
    assert_eq!(memory, own);
}

/// Sandia OpenSHMEM waits for its counter of writes, asks for no level, and then sets the flag that
/// tells the peer to look at the data.
#[test]
fn a_write_that_is_counted_waits_for_the_peer() {
    let pair = met(Options::default());
    let writes = pair.a.new_cntr();
    assert_eq!(pair.a.bind(writes.cast(), FI_WRITE), 0);
    let mut memory = [0_u8; 8];
    expose(&pair.b, memory.as_mut_ptr().expose_provenance(), memory.len());
    let mut own = [9_u8; 8];
    alone(&pair, |a| {
        post(a, &pair, &mut own, RmaPost::write, 0);
        assert_eq!((count(writes), a.read(1)), (0, Err(AGAIN)));
    });
    assert_eq!(pair.a.next(&[&pair.b]).expect("written").flags, FI_RMA | FI_WRITE);
    assert_eq!((count(writes), memory), (1, [9; 8]));
    let Pair { mut a, .. } = pair;
    a.close_ep();
    a.close_cntrs(&[writes]);
}

type Make = fn(Buffers, erd_rd::Targets, Call) -> RmaPost;

fn post(a: &Node, pair: &Pair, own: &mut [u8], make: Make, flags: u64) {
    // SAFETY: the tests keep the bytes until the request is complete.
    let buffers = unsafe { Buffers::one(own.as_mut_ptr().cast(), own.len()) };
    let call = Call::new(pair.a_to_b, ctx(5), Flags::COMPLETION | Flags::from_bits_retain(flags));
    let request = make(buffers, remote(0, own.len() as u64, None).targets, call);
    with_driver(a, |driver| driver.post_rma(&request)).expect("posted");
}

#[test]
fn the_counter_counts_when_it_is_copied() {
    let pair = met(Options { counters_only: true, ..Options::default() });
    let before = pair.a.counted();
    alone(&pair, |a| {
        ok("send", a.send(&[1; 8], pair.a_to_b, 3));
        assert_eq!(a.counted(), (before.0 + 1, 0));
        ok("inject", a.inject(&[1; 8], pair.a_to_b));
        assert_eq!(a.counted(), (before.0 + 1, 0), "fi_inject counts what has been delivered");
    });
    // An application that binds only a counter makes progress by reading it.
    pair.until(|| pair.a.counted() == (before.0 + 2, 0));
    settle(&pair);
    assert_eq!(pair.a.counted(), (before.0 + 2, 0), "each once");
}

#[test]
fn what_asks_for_more_waits_for_the_peer() {
    let pair = met(Options::default());
    let long = vec![1; EARLY_BYTES_MAX as usize + 1];
    for (bytes, flags) in [
        (&long[..8], FI_TRANSMIT_COMPLETE),
        (&long[..8], FI_DELIVERY_COMPLETE),
        (&long[..8], FI_FENCE),
        (&long[..8], FI_INJECT | FI_TRANSMIT_COMPLETE),
        (&long[..], 0),
    ] {
        alone(&pair, |a| {
            ok("sendmsg", a.sendmsg(&[bytes], pair.a_to_b, 3, flags));
            assert_eq!(a.read(1), Err(AGAIN), "{flags:#x}");
        });
        let mut got = vec![0; bytes.len()];
        ok("recv", pair.b.recv(&mut got, FI_ADDR_UNSPEC, 4));
        assert_eq!(pair.a.next(&[&pair.b]).expect("sent").context, 3);
        assert_eq!(pair.b.next(&[&pair.a]).expect("received").context, 4);
        settle(&pair);
    }
}

#[test]
fn so_does_what_is_sent_to_a_stranger() {
    let pair = Pair::new(Options::APART);
    alone(&pair, |a| {
        ok("send", a.send(&[1; 8], pair.a_to_b, 3));
        assert_eq!(a.read(1), Err(AGAIN));
    });
    assert_eq!(pair.a.next(&[&pair.b]).expect("sent").context, 3);
}

#[test]
fn copies_are_bounded_by_the_transmit_queue() {
    let pair = met(Options { tx_size: 4, ..Options::default() });
    alone(&pair, |a| {
        for at in 0..4 {
            ok("send", a.send(&[1; 8], pair.a_to_b, at));
            assert_eq!(a.read(1).expect("complete")[0].context, at);
        }
        assert_eq!(a.send(&[1; 8], pair.a_to_b, 4), AGAIN, "none is acknowledged");
    });
    settle(&pair);
    ok("send", pair.a.send(&[1; 8], pair.a_to_b, 4));
    let more = 1 + FEW_SENDS;
    let pair = met(Options { tx_size: more, ..Options::default() });
    alone(&pair, |a| {
        let sent = vec![1; INJECT_BYTES + 1];
        (0..more).for_each(|at| ok("send", a.send(&sent, pair.a_to_b, at)));
        let done = a.read(more).expect("complete");
        assert_eq!(done.len(), FEW_SENDS, "so many long copies, and the others wait");
        assert_eq!(a.send(&[1; 8], pair.a_to_b, more), AGAIN, "what is unread counts once");
    });
    // The last reads its buffer no more.
    settle(&pair);
}

#[test]
fn a_peer_that_is_lost_is_told_once_with_the_endpoints_context() {
    let pair = met(Options::default());
    let name = pair.b.name();
    alone(&pair, |a| {
        for at in 0..3 {
            ok("send", a.send(&[1; 8], pair.a_to_b, at));
            assert_eq!(a.read(1).expect("complete")[0].context, at);
        }
        with_driver(a, |driver| {
            driver.engine.handle_bad_buffer(name, &mut driver.host);
            driver.publish();
        });
        assert_eq!(a.read(1), Err(-(FI_EAVAIL as isize)));
        let lost = a.read_error();
        assert_eq!((lost.context, lost.flags), (EP_CONTEXT, FI_MSG | FI_SEND));
        assert!(lost.err_data_size > 0, "the peer's name");
        assert_eq!(a.read(1), Err(AGAIN), "once");
        ok("send", a.send(&[1; 8], pair.a_to_b, 7));
        assert_eq!(a.read(1), Err(AGAIN), "the next waits for the peer");
    });
    assert_eq!(pair.a.next(&[&pair.b]).expect("it is back").context, 7);
}

#[test]
fn a_write_that_is_refused_later_is_told_with_the_endpoints_context() {
    let pair = met(Options::default());
    let mut own = [9_u8; 8];
    post(&pair.a, &pair, &mut own, RmaPost::write, 0);
    assert_eq!(pair.a.next(&[&pair.b]).expect("complete").context, 5);
    let refused = pair.a.next(&[&pair.b]).expect_err("no such key");
    assert_eq!((refused.context, refused.err), (EP_CONTEXT, FI_EKEYREJECTED));
    post(&pair.a, &pair, &mut own, RmaPost::write, FI_DELIVERY_COMPLETE);
    assert_eq!(pair.a.next(&[&pair.b]).expect_err("no such key").context, 5);
}

#[test]
fn closing_waits_for_what_was_copied() {
    let mut pair = met(Options::default());
    let mut got = vec![[0_u8; 64]; 40];
    for (at, buffer) in got.iter_mut().enumerate() {
        ok("recv", pair.b.recv(buffer, FI_ADDR_UNSPEC, at));
    }
    for at in 0..got.len() {
        let sent = [at as u8; 64];
        ok("send", pair.a.send(&sent, pair.a_to_b, at));
        assert_eq!(pair.a.next(&[]).expect("complete").context, at);
    }
    pair.a.close_ep();
    for (at, buffer) in got.iter().enumerate() {
        assert_eq!(pair.b.next(&[]).expect("received").context, at);
        assert_eq!(buffer, &[at as u8; 64]);
    }
}
