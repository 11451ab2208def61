//! Packets, and the store that holds those under way.

use crate::header::Header;
use crate::ids::HostId;
use erd_rd::Ecn;

/// What a datagram costs on the wire besides its own bytes: Ethernet preamble, header, checksum
/// and gap (38), IPv4 (20), UDP (8).
pub const FRAME_BYTES: u32 = 66;

/// No packet takes fewer bytes on a link.
pub const LEAST_WIRE_BYTES: u32 = 64;

/// What every payload consists of.
pub(crate) static ZEROS: [u8; 1 << 16] = [0; 1 << 16];

/// A packet, by its place in the [`PacketPool`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PacketId(u32);

/// A datagram under way. Payload that no one reads is not stored.
#[derive(Clone, Debug, Default)]
pub struct Packet {
    /// Who sent it.
    pub from: HostId,
    /// Whom it is for.
    pub to: HostId,
    /// Its entropy: what switches choose a path by.
    pub path: u16,
    /// ECN codepoint.
    pub ecn: Ecn,
    /// The datagram's bytes, or its first ones when payload follows.
    pub head: Vec<u8>,
    /// What it says, with a transport whose headers are not bytes.
    pub header: Header,
    /// Payload bytes that follow the head. They are all zero.
    pub payload_bytes: u32,
    /// A switch cut the payload off.
    pub trimmed: bool,
    /// Its place among the data packets of a pair of hosts, from 1; 0 if nobody asks for it.
    pub(crate) number: u32,
}

impl Packet {
    /// Reads memory that its receiver will read.
    pub(crate) fn first_byte(&self) -> u8 {
        self.head.first().copied().unwrap_or(0)
    }

    /// Takes the bytes, the path and the mark of another, which gets those of this one.
    pub(crate) fn exchange(&mut self, other: &mut Packet) {
        std::mem::swap(&mut self.head, &mut other.head);
        (self.path, self.ecn, self.payload_bytes) = (other.path, other.ecn, other.payload_bytes);
        self.header = other.header;
    }

    /// Cuts the payload off.
    pub fn trim(&mut self) {
        self.payload_bytes = 0;
        self.trimmed = true;
    }
}

/// A list of packets that keeps its buffers.
#[derive(Debug, Default)]
pub(crate) struct PacketList {
    list: Vec<Packet>,
    len: usize,
}

impl PacketList {
    /// The place of one more packet, with what an earlier one left there.
    pub(crate) fn next(&mut self) -> &mut Packet {
        if self.len == self.list.len() {
            self.list.push(Packet::default());
        }
        self.len += 1;
        &mut self.list[self.len - 1]
    }

    /// No packet is there.
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Takes all packets out. Their buffers stay.
    pub(crate) fn drain(&mut self) -> &mut [Packet] {
        let len = std::mem::take(&mut self.len);
        &mut self.list[..len]
    }
}

/// All packets under way. Slots and their buffers are used again.
#[derive(Debug, Default)]
pub struct PacketPool {
    slots: Vec<Packet>,
    free: Vec<u32>,
}

impl PacketPool {
    /// A packet with an empty head, untrimmed; the caller fills it in.
    pub fn take(&mut self, from: HostId, to: HostId) -> PacketId {
        if let Some(index) = self.free.pop() {
            let packet = &mut self.slots[index as usize];
            packet.head.clear();
            (packet.from, packet.to) = (from, to);
            (packet.payload_bytes, packet.trimmed, packet.number) = (0, false, 0);
            return PacketId(index);
        }
        self.slots.push(Packet { from, to, ..Packet::default() });
        PacketId(self.slots.len() as u32 - 1)
    }

    /// Takes a packet out, with its bytes.
    pub(crate) fn take_out(&mut self, id: PacketId) -> Packet {
        self.free.push(id.0);
        std::mem::take(&mut self.slots[id.0 as usize])
    }

    /// Takes a packet in.
    pub(crate) fn put(&mut self, packet: Packet) -> PacketId {
        if let Some(index) = self.free.pop() {
            self.slots[index as usize] = packet;
            return PacketId(index);
        }
        self.slots.push(packet);
        PacketId(self.slots.len() as u32 - 1)
    }

    /// Ends a packet.
    pub fn give_back(&mut self, id: PacketId) {
        self.free.push(id.0);
    }

    /// A packet.
    #[must_use]
    pub fn get(&self, id: PacketId) -> &Packet {
        &self.slots[id.0 as usize]
    }

    /// A packet, to be changed.
    pub fn get_mut(&mut self, id: PacketId) -> &mut Packet {
        &mut self.slots[id.0 as usize]
    }

    /// Packets under way.
    #[must_use]
    pub fn in_use(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}
