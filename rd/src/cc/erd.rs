//! ERD's best-effort mode: a fixed window, sprayed over the paths (docs/cc/erd.md).

use super::paths;
use super::settings::{Setting, defaults};
use super::{
    Ack, AckPolicy, Controller, FlowParams, Loss, LossDetection, Scheme, Sent, Timeout, View,
};
use crate::units::{Ecn, Nanos};
use alloc::boxed::Box;
use rand_pcg::Pcg32;

/// Parameters.
pub const SETTINGS: [Setting; 1] = [Setting {
    name: "window_kib",
    // Eight large datagrams stay in the processor's cache, and it covers 20 us at 200 Gb/s.
    default: 512.0,
    min: 1.0,
    max: 1_048_576.0,
    help: "bytes in flight per peer, in KiB; at least one datagram",
}];

/// Builds best-effort controllers.
#[derive(Clone, Copy, Debug)]
pub struct ErdScheme {
    values: [f32; 1],
}

impl Default for ErdScheme {
    fn default() -> Self {
        ErdScheme { values: defaults(&SETTINGS) }
    }
}

impl Scheme for ErdScheme {
    fn name(&self) -> &'static str {
        "erd"
    }

    fn ack_policy(&self) -> AckPolicy {
        AckPolicy::NackOnly
    }

    fn loss_detection(&self) -> LossDetection {
        LossDetection::Receiver
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
        Box::new(Erd {
            window_bytes: ((self.values[0] * 1024.0) as u64).max(u64::from(params.datagram_bytes)),
            paths: params.paths.max(1),
            turn: 0,
            left: 0,
            rng: paths::rng(seed),
        })
    }
}

/// Best effort: sends up to a fixed window and leaves repair to NACKs.
#[derive(Clone, Debug)]
struct Erd {
    window_bytes: u64,
    paths: u16,
    /// The path before.
    turn: u16,
    /// Paths left in this round.
    left: u16,
    rng: Pcg32,
}

impl Controller for Erd {
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
        if self.paths == 1 {
            return 0;
        }
        if self.left == 0 {
            self.left = self.paths;
            self.turn = paths::uniform(&mut self.rng, self.paths);
        } else {
            self.turn = if self.turn + 1 < self.paths { self.turn + 1 } else { 0 };
        }
        self.left -= 1;
        self.turn
    }

    fn ecn(&self) -> Ecn {
        Ecn::NotEct
    }

    fn view(&self) -> View {
        View { paths: self.paths, ..View::default() }
    }
}
