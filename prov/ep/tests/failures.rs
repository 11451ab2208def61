//! Endpoints that must not be used any more: failed by a bug, or in a forked child.

use super::node::{Options, Pair, ok};
use crate::ep::EpInner;
use crate::object;
use erd_ffi::fi::*;
use std::sync::atomic::Ordering;

#[test]
fn who_waits_for_a_failed_endpoint_is_told() {
    let pair = Pair::new(Options { wait_obj: FI_WAIT_FD, ..Options::default() });
    let mut got = [0; 8];
    ok("recv", pair.b.recv(&mut got, FI_ADDR_UNSPEC, 1));
    // SAFETY: an open endpoint of ours.
    let inner = unsafe { object::inner::<EpInner>(pair.b.ep.cast()) };
    inner.failed.store(true, Ordering::Release);
    let failed = -(FI_EOTHER as isize);
    assert_eq!(pair.b.read(1).map(|_| ()), Err(failed));
    assert_eq!(pair.b.sread(20_000), failed, "not at the end of the time-out");
    assert_eq!(pair.b.recv(&mut got, FI_ADDR_UNSPEC, 2), failed);
    // The other endpoint is unharmed.
    assert_eq!(pair.a.read(1).map(|_| ()), Err(-(FI_EAGAIN as isize)));
}

#[test]
fn a_forked_child_leaves_the_endpoint_alone() {
    let pair = Pair::new(Options::default());
    let (sent, mut got) = ([5; 64], [0; 64]);
    ok("recv", pair.b.recv(&mut got, FI_ADDR_UNSPEC, 1));
    // SAFETY: the child makes one call, which takes no lock and no memory there, and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let refused = pair.a.send(&sent, pair.a_to_b, 9) == -(FI_EOTHER as isize);
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(i32::from(!refused)) };
    }
    let mut status = 0;
    // SAFETY: waits for our child; the status outlives the call.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0, "the child's post is refused");
    ok("send", pair.a.send(&sent, pair.a_to_b, 2));
    assert_eq!(pair.b.next(&[&pair.a]).expect("received").len, 64);
    assert!(got == sent);
}
