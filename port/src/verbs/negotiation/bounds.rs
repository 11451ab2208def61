//! Every port datagram within bounds is read by the table of protocol.md §10, and written again in its only form; with a
//! key by §11.10 too. `BOUNDS=large` widens the bounds.

use super::address::{
    Address, DATAGRAM_BYTES, KEY_ID_BYTES, Kind, MARK, PROOF_BYTES, PROVEN_BYTES, PROVEN_MARK,
    PortDatagram,
};
use crate::verbs::gid::Gid;
use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6};

/// Values of a byte at which something may change.
const EDGES: [u8; 7] = [0, 1, 4, 6, 0x7f, 0x80, 0xff];

fn is_large() -> bool {
    std::env::var_os("BOUNDS").is_some_and(|bounds| bounds == "large")
}

fn kind_of(byte: u8) -> Option<Kind> {
    [Kind::Ask, Kind::Answer, Kind::Check, Kind::Confirm].into_iter().find(|k| *k as u8 == byte)
}

/// The bytes `from..to` as a number.
fn field(bytes: &[u8], from: usize, to: usize) -> u64 {
    bytes[from..to].iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// A name by the table of protocol.md §3.2.
fn name_by_the_table(bytes: &[u8]) -> Option<SocketAddr> {
    let port = field(bytes, 2, 4) as u16;
    let ip: [u8; 16] = bytes[8..24].try_into().expect("16 bytes");
    match bytes[0] {
        4 => Some(([ip[0], ip[1], ip[2], ip[3]], port).into()),
        6 => Some(SocketAddrV6::new(ip.into(), port, 0, field(bytes, 4, 8) as u32).into()),
        _ => None,
    }
}

/// The 104 bytes that begin with this one.
fn by_the_table(mark: u8, bytes: &[u8]) -> Option<PortDatagram> {
    let is_whole = bytes.len() == 104 && bytes[0] == mark;
    if !is_whole || field(bytes, 100, 104) != u64::from(crc32c::crc32c(&bytes[..100])) {
        return None;
    }
    let senders = [44, 48, 52, 56, 60, 64, 68].map(|at| field(bytes, at, at + 4) as u32);
    let address = Address {
        mtu_bytes: field(bytes, 4, 6) as u16,
        lid: field(bytes, 6, 8) as u16,
        gid: Gid(bytes[16..32].try_into().expect("16 bytes")),
        tag: field(bytes, 32, 36) as u32,
        qkey: field(bytes, 36, 40) as u32,
        qpn: field(bytes, 40, 44) as u32,
        senders,
    };
    Some(PortDatagram {
        kind: kind_of(bytes[1])?,
        nonce: field(bytes, 8, 16),
        address,
        cookie: field(bytes, 72, 76) as u32,
        name: name_by_the_table(&bytes[76..100])?,
    })
}

fn sum(bytes: &mut [u8]) {
    let sum = crc32c::crc32c(&bytes[..100]);
    bytes[100..104].copy_from_slice(&sum.to_be_bytes());
}

/// What is written for a datagram that was read from these bytes.
fn in_its_only_form(bytes: &[u8]) -> Vec<u8> {
    let mut expected = bytes[..DATAGRAM_BYTES].to_vec();
    expected[2..4].fill(0);
    expected[77] = 0;
    if expected[76] == 4 {
        expected[80..84].fill(0);
        expected[88..100].fill(0);
    }
    sum(&mut expected);
    expected
}

/// Reads a datagram, and writes it again. True if it is one.
fn judge(bytes: &[u8]) -> bool {
    let read = PortDatagram::decode(bytes);
    assert_eq!(read, by_the_table(0x2f, bytes), "{bytes:?}");
    let Some(datagram) = read else { return false };
    assert!(PortDatagram::claims(bytes), "the engine does not get it: {bytes:?}");
    assert_eq!(datagram.encode()[..], in_its_only_form(bytes), "{bytes:?}");
    true
}

/// No proof, but every bit counts.
fn toy_proof(covered: &[u8]) -> [u8; PROOF_BYTES] {
    let sum = crc32c::crc32c_append(7, covered).to_be_bytes();
    std::array::from_fn(|at| sum[at % 4] ^ at as u8)
}

/// The same with a key. The proof is the caller's to check.
fn judge_proven(bytes: &[u8]) -> bool {
    let read = PortDatagram::decode_proven(bytes);
    let is_long = bytes.len() == 104 + 8 + 16;
    let expected = if is_long { by_the_table(0x3f, &bytes[..104]) } else { None };
    assert_eq!(read.map(|claimed| claimed.datagram), expected, "{bytes:?}");
    assert_eq!(PortDatagram::decode(bytes), None, "{bytes:?}");
    let Some(claimed) = read else { return false };
    assert!(PortDatagram::claims(bytes), "the engine does not get it: {bytes:?}");
    assert_eq!(claimed.covered, &bytes[..104]);
    assert_eq!((&claimed.key_id[..], claimed.proof), (&bytes[104..112], &bytes[112..]));
    let again = claimed.datagram.encode_proven(claimed.key_id, toy_proof);
    let covered = in_its_only_form(bytes);
    assert_eq!(again, [&covered[..], &claimed.key_id, &toy_proof(&covered)].concat()[..]);
    true
}

fn example(name: &str) -> PortDatagram {
    let gid = Gid(Ipv6Addr::new(1, 2, 3, 4, 5, 6, 7, 8).octets());
    let senders = [18, 19, 20, 21, 22, 23, 24];
    let address = Address { gid, lid: 3, qpn: 17, qkey: 5, tag: 9, mtu_bytes: 4096, senders };
    let name = name.parse().expect("a name");
    PortDatagram { kind: Kind::Ask, nonce: 0x0102_0304_0506_0708, address, cookie: 7, name }
}

const NAMES: [&str; 3] = ["192.0.2.1:7471", "[2001:db8::1%3]:65535", "[::ffff:1.2.3.4]:0"];

#[test]
fn every_length_but_the_right_one_is_refused() {
    for name in NAMES {
        let whole = example(name).encode();
        for len in 0..=3 * DATAGRAM_BYTES {
            let mut bytes: Vec<u8> = whole.iter().cycle().take(len).copied().collect();
            assert_eq!(judge(&bytes), len == DATAGRAM_BYTES, "{len} bytes");
            if len >= 104 {
                sum(&mut bytes);
                assert_eq!(judge(&bytes), len == DATAGRAM_BYTES, "{len} bytes");
            }
        }
    }
}

#[test]
fn every_pair_of_first_bytes_is_read_by_the_table() {
    let mut bytes = example(NAMES[0]).encode();
    for pair in 0..=u16::MAX {
        bytes[..2].copy_from_slice(&pair.to_be_bytes());
        sum(&mut bytes);
        let [mark, kind] = pair.to_be_bytes();
        assert_eq!(judge(&bytes), mark == MARK && (1..=4).contains(&kind), "{pair:#x}");
        assert_eq!(PortDatagram::claims(&bytes), [MARK, PROVEN_MARK].contains(&mark));
    }
}

#[test]
fn every_change_is_noticed_or_read_by_the_table() {
    for name in NAMES {
        let whole = example(name).encode();
        for at in 0..DATAGRAM_BYTES {
            for value in 0..=u8::MAX {
                let mut bytes = whole;
                bytes[at] = value;
                assert_eq!(judge(&bytes), bytes == whole, "byte {at} is {value}");
                sum(&mut bytes);
                judge(&bytes);
            }
            // Two bytes at once; a third of the second ones suffices for the short run.
            let step = if is_large() { 1 } else { 3 };
            for (value, other) in EDGES.into_iter().flat_map(|v| EDGES.map(|o| (v, o))) {
                for second in (at + 1..100).step_by(step) {
                    let mut bytes = whole;
                    (bytes[at], bytes[second]) = (value, other);
                    sum(&mut bytes);
                    judge(&bytes);
                }
            }
        }
    }
}

/// Each field at each of its edges, all crossed.
#[test]
fn every_datagram_is_read_as_it_was_written() {
    let edges: &[u64] = if is_large() { &[0, 1, 1 << 63, u64::MAX] } else { &[0, u64::MAX] };
    for number in 0..edges.len().pow(8) {
        let digits: [u64; 8] =
            std::array::from_fn(|at| edges[number / edges.len().pow(at as u32) % edges.len()]);
        // Narrow fields take an edge's highest bits.
        let [mtu, lid, gid, tag, qkey, qpn, sender, cookie] = digits;
        let wide = |edge: u64| if edge == 1 { 1 } else { (edge >> 32) as u32 };
        for (name, kind) in NAMES.iter().flat_map(|name| (1..=4).map(move |kind| (name, kind))) {
            let kind = kind_of(kind).expect("one of four");
            let nonce = digits[number % 8];
            let mut datagram = PortDatagram { kind, nonce, ..example(name) };
            datagram.cookie = wide(cookie);
            datagram.address = Address {
                mtu_bytes: (mtu >> 48) as u16,
                lid: (lid >> 48) as u16,
                gid: Gid([(gid >> 56) as u8; 16]),
                tag: wide(tag),
                qkey: wide(qkey),
                qpn: wide(qpn),
                senders: std::array::from_fn(|at| wide(sender) & !(at as u32)),
            };
            let bytes = datagram.encode();
            assert_eq!(PortDatagram::decode(&bytes), Some(datagram));
            assert!(judge(&bytes));
            let bytes = datagram.encode_proven([cookie as u8; KEY_ID_BYTES], toy_proof);
            let read = PortDatagram::decode_proven(&bytes).expect("it has a key");
            assert_eq!((read.datagram, read.proof), (datagram, &toy_proof(&bytes[..104])[..]));
            assert_eq!(read.key_id, [cookie as u8; KEY_ID_BYTES]);
            assert!(judge_proven(&bytes));
        }
    }
}

#[test]
fn with_a_key_every_length_but_the_right_one_is_refused() {
    for name in NAMES {
        let whole = example(name).encode_proven([9; KEY_ID_BYTES], toy_proof);
        for len in 0..=3 * PROVEN_BYTES {
            let mut bytes: Vec<u8> = whole.iter().cycle().take(len).copied().collect();
            assert_eq!(judge_proven(&bytes), len == PROVEN_BYTES, "{len} bytes");
            // The same bytes as a datagram without a key.
            if let Some(first) = bytes.first_mut() {
                *first = MARK;
            }
            if len >= DATAGRAM_BYTES {
                sum(&mut bytes);
            }
            assert_eq!(judge(&bytes), len == DATAGRAM_BYTES, "{len} bytes");
            assert_eq!(PortDatagram::decode_proven(&bytes), None, "{len} bytes");
        }
    }
}

#[test]
fn with_a_key_every_pair_of_first_bytes_is_read_by_the_table() {
    let mut bytes = example(NAMES[0]).encode_proven([9; KEY_ID_BYTES], toy_proof);
    for pair in 0..=u16::MAX {
        bytes[..2].copy_from_slice(&pair.to_be_bytes());
        sum(&mut bytes);
        let [mark, kind] = pair.to_be_bytes();
        let is_one = mark == PROVEN_MARK && (1..=4).contains(&kind);
        assert_eq!(judge_proven(&bytes), is_one, "{pair:#x}");
    }
}

/// The bytes that the proof covers have a checksum besides. A change of the rest is one of the key id or of the proof.
#[test]
fn with_a_key_every_change_is_noticed_or_read_by_the_table() {
    let values: Vec<u8> = if is_large() { (0..=255).collect() } else { EDGES.to_vec() };
    for name in NAMES {
        let whole = example(name).encode_proven([9; KEY_ID_BYTES], toy_proof);
        let honest = PortDatagram::decode_proven(&whole).expect("it has a key");
        for at in 0..PROVEN_BYTES {
            for value in 0..=u8::MAX {
                let mut bytes = whole;
                bytes[at] = value;
                let is_read = judge_proven(&bytes);
                assert_eq!(is_read, bytes == whole || at >= DATAGRAM_BYTES, "{at} is {value}");
                if let Some(read) = PortDatagram::decode_proven(&bytes) {
                    assert_eq!(read == honest, bytes == whole, "byte {at} is {value}");
                    assert_eq!(read.datagram, honest.datagram, "byte {at} is {value}");
                }
                sum(&mut bytes);
                judge_proven(&bytes);
            }
            let step = if is_large() { 1 } else { 5 };
            for (value, other) in values.iter().flat_map(|v| EDGES.map(|o| (*v, o))) {
                for second in (at + 1..PROVEN_BYTES).step_by(step) {
                    let mut bytes = whole;
                    (bytes[at], bytes[second]) = (value, other);
                    sum(&mut bytes);
                    judge_proven(&bytes);
                }
            }
        }
    }
}
