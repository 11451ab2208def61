//! What packets cost on a link, and how large they are.

use crate::packet::FRAME_BYTES;
use erd_rd::Expected;
use serde::Deserialize;

/// What the engine keeps free in a datagram for a payload checksum.
pub(crate) const CHECKSUM_BYTES: u32 = 4;
/// Payload of a full segment of the engine.
pub(crate) const PAYLOAD_BYTES: u32 = 4096;
/// Bytes of an acknowledgement of the engine on an Ethernet link, about.
const ACK_BYTES: u32 = 128;
/// A full packet of uet-htsim (40ccb05, main_uec.cpp: packet_size), its header included.
const HTSIM_PACKET_BYTES: u32 = 4150;
/// Its packets without payload: acknowledgements (uecpacket.h: ACKSIZE) and trimmed ones (main_uec.cpp: trimsize). Its
/// data packets have as large a header (uec.cpp: _hdr_size).
const HTSIM_HEADER_BYTES: u32 = 64;

/// What packets cost on a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Wire {
    /// UDP over Ethernet: a datagram and [`FRAME_BYTES`].
    #[default]
    Ethernet,
    /// uet-htsim: packets of 4150 bytes with 64 bytes of headers. All others have 64 bytes, whatever the engine writes.
    /// The engine's own headers of a segment whose message was granted are 64 bytes, too.
    Htsim,
}

impl Wire {
    /// The largest datagram that engines send.
    #[must_use]
    pub const fn datagram_bytes(self) -> u32 {
        match self {
            Wire::Ethernet => Expected::HEAD_BYTES as u32 + PAYLOAD_BYTES,
            Wire::Htsim => HTSIM_PACKET_BYTES,
        }
    }

    /// Such a datagram on a link.
    #[must_use]
    pub const fn full_bytes(self) -> u32 {
        match self {
            Wire::Ethernet => FRAME_BYTES + self.datagram_bytes(),
            Wire::Htsim => HTSIM_PACKET_BYTES,
        }
    }

    /// An acknowledgement on a link, about.
    #[must_use]
    pub fn ack_bytes(self) -> u32 {
        match self {
            Wire::Ethernet => ACK_BYTES,
            Wire::Htsim => HTSIM_HEADER_BYTES,
        }
    }

    /// Payload of the largest packet of a granted message.
    #[must_use]
    pub fn payload_bytes(self) -> u32 {
        match self {
            Wire::Ethernet => PAYLOAD_BYTES,
            Wire::Htsim => HTSIM_PACKET_BYTES - HTSIM_HEADER_BYTES,
        }
    }

    /// A packet with so many bytes of heads, and of payload that a switch may cut off, on a link.
    #[must_use]
    pub fn bytes(self, head_bytes: u32, payload_bytes: u32) -> u32 {
        match self {
            Wire::Ethernet => FRAME_BYTES + head_bytes + payload_bytes,
            Wire::Htsim => HTSIM_HEADER_BYTES + payload_bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::LEAST_WIRE_BYTES;

    #[test]
    fn a_full_packet_and_what_is_left_of_it_are_as_large_as_in_htsim() {
        let wire = Wire::Htsim;
        assert_eq!((wire.full_bytes(), wire.payload_bytes()), (4150, 4086));
        assert_eq!(wire.bytes(64, wire.payload_bytes()), wire.full_bytes());
        assert_eq!((wire.bytes(64, 0), wire.bytes(300, 0), wire.ack_bytes()), (64, 64, 64));
    }

    #[test]
    fn no_packet_is_smaller_than_the_least() {
        for wire in [Wire::Ethernet, Wire::Htsim] {
            assert!(wire.bytes(0, 0).min(wire.ack_bytes()) >= LEAST_WIRE_BYTES);
        }
    }
}
