//! The posted operations of applications, and the judgement of the completions that they read.

use super::accesses::Accesses;
use super::lend::lend;
use super::receives::Receives;
use crate::ledger::{Life, Rules};
use crate::pattern;
use erd_core::cause::Cause;
use erd_core::completion::queue::Entry;
use erd_core::endpoint::Buffers;
use erd_core::flags::Flags;
use erd_rd::OpError;
use std::ffi::c_void;
use std::fmt;

/// The operation of a context.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Post {
    /// A message, by its place in [`Book::messages`].
    Message(usize),
    /// A receive, by its place in [`Receives::all`].
    Receive(usize),
    /// An access to a peer's memory, by its place in [`Accesses::all`].
    Access(usize),
}

/// Where the kind of a post begins in its context.
const KIND_SHIFT: u32 = 48;

impl Post {
    /// The context of its completions, which is no pointer.
    pub fn context(self) -> *mut c_void {
        let (kind, id) = match self {
            Post::Message(id) => (1, id),
            Post::Receive(id) => (2, id),
            Post::Access(id) => (3, id),
        };
        std::ptr::without_provenance_mut(kind << KIND_SHIFT | id)
    }

    fn of(context: *mut c_void) -> Option<Post> {
        let id = context.addr() & ((1 << KIND_SHIFT) - 1);
        match context.addr() >> KIND_SHIFT {
            0 => None,
            1 => Some(Post::Message(id)),
            2 => Some(Post::Receive(id)),
            3 => Some(Post::Access(id)),
            kind => panic!("a context of kind {kind}"),
        }
    }
}

/// Contents of a buffer that its owner has reused.
const REUSED: u8 = 0xdd;

/// A message.
#[derive(Debug)]
pub struct Message {
    /// The sender.
    pub from: Life,
    /// The node that receives it.
    pub to: usize,
    /// Its length.
    pub len_bytes: u64,
    /// Its tag, which names it.
    pub tag: Option<u64>,
    /// Its data, which name it too.
    pub data: Option<u64>,
    /// Flags of the call.
    pub flags: Flags,
    /// Nobody learns of its success.
    pub silent: bool,
    /// Its outcome.
    pub ended: Option<Result<(), Cause>>,
    /// The receive that has it, or that dropped it.
    pub taken_by: Option<usize>,
    bytes: Bytes,
}

/// Memory of an application.
pub struct Bytes(pub Vec<u8>);

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

/// See the module.
#[derive(Debug)]
pub struct Book {
    /// All messages.
    pub messages: Vec<Message>,
    /// All receives.
    pub receives: Receives,
    /// All accesses to memory.
    pub accesses: Accesses,
    /// The failures that may happen.
    pub rules: Rules,
}

impl Book {
    /// An empty book.
    pub fn new(rules: Rules, nodes: usize) -> Book {
        Book {
            messages: Vec::new(),
            receives: Receives::default(),
            accesses: Accesses::new(nodes),
            rules,
        }
    }

    /// Adds a message with its payload.
    pub fn add_message(
        &mut self,
        (from, to): (Life, usize),
        len_bytes: u64,
        class: Option<u8>,
        data: bool,
        (flags, silent): (Flags, bool),
    ) -> usize {
        let id = self.messages.len();
        let tag = class.map(|class| (id as u64) << 8 | u64::from(class));
        let data = (data || tag.is_none()).then_some(!(id as u64));
        let mut bytes = vec![0; len_bytes as usize];
        pattern::fill(id as u64, 0, &mut bytes);
        let (ended, taken_by) = (None, None);
        let message = Message {
            from,
            to,
            len_bytes,
            tag,
            data,
            flags,
            silent,
            ended,
            taken_by,
            bytes: Bytes(bytes),
        };
        self.messages.push(message);
        id
    }

    /// The payload of a message, cut in two at a place that follows from its number.
    pub fn payload(&mut self, id: usize) -> Buffers {
        let bytes = &mut self.messages[id].bytes.0;
        let cut = if id.is_multiple_of(3) { bytes.len() / 3 } else { 0 };
        lend(bytes.split_at_mut(cut).into())
    }

    /// A message was posted. Its buffer is used again if the call has copied it.
    pub fn posted(&mut self, id: usize) {
        let message = &mut self.messages[id];
        if message.flags.intersects(Flags::INJECT) {
            message.bytes.0.fill(REUSED);
        }
    }

    /// Judges one completion that `life` has read.
    pub fn judge(&mut self, life: Life, entry: &Entry) {
        if entry.flags.intersects(Flags::REMOTE) {
            self.accesses.judge_at_target(life, entry);
            return;
        }
        match Post::of(entry.context) {
            Some(Post::Message(id)) => self.judge_sent(life, id, entry),
            Some(Post::Receive(id)) => {
                let Book { messages, receives, rules, .. } = self;
                receives.judge(life, id, entry, messages, *rules);
            }
            Some(Post::Access(id)) => self.accesses.judge(life, id, entry, self.rules),
            // An operation that had completed when it was copied has failed afterwards.
            None => {
                let failure = entry.failure.as_ref().expect("a completion without a context");
                let refused = self.accesses.has_early(life, failure.cause);
                let right = refused || may_fail(self.rules, failure.cause);
                assert!(right, "{failure:?} without a context");
            }
        }
    }

    fn judge_sent(&mut self, life: Life, id: usize, entry: &Entry) {
        let message = &mut self.messages[id];
        assert_eq!(message.from, life, "message {id} completes at another process");
        assert_eq!(message.ended, None, "message {id} completes twice");
        let kind = if message.tag.is_some() { Flags::TAGGED } else { Flags::MSG };
        assert_eq!(entry.flags, Flags::SEND | kind, "flags of message {id}");
        let outcome = entry.failure.as_ref().map_or(Ok(()), |failure| Err(failure.cause));
        assert!(outcome.is_err() || !message.silent, "message {id} was to complete silently");
        if let Err(cause) = outcome {
            assert!(may_fail(self.rules, cause), "message {id} fails: {cause:?}, {message:?}");
        }
        message.ended = Some(outcome);
        message.bytes.0.fill(REUSED);
    }

    /// A process has closed its endpoint: it uses the buffers of its messages again.
    pub fn reuse(&mut self, life: Life) {
        let its = self.messages.iter_mut().filter(|message| message.from == life);
        its.for_each(|message| message.bytes.0.fill(REUSED));
    }

    /// Messages and accesses of a living process that have not ended.
    pub fn is_open(&self, lives: impl Fn(Life) -> bool) -> bool {
        let strict = self.rules == Rules::default();
        let open = |message: &Message| {
            let owed = !message.silent && message.ended.is_none() && lives(message.from);
            owed || (strict && message.taken_by.is_none())
        };
        self.messages.iter().any(open) || self.accesses.is_open(lives)
    }

    /// Judges what holds when everything has ended.
    pub fn judge_end(&self) {
        self.receives.judge_end(&self.messages);
        if self.rules != Rules::default() {
            return;
        }
        for (id, message) in self.messages.iter().enumerate() {
            assert!(message.taken_by.is_some(), "message {id} was not received: {message:?}");
            assert!(message.silent || message.ended == Some(Ok(())), "message {id}: {message:?}");
        }
    }
}

/// Whether an operation may fail so, if its own arguments are right.
pub fn may_fail(rules: Rules, cause: Cause) -> bool {
    let error = match cause {
        Cause::PeerTimeout => OpError::PeerTimeout,
        Cause::PeerUnreachable => OpError::PeerUnreachable,
        Cause::PeerRestarted => OpError::PeerRestarted,
        Cause::PeerClosed => OpError::PeerClosed,
        Cause::PeerVersion(version) => OpError::PeerVersion(version),
        Cause::PeerHasNoKey => OpError::PeerHasNoKey,
        Cause::KeysDiffer => OpError::KeysDiffer,
        Cause::PathBlocked => OpError::PathBlocked,
        _ => return false,
    };
    rules.allow(error)
}
