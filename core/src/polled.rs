//! An endpoint as its pollers see it: queues, counters and other endpoints of its domain let it progress.

use crate::look::Look;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// See the module's text.
pub trait Polled: Send + Sync {
    /// Takes what arrived and sends what is due, unless another thread is at it. Whether something
    /// had arrived.
    fn progress(&self) -> bool;

    /// [`Polled::progress`] by a look that took the endpoint's entry, if something is due. False
    /// while another thread is at it: that may not have told what is due from here on.
    fn progress_if_due(&self, now: u64) -> bool;

    /// Lets go what is held back, as far as it can, by a call into another endpoint or queue that has taken
    /// this one from the list. False while another thread is at it.
    fn let_out(&self) -> bool;

    /// What is due is told there from now on; false for an endpoint that can only be asked.
    fn join_look(&self, look: &Arc<Look>, place: u32) -> bool;

    /// The opposite of [`Polled::join_look`].
    fn leave_look(&self, look: &Arc<Look>);

    /// Does what counters have made due. The caller holds no endpoint's lock.
    fn work(&self);

    /// When the next step is due even if nothing arrives; from here on the fds tell of arrivals.
    fn deadline_ns(&self) -> Option<u64>;

    /// Hands the fds that tell of arrivals to `f`.
    fn each_fd(&self, f: &mut dyn FnMut(BorrowedFd<'_>));

    /// A bug was caught in the middle of a call: the endpoint reports nothing any more.
    fn has_failed(&self) -> bool;

    /// Asks another library, which calls, for the receives of messages that have come, if it has them.
    fn serve_owner(&self);
}

/// Where an endpoint is in memory, to tell it from others.
#[must_use]
pub fn address<T: ?Sized>(endpoint: *const T) -> usize {
    endpoint.cast::<()>().addr()
}

/// A bug has failed an endpoint of this process.
static FAILED: AtomicBool = AtomicBool::new(false);

/// A bug has failed an endpoint.
pub(crate) fn note_failure() {
    FAILED.store(true, Ordering::Release);
}

/// A bug has failed some endpoint of this process: who has many need not ask each.
#[must_use]
pub(crate) fn any_has_failed() -> bool {
    FAILED.load(Ordering::Acquire)
}
