//! The endpoint's side of another provider's receive context ([`crate::foreign`]).
//!
//! A message is first kept as unexpected, whoever made the step in which it came. When the owner
//! next calls, it is asked for the receive, outside the endpoint's lock. Without one the message is
//! queued with the owner, by a key, and comes back when the owner starts or discards it.

use super::complete::Direction;
use super::driver::Driver;
use super::host::EpHost;
use super::recv::{RecvOp, Unexpected};
use super::{Endpoint, State};
use crate::cause::Cause;
use crate::completion::CompletionQueue;
use crate::error::Error;
use crate::flags::Flags;
use crate::foreign::{Answer, LentReceive, Offer, ReceiveOwner, Slip};
use crate::peer_index::{NOWHERE, PeerIndex};
use crate::shared_receive::SharedReceives;
use crate::uses::Use;
use erd_rd::PeerId;
use erd_sys::clock::monotonic_ns;
use parking_lot::RwLock;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Weak};

/// The endpoints that have an owner, by the number that is in their messages' keys. An owner may
/// hold a key for longer than the endpoint is there.
static ENDPOINTS: RwLock<Endpoints> = RwLock::new(Endpoints { last: 0, all: BTreeMap::new() });

struct Endpoints {
    last: u32,
    all: BTreeMap<u32, Weak<Endpoint>>,
}

/// What an owner keeps of a message: the endpoint and the message, by number.
#[derive(Clone, Copy)]
struct Key {
    endpoint: u32,
    message: u32,
}

impl Key {
    fn bits(self) -> u64 {
        u64::from(self.endpoint) << 32 | u64::from(self.message)
    }

    fn of(bits: u64) -> Key {
        Key { endpoint: (bits >> 32) as u32, message: bits as u32 }
    }

    fn endpoint(self) -> Option<Arc<Endpoint>> {
        ENDPOINTS.read().all.get(&self.endpoint)?.upgrade()
    }
}

/// The owner's context that an endpoint is bound to.
pub(super) struct PeerRx {
    owner: Arc<dyn ReceiveOwner>,
    number: u32,
    messages: HashMap<u32, Message>,
    /// Messages that the owner was not asked about, oldest first.
    fresh: VecDeque<u32>,
    last: u32,
    _use: Use,
}

struct Message {
    message: Unexpected,
    /// The owner knows of it.
    offered: bool,
    /// Its session ended before the payload came.
    void: Option<Cause>,
}

impl PeerRx {
    pub(super) fn new(
        srx: &SharedReceives,
        owner: &Arc<dyn ReceiveOwner>,
        endpoint: &Arc<Endpoint>,
    ) -> PeerRx {
        let mut endpoints = ENDPOINTS.write();
        loop {
            endpoints.last = endpoints.last.wrapping_add(1);
            if endpoints.last != 0 && !endpoints.all.contains_key(&endpoints.last) {
                break;
            }
        }
        let number = endpoints.last;
        endpoints.all.insert(number, Arc::downgrade(endpoint));
        let (messages, fresh) = (HashMap::new(), VecDeque::new());
        PeerRx { owner: Arc::clone(owner), number, messages, fresh, last: 0, _use: srx.hold() }
    }

    /// Keeps a message that has come.
    pub(super) fn keep(&mut self, message: Unexpected) {
        while self.messages.contains_key(&self.last) {
            self.last = self.last.wrapping_add(1);
        }
        self.messages.insert(self.last, Message { message, offered: false, void: None });
        self.fresh.push_back(self.last);
        self.last = self.last.wrapping_add(1);
    }

    /// What `is_gone` holds for will never come. The owner cannot take back what it knows of.
    pub(super) fn void(&mut self, cause: Cause, is_gone: impl Fn(&Unexpected) -> bool) {
        self.messages.retain(|_, kept| {
            if is_gone(&kept.message) && kept.void.is_none() {
                kept.void = Some(cause);
                return kept.offered;
            }
            true
        });
    }

    /// The peer of a message.
    fn peer_of(&self, number: u32) -> Option<PeerId> {
        self.messages.get(&number).map(|kept| kept.message.msg.peer)
    }
}

impl Drop for PeerRx {
    fn drop(&mut self) {
        ENDPOINTS.write().all.remove(&self.number);
    }
}

impl EpHost {
    /// The owner has back what was lent for a receive that ends without a word.
    pub(super) fn return_lent(&self, op: &RecvOp) {
        if let (true, Some(peer)) = (op.flags.intersects(Flags::PEER), &self.peer) {
            peer.owner.give_back(op.context);
        }
    }
}

impl EpHost {
    /// Where sends and receives complete.
    pub(super) fn queues(&self) -> [Option<Arc<CompletionQueue>>; 2] {
        [&self.tx, &self.rx].map(|part| part.cq.as_ref().map(|bound| Arc::clone(&bound.cq)))
    }
}

impl Direction {
    /// Whether completions go to another provider's queue.
    pub(super) fn has_owner(&self) -> bool {
        self.cq.as_ref().is_some_and(|bound| bound.cq.has_owner())
    }
}

impl Driver {
    /// The next message to ask the owner about.
    fn next_offer(&mut self) -> Option<Offer> {
        loop {
            let peer = self.host.peer.as_mut()?;
            let number = peer.fresh.pop_front()?;
            let Some(kept) = peer.messages.get_mut(&number) else { continue };
            kept.offered = true;
            let message = kept.message;
            let source = self.source_of(message.msg.peer);
            let Unexpected { tag, data, len_bytes, .. } = message;
            return Some(Offer { number, source, tag, data, len_bytes });
        }
    }

    /// The owner did not answer, and is asked again later.
    fn take_back(&mut self, number: u32) -> Option<()> {
        let peer = self.host.peer.as_mut()?;
        let kept = peer.messages.get_mut(&number)?;
        kept.offered = false;
        if kept.void.is_none() {
            peer.fresh.push_front(number);
        } else {
            peer.messages.remove(&number);
        }
        Some(())
    }

    /// Brings the owner's receive to its message.
    ///
    /// # Errors
    /// [`Error::Invalid`]: there is no such message.
    fn begin(&mut self, number: u32, slip: Slip) -> Result<(), Error> {
        let always = self.host.rx.always_completes();
        let Some(peer) = &mut self.host.peer else { return Err(Error::Invalid) };
        let Some(kept) = peer.messages.remove(&number) else { return Err(Error::Invalid) };
        let Some((recv, op)) = self.host.recvs.take() else { return Err(Error::Failed) };
        let LentReceive { buffers, flags, context } = peer.owner.lend(slip);
        let kind = if kept.message.tag.is_some() { Flags::TAGGED } else { Flags::MSG };
        let wanted = if always { Flags::COMPLETION } else { flags & Flags::COMPLETION };
        let made = RecvOp {
            buffers: buffers.unwrap_or_default(),
            context,
            flags: Flags::RECV | Flags::PEER | kind | wanted | flags & Flags::MULTI_RECV,
            completion: true,
            ..RecvOp::default()
        };
        *op = made;
        self.host.meet(recv, &kept.message);
        if let Some(cause) = kept.void {
            self.host.recv_ended(recv, Err(cause));
        } else if buffers.is_none_or(|buffers| !buffers.are_somewhere()) {
            tracing::info!("a receive of another provider's has no list of buffers that is valid");
            self.host.discard(&kept.message);
            self.host.recv_ended(recv, Err(Cause::BadBuffer));
        } else if !self.start(recv, &kept.message) {
            self.host.recv_ended(recv, Err(Cause::PeerClosed));
        }
        Ok(())
    }

    /// Says what has come of receives that begin.
    fn after_begin(&mut self) -> Option<()> {
        let now = monotonic_ns();
        self.settle();
        self.transmit(now, true);
        self.publish();
        Some(())
    }
}

impl Endpoint {
    /// Asks the owner, which calls, for the receives of messages that have come.
    pub(crate) fn serve_owner(&self) {
        let Some(owner) = self.srx_owner.get() else { return };
        let Some(_serving) = self.serving.try_lock() else { return };
        let mut begun = false;
        while let Some(offer) = self.look_in(Driver::next_offer) {
            let back = match owner.get(&offer) {
                Answer::Receive(slip) => {
                    begun = true;
                    let started = self.look_in(|driver| driver.begin(offer.number, slip).ok());
                    if started.is_none() {
                        owner.free(slip);
                    }
                    false
                }
                Answer::NoReceive(slip) => !self.queue_with(&**owner, &offer, slip),
                Answer::Refused(errno) => {
                    tracing::info!(errno, "the owner of receives gives none and no entry");
                    true
                }
            };
            if back {
                self.look_in(|driver| driver.take_back(offer.number));
                break;
            }
        }
        if begun {
            self.look_in(Driver::after_begin);
            self.work();
        }
    }

    /// Queues a message with the owner. False if that fails.
    fn queue_with(&self, owner: &dyn ReceiveOwner, offer: &Offer, slip: Slip) -> bool {
        let number = self.look_in(|driver| driver.host.peer.as_ref().map(|peer| peer.number));
        let Some(endpoint) = number else {
            owner.free(slip);
            return false;
        };
        owner.queue(slip, Key { endpoint, message: offer.number }.bits(), offer)
    }

    /// Calls `f` if the endpoint is enabled and sound.
    fn look_in<R>(&self, f: impl FnOnce(&mut Driver) -> Option<R>) -> Option<R> {
        if !self.is_usable() {
            return None;
        }
        match &mut *self.lock() {
            State::Enabled(driver) => f(driver),
            State::Setup(_) | State::Closed => None,
        }
    }

    /// Addresses were inserted: the owner may want those of what it has queued.
    pub(super) fn tell_owner_of_names(&self) {
        if let Some(owner) = self.srx_owner.get() {
            owner.addresses_changed();
        }
    }

    /// Gives owners what has completed. One of them calls.
    fn hand_over(&self) {
        let queues = self.look_in(|driver| Some(driver.host.queues()));
        queues.iter().flatten().flatten().for_each(|cq| cq.hand_over());
    }
}

/// The owner has a receive for the message that it had queued under `key`.
///
/// # Errors
/// [`Error::Invalid`] if there is no such message, [`Error::Failed`] if its endpoint has failed. The
/// receive is the owner's still.
pub fn start_queued(key: u64, slip: Slip) -> Result<(), Error> {
    let key = Key::of(key);
    let Some(endpoint) = key.endpoint() else {
        tracing::info!("start_msg, start_tag: the entry's endpoint is closed, or none of ours");
        return Err(Error::Invalid);
    };
    endpoint.touch();
    let begun = endpoint.look_in(|driver| {
        let begun = driver.begin(key.message, slip);
        driver.after_begin();
        Some(begun)
    });
    endpoint.work();
    endpoint.hand_over();
    if let Some(Err(_)) = begun {
        tracing::info!("start_msg, start_tag: the entry was not queued, or started before");
    }
    begun.unwrap_or(Err(Error::Failed))
}

/// Nobody wants the message queued under `key`. One that is not there is no mistake: its
/// endpoint may have been closed first.
pub fn discard_queued(key: u64) {
    let key = Key::of(key);
    let Some(endpoint) = key.endpoint() else { return };
    endpoint.look_in(|driver| {
        let kept = driver.host.peer.as_mut()?.messages.remove(&key.message)?;
        if kept.void.is_none() {
            driver.host.discard(&kept.message);
        }
        driver.after_begin()
    });
}

/// Where the sender of the message queued under `key` is in the AV now.
#[must_use]
pub fn source_of_queued(key: u64) -> PeerIndex {
    let key = Key::of(key);
    let found = key.endpoint().and_then(|endpoint| {
        endpoint.look_in(|driver| {
            let peer = driver.host.peer.as_ref()?.peer_of(key.message)?;
            Some(driver.source_of(peer))
        })
    });
    found.unwrap_or(NOWHERE)
}
