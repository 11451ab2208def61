//! Initiators that know the key of a region, but are unknown to the target's application.

use super::memory::{KEY, with_driver};
use super::node::{Node, Options, ok, patience};
use erd_core::admission::{Admission, Admitted};
use erd_core::endpoint::call::Call;
use erd_core::endpoint::ops::Buffers;
use erd_core::endpoint::post_rma::RmaPost;
use erd_core::flags::Flags;
use erd_core::region::{Piece, Region};
use erd_core::settings::PeerRule;
use erd_ffi::fi::*;
use erd_rd::{DropReason, Refusal, Target, Targets};
use std::ffi::c_int;
use std::net::{IpAddr, SocketAddr};
use std::ptr::null_mut;
use std::sync::Arc;
use std::time::Instant;

/// A target that has exposed a cell, and an initiator on another address of this host. The target's
/// application has not heard of it.
struct Strangers {
    stranger: Node,
    target: Node,
    to: fi_addr_t,
    key: u64,
    cell: Box<[u8; 8]>,
}

impl Strangers {
    fn new(mr_mode: c_int) -> Strangers {
        let stranger = Node::new(Options { address: c"127.0.0.2", ..Options::default() });
        let target = Node::new(Options { mr_mode, ..Options::default() });
        let to = stranger.knows(&target);
        // Somebody else is known, and the target itself.
        target.knows_name(&SocketAddr::new(IpAddr::from([127, 0, 0, 3]), 9));
        target.knows(&target);
        let mut cell = Box::new([6_u8; 8]);
        let start = cell.as_mut_ptr().expose_provenance();
        let access = Flags::REMOTE;
        let region = Arc::new(Region::new(vec![Piece { start, len_bytes: 8 }], access, false));
        let insert = with_driver(&target, |driver| driver.domain.regions.insert(region, KEY));
        Strangers { stranger, target, to, key: insert.expect("a key"), cell }
    }

    /// How a request of the stranger's ends.
    fn attempt(&self, addr: u64, make: fn(Buffers, Targets, Call) -> RmaPost) -> Result<(), c_int> {
        let mut own = [1_u8; 8];
        let target = Target { addr, len_bytes: 8, key: self.key };
        let targets = Targets::new(&[target]).expect("one");
        with_driver(&self.stranger, |driver| {
            // SAFETY: the test waits for the completion.
            let buffers = unsafe { Buffers::one(own.as_mut_ptr().cast(), own.len()) };
            // A write that completes when it is copied does not report a refusal.
            let flags = Flags::COMPLETION | Flags::DELIVERY_COMPLETE;
            let call = Call::new(self.to, null_mut(), flags);
            driver.post_rma(&make(buffers, targets, call)).expect("posted");
        });
        let ended = self.stranger.next(&[&self.target]);
        ended.map(|_| ()).map_err(|bad| bad.err)
    }

    fn judge_by(&self, rule: PeerRule) {
        with_driver(&self.target, |driver| {
            let admission = Arc::new(Admission::new(rule, PeerRule::Any));
            admission.opened(Arc::downgrade(&driver.av) as _);
            driver.host.admitted = Admitted::new(&admission);
        });
    }

    fn remove(&self, mut fi_addr: fi_addr_t) {
        let av = self.target.av();
        // SAFETY: the AV is open, and the array has one place.
        let rc = unsafe { ((*(*av).ops).remove)(av, &raw mut fi_addr, 1, 0) };
        ok("remove", rc as isize);
    }
}

#[test]
fn who_is_in_no_address_vector_is_refused_though_it_knows_the_key() {
    let at = Strangers::new(0);
    // Nothing tells a right key from a wrong one, or where memory is.
    for addr in [0, 1 << 40] {
        assert_eq!(at.attempt(addr, RmaPost::read), Err(FI_EKEYREJECTED));
        assert_eq!(at.attempt(addr, RmaPost::write), Err(FI_EKEYREJECTED));
    }
    assert_eq!(*at.cell, [6; 8]);
    let refusals = with_driver(&at.target, |driver| driver.engine.stats().refusals);
    assert_eq!(refusals[Refusal::Key as usize - 1], 4);
}

#[test]
fn an_initiator_is_served_while_an_address_of_its_host_is_known() {
    let at = Strangers::new(0);
    let host = at.stranger.name().ip();
    assert_eq!(at.attempt(0, RmaPost::write), Err(FI_EKEYREJECTED));
    // It sends from a context whose name nobody knows.
    let published = at.target.knows_name(&SocketAddr::new(host, 9));
    assert_eq!(at.attempt(0, RmaPost::write), Ok(()));
    assert_eq!(*at.cell, [1; 8]);
    assert_eq!(at.attempt(4, RmaPost::read), Err(FI_EINVAL), "to those it says what is wrong");
    at.remove(published);
    assert_eq!(at.attempt(0, RmaPost::write), Err(FI_EKEYREJECTED));
}

#[test]
fn the_setting_asks_for_exact_names_or_for_none() {
    let at = Strangers::new(0);
    at.judge_by(PeerRule::Names);
    at.target.knows_name(&SocketAddr::new(at.stranger.name().ip(), 9));
    assert_eq!(at.attempt(0, RmaPost::write), Err(FI_EKEYREJECTED));
    at.target.knows(&at.stranger);
    assert_eq!(at.attempt(0, RmaPost::write), Ok(()));
    let at = Strangers::new(0);
    at.judge_by(PeerRule::Any);
    assert_eq!(at.attempt(0, RmaPost::write), Ok(()));
}

#[test]
fn random_keys_are_good_for_whoever_knows_them() {
    let at = Strangers::new(FI_MR_PROV_KEY);
    assert_ne!(at.key, KEY);
    assert_eq!(at.attempt(0, RmaPost::write), Ok(()));
    assert_eq!(*at.cell, [1; 8]);
}

#[test]
fn who_is_in_no_address_vector_sends_nothing_until_it_is() {
    let at = Strangers::new(0);
    with_driver(&at.target, |driver| {
        let admission = Arc::new(Admission::new(PeerRule::Any, PeerRule::Names));
        admission.opened(Arc::downgrade(&driver.av) as _);
        driver.host.admitted = Admitted::new(&admission);
    });
    let mut got = [0; 4];
    ok("trecv", at.target.trecv(&mut got, 7, 0, 21));
    ok("tsend", at.stranger.tsend(&[5; 4], at.to, 7, 0));
    let turned_away =
        || with_driver(&at.target, |driver| driver.engine.stats().drops_for(DropReason::Stranger));
    let end = Instant::now() + patience();
    while turned_away() < 3 && Instant::now() < end {
        [&at.target, &at.stranger].iter().for_each(|node| node.poke());
    }
    assert!(turned_away() >= 3, "it goes on asking");
    at.target.knows_name(&SocketAddr::new(at.stranger.name().ip(), 9));
    at.target.poke();
    at.target.knows(&at.stranger);
    let done = at.target.next(&[&at.stranger]).expect("received");
    assert_eq!((done.context, got), (21, [5; 4]));
}
