//! Promises of libfabric's man pages on completions, matching and errors.

use super::node::{Node, Options, Pair, ok};
use erd_core::cause::Cause;
use erd_core::settings::INJECT_BYTES;
use erd_ffi::fi::*;

const AGAIN: isize = -(FI_EAGAIN as isize);

#[test]
fn a_long_message_is_cut_and_says_so() {
    let pair = Pair::new(Options::default());
    for len in [100, 100_000] {
        for posted_first in [true, false] {
            let (sent, mut got) = (vec![7; len], vec![0; 60]);
            if posted_first {
                ok("trecv", pair.b.trecv(&mut got[..40], 5, 0, 2));
            }
            ok("tsend", pair.a.tsend(&sent, pair.a_to_b, 5, 1));
            if !posted_first {
                (0..50).for_each(|_| [&pair.a, &pair.b].iter().for_each(|node| node.poke()));
                ok("trecv", pair.b.trecv(&mut got[..40], 5, 0, 2));
            }
            let error = pair.b.next(&[&pair.a]).expect_err("truncated");
            assert_eq!((error.err, error.prov_errno), (FI_ETRUNC, Cause::Truncated.number()));
            assert_eq!((error.len, error.olen, error.tag), (40, len - 40, 5));
            assert_eq!((error.context, error.flags), (2, FI_TAGGED | FI_RECV));
            assert_eq!((&got[..40], &got[40..]), (&[7; 40][..], &[0; 20][..]));
            assert!(pair.a.next(&[&pair.b]).is_ok(), "the sender is not concerned");
        }
    }
}

#[test]
fn messages_are_packed_into_a_buffer_of_many() {
    let pair = Pair::new(Options::default());
    pair.b.set_min_multi_recv(64);
    let mut buffer = vec![0; 256];
    let base = buffer.as_ptr() as usize;
    // One comes before the buffer, the others after it.
    ok("send", pair.a.send(&[1; 100], pair.a_to_b, 1));
    (0..50).for_each(|_| [&pair.a, &pair.b].iter().for_each(|node| node.poke()));
    ok("recvmsg", pair.b.recv_many(&mut buffer, 9));
    ok("send", pair.a.send(&[2; 50], pair.a_to_b, 1));
    ok("send", pair.a.send(&[], pair.a_to_b, 1));
    ok("send", pair.a.send(&[3; 43], pair.a_to_b, 1));
    let mut at = 0;
    for (len, released) in [(100, 0), (50, 0), (0, 0), (43, FI_MULTI_RECV)] {
        let done = pair.b.next(&[&pair.a]).expect("received");
        assert_eq!((done.context, done.flags), (9, FI_MSG | FI_RECV | released));
        assert_eq!((done.buf, done.len), (base + at, len));
        at += len;
    }
    assert_eq!(buffer[..193], [[1; 100].as_slice(), &[2; 50], &[3; 43]].concat());
    assert!(buffer[193..].iter().all(|byte| *byte == 0));
    assert_eq!(pair.b.cancel(9), -(FI_ENOENT as isize), "it is released");
}

#[test]
fn a_canceled_buffer_of_many_is_released_once() {
    let node = Node::new(Options::default());
    let mut buffer = vec![0; 256];
    ok("recvmsg", node.recv_many(&mut buffer, 9));
    ok("cancel", node.cancel(9));
    let error = node.next(&[]).expect_err("canceled");
    assert_eq!((error.err, error.context), (FI_ECANCELED, 9));
    assert_eq!(error.flags, FI_MSG | FI_RECV | FI_MULTI_RECV);
    assert_eq!(node.read(1), Err(AGAIN));
}

#[test]
fn a_receive_from_an_authorization_key_is_refused() {
    let node = Node::new(Options::default());
    let invalid = -(FI_EINVAL as isize);
    assert_eq!(node.trecvmsg(&mut [0; 4], 1, 9, FI_AUTH_KEY), invalid);
    ok("trecvmsg", node.trecvmsg(&mut [0; 4], 1, 9, 0));
    ok("cancel", node.cancel(9));
}

#[test]
fn a_canceled_receive_takes_nothing() {
    let pair = Pair::new(Options::default());
    let (mut first, mut second) = ([0; 4], [0; 4]);
    ok("trecv", pair.b.trecv(&mut first, 1, 0, 11));
    ok("trecv", pair.b.trecv(&mut second, 1, 0, 12));
    ok("cancel", pair.b.cancel(11));
    let error = pair.b.next(&[]).expect_err("canceled");
    assert_eq!((error.err, error.context), (FI_ECANCELED, 11));
    ok("tsend", pair.a.tsend(&[5; 4], pair.a_to_b, 1, 0));
    assert_eq!(pair.b.next(&[&pair.a]).expect("received").context, 12);
    assert_eq!((first, second), ([0; 4], [5; 4]));
    assert_eq!(pair.b.cancel(12), -(FI_ENOENT as isize));
}

#[test]
fn peek_claim_and_discard() {
    let pair = Pair::new(Options::default());
    let peek = |tag, flags| {
        ok("peek", pair.b.trecvmsg(&mut [], tag, 0x77, FI_PEEK | flags));
        pair.b.next(&[&pair.a])
    };
    let missing = peek(1, 0).expect_err("nothing is there");
    assert_eq!((missing.err, missing.context), (FI_ENOMSG, 0x77));
    let messages: Vec<Vec<u8>> = vec![vec![1; 10], vec![2; 20], vec![3; 30_000], vec![4; 40]];
    for (at, message) in messages.iter().enumerate() {
        ok("tsend", pair.a.tsend(message, pair.a_to_b, at as u64, at));
    }
    pair.until(|| peek(3, 0).is_ok());
    let found = peek(2, FI_CLAIM).expect("there");
    assert_eq!((found.tag, found.len, found.flags), (2, 30_000, FI_TAGGED | FI_RECV));
    assert_eq!(peek(2, 0).expect_err("claimed").err, FI_ENOMSG);
    assert_eq!(peek(0, FI_DISCARD).expect("there").len, 10);
    assert_eq!(peek(0, 0).expect_err("discarded").err, FI_ENOMSG);
    assert_eq!(peek(1, FI_CLAIM).expect("there").len, 20);
    let mut got = vec![0; 30_000];
    // Both are claimed with one context: the first claimed comes first.
    ok("claim", pair.b.trecvmsg(&mut got, 2, 0x77, FI_CLAIM));
    let done = pair.b.next(&[&pair.a]).expect("received");
    assert_eq!((done.tag, done.len), (2, 30_000));
    assert_eq!(got, messages[2]);
    ok("discard", pair.b.trecvmsg(&mut [], 1, 0x77, FI_CLAIM | FI_DISCARD));
    assert_eq!(pair.b.next(&[&pair.a]).expect("discarded").tag, 1);
    let refused = -(FI_EINVAL as isize);
    assert_eq!(pair.b.trecvmsg(&mut got, 1, 0x77, FI_CLAIM), refused, "nothing is claimed");
    assert_eq!(pair.b.trecvmsg(&mut got, 1, 0x77, FI_DISCARD), refused);
    ok("trecv", pair.b.trecv(&mut got, 3, 0, 8));
    assert_eq!(pair.b.next(&[&pair.a]).expect("received").len, 40);
    for _ in &messages {
        assert!(pair.a.next(&[&pair.b]).is_ok(), "discarded or not, a send succeeds");
    }
}

#[test]
fn with_selective_completion_only_what_asks_completes() {
    let bind_flags = FI_SELECTIVE_COMPLETION;
    let pair = Pair::new(Options { bind_flags, ..Options::default() });
    let mut got = [0; 8];
    let receive = |count: u64, got: &mut [u8]| {
        ok("recv", pair.b.trecvmsg(got, 5, 1, 0));
        pair.until(|| pair.b.counted().0 == count);
        assert_eq!(pair.b.read(4), Err(AGAIN), "the receive did not ask");
    };
    ok("tsend", pair.a.tsend(&[1; 8], pair.a_to_b, 5, 10));
    receive(1, &mut got);
    let mut flags = FI_TRANSMIT | FI_COMPLETION;
    let at: *mut u64 = &raw mut flags;
    ok("FI_SETOPSFLAG", pair.a.control(FI_SETOPSFLAG, at.cast()) as isize);
    ok("tsend", pair.a.tsend(&[1; 8], pair.a_to_b, 5, 11));
    receive(2, &mut got);
    for (context, flags) in [(12, 0), (13, FI_COMPLETION)] {
        ok("sendmsg", pair.a.sendmsg(&[&[1; 8]], pair.a_to_b, context, flags));
    }
    // What did not ask would have come before 13.
    let contexts = [0; 2].map(|_| pair.a.next(&[&pair.b]).expect("sent").context);
    assert_eq!(contexts, [11, 13]);
    ok("recv", pair.b.trecvmsg(&mut got, 99, 3, 0));
    ok("cancel", pair.b.cancel(3));
    assert_eq!(pair.b.next(&[]).expect_err("errors always report").err, FI_ECANCELED);
}

#[test]
fn completion_levels_differ() {
    let pair = Pair::new(Options::default());
    let (short, mut got) = ([1; 8], [0; 8]);
    // Only its own buffer is asked for, and that is free at once: nobody else has moved.
    ok("send", pair.a.sendmsg(&[&short], pair.a_to_b, 1, FI_INJECT_COMPLETE));
    assert_eq!(pair.a.read(1).expect("complete")[0].context, 1);
    // The peer has buffered the next, but not matched it.
    ok("send", pair.a.sendmsg(&[&short], pair.a_to_b, 2, FI_DELIVERY_COMPLETE));
    assert_eq!(pair.a.next(&[&pair.b]).expect("buffered").context, 2);
    ok("send", pair.a.sendmsg(&[&short], pair.a_to_b, 3, FI_MATCH_COMPLETE));
    ok("send", pair.a.sendmsg(&[&short], pair.a_to_b, 4, FI_TRANSMIT_COMPLETE));
    assert_eq!(pair.a.next(&[&pair.b]).expect("buffered").context, 4, "3 waits for its match");
    for at in 0..4 {
        assert_eq!(pair.a.read(1), Err(AGAIN), "{at} receives are not enough for 3");
        ok("recv", pair.b.recv(&mut got, FI_ADDR_UNSPEC, at));
        assert_eq!(pair.b.next(&[]).expect("received").context, at);
        if at == 2 {
            assert_eq!(pair.a.next(&[&pair.b]).expect("matched").context, 3);
        }
    }
}

#[test]
fn counters_count_without_a_queue() {
    let pair = Pair::new(Options { counters_only: true, ..Options::default() });
    let mut got = [0; 8];
    ok("recv", pair.b.recv(&mut got, FI_ADDR_UNSPEC, 1));
    ok("inject", pair.a.inject(&[9; 8], pair.a_to_b));
    let end = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while (pair.a.counted(), pair.b.counted()) != ((1, 0), (1, 0)) {
        assert!(std::time::Instant::now() < end, "both count");
    }
    assert_eq!(got, [9; 8]);
    let wait = |threshold, timeout_ms| {
        // SAFETY: the counter is open.
        unsafe { ((*(*pair.b.cntr).ops).wait)(pair.b.cntr, threshold, timeout_ms) }
    };
    assert_eq!(wait(1, -1), 0);
    assert_eq!(wait(2, 1), -FI_ETIMEDOUT);
}

#[test]
fn a_slot_is_taken_until_its_completion_is_read() {
    // The last receive is not waited for: its buffer outlives the pair.
    let mut got = [[0; 1]; 5];
    let pair = Pair::new(Options { tx_size: 4, rx_size: 4, ..Options::default() });
    for (at, buffer) in got.iter_mut().enumerate() {
        let expected = if at < 4 { 0 } else { AGAIN };
        assert_eq!(pair.b.recv(buffer, FI_ADDR_UNSPEC, at), expected);
    }
    for at in 0..4 {
        ok("send", pair.a.send(&[1], pair.a_to_b, at));
    }
    assert_eq!(pair.a.send(&[1], pair.a_to_b, 4), AGAIN);
    pair.until(|| pair.b.counted().0 == 4);
    // All have completed, and none was read.
    assert_eq!(pair.b.recv(&mut got[4], FI_ADDR_UNSPEC, 4), AGAIN);
    assert_eq!(pair.a.send(&[1], pair.a_to_b, 4), AGAIN);
    assert!(pair.b.next(&[&pair.a]).is_ok() && pair.a.next(&[&pair.b]).is_ok());
    ok("recv", pair.b.recv(&mut got[4], FI_ADDR_UNSPEC, 4));
    ok("send", pair.a.send(&[1], pair.a_to_b, 4));
}

#[test]
fn as_many_receives_as_asked_for_are_posted_before_any_completes() {
    // Nothing asked for is the default.
    for (rx_size, count) in [(0, 65_536), (100_000, 100_000)] {
        // Most receives are not waited for: their buffers outlive the pair.
        let mut got = vec![[0; 1]; count + 1];
        let pair = Pair::new(Options { rx_size, ..Options::default() });
        for (at, buffer) in got.iter_mut().enumerate() {
            let expected = if at < count { 0 } else { AGAIN };
            assert_eq!(pair.b.trecv(buffer, at as u64, 0, at), expected);
        }
        for tag in [count - 1, count / 2, 0] {
            ok("tsend", pair.a.tsend(&[1], pair.a_to_b, tag as u64, tag));
            assert_eq!(pair.b.next(&[&pair.a]).expect("received").context, tag);
        }
    }
}

#[test]
fn mistakes_are_refused_when_posted() {
    let node = Node::disabled(Options::default());
    let bad_state = -(FI_EOPBADSTATE as isize);
    assert_eq!(node.send(&[1], 0, 0), bad_state);
    assert_eq!(node.recv(&mut [1], FI_ADDR_UNSPEC, 0), bad_state);
    ok("enable", node.control(FI_ENABLE, std::ptr::null_mut()) as isize);
    assert_eq!(node.control(FI_ENABLE, std::ptr::null_mut()), -FI_EOPBADSTATE);
    assert_eq!(node.bind(node.cq.cast(), FI_SEND), -FI_EINVAL, "sends have a queue");
    let invalid = -(FI_EINVAL as isize);
    assert_eq!(node.send(&[1], 0, 0), invalid, "no such address");
    assert_eq!(node.send(&[1], FI_ADDR_UNSPEC, 0), invalid);
    assert_eq!(node.recv(&mut [1], 3, 0), invalid, "no such source");
    let own = node.knows(&node);
    let too_long = vec![0; INJECT_BYTES + 1];
    assert_eq!(node.inject(&too_long, own), -(FI_EMSGSIZE as isize));
    assert_eq!(node.sendmsg(&[&too_long], own, 0, FI_INJECT), -(FI_EMSGSIZE as isize));
    assert_eq!(node.recv_many(&mut [0; 8], 0), invalid, "shorter than FI_OPT_MIN_MULTI_RECV");
}

#[test]
fn an_endpoint_needs_an_av_and_somewhere_to_report() {
    let node = Node::disabled(Options { counters_only: true, ..Options::default() });
    let mut got = [0];
    ok("enable", node.control(FI_ENABLE, std::ptr::null_mut()) as isize);
    ok("recv", node.recv(&mut got, FI_ADDR_UNSPEC, 0));
    assert_eq!(node.read(1), Err(AGAIN), "the queue is not bound");
}

#[test]
fn completions_name_their_source_if_it_is_known() {
    let (a, b) = (Node::new(Options::default()), Node::new(Options::default()));
    let a_to_b = a.knows(&b);
    let mut got = [0; 4];
    let first = |known: fi_addr_t, got: &mut [u8]| {
        ok("recv", b.recv(got, FI_ADDR_UNSPEC, 1));
        ok("send", a.send(&[1; 4], a_to_b, 2));
        assert_eq!(b.next(&[&a]).expect("received").source, known);
        assert!(a.next(&[&b]).is_ok());
    };
    first(FI_ADDR_NOTAVAIL, &mut got);
    let b_to_a = b.knows(&a);
    first(b_to_a, &mut got);
}

#[test]
fn a_directed_receive_takes_only_from_its_source() {
    let (a, b, c) = (
        Node::new(Options::default()),
        Node::new(Options::default()),
        Node::new(Options::default()),
    );
    let (a_to_c, b_to_c, c_to_b) = (a.knows(&c), b.knows(&c), c.knows(&b));
    let (mut from_b, mut from_any) = ([0; 1], [0; 1]);
    ok("recv", c.recv(&mut from_b, c_to_b, 1));
    ok("recv", c.recv(&mut from_any, FI_ADDR_UNSPEC, 2));
    ok("send", a.send(b"a", a_to_c, 0));
    assert_eq!(c.next(&[&a, &b]).expect("received").context, 2);
    ok("send", b.send(b"b", b_to_c, 0));
    assert_eq!(c.next(&[&a, &b]).expect("received").context, 1);
    assert_eq!((from_b, from_any), ([b'b'], [b'a']));
}

#[test]
fn sends_to_a_closed_endpoint_fail_and_others_go_on() {
    let Pair { a, b, a_to_b, .. } = Pair::new(Options::default());
    let c = Node::new(Options::default());
    let a_to_c = a.knows(&c);
    drop(b);
    ok("send", a.send(&[1; 8], a_to_b, 1));
    let error = a.next(&[&c]).expect_err("nobody listens");
    assert_eq!((error.context, error.err), (1, FI_EHOSTUNREACH));
    assert_eq!(error.prov_errno, Cause::PeerUnreachable.number());
    assert!(error.err_data_size > 0, "the peer's name");
    let mut got = [0; 8];
    ok("recv", c.recv(&mut got, FI_ADDR_UNSPEC, 2));
    ok("send", a.send(&[2; 8], a_to_c, 3));
    assert!(c.next(&[&a]).is_ok() && a.next(&[&c]).is_ok());
    assert_eq!(got, [2; 8]);
}

#[test]
fn all_errors_of_a_queue_show_their_texts_in_one_place() {
    let Pair { a, b, a_to_b, .. } = Pair::new(Options::default());
    drop(b);
    let errors = [1, 2].map(|context| {
        ok("send", a.send(&[1; 8], a_to_b, context));
        a.next(&[]).expect_err("nobody listens")
    });
    assert!(errors[0].err_data_size > 0, "the peer's name");
    // A program that reads both into one entry hands the first text's address back as a buffer.
    assert_eq!(errors[0].err_data, errors[1].err_data);
}
