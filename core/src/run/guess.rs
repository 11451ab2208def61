//! Guesses at what arrives next, so that payload is received straight into its place.

use super::memory::Memory;
use crate::region::Pass;
use erd_port::udp::{Plan, Taken};
use erd_rd::{Endpoint as Engine, Expected};

/// Most receive calls without a guess after wrong ones.
const PAUSE_MAX: u32 = 64;
/// Smaller payloads are not worth a guess: a wrong one costs more than a copy.
const WORTH_BYTES: u64 = 1 << 10;

/// What keeps the places of a guess from going: nothing but the endpoint's lock, or an access to the region
/// that a peer writes to.
pub struct Lease(Option<Pass>);

impl Lease {
    /// The places are in registered memory: others may look at it, peers among them.
    pub fn is_of_a_region(&self) -> bool {
        self.0.is_some()
    }
}

/// The guess of one receive call, and how well guesses have served.
pub struct Guess {
    /// Where the next datagrams go.
    pub plan: Plan,
    /// What each place of the plan is for.
    pub expected: Vec<Expected>,
    /// There are no guesses.
    off: bool,
    /// Receive calls still to be made without a guess.
    rest: u32,
    /// Length of the next such pause; doubles while guesses are wrong.
    pause: u32,
}

impl Guess {
    pub(super) fn new(off: bool) -> Guess {
        let plan = Plan::new(Expected::HEAD_BYTES);
        Guess { plan, expected: Vec::new(), off, rest: 0, pause: 1 }
    }

    /// Plans for the next arrival; `None` if there is nothing to expect, or guesses rest.
    pub fn make(&mut self, engine: &Engine, host: &mut impl Memory) -> Option<Lease> {
        if self.off {
            return None;
        }
        if self.rest > 0 {
            self.rest -= 1;
            return None;
        }
        let mut pass = None;
        self.plan.clear();
        self.expected.clear();
        engine.each_expected(|expected| {
            // One receive's bytes, all but the last datagram of one length: that is a batch.
            let fits = self.expected.last().is_none_or(|last| {
                last.to == expected.to && last.len_bytes == self.expected[0].len_bytes
            });
            let place = if fits { host.place_of(expected, &mut pass) } else { None };
            let room =
                place.is_some_and(|place| self.plan.push(place, usize::from(expected.len_bytes)));
            if room {
                self.expected.push(*expected);
            }
            room
        });
        (!self.plan.is_empty()).then_some(Lease(pass))
    }

    /// Learns from what came. Small packets between the expected ones do no harm.
    pub(super) fn learn(&mut self, taken: Taken, bytes: u64) {
        if taken.placed {
            self.pause = 1;
        } else if bytes >= WORTH_BYTES {
            self.rest = self.pause;
            self.pause = (2 * self.pause).min(PAUSE_MAX);
        }
    }
}
