//! What hosts do: messages, computation, and what has to be done before what. Everything that the simulator runs is
//! brought into this form: flows with start times, collectives, schedules of traced programs.

use crate::ids::HostId;
use crate::time::Picos;

/// Most messages of one run: their numbers travel as tags.
pub const FLOWS_MAX: usize = 1 << 30;
/// Parts of the hosts that send lessons one after the other.
pub const LESSON_PARTS: u32 = 8;

/// A message, by its place among all of a run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FlowId(pub u32);

/// A task of a host, by its place in that host's list.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TaskId(pub u32);

/// What a task does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Op {
    /// Sends a message; done when the receiver has acknowledged all of it.
    Send {
        /// Which.
        flow: FlowId,
        /// To whom.
        to: HostId,
        /// Its length.
        bytes: u64,
    },
    /// Waits until a message has arrived.
    Receive {
        /// Which.
        flow: FlowId,
    },
    /// Sends messages for ever.
    Stream {
        /// Number that all have.
        flow: FlowId,
        /// To whom.
        to: HostId,
        /// Length of each.
        message_bytes: u64,
        /// Messages that are outstanding all the time.
        outstanding: u32,
    },
    /// Takes what a stream sends; it is never done.
    Sink {
        /// Which.
        flow: FlowId,
    },
    /// Takes time, and no more.
    Compute {
        /// How much.
        time_ps: Picos,
        /// The processor that it occupies. Those of one processor run one after the other, in the order in which they
        /// could begin; without one it waits for nobody.
        cpu: Option<u16>,
    },
}

/// A task: what it does, when at the earliest, and what waits for it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Task {
    /// What it does.
    pub op: Op,
    /// It does not begin before.
    pub not_before: Picos,
    /// Tasks of this host that have to be done before, and the trigger that starts it, if any.
    pub needs: u32,
    /// Tasks of this host that wait for it.
    pub then: Vec<TaskId>,
    /// The trigger that its end activates, if any.
    pub fires: Option<TriggerId>,
}

/// A trigger, by its place among all of a run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TriggerId(pub u32);

/// What the activations of a trigger start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shots {
    /// The activation of this number starts all tasks; the others start none.
    All(u32),
    /// Each activation starts the next task.
    OneEach,
}

/// A signal between hosts that takes no time: tasks activate it when they are done, and it starts tasks of any hosts at
/// that moment. Networks have no such signal; descriptions of work by others do. A run that has triggers uses one thread,
/// since hosts cannot run ahead of each other.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Trigger {
    /// What activations start.
    pub shots: Shots,
    /// What it starts, in order.
    pub targets: Vec<(HostId, TaskId)>,
}

impl Trigger {
    /// What an activation starts, by its number from 1 on.
    #[must_use]
    pub fn started_by(&self, activation: u32) -> &[(HostId, TaskId)] {
        match self.shots {
            Shots::All(number) if number == activation => &self.targets,
            Shots::All(_) => &[],
            Shots::OneEach => {
                let next = activation.saturating_sub(1) as usize;
                self.targets.get(next..=next).unwrap_or_default()
            }
        }
    }
}

/// A message of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Flow {
    /// Who sends it.
    pub from: HostId,
    /// Who receives it.
    pub to: HostId,
    /// Its length; 0 for a stream.
    pub bytes: u64,
    /// The sender's task.
    pub send: TaskId,
    /// The receiver's task.
    pub receive: TaskId,
}

/// See the module.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Work {
    hosts: Vec<Vec<Task>>,
    flows: Vec<Flow>,
    triggers: Vec<Trigger>,
}

impl Work {
    /// Nothing to do, for so many hosts.
    #[must_use]
    pub fn new(hosts: u32) -> Work {
        Work { hosts: vec![Vec::new(); hosts as usize], flows: Vec::new(), triggers: Vec::new() }
    }

    /// How many hosts there are.
    #[must_use]
    pub fn hosts(&self) -> u32 {
        self.hosts.len() as u32
    }

    /// All messages.
    #[must_use]
    pub fn flows(&self) -> &[Flow] {
        &self.flows
    }

    /// All triggers. A run that has any uses one thread.
    #[must_use]
    pub fn triggers(&self) -> &[Trigger] {
        &self.triggers
    }

    /// Tasks of a host.
    #[must_use]
    pub fn tasks(&self, host: HostId) -> &[Task] {
        &self.hosts[host.0 as usize]
    }

    /// Adds a message.
    ///
    /// # Panics
    /// A host does not exist, sends to itself, or there are [`FLOWS_MAX`] messages.
    pub fn message(&mut self, from: HostId, to: HostId, bytes: u64) -> FlowId {
        self.join(from, to, bytes, |flow| (Op::Send { flow, to, bytes }, Op::Receive { flow }))
    }

    /// Adds a flow without an end.
    ///
    /// # Panics
    /// As [`Work::message`].
    pub fn stream(
        &mut self,
        from: HostId,
        to: HostId,
        message_bytes: u64,
        outstanding: u32,
    ) -> FlowId {
        self.join(from, to, 0, |flow| {
            (Op::Stream { flow, to, message_bytes, outstanding }, Op::Sink { flow })
        })
    }

    fn join(
        &mut self,
        from: HostId,
        to: HostId,
        bytes: u64,
        ops: impl Fn(FlowId) -> (Op, Op),
    ) -> FlowId {
        assert!(from != to, "{from:?} sends to itself");
        assert!(self.flows.len() < FLOWS_MAX, "at most {FLOWS_MAX} messages");
        let flow = FlowId(self.flows.len() as u32);
        let ops = ops(flow);
        let send = self.add(from, ops.0);
        let receive = self.add(to, ops.1);
        self.flows.push(Flow { from, to, bytes, send, receive });
        flow
    }

    /// Adds time that a host computes.
    pub fn compute(&mut self, host: HostId, time_ps: Picos) -> TaskId {
        self.add(host, Op::Compute { time_ps, cpu: None })
    }

    /// Adds time that a processor of a host computes: its computations follow each other.
    pub fn compute_on(&mut self, host: HostId, cpu: u16, time_ps: Picos) -> TaskId {
        self.add(host, Op::Compute { time_ps, cpu: Some(cpu) })
    }

    fn add(&mut self, host: HostId, op: Op) -> TaskId {
        let tasks = &mut self.hosts[host.0 as usize];
        tasks.push(Task { op, not_before: 0, needs: 0, then: Vec::new(), fires: None });
        TaskId(tasks.len() as u32 - 1)
    }

    /// A host's task begins only when another one of this host is done.
    ///
    /// # Panics
    /// There is no such task, or it would wait for itself.
    pub fn after(&mut self, host: HostId, first: TaskId, then: TaskId) {
        assert!(first != then, "a task cannot wait for itself");
        let tasks = &mut self.hosts[host.0 as usize];
        tasks[first.0 as usize].then.push(then);
        tasks[then.0 as usize].needs += 1;
    }

    /// A message is not sent before a time.
    pub fn start_at(&mut self, flow: FlowId, at: Picos) {
        let Flow { from, send, .. } = self.flows[flow.0 as usize];
        self.hosts[from.0 as usize][send.0 as usize].not_before = at;
    }

    /// Puts a greeting of so many bytes before everything else for each pair that exchanges messages, and begins the rest
    /// `pause_ps` after the last greeting was sent. Greetings of one host leave one after the other. Returns when the
    /// rest begins; the greetings are the last messages.
    pub fn greet_first(&mut self, bytes: u64, each_ps: Picos, pause_ps: Picos) -> Picos {
        let mut times = vec![0; self.hosts.len()];
        let mut greetings = Vec::new();
        for (from, to) in self.pairs() {
            let at: &mut Picos = &mut times[from.0 as usize];
            greetings.push((from, to, *at));
            *at += each_ps;
        }
        let begin = times.into_iter().max().unwrap_or(0) + pause_ps;
        self.begin_later(begin);
        for (from, to, at) in greetings {
            let flow = self.message(from, to, bytes);
            self.start_at(flow, at);
        }
        begin
    }

    /// The same with lessons in place of greetings. Each lesson has a turn of `each_ps`. A host sends one lesson and gets one lesson
    /// in a turn. Senders begin at one of [`LESSON_PARTS`] moments of it, so that a narrow network carries the lessons. A
    /// lesson may therefore begin while its receiver gets the one of the turn before.
    pub fn teach_first(&mut self, bytes: u64, each_ps: Picos, pause_ps: Picos) -> Picos {
        let hosts = self.hosts();
        let mut pairs = self.pairs();
        // All hosts send to different ones where each sends to all.
        pairs.sort_by_key(|(from, to)| ((to.0 + hosts - from.0) % hosts, *from));
        let (mut sends, mut receives) = (vec![0; hosts as usize], vec![0; hosts as usize]);
        let mut lessons = Vec::new();
        for (from, to) in pairs {
            let place: Picos = sends[from.0 as usize].max(receives[to.0 as usize]);
            (sends[from.0 as usize], receives[to.0 as usize]) = (place + 1, place + 1);
            let part = Picos::from(from.0 % LESSON_PARTS);
            lessons.push((from, to, place * each_ps + part * each_ps / Picos::from(LESSON_PARTS)));
        }
        let last = lessons.iter().map(|(_, _, at)| *at).max();
        let begin = last.map_or(0, |last| last + each_ps) + pause_ps;
        self.begin_later(begin);
        for (from, to, at) in lessons {
            let flow = self.message(from, to, bytes);
            self.start_at(flow, at);
        }
        begin
    }

    /// Nothing begins before.
    fn begin_later(&mut self, begin: Picos) {
        for task in self.hosts.iter_mut().flatten() {
            task.not_before += begin;
        }
    }

    /// All pairs that exchange messages, sender first.
    fn pairs(&self) -> Vec<(HostId, HostId)> {
        let mut pairs: Vec<(HostId, HostId)> =
            self.flows.iter().map(|flow| (flow.from, flow.to)).collect();
        pairs.sort_unstable();
        pairs.dedup();
        pairs
    }

    /// Adds a trigger that nothing activates yet and that starts nothing.
    pub fn trigger(&mut self, shots: Shots) -> TriggerId {
        self.triggers.push(Trigger { shots, targets: Vec::new() });
        TriggerId(self.triggers.len() as u32 - 1)
    }

    /// The end of a host's task activates a trigger.
    ///
    /// # Panics
    /// There is no such task or trigger, or the task activates another one.
    pub fn activate(&mut self, host: HostId, task: TaskId, trigger: TriggerId) {
        assert!((trigger.0 as usize) < self.triggers.len(), "the trigger exists");
        let task = &mut self.hosts[host.0 as usize][task.0 as usize];
        assert!(task.fires.is_none(), "a task activates one trigger");
        task.fires = Some(trigger);
    }

    /// A host's task begins only when a trigger starts it.
    ///
    /// # Panics
    /// There is no such task or trigger.
    pub fn started_by(&mut self, host: HostId, task: TaskId, trigger: TriggerId) {
        self.triggers[trigger.0 as usize].targets.push((host, task));
        self.hosts[host.0 as usize][task.0 as usize].needs += 1;
    }

    /// A task that can never begin or end, because tasks wait for each other, over all hosts, or because no trigger starts
    /// it.
    #[must_use]
    pub fn circle(&self) -> Option<(HostId, TaskId)> {
        self.in_order().err()
    }

    /// All tasks, each after everything that it waits for: tasks of its host, triggers, and for a receiving one the sending
    /// one.
    ///
    /// # Errors
    /// [`Work::circle`].
    pub fn in_order(&self) -> Result<Vec<(HostId, TaskId)>, (HostId, TaskId)> {
        crate::order::in_order(self)
    }

    /// Takes the triggers out.
    pub(crate) fn take_triggers(&mut self) -> Vec<Trigger> {
        std::mem::take(&mut self.triggers)
    }

    /// Hands each host its tasks.
    pub(crate) fn into_hosts(self) -> Vec<Vec<Task>> {
        self.hosts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A message is sent only after another one has arrived at its sender.
    fn send_after(work: &mut Work, received: FlowId, sent: FlowId) {
        let [first, then] = [received, sent].map(|flow| work.flows()[flow.0 as usize]);
        work.after(then.from, first.receive, then.send);
    }

    #[test]
    fn a_circle_is_found() {
        let mut work = Work::new(2);
        let (a, b) = (HostId(0), HostId(1));
        let there = work.message(a, b, 10);
        let back = work.message(b, a, 10);
        send_after(&mut work, there, back);
        assert_eq!(work.circle(), None);
        let [first, then] = [0, 0].map(|_| work.compute(a, 5));
        work.after(a, first, then);
        work.after(a, then, first);
        assert_eq!(work.circle(), Some((a, first)));
    }

    /// Two hosts that each wait for the other's message before they send theirs.
    #[test]
    fn a_circle_over_hosts_is_found() {
        let mut work = Work::new(2);
        let there = work.message(HostId(0), HostId(1), 10);
        let back = work.message(HostId(1), HostId(0), 10);
        send_after(&mut work, there, back);
        assert_eq!(work.in_order().map(|order| order.len()), Ok(4));
        send_after(&mut work, back, there);
        assert!(work.circle().is_some());
    }

    #[test]
    fn greetings_come_before_everything_else() {
        let mut work = Work::new(3);
        for (from, to) in [(0, 1), (0, 2), (0, 1), (2, 0)] {
            work.message(HostId(from), HostId(to), 1000);
        }
        let begin = work.greet_first(1, 10, 100);
        let starts = |work: &Work| -> Vec<(u32, u32, u64, Picos)> {
            let start = |flow: &Flow| work.tasks(flow.from)[flow.send.0 as usize].not_before;
            work.flows().iter().map(|f| (f.from.0, f.to.0, f.bytes, start(f))).collect()
        };
        let rest = [(0, 1, 1000, 120), (0, 2, 1000, 120), (0, 1, 1000, 120), (2, 0, 1000, 120)];
        let greetings = [(0, 1, 1, 0), (0, 2, 1, 10), (2, 0, 1, 0)];
        assert_eq!((begin, starts(&work)), (120, [&rest[..], &greetings[..]].concat()));
    }

    /// The same from all to all: no host has two lessons in a turn.
    #[test]
    fn lessons_disturb_each_other_as_little_as_can_be() {
        let mut work = Work::new(12);
        let pairs = (0..12).flat_map(|from| (0..12).map(move |to| (from, to)));
        for (from, to) in pairs.filter(|(from, to)| from != to) {
            work.message(HostId(from), HostId(to), 1);
        }
        let messages = work.flows().len();
        let each_ps = 80;
        let begin = work.teach_first(1000, each_ps, 100);
        assert_eq!(begin, 11 * each_ps + 7 * 10 + 100, "as many times as a host has others");
        let lessons = work.flows()[messages..].iter();
        let mut times: Vec<(u32, Picos)> = lessons
            .map(|flow| (flow.to.0, work.tasks(flow.from)[flow.send.0 as usize].not_before))
            .map(|(to, at)| (to, at / each_ps))
            .collect();
        times.sort_unstable();
        times.dedup();
        assert_eq!(times.len(), messages);
    }
}
