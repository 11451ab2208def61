//! A fixed window, oblivious to all feedback: sprayed over all paths, or on the one path that a
//! flow's hash would give it (docs/cc/fixed.md).

use super::paths;
use super::settings::{Setting, defaults};
use super::{
    Ack, AckPolicy, Controller, FlowParams, Loss, LossDetection, Scheme, Sent, Timeout, View,
};
use crate::units::{Ecn, Nanos};
use alloc::boxed::Box;
use rand_pcg::Pcg32;

/// Parameters of both schemes.
pub const SETTINGS: [Setting; 1] = [Setting {
    name: "window_kib",
    default: 512.0,
    min: 1.0,
    max: 1_048_576.0,
    help: "bytes in flight per peer, in KiB; at least one datagram; 512 as the erd scheme",
}];

/// Packets per acknowledgement: nothing depends on how soon one comes.
const ACK_PACKETS: u8 = 16;
/// Duplicate acknowledgements that TCP takes for a loss (RFC 5681); one path keeps order.
const REORDER_PACKETS: u16 = 3;

/// Builds fixed windows.
#[derive(Clone, Copy, Debug)]
pub struct FixedScheme {
    single: bool,
    values: [f32; 1],
}

impl FixedScheme {
    /// Oblivious spray: each burst takes a path at random.
    #[must_use]
    pub const fn spray() -> FixedScheme {
        FixedScheme { single: false, values: defaults(&SETTINGS) }
    }

    /// One path at random for each flow, as ECMP hashes it.
    #[must_use]
    pub const fn single() -> FixedScheme {
        FixedScheme { single: true, values: defaults(&SETTINGS) }
    }
}

impl Scheme for FixedScheme {
    fn name(&self) -> &'static str {
        if self.single { "single" } else { "spray" }
    }

    fn ack_policy(&self) -> AckPolicy {
        AckPolicy::Coalesced { packets: ACK_PACKETS }
    }

    fn loss_detection(&self) -> LossDetection {
        if self.single {
            LossDetection::OutOfOrder { least_packets: REORDER_PACKETS }
        } else {
            LossDetection::Receiver
        }
    }

    fn learns(&self) -> bool {
        false
    }

    fn settings(&self) -> &'static [Setting] {
        &SETTINGS
    }

    fn values(&mut self) -> &mut [f32] {
        &mut self.values
    }

    fn build(&self, params: &FlowParams, seed: u64) -> Box<dyn Controller> {
        let mut rng = paths::rng(seed);
        let paths = params.paths.max(1);
        let only = self.single.then(|| paths::uniform(&mut rng, paths));
        let window_bytes = (self.values[0] * 1024.0) as u64;
        let window_bytes = window_bytes.max(u64::from(params.datagram_bytes));
        Box::new(Fixed { window_bytes, rng, paths, only })
    }
}

/// A window that nothing changes.
#[derive(Clone, Debug)]
struct Fixed {
    window_bytes: u64,
    rng: Pcg32,
    paths: u16,
    /// The only path, for a flow that keeps to one.
    only: Option<u16>,
}

impl Controller for Fixed {
    fn on_sent(&mut self, _: &Sent) {}

    fn on_ack(&mut self, _: &Ack) {}

    fn on_loss(&mut self, _: &Loss) {}

    fn on_timeout(&mut self, _: &Timeout) {}

    fn window_bytes(&self) -> u64 {
        self.window_bytes
    }

    fn pace_bytes_per_s(&self) -> Option<u64> {
        None
    }

    fn next_path(&mut self, _: Nanos) -> u16 {
        self.only.unwrap_or_else(|| paths::uniform(&mut self.rng, self.paths))
    }

    fn may_move(&self) -> bool {
        self.only.is_none()
    }

    fn ecn(&self) -> Ecn {
        Ecn::NotEct
    }

    fn view(&self) -> View {
        View { paths: if self.only.is_some() { 1 } else { self.paths }, ..View::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::super::settings::set;
    use super::*;

    fn params(datagram_bytes: u32) -> FlowParams {
        FlowParams {
            now: 0,
            datagram_bytes,
            paths: 16,
            first_rtt_ns: 0,
            base_rtt_ns: 0,
            link_bytes_per_s: 0,
            burst_bytes: 0,
            trimming: false,
        }
    }

    #[test]
    fn spray_uses_every_path_about_equally() {
        let mut flow = FixedScheme::spray().build(&params(4096), 1);
        let mut count = [0u32; 16];
        for _ in 0..16_000 {
            count[usize::from(flow.next_path(0))] += 1;
        }
        assert!(count.iter().all(|n| (850..1150).contains(n)), "{count:?}");
    }

    #[test]
    fn single_keeps_its_path_and_flows_differ() {
        let scheme = FixedScheme::single();
        let mut seen = [false; 16];
        for seed in 0..200 {
            let mut flow = scheme.build(&params(4096), seed);
            let path = flow.next_path(0);
            assert!((1..100).all(|t| flow.next_path(t) == path));
            seen[usize::from(path)] = true;
        }
        assert_eq!(seen, [true; 16]);
    }

    #[test]
    fn the_window_is_set_by_name_and_takes_a_datagram() {
        let mut scheme = FixedScheme::spray();
        assert_eq!(scheme.build(&params(4096), 0).window_bytes(), 512 << 10);
        set(&mut scheme, "window_kib", 8.0).unwrap();
        assert_eq!(scheme.build(&params(4096), 0).window_bytes(), 8 << 10);
        assert_eq!(scheme.build(&params(65_507), 0).window_bytes(), 65_507);
    }

    #[test]
    fn state_is_small() {
        let bytes = size_of::<Fixed>();
        assert!(bytes <= 128, "{bytes}");
    }
}
