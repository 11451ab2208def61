//! Receives complete in the order in which they met eager messages, whichever is whole first. The test
//! plays the engine, so that it decides when bytes are there.

use super::memory::with_driver;
use super::node::{Bad, Done, Node, Options, Pair, ok, recv_many, set_min_multi_recv};
use erd_core::endpoint::driver::Driver;
use erd_core::run::Driven;
use erd_ffi::fi::*;
use erd_rd::{Arrived, Host, MsgRef, OpError, Order, PeerId, RecvToken, Verdict};
use std::ptr::null_mut;

/// What the engine would say of the peer's messages.
struct Played {
    pair: Pair,
    peer: PeerId,
}

impl Played {
    fn new() -> Played {
        Played::of(Pair::new(Options::default()))
    }

    fn of(pair: Pair) -> Played {
        let to = pair.a_to_b;
        let peer = with_driver(&pair.a, |driver| driver.peer_at(to)).expect("a peer");
        Played { pair, peer }
    }

    fn node(&self) -> &Node {
        &self.pair.a
    }

    /// A message's turn has come. The place of its bytes, if that is known.
    fn arrives(&self, order: u32, len_bytes: u64, rendezvous: bool) -> Option<RecvToken> {
        self.comes(order, len_bytes, rendezvous, false)
    }

    /// A message's turn has come, with all its bytes if it is `whole`.
    fn comes(
        &self,
        order: u32,
        len_bytes: u64,
        rendezvous: bool,
        whole: bool,
    ) -> Option<RecvToken> {
        let credit_bytes = if rendezvous { 0 } else { len_bytes as u32 };
        // No session has this number, so the engine takes no answers to these messages.
        let msg = MsgRef { peer: self.peer, session: 77, order: Order(order), credit_bytes };
        let arrived =
            Arrived { msg, tag: None, data: None, len_bytes, rendezvous, whole, held: None };
        match self.host(|driver| driver.host.arrived(&arrived)) {
            Verdict::Matched(token, _) | Verdict::Held(token) => Some(token),
            Verdict::Wait => None,
            Verdict::Discard => panic!("nobody discards"),
            Verdict::NoBuffer => panic!("there is memory"),
        }
    }

    fn eager(&self, order: u32, len_bytes: u64) -> RecvToken {
        self.arrives(order, len_bytes, false).expect("a place")
    }

    fn ends(&self, token: RecvToken, outcome: Result<u64, OpError>) {
        self.host(|driver| driver.host.received(token, outcome));
    }

    /// One call of the engine.
    fn host<R>(&self, f: impl FnOnce(&mut Driver) -> R) -> R {
        with_driver(self.node(), |driver| {
            let answer = f(driver);
            driver.settle();
            driver.publish();
            answer
        })
    }

    fn next(&self) -> Result<Done, Bad> {
        self.node().next(&[])
    }

    /// Contexts of all that has completed.
    fn contexts(&self) -> Vec<usize> {
        let mut all = Vec::new();
        while let Ok(done) = self.node().read(1) {
            all.push(done[0].context);
        }
        all
    }

    fn post(&self, buffers: &mut [[u8; 16]]) {
        for (at, buffer) in buffers.iter_mut().enumerate() {
            ok("recv", self.node().recv(buffer, FI_ADDR_UNSPEC, at));
        }
    }

    fn done(self) {
        with_driver(self.node(), |driver| assert!(!driver.host.has_unreported()));
    }
}

#[test]
fn eager_messages_wait_for_each_other_and_others_do_not() {
    let mut buffers = [[0; 16]; 4];
    let played = Played::new();
    played.post(&mut buffers);
    let [first, second] = [0, 1].map(|order| played.eager(order, 16));
    let asked = played.arrives(2, 16, true).expect("a place");
    let last = played.eager(3, 0);
    played.ends(last, Ok(0));
    played.ends(second, Ok(16));
    assert_eq!((played.contexts(), played.node().counted().0), (vec![], 0));
    played.ends(asked, Ok(16));
    assert_eq!(played.contexts(), [2], "a rendezvous neither waits nor is waited for");
    played.ends(first, Ok(16));
    assert_eq!(played.contexts(), [0, 1, 3]);
    assert_eq!(played.node().counted(), (4, 0));
    played.done();
}

#[test]
fn a_message_that_is_whole_waits_for_those_before_it_alone() {
    let mut buffers = [[0; 16]; 4];
    let played = Played::new();
    played.post(&mut buffers);
    let whole = |order| {
        let token = played.comes(order, 16, false, true).expect("a place");
        played.ends(token, Ok(16));
    };
    whole(0);
    assert_eq!(played.contexts(), [0]);
    let slow = played.eager(1, 16);
    whole(2);
    assert_eq!(played.contexts(), []);
    played.ends(slow, Ok(16));
    assert_eq!(played.contexts(), [1, 2]);
    whole(3);
    assert_eq!(played.contexts(), [3]);
    played.done();
}

#[test]
fn a_truncated_message_has_its_turn() {
    let mut buffers = [[0; 16]; 2];
    let played = Played::new();
    played.post(&mut buffers);
    let (long, short) = (played.eager(0, 20), played.eager(1, 4));
    played.ends(short, Ok(4));
    assert_eq!(played.contexts(), []);
    played.ends(long, Ok(20));
    let error = played.next().expect_err("truncated");
    assert_eq!((error.context, error.err, error.olen), (0, FI_ETRUNC, 4));
    assert_eq!(played.contexts(), [1]);
    played.done();
}

#[test]
fn what_is_there_is_reported_before_a_failure() {
    let mut buffers = [[0; 16]; 4];
    let played = Played::new();
    played.post(&mut buffers);
    let tokens = [0, 1, 2, 3].map(|order| played.eager(order, 16));
    played.ends(tokens[1], Ok(16));
    played.ends(tokens[3], Ok(16));
    played.host(|driver| {
        driver.host.received(tokens[2], Err(OpError::PeerTimeout));
        driver.host.received(tokens[0], Err(OpError::PeerTimeout));
    });
    assert_eq!(played.contexts(), [1, 3]);
    let failed = [(); 2].map(|()| played.next().expect_err("the session ended").context);
    assert_eq!(failed, [2, 0]);
    played.done();
}

#[test]
fn receives_that_match_nothing_hold_nothing() {
    let mut buffers = [[0; 16]; 3];
    let played = Played::new();
    played.post(&mut buffers);
    let first = played.eager(0, 16);
    ok("cancel", played.node().cancel(1));
    assert_eq!(played.next().expect_err("canceled").err, FI_ECANCELED);
    let last = played.eager(1, 16);
    played.ends(last, Ok(16));
    assert_eq!(played.contexts(), []);
    played.ends(first, Ok(16));
    assert_eq!(played.contexts(), [0, 2]);
    played.done();
}

#[test]
fn a_message_that_came_before_its_receive_has_its_place_from_the_match_on() {
    let mut buffers = [[0; 16]; 2];
    let played = Played::new();
    let early = played.eager(0, 16);
    played.post(&mut buffers[..1]);
    ok("recv", played.node().recv(&mut buffers[1], FI_ADDR_UNSPEC, 1));
    let late = played.eager(1, 16);
    played.ends(late, Ok(16));
    assert_eq!(played.contexts(), []);
    played.host(|driver| driver.host.place(early, 0, &[9; 16]));
    played.ends(early, Ok(16));
    assert_eq!(played.contexts(), [0, 1]);
    assert_eq!(buffers[0], [9; 16]);
    played.done();
}

#[test]
fn parts_of_one_buffer_complete_in_order_and_the_last_gives_it_back() {
    let mut room = [0; 40];
    let played = Played::new();
    set_min_multi_recv(played.node().ep, 8);
    ok("recv", recv_many(played.node().ep, &mut room, 5));
    let tokens = [0, 1, 2].map(|order| played.eager(order, 12));
    played.ends(tokens[2], Ok(12));
    played.ends(tokens[1], Ok(12));
    assert_eq!(played.contexts(), []);
    played.ends(tokens[0], Ok(12));
    let done = [(); 3].map(|()| played.next().expect("a part"));
    assert_eq!(done.map(|done| done.buf - room.as_ptr() as usize), [0, 12, 24]);
    assert_eq!(done.map(|done| done.flags & FI_MULTI_RECV != 0), [false, false, true]);
    played.done();
}

#[test]
fn receives_of_a_shared_context_complete_in_order() {
    let mut buffers = [[0; 16]; 2];
    let (a, b) = (Node::disabled(Options::default()), Node::new(Options::default()));
    let (mut srx, open) = (null_mut(), a.domain_ops().srx_ctx);
    // SAFETY: the domain is open, the place is local.
    ok("srx", unsafe { open(a.domain(), null_mut(), &raw mut srx, null_mut()) } as isize);
    ok("bind", a.bind(srx.cast(), 0) as isize);
    ok("enable", a.control(FI_ENABLE, null_mut()) as isize);
    let (a_to_b, b_to_a) = (a.knows(&b), b.knows(&a));
    let mut played = Played::of(Pair { a, b, a_to_b, b_to_a });
    for (at, buffer) in buffers.iter_mut().enumerate() {
        let (buf, none) = (buffer.as_mut_ptr().cast(), null_mut());
        let context = super::node::ctx(at);
        // SAFETY: the context is open, and the buffers stay until the test ends.
        let rc = unsafe { ((*(*srx).msg).recv)(srx, buf, 16, none, FI_ADDR_UNSPEC, context) };
        ok("recv", rc);
    }
    let [first, second] = [0, 1].map(|order| played.eager(order, 16));
    played.ends(second, Ok(16));
    assert_eq!(played.contexts(), []);
    played.ends(first, Ok(16));
    assert_eq!(played.contexts(), [0, 1]);
    played.pair.a.close_ep();
    // SAFETY: no endpoint uses it any more.
    ok("close", unsafe { ((*(*srx).fid.ops).close)(srx.cast()) } as isize);
}
