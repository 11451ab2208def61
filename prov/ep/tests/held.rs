//! Messages that one endpoint holds back: calls into others of its domain send them. The helper thread, which would
//! send them in the end, does not know the endpoint here.

use super::node::{Node, Options, bind, ctx, enable, ok, patience};
use crate::object;
use erd_core::endpoint::Endpoint;
use erd_core::progress;
use erd_ffi::fi::*;
use std::ptr::null_mut;
use std::sync::Arc;
use std::time::Instant;

/// Some of so many small messages are held back.
const MESSAGES: usize = 12;
/// Endpoints of which a queue does not ask each at every look.
const MANY: usize = 6;
const TEXT: &[u8; 8] = b"held it?";

/// A node that posts with its own endpoint, whose queue nobody reads from then on; others on a second queue;
/// a peer.
struct Setting {
    node: Node,
    cq: *mut fid_cq,
    others: Vec<*mut fid_ep>,
    peer: Node,
    to: fi_addr_t,
}

impl Setting {
    fn new(others: usize) -> Setting {
        let (node, peer) = (Node::new(Options::APART), Node::new(Options::APART));
        let cq = node.new_cq();
        let others = (0..others).map(|_| {
            let ep = node.another_on(cq);
            enable(ep);
            ep
        });
        let others = others.collect();
        let to = node.knows(&peer);
        let setting = Setting { node, cq, others, peer, to };
        // The session stands, and nothing is under way.
        setting.post_recvs(1);
        ok("send", setting.node.send(TEXT, to, 1));
        setting.node.next(&[&setting.peer]).expect("sent");
        setting.peer.next(&[&setting.node]).expect("received");
        progress::unregister(state(setting.node.ep));
        setting
    }

    fn post_recvs(&self, count: usize) {
        for _ in 0..count {
            let (at, len) = (self.peer.lend(TEXT).as_ptr().cast_mut().cast(), TEXT.len());
            let (ep, none) = (self.peer.ep, null_mut());
            // SAFETY: the endpoint is open; nobody looks at the buffer, which stays until it is closed.
            let rc = unsafe { ((*(*ep).msg).recv)(ep, at, len, none, FI_ADDR_UNSPEC, ctx(2)) };
            ok("recv", rc);
        }
    }

    fn holds(&self) -> bool {
        let endpoint = state(self.node.ep);
        endpoint.with_driver(|driver| Ok(driver.engine.has_unsent())).expect("enabled")
    }

    /// The node's endpoint posts more than goes out at once; the peer gets all while `call` is called again and again.
    fn sends_all_by(&self, mut call: impl FnMut()) {
        self.post_recvs(MESSAGES);
        for _ in 0..MESSAGES {
            ok("send", self.node.send(TEXT, self.to, 1));
        }
        assert!(self.holds(), "the last ones wait for acknowledgements");
        let (mut received, end) = (0, Instant::now() + patience());
        while received < MESSAGES {
            assert!(Instant::now() < end, "{received} of {MESSAGES} messages came");
            call();
            received += self.peer.read(16).map_or(0, |done| done.len());
        }
        assert!(!self.holds());
    }

    fn read(&self) {
        assert_eq!(self.node.read_from(self.cq, 1), Err(-(FI_EAGAIN as isize)));
    }
}

impl Drop for Setting {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.others.iter().for_each(|ep| self.node.close(ep.cast()));
            self.node.close(self.cq.cast());
        }
    }
}

fn state<'a>(ep: *mut fid_ep) -> &'a Arc<Endpoint> {
    // SAFETY: an open endpoint of ours.
    unsafe { object::inner::<Endpoint>(ep.cast()) }
}

#[test]
fn a_read_of_another_queue_sends_what_is_held() {
    let setting = Setting::new(1);
    // Once more: the endpoint comes back into the list.
    (0..2).for_each(|_| setting.sends_all_by(|| setting.read()));
}

#[test]
fn a_read_for_many_other_endpoints_does_so_too() {
    let setting = Setting::new(MANY);
    setting.sends_all_by(|| setting.read());
}

#[test]
fn reads_send_what_more_endpoints_hold_than_one_call_frees() {
    let setting = Setting::new(1);
    let holders = [(); MANY].map(|()| setting.node.another());
    for ep in holders {
        enable(ep);
        progress::unregister(state(ep));
        setting.post_recvs(1);
        // The message waits for the session at least.
        ok("send", setting.node.send_by(ep, TEXT, setting.to, 1));
    }
    let (mut received, end) = (0, Instant::now() + patience());
    while received < MANY {
        assert!(Instant::now() < end, "{received} of {MANY} messages came");
        setting.read();
        received += setting.peer.read(16).map_or(0, |done| done.len());
    }
    holders.iter().for_each(|ep| setting.node.close(ep.cast()));
}

#[test]
fn a_read_of_anothers_counter_does_so_too() {
    let setting = Setting::new(0);
    let cntr = setting.node.new_cntr();
    let ep = setting.node.another_on(setting.cq);
    ok("bind cntr", bind(ep, cntr.cast(), FI_RECV) as isize);
    enable(ep);
    // SAFETY: the counter is open.
    setting.sends_all_by(|| assert_eq!(unsafe { ((*(*cntr).ops).read)(cntr) }, 0));
    setting.node.close(ep.cast());
    setting.node.close_cntrs(&[cntr]);
}

#[test]
fn posts_to_another_endpoint_do_so_too() {
    let setting = Setting::new(1);
    let (ep, mut buffer) = (setting.others[0], [0_u8; 8]);
    setting.sends_all_by(|| {
        let (at, none) = (buffer.as_mut_ptr().cast(), null_mut());
        // SAFETY: the endpoint is open; nothing is received there before it is closed.
        let rc = unsafe { ((*(*ep).msg).recv)(ep, at, 8, none, FI_ADDR_UNSPEC, ctx(3)) };
        assert!(rc == 0 || rc == -(FI_EAGAIN as isize), "{rc}");
    });
}

#[test]
fn another_thread_sends_what_nobody_comes_back_for() {
    let setting = Setting::new(1);
    struct Lent<'a>(&'a Setting);
    // SAFETY: libfabric's objects may be used by several threads under `FI_THREAD_SAFE`, which the provider
    // grants by default.
    unsafe impl Send for Lent<'_> {}
    setting.sends_all_by(|| {
        std::thread::scope(|scope| {
            let lent = Lent(&setting);
            scope.spawn(move || {
                let lent = lent;
                lent.0.read();
            });
        });
    });
}

#[test]
fn a_holder_that_closes_is_forgotten() {
    let mut setting = Setting::new(1);
    setting.post_recvs(MESSAGES);
    for _ in 0..MESSAGES {
        ok("inject", setting.node.inject(TEXT, setting.to));
    }
    assert!(setting.holds());
    std::thread::scope(|scope| {
        struct Peer<'a>(&'a Node);
        // SAFETY: as above; this thread leaves the peer alone meanwhile.
        unsafe impl Send for Peer<'_> {}
        let peer = Peer(&setting.peer);
        scope.spawn(move || {
            let peer = peer;
            let end = Instant::now() + patience();
            let mut received = 0;
            while received < MESSAGES && Instant::now() < end {
                received += peer.0.read(16).map_or(0, |done| done.len());
            }
            assert_eq!(received, MESSAGES, "closing sends what is held");
        });
        setting.node.close_ep();
    });
    setting.read();
}
