//! Objects of libibverbs that free themselves, in the order that their fields give: each keeps the objects alive that
//! it was made with. In a forked child nothing is freed: the objects are the parent's.

use super::VerbsError;
use super::device::Device;
use core::ffi::c_int;
use erd_ffi::ibv::*;
use std::io;
use std::os::fd::{BorrowedFd, RawFd};
use std::ptr::NonNull;
use std::sync::Arc;

/// A protection domain of an open device.
#[derive(Debug)]
pub(super) struct Pd {
    pub(super) device: Device,
    pd: NonNull<ibv_pd>,
}

// SAFETY: libibverbs' objects may be used by any thread (verbs are thread safe).
unsafe impl Send for Pd {}
// SAFETY: as above.
unsafe impl Sync for Pd {}

impl Pd {
    pub(super) fn new(device: Device, name: &str) -> Result<Arc<Pd>, VerbsError> {
        // SAFETY: an open context.
        let pd = unsafe { (device.library.ibv_alloc_pd)(device.context.as_ptr()) };
        let pd = NonNull::new(pd).ok_or_else(|| VerbsError::last("ibv_alloc_pd", name))?;
        Ok(Arc::new(Pd { device, pd }))
    }

    /// True in a forked child of the process that made it.
    pub(super) fn is_foreign(&self) -> bool {
        self.device.is_foreign()
    }

    pub(super) fn context(&self) -> *mut ibv_context {
        self.device.context.as_ptr()
    }
}

impl Drop for Pd {
    fn drop(&mut self) {
        if !self.is_foreign() {
            // SAFETY: made by this library, and all that was made with it is gone.
            unsafe { (self.device.library.ibv_dealloc_pd)(self.pd.as_ptr()) };
        }
    }
}

/// Registered memory.
#[derive(Debug)]
pub(super) struct Mr {
    pd: Arc<Pd>,
    mr: NonNull<ibv_mr>,
}

// SAFETY: as `Pd`.
unsafe impl Send for Mr {}

impl Mr {
    /// Memory that the device may read and, with `access`, more. The kernel keeps its pages for the device until this
    /// is dropped, whatever happens to the addresses; it refuses unreadable memory.
    pub(super) fn new(
        pd: &Arc<Pd>,
        base: *mut u8,
        bytes: usize,
        access: c_int,
    ) -> Result<Mr, VerbsError> {
        let register = pd.device.library.ibv_reg_mr;
        // SAFETY: a live protection domain; the kernel checks the addresses.
        let mr = unsafe { register(pd.pd.as_ptr(), base.cast(), bytes, access) };
        let mr = NonNull::new(mr)
            .ok_or_else(|| VerbsError::last("ibv_reg_mr", format!("{bytes} bytes")))?;
        Ok(Mr { pd: Arc::clone(pd), mr })
    }

    /// The device's key for the memory.
    pub(super) fn key(&self) -> u32 {
        // SAFETY: a live region, whose key is written once, when it is made.
        unsafe { (*self.mr.as_ptr()).lkey }
    }
}

impl Drop for Mr {
    fn drop(&mut self) {
        if !self.pd.is_foreign() {
            // SAFETY: the region is this value's, and no request names it any more: its owner sees to it.
            unsafe { (self.pd.device.library.ibv_dereg_mr)(self.mr.as_ptr()) };
        }
    }
}

/// Memory of our own, which forked children do not inherit: they would otherwise take its pages from the device.
#[derive(Debug)]
struct Mapping {
    pd: Arc<Pd>,
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping belongs to this value alone and is tied to no thread.
unsafe impl Send for Mapping {}

impl Mapping {
    fn new(pd: &Arc<Pd>, bytes: usize) -> Result<Mapping, VerbsError> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new anonymous mapping at an address of the kernel's choice touches no other.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0) };
        match NonNull::new(base.cast()) {
            Some(start) if base != libc::MAP_FAILED => {
                // SAFETY: the mapping just made.
                unsafe { libc::madvise(base, bytes, libc::MADV_DONTFORK) };
                Ok(Mapping { pd: Arc::clone(pd), base: start, bytes })
            }
            _ => Err(VerbsError::last("mmap", format!("{bytes} bytes"))),
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // A child does not have the mapping.
        if !self.pd.is_foreign() {
            // SAFETY: a mapping of this size that is nobody's any more.
            unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
        }
    }
}

/// Registered memory of our own. An owner of it and of queue pairs drops those first.
#[derive(Debug)]
pub(super) struct Slab {
    // Before the mapping, which the device may read and write until then.
    mr: Mr,
    mapping: Mapping,
}

impl Slab {
    pub(super) fn new(pd: &Arc<Pd>, bytes: usize) -> Result<Slab, VerbsError> {
        let mapping = Mapping::new(pd, bytes)?;
        let mr = Mr::new(pd, mapping.base.as_ptr(), bytes, IBV_ACCESS_LOCAL_WRITE)?;
        Ok(Slab { mr, mapping })
    }

    /// The device's key for the memory.
    pub(super) fn key(&self) -> u32 {
        self.mr.key()
    }

    /// The `len_bytes` from `start`.
    pub(super) fn at(&self, start: usize, len_bytes: usize) -> *mut u8 {
        let all = self.mapping.bytes;
        assert!(start + len_bytes <= all, "{len_bytes} bytes from {start} of {all}");
        // SAFETY: within the mapping.
        unsafe { self.mapping.base.as_ptr().add(start) }
    }
}

/// A completion channel: its fd is readable when an armed queue got a completion.
#[derive(Debug)]
pub(super) struct Channel {
    pd: Arc<Pd>,
    channel: NonNull<ibv_comp_channel>,
}

// SAFETY: as `Pd`.
unsafe impl Send for Channel {}
// SAFETY: as `Pd`.
unsafe impl Sync for Channel {}

impl Channel {
    pub(super) fn new(pd: &Arc<Pd>) -> Result<Arc<Channel>, VerbsError> {
        // SAFETY: an open context.
        let channel = unsafe { (pd.device.library.ibv_create_comp_channel)(pd.context()) };
        let channel =
            NonNull::new(channel).ok_or_else(|| VerbsError::last("ibv_create_comp_channel", ""))?;
        let made = Channel { pd: Arc::clone(pd), channel };
        set_nonblocking(made.raw_fd())?;
        Ok(Arc::new(made))
    }

    fn raw_fd(&self) -> RawFd {
        // SAFETY: a live channel, whose fd is written once, when it is made.
        unsafe { (*self.channel.as_ptr()).fd }
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: open as long as the channel is.
        unsafe { BorrowedFd::borrow_raw(self.raw_fd()) }
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        if !self.pd.is_foreign() {
            // SAFETY: its queues are gone, since they hold it.
            unsafe { (self.pd.device.library.ibv_destroy_comp_channel)(self.channel.as_ptr()) };
        }
    }
}

/// A completion queue.
#[derive(Debug)]
pub(super) struct Cq {
    pd: Arc<Pd>,
    channel: Option<Arc<Channel>>,
    cq: NonNull<ibv_cq>,
}

// SAFETY: as `Pd`.
unsafe impl Send for Cq {}
// SAFETY: as `Pd`.
unsafe impl Sync for Cq {}

impl Cq {
    pub(super) fn new(
        pd: &Arc<Pd>,
        entries: u32,
        channel: Option<&Arc<Channel>>,
    ) -> Result<Arc<Cq>, VerbsError> {
        let raw = channel.map_or(std::ptr::null_mut(), |channel| channel.channel.as_ptr());
        let (entries, none) = (entries as c_int, std::ptr::null_mut());
        // SAFETY: an open context, and a live channel or none.
        let cq = unsafe { (pd.device.library.ibv_create_cq)(pd.context(), entries, none, raw, 0) };
        let cq = NonNull::new(cq)
            .ok_or_else(|| VerbsError::last("ibv_create_cq", format!("{entries} entries")))?;
        Ok(Arc::new(Cq { pd: Arc::clone(pd), channel: channel.cloned(), cq }))
    }

    fn ops(&self) -> &ibv_context_ops {
        // SAFETY: the context is open, and its table of functions never changes.
        unsafe { &(*self.pd.context()).ops }
    }

    /// Takes completions; returns their number.
    pub(super) fn poll(&self, out: &mut [ibv_wc]) -> usize {
        let Some(poll) = self.ops().poll_cq else { return 0 };
        // SAFETY: a live queue, and room for the stated number.
        let count = unsafe { poll(self.cq.as_ptr(), out.len() as c_int, out.as_mut_ptr()) };
        usize::try_from(count).unwrap_or(0).min(out.len())
    }

    /// The next completion makes the channel's fd readable.
    pub(super) fn arm(&self) {
        if let Some(notify) = self.ops().req_notify_cq {
            // SAFETY: a live queue.
            unsafe { notify(self.cq.as_ptr(), 0) };
        }
    }

    /// Takes events off the channel; false if it has failed: its fd is readable for ever then.
    pub(super) fn take_events(&self) -> bool {
        let Some(channel) = &self.channel else { return true };
        let library = self.pd.device.library;
        let (mut cq, mut context) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: a live channel that does not block; every event taken is acknowledged, and is
        // this queue's, the only one of the channel.
        unsafe {
            let channel = channel.channel.as_ptr();
            while (library.ibv_get_cq_event)(channel, &raw mut cq, &raw mut context) == 0 {
                (library.ibv_ack_cq_events)(cq, 1);
            }
        }
        let why = io::Error::last_os_error().kind();
        matches!(why, io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
    }
}

impl Drop for Cq {
    fn drop(&mut self) {
        if !self.pd.is_foreign() {
            // SAFETY: its queue pairs are gone, since they hold it.
            unsafe { (self.pd.device.library.ibv_destroy_cq)(self.cq.as_ptr()) };
        }
    }
}

/// A UD queue pair.
#[derive(Debug)]
pub(super) struct Qp {
    pd: Arc<Pd>,
    _cqs: [Arc<Cq>; 2],
    qp: NonNull<ibv_qp>,
    entry: Entry,
    /// Most bytes of an inline send.
    pub(super) inline_bytes: u32,
}

// SAFETY: as `Pd`.
unsafe impl Send for Qp {}

/// Where a queue pair enters the network.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    /// Number of the port.
    pub(super) port: u8,
    /// Place of the partition in the port's table.
    pub(super) pkey_index: u16,
    /// Key of the queue pair.
    pub(super) qkey: u32,
}

/// Parameters of a queue pair.
pub(super) struct QpSpec<'a> {
    pub(super) send_cq: &'a Arc<Cq>,
    pub(super) recv_cq: &'a Arc<Cq>,
    pub(super) send_wr: u32,
    pub(super) recv_wr: u32,
    /// Requested inline bytes; the device may grant less or more.
    pub(super) inline_bytes: u32,
    pub(super) entry: Entry,
}

impl Qp {
    /// A queue pair that is ready to send and receive.
    pub(super) fn new(pd: &Arc<Pd>, spec: &QpSpec<'_>) -> Result<Qp, VerbsError> {
        let mut attr = ibv_qp_init_attr {
            qp_context: std::ptr::null_mut(),
            send_cq: spec.send_cq.cq.as_ptr(),
            recv_cq: spec.recv_cq.cq.as_ptr(),
            srq: std::ptr::null_mut(),
            cap: ibv_qp_cap {
                max_send_wr: spec.send_wr,
                max_recv_wr: spec.recv_wr,
                // The copied part, and the part sent in place.
                max_send_sge: 2,
                max_recv_sge: 1,
                max_inline_data: spec.inline_bytes,
            },
            qp_type: IBV_QPT_UD,
            sq_sig_all: 0,
        };
        // SAFETY: a live protection domain and live queues.
        let qp = unsafe { (pd.device.library.ibv_create_qp)(pd.pd.as_ptr(), &raw mut attr) };
        let qp = NonNull::new(qp).ok_or_else(|| {
            let depths = format!("{} sends, {} receives", spec.send_wr, spec.recv_wr);
            VerbsError::last("ibv_create_qp", depths)
        })?;
        let made = Qp {
            pd: Arc::clone(pd),
            _cqs: [Arc::clone(spec.send_cq), Arc::clone(spec.recv_cq)],
            qp,
            entry: spec.entry,
            inline_bytes: attr.cap.max_inline_data,
        };
        made.make_ready()?;
        Ok(made)
    }

    pub(super) fn number(&self) -> u32 {
        // SAFETY: a live queue pair, whose number is written once, when it is made.
        unsafe { (*self.qp.as_ptr()).qp_num }
    }

    /// Empties it, whatever its state: the device drops all its requests.
    pub(super) fn empty(&self) -> Result<(), VerbsError> {
        self.modify("RESET", IBV_QP_STATE, |attr| attr.qp_state = IBV_QPS_RESET)
    }

    /// Empties it, and makes it ready again.
    pub(super) fn reset(&self) -> Result<(), VerbsError> {
        self.empty()?;
        self.make_ready()
    }

    /// Breaks it, like a failure of the device.
    #[cfg(test)]
    pub(super) fn break_it(&self) {
        const IBV_QPS_ERR: u32 = 6;
        self.modify("ERR", IBV_QP_STATE, |attr| attr.qp_state = IBV_QPS_ERR)
            .expect("ibv_modify_qp");
    }

    /// Makes it ready to send and receive, once it is empty.
    pub(super) fn make_ready(&self) -> Result<(), VerbsError> {
        let init = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY;
        self.modify("INIT", init, |attr| {
            attr.qp_state = IBV_QPS_INIT;
            attr.port_num = self.entry.port;
            attr.pkey_index = self.entry.pkey_index;
            attr.qkey = self.entry.qkey;
        })?;
        self.modify("RTR", IBV_QP_STATE, |attr| attr.qp_state = IBV_QPS_RTR)?;
        self.modify("RTS", IBV_QP_STATE | IBV_QP_SQ_PSN, |attr| attr.qp_state = IBV_QPS_RTS)
    }

    fn modify(
        &self,
        to: &'static str,
        mask: c_int,
        set: impl FnOnce(&mut ibv_qp_attr),
    ) -> Result<(), VerbsError> {
        // SAFETY: integers only, for which zero is a valid value.
        let mut attr: ibv_qp_attr = unsafe { core::mem::zeroed() };
        set(&mut attr);
        // SAFETY: a live queue pair; the mask names the fields that are set.
        let rc = unsafe {
            (self.pd.device.library.ibv_modify_qp)(self.qp.as_ptr(), &raw mut attr, mask)
        };
        if rc == 0 {
            return Ok(());
        }
        let source = Arc::new(io::Error::from_raw_os_error(rc));
        Err(VerbsError::Call { call: "ibv_modify_qp", what: to.to_owned(), source })
    }

    fn ops(&self) -> &ibv_context_ops {
        // SAFETY: the context is open, and its table of functions never changes.
        unsafe { &(*self.pd.context()).ops }
    }

    /// Posts a chain of sends; returns the first that was not taken, null if all were.
    ///
    /// # Safety
    /// The chain is well formed; the memory it names is registered, and stays until it was sent.
    pub(super) unsafe fn post_send(&self, first: *mut ibv_send_wr) -> *mut ibv_send_wr {
        let mut bad = std::ptr::null_mut();
        let Some(post) = self.ops().post_send else { return first };
        // SAFETY: a live queue pair, and the caller's chain.
        let rc = unsafe { post(self.qp.as_ptr(), first, &raw mut bad) };
        match (rc, bad.is_null()) {
            (0, _) => std::ptr::null_mut(),
            (_, true) => first,
            (_, false) => bad,
        }
    }

    /// Posts a chain of receives; returns whether all were taken.
    ///
    /// # Safety
    /// As [`Qp::post_send`].
    pub(super) unsafe fn post_recv(&self, first: *mut ibv_recv_wr) -> bool {
        let mut bad = std::ptr::null_mut();
        let Some(post) = self.ops().post_recv else { return false };
        // SAFETY: a live queue pair, and the caller's chain.
        unsafe { post(self.qp.as_ptr(), first, &raw mut bad) == 0 }
    }
}

impl Drop for Qp {
    fn drop(&mut self) {
        if !self.pd.is_foreign() {
            // SAFETY: made by this library, and used by nobody else.
            unsafe { (self.pd.device.library.ibv_destroy_qp)(self.qp.as_ptr()) };
        }
    }
}

/// An address handle.
#[derive(Debug)]
pub(super) struct Ah {
    pd: Arc<Pd>,
    pub(super) ah: NonNull<ibv_ah>,
}

// SAFETY: as `Pd`.
unsafe impl Send for Ah {}

impl Ah {
    /// May wait for the network, for a second or more.
    pub(super) fn new(pd: &Arc<Pd>, mut attr: ibv_ah_attr) -> io::Result<Ah> {
        // SAFETY: a live protection domain; the attributes outlive the call.
        let ah = unsafe { (pd.device.library.ibv_create_ah)(pd.pd.as_ptr(), &raw mut attr) };
        let ah = NonNull::new(ah).ok_or_else(io::Error::last_os_error)?;
        Ok(Ah { pd: Arc::clone(pd), ah })
    }
}

impl Drop for Ah {
    fn drop(&mut self) {
        if !self.pd.is_foreign() {
            // SAFETY: made by this library; no send that uses it is under way: its owner sees to it.
            unsafe { (self.pd.device.library.ibv_destroy_ah)(self.ah.as_ptr()) };
        }
    }
}

/// Makes reads from an fd of the library return at once.
pub(super) fn set_nonblocking(fd: RawFd) -> Result<(), VerbsError> {
    // SAFETY: these commands take no pointer.
    let rc = unsafe {
        let flags = libc::fcntl(fd, libc::F_GETFL);
        libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK)
    };
    if rc < 0 { Err(VerbsError::last("fcntl", "O_NONBLOCK")) } else { Ok(()) }
}
