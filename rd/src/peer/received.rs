//! The SACK scoreboard: the peer's packets that have arrived, and the gaps between them (protocol.md §6).
//!
//! It knows sequence numbers alone: no contents, and no times except those of its scan for gaps that stay.

use super::rare::Moment;
use crate::bitmap::{BITS_MAX, Bitmap};
use crate::mutants::{Mutant, mutant};
use crate::stats::DropReason;
use crate::units::{Nanos, Psn};
use crate::wire::ack::{NACK_RANGES_MAX, NackRange, SACK_WORDS_MAX};
use alloc::vec::Vec;

/// Scans without any data in between before their spacing doubles.
const SCANS_AT_FULL_PACE: u32 = 4;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Received {
    /// All packets below it have arrived, and it has not.
    cum: Psn,
    /// One past the highest packet known to have been sent.
    high: Psn,
    /// Packets that have arrived, from `cum` on.
    bits: Bitmap,
    scan_at: Moment,
    /// Number of scans since data last came.
    idle_scans: u32,
    /// An earlier scan saw the gaps below this PSN.
    scan_mark: Option<Psn>,
    /// Gaps below this PSN must be reported.
    nack_below: Option<Psn>,
    /// Packets whose payload was cut off, for the next acknowledgement; at most
    /// [`NACK_RANGES_MAX`].
    trims: Vec<NackRange>,
}

impl Received {
    /// The scoreboard of a new session.
    pub fn new(first_psn: Psn) -> Received {
        Received { cum: first_psn, high: first_psn, ..Received::default() }
    }

    /// The lowest packet that is missing.
    pub fn cum(&self) -> Psn {
        self.cum
    }

    /// One past the highest packet known to have been sent.
    pub fn high(&self) -> Psn {
        self.high
    }

    /// Whether a packet has arrived before.
    ///
    /// # Errors
    /// The drop reason if it is beyond the window.
    pub fn has(&self, psn: Psn) -> Result<bool, DropReason> {
        let offset = psn.since(self.cum);
        if offset >= BITS_MAX as i32 {
            return Err(DropReason::Window);
        }
        let is_set = || self.bits.get(offset as u32) && !mutant(Mutant::AcceptsDuplicates);
        Ok(offset < 0 || is_set())
    }

    /// Enters a packet that [`Received::has`] found to be new. Scans are `spacing_ns` apart from now on.
    pub fn enter(&mut self, psn: Psn, now: Nanos, spacing_ns: Nanos) {
        let offset = psn.since(self.cum) as u32;
        if offset == 0 && self.bits.ones() == 0 {
            self.cum = self.cum.plus(1);
        } else {
            self.bits.set(offset);
            let moved = self.bits.advance(0);
            self.cum = self.cum.plus(moved);
        }
        let after = psn.plus(1);
        if after.since(self.high) > 0 {
            self.high = after;
        }
        let paused = !self.scan_at.is_set() || self.idle_scans > 0;
        self.idle_scans = 0;
        if self.has_holes() && paused {
            self.scan_at = self.scan_at.earlier(now + spacing_ns);
        }
    }

    /// Notes a packet that came without its payload: the next acknowledgement asks for it again.
    ///
    /// # Errors
    /// The drop reason if it is not missing.
    pub fn trimmed(&mut self, psn: Psn, attempt: u8) -> Result<(), DropReason> {
        let offset = psn.since(self.cum);
        if offset < 0 || offset >= BITS_MAX as i32 || self.bits.get(offset as u32) {
            return Err(DropReason::Duplicate);
        }
        if self.trims.len() < NACK_RANGES_MAX {
            self.trims.push(NackRange { first_psn: psn.0, count: 1, trimmed: Some(attempt) });
        }
        Ok(())
    }

    /// Notes that the peer has sent all packets below `end`.
    ///
    /// # Errors
    /// The drop reason if that is beyond the window.
    pub fn told(&mut self, end: Psn, now: Nanos, spacing_ns: Nanos) -> Result<(), DropReason> {
        let ahead = end.since(self.cum);
        if ahead > BITS_MAX as i32 {
            return Err(DropReason::Window);
        }
        // Both lie near `cum`. From `high`, a number half of all behind `cum` would look like one ahead.
        if ahead > self.high.since(self.cum) {
            self.high = end;
        }
        if self.high != self.cum && !self.scan_at.is_set() {
            self.scan_at = Moment::at(now + spacing_ns);
        }
        Ok(())
    }

    /// True if packets are known to be missing.
    pub fn has_holes(&self) -> bool {
        self.high.since(self.cum) > 0
    }

    /// True if packets beyond [`Received::cum`] have arrived, or some were cut off.
    pub fn has_more_to_say(&self) -> bool {
        self.bits.ones() > 0 || self.nack_below.is_some() || !self.trims.is_empty()
    }

    /// True if gaps must be reported now.
    pub fn has_nacks(&self) -> bool {
        self.nack_below.is_some()
    }

    /// Time of the next scan.
    pub fn scan_at(&self) -> Option<Nanos> {
        self.scan_at.get()
    }

    /// Scans: reports gaps that the previous scan saw too. Without data in between, scans back off, up to `longest_ns`.
    pub fn scan(&mut self, now: Nanos, spacing_ns: Nanos, longest_ns: Nanos) {
        if !self.has_holes() {
            (self.scan_at, self.scan_mark) = (Moment::NONE, None);
            return;
        }
        if let Some(mark) = self.scan_mark.filter(|mark| mark.since(self.cum) > 0) {
            self.nack_below = Some(mark);
        }
        self.scan_mark = Some(self.high);
        self.idle_scans += 1;
        let backed_off = spacing_ns << self.idle_scans.saturating_sub(SCANS_AT_FULL_PACE).min(16);
        self.scan_at = Moment::at(now + backed_off.min(longest_ns.max(spacing_ns)));
    }

    /// The missing packets for an acknowledgement, in at most `most` ranges. They count as reported.
    pub fn take_nacks(&mut self, most: usize) -> Vec<NackRange> {
        let mut nacks = Vec::new();
        if let Some(below) = self.nack_below.take() {
            self.collect_holes(below, most.min(NACK_RANGES_MAX), &mut nacks);
        }
        let trims = self.trims.len().min(most.min(NACK_RANGES_MAX) - nacks.len());
        nacks.extend(self.trims.drain(..trims));
        nacks
    }

    /// Runs of missing PSNs below `below`, at most `most` of them.
    fn collect_holes(&self, below: Psn, most: usize, out: &mut Vec<NackRange>) {
        let end = below.since(self.cum).clamp(0, BITS_MAX as i32) as u32;
        let mut run: Option<NackRange> = None;
        for i in 0..end {
            if self.bits.get(i) {
                out.extend(run.take());
                if out.len() >= most {
                    return;
                }
            } else {
                let first_psn = self.cum.plus(i).0;
                run.get_or_insert(NackRange { first_psn, count: 0, trimmed: None }).count += 1;
            }
        }
        if out.len() < most {
            out.extend(run);
        }
    }

    /// Bitmap words from the lowest gap on, at most `room` of them.
    pub fn sack(&self, room: usize) -> impl ExactSizeIterator<Item = u64> + '_ {
        let span = match self.bits.ones() {
            0 => 0,
            _ => self.high.since(self.cum).clamp(0, BITS_MAX as i32) as usize,
        };
        let mut words = self.bits.words(0);
        (0..span.div_ceil(64).min(room).min(SACK_WORDS_MAX)).map(move |_| words.next_word())
    }

    /// Frees heap memory.
    pub fn reclaim(&mut self) {
        self.bits.shrink();
    }

    /// Checks the invariants between two calls of the endpoint.
    ///
    /// # Panics
    /// If one is broken.
    pub fn check(&self) {
        let span = self.high.since(self.cum);
        assert!((0..=BITS_MAX as i32).contains(&span), "{span} packets beyond the lowest missing");
        assert!(self.bits.ones() <= span as u32, "what has arrived was sent");
        let unknown = self.bits.ones() > 0 && self.bits.get(0);
        assert!(!unknown, "the lowest missing packet has not arrived");
        assert!(self.trims.len() <= NACK_RANGES_MAX, "an acknowledgement takes no more");
        assert!(!self.has_holes() || self.scan_at.is_set(), "somebody looks for what is missing");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From PSN 2^32 - 2 on, these have arrived.
    fn with(offsets: &[u32]) -> Received {
        let mut received = Received::new(Psn(u32::MAX - 1));
        for offset in offsets {
            let psn = received_psn(*offset);
            assert_eq!(received.has(psn), Ok(false));
            received.enter(psn, 100, 10);
            assert_eq!(received.has(psn), Ok(true));
            received.check();
        }
        received
    }

    fn received_psn(offset: u32) -> Psn {
        Psn(u32::MAX - 1).plus(offset)
    }

    #[test]
    fn what_arrives_in_order_leaves_nothing_to_say() {
        let received = with(&[0, 1, 2, 3]);
        assert_eq!((received.cum(), received.high()), (Psn(2), Psn(2)));
        assert!(!received.has_holes() && !received.has_more_to_say());
        assert_eq!(received.has(received_psn(4 + BITS_MAX)), Err(DropReason::Window));
    }

    #[test]
    fn a_hole_is_reported_when_a_second_scan_sees_it() {
        let mut received = with(&[0, 3, 5]);
        assert_eq!(received.scan_at(), Some(110));
        received.scan(110, 10, 1000);
        assert!(!received.has_nacks());
        received.scan(120, 10, 1000);
        assert!(received.has_nacks());
        let ranges = received.take_nacks(8);
        let ranges: Vec<_> = ranges.iter().map(|r| (Psn(r.first_psn), r.count)).collect();
        assert_eq!(ranges, [(received_psn(1), 2), (received_psn(4), 1)]);
        assert!(received.sack(8).eq([0b10100]));
        assert!(!received.has_nacks(), "said once");
        for psn in [1, 2, 4] {
            received.enter(received_psn(psn), 130, 10);
        }
        received.scan(140, 10, 1000);
        assert_eq!((received.scan_at(), received.has_more_to_say()), (None, false));
    }

    #[test]
    fn scans_back_off_while_no_data_comes() {
        let mut received = with(&[1]);
        let mut gaps = Vec::new();
        for _ in 0..8 {
            let at = received.scan_at().expect("a hole");
            received.scan(at, 10, 50);
            gaps.extend(received.scan_at().map(|next| next - at));
        }
        assert_eq!(gaps, [10, 10, 10, 10, 20, 40, 50, 50]);
    }

    #[test]
    fn a_packet_that_was_cut_off_is_asked_for_by_its_attempt() {
        let mut received = with(&[0]);
        assert_eq!(received.trimmed(received_psn(0), 0), Err(DropReason::Duplicate));
        assert_eq!(received.trimmed(received_psn(1), 3), Ok(()));
        assert!(received.has_more_to_say());
        let first_psn = received_psn(1).0;
        assert_eq!(received.take_nacks(1), [NackRange { first_psn, count: 1, trimmed: Some(3) }]);
        assert!(!received.has_more_to_say());
    }
}
