//! The sending side of a stream: NewReno (RFC 5681, RFC 6582) with the timer of RFC 6298. It counts frames, not bytes: each
//! short frame is a segment of its own, as with `TCP_NODELAY`.

use super::counts::FrameCounts;
use crate::time::{Picos, from_ns};
use std::collections::VecDeque;

/// Frames that wait or are unacknowledged at most: as many as a receiver's window.
pub(super) const FRAMES_MAX: u32 = 1024;
/// Frames in flight at the beginning (RFC 6928).
const FIRST_WINDOW: u32 = 10;
/// Acknowledgements without progress that show a loss (RFC 5681).
const DUPLICATES: u32 = 3;
/// Least threshold of slow start after a loss (RFC 5681).
const THRESHOLD_MIN: u32 = 2;
/// Longest timeout.
const TIMEOUT_MAX_PS: Picos = from_ns(60_000_000_000);

/// See the module.
#[derive(Debug)]
pub(super) struct StreamSender {
    /// Frames from `first` on, at most [`FRAMES_MAX`].
    frames: VecDeque<Vec<u8>>,
    /// The first that is not acknowledged.
    first: u32,
    /// The next to send. A timeout takes it back to the first.
    next: u32,
    /// One past the last that was ever sent.
    sent: u32,
    /// The first is to be sent again.
    again: bool,
    /// Congestion window, in frames.
    window: u32,
    /// Slow start ends here.
    threshold: u32,
    /// Acknowledgements since the window grew, after slow start.
    grown: u32,
    /// Acknowledgements without progress.
    duplicates: u32,
    /// Fast recovery ends once all before this one are acknowledged.
    recovery_end: Option<u32>,
    /// What was sent when a loss was last found: only later ones may show another.
    seen_lost: Option<u32>,
    timer: Timer,
    repeats: u64,
}

/// The retransmission timer.
#[derive(Debug)]
struct Timer {
    least_ps: Picos,
    timeout_ps: Picos,
    due: Option<Picos>,
    /// Smoothed round trip and its variation.
    rtt: Option<(Picos, Picos)>,
    /// The frame whose round trip is being measured, and when it left. Repeats are not measured (Karn).
    timed: Option<(u32, Picos)>,
}

impl Timer {
    fn measure(&mut self, now: Picos, acknowledged: u32) {
        let Some((_, left)) = self.timed.take_if(|(frame, _)| acknowledged > *frame) else {
            return;
        };
        let sample = now - left;
        let (smoothed, variation) = match self.rtt {
            None => (sample, sample / 2),
            Some((smoothed, variation)) => {
                let deviation = smoothed.abs_diff(sample);
                ((7 * smoothed + sample) / 8, (3 * variation + deviation) / 4)
            }
        };
        self.rtt = Some((smoothed, variation));
        let timeout_ps = smoothed + 4 * variation;
        self.timeout_ps = timeout_ps.clamp(self.least_ps, TIMEOUT_MAX_PS);
    }
}

impl StreamSender {
    /// A stream that is open. `rto_min_ps` is its shortest timeout, which it begins with: the handshake of a connection
    /// measures a round trip.
    pub(super) fn new(rto_min_ps: Picos) -> StreamSender {
        let timer = Timer {
            least_ps: rto_min_ps,
            timeout_ps: rto_min_ps,
            due: None,
            rtt: None,
            timed: None,
        };
        StreamSender {
            frames: VecDeque::new(),
            first: 0,
            next: 0,
            sent: 0,
            again: false,
            window: FIRST_WINDOW,
            threshold: u32::MAX,
            grown: 0,
            duplicates: 0,
            recovery_end: None,
            seen_lost: None,
            timer,
            repeats: 0,
        }
    }

    /// Takes a frame; false if too many wait.
    pub(super) fn push(&mut self, frame: &[u8]) -> bool {
        let has_room = self.frames.len() < FRAMES_MAX as usize;
        if has_room {
            self.frames.push_back(frame.to_vec());
        }
        has_room
    }

    /// When its timer is due.
    pub(super) fn due(&self) -> Option<Picos> {
        self.timer.due
    }

    /// What a sender counts.
    pub(super) fn counts(&self) -> FrameCounts {
        let (frames, acknowledged) = (self.sent.into(), self.first.into());
        FrameCounts { frames, repeats: self.repeats, acknowledged, ..FrameCounts::default() }
    }

    /// The next frame that leaves, with its number.
    pub(super) fn next_out(&mut self, now: Picos) -> Option<(u32, &[u8])> {
        let number = if std::mem::take(&mut self.again) {
            self.first
        } else {
            let waits = self.next - self.first < self.frames.len() as u32;
            if !waits || self.next - self.first >= self.window {
                return None;
            }
            self.next += 1;
            self.next - 1
        };
        if number < self.sent {
            self.repeats += 1;
            self.timer.timed = None;
        } else {
            self.sent = number + 1;
            self.timer.timed.get_or_insert((number, now));
        }
        self.timer.due.get_or_insert(now + self.timer.timeout_ps);
        Some((number, &self.frames[(number - self.first) as usize]))
    }

    /// The receiver expects this frame next.
    pub(super) fn acknowledged(&mut self, now: Picos, expected: u32) {
        if expected < self.first || expected > self.sent {
            return;
        }
        if expected == self.first {
            if self.sent > self.first {
                self.duplicate();
            }
            return;
        }
        let used_up = self.next - self.first >= self.window;
        let count = expected - self.first;
        self.frames.drain(..count as usize);
        (self.first, self.next) = (expected, self.next.max(expected));
        (self.duplicates, self.again) = (0, false);
        self.timer.measure(now, expected);
        match self.recovery_end {
            Some(end) if expected >= end => {
                self.recovery_end = None;
                self.window = self.threshold;
            }
            // The next one was lost, too.
            Some(_) => {
                self.again = true;
                self.window = self.window.saturating_sub(count) + 1;
            }
            None if used_up => self.grow(),
            None => {}
        }
        let is_open = self.sent > self.first;
        self.timer.due = is_open.then_some(now + self.timer.timeout_ps);
    }

    /// The window was used up, and frames were acknowledged.
    fn grow(&mut self) {
        self.grown += 1;
        if self.window < self.threshold || self.grown >= self.window {
            (self.window, self.grown) = (self.window + 1, 0);
        }
    }

    fn duplicate(&mut self) {
        self.duplicates += 1;
        if self.recovery_end.is_some() {
            self.window += 1;
        } else if self.duplicates == DUPLICATES && self.seen_lost.is_none_or(|at| self.first > at) {
            self.lose();
            self.recovery_end = Some(self.sent);
            self.window = self.threshold + DUPLICATES;
            self.again = true;
        }
    }

    fn lose(&mut self) {
        self.threshold = ((self.sent - self.first) / 2).max(THRESHOLD_MIN);
        self.seen_lost = Some(self.sent);
        self.grown = 0;
    }

    /// Does what is due: after a timeout everything is sent again, from the first on.
    pub(super) fn run_timer(&mut self, now: Picos) {
        if self.timer.due.is_none_or(|due| due > now) {
            return;
        }
        self.lose();
        (self.window, self.next) = (1, self.first);
        (self.duplicates, self.recovery_end, self.again) = (0, None, false);
        self.timer.timeout_ps = (2 * self.timer.timeout_ps).min(TIMEOUT_MAX_PS);
        self.timer.due = Some(now + self.timer.timeout_ps);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT_PS: Picos = from_ns(10_000);
    const RTO_MIN_PS: Picos = from_ns(200_000);

    fn with_frames(count: u32) -> StreamSender {
        let mut sender = StreamSender::new(RTO_MIN_PS);
        (0..count).for_each(|frame| assert!(sender.push(&[frame as u8])));
        sender
    }

    fn out(sender: &mut StreamSender, now: Picos) -> Vec<u32> {
        std::iter::from_fn(|| sender.next_out(now).map(|(number, _)| number)).collect()
    }

    #[test]
    fn the_window_doubles_each_round_trip_while_it_is_used_up() {
        let mut sender = with_frames(100);
        assert_eq!(out(&mut sender, 0), (0..10).collect::<Vec<_>>());
        let next: Vec<u32> = (1..=10)
            .flat_map(|expected| {
                sender.acknowledged(RTT_PS, expected);
                out(&mut sender, RTT_PS)
            })
            .collect();
        assert_eq!(next, (10..30).collect::<Vec<_>>());
        let mut idle = with_frames(3);
        out(&mut idle, 0);
        (1..=3).for_each(|expected| idle.acknowledged(RTT_PS, expected));
        assert_eq!((idle.window, idle.due()), (FIRST_WINDOW, None));
    }

    /// Frames 0 and 4 of ten are lost: each is sent again once, with no timeout.
    #[test]
    fn three_acknowledgements_without_progress_repair_all_losses_of_a_window() {
        let mut sender = with_frames(10);
        out(&mut sender, 0);
        let mut repeats = Vec::new();
        for _ in 0..8 {
            sender.acknowledged(RTT_PS, 0);
            repeats.extend(out(&mut sender, RTT_PS));
        }
        assert_eq!(repeats, [0]);
        sender.acknowledged(2 * RTT_PS, 4);
        assert_eq!(out(&mut sender, 2 * RTT_PS), [4]);
        sender.acknowledged(3 * RTT_PS, 10);
        assert_eq!((sender.window, sender.threshold), (5, 5));
        let all =
            FrameCounts { frames: 10, repeats: 2, acknowledged: 10, ..FrameCounts::default() };
        assert_eq!((sender.counts(), sender.due()), (all, None));
    }

    #[test]
    fn a_timeout_sends_all_again_and_waits_twice_as_long() {
        let mut sender = with_frames(2);
        out(&mut sender, 0);
        sender.acknowledged(RTT_PS, 1);
        assert_eq!(sender.due(), Some(RTT_PS + RTO_MIN_PS), "the round trip is much shorter");
        let first = RTT_PS + RTO_MIN_PS;
        sender.run_timer(first - 1);
        assert!(out(&mut sender, first - 1).is_empty());
        sender.run_timer(first);
        assert_eq!(out(&mut sender, first), [1]);
        assert_eq!(sender.due(), Some(first + 2 * RTO_MIN_PS));
        sender.run_timer(first + 2 * RTO_MIN_PS);
        assert_eq!(out(&mut sender, first + 2 * RTO_MIN_PS), [1]);
        sender.acknowledged(first + 3 * RTO_MIN_PS, 2);
        let later = first + 4 * RTO_MIN_PS;
        assert!(sender.push(&[2]) && out(&mut sender, later) == [2]);
        assert_eq!(
            sender.due(),
            Some(later + 4 * RTO_MIN_PS),
            "a repeat's round trip says nothing"
        );
    }

    #[test]
    fn impossible_acknowledgements_change_nothing_and_frames_are_bounded() {
        let mut sender = with_frames(FRAMES_MAX);
        assert!(!sender.push(&[0]));
        out(&mut sender, 0);
        sender.acknowledged(RTT_PS, 11);
        sender.acknowledged(RTT_PS, u32::MAX);
        assert_eq!((sender.first, sender.window), (0, FIRST_WINDOW));
    }
}
