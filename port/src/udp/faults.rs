//! A bad network between the socket and its reader, for tests: it loses, duplicates or delays arrivals, by a seeded
//! choice.

use super::RxDatagram;
use erd_sys::clock;
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};
use std::collections::VecDeque;

/// Most arrivals held back; more come in their turn.
const HELD_MAX: usize = 64;
/// Most arrivals that overtake a late one.
const OVERTAKEN_MAX: u32 = 8;
/// Longest time that one is held back if nothing overtakes it.
const HOLD_NS: u64 = 500_000;

/// Probabilities of faults to an arrival, each from 0 to 1.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct FaultRates {
    /// It is lost.
    pub loss: f64,
    /// It comes twice.
    pub dup: f64,
    /// Up to 8 others overtake it.
    pub reorder: f64,
    /// The seed of the choices; each socket derives its own from it and its port number.
    pub seed: u64,
}

impl FaultRates {
    /// Reads `loss=0.01,dup=0.01,reorder=0.1,seed=7`, where each part is optional; `None` for anything else.
    #[must_use]
    pub fn parse(text: &str) -> Option<FaultRates> {
        let mut rates = FaultRates { loss: 0.0, dup: 0.0, reorder: 0.0, seed: 0 };
        for part in text.split(',') {
            let (name, value) = part.split_once('=')?;
            let rate = match name.trim() {
                "seed" => {
                    rates.seed = value.trim().parse().ok()?;
                    continue;
                }
                "loss" => &mut rates.loss,
                "dup" => &mut rates.dup,
                "reorder" => &mut rates.reorder,
                _ => return None,
            };
            *rate = value.trim().parse().ok().filter(|rate| (0.0..=1.0).contains(rate))?;
        }
        Some(rates)
    }
}

/// An arrival that is held back.
#[derive(Debug)]
struct Held {
    datagram: RxDatagram<'static>,
    data: Vec<u8>,
    /// Arrivals that may still overtake it.
    overtaken: u32,
    since_ns: u64,
}

/// See the module's text.
#[derive(Debug)]
pub(super) struct Faults {
    rates: FaultRates,
    random: Pcg64Mcg,
    held: VecDeque<Held>,
}

impl Faults {
    pub(super) fn new(rates: FaultRates, port: u16) -> Faults {
        let random = Pcg64Mcg::seed_from_u64(rates.seed ^ u64::from(port) << 48);
        Faults { rates, random, held: VecDeque::new() }
    }

    fn happens(&mut self, rate: f64) -> bool {
        // 32 bits are plenty for rates that people write.
        f64::from(self.random.next_u32()) < rate * (f64::from(u32::MAX) + 1.0)
    }

    /// Takes an arrival, and hands the results to `f`. Returns their number.
    pub(super) fn pass(
        &mut self,
        datagram: RxDatagram<'_>,
        f: &mut impl FnMut(RxDatagram<'_>),
    ) -> usize {
        if self.happens(self.rates.loss) {
            return 0;
        }
        if self.happens(self.rates.reorder) && self.held.len() < HELD_MAX {
            let overtaken = 1 + self.random.next_u32() % OVERTAKEN_MAX;
            let since_ns = clock::monotonic_ns();
            let data = datagram.data.to_vec();
            let datagram = RxDatagram { data: &[], placed: None, ..datagram };
            self.held.push_back(Held { datagram, data, overtaken, since_ns });
            return 0;
        }
        let times = 1 + usize::from(self.happens(self.rates.dup));
        (0..times).for_each(|_| f(datagram));
        self.held.iter_mut().for_each(|held| held.overtaken = held.overtaken.saturating_sub(1));
        times + self.release(f, |held| held.overtaken == 0)
    }

    /// Without arrivals: hands over those held back for long enough.
    pub(super) fn idle(&mut self, f: &mut impl FnMut(RxDatagram<'_>)) -> usize {
        if self.held.is_empty() {
            return 0;
        }
        let now_ns = clock::monotonic_ns();
        self.release(f, |held| now_ns >= held.since_ns + HOLD_NS)
    }

    fn release(
        &mut self,
        f: &mut impl FnMut(RxDatagram<'_>),
        due: impl Fn(&Held) -> bool,
    ) -> usize {
        let before = self.held.len();
        self.held.retain(|held| {
            let due = due(held);
            if due {
                f(RxDatagram { data: &held.data, ..held.datagram });
            }
            !due
        });
        before - self.held.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use erd_types::Ecn;

    fn arrival(data: &[u8]) -> RxDatagram<'_> {
        let src = ([127, 0, 0, 1], 9).into();
        RxDatagram { data, placed: None, src, ecn: Ecn::NotEct, trimmed: false, hold_ns: 0 }
    }

    #[test]
    fn rates_are_read_and_nonsense_is_not() {
        let rates = FaultRates::parse("loss=0.01, dup=0.5,reorder=1,seed=9").expect("rates");
        assert_eq!(rates, FaultRates { loss: 0.01, dup: 0.5, reorder: 1.0, seed: 9 });
        for nonsense in ["", "loss", "loss=2", "loss=-1", "drop=0.1", "seed=x", "loss=nan"] {
            assert_eq!(FaultRates::parse(nonsense), None, "{nonsense}");
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "it takes Miri minutes")]
    fn arrivals_are_lost_doubled_and_overtaken_at_their_rates() {
        let rates = FaultRates { loss: 0.1, dup: 0.1, reorder: 0.1, seed: 1 };
        let mut faults = Faults::new(rates, 7);
        let mut seen = Vec::new();
        for number in 0..10_000_u32 {
            let passed = faults.pass(arrival(&number.to_be_bytes()), &mut |datagram| {
                seen.push(u32::from_be_bytes(datagram.data.try_into().expect("4 bytes")));
            });
            assert!(passed <= 2 + HELD_MAX);
        }
        let late = seen.windows(2).filter(|pair| pair[0] > pair[1]).count();
        let lag = (0..seen.len())
            .map(|at| seen[..at].iter().max().map_or(0, |max| max.saturating_sub(seen[at])));
        assert!(lag.max().expect("some") <= 3 * OVERTAKEN_MAX);
        seen.sort_unstable();
        let whole = seen.len();
        seen.dedup();
        assert!((8_700..9_300).contains(&seen.len()), "{} of 10000 came", seen.len());
        assert!((600..1_200).contains(&(whole - seen.len())), "{} came twice", whole - seen.len());
        assert!((500..1_500).contains(&late), "{late} were late");
        std::thread::sleep(std::time::Duration::from_nanos(HOLD_NS));
        faults.idle(&mut |_| ());
        assert!(faults.held.is_empty(), "nothing is kept for good");
    }
}
