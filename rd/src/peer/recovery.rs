//! Taking acknowledgements: completions, loss detection, round trips (protocol.md §6, §7).

use super::tx::{Content, Fate, Tx};
use super::{Core, Peer, Role};
use crate::bitmap::BITS_MAX;
use crate::cc::{Ack as AckFeedback, Loss, LossDetection, LossKind};
use crate::host::Host;
use crate::mutants::{Mutant, mutant};
use crate::stats::DropReason;
use crate::units::{Nanos, Psn};
use crate::wire::ack::{ACK_ECHO, ACK_PROBE_ANSWER, AckState, Sections};
use crate::wire::header::Header;

/// Mean deviations of the round trip that a packet may be late before its order counts: of an
/// exponential jitter one packet in 400 is later.
const ORDER_VARIANCES: u64 = 8;
/// Round trips above this are clock noise (the timestamp has 32 bits of nanoseconds).
const RTT_MAX_NS: u32 = 2_000_000_000;

/// Whether an acknowledgement echoes a path that this flow does not have. Controllers keep state
/// by path and must never see one.
fn names_foreign_path(paths: u16, state: &AckState, sections: Option<&Sections<'_>>) -> bool {
    let foreign = |path: u8| u16::from(path) >= paths;
    foreign(state.echo_path)
        || sections.is_some_and(|sections| sections.echoes().any(|echo| foreign(echo.path)))
}

impl Tx {
    /// Puts the lowest unacknowledged packet first among those to repeat, if it is lost. It alone may go
    /// whatever the window, and the peer may have no memory for the others before it.
    fn put_lowest_first(&mut self) {
        let is_lost = self.sent.front().is_some_and(|lowest| lowest.fate == Fate::Lost);
        if is_lost && let Some(at) = self.retry.iter().position(|psn| *psn == self.una) {
            self.retry.remove(at);
            self.retry.push_front(self.una);
        }
    }
}

impl Peer {
    /// A packet came that names our session id as only the peer knows it.
    pub(super) fn heard(&mut self, core: &Core, now: Nanos) {
        self.met = true;
        self.mark_alive(core, now);
    }

    /// The peer lives: what it owed counts from now.
    pub(super) fn mark_alive(&mut self, core: &Core, now: Nanos) {
        self.live.last_heard = now;
        self.live.refused = 0;
        self.live.probes = 0;
        let waits = self.tx.in_flight_packets > 0;
        if !mutant(Mutant::KeepsTheDeadlineRunning) {
            self.live.owed_since = waits.then_some(now);
        }
        // Hearing from the peer ends a back-off. Only progress postpones the probe: a peer that
        // talks but does not acknowledge has lost something.
        let soonest = now + self.probe_timeout_ns(core);
        self.live.probe_at = self.live.probe_at.filter(|_| waits).map(|at| at.min(soonest));
    }

    /// A probe: it names the end of what was sent and wants an acknowledgement now.
    pub(crate) fn on_probe(
        &mut self,
        core: &Core,
        now: Nanos,
        h: &Header,
    ) -> Result<(), DropReason> {
        let end = Psn(h.psn);
        if end.since(self.rx.cum) > BITS_MAX as i32 {
            return Err(DropReason::Window);
        }
        self.heard(core, now);
        if end.since(self.rx.high) > 0 {
            self.rx.high = end;
        }
        self.note_sent_at(now, h.sent_at_ns);
        self.rx.probe_answer = Some(h.path);
        if self.rx.high != self.rx.cum && self.rx.scan_at.is_none() {
            self.rx.scan_at = Some(now + self.scan_spacing_ns(core));
        }
        Ok(())
    }

    /// An acknowledgement that came on `path` answers a probe on the same.
    pub(crate) fn note_answer(&mut self, path: u8) {
        let after_silence = self.live.probes > 1;
        self.tx.flow.paths.answered(path.into(), after_silence);
    }

    /// An acknowledgement's state and, when it is a packet of its own, sections. `arrived` is when
    /// the port received it: the time that it waited for us is no part of the round trip.
    pub(crate) fn on_ack<H: Host>(
        &mut self,
        core: &mut Core,
        host: &mut H,
        now: Nanos,
        arrived: Nanos,
        state: &AckState,
        sections: Option<&Sections<'_>>,
    ) -> Result<(), DropReason> {
        let cum = Psn(state.cum_psn);
        let beyond = match mutant(Mutant::IgnoresThePsnWrap) {
            true => cum.0 > self.tx.next_psn.0,
            false => cum.since(self.tx.next_psn) > 0,
        };
        // Half of all numbers lie behind, and a packet that was delayed for so long tells nothing new.
        let behind =
            cum.since(self.tx.una) < -(BITS_MAX as i32) && !mutant(Mutant::RaisesLimitsOnAStaleAck);
        let high = Psn(state.high_psn);
        let overlong = high.since(cum) < 0 || high.since(self.tx.next_psn) > 0;
        if beyond || behind || (overlong && !mutant(Mutant::IgnoresThePsnWrap)) {
            return Err(DropReason::Window);
        }
        if names_foreign_path(self.paths, state, sections) {
            return Err(DropReason::Malformed);
        }
        self.heard(core, now);
        self.raise_limits(state);
        let mut acked = 0u64;
        let (mut echoed, mut echoed_ce) = (0u64, 0u32);
        if let Some(sections) = sections {
            (echoed, echoed_ce) = self.take_echoes(core, host, now, arrived, sections);
        }
        for i in 0..cum.since(self.tx.una).max(0) as usize {
            acked += self.ack_one(core, host, now, i);
        }
        if let Some(sections) = sections {
            acked += self.take_sack(core, host, now, sections);
        }
        // A late or repeated acknowledgement tells nothing of the present round trip.
        let progress = acked + echoed > 0;
        let rtt_ns = if progress { self.take_rtt(arrived, state) } else { None };
        if rtt_ns.is_some() {
            self.tx.hosts.sample(Nanos::from(state.hold_ns) + now.saturating_sub(arrived));
        }
        if let Some(sections) = sections {
            self.take_losses(core, now, state, sections);
        }
        self.pop_acked();
        self.judge_order(core, now);
        // What the records have told the controller is not told twice.
        let rtt_ns = rtt_ns.filter(|_| echoed == 0);
        self.feed_back(now, state, acked, rtt_ns, echoed_ce);
        self.take_spurious(core, state);
        // A request may have waited for room for its answer, a message for memory.
        if self.rx.has_early() {
            self.deliver_early(core, host);
        }
        if progress || self.tx.in_flight_packets == 0 {
            let waits = self.tx.in_flight_packets > 0;
            if !mutant(Mutant::KeepsTheDeadlineRunning) {
                self.live.owed_since = waits.then_some(now);
            }
            let next = now + self.probe_timeout_ns(core);
            self.live.probe_at = waits.then_some(next);
        }
        Ok(())
    }

    /// Tells the controller of an acknowledgement, but for what its records have told.
    fn feed_back(
        &mut self,
        now: Nanos,
        state: &AckState,
        acked_bytes: u64,
        rtt_ns: Option<Nanos>,
        echoed_ce: u32,
    ) {
        let ce_bytes = state.ce_bytes.wrapping_sub(self.tx.ce_seen_bytes);
        let ce_bytes = if ce_bytes < 1 << 31 { ce_bytes } else { 0 };
        self.tx.ce_seen_bytes = self.tx.ce_seen_bytes.wrapping_add(ce_bytes);
        self.tx.flow.ce_bytes += u64::from(ce_bytes);
        let ce_bytes = ce_bytes.saturating_sub(echoed_ce);
        if acked_bytes == 0 && rtt_ns.is_none() && ce_bytes == 0 {
            return;
        }
        let age = (now as u32).wrapping_sub(state.echo_sent_at_ns);
        let sent_at = if rtt_ns.is_some() { now.saturating_sub(age.into()) } else { now };
        let ack = AckFeedback {
            now,
            sent_at,
            acked_bytes,
            acked_packets: core::mem::take(&mut self.tx.acked_packets),
            rtt_ns,
            path: u16::from(state.echo_path),
            ce_bytes,
            lag_packets: 0,
            in_flight_bytes: self.tx.in_flight_bytes,
            app_limited: !self.tx.wants(),
        };
        self.tx.learning = self.tx.learning.saturating_sub(u8::from(rtt_ns.is_some()));
        if let Some(cc) = &mut self.cc {
            cc.on_ack(&ack);
        }
    }

    /// Absolute limits only ever grow; the buffer share may shrink.
    fn raise_limits(&mut self, state: &AckState) {
        let tx = &mut self.tx;
        if (state.eager_limit_bytes.wrapping_sub(tx.eager_limit_bytes) as i32) > 0 {
            tx.eager_limit_bytes = state.eager_limit_bytes;
        }
        if (state.order_limit.wrapping_sub(tx.order_limit) as i32) > 0 {
            tx.order_limit = state.order_limit;
        }
        if Psn(state.cum_psn).since(tx.una) >= 0 {
            tx.window_bytes = state.window_bytes;
        }
    }

    fn take_rtt(&mut self, arrived: Nanos, state: &AckState) -> Option<Nanos> {
        if state.flags & ACK_ECHO == 0 || state.echo_sent_at_ns == self.tx.echo_last {
            return None;
        }
        self.tx.echo_last = state.echo_sent_at_ns;
        let whole = (arrived as u32).wrapping_sub(state.echo_sent_at_ns);
        let rtt = whole.checked_sub(state.hold_ns).filter(|rtt| *rtt < RTT_MAX_NS)?;
        self.rtt.sample(Nanos::from(rtt));
        Some(Nanos::from(rtt))
    }

    /// One feedback per packet, for controllers that asked for it; returns the bytes that are
    /// newly acknowledged, and how many of them were marked.
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
            let (first, count) = (Psn(echo.psn), u32::from(echo.count));
            self.tx.flow.paths.note_acked(echo.path, echo.sent_at_ns);
            let mut acked_bytes = 0;
            for n in 0..count {
                if let Ok(at) = usize::try_from(first.plus(n).since(self.tx.una)) {
                    acked_bytes += self.ack_one(core, host, now, at);
                }
            }
            total += acked_bytes;
            let ce_bytes = (acked_bytes * u64::from(echo.ce) / u64::from(count)) as u32;
            total_ce += ce_bytes;
            let whole = (arrived as u32).wrapping_sub(echo.sent_at_ns);
            let rtt = whole.checked_sub(echo.hold_ns).filter(|rtt| *rtt < RTT_MAX_NS);
            if rtt.is_some() {
                self.tx.hosts.sample(Nanos::from(echo.hold_ns) + now.saturating_sub(arrived));
            }
            let age = (now as u32).wrapping_sub(echo.sent_at_ns);
            let feedback = AckFeedback {
                now,
                sent_at: now.saturating_sub(age.into()),
                acked_bytes,
                acked_packets: core::mem::take(&mut self.tx.acked_packets),
                rtt_ns: rtt.map(Nanos::from),
                path: u16::from(echo.path),
                ce_bytes,
                lag_packets: self.tx.flow.lag(first.plus(count)),
                in_flight_bytes: self.tx.in_flight_bytes,
                app_limited: !self.tx.wants(),
            };
            self.tx.learning = self.tx.learning.saturating_sub(u8::from(rtt.is_some()));
            if let Some(cc) = &mut self.cc {
                cc.on_ack(&feedback);
            }
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
        let base = Psn(sections.sack_base_psn).since(self.tx.una)
            + i32::from(mutant(Mutant::ReadsSacksOneOff));
        let mut acked = 0;
        for (w, word) in sections.sack_words().enumerate() {
            let mut rest = word;
            while rest != 0 {
                let bit = rest.trailing_zeros() as i32;
                rest &= rest - 1;
                if let Ok(i) = usize::try_from(base.saturating_add(w as i32 * 64 + bit)) {
                    acked += self.ack_one(core, host, now, i);
                }
            }
        }
        acked
    }

    /// Marks the packet `i` places after `una` as received; returns its bytes if that is new.
    fn ack_one<H: Host>(&mut self, core: &mut Core, host: &mut H, now: Nanos, i: usize) -> u64 {
        let Some(entry) = self.tx.sent.get_mut(i) else { return 0 };
        let before = core::mem::replace(&mut entry.fate, Fate::Acked);
        let entry = *entry;
        match before {
            Fate::Acked => return 0,
            Fate::InFlight => self.leave_flight(entry.bytes, entry.content),
            Fate::Lost => {}
        }
        self.tx.acked_packets += 1;
        let timeout_ns = self.rtt.probe_timeout_ns(&core.cfg, 0);
        self.tx.flow.paths.acked(entry.path, entry.sent_at, entry.attempt > 0, timeout_ns);
        self.tx.flow.acked_bytes += u64::from(entry.bytes);
        self.size.acked(now, entry.bytes, entry.sent_at);
        let after = self.tx.una.plus(i as u32 + 1);
        if after.since(self.tx.acked_end) > 0 {
            self.tx.acked_end = after;
        }
        match entry.content {
            Content::Segment { op, .. } => self.settle(core, host, op),
            Content::Bundle { first, count } => {
                let from = (first - self.tx.records_base) as usize;
                for r in from..from + usize::from(count) {
                    if let Some(op) = self.tx.records[r].operation() {
                        self.settle(core, host, op);
                    }
                }
            }
        }
        u64::from(entry.bytes)
    }

    fn leave_flight(&mut self, bytes: u32, content: Content) {
        self.tx.in_flight_bytes -= u64::from(bytes);
        self.tx.in_flight_packets -= 1;
        if matches!(content, Content::Bundle { .. }) {
            self.tx.bundles_in_flight -= 1;
        }
    }

    fn pop_acked(&mut self) {
        while let Some(front) = self.tx.sent.front() {
            if front.fate != Fate::Acked {
                return;
            }
            if let Content::Bundle { count, .. } = front.content {
                self.tx.records.drain(..usize::from(count));
                self.tx.records_base += u64::from(count);
            }
            self.tx.sent.pop_front();
            self.tx.una = self.tx.una.plus(1);
        }
    }

    /// Declares lost what the receiver says it misses and what was sent long enough before the
    /// newest packet that the receiver had seen (protocol.md §7.1).
    fn take_losses(
        &mut self,
        core: &mut Core,
        now: Nanos,
        state: &AckState,
        sections: &Sections<'_>,
    ) {
        let age = (now as u32).wrapping_sub(state.latest_sent_at_ns);
        let margin = self.rtt.smoothed_ns / 4;
        let seen_until = now.saturating_sub(Nanos::from(age)).saturating_sub(margin);
        // Honest ranges do not overlap, so together they fit into the bitmap.
        let mut budget = BITS_MAX;
        for range in sections.nacks() {
            let from = Psn(range.first_psn).since(self.tx.una);
            let count = u32::from(range.count).min(budget);
            budget -= count;
            for n in 0..count as i32 {
                let Ok(i) = usize::try_from(from.saturating_add(n)) else { continue };
                if i >= self.tx.sent.len() {
                    break;
                }
                match range.trimmed {
                    None => self.lose_one(core, now, i, seen_until, LossKind::Nack),
                    // It names the transmission, so there is no doubt about which one was lost.
                    Some(attempt) if self.tx.sent[i].attempt == attempt => {
                        self.lose_one(core, now, i, now, LossKind::Trim);
                    }
                    Some(_) => {}
                }
            }
        }
        if state.flags & ACK_PROBE_ANSWER != 0 {
            let told = Psn(sections.sack_base_psn).plus(64 * sections.sack_words().count() as u32);
            let high = Psn(state.high_psn);
            let shown = if sections.sack_words().count() == 0 { high } else { told };
            let end = shown.since(self.tx.una).min(high.since(self.tx.una)).max(0) as usize;
            for i in 0..end.min(self.tx.sent.len()) {
                self.lose_one(core, now, i, seen_until, LossKind::Probe);
            }
            self.tx.put_lowest_first();
        }
    }

    /// Declares lost what the scheme's [`LossDetection`] says, from the order of what was
    /// acknowledged.
    fn judge_order(&mut self, core: &mut Core, now: Nanos) {
        let end = self.tx.acked_end.since(self.tx.una).max(0) as usize;
        match core.terms(self.near).scheme.loss_detection() {
            LossDetection::Receiver => {}
            LossDetection::OutOfOrder { least_packets } => {
                let window = self.cc_window_bytes();
                let held = window / u64::from(self.datagram_bytes.max(1));
                let packets = held.max(least_packets.into());
                // On a path with jitter an acknowledgement may just be late.
                let patience_ns = self.rtt.smoothed_ns + ORDER_VARIANCES * self.rtt.variance_ns;
                let overdue = now.saturating_sub(patience_ns);
                let from = self.tx.judged.since(self.tx.una).max(0) as usize;
                let to = end.saturating_sub(packets as usize).min(self.tx.sent.len());
                for i in from..to {
                    let entry = &self.tx.sent[i];
                    if entry.fate == Fate::InFlight && entry.sent_at > overdue {
                        break;
                    }
                    // Repeated packets went out later than their numbers say.
                    if entry.attempt == 0 {
                        self.lose_one(core, now, i, now, LossKind::Order);
                    }
                    self.tx.judged = self.tx.una.plus(i as u32 + 1);
                }
            }
            LossDetection::PathOrder => {
                for i in 0..end.min(self.tx.sent.len()) {
                    let entry = &self.tx.sent[i];
                    if self.tx.flow.paths.was_overtaken(entry.path, entry.sent_at) {
                        self.lose_one(core, now, i, now, LossKind::Order);
                    }
                }
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
        let entry = &mut self.tx.sent[i];
        if entry.fate != Fate::InFlight || entry.sent_at > seen_until {
            return;
        }
        entry.fate = Fate::Lost;
        let entry = *entry;
        if !mutant(Mutant::KeepsLostPacketsInFlight) {
            self.leave_flight(entry.bytes, entry.content);
        }
        self.tx.retry.push_back(self.tx.una.plus(i as u32));
        match kind {
            LossKind::Nack => core.stats.rtx_nack += 1,
            LossKind::Trim => core.stats.rtx_trim += 1,
            LossKind::Order => core.stats.rtx_order += 1,
            LossKind::Probe => core.stats.rtx_probe += 1,
        }
        self.tx.flow.lost(kind);
        if kind != LossKind::Trim {
            self.size.lost(now, entry.bytes, entry.attempt);
        }
        match kind {
            LossKind::Trim => self.tx.flow.paths.cut_off(entry.path),
            _ => self.tx.flow.paths.lost(now, entry.path, kind != LossKind::Order),
        }
        let (sent_at, bytes, path) = (entry.sent_at, entry.bytes, entry.path);
        if let Some(cc) = &mut self.cc {
            let in_flight_bytes = self.tx.in_flight_bytes;
            cc.on_loss(&Loss { now, sent_at, bytes, path, kind, in_flight_bytes });
        }
    }

    /// Spurious retransmissions that the receiver counted since it last told.
    fn take_spurious(&mut self, core: &mut Core, state: &AckState) {
        let new = state.spurious.wrapping_sub(self.tx.spurious_seen);
        if new < 1 << 15 {
            self.tx.spurious_seen = state.spurious;
            core.stats.rtx_spurious += u64::from(new);
            self.tx.flow.repeated.spurious += u64::from(new);
        }
    }

    /// A match notice.
    pub(super) fn on_matched<H: Host>(
        &mut self,
        core: &mut Core,
        host: &mut H,
        op: u32,
        order: u32,
    ) {
        let mine = self.id.index;
        if let Some(entry) = core.ops.get_mut(op as usize)
            && entry.peer == mine
            && entry.announced
            && entry.order == order
        {
            entry.match_notice = false;
            self.finish(core, host, op);
        }
    }

    /// One packet of an operation was acknowledged.
    fn settle<H: Host>(&mut self, core: &mut Core, host: &mut H, op: u32) {
        core.ops[op as usize].unacked -= 1;
        self.finish(core, host, op);
    }

    /// Completes an operation that has nothing left to do.
    pub(super) fn finish<H: Host>(&mut self, core: &mut Core, host: &mut H, op: u32) {
        if core.ops[op as usize].is_done() {
            if !matches!(core.ops[op as usize].role, Role::Message) {
                self.finish_role(core, host, op);
                return;
            }
            let op = core.ops.remove(op as usize);
            self.tx.ops -= 1;
            core.stats.messages_sent += 1;
            host.sent(op.token, Ok(()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer::tx::Sent;

    #[test]
    fn the_lowest_lost_packet_is_repeated_before_others() {
        let (content, fate) = (Content::Bundle { first: 0, count: 0 }, Fate::Lost);
        let sent = Sent { sent_at: 0, bytes: 100, path: 0, attempt: 0, fate, content };
        let psns = |from: u32| (0..3).map(move |n| Psn(from).plus(n));
        let mut tx = Tx::default();
        tx.una = Psn(7);
        tx.sent = [sent; 3].into();
        tx.retry = psns(7).rev().collect();
        tx.put_lowest_first();
        assert!(tx.retry.iter().copied().eq([Psn(7), Psn(9), Psn(8)]));
        tx.retry.swap(0, 1);
        tx.sent[0].fate = Fate::InFlight;
        tx.put_lowest_first();
        assert_eq!(tx.retry[0], Psn(9), "only what is lost is repeated");
    }
}
