//! `fid_eq`: the event queue, where asynchronous AV insertions report (`fi_eq(3)`).

use crate::fabric::FabricInner;
use crate::object::{self, Class};
use erd_core::uses::{Use, Users};
use erd_ffi::fi::{
    FI_AFFINITY, FI_CLASS_EQ, FI_EADDRNOTAVAIL, FI_EAGAIN, FI_EAVAIL, FI_EINVAL, FI_EIO, FI_ENOMEM,
    FI_ENOSYS, FI_ETOOSMALL, FI_GETWAIT, FI_GETWAITOBJ, FI_PEEK, FI_WAIT_FD, FI_WAIT_NONE,
    FI_WAIT_UNSPEC, FI_WAIT_YIELD, FI_WRITE, NOSYS_EQ, NOSYS_FID, fi_eq_attr, fi_eq_entry,
    fi_eq_err_entry, fi_ops, fi_ops_eq, fi_version, fi_wait_obj, fid, fid_eq,
};
use erd_ffi::guard::guarded;
use erd_sys::wait::WaitSet;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::ffi::{c_char, c_int, c_void};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Least capacity of a queue, in events.
const EVENTS_MIN: usize = 1024;
/// Most events that a queue holds.
pub const EVENTS_MAX: usize = 1 << 16;
/// Longest event that an application may write, in bytes.
const EVENT_BYTES_MAX: usize = 4096;

/// An event queue that another object needs open.
pub struct BoundEq {
    /// The queue.
    pub eq: Arc<EqInner>,
    _use: Use,
}

impl BoundEq {
    /// Binds to `eq`, which stays open until this is dropped.
    #[must_use]
    pub fn new(eq: &Arc<EqInner>) -> BoundEq {
        BoundEq { eq: Arc::clone(eq), _use: eq.hold() }
    }
}

/// One event.
enum Event {
    /// Reported by `fi_eq_read`.
    Done { kind: u32, bytes: Vec<u8> },
    /// Reported by `fi_eq_readerr`.
    Failed(Failure),
}

/// An error report: `struct fi_eq_err_entry`, always without error data.
#[derive(Clone, Copy, Debug)]
pub struct Failure {
    /// The object that the failed request was for.
    pub fid: *mut fid,
    /// The context of the request.
    pub context: *mut c_void,
    /// Data as in the request's man page, such as the index of an address.
    pub data: u64,
    /// Positive error number.
    pub errno: c_int,
}

// SAFETY: the pointers are the application's, passed back to it and never dereferenced.
unsafe impl Send for Failure {}

/// The report of a request that is done: `struct fi_eq_entry`.
#[derive(Clone, Copy, Debug)]
pub struct Completion {
    /// `FI_AV_COMPLETE` and so on.
    pub kind: u32,
    /// The object that the request was for.
    pub fid: *mut fid,
    /// The context of the request.
    pub context: *mut c_void,
    /// Data as in the request's man page.
    pub data: u64,
}

/// State of an event queue.
pub struct EqInner {
    events: Mutex<VecDeque<Event>>,
    capacity: usize,
    writable: bool,
    wait_obj: fi_wait_obj,
    /// Signalled while there are events; `None` if nobody may wait.
    wait: Option<WaitSet>,
    users: Users,
    fabric: Arc<FabricInner>,
    _fabric_use: Use,
}

// SAFETY: `fid_eq` begins with its `fid`, and no other state has this class.
unsafe impl Class for EqInner {
    type Abi = fid_eq;
    const FCLASS: usize = FI_CLASS_EQ;

    fn users(&self) -> &Users {
        &self.users
    }
}

/// The queue has no room; the request can be repeated when events have been read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueueFull;

impl EqInner {
    /// Keeps the queue open until the result is dropped.
    #[must_use]
    pub fn hold(&self) -> Use {
        self.users.add()
    }

    /// Reports failures and then a completion, all or nothing.
    ///
    /// # Errors
    /// [`QueueFull`].
    pub fn report(&self, failures: &[Failure], done: Completion) -> Result<(), QueueFull> {
        let mut events = self.events.lock();
        if events.len() + failures.len() + 1 > self.capacity {
            return Err(QueueFull);
        }
        events.extend(failures.iter().copied().map(Event::Failed));
        let entry = fi_eq_entry { fid: done.fid, context: done.context, data: done.data };
        events.push_back(Event::Done { kind: done.kind, bytes: entry_bytes(&entry) });
        self.wake(&events);
        Ok(())
    }

    fn write(&self, kind: u32, bytes: &[u8]) -> Result<(), QueueFull> {
        let mut events = self.events.lock();
        if events.len() >= self.capacity {
            return Err(QueueFull);
        }
        events.push_back(Event::Done { kind, bytes: bytes.to_vec() });
        self.wake(&events);
        Ok(())
    }

    /// Makes the wait object show whether there are events. The caller holds the queue's lock.
    fn wake(&self, events: &VecDeque<Event>) {
        match &self.wait {
            Some(wait) if events.is_empty() => wait.clear(),
            Some(wait) => wait.signal(),
            None => (),
        }
    }

    /// Hands the oldest event to `take`, and drops it unless `peek`.
    fn next(&self, peek: bool, take: impl FnOnce(&Event) -> isize) -> isize {
        let mut events = self.events.lock();
        let Some(first) = events.front() else {
            return -(FI_EAGAIN as isize);
        };
        let answer = take(first);
        if answer >= 0 && !peek {
            events.pop_front();
            self.wake(&events);
        }
        answer
    }

    /// # Safety
    /// `kind` is NULL or writable, `out` writable for `room` bytes.
    unsafe fn read(&self, kind: *mut u32, out: *mut c_void, room: usize, flags: u64) -> isize {
        self.next(flags & FI_PEEK != 0, |event| {
            let Event::Done { kind: is, bytes } = event else {
                return -(FI_EAVAIL as isize);
            };
            if bytes.len() > room || (out.is_null() && !bytes.is_empty()) {
                return -(FI_ETOOSMALL as isize);
            }
            // SAFETY: the caller's promise; the event fits.
            unsafe {
                if !kind.is_null() {
                    *kind = *is;
                }
                std::ptr::copy_nonoverlapping(bytes.as_ptr(), out.cast(), bytes.len());
            }
            bytes.len() as isize
        })
    }
}

/// The bytes of an entry, as `fi_eq_read` copies them.
fn entry_bytes(entry: &fi_eq_entry) -> Vec<u8> {
    let at = (&raw const *entry).cast::<u8>();
    // SAFETY: three fields of 8 bytes each, so there is no padding and all bytes are initialised.
    unsafe { std::slice::from_raw_parts(at, size_of::<fi_eq_entry>()) }.to_vec()
}

/// `fi_eq_open` of `fi_eq(3)`.
///
/// # Safety
/// `attr` is NULL or as the man page says, `eq` is writable.
pub unsafe fn open(
    fabric: &Arc<FabricInner>,
    attr: *const fi_eq_attr,
    eq: *mut *mut fid_eq,
    context: *mut c_void,
) -> c_int {
    // SAFETY: NULL or the caller's attributes, which never grew.
    let attr = unsafe { attr.as_ref() }.copied().unwrap_or(fi_eq_attr::ZERO);
    if eq.is_null() {
        return -FI_EINVAL;
    }
    if attr.flags & !(FI_WRITE | FI_AFFINITY) != 0 || attr.size > EVENTS_MAX {
        tracing::info!(
            flags = attr.flags,
            size = attr.size,
            "fi_eq_open: flags may be FI_WRITE and FI_AFFINITY, size at most {EVENTS_MAX}"
        );
        return -FI_EINVAL;
    }
    let wait = match attr.wait_obj {
        FI_WAIT_NONE => None,
        FI_WAIT_UNSPEC | FI_WAIT_FD | FI_WAIT_YIELD => match WaitSet::new() {
            Ok(wait) => Some(wait),
            Err(error) => {
                tracing::warn!(%error, "fi_eq_open: no file descriptors to wait on");
                return -error.raw_os_error().unwrap_or(FI_EIO);
            }
        },
        other => {
            tracing::info!(
                wait_obj = other,
                "fi_eq_open: wait_obj may be FI_WAIT_NONE, UNSPEC, FD or YIELD"
            );
            return -FI_ENOSYS;
        }
    };
    let inner = Arc::new(EqInner {
        events: Mutex::new(VecDeque::new()),
        capacity: attr.size.max(EVENTS_MIN),
        writable: attr.flags & FI_WRITE != 0,
        wait_obj: attr.wait_obj,
        wait,
        users: Users::default(),
        fabric: Arc::clone(fabric),
        _fabric_use: fabric.hold(),
    });
    let abi = fid_eq { fid: object::base::<EqInner>(context, &FID_OPS), ops: &EQ_OPS };
    // SAFETY: the caller gave a place for the new object.
    unsafe { *eq = object::publish(abi, inner) };
    0
}

/// `fi_trywait(3)` of an event queue: `-FI_EAGAIN` if there is an event to read.
///
/// # Safety
/// `eq` is an open event queue of this provider.
pub unsafe fn trywait(eq: *mut fid) -> c_int {
    // SAFETY: the caller's promise.
    match unsafe { object::from_fid::<EqInner>(eq) } {
        Some(eq) if eq.events.lock().is_empty() => 0,
        Some(_) => -FI_EAGAIN,
        None => -FI_EINVAL,
    }
}

static FID_OPS: fi_ops =
    fi_ops { close: object::close::<EqInner>, control: eq_control, ..NOSYS_FID };

static EQ_OPS: fi_ops_eq = fi_ops_eq {
    read: eq_read,
    readerr: eq_readerr,
    write: eq_write,
    sread: eq_sread,
    strerror: eq_strerror,
    ..NOSYS_EQ
};

guarded! {
    unsafe extern "C" fn eq_control(eq: *mut fid, command: c_int, arg: *mut c_void) -> c_int {
        // SAFETY: libfabric calls with our open queue.
        let Some(eq) = (unsafe { object::from_fid::<EqInner>(eq) }) else {
            return -FI_EINVAL;
        };
        if arg.is_null() {
            return -FI_EINVAL;
        }
        match (command, &eq.wait) {
            (FI_GETWAIT, Some(wait)) if eq.wait_obj == FI_WAIT_FD => {
                // SAFETY: for FI_WAIT_FD the argument is an int to write.
                unsafe { *arg.cast::<c_int>() = wait.fd().as_raw_fd() };
                0
            }
            (FI_GETWAITOBJ, _) => {
                // SAFETY: the argument is an `enum fi_wait_obj` to write.
                unsafe { *arg.cast::<fi_wait_obj>() = eq.wait_obj };
                0
            }
            _ => -FI_ENOSYS,
        }
    }

    unsafe extern "C" fn eq_read(
        eq: *mut fid_eq,
        event: *mut u32,
        buf: *mut c_void,
        len: usize,
        flags: u64,
    ) -> isize {
        // SAFETY: libfabric calls with our open queue and a buffer as fi_eq(3) says.
        unsafe { object::inner::<EqInner>(eq).read(event, buf, len, flags) }
    }

    unsafe extern "C" fn eq_readerr(
        eq: *mut fid_eq,
        buf: *mut fi_eq_err_entry,
        flags: u64,
    ) -> isize {
        if buf.is_null() {
            return -(FI_EINVAL as isize);
        }
        // SAFETY: libfabric calls with our open queue.
        let eq = unsafe { object::inner::<EqInner>(eq) };
        let keeps_buffer = eq.fabric.api_version >= fi_version(1, 5);
        eq.next(flags & FI_PEEK != 0, |event| {
            let Event::Failed(failure) = event else {
                return -(FI_EAGAIN as isize);
            };
            // SAFETY: the caller's entry, of which error data stays its own since API 1.5.
            unsafe {
                let err_data = if keeps_buffer { (*buf).err_data } else { std::ptr::null_mut() };
                *buf = fi_eq_err_entry {
                    fid: failure.fid,
                    context: failure.context,
                    data: failure.data,
                    err: failure.errno,
                    prov_errno: failure.errno,
                    err_data,
                    err_data_size: 0,
                };
            }
            size_of::<fi_eq_err_entry>() as isize
        })
    }

    unsafe extern "C" fn eq_write(
        eq: *mut fid_eq,
        event: u32,
        buf: *const c_void,
        len: usize,
        flags: u64,
    ) -> isize {
        // SAFETY: libfabric calls with our open queue.
        let eq = unsafe { object::inner::<EqInner>(eq) };
        let bad = flags != 0 || len > EVENT_BYTES_MAX || (buf.is_null() && len > 0);
        if bad || !eq.writable {
            tracing::info!(
                len,
                flags,
                "fi_eq_write: the queue needs FI_WRITE, flags be 0, len at most {EVENT_BYTES_MAX}"
            );
            return -(FI_EINVAL as isize);
        }
        let bytes = if len == 0 {
            &[][..]
        } else {
            // SAFETY: not NULL, and readable for `len` bytes by the caller's promise.
            unsafe { std::slice::from_raw_parts(buf.cast::<u8>(), len) }
        };
        match eq.write(event, bytes) {
            Ok(()) => len as isize,
            Err(QueueFull) => -(FI_EAGAIN as isize),
        }
    }

    unsafe extern "C" fn eq_sread(
        eq: *mut fid_eq,
        event: *mut u32,
        buf: *mut c_void,
        len: usize,
        timeout_ms: c_int,
        flags: u64,
    ) -> isize {
        // SAFETY: libfabric calls with our open queue.
        let eq = unsafe { object::inner::<EqInner>(eq) };
        let Some(wait) = &eq.wait else {
            tracing::info!("fi_eq_sread: the queue was opened with FI_WAIT_NONE");
            return -(FI_ENOSYS as isize);
        };
        let timeout = u64::try_from(timeout_ms).ok().map(Duration::from_millis);
        let start = Instant::now();
        loop {
            // SAFETY: a buffer as fi_eq(3) says.
            let answer = unsafe { eq.read(event, buf, len, flags) };
            let left = timeout.map(|timeout| timeout.saturating_sub(start.elapsed()));
            if answer != -(FI_EAGAIN as isize) || left.is_some_and(|left| left.is_zero()) {
                return answer;
            }
            if let Err(error) = wait.wait(left) {
                return -(error.raw_os_error().unwrap_or(FI_EIO) as isize);
            }
        }
    }

    unsafe extern "C" fn eq_strerror(
        _eq: *mut fid_eq,
        prov_errno: c_int,
        _err_data: *const c_void,
        buf: *mut c_char,
        len: usize,
    ) -> *const c_char {
        let text = match prov_errno {
            FI_EADDRNOTAVAIL => c"the address cannot be a peer's: port 0 or a wildcard",
            FI_EINVAL => c"not a socket address of the domain's family",
            FI_ENOMEM => c"the address vector is full",
            _ => c"not an error number that erd reports on an event queue",
        };
        // SAFETY: the caller's buffer is NULL or has `len` bytes.
        unsafe { object::give_text(text, buf, len) }
    }
}
