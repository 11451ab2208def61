//! A short spin before a sleep. A sleep and a wake-up take many times longer than the answer of a peer on an idle
//! processor. So a reader first looks for a while, as long as that pays.
//!
//! After a spin in vain come sleeps without a spin, twice as many each time. After a spin that lost the processor,
//! which others then want, come more of them.

use erd_sys::clock::monotonic_ns;
use parking_lot::Mutex;

/// Spins in vain, one after the other, that make the pause longer.
const VAIN_MAX: u32 = 10;
/// A longer time between two looks at nothing means that another thread had the processor. A look takes 1 us.
const GAP_NS: u64 = 200_000;
/// Sleeps without a spin after the first lost processor.
const LOST_PAUSE: u32 = 64;
/// Lost processors that make the pause longer.
const LOST_MAX: u32 = 6;
/// Spins that found something and kept the processor, or arrivals in one, after which a lost processor is forgotten.
const LOST_FORGOTTEN: u32 = 1024;
/// Arrivals that make a spin worthwhile without the awaited event: peers may read the memory of a thread that waits for
/// something else, such as the end of a phase.
const SERVED_ENOUGH: u32 = 4;

/// Result of one look.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Seen {
    /// The awaited event.
    Found,
    /// Something else came.
    Arrived,
    /// Nothing.
    Nothing,
}

/// End of a spin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    /// It found something, or was of use to peers.
    Worthwhile,
    /// Nothing came in time.
    Vain,
    /// The thread lost its processor.
    Lost,
}

/// The decision when to spin. Pure: the clock is an argument.
#[derive(Default)]
struct Habit {
    /// Sleeps to come without a spin.
    pause: u32,
    vain: u32,
    lost: u32,
    /// Worthwhile spins since the processor was lost.
    calm: u32,
}

/// One spin.
struct Spin {
    bound_ns: u64,
    looked_ns: u64,
    /// Time of the last arrival, or of the start if nothing arrived.
    heard_ns: u64,
    arrivals: u32,
}

impl Habit {
    /// Whether the sleep to come begins with a spin.
    fn begins(&mut self) -> bool {
        let spins = self.pause == 0;
        self.pause = self.pause.saturating_sub(1);
        spins
    }

    /// Records the end of a spin with so many arrivals other than the awaited event.
    fn ended(&mut self, end: End, arrivals: u32) {
        if arrivals >= LOST_FORGOTTEN {
            self.lost = 0;
        }
        match end {
            End::Worthwhile => {
                (self.vain, self.pause) = (0, 0);
                self.calm += 1;
                if self.calm == LOST_FORGOTTEN {
                    (self.calm, self.lost) = (0, 0);
                }
            }
            End::Vain => {
                self.vain = (self.vain + 1).min(VAIN_MAX);
                self.pause = (1 << self.vain) - 1;
            }
            End::Lost => {
                self.pause = LOST_PAUSE << self.lost;
                self.lost = (self.lost + 1).min(LOST_MAX);
                self.calm = 0;
            }
        }
    }
}

impl Spin {
    fn new(bound_ns: u64, now: u64) -> Spin {
        Spin { bound_ns, looked_ns: now, heard_ns: now, arrivals: 0 }
    }

    /// Records a look that ended at `now`. Returns how the spin ends, if it does.
    fn looked(&mut self, now: u64, seen: Seen) -> Option<End> {
        let gap_ns = now.saturating_sub(self.looked_ns);
        self.looked_ns = now;
        match seen {
            Seen::Found => return Some(End::Worthwhile),
            Seen::Arrived => {
                self.heard_ns = now;
                self.arrivals = self.arrivals.saturating_add(1);
                return None;
            }
            Seen::Nothing if gap_ns >= GAP_NS => return Some(End::Lost),
            Seen::Nothing => {}
        }
        let over = now.saturating_sub(self.heard_ns) >= self.bound_ns;
        let end = if self.arrivals >= SERVED_ENOUGH { End::Worthwhile } else { End::Vain };
        over.then_some(end)
    }
}

/// Decides on spins, and makes them.
#[derive(Default)]
pub struct Spinner {
    /// Held by the thread that spins; the others sleep.
    habit: Mutex<Habit>,
}

impl Spinner {
    /// Looks until something is found, `end_ns` is over, or nothing came for `bound_ns`. True if the caller need not
    /// sleep.
    pub(crate) fn spin(
        &self,
        bound_ns: u64,
        end_ns: Option<u64>,
        mut look: impl FnMut() -> Seen,
    ) -> bool {
        if bound_ns == 0 {
            return false;
        }
        let Some(mut habit) = self.habit.try_lock() else { return false };
        if !habit.begins() {
            return false;
        }
        let mut spin = Spin::new(bound_ns, monotonic_ns());
        loop {
            let seen = look();
            let now = monotonic_ns();
            if let Some(end) = spin.looked(now, seen) {
                habit.ended(end, spin.arrivals);
                return seen == Seen::Found;
            }
            if end_ns.is_some_and(|end| now >= end) {
                return true;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: u64 = 1_000;
    const BOUND_NS: u64 = 100 * US;

    /// A spin whose looks take 1 us each and see this, then nothing; how it ends, and when.
    fn spin(seen: impl IntoIterator<Item = (u64, Seen)>) -> (End, u64) {
        let mut spin = Spin::new(BOUND_NS, 0);
        let mut now = 0;
        let mut seen = seen.into_iter();
        loop {
            let (took_ns, seen) = seen.next().unwrap_or((US, Seen::Nothing));
            now += took_ns;
            if let Some(end) = spin.looked(now, seen) {
                return (end, now);
            }
        }
    }

    #[test]
    fn a_spin_ends_with_what_it_waits_for_or_after_its_bound() {
        assert_eq!(spin([(3 * US, Seen::Nothing), (US, Seen::Found)]), (End::Worthwhile, 4 * US));
        assert_eq!(spin([]), (End::Vain, BOUND_NS));
        assert_eq!(spin([(GAP_NS, Seen::Found)]).0, End::Worthwhile, "what came is what counts");
    }

    #[test]
    fn who_serves_peers_spins_on() {
        let served = |count| std::iter::repeat_n((20 * US, Seen::Arrived), count);
        assert_eq!(spin(served(1)), (End::Vain, 20 * US + BOUND_NS), "an acknowledgement");
        assert_eq!(spin(served(10)), (End::Worthwhile, 200 * US + BOUND_NS));
        assert_eq!(spin([(GAP_NS, Seen::Arrived)]).0, End::Vain, "a long message is no gap");
    }

    #[test]
    fn a_lost_processor_ends_a_spin() {
        assert_eq!(spin([(US, Seen::Nothing), (GAP_NS, Seen::Nothing)]).0, End::Lost);
    }

    /// Sleeps before the next spin.
    fn pause(habit: &mut Habit) -> u32 {
        (0..1_000_000).find(|_| habit.begins()).expect("it begins at some time")
    }

    #[test]
    fn spins_in_vain_become_rare_and_one_answer_brings_them_back() {
        let mut habit = Habit::default();
        assert_eq!(pause(&mut habit), 0, "the first sleep");
        let mut pauses = Vec::new();
        for _ in 0..12 {
            habit.ended(End::Vain, 0);
            pauses.push(pause(&mut habit));
        }
        assert_eq!(pauses[..4], [1, 3, 7, 15]);
        assert_eq!(pauses[9..], [1023; 3]);
        habit.ended(End::Worthwhile, 0);
        assert_eq!(pause(&mut habit), 0);
        habit.ended(End::Vain, 0);
        assert_eq!(pause(&mut habit), 1);
    }

    #[test]
    fn a_lost_processor_is_left_to_others_and_forgotten_in_the_end() {
        let mut habit = Habit::default();
        let mut pauses = Vec::new();
        for _ in 0..9 {
            habit.ended(End::Lost, 0);
            pauses.push(pause(&mut habit));
            habit.ended(End::Worthwhile, 0);
        }
        assert_eq!(pauses[..3], [64, 128, 256]);
        assert_eq!(pauses[6..], [4096; 3]);
        habit.ended(End::Lost, LOST_FORGOTTEN);
        assert_eq!(pause(&mut habit), 64, "it had served peers for long");
        (0..3).for_each(|_| habit.ended(End::Lost, 0));
        (0..LOST_FORGOTTEN).for_each(|_| habit.ended(End::Worthwhile, 0));
        habit.ended(End::Lost, 0);
        assert_eq!(pause(&mut habit), 64);
    }

    #[test]
    fn nobody_spins_without_a_bound() {
        let spinner = Spinner::default();
        assert!(!spinner.spin(0, None, || panic!("a look")));
        assert!(spinner.spin(BOUND_NS, None, || Seen::Found));
        assert!(spinner.spin(u64::MAX, Some(0), || Seen::Nothing), "the time is over");
    }
}
