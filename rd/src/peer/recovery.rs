//! Handling of acknowledgements: completions, loss detection, round trips (protocol.md §6, §7).

use super::answers::Round;
use super::flight::Content;
use super::{Core, Peer};
use crate::bitmap::BITS_MAX;
use crate::cc::{LossDetection, LossKind};
use crate::host::Host;
use crate::mutants::{Mutant, mutant};
use crate::stats::DropReason;
use crate::units::{Nanos, Psn};
use crate::wire::ack::{ACK_ECHO, ACK_PROBE_ANSWER, AckState, Sections};
use crate::wire::header::Header;

/// Lateness, in mean deviations of the round trip, before a packet's order counts. With exponential jitter one packet
/// in 400 is later.
const ORDER_VARIANCES: u64 = 8;
/// Words of a SACK with news that are taken at a time. Most acknowledgements have fewer, so they take one turn.
const NEWS: usize = 8;

/// Whether an acknowledgement echoes a path that this flow does not have. Controllers keep state
/// by path and must never see one.
fn names_foreign_path(paths: u16, state: &AckState, sections: Option<&Sections<'_>>) -> bool {
    let foreign = |path: u8| u16::from(path) >= paths;
    foreign(state.echo_path)
        || sections.is_some_and(|sections| sections.echoes().any(|echo| foreign(echo.path)))
}

impl Peer {
    /// Notes a packet with our session id, which only the peer knows.
    pub(super) fn heard(&mut self, core: &Core, now: Nanos) {
        self.session.meet();
        self.mark_alive(core, now);
    }

    /// Notes a sign of life: the peer's debt counts from now.
    pub(super) fn mark_alive(&mut self, core: &Core, now: Nanos) {
        self.live.heard(now, self.tx.flight.packets() > 0, self.probe_timeout_ns(core));
    }

    /// Takes a probe: it names the end of the sent packets, and asks for an acknowledgement now.
    pub(crate) fn on_probe(
        &mut self,
        core: &Core,
        now: Nanos,
        h: &Header,
    ) -> Result<(), DropReason> {
        self.acks.probed(now, h, self.pace(core))?;
        let round = Round { number: h.msg_id, unanswered: h.attempt };
        let times = (self.tx.steering.rtt_ns(), core.cfg.peer_timeout_ns);
        self.answers.probed(now, round, self.paths, times);
        self.heard(core, now);
        Ok(())
    }

    /// Notes that an acknowledgement on `path` answers a probe on the same path. An acknowledgement that may not be
    /// taken tells nothing about the paths.
    pub(crate) fn note_answer(&mut self, path: u8, state: &AckState, sections: &Sections<'_>) {
        if self.judge_ack(state, Some(sections)).is_ok() {
            self.tx.steering.answered(path, self.live.is_unanswered());
        }
    }

    /// Whether an acknowledgement speaks of what was sent, on paths that there are.
    fn judge_ack(
        &self,
        state: &AckState,
        sections: Option<&Sections<'_>>,
    ) -> Result<(), DropReason> {
        if !self.tx.flight.may_be_acked(Psn(state.cum_psn), Psn(state.high_psn)) {
            return Err(DropReason::Window);
        }
        match names_foreign_path(self.paths, state, sections) {
            true => Err(DropReason::Malformed),
            false => Ok(()),
        }
    }

    /// Takes an acknowledgement's state and, if it is a packet of its own, its sections. `arrived` is when the port
    /// received it: the time that it waited for us is not part of the round trip.
    pub(crate) fn on_ack<H: Host>(
        &mut self,
        core: &mut Core,
        host: &mut H,
        now: Nanos,
        arrived: Nanos,
        state: &AckState,
        sections: Option<&Sections<'_>>,
    ) -> Result<(), DropReason> {
        self.judge_ack(state, sections)?;
        let cum = Psn(state.cum_psn);
        self.heard(core, now);
        // Progress counts below. Any other one may come from the peer's own timer, for a hole that stays (protocol.md §7.2).
        if state.flags & (ACK_ECHO | ACK_PROBE_ANSWER) != 0 {
            self.live.answered(now, self.tx.flight.packets() > 0);
            self.tail.answered();
        }
        self.tx.out.raise_limits(state.eager_limit_bytes, state.order_limit);
        if cum.since(self.tx.flight.una()) >= 0 {
            let (told, rng) = (state.window, &mut core.rng);
            self.tx.steering.window_told(now, told, rng);
        }
        self.tx.flight.begin_ack(cum);
        let mut acked = 0u64;
        let (mut echoed, mut echoed_ce) = (0u64, 0u32);
        if let Some(sections) = sections {
            (echoed, echoed_ce) = self.take_echoes(core, host, now, arrived, sections);
        }
        for i in 0..cum.since(self.tx.flight.una()).max(0) as usize {
            acked += self.ack_one(core, host, now, i);
        }
        if let Some(sections) = sections.filter(|sections| !sections.sack().is_empty()) {
            acked += self.take_sack(core, host, now, sections);
        }
        // A late or repeated acknowledgement tells nothing about the present round trip.
        let progress = acked + echoed > 0;
        let rtt_ns = match progress {
            true => self.tx.steering.take_rtt(now, arrived, state),
            false => None,
        };
        if let Some(sections) = sections {
            self.take_losses(core, now, state, sections);
        }
        self.tx.flight.pop_acked();
        self.judge_order(core, now, sections);
        // Do not tell the controller twice what the records have told it.
        let told = (acked, rtt_ns.filter(|_| echoed == 0), echoed_ce);
        let more = (self.tx.wants(), self.datagram_bytes);
        self.tx.steering.feed_back(now, state, told, &mut self.tx.flight, more);
        core.stats.rtx_spurious += self.tx.steering.take_spurious(state.spurious);
        // A request may have waited for room for its answer, a message for memory.
        if self.has_early() {
            self.deliver_early(core, host);
        }
        if progress || self.tx.flight.packets() == 0 {
            let waits = self.tx.flight.packets() > 0;
            self.live.progressed(now, waits, self.probe_timeout_ns(core));
            self.tail.progressed(now, waits, self.tx.steering.tail_timeout_ns(&core.cfg));
        }
        Ok(())
    }

    /// One feedback per packet, for controllers that asked for it; returns the newly acknowledged bytes, and how many
    /// of them were marked.
    fn take_echoes<H: Host>(
        &mut self,
        core: &mut Core,
        host: &mut H,
        now: Nanos,
        arrived: Nanos,
        sections: &Sections<'_>,
    ) -> (u64, u32) {
        let (mut total, mut total_ce) = (0, 0);
        for echo in sections.echoes() {
            let late_ns = self.tx.steering.note_acked(now, &echo);
            let mut acked_bytes = 0;
            for n in 0..u32::from(echo.count) {
                let place = Psn(echo.psn).plus(n).since(self.tx.flight.una());
                if let Ok(at) = usize::try_from(place) {
                    acked_bytes += self.ack_one(core, host, now, at);
                }
            }
            // A duplicate is always late.
            if late_ns > 0 && acked_bytes > 0 {
                self.tx.steering.note_late(&echo, late_ns);
            }
            total += acked_bytes;
            let more = (self.tx.wants(), self.datagram_bytes);
            let (steering, flight) = (&mut self.tx.steering, &mut self.tx.flight);
            total_ce += steering.echoed((now, arrived), &echo, acked_bytes, flight, more);
        }
        (total, total_ce)
    }

    fn take_sack<H: Host>(
        &mut self,
        core: &mut Core,
        host: &mut H,
        now: Nanos,
        sections: &Sections<'_>,
    ) -> u64 {
        let base = Psn(sections.sack_base_psn).since(self.tx.flight.una())
            + i32::from(mutant(Mutant::ReadsSacksOneOff));
        let read = |word: &[u8; 8]| u64::from_be_bytes(*word);
        let (mut acked, mut place) = (0, base.max(0) as usize);
        // An older acknowledgement tells of packets before the lowest unacknowledged one, too.
        let behind = base.min(0).unsigned_abs();
        let mut sack = sections.sack().get(behind as usize / 64..).unwrap_or_default();
        let shift = behind % 64;
        if let Some((first, rest)) = sack.split_first().filter(|_| shift > 0) {
            let told = read(first) >> shift;
            for at in (0..64).filter(|at| told >> at & 1 != 0) {
                acked += self.ack_one(core, host, now, at);
            }
            (place, sack) = (64 - shift as usize, rest);
        }
        loop {
            let mut news = [(0, 0); NEWS];
            let count = self.tx.flight.known().unset(place as u32, sack, read, &mut news);
            for (nth, mut new) in news[..count].iter().copied() {
                while new != 0 {
                    let at = place + 64 * nth + new.trailing_zeros() as usize;
                    acked += self.ack_new(core, host, now, at);
                    new &= new - 1;
                }
            }
            if count < NEWS {
                return acked;
            }
            let taken = news[NEWS - 1].0 + 1;
            (place, sack) = (place + 64 * taken, &sack[taken..]);
        }
    }

    /// Marks the packet `i` places after `una` as received; returns its bytes if that is new.
    #[inline]
    fn ack_one<H: Host>(&mut self, core: &mut Core, host: &mut H, now: Nanos, i: usize) -> u64 {
        let is_new = self.tx.flight.get(i).is_some_and(|sent| !sent.is_acked());
        if is_new { self.ack_new(core, host, now, i) } else { 0 }
    }

    #[inline(never)]
    fn ack_new<H: Host>(&mut self, core: &mut Core, host: &mut H, now: Nanos, i: usize) -> u64 {
        let Some(sent) = self.tx.flight.acked(i) else { return 0 };
        self.tx.steering.acked(&core.cfg, now, &sent);
        self.size.acked(now, sent.bytes, sent.sent_at);
        match sent.content {
            Content::Segment { op, .. } => self.settle(core, host, op),
            Content::Bundle { first, count } => {
                for number in first..first + u64::from(count) {
                    if let Some(op) = self.tx.flight.record(number).operation() {
                        self.settle(core, host, op);
                    }
                }
            }
        }
        u64::from(sent.bytes)
    }

    /// Declares packets lost that the receiver reports missing, or that were sent long enough before the newest packet
    /// that it had seen (protocol.md §7.1).
    fn take_losses(
        &mut self,
        core: &mut Core,
        now: Nanos,
        state: &AckState,
        sections: &Sections<'_>,
    ) {
        let age = (now as u32).wrapping_sub(state.latest_sent_at_ns);
        let margin = self.tx.steering.rtt_ns() / 4;
        let seen_until = now.saturating_sub(Nanos::from(age)).saturating_sub(margin);
        // Honest ranges do not overlap, so together they fit into the bitmap.
        let mut budget = BITS_MAX;
        for range in sections.nacks() {
            let from = Psn(range.first_psn).since(self.tx.flight.una());
            let count = u32::from(range.count).min(budget);
            budget -= count;
            for n in 0..count as i32 {
                let Ok(i) = usize::try_from(from.saturating_add(n)) else { continue };
                let Some(sent) = self.tx.flight.get(i) else { break };
                match range.trimmed {
                    None => self.lose_one(core, now, i, seen_until, LossKind::Nack),
                    // It names the transmission, so it is clear which one was lost.
                    Some(attempt) if sent.attempt == attempt => {
                        self.lose_one(core, now, i, now, LossKind::Trim);
                    }
                    Some(_) => {}
                }
            }
        }
        if state.flags & ACK_PROBE_ANSWER != 0 {
            let told = Psn(sections.sack_base_psn).plus(64 * sections.sack().len() as u32);
            let high = Psn(state.high_psn);
            let shown = if sections.sack().is_empty() { high } else { told };
            let end = shown.since(self.tx.flight.una()).min(high.since(self.tx.flight.una())).max(0)
                as usize;
            for i in 0..end.min(self.tx.flight.len()) {
                self.lose_one(core, now, i, seen_until, LossKind::Probe);
            }
            self.tx.flight.put_lowest_first();
        }
    }

    /// Declares packets lost by the scheme's [`LossDetection`], from the order of acknowledgements.
    fn judge_order(&mut self, core: &mut Core, now: Nanos, sections: Option<&Sections<'_>>) {
        let end = self.tx.flight.acked_places();
        match core.terms(self.near).scheme.loss_detection() {
            LossDetection::Receiver => {}
            LossDetection::OutOfOrder { least_packets } => {
                let window = self.tx.steering.window_bytes(self.datagram_bytes);
                let held = window / u64::from(self.datagram_bytes.max(1));
                let packets = held.max(least_packets.into());
                // On a path with jitter an acknowledgement may just be late.
                let overdue = now.saturating_sub(self.tx.steering.patience_ns(ORDER_VARIANCES));
                let from = self.tx.flight.unjudged_place();
                let to = end.saturating_sub(packets as usize);
                for i in from..to {
                    let Some(sent) = self.tx.flight.get(i) else { break };
                    if sent.is_in_flight() && sent.sent_at > overdue {
                        break;
                    }
                    // Repeated packets went out later than their numbers say.
                    if sent.attempt == 0 {
                        self.lose_one(core, now, i, now, LossKind::Order);
                    }
                    self.tx.flight.judged(i + 1);
                }
            }
            LossDetection::PathOrder => {
                if self.tx.may_find_overtaken(now, sections) {
                    for i in self.tx.overtaken(now, sections) {
                        self.lose_one(core, now, i, now, LossKind::Order);
                    }
                }
                self.tx.flight.judged(end);
            }
        }
    }

    fn lose_one(
        &mut self,
        core: &mut Core,
        now: Nanos,
        i: usize,
        seen_until: Nanos,
        kind: LossKind,
    ) {
        let Some(sent) = self.tx.flight.lost(i, seen_until) else { return };
        match kind {
            LossKind::Nack => core.stats.rtx_nack += 1,
            LossKind::Trim => core.stats.rtx_trim += 1,
            LossKind::Order => core.stats.rtx_order += 1,
            LossKind::Probe => core.stats.rtx_probe += 1,
        }
        if kind != LossKind::Trim {
            self.size.lost(now, sent.bytes, sent.attempt);
        }
        self.tx.steering.lost(now, &sent, kind, self.tx.flight.bytes());
    }
}
