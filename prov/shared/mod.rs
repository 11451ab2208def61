//! Shared contexts (`fi_stx_context`, `fi_srx_context` of `fi_endpoint(3)`).
//!
//! Receives that are posted to a shared receive context wait here, and so does the word of every
//! message that found none. The message itself stays with its endpoint, which takes the receive
//! as its own when the two meet, and completes it on its own queue.
//!
//! Lock order: an endpoint comes before a shared context, which calls none while it is locked.

mod calls;

pub use calls::{open_receive, open_transmit};

use crate::domain::DomainInner;
use crate::ep::{EpInner, RecvRequest};
use crate::object::{Class, Use, Users};
use crate::peer::owner::SrxOwner;
use erd_ffi::fi::{
    FI_ADDR_UNSPEC, FI_CLAIM, FI_CLASS_SRX_CTX, FI_CLASS_STX_CTX, FI_DISCARD, FI_EAGAIN,
    FI_EOPNOTSUPP, FI_MULTI_RECV, FI_PEEK, FI_TRIGGER, fid_ep, fid_stx,
};
use erd_rd::PeerId;
use erd_rd::matching::{Matcher, Pattern};
use parking_lot::Mutex;
use std::ffi::{c_int, c_void};
use std::net::SocketAddr;
use std::sync::{Arc, Weak};

/// A shared transmit context. Endpoints have their own queues, so there is nothing in it.
pub struct StxInner {
    users: Users,
    _domain_use: Use,
}

// SAFETY: `fid_stx` begins with its `fid`, and no other state has this class.
unsafe impl Class for StxInner {
    type Abi = fid_stx;
    const FCLASS: usize = FI_CLASS_STX_CTX;

    fn users(&self) -> &Users {
        &self.users
    }
}

impl StxInner {
    /// Keeps the context open until the answer is dropped.
    #[must_use]
    pub fn hold(&self) -> Use {
        self.users.add()
    }
}

/// State of a shared receive context.
pub struct SrxInner {
    queue: Mutex<Queue>,
    directed: bool,
    /// Default flags of receives.
    rx_flags: u64,
    /// Another provider has the receives.
    owner: Option<SrxOwner>,
    users: Users,
    _domain_use: Use,
}

struct Queue {
    matcher: Matcher<SocketAddr, Posted, Waiting>,
    /// Endpoints bound here.
    members: Vec<Weak<EpInner>>,
}

struct Posted(RecvRequest);

// SAFETY: the memory is lent by the application until the receive completes; contexts are never
// looked at.
unsafe impl Send for Posted {}

/// A message that no receive was there for.
struct Waiting {
    endpoint: Weak<EpInner>,
    peer: PeerId,
    tag: Option<u64>,
}

// SAFETY: `fid_ep` begins with its `fid`, and no other state has this class.
unsafe impl Class for SrxInner {
    type Abi = fid_ep;
    const FCLASS: usize = FI_CLASS_SRX_CTX;

    fn users(&self) -> &Users {
        &self.users
    }
}

/// What a receive of a shared context cannot be.
const NOT_SHARED: u64 = FI_MULTI_RECV | FI_PEEK | FI_CLAIM | FI_DISCARD | FI_TRIGGER;

impl SrxInner {
    fn new(domain: &DomainInner, terms: (usize, u64, bool)) -> Arc<SrxInner> {
        SrxInner::with(domain, terms, None)
    }

    /// A context of another provider's, which has the queue.
    pub(crate) fn of_owner(domain: &DomainInner, rx_flags: u64, owner: SrxOwner) -> Arc<SrxInner> {
        SrxInner::with(domain, (0, rx_flags, false), Some(owner))
    }

    /// The provider that has the receives, if it is another.
    pub(crate) fn owner(&self) -> Option<SrxOwner> {
        self.owner
    }

    fn with(
        domain: &DomainInner,
        (size, rx_flags, directed): (usize, u64, bool),
        owner: Option<SrxOwner>,
    ) -> Arc<SrxInner> {
        let size = u32::try_from(size).unwrap_or(u32::MAX);
        // What waits is bounded by the credit that the endpoints' engines give.
        let matcher = Matcher::new(size, u32::MAX);
        Arc::new(SrxInner {
            queue: Mutex::new(Queue { matcher, members: Vec::new() }),
            directed,
            rx_flags,
            owner,
            users: Users::default(),
            _domain_use: domain.hold(),
        })
    }

    /// Keeps the context open until the answer is dropped.
    #[must_use]
    pub fn hold(&self) -> Use {
        self.users.add()
    }

    /// `endpoint` takes its receives from here.
    pub fn join(&self, endpoint: &Arc<EpInner>) {
        self.queue.lock().members.push(Arc::downgrade(endpoint));
    }

    /// `endpoint` closes.
    pub fn leave(&self, endpoint: &Weak<EpInner>) {
        let mut queue = self.queue.lock();
        queue.members.retain(|member| !Weak::ptr_eq(member, endpoint));
        queue.matcher.take_unexpected(|_, waiting| Weak::ptr_eq(&waiting.endpoint, endpoint));
    }

    /// The receive for a message of `name`, or `None`: then it waits.
    pub(crate) fn take(
        &self,
        name: SocketAddr,
        tag: Option<u64>,
        (endpoint, peer): (&Weak<EpInner>, PeerId),
    ) -> Option<RecvRequest> {
        let mut queue = self.queue.lock();
        if let Some(key) = queue.matcher.find_posted(name, tag) {
            return Some(queue.matcher.remove_posted(key).1.0);
        }
        let waiting = Waiting { endpoint: Weak::clone(endpoint), peer, tag };
        if queue.matcher.push_unexpected(name, tag, waiting).is_err() {
            tracing::error!("more unexpected messages than engines admit");
        }
        None
    }

    /// A message that waited will never come.
    pub fn withdraw(&self, endpoint: &Weak<EpInner>, peer: PeerId, tag: Option<u64>) {
        let mut found = false;
        self.queue.lock().matcher.take_unexpected(|_, waiting| {
            let same = waiting.peer == peer
                && waiting.tag == tag
                && Weak::ptr_eq(&waiting.endpoint, endpoint);
            let first = same && !found;
            found |= same;
            first
        });
    }

    /// Posts a receive.
    ///
    /// # Errors
    /// A positive error number.
    fn post(&self, request: &RecvRequest) -> Result<(), c_int> {
        if request.flags & NOT_SHARED != 0 {
            tracing::info!(request.flags, "a shared context takes plain receives");
            return Err(FI_EOPNOTSUPP);
        }
        let source = match request.source {
            fi_addr if self.directed && fi_addr != FI_ADDR_UNSPEC => Some(self.name_of(fi_addr)?),
            _ => None,
        };
        let pattern = Pattern { source, tag: request.tag };
        loop {
            let mut queue = self.queue.lock();
            let Some(key) = queue.matcher.find_unexpected(&pattern) else {
                let posted = queue.matcher.post(pattern, Posted(*request));
                return posted.map(|_| ()).map_err(|_| FI_EAGAIN);
            };
            let waiting = queue.matcher.remove_unexpected(key);
            drop(queue);
            if let Some(endpoint) = waiting.endpoint.upgrade()
                && endpoint.receive_shared(request, waiting.peer, waiting.tag)
            {
                return Ok(());
            }
            // The message is void, or its endpoint closed: look for another.
        }
    }

    /// The name at `fi_addr`, in the AV of the endpoints bound here.
    fn name_of(&self, fi_addr: u64) -> Result<SocketAddr, c_int> {
        let members = self.queue.lock().members.clone();
        let name = members.iter().filter_map(Weak::upgrade).find_map(|ep| ep.name_at(fi_addr));
        name.ok_or(erd_ffi::fi::FI_EINVAL)
    }

    /// `fi_cancel`: true if a posted receive had this context. It completes at some endpoint.
    fn cancel(&self, context: *mut c_void) -> bool {
        let mut queue = self.queue.lock();
        let found = queue.matcher.search_posted(|posted| posted.0.context == context);
        let Some(key) = found else { return false };
        let (_, Posted(request)) = queue.matcher.remove_posted(key);
        let members = queue.members.clone();
        drop(queue);
        if let Some(endpoint) = members.iter().find_map(Weak::upgrade) {
            endpoint.report_canceled(&request);
        }
        true
    }
}
