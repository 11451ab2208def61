//! Domains with a key of their own, over real sockets.

use super::node::{Node, Options, ctx, ok};
use erd_ffi::fi::*;

const KEY: [u8; 32] = [7; 32];

fn node(key: Option<&'static [u8; 32]>) -> Node {
    Node::new(Options { key, ..Options::default() })
}

/// How a message from the first node to the second ends.
fn message(from: &Node, to: &Node, len: usize) -> Result<(), i32> {
    let target = from.knows(to);
    to.knows(from);
    let mut got = vec![0_u8; len];
    let sent = from.lend(&vec![5; len]);
    // SAFETY: the buffers outlive the operations: the test waits for them, or closes the endpoints first.
    unsafe {
        let msg = &*(*to.ep).msg;
        let rc = (msg.recv)(
            to.ep,
            got.as_mut_ptr().cast(),
            len,
            std::ptr::null_mut(),
            FI_ADDR_UNSPEC,
            ctx(2),
        );
        ok("recv", rc);
        let msg = &*(*from.ep).msg;
        let rc =
            (msg.send)(from.ep, sent.as_ptr().cast(), len, std::ptr::null_mut(), target, ctx(1));
        ok("send", rc);
    }
    let ended = from.next(&[to]);
    if ended.is_ok() {
        to.next(&[from]).expect("the message");
        assert_eq!(got, sent);
    }
    ended.map(|_| ()).map_err(|bad| bad.err)
}

#[test]
fn domains_with_the_same_key_talk() {
    let (one, other) = (node(Some(&KEY)), node(Some(&KEY)));
    for len in [0, 100, 10_000, 3 << 20] {
        assert_eq!(message(&one, &other, len), Ok(()));
        assert_eq!(message(&other, &one, len), Ok(()));
    }
}

#[test]
fn a_domain_without_the_key_is_a_stranger() {
    let (keyed, open) = (node(Some(&KEY)), node(None));
    assert_eq!(message(&open, &keyed, 100), Err(FI_EPROTO));
    let (keyed, other) = (node(Some(&KEY)), node(Some(&[8; 32])));
    assert_eq!(message(&keyed, &other, 100), Err(FI_EKEYREJECTED));
}
