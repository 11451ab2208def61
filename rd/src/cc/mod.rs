//! Congestion control: one object per peer flow decides both rate and path.
//!
//! A controller is arithmetic on the feedback structs below. It knows no packet format, no peer table and no clock; the
//! engine enforces its results.

pub mod dctcp;
pub mod fixed;
pub mod laps;
pub mod mprdma;
pub mod nscc;
pub mod options;
pub mod paths;
pub mod pipe;
pub mod profiles;
pub mod scheme;
pub mod schemes;
pub mod stamp;
pub mod strack;
pub mod swift;
pub mod udmp;
pub mod window;

use crate::units::{Ecn, Nanos};
use alloc::boxed::Box;
use alloc::vec::Vec;
use options::{OptionError, OptionInfo};

/// The acknowledgements that a controller needs from the receiver. The session set-up agrees on them (protocol.md
/// §6.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AckPolicy {
    /// One record for every packet, sent with each received batch.
    PerPacket,
    /// A coalesced SACK every so many packets (1 to 255) or after the acknowledgement delay.
    Coalesced {
        /// Packets per acknowledgement.
        packets: u8,
    },
    /// NACKs from the scan, completion notices, and answers to acknowledgement requests.
    NackOnly,
}

impl AckPolicy {
    /// Wire form.
    #[must_use]
    pub fn to_wire(self) -> [u8; 2] {
        match self {
            AckPolicy::PerPacket => [0, 0],
            AckPolicy::Coalesced { packets } => [1, packets],
            AckPolicy::NackOnly => [2, 0],
        }
    }

    /// From wire form; `None` for an unknown one.
    #[must_use]
    pub fn from_wire(bytes: [u8; 2]) -> Option<AckPolicy> {
        match bytes {
            [0, _] => Some(AckPolicy::PerPacket),
            [1, packets] if packets > 0 => Some(AckPolicy::Coalesced { packets }),
            [2, _] => Some(AckPolicy::NackOnly),
            _ => None,
        }
    }
}

/// How a sender detects lost packets before the receiver's scan or a probe does. One signal per transmission reaches
/// the controller, whichever comes first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LossDetection {
    /// Not at all: the receiver reports losses.
    Receiver,
    /// When as many packets sent later are acknowledged as the window holds, and at least so many
    /// (STrack, section 3.3.2).
    OutOfOrder {
        /// At least how many, from 1.
        least_packets: u16,
    },
    /// When packets sent later on the same path are acknowledged: a path keeps order (LAPS,
    /// section III-D).
    PathOrder,
}

/// Round trips that a session samples with few packets in flight before its controller's window counts, if the scheme
/// [learns](Scheme::learns): their variation is noise, not the flow's own queue.
pub const LEARNING_SAMPLES: u8 = 126;

/// Parameters of a flow at the construction of its controller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlowParams {
    /// When.
    pub now: Nanos,
    /// Largest datagram on this flow, in bytes.
    pub datagram_bytes: u32,
    /// Paths to choose from, 1 to 256.
    pub paths: u16,
    /// Round trip of the session set-up; 0 if it was not measured.
    pub first_rtt_ns: Nanos,
    /// Round trip without queues, where it is known; 0 to measure it.
    pub base_rtt_ns: Nanos,
    /// Speed of the local link in bytes per second; 0 if unknown.
    pub link_bytes_per_s: u64,
    /// Most bytes that the port sends at once; 0 for a packet at a time.
    pub burst_bytes: u32,
    /// Switches cut payloads off instead of dropping packets. Only the simulator's do.
    pub trimming: bool,
}

/// A sent burst.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SentBurst {
    /// When.
    pub now: Nanos,
    /// Wire bytes of the burst.
    pub bytes: u32,
    /// Packets of the burst.
    pub packets: u32,
    /// Path of the burst.
    pub path: u16,
    /// Bytes in flight, this burst included.
    pub in_flight_bytes: u64,
    /// True if it repeats lost packets.
    pub retransmission: bool,
}

/// An acknowledgement, or its records of one burst's packets: one sample, whatever its weight.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AckSample {
    /// When.
    pub now: Nanos,
    /// Send time of the newest of the packets; `now` without a sample.
    pub sent_at: Nanos,
    /// Bytes newly acknowledged.
    pub acked_bytes: u64,
    /// Packets newly acknowledged.
    pub acked_packets: u32,
    /// Round trip without the receiver's hold time, the least of the burst, when there is a sample.
    pub rtt_ns: Option<Nanos>,
    /// Path of the sample.
    pub path: u16,
    /// Bytes newly reported as marked by the network.
    pub ce_bytes: u32,
    /// Distance of the sample, in packets, behind the highest acknowledged one.
    pub lag_packets: u32,
    /// Bytes in flight afterwards.
    pub in_flight_bytes: u64,
    /// True if the flow had less to send than the window allowed.
    pub app_limited: bool,
}

/// Way in which a loss became known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LossKind {
    /// The receiver's scan reported a hole.
    Nack,
    /// A probe's answer did not show the packet.
    Probe,
    /// Packets sent later were acknowledged; see [`LossDetection`].
    Order,
    /// A switch cut the payload off and the receiver reported it. Only the simulator does this.
    Trim,
}

/// A lost packet, reported once per transmission.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Loss {
    /// Time at which it became known.
    pub now: Nanos,
    /// Send time of the lost transmission.
    pub sent_at: Nanos,
    /// Wire bytes.
    pub bytes: u32,
    /// Its path.
    pub path: u16,
    /// Way in which it became known.
    pub kind: LossKind,
    /// Bytes in flight afterwards.
    pub in_flight_bytes: u64,
}

/// The peer has been silent for a probe timeout.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timeout {
    /// When.
    pub now: Nanos,
    /// Bytes in flight.
    pub in_flight_bytes: u64,
    /// Number of timeouts in a row, from 1.
    pub in_a_row: u32,
}

/// A controller's state for observers. 0 for unknown values.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct View {
    /// Least recent round trip.
    pub base_rtt_ns: Nanos,
    /// Round trip without queues, jitter included.
    pub typical_rtt_ns: Nanos,
    /// Target queueing delay, above the base.
    pub target_ns: Nanos,
    /// Bytes that fit into the network at the typical round trip.
    pub bdp_bytes: u64,
    /// Paths that it uses now.
    pub paths: u16,
}

/// Rate and path of one peer flow.
///
/// The engine always allows one packet when none is in flight, so no window can stop a flow for good. It calls
/// `next_path` for every burst right before `on_sent`. When a path is bad it asks again, a few times, and then takes
/// another (protocol.md §4.5); `on_sent` has the path that it took.
pub trait Controller: Send {
    /// A burst was handed to the port.
    fn on_sent(&mut self, sent: &SentBurst);
    /// Progress.
    fn on_ack(&mut self, ack: &AckSample);
    /// A loss.
    fn on_loss(&mut self, loss: &Loss);
    /// Silence.
    fn on_timeout(&mut self, timeout: &Timeout);
    /// Bytes that may be in flight.
    fn window_bytes(&self) -> u64;
    /// Bytes per second, when the controller paces; the engine spaces bursts by it.
    fn pace_bytes_per_s(&self) -> Option<u64>;
    /// Path of the next burst, below the flow's path count.
    fn next_path(&mut self, now: Nanos) -> u16;
    /// Whether the engine may take another path than [`Controller::next_path`] says, because that
    /// one is bad.
    fn may_move(&self) -> bool {
        true
    }
    /// Whether the engine sends as uet-htsim does: the packet that fills the window asks for an acknowledgement, in place of
    /// one each quarter of it, and no repeated packet exceeds the window while others are in flight.
    fn is_strict(&self) -> bool {
        false
    }
    /// Codepoint to send data with.
    fn ecn(&self) -> Ecn;
    /// State for observers.
    fn view(&self) -> View;
}

/// Builds the controllers of a domain.
pub trait Scheme: Send {
    /// Name as in `FI_ERD_CC`.
    fn name(&self) -> &'static str;
    /// The acknowledgements that its controllers need from receivers.
    fn ack_policy(&self) -> AckPolicy;
    /// How its senders find lost packets.
    fn loss_detection(&self) -> LossDetection;
    /// True if its controllers compare round trips, so that a flow begins with [`LEARNING_SAMPLES`].
    fn learns(&self) -> bool;
    /// Bandwidth-delay products of this host's link that several peers may have on the way here together (protocol.md §4.4); 0 if
    /// nothing but their controllers limits them.
    fn link_share_bdps(&self) -> f32 {
        0.0
    }
    /// Its options, with the values for the next flow; none by default.
    fn options(&self) -> Vec<OptionInfo> {
        Vec::new()
    }
    /// Sets one option; existing flows keep theirs.
    ///
    /// # Errors
    /// The name is unknown, or the value out of its range.
    fn set(&mut self, _name: &str, _value: f32) -> Result<(), OptionError> {
        Err(OptionError::Unknown)
    }
    /// A controller for one flow; `seed` is all the randomness it gets.
    fn build(&self, params: &FlowParams, seed: u64) -> Box<dyn Controller>;
}
