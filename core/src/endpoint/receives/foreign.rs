//! Messages whose receives are in another library's receive context ([`crate::foreign`]).
//!
//! The endpoint first keeps a message as unexpected, whichever thread received it. On the owner's next call it asks the
//! owner for the receive, outside its own lock. Without a receive it queues the message with the owner, by a key, until
//! the owner starts or discards it.

use super::queue::Unexpected;
use crate::cause::Cause;
use crate::endpoint::operations::RecvOp;
use crate::error::Error;
use crate::flags::Flags;
use crate::foreign::{ReceiveOwner, Slip};
use crate::peer_index::{NOWHERE, PeerIndex};
use crate::shared_receive::SharedReceives;
use crate::uses::Use;
use erd_rd::PeerId;
use parking_lot::RwLock;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Weak};

/// An endpoint whose messages an owner has queued, as that owner sees it.
pub trait Queued: Send + Sync {
    /// Starts a message, for which the owner now has a receive.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no such message, [`Error::Failed`] if the endpoint has failed.
    fn start(&self, message: u32, slip: Slip) -> Result<(), Error>;

    /// Discards a message.
    fn discard(&self, message: u32);

    /// Index of a message's sender in the AV now.
    fn source(&self, message: u32) -> Option<PeerIndex>;
}

/// The endpoints that have an owner, by the number in their messages' keys. An owner may hold a key for longer than the
/// endpoint exists.
static ENDPOINTS: RwLock<Endpoints> = RwLock::new(Endpoints { last: 0, all: BTreeMap::new() });

struct Endpoints {
    last: u32,
    all: BTreeMap<u32, Weak<dyn Queued>>,
}

/// An owner's key of a message: the numbers of endpoint and message.
#[derive(Clone, Copy)]
pub struct Key {
    pub endpoint: u32,
    pub message: u32,
}

impl Key {
    pub fn bits(self) -> u64 {
        u64::from(self.endpoint) << 32 | u64::from(self.message)
    }

    fn of(bits: u64) -> Key {
        Key { endpoint: (bits >> 32) as u32, message: bits as u32 }
    }

    fn endpoint(self) -> Option<Arc<dyn Queued>> {
        ENDPOINTS.read().all.get(&self.endpoint)?.upgrade()
    }
}

/// The owner's context that an endpoint is bound to.
pub struct Foreign {
    pub owner: Arc<dyn ReceiveOwner>,
    /// The endpoint's number.
    pub number: u32,
    pub messages: HashMap<u32, Message>,
    /// Messages that the owner was not asked about, oldest first.
    fresh: VecDeque<u32>,
    last: u32,
    _use: Use,
}

pub struct Message {
    pub message: Unexpected,
    /// The owner knows the message.
    offered: bool,
    /// Its session ended before the payload came.
    pub void: Option<Cause>,
}

impl Foreign {
    pub fn new(
        srx: &SharedReceives,
        owner: &Arc<dyn ReceiveOwner>,
        endpoint: Weak<dyn Queued>,
    ) -> Foreign {
        let mut endpoints = ENDPOINTS.write();
        loop {
            endpoints.last = endpoints.last.wrapping_add(1);
            if endpoints.last != 0 && !endpoints.all.contains_key(&endpoints.last) {
                break;
            }
        }
        let number = endpoints.last;
        endpoints.all.insert(number, endpoint);
        let (messages, fresh) = (HashMap::new(), VecDeque::new());
        Foreign { owner: Arc::clone(owner), number, messages, fresh, last: 0, _use: srx.hold() }
    }

    /// Keeps a message that has come.
    pub fn keep(&mut self, message: Unexpected) {
        while self.messages.contains_key(&self.last) {
            self.last = self.last.wrapping_add(1);
        }
        self.messages.insert(self.last, Message { message, offered: false, void: None });
        self.fresh.push_back(self.last);
        self.last = self.last.wrapping_add(1);
    }

    /// The next message to ask the owner about, and its number.
    pub fn next(&mut self) -> Option<(u32, Unexpected)> {
        loop {
            let number = self.fresh.pop_front()?;
            let Some(kept) = self.messages.get_mut(&number) else { continue };
            kept.offered = true;
            return Some((number, kept.message));
        }
    }

    /// Takes a message back that the owner refused, to ask again later.
    pub fn take_back(&mut self, number: u32) {
        let Some(kept) = self.messages.get_mut(&number) else { return };
        kept.offered = false;
        if kept.void.is_none() {
            self.fresh.push_front(number);
        } else {
            self.messages.remove(&number);
        }
    }

    /// The payload of messages for which `is_gone` holds will never come. A message that the owner knows stays with it.
    pub fn void(&mut self, cause: Cause, is_gone: impl Fn(&Unexpected) -> bool) {
        self.messages.retain(|_, kept| {
            if is_gone(&kept.message) && kept.void.is_none() {
                kept.void = Some(cause);
                return kept.offered;
            }
            true
        });
    }

    /// The peer of a message.
    pub fn peer_of(&self, number: u32) -> Option<PeerId> {
        self.messages.get(&number).map(|kept| kept.message.msg.peer)
    }

    /// Gives the owner back its loan for a receive that ends without a report.
    pub fn give_back(&self, op: &RecvOp) {
        if op.flags.intersects(Flags::PEER) {
            self.owner.give_back(op.context.0);
        }
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        ENDPOINTS.write().all.remove(&self.number);
    }
}

/// Starts the message queued under `key`, for which the owner now has a receive.
///
/// # Errors
/// [`Error::Invalid`] if there is no such message, [`Error::Failed`] if its endpoint has failed. The owner keeps the
/// receive then.
pub fn start_queued(key: u64, slip: Slip) -> Result<(), Error> {
    let key = Key::of(key);
    let Some(endpoint) = key.endpoint() else {
        tracing::info!("start_msg, start_tag: the entry's endpoint is closed, or none of ours");
        return Err(Error::Invalid);
    };
    endpoint.start(key.message, slip)
}

/// Discards the message queued under `key`. A missing one is no mistake: its endpoint may have closed first.
pub fn discard_queued(key: u64) {
    let key = Key::of(key);
    key.endpoint().into_iter().for_each(|endpoint| endpoint.discard(key.message));
}

/// Index in the AV of the sender of the message queued under `key`.
#[must_use]
pub fn source_of_queued(key: u64) -> PeerIndex {
    let key = Key::of(key);
    key.endpoint().and_then(|endpoint| endpoint.source(key.message)).unwrap_or(NOWHERE)
}
