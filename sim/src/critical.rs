//! The critical path of a run: the chain of tasks that decided when the last one was done, and what its time was spent on.
//!
//! The walk begins at the task that was done last. A task began when the last thing that it waited for was over: another
//! task of its host, an earlier computation on its processor, or, for a receiving task, its message. So each moment of the
//! run belongs to one task of the chain, and the parts add up to the whole.

use crate::fabric::Fabric;
use crate::host::SimHost;
use crate::ids::HostId;
use crate::tasks::Times;
use crate::time::Picos;
use crate::work::{Flow, Op, TaskId};
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// What the time of the critical path was spent on. The parts add up to the whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct CriticalPath {
    /// From the beginning of the work until the last task was done.
    pub whole_ps: Picos,
    /// Computations.
    pub compute_ps: Picos,
    /// Messages: from when their sender could begin until the receiver had all, or until the sender knew where that is what
    /// was waited for.
    pub network_ps: Picos,
    /// Start times and triggers: nothing on the path was under way.
    pub idle_ps: Picos,
    /// Messages on the path.
    pub messages: usize,
    /// Computations on the path that took time.
    pub computations: usize,
}

impl CriticalPath {
    /// Share of the whole that messages took, 0 to 1.
    #[must_use]
    pub fn network_share(&self) -> f64 {
        self.network_ps as f64 / self.whole_ps.max(1) as f64
    }

    /// The path of a run that is over. `flows` are its messages, `begin` is when its work began.
    pub(crate) fn of(fabric: &Fabric, flows: &[Flow], begin: Picos) -> CriticalPath {
        let waits = fabric.hosts().map(Waits::of).collect();
        Walk { fabric, flows, waits, begin, path: CriticalPath::default() }.walk()
    }
}

/// No task.
const NONE: u32 = u32::MAX;

/// For each task of a host the one of the same host whose end it waited for last; [`NONE`] if it waited for none.
struct Waits(Vec<u32>);

impl Waits {
    fn of(host: &SimHost) -> Waits {
        let tasks = host.tasks();
        let done = |task: u32| host.times(TaskId(task)).done;
        let mut last = vec![NONE; tasks.len()];
        let mut note = |task: u32, first: u32| {
            let last = &mut last[task as usize];
            if *last == NONE || done(first) > done(*last) {
                *last = first;
            }
        };
        // Computations that took time, by processor. One without a length lets no other one wait.
        let mut by_cpu: BTreeMap<u16, Vec<u32>> = BTreeMap::new();
        for (at, task) in (0..).zip(tasks) {
            task.then.iter().for_each(|then| note(then.0, at));
            if let Op::Compute { cpu: Some(cpu), time_ps } = task.op
                && time_ps > 0
            {
                by_cpu.entry(cpu).or_default().push(at);
            }
        }
        for computations in by_cpu.values_mut() {
            computations.sort_by_key(|at| host.times(TaskId(*at)).began);
            computations.windows(2).for_each(|pair| note(pair[1], pair[0]));
        }
        Waits(last)
    }
}

/// A walk from the end of a run to its beginning.
struct Walk<'a> {
    fabric: &'a Fabric,
    flows: &'a [Flow],
    waits: Vec<Waits>,
    begin: Picos,
    path: CriticalPath,
}

impl Walk<'_> {
    fn times(&self, (host, task): (HostId, TaskId)) -> Times {
        self.fabric.host(host).times(task)
    }

    /// The task that was done last, and when.
    fn last(&self) -> Option<((HostId, TaskId), Picos)> {
        let hosts = (0..self.fabric.plan().hosts()).map(HostId);
        let all = hosts.flat_map(|host| {
            let tasks = 0..self.fabric.host(host).tasks().len() as u32;
            tasks.map(move |task| (host, TaskId(task)))
        });
        let done = all.map(|at| (at, self.times(at).done)).filter(|(_, done)| *done != Picos::MAX);
        done.max_by_key(|(at, done)| (*done, Reverse(*at)))
    }

    fn walk(mut self) -> CriticalPath {
        let Some((mut at, mut until)) = self.last() else { return self.path };
        self.path.whole_ps = until.saturating_sub(self.begin);
        while until > self.begin {
            let (began_at, began) = self.take(at, until);
            let first = self.waits[began_at.0.0 as usize].0[began_at.1.0 as usize];
            let first = (first != NONE).then_some((began_at.0, TaskId(first)));
            let over = first.map_or(self.begin, |first| self.times(first).done);
            let over = over.max(self.begin);
            self.path.idle_ps += began.saturating_sub(over);
            until = over.min(began);
            let Some(first) = first else { break };
            at = first;
        }
        self.path
    }

    /// Counts the time of a task that was done at `until`. Returns the task whose beginning decided that, and when that was.
    fn take(&mut self, at: (HostId, TaskId), until: Picos) -> ((HostId, TaskId), Picos) {
        let times = self.times(at);
        let began = times.began.clamp(self.begin, until);
        let took = until - began;
        match self.fabric.host(at.0).tasks()[at.1.0 as usize].op {
            Op::Compute { .. } => {
                self.path.compute_ps += took;
                self.path.computations += usize::from(took > 0);
                (at, began)
            }
            // The message came before its receiver asked for it.
            Op::Receive { .. } | Op::Sink { .. } if times.arrived < times.began => (at, began),
            // Greetings are not among the flows.
            Op::Receive { flow } if (flow.0 as usize) < self.flows.len() => {
                let Flow { from, send, .. } = self.flows[flow.0 as usize];
                let began = self.times((from, send)).began.clamp(self.begin, until);
                self.path.network_ps += until - began;
                self.path.messages += 1;
                ((from, send), began)
            }
            Op::Send { .. } | Op::Receive { .. } | Op::Stream { .. } | Op::Sink { .. } => {
                self.path.network_ps += took;
                self.path.messages += 1;
                (at, began)
            }
        }
    }
}
