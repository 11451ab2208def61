//! Settings of EQDS. docs/baselines.md says where each value comes from.

use crate::time::{Picos, from_ns};
use crate::transport::settings::{TransportSetting, Unit};

/// See the module.
#[derive(Clone, PartialEq, Debug)]
pub struct EqdsSettings {
    /// First window, and most that the receiver is asked for, in bandwidth-delay products.
    pub window_bdp: f64,
    /// Path numbers that packets are spread over.
    pub paths: u16,
    /// Packets that an acknowledgement covers at most.
    pub ack_packets: u32,
    /// Time without progress until packets count as lost.
    pub rto_ps: Picos,
    /// Rate of pulls, as a part of the rate of full packets on the host's link.
    pub pull_rate: f64,
}

impl Default for EqdsSettings {
    fn default() -> EqdsSettings {
        EqdsSettings {
            window_bdp: 1.0,
            paths: 256,
            ack_packets: 4,
            rto_ps: from_ns(100_000),
            pull_rate: 0.99,
        }
    }
}

/// What can be set, by name.
pub(in crate::transport) const SETTINGS: &[TransportSetting<EqdsSettings>] = &[
    TransportSetting::new("window_bdp", Unit::Bdps, (0.001, 1000.0), |all, value| {
        all.window_bdp = value
    }),
    TransportSetting::new("paths", Unit::Count, (1.0, 1024.0), |all, value| {
        all.paths = value as u16
    }),
    TransportSetting::new("ack_packets", Unit::Count, (1.0, 32.0), |all, value| {
        all.ack_packets = value as u32;
    }),
    TransportSetting::new("rto_us", Unit::Micros, (1.0, 6e7), |all, value| {
        all.rto_ps = from_ns((value * 1e3) as u64);
    }),
    TransportSetting::new("pull_rate", Unit::Share, (0.01, 1.0), |all, value| {
        all.pull_rate = value
    }),
];
