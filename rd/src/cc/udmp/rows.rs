//! The options of UDMP.

use crate::cc::options::{
    Choice, Factor, Field, Micros, OptionRow, Packets, Share, TypicalRtts, row,
};

/// Options of UDMP. The paper prints a value for `delta` alone; docs/cc/udmp.md has what other values of
/// the others do.
#[derive(Clone, Copy, Debug, Default)]
pub struct UdmpOptions {
    /// Slack: no congestion up to this much above the typical round trip, or up to the noise.
    pub t_low: TypicalRtts,
    /// Severe congestion so many times the slack above the typical round trip (Thigh).
    pub t_high: Factor,
    /// Weight in the average of the samples of one typical round trip.
    pub alpha: Factor,
    /// Strength of the gradient.
    pub gain: Factor,
    /// Increase of the rate for each round trip without congestion, of the line rate.
    pub additive: Share,
    /// Strength of the decrease for each round trip above `t_low`.
    pub beta: Factor,
    /// Decrease for a lost packet, in its share of the bytes in flight.
    pub loss: Factor,
    /// An acknowledgement this far plus a BDP behind the foremost clocks nothing.
    pub delta: Packets,
    /// A burst leaves its path once in so long, on average.
    pub probe_us: Micros,
    /// Share that leaves a path one base round trip above the average.
    pub spread: Share,
    /// Part of a first window that the rate must make up for.
    pub advance: Share,
    /// 0 the product's, 1 the paper's as printed.
    pub law: Choice,
}

pub(super) const OPTIONS: [OptionRow<UdmpOptions>; 12] = [
    row("t_low", Field::TypicalRtts(|o| &mut o.t_low), 0.6, [0.05, 10.0], "docs: t_low"),
    row("t_high", Field::Factor(|o| &mut o.t_high), 4.0, [1.0, 50.0], "docs: t_high"),
    row("alpha", Field::Factor(|o| &mut o.alpha), 2.0, [0.1, 64.0], "docs: alpha"),
    row("gain", Field::Factor(|o| &mut o.gain), 0.25, [0.0, 1.0], "docs: gain; paper: 1"),
    row(
        "additive",
        Field::Share(|o| &mut o.additive),
        1.0 / 256.0,
        [0.0001, 0.25],
        "docs: additive; paper: 0",
    ),
    row("beta", Field::Factor(|o| &mut o.beta), 0.5, [0.0, 1.0], "docs: beta; paper: 0"),
    row("loss", Field::Factor(|o| &mut o.loss), 1.0, [0.0, 1.0], "docs: loss; paper: 0"),
    row("delta", Field::Packets(|o| &mut o.delta), 64.0, [1.0, 65_535.0], "figure 7"),
    row("probe_us", Field::Micros(|o| &mut o.probe_us), 1_000.0, [10.0, 1e7], "docs: probe_us"),
    row("spread", Field::Share(|o| &mut o.spread), 0.5, [0.0, 1.0], "docs: spread; paper: 0"),
    row("advance", Field::Share(|o| &mut o.advance), 1.0, [0.0, 1.0], "docs: advance; paper: 0"),
    row("law", Field::Choice(|o| &mut o.law), 0.0, [0.0, 1.0], "docs: Profiles"),
];
