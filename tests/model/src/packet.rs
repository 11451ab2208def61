//! What processes say to each other (protocol.md §2, §3.2), without the bytes.

use crate::flow::AckState;

/// The name of an endpoint: an address, which one process after the other may use.
pub type Name = u8;

/// A session id; 0 stands for none (§3.1).
pub type Id = u32;

/// The number of a job key; processes with different numbers are strangers.
pub type Key = u8;

/// A payload: the process that posted it, by name and epoch, and its place among the posts of that process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Token {
    /// The name of the writer.
    pub name: Name,
    /// Its epoch.
    pub epoch: u64,
    /// The number of the post.
    pub number: u32,
}

/// The answer to a hello without a right cookie (§3.1, step 2): a keyed hash, so only its maker can make it. The fields are
/// what it covers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Cookie {
    /// The process that made it, by name and epoch: the key of the hash is its own.
    pub by: (Name, u64),
    /// The name in the hello.
    pub name: Name,
    /// The session id in the hello.
    pub session: Id,
    /// The epoch in the hello.
    pub epoch: u64,
    /// The id that a peer of this name used in the last session that ended at the maker.
    pub last: Id,
    /// The period of 8 s in which the maker made it; 0 where time plays no part.
    pub period: u64,
}

/// What a side says of itself (§3.2), as far as the rules need it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Greeting {
    /// The writer's id for the session. Asker id and random bytes (§11.1) follow from it.
    pub session: Id,
    /// The writer's epoch.
    pub epoch: u64,
    /// The count of its endpoint's sessions.
    pub incarnation: u32,
    /// The reader's id in the session before, given up.
    pub gave_up: Id,
    /// The cookie of the reader's challenge.
    pub cookie: Option<Cookie>,
    /// The writer's name.
    pub name: Name,
}

/// One side of a session secret (§11.3): what the greeting said that never changes between its repetitions. The rest of
/// it follows from the session id.
pub type Part = (Id, u64, Name);

/// The secret of a session: the parts of both sides, the lesser first, under a job key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Secret {
    /// The job key.
    pub key: Key,
    /// Both sides.
    pub parts: [Part; 2],
}

/// What proves a packet (§11.2, §11.4).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Proof {
    /// Nothing: there is no key.
    None,
    /// A proof that fits nothing: only a holder of the key can make one that does.
    Wrong,
    /// Of a packet outside a session.
    Loose {
        /// The key of the job.
        key: Key,
        /// Who wrote it.
        writer: Name,
        /// For whom.
        reader: Name,
        /// The session id whose random bytes it answers.
        question: Option<Id>,
    },
    /// Of a packet of a session.
    Session {
        /// The secret.
        secret: Secret,
        /// The writer's session id, which stands for the direction.
        writer: Id,
        /// The counter, from which the nonce follows.
        counter: u32,
    },
}

/// The body of a packet (§2.2).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Body {
    /// Asks for a session.
    Hello(Greeting),
    /// Asks to repeat the hello with this cookie.
    Challenge {
        /// See [`Cookie`].
        cookie: Cookie,
        /// The epoch of the writer.
        epoch: u64,
        /// Low bits of the writer's clock; 0 where time plays no part.
        at: u32,
    },
    /// Accepts a hello.
    Welcome(Greeting),
    /// The session with this id is not known, or may not be used again.
    Reset(Id),
    /// The goodbye of the session with this id arrived.
    Confirmation(Id),
    /// The writer is a process with another key, or without one.
    OtherVersion,
    /// One message in one packet.
    Data {
        /// The writer's session, by its id. It stands for the first PSN of the flow, which is random (§4.1). 0 where each
        /// PSN may be any.
        flow: Id,
        /// Its PSN, counted from the first.
        psn: u32,
        /// Its payload.
        token: Token,
    },
    /// An acknowledgement.
    Ack(AckState),
    /// Asks what has arrived.
    Probe(Asker),
    /// Ends the session.
    Goodbye(Asker, AckState),
}

/// The writer of a probe or a goodbye, for a reader that may not know the session.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Asker {
    /// The session id from which its asker id follows.
    pub of: Id,
    /// Its name.
    pub name: Name,
    /// Its key.
    pub key: Option<Key>,
}

/// The reader's id in a header (§2.2).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Address {
    /// A hello has none.
    Nobody,
    /// The session id that the reader chose.
    Session(Id),
    /// The asker id that follows from the reader's session id.
    Asker(Id),
}

/// A packet.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Packet {
    /// The name to which it goes.
    pub to: Name,
    /// The session or asker id in its header.
    pub address: Address,
    /// Its contents.
    pub body: Body,
    /// Its proof.
    pub proof: Proof,
}
