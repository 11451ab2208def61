//! Receives of applications, and the judgement of their messages: each once, whole, from its sender, in the place that
//! MPI's order gives it.

use super::book::{Bytes, Message, Post, may_fail};
use super::lend::lend;
use crate::app::Class;
use crate::ledger::{Life, Rules};
use crate::pattern;
use erd_core::cause::Cause;
use erd_core::completion::queue::Entry;
use erd_core::endpoint::{Buffers, RecvRequest};
use erd_core::flags::Flags;
use erd_core::peer_index::{ANYONE, PeerIndex};
use erd_rd::matching::TagMask;
use std::collections::BTreeMap;

/// Contents of a receive buffer where nothing was received.
const EMPTY: u8 = 0xee;
/// The bits of a tag that are not its class.
const NAME_BITS: u64 = !0xff;

/// The form of a receive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// It takes one message.
    One,
    /// It takes many.
    Many,
    /// It looks for a message.
    Peek,
    /// It looks for a message and drops it.
    Discard,
    /// It looks for a message and keeps it for [`Form::Claimed`].
    Claim,
    /// It receives the message that the receive of this number has kept.
    Claimed(usize),
    /// It drops that message.
    Dropped(usize),
}

/// A message that a receive has got.
#[derive(Clone, Copy, Debug)]
struct Got {
    message: usize,
    /// Its offset in the buffer.
    start: usize,
    /// The bytes of it that lie there.
    len_bytes: usize,
}

/// A receive.
#[derive(Debug)]
pub struct Receive {
    /// Its process.
    pub owner: Life,
    /// Only from this node.
    pub source: Option<usize>,
    /// Only these messages.
    pub class: Class,
    /// See [`Form`].
    pub form: Form,
    /// It has ended.
    pub over: bool,
    /// The application has canceled it.
    pub canceled: bool,
    /// The message that a [`Form::Claim`] has found.
    pub found: Option<usize>,
    /// A [`Form::Many`] ends when less than this is left of it, in bytes.
    least_bytes: u64,
    /// A message for it was lost with its session.
    lost: bool,
    bytes: Bytes,
    got: Vec<Got>,
}

impl Receive {
    /// Where the second piece of its buffer begins. A buffer of many messages has one piece.
    fn cut(&self, id: usize) -> usize {
        match self.form {
            Form::One | Form::Claimed(_) if id.is_multiple_of(3) => self.bytes.0.len() / 3,
            _ => 0,
        }
    }

    fn accepts(&self, message: &Message) -> bool {
        let class = match self.class {
            Class::Untagged => message.tag.is_none(),
            Class::Tag(class) => message.tag.is_some_and(|tag| tag as u8 == class),
            Class::AnyTag => message.tag.is_some(),
        };
        class && self.source.is_none_or(|source| source == message.from.node)
    }

    /// Flags of its completion, for this message.
    fn flags(&self, message: &Message) -> Flags {
        let kind = if message.tag.is_some() { Flags::TAGGED } else { Flags::MSG };
        let data = if message.data.is_some() { Flags::REMOTE_CQ_DATA } else { Flags::empty() };
        Flags::RECV | kind | data
    }
}

/// See the module.
#[derive(Debug, Default)]
pub struct Receives {
    /// All of them. Those of one node are posted in this order.
    pub all: Vec<Receive>,
    /// Messages that a [`Form::Claim`] has found since the last look: the receives that found them.
    pub claims: Vec<usize>,
}

impl Receives {
    /// Adds a receive.
    pub fn add(
        &mut self,
        owner: Life,
        (source, class): (Option<usize>, Class),
        (room_bytes, least_bytes): (u64, u64),
        form: Form,
    ) -> usize {
        self.all.push(Receive {
            owner,
            source,
            class,
            form,
            over: false,
            canceled: false,
            found: None,
            least_bytes,
            lost: false,
            bytes: Bytes(vec![EMPTY; room_bytes as usize]),
            got: Vec::new(),
        });
        self.all.len() - 1
    }

    /// The call that posts it.
    pub fn request(&mut self, id: usize, names: &[PeerIndex]) -> RecvRequest {
        let receive = &mut self.all[id];
        let source = receive.source.map_or(ANYONE, |node| names[node]);
        let context = match receive.form {
            Form::Claimed(claim) | Form::Dropped(claim) => Post::Receive(claim),
            _ => Post::Receive(id),
        };
        let flags = match receive.form {
            Form::One => Flags::empty(),
            Form::Many => Flags::MULTI_RECV,
            Form::Peek => Flags::PEEK,
            Form::Discard => Flags::PEEK | Flags::DISCARD,
            Form::Claim => Flags::PEEK | Flags::CLAIM,
            Form::Claimed(_) => Flags::CLAIM,
            Form::Dropped(_) => Flags::CLAIM | Flags::DISCARD,
        };
        let tag = match receive.class {
            Class::Untagged => None,
            Class::Tag(class) => Some(TagMask { tag: class.into(), ignore: NAME_BITS }),
            Class::AnyTag => Some(TagMask { tag: 0, ignore: u64::MAX }),
        };
        let cut = receive.cut(id);
        let buffers = match receive.form {
            Form::One | Form::Many | Form::Claimed(_) => {
                lend(receive.bytes.0.split_at_mut(cut).into())
            }
            _ => Buffers::default(),
        };
        RecvRequest { buffers, tag, ..RecvRequest::new(source, context.context(), flags) }
    }

    /// Judges a completion of `context`, the receive that was posted under this number. A claimed message completes
    /// under the number of the claim.
    pub fn judge(
        &mut self,
        life: Life,
        context: usize,
        entry: &Entry,
        messages: &mut [Message],
        rules: Rules,
    ) {
        let claimed = |receive: &Receive| matches!(receive.form, Form::Claimed(claim) | Form::Dropped(claim) if claim == context);
        let id = match self.all[context].over {
            true => self.all.iter().rposition(claimed).unwrap_or(context),
            false => context,
        };
        let receive = &mut self.all[id];
        assert_eq!(receive.owner, life, "receive {id} completes at another process");
        assert!(!receive.over, "receive {id} completes after its end: {receive:?}");
        receive.over = receive.form != Form::Many || entry.flags.intersects(Flags::MULTI_RECV);
        match entry.failure.as_ref().map(|failure| failure.cause) {
            None | Some(Cause::Truncated) => self.judge_message(id, entry, messages),
            Some(Cause::NoMessage) => {
                let peeks = matches!(receive.form, Form::Peek | Form::Discard | Form::Claim);
                assert!(peeks, "receive {id} found nothing: {receive:?}");
            }
            Some(Cause::Canceled) if receive.canceled => {}
            Some(cause) => {
                assert!(may_fail(rules, cause), "receive {id} fails: {cause:?}, {receive:?}");
                receive.lost = true;
            }
        }
    }

    fn judge_message(&mut self, id: usize, entry: &Entry, messages: &mut [Message]) {
        let receive = &mut self.all[id];
        let tagged = entry.flags.intersects(Flags::TAGGED);
        let name = if tagged { entry.tag >> 8 } else { !entry.data } as usize;
        let message = &mut messages[name];
        let data = message.data.unwrap_or(0);
        assert_eq!(message.to, receive.owner.node, "message {name} came to another node");
        assert!(receive.accepts(message), "receive {id} got {message:?}: {receive:?}");
        let tag = message.tag.unwrap_or(0);
        assert_eq!((entry.tag, entry.data), (tag, data), "what message {name} says");
        assert_eq!(entry.source, message.from.node as PeerIndex, "the source of message {name}");
        let flags = entry.flags.difference(Flags::MULTI_RECV);
        assert_eq!(flags, receive.flags(message), "flags of receive {id} of message {name}");
        assert_eq!(message.taken_by, None, "receive {id} got message {name} too");
        match receive.form {
            Form::Peek => {}
            Form::Claim => {
                receive.found = Some(name);
                self.claims.push(id);
            }
            Form::Claimed(claim) | Form::Dropped(claim) => {
                message.taken_by = Some(id);
                assert_eq!(self.all[claim].found, Some(name), "receive {id} claims another");
            }
            _ => message.taken_by = Some(id),
        }
        let receive = &mut self.all[id];
        if !matches!(receive.form, Form::One | Form::Many | Form::Claimed(_)) {
            assert_eq!(entry.len_bytes as u64, message.len_bytes, "the length of message {name}");
            return;
        }
        judge_place(receive, id, name, entry, message);
    }

    /// Judges what holds at the end: nothing has changed in a buffer since its receive completed, and no message has
    /// overtaken another of its sender on the way to a receive that would have taken both.
    pub fn judge_end(&self, messages: &[Message]) {
        for (id, receive) in self.all.iter().enumerate() {
            judge_contents(id, receive, messages);
        }
        let mut flows = BTreeMap::<(Life, Life), Vec<(usize, usize)>>::new();
        for (name, message) in messages.iter().enumerate() {
            if let Some(by) = message.taken_by {
                flows.entry((message.from, self.all[by].owner)).or_default().push((name, by));
            }
        }
        for flow in flows.values() {
            for (at, (later, by)) in flow.iter().enumerate() {
                for (earlier, before) in &flow[..at] {
                    self.judge_order((*earlier, *before), (*later, *by), messages);
                }
            }
        }
    }

    fn judge_order(&self, earlier: (usize, usize), later: (usize, usize), messages: &[Message]) {
        let ((first, before), (second, by)) = (earlier, later);
        let taker = match self.all[by].form {
            Form::Claimed(claim) | Form::Dropped(claim) => claim,
            _ => by,
        };
        let before = match self.all[before].form {
            Form::Claimed(claim) | Form::Dropped(claim) => claim,
            _ => before,
        };
        if !self.all[taker].accepts(&messages[first]) {
            return;
        }
        // Where a message without bytes lies, nobody can tell.
        let place = |message| {
            let mut got = self.all[by].got.iter();
            got.find(|got| got.message == message && got.len_bytes > 0).map(|got| got.start)
        };
        let in_turn = match (place(first), place(second)) {
            (Some(first), Some(second)) => first < second,
            _ => true,
        };
        let right = before < taker || (before == taker && in_turn);
        let (one, other) = (&messages[first], &messages[second]);
        let (at, after) = (&self.all[before], &self.all[taker]);
        assert!(
            right,
            "{second}: {other:?} overtook {first}: {one:?}, receives {by}: {after:?}, {before}: {at:?}"
        );
    }
}

/// Judges the place of a message, and that it is whole.
fn judge_place(receive: &mut Receive, id: usize, name: usize, entry: &Entry, message: &Message) {
    let base = receive.bytes.0.as_ptr().addr();
    let start = match receive.form {
        Form::Many if entry.len_bytes > 0 => entry.buf.addr() - base,
        Form::Many => receive.got.last().map_or(0, |got| got.start + got.len_bytes),
        _ => 0,
    };
    let room_bytes = receive.bytes.0.len() as u64;
    match &entry.failure {
        None => assert_eq!(entry.len_bytes as u64, message.len_bytes, "bytes of message {name}"),
        Some(failure) => {
            let all_bytes = (entry.len_bytes + failure.overflow_bytes) as u64;
            assert_eq!(all_bytes, message.len_bytes, "bytes of message {name}, cut off");
            let full = (start + entry.len_bytes) as u64 == room_bytes;
            assert!(
                full && failure.overflow_bytes > 0,
                "receive {id} had room: {entry_len}",
                entry_len = entry.len_bytes
            );
        }
    }
    let end = start + entry.len_bytes;
    assert!(end as u64 <= room_bytes, "message {name} lies outside of receive {id}");
    for got in &receive.got {
        let apart = end <= got.start || got.start + got.len_bytes <= start;
        assert!(apart, "message {name} lies on {got:?} in receive {id}");
    }
    let whole = pattern::equal(name as u64, 0, &receive.bytes.0[start..end]);
    assert!(
        whole,
        "receive {id} got other bytes than those of message {name}: {receive_got:?}",
        receive_got = receive.got
    );
    receive.got.push(Got { message: name, start, len_bytes: entry.len_bytes });
    if receive.form == Form::Many && !receive.canceled && !receive.lost {
        let used_bytes = receive.got.iter().map(|got| got.len_bytes as u64).sum::<u64>();
        let full = room_bytes - used_bytes < receive.least_bytes;
        assert!(full || !receive.over, "receive {id} ended with room: {:?}", receive.got);
    }
}

/// Judges that a buffer holds its receive's bytes, and is unchanged elsewhere.
fn judge_contents(id: usize, receive: &Receive, messages: &[Message]) {
    let mut used = 0;
    for got in &receive.got {
        let bytes = &receive.bytes.0[got.start..got.start + got.len_bytes];
        let same = pattern::equal(got.message as u64, 0, bytes);
        assert!(same, "receive {id} was written to after its end: {:?}", messages[got.message]);
        used = used.max(got.start + got.len_bytes);
    }
    let clean = receive.form != Form::One || receive.bytes.0[used..].iter().all(|b| *b == EMPTY);
    assert!(clean || receive.got.is_empty(), "receive {id} has bytes beyond its message");
}
