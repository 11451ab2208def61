//! Completion queues and completions.

use super::error::Error;
use erd_core::cause::{self, Cause};
use erd_core::completion::CompletionQueue as Queue;
use erd_core::completion::queue::Entry;
use erd_core::domain::Domain;
use erd_core::flags::Flags;
use erd_sys::process::Process;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The status of a completed request (`enum ibv_wc_status`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u32)]
pub enum Status {
    /// Success. A send or write has reached the peer's library, a read or atomic has its answer.
    #[default]
    Success = 0,
    /// The message was longer than the receive's memory, which holds its beginning.
    LocalLength = 1,
    /// The kernel could not read the memory of a send or write. Where the library copies itself (up to 512 bytes, and
    /// all arrivals), a bad address ends the process instead.
    LocalProtection = 4,
    /// The request was withdrawn, or its queue pair or address handle is gone.
    Flushed = 5,
    /// The peer cannot do the request.
    RemoteInvalidRequest = 9,
    /// No such memory at the peer, or not for this kind of access.
    RemoteAccess = 10,
    /// The peer had no room for the completion that the request would cause.
    RemoteOperation = 11,
    /// The peer did not answer in time, or nothing listens at its address.
    RetryExceeded = 12,
    /// The peer closed its queue pair, or its process was replaced by another.
    RemoteAborted = 16,
    /// None of the others.
    General = 21,
}

impl Status {
    fn of(cause: i32) -> Status {
        let is = |one: Cause| one.number() == cause;
        let statuses: [(&[Cause], Status); 8] = [
            (&[Cause::Truncated], Status::LocalLength),
            (&[Cause::BadBuffer], Status::LocalProtection),
            (&[Cause::Canceled], Status::Flushed),
            (&[Cause::RefusedOperation, Cause::RefusedUnsupported], Status::RemoteInvalidRequest),
            (
                &[Cause::RefusedKey, Cause::RefusedBounds, Cause::RefusedRights],
                Status::RemoteAccess,
            ),
            (&[Cause::RefusedRoom], Status::RemoteOperation),
            (
                &[
                    Cause::PeerTimeout,
                    Cause::PeerUnreachable,
                    Cause::PathBlocked,
                    Cause::PeerHasNoKey,
                    Cause::KeysDiffer,
                ],
                Status::RetryExceeded,
            ),
            (&[Cause::PeerRestarted, Cause::PeerClosed], Status::RemoteAborted),
        ];
        let found = statuses.iter().find(|(causes, _)| causes.iter().any(|cause| is(*cause)));
        found.map_or(Status::General, |(_, status)| *status)
    }
}

/// Kind of a completed request (`enum ibv_wc_opcode`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u32)]
pub enum Opcode {
    /// A send.
    #[default]
    Send = 0,
    /// A write to a peer's memory.
    RdmaWrite = 1,
    /// A read of a peer's memory.
    RdmaRead = 2,
    /// A fetch-and-add or compare-and-swap at a peer.
    Atomic = 3,
    /// A receive.
    Recv = 128,
    /// A peer wrote to memory of this process, with immediate data. It consumes no posted receive, so `wr_id` is 0.
    RecvRdmaWithImm = 129,
}

impl Opcode {
    fn of(flags: Flags) -> Opcode {
        let has = |flag| flags.intersects(flag);
        if has(Flags::REMOTE_WRITE) {
            Opcode::RecvRdmaWithImm
        } else if has(Flags::RECV) {
            Opcode::Recv
        } else if has(Flags::ATOMIC) {
            Opcode::Atomic
        } else if has(Flags::READ) {
            Opcode::RdmaRead
        } else if has(Flags::WRITE) {
            Opcode::RdmaWrite
        } else {
            Opcode::Send
        }
    }
}

/// Completion of one request (`struct ibv_wc`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Completion {
    /// The request's number.
    pub wr_id: u64,
    /// Its status.
    pub status: Status,
    /// Its kind; valid for failures, too.
    pub opcode: Opcode,
    /// Number of its queue pair.
    pub qp_num: u32,
    /// Bytes received or written by a peer; 0 for the program's own sends, writes and reads.
    pub byte_len: u64,
    /// Immediate data of a message or write.
    pub imm_data: Option<u64>,
    /// Address of the peer that sent or failed. Make an address handle of it to answer.
    pub peer: Option<SocketAddr>,
    /// Cause of the failure, as a number of [`Cause`]; 0 for a success.
    pub(super) cause: i32,
}

impl Completion {
    pub(crate) fn of(entry: &Entry) -> Completion {
        let cause = entry.failure.as_ref().map_or(0, |failure| failure.cause.number());
        Completion {
            wr_id: entry.context as u64,
            status: if cause == 0 { Status::Success } else { Status::of(cause) },
            opcode: Opcode::of(entry.flags),
            qp_num: entry.tag as u32,
            byte_len: entry.len_bytes as u64,
            imm_data: entry.flags.contains(Flags::REMOTE_CQ_DATA).then_some(entry.data),
            peer: entry.peer,
            cause,
        }
    }

    /// True if the request succeeded.
    #[must_use]
    pub fn is_ok(&self) -> bool {
        self.status == Status::Success
    }

    /// Cause of the failure, as a number of [`Cause`]; 0 for a success.
    pub(crate) fn vendor_err(&self) -> u32 {
        self.cause as u32
    }

    /// Cause of the failure, as text.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self.cause {
            0 => "success",
            cause => cause::text(cause).to_str().unwrap_or("failed"),
        }
    }
}

/// Result of [`CompletionQueue::req_notify`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Notify {
    /// Nothing is there. The file descriptor becomes readable when there is something to do.
    Armed,
    /// Completions are there, or work is due: poll.
    Ready,
}

/// A completion queue (`struct ibv_cq`).
///
/// Polling it also lets its queue pairs progress. A thread of the library steps in when the program has not called for
/// a millisecond.
pub struct CompletionQueue {
    pub(super) inner: Arc<Queue>,
    process: Process,
    /// Destroyed while a thread slept on it.
    closed: AtomicBool,
}

impl CompletionQueue {
    pub(super) fn new(domain: &Domain) -> CompletionQueue {
        let inner = Queue::for_polling(domain);
        CompletionQueue { inner, process: Process::current(), closed: AtomicBool::new(false) }
    }

    /// Takes as many completions as there are and fit (`ibv_poll_cq`), and returns them. Does not wait.
    ///
    /// # Errors
    /// [`Error::Failed`] if a queue pair that completes here failed and nothing is left to take.
    pub fn poll<'a>(&self, into: &'a mut [Completion]) -> Result<&'a [Completion], Error> {
        let mut places = into.iter_mut();
        let room = places.len();
        let count = self.take(room, |entry| {
            if let Some(place) = places.next() {
                *place = Completion::of(entry);
            }
        })?;
        Ok(&into[..count])
    }

    /// Hands up to `count` entries to `f`; returns their number.
    pub(crate) fn take(&self, count: usize, f: impl FnMut(&Entry)) -> Result<usize, Error> {
        if !self.process.is_current() {
            return Err(Error::Forked);
        }
        match self.inner.poll(count, f) {
            0 if self.inner.watch.has_failed() => Err(Error::Failed),
            taken => Ok(taken),
        }
    }

    /// Sleeps until there are completions; false if the time runs out first. `None` waits without
    /// end. Times are rounded up to milliseconds.
    ///
    /// # Errors
    /// As [`CompletionQueue::poll`].
    pub fn wait(&self, timeout: Option<Duration>) -> Result<bool, Error> {
        if !self.process.is_current() {
            return Err(Error::Forked);
        }
        let timeout_ms = timeout.map_or(-1, |time| {
            i32::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(i32::MAX)
        });
        let there = self.inner.wait(timeout_ms);
        if self.closed.load(Ordering::Acquire) {
            // One signal ends one sleep.
            self.inner.signal();
            return Err(Error::Closed);
        }
        match there {
            false if self.inner.watch.has_failed() => Err(Error::Failed),
            there => Ok(there),
        }
    }

    /// Prepares for a sleep on the file descriptor (`ibv_req_notify_cq`). Once it is readable,
    /// poll, and ask again before the next sleep: it may have become so without a completion.
    ///
    /// # Errors
    /// As [`CompletionQueue::poll`].
    pub fn req_notify(&self) -> Result<Notify, Error> {
        if !self.process.is_current() {
            return Err(Error::Forked);
        }
        if self.inner.may_sleep() {
            return Ok(Notify::Armed);
        }
        if self.inner.watch.has_failed() { Err(Error::Failed) } else { Ok(Notify::Ready) }
    }

    /// Ends all sleeps in [`CompletionQueue::wait`].
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.inner.signal();
    }

    /// Makes the file descriptor readable, as if a completion had come.
    pub(crate) fn wake(&self) {
        self.inner.watch.wake();
    }

    /// The file descriptor to sleep on; it lives as long as the queue.
    ///
    /// # Errors
    /// If the process is out of file descriptors.
    pub fn fd(&self) -> Result<BorrowedFd<'_>, Error> {
        let action = "make a file descriptor to wait on";
        self.inner.watch.fd().map_err(|source| Error::System { action, source })
    }

    /// Number of queue pairs that complete here.
    pub(crate) fn users(&self) -> usize {
        self.inner.users().count()
    }
}
