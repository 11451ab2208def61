//! Wait sets: groups of queues and counters, so that a thread can sleep on all together.

use crate::error::Error;
use crate::spin::{Seen, Spinner};
use crate::uses::{Use, Users};
use erd_sys::clock::monotonic_ns;
use erd_sys::wait::{Interest, WaitSet};
use parking_lot::Mutex;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// A member of a wait set.
pub trait Sleepable: Send + Sync {
    /// True if nothing is there, and any arrival will wake sleepers on the wait set.
    fn may_sleep(&self) -> bool;
}

/// State of a wait set.
pub struct WaitGroup {
    set: WaitSet,
    members: Mutex<Vec<Weak<dyn Sleepable>>>,
    /// The longest spin (ns) that the last member allows.
    spin_ns: AtomicU64,
    spinner: Spinner,
    users: Users,
}

impl WaitGroup {
    /// A set without members.
    ///
    /// # Errors
    /// The system has no fd left.
    pub fn new() -> io::Result<Arc<WaitGroup>> {
        Ok(Arc::new(WaitGroup {
            set: WaitSet::new()?,
            members: Mutex::default(),
            spin_ns: AtomicU64::new(0),
            spinner: Spinner::default(),
            users: Users::default(),
        }))
    }

    /// Objects that need the set.
    #[must_use]
    pub fn users(&self) -> &Users {
        &self.users
    }

    /// The fd that becomes readable when a member has something.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.set.fd()
    }

    /// Keeps the set open until the result is dropped.
    #[must_use]
    pub fn hold(&self) -> Use {
        self.users.add()
    }

    /// Adds `member` with its `fd`. Waits spin for at most `spin_ns` before they sleep.
    ///
    /// # Errors
    /// Error of adding it.
    pub fn add(
        &self,
        member: Weak<dyn Sleepable>,
        fd: BorrowedFd<'_>,
        spin_ns: u64,
    ) -> Result<(), Error> {
        let added = self.set.add(fd, Interest::Readable);
        added.map_err(|error| Error::of_system(&error, Error::Invalid))?;
        self.spin_ns.store(spin_ns, Ordering::Relaxed);
        let mut members = self.members.lock();
        members.retain(|member| member.strong_count() > 0);
        members.push(member);
        Ok(())
    }

    /// True if no member has anything, and any arrival makes the set's fd readable.
    #[must_use]
    pub fn may_sleep(&self) -> bool {
        let members = self.members.lock().clone();
        members.iter().filter_map(Weak::upgrade).all(|one| one.may_sleep())
    }

    /// Sleeps until a member has something, for `timeout_ms` at most, or for ever if that is negative. False if it
    /// timed out.
    ///
    /// # Errors
    /// The system's error.
    pub fn wait(&self, timeout_ms: i32) -> Result<bool, Error> {
        let end_ns = u64::try_from(timeout_ms).ok().map(|ms| monotonic_ns() + ms * 1_000_000);
        loop {
            if !self.may_sleep() {
                return Ok(true);
            }
            let mut found = false;
            self.spinner.spin(self.spin_ns.load(Ordering::Relaxed), end_ns, || {
                found = !self.may_sleep();
                if found { Seen::Found } else { Seen::Nothing }
            });
            if found {
                return Ok(true);
            }
            let now_ns = monotonic_ns();
            if end_ns.is_some_and(|end| now_ns >= end) {
                return Ok(false);
            }
            let left = end_ns.map(|end| Duration::from_nanos(end - now_ns));
            self.set.wait(left).map_err(|error| Error::of_system(&error, Error::Invalid))?;
        }
    }
}
