//! What switches and queues know of a packet: a few bytes that travel by value, so that a hop touches no other memory.

use crate::ids::HostId;
use crate::packet::{Packet, PacketId};
use crate::wire::Wire;
use erd_rd::Ecn;

/// A packet on its way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hop {
    /// The whole packet.
    pub packet: PacketId,
    /// Who sent it.
    pub from: HostId,
    /// Whom it is for.
    pub to: HostId,
    /// Bytes that it takes on a link.
    pub wire_bytes: u32,
    /// How many of them a switch may cut off.
    pub payload_bytes: u16,
    /// Its entropy: what switches choose a path by.
    pub path: u16,
    /// The number, among the links that lead to where it is, of the one that it came by; told where switches pause.
    pub ingress: u16,
    /// ECN codepoint.
    pub ecn: Ecn,
    /// A switch cut the payload off.
    pub trimmed: bool,
}

impl Hop {
    /// What is to be known of a packet.
    #[must_use]
    pub fn of(id: PacketId, packet: &Packet, wire: Wire) -> Hop {
        let head_bytes = packet.header.wire_bytes() + packet.head.len() as u32;
        Hop {
            packet: id,
            from: packet.from,
            to: packet.to,
            wire_bytes: wire.bytes(head_bytes, packet.payload_bytes),
            payload_bytes: packet.payload_bytes as u16,
            path: packet.path,
            ingress: 0,
            ecn: packet.ecn,
            trimmed: packet.trimmed,
        }
    }

    /// A packet that nobody sends, to ask for its way.
    #[must_use]
    pub fn probe(from: HostId, to: HostId, wire_bytes: u32) -> Hop {
        let packet = PacketId::default();
        let (ecn, trimmed) = (Ecn::NotEct, false);
        Hop { packet, from, to, wire_bytes, payload_bytes: 0, path: 0, ingress: 0, ecn, trimmed }
    }

    /// Tells the packet what became of it on its way.
    pub fn tell(&self, packet: &mut Packet) {
        packet.ecn = self.ecn;
        if self.trimmed {
            packet.trim();
        }
    }

    /// Cuts the payload off.
    pub fn trim(&mut self) {
        self.wire_bytes -= u32::from(self.payload_bytes);
        (self.payload_bytes, self.trimmed) = (0, true);
    }

    /// Its sender lets switches mark it.
    #[must_use]
    pub fn can_be_marked(&self) -> bool {
        matches!(self.ecn, Ecn::Ect0 | Ecn::Ect1)
    }
}
