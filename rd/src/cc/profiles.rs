//! The constants of every profile but the product's: what the papers and the reference simulator use, each with its
//! source. They stand here, in one place, and were fixed before any of their results was reproduced; a later change
//! needs a reason from a source, not from a result. docs/cc/NAME.md compares them with the product's, and says what a
//! source leaves open.
//!
//! A profile sets all options of its scheme, so that a new default of the product does not move it. `schemes.rs` builds
//! schemes from profiles.

use super::options::BaseRtts;

/// The profile that ships.
pub const PRODUCT: &str = "product";
/// The paper's algorithm and constants.
const PAPER: &str = "paper";
/// uet-htsim's (40ccb05).
const HTSIM: &str = "htsim";

/// The profiles of one scheme. A scheme without a row has [`PRODUCT`] alone.
#[derive(Debug)]
pub struct Profiles {
    /// The scheme.
    pub scheme: &'static str,
    /// Their names, [`PRODUCT`] first.
    pub names: &'static [&'static str],
    /// The settings of each; none for the product.
    pub settings: &'static [&'static [Setting]],
}

/// The value of an option in a profile.
#[derive(Debug)]
pub struct Setting {
    /// The option's name.
    pub option: &'static str,
    /// Its value.
    pub value: f32,
    /// Section (roman numbers as in the paper), table, equation, algorithm or line of the paper, file of uet-htsim, or
    /// "silent:" and what was chosen.
    pub source: &'static str,
}

const fn set(option: &'static str, value: f32, source: &'static str) -> Setting {
    Setting { option, value, source }
}

/// All profiles.
pub const PROFILES: &[Profiles] = &[
    Profiles {
        scheme: "nscc",
        names: &[PRODUCT, PAPER, HTSIM],
        settings: &[&[], &SMARTT_PAPER, &NSCC_HTSIM],
    },
    paper("smartt", &[&[], &SMARTT_PAPER]),
    paper("strack", &[&[], &STRACK_PAPER]),
    paper("udmp", &[&[], &UDMP_PAPER]),
    paper("laps", &[&[], &LAPS_PAPER]),
    paper("erd", &[&[], &ERD_PAPER]),
    paper("mprdma", &[&[], &MPRDMA_PAPER]),
    paper("swift", &[&[], &SWIFT_PAPER]),
];

const fn paper(scheme: &'static str, settings: &'static [&'static [Setting]]) -> Profiles {
    Profiles { scheme, names: &[PRODUCT, PAPER], settings }
}

/// Receivers share out their link in the product alone.
const NO_LINK_SHARE: Setting = set("link_share", 0.0, "silent: receivers tell buffers alone");

/// SMaRTT's paper; NSCC has no other.
const SMARTT_PAPER: [Setting; 15] = [
    NO_LINK_SHARE,
    set("law", 1.0, "algorithms 1 to 4"),
    set("target", 0.5, "III-a, III-J: trtt is 1.5 base round trips"),
    set("target_trim", 0.5, "III-a, III-J: the same"),
    set("max_window", 1.5, "III-J; algorithm 4, line 23 has 1"),
    set("fair", 5.0, "silent: fi as in uet-htsim, uec.cpp, initNsccParams"),
    set("proportional", 1.0, "equation 3: one MTU, times pi"),
    set("steady", 0.0, "silent: there is none"),
    set("fast", 2.0, "III-F: k is 2 MTU an acknowledgement"),
    set("decrease", 0.8, "equation 1"),
    set("gain", 0.0125, "silent: as in uet-htsim, uec.cpp, _delay_alpha"),
    set("qa_share", 0.125, "III-E names the sign; the share as in uet-htsim, uec.cpp, _qa_gate"),
    set("qa_delay", 4.0, "III-E names the sign; the factor as in uet-htsim, _qa_threshold"),
    set("paths_by", 0.0, "III-A: REPS"),
    set("ack_packets", 0.0, "III-G: each packet"),
];

/// NSCC of uet-htsim; all in htsim/sim/uec.cpp, except the default of a command line.
const NSCC_HTSIM: [Setting; 15] = [
    NO_LINK_SHARE,
    set("law", 2.0, "updateCwndOnAck_NSCC, updateCwndOnNack_NSCC, quick_adapt"),
    set("target", 1.0, "initNsccParams: _target_Qdelay without trimming"),
    set("target_trim", 0.75, "initNsccParams: _target_Qdelay with trimming"),
    set("max_window", 1.5, "initNscc: setMaxWnd"),
    set("fair", 5.0, "initNsccParams: _fi"),
    set("proportional", 4.0, "initNsccParams: _alpha"),
    set("steady", 0.15, "initNsccParams: _eta"),
    set("fast", 0.25, "initNsccParams: _fi_scale"),
    set("decrease", 0.8, "initNsccParams: _gamma"),
    set("gain", 0.0125, "initNsccParams: _delay_alpha"),
    set("qa_share", 0.125, "initNsccParams: _qa_gate is 3"),
    set("qa_delay", 4.0, "initNsccParams: _qa_threshold"),
    set("paths_by", 3.0, "datacenter/main_uec.cpp: load_balancing_algo"),
    set("ack_packets", 4.0, "UecSink::_bytes_unacked_threshold: 16 KiB, of packets of 4150 bytes"),
];

/// Headers in a packet (uec.h: _hdr_size): increases count packets without them.
pub const HTSIM_HEADER_BYTES: f32 = 64.0;
/// Packets after which increases are applied (initNsccParams: _adjust_bytes_threshold).
pub const HTSIM_BATCH_PACKETS: f32 = 8.0;
/// Delay that an unmarked late packet stands for in the average (update_delay).
pub const HTSIM_STALE: BaseRtts = BaseRtts(0.25);
/// Penalties of a path in the bitmap, and the greatest one (uec_mp.cpp: UecMpBitmap).
pub const HTSIM_PENALTY_MARK: u8 = 1;
/// The same for a trim.
pub const HTSIM_PENALTY_NACK: u8 = 4;
/// The same.
pub const HTSIM_PENALTY_MOST: u8 = 15;
/// A decrease keeps at least this share (SMaRTT, equation 1; multiplicative_decrease).
pub const NSCC_KEEP_LEAST: f32 = 0.5;
/// A delay below this is no queue (fast_increase). SMaRTT's algorithm 3 has "about the base".
pub const NSCC_NEAR_BASE_NS: f32 = 1_000.0;

/// STrack's paper.
const STRACK_PAPER: [Setting; 13] = [
    NO_LINK_SHARE,
    set("law", 1.0, "algorithms 1 to 4"),
    set("target", 1.0, "table 1: target_Qdelay is net_base_rtt"),
    set("high", 3.0, "table 1: target_Qhigh"),
    set("ewma", 0.125, "table 1"),
    set("alpha", 4.0, "table 1"),
    set("beta", 5.0, "table 1"),
    set("eta", 0.15, "table 1"),
    set("gamma", 0.8, "table 1"),
    set(
        "sack_packets",
        1.0,
        "silent (3.3.1: \"a sufficient number\"): steps are printed for each ACK",
    ),
    set("order_packets", 5.0, "3.3.2: min_threshold"),
    set("max_bdp", 1.0, "3.2: \"roughly the BDP\"; whole packets"),
    set("apart", 0.0, "algorithm 3: marks alone"),
];

/// A decrease keeps at least this share (STrack, algorithm 4, line 15).
pub const STRACK_KEEP_LEAST: f32 = 0.5;
/// Achieved bytes count below this share of the largest window (STrack, algorithm 4, line 11).
pub const STRACK_ACHIEVED_SHARE: f32 = 0.125;

/// UDMP's paper.
const UDMP_PAPER: [Setting; 13] = [
    NO_LINK_SHARE,
    set("law", 1.0, "algorithms 1 and 2"),
    set("t_low", 0.6, "no such threshold: not used"),
    set("t_high", 3.0, "silent (\"sufficiently high\"): 3 base round trips"),
    set("alpha", 0.125, "silent: the weight of one sample, as in TCP (RFC 6298)"),
    set("gain", 1.0, "algorithm 1, lines 31 and 33; not used"),
    set("additive", 0.0001, "no such increase: not used"),
    set("beta", 0.0, "no such decrease: not used"),
    set("loss", 0.0, "no such decrease: not used"),
    set("delta", 64.0, "figure 7"),
    set("probe_us", 1_000.0, "silent (III-D: p for each RTT): once in 1 ms"),
    set("spread", 0.0, "algorithm 2: none; not used"),
    set("advance", 0.0, "none; not used"),
];

/// LAPS' paper.
const LAPS_PAPER: [Setting; 9] = [
    NO_LINK_SHARE,
    set("law", 1.0, "equation 1, algorithms 1 and 2"),
    set("stages", 5.0, "III-F: N"),
    set("keep", 0.5, "algorithm 2, line 7"),
    set("margin", 15.0, "III-F: 5 packets at each switch; silent for this network: 3 switches"),
    set("quarter", 2.0, "silent: beta is ln 4 over two base round trips"),
    set("window", 16.0, "silent: none is printed; this is the most that the option takes"),
    set("stale_us", 200.0, "III-D has 2 realVal: not used"),
    set("probe_every", 1.0, "algorithm 1: each packet may probe; not used"),
];

/// Greatest `realVal`: silent. A path that never answers would double it for ever.
pub const LAPS_LATENCY_MOST_NS: f32 = 1e9;
/// Least rate, of the line's: silent. A flow that halves for ever would stop.
pub const LAPS_RATE_LEAST: f32 = 1.0 / 65_536.0;

/// ERD's paper: no congestion control.
const ERD_PAPER: [Setting; 3] = [
    NO_LINK_SHARE,
    set("law", 1.0, "5.3: packets go over all paths; nothing is said of leaving one"),
    set(
        "window_kib",
        1_048_576.0,
        "silent: none is printed; this is the most that the option takes",
    ),
];

/// MP-RDMA's paper (NSDI 2018). We did not have its text. "Two simulators": those that docs/cc/mprdma.md names.
const MPRDMA_PAPER: [Setting; 5] = [
    NO_LINK_SHARE,
    set(
        "law",
        1.0,
        "MP-RDMA, sections 3.1 and 3.2: window, acknowledgements that clock, paths that lag",
    ),
    set("delta", 32.0, "MP-RDMA, delta, as two simulators of it have it: half of a bitmap of 64"),
    set("probe", 0.01, "MP-RDMA, new path probing: p, once in a round trip"),
    set("late", 1.0, "marks alone: not used"),
];
/// Part of a packet that a mark takes off the window (MP-RDMA, section 3.1).
pub const MPRDMA_MARK_PACKETS: f32 = 0.5;
/// Most packets that one acknowledgement sends on its path (MP-RDMA, section 3.1).
pub const MPRDMA_CLOCK_MOST: u32 = 2;

/// Swift's paper (SIGCOMM 2020), which prints few numbers. docs/cc/swift.md says what the algorithm was checked against.
const SWIFT_PAPER: [Setting; 7] = [
    NO_LINK_SHARE,
    set("law", 1.0, "algorithm 1"),
    set("ai", 1.0, "silent: as in uet-htsim, swift.cpp, _ai"),
    set("beta", 0.8, "silent: as in uet-htsim, swift.cpp, _beta"),
    set("max_mdf", 0.5, "silent: as in uet-htsim, swift.cpp, _max_mdf"),
    set("target", 1.0, "silent: one base round trip of queue, in place of base target and hops"),
    set("fs_range", 5.0, "silent: as in uet-htsim, swift.cpp, _fs_range"),
];
/// Windows in packets between which flow scaling works (uet-htsim, swift.cpp, _fs_min_cwnd).
pub const SWIFT_SCALING_LEAST: f32 = 0.1;
/// The same (uet-htsim, swift.cpp, _fs_max_cwnd).
pub const SWIFT_SCALING_MOST: f32 = 100.0;
/// Least window in packets (Swift, the section on large incasts).
pub const SWIFT_WINDOW_LEAST: f32 = 0.001;
/// Greatest window in packets (uet-htsim, swift.cpp, _max_cwnd).
pub const SWIFT_WINDOW_MOST: f32 = 1000.0;
/// Timeouts in a row after which the window starts again (uet-htsim, swift.cpp, _rtx_reset_threshold).
pub const SWIFT_TIMEOUTS_RESET: u32 = 5;
