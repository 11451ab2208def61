//! Oblivious spraying, which papers compare with: another scheme's window, and for each burst a path at random.

use erd_rd::cc::options::{OptionError, OptionInfo};
use erd_rd::cc::{
    AckPolicy, AckSample, Controller, FlowParams, Loss, LossDetection, Scheme, SentBurst, Timeout,
    View,
};
use erd_rd::{Ecn, Nanos};
use rand_pcg::Pcg64;
use rand_pcg::rand_core::{Rng, SeedableRng};

/// A scheme whose choice of paths is not used.
pub struct Oblivious {
    scheme: Box<dyn Scheme>,
}

/// One flow of it.
struct Flow {
    controller: Box<dyn Controller>,
    paths: u16,
    random: Pcg64,
}

impl Oblivious {
    /// Of a scheme.
    #[must_use]
    pub fn new(scheme: Box<dyn Scheme>) -> Oblivious {
        Oblivious { scheme }
    }
}

impl Scheme for Oblivious {
    fn name(&self) -> &'static str {
        self.scheme.name()
    }

    fn ack_policy(&self) -> AckPolicy {
        self.scheme.ack_policy()
    }

    fn loss_detection(&self) -> LossDetection {
        self.scheme.loss_detection()
    }

    fn learns(&self) -> bool {
        self.scheme.learns()
    }

    fn link_share_bdps(&self) -> f32 {
        self.scheme.link_share_bdps()
    }

    fn options(&self) -> Vec<OptionInfo> {
        self.scheme.options()
    }

    fn set(&mut self, name: &str, value: f32) -> Result<(), OptionError> {
        self.scheme.set(name, value)
    }

    fn build(&self, params: &FlowParams, seed: u64) -> Box<dyn Controller> {
        let controller = self.scheme.build(params, seed);
        Box::new(Flow { controller, paths: params.paths, random: Pcg64::seed_from_u64(seed) })
    }
}

impl Controller for Flow {
    fn on_sent(&mut self, sent: &SentBurst) {
        self.controller.on_sent(sent);
    }

    fn on_ack(&mut self, ack: &AckSample) {
        self.controller.on_ack(ack);
    }

    fn on_loss(&mut self, loss: &Loss) {
        self.controller.on_loss(loss);
    }

    fn on_timeout(&mut self, timeout: &Timeout) {
        self.controller.on_timeout(timeout);
    }

    fn window_bytes(&self) -> u64 {
        self.controller.window_bytes()
    }

    fn pace_bytes_per_s(&self) -> Option<u64> {
        self.controller.pace_bytes_per_s()
    }

    fn next_path(&mut self, now: Nanos) -> u16 {
        // The scheme learns what it would learn, and nobody asks it.
        self.controller.next_path(now);
        ((u64::from(self.random.next_u32()) * u64::from(self.paths)) >> 32) as u16
    }

    fn may_move(&self) -> bool {
        false
    }

    fn is_strict(&self) -> bool {
        self.controller.is_strict()
    }

    fn ecn(&self) -> Ecn {
        self.controller.ecn()
    }

    fn view(&self) -> View {
        self.controller.view()
    }
}

#[cfg(test)]
mod tests {
    use crate::schemes::named;
    use erd_rd::cc::{AckSample, FlowParams};

    /// STrack takes one path after the other, and the path of an unmarked acknowledgement again; this does neither.
    #[test]
    fn paths_are_random_and_the_window_is_the_schemes() {
        let params = FlowParams {
            now: 0,
            datagram_bytes: 4096,
            paths: 256,
            first_rtt_ns: 8_000,
            base_rtt_ns: 8_000,
            link_bytes_per_s: 50_000_000_000,
            burst_bytes: 4096,
            trimming: false,
        };
        let of = |name: &str| {
            let mut flow = named(name).expect("a scheme").build(&params, 7);
            let window = flow.window_bytes();
            let ack = AckSample {
                now: 8_000,
                sent_at: 0,
                acked_bytes: 4096,
                acked_packets: 1,
                rtt_ns: Some(8_000),
                path: 3,
                ce_bytes: 0,
                lag_packets: 0,
                in_flight_bytes: 4096,
                app_limited: false,
            };
            let mut again = 0;
            for _ in 0..100 {
                flow.on_ack(&ack);
                again += u32::from(flow.next_path(9_000) == 3);
            }
            (window, again)
        };
        let (adaptive, oblivious) = (of("strack:paper"), of("strack:paper+oblivious"));
        assert_eq!(adaptive.0, oblivious.0);
        assert!(adaptive.1 > 90 && oblivious.1 < 10, "{adaptive:?} {oblivious:?}");
    }
}
