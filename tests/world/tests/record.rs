//! A recorded run is the same run, and its record is in order.

use erd_rd::SendToken;
use erd_rd::wire::header::{HEADER_BYTES, KEYED_VERSION, VERSION};
use erd_world::ledger::Life;
use erd_world::memory::{KIND, SERVED};
use erd_world::net::header;
use erd_world::record::{Entry, Packet, Record, What};
use erd_world::swarm::{Options, Report, Weather, run, run_recorded};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

/// More than any of these runs has.
const ENTRIES_MAX: usize = 1 << 20;
const SEEDS: std::ops::RangeInclusive<u64> = 1..=24;
/// Runs without faults.
const STILL_RUNS: usize = 12;

fn recorded(seed: u64) -> (Report, Vec<Entry>) {
    let record = Record::new(ENTRIES_MAX);
    let report = run_recorded(&Options::for_traces(seed), &record);
    assert_eq!(record.left_out(), 0, "seed {seed} has more than {ENTRIES_MAX} entries");
    (report, record.take())
}

#[test]
fn a_recorded_run_is_the_same_run() {
    for seed in SEEDS {
        let plain = run(&Options::for_traces(seed));
        let (report, entries) = recorded(seed);
        assert_eq!((report.digest, report.stats), (plain.digest, plain.stats), "seed {seed}");
        assert_eq!(digest(&entries), report.digest, "seed {seed}: what was told differs");
    }
}

/// The digest of what the network got, by the record.
fn digest(entries: &[Entry]) -> u32 {
    let names = |entry: &Entry| match &entry.what {
        What::Born(born) => Some(born.name),
        _ => None,
    };
    let names: BTreeSet<_> = entries.iter().filter_map(names).collect();
    entries.iter().fold(0, |digest, entry| match &entry.what {
        What::Told(packet) if names.contains(&packet.to) => {
            let stamped = crc32c::crc32c_append(digest, &entry.at.to_be_bytes());
            crc32c::crc32c_append(stamped, &packet.bytes)
        }
        _ => digest,
    })
}

/// The names of a packet's writer and reader, and its first bytes.
type Brief = (SocketAddr, SocketAddr, Vec<u8>);

/// The kinds of packets that may be under way when a run ends: goodbyes and their confirmations.
const LAST_KINDS: [u8; 2] = [7, 8];

#[test]
fn without_faults_a_process_hears_what_another_told() {
    let mut runs = 0;
    let is_still = |seed: &u64| Options::for_traces(*seed).weather == Weather::Still;
    for seed in (1..).filter(is_still).take(STILL_RUNS) {
        let (report, entries) = recorded(seed);
        if report.socket_drops > 0 {
            continue;
        }
        let mut under_way = BTreeMap::<Brief, u64>::new();
        for Entry { what, .. } in entries {
            let (What::Told(packet) | What::Heard(packet)) = &what else { continue };
            let brief = (packet.from, packet.to, packet.bytes[..HEADER_BYTES].to_vec());
            let count = under_way.entry(brief).or_default();
            match what {
                What::Told(_) => *count += 1,
                _ => *count = count.checked_sub(1).unwrap_or_else(|| panic!("{seed}: {what:?}")),
            }
        }
        under_way.retain(|(.., head), count| *count > 0 && !LAST_KINDS.contains(&(head[0] & 0xf)));
        assert!(under_way.is_empty(), "seed {seed}: nobody heard {under_way:?}");
        runs += 1;
    }
    assert!(runs > STILL_RUNS / 2, "{runs} runs lost nothing");
}

/// The kinds of packets that a session has, by their number (protocol.md §11.1).
const OF_SESSION: [u8; 6] = [0, 1, 2, 7, 10, 11];

fn judge_told(seed: u64, packet: &Packet, seen: &mut BTreeSet<&'static str>) {
    let h = header(&packet.bytes).unwrap_or_else(|| panic!("seed {seed}: {packet:?}"));
    let version = packet.bytes[0] >> 4 & 7;
    let is_keyed = version == KEYED_VERSION;
    assert!(is_keyed || version == VERSION, "seed {seed}: version {version}");
    let of_session = OF_SESSION.contains(&(h.kind as u8));
    let Some(plain) = &packet.plain else {
        assert!(!is_keyed || !of_session, "seed {seed}: {packet:?} is not readable");
        seen.insert(if is_keyed { "loose with a key" } else { "without a key" });
        return;
    };
    assert!(is_keyed && of_session, "seed {seed}: {packet:?} has nothing to open");
    assert_eq!(plain.len() + 24, packet.bytes.len(), "seed {seed}: counter and proof");
    assert_eq!(plain[..HEADER_BYTES], packet.bytes[..HEADER_BYTES], "seed {seed}");
    let hidden = plain[HEADER_BYTES..] != packet.bytes[HEADER_BYTES..plain.len()];
    seen.insert(if hidden { "hidden" } else { "proven" });
}

#[test]
fn every_packet_that_a_process_tells_is_readable() {
    let mut seen = BTreeSet::new();
    for seed in SEEDS {
        for entry in recorded(seed).1 {
            if let What::Told(packet) = entry.what {
                judge_told(seed, &packet, &mut seen);
                seen.extend(packet.info_path.then_some("over the information path"));
            }
        }
    }
    let wanted =
        ["hidden", "loose with a key", "over the information path", "proven", "without a key"];
    assert!(seen.iter().eq(&wanted), "{seen:?}");
}

/// Operations that a process posted and that have not ended.
type Open = BTreeMap<Life, BTreeSet<SendToken>>;

fn judge_end(open: &mut Open, life: Life, token: SendToken) {
    let ended = open.entry(life).or_default().remove(&token);
    assert!(ended || token.0 & KIND == SERVED, "{token:?} of {life:?} ended, and was not posted");
}

#[test]
fn entries_are_in_order() {
    for seed in SEEDS {
        let (mut at, mut open, mut living) = (0, Open::new(), BTreeSet::new());
        for Entry { at: later, life, what } in recorded(seed).1 {
            assert!(later >= at, "seed {seed}: {what:?} is earlier than the entry before");
            at = later;
            match what {
                What::Born(_) => assert!(living.insert(life), "seed {seed}: {life:?} again"),
                _ => assert!(living.contains(&life), "seed {seed}: {life:?} has {what:?}"),
            }
            match what {
                What::Died => assert!(living.remove(&life)),
                What::Posted(posted) => {
                    assert!(posted.peer.address.is_some(), "seed {seed}: {posted:?}");
                    let fresh = open.entry(life).or_default().insert(posted.token);
                    assert!(fresh, "seed {seed}: {posted:?} is posted twice");
                }
                What::Unposted(token) | What::Sent { token, .. } => {
                    judge_end(&mut open, life, token);
                }
                What::Arrived(arrival) => {
                    assert!(arrival.msg.peer.address.is_some(), "seed {seed}: {arrival:?}");
                }
                _ => {}
            }
        }
        // Every operation of a process that was not killed has ended.
        open.retain(|life, tokens| living.contains(life) && !tokens.is_empty());
        assert!(open.is_empty(), "seed {seed}: {open:?}");
    }
}

#[test]
fn a_full_record_counts_what_it_leaves_out() {
    let record = Record::new(100);
    run_recorded(&Options::for_traces(1), &record);
    assert!(record.left_out() > 0);
    assert_eq!(record.take().len(), 100);
    assert_eq!(record.take().len(), 0);
}
