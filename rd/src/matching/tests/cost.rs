//! What calls cost, in steps and in memory: see the table in the text of the module above.

use super::super::list::SHORT;
use super::super::steps::counted;
use super::super::unexpected::INDEXES_MAX;
use super::super::{Matcher, Pattern, Senders, TagMask};
use super::source;
use crate::units::{KeyIndex, PeerId};
use alloc::vec::Vec;

const FEW: u64 = 10;
const MANY: u64 = 100_000;
/// Place of the bits that some receives ignore. The bits below tell the receives apart.
const IGNORED_FROM: u32 = 32;
/// No receive has this tag.
const NO_TAG: u64 = 1 << 31;

type Queues = Matcher<PeerId, u64, u64>;

/// Receives that differ in their tags.
#[derive(Clone, Copy)]
struct Shape {
    /// Numbers of masks of ignored bits, and of kinds of senders.
    masks: u64,
    kinds: u64,
}

const EXACT: Shape = Shape { masks: 1, kinds: 1 };
const DIRECTED: Shape = Shape { masks: 1, kinds: 3 };
const MASKED: Shape = Shape { masks: 8, kinds: 1 };

impl Shape {
    fn classes(self) -> u64 {
        self.masks * self.kinds
    }

    /// The receive with this number.
    fn receive(self, number: u64) -> Pattern<PeerId> {
        let from = match number / self.masks % self.kinds {
            0 => Senders::Any,
            1 => Senders::One(source(number)),
            _ => Senders::Key(KeyIndex(0)),
        };
        let ignore = ((1 << (number % self.masks)) - 1) << IGNORED_FROM;
        Pattern { from, tag: Some(TagMask { tag: number, ignore }) }
    }

    /// A matcher with so many receives.
    fn posted(self, count: u64) -> Queues {
        let mut queues = Queues::new(u32::MAX, u32::MAX, 5);
        for number in 0..count {
            queues.post(self.receive(number), number).expect("room");
        }
        queues
    }

    /// The most steps of an arrival among `count` receives: for the first, some in the middle, the last and none.
    fn arrival(self, count: u64) -> u64 {
        let mut queues = self.posted(count);
        let numbers = (0..count).step_by((count as usize / 50).max(1)).chain([count - 1]);
        let taken = numbers.map(|number| {
            let found = || {
                let key = queues.find_posted(source(number), Some(number)).expect("a receive");
                queues.remove_posted(key).1
            };
            let (found, steps) = counted(found);
            assert_eq!(found, number);
            queues.post(self.receive(number), number).expect("room");
            steps
        });
        let most = taken.max().expect("at least one");
        let (found, none) = counted(|| queues.find_posted(source(0), Some(NO_TAG)));
        assert_eq!(found, None);
        most.max(none)
    }
}

#[test]
fn an_arrival_among_many_receives_takes_at_most_twice_the_steps_of_one_among_few() {
    for shape in [EXACT, DIRECTED, MASKED] {
        let (few, many) = (shape.arrival(FEW), shape.arrival(MANY));
        assert!(many <= 2 * few, "{few} steps, then {many}, with {} classes", shape.classes());
    }
}

#[test]
fn an_arrival_takes_steps_in_proportion_to_classes_not_to_receives() {
    for masks in [1, 8, 30] {
        let shape = Shape { masks, kinds: 3 };
        let (some, many) = (shape.arrival(2_000), shape.arrival(MANY));
        let most = 2 * shape.classes() + 10;
        assert!(some <= most && many <= most, "{some} and {many} steps, not {most}");
    }
}

/// The first of many receives that ask for the same is as near as a receive alone.
#[test]
fn receives_that_are_the_same_are_in_line() {
    let mut queues = Queues::new(u32::MAX, u32::MAX, 5);
    let (same, other) = (EXACT.receive(1), EXACT.receive(2));
    queues.post(other, 0).expect("room");
    for number in 1..MANY {
        queues.post(same, number).expect("room");
    }
    for number in 1..MANY {
        let (found, steps) = counted(|| queues.find_posted(source(0), Some(1)).expect("a receive"));
        let (entry, more) = counted(|| queues.remove_posted(found).1);
        assert_eq!(entry, number);
        assert!(steps + more <= SHORT as u64 + 8, "{steps} and {more} steps");
    }
}

/// A matcher with so many messages.
fn waiting(count: u64) -> Queues {
    let mut queues = Queues::new(u32::MAX, u32::MAX, 5);
    for number in 0..count {
        queues.push_unexpected(source(number), Some(number), number).expect("room");
    }
    queues
}

/// The steps of a search that is to find this, and of taking it out.
fn met(queues: &mut Queues, pattern: &Pattern<PeerId>, expected: Option<u64>) -> u64 {
    let search = || {
        let key = queues.find_unexpected(pattern, |_| true)?;
        Some(queues.remove_unexpected(key))
    };
    let (found, steps) = counted(search);
    assert_eq!(found, expected);
    steps
}

#[test]
fn a_class_of_receives_passes_each_message_once() {
    let shape = Shape { masks: INDEXES_MAX as u64, kinds: 1 };
    let (mut queues, mut steps) = (waiting(MANY), 0);
    for number in (0..MANY).rev() {
        steps += met(&mut queues, &shape.receive(number), Some(number));
    }
    let (classes, each) = (shape.classes(), steps / MANY);
    assert!(each <= 5 * classes, "{each} steps for each of the messages, for {classes} classes");
}

#[test]
fn a_search_after_the_first_takes_few_steps() {
    for shape in [EXACT, Shape { masks: 2, kinds: 3 }] {
        let mut queues = waiting(MANY);
        for number in 0..shape.classes() {
            let pattern = shape.receive(number);
            let nothing =
                Pattern { tag: pattern.tag.map(|mask| TagMask { tag: NO_TAG, ..mask }), ..pattern };
            met(&mut queues, &nothing, None);
            assert!(met(&mut queues, &nothing, None) <= 6, "all are known");
        }
        let most = 3 * shape.classes() + 10;
        for number in (0..MANY).rev().step_by(999) {
            let steps = met(&mut queues, &shape.receive(number), Some(number));
            assert!(steps <= most, "{steps} steps for {number}");
        }
        queues.push_unexpected(source(0), Some(NO_TAG), 0).expect("room");
        let last = TagMask { tag: NO_TAG, ignore: 0 };
        let last = Pattern { from: Senders::Any, tag: Some(last) };
        assert!(met(&mut queues, &last, Some(0)) <= most, "one message more");
    }
}

/// Receives from anyone, and with any tag, take the first message, and ask for no index.
#[test]
fn the_first_messages_need_no_index() {
    let mut queues = waiting(1000);
    let anything = Pattern { from: Senders::Any, tag: Some(TagMask { tag: 0, ignore: u64::MAX }) };
    for number in 0..500 {
        assert_eq!(met(&mut queues, &anything, Some(number)), 1);
    }
    assert_eq!(queues.unexpected[1].indexes(), 0);
}

/// More classes than indexes: those that came first keep theirs while all take turns, as long as the walks of the others
/// cost less than a new one. A class that asks alone gets one.
#[test]
fn classes_beyond_the_indexes_walk_until_that_costs_as_much_as_an_index() {
    let count = 1000;
    let shape = Shape { masks: INDEXES_MAX as u64 + 1, kinds: 1 };
    let nothing = |class: u64| {
        let pattern = shape.receive(class);
        Pattern { tag: pattern.tag.map(|mask| TagMask { tag: NO_TAG, ..mask }), ..pattern }
    };
    let mut queues = waiting(count);
    for class in 0..INDEXES_MAX as u64 {
        met(&mut queues, &nothing(class), None);
    }
    let late = nothing(INDEXES_MAX as u64);
    let walks = (0..100).take_while(|_| met(&mut queues, &late, None) >= count).count();
    assert!((9..12).contains(&walks), "{walks} walks before the index is there");
    assert!(met(&mut queues, &late, None) <= 6);
    assert!(met(&mut queues, &nothing(0), None) >= count, "the oldest index is gone");
    assert!(met(&mut queues, &nothing(1), None) <= 6, "the others are there");
    queues.unexpected[1].check();
}

/// What the next message takes is told before, and nothing else that a message does takes memory.
#[test]
fn growth_is_told_before() {
    for searches in [0, 1, INDEXES_MAX as u64] {
        let (mut queues, mut grown) = (Queues::new(u32::MAX, u32::MAX, 5), 0);
        for number in 0..5000 {
            let (told, before) = (queues.growth_bytes(true), queues.unexpected[1].bytes());
            queues.push_unexpected(source(number), Some(number), number).expect("room");
            let after = queues.unexpected[1].bytes();
            assert!(if after == before { told == 0 } else { after <= told }, "{after}, not {told}");
            assert!(told < 4 * after.max(1000), "{told} are far more than {after}");
            grown += u32::from(after != before);
            if number > 1000 && searches > 0 {
                met(&mut queues, &EXACT.receive(NO_TAG), None);
                assert_eq!(queues.unexpected[1].bytes(), after, "a search has its index");
            }
            if number == 1000 {
                for class in 0..searches {
                    let shape = Shape { masks: searches, kinds: 1 };
                    met(&mut queues, &shape.receive(class), Some(class));
                    let last = shape.receive((number - class) / searches * searches + class);
                    let tag = last.tag.expect("a tag").tag;
                    met(&mut queues, &last, Some(tag));
                }
            }
        }
        assert_eq!(queues.unexpected[1].indexes(), searches as usize);
        assert!((8..20).contains(&grown), "{grown} times");
    }
}

/// Messages and receives that come and go as fast as others take no more memory.
#[test]
fn a_steady_state_takes_no_memory() {
    let (mut posted, mut waiting) = (MASKED.posted(900), waiting(900));
    let mut bytes = Vec::new();
    for number in 0..200_000 {
        let key = posted.find_posted(source(number), Some(number)).expect("a receive");
        posted.remove_posted(key);
        posted.post(MASKED.receive(number + 900), number).expect("room");
        met(&mut waiting, &MASKED.receive(number + 899), Some(number + 899));
        let (fresh, tag) = (number + 900, Some(number + 900));
        waiting.push_unexpected(source(fresh), tag, fresh).expect("room");
        if number % 50_000 == 49_999 {
            bytes.push((posted.posted[1].bytes(), waiting.unexpected[1].bytes()));
        }
    }
    assert!(bytes.windows(2).all(|pair| pair[0] == pair[1]), "{bytes:?}");
}

/// A long list of messages gives its memory back when it is empty.
#[test]
fn an_empty_list_of_messages_keeps_little() {
    let mut queues = waiting(MANY);
    met(&mut queues, &EXACT.receive(MANY - 1), Some(MANY - 1));
    assert!(queues.unexpected[1].bytes() > 1 << 20);
    queues.take_unexpected(|_, _| true);
    assert_eq!(queues.unexpected[1].bytes(), 0);
    assert_eq!(queues.unexpected_len(), 0);
    let key = queues.push_unexpected(source(1), Some(1), 7).expect("room");
    assert_eq!(queues.remove_unexpected(key), 7);
}
