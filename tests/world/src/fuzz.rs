//! The bodies of the fuzz targets, shared with the test that replays their corpus.

use super::app::Class;
use super::ledger::{Outgoing, Rules};
use super::memory;
use super::net::{Datagram, Fate, Faults, header};
use super::node::Post;
use super::rng::Rng;
use super::script::{ANY_FAILURE, PATIENCE_NS, world};
use super::sim::{Action, World};
use super::swarm::add_stats;
use super::toy::{Said, Toy, set_checksum};
use erd_rd::keys::KeySet;
use erd_rd::units::{MICROSECOND, MILLISECOND, SECOND};
use erd_rd::wire::Reader;
use erd_rd::wire::ack::{AckState, Sections, emit_sections};
use erd_rd::wire::header::{
    FLAG_ACK, FLAG_ACK_REQUEST, FLAG_EAGER, FLAG_PAYLOAD_CRC, HEADER_BYTES, Header, KEYED_VERSION,
    PacketKind, seal,
};
use erd_rd::wire::record::{Cts, MsgHeader, Record, emit_eager_header, parse_eager_header};
use erd_rd::wire::remote::{Action as Access, Answer, RemoteRequest};
use erd_rd::wire::setup::{Asker, Goodbye, Greeting, Question};
use erd_rd::wire::window::Window;
use erd_rd::{Atomic, Ecn, Form, Nanos, Refusal, Stats, Target, Targets};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

/// Most steps of one input; the rest of it is ignored.
pub(super) const STEPS_MAX: u32 = 150;
/// Payload that one input may post.
pub(super) const PAYLOAD_MAX_BYTES: u64 = 4 << 20;
/// Real datagrams remembered for replay and mutation.
const RECORDED_MAX: usize = 64;

/// Every parser on the same bytes. Parsed packets are written and parsed again, and must be the same.
pub fn wire(data: &[u8]) {
    if let Ok(header) = Header::parse(data) {
        let mut out = Vec::new();
        header.emit(&mut out);
        assert_eq!(Header::parse(&out), Ok(header));
    }
    for keyed in [false, true] {
        again(data, |r| Greeting::parse(r, keyed).ok(), |g, out| g.emit(out));
        again(data, |r| Asker::parse(r, keyed).ok(), |a, out| a.emit(out));
        again(data, |r| Goodbye::parse(r, keyed).ok(), |g, out| g.emit(out));
    }
    again(data, |r| AckState::parse(r).ok(), |a, out| a.emit(out));
    again(
        data,
        |r| Record::parse(r).ok(),
        |record, out| {
            record.emit(out);
            assert_eq!(out.len(), record.header_bytes(), "{record:?}");
        },
    );
    let _ = parse_eager_header(&mut Reader::new(data));
    if let Ok(s) = Sections::parse(&mut Reader::new(data)) {
        let (sack, nacks) = (s.sack_words().collect::<Vec<_>>(), s.nacks().collect::<Vec<_>>());
        let echoes: Vec<_> = s.echoes().collect();
        let mut out = Vec::new();
        emit_sections(&mut out, s.sack_base_psn, sack.iter().copied(), &nacks, &echoes);
        let t = Sections::parse(&mut Reader::new(&out)).expect("what was written is read");
        assert!(sack.into_iter().eq(t.sack_words()) && nacks.into_iter().eq(t.nacks()));
        assert!(echoes.into_iter().eq(t.echoes()));
    }
}

fn again<T: PartialEq + std::fmt::Debug>(
    data: &[u8],
    parse: impl Fn(&mut Reader<'_>) -> Option<T>,
    emit: impl Fn(&T, &mut Vec<u8>),
) {
    let Some(first) = parse(&mut Reader::new(data)) else {
        return;
    };
    let mut out = Vec::new();
    emit(&first, &mut out);
    assert_eq!(parse(&mut Reader::new(&out)), Some(first));
}

/// Reads decisions from an input; an empty input decides 0.
pub(super) struct Input<'a>(pub(super) &'a [u8]);

impl<'a> Input<'a> {
    pub(super) fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        *first
    }

    pub(super) fn bytes(&mut self, n: usize) -> &'a [u8] {
        let (head, rest) = self.0.split_at(n.min(self.0.len()));
        self.0 = rest;
        head
    }

    pub(super) fn below(&mut self, n: usize) -> usize {
        usize::from(self.byte()) % n
    }

    /// Lengths around every limit of the protocol.
    pub(super) fn len_bytes(&mut self) -> u64 {
        let near = [0, 1, 64, 512, 1300, 1472, 4096, 16 << 10, 17 << 10, 64 << 10, 300 << 10];
        near[self.below(near.len())] + u64::from(self.byte() % 4)
    }

    pub(super) fn span_ns(&mut self) -> Nanos {
        let spans = [1, 20, 200, 1000, 10_000, 100_000, 1_100_000];
        spans[self.below(spans.len())] * MICROSECOND
    }

    pub(super) fn class(&mut self) -> Class {
        [Class::Untagged, Class::Tag(0), Class::Tag(1), Class::AnyTag][self.below(4)]
    }

    fn msg_header(&mut self, near: u32) -> MsgHeader {
        let bits = self.byte();
        let lens = [0, 1, 64, 5000, 60_000, 1 << 20, 1 << 40, u64::MAX];
        MsgHeader {
            order: near.wrapping_add(u32::from(self.byte() % 8)).wrapping_sub(3),
            op: u32::from(self.byte() % 6),
            tag: (bits & 1 != 0).then_some(u64::from(bits >> 4)),
            data: (bits & 2 != 0).then_some(7),
            match_notice: bits & 4 != 0,
            len_bytes: lens[self.below(lens.len())],
        }
    }

    /// A record whose numbers may be real ones. Bundled messages are short.
    pub(super) fn record(&mut self, near: u32) -> Record {
        let msg = self.msg_header(near);
        let bytes = [0, 1, 1000, 1 << 20, 1 << 30, u64::MAX];
        let choice = self.byte();
        if choice >= 0xc0 {
            return self.memory_record(&msg);
        }
        match choice % 4 {
            0 => Record::Eager(MsgHeader { len_bytes: msg.len_bytes % 200, ..msg }),
            1 => Record::Rts(msg),
            2 => Record::Cts(Cts {
                order: msg.order,
                op: msg.op,
                msg_id: 0x8000 | u16::from(self.byte() % 4),
                base_bytes: bytes[self.below(6)],
                len_bytes: bytes[self.below(5)] as u32,
                total_bytes: bytes[self.below(6)],
            }),
            _ => Record::Matched { op: msg.op, order: msg.order },
        }
    }

    /// An acknowledgement with limits of any size.
    fn ack_state(&mut self, near: u32) -> AckState {
        let psn = near.wrapping_sub(u32::from(self.byte()));
        let limit = u32::from(self.byte()) << 24;
        AckState {
            cum_psn: psn,
            high_psn: psn.wrapping_add(u32::from(self.byte())),
            echo_path: self.byte(),
            flags: self.byte(),
            eager_limit_bytes: limit,
            order_limit: limit,
            window: Window::from_bits(limit),
            ..AckState::default()
        }
    }

    /// A record about memory whose numbers may be real ones.
    fn memory_record(&mut self, msg: &MsgHeader) -> Record {
        let (order, op) = (msg.order, msg.op);
        let msg_id = 0x8000 | u16::from(self.byte() % 4);
        let bits = self.byte();
        let lens = [0, 8, 64, 512];
        let len_bytes = lens[usize::from(bits >> 6)];
        match bits % 4 {
            0 => Record::Done { first: order, last: order.wrapping_add(u32::from(self.byte())) },
            1 => Record::Answer(Answer {
                order,
                op,
                msg_id,
                refusal: (bits & 4 != 0).then_some(Refusal::Bounds),
                len_bytes: len_bytes as u16,
                sent_bytes: self.byte().into(),
            }),
            _ => {
                let form = [Form::Update, Form::Fetch, Form::Compare][self.below(3)];
                let atomic = Atomic { op: self.byte(), datatype: self.byte(), form };
                let actions = [
                    Access::Write,
                    Access::WriteLater,
                    Access::Read(msg_id),
                    Access::Atomic(atomic),
                ];
                let action = actions[self.below(4)];
                let addr = u64::from(self.byte()) << 32;
                let targets = [Target { addr, len_bytes, key: self.byte().into() }];
                let operand_bytes = match action {
                    Access::Write => len_bytes,
                    Access::WriteLater | Access::Read(_) => 0,
                    Access::Atomic(_) if form == Form::Compare => 2 * len_bytes,
                    Access::Atomic(_) => len_bytes,
                };
                Record::Request(RemoteRequest {
                    order,
                    op,
                    action,
                    operand_bytes: operand_bytes as u16,
                    data: msg.data,
                    targets: Targets::new(&targets).expect("one target"),
                })
            }
        }
    }

    /// A message, or a request to memory.
    pub(super) fn post(&mut self, to: usize, left_bytes: &mut u64) -> Post {
        let out = self.message(to, left_bytes);
        if self.0.first().is_none_or(|byte| *byte < 0xc0) {
            return Post::Send(out);
        }
        let mut rng = Rng::new(u64::from(self.byte()) << 8 | u64::from(self.byte()), 0);
        Post::Rma(memory::draw(&mut rng, to, out.len_bytes.max(8)))
    }

    fn message(&mut self, to: usize, left_bytes: &mut u64) -> Outgoing {
        let len_bytes = self.len_bytes().min(*left_bytes);
        *left_bytes -= len_bytes;
        let bits = self.byte();
        Outgoing {
            to,
            len_bytes,
            tag_class: (bits & 1 != 0).then_some(bits >> 1 & 1),
            data: bits & 4 != 0,
            match_complete: bits & 8 != 0,
        }
    }
}

/// A live session between two engines, and an attacker that sends datagrams to both.
struct Attack {
    world: World,
    recorded: Rc<RefCell<VecDeque<Datagram>>>,
    /// Loses this many of the next real datagrams.
    intercept: Rc<Cell<u32>>,
    left_bytes: u64,
    /// The attacker knows how to seal a header. Otherwise everything is judged strictly.
    forges: bool,
    /// The key of the job; whoever forges has it too.
    key: Option<Toy>,
    /// The random bytes of the latest real greetings, each with its writer's session id.
    randoms: Rc<RefCell<VecDeque<(u64, Question)>>>,
}

/// The session id and the random bytes that a greeting tells.
fn random_of(key: Toy, bytes: &[u8]) -> Option<(u64, Question)> {
    let is_greeting = |h: &Header| matches!(h.kind, PacketKind::Hello | PacketKind::Welcome);
    header(bytes).filter(is_greeting)?;
    let (plain, _) = key.unsealed(bytes)?;
    let greeting = Greeting::parse(&mut Reader::new(&plain[HEADER_BYTES..]), true).ok()?;
    Some((greeting.session, greeting.random?))
}

/// Adds to the end, and makes room at the begin.
fn remember<T>(all: &mut VecDeque<T>, one: T) {
    if all.len() == RECORDED_MAX {
        all.pop_front();
    }
    all.push_back(one);
}

impl Attack {
    fn new(input: &mut Input<'_>, keyed: bool) -> Attack {
        let bits = input.byte();
        let key = keyed.then_some(Toy { id: 1, hides: bits & 16 != 0 });
        let rules = Rules { timeouts: true, ..Rules::default() };
        let mut world = world(2, rules, |s| {
            s.config.payload_checksum = true;
            if let Some(key) = key {
                s.config.keys = KeySet::one(Arc::new(key));
            }
            if bits & 1 != 0 {
                s.config.eager_credit_bytes = 20_000;
                s.config.unexpected_messages = 4;
            }
            s.config.first_psn =
                [Some(0), Some(u32::MAX), Some(0x7fff_fffe), None][usize::from(bits >> 1 & 3)];
        });
        let recorded = Rc::new(RefCell::new(VecDeque::new()));
        let intercept = Rc::new(Cell::new(0u32));
        let randoms = Rc::new(RefCell::new(VecDeque::new()));
        let (log, left, told) = (Rc::clone(&recorded), Rc::clone(&intercept), Rc::clone(&randoms));
        world.net.filter = Some(Box::new(move |datagram, _| {
            remember(&mut log.borrow_mut(), datagram.clone());
            if let Some(random) = key.and_then(|key| random_of(key, &datagram.bytes)) {
                remember(&mut told.borrow_mut(), random);
            }
            let kept = left.get() > 0;
            left.set(left.get().saturating_sub(1));
            if kept { Fate::Drop } else { Fate::Pass }
        }));
        let mut attack = Attack {
            world,
            recorded,
            intercept,
            left_bytes: PAYLOAD_MAX_BYTES,
            forges: bits & 8 != 0,
            key,
            randoms,
        };
        attack.warm_up();
        attack
    }

    /// Opens the session and leaves a bit of everything under way.
    fn warm_up(&mut self) {
        for (from, to) in [(0, 1), (1, 0)] {
            self.world.want(to, 64);
            self.world.post(from, to, 64);
            self.world.post(from, to, 2000);
            self.world.post(from, to, 40 << 10);
        }
        self.world.run_for(MILLISECOND);
    }

    fn inject(&mut self, to: usize, bytes: Vec<u8>) {
        let datagram = Datagram {
            from: 1 - to,
            to,
            path: 0,
            ecn: Ecn::NotEct,
            stamped_at: 0,
            trimmed: false,
            info_path: false,
            may_fragment: false,
            bytes,
        };
        self.world.inject(datagram);
    }

    /// A real datagram, the newest first.
    fn pick(&self, input: &mut Input<'_>) -> Option<Datagram> {
        let recorded = self.recorded.borrow();
        let back = input.below(recorded.len().max(1));
        recorded.iter().rev().nth(back).cloned()
    }

    /// As [`Attack::pick`], without its proof, and the counter for a forgery that takes its place.
    fn pick_plain(&self, input: &mut Input<'_>) -> Option<(Datagram, u64)> {
        let mut datagram = self.pick(input)?;
        let Some(key) = self.key else { return Some((datagram, 0)) };
        let (plain, counter) = key.unsealed(&datagram.bytes)?;
        datagram.bytes = plain;
        let ahead = [1, 0, 64, 1 << 14, 1 << 22, 1 << 63][input.below(6)];
        Some((datagram, counter.wrapping_add(ahead)))
    }

    fn mutate(&mut self, input: &mut Input<'_>, sealed: bool) {
        let picked = match sealed {
            true => self.pick_plain(input),
            false => self.pick(input).map(|datagram| (datagram, 0)),
        };
        let Some((mut datagram, counter)) = picked else {
            return;
        };
        for _ in 0..=input.below(4) {
            let at = usize::from(u16::from_be_bytes([input.byte(), input.byte()]));
            let len = datagram.bytes.len();
            datagram.bytes[at % len] ^= input.byte();
        }
        if sealed {
            self.reseal(&mut datagram.bytes);
            self.prove(&mut datagram, counter);
        } else if self.key.is_some() && input.byte() & 1 != 0 {
            // Who has no key can do this too.
            set_checksum(&mut datagram.bytes);
        }
        self.inject(datagram.to, datagram.bytes);
    }

    /// A damaged copy comes instead of the next real datagram.
    fn replace_next(&mut self, input: &mut Input<'_>) {
        self.intercept.set(1);
        let until = self.world.now + MILLISECOND;
        while self.intercept.get() > 0 && self.world.step(until) {}
        if self.intercept.get() > 0 {
            return;
        }
        let Some(mut datagram) = self.recorded.borrow().back().cloned() else {
            return;
        };
        let at = usize::from(u16::from_be_bytes([input.byte(), input.byte()]));
        let len = datagram.bytes.len();
        datagram.bytes[at % len] ^= input.byte();
        self.inject(datagram.to, datagram.bytes);
    }

    /// Makes the header checksum right: from here on the attacker may claim anything, and only the callbacks' contract
    /// and the limits are judged.
    fn reseal(&mut self, bytes: &mut [u8]) {
        if bytes.len() >= HEADER_BYTES {
            match self.key {
                Some(_) => set_checksum(bytes),
                None => seal(bytes, 0, crc32c::crc32c_append),
            }
            self.world.ledger.rules = Rules { forged: true, ..ANY_FAILURE };
        }
    }

    /// Adds the proof of a packet that the attacker made.
    fn prove(&self, datagram: &mut Datagram, counter: u64) {
        let Some(key) = self.key else { return };
        let session = header(&datagram.bytes).map_or(0, |h| h.session);
        let randoms = self.randoms.borrow();
        let random = randoms.iter().rev().find(|(id, _)| *id == session);
        let [writer, reader] =
            [datagram.from, datagram.to].map(|node| self.world.nodes[node].setup.config.name);
        let question = random.map_or(&[][..], |(_, random)| random);
        let said = Said { writer, reader, question };
        datagram.bytes = key.sealed(counter, &datagram.bytes, &said);
    }

    /// A real header with another kind or fields, and a body of the input's choice.
    fn forge(&mut self, input: &mut Input<'_>) {
        let Some((mut datagram, counter)) = self.pick_plain(input) else {
            return;
        };
        datagram.bytes.truncate(HEADER_BYTES);
        datagram.bytes[0] = (datagram.bytes[0] & 0xf0) | (input.byte() % 10);
        if input.byte() & 1 != 0 {
            datagram.bytes[1..16].iter_mut().for_each(|b| *b = input.byte());
        }
        let body = input.below(200);
        datagram.bytes.extend_from_slice(input.bytes(body));
        let len = (datagram.bytes.len() - HEADER_BYTES) as u16;
        datagram.bytes[4..6].copy_from_slice(&len.to_be_bytes());
        self.reseal(&mut datagram.bytes);
        self.prove(&mut datagram, counter);
        self.inject(datagram.to, datagram.bytes);
    }

    /// A well-formed data packet of the session, with numbers near the real ones.
    fn forge_data(&mut self, input: &mut Input<'_>) {
        let Some((mut datagram, counter)) = self.pick_plain(input) else {
            return;
        };
        let Some(real) = header(&datagram.bytes) else {
            return;
        };
        let flags = FLAG_PAYLOAD_CRC | (input.byte() & FLAG_ACK_REQUEST);
        let psn = real.psn.wrapping_add(u32::from(input.byte() % 16)).wrapping_sub(4);
        let mut h = Header { flags, psn, ..Header::new(PacketKind::Data, real.session) };
        let mut body = Vec::new();
        let mut payload = vec![0x5a; input.below(64)];
        if input.byte() & 1 == 0 {
            let records: Vec<Record> = (0..=input.below(3)).map(|_| input.record(psn)).collect();
            body.extend_from_slice(&(records.len() as u16).to_be_bytes());
            records.iter().for_each(|record| record.emit(&mut body));
            payload = vec![0x5a; records.iter().map(Record::payload_bytes).sum()];
            h.s_len = (body.len() + payload.len()) as u16;
        } else {
            h.long = true;
            h.msg_id = [0x8000, 0x8001, 0, 0xffff][input.below(4)];
            h.s_offset = u32::from(input.byte()) * [1, 1436, 1 << 24][input.below(3)];
            h.s_len = payload.len() as u16;
            if input.byte() & 1 == 0 {
                h.flags |= FLAG_EAGER;
                emit_eager_header(&mut body, &input.msg_header(psn));
                if input.byte() & 1 == 0 {
                    h.flags |= FLAG_ACK;
                    input.ack_state(psn).emit(&mut body);
                }
            }
        }
        datagram.bytes.clear();
        h.emit(&mut datagram.bytes);
        if self.key.is_some() {
            datagram.bytes[0] = datagram.bytes[0] & 0x8f | KEYED_VERSION << 4;
        }
        datagram.bytes.extend_from_slice(&body);
        self.reseal(&mut datagram.bytes);
        datagram.bytes.extend_from_slice(&payload);
        let sum = crc32c::crc32c(&payload);
        datagram.bytes.extend_from_slice(&sum.to_be_bytes());
        self.prove(&mut datagram, counter);
        self.inject(datagram.to, datagram.bytes);
    }

    fn step(&mut self, input: &mut Input<'_>) {
        let node = input.below(2);
        match input.below(11) {
            0 => {
                let len = input.below(256);
                self.inject(node, input.bytes(len).to_vec());
            }
            1 => self.mutate(input, false),
            2 => self.mutate(input, self.forges),
            3 => {
                if let Some(datagram) = self.pick(input) {
                    self.inject(datagram.to, datagram.bytes);
                }
            }
            4 => self.world.run_for(input.span_ns()),
            5 => {
                let post = input.post(1 - node, &mut self.left_bytes);
                self.world.post_to(node, 1 - node, &post);
            }
            6 => {
                let (class, len) = (input.class(), input.len_bytes());
                self.world.recv(node, None, class, len);
            }
            7 if self.forges => self.forge(input),
            8 if self.forges => self.forge_data(input),
            9 => self.intercept.set(1 + input.below(8) as u32),
            _ => self.replace_next(input),
        }
    }
}

/// Two nodes still reach each other; after forgeries, in a new session.
pub(super) fn finish(mut world: World) -> Stats {
    let forged = world.ledger.rules.forged;
    world.calm();
    if forged {
        world.run_for(5 * SECOND);
        world.act(Action::Forget(0, 1));
        world.act(Action::Forget(1, 0));
        world.run_for(5 * SECOND);
        world.ledger.rules = ANY_FAILURE;
    }
    world.settle(PATIENCE_NS);
    reach_each_other(&mut world);
    sum(&world)
}

/// Statistics of all engines of a world together.
fn sum(world: &World) -> Stats {
    let mut sum = Stats::default();
    world.all_stats().iter().for_each(|stats| add_stats(&mut sum, stats));
    sum
}

/// Arbitrary, mutated, forged and replayed datagrams into a live session.
pub fn session(data: &[u8]) -> Stats {
    attack(data, false)
}

/// The same against a job with a key, which the attacker has too where it forges.
pub fn keyed(data: &[u8]) -> Stats {
    attack(data, true)
}

fn attack(data: &[u8], keyed: bool) -> Stats {
    let mut input = Input(data);
    let mut attack = Attack::new(&mut input, keyed);
    for _ in 0..STEPS_MAX {
        if input.0.is_empty() {
            break;
        }
        attack.step(&mut input);
    }
    finish(attack.world)
}

/// A list of operations and faults on three engines.
pub fn operations(data: &[u8]) -> Stats {
    let mut input = Input(data);
    let bits = input.byte();
    let mut w = world(3, ANY_FAILURE, |s| {
        s.config.payload_checksum = bits & 1 != 0;
        s.config.sends_max = if bits & 2 != 0 { 3 } else { 1 << 16 };
        s.config.unexpected_messages = if bits & 4 != 0 { 2 } else { 1 << 16 };
        s.config.eager_credit_bytes = if bits & 8 != 0 { 5_000 } else { 1 << 20 };
        s.config.first_psn = if bits & 16 != 0 { Some(u32::MAX - 1) } else { None };
        s.scheme.window_bytes = if bits & 32 != 0 { 3_000 } else { 256 << 10 };
    });
    if bits & 64 != 0 {
        w.net.links.jitter_ns = 40 * MICROSECOND;
    }
    if bits & 128 != 0 {
        let delay = (20 * MILLISECOND, 2 * MILLISECOND);
        w.net.faults = Faults {
            loss: 0.05,
            duplicate: 0.1,
            duplicate_delay_ns: delay.0,
            corrupt: 0.02,
            corrupt_header_only: bits & 1 == 0,
            spike: 0.05,
            spike_ns: delay.1,
            ..Faults::default()
        };
    }
    let mut left_bytes = PAYLOAD_MAX_BYTES;
    for _ in 0..STEPS_MAX {
        if input.0.is_empty() {
            break;
        }
        operate(&mut w, &mut input, &mut left_bytes);
    }
    w.calm();
    w.settle(PATIENCE_NS);
    reach_each_other(&mut w);
    sum(&w)
}

fn operate(w: &mut World, input: &mut Input<'_>, left_bytes: &mut u64) {
    let (node, other) = (input.below(3), input.below(3));
    match input.below(12) {
        0..=2 => {
            let post = input.post(other, left_bytes);
            w.post_to(node, other, &post);
        }
        3 | 4 => {
            let source = (input.byte() & 1 != 0).then_some(other);
            let (class, capacity_bytes) = (input.class(), input.len_bytes());
            w.act(Action::Recv { node, source, class, capacity_bytes });
        }
        5 | 6 => w.run_for(input.span_ns()),
        7 => w.act(Action::Discard(node)),
        8 => w.act(Action::Stall(node, w.now + input.span_ns())),
        9 => w.act(Action::Cut(1 << node, w.now + input.span_ns())),
        10 => w.act(match input.below(3) {
            0 => Action::Kill(node),
            1 => Action::Restart(node),
            _ => Action::Forget(node, other),
        }),
        _ => {
            let part = |byte: u8| f64::from(byte % 64) / 256.0;
            w.net.faults = Faults {
                loss: part(input.byte()),
                duplicate: part(input.byte()),
                duplicate_delay_ns: 20 * MILLISECOND,
                spike: part(input.byte()),
                spike_ns: 5 * MILLISECOND,
                ..Faults::default()
            };
        }
    }
}

/// Without faults, at last, every living node reaches every other.
fn reach_each_other(w: &mut World) {
    let living: Vec<usize> = (0..w.nodes.len()).filter(|n| w.lives(*n)).collect();
    let mut failed = usize::MAX;
    // A session that only one side still believes in costs a message before it is replaced.
    for _ in 0..3 {
        let first = w.ledger.sends.len();
        for from in &living {
            for to in &living {
                w.post(*from, *to, 3000);
            }
        }
        w.settle(PATIENCE_NS);
        let sends = first..w.ledger.sends.len();
        failed = sends.filter(|id| w.outcome(*id) != Some(Ok(()))).count();
    }
    assert_eq!(failed, 0, "sends fail without faults");
}
