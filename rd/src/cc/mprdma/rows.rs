//! The options of MP-RDMA.

use crate::cc::options::{Choice, Field, OptionRow, Packets, Share, TypicalRtts, row};

/// Options of MP-RDMA.
#[derive(Clone, Copy, Debug, Default)]
pub struct MpRdmaOptions {
    /// Most packets that a path may lag behind the foremost one.
    pub delta: Packets,
    /// Probability that a burst tries a random path.
    pub probe: Share,
    /// Queueing delay that counts as a mark without ECN.
    pub late: TypicalRtts,
    /// 0 the product's, 1 the paper's as printed.
    pub law: Choice,
}

pub(super) const OPTIONS: [OptionRow<MpRdmaOptions>; 4] = [
    row("delta", Field::Packets(|o| &mut o.delta), 64.0, [1.0, 65_535.0], "UDMP, figure 7"),
    row("probe", Field::Share(|o| &mut o.probe), 0.01, [0.0, 1.0], "MP-RDMA, new path probing"),
    row("late", Field::TypicalRtts(|o| &mut o.late), 1.0, [0.05, 32.0], "docs: counts as a mark"),
    row("law", Field::Choice(|o| &mut o.law), 0.0, [0.0, 1.0], "docs: Profiles"),
];
