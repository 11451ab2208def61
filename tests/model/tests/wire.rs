//! Every packet that an engine writes reads as the document says, and says what the engine was asked to say. Nothing that
//! is cut off or changed reads as if it were whole.

mod said;
mod same;

use erd_model::trace::wire::{
    Body, Carried, Error, HEADER_BYTES, PacketRead, Proof, flags, read, read_bytes,
};
use erd_world::record::{Entry, Packet, Record, What};
use erd_world::rng::Rng;
use erd_world::swarm::{Options, run_recorded};
use said::Said;
use std::collections::{BTreeMap, BTreeSet};

/// More than any of these runs has.
const ENTRIES_MAX: usize = 1 << 20;
const SEEDS: std::ops::RangeInclusive<u64> = 1..=30;
/// By this seed each shape of packets has come.
const SEEDS_MAX: u64 = 500;

fn recorded(seed: u64) -> Vec<Entry> {
    let record = Record::new(ENTRIES_MAX);
    run_recorded(&Options::for_traces(seed), &record);
    assert_eq!(record.left_out(), 0, "seed {seed} has more than {ENTRIES_MAX} entries");
    record.take()
}

fn told(seed: u64) -> impl Iterator<Item = Packet> {
    recorded(seed).into_iter().filter_map(|entry| match entry.what {
        What::Told(packet) => Some(packet),
        _ => None,
    })
}

/// Judges what holds for each packet alone.
fn judge(packet: &Packet) -> PacketRead {
    let read = read(packet).unwrap_or_else(|error| panic!("{error:?}: {packet:?}"));
    assert!(read.header.checksum_ok && read.surplus_bytes == 0, "{read:?}");
    if let Body::Data(data) = &read.body {
        let summed = read.header.has(flags::PAYLOAD_CHECKSUM);
        assert_eq!(data.payload_ok, summed.then_some(true), "{read:?}");
        let is_segment = !matches!(data.carries, Carried::Bundle(_));
        assert!(is_segment || !read.header.has(flags::LAST), "{read:?}");
    }
    read
}

#[test]
fn every_packet_that_an_engine_writes_reads() {
    let mut kinds = BTreeSet::new();
    let missing = |kinds: &BTreeSet<_>| {
        said::NAMES.iter().filter(|name| !kinds.contains(*name)).collect::<Vec<_>>()
    };
    for seed in 1.. {
        if !SEEDS.contains(&seed) && missing(&kinds).is_empty() {
            break;
        }
        assert!(seed < SEEDS_MAX, "no run has {:?}", missing(&kinds));
        let mut said = Said::default();
        for Entry { life, what, .. } in recorded(seed) {
            match what {
                What::Told(packet) => {
                    let read = judge(&packet);
                    said.judge(life, &packet, &read);
                    same::judge(&packet, &read);
                    kinds.extend(said::names(&read));
                }
                What::Heard(packet) => said.hear(life, &packet),
                What::Born(born) => said.born(life, *born),
                What::Posted(posted) => said.posted(life, &posted),
                _ => {}
            }
        }
    }
}

/// A few packets of each shape.
fn samples() -> Vec<Packet> {
    const EACH: usize = 3;
    let mut shapes = BTreeMap::<_, Vec<Packet>>::new();
    for packet in SEEDS.flat_map(told) {
        let read = judge(&packet);
        let (h, proof) = (read.header, std::mem::discriminant(&read.proof));
        let shape = (h.kind, h.long, h.flags, proof == std::mem::discriminant(&Proof::None));
        let list = shapes.entry(shape).or_default();
        if list.len() < EACH {
            list.push(packet);
        }
    }
    shapes.into_values().flatten().collect()
}

#[test]
fn no_prefix_of_a_packet_reads() {
    let samples = samples();
    assert!(samples.len() > 60, "{} samples", samples.len());
    for Packet { bytes, plain, .. } in &samples {
        // A packet of a session without what its key adds at the end, too.
        let whole = plain.as_ref().map_or(bytes.len(), Vec::len);
        let added = bytes.len() - whole;
        for len in 0..whole {
            let (cut, plain) = (&bytes[..len + added], plain.as_ref().map(|plain| &plain[..len]));
            let read = read_bytes(cut, plain, false);
            assert!(read.is_err(), "{len} of {whole} bytes read as {read:?}");
        }
        let longer = [&bytes[..], &[0]].concat();
        let read = read_bytes(&longer, plain.as_deref(), false);
        assert_eq!(read, Err(Error::Length), "a byte is added");
    }
}

#[test]
fn a_body_has_no_more_than_its_fields() {
    // A size probe has any length, and so has the payload of a segment.
    let is_told = |packet: &&Packet| packet.plain.is_none() && packet.bytes[0] & 0x8f != 10;
    let mut judged = 0;
    for Packet { bytes, .. } in samples().iter().filter(is_told) {
        let is_long = bytes[0] & 0x80 != 0;
        let mut longer = [&bytes[..], &[0]].concat();
        let s_len = u16::from_be_bytes([bytes[4], bytes[5]]) + 1;
        longer[4..6].copy_from_slice(&s_len.to_be_bytes());
        let read = read_bytes(&longer, None, false);
        let shows = read.as_ref().map_or(true, |read| read.surplus_bytes == 1);
        assert!(is_long || shows, "with a byte more: {read:?}");
        judged += u64::from(!is_long);
    }
    assert!(judged > 20, "{judged} packets have bodies of one length");
}

#[test]
fn a_changed_header_shows() {
    let rng = &mut Rng::new(1, 1);
    let mut wrong = 0;
    for Packet { bytes, .. } in samples().iter().filter(|packet| packet.plain.is_none()) {
        for _ in 0..500 {
            let at = rng.below(bytes.len().min(200) as u64) as usize;
            let mut changed = bytes.clone();
            changed[at] ^= rng.range(1, 255) as u8;
            let Ok(read) = read_bytes(&changed, None, rng.chance(0.1)) else { continue };
            let is_payload = at >= HEADER_BYTES && matches!(read.body, Body::Data(_));
            assert!(is_payload || !read.header.checksum_ok, "byte {at} of {read:?}");
            wrong += u64::from(!read.header.checksum_ok);
        }
    }
    assert!(wrong > 1000, "{wrong} packets with a wrong checksum read");
}

#[test]
fn any_bytes_read_as_something() {
    let rng = &mut Rng::new(2, 1);
    let mut all = samples();
    for packet in &mut all {
        for bytes in [Some(&mut packet.bytes), packet.plain.as_mut()].into_iter().flatten() {
            let len = bytes.len() as u64;
            for _ in 0..200 {
                let before = bytes.clone();
                for _ in 0..rng.range(1, 8) {
                    bytes[rng.below(len.min(100)) as usize] = rng.bits() as u8;
                }
                // Neither panics, whatever the bytes and whatever is readable of them.
                let _ = read_bytes(bytes, None, rng.chance(0.1));
                let _ = read_bytes(&[&bytes[..], &[0; 24]].concat(), Some(bytes), false);
                *bytes = before;
            }
        }
    }
}

#[test]
fn a_trimmed_packet_has_a_header_only() {
    let is_long = |packet: &Packet| packet.plain.is_none() && packet.bytes.len() > 64;
    let mut trimmed = 0;
    for mut packet in samples().into_iter().filter(is_long) {
        packet.bytes.truncate(64);
        packet.trimmed = true;
        let PacketRead { header, body, .. } = match read(&packet) {
            Ok(read) => read,
            Err(error) => {
                assert_ne!(packet.bytes[0] & 0xf, 0, "{error:?}: {packet:?}");
                continue;
            }
        };
        let Body::Data(data) = body else { panic!("{body:?} is not cut off") };
        assert_eq!(data.carries, Carried::Trimmed);
        assert_eq!(header.checksum_ok, header.long && !header.has(flags::RIDES), "{header:?}");
        trimmed += 1;
    }
    assert!(trimmed > 10, "{trimmed} trimmed packets");
}

#[test]
fn a_port_datagram_reads_by_its_length() {
    let mut bytes = vec![0x2f; 100];
    bytes.extend(crc32c::crc32c(&bytes).to_be_bytes());
    let read = read_bytes(&bytes, None, false).expect("a port datagram");
    assert_eq!((read.body, read.proof), (Body::Port, Proof::None));
    assert!(read.header.checksum_ok);
    bytes[0] = 0x3f;
    assert_eq!(read_bytes(&bytes, None, false), Err(Error::Length));
    bytes.extend([7; 24]);
    let read = read_bytes(&bytes, None, false).expect("a port datagram with a key");
    assert_eq!((read.body, read.proof), (Body::Port, Proof::Key([7; 8])));
    assert!(!read.header.checksum_ok, "its first byte has changed");
}

#[test]
fn a_changed_end_shows() {
    let mut changed = 0;
    for mut packet in samples().into_iter().filter(|packet| packet.plain.is_none()) {
        let Body::Data(before) = judge(&packet).body else { continue };
        *packet.bytes.last_mut().expect("it is not empty") ^= 1;
        let Body::Data(after) = read(&packet).expect("it has its length").body else {
            panic!("{packet:?} has another kind")
        };
        if before.payload_ok.is_some() {
            assert_eq!(after.payload_ok, Some(false), "{packet:?}");
            changed += 1;
        }
    }
    assert!(changed > 10, "{changed} payload checksums");
}

/// A bundle of one record with this header, and so many bytes behind it.
fn bundle(record: &[u8], behind: u16) -> Vec<u8> {
    let s_len = 2 + record.len() as u16 + behind;
    let mut bytes = vec![0; HEADER_BYTES];
    bytes[0] = 0x20;
    bytes[4..6].copy_from_slice(&s_len.to_be_bytes());
    bytes.extend([0, 1]);
    bytes.extend(record);
    bytes.resize(HEADER_BYTES + usize::from(s_len), 7);
    bytes
}

/// A request for memory of this length. `extra` follows its op number.
fn request(kind: u8, half: u16, extra: &[u8], len: u64) -> Vec<u8> {
    let [high, low] = half.to_be_bytes();
    let (fixed, target) = ([kind, 0, high, low, 0, 0, 0, 1, 0, 0, 0, 2], [3, len, 4]);
    let target = target.iter().flat_map(|word: &u64| word.to_be_bytes());
    fixed.into_iter().chain(extra.iter().copied()).chain(target).collect()
}

#[test]
fn requests_whose_lengths_disagree_are_malformed() {
    let judge = |kind, half, extra: &[u8], len, right: bool| {
        let read = read_bytes(&bundle(&request(kind, half, extra, len), half), None, false);
        let wanted = if right { None } else { Some(Error::Request) };
        assert_eq!(read.err(), wanted, "kind {kind}, half {half}, {len} bytes");
    };
    judge(6, 10, &[], 10, true);
    judge(6, 10, &[], 11, false);
    judge(7, 0, &[], 1, true);
    judge(7, 0, &[], 0, false);
    judge(7, 1, &[], 1, false);
    judge(8, 0, &[0x80, 0, 0, 0], 1 << 30, true);
    judge(8, 0, &[0x80, 0, 0, 0], (1 << 30) + 1, false);
    judge(8, 1, &[0x80, 0, 0, 0], 1, false);
    for (form, half) in [(0, 8), (1, 8), (2, 16)] {
        let extra = [0, 0, form, 0];
        judge(9, half, &extra, 8, true);
        judge(9, 0, &extra, 8, true);
        judge(9, half + 1, &extra, 8, false);
        judge(9, 0, &extra, 513, false);
    }
    judge(9, 8, &[0, 0, 3, 0], 8, false);
}

#[test]
fn unknown_kinds_are_named() {
    let read_one = |record: &[u8]| read_bytes(&bundle(record, 0), None, false).err();
    for kind in [0, 12, 255] {
        assert_eq!(read_one(&[kind; 64]), Some(Error::Record(kind)));
    }
    // An answer with a status that there is not.
    let answer = |status| read_one(&[&[10, status, 0, 0][..], &[0; 16]].concat());
    assert_eq!((answer(6), answer(7)), (None, Some(Error::Value)));
    for (first, error) in [(0x2c, Error::Kind(12)), (0x10, Error::Version(1))] {
        let mut bytes = bundle(&[], 0);
        bytes[0] = first;
        assert_eq!(read_bytes(&bytes, None, false), Err(error));
    }
    let mut keyed = bundle(&[], 24);
    keyed[0] = 0x30;
    assert_eq!(read_bytes(&keyed, None, false), Err(Error::Unproven));
    assert_eq!(read_bytes(&[], None, false), Err(Error::Short));
}
