//! The options of NSCC and SMaRTT, and the differences of the two tables.

use crate::cc::options::{
    Bdps, Choice, Factor, Field, OptionRow, Packets, ScaledPackets, Share, TargetDelays,
    TypicalRtts, row,
};

/// Choice between the schemes, where they differ by more than a number.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum NsccForm {
    /// The consortium's simulator.
    #[default]
    Nscc,
    /// The paper.
    Smartt,
}

/// Options of NSCC and SMaRTT.
#[derive(Clone, Copy, Debug, Default)]
pub struct NsccOptions {
    pub(super) form: NsccForm,
    /// Queueing delay aimed at, noise apart.
    pub target: TypicalRtts,
    /// The same where switches trim.
    pub target_trim: TypicalRtts,
    /// Greatest window.
    pub max_window: Bdps,
    /// Fair increase a round trip.
    pub fair: ScaledPackets,
    /// Proportional increase a round trip without a queue.
    pub proportional: ScaledPackets,
    /// Increase a round trip in any case.
    pub steady: ScaledPackets,
    /// Fast increase in bytes for each byte acknowledged; under `nscc` scaled by the BDP as well.
    pub fast: Factor,
    /// Factor of the multiplicative decrease.
    pub decrease: Factor,
    /// Weight of one packet in the average delay.
    pub gain: Share,
    /// QuickAdapt only below this part of the greatest window; under `smartt` only without trimming.
    pub qa_share: Share,
    /// QuickAdapt above this delay.
    pub qa_delay: TargetDelays,
    /// 0 REPS, 1 oblivious, 2 ECN bitmap, 3 mixed.
    pub paths_by: Choice,
    /// Packets that one acknowledgement stands for; 0 for a record of each.
    pub ack_packets: Packets,
    /// 0 the product's, 1 the paper's as printed, 2 uet-htsim's.
    pub law: Choice,
}

impl NsccOptions {
    pub(super) fn smartt() -> NsccOptions {
        NsccOptions { form: NsccForm::Smartt, ..NsccOptions::default() }
    }
}

/// Default and source of an option in which the schemes differ.
type Differing = (f32, &'static str);

struct DifferingOptions {
    target: Differing,
    target_trim: Differing,
    fair: Differing,
    proportional: Differing,
    steady: Differing,
    fast: Differing,
}

const fn rows(d: DifferingOptions) -> [OptionRow<NsccOptions>; 14] {
    use Field as F;
    [
        row("target", F::TypicalRtts(|o| &mut o.target), d.target.0, [0.05, 10.0], d.target.1),
        row(
            "target_trim",
            F::TypicalRtts(|o| &mut o.target_trim),
            d.target_trim.0,
            [0.05, 10.0],
            d.target_trim.1,
        ),
        row("max_window", F::Bdps(|o| &mut o.max_window), 1.5, [1.0, 8.0], "SMaRTT, III-J"),
        row("fair", F::ScaledPackets(|o| &mut o.fair), d.fair.0, [0.0, 100.0], d.fair.1),
        row(
            "proportional",
            F::ScaledPackets(|o| &mut o.proportional),
            d.proportional.0,
            [0.0, 100.0],
            d.proportional.1,
        ),
        row("steady", F::ScaledPackets(|o| &mut o.steady), d.steady.0, [0.0, 10.0], d.steady.1),
        row("fast", F::Factor(|o| &mut o.fast), d.fast.0, [0.0, 2.0], d.fast.1),
        row("decrease", F::Factor(|o| &mut o.decrease), 0.8, [0.05, 1.0], "SMaRTT, equation 1"),
        row("gain", F::Share(|o| &mut o.gain), 0.0125, [0.0001, 1.0], "htsim"),
        row("qa_share", F::Share(|o| &mut o.qa_share), 0.125, [0.0, 1.0], "htsim"),
        row("qa_delay", F::TargetDelays(|o| &mut o.qa_delay), 4.0, [1.0, 100.0], "htsim"),
        row("paths_by", F::Choice(|o| &mut o.paths_by), 0.0, [0.0, 3.0], "docs: REPS"),
        row("ack_packets", F::Packets(|o| &mut o.ack_packets), 0.0, [0.0, 255.0], "docs: Profiles"),
        row("law", F::Choice(|o| &mut o.law), 0.0, [0.0, 2.0], "docs: Profiles"),
    ]
}

pub(super) const NSCC: [OptionRow<NsccOptions>; 14] = rows(DifferingOptions {
    target: (0.6, "docs: Measured; htsim: 1.0"),
    target_trim: (0.75, "htsim"),
    fair: (2.0, "docs: Measured; htsim: 5"),
    proportional: (4.0, "htsim: alpha"),
    steady: (0.3, "docs: Measured; htsim: 0.15 (eta)"),
    fast: (0.25, "htsim"),
});

pub(super) const SMARTT: [OptionRow<NsccOptions>; 14] = rows(DifferingOptions {
    target: (0.5, "III-a, III-J: trtt"),
    target_trim: (0.5, "III-a, III-J: trtt"),
    fair: (5.0, "htsim"),
    proportional: (1.0, "equation 3"),
    steady: (0.0, "docs: the paper has a fair increase instead"),
    fast: (2.0, "algorithm 3: k = 2 MTU"),
});
