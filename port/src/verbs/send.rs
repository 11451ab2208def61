//! Sending: a queue pair for each path, each with a ring of registered memory into which datagrams are gathered.

use super::chain::Chain;
use super::gather::Gather;
use super::gid::Gid;
use super::handles::{Found, Handles, Room};
use super::maker::{Maker, Way};
use super::negotiation::address::Address;
use super::objects::{Ah, Cq, Entry, Mr, Pd, Qp, Slab};
use super::pins::Pins;
use super::{Options, Port, QPS_MAX, Service, VerbsError};
use crate::{Burst, PinId};
use core::ffi::{c_int, c_uint};
use erd_ffi::ibv::*;
use erd_sys::clock::monotonic_ns;
use erd_types::Ecn;
use std::ops::Range;
use std::sync::Arc;

/// Most datagrams of a queue pair under way.
pub(super) const DEPTH: u32 = 128;
/// Sends in a chain up to the next signalled one; the last one always is.
const SIGNAL_EVERY: u32 = 32;
/// Completions of queues taken with one call.
const REAP: usize = 32;
/// Time after which a failed queue pair is made ready again.
const REVIVE_NS: u64 = 100_000_000;
/// Time without completions after which a full queue is slow: its datagrams take another.
const SLOW_NS: u64 = 1_000_000;
/// Time after which it is stuck. Soft-RoCE's can be: Linux 6.1 reads its count of packets under way and only then asks
/// for a notice when there are fewer. The notice may come in between. Then a queue without further posts is never
/// served again.
const STUCK_NS: u64 = 100_000_000;
/// Longest time between two looks for completions while some are due: they bring errors.
const REAP_NS: u64 = 1_000_000;
/// Shorter tails of datagrams are copied: the device fetches each piece separately.
const TAIL_MIN_BYTES: usize = 512;

/// Epoch of each queue, and the number after a request: they tell whether that has completed.
pub(super) type Marks = [(u8, u64); QPS_MAX - 1];

/// The progress of a send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Number of datagrams of the burst sent, including earlier calls.
    pub segments: u32,
    /// Bytes that this call sent without a copy.
    pub uncopied_bytes: u64,
    /// Reason why not all of them are sent.
    pub stop: Option<SendStop>,
}

/// Reason why a burst was not sent whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendStop {
    /// The queue is full: try again later.
    Blocked,
    /// Verbs cannot send it now.
    Refused,
    /// The way to the peer is being looked up: UDP carries its datagrams meanwhile. Those to other peers can be sent.
    Resolving,
    /// The peer's address is unreachable.
    Unreachable,
}

/// One path.
#[derive(Debug)]
struct Queue {
    // Before the slab: no request may be left when the memory goes.
    qp: Qp,
    slab: Slab,
    /// Requests posted and completed since the last reset.
    head: u64,
    tail: u64,
    /// Number of resets, which tells old completions apart.
    epoch: u8,
    failed_ns: Option<u64>,
    standstill: Standstill,
}

impl Queue {
    fn room(&self) -> u32 {
        DEPTH - (self.head - self.tail) as u32
    }

    /// True if requests up to a mark have not all completed.
    fn is_before(&self, mark: (u8, u64)) -> bool {
        self.epoch == mark.0 && self.tail < mark.1
    }
}

/// Watches whether a full queue moves.
#[derive(Debug, Default)]
struct Standstill {
    /// Requests completed when it was first seen full since it last moved, and the time.
    seen: Option<(u64, u64)>,
}

impl Standstill {
    /// Notes a full queue with so many completed requests; returns for how long (ns) nothing has moved.
    fn lasts_ns(&mut self, completed: u64, now: u64) -> u64 {
        match self.seen {
            Some((at, since_ns)) if at == completed => now.saturating_sub(since_ns),
            _ => {
                self.seen = Some((completed, now));
                0
            }
        }
    }
}

/// A retired address handle, kept for the requests of each queue that may name it.
#[derive(Debug)]
struct Retired {
    ah: Ah,
    /// Epoch and head of each queue when it was retired.
    heads: Marks,
}

/// The sending half of a port.
pub(super) struct Sender {
    // Before the handles, which their requests name.
    queues: Vec<Queue>,
    handles: Handles<Ah>,
    /// Those out of use that requests name still: with those asked for, [`Room::spare`] at most, and the handles of a
    /// host that stopped answering.
    retired: Vec<Retired>,
    /// After the queues, too.
    pins: Pins,
    /// Registrations that have ended while requests still name them: [`Sender::unpin`].
    parked: Vec<(Mr, Marks)>,
    cq: Arc<Cq>,
    pd: Arc<Pd>,
    chain: Chain,
    /// Room for completions.
    done: Vec<ibv_wc>,
    slot_bytes: usize,
    flow_label_paths: bool,
    service: Service,
    reaped_ns: u64,
}

impl Sender {
    pub(super) fn new(
        pd: &Arc<Pd>,
        port: &Port,
        options: &Options,
        entry: Entry,
    ) -> Result<Sender, VerbsError> {
        let paths = options.paths.clamp(1, QPS_MAX as u16 - 1);
        let cq = Cq::new(pd, DEPTH * u32::from(paths), None)?;
        let slot_bytes = usize::from(port.mtu_bytes);
        let mut queues = Vec::new();
        for _ in 0..paths {
            let qp = super::port::open_qp(pd, &cq, &cq, (DEPTH, 1), entry)?;
            let slab = Slab::new(pd, slot_bytes * DEPTH as usize)?;
            let standstill = Standstill::default();
            queues.push(Queue {
                qp,
                slab,
                head: 0,
                tail: 0,
                epoch: 0,
                failed_ns: None,
                standstill,
            });
        }
        // Ethernet's frames have their priority from the DSCP.
        let level = if port.ethernet { 0 } else { options.service.level };
        let service = Service { level, ..options.service };
        let (of, gid_index, number) = (Arc::clone(pd), port.gid.index, port.number);
        let maker = Maker::new(move |way| Ah::new(&of, attributes(way, gid_index, level, number)));
        Ok(Sender {
            queues,
            handles: Handles::new(Room::new(pd.device.handles_max()), maker),
            retired: Vec::new(),
            pins: Pins::default(),
            parked: Vec::new(),
            cq,
            pd: Arc::clone(pd),
            chain: Chain::default(),
            done: ibv_wc::room(REAP),
            slot_bytes,
            flow_label_paths: port.flow_label_paths,
            service,
            reaped_ns: 0,
        })
    }

    pub(super) fn numbers(&self) -> impl Iterator<Item = u32> {
        self.queues.iter().map(|queue| queue.qp.number())
    }

    pub(super) fn inline_bytes(&self) -> u32 {
        self.queues.first().map_or(0, |queue| queue.qp.inline_bytes)
    }

    /// The maker of its address handles.
    pub(super) fn maker(&self) -> &Arc<Maker<Ah>> {
        self.handles.maker()
    }

    /// Sends the rest of a burst, as far as the path's queue takes it. True beside [`SendStop::Resolving`] if the maker may
    /// be done soon.
    ///
    /// # Safety
    /// Each part of the burst is readable for its length during the call.
    pub(super) unsafe fn send(&mut self, to: &Address, burst: &Burst<'_>) -> (Sent, bool) {
        let nothing =
            |stop| Sent { segments: burst.done_segments, uncopied_bytes: 0, stop: Some(stop) };
        if burst.segment_bytes as usize > self.slot_bytes {
            return (nothing(SendStop::Refused), false);
        }
        self.look_for_failures();
        let left = burst.segments() - burst.done_segments;
        let at = match self.queue_for(usize::from(burst.path) % self.queues.len(), left) {
            Ok(at) => at,
            Err(stop) => return (nothing(stop), false),
        };
        let count = self.queues[at].room().min(left);
        let ah = match self.handle(to, burst) {
            Found::Handle(ah) => ah.ah.as_ptr(),
            Found::Wait { soon } => return (nothing(SendStop::Resolving), soon),
            Found::Unreachable => return (nothing(SendStop::Unreachable), false),
        };
        let memory = burst.memory.and_then(|id| self.pins.find(id));
        // SAFETY: the caller's parts.
        unsafe { self.fill(at, to, ah, (burst, memory), count) };
        let (taken, uncopied_bytes) = self.post(at);
        if let Some(id) = burst.memory.filter(|_| uncopied_bytes > 0) {
            self.pins.mark(id, at, (self.queues[at].epoch, self.queues[at].head));
        }
        let stop = match taken {
            _ if taken == left => None,
            0 => Some(SendStop::Refused),
            _ => Some(SendStop::Blocked),
        };
        (Sent { segments: burst.done_segments + taken, uncopied_bytes, stop }, false)
    }

    fn look_for_failures(&mut self) {
        let now = monotonic_ns();
        let is_any = || !self.retired.is_empty() || self.queues.iter().any(|q| q.head != q.tail);
        if now >= self.reaped_ns + REAP_NS && is_any() {
            self.reap();
            self.reaped_ns = now;
        }
    }

    /// Queue with room for a burst: that of its path, or another while that one rests or is slow.
    fn queue_for(&mut self, own: usize, wanted: u32) -> Result<usize, SendStop> {
        if self.is_ready(own) {
            if self.queues[own].room() < wanted {
                self.reap();
            }
            if self.queues[own].room() > 0 {
                return Ok(own);
            }
            if !self.is_slow(own) {
                return Err(SendStop::Blocked);
            }
        }
        if let Some(other) = self.stand_in(own, wanted) {
            return Ok(other);
        }
        let any_ready = self.queues.iter().any(|queue| queue.failed_ns.is_none());
        Err(if any_ready { SendStop::Blocked } else { SendStop::Refused })
    }

    /// Another queue with room for a burst, or that with most room.
    fn stand_in(&mut self, own: usize, wanted: u32) -> Option<usize> {
        self.reap();
        let (count, mut best, mut most) = (self.queues.len(), None, 0);
        for other in (1..count).map(|step| (own + step) % count) {
            if !self.is_ready(other) {
                continue;
            }
            let room = self.queues[other].room().min(wanted);
            if room > most {
                (best, most) = (Some(other), room);
            }
        }
        best
    }

    /// Whether a full queue has not moved for a while. A stuck one rests, and is then emptied.
    fn is_slow(&mut self, at: usize) -> bool {
        let now = monotonic_ns();
        let queue = &mut self.queues[at];
        let lasts_ns = queue.standstill.lasts_ns(queue.tail, now);
        if lasts_ns >= STUCK_NS {
            let qp = queue.qp.number();
            tracing::warn!(qp, "a full queue pair stands still: the path rests");
            queue.failed_ns = Some(now);
        }
        lasts_ns >= SLOW_NS
    }

    /// Whether a queue takes posts; makes a failed one ready again after a while.
    fn is_ready(&mut self, at: usize) -> bool {
        let Some(failed_ns) = self.queues[at].failed_ns else { return true };
        if monotonic_ns() < failed_ns + REVIVE_NS {
            return false;
        }
        self.reset(at)
    }

    /// Drops the unsent datagrams of a queue, and makes it ready again; false if that fails.
    fn reset(&mut self, at: usize) -> bool {
        self.reap();
        let queue = &mut self.queues[at];
        let ready = queue.qp.empty().and_then(|()| {
            (queue.head, queue.tail) = (0, 0);
            queue.standstill = Standstill::default();
            queue.epoch = queue.epoch.wrapping_add(1);
            queue.qp.make_ready()
        });
        if let Err(error) = &ready {
            tracing::warn!(%error, "a queue pair cannot be made ready again");
        }
        queue.failed_ns = ready.is_err().then(monotonic_ns);
        ready.is_ok()
    }

    /// Takes completions, and with them frees slots.
    fn reap(&mut self) {
        let mut done = std::mem::take(&mut self.done);
        loop {
            let count = self.cq.poll(&mut done);
            done[..count].iter().for_each(|wc| self.completed(wc));
            if count < REAP {
                break;
            }
        }
        self.done = done;
        let queues = &self.queues;
        let settled = self.retired.extract_if(.., |retired| !is_any_before(queues, &retired.heads));
        self.handles.maker().destroy(settled.map(|retired| retired.ah));
        self.parked.retain(|(_, named)| is_any_before(queues, named));
    }

    /// Adds memory of the application, to send from without a copy.
    ///
    /// # Errors
    /// Hands the registration back if there are too many.
    pub(super) fn pin(&mut self, mr: Mr, memory: Range<usize>) -> Result<PinId, Mr> {
        self.pins.add(mr, memory)
    }

    /// Ends sends from it.
    pub(super) fn end_pin(&mut self, id: PinId) {
        self.pins.end(id);
    }

    /// Takes a registration out. If requests still name it, since a queue pair could not even be emptied, it stays
    /// until they are gone.
    pub(super) fn unpin(&mut self, id: PinId) -> Option<Mr> {
        let (mr, named) = self.pins.remove(id)?;
        if self.is_settled(&named) {
            return Some(mr);
        }
        self.parked.push((mr, named));
        None
    }

    /// The marks up to which requests name this memory now.
    pub(super) fn named(&self, id: PinId) -> Option<Marks> {
        self.pins.named(id)
    }

    /// True if the requests up to these marks have completed.
    pub(super) fn is_settled(&mut self, marks: &Marks) -> bool {
        self.reap();
        !is_any_before(&self.queues, marks)
    }

    /// Empties the queues whose requests up to these marks have not completed.
    pub(super) fn discard(&mut self, marks: &Marks) {
        for (at, mark) in (0..self.queues.len()).zip(marks) {
            if self.queues[at].is_before(*mark) {
                tracing::debug!(qp = self.queues[at].qp.number(), "a queue pair is emptied");
                self.reset(at);
            }
        }
    }

    /// Has each address handle made again at its next use.
    pub(super) fn age_handles(&mut self) {
        self.handles.age(monotonic_ns());
    }

    /// Takes over what the maker has made.
    fn collect(&mut self, now: u64) {
        for ah in self.handles.collect(now) {
            let mut heads: Marks = [(0, 0); QPS_MAX - 1];
            for (head, queue) in heads.iter_mut().zip(&self.queues) {
                *head = (queue.epoch, queue.head);
            }
            self.retired.push(Retired { ah, heads });
        }
    }

    fn completed(&mut self, wc: &ibv_wc) {
        let (at, epoch, number) = unpack(wc.wr_id);
        let Some(queue) = self.queues.get_mut(at).filter(|queue| queue.epoch == epoch) else {
            return;
        };
        // Requests complete in order.
        queue.tail = queue.tail.max(number + 1).min(queue.head);
        if wc.status == IBV_WC_SUCCESS {
            return;
        }
        if queue.failed_ns.is_none() {
            let text = self.pd.device.library.status_text(wc.status);
            tracing::warn!(qp = queue.qp.number(), status = text, "a send failed: the path rests");
        }
        queue.failed_ns = Some(monotonic_ns());
    }

    /// The address handle for a burst.
    fn handle(&mut self, to: &Address, burst: &Burst<'_>) -> Found<'_, Ah> {
        let now = monotonic_ns();
        self.collect(now);
        let flow_label = |path| if self.flow_label_paths { flow_label(path) } else { 0 };
        let traffic_class = burst.ecn.in_class(self.service.dscp);
        let first = Way { gid: to.gid, lid: to.lid, flow_label: flow_label(0), traffic_class };
        let way = Way { flow_label: flow_label(burst.path), ..first };
        self.handles.find(way, first, self.retired.len(), now)
    }

    /// Gathers the next `count` datagrams of a burst, and chains their requests. Large tails in `memory` stay there; it
    /// copies the rest to slots.
    ///
    /// # Safety
    /// As [`Sender::send`]; the queue has room for as many.
    unsafe fn fill(
        &mut self,
        at: usize,
        to: &Address,
        ah: *mut ibv_ah,
        (burst, memory): (&Burst<'_>, Option<(Range<usize>, u32)>),
        count: u32,
    ) {
        let queue = &self.queues[at];
        let mut gather =
            Gather::new(burst.iov, burst.done_segments as usize * burst.segment_bytes as usize);
        self.chain.clear();
        for nth in 0..count {
            let number = queue.head + u64::from(nth);
            let start = (burst.done_segments + nth) * burst.segment_bytes;
            let len_bytes = burst.segment_bytes.min(burst.total_bytes - start);
            let slot = (number % u64::from(DEPTH)) as usize * self.slot_bytes;
            let (len, mut tail_key) = (len_bytes as usize, 0);
            let tail = memory.as_ref().and_then(|(memory, key)| {
                tail_key = *key;
                gather.tail_in(len, TAIL_MIN_BYTES, memory.clone())
            });
            let head_bytes = tail.map_or(len, |tail| tail.after_bytes);
            let place = queue.slab.at(slot, head_bytes);
            // SAFETY: the slot is free, and has room for a segment; the caller's parts.
            unsafe { gather.copy(place, head_bytes) };
            let tail_bytes = len - head_bytes;
            gather.pass(tail_bytes);
            let signalled = nth + 1 == count || nth % SIGNAL_EVERY == SIGNAL_EVERY - 1;
            let inline = tail.is_none() && len_bytes <= queue.qp.inline_bytes;
            self.chain.pieces.push([
                ibv_sge {
                    addr: place.expose_provenance() as u64,
                    length: head_bytes as u32,
                    lkey: queue.slab.key(),
                },
                ibv_sge {
                    addr: tail.map_or(0, |tail| tail.start as u64),
                    length: tail_bytes as u32,
                    lkey: tail_key,
                },
            ]);
            let flags = if signalled { IBV_SEND_SIGNALED } else { 0 }
                | if inline { IBV_SEND_INLINE } else { 0 };
            let name = pack(at, queue.epoch, number);
            self.chain.requests.push(request(name, to, ah, flags, 1 + c_int::from(tail.is_some())));
        }
        self.chain.link();
    }

    /// Posts the chain; returns how many of its requests were taken, and their uncopied bytes.
    fn post(&mut self, at: usize) -> (u32, u64) {
        let (queue, count) = (&mut self.queues[at], self.chain.len());
        // SAFETY: `fill` linked the chain, of slots that stay until they complete.
        let taken = unsafe { self.chain.post(&queue.qp) };
        queue.head += u64::from(taken);
        if taken < count {
            // The last that was taken may be unsignalled: without a reset its slot might stay taken.
            tracing::warn!(qp = queue.qp.number(), taken, count, "a queue pair takes no sends");
            queue.failed_ns = Some(monotonic_ns());
        }
        (taken, self.chain.uncopied_bytes(taken))
    }
}

#[cfg(test)]
impl Sender {
    pub(super) fn break_queue(&self, at: usize) {
        self.queues[at].qp.break_it();
    }
}

/// True if requests up to one of these marks have not all completed.
fn is_any_before(queues: &[Queue], marks: &Marks) -> bool {
    queues.iter().zip(marks).any(|(queue, mark)| queue.is_before(*mark))
}

/// A send request, whose pieces are not linked yet.
fn request(
    wr_id: u64,
    to: &Address,
    ah: *mut ibv_ah,
    send_flags: c_uint,
    num_sge: c_int,
) -> ibv_send_wr {
    ibv_send_wr {
        wr_id,
        next: std::ptr::null_mut(),
        sg_list: std::ptr::null_mut(),
        num_sge,
        opcode: IBV_WR_SEND_WITH_IMM,
        send_flags,
        imm_data: to.tag.to_be(),
        wr: ibv_send_wr_ud::new(ah, to.qpn, to.qkey),
        qp_type: [0; 2],
        bind_mw: [0; 6],
    }
}

/// The attributes of an address handle of a port.
fn attributes(way: Way, sgid_index: u8, level: u8, port_num: u8) -> ibv_ah_attr {
    let grh = ibv_global_route {
        dgid: words(way.gid),
        flow_label: way.flow_label,
        sgid_index,
        hop_limit: 64,
        traffic_class: way.traffic_class,
    };
    let (dlid, sl) = (way.lid, level);
    ibv_ah_attr { grh, dlid, sl, src_path_bits: 0, static_rate: 0, is_global: 1, port_num }
}

/// A flow label for a path: never 0, which lets the device choose.
fn flow_label(path: u16) -> u32 {
    ((u32::from(path) + 1).wrapping_mul(0x9e37_79b1) >> 12) | 1
}

fn words(gid: Gid) -> [u64; 2] {
    let (mut high, mut low) = ([0; 8], [0; 8]);
    high.copy_from_slice(&gid.0[..8]);
    low.copy_from_slice(&gid.0[8..]);
    [u64::from_ne_bytes(high), u64::from_ne_bytes(low)]
}

/// A request's id: queue (4 bits), epoch (8), number (52).
fn pack(queue: usize, epoch: u8, number: u64) -> u64 {
    (queue as u64) << 60 | u64::from(epoch) << 52 | (number & NUMBER)
}

fn unpack(wr_id: u64) -> (usize, u8, u64) {
    ((wr_id >> 60) as usize, (wr_id >> 52) as u8, wr_id & NUMBER)
}

const NUMBER: u64 = (1 << 52) - 1;

/// A mark's value in a traffic class.
const _: () = assert!(Ecn::Ect0 as u8 == 2 && Ecn::Ce as u8 == 3);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_standstill_lasts_until_something_completes() {
        let mut queue = Standstill::default();
        assert_eq!((queue.lasts_ns(7, 1_000), queue.lasts_ns(7, 5_000)), (0, 4_000));
        assert_eq!(queue.lasts_ns(8, 6_000), 0, "one completed");
        assert_eq!(queue.lasts_ns(8, 6_500), 500);
    }

    #[test]
    fn a_request_is_found_by_its_name() {
        let name = (6, 0xfe, NUMBER - 3);
        assert_eq!(unpack(pack(name.0, name.1, name.2)), name);
    }

    #[test]
    fn paths_have_labels_of_20_bits_of_their_own() {
        let labels: std::collections::BTreeSet<u32> = (0..256).map(flow_label).collect();
        assert_eq!(labels.len(), 256);
        assert!(labels.iter().all(|label| *label != 0 && *label < 1 << 20));
    }
}
