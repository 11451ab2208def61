//! The half of a step that takes arrivals.

use super::carriers::Parts;
use super::guess::Lease;
use super::link::Link;
use super::memory::Memory;
use super::outside::{Clock, Outside};
use erd_port::udp::{Next, RxDatagram, Taken};
use erd_port::{FramePort, Port};
use erd_rd::{Ecn, Endpoint as Engine, RxMeta};
use erd_types::mutants::{Mutant, mutant};
use std::net::SocketAddr;

/// Arrivals (datagrams or GRO batches of up to 64 KiB) taken before answers are sent.
const RECV_BATCH: usize = 4;
/// Time between two looks for UDP while verbs is in use, at least: each takes a system call.
const UDP_EVERY_NS: u64 = 20_000;
/// The same while shared memory is in use, and something has come by UDP in the last [`UDP_TALK_NS`]: the answer of a peer
/// on another host is not to wait for peers on this one.
const UDP_TALK_EVERY_NS: u64 = 2_000;
/// See above.
const UDP_TALK_NS: u64 = 10_000_000;
/// The same while all sessions have shared memory. Only strangers write then.
const UDP_QUIET_EVERY_NS: u64 = 100_000;
/// A look in vain is repeated after so many times what it took, so that looks cost little.
const UDP_PATIENCE: u64 = 16;
/// Time between two such looks at most.
const UDP_EVERY_MAX_NS: u64 = 1_000_000;
/// Shorter arrivals are copied to a region sooner than they are looked at.
const LOOK_WORTH_BYTES: usize = 16 << 10;

impl<O: Outside, M: Memory> Parts<'_, O, M> {
    /// Takes a bounded number of arrivals, and says whether it looked everywhere. Brings `now` up to when
    /// they were read: how long they had waited is reckoned from then. With an earlier time what
    /// came while this thread was not scheduled would seem to have come before it was sent.
    pub(super) fn receive(&mut self, now: &mut u64) -> (usize, bool) {
        if self.has_local() {
            return self.receive_beside_memory(now);
        }
        self.receive_packets(now)
    }

    /// Takes arrivals from shared memory first, and looks for datagrams when it is time.
    fn receive_beside_memory(&mut self, now: &mut u64) -> (usize, bool) {
        let entries = self.receive_local(*now);
        let has_links = self.host.local().and_then(Option::as_mut).is_some_and(|p| p.links() > 0);
        if !has_links || self.carriers.link.has_verbs() {
            let (packets, everywhere) = self.receive_packets(now);
            return (entries + packets, everywhere);
        }
        // Before a timer runs, what it waits for may have come by UDP.
        let has_timer = self.engine.poll_timeout().is_some_and(|at| at <= *now);
        if *now < self.carriers.udp_due_ns && !has_timer {
            return (entries, true);
        }
        let packets = self.receive_udp_in_turn(now);
        if packets > 0 {
            self.carriers.udp_heard_ns = *now;
        }
        let pause_ns = match *now < self.carriers.udp_heard_ns + UDP_TALK_NS {
            _ if packets > 0 => 0,
            true => UDP_TALK_EVERY_NS,
            false => UDP_EVERY_NS,
        };
        let due_ns = self.carriers.udp_due_ns.min(*now + pause_ns);
        self.carriers.udp_due_ns = match packets == 0 && !self.engine.is_on_network() {
            true => due_ns.max(*now + UDP_QUIET_EVERY_NS),
            false => due_ns,
        };
        (entries + packets, true)
    }

    fn receive_packets(&mut self, now: &mut u64) -> (usize, bool) {
        if !self.carriers.link.has_verbs() {
            return (self.receive_udp(now), true);
        }
        let over_verbs = self.receive_verbs(now);
        self.share_receives(*now);
        if !self.carriers.link.uses_verbs() {
            self.engine.set_ack_spacing(0);
            return (over_verbs + self.receive_udp(now), true);
        }
        self.engine.set_ack_spacing(self.carriers.link.ack_spacing_ns());
        // What came over verbs is answered first.
        let busy_ns = if over_verbs > 0 { UDP_EVERY_MAX_NS } else { 0 };
        if *now < self.carriers.udp_due_ns + busy_ns {
            return (over_verbs, false);
        }
        (over_verbs + self.receive_udp_in_turn(now), true)
    }

    /// Looks for datagrams while another carrier is in use, and says when to look again.
    fn receive_udp_in_turn(&mut self, now: &mut u64) -> usize {
        let begun = self.now_ns();
        let over_udp = self.receive_udp(now);
        let ended = self.now_ns();
        let pause_ns = if over_udp == 0 { UDP_PATIENCE * (ended - begun) } else { 0 };
        self.carriers.udp_due_ns = ended + pause_ns.clamp(UDP_EVERY_NS, UDP_EVERY_MAX_NS);
        over_udp
    }

    fn receive_udp(&mut self, now: &mut u64) -> usize {
        let mut datagrams = 0;
        for _ in 0..RECV_BATCH {
            let Some(lease) = self.carriers.guess.make(self.engine, self.host) else {
                datagrams += self.receive_batch(now);
                break;
            };
            match self.receive_guessed(now, &lease) {
                0 => break,
                more => datagrams += more,
            }
        }
        datagrams + self.receive_info(*now)
    }

    fn receive_verbs(&mut self, now: &mut u64) -> usize {
        let (engine, host) = (&mut *self.engine, &mut *self.host);
        self.carriers.link.recv(now, |now, data, source, tells| {
            let from = SocketAddr::new(source.gid.ip(), 0);
            let meta = RxMeta { ecn: source.ecn, trimmed: false, hold_ns: 0, from };
            let taken = engine.handle_packet(now, &meta, data, host);
            if taken && tells { engine.writer_of(data) } else { None }
        })
    }

    fn receive_batch(&mut self, now: &mut u64) -> usize {
        let (engine, host) = (&mut *self.engine, &mut *self.host);
        let (link, clock) = (&mut self.carriers.link, &self.carriers.clock);
        let mut read_at = None;
        let received = self.carriers.port.recv(RECV_BATCH, |datagram| {
            *now = *read_at.get_or_insert_with(|| clock.now_ns());
            hand_in(*now, &datagram, link, engine, host);
        });
        received.unwrap_or_else(|error| {
            tracing::warn!(%error, "cannot receive");
            0
        })
    }

    /// Looks whether what comes next is what is expected in a region. There others may look, and peers read:
    /// so nothing of anybody else's may be there, even for a moment. `None` if nothing comes.
    fn is_worth_placing(&mut self) -> Option<bool> {
        let (port, guess) = (&mut self.carriers.port, &mut self.carriers.guess);
        let first = guess.expected[0];
        let (right, bytes) = match port.look_ahead(&guess.plan, |head| first.is(head)) {
            Ok(Next::Nothing) => return None,
            Ok(Next::Planned { bytes }) => (bytes >= LOOK_WORTH_BYTES, bytes),
            Ok(Next::Other { bytes }) => (false, bytes),
            Err(error) => {
                tracing::warn!(%error, "cannot look at what arrives");
                (false, usize::MAX)
            }
        };
        if !right {
            guess.learn(Taken::default(), bytes as u64);
        }
        Some(right)
    }

    /// Takes one arrival, the expected one if the guess is right.
    fn receive_guessed(&mut self, now: &mut u64, lease: &Lease) -> usize {
        if lease.is_of_a_region() {
            match self.is_worth_placing() {
                Some(true) => {}
                Some(false) => return self.receive_batch(now),
                None => return 0,
            }
        }
        let (engine, host) = (&mut *self.engine, &mut *self.host);
        let carriers = &mut *self.carriers;
        let (link, clock, guess) = (&mut carriers.link, &carriers.clock, &mut carriers.guess);
        let expected = &guess.expected;
        let (mut bytes, mut read_at) = (0, None);
        let is_expected = |place: usize, head: &[u8]| {
            expected[place].is(head) || mutant(Mutant::TrustsEveryGuess)
        };
        let mut wipes = lease.is_of_a_region();
        // What landed where something else was expected is not for those who may read the region. A look ahead sees the
        // first datagram of an arrival: those behind it may be another session's.
        // SAFETY: as below. No byte of the places has been received, and the port has the datagrams elsewhere.
        let wipe = || unsafe { guess.plan.wipe() };
        let take = |datagram: RxDatagram<'_>| {
            // Before the engine places any of these datagrams there: some may be the expected ones.
            if std::mem::take(&mut wipes) && datagram.placed.is_none() {
                if mutant(Mutant::WipesAfterHandingIn) {
                    wipes = true;
                } else {
                    wipe();
                }
            }
            bytes += datagram.data.len() as u64;
            *now = *read_at.get_or_insert_with(|| clock.now_ns());
            hand_in(*now, &datagram, link, engine, host);
        };
        // Who writes to the places of a write that is under way spoils its writer's bytes alone.
        // SAFETY: the places are of buffers that the application lends until their receives
        // complete, which nobody learns before this step ends, or of a region that the lease
        // keeps open.
        let received = unsafe { carriers.port.recv_planned(&guess.plan, is_expected, take) };
        let taken = received.unwrap_or_else(|error| {
            tracing::warn!(%error, "cannot receive");
            // A place that cannot be written to must not keep everything else from coming in.
            bytes = u64::MAX;
            Taken::default()
        });
        if wipes && taken.datagrams > 0 {
            // The port has dropped it.
            wipe();
        }
        guess.learn(taken, bytes);
        taken.datagrams
    }

    fn receive_info(&mut self, now: u64) -> usize {
        let (engine, host) = (&mut *self.engine, &mut *self.host);
        let Some(path) = &mut self.carriers.info_path else { return 0 };
        let received = path.recv(|frame, from| {
            let meta = RxMeta { ecn: Ecn::NotEct, trimmed: false, hold_ns: 0, from };
            engine.handle_frame(now, &meta, frame, host)
        });
        received.unwrap_or_else(|error| {
            tracing::warn!(%error, "cannot receive from the information path");
            0
        })
    }
}

/// Gives a datagram to the link if it is one between ports, otherwise to the engine.
fn hand_in(
    now: u64,
    datagram: &RxDatagram<'_>,
    link: &mut Link,
    engine: &mut Engine,
    host: &mut impl Memory,
) {
    let &RxDatagram { data, placed, ecn, trimmed, hold_ns, src } = datagram;
    let meta = RxMeta { ecn, trimmed, hold_ns, from: src };
    match placed {
        Some(payload) => engine.handle_expected(now, &meta, data, payload, host),
        None if link.takes(data, src, now, |peer| host.admits(peer)) => {}
        None => {
            engine.handle_packet(now, &meta, data, host);
        }
    }
}
