//! The owner's functions.

use crate::cq::queue::Entry;
use crate::errno;
use erd_ffi::fi::{
    FI_COMPLETION, FI_EAGAIN, FI_EINVAL, FI_ENOENT, FI_PEER, fi_addr_t, fi_cq_err_entry,
    fi_ops_cntr_owner, fi_ops_cq_owner, fi_ops_srx_owner, fi_ops_srx_peer, fi_peer_cntr_context,
    fi_peer_cq_context, fi_peer_get_addr, fi_peer_match_attr, fi_peer_rx_entry,
    fi_peer_srx_context, fid_peer_cntr, fid_peer_cq, fid_peer_srx,
};
use std::ffi::{c_int, c_void};

/// A context that an owner passes in place of the usual one, if it is whole.
///
/// # Safety
/// `context` is NULL or points to a structure that begins with its size.
unsafe fn whole<'a, T>(context: *const c_void) -> Option<&'a T> {
    // SAFETY: the caller's promise.
    if context.is_null() || unsafe { context.cast::<usize>().read() } < size_of::<T>() {
        return None;
    }
    // SAFETY: as long as its size says.
    Some(unsafe { &*context.cast::<T>() })
}

/// A table of the owner's, if it is as long as the one that we know.
///
/// # Safety
/// `ops` is NULL or points to a table that begins with its size.
unsafe fn table<'a, T>(ops: *const T) -> Option<&'a T> {
    // SAFETY: the caller's promise.
    unsafe { whole(ops.cast()) }
}

/// An owner's completion queue.
pub(crate) struct CqOwner {
    cq: *mut fid_peer_cq,
    write: WriteFn,
    writeerr: WriteErrFn,
}

type WriteFn = unsafe extern "C" fn(
    *mut fid_peer_cq,
    *mut c_void,
    u64,
    usize,
    *mut c_void,
    u64,
    u64,
    fi_addr_t,
) -> isize;
type WriteErrFn = unsafe extern "C" fn(*mut fid_peer_cq, *const fi_cq_err_entry) -> isize;

// SAFETY: the owner's functions may be called by any thread of which its own calls come.
unsafe impl Send for CqOwner {}
// SAFETY: as above.
unsafe impl Sync for CqOwner {}

impl CqOwner {
    /// # Safety
    /// `context` is NULL or a `struct fi_peer_cq_context`, whose queue stays until ours is closed.
    pub(crate) unsafe fn read(context: *const c_void) -> Option<CqOwner> {
        // SAFETY: the caller's promise, for the context and what it points to.
        unsafe {
            let cq = whole::<fi_peer_cq_context>(context)?.cq;
            let ops: &fi_ops_cq_owner = table(cq.as_ref()?.owner_ops)?;
            Some(CqOwner { cq, write: ops.write?, writeerr: ops.writeerr? })
        }
    }

    /// Writes an entry of ours to the owner's queue, and gives back the receive that it was about.
    /// False if there is no room now.
    pub(crate) fn write(&self, entry: &Entry) -> bool {
        if entry.flags & FI_PEER == 0 {
            return self.tell(entry, entry.context, entry.flags);
        }
        let lent = entry.context.cast::<Lent>();
        // SAFETY: operations of an owner's receives have the flag, and no others; their context is
        // what `Lent::into_context` made of an entry, which is still lent.
        let context = unsafe { (*(*lent).entry).context };
        let flags = entry.flags & !(FI_PEER | FI_COMPLETION);
        let wanted = entry.flags & FI_COMPLETION != 0 || entry.failure.is_some();
        if wanted && !self.tell(entry, context, flags) {
            return false;
        }
        // SAFETY: as above; an entry that is written is looked at no more.
        unsafe { Lent::from_context(lent.cast()) }.give_back();
        true
    }

    fn tell(&self, entry: &Entry, context: *mut c_void, flags: u64) -> bool {
        let answer = match &entry.failure {
            // SAFETY: the owner's queue is there as long as ours, and takes such a call.
            None => unsafe {
                let (len, buf) = (entry.len_bytes, entry.buf);
                let (data, tag) = (entry.data, entry.tag);
                (self.write)(self.cq, context, flags, len, buf, data, tag, entry.source)
            },
            Some(failure) => {
                let error = fi_cq_err_entry {
                    op_context: context,
                    flags,
                    // The owner is asked what it means, and knows libfabric's numbers alone.
                    prov_errno: errno::of_cause(failure.cause),
                    ..entry.error(failure)
                };
                // SAFETY: as above; the entry is read before the call returns.
                unsafe { (self.writeerr)(self.cq, &raw const error) }
            }
        };
        if answer < 0 && answer != -(FI_EAGAIN as isize) {
            tracing::warn!(answer, "the owner of a completion queue refused a completion");
        }
        answer != -(FI_EAGAIN as isize)
    }
}

/// An owner's counter.
pub(crate) struct CntrOwner {
    cntr: *mut fid_peer_cntr,
    inc: IncFn,
    incerr: IncFn,
}

type IncFn = unsafe extern "C" fn(*mut fid_peer_cntr);

// SAFETY: as for [`CqOwner`].
unsafe impl Send for CntrOwner {}
// SAFETY: as above.
unsafe impl Sync for CntrOwner {}

impl CntrOwner {
    /// # Safety
    /// `context` is NULL or a `struct fi_peer_cntr_context`, whose counter stays until ours is closed.
    pub(crate) unsafe fn read(context: *const c_void) -> Option<CntrOwner> {
        // SAFETY: the caller's promise, for the context and what it points to.
        unsafe {
            let cntr = whole::<fi_peer_cntr_context>(context)?.cntr;
            let ops: &fi_ops_cntr_owner = table(cntr.as_ref()?.owner_ops)?;
            Some(CntrOwner { cntr, inc: ops.inc?, incerr: ops.incerr? })
        }
    }

    /// Counts this many completions and failures.
    pub(crate) fn count(&self, completions: u64, failures: u64) {
        // SAFETY: the owner's counter is there as long as ours.
        (0..completions).for_each(|_| unsafe { (self.inc)(self.cntr) });
        // SAFETY: as above.
        (0..failures).for_each(|_| unsafe { (self.incerr)(self.cntr) });
    }
}

/// An owner's receive context.
#[derive(Clone, Copy)]
pub(crate) struct SrxOwner {
    srx: *mut fid_peer_srx,
    get_msg: GetFn,
    get_tag: GetFn,
    queue_msg: QueueFn,
    queue_tag: QueueFn,
    foreach_unspec_addr: Option<unsafe extern "C" fn(*mut fid_peer_srx, fi_peer_get_addr)>,
    free_entry: unsafe extern "C" fn(*mut fi_peer_rx_entry),
}

type GetFn = unsafe extern "C" fn(
    *mut fid_peer_srx,
    *mut fi_peer_match_attr,
    *mut *mut fi_peer_rx_entry,
) -> c_int;
type QueueFn = unsafe extern "C" fn(*mut fi_peer_rx_entry) -> c_int;

// SAFETY: as for [`CqOwner`].
unsafe impl Send for SrxOwner {}
// SAFETY: as above.
unsafe impl Sync for SrxOwner {}

/// An owner's answer for a message.
pub(crate) enum Answer {
    /// Its receive.
    Receive(*mut fi_peer_rx_entry),
    /// An entry to queue it with.
    NoReceive(*mut fi_peer_rx_entry),
    /// Nothing now, by this error number.
    Refused(c_int),
}

impl SrxOwner {
    /// # Safety
    /// `context` is NULL or a `struct fi_peer_srx_context`, whose context stays until ours is closed.
    pub(crate) unsafe fn read(context: *const c_void) -> Option<SrxOwner> {
        // SAFETY: the caller's promise, for the context and what it points to.
        unsafe {
            let srx = whole::<fi_peer_srx_context>(context)?.srx;
            let ops: &fi_ops_srx_owner = table(srx.as_ref()?.owner_ops)?;
            Some(SrxOwner {
                srx,
                get_msg: ops.get_msg?,
                get_tag: ops.get_tag?,
                queue_msg: ops.queue_msg?,
                queue_tag: ops.queue_tag?,
                foreach_unspec_addr: ops.foreach_unspec_addr,
                free_entry: ops.free_entry?,
            })
        }
    }

    /// Gives the owner our functions.
    pub(crate) fn set_peer_ops(&self, ops: &'static fi_ops_srx_peer) {
        // SAFETY: the owner's context is there, and this field is ours to set.
        unsafe { (*self.srx).peer_ops = ops };
    }

    /// Asks for the receive of a message.
    pub(crate) fn get(&self, source: fi_addr_t, len_bytes: u64, tag: Option<u64>) -> Answer {
        let (msg_size, tag_or_0) = (len_bytes as usize, tag.unwrap_or(0));
        let mut attr = fi_peer_match_attr { addr: source, msg_size, tag: tag_or_0 };
        let mut entry = std::ptr::null_mut();
        let get = if tag.is_some() { self.get_tag } else { self.get_msg };
        // SAFETY: the owner's context is there as long as ours; both places are local.
        let answer = unsafe { get(self.srx, &raw mut attr, &raw mut entry) };
        match answer {
            _ if entry.is_null() => Answer::Refused(if answer < 0 { -answer } else { FI_EINVAL }),
            0 => Answer::Receive(entry),
            answer if answer == -FI_ENOENT => Answer::NoReceive(entry),
            answer => Answer::Refused(-answer),
        }
    }

    /// Queues an entry that the owner gave for a message without a receive.
    ///
    /// # Errors
    /// A positive error number; the entry is still ours.
    pub(crate) fn queue(&self, entry: *mut fi_peer_rx_entry, tagged: bool) -> Result<(), c_int> {
        let queue = if tagged { self.queue_tag } else { self.queue_msg };
        // SAFETY: an entry of the owner's, which it gave us.
        match unsafe { queue(entry) } {
            0 => Ok(()),
            answer => Err(-answer),
        }
    }

    /// Addresses have become known: the owner asks for those of its entries by `get_addr`.
    pub(crate) fn addresses_changed(&self, get_addr: fi_peer_get_addr) {
        if let Some(foreach) = self.foreach_unspec_addr {
            // SAFETY: the owner's context is there as long as ours.
            unsafe { foreach(self.srx, get_addr) };
        }
    }

    /// Gives an entry back that nobody needs any more.
    pub(crate) fn free(&self, entry: *mut fi_peer_rx_entry) {
        // SAFETY: an entry of the owner's, which it gave us.
        unsafe { (self.free_entry)(entry) };
    }
}

/// A receive of the owner's, lent until its completion is written.
pub(crate) struct Lent {
    entry: *mut fi_peer_rx_entry,
    owner: SrxOwner,
}

impl Lent {
    pub(crate) fn new(entry: *mut fi_peer_rx_entry, owner: SrxOwner) -> Lent {
        Lent { entry, owner }
    }

    /// As the context of our own operation.
    pub(crate) fn into_context(self) -> *mut c_void {
        Box::into_raw(Box::new(self)).cast()
    }

    /// # Safety
    /// `context` is of [`Lent::into_context`], and not used again.
    pub(crate) unsafe fn from_context(context: *mut c_void) -> Lent {
        // SAFETY: the caller's promise.
        *unsafe { Box::from_raw(context.cast::<Lent>()) }
    }

    /// The owner has its receive back.
    pub(crate) fn give_back(self) {
        self.owner.free(self.entry);
    }
}
