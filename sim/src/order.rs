//! Whether work can come to its end: tasks in an order in which they can be done.

use crate::ids::HostId;
use crate::work::{Op, Task, TaskId, Work};

/// Tasks of a run that are being put in order.
struct Order<'a> {
    work: &'a Work,
    /// Place of each host's first task.
    first: Vec<usize>,
    /// What each task still waits for: its needs, and for a receiving task the beginning of the message.
    needs: Vec<u32>,
    /// Tasks that wait for nothing more, in order.
    free: Vec<(HostId, TaskId)>,
    /// How often each trigger was activated.
    activations: Vec<u32>,
}

/// All tasks in order, or one that can never begin or end, because it waits for itself or for a trigger that nothing
/// activates; see [`Work::in_order`].
pub(crate) fn in_order(work: &Work) -> Result<Vec<(HostId, TaskId)>, (HostId, TaskId)> {
    let mut order = Order::new(work);
    let mut next = 0;
    while let Some((host, task)) = order.free.get(next).copied() {
        next += 1;
        order.follow(host, &work.tasks(host)[task.0 as usize]);
    }
    match order.needs.iter().position(|needs| *needs > 0) {
        Some(at) => Err(order.cause(at)),
        None => Ok(order.free),
    }
}

impl Order<'_> {
    fn new(work: &Work) -> Order<'_> {
        let hosts = (0..work.hosts()).map(HostId);
        let mut order = Order {
            work,
            first: Vec::new(),
            needs: Vec::new(),
            free: Vec::new(),
            activations: vec![0; work.triggers().len()],
        };
        for host in hosts {
            order.first.push(order.needs.len());
            for (at, task) in work.tasks(host).iter().enumerate() {
                let needs =
                    task.needs + u32::from(matches!(task.op, Op::Receive { .. } | Op::Sink { .. }));
                order.needs.push(needs);
                if needs == 0 {
                    order.free.push((host, TaskId(at as u32)));
                }
            }
        }
        order
    }

    /// A task has begun, and a receiving one is done: what it leads to.
    fn follow(&mut self, host: HostId, task: &Task) {
        for then in &task.then {
            self.release(host, *then);
        }
        if let Op::Send { flow, .. } | Op::Stream { flow, .. } = task.op {
            let flow = self.work.flows()[flow.0 as usize];
            self.release(flow.to, flow.receive);
        }
        if let Some(fired) = task.fires {
            let activations = &mut self.activations[fired.0 as usize];
            *activations += 1;
            let trigger = &self.work.triggers()[fired.0 as usize];
            for (host, task) in trigger.started_by(*activations) {
                self.release(*host, *task);
            }
        }
    }

    /// Goes back from a task that is stuck to one that it waits for, and so on, until one comes again or waits for none.
    fn cause(&self, mut at: usize) -> (HostId, TaskId) {
        const NONE: usize = usize::MAX;
        let mut awaited = vec![NONE; self.needs.len()];
        for stuck in (0..self.needs.len()).filter(|at| self.needs[*at] > 0) {
            let (host, task) = self.task_at(stuck);
            let task = &self.work.tasks(host)[task.0 as usize];
            let mut leads_to = |host, task| awaited[self.place_of(host, task)] = stuck;
            task.then.iter().for_each(|then| leads_to(host, *then));
            if let Op::Send { flow, .. } | Op::Stream { flow, .. } = task.op {
                let flow = self.work.flows()[flow.0 as usize];
                leads_to(flow.to, flow.receive);
            }
            if let Some(fired) = task.fires {
                let targets = &self.work.triggers()[fired.0 as usize].targets;
                targets.iter().for_each(|target| leads_to(target.0, target.1));
            }
        }
        let mut seen = vec![false; self.needs.len()];
        while !std::mem::replace(&mut seen[at], true) && awaited[at] != NONE {
            at = awaited[at];
        }
        self.task_at(at)
    }

    fn place_of(&self, host: HostId, task: TaskId) -> usize {
        self.first[host.0 as usize] + task.0 as usize
    }

    fn task_at(&self, place: usize) -> (HostId, TaskId) {
        // Hosts without tasks begin where the next one does.
        let host = self.first.partition_point(|first| *first <= place) - 1;
        (HostId(host as u32), TaskId((place - self.first[host]) as u32))
    }

    fn release(&mut self, host: HostId, task: TaskId) {
        let place = self.place_of(host, task);
        let needs = &mut self.needs[place];
        *needs -= 1;
        if *needs == 0 {
            self.free.push((host, task));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::work::Shots;

    /// What waits for a circle is not part of it.
    #[test]
    fn a_task_of_the_circle_is_named() {
        let (a, b) = (HostId(0), HostId(1));
        let mut work = Work::new(2);
        let flow = work.message(b, a, 10);
        let [first, then] = [0, 0].map(|_| work.compute(b, 5));
        work.after(b, first, then);
        work.after(b, then, first);
        work.after(b, then, work.flows()[flow.0 as usize].send);
        assert!(
            matches!(work.circle(), Some((host, task)) if host == b && [first, then].contains(&task))
        );
    }

    /// Each host answers only after the other has: within each host nothing is wrong.
    #[test]
    fn a_circle_over_two_hosts_is_found() {
        let (a, b) = (HostId(1), HostId(3));
        let mut work = Work::new(4);
        let there = work.message(a, b, 10);
        let back = work.message(b, a, 10);
        let [there, back] = [there, back].map(|flow| work.flows()[flow.0 as usize]);
        work.after(b, there.receive, back.send);
        assert_eq!(work.circle(), None);
        work.after(a, back.receive, there.send);
        assert_eq!(work.circle(), Some((a, there.send)));
    }

    #[test]
    fn a_task_that_no_trigger_starts_is_found() {
        let hosts = [0, 1, 2].map(HostId);
        for (shots, complete) in
            [(Shots::All(2), true), (Shots::All(3), false), (Shots::OneEach, true)]
        {
            let mut work = Work::new(3);
            let flows = [0, 1].map(|at| work.message(hosts[at], hosts[2], 10));
            let trigger = work.trigger(shots);
            for flow in flows.map(|flow| work.flows()[flow.0 as usize]) {
                work.activate(flow.from, flow.send, trigger);
            }
            let last = work.compute(hosts[2], 1);
            work.started_by(hosts[2], last, trigger);
            assert_eq!(work.circle(), (!complete).then_some((hosts[2], last)), "{shots:?}");
        }
    }
}
