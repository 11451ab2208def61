//! Endpoints that must not be used any more: failed by a bug, or in a forked child.

use super::node::{Node, Options, Pair, ok, patience};
use crate::object;
use erd_core::cause;
use erd_core::endpoint::Endpoint;
use erd_ffi::fi::*;
use erd_rd::wire::header::{Header, PacketKind, VERSION, seal};
use std::net::UdpSocket;
use std::time::Instant;

#[test]
fn who_waits_for_a_failed_endpoint_is_told() {
    let pair = Pair::new(Options { wait_obj: FI_WAIT_FD, ..Options::default() });
    let mut got = [0; 8];
    ok("recv", pair.b.recv(&mut got, FI_ADDR_UNSPEC, 1));
    // SAFETY: an open endpoint of ours.
    let inner = unsafe { object::inner::<Endpoint>(pair.b.ep.cast()) };
    inner.fail();
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

#[test]
fn a_send_to_a_peer_of_another_version_fails_at_once_and_names_both() {
    let node = Node::new(Options::default());
    let peer = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    peer.set_nonblocking(true).expect("nonblocking");
    let to = node.knows_name(&peer.local_addr().expect("its address"));
    ok("send", node.send(&[1; 8], to, 1));
    let (end, mut hello) = (Instant::now() + patience(), [0; 2048]);
    while peer.recv(&mut hello).is_err() {
        assert_eq!(node.read(1).map(|_| ()), Err(-(FI_EAGAIN as isize)), "no completion");
        assert!(Instant::now() < end, "no hello");
    }
    let session = u64::from_be_bytes(hello[36..44].try_into().expect("8 bytes"));
    let mut answer = Vec::new();
    Header { s_len: 8, ..Header::new(PacketKind::Version, session) }.emit(&mut answer);
    answer[0] = 7 << 4 | PacketKind::Version as u8;
    answer.extend([7, VERSION, 0, 0, 0, 0, 0, 0]);
    seal(&mut answer, 0, crc32c::crc32c_append);
    peer.send_to(&answer, node.name()).expect("sent");
    let error = node.next(&[]).expect_err("the peer cannot be talked to");
    assert_eq!((error.context, error.err), (1, FI_EPROTO));
    let words = cause::text(error.prov_errno).to_str().expect("text");
    assert!(words.contains("version 7 of") && words.contains("version 2:"), "{words}");
}
