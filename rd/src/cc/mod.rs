//! Congestion control: one object per peer flow decides rate and path together.
//!
//! A controller is arithmetic on the feedback structs below. It knows no packet format, no peer
//! table and no clock; the engine enforces what it answers.

pub mod dctcp;
pub mod fixed;
pub mod laps;
pub mod mprdma;
pub mod nscc;
pub mod options;
pub mod paths;
pub mod pipe;
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

/// Which acknowledgements a controller needs from the receiver. Agreed in the session set-up
/// (protocol.md §6.1).
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

/// How a sender finds out about lost packets before the receiver's scan or a probe tells it. One
/// signal per transmission reaches the controller, whichever came first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LossDetection {
    /// Not at all: the receiver tells.
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

/// Round trips that a session samples with few packets in flight before its controller has its way,
/// if the scheme [learns](Scheme::learns): what varies then is noise, not the flow's own queue.
pub const LEARNING_SAMPLES: u8 = 126;

/// What a flow knows of itself when its controller is built.
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

/// A burst goes out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SentBurst {
    /// When.
    pub now: Nanos,
    /// Wire bytes of the burst.
    pub bytes: u32,
    /// Packets of the burst.
    pub packets: u32,
    /// On which path.
    pub path: u16,
    /// Bytes in flight, this burst included.
    pub in_flight_bytes: u64,
    /// It repeats lost packets.
    pub retransmission: bool,
}

/// An acknowledgement came in, or its records of the packets of one burst: one sample, whatever
/// its weight.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AckSample {
    /// When.
    pub now: Nanos,
    /// When the newest of the packets was sent; `now` without a sample.
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
    /// How many packets the sample lies behind the foremost one that is acknowledged.
    pub lag_packets: u32,
    /// Bytes in flight afterwards.
    pub in_flight_bytes: u64,
    /// The flow had less to send than the window allowed.
    pub app_limited: bool,
}

/// How a loss became known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LossKind {
    /// The receiver's scan reported a hole.
    Nack,
    /// A probe's answer did not show the packet.
    Probe,
    /// Packets sent later were acknowledged; see [`LossDetection`].
    Order,
    /// A switch cut the payload off and the receiver told so. Only the simulator does this.
    Trim,
}

/// A packet was lost. Told once per transmission.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Loss {
    /// When it became known.
    pub now: Nanos,
    /// When the lost transmission was sent.
    pub sent_at: Nanos,
    /// Wire bytes.
    pub bytes: u32,
    /// Its path.
    pub path: u16,
    /// How it became known.
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
    /// How many timeouts in a row, from 1.
    pub in_a_row: u32,
}

/// What a controller tells of itself. 0 for what it does not know.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct View {
    /// Least round trip lately.
    pub base_rtt_ns: Nanos,
    /// Round trip without queues, jitter included.
    pub typical_rtt_ns: Nanos,
    /// Queueing delay that it aims at, above the base.
    pub target_ns: Nanos,
    /// What fits into the network at the typical round trip.
    pub bdp_bytes: u64,
    /// Paths that it uses now.
    pub paths: u16,
}

/// Rate and path of one peer flow.
///
/// The engine always allows one packet when none is in flight, so that no window can stop a flow
/// for good. It calls `next_path` for every burst right before `on_sent`. When a path is bad it asks
/// again, a few times, and then takes another (protocol.md §4.5); `on_sent` tells which one it was.
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
    /// Codepoint to send data with.
    fn ecn(&self) -> Ecn;
    /// For who watches the flow.
    fn view(&self) -> View;
}

/// Builds the controllers of a domain.
pub trait Scheme: Send {
    /// Name as in `FI_ERD_CC`.
    fn name(&self) -> &'static str;
    /// What its controllers need from receivers.
    fn ack_policy(&self) -> AckPolicy;
    /// How its senders find lost packets.
    fn loss_detection(&self) -> LossDetection;
    /// Its controllers compare round trips, so a flow begins with [`LEARNING_SAMPLES`].
    fn learns(&self) -> bool;
    /// Its options, with the values that the next flow gets; none unless it says otherwise.
    fn options(&self) -> Vec<OptionInfo> {
        Vec::new()
    }
    /// Sets one option; flows that exist already keep theirs.
    ///
    /// # Errors
    /// The name is unknown, or the value out of its range.
    fn set(&mut self, _name: &str, _value: f32) -> Result<(), OptionError> {
        Err(OptionError::Unknown)
    }
    /// A controller for one flow; `seed` is all the randomness it gets.
    fn build(&self, params: &FlowParams, seed: u64) -> Box<dyn Controller>;
}
