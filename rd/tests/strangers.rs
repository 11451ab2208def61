//! Peers that keep to the formats but to nothing else: what they send completes only what it is
//! enough for.

use erd_rd::cc::fixed::ERD;
use erd_rd::wire::Reader;
use erd_rd::wire::ack::AckState;
use erd_rd::wire::header::{FLAG_EAGER, HEADER_BYTES, Header, PacketKind, seal};
use erd_rd::wire::record::{MsgHeader, Record, emit_eager_header};
use erd_rd::wire::remote::{Action, RemoteRequest};
use erd_rd::wire::setup::{Asker, Goodbye, Greeting};
use erd_rd::{
    Arrived, Config, DropReason, Ecn, EndReason, Endpoint, Host, MESSAGE_COST_BYTES, ORDERS_LEAST,
    OpError, Part, PeerId, RecvToken, Refusal, Remote, Rma, RmaRequest, RxMeta, SendToken, Target,
    Targets, TxBurst, Verdict,
};
use std::collections::BTreeMap;
use std::net::SocketAddr;

mod stranger;
use stranger::{bundle, eager_byte, greeting_of, hello, message, nothing_received, packet};

/// Length of the messages, and of the segments that they would take sixteen of.
const LEN_BYTES: u32 = 16_000;
const SEGMENT_BYTES: u32 = 1_000;
/// The key of memory that may be read.
const RIGHT_KEY: u64 = 99;

/// The victim's memory, and what it was told.
#[derive(Default)]
struct Vault {
    /// Receives take what arrives; without, it waits.
    takes: bool,
    buffers: BTreeMap<u64, Vec<u8>>,
    waiting: Vec<Arrived>,
    whole: Vec<u64>,
    /// Keys that reads named, and whether all of them stood lately.
    tried: Vec<u64>,
    keys_stood: bool,
    sent: Vec<Result<(), OpError>>,
}

impl Vault {
    fn buffer(&mut self, len_bytes: u64) -> RecvToken {
        let token = self.buffers.len() as u64;
        self.buffers.insert(token, vec![0xee; len_bytes as usize]);
        RecvToken(token)
    }
}

impl Host for Vault {
    fn read(&mut self, _: SendToken, _: u64, out: &mut [u8]) {
        out.fill(0);
    }

    fn checksum(&mut self, _: SendToken, _: u64, _: u32, seed: u32) -> u32 {
        seed
    }

    fn sent(&mut self, _: SendToken, outcome: Result<(), OpError>) {
        self.sent.push(outcome);
    }

    fn arrived(&mut self, msg: &Arrived) -> Verdict {
        if self.takes {
            return Verdict::Matched(self.buffer(msg.len_bytes), msg.len_bytes);
        }
        self.waiting.push(*msg);
        match msg.rendezvous || msg.held.is_some() {
            true => Verdict::Wait,
            false => Verdict::Held(self.buffer(msg.len_bytes)),
        }
    }

    fn hold(&mut self, _: PeerId, len_bytes: u64) -> Option<RecvToken> {
        Some(self.buffer(len_bytes))
    }

    fn place(&mut self, to: RecvToken, offset_bytes: u64, bytes: &[u8]) {
        let buffer = self.buffers.get_mut(&to.0).expect("a buffer of ours");
        buffer[offset_bytes as usize..][..bytes.len()].copy_from_slice(bytes);
    }

    fn received(&mut self, to: RecvToken, outcome: Result<u64, OpError>) {
        if outcome.is_ok() {
            self.whole.push(to.0);
        }
    }

    fn session_ended(&mut self, _: PeerId, _: u32, _: EndReason) {}

    fn datagram_limit_bytes(&mut self, _: SocketAddr) -> u16 {
        1472
    }

    fn key_stood(&mut self, _: &Remote) -> bool {
        self.keys_stood
    }

    fn remote_read(&mut self, from: &Remote) -> Result<SendToken, Refusal> {
        let key = from.targets.as_slice()[0].key;
        self.tried.push(key);
        if key == RIGHT_KEY { Ok(SendToken(0)) } else { Err(Refusal::Key) }
    }

    fn remote_write_later(&mut self, to: &Remote) -> Result<RecvToken, Refusal> {
        Ok(self.buffer(to.targets.len_bytes()))
    }

    fn remote_written(&mut self, to: RecvToken) -> Result<(), Refusal> {
        self.whole.push(to.0);
        Ok(())
    }
}

/// The victim.
struct Victim {
    engine: Endpoint,
    vault: Vault,
    now: u64,
    /// What each session would have next of the victim's packets.
    next_psn: BTreeMap<u64, u32>,
}

impl Victim {
    fn new(change: impl FnOnce(&mut Config)) -> Victim {
        let name = "10.0.0.1:1".parse().unwrap();
        let mut config = Config::new(name, 1, crc32c::crc32c_append);
        change(&mut config);
        let engine = Endpoint::new(config, Box::new(ERD.scheme()), 1).unwrap();
        Victim { engine, vault: Vault::default(), now: 1, next_psn: BTreeMap::new() }
    }

    /// Takes a datagram in and returns what goes out.
    fn takes(&mut self, from: SocketAddr, bytes: &[u8]) -> Vec<Vec<u8>> {
        let meta = RxMeta { ecn: Ecn::NotEct, trimmed: false, hold_ns: 0, from };
        self.engine.handle_packet(self.now, &meta, bytes, &mut self.vault);
        self.sends()
    }

    fn sends(&mut self) -> Vec<Vec<u8>> {
        let (mut burst, mut out) = (TxBurst::new(), Vec::new());
        while self.engine.poll_transmit(self.now, true, &mut self.vault, &mut burst) {
            let inline = burst.parts.iter().all(|part| matches!(part, Part::Inline { .. }));
            assert!(inline, "the victim sends no payload");
            out.extend(burst.bytes.chunks(burst.segment_bytes as usize).map(<[u8]>::to_vec));
        }
        self.now += 1_000;
        for h in out.iter().map(|bytes| Header::parse(bytes).unwrap()) {
            if h.kind == PacketKind::Data {
                self.next_psn.insert(h.session, h.psn.wrapping_add(1));
            }
        }
        out
    }

    /// What the driver keeps of messages that nobody wanted.
    fn held_bytes(&self) -> u64 {
        let cost = u64::from(MESSAGE_COST_BYTES);
        self.vault.waiting.iter().map(|arrived| arrived.len_bytes + cost).sum()
    }

    fn dropped(&self, reason: DropReason) -> u64 {
        self.engine.stats().drops_for(reason)
    }
}

/// Who attacks, under one name.
struct Stranger {
    name: SocketAddr,
    /// Our own id.
    session: u64,
    /// The victim's greeting.
    victim: Greeting,
    psn: u32,
    /// Of its next message.
    order: u32,
}

impl Stranger {
    /// Opens a session.
    fn new(victim: &mut Victim, port: u16) -> Stranger {
        Stranger::restarted(victim, port, 1)
    }

    /// Opens a session as the process of this epoch at the name.
    fn restarted(victim: &mut Victim, port: u16, epoch: u64) -> Stranger {
        let name = SocketAddr::from(([10, 0, 0, 2], port));
        let mut greeting = greeting_of(epoch, name);
        let challenge = greet(victim, &greeting, PacketKind::Challenge);
        greeting.cookie = u64::from_be_bytes(challenge[HEADER_BYTES..][..8].try_into().unwrap());
        let welcome = greet(victim, &greeting, PacketKind::Welcome);
        let victim = Greeting::parse(&mut Reader::new(&welcome[HEADER_BYTES..]), false).unwrap();
        Stranger { name, session: greeting.session, victim, psn: 0, order: 0 }
    }

    fn header(&mut self) -> Header {
        self.psn += 1;
        Header { psn: self.psn - 1, ..Header::new(PacketKind::Data, self.victim.session) }
    }

    /// A bundle of one record. Returns the records of the answer.
    fn tell(&mut self, victim: &mut Victim, record: &Record) -> Vec<Record> {
        records(&victim.takes(self.name, &bundle(self.header(), record)))
    }

    /// Acknowledges all that the victim has sent. Returns the records of what it sends then.
    fn acknowledge(&mut self, victim: &mut Victim) -> Vec<Record> {
        let first = self.victim.first_psn;
        let psn = *victim.next_psn.get(&self.session).unwrap_or(&first);
        let now = victim.now as u32;
        self.tell(
            victim,
            &Record::Ack(AckState {
                cum_psn: psn,
                high_psn: psn,
                latest_sent_at_ns: now,
                echo_sent_at_ns: now,
                ..nothing_received()
            }),
        )
    }

    /// A segment of a link.
    fn fill(&mut self, victim: &mut Victim, msg_id: u16, s_offset: u32) {
        let mut h = self.header();
        (h.long, h.msg_id, h.s_offset) = (true, msg_id, s_offset);
        self.send_segment(victim, h, |_| {});
    }

    /// One byte of an eager message.
    fn begin_eager(&mut self, victim: &mut Victim, msg: &MsgHeader) {
        let bytes = eager_byte(self.header(), msg);
        victim.takes(self.name, &bytes);
    }

    /// A segment of an eager message.
    fn fill_eager(&mut self, victim: &mut Victim, msg: &MsgHeader, s_offset: u32) {
        let mut h = self.header();
        (h.long, h.flags, h.s_offset) = (true, FLAG_EAGER, s_offset);
        self.send_segment(victim, h, |out| emit_eager_header(out, msg));
    }

    fn send_segment(
        &self,
        victim: &mut Victim,
        mut h: Header,
        head: impl FnOnce(&mut Vec<u8>),
    ) -> Vec<Vec<u8>> {
        h.s_len = SEGMENT_BYTES as u16;
        let mut bytes = Vec::new();
        h.emit(&mut bytes);
        head(&mut bytes);
        seal(&mut bytes, 0, crc32c::crc32c_append);
        bytes.extend((0..SEGMENT_BYTES).map(|i| (h.s_offset + i) as u8));
        victim.takes(self.name, &bytes)
    }
}

/// Says hello; returns the answer, which is of this kind.
fn greet(victim: &mut Victim, greeting: &Greeting, answer: PacketKind) -> Vec<u8> {
    let answers = victim.takes(greeting.name, &hello(greeting));
    let mut of_kind = answers.into_iter().filter(|a| Header::parse(a).unwrap().kind == answer);
    of_kind.next().expect("a hello is answered")
}

/// The records of all bundles among some datagrams.
fn records(datagrams: &[Vec<u8>]) -> Vec<Record> {
    let mut all = Vec::new();
    for datagram in datagrams {
        let h = Header::parse(datagram).unwrap();
        if h.kind == PacketKind::Data && !h.long {
            let mut r = Reader::new(&datagram[HEADER_BYTES..]);
            let count = r.u16().unwrap();
            all.extend((0..count).map(|_| Record::parse(&mut r).unwrap()));
        }
    }
    all
}

/// Sends the second segment sixteen times, which completes nothing; then all of them, overlapping,
/// which completes what they are for with the right bytes.
fn judge_filling(victim: &mut Victim, mut fill: impl FnMut(&mut Victim, u32)) {
    let ended = |victim: &Victim| victim.vault.whole.len() + victim.vault.sent.len();
    for _ in 0..LEN_BYTES / SEGMENT_BYTES {
        fill(victim, SEGMENT_BYTES);
    }
    assert_eq!(ended(victim), 0, "complete with a sixteenth of its bytes");
    let last = LEN_BYTES - SEGMENT_BYTES;
    for s_offset in (0..last).step_by(SEGMENT_BYTES as usize / 3) {
        fill(victim, s_offset);
    }
    assert_eq!(ended(victim), 0, "complete without its last bytes");
    fill(victim, last);
    assert_eq!(ended(victim), 1, "each of its bytes has arrived");
    let buffer = victim.vault.buffers.values().next().unwrap();
    assert!(buffer.iter().enumerate().all(|(i, byte)| *byte == i as u8), "each is in its place");
}

#[test]
fn an_eager_message_is_not_made_of_the_same_bytes() {
    for (takes, order) in [(true, 0), (false, 0), (false, 1)] {
        let mut victim = Victim::new(|_| {});
        victim.vault.takes = takes;
        let mut stranger = Stranger::new(&mut victim, 1);
        let msg = message(order, LEN_BYTES.into());
        let mut sent = 0;
        judge_filling(&mut victim, |victim, s_offset| {
            sent += 1;
            stranger.fill_eager(victim, &msg, s_offset);
            if order == 1 && sent == 5 {
                stranger.tell(victim, &Record::Eager(message(0, 0)));
                victim.vault.whole.clear();
            }
        });
    }
}

#[test]
fn a_rendezvous_message_is_not_made_of_the_same_bytes() {
    let mut victim = Victim::new(|_| {});
    victim.vault.takes = true;
    let mut stranger = Stranger::new(&mut victim, 1);
    let answer = stranger.tell(&mut victim, &Record::Rts(message(0, LEN_BYTES.into())));
    let msg_id = permission(&answer);
    judge_filling(&mut victim, |victim, s_offset| stranger.fill(victim, msg_id, s_offset));
}

#[test]
fn a_write_is_not_made_of_the_same_bytes() {
    let mut victim = Victim::new(|_| {});
    let mut stranger = Stranger::new(&mut victim, 1);
    let target = Target { addr: 0, len_bytes: LEN_BYTES.into(), key: 7 };
    let answer = stranger.tell(
        &mut victim,
        &Record::Request(RemoteRequest {
            order: 0,
            op: 0,
            action: Action::WriteLater,
            operand_bytes: 0,
            data: None,
            targets: Targets::new(&[target]).unwrap(),
        }),
    );
    let msg_id = permission(&answer);
    judge_filling(&mut victim, |victim, s_offset| stranger.fill(victim, msg_id, s_offset));
}

#[test]
fn a_read_is_not_answered_by_the_same_bytes() {
    let mut victim = Victim::new(|_| {});
    let mut stranger = Stranger::new(&mut victim, 1);
    let target = Target { addr: 0, len_bytes: LEN_BYTES.into(), key: 7 };
    let to = victim.vault.buffer(LEN_BYTES.into());
    let peer = victim.engine.peer(victim.now, stranger.name, &mut victim.vault).unwrap();
    let targets = Targets::new(&[target]).unwrap();
    let (token, rma, data) = (SendToken(0), Rma::Read(to), None);
    let request = RmaRequest { peer, token, rma, targets, data, fence: false };
    victim.engine.rma(victim.now, &request).unwrap();
    let asked = records(&victim.sends());
    let msg_id = asked.iter().find_map(|record| match record {
        Record::Request(RemoteRequest { action: Action::Read(msg_id), .. }) => Some(*msg_id),
        _ => None,
    });
    let msg_id = msg_id.expect("the victim asks");
    judge_filling(&mut victim, |victim, s_offset| stranger.fill(victim, msg_id, s_offset));
}

/// Has the victim read 8 bytes of somebody who does not answer. Returns its hello.
fn begins(victim: &mut Victim, name: SocketAddr) -> Greeting {
    let peer = victim.engine.peer(victim.now, name, &mut victim.vault).unwrap();
    let targets = Targets::new(&[Target { addr: 0, len_bytes: 8, key: 7 }]).unwrap();
    let (token, rma, data) = (SendToken(0), Rma::Read(victim.vault.buffer(8)), None);
    let request = RmaRequest { peer, token, rma, targets, data, fence: false };
    victim.engine.rma(victim.now, &request).unwrap();
    hello_of(&victim.sends()).unwrap()
}

/// The greeting of a hello among some datagrams.
fn hello_of(datagrams: &[Vec<u8>]) -> Option<Greeting> {
    let is_hello = |bytes: &&Vec<u8>| Header::parse(bytes).unwrap().kind == PacketKind::Hello;
    let hello = datagrams.iter().find(is_hello)?;
    Some(Greeting::parse(&mut Reader::new(&hello[HEADER_BYTES..]), false).unwrap())
}

#[test]
fn challenges_without_end_keep_no_operation() {
    let mut victim = Victim::new(|_| {});
    let name = SocketAddr::from(([10, 0, 0, 2], 1));
    let mut greeting = begins(&mut victim, name);
    for epoch in 1..20_u64 {
        let challenge = packet(Header::new(PacketKind::Challenge, greeting.session), |out| {
            out.extend([7; 8]);
            out.extend(epoch.to_be_bytes());
        });
        greeting = hello_of(&victim.takes(name, &challenge)).unwrap_or(greeting);
        victim.now += 4 * SECOND;
        victim.engine.handle_timeout(victim.now, &mut victim.vault);
    }
    assert_eq!(victim.vault.sent, [Err(OpError::PeerTimeout)], "it answers, and never begins");
}

#[test]
fn a_goodbye_that_names_nobody_ends_no_session() {
    let mut victim = Victim::new(|_| {});
    let name = SocketAddr::from(([10, 0, 0, 2], 1));
    let greeting = begins(&mut victim, name);
    let goodbye = Goodbye { asker: Asker { id: 0, name, key: None }, ack: nothing_received() };
    let h = Header::new(PacketKind::Goodbye, greeting.session);
    victim.takes(name, &packet(h, |out| goodbye.emit(out)));
    assert_eq!(victim.vault.sent, [], "the peer has not said who it is");
    assert_eq!(victim.dropped(DropReason::WrongState), 1);
}

/// The Msg_ID of a permission to send.
fn permission(answer: &[Record]) -> u16 {
    let msg_id = answer.iter().find_map(|record| match record {
        Record::Cts(cts) => Some(cts.msg_id),
        _ => None,
    });
    msg_id.expect("permission to send")
}

/// Each second segment leaves a gap; the gaps of one peer are bounded.
#[test]
fn gaps_are_bounded() {
    const GAPS_MAX: u32 = 1 << 13;
    let mut victim = Victim::new(|_| {});
    victim.vault.takes = true;
    let mut stranger = Stranger::new(&mut victim, 1);
    let msg = message(0, (3 * GAPS_MAX * SEGMENT_BYTES).into());
    let answer = stranger.tell(&mut victim, &Record::Rts(msg));
    let msg_id = permission(&answer);
    for n in 0..GAPS_MAX + 10 {
        stranger.fill(&mut victim, msg_id, (2 * n + 1) * SEGMENT_BYTES);
    }
    assert_eq!(victim.dropped(DropReason::Message), 10);
}

/// A read of memory under a key.
fn read(order: u32, key: u64) -> Record {
    let target = Target { addr: 0, len_bytes: 8, key };
    let targets = Targets::new(&[target]).unwrap();
    let action = Action::Read(0x8000 | (order % 1024) as u16);
    Record::Request(RemoteRequest {
        order,
        op: order,
        action,
        operand_bytes: 0,
        data: None,
        targets,
    })
}

fn refusals(records: &[Record]) -> usize {
    let is_refusal = |record: &&Record| matches!(record, Record::Answer(a) if a.refusal.is_some());
    records.iter().filter(is_refusal).count()
}

/// Lets the victim's time pass, waking it when it asks for that; what it sends meanwhile.
fn pass(victim: &mut Victim, ns: u64) -> Vec<Record> {
    let (end, mut out) = (victim.now + ns, Vec::new());
    while let Some(at) = victim.engine.poll_timeout().filter(|at| *at <= end) {
        victim.now = victim.now.max(at);
        victim.engine.handle_timeout(victim.now, &mut victim.vault);
        out.extend(records(&victim.sends()));
    }
    victim.now = victim.now.max(end);
    out
}

const SECOND: u64 = 1_000_000_000;

/// 510 tries found an MPI window's key within 0.25 s.
#[test]
fn a_scan_for_keys_is_slow_from_however_many_sessions() {
    let mut victim = Victim::new(|_| {});
    let mut strangers: Vec<Stranger> =
        (1..=8).map(|port| Stranger::new(&mut victim, port)).collect();
    let (mut answered, mut order) = (0, 0);
    for n in 0..510 {
        let session = n % strangers.len();
        let answer = strangers[session].tell(&mut victim, &read(order, 1 << 40 | n as u64));
        answered += refusals(&answer);
        answered += refusals(&strangers[session].acknowledge(&mut victim));
        order += u32::from(session == strangers.len() - 1);
    }
    let tried = victim.vault.tried.len();
    assert!(tried >= 16 && answered >= 16, "a few mistakes are answered at once: {answered}");
    assert!(tried < 64, "{tried} keys were tried at once");
    // They keep their sessions alive, and get on by a key a second.
    for _ in 0..100 {
        pass(&mut victim, SECOND);
        for stranger in &mut strangers {
            stranger.acknowledge(&mut victim);
        }
    }
    let after = victim.vault.tried.len();
    assert!(after > tried + 50 && after < tried + 150, "{tried} keys at once, {after} in all");
    assert_eq!(victim.engine.stats().sessions_failed, 0);
}

#[test]
fn what_is_not_a_guess_does_not_wait_for_refusals() {
    let mut victim = Victim::new(|_| {});
    victim.vault.takes = true;
    let mut stranger = Stranger::new(&mut victim, 1);
    let mut neighbour = Stranger::new(&mut victim, 2);
    neighbour.tell(&mut victim, &read(0, RIGHT_KEY));
    for order in 0..30 {
        stranger.tell(&mut victim, &read(order, 0));
    }
    assert_eq!(victim.vault.tried.len(), 31, "its refusals are late, its requests are not");
    stranger.tell(&mut victim, &Record::Eager(message(30, 0)));
    assert_eq!(victim.vault.whole.len(), 1, "messages have their turn");
    for order in 31..100 {
        stranger.tell(&mut victim, &read(order, 0));
    }
    let tried = victim.vault.tried.len();
    assert!(tried < 64, "{tried} keys were tried at once");
    neighbour.tell(&mut victim, &read(1, RIGHT_KEY));
    assert_eq!(victim.vault.tried.len(), tried + 1, "a key that has proven right is no guess");
    let mut late = 0;
    for _ in 0..200 {
        late += refusals(&pass(&mut victim, SECOND));
        late += refusals(&stranger.acknowledge(&mut victim));
        neighbour.acknowledge(&mut victim);
    }
    assert_eq!(victim.vault.tried.len(), 101, "each has its turn");
    assert!(late > 60, "and is answered in the end: {late}");
}

#[test]
fn keys_that_stood_lately_are_refused_at_once() {
    let mut victim = Victim::new(|_| {});
    victim.vault.keys_stood = true;
    let mut stranger = Stranger::new(&mut victim, 1);
    let mut answered = 0;
    for order in 0..200 {
        answered += refusals(&stranger.tell(&mut victim, &read(order, 0)));
        answered += refusals(&stranger.acknowledge(&mut victim));
    }
    assert_eq!((victim.vault.tried.len(), answered), (200, 200));
}

const BUDGET_BYTES: u64 = 4 << 20;
const NAMES: u16 = 300;

/// What costs nothing of the budget, being part of what a peer's entry costs.
const FREE_BYTES: u64 = NAMES as u64 * (ORDERS_LEAST * MESSAGE_COST_BYTES) as u64;

fn poor(config: &mut Config) {
    config.unexpected_bytes = BUDGET_BYTES;
}

/// A stranger's message that nobody waits for is announced, and gets its permission once it is wanted.
fn is_served(victim: &mut Victim, stranger: &mut Stranger) {
    victim.vault.takes = true;
    let order = stranger.order;
    let answer = stranger.tell(victim, &Record::Rts(message(order, LEN_BYTES.into())));
    permission(&answer);
}

#[test]
fn what_many_names_claim_stays_within_the_budget() {
    let mut victim = Victim::new(poor);
    let mut granted_bytes = 0;
    for port in 1..=NAMES {
        let mut stranger = Stranger::new(&mut victim, port);
        granted_bytes += u64::from(stranger.victim.eager_credit_bytes);
        // As much as it may, and then more.
        let most = stranger.victim.eager_credit_bytes;
        stranger.begin_eager(&mut victim, &message(0, most.max(2).into()));
        stranger.begin_eager(&mut victim, &message(1, 1 << 20));
    }
    assert!(granted_bytes <= BUDGET_BYTES, "{granted_bytes} bytes were granted");
    assert!(victim.engine.lent_bytes() <= BUDGET_BYTES);
    assert!(victim.held_bytes() <= BUDGET_BYTES + FREE_BYTES);
    assert!(victim.dropped(DropReason::Credit) >= u64::from(NAMES));
    let mut honest = Stranger::new(&mut victim, NAMES + 1);
    is_served(&mut victim, &mut honest);
}

#[test]
fn who_uses_little_credit_gets_more() {
    let mut victim = Victim::new(poor);
    let mut first: Vec<_> = (1..=60).map(|port| Stranger::new(&mut victim, port)).collect();
    let grants: Vec<_> = first.iter().map(|s| s.victim.eager_credit_bytes).collect();
    assert!(grants.is_sorted_by(|a, b| a >= b) && grants[0] > grants[59], "{grants:?}");
    let last = &mut first[59];
    let before = victim.engine.lent_bytes();
    let segments = grants[59] / SEGMENT_BYTES;
    for order in 0..segments {
        last.fill_eager(&mut victim, &message(order, SEGMENT_BYTES.into()), 0);
    }
    assert!(victim.engine.lent_bytes() > before, "a window that is used grows");
}

/// Messages that came whole can be received after their session's end, so they are charged until they
/// are.
#[test]
fn sessions_leave_no_more_behind_than_the_budget() {
    let mut victim = Victim::new(poor);
    for epoch in 1..=2 * u64::from(NAMES) {
        let mut stranger = Stranger::restarted(&mut victim, 1, epoch);
        for order in 0..40 {
            let msg = message(order, SEGMENT_BYTES.into());
            stranger.fill_eager(&mut victim, &msg, 0);
        }
    }
    let left = victim.held_bytes();
    assert!(left <= BUDGET_BYTES + FREE_BYTES, "{left} bytes are held");
    assert!(left > BUDGET_BYTES / 2, "most of the budget is used");
    assert!(victim.engine.lent_bytes() <= BUDGET_BYTES + FREE_BYTES);
    let mut honest = Stranger::new(&mut victim, 2);
    is_served(&mut victim, &mut honest);
    // All that is taken gives the memory back.
    for arrived in std::mem::take(&mut victim.vault.waiting) {
        victim.engine.release(arrived.msg);
    }
    let next = Stranger::new(&mut victim, 3);
    let greeting = next.victim;
    // The two sessions that stand have a little.
    let most = (BUDGET_BYTES / 32) as u32;
    assert!(greeting.eager_credit_bytes > most - most / 16, "{greeting:?}");
}
