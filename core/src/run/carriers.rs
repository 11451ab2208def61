//! What carries an endpoint's datagrams, and what a step works on.

use super::guess::Guess;
use super::link::Link;
use super::memory::Memory;
use super::net_errors::{Inbox, NetErrors};
use super::outside::{Clock, Outside};
use super::sender::Sender;
use erd_port::{FramePort, Port};
use erd_rd::Endpoint as Engine;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// Where an endpoint's datagrams come from and go to, and how far the loop is with them.
pub struct Carriers<O: Outside> {
    /// What carries datagrams.
    pub port: O::Port,
    /// What carries control packets, if the settings say so.
    pub info_path: Option<O::Frames>,
    /// Whether UDP or verbs carries a burst.
    pub link: Link,
    /// Tells the time.
    pub clock: O::Clock,
    /// Where the next datagrams are likely to belong.
    pub guess: Guess,
    /// Bursts on their way to the ports.
    pub sender: Sender,
    /// What the network said, for all endpoints that send through the same sockets.
    pub net_errors: Arc<NetErrors>,
    /// The same for this endpoint.
    pub inbox: Arc<Inbox>,
    /// When UDP is to be looked for again while verbs is in use.
    pub(crate) udp_due_ns: u64,
    /// When the port, being full, is to be tried again.
    pub(crate) retry_at_ns: Option<u64>,
}

impl<O: Outside> Carriers<O> {
    /// Carriers of which nothing has been asked.
    pub fn new(
        port: O::Port,
        info_path: Option<O::Frames>,
        link: Link,
        clock: O::Clock,
        (net_errors, inbox): (Arc<NetErrors>, Arc<Inbox>),
    ) -> Carriers<O> {
        // What is tampered with is not received into its place.
        let guess = Guess::new(!port.takes_plans());
        Carriers {
            port,
            info_path,
            link,
            clock,
            guess,
            sender: Sender::new(),
            net_errors,
            inbox,
            udp_due_ns: 0,
            retry_at_ns: None,
        }
    }
}

impl<O: Outside> Carriers<O> {
    /// Hands the fds that tell of arrivals to `f`.
    pub(crate) fn each_fd(&self, f: &mut dyn FnMut(BorrowedFd<'_>)) {
        self.port.each_fd(f);
        if let Some(member) = self.link.member() {
            f(member.fd());
        }
        if let Some(path) = &self.info_path {
            path.each_fd(f);
        }
    }
}

/// What a step works on.
pub struct Parts<'a, O: Outside, M> {
    /// The engine.
    pub engine: &'a mut Engine,
    /// What it asks.
    pub host: &'a mut M,
    /// What it is run over.
    pub carriers: &'a mut Carriers<O>,
}

impl<O: Outside, M: Memory> Parts<'_, O, M> {
    /// The time.
    pub fn now_ns(&self) -> u64 {
        self.carriers.clock.now_ns()
    }

    /// Runs timers that are `late_ns` late, and looks at what the network said.
    pub(super) fn run_timers(&mut self, now: u64, late_ns: u64) {
        if self.engine.poll_timeout().is_some_and(|at| at + late_ns <= now) {
            self.engine.handle_timeout(now, self.host);
            self.look_for_errors(now);
        }
        self.read_inbox(now);
    }

    /// When the next step is due even if nothing arrives; from here on the fds tell of arrivals.
    pub fn deadline_ns(&mut self) -> Option<u64> {
        let carriers = &mut *self.carriers;
        if carriers.link.arm() {
            return Some(0);
        }
        let info_path = carriers.info_path.as_ref().and_then(FramePort::next_ns);
        let timers = self.engine.poll_timeout();
        let dues = [timers, carriers.retry_at_ns, carriers.link.next_ns(), info_path];
        dues.into_iter().flatten().min()
    }
}
