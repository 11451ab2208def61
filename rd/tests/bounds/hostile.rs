//! Packets of a peer that lies, into a live session: every length, every change of a byte, and numbers at the edges of
//! what wraps. The engine takes or drops each, and its invariants hold. The liar may be of a job with a key: then it seals
//! what it says.

use super::keyed::{Said, Toy, set_checksum};
use super::{EDGES, is_large};
use erd_rd::cc::fixed::ERD;
use erd_rd::keys::{KeySet, Keys};
use erd_rd::units::MILLISECOND;
use erd_rd::wire::Reader;
use erd_rd::wire::ack::{AckState, Echo, NackRange, emit_sections};
use erd_rd::wire::header::{
    FLAG_ACK, FLAG_EAGER, HEADER_BYTES, Header, KEYED_VERSION, PacketKind, VERSION, seal,
};
use erd_rd::wire::record::{Cts, Record, emit_eager_header};
use erd_rd::wire::remote::{Action, Answer, RemoteRequest};
use erd_rd::wire::setup::{Asker, FEATURE_HIDE, Goodbye, Greeting, VersionNotice};
use erd_rd::wire::window::Window;
use erd_rd::{
    Arrived, Atomic, Config, Ecn, EndReason, Endpoint, Form, Host, KeyIndex, OpError, PeerAddress,
    PeerId, RecvToken, RxMeta, SendToken, Target, Targets, TxBurst, Verdict, WorkRequest,
};
use std::net::SocketAddr;
use std::sync::Arc;

#[path = "../stranger/mod.rs"]
mod stranger;
use stranger::{bundle, greeting_from, hello, message, nothing_received, packet};

/// A driver without memory. Messages wait, and each received or sent one ends once.
#[derive(Default)]
pub(super) struct Void;

impl Host for Void {
    fn read(&mut self, _: SendToken, _: u64, out: &mut [u8]) {
        out.fill(0);
    }
    fn checksum(&mut self, _: SendToken, _: u64, _: u32, seed: u32) -> u32 {
        seed
    }
    fn sent(&mut self, _: SendToken, _: Result<(), OpError>) {}
    fn arrived(&mut self, msg: &Arrived) -> Verdict {
        if msg.rendezvous { Verdict::Wait } else { Verdict::Held(RecvToken(1)) }
    }
    fn hold(&mut self, _: PeerId, _: u64) -> Option<RecvToken> {
        Some(RecvToken(2))
    }
    fn place(&mut self, _: RecvToken, _: u64, _: &[u8]) {}
    fn received(&mut self, _: RecvToken, _: Result<u64, OpError>) {}
    fn session_ended(&mut self, _: PeerId, _: u32, _: EndReason) {}
    fn datagram_limit_bytes(&mut self, _: SocketAddr) -> u16 {
        1472
    }
}

/// The victim's first PSN and send order: both wrap soon.
const OURS: u32 = u32::MAX - 1;
/// The liar's.
const THEIRS: u32 = u32::MAX;

/// Whether the liar's job has no key, one that proves, or one that hides as well.
const KEYS: [Option<Toy>; 3] =
    [None, Some(Toy { id: 1, hides: false }), Some(Toy { id: 1, hides: true })];
/// The key of another job, of which the victim is too.
const OTHER: Toy = Toy { id: 2, hides: true };
/// The place of the liar's key among those of the victim.
const AT: KeyIndex = KeyIndex(2);

struct Victim {
    engine: Endpoint,
    now: u64,
    liar: Greeting,
    /// The victim's own greeting.
    told: Greeting,
    key: Option<Toy>,
    /// Packets that the liar has sealed.
    sealed: u64,
}

impl Victim {
    /// In a session with the liar, with two of five packets of the liar's and six packets of its own under way.
    fn new(key: Option<Toy>) -> Victim {
        let mut config = Config::new("10.0.0.1:1".parse().unwrap(), 1, crc32c::crc32c_append);
        config.first_psn = Some(OURS);
        if let Some(key) = key {
            config.keys =
                KeySet::new([None, Some(Arc::new(OTHER) as Arc<dyn Keys>), Some(Arc::new(key))]);
        }
        let engine = Endpoint::new(config, Box::new(ERD.scheme()), 1).unwrap();
        let name = "10.0.0.2:1".parse().unwrap();
        let mut liar = Greeting { first_psn: THEIRS, first_order: THEIRS, ..greeting_from(name) };
        liar.random = key.map(|_| [9; 16]);
        if key.is_some_and(|key| key.hides) {
            liar.features |= FEATURE_HIDE;
        }
        let mut victim = Victim { engine, now: MILLISECOND, liar, told: liar, key, sealed: 0 };
        let body = |sent: Vec<(Header, Vec<u8>)>| sent.into_iter().next().expect("an answer").1;
        let challenge = body(victim.takes(&victim.made(hello(&victim.liar))));
        victim.liar.cookie = u64::from_be_bytes(challenge[..8].try_into().unwrap());
        let welcome = body(victim.takes(&victim.made(hello(&victim.liar))));
        victim.told = Greeting::parse(&mut Reader::new(&welcome), key.is_some()).unwrap();
        for number in [1, 4] {
            let at = THEIRS.wrapping_add(number);
            let rts = victim.record(at, &Record::Rts(message(at, 1 << 20)));
            victim.takes(&rts);
        }
        assert_eq!(victim.drops(), 0);
        victim.posts();
        victim
    }

    fn posts(&mut self) {
        let key = self.key.map_or(KeyIndex(0), |_| AT);
        let address = PeerAddress { name: self.liar.name, key };
        let peer = self.engine.peer(self.now, address, &mut Void).unwrap();
        for (number, len_bytes) in [10, 1000, 5000].into_iter().enumerate() {
            let wr = WorkRequest {
                peer,
                token: SendToken(number as u64),
                len_bytes,
                tag: Some(1),
                data: None,
                match_complete: false,
                awaited: false,
                delivery: false,
                fence: false,
            };
            self.engine.send(self.now, wr).unwrap();
        }
        self.sends();
    }

    /// The packet as the victim's key has it, but not proven yet.
    fn made(&self, mut bytes: Vec<u8>) -> Vec<u8> {
        if self.key.is_some() {
            bytes[0] = bytes[0] & 0x8f | KEYED_VERSION << 4;
            set_checksum(&mut bytes);
        }
        bytes
    }

    /// The packet with this length and a right checksum over all of it, as one without payload has.
    fn again(&self, bytes: &[u8]) -> Vec<u8> {
        let mut bytes = bytes.to_vec();
        if bytes.len() >= HEADER_BYTES {
            let body = (bytes.len() - HEADER_BYTES) as u16;
            bytes[4..6].copy_from_slice(&body.to_be_bytes());
            match self.key {
                Some(_) => set_checksum(&mut bytes),
                None => seal(&mut bytes, 0, crc32c::crc32c_append),
            }
        }
        bytes
    }

    /// The packet with the liar's proof, if the job has a key.
    fn sealed(&mut self, plain: &[u8]) -> Vec<u8> {
        self.sealed += 1;
        self.sealed_with(self.sealed, plain)
    }

    fn sealed_with(&self, counter: u64, plain: &[u8]) -> Vec<u8> {
        let Some(key) = self.key else { return plain.to_vec() };
        let is_answer = plain.get(16..24) == Some(&self.told.session.to_be_bytes()[..]);
        let random = self.told.random.filter(|_| is_answer);
        let said = Said {
            writer: self.liar.name,
            reader: "10.0.0.1:1".parse().unwrap(),
            question: random.as_ref().map_or(&[], |random| random),
        };
        key.sealed(counter, plain, &said)
    }

    /// Takes a packet of the liar's in, which seals it. Returns what goes out.
    fn takes(&mut self, plain: &[u8]) -> Vec<(Header, Vec<u8>)> {
        let sealed = self.sealed(plain);
        self.takes_datagram(&sealed)
    }

    fn takes_datagram(&mut self, bytes: &[u8]) -> Vec<(Header, Vec<u8>)> {
        let from = self.liar.name;
        let meta = RxMeta { ecn: Ecn::NotEct, trimmed: false, hold_ns: 0, from };
        self.now += 1_000;
        self.engine.handle_packet(self.now, &meta, bytes, &mut Void);
        self.engine.check();
        self.sends()
    }

    fn sends(&mut self) -> Vec<(Header, Vec<u8>)> {
        let (mut burst, mut out) = (TxBurst::new(), Vec::new());
        while self.engine.poll_transmit(self.now, true, &mut Void, &mut burst) {
            let spoken = if self.key.is_some() { KEYED_VERSION } else { VERSION };
            // Who has another version, or another key, is told so in the form of all versions.
            let header = Header::parse_of(spoken, &burst.bytes).unwrap();
            out.push((header, burst.bytes[HEADER_BYTES..].to_vec()));
        }
        self.engine.check();
        out
    }

    fn drops(&self) -> u64 {
        self.engine.stats().drops.iter().sum()
    }

    /// Lets its timers run.
    fn waits(&mut self) {
        self.now += 300 * MILLISECOND;
        self.engine.handle_timeout(self.now, &mut Void);
        self.sends();
    }

    fn header(&self, kind: PacketKind, psn: u32) -> Header {
        Header { psn, ..Header::new(kind, self.told.session) }
    }

    fn record(&self, psn: u32, record: &Record) -> Vec<u8> {
        self.made(bundle(self.header(PacketKind::Data, psn), record))
    }

    fn asker(&self) -> Asker {
        Asker { id: self.liar.asker, name: self.liar.name, key: self.key.map(Toy::id) }
    }

    fn probe(&self, psn: u32) -> Vec<u8> {
        self.made(packet(self.header(PacketKind::Probe, psn), |out| self.asker().emit(out)))
    }

    fn ack(&self, state: &AckState, sack_base_psn: u32, echo_psn: u32, nack_psn: u32) -> Vec<u8> {
        let echo = Echo { psn: echo_psn, sent_at_ns: 1, hold_ns: 0, path: 0, count: 255, ce: 255 };
        let nack = NackRange { first_psn: nack_psn, count: u16::MAX, trimmed: None };
        self.made(packet(self.header(PacketKind::Ack, 0), |out| {
            state.emit(out);
            emit_sections(out, sack_base_psn, [0b110, u64::MAX], &[nack], &[echo]);
        }))
    }

    /// Bytes of a segment, whose message header and payload follow.
    fn segment(&self, h: Header, body: impl FnOnce(&mut Vec<u8>), payload: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        Header { long: true, s_len: payload.len() as u16, ..h }.emit(&mut bytes);
        body(&mut bytes);
        seal(&mut bytes, 0, crc32c::crc32c_append);
        bytes.extend_from_slice(payload);
        self.made(bytes)
    }

    /// One of each kind of packet, and data of each kind of record, each of which may be taken.
    fn packets(&self) -> Vec<Vec<u8>> {
        let asker = self.asker();
        let of =
            |kind, body: &dyn Fn(&mut Vec<u8>)| self.made(packet(self.header(kind, THEIRS), body));
        let ack = AckState { cum_psn: OURS, high_psn: OURS, ..nothing_received() };
        let eager = Header { flags: FLAG_EAGER, ..self.header(PacketKind::Data, THEIRS) };
        let mut all: Vec<_> =
            self.records().iter().map(|record| self.record(THEIRS, record)).collect();
        all.extend([
            self.made(hello(&self.liar)),
            of(PacketKind::Welcome, &|out| self.liar.emit(out)),
            of(PacketKind::Challenge, &|out| out.extend([1; 16])),
            of(PacketKind::Reset, &|out| out.extend(self.liar.session.to_be_bytes())),
            of(PacketKind::Goodbye, &|out| Goodbye { asker, ack }.emit(out)),
            of(PacketKind::GoodbyeAck, &|out| out.extend(self.liar.session.to_be_bytes())),
            of(PacketKind::Version, &|out| VersionNotice { spoken: 3, refused: 2 }.emit(out)),
            of(PacketKind::SizeProbe, &|out| out.extend([0; 200])),
            of(PacketKind::SizeAnswer, &|out| out.extend([0, 1, 5, 0])),
            self.probe(THEIRS),
            self.ack(&ack, OURS, OURS, OURS),
            self.segment(eager, |out| emit_eager_header(out, &message(THEIRS, 1000)), &[7; 20]),
            self.segment(
                Header { flags: FLAG_EAGER | FLAG_ACK, ..eager },
                |out| {
                    emit_eager_header(out, &message(THEIRS, 20));
                    ack.emit(out);
                },
                &[7; 20],
            ),
            self.segment(Header { flags: 0, msg_id: 0x8000, ..eager }, |_| (), &[7; 20]),
        ]);
        all
    }

    fn records(&self) -> Vec<Record> {
        let (order, op) = (THEIRS, 0);
        let ack = AckState { cum_psn: OURS, high_psn: OURS, ..nothing_received() };
        let target = Target { addr: 0, len_bytes: 8, key: 1 };
        let targets = Targets::new(&[target; 2]).unwrap();
        let atomic = Atomic { op: 1, datatype: 3, form: Form::Compare };
        let request = |action, operand_bytes| {
            Record::Request(RemoteRequest {
                order,
                op,
                action,
                operand_bytes,
                data: Some(1),
                targets,
            })
        };
        let cts =
            Cts { order: OURS, op, msg_id: 0x8000, base_bytes: 0, len_bytes: 10, total_bytes: 10 };
        vec![
            Record::Eager(message(order, 0)),
            Record::Rts(message(order, 1 << 20)),
            Record::Cts(cts),
            Record::Matched { op, order: OURS },
            Record::Ack(ack),
            request(Action::WriteLater, 0),
            request(Action::Read(0x8000), 0),
            request(Action::Atomic(atomic), 0),
            Record::Answer(Answer {
                order,
                op,
                msg_id: 0,
                refusal: None,
                len_bytes: 0,
                sent_bytes: 0,
            }),
            Record::Done { first: OURS, last: OURS },
        ]
    }
}

#[test]
fn a_part_of_a_packet_is_never_taken_for_it() {
    for key in KEYS {
        for (kind, whole) in Victim::new(key).packets().iter().enumerate() {
            for len in 0..=whole.len() {
                let mut victim = Victim::new(key);
                let before = victim.drops();
                victim.takes(&whole[..len]);
                let dropped = victim.drops() - before;
                assert!(dropped == 1 || len == whole.len(), "{len} bytes of packet {kind}");
                let part = victim.again(&whole[..len]);
                victim.takes(&part);
                victim.waits();
            }
        }
    }
}

#[test]
fn every_change_of_a_byte_is_taken_or_dropped() {
    let values: Vec<u8> =
        if is_large() { (0..=255).collect() } else { [&EDGES[..], &[3, 5, 9, 33]].concat() };
    for key in KEYS {
        for whole in &Victim::new(key).packets() {
            for at in 0..whole.len().min(HEADER_BYTES + 120) {
                let mut victim = Victim::new(key);
                let mut changed = whole.clone();
                for value in &values {
                    changed[at] = *value;
                    victim.takes(&changed);
                    let again = victim.again(&changed);
                    victim.takes(&again);
                }
                victim.waits();
            }
        }
    }
}

#[test]
fn every_pair_of_first_bytes_is_taken_or_dropped() {
    let step = if is_large() { 1 } else { 7 };
    for key in KEYS {
        for (kind, whole) in Victim::new(key).packets().iter().enumerate() {
            let mut victim = Victim::new(key);
            for pair in (kind % step..1 << 16).step_by(step) {
                let mut changed = whole.clone();
                changed[..2].copy_from_slice(&(pair as u16).to_be_bytes());
                victim.takes(&changed);
                let again = victim.again(&changed);
                victim.takes(&again);
                if pair % 256 < step {
                    victim.waits();
                    victim = Victim::new(key);
                }
            }
        }
    }
}

/// What the engine takes without a key, it takes from who seals it. So the tests here reach what is behind the seal.
#[test]
fn a_sealed_packet_is_taken_where_a_plain_one_is() {
    let taken = KEYS.map(|key| {
        let packets = Victim::new(key).packets();
        let is_taken = |whole: &Vec<u8>| {
            let mut victim = Victim::new(key);
            victim.takes(whole);
            victim.drops() == Victim::new(key).drops()
        };
        packets.iter().map(is_taken).collect::<Vec<bool>>()
    });
    assert_eq!(taken[0], taken[1]);
    assert_eq!(taken[0], taken[2]);
    let count = taken[0].iter().filter(|is_taken| **is_taken).count();
    assert!(count > taken[0].len() / 2, "{count} of {}", taken[0].len());
}

/// Somebody without the key: parts of proven packets, and each change of a byte of them.
#[test]
fn nothing_of_a_proven_packet_changes_or_is_missing() {
    for key in KEYS.into_iter().filter(Option::is_some) {
        for (kind, whole) in Victim::new(key).packets().iter().enumerate() {
            let mut victim = Victim::new(key);
            let sealed = victim.sealed(whole);
            let unsealed = key.and_then(|key| key.unsealed(&sealed)).map(|(plain, _)| plain);
            // No key proves the notice of another version.
            if &sealed == whole {
                continue;
            }
            let again = unsealed.map(|plain| victim.again(&plain));
            assert_eq!(again, Some(victim.again(whole)), "packet {kind}");
            for len in 0..sealed.len() {
                let before = victim.drops();
                victim.takes_datagram(&sealed[..len]);
                assert_eq!(victim.drops(), before + 1, "{len} bytes of packet {kind}");
            }
            let step = if is_large() { 1 } else { 5 };
            for (at, bits) in (0..sealed.len())
                .flat_map(|at| (1..=u8::MAX).step_by(step).map(move |bits| (at, bits)))
            {
                let mut changed = sealed.clone();
                changed[at] ^= bits;
                let before = victim.drops();
                victim.takes_datagram(&changed);
                assert_eq!(victim.drops(), before + 1, "byte {at} of packet {kind}, {bits:#x}");
            }
        }
    }
}

/// All sequences of counters: no packet is taken twice, and none of a counter too far ahead.
#[test]
fn a_counter_serves_once() {
    const SPAN: u64 = 1 << 22;
    let counters = [4, 5, 1000, SPAN, SPAN + 2, 2 * SPAN, 1 << 32, 1 << 63, u64::MAX];
    let depth = if is_large() { 5 } else { 3 };
    for key in KEYS.into_iter().filter(Option::is_some) {
        let probe = Victim::new(key).probe(THEIRS);
        for sequence in 0..counters.len().pow(depth) {
            let mut victim = Victim::new(key);
            let (mut taken, mut end) = (vec![], victim.sealed + 1);
            for place in 0..depth {
                let counter = counters[sequence / counters.len().pow(place) % counters.len()];
                let (before, sealed) = (victim.drops(), victim.sealed_with(counter, &probe));
                victim.takes_datagram(&sealed);
                let is_taken = victim.drops() == before;
                let is_late = counter <= victim.sealed || taken.contains(&counter);
                assert!(!is_taken || !is_late, "{counter} after {taken:?}");
                assert!(!is_taken || counter < end + SPAN, "{counter} after {taken:?}");
                assert!(is_taken || counter < end || counter >= end + SPAN, "{counter} {taken:?}");
                if is_taken {
                    taken.push(counter);
                    end = end.max(counter + 1);
                }
            }
        }
    }
}

/// Numbers about `near`, and half of all numbers away from it.
fn about(near: u32) -> [u32; 10] {
    [0, 1, 3, 5, 0x3fff, 0x4000, 0x7fff_fffe, 0x7fff_ffff, 0x8000_0000, 0x8000_0003]
        .map(|ahead| near.wrapping_add(ahead))
}

/// Packets whose numbers lie at the edges.
fn lies(victim: &Victim) -> Vec<Vec<u8>> {
    let state = nothing_received();
    let honest =
        AckState { cum_psn: OURS, high_psn: OURS, order_limit: OURS.wrapping_add(1000), ..state };
    let mut all = Vec::new();
    for far in about(THEIRS.wrapping_sub(1)) {
        all.push(victim.probe(far));
        all.push(victim.record(far, &Record::Rts(message(far, 1 << 20))));
        all.push(victim.record(far, &Record::Eager(message(far, 0))));
    }
    for far in about(OURS.wrapping_sub(1)) {
        all.push(victim.ack(&AckState { cum_psn: far, ..honest }, OURS, OURS, OURS));
        all.push(victim.ack(&AckState { high_psn: far, ..honest }, OURS, OURS, OURS));
        all.push(victim.ack(&AckState { order_limit: far, ..honest }, OURS, OURS, OURS));
        all.push(victim.ack(&honest, far, OURS, OURS));
        all.push(victim.ack(&honest, OURS, far, OURS));
        all.push(victim.ack(&honest, OURS, OURS, far));
        all.push(victim.record(THEIRS, &Record::Done { first: far, last: OURS }));
        all.push(victim.record(THEIRS, &Record::Matched { op: 0, order: far }));
    }
    // The longest time between packets.
    let longest = AckState { window: Window::from_bits(u32::MAX), ..honest };
    all.push(victim.ack(&longest, OURS, OURS, OURS));
    for far in about(0) {
        all.push(victim.ack(&AckState { eager_limit_bytes: far, ..honest }, OURS, OURS, OURS));
        all.push(victim.ack(&AckState { latest_sent_at_ns: far, ..honest }, OURS, OURS, OURS));
        all.push(victim.ack(&AckState { echo_sent_at_ns: far, ..honest }, OURS, OURS, OURS));
        all.push(victim.ack(
            &AckState { ce_bytes: far, recv_bytes: far, ..honest },
            OURS,
            OURS,
            OURS,
        ));
        all.push(victim.ack(
            &AckState { window: Window::from_bits(far), ..honest },
            OURS,
            OURS,
            OURS,
        ));
    }
    all
}

/// All sequences of lies, each with time to act on them.
#[test]
fn sequences_of_lies_break_no_invariant() {
    let depth = if is_large() { 3 } else { 2 };
    for key in KEYS {
        let lies = lies(&Victim::new(key));
        for sequence in 0..lies.len().pow(depth) {
            let mut victim = Victim::new(key);
            let mut rest = sequence;
            for _ in 0..depth {
                victim.takes(&lies[rest % lies.len()]);
                rest /= lies.len();
            }
            victim.waits();
            victim.posts();
        }
    }
}

/// The same lie again and again: sums of what a peer says stay within their types.
#[test]
fn a_lie_that_is_repeated_overflows_nothing() {
    for (key, lie) in KEYS
        .map(|key| lies(&Victim::new(key)).into_iter().map(move |lie| (key, lie)))
        .into_iter()
        .flatten()
    {
        let mut victim = Victim::new(key);
        for _ in 0..8 {
            victim.takes(&lie);
        }
        victim.waits();
    }
}
