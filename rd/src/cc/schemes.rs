//! The schemes by their name in `FI_ERD_CC`. A new one is one more row.

use super::Scheme;
use super::dctcp::DctcpScheme;
use super::erd::ErdScheme;
use super::fixed::FixedScheme;
use super::laps::LapsScheme;
use super::mprdma::MpRdmaScheme;
use super::nscc::NsccScheme;
use super::strack::StrackScheme;
use super::swift::SwiftScheme;
use super::udmp::UdmpScheme;
use alloc::boxed::Box;

/// Name and default scheme.
type Row = (&'static str, fn() -> Box<dyn Scheme>);

const TABLE: [Row; 11] = [
    // ERD's best effort: a fixed window, sprayed; NACKs only.
    ("erd", || Box::new(ErdScheme::default())),
    // STrack: window by marks and delay, adaptive spray over unmarked paths.
    ("strack", || Box::new(StrackScheme::default())),
    // NSCC of the Ultra Ethernet consortium: delay and marks, recycled paths.
    ("nscc", || Box::new(NsccScheme::nscc())),
    // SMaRTT, the paper that NSCC grew from.
    ("smartt", || Box::new(NsccScheme::smartt())),
    // UDMP: gradient of the round trip, acknowledgements clock packets onto their paths.
    ("udmp", || Box::new(UdmpScheme::default())),
    // LAPS: bursts by softmax of the paths' round trips, AIMD on the rate.
    ("laps", || Box::new(LapsScheme::default())),
    // Swift: AIMD on delay, paced below one packet; oblivious spray.
    ("swift", || Box::new(SwiftScheme::default())),
    // DCTCP: a decrease by the share of marked bytes; oblivious spray or one path.
    ("dctcp", || Box::new(DctcpScheme::default())),
    // MP-RDMA: a window by marks of single packets, acknowledgements choose the paths.
    ("mprdma", || Box::new(MpRdmaScheme::default())),
    // A fixed window over all paths.
    ("spray", || Box::new(FixedScheme::spray())),
    // A fixed window on one path, as ECMP hashes it.
    ("single", || Box::new(FixedScheme::single())),
];

/// All names that [`by_name`] knows.
pub const NAMES: &[&str] = &names();

const fn names() -> [&'static str; TABLE.len()] {
    let mut names = [""; TABLE.len()];
    let mut at = 0;
    while at < TABLE.len() {
        names[at] = TABLE[at].0;
        at += 1;
    }
    names
}

/// A scheme with its default parameters; `None` for an unknown name.
#[must_use]
pub fn by_name(name: &str) -> Option<Box<dyn Scheme>> {
    TABLE.iter().find(|row| row.0 == name).map(|row| row.1())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_builds_its_scheme() {
        for &name in NAMES {
            assert_eq!(by_name(name).unwrap().name(), name);
        }
        assert!(by_name("cubic").is_none() && by_name("").is_none());
    }

    #[test]
    fn defaults_lie_within_their_ranges() {
        for &name in NAMES {
            let mut scheme = by_name(name).unwrap();
            let settings = scheme.settings();
            assert_eq!(settings.len(), scheme.values().len(), "{name}");
            for (setting, value) in settings.iter().zip(scheme.values()) {
                assert_eq!(setting.default, *value, "{name}: {}", setting.name);
                let range = setting.min..=setting.max;
                assert!(range.contains(value), "{name}: {}", setting.name);
            }
        }
    }
}
