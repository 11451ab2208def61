//! The options of STrack.

use crate::cc::options::{
    BaseRtts, Bdps, Choice, Factor, Field, OptionRow, Packets, ScaledPackets, Share, TargetDelays,
    row,
};

/// Fewest paths to spray over, if the flow has them (algorithm 3, line 18).
pub(super) const PATHS_MIN: u64 = 8;

/// Options of STrack. Growth is that of one window of acknowledgements, or of a round trip.
#[derive(Clone, Copy, Debug, Default)]
pub struct StrackOptions {
    /// Target delay, noise apart.
    pub target: BaseRtts,
    /// High delay.
    pub high: TargetDelays,
    /// Weight of a new delay in the mean.
    pub ewma: Share,
    /// Growth below the target.
    pub alpha: ScaledPackets,
    /// Growth when a queue is gone.
    pub beta: ScaledPackets,
    /// Growth each round trip.
    pub eta: ScaledPackets,
    /// Multiplicative decrease.
    pub gamma: Factor,
    /// Packets for each SACK.
    pub sack_packets: Packets,
    /// Least out-of-order threshold.
    pub order_packets: Packets,
    /// Largest window, one packet on top.
    pub max_bdp: Bdps,
    /// Least difference of paths that counts; 0: only marks count.
    pub apart: BaseRtts,
    /// 0 the product's, 1 the paper's as printed.
    pub law: Choice,
}

pub(super) const OPTIONS: [OptionRow<StrackOptions>; 12] = [
    row("target", Field::BaseRtts(|o| &mut o.target), 1.0, [0.1, 10.0], "table 1: target_Qdelay"),
    row("high", Field::TargetDelays(|o| &mut o.high), 3.0, [1.0, 100.0], "table 1: Qhigh"),
    row("ewma", Field::Share(|o| &mut o.ewma), 0.125, [0.001, 1.0], "table 1"),
    row("alpha", Field::ScaledPackets(|o| &mut o.alpha), 4.0, [0.0, 1000.0], "table 1"),
    row("beta", Field::ScaledPackets(|o| &mut o.beta), 5.0, [0.0, 1000.0], "table 1"),
    row("eta", Field::ScaledPackets(|o| &mut o.eta), 0.15, [0.0, 1000.0], "table 1"),
    row("gamma", Field::Factor(|o| &mut o.gamma), 0.8, [0.0, 1.0], "table 1"),
    row(
        "sack_packets",
        Field::Packets(|o| &mut o.sack_packets),
        2.0,
        [1.0, 255.0],
        "section 3.3.1; docs: Packets for each SACK",
    ),
    row(
        "order_packets",
        Field::Packets(|o| &mut o.order_packets),
        5.0,
        [1.0, 65_535.0],
        "section 3.3.2: min_threshold",
    ),
    row(
        "max_bdp",
        Field::Bdps(|o| &mut o.max_bdp),
        2.0,
        [1.0, 3.0],
        "section 3.2; docs: Largest window and a lone flow's queue",
    ),
    row("apart", Field::BaseRtts(|o| &mut o.apart), 0.5, [0.0, 10.0], "docs: By marks alone"),
    row("law", Field::Choice(|o| &mut o.law), 0.0, [0.0, 1.0], "docs: Profiles"),
];
