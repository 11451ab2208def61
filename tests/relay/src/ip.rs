//! What the relay reads of an IPv4 packet, and the mark that it may set.

use erd_rd::Ecn;

/// Shortest IPv4 header, in bytes.
const HEADER_BYTES: usize = 20;
const PROTOCOL_UDP: u8 = 17;
/// Both ECN bits set: congestion experienced (RFC 3168, section 5).
const CE: u8 = 3;

/// Whether this is an IPv4 packet, as far as the relay has to know.
pub fn is_v4(packet: &[u8]) -> bool {
    packet.len() >= HEADER_BYTES && packet[0] >> 4 == 4
}

/// The source port of a UDP datagram.
pub fn udp_source_port(packet: &[u8]) -> Option<u16> {
    if !is_v4(packet) || packet[9] != PROTOCOL_UDP {
        return None;
    }
    let at = usize::from(packet[0] & 15) * 4;
    let port = packet.get(at..at + 2)?;
    Some(u16::from_be_bytes([port[0], port[1]]))
}

/// The ECN codepoint of an IPv4 packet.
pub fn ecn(packet: &[u8]) -> Ecn {
    match packet.get(1).map_or(0, |tos| tos & CE) {
        0 => Ecn::NotEct,
        1 => Ecn::Ect1,
        2 => Ecn::Ect0,
        _ => Ecn::Ce,
    }
}

/// Marks an IPv4 packet and updates its header checksum (RFC 1624, equation 3).
pub fn mark(packet: &mut [u8]) {
    let word = |bytes: &[u8]| u32::from(u16::from_be_bytes([bytes[0], bytes[1]]));
    let before = word(&packet[0..2]);
    packet[1] |= CE;
    let mut sum = (!word(&packet[10..12]) & 0xffff) + (!before & 0xffff) + word(&packet[0..2]);
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    packet[10..12].copy_from_slice(&(!(sum as u16)).to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example header of RFC 1071's usual explanations, with room for ports.
    fn packet(tos: u8) -> Vec<u8> {
        let mut packet = vec![
            0x45, tos, 0x00, 0x1c, 0x1c, 0x46, 0x40, 0x00, 0x40, 0x11, 0, 0, 10, 77, 0, 1, 10, 77,
            0, 2, 0x9c, 0x41, 0x12, 0x34, 0, 8, 0, 0,
        ];
        let sum = checksum(&packet[..HEADER_BYTES]);
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
        packet
    }

    fn checksum(header: &[u8]) -> u16 {
        let mut sum: u32 =
            header.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        !(sum as u16)
    }

    #[test]
    fn a_marked_header_still_adds_up() {
        for tos in 0..=255 {
            let mut packet = packet(tos);
            mark(&mut packet);
            assert_eq!(ecn(&packet), Ecn::Ce);
            assert_eq!(packet[1] & !CE, tos & !CE, "the other bits of the byte");
            assert_eq!(checksum(&packet[..HEADER_BYTES]), 0, "tos {tos}");
        }
    }

    #[test]
    fn ports_are_read_and_other_packets_have_none() {
        let mut packet = packet(2);
        assert_eq!(udp_source_port(&packet), Some(0x9c41));
        assert_eq!(ecn(&packet), Ecn::Ect0);
        packet[9] = 1;
        assert_eq!(udp_source_port(&packet), None);
        for len in 0..22 {
            assert_eq!(udp_source_port(&packet[..len]), None, "{len} bytes");
        }
    }
}
