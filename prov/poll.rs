//! Poll sets and wait sets (`fi_poll(3)`).

use crate::cq::CqFid;
use crate::domain::DomainFid;
use crate::errno;
use crate::fabric::FabricInner;
use crate::object::{self, Class};
use erd_core::completion::CompletionQueue;
use erd_core::counter::Counter;
use erd_core::uses::{Use, Users};
use erd_core::wait_group::WaitGroup;
use erd_ffi::fi::{
    FI_CLASS_POLL, FI_CLASS_WAIT, FI_EAGAIN, FI_EINVAL, FI_ENOSYS, FI_ETIMEDOUT, FI_GETWAIT,
    FI_GETWAITOBJ, FI_WAIT_FD, FI_WAIT_UNSPEC, NOSYS_FID, NOSYS_POLL, NOSYS_WAIT, fi_ops,
    fi_ops_poll, fi_ops_wait, fi_poll_attr, fi_wait_attr, fi_wait_obj, fid, fid_domain, fid_fabric,
    fid_poll, fid_wait,
};
use erd_ffi::guard::guarded;
use parking_lot::Mutex;
use std::ffi::{c_int, c_void};
use std::os::fd::AsRawFd;
use std::sync::Arc;

/// A queue or a counter, which stays open as long as it is in a set.
struct Member {
    fid: *mut fid,
    what: What,
    _use: Use,
}

enum What {
    Cq(Arc<CompletionQueue>),
    Cntr(Arc<Counter>),
}

// SAFETY: the pointer names an object that is open as long as the member is there; of it only the
// context is read, which never changes.
unsafe impl Send for Member {}

impl Member {
    /// # Safety
    /// `any` is NULL or an open object of this provider.
    unsafe fn of(any: *mut fid) -> Option<Member> {
        // SAFETY: the caller's promise.
        unsafe {
            if let Some(CqFid { cq, .. }) = object::from_fid::<CqFid>(any).map(|cq| &**cq) {
                return Some(Member { fid: any, what: What::Cq(Arc::clone(cq)), _use: cq.hold() });
            }
            let cntr = object::from_fid::<Counter>(any)?;
            Some(Member { fid: any, what: What::Cntr(Arc::clone(cntr)), _use: cntr.hold() })
        }
    }

    /// True if something is there that the application has not read.
    fn has_news(&self) -> bool {
        match &self.what {
            What::Cq(cq) => cq.has_news(),
            What::Cntr(cntr) => cntr.has_news(),
        }
    }
}

/// State of a poll set.
pub struct PollInner {
    members: Mutex<Vec<Member>>,
    users: Users,
    _domain_use: Use,
}

// SAFETY: `fid_poll` begins with its `fid`, and no other state has this class.
unsafe impl Class for PollInner {
    type Abi = fid_poll;
    const FCLASS: usize = FI_CLASS_POLL;

    fn users(&self) -> &Users {
        &self.users
    }
}

/// A wait set, which keeps its fabric open.
pub struct WaitFid {
    /// The set.
    pub set: Arc<WaitGroup>,
    _fabric_use: Use,
}

// SAFETY: `fid_wait` begins with its `fid`, and no other state has this class.
unsafe impl Class for WaitFid {
    type Abi = fid_wait;
    const FCLASS: usize = FI_CLASS_WAIT;

    fn users(&self) -> &Users {
        self.set.users()
    }
}

/// `fi_trywait(3)` for a wait set: 0 if it is safe to sleep on its fd.
///
/// # Safety
/// `any` is an open wait set of this provider.
pub unsafe fn trywait(any: *mut fid) -> c_int {
    // SAFETY: the caller's promise.
    let Some(set) = (unsafe { object::from_fid::<WaitFid>(any) }) else {
        return -FI_EINVAL;
    };
    if set.set.may_sleep() { 0 } else { -FI_EAGAIN }
}

/// `fi_poll_open`.
///
/// # Safety
/// Pointers are as `fi_poll(3)` says.
pub unsafe fn open(
    domain: *mut fid_domain,
    attr: *mut fi_poll_attr,
    pollset: *mut *mut fid_poll,
) -> c_int {
    // SAFETY: the caller's promise.
    let (domain, flags) =
        unsafe { (object::inner::<DomainFid>(domain), attr.as_ref().map_or(0, |attr| attr.flags)) };
    if pollset.is_null() || flags != 0 {
        return -FI_EINVAL;
    }
    let inner = Arc::new(PollInner {
        members: Mutex::default(),
        users: Users::default(),
        _domain_use: domain.hold(),
    });
    let fid = object::base::<PollInner>(std::ptr::null_mut(), &POLL_FID_OPS);
    // SAFETY: the caller gave a place for the new object.
    unsafe { *pollset = object::publish(fid_poll { fid, ops: &POLL_OPS }, inner) };
    0
}

/// `fi_wait_open`.
///
/// # Safety
/// Pointers are as `fi_poll(3)` says.
pub unsafe fn open_wait(
    fabric: *mut fid_fabric,
    attr: *mut fi_wait_attr,
    waitset: *mut *mut fid_wait,
) -> c_int {
    // SAFETY: the caller's promise.
    let (fabric, asked) = unsafe { (object::inner::<FabricInner>(fabric), attr.as_ref()) };
    let (Some(asked), false) = (asked, waitset.is_null()) else { return -FI_EINVAL };
    if asked.flags != 0 || !matches!(asked.wait_obj, FI_WAIT_UNSPEC | FI_WAIT_FD) {
        tracing::info!(asked.wait_obj, "fi_wait_open: FI_WAIT_UNSPEC or FI_WAIT_FD, no flags");
        return if asked.flags == 0 { -FI_ENOSYS } else { -FI_EINVAL };
    }
    let set = match WaitGroup::new() {
        Ok(set) => set,
        Err(error) => return -error.raw_os_error().unwrap_or(FI_EINVAL),
    };
    let inner = Arc::new(WaitFid { set, _fabric_use: fabric.hold() });
    let fid = object::base::<WaitFid>(std::ptr::null_mut(), &WAIT_FID_OPS);
    // SAFETY: the caller gave a place for the new object.
    unsafe { *waitset = object::publish(fid_wait { fid, ops: &WAIT_OPS }, inner) };
    0
}

static POLL_FID_OPS: fi_ops = fi_ops { close: object::close::<PollInner>, ..NOSYS_FID };

static POLL_OPS: fi_ops_poll = fi_ops_poll { poll, poll_add, poll_del, ..NOSYS_POLL };

static WAIT_FID_OPS: fi_ops =
    fi_ops { close: object::close::<WaitFid>, control: wait_control, ..NOSYS_FID };

static WAIT_OPS: fi_ops_wait = fi_ops_wait { wait, ..NOSYS_WAIT };

guarded! {
    unsafe extern "C" fn poll(
        pollset: *mut fid_poll,
        contexts: *mut *mut c_void,
        count: c_int,
    ) -> c_int {
        // SAFETY: libfabric calls with our open set.
        let poll = unsafe { object::inner::<PollInner>(pollset) };
        let most = usize::try_from(count).unwrap_or(0);
        let members = poll.members.lock();
        let news = members.iter().filter(|member| member.has_news()).take(most);
        let mut found = 0;
        for member in news {
            // SAFETY: the array has `count` places, and the object is open.
            unsafe { *contexts.add(found) = (*member.fid).context };
            found += 1;
        }
        found as c_int
    }

    unsafe extern "C" fn poll_add(pollset: *mut fid_poll, any: *mut fid, flags: u64) -> c_int {
        // SAFETY: libfabric calls with our open set and another open object of ours.
        let (poll, member) = unsafe { (object::inner::<PollInner>(pollset), Member::of(any)) };
        let (Some(member), 0) = (member, flags) else {
            tracing::info!("fi_poll_add: completion queues and counters, and no flags");
            return -FI_EINVAL;
        };
        poll.members.lock().push(member);
        0
    }

    unsafe extern "C" fn poll_del(pollset: *mut fid_poll, any: *mut fid, flags: u64) -> c_int {
        // SAFETY: libfabric calls with our open set.
        let poll = unsafe { object::inner::<PollInner>(pollset) };
        let mut members = poll.members.lock();
        let at = members.iter().position(|member| member.fid == any);
        let (Some(at), 0) = (at, flags) else { return -FI_EINVAL };
        members.remove(at);
        0
    }

    unsafe extern "C" fn wait(waitset: *mut fid_wait, timeout_ms: c_int) -> c_int {
        // SAFETY: libfabric calls with our open set.
        match unsafe { object::inner::<WaitFid>(waitset) }.set.wait(timeout_ms) {
            Ok(true) => 0,
            Ok(false) => -FI_ETIMEDOUT,
            Err(error) => -errno::of(error),
        }
    }

    unsafe extern "C" fn wait_control(any: *mut fid, command: c_int, arg: *mut c_void) -> c_int {
        // SAFETY: libfabric calls with our open set.
        let Some(set) = (unsafe { object::from_fid::<WaitFid>(any) }) else {
            return -FI_EINVAL;
        };
        match command {
            // SAFETY: for an fd the argument points to an int.
            FI_GETWAIT if !arg.is_null() => unsafe {
                arg.cast::<c_int>().write(set.set.fd().as_raw_fd());
                0
            },
            // SAFETY: the argument points to the type of wait object.
            FI_GETWAITOBJ if !arg.is_null() => unsafe {
                arg.cast::<fi_wait_obj>().write(FI_WAIT_FD);
                0
            },
            _ => -FI_ENOSYS,
        }
    }
}
