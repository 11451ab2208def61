//! Sleeping readers wake: by completions, by signals, by the helper thread.

use super::node::{Node, Options, Pair, ok};
use erd_ffi::fi::*;
use std::time::{Duration, Instant};

const FD: Options = Options { wait_obj: FI_WAIT_FD, ..Options::NONE };

/// Lets a node be used by another thread of a test; the objects are thread-safe (`FI_THREAD_SAFE`).
struct Shared<'a>(&'a Node);

// SAFETY: libfabric's objects may be used by several threads under `FI_THREAD_SAFE`, which the
// provider grants by default.
unsafe impl Send for Shared<'_> {}

impl Shared<'_> {
    fn sread(&self) -> isize {
        self.0.sread(20_000)
    }
}

#[test]
fn a_sleeping_read_wakes_for_a_message() {
    let pair = Pair::new(FD);
    let mut got = [0; 8];
    ok("recv", pair.b.recv(&mut got, FI_ADDR_UNSPEC, 1));
    let reader = Shared(&pair.b);
    std::thread::scope(|scope| {
        let slept = scope.spawn(move || reader.sread());
        std::thread::sleep(Duration::from_millis(30));
        ok("send", pair.a.send(&[4; 8], pair.a_to_b, 2));
        assert!(pair.a.next(&[]).is_ok(), "the sleeper answers");
        assert_eq!(slept.join().expect("no panic"), 1);
    });
    assert_eq!(got, [4; 8]);
}

#[test]
fn a_sleeping_read_wakes_for_a_signal_and_for_its_timeout() {
    let node = Node::new(FD);
    let reader = Shared(&node);
    let again = -(FI_EAGAIN as isize);
    std::thread::scope(|scope| {
        let slept = scope.spawn(move || reader.sread());
        std::thread::sleep(Duration::from_millis(30));
        // SAFETY: the queue is open.
        let rc = unsafe { ((*(*node.cq).ops).signal)(node.cq) };
        ok("signal", rc as isize);
        assert_eq!(slept.join().expect("no panic"), again);
    });
    assert_eq!(node.sread(5), again);
    let unwaited = Node::new(Options::default());
    assert_eq!(unwaited.sread(5), -(FI_EINVAL as isize), "FI_WAIT_NONE");
}

#[test]
fn an_fd_becomes_readable_for_what_the_helper_thread_completes() {
    let pair = Pair::new(FD);
    let (sent, mut got) = (vec![6; 100_000], vec![0; 100_000]);
    let fd = pair.b.wait_fd();
    ok("recv", pair.b.recv(&mut got, FI_ADDR_UNSPEC, 1));
    ok("send", pair.a.send(&sent, pair.a_to_b, 2));
    // From here on nobody calls: both helpers do it all, until the fd says so.
    let end = Instant::now() + Duration::from_secs(20);
    let mut done = Err(0);
    while done.is_err() {
        assert!(Instant::now() < end, "no completion");
        if pair.b.trywait() == 0 {
            let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
            // SAFETY: one entry; the fd is open.
            let ready = unsafe { libc::poll(&raw mut poll, 1, 20_000) };
            assert_eq!(ready, 1, "the fd wakes");
        }
        done = pair.b.read(1);
    }
    assert_eq!(done.expect("one")[0].len, 100_000);
    assert!(got == sent);
}

#[test]
fn a_peer_that_computes_still_answers() {
    let pair = Pair::new(Options::default());
    let (sent, mut got) = (vec![8; 300_000], vec![0; 300_000]);
    ok("recv", pair.b.recv(&mut got, FI_ADDR_UNSPEC, 1));
    ok("send", pair.a.send(&sent, pair.a_to_b, 2));
    // `b` is not called: a rendezvous is answered and placed all the same.
    assert_eq!(pair.a.next(&[]).expect("sent").context, 2);
    assert_eq!(pair.b.next(&[]).expect("received").len, 300_000);
    assert!(got == sent);
}

#[test]
fn readers_asleep_on_one_queue_get_an_entry_each() {
    let pair = Pair::new(FD);
    let mut got = [[0; 8]; 3];
    for (index, buffer) in got.iter_mut().enumerate() {
        ok("recv", pair.b.recv(buffer, FI_ADDR_UNSPEC, index));
    }
    std::thread::scope(|scope| {
        let mut slept = Vec::new();
        for _ in 0..3 {
            let reader = Shared(&pair.b);
            slept.push(scope.spawn(move || reader.sread()));
        }
        std::thread::sleep(Duration::from_millis(30));
        for _ in 0..3 {
            ok("send", pair.a.send(&[4; 8], pair.a_to_b, 2));
            assert!(pair.a.next(&[]).is_ok(), "a sleeper answers");
        }
        slept.into_iter().for_each(|reader| assert_eq!(reader.join().expect("no panic"), 1));
    });
}

#[test]
fn a_counter_that_changed_unseen_is_not_slept_on() {
    let node = Node::new(Options { counters_only: true, ..FD });
    let (cntr, again) = (node.cntr, -FI_EAGAIN);
    assert_eq!(node.trywait_on(cntr.cast()), 0);
    // SAFETY: the counter is open.
    let rc = unsafe { ((*(*cntr).ops).add)(cntr, 3) };
    ok("add", rc as isize);
    assert_eq!(node.trywait_on(cntr.cast()), again, "nobody has read the 3");
    assert_eq!(node.counted(), (3, 0));
    assert_eq!(node.trywait_on(cntr.cast()), 0);
}

#[test]
fn a_signal_ends_one_sleep_on_the_fd() {
    let node = Node::new(FD);
    // SAFETY: the queue is open.
    let rc = unsafe { ((*(*node.cq).ops).signal)(node.cq) };
    ok("signal", rc as isize);
    assert_eq!(node.trywait(), -FI_EAGAIN);
    assert_eq!(node.trywait(), 0);
}

#[test]
fn who_peeks_and_sleeps_makes_progress() {
    let pair = Pair::new(FD);
    let sent = [3; 32];
    ok("tsend", pair.a.tsend(&sent, pair.a_to_b, 0x900d, 1));
    // Every sleep ends at once, by the error that means no message; only the reads progress.
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        assert!(Instant::now() < end, "the message is never found");
        ok("peek", pair.b.trecvmsg(&mut [], 0x900d, 2, FI_PEEK));
        if pair.b.sread(20_000) == 1 {
            return;
        }
        assert_eq!(pair.b.read_error().err, FI_ENOMSG);
        pair.a.poke();
    }
}
