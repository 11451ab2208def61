//! Objects bound to an endpoint after it was enabled.

use super::node::{Node, Options, Pair, ok, patience};
use erd_ffi::fi::*;
use std::ptr::null_mut;
use std::time::Instant;

fn stx(node: &Node) -> *mut fid_stx {
    let (mut stx, open) = (null_mut(), node.domain_ops().stx_ctx);
    // SAFETY: the domain is open, the place is local.
    let rc = unsafe { open(node.domain(), null_mut(), &raw mut stx, null_mut()) };
    ok("stx", rc as isize);
    stx
}

fn close(object: *mut fid) {
    // SAFETY: an open object that the test has done with.
    ok("close", unsafe { ((*(*object).ops).close)(object) } as isize);
}

pub(super) fn count(cntr: *mut fid_cntr) -> u64 {
    // SAFETY: the counter is open.
    unsafe { ((*(*cntr).ops).read)(cntr) }
}

#[test]
fn late_counters_count_and_let_their_readers_progress() {
    let pair = Pair::new(Options::default());
    let mut got = [[0; 4]; 2];
    for (at, buffer) in got.iter_mut().enumerate() {
        ok("recv", pair.b.recv(buffer, FI_ADDR_UNSPEC, at));
    }
    ok("send", pair.a.send(&[1; 4], pair.a_to_b, 7));
    assert_eq!(pair.a.next(&[&pair.b]).expect("sent").context, 7);
    let (sends, second) = (pair.a.new_cntr(), pair.a.new_cntr());
    assert_eq!(pair.a.bind(sends.cast(), FI_SEND), 0);
    assert_eq!(pair.a.bind(second.cast(), FI_SEND | FI_READ), -FI_EINVAL, "sends have theirs");
    assert_eq!(pair.a.bind(second.cast(), FI_READ), 0, "nothing was bound by the call that failed");
    assert_eq!(pair.a.bind(second.cast(), 0), -FI_EBADFLAGS);
    assert_eq!(count(sends), 0, "what completed before does not count");
    ok("send", pair.a.send(&[2; 4], pair.a_to_b, 8));
    // Nobody reads the sender's queue: reading the counter has to make progress.
    let end = Instant::now() + patience();
    while count(sends) == 0 {
        assert!(Instant::now() < end, "the send counts");
        pair.b.poke_any();
    }
    assert_eq!((count(sends), count(second)), (1, 0));
    let Pair { mut a, .. } = pair;
    a.close_ep();
    a.close_cntrs(&[sends, second]);
}

#[test]
fn a_late_queue_takes_completions() {
    let (a, b) = (
        Node::new(Options { counters_only: true, ..Options::default() }),
        Node::new(Options::default()),
    );
    let (a_to_b, mut got) = (a.knows(&b), [0; 4]);
    assert_eq!(a.bind(a.cq.cast(), FI_SEND), 0);
    assert_eq!(a.bind(a.cq.cast(), FI_SEND | FI_RECV), -FI_EINVAL, "sends have theirs");
    ok("recv", b.recv(&mut got, FI_ADDR_UNSPEC, 1));
    ok("send", a.send(&[3; 4], a_to_b, 2));
    assert_eq!(a.next(&[&b]).expect("sent").context, 2);
    assert_eq!((b.next(&[&a]).expect("received").context, got), (1, [3; 4]));
}

#[test]
fn a_late_transmit_context_is_taken_and_may_be_closed_first() {
    let pair = Pair::new(Options::default());
    let (late, mut got) = (stx(&pair.a), [[0; 4]; 2]);
    assert_eq!(pair.a.bind(late.cast(), 0), 0);
    for (at, buffer) in got.iter_mut().enumerate() {
        ok("recv", pair.b.recv(buffer, FI_ADDR_UNSPEC, at));
    }
    ok("send", pair.a.send(&[4; 4], pair.a_to_b, 2));
    assert_eq!(pair.a.next(&[&pair.b]).expect("sent").context, 2);
    close(late.cast());
    ok("send", pair.a.send(&[5; 4], pair.a_to_b, 3));
    assert_eq!(pair.a.next(&[&pair.b]).expect("sent").context, 3);
    assert_eq!(pair.b.next(&[]).expect("received").context, 0);
    assert_eq!(pair.b.next(&[]).expect("received").context, 1);
    assert_eq!(got, [[4; 4], [5; 4]]);
}

#[test]
fn what_decides_on_messages_cannot_come_late() {
    let node = Node::new(Options::default());
    let (mut srx, open) = (null_mut(), node.domain_ops().srx_ctx);
    // SAFETY: the domain is open, the place is local.
    let rc = unsafe { open(node.domain(), null_mut(), &raw mut srx, null_mut()) };
    ok("srx", rc as isize);
    assert_eq!(node.bind(node.av().cast(), 0), -FI_EOPBADSTATE);
    assert_eq!(node.bind(srx.cast(), 0), -FI_EOPBADSTATE);
    close(srx.cast());
}

/// Both calls, with a value of `len` bytes.
fn option(ep: *mut fid_ep, name: i32, len: usize) -> (i32, i32) {
    let (mut value, mut room) = ([0_u64; 4], len);
    let at = value.as_mut_ptr().cast();
    // SAFETY: the endpoint is open, and the value has 32 bytes.
    unsafe {
        let ops = &*(*ep).ops;
        let set = (ops.setopt)(ep.cast(), FI_OPT_ENDPOINT, name, at, len);
        (set, (ops.getopt)(ep.cast(), FI_OPT_ENDPOINT, name, at, &raw mut room))
    }
}

#[test]
fn an_unknown_option_is_unknown_at_any_length() {
    let node = Node::new(Options::default());
    for name in [FI_OPT_FIREWALL_ADDR, FI_OPT_XPU_TRIGGER, 12_345, -1] {
        for len in [0, 1, 4, 8, 32] {
            let answers = option(node.ep, name, len);
            assert_eq!(answers, (-FI_ENOPROTOOPT, -FI_ENOPROTOOPT), "option {name}, {len} bytes");
        }
    }
    assert_eq!(option(node.ep, FI_OPT_MIN_MULTI_RECV, 4), (-FI_EINVAL, -FI_ETOOSMALL));
}
