//! A transmit flow: the state of its paths, and its counters for observers.

use super::paths::Paths;
use crate::bitmap::BITS_MAX;
use crate::cc::{LossKind, View};
use crate::units::{Nanos, Psn};

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Flow {
    /// State of each path.
    pub(super) paths: Paths,
    /// One past the highest packet that a record named.
    foremost: Psn,
    pub(crate) sent_bytes: u64,
    pub(crate) acked_bytes: u64,
    pub(crate) ce_bytes: u64,
    pub(crate) repeated: Repeated,
    /// Mean lag of records, in 1/16 packets.
    lag_16: u32,
    lag_max: u32,
}

/// Packets sent again, by the cause of detection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Repeated {
    /// The receiver's scan.
    pub nack: u64,
    /// A probe's answer.
    pub probe: u64,
    /// The order of acknowledgements.
    pub order: u64,
    /// A cut-off payload.
    pub trim: u64,
    /// Of all these, those whose original had arrived after all.
    pub spurious: u64,
}

/// A snapshot of the flow towards one peer, for observers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowView {
    /// It goes through shared memory: of the other numbers there are bytes sent, and when the peer was heard.
    pub by_lane: bool,
    /// Bytes that may be in flight.
    pub window_bytes: u64,
    /// Bytes per second, if the controller paces.
    pub pace_bytes_per_s: Option<u64>,
    /// Bytes in flight.
    pub in_flight_bytes: u64,
    /// Smoothed round trip, in nanoseconds.
    pub rtt_ns: Nanos,
    /// The controller's view.
    pub controller: View,
    /// Wire bytes of data sent in this session, repetitions included.
    pub sent_bytes: u64,
    /// Of these, acknowledged.
    pub acked_bytes: u64,
    /// Bytes that arrived with a congestion mark.
    pub ce_bytes: u64,
    /// Packets sent again.
    pub repeated: Repeated,
    /// Mean number of packets that overtook one, in 1/16 packets.
    pub out_of_order_16: u32,
    /// Most packets that overtook one.
    pub out_of_order_max: u32,
    /// Time of the peer's last packet of any kind.
    pub last_heard_ns: Nanos,
}

impl Flow {
    pub(super) fn new(first_psn: Psn) -> Flow {
        Flow { foremost: first_psn, ..Flow::default() }
    }

    pub(super) fn lost(&mut self, kind: LossKind) {
        match kind {
            LossKind::Nack => self.repeated.nack += 1,
            LossKind::Probe => self.repeated.probe += 1,
            LossKind::Order => self.repeated.order += 1,
            LossKind::Trim => self.repeated.trim += 1,
        }
    }

    /// Distance, in packets, of a record that ends at `end` behind the highest acknowledged packet.
    pub(super) fn lag(&mut self, end: Psn) -> u32 {
        if end.since(self.foremost) > 0 {
            self.foremost = end;
        }
        // A peer may name packets that were never sent; no more than fit into its bitmap overtake one.
        let lag = self.foremost.since(end).clamp(0, BITS_MAX as i32) as u32;
        self.lag_16 = self.lag_16 - self.lag_16 / 16 + lag;
        self.lag_max = self.lag_max.max(lag);
        lag
    }

    /// KiB sent on each path since the flow was last idle.
    pub(crate) fn path_kib(&self) -> impl Iterator<Item = u32> {
        self.paths.kib()
    }

    /// Frees memory; the counts by path begin again.
    pub(super) fn reclaim(&mut self) {
        self.paths = Paths::default();
    }

    /// A view with the counters kept here.
    pub(crate) fn view(&self) -> FlowView {
        FlowView {
            sent_bytes: self.sent_bytes,
            acked_bytes: self.acked_bytes,
            ce_bytes: self.ce_bytes,
            repeated: self.repeated,
            out_of_order_16: self.lag_16,
            out_of_order_max: self.lag_max,
            ..FlowView::default()
        }
    }
}
