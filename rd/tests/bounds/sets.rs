//! Bitmaps, rings and queues, in all short sequences of calls, against plain collections.

use super::is_large;
use super::keyed::Toy;
use erd_rd::KeyIndex;
use erd_rd::bitmap::{BITS_MAX, Bitmap};
use erd_rd::cc::paths::{EcnBitmap, LossyPath, PathBits, Reps};
use erd_rd::cc::{Loss, LossKind};
use erd_rd::keys::{KEY_ID_BYTES, KEYS_MAX, KeySet, Keys};
use erd_rd::match_order::{MatchOrder, Place};
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

/// A set of numbers from `base` on.
#[derive(Clone, Default)]
struct Numbers {
    base: u64,
    set: BTreeSet<u64>,
}

impl Numbers {
    fn advance(&mut self, skip: u64) -> u64 {
        let before = self.base;
        self.base += skip;
        while self.set.contains(&self.base) {
            self.base += 1;
        }
        self.set = self.set.split_off(&self.base);
        self.base - before
    }

    fn word(&self, offset: u64) -> u64 {
        let from = self.base + offset;
        self.set.range(from..from + 64).fold(0, |word, at| word | 1 << (at - from))
    }
}

#[derive(Clone, Copy, Debug)]
enum Call {
    Set(u32),
    Advance(u32),
    Shrink,
}

const CALLS: [Call; 14] = [
    Call::Set(0),
    Call::Set(1),
    Call::Set(2),
    Call::Set(63),
    Call::Set(64),
    Call::Set(255),
    Call::Set(256),
    Call::Set(BITS_MAX - 1),
    Call::Advance(0),
    Call::Advance(1),
    Call::Advance(63),
    Call::Advance(256),
    Call::Advance(BITS_MAX + 1),
    Call::Shrink,
];

fn agree(bits: &Bitmap, numbers: &Numbers, calls: &[Call]) {
    assert_eq!(bits.ones() as usize, numbers.set.len(), "{calls:?}");
    for offset in [0, 1, 2, 62, 63, 64, 65, 128, 192, 254, 255, 256, 257, 511] {
        let is_set = numbers.set.contains(&(numbers.base + u64::from(offset)));
        assert_eq!(bits.get(offset), is_set, "{offset} after {calls:?}");
        assert_eq!(bits.word(offset), numbers.word(offset.into()), "{offset} after {calls:?}");
    }
    for far in [BITS_MAX - 65, BITS_MAX - 64, BITS_MAX - 1, BITS_MAX, u32::MAX - 63, u32::MAX] {
        let is_set = numbers.set.contains(&(numbers.base + u64::from(far)));
        assert_eq!(bits.get(far), is_set, "{far} after {calls:?}");
        assert_eq!(bits.word(far), numbers.word(far.into()), "{far} after {calls:?}");
    }
    agree_on_unset(bits, numbers, calls);
}

/// Words of another bitmap, whose bits are anywhere.
const OTHERS: [u64; 7] = [u64::MAX, 0, 1, 1 << 63, u64::MAX, 0x5555_5555_5555_5555, u64::MAX];

/// Compares with words that begin at these places, in as many steps as it takes.
fn agree_on_unset(bits: &Bitmap, numbers: &Numbers, calls: &[Call]) {
    for offset in [0, 1, 63, 64, 191, 192, 200, 255, 256, BITS_MAX - 130, BITS_MAX, u32::MAX - 600]
    {
        let known = |nth: usize| numbers.word(u64::from(offset) + 64 * nth as u64);
        let unset = OTHERS.iter().enumerate().map(|(nth, other)| (nth, other & !known(nth)));
        let expected: Vec<_> = unset.filter(|(_, unset)| *unset != 0).collect();
        for most in [1, 2, OTHERS.len() + 1] {
            let (mut found, mut from) = (Vec::new(), 0);
            loop {
                let mut some = vec![(0, 0); most];
                let at = offset + 64 * from as u32;
                let count = bits.unset(at, &OTHERS[from..], |other| *other, &mut some);
                found.extend(some[..count].iter().map(|(nth, unset)| (from + nth, *unset)));
                if count < most {
                    break;
                }
                from = found[found.len() - 1].0 + 1;
            }
            assert_eq!(found, expected, "{most} at a time from {offset} on after {calls:?}");
        }
    }
}

fn each_sequence(bits: &Bitmap, numbers: &Numbers, calls: &mut Vec<Call>, left: u32) {
    agree(bits, numbers, calls);
    if left == 0 {
        return;
    }
    for call in CALLS {
        let (mut bits, mut numbers) = (bits.clone(), numbers.clone());
        calls.push(call);
        match call {
            Call::Set(offset) => {
                bits.set(offset);
                numbers.set.insert(numbers.base + u64::from(offset));
            }
            Call::Advance(skip) => {
                let moved = bits.advance(skip);
                assert_eq!(u64::from(moved), numbers.advance(skip.into()), "{calls:?}");
            }
            Call::Shrink => bits.shrink(),
        }
        each_sequence(&bits, &numbers, calls, left - 1);
        calls.pop();
    }
}

#[test]
fn a_bitmap_is_a_set_of_numbers_from_its_base_on() {
    let depth = if is_large() { 5 } else { 3 };
    each_sequence(&Bitmap::default(), &Numbers::default(), &mut Vec::new(), depth);
}

/// A bitmap whose ring begins at this bit, with these bits set.
fn turned(start: u32, set: &[u32]) -> Bitmap {
    let mut bits = Bitmap::default();
    // It keeps its memory, and its base moves on from there.
    bits.set(255);
    bits.advance(256 + start);
    set.iter().for_each(|offset| bits.set(*offset));
    bits
}

#[test]
fn a_bitmap_is_the_same_wherever_its_ring_begins_and_after_it_grew() {
    let pairs = if is_large() { 1 } else { 17 };
    for start in 0..256 {
        for one in (start % pairs..256).step_by(pairs as usize) {
            for other in [0, 63, 64, 127, 255] {
                let mut bits = turned(start, &[one, other]);
                let set = BTreeSet::from([one.into(), other.into()]);
                let numbers = Numbers { base: 0, set };
                agree(&bits, &numbers, &[]);
                bits.set(700);
                let mut numbers = numbers;
                numbers.set.insert(700);
                agree(&bits, &numbers, &[]);
                assert_eq!(u64::from(bits.advance(1)), numbers.advance(1), "{start} {one} {other}");
                agree(&bits, &numbers, &[]);
            }
        }
    }
}

#[test]
fn path_bits_are_a_list_of_flags() {
    // All but a few paths are set, since the first clear one is looked for.
    for (one, other) in (0..256u16).flat_map(|one| [0, 1, 63, 64, 255].map(|other| (one, other))) {
        let (mut bits, mut flags) = (PathBits::default(), [true; 256]);
        (0..256).for_each(|path| bits.set(path, true));
        for path in [one, other] {
            bits.set(path, false);
            flags[usize::from(path)] = false;
        }
        assert!((0..256).all(|path| bits.get(path) == flags[usize::from(path)]));
        for from in 0..=256u16 {
            for paths in [1, 2, 63, 64, 65, 128, 200, 255, 256] {
                let clear = (from..paths).find(|path| !flags[usize::from(*path)]);
                assert_eq!(bits.first_clear(from, paths), clear, "{one} {other} {from} {paths}");
            }
        }
        bits.set(one, true);
        bits.set(other, true);
        assert_eq!(bits.first_clear(0, 256), None);
    }
}

/// The round over the paths, by its definition.
#[derive(Clone)]
struct Round {
    marked: Vec<bool>,
    next: usize,
}

impl Round {
    fn next(&mut self) -> usize {
        let paths = self.marked.len();
        let first = self.next % paths;
        let mut path = first;
        if core::mem::take(&mut self.marked[first]) {
            let behind = (first + 1..paths).chain(0..paths).find(|path| !self.marked[*path]);
            path = behind.expect("the first is clear");
        }
        self.next = path + 1;
        path
    }
}

fn each_round(bits: EcnBitmap, round: &Round, left: u32) {
    let paths = round.marked.len();
    if left == 0 {
        return;
    }
    for path in 0..paths {
        for marked in [false, true] {
            let (mut bits, mut round) = (bits, round.clone());
            bits.on_ack(path as u16, marked);
            round.marked[path] = marked;
            each_round(bits, &round, left - 1);
        }
    }
    let (mut bits, mut round) = (bits, round.clone());
    assert_eq!(usize::from(bits.next(paths as u16)), round.next());
    each_round(bits, &round, left - 1);
}

#[test]
fn a_marked_path_is_skipped_once() {
    let depth = if is_large() { 8 } else { 6 };
    for paths in 1..=4 {
        each_round(EcnBitmap::default(), &Round { marked: vec![false; paths], next: 0 }, depth);
        // The round goes on behind any path, of another number of paths too.
        for after in [0, 1, 254, 255, 256, u16::MAX - 1, u16::MAX] {
            let mut bits = EcnBitmap::default();
            bits.resume_after(after);
            let next = usize::from(after.wrapping_add(1));
            each_round(bits, &Round { marked: vec![false; paths], next }, 3);
        }
    }
    for mark in 0..=255 {
        let mut bits = EcnBitmap::default();
        (0..256).for_each(|path| bits.on_ack(path, path != mark));
        let mut round = Round { marked: (0..256).map(|path| path != mark).collect(), next: 0 };
        for _ in 0..600 {
            assert_eq!(usize::from(bits.next(256)), round.next(), "{mark}");
        }
    }
}

fn each_recycling(reps: &Reps, came: &VecDeque<u8>, number: u8, left: u32) {
    if left == 0 {
        return;
    }
    let (mut next, mut list) = (reps.clone(), came.clone());
    next.on_ack(u16::from(number), false);
    list.push_back(number);
    if list.len() > 8 {
        list.pop_front();
    }
    each_recycling(&next, &list, number.wrapping_add(1), left - 1);
    let mut next = reps.clone();
    next.on_ack(u16::from(number), true);
    let mut list = came.clone();
    // Of paths that this flow has no more, the last is used.
    for last_path in [255, 6] {
        let oldest = list.pop_front();
        let expected = oldest.map(|path| u16::from(path.min(last_path)));
        assert_eq!(next.recycle(last_path), expected);
    }
    each_recycling(&next, &list, number, left - 1);
}

#[test]
fn the_oldest_of_the_last_eight_unmarked_paths_is_recycled() {
    each_recycling(&Reps::default(), &VecDeque::new(), 0, if is_large() { 22 } else { 18 });
}

#[test]
fn a_lossy_path_is_left_for_67_s_at_most_whatever_the_times() {
    let times = [0, 1, 999, 1 << 20, 1 << 32, (1 << 32) * 1_000 - 1, (1 << 42) + 7, u64::MAX >> 1];
    let rtts = [0, 1, 1_000, 1 << 32, u64::MAX];
    let losses: Vec<_> = times
        .into_iter()
        .flat_map(|now| rtts.map(|rtt| (now, rtt)))
        .flat_map(|(now, rtt)| [0, 255].map(|path| (now, rtt, path)))
        .collect();
    let lose = |lossy: &mut LossyPath, (now, rtt, path): (u64, u64, u16)| {
        for sent_at in [now, now / 2] {
            let kind = LossKind::Nack;
            lossy.on_loss(&Loss { now, sent_at, bytes: 1, path, kind, in_flight_bytes: 0 }, rtt);
        }
    };
    for (one, other) in losses.iter().flat_map(|one| losses.iter().map(move |other| (one, other))) {
        let mut lossy = LossyPath::default();
        lose(&mut lossy, *one);
        lose(&mut lossy, *other);
        if lossy.left(other.0).is_some() {
            // The most that counts, and a microsecond for each rounding.
            assert_eq!(lossy.left(other.0 + ((1 << 26) + 2) * 1_000), None, "{one:?} {other:?}");
        }
        lossy.on_timeout();
        assert_eq!(lossy.left(other.0), None);
    }
}

/// The matched messages of each source: their place, their number, and whether they are whole.
type Matched = [VecDeque<(Place, u32, bool)>; 2];

/// Makes one of the calls, if there is such a message. False if there is none.
fn call(order: &mut MatchOrder<u32>, model: &mut Matched, choice: u32, number: u32) -> bool {
    let source = (choice % 2) as usize;
    let list = &mut model[source];
    match choice / 2 {
        0 => list.push_back((order.matched(source as u32, number), number, false)),
        1 => {
            let whole = list.front().is_some_and(|first| first.2);
            let expected = if whole { list.pop_front().map(|first| first.1) } else { None };
            assert_eq!(order.next(source as u32), expected);
        }
        2 => {
            let first = list.iter().position(|message| message.2);
            let expected = first.and_then(|at| list.remove(at)).map(|message| message.1);
            assert_eq!(order.whole(source as u32), expected);
        }
        which @ 3..=5 => {
            let Some(message) = list.get_mut(which as usize - 3) else { return false };
            message.2 = true;
            order.ended(message.0);
        }
        which => {
            let Some(message) = list.remove(which as usize - 6) else { return false };
            order.failed(message.0);
        }
    }
    assert_eq!(order.len(), model.iter().map(VecDeque::len).sum::<usize>());
    assert_eq!(order.is_clear(source as u32), model[source].is_empty());
    true
}

#[test]
fn matched_messages_are_lists() {
    const CHOICES: u32 = 18;
    let depth = if is_large() { 6 } else { 4 };
    for sequence in 0..CHOICES.pow(depth) {
        let (mut order, mut model) = (MatchOrder::default(), Matched::default());
        // Three of one source and two of the other, of which one is whole, come first.
        for (number, source) in [0, 0, 0, 1, 1].into_iter().enumerate() {
            call(&mut order, &mut model, source, number as u32);
        }
        call(&mut order, &mut model, 2 * 4, 0);
        let mut rest = sequence;
        for number in 10..10 + depth {
            if !call(&mut order, &mut model, rest % CHOICES, number) {
                break;
            }
            rest /= CHOICES;
        }
    }
}

/// All lists of at most five places, each empty or with one of two keys, and longer ones that are cut off.
#[test]
fn a_key_is_found_in_the_first_place_that_has_it() {
    let place = |id: usize| (id > 0).then(|| Arc::new(Toy { id: id as u8, hides: false }) as _);
    for (len, times) in (0..=5).map(|len| (len, 1)).chain([(5, 3), (5, 4)]) {
        for number in 0..3usize.pow(len) {
            let ids: Vec<usize> = (0..len).map(|at| number / 3usize.pow(at) % 3).collect();
            let ids = ids.repeat(times);
            let keys = KeySet::new(ids.iter().map(|id| place(*id)));
            let ids = &ids[..ids.len().min(KEYS_MAX)];
            assert_eq!(keys.is_empty(), ids.iter().all(|id| *id == 0), "{ids:?}");
            for id in 0..4 {
                let first = ids.iter().position(|other| *other == id).filter(|_| id > 0);
                let found = keys.find([id as u8; KEY_ID_BYTES]);
                assert_eq!(found.map(|at| usize::from(at.0)), first, "{id} in {ids:?}");
            }
            for at in 0..=u8::MAX {
                let id = ids.get(usize::from(at)).filter(|id| **id > 0);
                let got = keys.get(KeyIndex(at)).map(Keys::id);
                assert_eq!(got, id.map(|id| [*id as u8; KEY_ID_BYTES]), "{at} of {ids:?}");
            }
        }
    }
}
