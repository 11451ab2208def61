//! The port of a simulated host: the library's loop takes arrivals from it, and gives it a datagram when the uplink can
//! take one.

use crate::ids::{host_of, name_of};
use crate::packet::{Packet, ZEROS};
use erd_core::run::{Clock, Outside};
use erd_port::udp::{NetError, Next, Plan, RxDatagram, SendReport, Taken};
use erd_port::{Burst, FramePort, Port};
use erd_rd::Nanos;
use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

/// Bytes of a segment before its payload.
const SEGMENT_HEAD_BYTES: usize = erd_rd::Expected::HEAD_BYTES;

thread_local! {
    /// Zeros, except while a datagram stands there.
    static DATAGRAM: RefCell<Vec<u8>> = RefCell::new(ZEROS.to_vec());
}

/// Shows `f` a datagram in one piece. Its payload is not written: it stands there already.
fn with_payload(head: &[u8], payload_bytes: usize, f: impl FnOnce(&[u8])) {
    DATAGRAM.with_borrow_mut(|datagram| {
        datagram[..head.len()].copy_from_slice(head);
        f(&datagram[..head.len() + payload_bytes]);
        datagram[..head.len()].fill(0);
    });
}

/// The types outside the loop of a simulated host.
#[derive(Debug)]
pub enum Simulated {}

impl Outside for Simulated {
    type Port = SimPort;
    type Frames = NoFrames;
    type Clock = SimClock;
}

/// Virtual time.
#[derive(Debug, Default)]
pub struct SimClock(pub Nanos);

impl Clock for SimClock {
    fn now_ns(&self) -> u64 {
        self.0
    }
}

/// See the module.
#[derive(Debug, Default)]
pub struct SimPort {
    /// Packets that came and that the engine has not seen.
    pub(crate) arrivals: PacketList,
    /// Datagrams that the uplink can take.
    pub(crate) room: usize,
    /// Those that it takes.
    pub(crate) leaving: PacketList,
}

/// A list of packets that keeps its buffers.
#[derive(Debug, Default)]
pub(crate) struct PacketList {
    list: Vec<Packet>,
    len: usize,
}

impl PacketList {
    /// The place of one more packet, with what an earlier one left there.
    pub(crate) fn next(&mut self) -> &mut Packet {
        if self.len == self.list.len() {
            self.list.push(Packet::default());
        }
        self.len += 1;
        &mut self.list[self.len - 1]
    }

    /// No packet is there.
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Takes all packets out. Their buffers stay.
    pub(crate) fn drain(&mut self) -> &mut [Packet] {
        let len = std::mem::take(&mut self.len);
        &mut self.list[..len]
    }
}

impl Port for SimPort {
    fn recv(&mut self, _: usize, mut f: impl FnMut(RxDatagram<'_>)) -> io::Result<usize> {
        let packets = self.arrivals.drain();
        for packet in &mut *packets {
            let (src, ecn, trimmed) = (name_of(packet.from), packet.ecn, packet.trimmed);
            let mut hand_in = |data: &[u8], placed| {
                f(RxDatagram { data, placed, src, ecn, trimmed, hold_ns: 0 });
            };
            match packet.payload_bytes as usize {
                0 => hand_in(&packet.head, None),
                len if packet.head.len() == SEGMENT_HEAD_BYTES => {
                    hand_in(&packet.head, Some(&ZEROS[..len]));
                }
                len => with_payload(&packet.head, len, |datagram| hand_in(datagram, None)),
            }
        }
        Ok(packets.len())
    }

    /// Nothing arrives within a step: time stands still.
    fn is_drained(&self) -> bool {
        self.arrivals.is_empty()
    }

    /// Payload has no places here, since nobody reads it.
    fn tampers(&self) -> bool {
        true
    }

    fn look_ahead(&mut self, _: &Plan, _: impl FnOnce(&[u8]) -> bool) -> io::Result<Next> {
        Ok(Next::Nothing)
    }

    unsafe fn recv_planned(
        &mut self,
        _: &Plan,
        _: impl FnMut(usize, &[u8]) -> bool,
        _: impl FnMut(RxDatagram<'_>),
    ) -> io::Result<Taken> {
        Ok(Taken::default())
    }

    fn room(&self) -> usize {
        self.room
    }

    unsafe fn send(&mut self, bursts: &[Burst<'_>]) -> SendReport {
        for burst in bursts {
            let Some(to) = host_of(burst.dst.addr()) else { continue };
            let mut parts = burst.iov;
            // A burst has several datagrams once the engine has found that the path carries shorter ones alone.
            while !parts.is_empty() {
                let lens = parts.iter().map(|part| part.iov_len);
                let (datagram, rest) = parts.split_at(first_datagram(lens, burst.segment_bytes));
                parts = rest;
                let packet = self.leaving.next();
                packet.to = to;
                (packet.path, packet.ecn, packet.payload_bytes) = (burst.path, burst.ecn, 0);
                packet.head.clear();
                for (place, part) in datagram.iter().enumerate() {
                    let is_payload = std::ptr::eq(part.iov_base.cast(), ZEROS.as_ptr());
                    if is_payload && place + 1 == datagram.len() {
                        packet.payload_bytes = part.iov_len as u32;
                        continue;
                    }
                    // SAFETY: the caller vouches for the part.
                    let bytes =
                        unsafe { std::slice::from_raw_parts(part.iov_base.cast(), part.iov_len) };
                    packet.head.extend_from_slice(bytes);
                }
            }
        }
        self.room -= bursts.len();
        SendReport { bursts: bursts.len(), ..SendReport::default() }
    }

    fn drain_errors(&mut self, _: impl FnMut(SocketAddr, NetError)) {}

    fn each_fd(&self, _: &mut dyn FnMut(BorrowedFd<'_>)) {}
}

/// How many of a burst's parts, told by their lengths, are its first datagram.
fn first_datagram(lens: impl ExactSizeIterator<Item = usize>, segment_bytes: u32) -> usize {
    let (mut bytes, all) = (0, lens.len());
    for (at, len) in lens.enumerate() {
        bytes += len;
        if bytes >= segment_bytes as usize {
            return at + 1;
        }
    }
    all
}

/// Simulated hosts have no information path.
#[derive(Debug)]
pub enum NoFrames {}

impl FramePort for NoFrames {
    fn send(&mut self, _: SocketAddr, _: &[u8]) -> bool {
        match *self {}
    }

    fn recv(&mut self, _: impl FnMut(&[u8], SocketAddr) -> bool) -> io::Result<usize> {
        match *self {}
    }

    fn next_ns(&self) -> Option<u64> {
        match *self {}
    }

    fn each_fd(&self, _: &mut dyn FnMut(BorrowedFd<'_>)) {
        match *self {}
    }
}
