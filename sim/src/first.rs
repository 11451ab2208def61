//! The first message to a host: how long it takes where no session stands.

use crate::ids::HostId;
use crate::scenario::Scenario;
use crate::time::PS_PER_NS;
use crate::work::Work;

/// The message is complete within so many base round trips.
const MOST_RTTS: u64 = 100_000;
/// Parts of a base round trip in which the end is found.
const PARTS: u64 = 64;

impl Scenario {
    /// The first sender sends one message. Returns the time until it is complete (us), to a 64th of a base round trip.
    #[must_use]
    pub fn one_message_us(&self, bytes: u64) -> f64 {
        let receiver = HostId(self.net.senders);
        let mut work = Work::new(self.net.senders + 1);
        work.message(HostId(0), receiver, bytes);
        let sink = work.flows()[0].receive;
        let (mut network, _, receiver) = self.net.build(&*self.scheme, work);
        let at = |part: u64| self.rtts(1) * part / PARTS;
        let is_complete = |part: &u64| {
            network.run_until(at(*part));
            network.host(receiver).placed_bytes(sink) == bytes
        };
        let part = (1..=MOST_RTTS * PARTS).find(is_complete).expect("the message arrives");
        at(part) as f64 / (1_000 * PS_PER_NS) as f64
    }
}
