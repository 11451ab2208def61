//! A record of a run: what the protocol can see at each process, in order. Nodes write it through their [`Pen`], and a
//! model of the protocol reads it. Nothing is written unless [`super::sim::World::record`] was called, and writing
//! changes nothing else of a run.
//!
//! The order of entries is the order of events at each process. A datagram is told when the port took it, so the nodes
//! must have [`super::node::Habits::singly`] where the order in which the engine made datagrams matters.

use super::ledger::Life;
use super::nonces::Plains;
use erd_rd::keys::{KeyId, Keys, PHASE_BITS};
use erd_rd::wire::header::KEYED_VERSION;
use erd_rd::{
    Atomic, Config, EndReason, KeyIndex, MsgRef, Nanos, OpError, Order, PeerAddress, PeerId,
    RecvToken, Refusal, SendToken, Verdict,
};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;

/// An event at a process.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Virtual time.
    pub at: Nanos,
    /// The process.
    pub life: Life,
    /// The event.
    pub what: What,
}

/// See [`Entry`].
#[derive(Clone, Debug)]
pub enum What {
    /// The process began.
    Born(Box<Born>),
    /// The process died without a goodbye.
    Died,
    /// The application posts an operation. The engine gets it after this entry.
    Posted(Posted),
    /// The engine had no room for the operation just posted. Its token serves another one later.
    Unposted(SendToken),
    /// An operation ended, or an answer to a request of the peer's (its token was never posted).
    Sent {
        /// The operation.
        token: SendToken,
        /// Its outcome.
        outcome: Result<(), OpError>,
    },
    /// The host has no memory for what the datagram heard last needs: the engine drops it.
    NoRoom,
    /// A datagram left the engine, and the port took it.
    Told(Packet),
    /// The engine is about to get a datagram.
    Heard(Packet),
    /// A message had its turn.
    Arrived(Box<Arrival>),
    /// The application takes a message that waited at its sender: the engine may ask for its bytes.
    Accepted {
        /// The message.
        msg: Message,
        /// Bytes that the receive has room for.
        capacity_bytes: u64,
    },
    /// The application is done with a message that waited, taken or thrown away.
    Released(Message),
    /// A receive has its message, or will not get it.
    Received {
        /// The receive.
        token: RecvToken,
        /// The message's length, or why it does not come.
        outcome: Result<u64, OpError>,
    },
    /// A request of the peer's had its turn.
    Met(Met),
    /// A session ended.
    Ended {
        /// The other side.
        peer: Peer,
        /// The engine's count of its sessions.
        session: u32,
        /// The reason.
        reason: EndReason,
    },
    /// The application removes a peer. The engine hears of it after this entry.
    Forgot(Peer),
    /// The application closes the endpoint. The engine hears of it after this entry.
    Closed,
    /// A key takes the place of another.
    Renewed {
        /// The place.
        at: KeyIndex,
        /// The new key.
        key: KeyId,
    },
}

/// The settings of a process that its peers can notice.
#[derive(Clone, Debug)]
pub struct Born {
    /// Its name.
    pub name: SocketAddr,
    /// Its epoch.
    pub epoch: u64,
    /// Its deadline.
    pub peer_timeout_ns: Nanos,
    /// Its keys, each with its place.
    pub keys: Vec<(KeyIndex, KeyId)>,
    /// It wants payload hidden, with one of the keys at least.
    pub hides: bool,
    /// How far beyond those taken a counter may lie with the first key (protocol.md §11.4).
    pub counters_ahead: u32,
    /// It wants payload checksums.
    pub payload_checksum: bool,
    /// It offers the information path.
    pub info_path: bool,
    /// The longest eager message that it sends.
    pub eager_bytes: u32,
    /// See [`Config::eager_credit_bytes`].
    pub eager_credit_bytes: u32,
    /// See [`Config::unexpected_messages`].
    pub unexpected_messages: u32,
    /// See [`Config::unexpected_bytes`].
    pub unexpected_bytes: u64,
    /// See [`Config::datagram_bytes`]; towards nodes of the same host another size may hold.
    pub datagram_bytes: u16,
}

impl Born {
    /// The settings of a process.
    pub fn of(config: &Config) -> Born {
        let places = (0..=u8::MAX).map(KeyIndex);
        let keys = places.filter_map(|at| config.keys.get(at).map(|key| (at, key)));
        let hides = keys.clone().any(|(_, key)| key.hides());
        Born {
            name: config.name,
            epoch: config.epoch,
            peer_timeout_ns: config.peer_timeout_ns,
            keys: keys.map(|(at, key)| (at, key.id())).collect(),
            hides,
            counters_ahead: 1 << config.keys.get(KeyIndex(0)).map_or(PHASE_BITS, Keys::phase_bits),
            payload_checksum: config.payload_checksum,
            info_path: config.info_path,
            eager_bytes: config.eager_bytes,
            eager_credit_bytes: config.eager_credit_bytes,
            unexpected_messages: config.unexpected_messages,
            unexpected_bytes: config.unexpected_bytes,
            datagram_bytes: config.datagram_bytes,
        }
    }
}

/// A peer of a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Peer {
    /// The engine's number for it.
    pub id: PeerId,
    /// Its name, and the place of the key. `None` if the engine removed the peer in the call that first told of it.
    pub address: Option<PeerAddress>,
}

/// An operation.
#[derive(Clone, Copy, Debug)]
pub struct Posted {
    /// Its name: the same in [`What::Sent`].
    pub token: SendToken,
    /// The other side.
    pub peer: Peer,
    /// What it does.
    pub kind: Kind,
    /// Bytes of the message, or of the memory that a request names.
    pub len_bytes: u64,
    /// Remote completion data.
    pub data: Option<u64>,
    /// It waits until all before it to this peer have ended.
    pub fence: bool,
}

/// Kinds of operations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A message.
    Message {
        /// Its tag, if it has one.
        tag: Option<u64>,
        /// It ends only after the match.
        match_notice: bool,
    },
    /// A request to memory.
    Request(Access),
}

/// What a request does with memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Writes it; the bytes may come with it or later.
    Write,
    /// Reads it.
    Read,
    /// Changes it.
    Atomic(Atomic),
}

/// A message that arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Message {
    /// The sender.
    pub peer: Peer,
    /// The engine's count of the sessions with it.
    pub session: u32,
    /// Its send order.
    pub order: Order,
}

/// See [`What::Arrived`].
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// The message.
    pub msg: Message,
    /// Its tag, if it has one.
    pub tag: Option<u64>,
    /// Remote completion data.
    pub data: Option<u64>,
    /// Its whole length.
    pub len_bytes: u64,
    /// Its payload waits at the sender.
    pub rendezvous: bool,
    /// The application's answer. After [`Verdict::NoBuffer`] it counts as not arrived.
    pub verdict: Verdict,
}

/// See [`What::Met`].
#[derive(Clone, Copy, Debug)]
pub struct Met {
    /// The initiator.
    pub peer: Peer,
    /// What it asked for.
    pub access: Access,
    /// Bytes of the memory that it named.
    pub len_bytes: u64,
    /// Remote completion data.
    pub data: Option<u64>,
    /// Why it is refused, if it is.
    pub refusal: Option<Refusal>,
}

/// A datagram.
#[derive(Clone, Debug)]
pub struct Packet {
    /// The name that it came from, or seems to.
    pub from: SocketAddr,
    /// The name that it goes to.
    pub to: SocketAddr,
    /// All its bytes.
    pub bytes: Vec<u8>,
    /// With a key, a packet of a session as it was before the key changed it: without counter and proof, and readable.
    /// `None` for every other packet, and for one that no owner of a key wrote.
    pub plain: Option<Vec<u8>>,
    /// Its payload was cut off on the way.
    pub trimmed: bool,
    /// It goes over the information path.
    pub info_path: bool,
}

/// The record. Its clones are one.
#[derive(Clone, Debug)]
pub struct Record {
    book: Rc<RefCell<Book>>,
    plains: Plains,
}

#[derive(Debug, Default)]
struct Book {
    /// The most entries.
    most: usize,
    entries: Vec<Entry>,
    left_out: u64,
    /// The entries before have all names that they will ever have.
    named: usize,
    names: BTreeMap<(Life, PeerId), PeerAddress>,
}

impl Record {
    /// An empty record of at most so many entries. It counts what comes after, and forgets it. It also knows that many
    /// packets as they were before a key changed them.
    pub fn new(most: usize) -> Record {
        let book = Book { most, ..Book::default() };
        Record { book: Rc::new(RefCell::new(book)), plains: Plains::new(most) }
    }

    /// The entries so far, which it does not keep. Then there is room for as many again.
    pub fn take(&self) -> Vec<Entry> {
        let mut book = self.book.borrow_mut();
        book.named = 0;
        std::mem::take(&mut book.entries)
    }

    /// Entries that found no room.
    pub fn left_out(&self) -> u64 {
        self.book.borrow().left_out
    }

    /// What the keys of the run tell.
    pub fn plains(&self) -> &Plains {
        &self.plains
    }

    fn note(&self, entry: Entry) {
        let book = &mut *self.book.borrow_mut();
        match book.entries.len() < book.most {
            true => book.entries.push(entry),
            false => book.left_out += 1,
        }
    }

    fn name(&self, life: Life, address_of: impl Fn(PeerId) -> Option<PeerAddress>) {
        let Book { entries, named, names, .. } = &mut *self.book.borrow_mut();
        for entry in &mut entries[*named..] {
            let Some(peer) = entry.what.peer_mut() else { continue };
            if let Some(address) = peer.address.or_else(|| address_of(peer.id)) {
                names.insert((life, peer.id), address);
            }
            peer.address = names.get(&(life, peer.id)).copied();
        }
        *named = entries.len();
    }
}

impl What {
    fn peer_mut(&mut self) -> Option<&mut Peer> {
        match self {
            What::Posted(posted) => Some(&mut posted.peer),
            What::Arrived(arrival) => Some(&mut arrival.msg.peer),
            What::Accepted { msg, .. } | What::Released(msg) => Some(&mut msg.peer),
            What::Met(met) => Some(&mut met.peer),
            What::Ended { peer, .. } | What::Forgot(peer) => Some(peer),
            _ => None,
        }
    }
}

impl From<PeerId> for Peer {
    /// The name follows at the end of the engine's call.
    fn from(id: PeerId) -> Peer {
        Peer { id, address: None }
    }
}

impl From<&MsgRef> for Message {
    fn from(msg: &MsgRef) -> Message {
        Message { peer: msg.peer.into(), session: msg.session, order: msg.order }
    }
}

/// The hand of one process, which may write to a record.
#[derive(Clone, Debug, Default)]
pub struct Pen(Option<(Record, Life)>);

impl Pen {
    /// Writes to `record` as this process.
    pub fn new(record: &Record, life: Life) -> Pen {
        Pen(Some((record.clone(), life)))
    }

    /// The same record, for another process.
    #[must_use]
    pub fn of(&self, life: Life) -> Pen {
        Pen(self.0.as_ref().map(|(record, _)| (record.clone(), life)))
    }

    /// Writes an entry, if anybody wants one.
    pub fn note(&self, at: Nanos, what: impl FnOnce() -> What) {
        if let Some((record, life)) = &self.0 {
            record.note(Entry { at, life: *life, what: what() });
        }
    }

    /// Writes an entry of a datagram, of which `packet` has all but [`Packet::plain`].
    pub fn note_packet(
        &self,
        at: Nanos,
        direction: fn(Packet) -> What,
        packet: impl FnOnce() -> Packet,
    ) {
        if let Some((record, life)) = &self.0 {
            let mut packet = packet();
            let keyed = packet.bytes.first().is_some_and(|first| first >> 4 & 7 == KEYED_VERSION);
            packet.plain = if keyed { record.plains.of(&packet.bytes) } else { None };
            record.note(Entry { at, life: *life, what: direction(packet) });
        }
    }

    /// A call of the engine is over: entries get the names of their peers.
    pub fn name(&self, address_of: impl Fn(PeerId) -> Option<PeerAddress>) {
        if let Some((record, life)) = &self.0 {
            record.name(*life, address_of);
        }
    }
}
