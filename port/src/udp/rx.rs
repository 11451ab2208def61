//! The receive socket of an endpoint.

use erd_types::Ecn;
use std::io;
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr::NonNull;

use socket2::{Domain, Protocol, Socket, Type};

use super::addr::RawAddr;
use super::calls;
use super::faults::Faults;
use super::plan::Plan;
use super::sockopt::{self, Side};
use super::{MAX_RECV_SLOTS, PortError, PortOptions, SLOT_BYTES, check_range, ports};
use erd_sys::clock;
use erd_sys::unshared::Unshared;

const SLOTS: usize = MAX_RECV_SLOTS as usize;

/// Control messages of one arrival: a timespec and three integers, 104 bytes with their headers.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
struct Control([u8; 128]);

/// One datagram as it arrived.
#[derive(Clone, Copy, Debug)]
pub struct RxDatagram<'a> {
    /// The UDP payload; for a datagram that met its plan, the part before `placed`.
    pub data: &'a [u8],
    /// The part received straight into its place; `None` if there is none.
    pub placed: Option<&'a [u8]>,
    /// The sender's address. Its port is one of the sender's paths, not its name.
    pub src: SocketAddr,
    /// The ECN mark; [`Ecn::NotEct`] without marks.
    pub ecn: Ecn,
    /// A switch cut the payload off. Only the simulated network does.
    pub trimmed: bool,
    /// Time from the kernel's stamp to the read here, in ns; 0 without stamps.
    pub hold_ns: u64,
}

/// An endpoint's one bound socket: its address is the endpoint's name.
#[derive(Debug)]
pub struct RxSocket {
    socket: Unshared<Socket>,
    local: SocketAddr,
    slots: Slots,
    granted_bytes: usize,
    stamps: bool,
    /// Number of messages to ask for in the next call.
    vlen: usize,
    /// Parts of the next call; kept for its allocation.
    parts: Parts,
    drops: DropCounter,
    truncated: u64,
    faults: Option<Box<Faults>>,
}

impl RxSocket {
    /// Binds to `addr`; port 0 takes a free one.
    ///
    /// # Errors
    /// [`PortError::Option`] for a slot count out of range, [`PortError::Bind`] if the address is not free or not
    /// local, [`PortError::Socket`] if set-up fails otherwise.
    pub fn bind(addr: SocketAddr, options: &PortOptions) -> Result<Self, PortError> {
        check_range("recv_slots", options.recv_slots.into(), SLOTS)?;
        let fail = |call| move |source| PortError::Socket { call, source };
        let socket = Socket::new(Domain::for_address(addr), Type::DGRAM, Some(Protocol::UDP))
            .map(Unshared::new)
            .map_err(fail("socket"))?;
        let granted_bytes = sockopt::set_buffer(&socket, options.recv_buffer_bytes, Side::Recv)?;
        if addr.is_ipv6() {
            socket.set_only_v6(true).map_err(fail("IPV6_V6ONLY"))?;
        }
        let stamps = ask_for_ancillary(&socket, addr, options);
        ports::bind(&socket, addr, options.ports)?;
        let local = socket.local_addr().map_err(fail("getsockname"))?;
        let local = local.as_socket().unwrap_or(addr);
        let slots = Slots::map(options.recv_slots.into()).map_err(fail("mmap"))?;
        let drops = DropCounter::default();
        Ok(Self {
            socket,
            local,
            slots,
            granted_bytes,
            stamps,
            vlen: 1,
            parts: Parts(Vec::new()),
            drops,
            truncated: 0,
            faults: options.faults.map(|rates| Box::new(Faults::new(rates, local.port()))),
        })
    }

    /// The bound address, with its actual port.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// For a wait set: readable when something has arrived.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// True if [`PortOptions::faults`] apply, which only [`RxSocket::recv`] makes.
    #[must_use]
    pub fn has_faults(&self) -> bool {
        self.faults.is_some()
    }

    /// The receive buffer in the kernel's accounting, in bytes. A datagram takes its payload plus
    /// about 0.8 KB of it on loopback, and up to twice its payload from a NIC; the kernel hands
    /// space back in quarters, so count on three quarters (`udp_rmem_release` in `net/ipv4/udp.c`).
    #[must_use]
    pub fn granted_recv_bytes(&self) -> usize {
        self.granted_bytes
    }

    /// Datagrams that the kernel dropped because the buffer was full, as of the latest arrivals (`SO_RXQ_OVFL`).
    #[must_use]
    pub fn kernel_drops(&self) -> u64 {
        self.drops.total
    }

    /// Arrivals dropped because they did not fit a slot or carried no usable source address.
    #[must_use]
    pub fn truncated_drops(&self) -> u64 {
        self.truncated
    }

    /// Takes arrivals with one system call, and hands them to `f` datagram by datagram. Returns the number of
    /// datagrams; 0 means that the queue was empty.
    ///
    /// It asks for one message at first, so a lone packet costs least; a full answer doubles the next request. It takes
    /// at most `budget` messages, but a GRO batch counts as one, and holds up to 128 datagrams.
    ///
    /// # Errors
    /// Error of `recvmmsg(2)`, other than an empty queue or an interruption.
    pub fn recv(&mut self, budget: usize, mut f: impl FnMut(RxDatagram<'_>)) -> io::Result<usize> {
        let vlen = self.vlen.min(budget);
        if vlen == 0 {
            return Ok(0);
        }
        let mut frame = Frame::new();
        self.parts.0.clear();
        for slot in 0..vlen {
            self.parts.push(self.slots.at(slot, 0), SLOT_BYTES);
        }
        let received = frame.receive(&self.socket, &mut self.parts.0, vlen)?;
        self.vlen =
            if received == vlen { (vlen * 2).min(self.slots.count) } else { received.max(1) };
        if received == 0 {
            return Ok(self.faults.as_mut().map_or(0, |faults| faults.idle(&mut f)));
        }
        let now_ns = if self.stamps { clock::realtime_ns() } else { 0 };
        let mut datagrams = 0;
        for slot in 0..received {
            let Some(arrival) = self.account(frame.arrival(slot)) else { continue };
            for (start, bytes) in arrival.datagrams() {
                // SAFETY: the kernel wrote these bytes into the slot, and `f` has returned before
                // it is written again.
                let data = unsafe { self.slots.bytes(slot, start, bytes) };
                let datagram = arrival.datagram(data, None, now_ns);
                if let Some(faults) = &mut self.faults {
                    datagrams += faults.pass(datagram, &mut f);
                    continue;
                }
                f(datagram);
                datagrams += 1;
            }
        }
        // Dropped arrivals also left the queue: 0 is for an empty queue only.
        Ok(datagrams.max(1))
    }

    /// Looks at the next arrival, and leaves it there: whether it ends where a datagram of the plan does, and its first
    /// datagram is the expected one, which `is_expected` tells by the bytes before the payload.
    ///
    /// # Errors
    /// Error of `recv(2)`, other than an empty queue or an interruption.
    pub fn look_ahead(
        &mut self,
        plan: &Plan,
        is_expected: impl FnOnce(&[u8]) -> bool,
    ) -> io::Result<Next> {
        let (fd, head_bytes) = (self.socket.as_raw_fd(), plan.head_bytes());
        let flags = libc::MSG_PEEK | libc::MSG_TRUNC | libc::MSG_DONTWAIT;
        // SAFETY: the slots are this port's own and longer than a head. With MSG_TRUNC the answer
        // is the arrival's length, and no more than a head is written.
        let looked = unsafe { calls::recv(fd, self.slots.at(0, 0).cast(), head_bytes, flags) };
        let bytes = match looked {
            Ok(bytes) => bytes,
            Err(error) if is_empty(&error) => return Ok(Next::Nothing),
            Err(error) => return Err(error),
        };
        // SAFETY: nothing writes the slot meanwhile. An arrival that is shorter than a head ends
        // nowhere in the plan.
        let head = unsafe { self.slots.bytes(0, 0, head_bytes) };
        Ok(match plan.ends_at(bytes) && is_expected(head) {
            true => Next::Planned { bytes },
            false => Next::Other { bytes },
        })
    }

    /// Takes one arrival, with its payloads received straight into the places of `plan`. For each datagram that lies as
    /// planned, `is_expected` tells whether it is the one meant for the place, by the place's index and the bytes
    /// before the payload. If all are expected, `f` gets them with [`RxDatagram::placed`]. Otherwise the port copies
    /// bytes back from the places first, and `f` gets whole datagrams.
    ///
    /// # Safety
    /// Every place of the plan is writable and readable until this returns. If code other than `f` writes there, it may
    /// spoil an arrival that does not meet the plan.
    ///
    /// # Errors
    /// As [`RxSocket::recv`].
    pub unsafe fn recv_planned(
        &mut self,
        plan: &Plan,
        is_expected: impl FnMut(usize, &[u8]) -> bool,
        mut f: impl FnMut(RxDatagram<'_>),
    ) -> io::Result<Taken> {
        let mut frame = Frame::new();
        self.write_planned_parts(plan);
        if frame.receive(&self.socket, &mut self.parts.0, 1)? == 0 {
            return Ok(Taken { datagrams: 0, placed: false });
        }
        let Some(arrival) = self.account(frame.arrival(0)) else {
            return Ok(Taken { datagrams: 1, placed: false });
        };
        let placed = self.meets(&arrival, plan, is_expected);
        if !placed {
            // SAFETY: the caller vouches for the places.
            unsafe { self.slots.take_back(arrival.bytes, plan) };
        }
        let now_ns = if self.stamps { clock::realtime_ns() } else { 0 };
        let mut places = plan.starts();
        let mut datagrams = 0;
        for (start, bytes) in arrival.datagrams() {
            let place = if placed { places.next() } else { None };
            let in_slot = place.map_or(bytes, |_| plan.head_bytes());
            // SAFETY: the kernel wrote these bytes into the slot, and `f` has returned before it
            // is written again.
            let data = unsafe { self.slots.bytes(0, start, in_slot) };
            // SAFETY: the caller vouches for the place, which the kernel has filled.
            let placed = place.map(|(_, place)| unsafe {
                std::slice::from_raw_parts(place.at.as_ptr().cast_const(), place.len_bytes)
            });
            f(arrival.datagram(data, placed, now_ns));
            datagrams += 1;
        }
        Ok(Taken { datagrams, placed })
    }

    /// Updates the counters.
    fn account(&mut self, arrival: Option<Arrival>) -> Option<Arrival> {
        match &arrival {
            Some(Arrival { drops: Some(counter), .. }) => self.drops.saw(*counter),
            Some(_) => {}
            None => self.truncated += 1,
        }
        arrival
    }

    /// Sets the parts: for each place a head in the slot and the place, then the rest of the slot. Bytes in a place
    /// leave a gap in the slot.
    fn write_planned_parts(&mut self, plan: &Plan) {
        self.parts.0.clear();
        let mut end = 0;
        for (start, place) in plan.starts() {
            self.parts.push(self.slots.at(0, start), plan.head_bytes());
            self.parts.push(place.at.as_ptr(), place.len_bytes);
            end = start + plan.head_bytes() + place.len_bytes;
        }
        self.parts.push(self.slots.at(0, end), SLOT_BYTES - end);
    }

    /// Whether each datagram of an arrival lies as planned and is the expected one.
    fn meets(
        &self,
        arrival: &Arrival,
        plan: &Plan,
        mut is_expected: impl FnMut(usize, &[u8]) -> bool,
    ) -> bool {
        let mut planned = plan.starts().enumerate();
        arrival.datagrams().all(|(start, bytes)| {
            let Some((index, (planned_start, place))) = planned.next() else { return false };
            if planned_start != start || bytes != plan.head_bytes() + place.len_bytes {
                return false;
            }
            // SAFETY: the kernel wrote the slot, and nothing writes it meanwhile. The bytes before the payload are in
            // the slot, at the same position as without a plan.
            let head = unsafe { self.slots.bytes(0, start, plan.head_bytes()) };
            is_expected(index, head)
        })
    }
}

/// Result of [`RxSocket::look_ahead`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// The queue is empty.
    Nothing,
    /// The planned arrival, as far as a look can tell.
    Planned {
        /// Its length.
        bytes: usize,
    },
    /// Another one.
    Other {
        /// Its length.
        bytes: usize,
    },
}

/// Result of [`RxSocket::recv_planned`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// Datagrams; 0 means that the queue was empty.
    pub datagrams: usize,
    /// They met the plan.
    pub placed: bool,
}

/// Pieces of memory for one call.
#[derive(Debug)]
struct Parts(Vec<libc::iovec>);

// SAFETY: the addresses are written again before each call, and used in that call only.
unsafe impl Send for Parts {}

impl Parts {
    fn push(&mut self, base: *mut u8, iov_len: usize) {
        self.0.push(libc::iovec { iov_base: base.cast(), iov_len });
    }
}

/// True if the queue is empty, or if the next look will tell.
fn is_empty(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

/// Asks for all ancillary data of arrivals; returns whether there will be stamps.
fn ask_for_ancillary(socket: &Socket, addr: SocketAddr, options: &PortOptions) -> bool {
    let (level, tos) = match addr {
        SocketAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_RECVTOS),
        SocketAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS),
    };
    sockopt::try_on(socket, options.ecn, level, tos, "IP_RECVTOS");
    sockopt::try_on(socket, options.gro, libc::SOL_UDP, libc::UDP_GRO, "UDP_GRO");
    sockopt::try_on(socket, true, libc::SOL_SOCKET, libc::SO_RXQ_OVFL, "SO_RXQ_OVFL");
    let stamps = options.timestamps;
    sockopt::try_on(socket, stamps, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, "SO_TIMESTAMPNS")
}

/// The kernel's 32-bit drop counter, carried on past its wrap.
#[derive(Debug, Default)]
struct DropCounter {
    last: u32,
    total: u64,
}

impl DropCounter {
    fn saw(&mut self, counter: u32) {
        self.total += u64::from(counter.wrapping_sub(self.last));
        self.last = counter;
    }
}

/// Contents of one arrival's control messages.
struct Arrival {
    bytes: usize,
    segment_bytes: usize,
    src: SocketAddr,
    ecn: Ecn,
    stamp_ns: u64,
    drops: Option<u32>,
}

impl Arrival {
    /// The start and the length of each datagram, in bytes. An empty one is a datagram, too.
    fn datagrams(&self) -> impl Iterator<Item = (usize, usize)> {
        let (bytes, segment_bytes) = (self.bytes, self.segment_bytes);
        let count = bytes.div_ceil(segment_bytes).max(1);
        (0..count).map(move |index| {
            let start = index * segment_bytes;
            (start, segment_bytes.min(bytes - start))
        })
    }

    fn datagram<'a>(
        &self,
        data: &'a [u8],
        placed: Option<&'a [u8]>,
        now_ns: u64,
    ) -> RxDatagram<'a> {
        let stamped = self.stamp_ns != 0;
        let hold_ns = if stamped { now_ns.saturating_sub(self.stamp_ns) } else { 0 };
        RxDatagram { data, placed, src: self.src, ecn: self.ecn, trimmed: false, hold_ns }
    }
}

/// The kernel's side of one receive call. It lives on the stack; it writes only the first `vlen` of each array.
struct Frame {
    headers: [MaybeUninit<libc::mmsghdr>; SLOTS],
    names: [MaybeUninit<RawAddr>; SLOTS],
    controls: [MaybeUninit<Control>; SLOTS],
    received: usize,
}

impl Frame {
    fn new() -> Self {
        Self {
            headers: [const { MaybeUninit::uninit() }; SLOTS],
            names: [const { MaybeUninit::uninit() }; SLOTS],
            controls: [const { MaybeUninit::uninit() }; SLOTS],
            received: 0,
        }
    }

    /// Receives `vlen` messages into `parts`, as many of them for each.
    fn receive(
        &mut self,
        socket: &Socket,
        parts: &mut [libc::iovec],
        vlen: usize,
    ) -> io::Result<usize> {
        let each = parts.len() / vlen;
        for (slot, parts) in parts.chunks_mut(each).enumerate() {
            // SAFETY: a header is integers and pointers, for which zero is a valid value.
            let mut header: libc::mmsghdr = unsafe { std::mem::zeroed() };
            header.msg_hdr.msg_iov = parts.as_mut_ptr();
            header.msg_hdr.msg_iovlen = parts.len();
            header.msg_hdr.msg_name = (&raw mut *self.names[slot].write(RawAddr::zeroed())).cast();
            header.msg_hdr.msg_namelen = RawAddr::BYTES;
            header.msg_hdr.msg_control = self.controls[slot].as_mut_ptr().cast();
            header.msg_hdr.msg_controllen = size_of::<Control>();
            self.headers[slot].write(header);
        }
        let (fd, headers) = (socket.as_raw_fd(), self.headers.as_mut_ptr().cast());
        // SAFETY: the first `vlen` headers are written, and point to parts, a name and a control
        // buffer of the stated sizes that all outlive the call. The parts are a slot's, and places
        // for which the caller of `recv_planned` vouches.
        match unsafe { calls::recvmmsg(fd, headers, vlen, libc::MSG_DONTWAIT) } {
            Ok(received) => {
                self.received = received;
                Ok(received)
            }
            Err(error) if is_empty(&error) => Ok(0),
            Err(error) => Err(error),
        }
    }

    fn arrival(&self, slot: usize) -> Option<Arrival> {
        assert!(slot < self.received, "slot {slot} was not received into");
        // SAFETY: `receive` wrote the headers and names of all received slots.
        let (header, name) =
            unsafe { (self.headers[slot].assume_init_ref(), self.names[slot].assume_init_ref()) };
        if header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0 {
            return None;
        }
        let mut arrival = Arrival {
            bytes: header.msg_len as usize,
            segment_bytes: SLOT_BYTES,
            src: name.decode(header.msg_hdr.msg_namelen)?,
            ecn: Ecn::NotEct,
            stamp_ns: 0,
            drops: None,
        };
        // SAFETY: the header's control pointer is this frame's buffer, of which the kernel wrote
        // and counted the control messages.
        unsafe { read_control(&header.msg_hdr, &mut arrival) };
        Some(arrival)
    }
}

/// # Safety
/// `header` was filled by a successful receive, and its control buffer is still there.
unsafe fn read_control(header: &libc::msghdr, arrival: &mut Arrival) {
    // SAFETY: the caller vouches for the header.
    let mut next = unsafe { libc::CMSG_FIRSTHDR(header) };
    while !next.is_null() {
        // SAFETY: the macros give only headers that lie within the control buffer.
        let (cmsg, data) = unsafe { (&*next, libc::CMSG_DATA(next)) };
        // SAFETY: the kernel defines the type of each message's data: a byte for IP_TOS, an int
        // for the traffic class and the segment size, a u32 for the drops, and a timespec.
        unsafe {
            match (cmsg.cmsg_level, cmsg.cmsg_type) {
                (libc::IPPROTO_IP, libc::IP_TOS) => arrival.ecn = Ecn::from_tos(data.read()),
                (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                    arrival.ecn = Ecn::from_tos(data.cast::<i32>().read_unaligned() as u8);
                }
                (libc::SOL_UDP, libc::UDP_GRO) => {
                    let bytes = data.cast::<i32>().read_unaligned();
                    arrival.segment_bytes = usize::try_from(bytes).unwrap_or(0).max(1);
                }
                (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) => {
                    arrival.drops = Some(data.cast::<u32>().read_unaligned());
                }
                (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => {
                    let stamp = data.cast::<libc::timespec>().read_unaligned();
                    arrival.stamp_ns = clock::timespec_ns(&stamp);
                }
                _ => {}
            }
            next = libc::CMSG_NXTHDR(header, next);
        }
    }
}

/// The receive slots: mapped, so that a slot costs memory only once it is used.
#[derive(Debug)]
struct Slots {
    base: NonNull<u8>,
    count: usize,
}

// SAFETY: the mapping belongs to this value alone and is tied to no thread.
unsafe impl Send for Slots {}

impl Slots {
    fn map(count: usize) -> io::Result<Self> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let bytes = count * SLOT_BYTES;
        // SAFETY: a new anonymous mapping at an address of the kernel's choice touches no other.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { base, count })
    }

    /// Byte `start` of a slot.
    fn at(&mut self, slot: usize, start: usize) -> *mut u8 {
        assert!(slot < self.count && start <= SLOT_BYTES, "byte {start} of slot {slot}");
        // SAFETY: the mapping has `count` slots.
        unsafe { self.base.as_ptr().add(slot * SLOT_BYTES + start) }
    }

    /// # Safety
    /// The slot is not written while the bytes are borrowed.
    unsafe fn bytes(&self, slot: usize, start: usize, bytes: usize) -> &[u8] {
        let fits = slot < self.count && start + bytes <= SLOT_BYTES;
        assert!(fits, "{bytes} bytes from {start} of slot {slot}");
        let at = slot * SLOT_BYTES + start;
        // SAFETY: within the mapping, which is readable and zeroed from the start.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr().add(at), bytes) }
    }

    /// Copies the parts of an arrival of `bytes` from their places to their position in the first slot.
    ///
    /// # Safety
    /// The places can be read.
    unsafe fn take_back(&mut self, bytes: usize, plan: &Plan) {
        for (start, place) in plan.starts() {
            let gap = start + plan.head_bytes();
            let there = bytes.saturating_sub(gap).min(place.len_bytes);
            let (from, to) = (place.at.as_ptr(), self.at(0, gap));
            // SAFETY: the caller vouches for the place; the gap in the slot is as long, and the
            // slots are this port's own.
            unsafe { std::ptr::copy_nonoverlapping(from, to, there) };
        }
    }
}

impl Drop for Slots {
    fn drop(&mut self) {
        // SAFETY: the mapping was made with this size, and no borrow of it is left.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.count * SLOT_BYTES) };
    }
}
