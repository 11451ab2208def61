//! A host's tasks as its transport sees them: messages to send, and what has become of those that it took.

use crate::ids::HostId;
use crate::tasks::{Tasks, Times};
use crate::time::Picos;
use crate::work::{FlowId, Op, Task, TaskId, TriggerId};

/// A message that a task sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SendRequest {
    /// The task that sends it.
    pub task: TaskId,
    /// Which message. Those of a stream share a number.
    pub flow: FlowId,
    /// To whom.
    pub to: HostId,
    /// Its length.
    pub bytes: u64,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Agenda {
    tasks: Tasks,
    /// Payload bytes placed, by receiving task.
    placed_bytes: Vec<u64>,
    /// Payload bytes of messages whose turn has not come: no task has them.
    held_bytes: u64,
    /// Tasks whose message was acknowledged, and whose message has arrived, since the last turn.
    sent: Vec<TaskId>,
    received: Vec<TaskId>,
    /// Messages that the transport has not taken yet: it was full. At most one for each task, and as many for a stream as
    /// it has outstanding.
    untaken: Vec<SendRequest>,
    /// Operations that ended with an error.
    failures: u64,
}

impl Agenda {
    /// The tasks of a host that has done nothing.
    #[must_use]
    pub fn new(tasks: Vec<Task>) -> Agenda {
        let placed_bytes = vec![0; tasks.len()];
        Agenda { tasks: Tasks::new(tasks), placed_bytes, ..Agenda::default() }
    }

    /// Something is to be done: a task is due, a message has ended, or one waits to be taken.
    #[inline]
    #[must_use]
    pub fn is_due(&self, now: Picos) -> bool {
        let idle = self.sent.is_empty() && self.received.is_empty() && self.untaken.is_empty();
        !idle || self.tasks.next_due().is_some_and(|at| at <= now)
    }

    /// Ends tasks that are done and begins those that are due. [`Agenda::take_untaken`] has the messages to send.
    pub fn turn(&mut self, now: Picos) {
        while let Some(task) = self.received.pop() {
            self.tasks.arrived(now, task);
        }
        while let Some(task) = self.sent.pop() {
            match self.tasks.op(task) {
                op @ Op::Stream { .. } => self.untaken.extend(message(task, op)),
                _ => self.tasks.done(now, task),
            }
        }
        while let Some(begun) = self.tasks.begin(now) {
            let times = if let Op::Stream { outstanding, .. } = begun.op { outstanding } else { 1 };
            let message = message(begun.task, begun.op);
            self.untaken.extend((0..times).filter_map(|_| message));
        }
    }

    /// Takes out the messages that wait to be sent.
    #[must_use]
    pub fn take_untaken(&mut self) -> Vec<SendRequest> {
        std::mem::take(&mut self.untaken)
    }

    /// Puts back those of them that the transport did not take.
    pub fn put_back(&mut self, untaken: Vec<SendRequest>) {
        self.untaken = untaken;
    }

    /// The task that a message is for.
    #[must_use]
    pub fn receiver_of(&self, flow: FlowId) -> Option<TaskId> {
        self.tasks.receiver_of(flow.0)
    }

    /// The receiver has acknowledged all of a message.
    pub fn sent(&mut self, task: TaskId) {
        self.sent.push(task);
    }

    /// A message has arrived whole.
    pub fn received(&mut self, task: TaskId) {
        self.received.push(task);
    }

    /// Bytes of a message have arrived.
    pub fn placed(&mut self, task: TaskId, bytes: u64) {
        if let Some(placed) = self.placed_bytes.get_mut(task.0 as usize) {
            *placed += bytes;
        }
    }

    /// Bytes have come before their message's turn.
    pub fn hold(&mut self, bytes: u64) {
        self.held_bytes += bytes;
    }

    /// So many of them are held no longer.
    pub fn give_back(&mut self, bytes: u64) {
        self.held_bytes -= bytes;
    }

    /// Payload bytes that are there and that no task has got, since their message's turn has not come.
    #[must_use]
    pub fn held_bytes(&self) -> u64 {
        self.held_bytes
    }

    /// An operation has ended with an error.
    pub fn failed(&mut self) {
        self.failures += 1;
    }

    /// Payload bytes that a receiving task has got.
    #[must_use]
    pub fn placed_bytes(&self, task: TaskId) -> u64 {
        self.placed_bytes[task.0 as usize]
    }

    /// When a task began and was done.
    #[must_use]
    pub fn times(&self, task: TaskId) -> Times {
        self.tasks.times(task)
    }

    /// All tasks, in the order of their numbers.
    #[must_use]
    pub fn tasks(&self) -> &[Task] {
        self.tasks.list()
    }

    /// Tasks that are not done, without streams.
    #[must_use]
    pub fn open_tasks(&self) -> usize {
        self.tasks.open()
    }

    /// Operations that ended with an error.
    #[must_use]
    pub fn failures(&self) -> u64 {
        self.failures
    }

    /// When a task is due next.
    #[must_use]
    pub fn next_due(&self) -> Option<Picos> {
        self.tasks.next_due()
    }

    /// The next trigger that a task has activated.
    pub fn next_fired(&mut self) -> Option<TriggerId> {
        self.tasks.next_fired()
    }

    /// A trigger starts a task.
    pub fn release(&mut self, now: Picos, task: TaskId) {
        self.tasks.release(now, task);
    }
}

/// What a task sends.
fn message(task: TaskId, op: Op) -> Option<SendRequest> {
    match op {
        Op::Send { flow, to, bytes } => Some(SendRequest { task, flow, to, bytes }),
        Op::Stream { flow, to, message_bytes, .. } => {
            Some(SendRequest { task, flow, to, bytes: message_bytes })
        }
        _ => None,
    }
}
