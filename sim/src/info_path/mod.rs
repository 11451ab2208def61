//! The information path of a simulated host: a reliable ordered stream to each other host, which stands for TCP, beside
//! the datagrams. The engine hands it acknowledgements, and takes those that arrive.
//!
//! - `sender`: congestion control, repeats and the timer;
//! - `receiver`: frames in order.
//!
//! Streams are open from the beginning, one for each direction, as the library has connections. Each frame is acknowledged at once,
//! by a packet of its own. The packets of a stream share the path number 0, and carry no ECN codepoint.

mod counts;
mod receiver;
mod sender;

pub use counts::FrameCounts;

use crate::header::{Header, StreamHeader};
use crate::ids::{HostId, host_of, name_of};
use crate::packet::{Packet, PacketList};
use crate::time::{Picos, from_ns, to_ns};
use erd_port::FramePort;
use erd_rd::Ecn;
use erd_rd::wire::Reader;
use erd_rd::wire::ack::{AckState, Sections};
use erd_rd::wire::header::HEADER_BYTES;
use receiver::StreamReceiver;
use sender::StreamSender;
use serde::Deserialize;
use std::collections::{BTreeSet, HashMap};
use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

/// Shortest timeout of a stream: Linux's `TCP_RTO_MIN`.
pub const RTO_MIN_PS: Picos = from_ns(200_000_000);

/// How hosts use information paths.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InfoPathSettings {
    /// What goes there.
    pub carries: Carries,
    /// Shortest timeout.
    pub rto_min_ps: Picos,
}

/// What goes over the information path. Everything else is a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Carries {
    /// All acknowledgements, as with `FI_ERD_INFO_PATH=tcp`.
    Acks,
    /// Those that report losses, as in the ERD paper (section 4.4).
    Nacks,
}

/// See the module.
#[derive(Debug)]
pub struct SimFrames {
    settings: InfoPathSettings,
    now: Picos,
    /// One for each host that this one sends to.
    senders: HashMap<HostId, Outbound>,
    /// One for each host that sends to this one.
    receivers: HashMap<HostId, StreamReceiver>,
    /// When the senders' timers are due.
    timers: BTreeSet<(Picos, HostId)>,
    /// Frames that came and that the engine has not seen: at most those of one turn of the host, which then hands them in.
    arrived: Vec<(HostId, Vec<u8>)>,
    /// Frames that came out of streams so far, and packets that came.
    delivered: u64,
    packets: u64,
    /// Packets that leave.
    pub(crate) leaving: PacketList,
}

/// A stream to another host, and when its timer was entered for.
#[derive(Debug)]
struct Outbound {
    stream: StreamSender,
    entered: Option<Picos>,
}

impl SimFrames {
    /// All streams of a host.
    #[must_use]
    pub fn new(settings: InfoPathSettings) -> SimFrames {
        SimFrames {
            settings,
            now: 0,
            senders: HashMap::new(),
            receivers: HashMap::new(),
            timers: BTreeSet::new(),
            arrived: Vec::new(),
            delivered: 0,
            packets: 0,
            leaving: PacketList::default(),
        }
    }

    /// What it has carried.
    #[must_use]
    pub fn counts(&self) -> FrameCounts {
        let (delivered, packets) = (self.delivered, self.packets);
        let mut all = FrameCounts { delivered, packets, ..FrameCounts::default() };
        for outbound in self.senders.values() {
            all.add(outbound.stream.counts());
        }
        all
    }

    /// When it wants to be woken.
    pub(crate) fn next_due(&self) -> Option<Picos> {
        self.timers.first().map(|(due, _)| *due)
    }

    /// Time goes on: runs the timers that are due.
    pub(crate) fn step(&mut self, now: Picos) {
        self.now = now;
        while let Some((_, to)) = self.timers.first().copied().filter(|(due, _)| *due <= now) {
            if let Some(outbound) = self.senders.get_mut(&to) {
                outbound.stream.run_timer(now);
            }
            self.pump(to);
        }
    }

    /// Takes a packet of a stream.
    pub(crate) fn receive(&mut self, now: Picos, packet: &mut Packet, header: StreamHeader) {
        self.now = now;
        self.packets += 1;
        let from = packet.from;
        match header {
            StreamHeader::Frame { number } => {
                let (frame, arrived) = (std::mem::take(&mut packet.head), &mut self.arrived);
                let receiver = self.receivers.entry(from).or_default();
                let before = arrived.len();
                let expected = receiver.take(number, frame, |frame| arrived.push((from, frame)));
                self.delivered += (arrived.len() - before) as u64;
                write(self.leaving.next(), from, StreamHeader::Ack { expected }, &[]);
            }
            StreamHeader::Ack { expected } => {
                if let Some(outbound) = self.senders.get_mut(&from) {
                    outbound.stream.acknowledged(now, expected);
                }
                self.pump(from);
            }
        }
    }

    /// Sends what a stream may send, and enters its timer.
    fn pump(&mut self, to: HostId) {
        let Some(Outbound { stream, entered }) = self.senders.get_mut(&to) else { return };
        while let Some((number, frame)) = stream.next_out(self.now) {
            write(self.leaving.next(), to, StreamHeader::Frame { number }, frame);
        }
        let due = stream.due();
        if due != *entered {
            entered.map(|at| self.timers.remove(&(at, to)));
            due.map(|at| self.timers.insert((at, to)));
            *entered = due;
        }
    }
}

fn write(packet: &mut Packet, to: HostId, header: StreamHeader, frame: &[u8]) {
    packet.to = to;
    (packet.path, packet.ecn, packet.payload_bytes) = (0, Ecn::NotEct, 0);
    packet.header = Header::Stream(header);
    packet.head.clear();
    packet.head.extend_from_slice(frame);
}

/// An acknowledgement names packets that are missing.
fn reports_losses(bytes: &[u8]) -> bool {
    let Some(body) = bytes.get(HEADER_BYTES..) else { return false };
    let mut reader = Reader::new(body);
    let sections = AckState::parse(&mut reader).and_then(|_| Sections::parse(&mut reader));
    sections.is_ok_and(|sections| sections.nacks().next().is_some())
}

impl FramePort for SimFrames {
    fn send(&mut self, to: SocketAddr, bytes: &[u8]) -> bool {
        let Some(to) = host_of(to) else { return false };
        if self.settings.carries == Carries::Nacks && !reports_losses(bytes) {
            return false;
        }
        let rto_min_ps = self.settings.rto_min_ps;
        let open = || Outbound { stream: StreamSender::new(rto_min_ps), entered: None };
        let taken = self.senders.entry(to).or_insert_with(open).stream.push(bytes);
        self.pump(to);
        taken
    }

    fn recv(&mut self, mut f: impl FnMut(&[u8], SocketAddr) -> bool) -> io::Result<usize> {
        let count = self.arrived.len();
        for (from, frame) in self.arrived.drain(..) {
            f(&frame, name_of(from));
        }
        Ok(count)
    }

    fn next_ns(&self) -> Option<u64> {
        self.next_due().map(to_ns)
    }

    fn each_fd(&self, _: &mut dyn FnMut(BorrowedFd<'_>)) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_pcg::Pcg32;
    use rand_pcg::rand_core::{Rng, SeedableRng};

    const DELAY_PS: Picos = from_ns(5_000);

    /// Two hosts. Packets take [`DELAY_PS`] and up to twice that, and a share of them is lost.
    struct Pair {
        hosts: [SimFrames; 2],
        under_way: Vec<(Picos, usize, Packet)>,
        rng: Pcg32,
        lost: f64,
    }

    impl Pair {
        fn new(seed: u64, lost: f64) -> Pair {
            let settings =
                InfoPathSettings { carries: Carries::Acks, rto_min_ps: from_ns(1_000_000) };
            let hosts = [SimFrames::new(settings), SimFrames::new(settings)];
            Pair { hosts, under_way: Vec::new(), rng: Pcg32::seed_from_u64(seed), lost }
        }

        fn chance(&mut self) -> f64 {
            f64::from(self.rng.next_u32()) / 4_294_967_296.0
        }

        /// Takes what leaves a host.
        fn carry(&mut self, now: Picos, from: usize) {
            for mut packet in self.hosts[from].leaving.drain().to_vec() {
                packet.from = HostId(from as u32);
                let takes = DELAY_PS + (DELAY_PS as f64 * self.chance()) as Picos;
                if self.chance() >= self.lost {
                    self.under_way.push((now + takes, 1 - from, packet));
                }
            }
        }

        /// Runs until nothing happens any more. Returns the frames that host 1 got.
        fn run(&mut self) -> Vec<Vec<u8>> {
            let mut came = Vec::new();
            loop {
                let arrival = self.under_way.iter().map(|(at, ..)| *at).min();
                let due = self.hosts.iter().filter_map(SimFrames::next_due).min();
                let Some(now) = arrival.into_iter().chain(due).min() else { return came };
                for host in &mut self.hosts {
                    host.step(now);
                }
                let here = |packet: &mut (Picos, usize, Packet)| packet.0 <= now;
                for (_, to, mut packet) in self.under_way.extract_if(.., here).collect::<Vec<_>>() {
                    let Header::Stream(header) = packet.header else { unreachable!() };
                    self.hosts[to].receive(now, &mut packet, header);
                }
                let took = self.hosts[1].recv(|frame, from| {
                    assert_eq!(from, name_of(HostId(0)));
                    came.push(frame.to_vec());
                    true
                });
                took.expect("it cannot fail");
                (0..2).for_each(|host| self.carry(now, host));
            }
        }
    }

    #[test]
    fn all_frames_arrive_once_and_in_order_whatever_is_lost() {
        for (seed, lost) in (0..100).flat_map(|seed| [(seed, 0.0), (seed, 0.05), (seed, 0.3)]) {
            let mut pair = Pair::new(seed, lost);
            let frames: Vec<Vec<u8>> = (0..200_u16).map(|at| at.to_be_bytes().to_vec()).collect();
            for frame in &frames {
                assert!(pair.hosts[0].send(name_of(HostId(1)), frame));
            }
            pair.carry(0, 0);
            assert!(pair.run() == frames, "seed {seed}, {lost} lost");
            let counts = pair.hosts[0].counts();
            assert_eq!((counts.frames, counts.acknowledged), (200, 200));
            assert_eq!(pair.hosts[1].counts().delivered, 200);
            assert!(lost == 0.0 || counts.repeats > 0, "seed {seed}, {lost} lost");
        }
    }

    #[test]
    fn frames_that_are_no_acknowledgements_report_no_losses() {
        assert!(!reports_losses(&[]));
        assert!(!reports_losses(&[0xff; HEADER_BYTES + 10]));
        assert!(!reports_losses(&[0; 200]));
    }
}
