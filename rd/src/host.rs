//! The interface that the driver implements for the engine: payload memory, matching and completions.

use crate::units::{Nanos, Order, PeerAddress, PeerId};
use crate::wire::remote::{Atomic, Refusal, Targets};
use alloc::vec::Vec;
use core::net::SocketAddr;

/// Names a send operation's memory and context at the driver. Opaque to the engine; the driver
/// should put a generation in it, so that a stale token resolves to nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
pub struct SendToken(pub u64);

/// Names a receive buffer at the driver (posted by the user, or held for an unexpected message).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
pub struct RecvToken(pub u64);

/// Names an arrived message for the later calls [`crate::Endpoint::accept`] and
/// [`crate::Endpoint::release`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct MsgRef {
    /// The sender.
    pub peer: PeerId,
    /// Session of the peer in which it arrived, counted by the engine.
    pub session: u32,
    /// Its place in that peer's send order.
    pub order: Order,
    /// Bytes of eager credit that it holds at the receiver (0 for a rendezvous).
    pub credit_bytes: u32,
}

/// A message seen for the first time, reported in send order per peer (protocol.md §5.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arrived {
    /// Its name for later calls.
    pub msg: MsgRef,
    /// Tag, or `None` for an untagged message.
    pub tag: Option<u64>,
    /// Remote completion data, if the sender attached some.
    pub data: Option<u64>,
    /// Whole length in bytes.
    pub len_bytes: u64,
    /// True when the payload waits at the sender until the driver accepts the message.
    pub rendezvous: bool,
    /// True when the payload came with it: if the verdict names a receive, [`Host::received`] follows at once.
    pub whole: bool,
    /// The buffer that [`Host::hold`] gave for its payload, when the payload came before the
    /// message's turn. The bytes are all there once [`Host::received`] has named that buffer,
    /// which may have happened already.
    pub held: Option<RecvToken>,
}

/// The driver's decision on an arrived message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// A posted receive matched. The engine places no bytes past the capacity; the message still completes with its
    /// whole length, from which the driver tells truncation. With `Arrived::held` set, the engine ignores the token:
    /// the driver copies when the held buffer is complete.
    Matched(RecvToken, u64),
    /// Eager and unexpected: the payload goes into this driver-owned buffer, which holds the
    /// whole message. Its credit returns with [`crate::Endpoint::release`].
    Held(RecvToken),
    /// Rendezvous and unexpected (or eager, with `Arrived::held` set): the driver keeps the
    /// [`MsgRef`] and answers later with accept or release.
    Wait,
    /// Nobody wants it: the engine drops its bytes, and the sender sees success.
    Discard,
    /// There is no memory for it now. It counts as not arrived: the engine asks again when the sender repeats its
    /// packet, or later if `Arrived::held` is set.
    NoBuffer,
}

/// Reason why an operation failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpError {
    /// The peer did not answer within the deadline (protocol.md §7.3).
    PeerTimeout,
    /// Nothing listens at the peer's address.
    PeerUnreachable,
    /// The peer's process was replaced by another at the same address.
    PeerRestarted,
    /// The peer said goodbye before the operation was done.
    PeerClosed,
    /// The local endpoint was closed or the peer was removed.
    Canceled,
    /// The payload of a send to this peer could not be read (protocol.md §3.3).
    BadBuffer,
    /// The peer speaks this other version of the protocol (protocol.md §3.4).
    PeerVersion(u8),
    /// A process at the peer's address says that it has no key, and this side has one (protocol.md §11.1).
    PeerHasNoKey,
    /// A process at the peer's address says that it has another job's key.
    KeysDiffer,
    /// The peer answers, but no datagram of more than 512 bytes reaches it (protocol.md §4.6).
    PathBlocked,
    /// The peer refused the access to its memory; the session goes on.
    Refused(Refusal),
}

/// How a peer's key differs from what this side has, so that its hello was refused (protocol.md §11.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyMismatch {
    /// The peer has no key, and this side has one.
    PeerHasNone,
    /// The peer has a key that is none of this side's.
    PeerHasAnother,
    /// The peer has a key, and this side has none.
    PeerHasOne,
}

/// A peer's request to memory of this host, whose turn has come (protocol.md §9).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Remote {
    /// The peer that asks.
    pub peer: PeerId,
    /// Address at which that peer has proven to receive.
    pub name: SocketAddr,
    /// The memory. The host checks every access.
    pub targets: Targets,
    /// Remote completion data, to be reported once the request is done.
    pub data: Option<u64>,
}

/// The bytes that came with a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operand<'a> {
    /// In the packet.
    Here(&'a [u8]),
    /// In the buffer that [`Host::keep`] gave, which returns to the host.
    Kept(RecvToken),
}

/// Reason why a session ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EndReason {
    /// See [`OpError`]; every operation of the session fails with it.
    Failed(OpError),
    /// Orderly goodbye.
    Goodbye,
}

/// Shared memory to a peer on this host, as the driver names it (protocol.md §12). It never names another one later.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Lane(pub u64);

/// How the data of a new session reaches a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reach {
    /// By datagrams.
    Datagrams,
    /// By shared memory, if the peer says the same.
    Lane(Lane),
    /// Perhaps by shared memory: [`crate::Endpoint::handle_reached`] follows within a bounded time.
    Asked,
}

/// What follows the head of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Payload {
    /// Bytes of an operation's buffer.
    Bytes {
        /// The operation.
        op: SendToken,
        /// Offset in its buffer.
        offset_bytes: u64,
        /// Number of bytes.
        len_bytes: u32,
    },
    /// Where the operation's buffer is, as [`Sources`]; nothing if the host does not tell. The buffer stays there until the
    /// operation ends.
    Sources(SendToken),
}

/// Most pieces of a buffer that [`Sources`] can name.
pub const SOURCES_MAX: usize = 2;

/// Where a peer's buffer is in its process: address and length of each piece.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sources {
    /// The pieces; those behind the last are empty.
    pub pieces: [(u64, u64); SOURCES_MAX],
}

impl Sources {
    /// No pieces.
    pub const NONE: Sources = Sources { pieces: [(0, 0); SOURCES_MAX] };
    /// Bytes of a piece in an entry.
    pub const PIECE_BYTES: usize = 16;

    /// Reads what an entry has. `None` if it is no list of pieces, or too long.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<Sources> {
        let pieces = bytes.chunks_exact(Sources::PIECE_BYTES);
        if !pieces.remainder().is_empty() || pieces.len() > SOURCES_MAX {
            return None;
        }
        let mut sources = Sources::default();
        for (to, piece) in sources.pieces.iter_mut().zip(pieces) {
            let (addr, len) = piece.split_at(8);
            let word = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_be_bytes);
            *to = (word(addr), word(len));
        }
        Some(sources)
    }

    /// Bytes of all pieces together.
    #[must_use]
    pub fn len_bytes(&self) -> u64 {
        self.pieces.iter().fold(0, |sum, (_, len)| sum.saturating_add(*len))
    }
}

/// What became of bytes that were to be read out of a peer's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pull {
    /// They are in place, and the peer's buffer was there all the time.
    Done,
    /// This process cannot read the peer's memory: the peer must send them.
    Never,
    /// The lane is no more, or the peer's buffer is not there; [`crate::Endpoint::handle_lane_down`] follows.
    Gone,
}

/// A message to send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WorkRequest {
    /// The receiver.
    pub peer: PeerId,
    /// The driver's name for the operation.
    pub token: SendToken,
    /// Length in bytes.
    pub len_bytes: u64,
    /// Tag, or `None` for an untagged message.
    pub tag: Option<u64>,
    /// Remote completion data.
    pub data: Option<u64>,
    /// The engine calls [`Host::sent`] only after the peer matched the message.
    pub match_complete: bool,
    /// The application waits for [`Host::sent`].
    pub awaited: bool,
    /// The engine calls [`Host::sent`] only after the peer has the message. Over a network it always does.
    pub delivery: bool,
    /// The engine sends it only when everything before it to the same peer has ended.
    pub fence: bool,
}

/// What became of a message that was written at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AtOnce {
    /// It has ended well. [`Host::sent`] is not called.
    Over,
    /// It ends when the peer has read it, as [`Host::sent`] says.
    Unread,
}

/// What became of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Put {
    /// The peer can read it. So much has been written to the lane by now, in all, as the host counts.
    Taken(u64),
    /// There is no room. The host tells with the next arrival, or the engine tries again.
    Full,
    /// The memory of the answer has gone: nothing was written.
    Lost,
    /// The lane is no more; [`crate::Endpoint::handle_lane_down`] follows.
    Gone,
}

/// The driver's side of the boundary. The engine calls these synchronously and never re-enters;
/// no call may block. Each does bounded work.
pub trait Host {
    /// Copies `out.len()` bytes of a send's payload starting at `offset_bytes` into `out`.
    fn read(&mut self, op: SendToken, offset_bytes: u64, out: &mut [u8]);

    /// As [`Host::read`], behind what `out` has.
    fn append(&mut self, op: SendToken, offset_bytes: u64, len_bytes: u32, out: &mut Vec<u8>) {
        let at = out.len();
        out.resize(at + len_bytes as usize, 0);
        self.read(op, offset_bytes, &mut out[at..]);
    }

    /// CRC32C over a part of a send's payload, continuing from `seed`.
    fn checksum(&mut self, op: SendToken, offset_bytes: u64, len_bytes: u32, seed: u32) -> u32;

    /// A send ended. The engine does not use its token again.
    fn sent(&mut self, op: SendToken, outcome: Result<(), OpError>);

    /// A message arrived, in send order of its peer.
    fn arrived(&mut self, msg: &Arrived) -> Verdict;

    /// Asks for a buffer for an eager message that came before its turn. `None` drops the
    /// packet, which the sender repeats later.
    fn hold(&mut self, peer: PeerId, len_bytes: u64) -> Option<RecvToken>;

    /// Whether there is memory for so many bytes more. The engine asks before a table grows with what peers send;
    /// `false` drops the packet, which the sender repeats later.
    fn has_room(&mut self, _bytes: usize) -> bool {
        true
    }

    /// Places bytes into a receive buffer. `offset_bytes` counts from the message's start; the
    /// driver ignores what lies beyond the buffer.
    fn place(&mut self, to: RecvToken, offset_bytes: u64, bytes: &[u8]);

    /// All bytes of the message are placed (`Ok(len)`: the message's whole length), or its session ended before. The
    /// engine does not use the token again.
    fn received(&mut self, to: RecvToken, outcome: Result<u64, OpError>);

    /// A session with `peer` ended. Unmatched rendezvous messages of the session are void.
    fn session_ended(&mut self, peer: PeerId, session: u32, reason: EndReason);

    /// The largest datagram (UDP payload or UD payload, in bytes) that the path to `name` carries unfragmented, as far
    /// as this host knows: a starting value. The engine asks when it makes a peer's entry, and when [`Host::is_near`]
    /// changes.
    fn datagram_limit_bytes(&mut self, name: SocketAddr) -> u16;

    /// Whether this peer may open a session, and gets answers outside one. The engine asks for each hello, and
    /// for each probe and goodbye that it would answer. `false` drops the hello, which the peer repeats until its
    /// deadline.
    fn admits(&mut self, _peer: PeerAddress) -> bool {
        true
    }

    /// At `now` the engine refused a hello whose key is none of this side's. The hello says that a process called `name` wrote
    /// it; it came from `from`. Nothing proves either, and a stranger chooses how often this happens.
    fn refused(&mut self, _now: Nanos, _name: SocketAddr, _from: SocketAddr, _why: KeyMismatch) {}

    /// Whether the process called `name` is on this host, so that no network lies between. The engine asks when a
    /// session begins, if [`crate::Endpoint::set_near`] was called.
    fn is_near(&mut self, _name: SocketAddr) -> bool {
        false
    }

    /// Whether silent peers are to be waited for. The engine asks while a peer is silent for a tenth of the deadline or
    /// longer, about as often as it probes it.
    fn is_paused(&mut self) -> bool {
        false
    }

    /// How the data of a new session with the process called `name` goes. The engine asks when a session begins.
    fn reach(&mut self, _now: Nanos, _name: SocketAddr) -> Reach {
        Reach::Datagrams
    }

    /// Writes an entry to a lane: `head`, then a part of an operation's payload.
    fn put(&mut self, _lane: Lane, _kind: u8, _head: &[u8], _payload: Option<Payload>) -> Put {
        Put::Gone
    }

    /// How much of what [`Host::put`] counted the peer has read; `None` if the lane is no more.
    fn read_by_peer(&mut self, _lane: Lane) -> Option<u64> {
        None
    }

    /// Whether the memory of an answer that the peer may read has been there until now.
    fn is_there(&mut self, _answer: SendToken) -> bool {
        true
    }

    /// Reads bytes of a peer's buffer into a receive buffer, both from `offset_bytes` on.
    fn pull(
        &mut self,
        _lane: Lane,
        _from: &Sources,
        _offset_bytes: u64,
        _to: RecvToken,
        _len_bytes: u64,
    ) -> Pull {
        Pull::Never
    }

    /// True if the peer has written what has not been handed in.
    fn has_entries(&mut self, _lane: Lane) -> bool {
        false
    }

    /// The session of a lane has failed: the peer must not read this side's buffers any more. The lane is no more.
    fn break_off(&mut self, _lane: Lane) {}

    /// The host is to progress when the peer has read more of what was put.
    fn starve(&mut self, _lane: Lane) {}

    /// Asks for a buffer for the operand of a request before its turn; the bytes follow with [`Host::place`]. `None`
    /// drops the packet, which the sender repeats later. The token ends as [`Operand::Kept`], or with
    /// [`Host::received`] and an error.
    fn keep(&mut self, _peer: PeerId, _len_bytes: u64) -> Option<RecvToken> {
        None
    }

    /// Whether the keys of a request refused with [`Refusal::Key`] were valid lately, so that the peer need not be
    /// guessing: the engine answers guesses ever more slowly (protocol.md §9.7).
    fn key_stood(&mut self, _of: &Remote) -> bool {
        false
    }

    /// Writes all of `bytes` to memory of this host, or nothing.
    ///
    /// # Errors
    /// The refusal for the peer; likewise for the other requests.
    fn remote_write(&mut self, _to: &Remote, _bytes: Operand<'_>) -> Result<(), Refusal> {
        Err(Refusal::Unsupported)
    }

    /// Admits a write whose bytes follow with [`Host::place`]. The token ends with
    /// [`Host::remote_written`], or with [`Host::received`] and an error.
    ///
    /// # Errors
    /// See [`Host::remote_write`].
    fn remote_write_later(&mut self, _to: &Remote) -> Result<RecvToken, Refusal> {
        Err(Refusal::Unsupported)
    }

    /// All bytes of a write were placed.
    ///
    /// # Errors
    /// See [`Host::remote_write`]: the memory may have gone meanwhile.
    fn remote_written(&mut self, _to: RecvToken) -> Result<(), Refusal> {
        Err(Refusal::Unsupported)
    }

    /// Names memory of this host as a payload, which the engine reads like those of sends. The token ends with
    /// [`Host::sent`].
    ///
    /// # Errors
    /// See [`Host::remote_write`].
    fn remote_read(&mut self, _from: &Remote) -> Result<SendToken, Refusal> {
        Err(Refusal::Unsupported)
    }

    /// Changes memory of this host, [`Form::Update`](crate::wire::remote::Form::Update).
    ///
    /// # Errors
    /// See [`Host::remote_write`].
    fn remote_update(
        &mut self,
        _at: &Remote,
        _atomic: Atomic,
        _operand: Operand<'_>,
    ) -> Result<(), Refusal> {
        Err(Refusal::Unsupported)
    }

    /// Changes memory of this host and names its earlier contents as a payload, which ends with
    /// [`Host::sent`]. With [`Form::Compare`](crate::wire::remote::Form::Compare) the operand's
    /// second half is the comparand.
    ///
    /// # Errors
    /// See [`Host::remote_write`].
    fn remote_fetch(
        &mut self,
        _at: &Remote,
        _atomic: Atomic,
        _operand: Operand<'_>,
    ) -> Result<SendToken, Refusal> {
        Err(Refusal::Unsupported)
    }
}
