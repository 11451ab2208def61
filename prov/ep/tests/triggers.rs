//! Operations that wait for counters, and deferred work.

use super::node::{Node, Options, Pair, ctx, ok};
use erd_ffi::fi::*;
use std::ptr::null_mut;

fn add(cntr: *mut fid_cntr, by: u64) {
    // SAFETY: the counter is open.
    ok("add", unsafe { ((*(*cntr).ops).add)(cntr, by) } as isize);
}

fn value(cntr: *mut fid_cntr) -> u64 {
    // SAFETY: the counter is open.
    unsafe { ((*(*cntr).ops).read)(cntr) }
}

/// The context of an operation that waits for `cntr` to be `threshold`.
fn at(cntr: *mut fid_cntr, threshold: usize) -> fi_triggered_context2 {
    let threshold = fi_trigger_threshold { cntr, threshold };
    fi_triggered_context2 { event_type: FI_TRIGGER_THRESHOLD, trigger: fi_trigger2 { threshold } }
}

fn send_at(node: &Node, text: &[u8], dest: fi_addr_t, context: &mut fi_triggered_context2) {
    let context = (&raw mut *context).expose_provenance();
    ok("send", node.sendmsg(&[text], dest, context, FI_TRIGGER));
}

fn work(node: &Node, command: i32, work: *mut fi_deferred_work) -> i32 {
    // SAFETY: the domain is open, and the work as its command takes it.
    unsafe { ((*(*node.domain()).fid.ops).control)(node.domain().cast(), command, work.cast()) }
}

#[test]
fn triggered_sends_go_out_in_the_order_of_their_thresholds() {
    let pair = Pair::new(Options::default());
    let mut buffers = [[0; 8]; 3];
    for (context, buffer) in (1..).zip(&mut buffers) {
        ok("recv", pair.b.recv(buffer, FI_ADDR_UNSPEC, context));
    }
    let mut contexts = [9, 5, 5].map(|threshold| at(pair.a.cntr, threshold));
    for (text, context) in [b"third", b"first", b"secnd"].iter().zip(&mut contexts) {
        send_at(&pair.a, *text, pair.a_to_b, context);
    }
    assert_eq!(pair.a.read(1), Err(-(FI_EAGAIN as isize)), "nothing is due");
    add(pair.a.cntr, 20);
    for context in 1..=3 {
        assert_eq!(pair.b.next(&[&pair.a]).expect("a message").context, context);
    }
    assert_eq!(buffers.map(|text| text[0]), [b'f', b's', b't']);
    let sent = pair.a.next(&[&pair.b]).expect("a send");
    assert_eq!(sent.context, (&raw const contexts[1]).expose_provenance());
}

#[test]
fn a_counter_of_another_domain_triggers_nothing() {
    let pair = Pair::new(Options::default());
    let mut context = at(pair.b.cntr, 1);
    let context = (&raw mut context).expose_provenance();
    let refused = pair.a.sendmsg(&[b"nothing"], pair.a_to_b, context, FI_TRIGGER);
    assert_eq!(refused, -(FI_EINVAL as isize));
}

#[test]
fn an_alias_with_the_flag_triggers_and_closes_alone() {
    let pair = Pair::new(Options::default());
    let mut alias: *mut fid = null_mut();
    let mut asked = fi_alias { fid: &raw mut alias, flags: FI_SEND | FI_TRIGGER };
    ok("alias", pair.a.control(FI_ALIAS, (&raw mut asked).cast()) as isize);
    let mut buffer = [0; 8];
    ok("recv", pair.b.recv(&mut buffer, FI_ADDR_UNSPEC, 1));
    let mut context = at(pair.a.cntr, 1);
    let (ep, text) = (alias.cast::<fid_ep>(), b"aliased!");
    // SAFETY: the alias is open, the text a constant, and the context stays.
    let rc = unsafe {
        let (at, len) = (text.as_ptr().cast(), text.len());
        ((*(*ep).msg).send)(ep, at, len, null_mut(), pair.a_to_b, (&raw mut context).cast())
    };
    ok("send", rc);
    add(pair.a.cntr, 1);
    assert_eq!(pair.b.next(&[&pair.a]).expect("a message").context, 1);
    assert_eq!(&buffer, text);
    // SAFETY: both are open; the endpoint is used by its alias.
    unsafe {
        let endpoint = pair.a.ep.cast::<fid>();
        assert_eq!(((*(*endpoint).ops).close)(endpoint), -FI_EBUSY);
        ok("close", ((*(*alias).ops).close)(alias) as isize);
    }
}

#[test]
fn deferred_work_counts_at_its_counter_alone_and_can_be_canceled() {
    let pair = Pair::new(Options::default());
    let (trigger, done) = (pair.a.new_cntr(), pair.a.new_cntr());
    let mut buffer = [0; 8];
    ok("recv", pair.b.recv(&mut buffer, FI_ADDR_UNSPEC, 1));
    let text = *b"deferred";
    let iov = libc::iovec { iov_base: text.as_ptr().cast_mut().cast(), iov_len: text.len() };
    let msg = fi_msg {
        msg_iov: &raw const iov,
        iov_count: 1,
        addr: pair.a_to_b,
        context: ctx(7),
        ..fi_msg::ZERO
    };
    let mut op = fi_op_msg { ep: pair.a.ep, msg, flags: 0 };
    let mut send = fi_deferred_work {
        threshold: 2,
        triggering_cntr: trigger,
        completion_cntr: done,
        op_type: FI_OP_SEND,
        op: fi_deferred_op { msg: &raw mut op },
        ..fi_deferred_work::ZERO
    };
    let mut count = fi_op_cntr { cntr: trigger, value: 5 };
    let mut canceled = fi_deferred_work {
        completion_cntr: null_mut(),
        op_type: FI_OP_CNTR_ADD,
        op: fi_deferred_op { cntr: &raw mut count },
        ..send
    };
    ok("queue", work(&pair.a, FI_QUEUE_WORK, &raw mut canceled) as isize);
    ok("queue", work(&pair.a, FI_QUEUE_WORK, &raw mut send) as isize);
    ok("cancel", work(&pair.a, FI_CANCEL_WORK, &raw mut canceled) as isize);
    assert_eq!(work(&pair.a, FI_CANCEL_WORK, &raw mut canceled), -FI_EINVAL, "it is gone");
    // All of the message was read when it was queued.
    send = fi_deferred_work::ZERO;
    op = fi_op_msg::ZERO;
    add(trigger, 2);
    assert_eq!(pair.b.next(&[&pair.a]).expect("a message").context, 1);
    while value(done) == 0 {
        assert_eq!(pair.b.read(1), Err(-(FI_EAGAIN as isize)));
    }
    assert_eq!((value(done), value(trigger), buffer), (1, 2, text));
    assert_eq!(pair.a.read(1), Err(-(FI_EAGAIN as isize)), "no completion was asked for");
    assert_eq!((send.threshold, op.flags), (0, 0));
    pair.a.close_cntrs(&[trigger, done]);
}

#[test]
fn counters_set_each_other_off_and_what_is_flushed_never_happens() {
    let node = Node::new(Options::default());
    let [first, second, third] = [(); 3].map(|()| node.new_cntr());
    let queue = |trigger, op_type, cntr, value| {
        let mut op = fi_op_cntr { cntr, value };
        let mut asked = fi_deferred_work {
            threshold: 3,
            triggering_cntr: trigger,
            op_type,
            op: fi_deferred_op { cntr: &raw mut op },
            ..fi_deferred_work::ZERO
        };
        ok("queue", work(&node, FI_QUEUE_WORK, &raw mut asked) as isize);
    };
    queue(first, FI_OP_CNTR_SET, second, 3);
    queue(second, FI_OP_CNTR_ADD, third, 4);
    add(first, 3);
    assert_eq!((value(second), value(third)), (3, 4));
    queue(first, FI_OP_CNTR_ADD, third, 1);
    assert_eq!(value(third), 5, "the threshold is reached already");
    let late = node.new_cntr();
    queue(late, FI_OP_CNTR_ADD, third, 1);
    ok("flush", work(&node, FI_FLUSH_WORK, null_mut()) as isize);
    add(late, 9);
    assert_eq!(value(third), 5);
    node.close_cntrs(&[first, second, third, late]);
}

/// A send of `iov` as deferred work.
fn send_of(iov: &libc::iovec, (ep, addr): (*mut fid_ep, fi_addr_t), flags: u64) -> fi_op_msg {
    let msg = fi_msg { msg_iov: iov, iov_count: 1, addr, context: ctx(7), ..fi_msg::ZERO };
    fi_op_msg { ep, msg, flags }
}

/// `send` as work that is due at once and is counted when it is done.
fn deferred(send: &mut fi_op_msg, trigger: *mut fid_cntr, done: *mut fid_cntr) -> fi_deferred_work {
    fi_deferred_work {
        triggering_cntr: trigger,
        completion_cntr: done,
        op_type: FI_OP_SEND,
        op: fi_deferred_op { msg: send },
        ..fi_deferred_work::ZERO
    }
}

#[test]
fn deferred_work_sends_what_its_buffer_holds_when_it_is_posted() {
    let pair = Pair::new(Options::default());
    let (trigger, mut buffer, mut text) = (pair.a.new_cntr(), [0; 8], *b"too soon");
    ok("recv", pair.b.recv(&mut buffer, FI_ADDR_UNSPEC, 1));
    let iov = libc::iovec { iov_base: text.as_mut_ptr().cast(), iov_len: text.len() };
    let mut op = send_of(&iov, (pair.a.ep, pair.a_to_b), FI_INJECT);
    let mut asked = fi_deferred_work {
        threshold: 1,
        triggering_cntr: trigger,
        op_type: FI_OP_SEND,
        op: fi_deferred_op { msg: &raw mut op },
        ..fi_deferred_work::ZERO
    };
    ok("queue", work(&pair.a, FI_QUEUE_WORK, &raw mut asked) as isize);
    // SAFETY: the array is local, and nobody else reads it now.
    unsafe { iov.iov_base.cast::<[u8; 8]>().write(*b"in time!") };
    add(trigger, 1);
    assert_eq!(pair.b.next(&[&pair.a]).expect("a message").context, 1);
    assert_eq!(&buffer, b"in time!");
    pair.a.close_cntrs(&[trigger]);
}

#[test]
fn a_triggered_operation_without_a_buffer_is_refused() {
    let node = Node::new(Options::default());
    let mut context = at(node.cntr, 1);
    let iov = libc::iovec { iov_base: null_mut(), iov_len: 8 };
    let flags = FI_TRIGGER | FI_INJECT;
    let msg = fi_msg {
        msg_iov: &raw const iov,
        iov_count: 1,
        context: (&raw mut context).cast(),
        ..fi_msg::ZERO
    };
    // SAFETY: the endpoint is open; the message says that it has a buffer, and is not believed.
    let rc = unsafe { ((*(*node.ep).msg).sendmsg)(node.ep, &raw const msg, flags) };
    assert_eq!(rc, -(FI_EINVAL as isize));
}

#[test]
fn flushing_a_counter_takes_its_work_that_waits_for_room_and_no_other() {
    let pair = Pair::new(Options { tx_size: 1, ..Options::default() });
    let [first, second] = [(); 2].map(|()| pair.a.new_cntr());
    let (mut text, mut buffers) = (*b"no room!", [[0; 8]; 3]);
    let iov = libc::iovec { iov_base: text.as_mut_ptr().cast(), iov_len: text.len() };
    for (context, buffer) in buffers.iter_mut().enumerate() {
        ok("recv", pair.b.recv(buffer, FI_ADDR_UNSPEC, context));
    }
    ok("send", pair.a.sendmsg(&[b"before"], pair.a_to_b, 1, 0));
    let mut op = send_of(&iov, (pair.a.ep, pair.a_to_b), 0);
    let mut asked = [first, second, first].map(|trigger| deferred(&mut op, trigger, trigger));
    for asked in &mut asked {
        ok("queue", work(&pair.a, FI_QUEUE_WORK, asked) as isize);
    }
    ok("flush", work(&pair.a, FI_FLUSH_WORK, first.cast()) as isize);
    // With the completion read there is room.
    assert_eq!(pair.a.next(&[&pair.b]).expect("the first send").context, 1);
    pair.until(|| value(second) == 1);
    for context in 0..2 {
        assert_eq!(pair.b.next(&[&pair.a]).expect("a message").context, context);
    }
    for _ in 0..200 {
        assert!(pair.b.read(1).is_err(), "what was flushed was sent");
        pair.a.poke();
    }
    assert_eq!((value(first), value(second)), (0, 1));
    pair.a.close_cntrs(&[first, second]);
}

#[test]
fn work_without_room_at_its_endpoint_can_be_canceled_and_keeps_nothing_open() {
    let pair = Pair::new(Options { tx_size: 1, ..Options::default() });
    let (trigger, done) = (pair.a.new_cntr(), pair.a.new_cntr());
    let mut text = *b"no room!";
    let iov = libc::iovec { iov_base: text.as_mut_ptr().cast(), iov_len: text.len() };
    // The send's place is taken until its completion is read, which nobody does.
    ok("send", pair.a.sendmsg(&[b"before"], pair.a_to_b, 1, 0));
    let mut op = send_of(&iov, (pair.a.ep, pair.a_to_b), 0);
    let mut asked = deferred(&mut op, trigger, done);
    ok("queue", work(&pair.a, FI_QUEUE_WORK, &raw mut asked) as isize);
    ok("cancel", work(&pair.a, FI_CANCEL_WORK, &raw mut asked) as isize);
    ok("queue", work(&pair.a, FI_QUEUE_WORK, &raw mut asked) as isize);
    pair.a.close_cntrs(&[trigger, done]);
    // The domain is closed with the pair, and is not busy then.
}
