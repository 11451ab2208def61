//! The tasks of one host while they run.

use crate::time::Picos;
use crate::work::{Op, Task, TaskId, TriggerId};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

/// When a task began and was done; [`Picos::MAX`] while it has not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Times {
    /// All that it needs was done; a message was handed to the engine.
    pub began: Picos,
    /// A message was there whole, whether or not somebody waited for it.
    pub arrived: Picos,
    /// It was done.
    pub done: Picos,
}

impl Times {
    const NEVER: Times = Times { began: Picos::MAX, arrived: Picos::MAX, done: Picos::MAX };
}

/// A task that begins now and that the host has to see to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Begun {
    pub(crate) task: TaskId,
    pub(crate) op: Op,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Tasks {
    list: Vec<Task>,
    times: Vec<Times>,
    /// Tasks that begin at a time, computations that end at one.
    due: BinaryHeap<Reverse<(Picos, TaskId)>>,
    /// Receiving tasks by the message's number.
    receiving: HashMap<u32, TaskId>,
    /// Tasks that are not done, without sinks and streams.
    open: usize,
    /// When each processor is free.
    cpus: HashMap<u16, Picos>,
    /// Triggers that tasks have activated, until the network takes them; at most one for each task.
    fired: Vec<TriggerId>,
}

impl Tasks {
    pub(crate) fn new(list: Vec<Task>) -> Tasks {
        let mut tasks = Tasks { times: vec![Times::NEVER; list.len()], ..Tasks::default() };
        for (at, task) in list.iter().enumerate() {
            let id = TaskId(at as u32);
            match task.op {
                Op::Receive { flow } | Op::Sink { flow } => {
                    tasks.receiving.insert(flow.0, id);
                    if task.needs == 0 {
                        tasks.times[at].began = task.not_before;
                    }
                }
                _ if task.needs == 0 => tasks.due.push(Reverse((task.not_before, id))),
                _ => {}
            }
            tasks.open += usize::from(!matches!(task.op, Op::Stream { .. } | Op::Sink { .. }));
        }
        tasks.list = list;
        tasks
    }

    /// When something is due next.
    pub(crate) fn next_due(&self) -> Option<Picos> {
        self.due.peek().map(|next| next.0.0)
    }

    /// Tasks that are not done.
    pub(crate) fn open(&self) -> usize {
        self.open
    }

    /// All of them, in the order of their numbers.
    pub(crate) fn list(&self) -> &[Task] {
        &self.list
    }

    pub(crate) fn op(&self, task: TaskId) -> Op {
        self.list[task.0 as usize].op
    }

    pub(crate) fn times(&self, task: TaskId) -> Times {
        self.times[task.0 as usize]
    }

    /// The task that a message is for.
    pub(crate) fn receiver_of(&self, flow: u32) -> Option<TaskId> {
        self.receiving.get(&flow).copied()
    }

    /// The next message that is to be sent now. Computations begin and end on the way.
    pub(crate) fn begin(&mut self, now: Picos) -> Option<Begun> {
        while self.next_due().is_some_and(|at| at <= now) {
            let Reverse((_, task)) = self.due.pop()?;
            let op = self.op(task);
            let times = &mut self.times[task.0 as usize];
            match op {
                Op::Compute { .. } if times.began != Picos::MAX => self.done(now, task),
                Op::Compute { time_ps, cpu } => {
                    let free_at = cpu.map(|cpu| self.cpus.entry(cpu).or_insert(0));
                    times.began = free_at.as_deref().map_or(now, |at| now.max(*at));
                    let end = times.began.saturating_add(time_ps);
                    free_at.into_iter().for_each(|at| *at = end);
                    self.due.push(Reverse((end, task)));
                }
                _ => {
                    times.began = now;
                    return Some(Begun { task, op });
                }
            }
        }
        None
    }

    /// A task is done: what waits for it may begin.
    pub(crate) fn done(&mut self, now: Picos, task: TaskId) {
        let times = &mut self.times[task.0 as usize];
        debug_assert_eq!(times.done, Picos::MAX, "a task is done once");
        times.done = now;
        self.open -= 1;
        self.fired.extend(self.list[task.0 as usize].fires);
        for at in 0..self.list[task.0 as usize].then.len() {
            let then = self.list[task.0 as usize].then[at];
            self.release(now, then);
        }
    }

    /// Something that a task has waited for has happened.
    pub(crate) fn release(&mut self, now: Picos, task: TaskId) {
        let next = &mut self.list[task.0 as usize];
        next.needs -= 1;
        if next.needs > 0 {
            return;
        }
        match next.op {
            // Its message may have come before.
            Op::Receive { .. } | Op::Sink { .. } => {
                let times = &mut self.times[task.0 as usize];
                times.began = now;
                if times.arrived != Picos::MAX {
                    self.done(now, task);
                }
            }
            _ => self.due.push(Reverse((next.not_before.max(now), task))),
        }
    }

    /// The next trigger that a task has activated.
    pub(crate) fn next_fired(&mut self) -> Option<TriggerId> {
        self.fired.pop()
    }

    /// A message has arrived whole. What waits for it goes on once the receiver has asked for it.
    pub(crate) fn arrived(&mut self, now: Picos, task: TaskId) {
        let is_sink = matches!(self.op(task), Op::Sink { .. });
        let times = &mut self.times[task.0 as usize];
        times.arrived = now;
        if times.began != Picos::MAX && !is_sink {
            self.done(now, task);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::HostId;
    use crate::work::Work;

    /// Computations of one processor follow each other; others do not wait for them.
    #[test]
    fn a_processor_does_one_thing_at_a_time() {
        let host = HostId(0);
        let mut work = Work::new(1);
        let list = [Some(3), Some(3), Some(4), None].map(|cpu| match cpu {
            Some(cpu) => work.compute_on(host, cpu, 100),
            None => work.compute(host, 100),
        });
        let mut tasks = Tasks::new(work.into_hosts().swap_remove(0));
        for at in [0, 100, 200] {
            assert_eq!(tasks.begin(at), None);
        }
        assert_eq!(list.map(|task| tasks.times(task).done), [100, 200, 100, 100]);
        assert_eq!(tasks.times(list[1]).began, 100);
    }

    /// A host computes, sends, and waits for the answer; the answer may come first.
    #[test]
    fn tasks_begin_in_their_order_and_times() {
        for answer_first in [false, true] {
            let (a, b) = (HostId(0), HostId(1));
            let mut work = Work::new(2);
            let think = work.compute(a, 100);
            let ask = work.message(a, b, 10);
            let answer = work.message(b, a, 10);
            let flows = [ask, answer].map(|flow| work.flows()[flow.0 as usize]);
            work.after(a, think, flows[0].send);
            work.after(a, flows[0].send, flows[1].receive);
            let end = work.compute(a, 50);
            work.after(a, flows[1].receive, end);
            let mut tasks = Tasks::new(work.into_hosts().swap_remove(0));
            assert_eq!(tasks.begin(7), None, "it computes");
            assert_eq!((tasks.next_due(), tasks.open()), (Some(107), 4));
            assert_eq!(tasks.begin(107).map(|begun| begun.task), Some(flows[0].send));
            let receive = tasks.receiver_of(answer.0).expect("the answer is expected");
            if answer_first {
                tasks.arrived(110, receive);
                assert_eq!(tasks.open(), 3, "nobody waits for it yet");
                tasks.done(120, flows[0].send);
            } else {
                tasks.done(110, flows[0].send);
                tasks.arrived(120, receive);
            }
            assert_eq!(tasks.begin(120), None);
            assert_eq!(tasks.next_due(), Some(170));
            assert_eq!((tasks.begin(170), tasks.open()), (None, 0));
            assert_eq!(tasks.times(end), Times { began: 120, done: 170, ..Times::NEVER });
            let arrived = if answer_first { 110 } else { 120 };
            assert_eq!(
                tasks.times(receive),
                Times { began: tasks.times(flows[0].send).done, arrived, done: 120 }
            );
        }
    }
}
