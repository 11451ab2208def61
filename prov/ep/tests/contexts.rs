//! Shared contexts, scalable endpoints, poll and wait sets, and what an AV calls its addresses.

use super::memory::with_driver_of;
use super::node::{
    Done, Node, Options, Pair, bind, ctx, enable, ok, patience, recv_many, set_min_multi_recv,
};
use erd_core::endpoint::call::Call;
use erd_core::endpoint::limits::UNREAD_MAX;
use erd_core::endpoint::ops::Buffers;
use erd_core::flags::Flags;
use erd_core::run::Driven;
use erd_ffi::fi::*;
use std::ptr::null_mut;
use std::time::Instant;

const AGAIN: isize = -(FI_EAGAIN as isize);

fn close(any: *mut fid) {
    // SAFETY: an open object that nobody uses any more.
    ok("close", unsafe { ((*(*any).ops).close)(any) } as isize);
}

fn send(node: &Node, text: &[u8], dest: fi_addr_t) {
    ok("send", node.send(text, dest, 0));
}

fn recv(ep: *mut fid_ep, buffer: &mut [u8], context: usize) -> isize {
    let (at, len) = (buffer.as_mut_ptr().cast(), buffer.len());
    // SAFETY: the endpoint is open, and the buffer stays until the test ends.
    unsafe { ((*(*ep).msg).recv)(ep, at, len, null_mut(), FI_ADDR_UNSPEC, ctx(context)) }
}

fn cancel(srx: *mut fid_ep, context: usize) -> isize {
    // SAFETY: the context is open.
    unsafe { ((*(*srx).ops).cancel)(srx.cast(), ctx(context)) }
}

fn next(node: &Node, cq: *mut fid_cq, others: &[&Node]) -> Done {
    loop {
        match node.read_from(cq, 1) {
            Ok(done) => return done[0],
            Err(rc) => assert_eq!(rc, AGAIN),
        }
        others.iter().for_each(|other| other.poke());
    }
}

/// Two endpoints of one domain that take their receives from one context.
struct SharedPair {
    node: Node,
    second: *mut fid_ep,
    srx: *mut fid_ep,
}

impl SharedPair {
    fn new() -> SharedPair {
        let node = Node::disabled(Options::default());
        let (second, mut srx) = (node.another(), null_mut());
        let mut attr = fi_rx_attr { size: 8, ..fi_rx_attr::ZERO };
        let open = node.domain_ops().srx_ctx;
        // SAFETY: the domain is open, attributes and place are local.
        let rc = unsafe { open(node.domain(), &raw mut attr, &raw mut srx, null_mut()) };
        ok("srx", rc as isize);
        for ep in [node.ep, second] {
            ok("bind", bind(ep, srx.cast(), 0) as isize);
            enable(ep);
        }
        SharedPair { node, second, srx }
    }

    fn close(mut self) {
        close(self.second.cast());
        self.node.close_ep();
        close(self.srx.cast());
    }
}

#[test]
fn endpoints_share_receives_posted_before_and_after_their_messages() {
    let (a, b) = (Node::new(Options::default()), SharedPair::new());
    let to = [b.node.ep, b.second].map(|ep| a.knows_name(&Node::name_of(ep)));
    let mut buffers = [[0; 8]; 4];
    ok("recv", recv(b.srx, &mut buffers[0], 1));
    ok("recv", recv(b.srx, &mut buffers[1], 2));
    send(&a, b"second! ", to[1]);
    assert_eq!(b.node.next(&[&a]).expect("a message").context, 1);
    send(&a, b"first!  ", to[0]);
    assert_eq!(b.node.next(&[&a]).expect("a message").context, 2);
    let long = vec![7; 100_000];
    send(&a, b"early!  ", to[0]);
    send(&a, &long, to[1]);
    for _ in 0..200 {
        assert!(b.node.read(1).is_err(), "nothing is posted");
        let _ = a.read(1);
    }
    let mut room = vec![0; long.len()];
    ok("recv", recv(b.srx, &mut room, 3));
    let mut other = vec![0; long.len()];
    ok("recv", recv(b.srx, &mut other, 4));
    let mut lens = [(); 2].map(|()| b.node.next(&[&a]).expect("a message").len);
    lens.sort_unstable();
    assert_eq!(lens, [8, long.len()]);
    assert!(room == long || other == long);
    assert_eq!(recv(b.second, &mut buffers[2], 5), -(FI_EOPNOTSUPP as isize));
    ok("recv", recv(b.srx, &mut buffers[3], 6));
    ok("cancel", cancel(b.srx, 6));
    assert_eq!(b.node.next(&[]).expect_err("canceled").err, FI_ECANCELED);
    b.close();
}

/// A receive of the shared context by tag, with flags.
fn trecvmsg(srx: *mut fid_ep, buffer: &mut [u8], tag: u64, context: usize, flags: u64) -> isize {
    let iov = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    let msg = fi_msg_tagged {
        msg_iov: &raw const iov,
        iov_count: usize::from(!buffer.is_empty()),
        addr: FI_ADDR_UNSPEC,
        tag,
        context: ctx(context),
        ..fi_msg_tagged::ZERO
    };
    // SAFETY: the context is open, the message local, the buffer there until the test ends.
    unsafe { ((*(*srx).tagged).recvmsg)(srx, &raw const msg, flags) }
}

#[test]
fn messages_are_peeked_at_through_their_shared_context() {
    let (a, b) = (Node::new(Options::default()), SharedPair::new());
    let to = [b.node.ep, b.second].map(|ep| a.knows_name(&Node::name_of(ep)));
    let peek = |tag, flags| {
        ok("peek", trecvmsg(b.srx, &mut [], tag, 0x77, FI_PEEK | flags));
        b.node.next(&[&a])
    };
    assert_eq!(peek(1, 0).expect_err("nothing").err, FI_ENOMSG);
    let texts = [vec![1; 10], vec![2; 20], vec![3; 100_000]];
    for (tag, text) in (1..).zip(&texts) {
        ok("send", a.tsend(text, to[tag as usize % 2], tag, 0));
        let there = loop {
            match peek(tag, 0) {
                Ok(done) => break done,
                Err(bad) => assert_eq!(bad.err, FI_ENOMSG),
            }
        };
        assert_eq!((there.len, there.tag), (text.len(), tag));
        if tag < 3 {
            let _ = a.next(&[&b.node]);
        }
    }
    assert_eq!(peek(2, FI_CLAIM).expect("there").len, 20);
    assert_eq!(peek(2, 0).expect_err("it is claimed").err, FI_ENOMSG);
    assert_eq!(peek(1, FI_DISCARD).expect("there").len, 10);
    assert_eq!(peek(1, 0).expect_err("it is gone").err, FI_ENOMSG);
    let mut room = [0; 32];
    ok("claim", trecvmsg(b.srx, &mut room, 2, 0x77, FI_CLAIM));
    assert_eq!(b.node.next(&[&a]).expect("the claimed one").len, 20);
    assert_eq!(room[..20], [2; 20]);
    let refused = -(FI_EINVAL as isize);
    assert_eq!(trecvmsg(b.srx, &mut room, 2, 0x77, FI_CLAIM), refused, "nothing is claimed");
    let mut long = vec![0; 100_000];
    ok("recv", trecvmsg(b.srx, &mut long, 3, 9, 0));
    assert_eq!(b.node.next(&[&a]).expect("the last").context, 9);
    assert!(long == texts[2]);
    b.close();
}

/// The next completion says that a buffer is the application's again.
fn released(node: &Node, other: &Node, context: usize) {
    let done = node.next(&[other]).expect("released");
    assert_eq!((done.context, done.flags, done.len), (context, FI_MULTI_RECV, 0));
}

#[test]
fn a_buffer_of_many_is_released_though_the_endpoint_of_its_last_message_closes() {
    let (a, mut b) = (Node::new(Options::APART), SharedPair::new());
    let to = [b.node.ep, b.second].map(|ep| a.knows_name(&Node::name_of(ep)));
    let (mut buffer, long) = (vec![0; 4 << 20], a.lend(&vec![7; 3 << 20]));
    set_min_multi_recv(b.srx, 2 << 20);
    ok("recvmsg", recv_many(b.srx, &mut buffer, 9));
    send(&a, &[1; 100], to[0]);
    assert_eq!(b.node.next(&[&a]).expect("received").len, 100);
    // With it there is too little left. It is under way when its endpoint closes: at each step no more of it
    // comes than a window.
    with_driver_of(a.ep, |sender| {
        // SAFETY: the text stays until the endpoint is closed, and is only read.
        let buffers = unsafe { Buffers::one(long.as_ptr().cast_mut().cast(), long.len()) };
        let call = Call::new(to[1], null_mut(), Flags::empty());
        sender.post_send(&buffers, None, &call).expect("posted");
        let end = Instant::now() + patience();
        while with_driver_of(b.second, |second| {
            let begun = second.engine.stats().rx_payload_bytes > 0;
            if !begun {
                sender.progress();
            }
            !begun
        }) {
            assert!(Instant::now() < end, "the message does not begin");
            b.node.poke();
        }
        close(b.second.cast());
    });
    released(&b.node, &a, 9);
    b.node.close_ep();
    close(b.srx.cast());
}

#[test]
fn a_buffer_of_many_takes_messages_of_all_endpoints_of_a_shared_context() {
    let (a, b) = (Node::new(Options::default()), SharedPair::new());
    let to = [b.node.ep, b.second].map(|ep| a.knows_name(&Node::name_of(ep)));
    set_min_multi_recv(b.srx, 64);
    let (mut buffer, mut after) = (vec![0; 256], [0; 8]);
    let base = buffer.as_ptr() as usize;
    // Some come before the buffer, one for each endpoint, the others after it.
    send(&a, &[1; 100], to[0]);
    assert!(a.next(&[&b.node]).is_ok(), "sent");
    send(&a, &[2; 50], to[1]);
    assert!(a.next(&[&b.node]).is_ok(), "sent");
    for _ in 0..50 {
        assert!(b.node.read(1).is_err(), "nothing is posted");
    }
    ok("recvmsg", recv_many(b.srx, &mut buffer, 9));
    ok("recv", recv(b.srx, &mut after, 10));
    send(&a, &[3; 43], to[1]);
    let mut at = 0;
    for len in [100, 50, 43] {
        let done = b.node.next(&[&a]).expect("received");
        assert_eq!((done.context, done.flags), (9, FI_MSG | FI_RECV));
        assert_eq!((done.buf, done.len), (base + at, len));
        at += len;
    }
    released(&b.node, &a, 9);
    assert_eq!(buffer[..193], [[1; 100].as_slice(), &[2; 50], &[3; 43]].concat());
    send(&a, b"the next", to[0]);
    assert_eq!(b.node.next(&[&a]).expect("received").context, 10);
    assert_eq!(cancel(b.srx, 9), -(FI_ENOENT as isize), "it is released");
    assert_eq!(recv_many(b.srx, &mut [0; 32], 9), -(FI_EINVAL as isize), "too short");
    b.close();
}

#[test]
fn a_buffer_of_many_of_a_shared_context_waits_for_completions_to_be_read() {
    let (a, b) = (Node::new(Options::default()), SharedPair::new());
    let to = a.knows_name(&Node::name_of(b.second));
    let count = UNREAD_MAX + 100;
    let mut buffer = vec![0; 8 * count];
    set_min_multi_recv(b.srx, 1);
    ok("recvmsg", recv_many(b.srx, &mut buffer, 9));
    for nth in 0..count as u64 {
        while a.inject(&nth.to_be_bytes(), to) != 0 {
            a.poke();
            b.node.poke();
        }
    }
    (0..1000).for_each(|_| [&a, &b.node].iter().for_each(|node| node.poke()));
    assert!(buffer[8 * UNREAD_MAX..].iter().all(|byte| *byte == 0), "more than may be unread");
    for nth in 0..count {
        let done = b.node.next(&[&a]).expect("received");
        assert_eq!((done.context, done.len, done.flags), (9, 8, FI_MSG | FI_RECV), "{nth}");
    }
    released(&b.node, &a, 9);
    let texts = (0..count as u64).flat_map(u64::to_be_bytes);
    assert!(buffer.iter().copied().eq(texts), "in the order in which they were sent");
    b.close();
}

#[test]
fn a_canceled_buffer_of_many_of_a_shared_context_is_released_once_its_messages_are_whole() {
    let (a, b) = (Node::new(Options::default()), SharedPair::new());
    let to = a.knows_name(&Node::name_of(b.second));
    let (mut buffer, long) = (vec![0; 4 << 20], vec![7; 3 << 20]);
    ok("recvmsg", recv_many(b.srx, &mut buffer, 9));
    send(&a, &long, to);
    // It is under way when it is canceled, or has come.
    let end = Instant::now() + patience();
    while with_driver_of(b.second, |second| second.engine.stats().rx_payload_bytes == 0) {
        assert!(Instant::now() < end, "the message does not begin");
        [&a, &b.node].iter().for_each(|node| node.poke());
    }
    ok("cancel", cancel(b.srx, 9));
    let done = b.node.next(&[&a]).expect("the message is whole");
    assert_eq!((done.context, done.len, done.flags), (9, long.len(), FI_MSG | FI_RECV));
    let error = b.node.next(&[&a]).expect_err("canceled");
    assert_eq!((error.err, error.context), (FI_ECANCELED, 9));
    assert_eq!(error.flags, FI_MSG | FI_RECV | FI_MULTI_RECV);
    assert_eq!(buffer[..long.len()], long);
    ok("recvmsg", recv_many(b.srx, &mut buffer, 8));
    ok("cancel", cancel(b.srx, 8));
    let error = b.node.next(&[]).expect_err("canceled");
    assert_eq!((error.err, error.context), (FI_ECANCELED, 8));
    assert_eq!(b.node.read(1), Err(AGAIN));
    b.close();
}

#[test]
fn a_shared_context_has_no_more_receives_than_completions_are_read_of() {
    let (a, b) = (Node::new(Options::default()), SharedPair::new());
    let to = [b.node.ep, b.second].map(|ep| a.knows_name(&Node::name_of(ep)));
    let mut buffers = [[0; 8]; 9];
    for (nth, buffer) in buffers[..8].iter_mut().enumerate() {
        ok("recv", recv(b.srx, buffer, nth));
        send(&a, b"bounded!", to[nth % 2]);
        assert!(a.next(&[]).is_ok(), "sent");
        b.node.poke();
    }
    assert_eq!(recv(b.srx, &mut buffers[8], 8), AGAIN, "nothing was read");
    let done = b.node.next(&[&a]).expect("a message");
    assert_eq!(done.len, 8);
    ok("recv", recv(b.srx, &mut buffers[8], 8));
    assert_eq!(recv(b.srx, &mut [0; 8], 9), AGAIN, "one was read");
    for _ in 0..7 {
        assert_eq!(b.node.next(&[&a]).expect("a message").len, 8);
    }
    b.close();
}

#[test]
fn a_message_that_comes_while_a_shared_context_counts_its_receives_is_counted_once() {
    let (a, b) = (Node::new(Options::default()), SharedPair::new());
    let to = a.knows_name(&Node::name_of(b.second));
    let mut buffers = [[0; 8]; 9];
    for buffer in &mut buffers[..8] {
        ok("recv", recv(b.srx, buffer, 1));
    }
    send(&a, b"is read ", to);
    assert_eq!(b.node.next(&[&a]).expect("a message").len, 8);
    send(&a, b"to come ", to);
    ok("recv", recv(b.srx, &mut buffers[8], 1));
    b.close();
}

#[test]
fn contexts_of_a_scalable_endpoint_have_one_name_and_queues_of_their_own() {
    let a = Node::new(Options { rx_ctx_bits: 1, ..Options::default() });
    let b = Node::disabled(Options::default());
    let sep = b.scalable(2);
    let [tx, rx] = [true, false].map(|sends| {
        [0, 1].map(|index| {
            let (ep, cq) = b.context(sep, index, sends);
            enable(ep);
            (ep, cq)
        })
    });
    let base = a.knows_name(&Node::name_of(sep));
    let mut buffers = [[0; 8]; 2];
    for ((ep, _), buffer) in rx.iter().zip(&mut buffers) {
        ok("recv", recv(*ep, buffer, 1));
    }
    for (nth, text) in [(1, b"to one! "), (0, b"to none!")] {
        send(&a, text, base | nth << 63);
        next(&b, rx[nth as usize].1, &[&a]);
    }
    assert_eq!(buffers, [*b"to none!", *b"to one! "]);
    let to_a = b.knows(&a);
    for (nth, (ep, cq)) in tx.iter().enumerate() {
        let mut buffer = [0; 8];
        ok("recv", a.recv(&mut buffer, FI_ADDR_UNSPEC, nth));
        ok("send", b.send_by(*ep, b"from sep", to_a, 0));
        let got = loop {
            // The send of before may be told of first.
            let done = a.next(&[&b]).expect("a completion");
            if done.flags & FI_RECV != 0 {
                break done;
            }
        };
        assert_eq!((got.context, got.source, &buffer), (nth, base, b"from sep"));
        next(&b, *cq, &[&a]);
        assert_eq!(b.read_from(tx[1 - nth].1, 1), Err(AGAIN), "the other context's");
    }
    for (ep, cq) in tx.into_iter().chain(rx) {
        close(ep.cast());
        close(cq.cast());
    }
    close(sep.cast());
}

#[test]
fn an_unknown_source_is_told_where_that_is_asked_for() {
    let a = Node::new(Options::default());
    let b = Node::new(Options { caps: FI_SOURCE_ERR, ..Options::default() });
    let mut buffer = [0; 8];
    ok("recv", b.recv(&mut buffer, FI_ADDR_UNSPEC, 1));
    send(&a, b"unknown!", a.knows(&b));
    let error = b.next(&[&a]).expect_err("nobody knows the sender");
    assert_eq!((error.err, error.context, error.len), (FI_EADDRNOTAVAIL, 1, 8));
    assert_eq!((error.err_data_size, &buffer), (16, b"unknown!"));
}

#[test]
fn an_address_is_called_as_its_user_says() {
    let pair = Pair::new(Options::default());
    assert_eq!(pair.b.knows_as(&Node::name_of(pair.a.ep), 77), pair.b_to_a);
    let mut buffer = [0; 8];
    ok("recv", pair.b.recv(&mut buffer, FI_ADDR_UNSPEC, 1));
    send(&pair.a, b"by name!", pair.a_to_b);
    assert_eq!(pair.b.next(&[&pair.a]).expect("a message").source, 77);
}

#[test]
fn a_poll_set_tells_which_queues_and_counters_have_news() {
    let pair = Pair::new(Options::default());
    let mut attr = fi_poll_attr::ZERO;
    let mut set = null_mut();
    // SAFETY: the domain is open, attributes and place are local, and so is the array.
    let poll = |set: *mut fid_poll| unsafe {
        let mut contexts = [null_mut(); 4];
        ((*(*set).ops).poll)(set, contexts.as_mut_ptr(), 4)
    };
    // SAFETY: as above; the objects are open.
    unsafe {
        let open = pair.b.domain_ops().poll_open;
        ok("poll", open(pair.b.domain(), &raw mut attr, &raw mut set) as isize);
        for any in [pair.b.cq.cast::<fid>(), pair.b.cntr.cast()] {
            ok("add", ((*(*set).ops).poll_add)(set, any, 0) as isize);
        }
    }
    let mut buffer = [0; 8];
    ok("recv", pair.b.recv(&mut buffer, FI_ADDR_UNSPEC, 1));
    assert_eq!(poll(set), 0);
    send(&pair.a, b"news!   ", pair.a_to_b);
    while poll(set) == 0 {
        pair.a.poke_any();
    }
    assert_eq!(poll(set), 2, "the queue and its counter");
    assert_eq!(pair.b.counted().0, 1);
    assert_eq!(poll(set), 1, "the counter was read");
    assert_eq!(pair.b.read(1).expect("a message").len(), 1);
    assert_eq!(poll(set), 0);
    // SAFETY: as above.
    unsafe {
        for any in [pair.b.cq.cast::<fid>(), pair.b.cntr.cast()] {
            ok("del", ((*(*set).ops).poll_del)(set, any, 0) as isize);
        }
    }
    close(set.cast());
}

#[test]
fn a_wait_set_wakes_for_any_of_its_queues() {
    let node = Node::new(Options::default());
    let (set, cntr) = node.wait_set();
    // SAFETY: the set is open.
    let wait = |timeout_ms| unsafe { ((*(*set).ops).wait)(set, timeout_ms) };
    assert_eq!(wait(5), -FI_ETIMEDOUT);
    assert_eq!(node.trywait_on(set.cast()), 0, "its fd can be slept on");
    // SAFETY: the counter is open.
    ok("add", unsafe { ((*(*cntr).ops).add)(cntr, 1) } as isize);
    assert_eq!(node.trywait_on(set.cast()), -FI_EAGAIN);
    // SAFETY: as above.
    ok("add", unsafe { ((*(*cntr).ops).add)(cntr, 1) } as isize);
    assert_eq!(wait(20_000), 0);
    let (mut attr, mut polled, mut found) = (fi_poll_attr::ZERO, null_mut(), [null_mut(); 1]);
    // SAFETY: the domain and the counter are open, attributes, place and array are local.
    unsafe {
        let open = node.domain_ops().poll_open;
        ok("poll set", open(node.domain(), &raw mut attr, &raw mut polled) as isize);
        ok("add", ((*(*polled).ops).poll_add)(polled, cntr.cast(), 0) as isize);
        let news = ((*(*polled).ops).poll)(polled, found.as_mut_ptr(), 1);
        assert_eq!(news, 1, "the wait took nothing away");
        ok("del", ((*(*polled).ops).poll_del)(polled, cntr.cast(), 0) as isize);
    }
    for any in [polled.cast(), cntr.cast(), set.cast()] {
        close(any);
    }
}
