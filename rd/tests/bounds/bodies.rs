//! The bodies of packets and the records of bundles (protocol.md §3, §5, §6, §9).

use super::{EDGES, each_change, is_large};
use erd_rd::cc::AckPolicy;
use erd_rd::wire::ack::{
    AckState, ECHOES_MAX, NACK_RANGES_MAX, SACK_WORDS_MAX, Sections, emit_sections,
};
use erd_rd::wire::header::{HEADER_BYTES, Header, PacketKind, VERSION_MAX, seal};
use erd_rd::wire::record::{EAGER_HEADER_BYTES, Record, emit_eager_header, parse_eager_header};
use erd_rd::wire::setup::{Asker, ForeignHello, Goodbye, Greeting, VersionNotice};
use erd_rd::wire::{Malformed, NAME_BYTES, Reader, put_name};
use erd_rd::{Target, Targets};
use std::fmt::Debug;
use std::net::SocketAddr;

/// How a format is read and written. `canonical` makes of bytes that are read those that are written.
struct Format<T> {
    read: fn(&mut Reader<'_>) -> Result<T, Malformed>,
    write: fn(&T, &mut Vec<u8>),
    canonical: fn(&mut [u8]),
}

impl<T: PartialEq + Debug> Format<T> {
    /// Reads, and writes again. Returns the number of bytes read, if they are of the format.
    fn judge(&self, bytes: &[u8]) -> Option<usize> {
        let mut r = Reader::new(bytes);
        let read = (self.read)(&mut r).ok()?;
        let used = bytes.len() - r.rest().len();
        let mut written = Vec::new();
        (self.write)(&read, &mut written);
        let mut expected = bytes[..used].to_vec();
        (self.canonical)(&mut expected);
        assert_eq!(written, expected, "{read:?} of {bytes:?}");
        assert_eq!((self.read)(&mut Reader::new(&written)).as_ref(), Ok(&read), "{bytes:?}");
        Some(used)
    }

    /// Judges these bytes, which are of the format to the last one, every part of them, and every change.
    fn judge_all(&self, bytes: &[u8]) {
        assert_eq!(self.judge(bytes), Some(bytes.len()), "{bytes:?}");
        for len in 0..bytes.len() {
            assert_eq!(self.judge(&bytes[..len]), None, "{len} of {bytes:?}");
        }
        let longer = [bytes, &[0xff; 9]].concat();
        assert_eq!(self.judge(&longer), Some(bytes.len()), "what follows is not read");
        each_change(bytes, |changed| {
            self.judge(changed);
        });
    }
}

/// A name keeps its family, port and address, and one of IPv6 its scope.
fn canonical_name(bytes: &mut [u8]) {
    bytes[1] = 0;
    if bytes[0] == 4 {
        bytes[4..8].fill(0);
        bytes[12..].fill(0);
    }
}

const NAMES: Format<SocketAddr> = Format {
    read: |r| r.name(),
    write: |name, out| put_name(out, *name),
    canonical: canonical_name,
};

fn bytes_of(name: &str) -> Vec<u8> {
    let mut out = Vec::new();
    put_name(&mut out, name.parse().unwrap());
    assert_eq!(out.len(), NAME_BYTES);
    out
}

/// A body of this length that ends with a name.
fn with_name(len: usize, name: &str) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..len).map(|at| (at * 7 + 1) as u8).collect();
    bytes[len - NAME_BYTES..].copy_from_slice(&bytes_of(name));
    bytes
}

const EXAMPLES: [&str; 3] = ["1.2.3.4:5", "[102:304:506:708::9%10]:11", "[::ffff:1.2.3.4]:65535"];

#[test]
fn names() {
    EXAMPLES.iter().for_each(|name| NAMES.judge_all(&bytes_of(name)));
}

fn canonical_greeting(bytes: &mut [u8]) {
    // Of the policies, only the one that coalesces has a number.
    if bytes[44] != 1 {
        bytes[45] = 0;
    }
    let name = bytes.len() - NAME_BYTES;
    canonical_name(&mut bytes[name..]);
}

#[test]
fn greetings() {
    let plain: Format<Greeting> = Format {
        read: |r| Greeting::parse(r, false),
        write: Greeting::emit,
        canonical: canonical_greeting,
    };
    let keyed = Format { read: |r| Greeting::parse(r, true), ..plain };
    for name in EXAMPLES {
        for policy in [[0, 0], [1, 9], [2, 0]] {
            let mut bytes = with_name(106, name);
            bytes[44..46].copy_from_slice(&policy);
            plain.judge_all(&bytes);
            let mut bytes = with_name(122, name);
            bytes[44..46].copy_from_slice(&policy);
            keyed.judge_all(&bytes);
        }
    }
}

#[test]
fn policies() {
    for pair in 0..=u16::MAX {
        let [kind, packets] = pair.to_be_bytes();
        let policy = AckPolicy::from_wire([kind, packets]);
        assert_eq!(policy.is_some(), kind < 3 && (kind != 1 || packets > 0), "{pair:#x}");
        if let Some(policy) = policy {
            assert_eq!(AckPolicy::from_wire(policy.to_wire()), Some(policy));
            assert_eq!(policy.to_wire(), [kind, if kind == 1 { packets } else { 0 }]);
        }
    }
}

#[test]
fn askers_and_goodbyes_and_notices_of_a_version() {
    let asker: Format<Asker> = Format {
        read: |r| Asker::parse(r, false),
        write: Asker::emit,
        canonical: |bytes| canonical_name(&mut bytes[8..32]),
    };
    let keyed_asker = Format { read: |r| Asker::parse(r, true), ..asker };
    let goodbye: Format<Goodbye> = Format {
        read: |r| Goodbye::parse(r, false),
        write: Goodbye::emit,
        canonical: |bytes| canonical_name(&mut bytes[8..32]),
    };
    let keyed_goodbye = Format { read: |r| Goodbye::parse(r, true), ..goodbye };
    for name in EXAMPLES {
        let (bytes, state) = (with_name(32, name), (0..44).collect::<Vec<u8>>());
        asker.judge_all(&bytes);
        goodbye.judge_all(&[&bytes[..], &state].concat());
        let bytes = [bytes, (1..=8).collect()].concat();
        keyed_asker.judge_all(&bytes);
        keyed_goodbye.judge_all(&[bytes, state].concat());
    }
    let notice: Format<VersionNotice> = Format {
        read: VersionNotice::parse,
        write: VersionNotice::emit,
        canonical: |bytes| bytes[2..].fill(0),
    };
    notice.judge_all(&[2, 3, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn acknowledgement_states() {
    let state: Format<AckState> =
        Format { read: AckState::parse, write: AckState::emit, canonical: |_| () };
    state.judge_all(&(0..44).collect::<Vec<u8>>());
}

#[test]
fn headers_of_eager_segments() {
    let header = Format {
        read: parse_eager_header,
        write: |message, out| emit_eager_header(out, message),
        canonical: |bytes| {
            bytes[0] &= 7;
            bytes[1..4].fill(0);
            if bytes[0] & 1 == 0 {
                bytes[16..24].fill(0);
            }
            if bytes[0] & 2 == 0 {
                bytes[24..32].fill(0);
            }
        },
    };
    for flags in 0..8 {
        let mut bytes: Vec<u8> = (0..EAGER_HEADER_BYTES).map(|at| (at * 5 + 1) as u8).collect();
        bytes[0] = flags;
        header.judge_all(&bytes);
    }
}

/// Keeps of a record what its kind has (protocol.md §5.2, §9.2).
fn canonical_record(bytes: &mut [u8]) {
    match bytes[0] {
        1 => bytes[1] &= 7,
        2 => {
            bytes[1] &= 7;
            bytes[2..4].fill(0);
        }
        3 => bytes[1] = 0,
        4 | 5 | 11 => bytes[1..4].fill(0),
        6 | 7 => bytes[1] &= 0x32,
        8 => {
            bytes[1] &= 0x32;
            bytes[14..16].fill(0);
        }
        9 => {
            bytes[1] &= 0x32;
            bytes[15] = 0;
        }
        10 => bytes[14..16].fill(0),
        kind => panic!("a record of kind {kind} was read"),
    }
}

const RECORDS: Format<Record> = Format {
    read: |r| {
        let before = r.rest().len();
        let record = Record::parse(r)?;
        assert_eq!(record.header_bytes(), before - r.rest().len(), "{record:?}");
        Ok(record)
    },
    write: Record::emit,
    canonical: canonical_record,
};

/// Bytes of a record by its first two, if it has zeros for lengths.
fn record_bytes(kind: u8, flags: u8) -> Option<usize> {
    let extra = |flag: u8, bytes: usize| if flags & flag != 0 { bytes } else { 0 };
    let targets = 24 * (usize::from(flags >> 4 & 3) + 1);
    Some(match kind {
        1 => 8 + extra(4, 4) + extra(1, 8) + extra(2, 8),
        2 => 20 + extra(1, 8) + extra(2, 8),
        3 => 32,
        4 | 11 => 12,
        5 => 48,
        6 => 12 + extra(2, 8) + targets,
        8 | 9 => 16 + extra(2, 8) + targets,
        10 if flags <= 6 => 20,
        // A write that waits for permission has bytes.
        _ => return None,
    })
}

#[test]
fn every_pair_of_first_bytes_makes_a_record_of_its_length() {
    for pair in 0..=u16::MAX {
        let [kind, flags] = pair.to_be_bytes();
        let mut bytes = [0; 130];
        (bytes[0], bytes[1]) = (kind, flags);
        let expected = record_bytes(kind, flags);
        assert_eq!(RECORDS.judge(&bytes), expected, "{kind} {flags:#x}");
        let whole = expected.unwrap_or(bytes.len());
        assert!((0..whole).all(|len| RECORDS.judge(&bytes[..len]).is_none()), "{kind} {flags:#x}");
        for fill in [1, 0x7f, 0x80, 0xff] {
            bytes[2..].fill(fill);
            RECORDS.judge(&bytes);
        }
    }
}

/// The first record of each kind and shape, with lengths that agree.
fn examples_of_records() -> Vec<Vec<u8>> {
    let flags = |kind: u8| -> &[u8] {
        match kind {
            1 | 2 => &[0, 1, 2, 3, 4, 5, 6, 7],
            6..=9 => &[0x00, 0x02, 0x10, 0x32],
            10 => &[0, 1, 6],
            _ => &[0],
        }
    };
    let mut all = Vec::new();
    for (kind, flags) in (1..=11).flat_map(|kind| flags(kind).iter().map(move |f| (kind, *f))) {
        let mut bytes = vec![0; record_bytes(if kind == 7 { 6 } else { kind }, flags).unwrap()];
        (bytes[0], bytes[1]) = (kind, flags);
        if kind == 7 {
            // The first target's length.
            let at = 12 + usize::from(flags & 2) * 4 + 15;
            bytes[at] = 5;
        }
        all.push(bytes);
    }
    all
}

#[test]
fn records() {
    examples_of_records().iter().for_each(|bytes| RECORDS.judge_all(bytes));
}

#[test]
fn a_request_is_read_if_its_lengths_agree() {
    let lens = [
        0,
        1,
        511,
        512,
        513,
        1024,
        0xffff,
        1 << 30,
        (1 << 30) + 1,
        1 << 63,
        u64::MAX - 1,
        u64::MAX,
    ];
    let operands = [0u16, 1, 2, 511, 512, 513, 1022, 1024, 1026, 0xffff];
    for (one, other) in lens.into_iter().flat_map(|one| lens.map(|other| (one, other))) {
        for (kind, form, operand) in (6..=9u8)
            .flat_map(|kind| (0..4u8).map(move |form| (kind, form)))
            .flat_map(|(kind, form)| operands.map(|operand| (kind, form, operand)))
        {
            let extra = if kind >= 8 { 4 } else { 0 };
            let mut bytes = vec![0; 12 + extra + 48];
            (bytes[0], bytes[1]) = (kind, 0x10);
            bytes[2..4].copy_from_slice(&operand.to_be_bytes());
            if kind == 9 {
                bytes[14] = form;
            }
            for (target, len) in [one, other].into_iter().enumerate() {
                let at = 12 + extra + 24 * target + 8;
                bytes[at..at + 8].copy_from_slice(&len.to_be_bytes());
            }
            let (all, operand) = (u128::from(one) + u128::from(other), u128::from(operand));
            let agrees = match kind {
                6 => operand == all,
                7 => operand == 0 && all > 0,
                8 => operand == 0 && all <= 1 << 30,
                _ if form == 2 => all <= 512 && [0, 2 * all].contains(&operand),
                _ => form < 2 && all <= 512 && [0, all].contains(&operand),
            };
            let agrees = agrees && all <= u64::MAX.into();
            assert_eq!(RECORDS.judge(&bytes).is_some(), agrees, "{kind} {form} {operand} {all}");
        }
    }
}

/// Writes sections again, as they were read.
fn judge_sections(bytes: &[u8]) -> Option<usize> {
    let mut r = Reader::new(bytes);
    let sections = Sections::parse(&mut r).ok()?;
    let used = bytes.len() - r.rest().len();
    let (words, nacks) =
        (sections.sack_words().collect::<Vec<_>>(), sections.nacks().collect::<Vec<_>>());
    let echoes: Vec<_> = sections.echoes().collect();
    let mut expected = bytes[..used].to_vec();
    expected[10..12].fill(0);
    let (nack_at, echo_at) = (12 + 8 * words.len(), 12 + 8 * words.len() + 8 * nacks.len());
    for range in expected[nack_at..echo_at].chunks_exact_mut(8) {
        range[6] = u8::from(range[6] != 0);
        range[7] *= range[6];
    }
    for echo in expected[echo_at..].chunks_exact_mut(16) {
        echo[13] = echo[13].max(1);
        echo[14] = echo[14].min(echo[13]);
        echo[15] = 0;
    }
    let mut written = Vec::new();
    emit_sections(&mut written, sections.sack_base_psn, words, &nacks, &echoes);
    assert_eq!(written, expected, "{bytes:?}");
    Some(used)
}

#[test]
fn sections_are_read_up_to_their_limits() {
    let counts = |most: usize| [0, 1, most - 1, most, most + 1, usize::from(u16::MAX)];
    for words in counts(SACK_WORDS_MAX) {
        for ranges in counts(NACK_RANGES_MAX) {
            for echoes in counts(ECHOES_MAX) {
                let len = 12 + 8 * words + 8 * ranges + 16 * echoes;
                let mut bytes = vec![0xa5; len.min(4096)];
                for (at, count) in [(4, words), (6, ranges), (8, echoes)] {
                    bytes[at..at + 2].copy_from_slice(&(count as u16).to_be_bytes());
                }
                let allowed =
                    words <= SACK_WORDS_MAX && ranges <= NACK_RANGES_MAX && echoes <= ECHOES_MAX;
                assert_eq!(judge_sections(&bytes), allowed.then_some(len));
                if allowed {
                    assert!((0..len).all(|len| judge_sections(&bytes[..len]).is_none()), "{len}");
                }
            }
        }
    }
}

#[test]
fn every_change_of_sections_is_read_in_one_form() {
    let mut bytes = vec![0; 12 + 8 + 2 * 8 + 2 * 16];
    (bytes[5], bytes[7], bytes[9]) = (1, 2, 2);
    each_change(&bytes, |changed| {
        judge_sections(changed);
    });
}

#[test]
fn a_part_of_targets_is_those_bytes() {
    let most = if is_large() { 4 } else { 3 };
    let byte_of = |targets: &[Target]| -> Vec<(u64, u64)> {
        let bytes = |t: &Target| {
            let (addr, key) = (t.addr, t.key);
            (0..t.len_bytes).map(move |at| (key, addr.wrapping_add(at)))
        };
        targets.iter().flat_map(bytes).collect()
    };
    for shape in 0..(most + 2u64).pow(4) {
        let digits: Vec<u64> = (0..4).map(|at| shape / (most + 2).pow(at) % (most + 2)).collect();
        // A digit of `most + 1` ends the list.
        let lens: Vec<u64> = digits.into_iter().take_while(|len| *len <= most).collect();
        // Addresses wrap within the last one.
        let target = |(n, len_bytes): (u64, &u64)| Target {
            addr: u64::MAX - 1 - 10 * n,
            len_bytes: *len_bytes,
            key: n,
        };
        let list: Vec<Target> = (0..).zip(&lens).map(target).collect();
        let Some(targets) = Targets::new(&list) else {
            assert!(list.is_empty());
            continue;
        };
        let whole = byte_of(&list);
        assert_eq!(targets.len_bytes(), whole.len() as u64);
        for from in 0..=whole.len() {
            for end in from..=whole.len() {
                let part = targets.part(from as u64, (end - from) as u64);
                assert_eq!(byte_of(part.as_slice()), whole[from..end], "{from}..{end} of {lens:?}");
                assert_eq!(part.len_bytes(), (end - from) as u64);
                assert!((1..=list.len()).contains(&part.as_slice().len()), "{from}..{end}");
            }
        }
    }
}

#[test]
fn too_many_targets_or_too_long_ones_are_none() {
    let of = |lens: &[u64]| {
        let target = |len: &u64| Target { addr: 0, len_bytes: *len, key: 0 };
        Targets::new(&lens.iter().map(target).collect::<Vec<_>>())
            .map(|targets| targets.len_bytes())
    };
    let lens = [0, 1, u64::MAX / 2, u64::MAX / 2 + 1, u64::MAX];
    for (a, b) in lens.into_iter().flat_map(|a| lens.map(|b| (a, b))) {
        assert_eq!(of(&[a, b]), a.checked_add(b));
        assert_eq!(of(&[a, 0, 0, b]), a.checked_add(b));
    }
    assert_eq!((of(&[]), of(&[0; 5])), (None, None));
}

/// A hello of a version, with so many bytes between what all versions have.
fn foreign_hello(version: u8, more: usize) -> Vec<u8> {
    let body = 12 + more + NAME_BYTES;
    let mut bytes = Vec::new();
    Header { s_len: body as u16, ..Header::new(PacketKind::Hello, 0) }.emit(&mut bytes);
    bytes[0] = bytes[0] & 0x8f | version << 4;
    bytes.extend((0..body - NAME_BYTES).map(|at| at as u8 + 1));
    bytes.extend(bytes_of("1.2.3.4:5"));
    seal(&mut bytes, 0, crc32c::crc32c_append);
    bytes
}

#[test]
fn a_hello_of_any_version_is_read_whole_or_not_at_all() {
    let parse = |bytes: &[u8]| ForeignHello::parse(bytes, crc32c::crc32c_append);
    for version in 0..=VERSION_MAX {
        for more in 0..=130 {
            let bytes = foreign_hello(version, more);
            let hello = parse(&bytes).expect("a hello");
            assert_eq!((hello.version, hello.name), (version, "1.2.3.4:5".parse().unwrap()));
            assert_eq!(hello.session, 0x0506_0708_090a_0b0c);
            assert!((0..bytes.len()).all(|len| parse(&bytes[..len]).is_none()));
        }
    }
    // Of every length, with lengths that agree and the right checksum: the id and the name need their bytes.
    for body in 0..60 {
        let mut bytes = foreign_hello(5, 60);
        bytes.truncate(HEADER_BYTES + body);
        bytes[4..6].copy_from_slice(&(body as u16).to_be_bytes());
        let at = bytes.len().saturating_sub(NAME_BYTES).max(HEADER_BYTES);
        if body >= NAME_BYTES {
            bytes[at..].copy_from_slice(&bytes_of("1.2.3.4:5"));
        }
        seal(&mut bytes, 0, crc32c::crc32c_append);
        assert_eq!(parse(&bytes).is_some(), body >= 12 + NAME_BYTES, "{body} bytes");
    }
    let bytes = foreign_hello(2, 0);
    each_change(&bytes, |changed| {
        let mut sealed = changed.to_vec();
        seal(&mut sealed, 0, crc32c::crc32c_append);
        let is_hello = sealed[0] & 15 == 3 && sealed[4..6] == bytes[4..6];
        let family = sealed[HEADER_BYTES + 12];
        assert_eq!(parse(&sealed).is_some(), is_hello && [4, 6].contains(&family));
    });
    assert!(EDGES.iter().all(|first| parse(&[*first]).is_none()));
}
