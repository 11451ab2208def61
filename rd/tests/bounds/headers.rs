//! The common header and its checksum (protocol.md §2.1).

use super::{each_change, is_large};
use erd_rd::wire::Malformed;
use erd_rd::wire::header::{
    HEADER_BYTES, Header, PacketKind, VERSION, VERSION_MAX, checksum_ok, seal,
};

const KINDS: [PacketKind; 12] = [
    PacketKind::Data,
    PacketKind::Ack,
    PacketKind::Probe,
    PacketKind::Hello,
    PacketKind::Challenge,
    PacketKind::Welcome,
    PacketKind::Reset,
    PacketKind::Goodbye,
    PacketKind::GoodbyeAck,
    PacketKind::Version,
    PacketKind::SizeProbe,
    PacketKind::SizeAnswer,
];

/// The bytes `from..to` as a number.
fn field(bytes: &[u8], from: usize, to: usize) -> u64 {
    bytes[from..to].iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// A header by the table of protocol.md §2.1.
fn by_the_table(spoken: u8, bytes: &[u8]) -> Result<Header, Option<Malformed>> {
    let first = *bytes.first().ok_or(Some(Malformed))?;
    // The refusal of a version is the same in all versions.
    if first >> 4 & 7 != spoken && first & 15 != 9 {
        return Err(None);
    }
    let kind = KINDS.into_iter().find(|kind| *kind as u8 == first & 15);
    let kind = kind.filter(|_| bytes.len() >= HEADER_BYTES).ok_or(Some(Malformed))?;
    Ok(Header {
        long: first & 0x80 != 0,
        kind,
        flags: bytes[1],
        msg_id: field(bytes, 2, 4) as u16,
        s_len: field(bytes, 4, 6) as u16,
        path: bytes[6],
        attempt: bytes[7],
        s_offset: field(bytes, 8, 12) as u32,
        psn: field(bytes, 12, 16) as u32,
        session: field(bytes, 16, 24),
        sent_at_ns: field(bytes, 24, 28) as u32,
    })
}

/// Reads a header of any version, and writes it again.
fn judge(bytes: &[u8]) {
    for spoken in 0..=VERSION_MAX {
        let read = Header::parse_of(spoken, bytes);
        assert_eq!(read, by_the_table(spoken, bytes), "version {spoken}, {bytes:?}");
        let Ok(header) = read else { continue };
        let mut out = Vec::new();
        header.emit(&mut out);
        let mut expected = bytes[..HEADER_BYTES].to_vec();
        expected[0] = expected[0] & 0x8f | VERSION << 4;
        expected[HEADER_BYTES - 4..].fill(0);
        assert_eq!(out, expected, "all but version and checksum");
    }
}

#[test]
fn every_pair_of_first_bytes_is_read_by_the_table_at_every_length() {
    for long in [0x00, 0xff, 0x5a] {
        let mut bytes = [long; HEADER_BYTES + 1];
        for pair in 0..=u16::MAX {
            bytes[..2].copy_from_slice(&pair.to_be_bytes());
            for len in [1, 2, HEADER_BYTES - 1, HEADER_BYTES, HEADER_BYTES + 1] {
                judge(&bytes[..len]);
            }
        }
        for first in 0..=u8::MAX {
            bytes[0] = first;
            (0..=bytes.len()).for_each(|len| judge(&bytes[..len]));
        }
    }
}

#[test]
fn every_change_of_two_bytes_is_read_by_the_table() {
    for kind in KINDS {
        let mut bytes = Vec::new();
        Header::new(kind, 0x0102_0304_0506_0708).emit(&mut bytes);
        each_change(&bytes, judge);
    }
}

/// Each field at each of its edges, all crossed.
#[test]
fn every_header_is_read_as_it_was_written() {
    let bytes: &[u64] = if is_large() { &[0, 1, 0x80, 0xff] } else { &[0, 0x80, 0xff] };
    let all = |bits: u32| {
        let wide = |edge: &u64| match edge {
            0x80 => 1 << (bits - 1),
            0xff => u64::MAX >> (64 - bits),
            small => *small,
        };
        bytes.iter().map(wide).collect::<Vec<u64>>()
    };
    let (b8, b16, b32, b64) = (all(8), all(16), all(32), all(64));
    // As digits of a number: from the fastest to the slowest.
    let digits = [&b8, &b16, &b16, &b8, &b8, &b32, &b32, &b64, &b32];
    let count: usize = digits.iter().map(|digit| digit.len()).product();
    let (mut out, mut tried) = (Vec::new(), 0u64);
    for n in 0..count {
        let mut rest = n;
        let [flags, msg_id, s_len, path, attempt, s_offset, psn, session, sent] =
            digits.map(|digit| {
                let value = digit[rest % digit.len()];
                rest /= digit.len();
                value
            });
        for (long, kind) in KINDS.into_iter().flat_map(|kind| [(false, kind), (true, kind)]) {
            let header = Header {
                long,
                kind,
                flags: flags as u8,
                msg_id: msg_id as u16,
                s_len: s_len as u16,
                path: path as u8,
                attempt: attempt as u8,
                s_offset: s_offset as u32,
                psn: psn as u32,
                session,
                sent_at_ns: sent as u32,
            };
            out.clear();
            header.emit(&mut out);
            assert_eq!(out.len(), HEADER_BYTES);
            assert_eq!(Header::parse(&out), Ok(header));
            tried += 1;
        }
    }
    assert_eq!(tried, 24 * (bytes.len() as u64).pow(9));
}

#[test]
fn a_checksum_holds_for_its_region_alone() {
    for len in 0..=HEADER_BYTES + 40 {
        let mut bytes: Vec<u8> = (0..len).map(|at| (at * 37 + len) as u8).collect();
        if len < HEADER_BYTES {
            assert!(!checksum_ok(&bytes, crc32c::crc32c_append), "{len} bytes have no checksum");
            continue;
        }
        seal(&mut bytes, 0, crc32c::crc32c_append);
        assert!(checksum_ok(&bytes, crc32c::crc32c_append), "{len} bytes");
        for cut in 0..len {
            assert!(!checksum_ok(&bytes[..cut], crc32c::crc32c_append), "{cut} of {len} bytes");
        }
        for at in 0..len {
            for bits in 1..=u8::MAX {
                bytes[at] ^= bits;
                assert!(!checksum_ok(&bytes, crc32c::crc32c_append), "byte {at} of {len}");
                bytes[at] ^= bits;
            }
        }
    }
}

#[test]
fn a_checksum_is_written_where_its_packet_starts() {
    for start in 0..40 {
        let mut bytes: Vec<u8> = (0..start + HEADER_BYTES + 9).map(|at| at as u8).collect();
        let before = bytes[..start].to_vec();
        seal(&mut bytes, start, crc32c::crc32c_append);
        assert!(checksum_ok(&bytes[start..], crc32c::crc32c_append) && bytes[..start] == before);
    }
}
