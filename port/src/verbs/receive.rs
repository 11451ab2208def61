//! Receiving: one queue pair for all endpoints of a domain. Its deep queue is kept full, since a datagram without a
//! posted receive is lost silently.

use super::gid::Gid;
use super::objects::{Channel, Cq, Entry, Pd, Qp, Slab};
use super::port::VerbsPort;
use super::{Port, VerbsError};
use erd_ffi::ibv::*;
use erd_sys::clock::monotonic_ns;
use erd_sys::wait::Bundle;
use erd_types::Ecn;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Most completions of one look.
const BATCH: usize = 32;
/// Time after which a failed queue pair is made ready again.
const REVIVE_NS: u64 = 100_000_000;
/// Slots begin at multiples of this.
const ALIGN_BYTES: usize = 64;

/// The source of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source {
    /// The sender's GID; all zeros if the device does not show it.
    pub gid: Gid,
    /// The queue pair that sent it.
    pub qpn: u32,
    /// Its mark, where the device shows the header that has it.
    pub ecn: Ecn,
}

/// A datagram in a slot.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    slot: u32,
    /// Length, including the room for the global header.
    len_bytes: u32,
    qpn: u32,
    has_header: bool,
}

/// Arrivals for one endpoint while another looked.
#[derive(Debug)]
struct Inbox {
    queue: Mutex<VecDeque<Arrival>>,
    /// Readable when something is in the queue.
    signal: OwnedFd,
}

/// Locks, ignoring poison: nothing in here panics half way.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Inbox {
    fn new() -> io::Result<Inbox> {
        // SAFETY: takes no pointer.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a new fd that nothing else owns.
        let signal = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Inbox { queue: Mutex::default(), signal })
    }

    /// Adds an arrival; false if there is no room.
    fn push(&self, arrival: Arrival, room: usize) -> bool {
        let mut queue = lock(&self.queue);
        if queue.len() >= room {
            return false;
        }
        queue.push_back(arrival);
        if queue.len() == 1 {
            let one = 1_u64;
            // SAFETY: eight readable bytes.
            unsafe { libc::write(self.signal.as_raw_fd(), (&raw const one).cast(), 8) };
        }
        true
    }

    fn take(&self, out: &mut Vec<Arrival>) {
        let mut queue = lock(&self.queue);
        if queue.is_empty() {
            return;
        }
        out.extend(queue.drain(..));
        let mut count = 0_u64;
        // SAFETY: eight writable bytes.
        unsafe { libc::read(self.signal.as_raw_fd(), (&raw mut count).cast(), 8) };
    }
}

/// The peers that lately sent to any member of a port. Each has an equal share of the receives.
#[derive(Debug, Default)]
pub(super) struct Senders(AtomicU32);

impl Senders {
    /// Changes a member's number of senders, and returns its part of `whole`. A member without any counts as having one, since
    /// it tells the next one the share.
    fn share(&self, counted: &mut u32, senders: u32, whole: u64) -> u64 {
        if senders != *counted {
            // It wraps where the number falls.
            self.0.fetch_add(senders.wrapping_sub(*counted), Ordering::Relaxed);
            *counted = senders;
        }
        let own = u64::from(senders.max(1));
        let others = self.0.load(Ordering::Relaxed).saturating_sub(senders);
        whole * own / (own + u64::from(others))
    }
}

/// The receiving half of a port.
pub(super) struct Receiver {
    // Before the slab: no request may be left when the memory goes.
    qp: Qp,
    slab: Slab,
    cq: Arc<Cq>,
    slots: u32,
    slot_bytes: usize,
    v4: bool,
    /// Time at which the queue pair failed: nothing arrives any more.
    failed_ns: Option<u64>,
    /// Slots whose datagrams an endpoint has, or will get.
    held: Vec<bool>,
    /// The number of these.
    held_count: u32,
    /// The channel reports nothing any more: the device has gone.
    deaf: bool,
    members: HashMap<u32, Arc<Inbox>>,
    next_tag: u32,
    requests: Requests,
    /// Room for completions.
    done: Vec<ibv_wc>,
}

/// Receives to post with one call.
#[derive(Default)]
struct Requests(Vec<(ibv_recv_wr, ibv_sge)>);

// SAFETY: as the sender's chain: pointers are written again for each post.
unsafe impl Send for Requests {}

impl Receiver {
    pub(super) fn new(
        pd: &Arc<Pd>,
        port: &Port,
        slots: u32,
        channel: &Arc<Channel>,
        entry: Entry,
    ) -> Result<Receiver, VerbsError> {
        let cq = Cq::new(pd, slots, Some(channel))?;
        let slot_bytes = (GRH_BYTES + usize::from(port.mtu_bytes)).next_multiple_of(ALIGN_BYTES);
        let slab = Slab::new(pd, slot_bytes * slots as usize)?;
        let qp = super::port::open_qp(pd, &cq, &cq, (1, slots), entry)?;
        let mut receiver = Receiver {
            qp,
            slab,
            cq,
            slots,
            slot_bytes,
            v4: port.gid.gid.ip().is_ipv4(),
            failed_ns: None,
            held: vec![false; slots as usize],
            held_count: 0,
            deaf: false,
            members: HashMap::new(),
            next_tag: 1,
            requests: Requests::default(),
            done: ibv_wc::room(BATCH),
        };
        let all: Vec<u32> = (0..slots).collect();
        for slots in all.chunks(BATCH) {
            receiver.post(slots.iter().copied());
        }
        Ok(receiver)
    }

    pub(super) fn number(&self) -> u32 {
        self.qp.number()
    }

    pub(super) fn slots(&self) -> u32 {
        self.slots
    }

    /// True if datagrams can arrive.
    pub(super) fn works(&self) -> bool {
        self.failed_ns.is_none()
    }

    fn fail(&mut self, why: &str) {
        if self.failed_ns.is_none() {
            tracing::warn!(qp = self.qp.number(), "{why}");
            self.failed_ns = Some(monotonic_ns());
        }
    }

    /// Makes a queue pair that failed ready again after a while.
    pub(super) fn revive(&mut self) {
        let Some(failed_ns) = self.failed_ns else { return };
        if self.deaf || monotonic_ns() < failed_ns + REVIVE_NS {
            return;
        }
        self.failed_ns = Some(monotonic_ns());
        if let Err(error) = self.qp.reset() {
            tracing::warn!(%error, "the receiving queue pair cannot be made ready again");
            return;
        }
        // Its completions name slots that are posted again, so drop them.
        while self.cq.poll(&mut self.done) > 0 {}
        self.failed_ns = None;
        let free: Vec<u32> = (0..self.slots).filter(|slot| !self.held[*slot as usize]).collect();
        for slots in free.chunks(BATCH) {
            self.post(slots.iter().copied());
        }
        if self.works() {
            tracing::warn!(qp = self.qp.number(), "the receiving queue pair is ready again");
        }
    }

    /// Gives slots back to the device; a failed one would only return them.
    fn post(&mut self, slots: impl Iterator<Item = u32>) {
        let works = self.works();
        let requests = &mut self.requests.0;
        requests.clear();
        for slot in slots {
            let was_held = std::mem::take(&mut self.held[slot as usize]);
            self.held_count -= u32::from(was_held);
            if !works {
                continue;
            }
            let at = self.slab.at(slot as usize * self.slot_bytes, self.slot_bytes);
            let piece = ibv_sge {
                addr: at.expose_provenance() as u64,
                length: self.slot_bytes as u32,
                lkey: self.slab.key(),
            };
            let (next, sg_list) = (std::ptr::null_mut(), std::ptr::null_mut());
            requests.push((ibv_recv_wr { wr_id: slot.into(), next, sg_list, num_sge: 1 }, piece));
        }
        let (count, first) = (requests.len(), requests.as_mut_ptr());
        if count == 0 {
            return;
        }
        for at in 0..count {
            // SAFETY: the list has `count` entries, and does not grow any more.
            unsafe {
                let entry = first.add(at);
                (*entry).0.sg_list = &raw mut (*entry).1;
                if at + 1 < count {
                    (*entry).0.next = &raw mut (*first.add(at + 1)).0;
                }
            }
        }
        // SAFETY: the chain just made, of slots that nobody reads any more.
        if !unsafe { self.qp.post_recv(&raw mut (*first).0) } {
            self.fail("the receiving queue pair takes no receives");
        }
    }

    /// Takes completions; those for `tag` go to `out`, others to their endpoints. Returns their number.
    fn poll(&mut self, tag: u32, out: &mut Vec<Arrival>) -> usize {
        let mut done = std::mem::take(&mut self.done);
        let count = self.cq.poll(&mut done);
        let mut useless = Vec::new();
        for wc in &done[..count] {
            if let Err(slot) = self.sort(wc, tag, out) {
                useless.push(slot);
            }
        }
        self.done = done;
        if !useless.is_empty() {
            self.post(useless.into_iter());
        }
        count
    }

    /// Hands one completion to its endpoint, or returns its slot as an error.
    fn sort(&mut self, wc: &ibv_wc, tag: u32, out: &mut Vec<Arrival>) -> Result<(), u32> {
        let slot = wc.wr_id as u32;
        if slot >= self.slots {
            tracing::warn!(slot, "a completion of a receive that was not posted");
            return Ok(());
        }
        if wc.status != IBV_WC_SUCCESS {
            if wc.status == IBV_WC_WR_FLUSH_ERR {
                self.fail("the receiving queue pair failed");
            }
            return Err(slot);
        }
        let arrival = Arrival {
            slot,
            len_bytes: wc.byte_len,
            qpn: wc.src_qp,
            has_header: wc.wc_flags & IBV_WC_GRH != 0,
        };
        let to = if wc.wc_flags & IBV_WC_WITH_IMM == 0 { 0 } else { u32::from_be(wc.imm_data) };
        let fits = (GRH_BYTES..=self.slot_bytes).contains(&(wc.byte_len as usize));
        if !fits {
            return Err(slot);
        }
        let was_held = std::mem::replace(&mut self.held[slot as usize], true);
        self.held_count += u32::from(!was_held);
        if to == tag {
            out.push(arrival);
            return Ok(());
        }
        // As many for one endpoint that does not look as are left for all: half of the slots for one, a third for each of
        // two. So some are always left.
        let room = (self.slots - self.held_count) as usize;
        match self.members.get(&to) {
            Some(inbox) if inbox.push(arrival, room) => Ok(()),
            _ => Err(slot),
        }
    }

    /// Makes the channel's fd report the next arrival; true if something may be there already.
    fn arm(&mut self, out: &mut Vec<Arrival>, tag: u32) -> bool {
        if !self.deaf && !self.cq.take_events() {
            tracing::warn!("the completion channel failed: is the device gone?");
            self.deaf = true;
            self.fail("nothing arrives over verbs any more");
        }
        self.cq.arm();
        self.poll(tag, out) == BATCH || !out.is_empty()
    }

    /// The source of a datagram, from its global header.
    fn source(&self, arrival: Arrival, header: &[u8; GRH_BYTES]) -> Source {
        let none = Source { gid: Gid([0; 16]), qpn: arrival.qpn, ecn: Ecn::NotEct };
        if !arrival.has_header {
            return none;
        }
        read_header(header, self.v4).map_or(none, |(gid, tos)| Source {
            gid,
            qpn: arrival.qpn,
            ecn: Ecn::from_tos(tos),
        })
    }
}

#[cfg(test)]
impl Receiver {
    pub(super) fn break_queue(&self) {
        self.qp.break_it();
    }
}

/// Source and traffic class from the 40 bytes before a datagram: an IPv6-like header, or an IPv4 one in the last 20
/// bytes.
fn read_header(header: &[u8; GRH_BYTES], v4: bool) -> Option<(Gid, u8)> {
    if v4 && header[20] == 0x45 {
        let mut gid = [0; 16];
        gid[10..12].copy_from_slice(&[0xff, 0xff]);
        gid[12..].copy_from_slice(&header[32..36]);
        return Some((Gid(gid), header[21]));
    }
    if header[0] >> 4 != 6 {
        return None;
    }
    let mut gid = [0; 16];
    gid.copy_from_slice(&header[8..24]);
    Some((Gid(gid), header[0] << 4 | header[1] >> 4))
}

/// An endpoint's share of a port.
#[derive(Debug)]
pub struct Member {
    port: Arc<VerbsPort>,
    tag: u32,
    inbox: Arc<Inbox>,
    taken: Vec<Arrival>,
    /// The channel's fd and the inbox's.
    bundle: Bundle,
    /// The channel's fd is in the bundle.
    hears: bool,
    /// Those of [`VerbsPort::senders`] that send to it.
    senders: u32,
}

impl Member {
    /// A new member.
    ///
    /// # Errors
    /// The process is out of fds.
    pub fn join(port: &Arc<VerbsPort>) -> io::Result<Member> {
        use std::os::fd::AsFd;
        let inbox = Arc::new(Inbox::new()?);
        let bundle = Bundle::new()?;
        bundle.add(inbox.signal.as_fd())?;
        bundle.add(port.channel.fd())?;
        let mut receiver = lock(&port.receiver);
        let mut tag = receiver.next_tag;
        while tag == 0 || receiver.members.contains_key(&tag) {
            tag = tag.wrapping_add(1);
        }
        receiver.next_tag = tag.wrapping_add(1);
        receiver.members.insert(tag, Arc::clone(&inbox));
        drop(receiver);
        let port = Arc::clone(port);
        Ok(Member { port, tag, inbox, taken: Vec::new(), bundle, hears: true, senders: 0 })
    }

    /// The port.
    #[must_use]
    pub fn port(&self) -> &Arc<VerbsPort> {
        &self.port
    }

    /// Address at which peers reach this endpoint.
    #[must_use]
    pub fn address(&self) -> super::negotiation::address::Address {
        super::negotiation::address::Address { tag: self.tag, ..self.port.address() }
    }

    /// The endpoint's part of `whole`, which is for all members of the port, while so many peers send to the endpoint.
    pub fn share(&mut self, senders: u32, whole: u64) -> u64 {
        self.port.senders.share(&mut self.senders, senders, whole)
    }

    /// The fd that reports arrivals, once [`Member::arm`] was called.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.bundle.fd()
    }

    /// Takes arrivals, and hands each datagram to `f` with its source. Returns their number; at most 32 and those in
    /// the inbox.
    pub fn recv(&mut self, mut f: impl FnMut(&[u8], &Source)) -> usize {
        self.inbox.take(&mut self.taken);
        lock(&self.port.receiver).poll(self.tag, &mut self.taken);
        self.hand_over(&mut f)
    }

    /// Before sleeping: lets the fds report the next arrival. True if something arrived meanwhile: then
    /// [`Member::recv`] is due.
    #[must_use]
    pub fn arm(&mut self) -> bool {
        let (found, deaf) = {
            let mut receiver = lock(&self.port.receiver);
            (receiver.arm(&mut self.taken, self.tag), receiver.deaf)
        };
        if deaf && std::mem::take(&mut self.hears) {
            // Otherwise it would be readable for ever.
            let _ = self.bundle.remove(self.port.channel.fd());
        }
        found
    }

    fn hand_over(&mut self, f: &mut impl FnMut(&[u8], &Source)) -> usize {
        let count = self.taken.len();
        if count == 0 {
            return 0;
        }
        for arrival in &self.taken {
            let (header, data, source) = self.port.look_at(*arrival);
            debug_assert_eq!(header.len(), GRH_BYTES);
            f(data, &source);
        }
        let mut receiver = lock(&self.port.receiver);
        receiver.post(self.taken.drain(..).map(|arrival| arrival.slot));
        count
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        if self.port.is_foreign() {
            return;
        }
        self.share(0, 0);
        let mut receiver = lock(&self.port.receiver);
        receiver.members.remove(&self.tag);
        self.inbox.take(&mut self.taken);
        receiver.post(self.taken.drain(..).map(|arrival| arrival.slot));
    }
}

impl VerbsPort {
    /// Bytes of an arrival: the header's room, the datagram, and its source.
    fn look_at(&self, arrival: Arrival) -> (&[u8], &[u8], Source) {
        let receiver = lock(&self.receiver);
        let start = arrival.slot as usize * receiver.slot_bytes;
        let at = receiver.slab.at(start, arrival.len_bytes as usize);
        // SAFETY: the device has written the slot, and does so again only once it was posted, after the borrow: only
        // `Member`s look, and they post slots when done. The slab lives as long as the port.
        let bytes: &[u8] = unsafe { std::slice::from_raw_parts(at, arrival.len_bytes as usize) };
        let (header, data) = bytes.split_at(GRH_BYTES);
        let source = match header.try_into() {
            Ok(header) => receiver.source(arrival, header),
            Err(_) => unreachable!("the header's room has {GRH_BYTES} bytes"),
        };
        (header, data, source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_of_both_families_tell_source_and_mark() {
        let mut v4 = [0_u8; GRH_BYTES];
        v4[..20].fill(0xa5);
        v4[20] = 0x45;
        v4[21] = 0b1000_0011;
        v4[32..36].copy_from_slice(&[192, 0, 2, 9]);
        let (gid, tos) = read_header(&v4, true).expect("IPv4");
        assert_eq!((gid.ip(), Ecn::from_tos(tos)), ([192, 0, 2, 9].into(), Ecn::Ce));
        let mut v6 = [0_u8; GRH_BYTES];
        (v6[0], v6[1]) = (0x6a, 0x20);
        v6[8..24].fill(7);
        assert_eq!(read_header(&v6, false), Some((Gid([7; 16]), 0xa2)));
        assert_eq!(read_header(&v6, true), Some((Gid([7; 16]), 0xa2)));
        assert_eq!(read_header(&[0; GRH_BYTES], true), None);
    }

    #[test]
    fn the_members_of_a_port_share_its_receives() {
        let (all, whole) = (Senders::default(), 4 << 20);
        let mut counted = [0; 3];
        let mut share = |at: usize, senders| all.share(&mut counted[at], senders, whole);
        assert_eq!([share(0, 0), share(1, 0), share(2, 0)], [whole; 3], "nobody sends");
        assert_eq!(share(0, 6), whole);
        assert_eq!((share(1, 0), share(1, 2)), (whole / 7, whole / 4));
        assert_eq!((share(0, 6), share(2, 0)), (whole * 3 / 4, whole / 9));
        // Each member gives a sender the same, and all together have no more than there is.
        let shares = [share(0, 6) / 6, share(1, 2) / 2];
        assert_eq!(shares, [whole / 8; 2]);
        assert_eq!((share(0, 0), share(1, 2)), (whole / 3, whole));
    }

    #[test]
    fn an_inbox_is_bounded_and_tells_of_its_first() {
        let inbox = Inbox::new().expect("an eventfd");
        let arrival = Arrival { slot: 0, len_bytes: 0, qpn: 0, has_header: false };
        assert!(inbox.push(arrival, 2) && inbox.push(arrival, 2) && !inbox.push(arrival, 2));
        let mut taken = Vec::new();
        inbox.take(&mut taken);
        assert_eq!(taken.len(), 2);
        let mut count = 0_u64;
        // SAFETY: eight writable bytes.
        let rc = unsafe { libc::read(inbox.signal.as_raw_fd(), (&raw mut count).cast(), 8) };
        assert_eq!(rc, -1, "the signal was taken back");
    }
}
