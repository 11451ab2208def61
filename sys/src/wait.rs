//! What a thread sleeps on: an epoll fd over the ports' fds, a signal and a timer.
//!
//! An epoll set is shared with forked children, so a child that removed an fd would silence its
//! parent. Every call therefore does nothing in another process than the one that made the set.

use crate::process::Process;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Events taken by one [`WaitSet::wait`]; the others stay ready.
const EVENTS: usize = 16;
/// Events taken by one [`WaitSet::ready`]; the others come first the next time.
const READY_EVENTS: usize = 64;

const TOKEN_FD: u64 = 0;
const TOKEN_SIGNAL: u64 = 1;
const TOKEN_TIMER: u64 = 2;
const TOKEN_VISITOR: u64 = 3;
/// The first of the fds that have numbers.
const TOKEN_NUMBERED: u64 = 1 << 32;

/// What an fd is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// Readable, or an error.
    Readable,
    /// An error only: for send sockets.
    Errors,
    /// Writable, or an error: for a send socket that reported `Blocked`.
    Writable,
}

/// Why a wait ended; nothing set means the timeout, an interruption or another process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Woken {
    /// At least one of the fds added is ready.
    pub fd: bool,
    /// [`WaitSet::signal`] was called.
    pub signal: bool,
    /// The timer has run out.
    pub timer: bool,
    /// Someone is at a listening socket ([`WaitSet::add_listener`]).
    pub visitor: bool,
}

/// An epoll set with a signal and a timer of its own. Its fd may be polled by others
/// (`FI_WAIT_FD`).
#[derive(Debug)]
pub struct WaitSet {
    epoll: OwnedFd,
    signal: OwnedFd,
    timer: OwnedFd,
    /// The deadline set last, 0 for none: arming the same one again costs no system call.
    armed_ns: AtomicU64,
    process: Process,
}

impl WaitSet {
    /// A set with nothing in it but its signal and its timer. All its fds are close-on-exec.
    ///
    /// # Errors
    /// If the process or the system is out of fds.
    pub fn new() -> io::Result<Self> {
        // SAFETY: these calls take no pointers; each returns a new fd or -1.
        let (epoll, signal, timer) = unsafe {
            (
                owned(libc::epoll_create1(libc::EPOLL_CLOEXEC))?,
                owned(libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK))?,
                owned(libc::timerfd_create(
                    libc::CLOCK_MONOTONIC,
                    libc::TFD_CLOEXEC | libc::TFD_NONBLOCK,
                ))?,
            )
        };
        let process = Process::current();
        let set = Self { epoll, signal, timer, armed_ns: AtomicU64::new(0), process };
        set.register(set.signal.as_fd(), libc::EPOLLIN, TOKEN_SIGNAL)?;
        set.register(set.timer.as_fd(), libc::EPOLLIN, TOKEN_TIMER)?;
        Ok(set)
    }

    /// Readable whenever [`WaitSet::wait`] would return at once.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// Adds an fd. It must be removed before it is closed.
    ///
    /// # Errors
    /// `AlreadyExists` if it is in the set, or what `epoll_ctl(2)` reports.
    pub fn add(&self, fd: BorrowedFd<'_>, interest: Interest) -> io::Result<()> {
        let events = match interest {
            Interest::Readable => libc::EPOLLIN,
            Interest::Errors => 0,
            Interest::Writable => libc::EPOLLOUT,
        };
        if self.is_foreign() { Ok(()) } else { self.register(fd, events, TOKEN_FD) }
    }

    /// Adds a listening socket, which [`Woken`] tells of apart from all other fds. It must be
    /// removed before it is closed.
    ///
    /// # Errors
    /// As [`WaitSet::add`].
    pub fn add_listener(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        if self.is_foreign() { Ok(()) } else { self.register(fd, libc::EPOLLIN, TOKEN_VISITOR) }
    }

    /// Adds an fd that [`WaitSet::ready`] names by `number` while it is readable. Several fds may have
    /// the same. It must be removed before it is closed.
    ///
    /// # Errors
    /// As [`WaitSet::add`].
    pub fn add_numbered(&self, fd: BorrowedFd<'_>, number: u32) -> io::Result<()> {
        let token = TOKEN_NUMBERED + u64::from(number);
        if self.is_foreign() { Ok(()) } else { self.register(fd, libc::EPOLLIN, token) }
    }

    /// Hands the numbers of fds that are ready to `f`, at most 64 of them, without a wait. What stays
    /// ready is told again, after the others. A forked child gets its parent's: it changes nothing.
    ///
    /// # Errors
    /// What `epoll_wait(2)` reports, other than an interruption.
    pub fn ready(&self, mut f: impl FnMut(u32)) -> io::Result<()> {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; READY_EVENTS];
        for event in self.events(&mut events, 0)? {
            if let Some(number) = event.u64.checked_sub(TOKEN_NUMBERED) {
                f(number as u32);
            }
        }
        Ok(())
    }

    /// Removes an fd.
    ///
    /// # Errors
    /// `NotFound` if it is not in the set.
    pub fn remove(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        if self.is_foreign() {
            return Ok(());
        }
        let (op, none) = (libc::EPOLL_CTL_DEL, std::ptr::null_mut());
        // SAFETY: removal takes no event; both fds are open.
        check(unsafe { libc::epoll_ctl(self.epoll.as_raw_fd(), op, fd.as_raw_fd(), none) })
    }

    /// Wakes the waiter, now or when it next waits. Any thread may call it.
    pub fn signal(&self) {
        if self.is_foreign() {
            return;
        }
        let one = 1_u64;
        // SAFETY: eight readable bytes. It fails only when the counter is full: signalled already.
        unsafe { libc::write(self.signal.as_raw_fd(), (&raw const one).cast(), 8) };
    }

    /// Takes back the signal and a timer that has run out.
    pub fn clear(&self) {
        if self.is_foreign() {
            return;
        }
        take_counter(self.signal.as_fd());
        if take_counter(self.timer.as_fd()) {
            self.armed_ns.store(0, Ordering::Relaxed);
        }
    }

    /// Sets the timer to a time of [`crate::clock::monotonic_ns`], or stops it. A time in the past
    /// runs out at once. Calls of several threads need a lock around them.
    ///
    /// # Errors
    /// What `timerfd_settime(2)` reports: a time beyond its range.
    pub fn arm_timer(&self, deadline_ns: Option<u64>) -> io::Result<()> {
        // To the kernel 0 means to stop, so the first instant stands for it.
        let wanted_ns = deadline_ns.map_or(0, |at| at.max(1));
        if self.is_foreign() || self.armed_ns.load(Ordering::Relaxed) == wanted_ns {
            return Ok(());
        }
        let at = libc::timespec {
            tv_sec: libc::time_t::try_from(wanted_ns / 1_000_000_000).unwrap_or(libc::time_t::MAX),
            tv_nsec: (wanted_ns % 1_000_000_000) as libc::c_long,
        };
        let spec = libc::itimerspec {
            it_interval: libc::timespec { tv_sec: 0, tv_nsec: 0 },
            it_value: at,
        };
        let (fd, old) = (self.timer.as_raw_fd(), std::ptr::null_mut());
        // SAFETY: `spec` outlives the call, and the old value is not asked for.
        check(unsafe { libc::timerfd_settime(fd, libc::TFD_TIMER_ABSTIME, &raw const spec, old) })?;
        self.armed_ns.store(wanted_ns, Ordering::Relaxed);
        Ok(())
    }

    /// Sleeps until something is ready or `timeout` is over; `None` waits without end. Does not
    /// clear: see [`WaitSet::clear`]. The timeout is rounded up to milliseconds.
    ///
    /// # Errors
    /// What `epoll_wait(2)` reports, other than an interruption.
    pub fn wait(&self, timeout: Option<Duration>) -> io::Result<Woken> {
        let mut woken = Woken::default();
        if self.is_foreign() {
            return Ok(woken);
        }
        let timeout_ms = timeout.map_or(-1, |time| {
            i32::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(i32::MAX)
        });
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; EVENTS];
        for event in self.events(&mut events, timeout_ms)? {
            match event.u64 {
                TOKEN_SIGNAL => woken.signal = true,
                TOKEN_TIMER => woken.timer = true,
                TOKEN_VISITOR => woken.visitor = true,
                _ => woken.fd = true,
            }
        }
        Ok(woken)
    }

    /// What is ready; nothing after an interruption.
    fn events<'a>(
        &self,
        events: &'a mut [libc::epoll_event],
        timeout_ms: i32,
    ) -> io::Result<&'a [libc::epoll_event]> {
        let (fd, room) = (self.epoll.as_raw_fd(), events.len() as i32);
        // SAFETY: `events` has room for the stated number and outlives the call.
        let ready = unsafe { libc::epoll_wait(fd, events.as_mut_ptr(), room, timeout_ms) };
        if let Ok(ready) = usize::try_from(ready) {
            return Ok(&events[..ready]);
        }
        let error = io::Error::last_os_error();
        if error.kind() == io::ErrorKind::Interrupted { Ok(&[]) } else { Err(error) }
    }

    fn is_foreign(&self) -> bool {
        !self.process.is_current()
    }

    fn register(&self, fd: BorrowedFd<'_>, events: i32, token: u64) -> io::Result<()> {
        let mut event = libc::epoll_event { events: events as u32, u64: token };
        let (op, fd) = (libc::EPOLL_CTL_ADD, fd.as_raw_fd());
        // SAFETY: `event` outlives the call, and both fds are open.
        check(unsafe { libc::epoll_ctl(self.epoll.as_raw_fd(), op, fd, &raw mut event) })
    }
}

/// Several fds behind one that is readable when one of them is. Whoever hands the one out may have it
/// in as many sets as there are, and takes an fd back without asking them.
#[derive(Debug)]
pub struct Bundle {
    epoll: OwnedFd,
}

impl Bundle {
    /// An empty one.
    ///
    /// # Errors
    /// The process has no descriptor left.
    pub fn new() -> io::Result<Bundle> {
        // SAFETY: takes no pointers; a new fd or -1.
        let epoll = unsafe { owned(libc::epoll_create1(libc::EPOLL_CLOEXEC)) }?;
        Ok(Bundle { epoll })
    }

    /// The fd that is readable when one of the others is.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// True if one of the others is readable.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        let mut event = libc::epoll_event { events: 0, u64: 0 };
        // SAFETY: room for one event, which outlives the call.
        unsafe { libc::epoll_wait(self.epoll.as_raw_fd(), &raw mut event, 1, 0) == 1 }
    }

    /// Adds an fd.
    ///
    /// # Errors
    /// The fd is in it already, or cannot be waited for.
    pub fn add(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: TOKEN_FD };
        let (op, fd) = (libc::EPOLL_CTL_ADD, fd.as_raw_fd());
        // SAFETY: `event` outlives the call, and both fds are open.
        check(unsafe { libc::epoll_ctl(self.epoll.as_raw_fd(), op, fd, &raw mut event) })
    }

    /// Adds a socket, which counts as readable once its other side has closed, whatever that has sent.
    ///
    /// # Errors
    /// The fd is in it already, or cannot be waited for.
    pub fn add_end(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        let mut event = libc::epoll_event { events: libc::EPOLLRDHUP as u32, u64: TOKEN_FD };
        let (op, fd) = (libc::EPOLL_CTL_ADD, fd.as_raw_fd());
        // SAFETY: `event` outlives the call, and both fds are open.
        check(unsafe { libc::epoll_ctl(self.epoll.as_raw_fd(), op, fd, &raw mut event) })
    }

    /// Takes an fd back.
    ///
    /// # Errors
    /// The fd is not in it.
    pub fn remove(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        let (op, none) = (libc::EPOLL_CTL_DEL, std::ptr::null_mut());
        // SAFETY: removal takes no event; both fds are open.
        check(unsafe { libc::epoll_ctl(self.epoll.as_raw_fd(), op, fd.as_raw_fd(), none) })
    }
}

/// Reads the 8-byte counter of an eventfd or timerfd; says whether it was above 0.
fn take_counter(fd: BorrowedFd<'_>) -> bool {
    let mut count = 0_u64;
    // SAFETY: eight writable bytes that outlive the call.
    unsafe { libc::read(fd.as_raw_fd(), (&raw mut count).cast(), 8) == 8 }
}

fn check(rc: libc::c_int) -> io::Result<()> {
    if rc == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// # Safety
/// `fd` is -1 with the error in errno, or a new fd that nothing else owns.
unsafe fn owned(fd: libc::c_int) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the caller vouches that it is new.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
