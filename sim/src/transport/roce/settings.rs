//! Settings of RoCEv2. docs/baselines.md says where each value comes from.

use crate::time::{Picos, from_ns};
use crate::transport::settings::{TransportSetting, Unit};

/// See the module.
#[derive(Clone, PartialEq, Debug)]
pub struct RoceSettings {
    /// Queue pairs of each pair of hosts.
    pub qps: u16,
    /// Packets that an acknowledgement covers at most.
    pub ack_packets: u32,
    /// Time without progress until everything is sent again.
    pub rto_ps: Picos,
    /// Least time between two congestion notifications of a queue pair.
    pub cnp_ps: Picos,
    /// DCQCN's g.
    pub gain: f64,
    /// Time between two events of DCQCN's timers, for the rate and for alpha.
    pub timer_ps: Picos,
    /// Bytes between two events of the byte counter.
    pub byte_counter_bytes: u64,
    /// Events of fast recovery: F.
    pub recoveries: u32,
    /// R_AI, as a part of the link's rate.
    pub additive_increase: f64,
    /// R_HAI, as a part of the link's rate.
    pub hyper_increase: f64,
}

impl Default for RoceSettings {
    fn default() -> RoceSettings {
        RoceSettings {
            qps: 1,
            ack_packets: 4,
            rto_ps: from_ns(5_000_000),
            cnp_ps: from_ns(50_000),
            gain: 1.0 / 256.0,
            timer_ps: from_ns(55_000),
            byte_counter_bytes: 10_000_000,
            recoveries: 5,
            additive_increase: 0.001,
            hyper_increase: 0.01,
        }
    }
}

/// Microseconds as picoseconds.
fn ps(us: f64) -> Picos {
    from_ns((us * 1e3) as u64)
}

/// What can be set, by name.
pub(in crate::transport) const SETTINGS: &[TransportSetting<RoceSettings>] = &[
    TransportSetting::new("qps", Unit::Count, (1.0, 64.0), |all, value| all.qps = value as u16),
    TransportSetting::new("ack_packets", Unit::Count, (1.0, 256.0), |all, value| {
        all.ack_packets = value as u32;
    }),
    TransportSetting::new("rto_us", Unit::Micros, (1.0, 6e7), |all, value| all.rto_ps = ps(value)),
    TransportSetting::new("cnp_us", Unit::Micros, (0.0, 1e6), |all, value| all.cnp_ps = ps(value)),
    TransportSetting::new("gain", Unit::Share, (0.0, 1.0), |all, value| all.gain = value),
    TransportSetting::new("timer_us", Unit::Micros, (1.0, 1e6), |all, value| {
        all.timer_ps = ps(value)
    }),
    TransportSetting::new("byte_counter_kb", Unit::Count, (1.0, 1e9), |all, value| {
        all.byte_counter_bytes = (value * 1e3) as u64;
    }),
    TransportSetting::new("recoveries", Unit::Count, (1.0, 100.0), |all, value| {
        all.recoveries = value as u32;
    }),
    TransportSetting::new("additive_increase", Unit::Share, (0.0, 1.0), |all, value| {
        all.additive_increase = value;
    }),
    TransportSetting::new("hyper_increase", Unit::Share, (0.0, 1.0), |all, value| {
        all.hyper_increase = value;
    }),
];
