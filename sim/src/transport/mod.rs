//! How a host carries messages. Its tasks hand messages to a transport, and learn from it which have arrived and which were
//! acknowledged. The network gives the transport packets, and takes those that leave.
//!
//! [`erd`] is the engine that ships, [`roce`] and [`eqds`] are baselines. A network runs one transport on all its hosts.

pub mod agenda;
pub mod eqds;
pub mod erd;
mod memory;
pub mod roce;
mod settings;

pub use settings::SettingError;

use crate::header::{EqdsHeader, RoceHeader};
use crate::ids::HostId;
use crate::info_path::FrameCounts;
use crate::packet::Packet;
use crate::time::Picos;
use crate::wire::{PAYLOAD_BYTES, Wire};
use agenda::{Agenda, SendRequest};
use serde::Serialize;

/// What the hosts speak.
#[derive(Clone, PartialEq, Debug, Default)]
pub enum Protocol {
    /// The erd engine.
    #[default]
    Erd,
    /// RoCEv2.
    Roce(roce::RoceSettings),
    /// EQDS.
    Eqds(eqds::EqdsSettings),
}

/// Names of the transports that exist in the simulator alone.
pub const BASELINES: &[&str] = &["roce", "eqds"];

impl Protocol {
    /// A transport that exists in the simulator alone, by its name.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Protocol> {
        match name {
            "roce" => Some(Protocol::Roce(roce::RoceSettings::default())),
            "eqds" => Some(Protocol::Eqds(eqds::EqdsSettings::default())),
            _ => None,
        }
    }

    /// Payload of its full packets, and what each data packet takes on the wire beside it.
    #[must_use]
    pub fn packet_bytes(&self, wire: Wire) -> (u32, u32) {
        match self {
            Protocol::Erd => (wire.payload_bytes(), wire.full_bytes() - wire.payload_bytes()),
            Protocol::Roce(_) => (PAYLOAD_BYTES, wire.bytes(RoceHeader::DATA_BYTES, 0)),
            Protocol::Eqds(_) => (PAYLOAD_BYTES, wire.bytes(EqdsHeader::WIRE_BYTES, 0)),
        }
    }

    /// Changes one of its settings.
    ///
    /// # Errors
    /// It has no such setting, or the value is out of its range. What the engine does is set by its scheme.
    pub fn set(&mut self, name: &str, value: f64) -> Result<(), SettingError> {
        match self {
            Protocol::Erd => settings::set("erd", &[], &mut (), (name, value)),
            Protocol::Roce(all) => settings::set("roce", roce::SETTINGS, all, (name, value)),
            Protocol::Eqds(all) => settings::set("eqds", eqds::SETTINGS, all, (name, value)),
        }
    }
}

/// Repeats of data packets, by what found the loss.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Repeats {
    /// The receiver's scan.
    pub nack: u64,
    /// A probe.
    pub probe: u64,
    /// Acknowledgements of later packets.
    pub order: u64,
    /// A switch that trimmed.
    pub trim: u64,
    /// Time without progress.
    pub timeout: u64,
    /// Those that were not needed.
    pub spurious: u64,
}

impl Repeats {
    /// All of them, whatever found the loss.
    #[must_use]
    pub fn all(&self) -> u64 {
        let Repeats { nack, probe, order, trim, timeout, spurious: _ } = self;
        nack + probe + order + trim + timeout
    }

    /// Adds those of another host.
    pub fn add(&mut self, other: &Repeats) {
        let Repeats { nack, probe, order, trim, timeout, spurious } = other;
        self.nack += nack;
        self.probe += probe;
        self.order += order;
        self.trim += trim;
        self.timeout += timeout;
        self.spurious += spurious;
    }
}

/// Counters of a host's transport.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TransportStats {
    /// Data packets sent, without repeats.
    pub data_packets: u64,
    /// Repeats of them.
    pub repeats: Repeats,
    /// Frames of its information path.
    pub frames: FrameCounts,
}

/// A host's side of a transport.
pub trait Transport {
    /// Its tasks.
    fn agenda(&self) -> &Agenda;

    /// Its tasks, to be told what has become of messages.
    fn agenda_mut(&mut self) -> &mut Agenda;

    /// Takes a message to send; false if it takes none now. It tells the agenda once the message was acknowledged.
    fn post(&mut self, now: Picos, message: &SendRequest) -> bool;

    /// Takes a packet from the network, whose buffers it may keep. A step at the same moment follows.
    fn receive(&mut self, now: Picos, packet: &mut Packet);

    /// Does what is due. [`Transport::leaving`] has the packets that leave, at most `room` with payload.
    fn step(&mut self, now: Picos, room: usize);

    /// The packets that leave. The caller may take their buffers.
    fn leaving(&mut self) -> &mut [Packet];

    /// It would have handed over more, had there been room.
    fn has_more(&self) -> bool;

    /// When it wants to be woken, at the earliest, its tasks included.
    fn next_wake(&self) -> Option<Picos>;

    /// Bytes that it may have in flight to another host; `None` without a window, or if it has not spoken to it.
    fn window_bytes(&self, to: HostId) -> Option<u64>;

    /// The work begins after greetings: what they have taught its congestion control does not count.
    fn begin(&mut self, _now: Picos) {}

    /// Counters.
    fn stats(&self) -> TransportStats;

    /// Ends tasks that are done, begins those that are due, and takes their messages.
    fn run_tasks(&mut self, now: Picos) {
        self.agenda_mut().turn(now);
        let mut waiting = self.agenda_mut().take_untaken();
        waiting.retain(|message| !self.post(now, message));
        self.agenda_mut().put_back(waiting);
    }
}
