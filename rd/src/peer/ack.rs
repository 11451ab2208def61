//! Writing acknowledgements (protocol.md §6).

use super::path_size::ALWAYS_PASSES_BYTES;
use super::session::emit_control;
use super::{Core, Peer};
use crate::bitmap::BITS_MAX;
use crate::transmit::TxBurst;
use crate::units::{Nanos, Psn};
use crate::wire::ack::{
    ACK_BYTES, ACK_ECHO, ACK_PROBE_ANSWER, AckState, NACK_RANGES_MAX, NackRange, SACK_WORDS_MAX,
    SECTIONS_HEAD_BYTES, emit_sections,
};
use crate::wire::header::{HEADER_BYTES, Header, Kind};
use alloc::vec::Vec;

/// Bitmap words that an acknowledgement packet always has room for.
const SACK_WORDS_MIN: usize = 8;
/// Scans without any data in between before their spacing doubles.
const SCANS_AT_FULL_PACE: u32 = 4;

impl Peer {
    /// The present acknowledgement state. It counts as told from now on.
    pub(super) fn ack_state(&mut self, core: &mut Core, now: Nanos) -> AckState {
        self.acknowledged(now);
        let rx = &mut self.rx;
        let (eager_limit_bytes, order_limit) = rx.tell_limits(&core.cfg, &mut core.budget);
        let mut state = AckState {
            cum_psn: rx.cum.0,
            high_psn: rx.high.0,
            latest_sent_at_ns: rx.latest_sent_at_ns,
            spurious: rx.spurious,
            ce_bytes: rx.ce_bytes,
            recv_bytes: rx.recv_bytes,
            eager_limit_bytes,
            order_limit,
            window_bytes: core.recv_window_bytes(self.datagram_bytes),
            ..AckState::default()
        };
        if let Some(last) = &mut rx.last {
            state.flags |= if core::mem::replace(&mut last.told, true) { 0 } else { ACK_ECHO };
            state.echo_sent_at_ns = last.sent_at_ns;
            state.echo_path = last.path;
            state.hold_ns = u32::try_from(now.saturating_sub(last.received_at)).unwrap_or(u32::MAX);
        }
        state
    }

    /// What rides on the message that leaves now, if an acknowledgement is due and may.
    pub(super) fn riding_ack(&mut self, core: &mut Core, now: Nanos) -> Option<AckState> {
        self.rx.acks_alone = 0;
        if !self.rx.ack_may_ride() {
            return None;
        }
        let mut state = self.ack_state(core, now);
        // A record tells the round trip of its first packet.
        if let [echo] = self.rx.echoes[..] {
            state.hold_ns = (now as u32).wrapping_sub(echo.hold_ns);
        }
        self.rx.ack_rode();
        Some(state)
    }

    /// Writes an acknowledgement packet with what the state alone does not say.
    pub(super) fn emit_ack(&mut self, core: &mut Core, now: Nanos, burst: &mut TxBurst) {
        self.rx.acks_alone = self.rx.acks_alone.saturating_add(1);
        let mut state = self.ack_state(core, now);
        let echoed = self.rx.last.map_or(0, |last| last.path);
        let path = match self.rx.probe_answer.take() {
            Some(path) => {
                state.flags |= ACK_PROBE_ANSWER;
                path
            }
            None => echoed,
        };
        let mut echoes = core::mem::take(&mut self.rx.echoes);
        for echo in &mut echoes {
            echo.hold_ns = (now as u32).wrapping_sub(echo.hold_ns);
        }
        let fixed = HEADER_BYTES + ACK_BYTES + SECTIONS_HEAD_BYTES + 16 * echoes.len();
        let room = usize::from(self.datagram_bytes).saturating_sub(fixed) / 8;
        let mut nacks = Vec::new();
        if let Some(below) = self.rx.nack_below.take() {
            let most = room.saturating_sub(SACK_WORDS_MIN).min(NACK_RANGES_MAX);
            self.collect_holes(below, most, &mut nacks);
        }
        let trims = room.saturating_sub(SACK_WORDS_MIN).min(NACK_RANGES_MAX) - nacks.len();
        let trims = self.rx.trims.len().min(trims);
        nacks.extend(self.rx.trims.drain(..trims));
        let sack = self.collect_sack(room - nacks.len());
        if !nacks.is_empty() {
            core.stats.nacks += 1;
        }
        let sent_at_ns = now as u32;
        let h = Header { path, sent_at_ns, ..Header::new(Kind::Ack, self.remote.session) };
        let base = self.rx.cum.0;
        emit_control(core, burst, h, |out| {
            state.emit(out);
            emit_sections(out, base, &sack, &nacks, &echoes);
        });
        echoes.clear();
        self.rx.echoes = echoes;
        burst.to = self.name;
        burst.info_path = self.info_path;
        // This side may have no data to find out with what passes.
        let long = burst.total_bytes > ALWAYS_PASSES_BYTES;
        burst.may_fragment = long || self.size.may_fragment(burst.total_bytes);
        // One path for all acknowledgements would be one queue for all of them.
        burst.path = u16::from(path) % self.paths;
    }

    /// Bitmap words from the lowest hole on, at most `room` of them.
    fn collect_sack(&self, room: usize) -> Vec<u64> {
        let span = self.rx.high.since(self.rx.cum).clamp(0, BITS_MAX as i32) as usize;
        if self.rx.received.ones() == 0 {
            return Vec::new();
        }
        let words = span.div_ceil(64).min(room).min(SACK_WORDS_MAX);
        (0..words).map(|w| self.rx.received.word(w as u32 * 64)).collect()
    }

    /// Runs of missing PSNs below `below`, at most `most` of them.
    fn collect_holes(&self, below: Psn, most: usize, out: &mut Vec<NackRange>) {
        let end = below.since(self.rx.cum).clamp(0, BITS_MAX as i32) as u32;
        let mut run: Option<NackRange> = None;
        for i in 0..end {
            if self.rx.received.get(i) {
                out.extend(run.take());
                if out.len() >= most {
                    return;
                }
            } else {
                let first_psn = self.rx.cum.plus(i).0;
                run.get_or_insert(NackRange { first_psn, count: 0, trimmed: None }).count += 1;
            }
        }
        if out.len() < most {
            out.extend(run);
        }
    }

    /// Spacing of bitmap scans: T = 2.5 round trips (the paper's 2 to 3), floored.
    pub(super) fn scan_spacing_ns(&self, core: &Core) -> Nanos {
        (self.rtt.smoothed_ns * 5 / 2).max(core.cfg.scan_min_ns)
    }

    /// The receive bitmap's scan: a hole that the previous scan saw too is reported. Scans during
    /// which no data comes back off.
    pub(super) fn scan(&mut self, core: &Core, now: Nanos) {
        let spacing = self.scan_spacing_ns(core);
        let rx = &mut self.rx;
        if rx.high.since(rx.cum) <= 0 {
            rx.scan_at = None;
            rx.scan_mark = None;
            return;
        }
        if let Some(mark) = rx.scan_mark.filter(|mark| mark.since(rx.cum) > 0) {
            rx.nack_below = Some(mark);
        }
        rx.scan_mark = Some(rx.high);
        rx.idle_scans += 1;
        let backed_off = spacing << rx.idle_scans.saturating_sub(SCANS_AT_FULL_PACE).min(16);
        let longest = (core.cfg.peer_timeout_ns / 8).max(spacing);
        rx.scan_at = Some(now + backed_off.min(longest));
    }
}
