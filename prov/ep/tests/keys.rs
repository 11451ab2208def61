//! Domains with a key of their own, over real sockets.

use super::node::{Node, Options, bind, ctx, enable, ok};
use crate::object;
use erd_core::endpoint::Endpoint;
use erd_core::settings::{JobKey, KeySource};
use erd_ffi::fi::*;

const KEY: [u8; 32] = [7; 32];

fn node(key: Option<&'static [u8; 32]>) -> Node {
    Node::new(Options { key, ..Options::default() })
}

/// How a message from the first node to the second ends.
fn message(from: &Node, to: &Node, len: usize) -> Result<(), i32> {
    let target = from.knows(to);
    to.knows(from);
    message_to((from, target), to, len)
}

/// The same to what the sender knows as `target`.
fn message_to((from, target): (&Node, fi_addr_t), to: &Node, len: usize) -> Result<(), i32> {
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
    } else {
        ok("cancel", to.cancel(2));
        assert_eq!(to.next(&[]).expect_err("canceled").err, FI_ECANCELED);
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

const OTHER: [u8; 32] = [8; 32];
const BOTH: [[u8; 32]; 2] = [KEY, OTHER];

#[test]
fn an_endpoints_own_key_goes_before_its_domains() {
    let options = Options { key: Some(&OTHER), ep_key: Some(&KEY), ..Options::default() };
    let own = Node::new(options);
    assert_eq!(message(&own, &node(Some(&KEY)), 100), Ok(()));
    assert_eq!(message(&own, &node(Some(&OTHER)), 100), Err(FI_EKEYREJECTED));
    let alone = Node::new(Options { ep_key: Some(&KEY), ..Options::default() });
    assert_eq!(message(&node(Some(&KEY)), &alone, 100_000), Ok(()));
}

/// A node with two keys, and one with each of them; the last two know it as `to_hub`, and it knows them as `to`.
struct Star {
    hub: Node,
    leaves: [Node; 2],
    to: [fi_addr_t; 2],
    to_hub: [fi_addr_t; 2],
}

fn star(caps: u64) -> Star {
    let hub = Node::new(Options { av_keys: &BOTH, caps, ..Options::default() });
    let leaves = [node(Some(&KEY)), node(Some(&OTHER))];
    let to = [0, 1].map(|at| hub.knows_with(&leaves[at].name(), hub.keys[at]));
    let to_hub = [0, 1].map(|at| leaves[at].knows(&hub));
    Star { hub, leaves, to, to_hub }
}

#[test]
fn an_endpoint_talks_with_each_peer_under_the_key_of_its_address() {
    let Star { hub, leaves, to, to_hub } = star(0);
    for at in [0, 1] {
        for len in [0, 100, 1 << 20] {
            assert_eq!(message_to((&hub, to[at]), &leaves[at], len), Ok(()));
            assert_eq!(message_to((&leaves[at], to_hub[at]), &hub, len), Ok(()));
        }
    }
    let wrong = hub.knows_with(&leaves[0].name(), hub.keys[1]);
    assert_ne!(wrong, to[0], "each key has an address of its own");
    assert_eq!(message_to((&hub, wrong), &leaves[0], 100), Err(FI_EKEYREJECTED));
    assert_eq!(message_to((&hub, to[0]), &leaves[0], 100), Ok(()), "beside it");
}

#[test]
fn a_receive_from_a_key_takes_messages_of_its_peers_alone() {
    let Star { hub, leaves, to_hub, .. } = star(FI_DIRECTED_RECV);
    let mut got = [[0_u8; 4]; 2];
    for at in [0, 1] {
        let rc = hub.trecvmsg_from(&mut got[at], hub.keys[at], 1, 10 + at, FI_AUTH_KEY);
        ok("trecvmsg", rc);
    }
    let invalid = -(FI_EINVAL as isize);
    assert_eq!(hub.trecvmsg_from(&mut [0; 4], 77, 1, 9, FI_AUTH_KEY), invalid, "no key");
    for at in [1, 0] {
        ok("tsend", leaves[at].tsend(&[at as u8; 4], to_hub[at], 1, 0));
        assert_eq!(hub.next(&[&leaves[at]]).expect("a message").context, 10 + at);
    }
    assert_eq!(got, [[0; 4], [1; 4]]);
}

#[test]
fn a_message_of_an_unknown_peer_tells_its_key() {
    let caps = FI_SOURCE | FI_SOURCE_ERR;
    let hub = Node::new(Options { av_keys: &BOTH, caps, ..Options::default() });
    let stranger = node(Some(&OTHER));
    let to_hub = stranger.knows(&hub);
    let mut got = [0_u8; 4];
    ok("recv", hub.recv(&mut got, FI_ADDR_UNSPEC, 9));
    ok("send", stranger.send(&[5; 4], to_hub, 0));
    let error = hub.next(&[&stranger]).expect_err("nobody inserted it");
    assert_eq!((error.err, error.src_addr), (FI_EADDRNOTAVAIL, hub.keys[1]));
}

#[test]
fn keys_are_found_again_and_stay_while_something_needs_them() {
    let Star { mut hub, to, .. } = star(0);
    let lookup = |name: fi_addr_t| {
        let (mut key, mut len) = ([0_u8; 40], 40);
        // SAFETY: the AV is open, the buffer as long as it says.
        let rc = unsafe {
            let lookup = (*(*hub.av()).ops).lookup_auth_key;
            lookup(hub.av(), name, key.as_mut_ptr().cast(), &raw mut len)
        };
        (rc, len, key)
    };
    for at in [0, 1] {
        for name in [hub.keys[at], to[at]] {
            let (rc, len, key) = lookup(name);
            assert_eq!((rc, len, &key[..32]), (0, 32, &BOTH[at][..]));
        }
    }
    assert_eq!(lookup(to[1] + 1).0, -FI_EINVAL);
    for bad in [&KEY[..31], &[1; 33], &[]] {
        assert_eq!(hub.insert_key(bad), Err(-FI_EINVAL));
    }
    let remove = |hub: &Node, mut name: fi_addr_t, flags: u64| {
        // SAFETY: the AV is open, the name is local.
        unsafe { ((*(*hub.av()).ops).remove)(hub.av(), &raw mut name, 1, flags) }
    };
    assert_eq!(remove(&hub, hub.keys[0], FI_AUTH_KEY), -FI_EBUSY);
    assert_eq!(remove(&hub, to[0], 0), 0);
    assert_eq!(remove(&hub, hub.keys[0], FI_AUTH_KEY), -FI_EBUSY, "the endpoint has it");
    let later = hub.insert_key(&[9; 32]).expect("room");
    assert_eq!(remove(&hub, later, FI_AUTH_KEY), 0, "the endpoint was enabled before it");
    hub.close_ep();
    assert_eq!(remove(&hub, hub.keys[0], FI_AUTH_KEY), 0);
    assert_eq!(remove(&hub, hub.keys[0], FI_AUTH_KEY), -FI_EINVAL);
    assert_eq!(remove(&hub, hub.keys[1], FI_AUTH_KEY), -FI_EBUSY, "an address has it");
}

#[test]
fn keys_of_vectors_belong_to_domains_that_leave_them_to_those() {
    let plain = node(Some(&KEY));
    assert_eq!(plain.insert_key(&KEY), Err(-FI_EINVAL));
    let hub = Node::new(Options { av_keys: &BOTH, ..Options::default() });
    let name = erd_core::sockaddr::encode(plain.name());
    let insert = |at: &Node, mut fi_addr: fi_addr_t, flags: u64| {
        // SAFETY: the AV is open, name and place are local.
        unsafe {
            let insert = (*(*at.av()).ops).insert;
            let addr = name.as_bytes().as_ptr().cast();
            insert(at.av(), addr, 1, &raw mut fi_addr, flags, std::ptr::null_mut())
        }
    };
    assert_eq!(insert(&hub, 0, 0), -FI_EINVAL, "without a key");
    assert_eq!(insert(&plain, hub.keys[0], FI_AUTH_KEY), -FI_EINVAL);
    assert_eq!(insert(&hub, 5, FI_AUTH_KEY), 0, "5 is no key");
    assert_eq!(insert(&hub, hub.keys[1], FI_AUTH_KEY), 1);
    let empty = Node::disabled(Options { av_keys: &[[1; 32]], ..Options::default() });
    let mut name = empty.keys[0];
    // SAFETY: the AV is open, the name is local.
    let rc = unsafe { ((*(*empty.av()).ops).remove)(empty.av(), &raw mut name, 1, FI_AUTH_KEY) };
    assert_eq!(rc, 0);
    assert_eq!(empty.control(FI_ENABLE, std::ptr::null_mut()), -FI_EINVAL, "no key is left");
}

/// Registers memory for the peers that `limit` names, and reads it from each leaf. Returns the outcomes.
fn reads(star: &Star, limit: fi_addr_t, flags: u64) -> [Result<(), i32>; 2] {
    let Star { hub, leaves, to_hub, .. } = star;
    let memory = hub.lend(&[0; 64]);
    let iov = libc::iovec { iov_base: memory.as_ptr().cast_mut().cast(), iov_len: 64 };
    let mut key = fi_mr_auth_key { av: hub.av(), src_addr: limit };
    let attr = fi_mr_attr {
        mr_iov: &raw const iov,
        iov_count: 1,
        access: FI_REMOTE_READ,
        requested_key: 77,
        auth_key_size: size_of::<fi_mr_auth_key>(),
        auth_key: (&raw mut key).cast(),
        ..fi_mr_attr::ZERO
    };
    let mut mr = std::ptr::null_mut();
    // SAFETY: the domain is open; attributes and places are local; the memory is lent until the node is closed.
    let rc = unsafe {
        let domain = hub.domain();
        ((*(*domain).mr).regattr)(domain.cast(), &raw const attr, flags, &raw mut mr)
    };
    assert_eq!(rc, 0);
    let outcomes = [0, 1].map(|at| {
        let mut own = [0_u8; 8];
        // SAFETY: the endpoint is open; the buffer stays until the read has ended.
        unsafe {
            let rma = &*(*leaves[at].ep).rma;
            let (buf, none) = (own.as_mut_ptr().cast(), std::ptr::null_mut());
            ok("read", (rma.read)(leaves[at].ep, buf, 8, none, to_hub[at], 0, 77, ctx(3)));
        }
        leaves[at].next(&[hub]).map(|_| ()).map_err(|bad| bad.err)
    });
    hub.close(mr.cast());
    outcomes
}

#[test]
fn memory_can_be_for_one_key_or_one_peer_alone() {
    let star = star(FI_DIRECTED_RECV);
    let refused = Err(FI_EKEYREJECTED);
    for at in [0, 1] {
        let mut only = [refused; 2];
        only[at] = Ok(());
        assert_eq!(reads(&star, star.hub.keys[at], FI_AUTH_KEY), only);
        assert_eq!(reads(&star, star.to[at], 0), only);
    }
    assert_eq!(reads(&star, FI_ADDR_UNSPEC, 0), [Ok(()); 2]);
    let (domain, mut mr) = (star.hub.domain(), std::ptr::null_mut());
    let byte = 0_u8;
    // SAFETY: the domain is open, the place is local.
    let rc = unsafe {
        let none = std::ptr::null_mut();
        ((*(*domain).mr).reg)(
            domain.cast(),
            (&raw const byte).cast(),
            1,
            FI_REMOTE_READ,
            0,
            1,
            0,
            &raw mut mr,
            none,
        )
    };
    assert_eq!(rc, -FI_EINVAL, "fi_mr_regattr alone");
}

#[test]
fn memory_without_a_key_is_for_those_with_the_domains() {
    let own = Node::new(Options { key: Some(&OTHER), ep_key: Some(&KEY), ..Options::default() });
    let both = Node::new(Options { key: Some(&KEY), ..Options::default() });
    let peer = node(Some(&KEY));
    let ends = [&own, &both].map(|target| {
        let memory = target.lend(&[0; 8]);
        let (domain, mut mr, none) = (target.domain(), std::ptr::null_mut(), std::ptr::null_mut());
        let to = peer.knows(target);
        target.knows(&peer);
        let mut got = [0_u8; 8];
        // SAFETY: domain and endpoint are open; the memory is lent until the node is closed, and the buffer stays until
        // the read has ended.
        unsafe {
            let (buf, access) = (memory.as_ptr().cast(), FI_REMOTE_READ);
            let reg = (*(*domain).mr).reg;
            assert_eq!(reg(domain.cast(), buf, 8, access, 0, 77, 0, &raw mut mr, none), 0);
            let read = (*(*peer.ep).rma).read;
            ok("read", read(peer.ep, got.as_mut_ptr().cast(), 8, none, to, 0, 77, ctx(3)));
        }
        let end = peer.next(&[target]).map(|_| ()).map_err(|bad| bad.err);
        target.close(mr.cast());
        end
    });
    assert_eq!(ends, [Err(FI_EKEYREJECTED), Ok(())]);
}

/// An address vector beside that of a node, with these keys.
struct Vector {
    av: *mut fid_av,
    keys: Vec<fi_addr_t>,
}

impl Vector {
    fn open(node: &Node, keys: &[[u8; 32]], flags: u64) -> Vector {
        let mut attr = fi_av_attr { r#type: FI_AV_TABLE, flags, ..fi_av_attr::ZERO };
        let (mut av, none) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: the domain is open; attributes, keys and places are local.
        unsafe {
            let open = node.domain_ops().av_open;
            assert_eq!(open(node.domain(), &raw mut attr, &raw mut av, none), 0);
            let insert = (*(*av).ops).insert_auth_key;
            let insert = |key: &[u8; 32]| {
                let mut name = 0;
                assert_eq!(insert(av, key.as_ptr().cast(), 32, &raw mut name, 0), 0);
                name
            };
            Vector { av, keys: keys.iter().map(insert).collect() }
        }
    }

    /// Inserts an address with this key, and returns its name.
    fn insert(&self, node: &Node, mut name: fi_addr_t) -> fi_addr_t {
        let addr = erd_core::sockaddr::encode(node.name());
        // SAFETY: the AV is open, address and place are local.
        unsafe {
            let (insert, none) = ((*(*self.av).ops).insert, std::ptr::null_mut());
            let addr = addr.as_bytes().as_ptr().cast();
            assert_eq!(insert(self.av, addr, 1, &raw mut name, FI_AUTH_KEY, none), 1);
        }
        name
    }
}

#[test]
fn users_name_keys_with_the_flag_and_addresses_without() {
    let hub = Node::new(Options { av_keys: &BOTH, ..Options::default() });
    let vector = Vector::open(&hub, &BOTH, FI_AV_USER_ID);
    let address = vector.insert(&node(Some(&KEY)), vector.keys[0]);
    // SAFETY: the AV is open.
    let set = |name, flags| unsafe { ((*(*vector.av).ops).set_user_id)(vector.av, name, 9, flags) };
    assert_eq!((set(vector.keys[1], FI_AUTH_KEY), set(address, 0)), (0, 0));
    assert_eq!((set(vector.keys[1], 0), set(address, FI_AUTH_KEY)), (-FI_EINVAL, -FI_EINVAL));
    assert_eq!(set(address, FI_MORE), -FI_EBADFLAGS);
    hub.close(vector.av.cast());
}

#[test]
fn a_shared_context_knows_keys_whatever_their_places() {
    let caps = FI_DIRECTED_RECV;
    let mut hub = Node::disabled(Options { av_keys: &BOTH, caps, ..Options::default() });
    let vector = Vector::open(&hub, &[OTHER, KEY], 0);
    let (mut second, mut srx, none) =
        (std::ptr::null_mut(), std::ptr::null_mut(), std::ptr::null_mut());
    let mut attr = fi_rx_attr { size: 8, caps, ..fi_rx_attr::ZERO };
    // SAFETY: the domain is open; attributes and places are local.
    unsafe {
        let ops = hub.domain_ops();
        ok("srx", (ops.srx_ctx)(hub.domain(), &raw mut attr, &raw mut srx, none) as isize);
        let open = (ops.endpoint)(hub.domain(), hub.info(), &raw mut second, none);
        ok("endpoint", open as isize);
    }
    for (ep, av) in [(hub.ep, None), (second, Some(vector.av))] {
        if let Some(av) = av {
            ok("av", bind(ep, av.cast(), 0) as isize);
            ok("cq", bind(ep, hub.cq.cast(), FI_SEND | FI_RECV) as isize);
        }
        ok("srx", bind(ep, srx.cast(), 0) as isize);
        enable(ep);
    }
    let leaves = [node(Some(&KEY)), node(Some(&OTHER))];
    let from_other = vector.insert(&leaves[1], vector.keys[0]);
    let mut got = [[0_u8; 4]; 3];
    // The first endpoint bound names keys and addresses.
    let named = hub.knows_with(&leaves[0].name(), hub.keys[0]);
    assert_ne!((hub.keys[0], named), (vector.keys[1], from_other), "other places");
    for (at, (name, flags)) in
        [(hub.keys[1], FI_AUTH_KEY), (named, 0), (FI_ADDR_UNSPEC, FI_AUTH_KEY)]
            .into_iter()
            .enumerate()
    {
        let rc = hub.trecvmsg_by((srx, name), &mut got[at], (1, 10 + at), flags);
        ok("trecvmsg", rc);
    }
    for (at, context) in [(0, 11), (1, 10), (1, 12)] {
        let to = leaves[at].knows_name(&Node::name_of(second));
        ok("tsend", leaves[at].tsend(&[at as u8 + 1; 4], to, 1, 0));
        assert_eq!(hub.next(&[&leaves[at]]).expect("a message").context, context);
    }
    assert_eq!(got, [[2; 4], [1; 4], [2; 4]]);
    hub.close(second.cast());
    hub.close_ep();
    hub.close(srx.cast());
    hub.close(vector.av.cast());
}

#[test]
fn a_receive_by_key_needs_directed_receives() {
    let Star { hub, .. } = star(0);
    // SAFETY: the info is the node's own.
    unsafe { (*hub.info()).caps &= !FI_DIRECTED_RECV };
    let ep = hub.another();
    enable(ep);
    let rc = hub.trecvmsg_by((ep, hub.keys[0]), &mut [0; 4], (1, 9), FI_AUTH_KEY);
    assert_eq!(rc, -(FI_EINVAL as isize));
    hub.close(ep.cast());
    let Star { hub, leaves, to_hub, .. } = star(FI_DIRECTED_RECV);
    let mut got = [0_u8; 4];
    ok("trecvmsg", hub.trecvmsg_from(&mut got, FI_ADDR_UNSPEC, 1, 9, FI_AUTH_KEY));
    ok("tsend", leaves[1].tsend(&[7; 4], to_hub[1], 1, 0));
    assert_eq!(hub.next(&[&leaves[1]]).expect("a message").context, 9);
    assert_eq!(got, [7; 4], "no key is named: any will do");
}

#[test]
fn a_forked_child_has_no_keys() {
    let (a, b) = (node(Some(&KEY)), node(Some(&KEY)));
    assert_eq!(message(&a, &b, 100), Ok(()));
    let own_key = || KeySource::Application(JobKey::new(&KEY));
    // SAFETY: the endpoint is open.
    let endpoint = unsafe { object::inner::<Endpoint>(a.ep.cast()) };
    let has_key = || endpoint.holds_keys() || endpoint.domain.settings.keys == own_key();
    for _ in 0..50 {
        // SAFETY: the child only looks at the endpoint and exits.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: leaves without running the test harness's own clean-up.
            unsafe { libc::_exit(i32::from(has_key())) };
        }
        let mut status = -1;
        // SAFETY: waits for the child made above.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        // The helper thread may have been at work.
        if status == 0 {
            assert!(has_key());
            assert_eq!(message(&a, &b, 100), Ok(()), "the parent goes on");
            return;
        }
    }
    panic!("each child has keys");
}
