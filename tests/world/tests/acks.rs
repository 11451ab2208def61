//! How many acknowledgements go out, and when (protocol.md §6.1).

use erd_rd::cc::AckPolicy;
use erd_rd::units::{MICROSECOND, MILLISECOND, Nanos};
use erd_rd::wire::header::PacketKind;
use erd_world::script::{NO_FAILURE, PATIENCE_NS, world};
use erd_world::sim::World;
use std::cell::RefCell;
use std::rc::Rc;

/// Three segments.
const SHORT_BYTES: u64 = 4_000;
/// Three segments, the last of which leaves too little room for an acknowledgement.
const FULL_BYTES: u64 = 3 * SEGMENT_BYTES - 20;
/// Payload of an eager segment in a datagram of 1472 bytes.
const SEGMENT_BYTES: u64 = 1_404;

/// Two nodes, the second of which takes each packet by itself.
fn pair(policy: AckPolicy) -> World {
    world(2, NO_FAILURE, |s| {
        s.scheme.policy = policy;
        s.habits.batch = 1;
    })
}

fn acks_of(w: &mut World, messages: u64, len_bytes: u64) -> u64 {
    let before = w.stats(1).tx_control;
    for _ in 0..messages {
        w.want(1, len_bytes);
        w.post(0, 1, len_bytes);
        w.settle(PATIENCE_NS);
    }
    w.stats(1).tx_control - before
}

#[test]
fn a_short_message_is_acknowledged_once() {
    for policy in [AckPolicy::PerPacket, AckPolicy::NackOnly, AckPolicy::Coalesced { packets: 2 }] {
        let mut w = pair(policy);
        acks_of(&mut w, 5, SHORT_BYTES);
        assert_eq!(acks_of(&mut w, 20, SHORT_BYTES), 20, "{policy:?}");
    }
}

/// Notes what the second node sends from now on.
fn watch(w: &mut World) -> Rc<RefCell<Vec<PacketKind>>> {
    let kinds = Rc::new(RefCell::new(Vec::new()));
    let seen = Rc::clone(&kinds);
    w.net.filter = Some(Box::new(move |datagram, h| {
        if datagram.from == 1 {
            seen.borrow_mut().push(h.kind);
        }
        erd_world::net::Fate::Pass
    }));
    kinds
}

/// Sends messages together, and lets the second node answer once it has them.
fn rma(w: &mut World, messages: u64, len_bytes: u64, answer_bytes: u64) {
    let requests: Vec<_> = (0..messages).map(|_| w.want(1, len_bytes)).collect();
    w.want(0, answer_bytes);
    for _ in 0..messages {
        w.post(0, 1, len_bytes);
    }
    assert!(w.run_until(PATIENCE_NS, |w| requests.iter().all(|r| w.result(*r).is_some())));
    w.post(1, 0, answer_bytes);
    w.settle(PATIENCE_NS);
}

/// What the second node sends, from a message of the first on, when it answers with `answer_bytes`.
fn kinds_of_an_answer(policy: AckPolicy, answer_bytes: u64) -> Vec<PacketKind> {
    let mut w = pair(policy);
    acks_of(&mut w, 5, SHORT_BYTES);
    let kinds = watch(&mut w);
    rma(&mut w, 1, SHORT_BYTES, answer_bytes);
    kinds.take()
}

const POLICIES: [AckPolicy; 3] =
    [AckPolicy::PerPacket, AckPolicy::NackOnly, AckPolicy::Coalesced { packets: 4 }];

#[test]
fn the_acknowledgement_of_a_short_message_rides_on_the_answer() {
    for policy in POLICIES {
        for answer_bytes in [8, SHORT_BYTES] {
            let kinds = kinds_of_an_answer(policy, answer_bytes);
            let count = answer_bytes.div_ceil(SEGMENT_BYTES) as usize;
            assert_eq!(kinds, vec![PacketKind::Data; count], "{policy:?}, {answer_bytes} B");
        }
    }
}

#[test]
fn the_acknowledgement_of_a_few_small_messages_rides_on_the_answer() {
    for policy in [AckPolicy::NackOnly, AckPolicy::Coalesced { packets: 4 }] {
        let mut w = pair(policy);
        rma(&mut w, 1, 8, 8);
        let kinds = watch(&mut w);
        rma(&mut w, 4, 8, 8);
        assert_eq!(kinds.take(), [PacketKind::Data], "{policy:?}");
    }
}

#[test]
fn who_never_answers_acknowledges_small_messages_at_once() {
    let mut w = pair(AckPolicy::NackOnly);
    acks_of(&mut w, 5, 8);
    let kinds = watch(&mut w);
    rma(&mut w, 4, 8, 8);
    assert_eq!(kinds.take(), [PacketKind::Ack, PacketKind::Data]);
    rma(&mut w, 4, 8, 8);
    assert_eq!(kinds.take(), [PacketKind::Data], "it did answer");
}

#[test]
fn an_answer_without_room_goes_before_the_acknowledgement() {
    for policy in POLICIES {
        let kinds = kinds_of_an_answer(policy, FULL_BYTES);
        assert_eq!(
            kinds,
            [PacketKind::Data, PacketKind::Data, PacketKind::Data, PacketKind::Ack],
            "{policy:?}"
        );
    }
}

#[test]
fn a_host_that_sends_slowly_acknowledges_a_stream_less_often() {
    let streamed = |spacing_ns| {
        let mut w = pair(AckPolicy::PerPacket);
        acks_of(&mut w, 5, SHORT_BYTES);
        if let Some(endpoint) = w.nodes[1].endpoint.as_mut() {
            endpoint.set_ack_spacing(spacing_ns);
        }
        acks_of(&mut w, 4, 1 << 20)
    };
    let (at_once, spaced) = (streamed(0), streamed(100 * MICROSECOND));
    assert!(spaced * 2 < at_once, "{spaced} acknowledgements, {at_once} without spacing");
}

/// How long a sender waits for word of its message once the message has been received.
fn wait_ns(policy: AckPolicy, awaits: bool, len_bytes: u64) -> Nanos {
    let mut w = world(2, NO_FAILURE, |s| {
        s.config.datagram_bytes = 1_472;
        s.scheme.policy = policy;
        s.habits.batch = 1;
        s.habits.awaits = awaits;
    });
    acks_of(&mut w, 5, len_bytes);
    let (received, sent) = (w.want(1, len_bytes), w.post(0, 1, len_bytes));
    assert!(w.run_until(PATIENCE_NS, |w| w.result(received).is_some()));
    let received_at = w.now;
    assert!(w.run_until(PATIENCE_NS, |w| w.outcome(sent).is_some()));
    w.now - received_at
}

#[test]
fn an_application_that_waits_for_its_message_hears_of_it_at_once() {
    for policy in POLICIES {
        for len_bytes in [8, SHORT_BYTES] {
            let waits = [true, false].map(|awaits| wait_ns(policy, awaits, len_bytes));
            let sooner = waits[0] + 5 * MICROSECOND < waits[1];
            assert!(sooner, "{policy:?}, {len_bytes} B: {waits:?} ns");
        }
    }
}

#[test]
fn a_peer_that_is_always_late_is_not_asked_each_time() {
    let mut nodes = 0;
    let mut w = world(2, NO_FAILURE, |s| {
        nodes += 1;
        if nodes == 2 {
            s.habits.round_ns = 15 * MILLISECOND;
        }
    });
    acks_of(&mut w, 10, 8);
    let before = w.stats(0).probes;
    acks_of(&mut w, 50, 8);
    let probes = w.stats(0).probes - before;
    assert!(probes <= 5, "{probes} probes for 50 messages");
}

#[test]
fn lost_acknowledgements_do_not_make_the_next_repair_later() {
    const MESSAGES: u64 = 20;
    let mut w = pair(AckPolicy::NackOnly);
    acks_of(&mut w, 5, 8);
    let mut acks = 0;
    w.net.filter = Some(Box::new(move |datagram, h| {
        acks += u64::from(datagram.from == 1 && h.kind == PacketKind::Ack);
        // The answer to the probe that follows a lost one comes through.
        match datagram.from == 1 && h.kind == PacketKind::Ack && acks % 2 == 1 {
            true => erd_world::net::Fate::Drop,
            false => erd_world::net::Fate::Pass,
        }
    }));
    let begun_at = w.now;
    acks_of(&mut w, MESSAGES, 8);
    let each_ns = (w.now - begun_at) / MESSAGES;
    assert!(each_ns < 20 * MILLISECOND, "{each_ns} ns for each repair");
}
