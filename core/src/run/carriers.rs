//! The ports of one endpoint with the loop's state of them, and the three things that a step works on.

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

/// The ports of one endpoint, and the state that the loop keeps about them from step to step.
pub struct Carriers<O: Outside> {
    /// The port for datagrams.
    pub port: O::Port,
    /// The information path for control packets, if the settings ask for one.
    pub info_path: Option<O::Frames>,
    /// The choice between UDP and verbs for each burst.
    pub link: Link,
    /// The clock.
    pub clock: O::Clock,
    /// The guess where the payload of the next datagrams belongs.
    pub guess: Guess,
    /// Bursts on their way to the ports.
    pub sender: Sender,
    /// Network errors, which all endpoints of a domain share, because they share the send sockets.
    pub net_errors: Arc<NetErrors>,
    /// The network errors that this endpoint has not read.
    pub inbox: Arc<Inbox>,
    /// While verbs or shared memory is in use: the time of the next look for UDP.
    pub(crate) udp_due_ns: u64,
    /// While shared memory is in use: when something last came by UDP.
    pub(crate) udp_heard_ns: u64,
    /// The time of the next try, after the port was full.
    pub(crate) retry_at_ns: Option<u64>,
}

impl<O: Outside> Carriers<O> {
    /// The state before the first step.
    pub fn new(
        port: O::Port,
        info_path: Option<O::Frames>,
        link: Link,
        clock: O::Clock,
        (net_errors, inbox): (Arc<NetErrors>, Arc<Inbox>),
    ) -> Carriers<O> {
        let guess = Guess::new(port.tampers());
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
            udp_heard_ns: 0,
            retry_at_ns: None,
        }
    }

    /// Nothing more has arrived, as far as is known without a look.
    pub(super) fn are_drained(&self) -> bool {
        self.port.is_drained() && self.info_path.is_none() && !self.link.has_verbs()
    }

    /// Hands the fds that report arrivals to `f`.
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

/// A step works on these three.
pub struct Parts<'a, O: Outside, M> {
    /// The engine.
    pub engine: &'a mut Engine,
    /// The memory and operations that the engine asks for.
    pub host: &'a mut M,
    /// The ports.
    pub carriers: &'a mut Carriers<O>,
}

impl<O: Outside, M: Memory> Parts<'_, O, M> {
    /// The time, in nanoseconds of the clock.
    pub fn now_ns(&self) -> u64 {
        self.carriers.clock.now_ns()
    }

    /// Runs the timers that are at least `late_ns` late, and reads network errors.
    pub(super) fn run_timers(&mut self, now: u64, late_ns: u64) {
        if self.engine.poll_timeout().is_some_and(|at| at + late_ns <= now) {
            self.engine.handle_timeout(now, self.host);
            self.look_for_errors(now);
        }
        self.read_inbox(now);
    }

    /// Tells the port how many peers send to this endpoint, and the engine which part of the port's receives they have.
    pub(super) fn share_receives(&mut self, now: u64) {
        let senders = self.engine.active_senders(now);
        if let Some(bytes) = self.carriers.link.recv_share_bytes(senders) {
            self.engine.set_recv_buffer_bytes(bytes);
        }
    }

    /// The time of the next step if nothing arrives before. The fds report arrivals from here on.
    pub fn deadline_ns(&mut self) -> Option<u64> {
        // It may be long until then, and others could use what this endpoint's peers have.
        self.share_receives(self.now_ns());
        let carriers = &mut *self.carriers;
        // A datagram may be what ends the sleep.
        carriers.udp_due_ns = 0;
        let local = self.host.local().and_then(Option::as_mut);
        let (is_armed, local_ns) = local.map_or((false, None), |port| (port.arm(), port.next_ns()));
        if carriers.link.arm() || is_armed {
            return Some(0);
        }
        let info_path = carriers.info_path.as_ref().and_then(FramePort::next_ns);
        let timers = self.engine.poll_timeout();
        let dues = [timers, carriers.retry_at_ns, carriers.link.next_ns(), info_path, local_ns];
        // The least of plain numbers: the compiler may compare what an empty `Option` leaves uninitialised, which valgrind
        // reports.
        let earliest =
            dues.into_iter().fold(u64::MAX, |least, due| least.min(due.unwrap_or(u64::MAX)));
        (earliest < u64::MAX).then_some(earliest)
    }
}
