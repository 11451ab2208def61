//! The sending side of a session: what waits, what is in flight, and what steers it.

use super::flight::Flight;
use super::outbox::Outbox;
use super::shared::Core;
use super::steering::Steering;
use crate::units::Psn;

/// See the module. Empty but for numbers while nothing is outstanding.
#[derive(Default)]
pub(super) struct Sending {
    pub out: Outbox,
    pub flight: Flight,
    pub steering: Steering,
}

impl Sending {
    /// Prepares a session: what is posted stays, the numbers are new.
    pub fn start(&mut self, first_psn: Psn, first_order: u32) {
        self.out.start(first_order);
        self.flight = Flight::new(first_psn);
        self.steering.start(first_psn);
    }

    /// Something waits that could be sent once the window allows.
    pub fn wants(&self) -> bool {
        self.out.wants() || self.flight.has_retries()
    }

    /// Something is unacknowledged or waits to be sent.
    pub fn outstanding(&self) -> bool {
        !self.flight.is_empty() || self.wants()
    }

    /// Messages wait for the peer's credit while nothing is in flight that could bring it.
    pub fn starved(&self) -> bool {
        self.flight.packets() == 0 && self.out.is_short_of_credit()
    }

    /// Notices wait to be sent, or to be acknowledged.
    pub fn has_endings(&self) -> bool {
        self.out.has_endings() || self.flight.has_endings()
    }

    /// Gives heap memory back when nothing is outstanding.
    pub fn reclaim(&mut self) {
        if !self.outstanding() {
            self.out.reclaim();
            self.flight.reclaim();
        }
    }

    /// What must stay true between two calls of the endpoint.
    ///
    /// # Panics
    /// If it does not.
    pub fn check(&self, core: &Core) {
        self.flight.check();
        self.out.check(&core.ops, core.cfg.eager_bytes);
    }
}
