//! Acknowledging: when the next acknowledgement is due, and its contents (protocol.md §6).
//!
//! `Peer` reports each packet and asks when one is due. [`Received`] keeps which packets came. This part knows neither
//! their contents nor the limits for the sender.

use super::needless::Needless;
use super::rare::Moment;
use super::received::Received;
use crate::cc::AckPolicy;
use crate::config::Config;
use crate::stats::DropReason;
use crate::units::{MILLISECOND, Nanos, Psn, SECOND};
use crate::wire::ack::{
    ACK_BYTES, ACK_ECHO, AckState, ECHOES_MAX, Echo, NackRange, SECTIONS_HEAD_BYTES,
};
use crate::wire::header::{FLAG_ACK_REQUEST, FLAG_AWAITED, HEADER_BYTES, Header};
use alloc::vec::Vec;

/// Most segments of a message that gets one acknowledgement: 64 KiB in packets of Ethernet. Each burst of them has a record, so no more
/// than [`ECHOES_MAX`].
pub(super) const LONE_SEGMENTS_MAX: u32 = 48;
/// Longest wait for the rest of such a message.
const LONE_WAIT_MAX_NS: Nanos = MILLISECOND;
/// Acknowledgement packets in a row after which no message of this side is expected to carry the next.
const ACKS_ALONE_MAX: u32 = 4;
/// Bitmap words that an acknowledgement packet always has room for.
const SACK_WORDS_MIN: usize = 8;

/// The packet whose round trip the next acknowledgement measures.
#[derive(Clone, Copy, Debug)]
struct LastPacket {
    sent_at_ns: u32,
    path: u8,
    /// Time at which the port received it, on our clock.
    received_at: Nanos,
    /// An acknowledgement has reported it. A later one must not count the time since then as time that the packet
    /// waited here.
    told: bool,
}

/// An accepted data packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Taken {
    pub received_at: Nanos,
    /// It has a congestion mark.
    pub ce: bool,
    pub wire_bytes: u32,
    /// Send order of its eager message, if it is a segment of one that gets one acknowledgement.
    pub part_of: Option<u32>,
}

/// Inputs to the timing: the session's round trip and datagram size, and the driver's spacing.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace<'a> {
    pub cfg: &'a Config,
    pub spacing_ns: Nanos,
    pub rtt_ns: Nanos,
    pub datagram_bytes: u16,
}

impl Pace<'_> {
    /// Spacing of bitmap scans: T = 2.5 round trips (the paper's 2 to 3), floored.
    fn scan_ns(&self) -> Nanos {
        (self.rtt_ns * 5 / 2).max(self.cfg.scan_min_ns)
    }
}

/// Parts of an acknowledgement packet beyond its state.
#[derive(Debug)]
pub(super) struct Details {
    /// Most words of [`Received::sack`].
    pub sack_words: usize,
    pub nacks: Vec<NackRange>,
    pub echoes: Vec<Echo>,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Acks {
    received: Received,
    policy: Option<AckPolicy>,
    due_at: Moment,
    /// Time of the last acknowledgement.
    acked_at: Nanos,
    /// Acknowledgement packets since a message of this side last left that one could have ridden on.
    alone: u32,
    /// Path of a probe to answer.
    probe_answer: Option<u8>,
    unacked_packets: u32,
    /// Messages in the packet being taken: a lone one may soon be answered by another.
    messages_in_packet: u32,
    /// [`Config::prompt_acks`]: something was asked for since all was there.
    is_asked: bool,
    /// [`Config::prompt_acks`]: the next packet is not the sender's first one.
    has_begun: bool,
    /// The packet being taken ended an eager message of several packets.
    ended_message: bool,
    /// The eager message that all unacknowledged packets are part of, by its send order if it comes in segments, and
    /// when its acknowledgement is due.
    lone: Option<(Option<u32>, Nanos)>,
    /// Records for the next acknowledgement, at most [`ECHOES_MAX`]. Until it is written, their
    /// hold times are the times of arrival.
    echoes: Vec<Echo>,
    last: Option<LastPacket>,
    latest_sent_at_ns: u32,
    /// From then on any send time counts as later.
    latest_until: Nanos,
    recv_bytes: u32,
    ce_bytes: u32,
    needless: Needless,
    /// Needless repetitions so far.
    spurious: u16,
}

impl Acks {
    /// State of a new session, whose sender's controller has this policy.
    pub fn new(first_psn: Psn, policy: AckPolicy) -> Acks {
        Acks { received: Received::new(first_psn), policy: Some(policy), ..Acks::default() }
    }

    /// Takes the next packet for the sender's first one.
    pub fn begin_again(&mut self) {
        self.has_begun = false;
    }

    /// The scoreboard of packets that came.
    pub fn received(&self) -> &Received {
        &self.received
    }

    /// Sets the next acknowledgement to `at`, whatever was due before.
    pub fn due(&mut self, at: Nanos) {
        self.due_at = Moment::at(at);
    }

    /// Notes a duplicate.
    pub fn repeated(&mut self, now: Nanos, h: &Header) {
        let is_needless = self.needless.came_again(Psn(h.psn), h.attempt);
        self.spurious = self.spurious.wrapping_add(u16::from(is_needless));
        self.due(now);
    }

    /// Notes a packet that came without its payload.
    ///
    /// # Errors
    /// The drop reason if it is not missing.
    pub fn trimmed(&mut self, now: Nanos, h: &Header) -> Result<(), DropReason> {
        self.received.trimmed(Psn(h.psn), h.attempt)?;
        self.due(now);
        Ok(())
    }

    /// Notes a probe, which needs an answer.
    ///
    /// # Errors
    /// The drop reason if it names packets beyond the window.
    pub fn probed(&mut self, now: Nanos, h: &Header, pace: Pace<'_>) -> Result<(), DropReason> {
        self.received.told(Psn(h.psn), now, pace.scan_ns())?;
        self.note_sent_at(now, h.sent_at_ns);
        self.probe_answer = Some(h.path);
        Ok(())
    }

    /// Begins a packet, with no message so far.
    pub fn begin_packet(&mut self) {
        self.messages_in_packet = 0;
    }

    /// Counts one more message in the packet.
    pub fn has_message(&mut self) {
        self.messages_in_packet += 1;
    }

    /// Notes that the packet ended an eager message of several packets.
    pub fn has_end(&mut self) {
        self.ended_message = true;
    }

    /// Ends the packet, and decides when the next acknowledgement is due.
    pub fn taken(&mut self, now: Nanos, h: &Header, taken: &Taken, pace: Pace<'_>) {
        self.received.enter(Psn(h.psn), now, pace.scan_ns());
        self.needless.came(Psn(h.psn), h.attempt);
        self.note_sent_at(now, h.sent_at_ns);
        let Taken { received_at, ce, wire_bytes, .. } = *taken;
        let (sent_at_ns, path) = (h.sent_at_ns, h.path);
        self.last = Some(LastPacket { sent_at_ns, path, received_at, told: false });
        self.recv_bytes = self.recv_bytes.wrapping_add(wire_bytes);
        self.ce_bytes = self.ce_bytes.wrapping_add(if ce { wire_bytes } else { 0 });
        self.choose(now, h, taken, pace);
    }

    /// Notes the latest send time seen. Send times wrap, so after a quiet second any time counts as later.
    fn note_sent_at(&mut self, now: Nanos, sent_at_ns: u32) {
        let ahead = sent_at_ns.wrapping_sub(self.latest_sent_at_ns) as i32;
        if ahead > 0 || self.latest_until <= now {
            self.latest_sent_at_ns = sent_at_ns;
            self.latest_until = now + SECOND;
        }
    }

    /// Chooses when to acknowledge, by the policy of the sender's controller (protocol.md §6.1).
    fn choose(&mut self, now: Nanos, h: &Header, taken: &Taken, pace: Pace<'_>) {
        self.unacked_packets += 1;
        let part_of = taken.part_of;
        let ended = core::mem::take(&mut self.ended_message);
        let requested = h.flags & FLAG_ACK_REQUEST != 0 || ended;
        let soon = now + pace.cfg.ack_delay_ns;
        let awaited = h.flags & FLAG_AWAITED != 0;
        let whole = ended || (awaited && !h.long && self.messages_in_packet == 1);
        let due = match (whole, requested) {
            // In the next step: first the application gets the message.
            (true, _) if awaited => Some(now + 1),
            (true, _) => Some(soon),
            // The rest of the message may come soon.
            (false, false) if part_of.is_some() => {
                let rest_ns = (pace.rtt_ns / 2).min(LONE_WAIT_MAX_NS);
                Some(now + rest_ns.max(pace.cfg.ack_delay_ns))
            }
            _ => None,
        };
        let waits = !pace.cfg.prompt_acks && self.is_lone(part_of);
        let lone = due.filter(|_| waits).map(|due| (part_of, due));
        let stream = h.long || (self.messages_in_packet > 1 && !self.answers_to(taken, pace));
        let due = match self.policy {
            Some(AckPolicy::PerPacket) => {
                self.note_echo(h, taken);
                match stream || self.unacked_packets > 1 {
                    true if requested => Some(now),
                    true => Some(self.spaced(now, pace)),
                    false => Some(soon),
                }
            }
            Some(AckPolicy::Coalesced { packets }) => {
                let full = self.unacked_packets >= u32::from(packets);
                match pace.cfg.prompt_acks {
                    true => (self.is_pressing(taken, requested) || full).then_some(now),
                    false => Some(if full || (requested && h.long) { now } else { soon }),
                }
            }
            Some(AckPolicy::NackOnly) | None if !requested => None,
            Some(AckPolicy::NackOnly) | None => Some(if stream { now } else { soon }),
        };
        let before = core::mem::replace(&mut self.lone, lone);
        if let Some(mut due) = due {
            if let Some((_, at)) = lone {
                due = at;
                // The acknowledgement of the message's earlier segments moves to this one's time.
                if self.due_at.get() == before.map(|(_, at)| at) {
                    self.due_at = Moment::NONE;
                }
            }
            self.due_at = self.due_at.earlier(due);
        }
    }

    /// True for the packets that [`Config::prompt_acks`] lets nothing wait for: the first one, a marked one, one that
    /// asks, and then one that leaves no packet missing.
    fn is_pressing(&mut self, taken: &Taken, requested: bool) -> bool {
        self.is_asked |= requested;
        let is_whole = self.is_asked && !self.received.has_holes();
        self.is_asked &= !is_whole;
        let is_first = !core::mem::replace(&mut self.has_begun, true);
        is_first || taken.ce || requested || is_whole
    }

    /// Time (ns) of an unrequested acknowledgement of a stream: now, unless writing them costs this host too much time.
    /// Then before the sender's window or the room for records ends.
    fn spaced(&self, now: Nanos, pace: Pace<'_>) -> Nanos {
        if self.echoes.len() >= ECHOES_MAX / 2 {
            return now;
        }
        now.max(self.acked_at + pace.spacing_ns.min(pace.rtt_ns / 4))
    }

    /// True if this side will likely answer this bundle soon: it lately sent a message, and so small a bundle means
    /// that its sender had no more to send.
    fn answers_to(&self, taken: &Taken, pace: Pace<'_>) -> bool {
        self.alone < ACKS_ALONE_MAX && taken.wire_bytes <= u32::from(pace.datagram_bytes) / 2
    }

    /// True if all unacknowledged packets are of one short message, or this one is the only one.
    fn is_lone(&self, part_of: Option<u32>) -> bool {
        let same = part_of.is_some() && self.lone.is_some_and(|(first, _)| first == part_of);
        let alone = match self.unacked_packets {
            1 => true,
            more => more <= LONE_SEGMENTS_MAX && same,
        };
        alone && !self.received.has_holes()
    }

    /// Adds a packet to the records for the next acknowledgement.
    fn note_echo(&mut self, h: &Header, taken: &Taken) {
        let ce = u8::from(taken.ce);
        if let Some(last) = self.echoes.last_mut()
            && (last.sent_at_ns, last.path) == (h.sent_at_ns, h.path)
            && Psn(last.psn).plus(last.count.into()) == Psn(h.psn)
            && last.count < u8::MAX
        {
            last.count += 1;
            last.ce += ce;
            return;
        }
        if self.echoes.len() < ECHOES_MAX {
            let (psn, sent_at_ns, path) = (h.psn, h.sent_at_ns, h.path);
            let hold_ns = taken.received_at as u32;
            self.echoes.push(Echo { psn, sent_at_ns, hold_ns, path, count: 1, ce });
        }
    }

    /// True if an acknowledgement packet is due at once, for parts that fit nowhere else.
    pub fn is_urgent(&self) -> bool {
        self.probe_answer.is_some() || self.received.has_nacks()
    }

    /// True if an acknowledgement is due by `now`.
    pub fn is_due(&self, now: Nanos) -> bool {
        self.due_at.is_past(now)
    }

    /// `None` unless an acknowledgement is due by `now`; then true if for a lone message, so that data may go first.
    pub fn take_due(&mut self, now: Nanos) -> Option<bool> {
        let at = self.due_at.get().filter(|at| *at <= now)?;
        Some(self.lone.take().is_some_and(|(_, due)| due == at))
    }

    /// Time at which [`Acks::take_due`] or [`Acks::scan`] is due.
    pub fn wake_at(&self) -> Nanos {
        let due = [self.due_at.get(), self.received.scan_at()];
        due.into_iter().flatten().fold(Nanos::MAX, Nanos::min)
    }

    /// Scans for packets that stay missing, if a scan is due.
    pub fn scan(&mut self, now: Nanos, pace: Pace<'_>) {
        if self.received.scan_at().is_some_and(|at| at <= now) {
            self.received.scan(now, pace.scan_ns(), pace.cfg.peer_timeout_ns / 8);
        }
    }

    /// The present state, without limits. It counts as sent from now on.
    pub fn state(&mut self, now: Nanos) -> AckState {
        // One that only a scan or a probe brought says nothing of how long the process let its packet wait.
        let was_due = core::mem::take(&mut self.due_at).is_set();
        self.lone = None;
        (self.acked_at, self.unacked_packets) = (now, 0);
        let mut state = AckState {
            cum_psn: self.received.cum().0,
            high_psn: self.received.high().0,
            latest_sent_at_ns: self.latest_sent_at_ns,
            spurious: self.spurious,
            ce_bytes: self.ce_bytes,
            recv_bytes: self.recv_bytes,
            ..AckState::default()
        };
        if let Some(last) = self.last.as_mut().filter(|_| was_due) {
            state.flags |= if core::mem::replace(&mut last.told, true) { 0 } else { ACK_ECHO };
            state.echo_sent_at_ns = last.sent_at_ns;
            state.echo_path = last.path;
            state.hold_ns = u32::try_from(now.saturating_sub(last.received_at)).unwrap_or(u32::MAX);
        }
        state
    }

    /// State to piggyback on a message of this side, if an acknowledgement is due and needs no more than the state.
    pub fn riding(&mut self, now: Nanos) -> Option<AckState> {
        self.alone = 0;
        if !self.due_at.is_set() || self.probe_answer.is_some() || self.received.has_more_to_say() {
            return None;
        }
        // The only record is of the last packet, or of a short burst that ended with it: the state has their round
        // trip, too.
        let held = match self.echoes[..] {
            [] => None,
            [echo] if self.unacked_packets == echo.count.into() => Some(echo.hold_ns),
            _ => return None,
        };
        if held.is_some() && self.unacked_packets > LONE_SEGMENTS_MAX {
            return None;
        }
        let mut state = self.state(now);
        // A record has the round trip of its first packet.
        if let Some(received_at_ns) = held {
            state.hold_ns = (now as u32).wrapping_sub(received_at_ns);
        }
        self.echoes.clear();
        Some(state)
    }

    /// Begins an acknowledgement packet. Returns the path of the probe that it answers, if any.
    pub fn begin_alone(&mut self) -> Option<u8> {
        self.alone = self.alone.saturating_add(1);
        self.probe_answer.take()
    }

    /// The probe that came on this path needs one more answer.
    pub fn answer_again(&mut self, path: u8) {
        self.probe_answer = Some(path);
    }

    /// The packet's parts beyond the state. They count as sent; hand the records back with [`Acks::wrote`].
    pub fn details(&mut self, now: Nanos, datagram_bytes: u16) -> Details {
        let mut echoes = core::mem::take(&mut self.echoes);
        for echo in &mut echoes {
            echo.hold_ns = (now as u32).wrapping_sub(echo.hold_ns);
        }
        let fixed = HEADER_BYTES + ACK_BYTES + SECTIONS_HEAD_BYTES + 16 * echoes.len();
        let room = usize::from(datagram_bytes).saturating_sub(fixed) / 8;
        let nacks = self.received.take_nacks(room.saturating_sub(SACK_WORDS_MIN));
        Details { sack_words: room - nacks.len(), nacks, echoes }
    }

    /// Takes the records' memory back after writing.
    pub fn wrote(&mut self, mut details: Details) {
        details.echoes.clear();
        self.echoes = details.echoes;
    }

    /// Frees heap memory.
    pub fn reclaim(&mut self) {
        self.received.reclaim();
        self.needless.reclaim();
        if self.echoes.is_empty() {
            self.echoes = Vec::new();
        }
    }

    /// Checks the invariants between two calls of the endpoint.
    ///
    /// # Panics
    /// If one is broken.
    pub fn check(&self) {
        self.received.check();
        assert!(self.echoes.len() <= ECHOES_MAX, "an acknowledgement takes no more records");
        let told: u32 = self.echoes.iter().map(|echo| u32::from(echo.count)).sum();
        assert!(told <= self.unacked_packets, "{told} records of packets that are acknowledged");
        assert!(self.echoes.iter().all(|echo| echo.ce <= echo.count), "marks are of packets");
        assert!(!self.ended_message, "no packet is being taken");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::header::PacketKind;

    const RTT: Nanos = 100_000;

    fn config() -> Config {
        Config::new("10.0.0.1:1".parse().expect("an address"), 1, |_, _| 0)
    }

    fn take(acks: &mut Acks, cfg: &Config, now: Nanos, psn: u32, flags: u8) {
        let pace = Pace { cfg, spacing_ns: 0, rtt_ns: RTT, datagram_bytes: 1472 };
        let h = Header {
            flags,
            psn,
            path: 3,
            sent_at_ns: 7,
            long: true,
            ..Header::new(PacketKind::Data, 1)
        };
        let taken = Taken { received_at: now - 5, ce: psn == 1, wire_bytes: 1000, part_of: None };
        acks.taken(now, &h, &taken, pace);
        acks.check();
    }

    #[test]
    fn records_of_packets_that_left_together_are_one_until_they_are_written() {
        let (cfg, mut acks) = (config(), Acks::new(Psn(0), AckPolicy::PerPacket));
        for psn in 0..3 {
            take(&mut acks, &cfg, 1000, psn, 0);
        }
        assert_eq!((acks.wake_at(), acks.take_due(1000)), (1000, Some(false)));
        assert_eq!(acks.begin_alone(), None);
        let state = acks.state(1010);
        assert_eq!((state.cum_psn, state.recv_bytes, state.ce_bytes), (3, 3000, 1000));
        assert_eq!((state.flags & ACK_ECHO, state.hold_ns), (ACK_ECHO, 15));
        let details = acks.details(1010, 1472);
        let echo = Echo { psn: 0, sent_at_ns: 7, hold_ns: 15, path: 3, count: 3, ce: 1 };
        assert_eq!(details.echoes, [echo]);
        acks.wrote(details);
        acks.check();
        assert_eq!((acks.take_due(Nanos::MAX), acks.state(1020).flags & ACK_ECHO), (None, 0));
    }

    /// PSN 1 is marked; three packets make an acknowledgement.
    #[test]
    fn prompt_acknowledgements_wait_for_nothing_but_packets() {
        let cfg = Config { prompt_acks: true, ..config() };
        let mut acks = Acks::new(Psn(0), AckPolicy::Coalesced { packets: 3 });
        let mut is_due_after = |psn, flags| {
            take(&mut acks, &cfg, 1000, psn, flags);
            let due =
                (acks.wake_at() == 1000 && acks.take_due(1000).is_some()).then(|| acks.state(1000));
            due.map(|state| state.cum_psn)
        };
        assert_eq!(is_due_after(0, 0), Some(1), "the first");
        assert_eq!(is_due_after(1, 0), Some(2), "a marked one");
        assert_eq!([is_due_after(2, 0), is_due_after(3, 0)], [None, None]);
        assert_eq!(is_due_after(4, 0), Some(5), "the third");
        assert_eq!(is_due_after(6, FLAG_ACK_REQUEST), Some(5), "one that asks");
        assert_eq!(is_due_after(5, 0), Some(7), "nothing is missing any more");
        assert_eq!(is_due_after(7, 0), None, "no one asks");
    }

    #[test]
    fn the_first_packet_after_a_new_beginning_is_acknowledged_at_once() {
        let cfg = Config { prompt_acks: true, ..config() };
        let mut acks = Acks::new(Psn(0), AckPolicy::Coalesced { packets: 3 });
        let mut is_due_after = |psn, again| {
            if again {
                acks.begin_again();
            }
            take(&mut acks, &cfg, 1000, psn, 0);
            let is_due = acks.take_due(1000).is_some();
            if is_due {
                acks.state(1000);
            }
            is_due
        };
        assert!(is_due_after(0, false), "the first");
        assert!(!is_due_after(2, false));
        assert!(is_due_after(3, true), "the first one again");
        assert!(!is_due_after(4, false));
    }

    #[test]
    fn what_the_state_does_not_say_does_not_ride() {
        let (cfg, mut acks) = (config(), Acks::new(Psn(0), AckPolicy::NackOnly));
        take(&mut acks, &cfg, 1000, 0, 0);
        assert!(acks.riding(1000).is_none(), "nobody asked");
        take(&mut acks, &cfg, 1000, 1, FLAG_ACK_REQUEST);
        assert_eq!(acks.riding(1001).map(|state| state.cum_psn), Some(2));
        take(&mut acks, &cfg, 1002, 3, FLAG_ACK_REQUEST);
        assert!(acks.riding(1003).is_none(), "a hole");
    }
    #[test]
    fn what_a_scan_brings_measures_no_wait() {
        let (cfg, mut acks) = (config(), Acks::new(Psn(0), AckPolicy::NackOnly));
        take(&mut acks, &cfg, 1000, 1, 0);
        let late = acks.wake_at();
        assert_eq!(acks.state(late).flags & ACK_ECHO, 0, "nobody asked");
        take(&mut acks, &cfg, late, 2, FLAG_ACK_REQUEST);
        assert_eq!(acks.state(late + 1).flags & ACK_ECHO, ACK_ECHO);
    }
}
