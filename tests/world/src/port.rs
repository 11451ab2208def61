//! The ports of a node: the library's loop sends and receives through these instead of sockets.

use super::net::{Datagram, IP_BYTES};
use super::node::Habits;
use super::record::{Packet, Pen, What};
use super::rng::Rng;
use erd_core::run::link::Link;
use erd_core::run::net_errors::NetErrors;
use erd_core::run::{Carriers, Clock, Driven, Outside};
use erd_port::udp::{NetError, Next, Plan, RxDatagram, SendReport, Stop, Taken};
use erd_port::{Burst, FramePort, Port};
use erd_rd::Nanos;
use erd_rd::units::MILLISECOND;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::sync::Arc;

/// The ports and the clock of a simulated node.
#[derive(Debug)]
pub enum Simulated {}

impl Outside for Simulated {
    type Port = SimPort;
    type Frames = SimFrames;
    type Clock = SimClock;
}

/// Virtual time, which the world sets.
#[derive(Clone, Debug, Default)]
pub struct SimClock(pub Rc<Cell<Nanos>>);

impl Clock for SimClock {
    fn now_ns(&self) -> u64 {
        self.0.get()
    }
}

/// Most bytes that one arrival of several datagrams has.
const ARRIVAL_BYTES: usize = 64 << 10;

/// The datagrams and errors between a node's ports and the network.
#[derive(Debug)]
pub struct Wire {
    /// The kernel's buffer.
    pub inbox: VecDeque<Datagram>,
    /// Frames that came over the information path.
    pub frames: VecDeque<Datagram>,
    /// Datagrams that leave, burst by burst.
    pub out: Vec<Vec<Datagram>>,
    /// Network errors of earlier sends.
    pub errors: Vec<(SocketAddr, NetError)>,
    /// The port takes nothing until then.
    pub blocked_until: Nanos,
    /// The number of bursts that the port still takes in this step.
    pub bursts_left: u64,
    /// The largest datagram that leaves for a name.
    pub limit_bytes: BTreeMap<SocketAddr, u16>,
    /// Names of all nodes.
    pub names: Vec<SocketAddr>,
    /// How the driver behaves.
    pub habits: Habits,
    /// Datagrams that left for a name of no node.
    pub strays: u64,
    /// Writes the datagrams that pass.
    pub pen: Pen,
    inbox_bytes: u64,
    node: usize,
    rng: Rng,
}

impl Wire {
    /// The empty wire of the node with this index in `names`.
    pub fn new(node: usize, names: Vec<SocketAddr>, habits: Habits, rng: Rng) -> Wire {
        Wire {
            inbox: VecDeque::new(),
            frames: VecDeque::new(),
            out: Vec::new(),
            errors: Vec::new(),
            blocked_until: 0,
            bursts_left: 0,
            limit_bytes: BTreeMap::new(),
            names,
            habits,
            strays: 0,
            pen: Pen::default(),
            inbox_bytes: 0,
            node,
            rng,
        }
    }

    /// The kernel takes a datagram; false when its buffer of `room` bytes is full.
    pub fn enqueue(&mut self, datagram: Datagram, room: u64) -> bool {
        if datagram.info_path {
            self.frames.push_back(datagram);
            return true;
        }
        let bytes = datagram.bytes.len() as u64;
        if self.inbox_bytes + bytes > room {
            return false;
        }
        self.inbox_bytes += bytes;
        self.inbox.push_back(datagram);
        true
    }

    /// Drops everything that waits.
    pub fn clear(&mut self) {
        self.inbox.clear();
        self.frames.clear();
        self.out.clear();
        self.errors.clear();
        (self.inbox_bytes, self.blocked_until) = (0, 0);
    }

    /// True if the node has arrivals to take.
    pub fn has_arrivals(&self) -> bool {
        !self.inbox.is_empty() || !self.frames.is_empty()
    }

    fn index_of(&self, name: SocketAddr) -> Option<usize> {
        self.names.iter().position(|other| *other == name)
    }

    /// Writes that a datagram left for this name.
    fn note_told(&self, at: Nanos, to: SocketAddr, bytes: &[u8], info_path: bool) {
        let from = self.names[self.node];
        self.pen.note_packet(at, What::Told, || {
            let bytes = bytes.to_vec();
            Packet { from, to, bytes, plain: None, trimmed: false, info_path }
        });
    }

    /// Writes that the engine is about to get a datagram, which arrived with others or alone.
    fn note_heard(&self, at: Nanos, arrived: &Datagram, bytes: &[u8]) {
        let (from, to) = (self.names[arrived.from], self.names[self.node]);
        let Datagram { trimmed, info_path, .. } = *arrived;
        self.pen.note_packet(at, What::Heard, || {
            let bytes = bytes.to_vec();
            Packet { from, to, bytes, plain: None, trimmed, info_path }
        });
    }
}

/// Datagrams that arrive together, as the kernel joins those that follow each other.
#[derive(Debug)]
struct Arrival {
    first: Datagram,
    /// Lengths of all, in order; equal but for the last.
    lengths: Vec<usize>,
}

/// See the module.
#[derive(Debug)]
pub struct SimPort {
    wire: Rc<RefCell<Wire>>,
    clock: SimClock,
    /// The next arrival, if it was looked at.
    next: Option<Arrival>,
}

impl SimPort {
    /// The port of a node.
    pub fn new(wire: Rc<RefCell<Wire>>, clock: SimClock) -> SimPort {
        SimPort { wire, clock, next: None }
    }

    fn pop(&mut self) -> Option<Arrival> {
        if self.next.is_some() {
            return self.next.take();
        }
        let wire = &mut *self.wire.borrow_mut();
        let mut first = wire.inbox.pop_front()?;
        let segment_bytes = first.bytes.len();
        let mut lengths = vec![segment_bytes];
        let joins = |first: &Datagram, next: &Datagram| {
            let alike = (first.from, first.path, first.ecn) == (next.from, next.path, next.ecn);
            alike && next.bytes.len() <= segment_bytes && !first.trimmed && !next.trimmed
        };
        let most_bytes = if wire.rng.chance(wire.habits.gro) { ARRIVAL_BYTES } else { 0 };
        while let Some(next) = wire.inbox.front()
            && lengths.last() == Some(&segment_bytes)
            && segment_bytes > 0
            && first.bytes.len() + next.bytes.len() <= most_bytes
            && joins(&first, next)
        {
            lengths.push(next.bytes.len());
            let next = wire.inbox.pop_front()?;
            first.bytes.extend_from_slice(&next.bytes);
        }
        wire.inbox_bytes -= first.bytes.len() as u64;
        Some(Arrival { first, lengths })
    }

    fn note_heard(&self, arrived: &Datagram, bytes: &[u8]) {
        self.wire.borrow().note_heard(self.clock.now_ns(), arrived, bytes);
    }

    fn datagram<'a>(
        &self,
        first: &Datagram,
        data: &'a [u8],
        placed: Option<&'a [u8]>,
    ) -> RxDatagram<'a> {
        RxDatagram {
            data,
            placed,
            src: self.wire.borrow().names[first.from],
            ecn: first.ecn,
            trimmed: first.trimmed,
            hold_ns: self.clock.now_ns() - first.stamped_at,
        }
    }
}

impl Arrival {
    /// Each datagram: where it begins, and its length.
    fn datagrams(&self) -> impl Iterator<Item = (usize, usize)> {
        self.lengths.iter().scan(0, |start, len_bytes| {
            let here = *start;
            *start += len_bytes;
            Some((here, *len_bytes))
        })
    }

    /// Whether each datagram lies as planned and is the expected one.
    fn meets(&self, plan: &Plan, is_expected: &mut impl FnMut(usize, &[u8]) -> bool) -> bool {
        let mut places = plan.places().enumerate();
        self.datagrams().all(|(start, len_bytes)| {
            let Some((index, (planned_start, _, place_bytes))) = places.next() else {
                return false;
            };
            let head_bytes = plan.head_bytes();
            planned_start == start
                && len_bytes == head_bytes + place_bytes
                && is_expected(index, &self.first.bytes[start..start + head_bytes])
        })
    }
}

impl Port for SimPort {
    fn recv(&mut self, budget: usize, mut f: impl FnMut(RxDatagram<'_>)) -> io::Result<usize> {
        let budget = budget.min(self.wire.borrow().habits.batch as usize);
        let mut taken = 0;
        for _ in 0..budget {
            let Some(arrival) = self.pop() else { break };
            for (start, len_bytes) in arrival.datagrams() {
                let data = &arrival.first.bytes[start..start + len_bytes];
                self.note_heard(&arrival.first, data);
                f(self.datagram(&arrival.first, data, None));
                taken += 1;
            }
        }
        Ok(taken)
    }

    fn tampers(&self) -> bool {
        false
    }

    fn look_ahead(
        &mut self,
        plan: &Plan,
        is_expected: impl FnOnce(&[u8]) -> bool,
    ) -> io::Result<Next> {
        let Some(arrival) = self.pop() else { return Ok(Next::Nothing) };
        let bytes = arrival.first.bytes.len();
        let head = arrival.first.bytes.get(..plan.head_bytes());
        let is_planned = plan.ends_at(bytes) && head.is_some_and(is_expected);
        self.next = Some(arrival);
        Ok(match is_planned {
            true => Next::Planned { bytes },
            false => Next::Other { bytes },
        })
    }

    unsafe fn recv_planned(
        &mut self,
        plan: &Plan,
        mut is_expected: impl FnMut(usize, &[u8]) -> bool,
        mut f: impl FnMut(RxDatagram<'_>),
    ) -> io::Result<Taken> {
        let Some(arrival) = self.pop() else { return Ok(Taken::default()) };
        // The kernel, too, writes before anybody has read the bytes.
        for (start, at, len_bytes) in plan.places() {
            let landed = arrival.first.bytes.get(start + plan.head_bytes()..).unwrap_or_default();
            let landed = &landed[..len_bytes.min(landed.len())];
            // SAFETY: the caller vouches for the place.
            unsafe { at.as_ptr().copy_from_nonoverlapping(landed.as_ptr(), landed.len()) };
        }
        let placed = arrival.meets(plan, &mut is_expected);
        let mut places = plan.places();
        for (start, len_bytes) in arrival.datagrams() {
            let datagram = &arrival.first.bytes[start..start + len_bytes];
            self.note_heard(&arrival.first, datagram);
            let Some((_, at, place_bytes)) = places.next().filter(|_| placed) else {
                f(self.datagram(&arrival.first, datagram, None));
                continue;
            };
            // SAFETY: the caller vouches for the place, which was filled above.
            let placed =
                unsafe { std::slice::from_raw_parts(at.as_ptr().cast_const(), place_bytes) };
            f(self.datagram(&arrival.first, &datagram[..plan.head_bytes()], Some(placed)));
        }
        Ok(Taken { datagrams: arrival.lengths.len(), placed })
    }

    fn room(&self) -> usize {
        let wire = self.wire.borrow();
        let most = if wire.habits.singly { 1 } else { u64::MAX };
        let left = wire.bursts_left.min(most) as usize;
        if self.clock.now_ns() < wire.blocked_until { 0 } else { left }
    }

    unsafe fn send(&mut self, bursts: &[Burst<'_>]) -> SendReport {
        let wire = &mut *self.wire.borrow_mut();
        let mut report =
            SendReport { errors_pending: !wire.errors.is_empty(), ..SendReport::default() };
        let now = self.clock.now_ns();
        for burst in bursts {
            report.segments = burst.done_segments;
            let to = burst.dst.addr();
            let limit = wire.limit_bytes.get(&to).copied().unwrap_or(u16::MAX);
            if burst.segment_bytes > u32::from(limit) && !burst.may_fragment {
                let mtu_bytes = u32::from(limit) + IP_BYTES[usize::from(to.is_ipv6())];
                report.stop = Some(Stop::TooBig { mtu_bytes });
                return report;
            }
            let full = wire.rng.chance(wire.habits.port_full);
            if now < wire.blocked_until || full {
                if full {
                    wire.blocked_until = now + wire.rng.range(1, MILLISECOND);
                    // A few of its datagrams may have gone.
                    let left = u64::from(burst.segments() - burst.done_segments);
                    let gone = wire.rng.below(left) as u32;
                    // SAFETY: the caller vouches for the parts.
                    unsafe { wire.take(now, burst, gone) };
                    report.segments += gone;
                }
                report.stop = Some(Stop::Blocked);
                return report;
            }
            // SAFETY: the caller vouches for the parts.
            unsafe { wire.take(now, burst, burst.segments() - burst.done_segments) };
            report.bursts += 1;
            report.segments = 0;
            wire.bursts_left = wire.bursts_left.saturating_sub(1);
        }
        report
    }

    fn drain_errors(&mut self, mut f: impl FnMut(SocketAddr, NetError)) {
        for (to, error) in std::mem::take(&mut self.wire.borrow_mut().errors) {
            f(to, error);
        }
    }

    fn each_fd(&self, _: &mut dyn FnMut(BorrowedFd<'_>)) {}
}

impl Wire {
    /// Takes the next `count` datagrams of a burst.
    ///
    /// # Safety
    /// Its parts are readable.
    unsafe fn take(&mut self, now: Nanos, burst: &Burst<'_>, count: u32) {
        let mut bytes = Vec::with_capacity(burst.total_bytes as usize);
        for part in burst.iov {
            // SAFETY: the caller's promise.
            let part = unsafe { std::slice::from_raw_parts(part.iov_base.cast(), part.iov_len) };
            bytes.extend_from_slice(part);
        }
        assert_eq!(bytes.len(), burst.total_bytes as usize, "the parts of a burst: {burst:?}");
        let chunks = bytes.chunks(burst.segment_bytes as usize).skip(burst.done_segments as usize);
        let chunks = chunks.take(count as usize);
        for chunk in chunks.clone() {
            self.note_told(now, burst.dst.addr(), chunk, false);
        }
        let Some(to) = self.index_of(burst.dst.addr()) else {
            self.strays += u64::from(count);
            return;
        };
        let datagrams = chunks.map(|chunk| Datagram {
            from: self.node,
            to,
            path: burst.path,
            ecn: burst.ecn,
            stamped_at: 0,
            trimmed: false,
            info_path: false,
            may_fragment: burst.may_fragment,
            bytes: chunk.to_vec(),
        });
        let datagrams: Vec<_> = datagrams.collect();
        assert_eq!(datagrams.len(), count as usize, "datagrams of {burst:?}");
        self.out.push(datagrams);
    }
}

/// The ports of a node called `name`, in their first state.
pub fn carriers(
    name: SocketAddr,
    info_path: bool,
    wire: &Rc<RefCell<Wire>>,
    clock: &SimClock,
) -> Carriers<Simulated> {
    let port = SimPort::new(Rc::clone(wire), clock.clone());
    let frames = info_path.then(|| SimFrames(Rc::clone(wire), clock.clone()));
    let net_errors = Arc::new(NetErrors::default());
    let inbox = net_errors.join(&Arc::default());
    let link = Link::new(None, name, false);
    Carriers::new(port, frames, link, clock.clone(), (net_errors, inbox))
}

/// The time of the next step of a loop over these ports, `soon` at the earliest.
pub fn next_step(driven: &mut impl Driven<Outside = Simulated>, wire: &Wire, soon: Nanos) -> Nanos {
    let mut parts = driven.parts();
    let now = parts.now_ns();
    let due = parts.deadline_ns().unwrap_or(Nanos::MAX);
    let at = match parts.engine.has_ready() || !parts.carriers.sender.is_empty() {
        true if now < wire.blocked_until => due.min(wire.blocked_until),
        true => soon,
        false => due,
    };
    if wire.has_arrivals() { soon } else { at.max(soon) }
}

/// The information path of a node: to some peers it is open, to some it is not.
#[derive(Debug)]
pub struct SimFrames(pub Rc<RefCell<Wire>>, pub SimClock);

impl FramePort for SimFrames {
    fn send(&mut self, name: SocketAddr, bytes: &[u8]) -> bool {
        let mut wire = self.0.borrow_mut();
        let open = wire.habits.info_path;
        let Some(to) = wire.index_of(name).filter(|_| wire.rng.chance(open)) else { return false };
        wire.note_told(self.1.now_ns(), name, bytes, true);
        let frame = Datagram {
            from: wire.node,
            to,
            path: 0,
            ecn: erd_rd::Ecn::NotEct,
            stamped_at: 0,
            trimmed: false,
            info_path: true,
            may_fragment: false,
            bytes: bytes.to_vec(),
        };
        wire.out.push(vec![frame]);
        true
    }

    fn recv(&mut self, mut f: impl FnMut(&[u8], SocketAddr) -> bool) -> io::Result<usize> {
        let frames = std::mem::take(&mut self.0.borrow_mut().frames);
        for frame in &frames {
            let from = self.0.borrow().names[frame.from];
            self.0.borrow().note_heard(self.1.now_ns(), frame, &frame.bytes);
            f(&frame.bytes, from);
        }
        Ok(frames.len())
    }

    fn next_ns(&self) -> Option<u64> {
        None
    }

    fn each_fd(&self, _: &mut dyn FnMut(BorrowedFd<'_>)) {}
}
