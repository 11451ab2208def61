//! Congestion control: one object per peer flow decides rate and path together.
//!
//! A controller is arithmetic on the feedback structs below. It knows no packet format, no peer
//! table and no clock; the engine enforces what it answers.

pub mod erd;

use crate::units::{Ecn, Nanos};
use alloc::boxed::Box;

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

/// What a flow knows of itself when its controller is built.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlowParams {
    /// Largest datagram on this flow, in bytes.
    pub datagram_bytes: u32,
    /// Paths to choose from, at least 1.
    pub paths: u16,
    /// Round trip of the session set-up.
    pub first_rtt_ns: Nanos,
}

/// A burst goes out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sent {
    /// When.
    pub now: Nanos,
    /// Wire bytes of the burst.
    pub bytes: u32,
    /// On which path.
    pub path: u16,
    /// Bytes in flight, this burst included.
    pub in_flight_bytes: u64,
    /// It repeats lost packets.
    pub retransmission: bool,
}

/// An acknowledgement came in, or one of its per-packet records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ack {
    /// When.
    pub now: Nanos,
    /// Bytes newly acknowledged.
    pub acked_bytes: u64,
    /// Round trip without the receiver's hold time, when there is a sample.
    pub rtt_ns: Option<Nanos>,
    /// Path of the sample.
    pub path: u16,
    /// Bytes newly reported as marked by the network.
    pub ce_bytes: u32,
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

/// Rate and path of one peer flow.
pub trait Controller: Send {
    /// A burst was handed to the port.
    fn on_sent(&mut self, sent: &Sent);
    /// Progress.
    fn on_ack(&mut self, ack: &Ack);
    /// A loss.
    fn on_loss(&mut self, loss: &Loss);
    /// Silence.
    fn on_timeout(&mut self, timeout: &Timeout);
    /// Bytes that may be in flight. The engine always allows one packet.
    fn window_bytes(&self) -> u64;
    /// Bytes per second, when the controller paces; the engine spaces bursts by it.
    fn pace_bytes_per_s(&self) -> Option<u64>;
    /// Path of the next burst, below the flow's path count.
    fn next_path(&mut self, now: Nanos) -> u16;
    /// Codepoint to send data with.
    fn ecn(&self) -> Ecn;
}

/// Builds the controllers of a domain.
pub trait Scheme: Send {
    /// Name as in `FI_ERD_CC`.
    fn name(&self) -> &'static str;
    /// What its controllers need from receivers.
    fn ack_policy(&self) -> AckPolicy;
    /// A controller for one flow; `seed` is all the randomness it gets.
    fn build(&self, params: &FlowParams, seed: u64) -> Box<dyn Controller>;
}
