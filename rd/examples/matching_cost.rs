//! Matches messages with receives, for counting what one costs: `matching_cost SIDE PATTERNS COUNT ACTION ROUNDS`.
//!
//! - SIDE: `posted` (COUNT receives are posted, and messages arrive) or `unexpected` (COUNT messages wait, and receives
//!   are posted);
//! - PATTERNS: `same` (all have one tag: the first matches), `exact` (each has a tag of its own, and the last matches),
//!   `directed` (likewise, and each names its source), `masks` (likewise from any source, with 8 masks of ignored bits),
//!   `classes` (the same with each of the three kinds of senders);
//! - ACTION: `find`, or `cycle` (find, take out, put in again).
//!
//! Run it under callgrind with two numbers of rounds. The difference is the cost of the rounds between.

use erd_rd::matching::{Matcher, Pattern, Senders, TagMask};
use erd_rd::{KeyIndex, PeerId};
use std::hint::black_box;

/// Masks of ignored bits.
const MASKS: u64 = 8;
/// Place of the bits that some receives ignore. The bits below tell the receives apart.
const IGNORED_FROM: u32 = 32;

/// What an owner would draw.
const RANDOM: u64 = 7;

type Queues = Matcher<PeerId, u64, u64>;

/// The patterns of receives.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Patterns {
    Same,
    Exact,
    Directed,
    Masks,
    Classes,
}

impl Patterns {
    fn named(name: &str) -> Patterns {
        match name {
            "same" => Patterns::Same,
            "exact" => Patterns::Exact,
            "directed" => Patterns::Directed,
            "masks" => Patterns::Masks,
            "classes" => Patterns::Classes,
            other => panic!("{other} is no pattern"),
        }
    }

    /// The receive with this number.
    fn receive(self, number: u64) -> Pattern<PeerId> {
        let from = match (self, number / MASKS % 3) {
            (Patterns::Directed, _) | (Patterns::Classes, 1) => Senders::One(source(number)),
            (Patterns::Classes, 2) => Senders::Key(KeyIndex(0)),
            _ => Senders::Any,
        };
        let ignore = match self {
            Patterns::Masks | Patterns::Classes => ((1 << (number % MASKS)) - 1) << IGNORED_FROM,
            _ => 0,
        };
        Pattern { from, tag: Some(TagMask { tag: self.tag(number), ignore }) }
    }

    /// The tag of the message with this number.
    fn tag(self, number: u64) -> u64 {
        if self == Patterns::Same { 0 } else { number }
    }
}

/// The source of the message with this number.
fn source(number: u64) -> PeerId {
    PeerId { index: (number % 64) as u32, generation: 1, key: KeyIndex(0) }
}

fn arrivals(queues: &mut Queues, patterns: Patterns, number: u64, rounds: u64, takes: bool) {
    for _ in 0..rounds {
        let found = queues.find_posted(source(number), Some(patterns.tag(number)));
        let key = black_box(found).expect("a receive");
        if takes {
            let (pattern, entry) = queues.remove_posted(key);
            queues.post(pattern, entry).expect("room");
        }
    }
}

fn posts(queues: &mut Queues, patterns: Patterns, number: u64, rounds: u64, takes: bool) {
    for _ in 0..rounds {
        let found = queues.find_unexpected(&patterns.receive(number), |_| true);
        let key = black_box(found).expect("a message");
        if takes {
            let entry = queues.remove_unexpected(key);
            let tag = Some(patterns.tag(number));
            queues.push_unexpected(source(number), tag, entry).expect("room");
        }
    }
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let [_, side, patterns, count, action, rounds] = args.as_slice() else {
        panic!("usage: matching_cost SIDE PATTERNS COUNT ACTION ROUNDS");
    };
    let patterns = Patterns::named(patterns);
    let count: u64 = count.parse().expect("a number of receives or messages");
    let rounds: u64 = rounds.parse().expect("a number of rounds");
    let takes = action == "cycle";
    let mut queues = Queues::new(u32::MAX, u32::MAX, RANDOM);
    match side.as_str() {
        "posted" => {
            for number in 0..count {
                queues.post(patterns.receive(number), number).expect("room");
            }
            arrivals(&mut queues, patterns, count - 1, rounds, takes);
        }
        "unexpected" => {
            for number in 0..count {
                let tag = Some(patterns.tag(number));
                queues.push_unexpected(source(number), tag, number).expect("room");
            }
            posts(&mut queues, patterns, count - 1, rounds, takes);
        }
        other => panic!("{other} is neither posted nor unexpected"),
    }
}
