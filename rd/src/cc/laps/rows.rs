//! The options of LAPS.

use crate::cc::options::{
    Bdps, Choice, Count, Field, Micros, OptionRow, Packets, Share, TypicalRtts, row,
};

/// Options of LAPS.
#[derive(Clone, Copy, Debug, Default)]
pub struct LapsOptions {
    /// Increases towards the expected rate before it doubles: N.
    pub stages: Count,
    /// Share of the rate that a decrease keeps.
    pub keep: Share,
    /// Queue that counts as none.
    pub margin: Packets,
    /// A path slower by so much gets a quarter: ln 4 / beta.
    pub quarter: TypicalRtts,
    /// Bytes in flight at most, in BDP of the rate.
    pub window: Bdps,
    /// Time without news from a path before it may be probed.
    pub stale_us: Micros,
    /// One burst in so many, drawn at random, may probe a stale path.
    pub probe_every: Count,
    /// 0 the product's, 1 the paper's as printed.
    pub law: Choice,
}

pub(super) const OPTIONS: [OptionRow<LapsOptions>; 8] = [
    row("stages", Field::Count(|o| &mut o.stages), 5.0, [1.0, 100.0], "section III-F"),
    row("keep", Field::Share(|o| &mut o.keep), 0.5, [0.1, 0.95], "algorithm 2, line 7"),
    row(
        "margin",
        Field::Packets(|o| &mut o.margin),
        15.0,
        [1.0, 1000.0],
        "section III-F: 5 at each switch; 3 switches are our choice",
    ),
    row("quarter", Field::TypicalRtts(|o| &mut o.quarter), 2.0, [0.01, 1e6], "docs: **beta**"),
    row(
        "window",
        Field::Bdps(|o| &mut o.window),
        2.0,
        [1.0, 16.0],
        "docs: Window, floor, idle restart",
    ),
    row("stale_us", Field::Micros(|o| &mut o.stale_us), 200.0, [1.0, 1e6], "docs: **probe**"),
    row("probe_every", Field::Count(|o| &mut o.probe_every), 8.0, [1.0, 255.0], "docs: **probe**"),
    row("law", Field::Choice(|o| &mut o.law), 0.0, [0.0, 1.0], "docs: Profiles"),
];
