//! Many endpoints on one queue: idle ones are not asked, and get what they need all the same.

use super::node::{Node, Options, bind, ctx, enable, ok, patience};
use crate::object;
use erd_core::endpoint::Endpoint;
use erd_ffi::fi::*;
use std::net::{Ipv4Addr, UdpSocket};
use std::ptr::null_mut;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// More than a queue asks one by one.
const ENDPOINTS: usize = 9;
const TEXT: &[u8; 8] = b"to a hub";

/// Endpoints of one node, which share its queue. The first is the node's own.
struct Crowd {
    node: Node,
    others: Vec<*mut fid_ep>,
}

impl Crowd {
    fn new(options: Options) -> Crowd {
        let node = Node::new(options);
        let mut crowd = Crowd { node, others: Vec::new() };
        (1..ENDPOINTS).for_each(|_| crowd.join());
        crowd
    }

    fn join(&mut self) {
        let ep = self.node.another();
        enable(ep);
        self.others.push(ep);
    }

    fn leave(&mut self, index: usize) {
        close(self.others.remove(index));
    }

    fn all(&self) -> impl Iterator<Item = *mut fid_ep> {
        std::iter::once(self.node.ep).chain(self.others.iter().copied())
    }

    /// Times that each endpoint was asked for itself.
    fn asked(&self) -> Vec<u64> {
        self.all().map(|ep| state(ep).own_calls()).collect()
    }

    /// Reads until nobody had anything to do for a hundred reads.
    fn settle(&self) {
        let (mut quiet, mut before) = (0, self.asked());
        let end = Instant::now() + patience();
        while quiet < 100 {
            assert!(Instant::now() < end, "some endpoint always has something to do");
            self.node.poke();
            let now = self.asked();
            quiet = if now == before { quiet + 1 } else { 0 };
            before = now;
        }
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.others.drain(..).for_each(close);
        }
    }
}

fn close(ep: *mut fid_ep) {
    // SAFETY: an open endpoint that nobody uses any more.
    ok("close", unsafe { ((*(*ep).fid.ops).close)(ep.cast()) } as isize);
}

fn state<'a>(ep: *mut fid_ep) -> &'a Arc<Endpoint> {
    // SAFETY: an open endpoint of ours.
    unsafe { object::inner::<Endpoint>(ep.cast()) }
}

fn send(ep: *mut fid_ep, dest: fi_addr_t) {
    let (at, len) = (TEXT.as_ptr().cast(), TEXT.len());
    // SAFETY: the endpoint is open, and the text stays for good.
    ok("send", unsafe { ((*(*ep).msg).send)(ep, at, len, null_mut(), dest, ctx(1)) });
}

fn recv(ep: *mut fid_ep, buffer: &mut [u8; 8], context: usize) {
    let (at, len) = (buffer.as_mut_ptr().cast(), buffer.len());
    let (none, from) = (null_mut(), FI_ADDR_UNSPEC);
    // SAFETY: the endpoint is open, and the buffer stays until the test ends.
    ok("recv", unsafe { ((*(*ep).msg).recv)(ep, at, len, none, from, ctx(context)) });
}

/// A message each way between the hub and each endpoint.
fn exchange(crowd: &Crowd, hub: &Node) {
    let mut buffers = [[0; 8]; ENDPOINTS + 1];
    let hubs_name = crowd.node.knows(hub);
    for (index, ep) in crowd.all().enumerate() {
        let mut at_hub = [0; 8];
        recv(ep, &mut buffers[index], 100 + index);
        ok("recv", hub.recv(&mut at_hub, FI_ADDR_UNSPEC, 2));
        send(ep, hubs_name);
        assert_eq!(hub.next(&[&crowd.node]).expect("received").context, 2);
        send(hub.ep, hub.knows_name(&Node::name_of(ep)));
        assert_eq!(hub.next(&[]).expect("the endpoint acknowledges").context, 1);
        let both = [(); 2].map(|()| crowd.node.next(&[hub]).expect("completed").context);
        assert!(both == [1, 100 + index] || both == [100 + index, 1], "{both:?}");
        assert_eq!((&at_hub, &buffers[index]), (TEXT, TEXT));
    }
}

#[test]
fn a_read_asks_no_idle_endpoint() {
    let (crowd, hub) = (Crowd::new(Options::default()), Node::new(Options::default()));
    exchange(&crowd, &hub);
    crowd.settle();
    let before = crowd.asked();
    let last = crowd.others[ENDPOINTS - 2];
    let mut got = [0; 8];
    recv(last, &mut got, 7);
    ok("send", hub.send(TEXT, hub.knows_name(&Node::name_of(last)), 3));
    assert_eq!(crowd.node.next(&[&hub]).expect("received").context, 7);
    let after = crowd.asked();
    assert!(after[ENDPOINTS - 1] > before[ENDPOINTS - 1], "it was asked");
    assert_eq!(after[1..ENDPOINTS - 1], before[1..ENDPOINTS - 1], "and nobody else was");
    // The helper thread sees that the application looks.
    let seen = state(last).calls();
    crowd.node.poke();
    assert!(state(last).calls() > seen);
}

#[test]
fn endpoints_come_and_go() {
    let (mut crowd, hub) = (Crowd::new(Options::default()), Node::new(Options::default()));
    exchange(&crowd, &hub);
    for index in [7, 3, 0] {
        crowd.leave(index);
    }
    exchange(&crowd, &hub);
    (0..4).for_each(|_| crowd.join());
    exchange(&crowd, &hub);
}

#[test]
fn timers_run_though_nothing_arrives() {
    let crowd = Crowd::new(Options::default());
    // Nobody answers there.
    let silent = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
    silent.set_nonblocking(true).expect("nonblocking");
    let to = crowd.node.knows_name(&silent.local_addr().expect("a name"));
    send(crowd.others[4], to);
    let (mut heard, end) = (0, Instant::now() + patience());
    while heard < 3 {
        assert!(Instant::now() < end, "the greeting is not repeated");
        crowd.node.poke();
        heard += usize::from(silent.recv(&mut [0; 2048]).is_ok());
    }
}

#[test]
fn a_sleeping_read_wakes_for_any_of_them() {
    let options = Options { wait_obj: FI_WAIT_FD, ..Options::NONE };
    let (crowd, hub) = (Crowd::new(options), Node::new(Options::default()));
    exchange(&crowd, &hub);
    for ep in crowd.all() {
        let mut got = [0; 8];
        recv(ep, &mut got, 5);
        let name = hub.knows_name(&Node::name_of(ep));
        std::thread::scope(|scope| {
            let hub = Lent(&hub);
            scope.spawn(move || {
                std::thread::sleep(Duration::from_millis(5));
                hub.send(name);
            });
            assert_eq!(crowd.node.sread(20_000), 1);
        });
        assert_eq!(&got, TEXT);
    }
}

/// A node that another thread sends from.
struct Lent<'a>(&'a Node);

// SAFETY: libfabric's objects may be used by several threads under `FI_THREAD_SAFE`, which the
// provider grants by default.
unsafe impl Send for Lent<'_> {}

impl Lent<'_> {
    fn send(&self, dest: fi_addr_t) {
        ok("send", self.0.send(TEXT, dest, 3));
    }
}

#[test]
fn counters_of_many_endpoints_are_told_too() {
    let node = Node::new(Options::default());
    let (hub, cntr) = (Node::new(Options::default()), node.new_cntr());
    let others: Vec<*mut fid_ep> = (0..ENDPOINTS)
        .map(|_| {
            let ep = node.another();
            ok("bind cntr", bind(ep, cntr.cast(), FI_RECV) as isize);
            enable(ep);
            ep
        })
        .collect();
    let mut buffers = [[0; 8]; ENDPOINTS];
    for (ep, buffer) in others.iter().zip(&mut buffers) {
        recv(*ep, buffer, 4);
        ok("send", hub.send(TEXT, hub.knows_name(&Node::name_of(*ep)), 3));
    }
    let end = Instant::now() + patience();
    // SAFETY: the counter is open.
    while unsafe { ((*(*cntr).ops).read)(cntr) } < ENDPOINTS as u64 {
        assert!(Instant::now() < end, "only the counter is read, and it does not count all");
        hub.poke_any();
    }
    assert!(buffers.iter().all(|buffer| buffer == TEXT));
    others.into_iter().for_each(close);
    node.close_cntrs(&[cntr]);
}
