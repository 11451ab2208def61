//! A host: one engine, the library's loop that runs it, its tasks, and memory that only counts.

use crate::ids::{HostId, name_of};
use crate::packet::{Packet, ZEROS};
use crate::port::{SimClock, SimPort, Simulated};
use crate::tasks::{Begun, Tasks, Times};
use crate::time::{Picos, from_ns};
use crate::work::{Op, Task, TaskId, TriggerId};
use erd_core::region::Pass;
use erd_core::run::link::Link;
use erd_core::run::net_errors::NetErrors;
use erd_core::run::pieces::Pieces;
use erd_core::run::{Carriers, Driven, Parts};
use erd_rd::{
    Arrived, EndReason, Endpoint, Expected, Host, Nanos, OpError, Part, PeerId, RecvToken,
    SendToken, TxBurst, Verdict, WorkRequest,
};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::ptr::NonNull;
use std::sync::Arc;

/// Memory of a host: payload is counted by task and not kept.
#[derive(Debug, Default)]
pub struct Memory {
    /// The receiving task of each message, by tag. It is asked for once a message.
    tasks: Tasks,
    /// Payload bytes placed, by receiving task.
    placed_bytes: Vec<u64>,
    /// Tasks whose message was acknowledged, and whose message has arrived, since the loop last looked.
    sent: Vec<TaskId>,
    received: Vec<TaskId>,
    /// Operations that ended with an error.
    failures: u64,
}

/// The tag of a message that no task waits for.
const STRANGER: u64 = u64::MAX;

impl Host for Memory {
    fn read(&mut self, _: SendToken, _: u64, out: &mut [u8]) {
        out.fill(0);
    }

    /// Checksums are off.
    fn checksum(&mut self, _: SendToken, _: u64, _: u32, seed: u32) -> u32 {
        seed
    }

    fn sent(&mut self, op: SendToken, outcome: Result<(), OpError>) {
        self.failures += u64::from(outcome.is_err());
        self.sent.push(TaskId(op.0 as u32));
    }

    fn arrived(&mut self, msg: &Arrived) -> Verdict {
        let task = msg.tag.and_then(|tag| self.tasks.receiver_of(tag as u32));
        let token = task.map_or(STRANGER, |task| task.0.into());
        Verdict::Matched(RecvToken(token), msg.len_bytes)
    }

    fn hold(&mut self, _: PeerId, _: u64) -> Option<RecvToken> {
        None
    }

    fn place(&mut self, to: RecvToken, _: u64, bytes: &[u8]) {
        if let Some(placed) = self.placed_bytes.get_mut(to.0 as usize) {
            *placed += bytes.len() as u64;
        }
    }

    fn received(&mut self, token: RecvToken, outcome: Result<u64, OpError>) {
        self.failures += u64::from(outcome.is_err() || token.0 == STRANGER);
        if token.0 != STRANGER {
            self.received.push(TaskId(token.0 as u32));
        }
    }

    fn session_ended(&mut self, _: PeerId, _: u32, _: EndReason) {}

    fn datagram_limit_bytes(&mut self, _: SocketAddr) -> u16 {
        u16::MAX
    }
}

impl erd_core::run::Memory for Memory {
    fn place_of(&mut self, _: &Expected, _: &mut Option<Pass>) -> Option<NonNull<u8>> {
        None
    }

    fn gather(&self, burst: &TxBurst, pieces: &mut Pieces) -> Result<(), Option<SendToken>> {
        for part in &burst.parts {
            match *part {
                Part::Inline { start, len_bytes } => {
                    pieces.push_bytes(&burst.bytes[start as usize..][..len_bytes as usize]);
                }
                Part::Payload { len_bytes, .. } => pieces.push_bytes(&ZEROS[..len_bytes as usize]),
            }
        }
        Ok(())
    }

    /// No memory goes.
    fn take_gone(&mut self) -> Vec<SendToken> {
        Vec::new()
    }

    /// Nobody waits for completions.
    fn has_completions(&self) -> bool {
        false
    }
}

/// See the module.
pub struct SimHost {
    endpoint: Endpoint,
    memory: Memory,
    carriers: Carriers<Simulated>,
    now: Picos,
    /// Messages that the engine has not taken yet: it was full.
    untaken: Vec<Begun>,
    peers: HashMap<HostId, PeerId>,
    /// Datagrams that the uplink can take.
    uplink_room: usize,
    /// When the event that wakes it was entered for; [`Picos::MAX`] for none.
    pub(crate) wake_at: Picos,
}

impl Driven for SimHost {
    type Outside = Simulated;
    type Memory = Memory;

    fn parts(&mut self) -> Parts<'_, Simulated, Memory> {
        let SimHost { endpoint, memory, carriers, .. } = self;
        Parts { engine: endpoint, host: memory, carriers }
    }

    /// Does what is due of the tasks.
    #[inline]
    fn settle(&mut self) {
        let Memory { tasks, sent, received, .. } = &self.memory;
        let is_due = tasks.next_due().is_some_and(|at| at <= self.now);
        if is_due || !(sent.is_empty() && received.is_empty() && self.untaken.is_empty()) {
            self.run_tasks();
        }
    }

    /// All that is due at this moment has been done: datagrams may leave.
    fn feed(&mut self) {
        self.carriers.port.room = self.uplink_room;
    }

    fn publish(&mut self) {}
}

impl SimHost {
    /// The host of this number with an engine and its tasks; `endpoint` bears the name that [`name_of`] gives.
    #[must_use]
    pub fn new(id: HostId, endpoint: Endpoint, tasks: Vec<Task>) -> SimHost {
        let net_errors = Arc::new(NetErrors::default());
        let inbox = net_errors.join(&Arc::default());
        let link = Link::new(None, name_of(id), false);
        let (port, clock) = (SimPort::default(), SimClock::default());
        let placed_bytes = vec![0; tasks.len()];
        SimHost {
            carriers: Carriers::new(port, None, link, clock, (net_errors, inbox)),
            endpoint,
            memory: Memory { tasks: Tasks::new(tasks), placed_bytes, ..Memory::default() },
            now: 0,
            untaken: Vec::new(),
            peers: HashMap::new(),
            uplink_room: 0,
            wake_at: Picos::MAX,
        }
    }

    /// Its engine.
    #[must_use]
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Payload bytes that a receiving task has got.
    #[must_use]
    pub fn placed_bytes(&self, task: TaskId) -> u64 {
        self.memory.placed_bytes[task.0 as usize]
    }

    /// Bytes that it may have in flight to another host; `None` if it has not spoken to it.
    #[must_use]
    pub fn window_bytes(&self, to: HostId) -> Option<u64> {
        let peer = self.peers.get(&to)?;
        self.endpoint.flow(*peer).map(|flow| flow.window_bytes)
    }

    /// When a task began and was done.
    #[must_use]
    pub fn times(&self, task: TaskId) -> Times {
        self.memory.tasks.times(task)
    }

    /// Tasks that are not done, without streams.
    #[must_use]
    pub fn open_tasks(&self) -> usize {
        self.memory.tasks.open()
    }

    /// Operations that ended with an error.
    #[must_use]
    pub fn failures(&self) -> u64 {
        self.memory.failures
    }

    /// Takes a packet from the network, whose buffers it may keep.
    pub(crate) fn receive(&mut self, packet: &mut Packet) {
        std::mem::swap(self.carriers.port.arrivals.next(), packet);
    }

    /// Runs one step of the library's loop. [`SimHost::leaving`] has the datagrams that leave, at most `room`.
    pub(crate) fn step(&mut self, now: Picos, now_ns: Nanos, room: usize) {
        self.now = now;
        self.uplink_room = room;
        self.carriers.clock.0 = now_ns;
        self.carriers.port.room = 0;
        if self.carriers.port.arrivals.is_empty() {
            self.settle();
        }
        self.progress();
    }

    /// The datagrams that leave: whom each is for, its path, its mark and its bytes. The caller may take their buffers.
    pub(crate) fn leaving(&mut self) -> &mut [Packet] {
        self.carriers.port.leaving.drain()
    }

    /// Ends tasks that are done and begins those that are due.
    #[inline(never)]
    fn run_tasks(&mut self) {
        while let Some(task) = self.memory.received.pop() {
            self.memory.tasks.arrived(self.now, task);
        }
        while let Some(task) = self.memory.sent.pop() {
            match self.memory.tasks.op(task) {
                op @ Op::Stream { .. } => self.untaken.push(Begun { task, op }),
                _ => self.memory.tasks.done(self.now, task),
            }
        }
        while let Some(begun) = self.memory.tasks.begin(self.now) {
            let times = if let Op::Stream { outstanding, .. } = begun.op { outstanding } else { 1 };
            self.untaken.extend((0..times).map(|_| begun));
        }
        let mut waiting = std::mem::take(&mut self.untaken);
        waiting.retain(|begun| !self.post(begun));
        self.untaken = waiting;
    }

    /// Hands a message to the engine; false if it does not take one now.
    fn post(&mut self, begun: &Begun) -> bool {
        let (flow, to, len_bytes) = match begun.op {
            Op::Send { flow, to, bytes } => (flow, to, bytes),
            Op::Stream { flow, to, message_bytes, .. } => (flow, to, message_bytes),
            _ => return true,
        };
        let now_ns = self.carriers.clock.0;
        let Some(peer) = self.peer(now_ns, to) else { return false };
        let wr = WorkRequest {
            peer,
            token: SendToken(begun.task.0.into()),
            len_bytes,
            tag: Some(flow.0.into()),
            data: None,
            match_complete: false,
            awaited: false,
            delivery: false,
            fence: false,
        };
        self.endpoint.send(now_ns, wr).is_ok()
    }

    fn peer(&mut self, now_ns: Nanos, to: HostId) -> Option<PeerId> {
        if let Some(peer) = self.peers.get(&to) {
            return Some(*peer);
        }
        let peer = self.endpoint.peer(now_ns, name_of(to), &mut self.memory).ok()?;
        self.peers.insert(to, peer);
        Some(peer)
    }

    /// It would have handed over more, had there been room.
    pub(crate) fn has_more(&self) -> bool {
        self.endpoint.has_ready() || !self.carriers.sender.is_empty()
    }

    /// The next trigger that one of its tasks has activated.
    pub(crate) fn next_fired(&mut self) -> Option<TriggerId> {
        self.memory.tasks.next_fired()
    }

    /// A trigger starts one of its tasks.
    pub(crate) fn release(&mut self, now: Picos, task: TaskId) {
        self.memory.tasks.release(now, task);
    }

    /// When it wants to be woken, at the earliest.
    pub(crate) fn next_wake(&self) -> Option<Picos> {
        let due = self.memory.tasks.next_due();
        self.endpoint.poll_timeout().map(from_ns).into_iter().chain(due).min()
    }
}
