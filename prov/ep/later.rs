//! Operations that are posted when a counter gets far enough (`fi_trigger(3)`).

use super::call::check_buffers;
use super::complete::{Owed, Report};
use super::driver::Driver;
use super::fid::Caller;
use super::host::tx_of;
use super::ops::Buffers;
use super::post_ask::{Access, AskPost};
use super::post_send::SendRequest;
use super::request::RecvRequest;
use super::{EpInner, State};
use crate::cntr::CntrInner;
use crate::object;
use crate::trigger::{Action, Deferred};
use erd_core::cause::Cause;
use erd_ffi::fi::{
    FI_CLAIM, FI_DISCARD, FI_EAGAIN, FI_EINVAL, FI_ENOSYS, FI_EOTHER, FI_INJECT, FI_MULTI_RECV,
    FI_PEEK, FI_TRIGGER, FI_TRIGGER_THRESHOLD, fi_triggered_context,
};
use std::ffi::{c_int, c_void};
use std::sync::{Arc, Weak};

/// What is posted.
pub(crate) enum Post {
    Send(SendRequest),
    Recv(RecvRequest),
    Ask(Box<AskPost>),
}

/// An operation to be posted later.
pub struct Later {
    endpoint: Weak<EpInner>,
    post: Post,
    /// Bytes of an injected message, which the post's buffers point to.
    kept: Vec<u8>,
    /// Where deferred work counts; `None` for an operation that completes as others do.
    owed: Option<Option<Arc<CntrInner>>>,
}

// SAFETY: the buffers are lent by the application until the operation completes, and contexts are
// never looked at.
unsafe impl Send for Later {}
// SAFETY: a shared reference reads nothing but the endpoint's pointer.
unsafe impl Sync for Later {}

impl Post {
    fn flags(&mut self) -> &mut u64 {
        match self {
            Post::Send(request) => &mut request.call.flags,
            Post::Recv(request) => &mut request.flags,
            Post::Ask(request) => &mut request.call.flags,
        }
    }

    fn context(&self) -> *mut c_void {
        match self {
            Post::Send(request) => request.call.context,
            Post::Recv(request) => request.context,
            Post::Ask(request) => request.call.context,
        }
    }

    /// The memory that the operation works on.
    fn buffers(&self) -> [&Buffers; 3] {
        match self {
            Post::Send(SendRequest { buffers, .. }) | Post::Recv(RecvRequest { buffers, .. }) => {
                [buffers; 3]
            }
            Post::Ask(request) => [&request.buffers, &request.operand, &request.comparand],
        }
    }

    /// The transmit context that it is posted to.
    fn ctx(&self) -> u8 {
        match self {
            Post::Send(request) => request.call.ctx,
            Post::Ask(request) => request.call.ctx,
            Post::Recv(_) => 0,
        }
    }

    /// What an injected operation reads, whose buffers are the caller's again when it returns.
    fn injected(&mut self) -> Option<&mut Buffers> {
        let (flags, buffers) = match self {
            Post::Send(request) => (request.call.flags, &mut request.buffers),
            Post::Ask(request) => match request.access {
                Access::Write => (request.call.flags, &mut request.buffers),
                Access::Atomic(_) => (request.call.flags, &mut request.operand),
                Access::Read => return None,
            },
            Post::Recv(_) => return None,
        };
        (flags & FI_INJECT != 0).then_some(buffers)
    }

    fn check(&self, driver: &Driver) -> Result<(), c_int> {
        match self {
            Post::Send(request) => driver.check(&request.call, request.buffers.len_bytes()),
            Post::Ask(request) => driver.check(&request.call, request.targets.len_bytes()),
            Post::Recv(request) => {
                let others = FI_MULTI_RECV | FI_PEEK | FI_CLAIM | FI_DISCARD;
                if request.flags & others == 0 { Ok(()) } else { Err(FI_ENOSYS) }
            }
        }
    }
}

impl Later {
    /// An operation of `endpoint`; `owed` says where it counts if it is deferred work.
    ///
    /// # Errors
    /// A positive error number: what can be checked is checked at once.
    pub(crate) fn new(
        endpoint: &Arc<EpInner>,
        mut post: Post,
        owed: Option<Option<Arc<CntrInner>>>,
    ) -> Result<Later, c_int> {
        *post.flags() &= !FI_TRIGGER;
        let mut kept = Vec::new();
        check_buffers(&post.buffers())?;
        endpoint.with_driver(|driver| {
            if owed.is_none() {
                post.check(driver)?;
            }
            Ok(())
        })?;
        // Deferred work is about what its buffers hold when it is posted.
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

    fn post_to(&self, driver: &mut Driver) -> Result<(), c_int> {
        driver.owed = self.owed.as_ref().map(|cntr| Box::new(Owed { cntr: cntr.clone() }));
        let posted = match &self.post {
            Post::Send(request) => driver.post_send(request),
            Post::Recv(request) => driver.post_recv(request),
            Post::Ask(request) => driver.post_ask(request),
        };
        driver.owed = None;
        if let Err(errno) = posted
            && errno != FI_EAGAIN
        {
            tracing::info!(errno, "an operation cannot be posted now that its counter is there");
            let report = Report::new(self.post.context(), 0);
            let direction = match self.post {
                Post::Recv(_) => &mut driver.host.rx,
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

    fn post(&mut self) -> Result<(), c_int> {
        debug_assert!(self.kept.is_empty() || self.post.injected().is_some());
        let posted = match self.endpoint.upgrade() {
            Some(endpoint) => endpoint.with_driver(|driver| self.post_to(driver)),
            None => Err(FI_EOTHER),
        };
        match posted {
            Err(FI_EAGAIN) => return Err(FI_EAGAIN),
            Err(_) => self.owed.iter().flatten().for_each(|cntr| cntr.failed()),
            Ok(()) => {}
        }
        Ok(())
    }
}

impl EpInner {
    /// Calls `f` if the endpoint is enabled and sound.
    fn with_driver<R>(&self, f: impl FnOnce(&mut Driver) -> Result<R, c_int>) -> Result<R, c_int> {
        if !self.is_usable() {
            return Err(FI_EOTHER);
        }
        match &mut *self.lock() {
            State::Enabled(driver) => f(driver),
            State::Setup(_) | State::Closed => Err(erd_ffi::fi::FI_EOPBADSTATE),
        }
    }
}

impl Caller<'_> {
    /// A call with `FI_TRIGGER`, whose context says what it waits for.
    #[cold]
    pub(super) fn trigger(&self, post: Post) -> isize {
        match self.wait_for_trigger(post) {
            Ok(()) => 0,
            Err(errno) => -(errno as isize),
        }
    }

    fn wait_for_trigger(&self, post: Post) -> Result<(), c_int> {
        let context = post.context().cast::<fi_triggered_context>();
        if context.is_null() {
            tracing::info!("FI_TRIGGER: the context must be a struct fi_triggered_context");
            return Err(FI_EINVAL);
        }
        // SAFETY: under FI_TRIGGER the context is such a structure (`fi_trigger(3)`), of which the
        // kind says what the union holds; its counter is open.
        let (cntr, threshold) = unsafe {
            if (*context).event_type != FI_TRIGGER_THRESHOLD {
                tracing::info!("FI_TRIGGER: event_type may be FI_TRIGGER_THRESHOLD");
                return Err(FI_ENOSYS);
            }
            let asked = (*context).trigger.threshold;
            (object::from_fid::<CntrInner>(asked.cntr.cast()), asked.threshold)
        };
        let Some(cntr) = cntr else { return Err(FI_EINVAL) };
        let later = Later::new(self.ep, post, None)?;
        let at = (cntr, threshold as u64);
        self.domain.work.queue(&self.domain, at, Action::Post(Box::new(later)), 0)
    }
}
