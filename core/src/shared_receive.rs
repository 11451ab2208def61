//! Shared receive contexts.
//!
//! Posted receives wait here, and so does a note of every message that found no receive. The message itself stays with
//! its endpoint. When the two meet, the endpoint takes over the receive and completes it on its own queue.
//!
//! Lock order: an endpoint comes before a shared context, which calls no endpoint while it is locked.

use crate::cause::Cause;
use crate::domain::Domain;
use crate::endpoint::limits::MIN_MULTI_RECV_BYTES;
use crate::endpoint::receives::many::{Ended, MultiRecv, Orphans, Part, SharedBuffer};
use crate::endpoint::request::RecvRequest;
use crate::endpoint::room::Room;
use crate::error::Error;
use crate::flags::Flags;
use crate::foreign::ReceiveOwner;
use crate::peer_index::{ANYONE, PeerIndex};
use crate::polled::Polled;
use crate::random;
use crate::settings::KeySource;
use crate::uses::{Use, Users};
use erd_rd::PeerId;
use erd_rd::keys::KeyId;
use erd_rd::matching::{Key, Matcher, Pattern, Senders, Source};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::ffi::c_void;
use std::hash::{Hash, Hasher};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

/// The source of a message, by names that hold for all endpoints: each has keys in places of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Sender {
    /// The name of its process.
    pub name: SocketAddr,
    /// The key that it used, where the domain leaves keys to address vectors.
    pub key: Option<KeyId>,
}

impl Source for Sender {
    type Key = Option<KeyId>;

    fn key(self) -> Option<KeyId> {
        self.key
    }

    /// Peers choose their ports, and some choose their addresses.
    fn number(self, mut keyed: impl Hasher) -> u64 {
        self.name.hash(&mut keyed);
        self.key.hash(&mut keyed);
        keyed.finish()
    }

    fn key_number(key: Option<KeyId>, mut keyed: impl Hasher) -> u64 {
        key.hash(&mut keyed);
        keyed.finish()
    }
}

/// An endpoint that takes its receives from a shared context.
pub(crate) trait SharedMember: Polled {
    /// Gives `posted` to the first message of `peer` with `tag`. False if the message has gone, or if the endpoint has
    /// no room for a receive.
    fn receive_shared(&self, posted: &Posted, peer: PeerId, tag: Option<u64>) -> bool;

    /// Number of receives under way, or with unread completions.
    fn receiving(&self) -> usize;

    /// True if a message was claimed here with this context.
    fn claims(&self, context: *mut c_void) -> bool;

    /// Completes a search of the context: for the first message of a peer with a tag, a claimed one, or none. False if
    /// the first has gone.
    ///
    /// # Errors
    /// Why not.
    fn search_shared(
        &self,
        request: &RecvRequest,
        first: Option<(PeerId, Option<u64>)>,
    ) -> Result<bool, Error>;

    /// Reports a receive of the context that ended without a message.
    fn report_ended(&self, ended: &Ended);

    /// The senders of this name in the endpoint's AV: of an address, or of a key.
    fn sender_at(&self, name: PeerIndex, is_key: bool) -> Option<Senders<Sender>>;
}

/// State of a shared receive context.
pub struct SharedReceives {
    queue: Mutex<Queue>,
    /// Most receives that are posted, under way, or with unread completions.
    size: usize,
    directed: bool,
    /// The domain leaves keys to address vectors.
    takes_keys: bool,
    /// Default flags of receives.
    rx_flags: Flags,
    /// Least space below which a buffer of many messages is released.
    min_multi_recv_bytes: AtomicUsize,
    orphans: Orphans,
    /// The other provider that has the receives, if one does.
    owner: Option<Arc<dyn ReceiveOwner>>,
    users: Users,
    _domain_use: Use,
}

struct Queue {
    matcher: Matcher<Sender, Posted, Waiting>,
    /// For what searches remember.
    room: Room,
    /// Endpoints bound here.
    members: Vec<Weak<dyn SharedMember>>,
    /// Receives that the endpoints had under way, or with unread completions, when last counted.
    busy: usize,
    /// Receives that they have taken since.
    taken: usize,
}

impl Queue {
    fn new(matcher: Matcher<Sender, Posted, Waiting>) -> Queue {
        Queue { matcher, room: Room::default(), members: Vec::new(), busy: 0, taken: 0 }
    }

    /// The first message that a receive with this pattern takes.
    fn find(&mut self, at: &Pattern<Sender>) -> Option<Key> {
        self.matcher.find_unexpected(at, |bytes| self.room.has(bytes))
    }

    /// Receives that count for the context's size, or more.
    fn load(&self) -> usize {
        self.matcher.posted_len() + self.busy + self.taken
    }
}

/// A posted receive.
pub(crate) enum Posted {
    /// A receive of one message.
    One(RecvRequest),
    /// A buffer for many messages.
    Many(Arc<SharedBuffer>),
}

// SAFETY: the memory is lent by the application until the receive completes; this code never reads contexts.
unsafe impl Send for Posted {}

impl Posted {
    fn new(request: &RecvRequest, srx: &SharedReceives) -> Result<Posted, Error> {
        if request.flags.intersects(Flags::MULTI_RECV) {
            let buffer = MultiRecv::new(*request, srx.min_multi_recv_bytes())?;
            let (buffer, orphans) = (Mutex::new(buffer), Arc::clone(&srx.orphans));
            Ok(Posted::Many(Arc::new(SharedBuffer { buffer, orphans })))
        } else {
            Ok(Posted::One(*request))
        }
    }

    /// The receive for one message of `len_bytes`.
    pub fn give(&self, len_bytes: u64) -> (RecvRequest, Part) {
        match self {
            Posted::One(request) => (*request, Part::default()),
            Posted::Many(shared) => shared.part(len_bytes),
        }
    }

    /// True if it takes no more messages.
    fn is_over(&self) -> bool {
        match self {
            Posted::One(_) => true,
            Posted::Many(shared) => shared.buffer.lock().is_over(),
        }
    }

    fn context(&self) -> *mut c_void {
        match self {
            Posted::One(request) => request.context,
            Posted::Many(shared) => shared.buffer.lock().context(),
        }
    }

    /// Completion to report for its cancellation, if one is due.
    fn cancel(&self) -> Option<Ended> {
        match self {
            Posted::One(request) => Some(Ended { request: *request, cause: Some(Cause::Canceled) }),
            Posted::Many(shared) => shared.buffer.lock().end(Cause::Canceled),
        }
    }
}

/// A message without a receive.
struct Waiting {
    endpoint: Weak<dyn SharedMember>,
    peer: PeerId,
    tag: Option<u64>,
}

/// Flags that a receive of a shared context cannot have.
const NOT_SHARED: Flags = Flags::TRIGGER;

/// Most times that the receives are counted while messages come.
const COUNTS_MAX: usize = 4;

impl SharedReceives {
    /// A context with room for `size` receives, their default flags, and whether they may name their source. If `owner`
    /// is given, that provider has the receives.
    #[must_use]
    pub fn new(
        domain: &Domain,
        (size, rx_flags, directed): (usize, Flags, bool),
        owner: Option<Arc<dyn ReceiveOwner>>,
    ) -> Arc<SharedReceives> {
        // Receives are bounded as they are admitted: by the size, and one more for each thread that posts at the same
        // time. A buffer that took messages is always admitted again. The credit that the endpoints' engines give
        // bounds the waiting messages.
        let matcher = Matcher::new(u32::MAX, u32::MAX, random::u64());
        Arc::new(SharedReceives {
            queue: Mutex::new(Queue::new(matcher)),
            size,
            directed,
            takes_keys: domain.settings.keys == KeySource::Vectors,
            rx_flags,
            min_multi_recv_bytes: AtomicUsize::new(MIN_MULTI_RECV_BYTES),
            orphans: Orphans::default(),
            owner,
            users: Users::default(),
            _domain_use: domain.hold(),
        })
    }

    /// The provider that has the receives, if it is another.
    pub fn owner(&self) -> Option<&Arc<dyn ReceiveOwner>> {
        self.owner.as_ref()
    }

    /// Objects that need the context.
    #[must_use]
    pub fn users(&self) -> &Users {
        &self.users
    }

    /// Default flags of receives.
    #[must_use]
    pub fn rx_flags(&self) -> Flags {
        self.rx_flags
    }

    /// Least space below which a buffer of many messages is released.
    #[must_use]
    pub fn min_multi_recv_bytes(&self) -> usize {
        self.min_multi_recv_bytes.load(Ordering::Relaxed)
    }

    /// Sets it.
    pub fn set_min_multi_recv_bytes(&self, bytes: usize) {
        self.min_multi_recv_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Keeps the context open until the result is dropped.
    #[must_use]
    pub fn hold(&self) -> Use {
        self.users.add()
    }

    /// `endpoint` takes its receives from here.
    pub(crate) fn join(&self, endpoint: Weak<dyn SharedMember>) {
        self.queue.lock().members.push(endpoint);
    }

    /// `endpoint` closes.
    pub(crate) fn leave(&self, endpoint: &Weak<dyn SharedMember>) {
        let mut queue = self.queue.lock();
        queue.members.retain(|member| !Weak::ptr_eq(member, endpoint));
        queue.matcher.take_unexpected(|_, waiting| Weak::ptr_eq(&waiting.endpoint, endpoint));
    }

    /// After an endpoint has closed: reports buffers that had their last part there.
    pub(crate) fn tell_of_orphans(&self) {
        let orphans = std::mem::take(&mut *self.orphans.lock());
        orphans.iter().for_each(|ended| self.tell(ended));
    }

    /// Lets some endpoint report a receive that has ended.
    fn tell(&self, ended: &Ended) {
        self.each_member(|endpoint| {
            endpoint.report_ended(ended);
            true
        });
    }

    /// The receive for a message from `sender`, or `None`: then it waits.
    pub(crate) fn take(
        &self,
        sender: Sender,
        (tag, len_bytes): (Option<u64>, u64),
        (endpoint, peer): (&Weak<dyn SharedMember>, PeerId),
    ) -> Option<(RecvRequest, Part)> {
        let mut queue = self.queue.lock();
        if let Some(key) = queue.matcher.find_posted(sender, tag) {
            queue.taken += 1;
            let posted = queue.matcher.posted_mut(key).1;
            let given = posted.give(len_bytes);
            if posted.is_over() {
                queue.matcher.remove_posted(key);
            }
            return Some(given);
        }
        let waiting = Waiting { endpoint: Weak::clone(endpoint), peer, tag };
        if queue.matcher.push_unexpected(sender, tag, waiting).is_err() {
            tracing::error!("more unexpected messages than engines admit");
        }
        None
    }

    /// Memory, in bytes, that the next message takes which waits here.
    pub(crate) fn growth_bytes(&self, tagged: bool) -> usize {
        self.queue.lock().matcher.growth_bytes(tagged)
    }

    /// Removes waiting messages that will never come: a number for each peer and tag.
    pub(crate) fn withdraw(
        &self,
        endpoint: &Weak<dyn SharedMember>,
        mut gone: HashMap<(PeerId, Option<u64>), usize>,
    ) {
        if gone.is_empty() {
            return;
        }
        self.queue.lock().matcher.take_unexpected(|_, waiting| {
            let here = Weak::ptr_eq(&waiting.endpoint, endpoint);
            let left = gone.get_mut(&(waiting.peer, waiting.tag));
            left.filter(|left| here && **left > 0).map(|left| *left -= 1).is_some()
        });
    }

    /// Checks that there is room for one more receive.
    ///
    /// # Errors
    /// [`Error::Again`].
    fn admit(&self) -> Result<(), Error> {
        if self.queue.lock().load() < self.size {
            return Ok(());
        }
        self.each_member(|endpoint| {
            endpoint.progress();
            false
        });
        // A receive that another thread takes meanwhile may count twice, so count again.
        for _ in 0..COUNTS_MAX {
            self.queue.lock().taken = 0;
            let mut busy = 0;
            self.each_member(|endpoint| {
                busy += endpoint.receiving();
                false
            });
            let mut queue = self.queue.lock();
            queue.busy = busy;
            if queue.load() < self.size {
                return Ok(());
            }
            if queue.taken == 0 {
                break;
            }
        }
        Err(Error::Again)
    }

    /// Calls `f` for the endpoints bound here until it returns true; returns whether it did. The caller holds no lock.
    fn each_member(&self, f: impl FnMut(Arc<dyn SharedMember>) -> bool) -> bool {
        let members = self.queue.lock().members.clone();
        members.iter().filter_map(Weak::upgrade).any(f)
    }

    /// Posts a receive.
    ///
    /// # Errors
    /// Why not.
    pub fn post(&self, request: &RecvRequest) -> Result<(), Error> {
        if request.flags.intersects(NOT_SHARED) {
            tracing::info!(?request.flags, "a receive of a shared context is not triggered");
            return Err(Error::Unsupported);
        }
        let is_key = request.flags.intersects(Flags::AUTH_KEY);
        if is_key && !(self.directed && self.takes_keys) {
            tracing::info!("a receive by key needs FI_DIRECTED_RECV, and keys of address vectors");
            return Err(Error::Invalid);
        }
        let from = match request.source {
            ANYONE => Senders::Any,
            _ if !self.directed => Senders::Any,
            name => self.sender(name, is_key)?,
        };
        let pattern = Pattern { from, tag: request.tag };
        self.admit()?;
        if request.flags.intersects(Flags::PEEK | Flags::CLAIM | Flags::DISCARD) {
            return self.search(request, &pattern);
        }
        let posted = Posted::new(request, self)?;
        loop {
            let mut queue = self.queue.lock();
            let Some(key) = queue.find(&pattern) else {
                let posted = queue.matcher.post(pattern, posted);
                return posted.map(|_| ()).map_err(|_| Error::Again);
            };
            let waiting = queue.matcher.remove_unexpected(key);
            queue.taken += 1;
            drop(queue);
            if let Some(endpoint) = waiting.endpoint.upgrade()
                && endpoint.receive_shared(&posted, waiting.peer, waiting.tag)
                && posted.is_over()
            {
                return Ok(());
            }
            // The message is void, its endpoint closed or has no room now, or there is room for more.
        }
    }

    /// [`Flags::PEEK`], [`Flags::CLAIM`] and [`Flags::DISCARD`]. The endpoint that has the message does them.
    fn search(&self, request: &RecvRequest, at: &Pattern<Sender>) -> Result<(), Error> {
        if request.tag.is_none() {
            tracing::info!(?request.flags, "a message is looked for by its tag");
            return Err(Error::Invalid);
        }
        if !request.flags.intersects(Flags::PEEK) {
            let mut taken = Err(Error::Invalid);
            self.each_member(|endpoint| {
                let claims = endpoint.claims(request.context);
                if claims {
                    taken = endpoint.search_shared(request, None);
                }
                claims
            });
            return taken.map(|_| ());
        }
        loop {
            let mut queue = self.queue.lock();
            let Some(key) = queue.find(at) else { break };
            let found = queue.matcher.unexpected_mut(key);
            let (peer, tag, endpoint) = (found.peer, found.tag, found.endpoint.upgrade());
            if request.flags.intersects(Flags::CLAIM | Flags::DISCARD) || endpoint.is_none() {
                queue.matcher.remove_unexpected(key);
            }
            drop(queue);
            // Otherwise the message is void, and so is its note: look for another.
            if let Some(endpoint) = endpoint
                && endpoint.search_shared(request, Some((peer, tag)))?
            {
                return Ok(());
            }
        }
        // No message is there. Any endpoint can report that.
        let told = self.each_member(|endpoint| endpoint.search_shared(request, None).is_ok());
        if told { Ok(()) } else { Err(Error::NoQueue) }
    }

    /// The senders of this name, in the AV of the endpoints bound here.
    fn sender(&self, name: PeerIndex, is_key: bool) -> Result<Senders<Sender>, Error> {
        let members = self.queue.lock().members.clone();
        let mut endpoints = members.iter().filter_map(Weak::upgrade);
        endpoints.find_map(|ep| ep.sender_at(name, is_key)).ok_or(Error::Invalid)
    }

    /// `fi_cancel`: true if a posted receive had this context. It completes at some endpoint.
    pub fn cancel(&self, context: *mut c_void) -> bool {
        let mut queue = self.queue.lock();
        let found = queue.matcher.search_posted(|posted| posted.context() == context);
        let Some(key) = found else { return false };
        let (_, posted) = queue.matcher.remove_posted(key);
        drop(queue);
        posted.cancel().iter().for_each(|ended| self.tell(ended));
        true
    }
}
