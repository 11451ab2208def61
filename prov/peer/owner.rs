//! The owner's functions.

use crate::cq::format;
use crate::errno;
use erd_core::completion::queue::Entry;
use erd_core::endpoint::{Buffers, source_of_queued};
use erd_core::flags::Flags;
use erd_core::foreign::{Answer, CounterOwner, LentReceive, Offer, QueueOwner, ReceiveOwner, Slip};
use erd_ffi::fi::{
    FI_ADDR_NOTAVAIL, FI_EAGAIN, FI_EINVAL, FI_ENOENT, FI_REMOTE_CQ_DATA, fi_addr_t,
    fi_cq_err_entry, fi_ops_cntr_owner, fi_ops_cq_owner, fi_ops_srx_owner, fi_ops_srx_peer,
    fi_peer_cntr_context, fi_peer_cq_context, fi_peer_get_addr, fi_peer_match_attr,
    fi_peer_rx_entry, fi_peer_srx_context, fid_peer_cntr, fid_peer_cq, fid_peer_srx,
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

/// A table of the owner, if it is as long as the one that we know.
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

    fn tell(&self, entry: &Entry, context: *mut c_void, flags: Flags) -> bool {
        let flags = flags.bits();
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
                    // Applications ask the owner for its meaning, and that knows only libfabric's numbers.
                    prov_errno: errno::of_cause(failure.cause),
                    ..format::error(entry, failure)
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

impl QueueOwner for CqOwner {
    fn write(&self, entry: &Entry) -> bool {
        if !entry.flags.contains(Flags::PEER) {
            return self.tell(entry, entry.context, entry.flags);
        }
        let lent = entry.context.cast::<Lent>();
        // SAFETY: operations of an owner's receives have the flag, and no others; their context is
        // what `Lent::into_context` made of an entry, which is still lent.
        let context = unsafe { (*(*lent).entry).context };
        let flags = entry.flags.difference(Flags::PEER | Flags::COMPLETION);
        let wanted = entry.flags.contains(Flags::COMPLETION) || entry.failure.is_some();
        if wanted && !self.tell(entry, context, flags) {
            return false;
        }
        // SAFETY: as above; an entry that is written is looked at no more.
        unsafe { Lent::from_context(lent.cast()) }.give_back();
        true
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
}

impl CounterOwner for CntrOwner {
    fn count(&self, completions: u64, failures: u64) {
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

    fn free_entry(&self, entry: *mut fi_peer_rx_entry) {
        // SAFETY: an entry of the owner's, which it gave us.
        unsafe { (self.free_entry)(entry) };
    }
}

impl ReceiveOwner for SrxOwner {
    fn get(&self, offer: &Offer) -> Answer {
        let (msg_size, tag) = (offer.len_bytes as usize, offer.tag.unwrap_or(0));
        let mut attr = fi_peer_match_attr { addr: offer.source, msg_size, tag };
        let mut entry = std::ptr::null_mut();
        let get = if offer.tag.is_some() { self.get_tag } else { self.get_msg };
        // SAFETY: the owner's context is there as long as ours; both places are local.
        let answer = unsafe { get(self.srx, &raw mut attr, &raw mut entry) };
        match answer {
            _ if entry.is_null() => Answer::Refused(if answer < 0 { -answer } else { FI_EINVAL }),
            0 => Answer::Receive(Slip(entry.cast())),
            answer if answer == -FI_ENOENT => Answer::NoReceive(Slip(entry.cast())),
            answer => Answer::Refused(-answer),
        }
    }

    fn lend(&self, slip: Slip) -> LentReceive {
        let entry = slip.0.cast::<fi_peer_rx_entry>();
        // SAFETY: an entry of the owner's, which lends it and its memory until the completion.
        let (flags, buffers) = unsafe {
            let entry = &*entry;
            (entry.flags, Buffers::many(entry.iov, entry.count))
        };
        let context = Lent { entry, owner: *self }.into_context();
        LentReceive { buffers, flags: Flags::from_bits_retain(flags), context }
    }

    fn queue(&self, slip: Slip, key: u64, offer: &Offer) -> bool {
        let entry = slip.0.cast::<fi_peer_rx_entry>();
        let queue = if offer.tag.is_some() { self.queue_tag } else { self.queue_msg };
        // SAFETY: the owner has given the entry for this message, and nobody else has it before it is
        // queued.
        let answer = unsafe {
            (*entry).peer_context = std::ptr::without_provenance_mut(key as usize);
            (*entry).msg_size = offer.len_bytes as usize;
            if let Some(data) = offer.data {
                (*entry).cq_data = data;
                (*entry).flags |= FI_REMOTE_CQ_DATA;
            }
            queue(entry)
        };
        if answer != 0 {
            tracing::info!(errno = -answer, "the owner of receives does not queue a message");
            self.free_entry(entry);
        }
        answer == 0
    }

    fn free(&self, slip: Slip) {
        self.free_entry(slip.0.cast());
    }

    fn addresses_changed(&self) {
        if let Some(foreach) = self.foreach_unspec_addr {
            // SAFETY: the owner's context is there as long as ours.
            unsafe { foreach(self.srx, source_of_entry) };
        }
    }

    fn give_back(&self, context: *mut c_void) {
        // SAFETY: the context of a receive that the owner lent, which is not used again.
        unsafe { Lent::from_context(context) }.give_back();
    }
}

const _: () = assert!(size_of::<*mut c_void>() == 8, "a key has 64 bits");

/// Index of a queued message's sender in the AV now.
unsafe extern "C" fn source_of_entry(entry: *mut fi_peer_rx_entry) -> fi_addr_t {
    // The value after a panic: 0 would be a peer.
    let mut found = FI_ADDR_NOTAVAIL;
    let find = || {
        // SAFETY: the owner asks about an entry that it has queued.
        found = source_of_queued(unsafe { (*entry).peer_context } as u64);
    };
    erd_ffi::guard::call("get_addr", find, || ());
    found
}

/// A receive of the owner's, lent until its completion is written.
pub(crate) struct Lent {
    entry: *mut fi_peer_rx_entry,
    owner: SrxOwner,
}

impl Lent {
    /// As the context of our own operation.
    fn into_context(self) -> *mut c_void {
        Box::into_raw(Box::new(self)).cast()
    }

    /// # Safety
    /// `context` is of [`Lent::into_context`], and not used again.
    pub(crate) unsafe fn from_context(context: *mut c_void) -> Lent {
        // SAFETY: the caller's promise.
        *unsafe { Box::from_raw(context.cast::<Lent>()) }
    }

    /// Gives the owner its receive back.
    pub(crate) fn give_back(self) {
        self.owner.free_entry(self.entry);
    }
}
