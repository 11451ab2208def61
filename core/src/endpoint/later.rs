//! Operations that are posted when a counter reaches a threshold.

use super::Endpoint;
use super::call::check_buffers;
use super::complete::Report;
use super::driver::Driver;
use super::host::tx_of;
use super::operations::Owed;
use super::ops::Buffers;
use super::post_rma::{Access, RmaPost};
use super::post_send::SendRequest;
use super::request::RecvRequest;
use crate::cause::Cause;
use crate::counter::Counter;
use crate::error::Error;
use crate::flags::Flags;
use crate::run::Driven;
use crate::trigger::Deferred;
use std::ffi::c_void;
use std::sync::{Arc, Weak};

/// The operation to post.
pub enum Post {
    /// A send.
    Send(SendRequest),
    /// A receive.
    Recv(RecvRequest),
    /// A request for a peer's memory.
    Rma(Box<RmaPost>),
}

/// An operation to be posted later.
pub struct Later {
    endpoint: Weak<Endpoint>,
    post: Post,
    /// Bytes of an injected message, which the post's buffers point to.
    kept: Vec<u8>,
    /// Counter of deferred work; `None` for an operation that completes as others do.
    owed: Option<Option<Arc<Counter>>>,
}

// SAFETY: the buffers are lent by the application until the operation completes, and this code never reads contexts.
unsafe impl Send for Later {}
// SAFETY: a shared reference reads nothing but the endpoint's pointer.
unsafe impl Sync for Later {}

impl Post {
    fn flags(&mut self) -> &mut Flags {
        match self {
            Post::Send(request) => &mut request.call.flags,
            Post::Recv(request) => &mut request.flags,
            Post::Rma(request) => &mut request.call.flags,
        }
    }

    /// The context that it is posted with.
    #[must_use]
    pub fn context(&self) -> *mut c_void {
        match self {
            Post::Send(request) => request.call.context,
            Post::Recv(request) => request.context,
            Post::Rma(request) => request.call.context,
        }
    }

    /// The memory that the operation works on.
    fn buffers(&self) -> [&Buffers; 3] {
        match self {
            Post::Send(SendRequest { buffers, .. }) | Post::Recv(RecvRequest { buffers, .. }) => {
                [buffers; 3]
            }
            Post::Rma(request) => [&request.buffers, &request.operand, &request.comparand],
        }
    }

    /// The transmit context that it is posted to.
    fn ctx(&self) -> u8 {
        match self {
            Post::Send(request) => request.call.ctx,
            Post::Rma(request) => request.call.ctx,
            Post::Recv(_) => 0,
        }
    }

    /// Bytes of an injected operation, whose buffers return to the caller with the call.
    fn injected(&mut self) -> Option<&mut Buffers> {
        let (flags, buffers) = match self {
            Post::Send(request) => (request.call.flags, &mut request.buffers),
            Post::Rma(request) => match request.access {
                Access::Write => (request.call.flags, &mut request.buffers),
                Access::Atomic(_) => (request.call.flags, &mut request.operand),
                Access::Read => return None,
            },
            Post::Recv(_) => return None,
        };
        (flags.intersects(Flags::INJECT)).then_some(buffers)
    }

    fn check(&self, driver: &Driver) -> Result<(), Error> {
        match self {
            Post::Send(request) => driver.check(&request.call, request.buffers.len_bytes()),
            Post::Rma(request) => driver.check(&request.call, request.targets.len_bytes()),
            Post::Recv(request) => {
                let others = Flags::MULTI_RECV | Flags::PEEK | Flags::CLAIM | Flags::DISCARD;
                if !request.flags.intersects(others) { Ok(()) } else { Err(Error::Unimplemented) }
            }
        }
    }
}

impl Later {
    /// An operation of `endpoint`; `owed` has its counter if it is deferred work.
    ///
    /// # Errors
    /// Reason for refusing it: whatever can be checked now is checked now.
    pub fn new(
        endpoint: &Arc<Endpoint>,
        mut post: Post,
        owed: Option<Option<Arc<Counter>>>,
    ) -> Result<Later, Error> {
        post.flags().remove(Flags::TRIGGER);
        let mut kept = Vec::new();
        check_buffers(&post.buffers())?;
        endpoint.with_driver(|driver| {
            if owed.is_none() {
                post.check(driver)?;
            }
            Ok(())
        })?;
        // Deferred work sends the bytes that its buffers hold when it is posted.
        if owed.is_none()
            && let Some(buffers) = post.injected()
        {
            kept.resize(buffers.len_bytes() as usize, 0);
            buffers.read(0, &mut kept);
            // SAFETY: the bytes stay where they are as long as the operation is not posted, and
            // posting copies them.
            *buffers = unsafe { Buffers::one(kept.as_mut_ptr().cast(), kept.len()) };
        }
        Ok(Later { endpoint: Arc::downgrade(endpoint), post, kept, owed })
    }

    fn post_to(&self, driver: &mut Driver) -> Result<(), Error> {
        driver.owed = self.owed.as_ref().map(|cntr| Box::new(Owed { cntr: cntr.clone() }));
        let posted = match &self.post {
            Post::Send(SendRequest { buffers, tag, call }) => driver.post_send(buffers, *tag, call),
            Post::Recv(request) => driver.post_recv(request),
            Post::Rma(request) => driver.post_rma(request),
        };
        driver.owed = None;
        if let Err(errno) = posted
            && errno != Error::Again
        {
            tracing::info!(%errno, "an operation cannot be posted now that its counter is there");
            let report = Report::new(self.post.context(), Flags::empty());
            let direction = match self.post {
                Post::Recv(_) => &mut driver.host.under_way.rx,
                _ => tx_of(&mut driver.host.tx, &mut driver.host.more_tx, self.post.ctx()),
            };
            direction.push(Report { cause: Some(Cause::NotPosted), ..report }, None);
            driver.publish();
        }
        posted
    }
}

impl Deferred for Later {
    fn endpoint(&self) -> usize {
        self.endpoint.as_ptr() as usize
    }

    fn post(&mut self) -> Result<(), Error> {
        debug_assert!(self.kept.is_empty() || self.post.injected().is_some());
        let posted = match self.endpoint.upgrade() {
            Some(endpoint) => endpoint.with_driver(|driver| self.post_to(driver)),
            None => Err(Error::Failed),
        };
        match posted {
            Err(Error::Again) => return Err(Error::Again),
            Err(_) => self.owed.iter().flatten().for_each(|cntr| cntr.failed()),
            Ok(()) => {}
        }
        Ok(())
    }
}

impl Endpoint {
    /// Calls `f` if the endpoint is enabled and sound.
    ///
    /// # Errors
    /// [`Error::State`] if it is not enabled, [`Error::Failed`], or those of `f`.
    pub fn with_driver<R>(
        &self,
        f: impl FnOnce(&mut Driver) -> Result<R, Error>,
    ) -> Result<R, Error> {
        if !self.is_usable() {
            return Err(Error::Failed);
        }
        self.if_enabled(f).unwrap_or(Err(Error::State))
    }
}
