//! A stream from a host that has just exchanged messages with many: how soon it has its link, where the receiver's buffer was
//! shared with all of them.

use crate::ids::HostId;
use crate::scenario::Scenario;
use crate::time::Picos;
use crate::work::Work;

/// Bytes of the message that each host sends in the exchange.
const EXCHANGED_BYTES: u64 = 64 << 10;
/// Bytes of a message of the stream, and messages outstanding.
const MESSAGE_BYTES: u64 = 1 << 20;
const OUTSTANDING: u32 = 8;
/// The stream has its link from the first round trip in which it gets this share of it.
const FULL: f64 = 0.95;
/// Longest exchange, in base round trips.
const EXCHANGE_RTTS_MAX: u64 = 100_000;
/// Base round trips for which the stream is watched.
const WATCHED_RTTS: u64 = 2_000;

impl Scenario {
    /// All senders send one message each. When the last has arrived, the first of them begins a stream. Returns the base round
    /// trips until that has its link; `None` if it does not within 2,000.
    #[must_use]
    pub fn stream_after_exchange(&self) -> Option<u64> {
        let exchanged_at = self.exchanged_at();
        let (receiver, mut work) = self.exchange();
        let stream = work.stream(HostId(0), receiver, MESSAGE_BYTES, OUTSTANDING);
        work.start_at(stream, exchanged_at);
        let sink = work.flows()[stream.0 as usize].receive;
        let (mut network, _, receiver) = self.net.build(&*self.scheme, work);
        let rtt_bytes = self.net.payload_bytes_per_s() * self.net.base_rtt_ns as f64 / 1e9;
        let mut placed_bytes = 0;
        network.run_until(exchanged_at);
        (1..=WATCHED_RTTS).find(|nth| {
            network.run_until(exchanged_at + self.rtts(*nth));
            let before = placed_bytes;
            placed_bytes = network.host(receiver).placed_bytes(sink);
            (placed_bytes - before) as f64 >= FULL * rtt_bytes
        })
    }

    /// When the exchange alone is over.
    fn exchanged_at(&self) -> Picos {
        let (receiver, work) = self.exchange();
        let sinks: Vec<_> = work.flows().iter().map(|flow| flow.receive).collect();
        let (mut network, ..) = self.net.build(&*self.scheme, work);
        let is_over = |nth: &u64| {
            network.run_until(self.rtts(*nth));
            let host = network.host(receiver);
            sinks.iter().all(|sink| host.placed_bytes(*sink) == EXCHANGED_BYTES)
        };
        let rtts = (1..=EXCHANGE_RTTS_MAX).find(is_over).expect("the exchange ends");
        self.rtts(rtts)
    }

    fn exchange(&self) -> (HostId, Work) {
        let receiver = HostId(self.net.senders);
        let mut work = Work::new(self.net.senders + 1);
        for sender in (0..self.net.senders).map(HostId) {
            work.message(sender, receiver, EXCHANGED_BYTES);
        }
        (receiver, work)
    }
}
