//! An endpoint as its pollers see it: queues, counters and other endpoints of its domain let it progress.

use crate::look::Look;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// See the module's text.
pub trait Polled: Send + Sync {
    /// Takes arrivals and sends what is due, unless another thread does. True if something had arrived.
    fn progress(&self) -> bool;

    /// [`Polled::progress`] by a look that took the endpoint's entry, if something is due. False while another thread
    /// works on it: that thread may not have told the next due time yet.
    fn progress_if_due(&self, now: u64) -> bool;

    /// Sends held messages as far as it can. Called by another endpoint or queue that has taken this one from the list.
    /// False while another thread works on it.
    fn let_out(&self) -> bool;

    /// From now on the endpoint tells `look` when it is due; false if it can only be polled.
    fn join_look(&self, look: &Arc<Look>, place: u32) -> bool;

    /// The opposite of [`Polled::join_look`].
    fn leave_look(&self, look: &Arc<Look>);

    /// Does the work that counters have made due. The caller holds no endpoint's lock.
    fn work(&self);

    /// Time (ns) at which the next step is due even if nothing arrives. From here on the fds report arrivals.
    fn deadline_ns(&self) -> Option<u64>;

    /// Hands the fds that report arrivals to `f`.
    fn each_fd(&self, f: &mut dyn FnMut(BorrowedFd<'_>));

    /// True once a bug was caught in the middle of a call: the endpoint reports nothing any more.
    fn has_failed(&self) -> bool;

    /// Asks the other library that owns the receives, from within its own call, for those of messages that have come.
    fn serve_owner(&self);
}

/// The memory address of an endpoint, which identifies it.
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

/// True if a bug has failed some endpoint of this process. This saves asking each of many.
#[must_use]
pub(crate) fn any_has_failed() -> bool {
    FAILED.load(Ordering::Acquire)
}
