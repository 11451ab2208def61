//! Completion: from finished operations to queue entries and counters.

use super::operations::{RecvOp, SendOp};
use super::ops::Context;
use crate::cause::Cause;
use crate::completion::CompletionQueue;
use crate::completion::queue::{Account, AccountId, Entry, Failure};
use crate::counter::Counter;
use crate::flags::Flags;
use crate::peer_index::NOWHERE;
use crate::uses::Use;
use erd_rd::PeerId;
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The completion queue of one direction.
pub(super) struct BoundCq {
    pub cq: Arc<CompletionQueue>,
    /// Only operations that ask for a completion complete there.
    pub selective: bool,
    account_id: AccountId,
    account: Account,
    _use: Use,
}

impl BoundCq {
    pub(super) fn new(cq: &Arc<CompletionQueue>, selective: bool) -> BoundCq {
        let (account_id, account) = cq.open_account();
        BoundCq { cq: Arc::clone(cq), selective, account_id, account, _use: cq.hold() }
    }
}

/// The counter of one direction.
pub(super) struct BoundCntr {
    pub cntr: Arc<Counter>,
    _use: Use,
}

impl BoundCntr {
    pub(super) fn new(cntr: &Arc<Counter>) -> BoundCntr {
        BoundCntr { cntr: Arc::clone(cntr), _use: cntr.hold() }
    }
}

/// An entry on its way to the queue. The names of peers are looked up only there.
pub(super) struct Done {
    pub entry: Entry,
    pub peer: Option<PeerId>,
}

/// The queue and counters of sends or of receives.
#[derive(Default)]
pub(super) struct Direction {
    pub cq: Option<BoundCq>,
    /// Counter of messages.
    pub cntr: Option<BoundCntr>,
    /// Counter of reads: ours, or peers' reads of our memory.
    pub reads: Option<BoundCntr>,
    /// Counter of writes, likewise.
    pub writes: Option<BoundCntr>,
    /// Completions of the present call, pushed under one lock at its end.
    pub done: Vec<Done>,
    /// Counters of failures among them, raised once the queue has those: an application that a counter wakes reads the
    /// error at once. As many as failures of the present call.
    pub failing: Vec<Arc<Counter>>,
    /// The context of the endpoint, or of the transmit context.
    pub context: Context,
}

impl Direction {
    /// True if operations of this direction can report anywhere.
    pub(super) fn is_bound(&self) -> bool {
        self.cq.is_some()
            || [&self.cntr, &self.reads, &self.writes].iter().any(|cntr| cntr.is_some())
    }

    /// True if an operation that does not ask for a completion gets one.
    pub(super) fn always_completes(&self) -> bool {
        self.cq.as_ref().is_none_or(|bound| !bound.selective)
    }

    /// Whether completions go to another provider's queue.
    pub(super) fn has_owner(&self) -> bool {
        self.cq.as_ref().is_some_and(|bound| bound.cq.has_owner())
    }

    /// True if a reader may sleep until the next completion, which then must not wait for the next call.
    pub(super) fn may_be_slept_on(&self) -> bool {
        self.cq.as_ref().is_some_and(|bound| bound.cq.watch.can_sleep())
    }

    /// Number of completions that the application has not read.
    pub(super) fn unread(&self) -> usize {
        let queued = |bound: &BoundCq| bound.account.load(Ordering::Relaxed) as usize;
        self.done.len() + self.cq.as_ref().map_or(0, queued)
    }

    pub(super) fn push(&mut self, what: Report, peer: Option<PeerId>) {
        let Some(bound) = &self.cq else { return };
        let failure = what.cause.map(|cause| {
            Box::new(Failure { cause, overflow_bytes: what.overflow_bytes, text: Vec::new() })
        });
        let entry = Entry {
            context: what.context,
            flags: what.flags
                | if what.data.is_some() { Flags::REMOTE_CQ_DATA } else { Flags::empty() },
            len_bytes: what.len_bytes,
            buf: what.buf,
            data: what.data.unwrap_or(0),
            tag: what.tag,
            source: NOWHERE,
            peer: None,
            account: bound.account_id,
            failure,
        };
        self.done.push(Done { entry, peer });
    }

    /// Gives the queue the completions of the present call, and then raises the counters of failures.
    pub(super) fn publish(&mut self) {
        if let Some(bound) = &self.cq {
            bound.cq.push(self.done.drain(..).map(|done| done.entry));
        }
        self.failing.drain(..).for_each(|cntr| cntr.failed());
    }

    /// The counter of operations whose completions have these flags.
    fn counter(&self, flags: Flags) -> Option<&Arc<Counter>> {
        let bound = if flags.intersects(Flags::READ | Flags::REMOTE_READ) {
            &self.reads
        } else if flags.intersects(Flags::WRITE | Flags::REMOTE_WRITE) {
            &self.writes
        } else {
            &self.cntr
        };
        bound.as_ref().map(|bound| &bound.cntr)
    }

    /// Counts an operation of `len_bytes` whose completion has these flags.
    pub(super) fn count(&self, flags: Flags, len_bytes: u64) {
        if let Some(cntr) = self.counter(flags) {
            cntr.completed(len_bytes);
        }
    }

    pub(super) fn send_done(&mut self, op: &SendOp) {
        match &op.owed {
            None => self.count(op.flags, op.len_bytes),
            Some(owed) => owed.completed(),
        }
        if op.completion {
            self.push(Report::new(op.context.0, op.flags), op.peer);
        }
    }

    /// Failures are reported even where successes are not (`fi_cq(3)`).
    pub(super) fn send_failed(&mut self, op: &SendOp, cause: Cause) {
        self.fail_send(op, cause, op.context.0);
    }

    /// An operation failed after the application has read its completion: its context may name something else by now.
    pub(super) fn send_lost(&mut self, op: &SendOp, cause: Cause) {
        self.fail_send(op, cause, self.context.0);
    }

    fn fail_send(&mut self, op: &SendOp, cause: Cause, context: *mut c_void) {
        let cntr = match &op.owed {
            Some(owed) => owed.cntr.as_ref(),
            None => self.counter(op.flags),
        };
        self.count_failure(cntr.cloned());
        let report = Report { cause: Some(cause), ..Report::new(context, op.flags) };
        self.push(report, op.peer);
    }

    /// Counts a failure, after its entry if there is a queue for one.
    fn count_failure(&mut self, cntr: Option<Arc<Counter>>) {
        match cntr {
            Some(cntr) if self.cq.is_some() => self.failing.push(cntr),
            Some(cntr) => cntr.failed(),
            None => {}
        }
    }

    pub(super) fn recv_done(&mut self, op: &RecvOp, more_flags: Flags) {
        match (&op.owed, &self.cntr) {
            (Some(owed), _) => owed.completed(),
            (None, Some(bound)) => bound.cntr.completed(op.len_bytes),
            (None, None) => {}
        }
        if op.completion || !more_flags.is_empty() {
            let report = Report { flags: op.flags | more_flags, ..Report::of_recv(op) };
            self.push(report, op.peer);
        }
    }

    /// A truncated message has its length and overflow; other failures have neither.
    pub(super) fn recv_failed(&mut self, op: &RecvOp, cause: Cause, more_flags: Flags) {
        let cntr = match &op.owed {
            Some(owed) => owed.cntr.as_ref(),
            None => self.cntr.as_ref().map(|bound| &bound.cntr),
        };
        self.count_failure(cntr.cloned());
        let mut report = Report::of_recv(op);
        report.flags |= more_flags;
        if cause == Cause::Truncated {
            report.len_bytes = op.buffers.len_bytes() as usize;
            report.overflow_bytes = (op.len_bytes - op.buffers.len_bytes()) as usize;
        } else {
            report.len_bytes = 0;
        }
        self.push(Report { cause: Some(cause), ..report }, op.peer);
    }
}

/// Fields of a completion.
#[derive(Clone, Copy)]
pub(super) struct Report {
    pub context: *mut c_void,
    pub flags: Flags,
    pub len_bytes: usize,
    pub buf: *mut c_void,
    pub data: Option<u64>,
    pub tag: u64,
    pub overflow_bytes: usize,
    pub cause: Option<Cause>,
}

impl Report {
    /// A report of only a context and flags.
    pub(super) fn new(context: *mut c_void, flags: Flags) -> Report {
        Report {
            context,
            flags,
            len_bytes: 0,
            buf: std::ptr::null_mut(),
            data: None,
            tag: 0,
            overflow_bytes: 0,
            cause: None,
        }
    }

    fn of_recv(op: &RecvOp) -> Report {
        Report {
            len_bytes: op.len_bytes as usize,
            buf: op.buffers.base(),
            data: op.data,
            tag: op.tag,
            ..Report::new(op.context.0, op.flags)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::{Domain, Spot, Terms};
    use crate::keys::KeyTerms;
    use crate::settings::Settings;
    use crate::watch::{WaitKind, Watch};
    use erd_port::udp::Interface;

    fn domain() -> Arc<Domain> {
        let local = "127.0.0.1".parse().unwrap();
        let entry = Interface {
            name: "lo".to_owned(),
            addr: local,
            prefix: 8,
            mtu_bytes: 65_536,
            up: true,
            loopback: true,
            speed_mbps: None,
        };
        let terms =
            Terms { auto_progress: false, stays: false, keys: KeyTerms::default(), dscp: 0 };
        let settings = Settings::read(|_| Ok(None)).expect("settings");
        Domain::new(settings, Spot { entry, local, port: None }, &terms).expect("a domain")
    }

    #[test]
    fn a_counter_tells_of_a_failure_once_the_queue_has_it() {
        let domain = domain();
        let watch = Watch::new(WaitKind::Fd, 0, &domain.held);
        let cntr = Counter::new(&domain, false, watch, None).expect("a counter");
        let bound = || Some(BoundCntr::new(&cntr));
        let direction = || Direction { cntr: bound(), writes: bound(), ..Direction::default() };
        let cq = CompletionQueue::for_polling(&domain);
        let mut queued = Direction { cq: Some(BoundCq::new(&cq, true)), ..direction() };
        let write = SendOp { flags: Flags::WRITE, ..SendOp::default() };
        queued.send_failed(&write, Cause::PeerUnreachable);
        queued.recv_failed(&RecvOp::default(), Cause::PeerUnreachable, Flags::empty());
        assert_eq!((cntr.read_errors(), cq.poll(2, |_| {})), (0, 0), "both come together");
        queued.publish();
        assert_eq!(cntr.read_errors(), 2);
        assert_eq!(cq.poll(3, |entry| assert!(entry.failure.is_some())), 2);
        // Nothing waits for a queue that is not there.
        direction().send_failed(&write, Cause::PeerUnreachable);
        assert_eq!(cntr.read_errors(), 3);
    }
}
