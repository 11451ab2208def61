//! The port of a simulated host: the library's loop takes arrivals from it, and gives it a datagram when the uplink can
//! take one.

use crate::header::Header;
use crate::ids::{host_of, name_of};
use crate::info_path::SimFrames;
use crate::packet::{PacketList, ZEROS};
use erd_core::run::{Clock, Outside};
use erd_port::udp::{NetError, Next, Plan, RxDatagram, SendReport, Taken};
use erd_port::{Burst, Port};
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
    type Frames = SimFrames;
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
                packet.header = Header::Bytes;
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
