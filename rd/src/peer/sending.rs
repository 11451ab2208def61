//! The sending side of a session: the queues, the packets in flight, and congestion control.

use super::flight::Flight;
use super::outbox::Outbox;
use super::shared::Core;
use super::steering::Steering;
use crate::units::Psn;

/// See the module. Holds only numbers while nothing is outstanding.
#[derive(Default)]
pub(super) struct Sending {
    pub out: Outbox,
    pub flight: Flight,
    pub steering: Steering,
}

impl Sending {
    /// Prepares a session: keeps the posts, and starts new numbers.
    pub fn start(&mut self, first_psn: Psn, first_order: u32) {
        self.out.start(first_order);
        self.flight = Flight::new(first_psn);
        self.steering.start(first_psn);
    }

    /// True if something could be sent once the window allows.
    pub fn wants(&self) -> bool {
        self.out.wants() || self.flight.has_retries()
    }

    /// True if something is unacknowledged or waits to be sent.
    pub fn outstanding(&self) -> bool {
        !self.flight.is_empty() || self.flight.first_record().is_some() || self.wants()
    }

    /// True if messages wait for the peer's credit while nothing is in flight that could bring it.
    pub fn starved(&self) -> bool {
        self.flight.packets() == 0 && self.out.is_short_of_credit()
    }

    /// True if notices wait to be sent or acknowledged.
    pub fn has_endings(&self) -> bool {
        self.out.has_endings() || self.flight.has_endings()
    }

    /// Frees heap memory when nothing is outstanding.
    pub fn reclaim(&mut self) {
        if !self.outstanding() {
            self.out.reclaim();
            self.flight.reclaim();
        }
    }

    /// Checks the invariants between two calls of the endpoint.
    ///
    /// # Panics
    /// If one is broken.
    pub fn check(&self, core: &Core) {
        self.flight.check();
        self.out.check(&core.ops, core.cfg.eager_bytes);
    }
}
