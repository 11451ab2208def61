//! The options of Swift.

use crate::cc::options::{
    Choice, Factor, Field, OptionRow, Packets, Share, TargetDelays, TypicalRtts, row,
};

/// Longest wait of a paced packet, in ns: a second, so that a flow is slow but never stuck.
pub(super) const GAP_MAX_NS: f32 = 1e9;

/// Options of Swift.
#[derive(Clone, Copy, Debug, Default)]
pub struct SwiftOptions {
    /// Additive increase for each round trip.
    pub ai: Packets,
    /// Weight of the excess delay in a decrease.
    pub beta: Factor,
    /// Largest part of the window that one decrease takes.
    pub max_mdf: Share,
    /// Base target of the queueing delay; at least the noise.
    pub target: TypicalRtts,
    /// Most that flow scaling adds to the base target.
    pub fs_range: TargetDelays,
    /// 0 the product's, 1 the paper's as printed.
    pub law: Choice,
}

/// "htsim" is the default of that simulator's Swift, where the paper gives no number.
pub(super) const OPTIONS: [OptionRow<SwiftOptions>; 6] = [
    row("ai", Field::Packets(|o| &mut o.ai), 1.0, [0.01, 64.0], "algorithm 1; 1 as TCP"),
    row("beta", Field::Factor(|o| &mut o.beta), 0.8, [0.01, 1.0], "htsim"),
    row("max_mdf", Field::Share(|o| &mut o.max_mdf), 0.5, [0.01, 0.9], "htsim"),
    row("target", Field::TypicalRtts(|o| &mut o.target), 1.0, [0.05, 8.0], "docs: base target"),
    row("fs_range", Field::TargetDelays(|o| &mut o.fs_range), 5.0, [0.0, 32.0], "htsim"),
    row("law", Field::Choice(|o| &mut o.law), 0.0, [0.0, 1.0], "docs: Profiles"),
];
