//! The health of a flow's paths (protocol.md §4.5). The engine leaves a path alone, except for a packet now and then,
//! if it loses more than the others, or falls silent while they do not.

use crate::units::Nanos;
use alloc::vec::Vec;

/// Increase of a path's losses for a lost packet; an acknowledged one decreases them by 1. So the count grows when a
/// path loses more than one packet in 65.
const LOSS: u8 = 64;
/// Losses at which the engine leaves a path: two within 32 packets.
const LOSSES_MAX: u8 = 96;
/// Initial losses of a healed path: the next one is one too many.
const PROBATION: u8 = LOSSES_MAX - 2;
/// The engine leaves a path only for losses that are so many times those of the others.
const TIMES_OTHERS: u32 = 8;
/// The engine tries a path again after one timeout, then twice as many, up to 8.
const LEVEL_MAX: u8 = 4;
/// A lossy path is left alone for 4 timeouts at first.
const LEVEL_LOSSY: u8 = 3;
/// Longest timeout to count with: eight of them fit into a difference of 32-bit times.
const TIMEOUT_MAX_NS: Nanos = 1 << 28;

/// The tolerance for packets out of order is what was seen, and one part in so many of it more.
const TOLERANCE_PARTS: u32 = 4;
/// It shrinks by one part in so many with each record of the path: by two thirds after 1,024 records in order.
const TOLERANCE_SHRINK: u32 = 1024;

/// The path is left alone.
const BAD: u8 = 1;
/// A packet went out on it since then.
const TRIED: u8 = 2;
/// The packet sent at `at_ns` is timed.
const TIMED: u8 = 4;
/// A packet sent on it was acknowledged.
const ACKED: u8 = 8;

/// State of one path.
#[derive(Clone, Copy, Debug, Default)]
struct PathTx {
    /// KiB sent.
    sent_kib: u32,
    /// Bytes sent beyond the whole KiB.
    sent_rest: u16,
    /// Recent losses, in units of 1 / [`LOSS`] packets.
    losses: u8,
    /// [`BAD`] and the other flags, plus 16 times the number of times it turned bad without recovering in between.
    state: u8,
    /// The latest send time of an acknowledged packet.
    acked_sent_at_ns: u32,
    /// Send time of the timed packet. For a bad path, when it turned bad or was last tried.
    at_ns: u32,
    /// How much later than a packet others may have been sent that come before it (protocol.md §7.1).
    tolerance_ns: u32,
}

const _: () = assert!(size_of::<PathTx>() <= 20);

impl PathTx {
    fn has(&self, bits: u8) -> bool {
        self.state & bits != 0
    }

    fn level(&self) -> u8 {
        self.state >> 4
    }

    fn set_level(&mut self, level: u8) {
        self.state = self.state & 15 | level.min(LEVEL_MAX) << 4;
    }

    /// How long the engine leaves it alone, in nanoseconds.
    fn pause_ns(&self, timeout_ns: Nanos) -> u32 {
        match self.level() {
            0 => 0,
            level => (timeout_ns.min(TIMEOUT_MAX_NS) as u32) << (level - 1),
        }
    }
}

/// Advice on a path that the controller asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Advice {
    Use,
    /// It is bad, but one packet may try it.
    Try,
    Avoid,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Paths {
    /// Empty until first needed, then as many as there are paths.
    each: Vec<PathTx>,
    /// The latest send time that was acknowledged, on any path.
    newest_ns: Option<u32>,
    /// Losses of all paths that are not bad.
    losses: u32,
    /// Number of bad paths; never all of them.
    bad: u16,
    /// Path at which the search for a sound one continues.
    cursor: u16,
}

/// Greatest age of a 32-bit time that can be compared with later ones.
const AGE_MAX_NS: u32 = i32::MAX as u32;
/// Greatest age of one that can be compared with later ones and a tolerance.
const ORDER_AGE_MAX_NS: u32 = AGE_MAX_NS - TIMEOUT_MAX_NS as u32;

fn is_after(a_ns: u32, b_ns: u32) -> bool {
    (a_ns.wrapping_sub(b_ns) as i32) > 0
}

impl Paths {
    /// Counts a burst.
    pub(super) fn sent(
        &mut self,
        now: Nanos,
        paths: u16,
        path: u16,
        bytes: u32,
        timeout_ns: Nanos,
    ) {
        if self.each.is_empty() {
            self.each.resize(usize::from(paths), PathTx::default());
        }
        let p = &mut self.each[usize::from(path)];
        let rest = u32::from(p.sent_rest) + bytes;
        p.sent_kib = p.sent_kib.wrapping_add(rest >> 10);
        p.sent_rest = (rest & 1023) as u16;
        let now_ns = now as u32;
        // What came so long ago tells nothing of the order of what is sent now.
        if now_ns.wrapping_sub(p.acked_sent_at_ns) > ORDER_AGE_MAX_NS {
            p.state &= !ACKED;
        }
        // Nothing was sent later than now: where the 32 bits say so, the path was idle for longer than they can tell.
        if p.has(TIMED) && is_after(p.at_ns, now_ns) {
            p.state &= !TIMED;
        }
        self.newest_ns = self.newest_ns.filter(|newest| !is_after(*newest, now_ns));
        if p.has(BAD) {
            // A flow bound to one path sends on it all the time; that counts as a try now and then.
            let is_due = now_ns.wrapping_sub(p.at_ns) >= p.pause_ns(timeout_ns);
            if is_due || !p.has(TRIED) {
                let again = p.has(TRIED) || p.level() == 0;
                p.set_level(p.level() + u8::from(again));
                (p.state, p.at_ns) = (p.state | TRIED, now_ns);
            }
        } else if !p.has(TIMED) {
            (p.state, p.at_ns) = (p.state | TIMED, now_ns);
        }
    }

    /// Notes a record of a received packet, sent at this time on this path. A record that is too old for 32 bits and a
    /// tolerance says nothing of what was sent since. Returns how much later the latest one was sent that came before.
    pub(super) fn note_acked(&mut self, now: Nanos, path: u8, sent_at_ns: u32) -> u32 {
        if (now as u32).wrapping_sub(sent_at_ns) > ORDER_AGE_MAX_NS {
            return 0;
        }
        let Some(p) = self.each.get_mut(usize::from(path)) else { return 0 };
        if p.has(ACKED) && !is_after(sent_at_ns, p.acked_sent_at_ns) {
            return p.acked_sent_at_ns.wrapping_sub(sent_at_ns);
        }
        p.state |= ACKED;
        p.acked_sent_at_ns = sent_at_ns;
        p.tolerance_ns -= p.tolerance_ns.div_ceil(TOLERANCE_SHRINK);
        0
    }

    /// Notes that a packet came which was overtaken by so much on its path, and not lost. The tolerance is `most_ns` at most.
    pub(super) fn note_late(&mut self, path: u8, late_ns: u32, most_ns: Nanos) {
        let Some(p) = self.each.get_mut(usize::from(path)) else { return };
        let most_ns = most_ns.min(TIMEOUT_MAX_NS) as u32;
        let seen_ns = late_ns.saturating_add(late_ns / TOLERANCE_PARTS);
        p.tolerance_ns = p.tolerance_ns.max(seen_ns.min(most_ns));
    }

    /// True if a packet sent later on the same path was received, by more than the path's tolerance.
    pub(super) fn was_overtaken(&self, path: u16, sent_at: Nanos) -> bool {
        self.each.get(usize::from(path)).is_some_and(|p| {
            let until_ns = (sent_at as u32).wrapping_add(p.tolerance_ns);
            p.has(ACKED) && is_after(p.acked_sent_at_ns, until_ns)
        })
    }

    /// Packets sent before this time on the path may have been overtaken; 0 without any. 32 bits have told it, so after
    /// half a wrap it may seem later than it was, and [`Paths::was_overtaken`] alone decides.
    pub(super) fn overtaken_before(&self, now: Nanos, path: u16) -> Nanos {
        let p = self.each.get(usize::from(path)).filter(|p| p.has(ACKED));
        p.map_or(0, |p| {
            let age_ns = (now as u32).wrapping_sub(p.acked_sent_at_ns);
            now.saturating_sub(Nanos::from(age_ns) + Nanos::from(p.tolerance_ns))
        })
    }

    /// Notes an acknowledged packet, last sent on this path at this time.
    pub(super) fn acked(
        &mut self,
        now: Nanos,
        (path, sent_at): (u16, Nanos),
        repeated: bool,
        timeout_ns: Nanos,
    ) {
        let Some(p) = self.each.get_mut(usize::from(path)) else { return };
        let sent_at_ns = sent_at as u32;
        // Nobody knows which transmission of a repeated packet arrived, and one of long ago cannot be compared.
        let is_known = !repeated && now.saturating_sub(sent_at) <= Nanos::from(AGE_MAX_NS);
        if is_known && self.newest_ns.is_none_or(|newest| is_after(sent_at_ns, newest)) {
            self.newest_ns = Some(sent_at_ns);
        }
        let answers = !is_after(p.at_ns, sent_at_ns);
        if p.has(BAD) {
            if p.has(TRIED) && answers && !is_late(self.newest_ns, sent_at_ns, timeout_ns) {
                p.state &= !(BAD | TRIED);
                p.losses = PROBATION;
                self.losses += u32::from(PROBATION);
                self.bad -= 1;
            }
            return;
        }
        if p.losses > 0 {
            p.losses -= 1;
            self.losses -= 1;
            if p.losses == 0 {
                p.set_level(0);
            }
        }
        if p.has(TIMED) && answers {
            p.state &= !TIMED;
            if is_late(self.newest_ns, p.at_ns, timeout_ns) {
                self.leave(path, self.newest_ns.unwrap_or_default());
            }
        }
    }

    /// Notes a lost packet on this path; `surely` if the receiver reports it missing.
    pub(super) fn lost(&mut self, now: Nanos, path: u16, surely: bool) {
        let others = (self.each.len() as u32).saturating_sub(u32::from(self.bad) + 1);
        let Some(p) = self.each.get_mut(usize::from(path)) else { return };
        if p.has(BAD) {
            return;
        }
        let before = p.losses;
        if before == 0 {
            // One loss is no sign, and nothing else may report the timed packet.
            p.state &= !TIMED;
        }
        p.losses = before.saturating_add(LOSS);
        let losses = u32::from(p.losses);
        self.losses += losses - u32::from(before);
        if losses >= LOSSES_MAX.into() && losses * others > TIMES_OTHERS * (self.losses - losses) {
            // One packet that arrives proves little about a lossy path.
            if surely {
                p.set_level(p.level().max(LEVEL_LOSSY - 1));
            }
            self.leave(path, now as u32);
        }
    }

    /// Notes that a packet's header arrived on this path, so it is neither dead nor lossy.
    pub(super) fn cut_off(&mut self, path: u16) {
        if let Some(p) = self.each.get_mut(usize::from(path)) {
            p.state &= !TIMED;
        }
    }

    /// Marks a path as bad, unless it is the last good one.
    fn leave(&mut self, path: u16, at_ns: u32) {
        if usize::from(self.bad) + 1 >= self.each.len() {
            return;
        }
        let p = &mut self.each[usize::from(path)];
        self.bad += 1;
        self.losses -= u32::from(core::mem::take(&mut p.losses));
        p.state = p.state & !(TIMED | TRIED) | BAD;
        p.set_level(p.level() + 1);
        p.at_ns = at_ns;
    }

    /// Whether a path should be used.
    pub(super) fn judge(&mut self, now: Nanos, path: u16, timeout_ns: Nanos) -> Advice {
        let Some(p) = self.each.get(usize::from(path)) else { return Advice::Use };
        if p.has(TIMED) && is_late(self.newest_ns, p.at_ns, timeout_ns) {
            self.leave(path, now as u32);
        }
        let p = &self.each[usize::from(path)];
        if !p.has(BAD) {
            Advice::Use
        } else if (now as u32).wrapping_sub(p.at_ns) >= p.pause_ns(timeout_ns) {
            Advice::Try
        } else {
            Advice::Avoid
        }
    }

    /// Begins the turns at any path.
    pub(super) fn turn_from(&mut self, random: u32) {
        self.cursor = random as u16;
    }

    /// The next path in turn.
    pub(super) fn next_in_turn(&mut self) -> u16 {
        let count = self.each.len().max(1) as u16;
        let path = self.cursor % count;
        self.cursor = path + 1;
        path
    }

    /// The next path in turn that is not bad.
    pub(super) fn next_sound(&mut self) -> u16 {
        let count = self.each.len().max(1);
        let turn = (0..count).map(|n| (usize::from(self.cursor) + n) % count);
        let path = turn.clone().find(|&at| self.each.get(at).is_none_or(|p| !p.has(BAD)));
        let path = path.unwrap_or(0) as u16;
        self.cursor = path + 1;
        path
    }

    /// Nothing is acknowledged: uses all paths again, since another one may heal first.
    pub(super) fn forgive(&mut self) {
        if self.bad == 0 && self.newest_ns.is_none() {
            return;
        }
        for p in &mut self.each {
            p.state &= ACKED;
            p.losses = 0;
        }
        (self.losses, self.bad, self.newest_ns) = (0, 0, None);
    }

    /// Notes an answered probe on this path. `after_silence`: nothing else was answered for some time. Then the others
    /// may be dead: each carries one packet, and more once that is acknowledged.
    pub(super) fn answered(&mut self, path: u16, after_silence: bool) {
        if usize::from(path) >= self.each.len() {
            return;
        }
        if after_silence {
            for p in &mut self.each {
                (p.state, p.losses) = (p.state & ACKED | BAD, 0);
            }
            (self.losses, self.bad) = (0, self.each.len() as u16);
        }
        let p = &mut self.each[usize::from(path)];
        if p.has(BAD) && p.level() == 0 {
            p.state &= !(BAD | TRIED);
            self.bad -= 1;
        }
    }

    /// KiB sent on each path since the flow was last idle.
    pub(super) fn kib(&self) -> impl Iterator<Item = u32> {
        self.each.iter().map(|p| p.sent_kib)
    }
}

/// Whether a packet sent a timeout after `sent_at_ns` was acknowledged already.
fn is_late(newest_ns: Option<u32>, sent_at_ns: u32, timeout_ns: Nanos) -> bool {
    let timeout_ns = timeout_ns.min(TIMEOUT_MAX_NS) as i32;
    newest_ns.is_some_and(|newest| newest.wrapping_sub(sent_at_ns) as i32 > timeout_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 32 bits cannot tell how long a path was idle: with a tolerance, a little less than half their range is the most.
    #[test]
    fn nothing_overtakes_what_is_sent_after_a_long_pause() {
        for pause_ns in [1 << 28, (1 << 31) - 1000, (1 << 31) + 1000, 1 << 32] {
            let mut paths = Paths::default();
            paths.sent(1000, 1, 0, 100, 1000);
            paths.note_acked(2000, 0, 1000);
            paths.note_late(0, 5000, 10_000);
            let now = 1000 + pause_ns;
            paths.sent(now, 1, 0, 100, 1000);
            assert!(!paths.was_overtaken(0, now), "after {pause_ns} ns");
            // A record that comes as late as that tells nothing either.
            paths.note_acked(now + 1, 0, 1000);
            assert!(!paths.was_overtaken(0, now), "after {pause_ns} ns and a record");
        }
    }
}
