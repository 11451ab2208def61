//! A host: a transport with its tasks.

use crate::ids::HostId;
use crate::packet::Packet;
use crate::tasks::Times;
use crate::time::Picos;
use crate::transport::agenda::Agenda;
use crate::transport::eqds::EqdsHost;
use crate::transport::erd::ErdHost;
use crate::transport::roce::RoceHost;
use crate::transport::{Transport, TransportStats};
use crate::work::{Task, TaskId, TriggerId};
use erd_rd::Endpoint;

/// A host's transport. A call of it costs a branch that always goes the same way.
#[expect(
    clippy::large_enum_variant,
    reason = "all hosts of a network have the same, and the engine's stay side by side"
)]
enum Carrier {
    Erd(ErdHost),
    Roce(Box<RoceHost>),
    Eqds(Box<EqdsHost>),
}

/// Does the same with each kind of transport.
macro_rules! each {
    ($carrier:expr, $transport:ident => $what:expr) => {
        match $carrier {
            Carrier::Erd($transport) => $what,
            Carrier::Roce($transport) => $what,
            Carrier::Eqds($transport) => $what,
        }
    };
}

/// See the module.
pub struct SimHost {
    carrier: Carrier,
    /// When the event that wakes it was entered for; [`Picos::MAX`] for none.
    pub(crate) wake_at: Picos,
}

impl From<ErdHost> for SimHost {
    fn from(host: ErdHost) -> SimHost {
        SimHost { carrier: Carrier::Erd(host), wake_at: Picos::MAX }
    }
}

impl From<RoceHost> for SimHost {
    fn from(host: RoceHost) -> SimHost {
        SimHost { carrier: Carrier::Roce(Box::new(host)), wake_at: Picos::MAX }
    }
}

impl From<EqdsHost> for SimHost {
    fn from(host: EqdsHost) -> SimHost {
        SimHost { carrier: Carrier::Eqds(Box::new(host)), wake_at: Picos::MAX }
    }
}

impl SimHost {
    /// Its engine, if it speaks erd.
    #[must_use]
    pub fn endpoint(&self) -> Option<&Endpoint> {
        match &self.carrier {
            Carrier::Erd(host) => Some(host.endpoint()),
            Carrier::Roce(_) | Carrier::Eqds(_) => None,
        }
    }

    /// Counters of its transport.
    #[must_use]
    pub fn stats(&self) -> TransportStats {
        each!(&self.carrier, transport => transport.stats())
    }

    fn agenda(&self) -> &Agenda {
        each!(&self.carrier, transport => transport.agenda())
    }

    fn agenda_mut(&mut self) -> &mut Agenda {
        each!(&mut self.carrier, transport => transport.agenda_mut())
    }

    /// Payload bytes that a receiving task has got.
    #[must_use]
    pub fn placed_bytes(&self, task: TaskId) -> u64 {
        self.agenda().placed_bytes(task)
    }

    /// Payload bytes that are there and that no task has got, since their message's turn has not come.
    #[must_use]
    pub fn held_bytes(&self) -> u64 {
        self.agenda().held_bytes()
    }

    /// Bytes that it may have in flight to another host; `None` without a window, or if it has not spoken to it.
    #[must_use]
    pub fn window_bytes(&self, to: HostId) -> Option<u64> {
        each!(&self.carrier, transport => transport.window_bytes(to))
    }

    /// Its tasks, in the order of their numbers.
    #[must_use]
    pub fn tasks(&self) -> &[Task] {
        self.agenda().tasks()
    }

    /// When a task began and was done.
    #[must_use]
    pub fn times(&self, task: TaskId) -> Times {
        self.agenda().times(task)
    }

    /// Tasks that are not done, without streams.
    #[must_use]
    pub fn open_tasks(&self) -> usize {
        self.agenda().open_tasks()
    }

    /// Operations that ended with an error.
    #[must_use]
    pub fn failures(&self) -> u64 {
        self.agenda().failures()
    }

    /// Takes a packet from the network, whose buffers it may keep.
    #[inline]
    pub(crate) fn receive(&mut self, now: Picos, packet: &mut Packet) {
        each!(&mut self.carrier, transport => transport.receive(now, packet));
    }

    /// Does what is due. [`SimHost::leaving`] has the packets that leave, at most `room` with payload.
    #[inline]
    pub(crate) fn step(&mut self, now: Picos, room: usize) {
        each!(&mut self.carrier, transport => transport.step(now, room));
    }

    /// The packets that leave: whom each is for, its path, its mark and its bytes. The caller may take their buffers.
    #[inline]
    pub(crate) fn leaving(&mut self) -> &mut [Packet] {
        each!(&mut self.carrier, transport => transport.leaving())
    }

    /// The work begins after greetings.
    pub(crate) fn begin(&mut self, now: Picos) {
        each!(&mut self.carrier, transport => transport.begin(now));
    }

    /// It would have handed over more, had there been room.
    #[inline]
    pub(crate) fn has_more(&self) -> bool {
        each!(&self.carrier, transport => transport.has_more())
    }

    /// Nothing is to be done now.
    #[inline]
    pub(crate) fn rests(&self, now: Picos) -> bool {
        !self.has_more() && self.next_wake().is_none_or(|at| at > now)
    }

    /// When it wants to be woken, at the earliest.
    #[inline]
    pub(crate) fn next_wake(&self) -> Option<Picos> {
        each!(&self.carrier, transport => transport.next_wake())
    }

    /// The next trigger that one of its tasks has activated.
    pub(crate) fn next_fired(&mut self) -> Option<TriggerId> {
        self.agenda_mut().next_fired()
    }

    /// A trigger starts one of its tasks.
    pub(crate) fn release(&mut self, now: Picos, task: TaskId) {
        self.agenda_mut().release(now, task);
    }
}
