//! The keys of an endpoint, in all short sequences of renewals and ends, against lists of the keys that were in each place.

use super::toy::Toy;
use super::*;
use crate::bounded::{each_sequence, is_large};

/// A key takes the place of another, or the ones before the newest end.
#[derive(Clone, Copy, Debug)]
enum Call {
    Renew(u8, u8),
    Retire,
}

/// The keys that were in a place, the newest last.
#[derive(Clone, Debug)]
struct Line {
    ids: Vec<u8>,
    /// The one before the newest is valid.
    before: bool,
}

impl Line {
    /// The valid keys with their turns, the newest first.
    fn valid(&self) -> Vec<(u8, Turn)> {
        let count = if self.before { 2 } else { 1 };
        let all = self.ids.iter().enumerate().rev().take(count);
        all.map(|(nth, id)| (*id, Turn((nth % 255) as u8))).collect()
    }
}

/// The places.
type Model = Vec<Option<Line>>;

/// The first place that has this key, and its turn there.
fn find(model: &Model, id: u8) -> Option<KeyRef> {
    let in_line = |(at, line): (usize, &Option<Line>)| {
        let (_, turn) = line.as_ref()?.valid().into_iter().find(|(own, _)| *own == id)?;
        Some(KeyRef { at: KeyIndex(at as u8), turn })
    };
    model.iter().enumerate().find_map(in_line)
}

fn key(id: u8) -> Arc<dyn Keys> {
    Arc::new(Toy(id))
}

fn agree(keys: &KeySet, model: &Model, calls: &[Call]) {
    for id in 0..=7 {
        let found = find(model, id);
        assert_eq!(keys.find_ref([id; KEY_ID_BYTES]), found, "{id} after {calls:?}");
        assert_eq!(keys.find([id; KEY_ID_BYTES]), found.map(|key| key.at), "{calls:?}");
        let whole = keys.find_key([id; KEY_ID_BYTES]).map(|(at, key)| (at, key.id()));
        assert_eq!(whole, found.map(|key| (key.at, [id; KEY_ID_BYTES])), "{calls:?}");
    }
    let all: Vec<u8> = keys.places().map(|at| at.0).collect();
    let there = (0u8..).zip(model).filter(|(_, line)| line.is_some()).map(|(at, _)| at);
    let there: Vec<u8> = there.collect();
    assert_eq!(all, if there.is_empty() { [0].to_vec() } else { there }, "{calls:?}");
    for at in [0, 1, 2, 3, 14, 15, 16, 254, 255].map(KeyIndex) {
        let line = model.get(usize::from(at.0)).and_then(Option::as_ref);
        let valid = line.map(Line::valid).unwrap_or_default();
        let nth = |nth: usize| valid.get(nth).map(|(_, turn)| KeyRef { at, turn: *turn });
        assert_eq!((keys.newest(at), keys.before(at)), (nth(0), nth(1)), "{at:?} {calls:?}");
        let newest = valid.first().map(|(id, _)| [*id; KEY_ID_BYTES]);
        assert_eq!(keys.get(at).map(Keys::id), newest, "{at:?} after {calls:?}");
        for turn in [0, 1, 2, 3, 4, 252, 253, 254, 255].map(Turn) {
            let own = valid.iter().find(|(_, own)| *own == turn);
            let is = keys.of(KeyRef { at, turn }).map(Keys::id);
            assert_eq!(is, own.map(|(id, _)| [*id; KEY_ID_BYTES]), "{at:?} {turn:?} {calls:?}");
        }
    }
}

fn call(keys: &mut KeySet, model: &mut Model, call: Call) {
    match call {
        Call::Renew(at, id) => {
            let is_known = find(model, id).is_some();
            let line = model.get_mut(usize::from(at)).and_then(Option::as_mut);
            let line = line.filter(|line| !line.before && !is_known);
            assert_eq!(keys.renew(KeyIndex(at), key(id)), line.is_some(), "{call:?} of {keys:?}");
            if let Some(line) = line {
                line.ids.push(id);
                line.before = true;
            }
        }
        Call::Retire => {
            keys.retire();
            model.iter_mut().flatten().for_each(|line| line.before = false);
        }
    }
}

/// Keys in these places; the first has been renewed so many times.
fn start(ids: &[Option<u8>], renewals: usize) -> (KeySet, Model) {
    let mut keys = KeySet::new(ids.iter().map(|id| id.map(key)));
    let line = |id: &Option<u8>| id.map(|id| Line { ids: [id].to_vec(), before: false });
    let mut model: Model = ids.iter().take(KEYS_MAX).map(line).collect();
    for nth in 0..renewals {
        call(&mut keys, &mut model, Call::Renew(0, 6 + (nth % 2) as u8));
        call(&mut keys, &mut model, Call::Retire);
    }
    (keys, model)
}

#[test]
fn a_key_is_valid_from_its_renewal_to_the_end_of_the_next() {
    let mut calls = [Call::Retire].to_vec();
    for at in [0, 1, 2, 15, 16, 255] {
        calls.extend([1, 3, 4, 5].map(|id| Call::Renew(at, id)));
    }
    let full: Vec<_> = (0..18).map(|at| if at == 2 { None } else { Some(1 + at % 4) }).collect();
    let few = [Some(1), Some(2), None];
    let depth = if is_large() { 4 } else { 2 };
    for ids in [&few[..], &full, &[Some(1)], &[None, Some(1)], &[]] {
        for renewals in [0, 1, 2, 253, 254, 255] {
            let begun = start(ids, renewals);
            agree(&begun.0, &begun.1, &[]);
            each_sequence(&calls, depth, |calls| {
                let (mut keys, mut model) = begun.clone();
                calls.iter().for_each(|one| call(&mut keys, &mut model, *one));
                agree(&keys, &model, calls);
            });
        }
    }
}

/// More calls, of fewer kinds: keys that come again, and two places that renew in turns.
#[test]
fn a_key_that_has_ended_may_come_again() {
    let calls = [
        Call::Retire,
        Call::Renew(0, 1),
        Call::Renew(0, 2),
        Call::Renew(0, 3),
        Call::Renew(1, 1),
        Call::Renew(1, 3),
    ];
    let depth = if is_large() { 7 } else { 4 };
    for renewals in [0, 252] {
        let begun = start(&[Some(1), Some(2)], renewals);
        each_sequence(&calls, depth, |calls| {
            let (mut keys, mut model) = begun.clone();
            calls.iter().for_each(|one| call(&mut keys, &mut model, *one));
            agree(&keys, &model, calls);
        });
    }
}
