//! The parts of a peer in all short sequences of calls, with numbers at the edges of what wraps, against plain models.
//!
//! `rd/tests/bounds` does the same for what is public, and says how to widen the bounds.

use super::flight::{Content, Flight};
use super::flow::Flow;
use super::outbox::Outbox;
use super::paths::{Advice, Paths};
use super::received::Received;
use super::replay::ReplayWindow;
use crate::bitmap::BITS_MAX;
use crate::bounded::{each_sequence, is_large};
use crate::cc::AckPolicy;
use crate::stats::DropReason;
use crate::units::Psn;
use crate::wire::ack::{NACK_RANGES_MAX, NackRange, SACK_WORDS_MAX};
use crate::wire::setup::Greeting;
use crate::wire::window::Window;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

/// Numbers about `near`, and half of all numbers away from it.
fn about(near: u32) -> [u32; 9] {
    [0, 1, 2, u32::MAX, u32::MAX - 1, 0x7fff_fffe, 0x7fff_ffff, 0x8000_0000, 0x8000_0001]
        .map(|ahead| near.wrapping_add(ahead))
}

/// `a - b` on the circle, from -2^31 to 2^31 - 1.
fn distance(a: u32, b: u32) -> i64 {
    let wide = (i64::from(a) - i64::from(b)).rem_euclid(1 << 32);
    if wide >= 1 << 31 { wide - (1 << 32) } else { wide }
}

mod replay {
    use super::*;

    const AHEAD: u64 = 1 << 22;

    #[derive(Clone, Copy, Debug)]
    enum Call {
        /// The counter so far from the end is taken, if it may be.
        Take(i64),
        Open(u64),
        Close,
    }

    const CALLS: [Call; 20] = [
        Call::Take(0),
        Call::Take(1),
        Call::Take(31),
        Call::Take(62),
        Call::Take(63),
        Call::Take(64),
        Call::Take(65),
        Call::Take(127),
        Call::Take(128),
        Call::Take(AHEAD as i64 - 1),
        Call::Take(-1),
        Call::Take(-2),
        Call::Take(-32),
        Call::Take(-63),
        Call::Take(-64),
        Call::Take(-65),
        Call::Take(-128),
        Call::Open(1),
        Call::Open(65),
        Call::Close,
    ];

    /// The same by definition.
    #[derive(Default)]
    struct Model {
        taken: BTreeSet<u64>,
        floor: u64,
        end: u64,
        span: u64,
    }

    impl Model {
        fn admits(&self, counter: u64) -> bool {
            let is_old = counter < self.floor || counter.saturating_add(self.span) < self.end;
            let is_far = counter >= self.end && counter - self.end >= AHEAD;
            !is_old && !is_far && counter != u64::MAX && !self.taken.contains(&counter)
        }

        fn take(&mut self, counter: u64) {
            self.taken.insert(counter);
            self.end = self.end.max(counter + 1);
            if self.span == 0 {
                self.floor = self.end;
            }
        }

        fn resize(&mut self, span: u64) {
            if span != self.span {
                (self.span, self.floor) = (span, self.end);
            }
        }
    }

    fn agree(window: &ReplayWindow, model: &Model, calls: &[Call]) {
        assert_eq!(window.end(), model.end, "{calls:?}");
        let near = model.end.saturating_sub(131)..=model.end.saturating_add(66);
        let far = [0, 1, u64::MAX - 1, u64::MAX];
        let ahead = [AHEAD - 1, AHEAD].map(|ahead| model.end.saturating_add(ahead));
        for counter in near.chain(far).chain(ahead) {
            let (is, should) = (window.admits(counter, AHEAD), model.admits(counter));
            assert_eq!(is, should, "{counter} of {} after {calls:?}", model.end);
        }
    }

    #[test]
    fn a_counter_is_taken_once_within_its_window() {
        let depth = if is_large() { 4 } else { 3 };
        // The last two counters of a phase are among them, and the last of all.
        let borders = [AHEAD - 2, (1 << 32) - 2];
        let ends = [0, 1 << 32, u64::MAX - AHEAD - 70, u64::MAX - 66, u64::MAX - 1];
        for first in ends.into_iter().chain(borders) {
            each_sequence(&CALLS, depth, |calls| {
                let (mut window, mut model) = (ReplayWindow::default(), Model::default());
                window.open(64);
                model.resize(64);
                if first > 0 {
                    window.take(first);
                    model.take(first);
                }
                for call in calls {
                    match *call {
                        Call::Take(from_end) => {
                            let counter = model.end.saturating_add_signed(from_end);
                            if model.admits(counter) {
                                assert!(window.admits(counter, AHEAD), "{calls:?}");
                                window.take(counter);
                                model.take(counter);
                            }
                        }
                        Call::Open(span) => {
                            window.open(span);
                            model.resize(span.next_multiple_of(64));
                        }
                        Call::Close => {
                            window.close();
                            (model.span, model.floor) = (0, model.end);
                        }
                    }
                }
                agree(&window, &model, calls);
            });
        }
    }
}

mod received {
    use super::*;

    #[derive(Clone, Copy, Debug)]
    enum Call {
        Comes(i32),
        Told(i32),
        Trimmed(i32),
        Scans,
        /// An acknowledgement with at most so many ranges.
        Says(usize),
    }

    const WINDOW: i32 = BITS_MAX as i32;

    const CALLS: [Call; 24] = [
        Call::Comes(0),
        Call::Comes(1),
        Call::Comes(2),
        Call::Comes(4),
        Call::Comes(63),
        Call::Comes(64),
        Call::Comes(300),
        Call::Comes(WINDOW - 1),
        Call::Comes(WINDOW),
        Call::Comes(-1),
        Call::Comes(i32::MIN),
        Call::Told(0),
        Call::Told(3),
        Call::Told(WINDOW),
        Call::Told(WINDOW + 1),
        Call::Told(-1),
        Call::Told(i32::MAX),
        Call::Told(i32::MIN),
        Call::Trimmed(0),
        Call::Trimmed(3),
        Call::Trimmed(-1),
        Call::Scans,
        Call::Says(1),
        Call::Says(NACK_RANGES_MAX),
    ];

    /// Packets by their distance from the first, without wraps.
    #[derive(Default)]
    struct Model {
        came: BTreeSet<i64>,
        cum: i64,
        high: i64,
        mark: Option<i64>,
        nack_below: Option<i64>,
        trims: Vec<NackRange>,
    }

    impl Model {
        /// Whether the packet came before; `None` beyond the window.
        fn has(&self, at: i64) -> Option<bool> {
            let is_within = at - self.cum < BITS_MAX.into();
            is_within.then(|| at < self.cum || self.came.contains(&at))
        }

        fn enter(&mut self, at: i64) {
            self.came.insert(at);
            while self.came.contains(&self.cum) {
                self.cum += 1;
            }
            self.came = self.came.split_off(&self.cum);
            self.high = self.high.max(at + 1);
        }

        fn scan(&mut self) {
            if self.high == self.cum {
                self.mark = None;
                return;
            }
            self.nack_below = self.mark.filter(|mark| *mark > self.cum).or(self.nack_below);
            self.mark = Some(self.high);
        }

        fn take_nacks(&mut self, first: Psn, most: usize) -> Vec<NackRange> {
            let mut all: Vec<NackRange> = Vec::new();
            let mut before = false;
            for at in self.cum..self.nack_below.take().unwrap_or(self.cum) {
                let is_missing = !self.came.contains(&at);
                match all.last_mut() {
                    Some(range) if is_missing && before => range.count += 1,
                    _ if is_missing => {
                        let first_psn = first.plus(at as u32).0;
                        all.push(NackRange { first_psn, count: 1, trimmed: None });
                    }
                    _ => (),
                }
                before = is_missing;
            }
            all.truncate(most);
            let trims = self.trims.len().min(most - all.len());
            all.extend(self.trims.drain(..trims));
            all
        }
    }

    fn agree(received: &Received, model: &Model, first: Psn, calls: &[Call]) {
        received.check();
        let psn = |at: i64| first.plus(at as u32);
        assert_eq!(received.cum(), psn(model.cum), "{calls:?}");
        assert_eq!(received.high(), psn(model.high), "{calls:?}");
        assert_eq!(received.has_holes(), model.high > model.cum, "{calls:?}");
        assert_eq!(received.has_nacks(), model.nack_below.is_some(), "{calls:?}");
        let more = !model.came.is_empty() || model.nack_below.is_some() || !model.trims.is_empty();
        assert_eq!(received.has_more_to_say(), more, "{calls:?}");
        for near in [-1, 0, 1, 2, 3, 4, 5, 63, 64, 65, 300, 301, WINDOW - 1, WINDOW, i32::MAX] {
            let at = model.cum + i64::from(near);
            let expected = model.has(at).ok_or(DropReason::Window);
            assert_eq!(received.has(psn(at)), expected, "{near} after {calls:?}");
        }
        let span = (model.high - model.cum) as usize;
        for room in [0, 1, SACK_WORDS_MAX, usize::MAX] {
            let words = if model.came.is_empty() { 0 } else { span.div_ceil(64) };
            let words = words.min(room).min(SACK_WORDS_MAX);
            let word = |word: usize| {
                let from = model.cum + 64 * word as i64;
                model.came.range(from..from + 64).fold(0, |bits, at| bits | 1 << (at - from))
            };
            assert_eq!(
                received.sack(room).collect::<Vec<u64>>(),
                (0..words).map(word).collect::<Vec<u64>>(),
                "{calls:?}"
            );
        }
    }

    fn call(received: &mut Received, model: &mut Model, first: Psn, call: Call, now: u64) {
        let place = |from_cum: i32| model.cum + i64::from(from_cum);
        let psn = |at: i64| first.plus(at as u32);
        match call {
            Call::Comes(from_cum) => {
                let at = place(from_cum);
                if model.has(at) == Some(false) {
                    received.enter(psn(at), now, 10);
                    model.enter(at);
                }
            }
            Call::Told(from_cum) => {
                let told = received.told(psn(place(from_cum)), now, 10);
                assert_eq!(told.is_ok(), from_cum <= WINDOW, "{from_cum}");
                if told.is_ok() {
                    model.high = model.high.max(place(from_cum));
                }
            }
            Call::Trimmed(from_cum) => {
                let at = place(from_cum);
                let first_psn = psn(at).0;
                let is_missing = model.has(at) == Some(false);
                assert_eq!(received.trimmed(psn(at), 7).is_ok(), is_missing, "{from_cum}");
                if is_missing && model.trims.len() < NACK_RANGES_MAX {
                    model.trims.push(NackRange { first_psn, count: 1, trimmed: Some(7) });
                }
            }
            Call::Scans => {
                received.scan(now, 10, 1000);
                model.scan();
                assert_eq!(received.scan_at().is_some(), model.high > model.cum);
            }
            Call::Says(most) => {
                assert_eq!(received.take_nacks(most), model.take_nacks(first, most));
            }
        }
    }

    #[test]
    fn what_came_is_a_set_and_gaps_that_two_scans_see_are_told_once() {
        let depth = if is_large() { 4 } else { 3 };
        for first in [0, u32::MAX - 1, i32::MAX as u32 - 1].map(Psn) {
            each_sequence(&CALLS, depth, |calls| {
                let (mut received, mut model) = (Received::new(first), Model::default());
                // Behind the first call, a gap that one scan saw.
                let before = [Call::Comes(2), Call::Scans];
                for (now, one) in (100..).zip(before.iter().chain(calls)) {
                    call(&mut received, &mut model, first, *one, now);
                }
                agree(&received, &model, first, calls);
                for most in [1, NACK_RANGES_MAX] {
                    call(&mut received, &mut model, first, Call::Scans, 200);
                    call(&mut received, &mut model, first, Call::Says(most), 200);
                }
                agree(&received, &model, first, calls);
            });
        }
    }
}

/// The greeting of a peer that gives no credit yet.
fn greeting() -> Greeting {
    Greeting {
        features: 0,
        session: 1,
        asker: 2,
        epoch: 3,
        incarnation: 1,
        first_psn: 0,
        first_order: 0,
        datagram_bytes: 1472,
        paths: 1,
        ack_policy: AckPolicy::NackOnly,
        window: Window::default(),
        eager_credit_bytes: 0,
        order_window: 0,
        psn_window: BITS_MAX,
        cookie: 0,
        gave_up: 0,
        echo_sent_at_ns: 0,
        random: None,
        name: ([10, 0, 0, 1], 1).into(),
    }
}

/// Limits that the peer tells count only if they are ahead of the last one and less than half of all numbers ahead of
/// what was sent. So the credit never turns negative.
#[test]
fn limits_grow_and_never_pass_for_ones_behind() {
    let depth = if is_large() { 6 } else { 4 };
    for first in [0, 5, u32::MAX, u32::MAX / 2] {
        // A told limit, or none: then an order is taken.
        let mut told: Vec<Option<u32>> = about(first).map(Some).to_vec();
        told.extend([3, 0x4000_0000, 0xc000_0000].map(|ahead| Some(first.wrapping_add(ahead))));
        told.push(None);
        each_sequence(&told, depth, |calls| {
            let mut outbox = Outbox::default();
            outbox.start(first);
            outbox.open(&greeting());
            // From here on without wraps, from the first order.
            let (mut limit, mut used) = (0i64, 0i64);
            for call in calls {
                match call {
                    Some(told) => {
                        outbox.raise_limits(told.wrapping_sub(first), *told);
                        let raised = limit + distance(*told, first.wrapping_add(limit as u32));
                        if raised >= limit && raised - used < 1 << 31 {
                            limit = raised;
                        }
                    }
                    None if limit > used => {
                        assert_eq!(outbox.take_order(), first.wrapping_add(used as u32));
                        used += 1;
                    }
                    None => (),
                }
                assert_eq!(outbox.has_order_credit(), limit > used, "{first} {calls:?}");
                if used == 0 {
                    // Both limits were told alike, and nothing was charged.
                    for bytes in [0, 1, limit - 1, limit, limit + 1, 1 << 31, 1 << 32, i64::MAX] {
                        let fits = limit > 0 && bytes <= limit;
                        let is = bytes < 0 || outbox.eager_fits(bytes as u64) == fits;
                        assert!(is, "{bytes} of {limit}, {first} {calls:?}");
                    }
                }
            }
        });
    }
}

#[test]
fn a_packet_lags_by_what_overtook_it_and_never_by_more_than_a_bitmap() {
    let ends: Vec<u32> =
        about(u32::MAX - 1).into_iter().chain([BITS_MAX - 2, BITS_MAX - 1, BITS_MAX]).collect();
    each_sequence(&ends, if is_large() { 5 } else { 3 }, |ends| {
        let first = u32::MAX - 1;
        let mut flow = Flow::new(Psn(first));
        let mut foremost = first;
        for end in ends {
            if distance(*end, foremost) > 0 {
                foremost = *end;
            }
            let lag = distance(foremost, *end).clamp(0, BITS_MAX.into());
            assert_eq!(i64::from(flow.lag(Psn(*end))), lag, "{ends:?}");
        }
        assert!(flow.view().out_of_order_max <= BITS_MAX, "{ends:?}");
        assert!(flow.view().out_of_order_16 <= 16 * BITS_MAX, "{ends:?}");
    });
}

#[test]
fn only_what_was_sent_lately_may_be_acknowledged() {
    const CONTENT: Content = Content::Bundle { first: 0, count: 0 };
    for first in [0, u32::MAX - 1, i32::MAX as u32 - 1] {
        for (sent, acked) in (0..5).flat_map(|sent| (0..=sent).map(move |acked| (sent, acked))) {
            let mut flight = Flight::new(Psn(first));
            flight.open(BITS_MAX);
            (0..sent).for_each(|_| flight.push(0, 100, 0, CONTENT));
            for _ in 0..acked {
                flight.acked(0);
                flight.pop_acked();
            }
            assert_eq!(flight.una(), Psn(first).plus(acked));
            let window = [BITS_MAX, BITS_MAX + 1, BITS_MAX + 2, BITS_MAX + 5];
            let behind = window.map(|far| first.wrapping_add(acked).wrapping_sub(far));
            let numbers = || about(first.wrapping_add(sent)).into_iter().chain(behind);
            for (cum, high) in numbers().flat_map(|cum| numbers().map(move |high| (cum, high))) {
                let next = first.wrapping_add(sent);
                let is_late = distance(cum, first.wrapping_add(acked)) < -i64::from(BITS_MAX);
                let was_sent = distance(cum, next) <= 0 && distance(high, next) <= 0;
                let expected = was_sent && !is_late && distance(high, cum) >= 0;
                let may = flight.may_be_acked(Psn(cum), Psn(high));
                assert_eq!(may, expected, "{cum} {high} of {first}, {sent} sent, {acked} acked");
            }
        }
    }
}

#[test]
fn a_packet_was_overtaken_by_one_sent_later_on_its_path() {
    for half in 0..=u16::MAX {
        for one in [u32::from(half), u32::from(half) << 16, !u32::from(half)] {
            for other in about(one) {
                let mut paths = Paths::default();
                // Times of another wrap, all of them before the records come.
                let whole = |time: u32| (3 << 32) + i64::from(one) + distance(time, one);
                let now = (whole(one).max(whole(other)) + 10) as u64;
                paths.sent(whole(one) as u64, 2, 1, 100, 1000);
                paths.note_acked(now, 1, one);
                let sent_at = whole(other) as u64;
                let is_later = distance(one, other) > 0;
                assert_eq!(paths.was_overtaken(1, sent_at), is_later, "{one} {other}");
                assert!(!paths.was_overtaken(0, sent_at), "another path");
                paths.note_acked(now, 1, other);
                let latest = if distance(other, one) > 0 { other } else { one };
                assert!(!paths.was_overtaken(1, latest.into()), "{one} {other}");
                let before = u64::from(latest.wrapping_sub(1));
                assert!(paths.was_overtaken(1, before), "{one} {other}");
            }
        }
    }
}

/// Spans in which a path sends nothing: up to 7 s, beyond what 32 bits tell.
fn pauses() -> impl Iterator<Item = u64> {
    (0..70).map(|tenth| tenth * 100_000_000 + 1)
}

#[test]
fn a_path_that_keeps_no_order_is_given_time_for_it_and_less_once_it_does() {
    let mut paths = Paths::default();
    paths.sent(1_000_000, 2, 1, 100, 1000);
    assert_eq!(paths.note_acked(1_000_500, 1, 1_000_400), 0);
    assert!(paths.was_overtaken(1, 1_000_399));
    assert_eq!(paths.note_acked(1_000_510, 1, 1_000_300), 100);
    paths.note_late(1, 100, 10_000);
    assert!(!paths.was_overtaken(1, 1_000_275) && paths.was_overtaken(1, 1_000_274));
    assert!(!paths.was_overtaken(0, 1_000_000), "another path");
    paths.note_late(1, 90_000, 80);
    assert!(!paths.was_overtaken(1, 1_000_275), "a smaller one does not shrink it");
    let mut latest = 1_000_400;
    for _ in 0..3_000 {
        latest += 10;
        paths.note_acked(latest + 100, 1, latest as u32);
    }
    assert!(paths.was_overtaken(1, latest - 10), "it keeps order now");
}

#[test]
fn what_was_acknowledged_long_ago_overtakes_nothing() {
    const BEFORE: u64 = 5_000_000_000;
    for (pause_ns, is_late) in pauses().flat_map(|pause| [(pause, false), (pause, true)]) {
        let (mut paths, now) = (Paths::default(), BEFORE + pause_ns);
        paths.sent(BEFORE, 2, 1, 100, 1000);
        if !is_late {
            paths.note_acked(BEFORE + 1, 1, BEFORE as u32);
        }
        paths.sent(now, 2, 1, 100, 1000);
        if is_late {
            paths.note_acked(now + 1, 1, BEFORE as u32);
        }
        assert!(!paths.was_overtaken(1, now), "idle for {pause_ns} ns, late: {is_late}");
        paths.note_acked(now + 2, 1, (now + 1) as u32);
        assert!(paths.was_overtaken(1, now), "idle for {pause_ns} ns, late: {is_late}");
    }
}

#[test]
fn a_pause_makes_no_path_late_and_hides_no_late_one() {
    const BEFORE: u64 = 5_000_000_000;
    const TIMEOUT_NS: u64 = 10_000_000;
    for (pause_ns, is_late) in pauses().flat_map(|pause| [(pause, false), (pause, true)]) {
        let (mut paths, now) = (Paths::default(), BEFORE + pause_ns);
        paths.sent(BEFORE, 2, 1, 100, TIMEOUT_NS);
        if !is_late {
            paths.acked(BEFORE + 1, (1, BEFORE), false, TIMEOUT_NS);
        }
        paths.sent(now, 2, 1, 100, TIMEOUT_NS);
        paths.sent(now, 2, 0, 100, TIMEOUT_NS);
        if is_late {
            paths.acked(now + 1, (1, BEFORE), false, TIMEOUT_NS);
        }
        paths.acked(now + 2, (0, now), false, TIMEOUT_NS);
        assert_eq!(paths.judge(now + 3, 1, TIMEOUT_NS), Advice::Use, "{pause_ns} ns, {is_late}");
    }
    for pause_ns in pauses() {
        let (mut paths, now) = (Paths::default(), BEFORE + pause_ns);
        paths.sent(BEFORE, 2, 1, 100, TIMEOUT_NS);
        paths.sent(now, 2, 1, 100, TIMEOUT_NS);
        let later = now + 2 * TIMEOUT_NS;
        paths.sent(later, 2, 0, 100, TIMEOUT_NS);
        paths.acked(later + 1, (0, later), false, TIMEOUT_NS);
        let advice = paths.judge(later + 2, 1, TIMEOUT_NS);
        assert_ne!(advice, Advice::Use, "nothing came of this path, {pause_ns} ns");
    }
}
