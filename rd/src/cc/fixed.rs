//! Fixed windows, oblivious to all feedback. ERD's best-effort mode sends over the paths in rounds and leaves repair to
//! NACKs (docs/cc/erd.md). Two baselines draw a path for each burst, or for each flow, as a hash would
//! (docs/cc/fixed.md).

use super::options::{Choice, Field, Kib, OptionRow, row};
use super::paths;
use super::scheme::SchemeTable;
use super::{
    AckPolicy, AckSample, Controller, FlowParams, Loss, LossDetection, SentBurst, Timeout, View,
};
use crate::units::{Ecn, Nanos};
use alloc::boxed::Box;
use rand_pcg::Pcg32;

/// Options of all three schemes.
#[derive(Clone, Copy, Debug, Default)]
pub struct FixedOptions {
    /// Bytes in flight per peer; at least one datagram.
    pub window_kib: Kib,
    /// 0: the engine may move bursts away from a bad path. 1: it may not.
    pub law: Choice,
}

/// Eight large datagrams stay in the processor's cache, and 512 KiB cover 20 us at 200 Gb/s.
const fn options(source: &'static str) -> [OptionRow<FixedOptions>; 2] {
    [
        row("window_kib", Field::Kib(|o| &mut o.window_kib), 512.0, [1.0, 1_048_576.0], source),
        row("law", Field::Choice(|o| &mut o.law), 0.0, [0.0, 1.0], "docs: Profiles"),
    ]
}

/// ERD's best effort.
pub static ERD: SchemeTable<FixedOptions> = SchemeTable {
    name: "erd",
    options: &options("docs: The paper gives no window"),
    start: FixedOptions::default,
    ack_policy: |_| AckPolicy::NackOnly,
    loss_detection: |_| LossDetection::Receiver,
    learns: |_| false,
    build: |options, params, seed| {
        let rounds = PathRule::Rounds { path: 0, left: 0 };
        Box::new(Fixed::new(options, params, paths::rng(seed), rounds))
    },
};

/// Oblivious spray: each burst takes a path at random.
pub static SPRAY: SchemeTable<FixedOptions> = SchemeTable {
    name: "spray",
    options: &options("docs: as for `erd`"),
    start: FixedOptions::default,
    ack_policy: |_| AckPolicy::Coalesced { packets: ACK_PACKETS },
    loss_detection: |_| LossDetection::Receiver,
    learns: |_| false,
    build: |options, params, seed| {
        Box::new(Fixed::new(options, params, paths::rng(seed), PathRule::Random))
    },
};

/// One path at random for each flow, as ECMP hashes it.
pub static SINGLE: SchemeTable<FixedOptions> = SchemeTable {
    name: "single",
    options: SPRAY.options,
    start: FixedOptions::default,
    ack_policy: |_| AckPolicy::Coalesced { packets: ACK_PACKETS },
    loss_detection: |_| LossDetection::OutOfOrder { least_packets: REORDER_PACKETS },
    learns: |_| false,
    build: |options, params, seed| {
        let mut rng = paths::rng(seed);
        let only = PathRule::Only(paths::uniform(&mut rng, params.paths.max(1)));
        Box::new(Fixed::new(options, params, rng, only))
    },
};

/// Packets per acknowledgement of the baselines: nothing depends on how soon one comes.
const ACK_PACKETS: u8 = 16;
/// Duplicate acknowledgements that mean a loss to TCP (RFC 5681); one path keeps order.
const REORDER_PACKETS: u16 = 3;

/// The rule by which a flow chooses the path of a burst.
#[derive(Clone, Copy, Debug)]
enum PathRule {
    /// In rounds over all paths, each from a random one on. `left` paths of this round follow `path`.
    Rounds { path: u16, left: u16 },
    /// Each time at random.
    Random,
    /// Always this one.
    Only(u16),
}

/// A window that nothing changes.
#[derive(Clone, Debug)]
struct Fixed {
    window_bytes: u64,
    rng: Pcg32,
    paths: u16,
    rule: PathRule,
    may_move: bool,
}

impl Fixed {
    fn new(options: &FixedOptions, params: &FlowParams, rng: Pcg32, rule: PathRule) -> Fixed {
        let window_bytes = (options.window_kib.0 * 1024.0) as u64;
        let window_bytes = window_bytes.max(u64::from(params.datagram_bytes));
        let may_move = !options.law.is_printed() && !matches!(rule, PathRule::Only(_));
        Fixed { window_bytes, rng, paths: params.paths.max(1), rule, may_move }
    }
}

impl Controller for Fixed {
    fn on_sent(&mut self, _: &SentBurst) {}

    fn on_ack(&mut self, _: &AckSample) {}

    fn on_loss(&mut self, _: &Loss) {}

    fn on_timeout(&mut self, _: &Timeout) {}

    fn window_bytes(&self) -> u64 {
        self.window_bytes
    }

    fn pace_bytes_per_s(&self) -> Option<u64> {
        None
    }

    fn next_path(&mut self, _: Nanos) -> u16 {
        match &mut self.rule {
            PathRule::Only(path) => *path,
            PathRule::Random => paths::uniform(&mut self.rng, self.paths),
            // Without a draw, so that a lone path costs no random number.
            PathRule::Rounds { .. } if self.paths == 1 => 0,
            PathRule::Rounds { path, left: left @ 0 } => {
                *left = self.paths - 1;
                *path = paths::uniform(&mut self.rng, self.paths);
                *path
            }
            PathRule::Rounds { path, left } => {
                *left -= 1;
                *path = if *path + 1 < self.paths { *path + 1 } else { 0 };
                *path
            }
        }
    }

    fn may_move(&self) -> bool {
        self.may_move
    }

    fn ecn(&self) -> Ecn {
        Ecn::NotEct
    }

    fn view(&self) -> View {
        let is_single = matches!(self.rule, PathRule::Only(_));
        View { paths: if is_single { 1 } else { self.paths }, ..View::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Scheme;
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
        let mut flow = SPRAY.scheme().build(&params(4096), 1);
        let mut count = [0u32; 16];
        for _ in 0..16_000 {
            count[usize::from(flow.next_path(0))] += 1;
        }
        assert!(count.iter().all(|n| (850..1150).contains(n)), "{count:?}");
    }

    #[test]
    fn single_keeps_its_path_and_flows_differ() {
        let scheme = SINGLE.scheme();
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
        let mut scheme = SPRAY.scheme();
        assert_eq!(scheme.build(&params(4096), 0).window_bytes(), 512 << 10);
        scheme.set("window_kib", 8.0).unwrap();
        assert_eq!(scheme.build(&params(4096), 0).window_bytes(), 8 << 10);
        assert_eq!(scheme.build(&params(65_507), 0).window_bytes(), 65_507);
    }

    #[test]
    fn state_is_small() {
        let bytes = size_of::<Fixed>();
        assert!(bytes <= 128, "{bytes}");
    }
}
