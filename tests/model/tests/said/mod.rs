//! What processes were asked to say and what they heard, so that what they tell can be held against it.

use erd_model::trace::wire::{
    Access, Body, Carried, Greeting, KEYED_VERSION, Message, PacketRead, Proof, RecordRead,
    Request, State, VERSION, flags, read,
};
use erd_world::ledger::Life;
use erd_world::record::{self, Born, Kind, Packet, Posted};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

/// What a message says: length, tag, data, and whether it wants a notice.
type Words = (u64, Option<u64>, Option<u64>, bool);
/// What a request says: its kind, length and data.
type Question = (u8, u64, Option<u64>);

/// What a peer has used of the credit of a session.
#[derive(Default)]
struct Used {
    orders: BTreeSet<u32>,
    eager_bytes: u64,
}

/// What one process was asked to tell one peer, and heard of it.
#[derive(Default)]
struct Talk {
    messages: BTreeSet<Words>,
    requests: BTreeSet<Question>,
    /// Send times of the peer's packets.
    sent: BTreeSet<u32>,
    /// Session ids that the peer told.
    sessions: BTreeSet<u64>,
    /// By the session id of the process: a welcome that is repeated beside the peer's first data tells credit that was
    /// given back for these.
    used: BTreeMap<u64, Used>,
    /// Messages and requests of the peer, by order and op.
    heard: BTreeSet<(u32, u32)>,
    /// The process's own messages that the peer has matched, by order.
    matched: BTreeSet<u32>,
    /// Links that the peer permits, by Msg_ID, with the longest.
    links: BTreeMap<u16, u64>,
    /// The peer has probed.
    probed: bool,
}

/// See the module.
#[derive(Default)]
pub struct Said {
    born: BTreeMap<Life, Born>,
    talks: BTreeMap<(Life, SocketAddr), Talk>,
}

fn words(message: &Message) -> Words {
    (message.len, message.tag, message.data, message.match_notice)
}

fn question(request: &Request) -> Question {
    let kind = match request.access {
        Access::Write | Access::WriteAnnounced => 0,
        Access::Read { .. } => 1,
        Access::Atomic { operation, .. } => 2 + operation,
    };
    (kind, request.len(), request.data)
}

/// Shapes of packets, of which each occurs in some run.
pub const NAMES: &[&str] = &[
    "hello",
    "challenge",
    "welcome",
    "reset",
    "goodbye",
    "goodbye confirmation",
    "other version",
    "probe",
    "size probe",
    "size answer",
    "acknowledgement",
    "acknowledgement with words",
    "acknowledgement with ranges",
    "acknowledgement with records",
    "eager record",
    "announcement",
    "permission",
    "matched",
    "riding record",
    "write",
    "announced write",
    "read",
    "atomic",
    "answer",
    "done",
    "eager segment",
    "riding state",
    "segment",
    "void segment",
    "with a counter",
    "with a key",
    "without a key",
];

/// The shapes that a packet has.
pub fn names(packet: &PacketRead) -> Vec<&'static str> {
    let mut names = vec![match packet.proof {
        Proof::None => "without a key",
        Proof::Counter(_) => "with a counter",
        Proof::Key(_) => "with a key",
    }];
    match &packet.body {
        Body::Hello(_) => names.push("hello"),
        Body::Challenge { .. } => names.push("challenge"),
        Body::Welcome(_) => names.push("welcome"),
        Body::Reset { .. } => names.push("reset"),
        Body::GoodbyeAck { .. } => names.push("goodbye confirmation"),
        Body::Version { .. } => names.push("other version"),
        Body::Port => {}
        Body::Probe { .. } => names.push("probe"),
        Body::Goodbye { .. } => names.push("goodbye"),
        Body::SizeProbe { .. } => names.push("size probe"),
        Body::SizeAnswer { .. } => names.push("size answer"),
        Body::Ack(ack) => {
            names.push("acknowledgement");
            names.extend((!ack.words.is_empty()).then_some("acknowledgement with words"));
            names.extend((!ack.ranges.is_empty()).then_some("acknowledgement with ranges"));
            names.extend((!ack.records.is_empty()).then_some("acknowledgement with records"));
        }
        Body::Data(data) => match &data.carries {
            Carried::Bundle(records) => names.extend(records.iter().map(name)),
            Carried::EagerSegment { ack, .. } => {
                names.push("eager segment");
                names.extend(ack.map(|_| "riding state"));
            }
            Carried::Segment { void: true, .. } => names.push("void segment"),
            Carried::Segment { .. } => names.push("segment"),
            Carried::Trimmed => {}
        },
    }
    names
}

fn name(record: &RecordRead) -> &'static str {
    match record {
        RecordRead::Eager(_) => "eager record",
        RecordRead::Announcement(_) => "announcement",
        RecordRead::Permission { .. } => "permission",
        RecordRead::Matched { .. } => "matched",
        RecordRead::Ack(_) => "riding record",
        RecordRead::Request(request) => match request.access {
            Access::Write => "write",
            Access::WriteAnnounced => "announced write",
            Access::Read { .. } => "read",
            Access::Atomic { .. } => "atomic",
        },
        RecordRead::Answer(_) => "answer",
        RecordRead::Done { .. } => "done",
    }
}

impl Said {
    pub fn born(&mut self, life: Life, born: Born) {
        self.born.insert(life, born);
    }

    fn talk(&mut self, life: Life, peer: SocketAddr) -> &mut Talk {
        self.talks.entry((life, peer)).or_default()
    }

    pub fn posted(&mut self, life: Life, posted: &Posted) {
        let peer = posted.peer.address.expect("the application names its peer").name;
        let Posted { kind, len_bytes, data, .. } = *posted;
        let talk = self.talk(life, peer);
        let kind = match kind {
            Kind::Message { tag, match_notice } => {
                talk.messages.insert((len_bytes, tag, data, match_notice));
                return;
            }
            Kind::Request(record::Access::Write) => 0,
            Kind::Request(record::Access::Read) => 1,
            Kind::Request(record::Access::Atomic(atomic)) => 2 + atomic.op,
        };
        talk.requests.insert((kind, len_bytes, data));
    }

    /// Notes what a process hears, if it is whole.
    pub fn hear(&mut self, life: Life, packet: &Packet) {
        let Ok(read) = read(packet) else { return };
        let talk = self.talk(life, packet.from);
        talk.sent.insert(read.header.sent);
        match &read.body {
            Body::Hello(greeting) | Body::Welcome(greeting) => {
                talk.sessions.insert(greeting.session);
            }
            Body::Probe { .. } => talk.probed = true,
            Body::Data(data) => {
                talk.used.entry(read.header.session).or_default().note(&data.carries);
                match &data.carries {
                    Carried::Bundle(records) => records.iter().for_each(|record| talk.hear(record)),
                    Carried::EagerSegment { message, .. } => talk.hear_message(message),
                    Carried::Segment { .. } | Carried::Trimmed => {}
                }
            }
            _ => {}
        }
    }

    /// Judges a packet that a process tells.
    pub fn judge(&mut self, life: Life, packet: &Packet, read: &PacketRead) {
        let born = self.born[&life].clone();
        let talk = self.talk(life, packet.to);
        assert_eq!(packet.from, born.name);
        match &read.body {
            Body::Hello(greeting) => {
                judge_greeting(&born, greeting, talk.used.get(&greeting.session));
                assert_eq!(read.header.session, 0, "{read:?}");
            }
            Body::Welcome(greeting) => {
                judge_greeting(&born, greeting, talk.used.get(&greeting.session));
                assert!(talk.sessions.contains(&read.header.session), "{read:?}");
                assert!(talk.sent.contains(&greeting.echoed), "{read:?}");
            }
            Body::Challenge { epoch, .. } => assert_eq!(*epoch, born.epoch, "{read:?}"),
            Body::Version { spoken, .. } => {
                let version = if born.keys.is_empty() { VERSION } else { KEYED_VERSION };
                assert_eq!(*spoken, version, "{read:?}");
            }
            Body::Port => panic!("{life:?} tells {read:?}"),
            Body::Probe { name, key, .. } | Body::Goodbye { name, key, .. } => {
                assert_eq!(*name, born.name);
                let known = |key: &[u8; 8]| born.keys.iter().any(|(_, id)| id == key);
                assert!(key.as_ref().map_or(born.keys.is_empty(), known), "{read:?}");
            }
            Body::Ack(ack) => talk.judge_state(&ack.state),
            Body::SizeAnswer { bytes, .. } => assert!(*bytes > 500, "{read:?}"),
            Body::SizeProbe { .. } | Body::Reset { .. } | Body::GoodbyeAck { .. } => {}
            Body::Data(data) => {
                assert!(talk.sessions.contains(&read.header.session), "{read:?}");
                talk.judge_data(&data.carries, read);
            }
        }
        if let Body::Goodbye { ack, .. } = &read.body {
            talk.judge_state(ack);
        }
        if let Proof::Key(key) = read.proof {
            assert!(born.keys.iter().any(|(_, id)| *id == key), "{read:?}");
        }
    }
}

fn judge_greeting(born: &Born, greeting: &Greeting, used: Option<&Used>) {
    let sums = born.payload_checksum && born.keys.is_empty();
    let features = [(2, sums), (4, true), (8, false), (16, born.hides)];
    for (bit, offered) in features {
        assert_eq!(greeting.features & bit != 0, offered, "feature {bit} of {greeting:?}");
    }
    assert_eq!((greeting.name, greeting.epoch), (born.name, born.epoch));
    assert_eq!(greeting.random.is_some(), !born.keys.is_empty(), "{greeting:?}");
    let (orders, bytes) = used.map_or((0, 0), |used| (used.orders.len() as u32, used.eager_bytes));
    assert!(greeting.order_window <= born.unexpected_messages.max(16) + orders, "{greeting:?}");
    let most_bytes = u64::from(born.eager_credit_bytes) + bytes;
    assert!(u64::from(greeting.eager_credit) <= most_bytes, "{greeting:?}");
    assert!((1..=256).contains(&greeting.paths) && greeting.policy[0] <= 2, "{greeting:?}");
    assert!(greeting.psn_window <= 16384 && greeting.window >= 1024, "{greeting:?}");
    assert!(greeting.largest_datagram >= 1232, "{greeting:?}");
}

impl Used {
    fn note(&mut self, carried: &Carried) {
        match carried {
            Carried::Bundle(records) => records.iter().for_each(|record| match record {
                RecordRead::Eager(message) => self.note_eager(message),
                RecordRead::Announcement(message) => _ = self.orders.insert(message.order),
                RecordRead::Request(request) => _ = self.orders.insert(request.order),
                _ => {}
            }),
            Carried::EagerSegment { message, .. } => self.note_eager(message),
            Carried::Segment { .. } | Carried::Trimmed => {}
        }
    }

    fn note_eager(&mut self, message: &Message) {
        if self.orders.insert(message.order) {
            self.eager_bytes += message.len;
        }
    }
}

impl Talk {
    fn hear_message(&mut self, message: &Message) {
        self.heard.extend(message.op.map(|op| (message.order, op)));
    }

    fn hear(&mut self, record: &RecordRead) {
        match record {
            RecordRead::Eager(message) | RecordRead::Announcement(message) => {
                self.hear_message(message);
            }
            RecordRead::Matched { order, .. } => {
                self.matched.insert(*order);
            }
            RecordRead::Request(request) => {
                self.heard.insert((request.order, request.op));
                if let Access::Read { msg_id } = request.access {
                    let longest = self.links.entry(msg_id).or_default();
                    *longest = request.len().max(*longest);
                }
            }
            RecordRead::Permission { msg_id, link_len, .. } => {
                let longest = self.links.entry(*msg_id).or_default();
                *longest = u64::from(*link_len).max(*longest);
            }
            _ => {}
        }
    }

    fn judge_state(&self, state: &State) {
        assert!(state.end.wrapping_sub(state.missing) <= 16384, "{state:?}");
        assert!(!state.answers_probe || self.probed, "nobody probed: {state:?}");
        assert!(!state.echo_valid || self.sent.contains(&state.echoed), "no echo: {state:?}");
        let later_ns = state.latest_sent.wrapping_sub(state.echoed) as i32;
        assert!(!state.echo_valid || later_ns >= 0, "the echo is later than the latest: {state:?}");
        assert!(state.window >= 1024, "{state:?}");
    }

    /// A message says what was posted. It need not ask for a notice of the match if it had one.
    fn judge_message(&self, message: &Message, had_notice: bool) {
        let (len, tag, data, notice) = words(message);
        let posted = |notice| self.messages.contains(&(len, tag, data, notice));
        assert!(posted(notice) || had_notice && posted(true), "nobody posted {message:?}");
    }

    fn is_matched(&self, message: &Message) -> bool {
        self.matched.contains(&message.order)
    }

    fn judge_data(&self, carried: &Carried, read: &PacketRead) {
        let end = |offset: u32, len: u16| u64::from(offset) + u64::from(len);
        match carried {
            Carried::Bundle(records) => records.iter().for_each(|record| self.judge_record(record)),
            Carried::EagerSegment { msg_id, message, offset, len, ack } => {
                self.judge_message(message, self.is_matched(message));
                assert!(*msg_id < 1 << 15 && end(*offset, *len) <= message.len, "{read:?}");
                ack.iter().for_each(|ack| self.judge_state(ack));
            }
            Carried::Segment { msg_id, offset, len, void } => {
                let longest = self.links.get(msg_id).copied().unwrap_or(0);
                assert!(end(*offset, *len) <= longest, "of {longest}: {read:?}");
                assert!(*msg_id >= 1 << 15 && *void == read.header.has(flags::VOID), "{read:?}");
            }
            Carried::Trimmed => panic!("{read:?} was not sent so"),
        }
    }

    fn judge_record(&self, record: &RecordRead) {
        match record {
            RecordRead::Eager(message) => self.judge_message(message, self.is_matched(message)),
            // Its permission tells of the match.
            RecordRead::Announcement(message) => self.judge_message(message, true),
            RecordRead::Permission { order, op, link_len, link_base, wanted, .. } => {
                assert!(self.heard.contains(&(*order, *op)), "{record:?}");
                assert!(u64::from(*link_len) + link_base <= *wanted, "{record:?}");
            }
            RecordRead::Matched { order, op } => {
                assert!(self.heard.contains(&(*order, *op)), "{record:?}");
            }
            RecordRead::Answer(answer) => {
                assert!(self.heard.contains(&(answer.order, answer.op)), "{record:?}");
            }
            RecordRead::Request(request) => {
                assert!(self.requests.contains(&question(request)), "nobody posted {request:?}");
            }
            RecordRead::Ack(state) => self.judge_state(state),
            RecordRead::Done { first, last } => {
                assert!(last.wrapping_sub(*first) < 1 << 31, "{record:?}");
            }
        }
    }
}
