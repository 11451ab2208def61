//! The engine's own reading of its packets gives the same fields, each with the same value.

use erd_model::trace::wire::{
    self, Access, Ack, Body, Carried, Greeting, HEADER_BYTES, Message, PacketRead, Proof,
    RecordRead, Request, State,
};
use erd_rd::wire::ack::{AckState, Sections};
use erd_rd::wire::header::Header;
use erd_rd::wire::record::{MsgHeader, Record as Theirs, parse_eager_header};
use erd_rd::wire::remote::{Action, RemoteRequest};
use erd_rd::wire::setup::Greeting as TheirGreeting;
use erd_rd::wire::window::Window;
use erd_rd::wire::{NAME_BYTES, Reader};
use erd_world::record::Packet;

fn state(ours: &State, theirs: &AckState) {
    let flags = u8::from(ours.echo_valid) | u8::from(ours.answers_probe) << 1;
    let read = AckState {
        cum_psn: ours.missing,
        high_psn: ours.end,
        latest_sent_at_ns: ours.latest_sent,
        echo_sent_at_ns: ours.echoed,
        hold_ns: ours.hold_ns,
        echo_path: ours.path,
        flags,
        spurious: ours.needless,
        ce_bytes: ours.marked,
        recv_bytes: ours.received,
        eager_limit_bytes: ours.eager_limit,
        order_limit: ours.order_limit,
        window: Window::from_bits(ours.window),
    };
    assert_eq!(read, *theirs);
}

fn greeting(ours: &Greeting, theirs: &TheirGreeting) {
    let read = TheirGreeting {
        features: ours.features,
        session: ours.session,
        asker: ours.asker,
        epoch: ours.epoch,
        incarnation: ours.incarnation,
        first_psn: ours.first_psn,
        first_order: ours.first_order,
        datagram_bytes: ours.largest_datagram,
        paths: ours.paths,
        ack_policy: theirs.ack_policy,
        window: Window::from_bits(ours.window),
        eager_credit_bytes: ours.eager_credit,
        order_window: ours.order_window,
        psn_window: ours.psn_window,
        cookie: ours.cookie,
        gave_up: ours.given_up,
        echo_sent_at_ns: ours.echoed,
        random: ours.random,
        name: ours.name,
    };
    assert_eq!(read, *theirs);
    assert_eq!(ours.policy, theirs.ack_policy.to_wire());
}

fn message(ours: &Message, theirs: &MsgHeader) {
    let &Message { order, len, op, tag, data, match_notice } = ours;
    let op = op.unwrap_or(0);
    assert_eq!(MsgHeader { order, op, tag, data, match_notice, len_bytes: len }, *theirs);
}

fn request(ours: &Request, theirs: &RemoteRequest) {
    let access = match theirs.action {
        Action::Write => Access::Write,
        Action::WriteLater => Access::WriteAnnounced,
        Action::Read(msg_id) => Access::Read { msg_id },
        Action::Atomic(atomic) => Access::Atomic {
            operation: atomic.op,
            datatype: atomic.datatype,
            form: atomic.form as u8,
        },
    };
    assert_eq!(ours.access, access);
    let of_theirs = (theirs.order, theirs.op, theirs.operand_bytes, theirs.data);
    assert_eq!((ours.order, ours.op, ours.half, ours.data), of_theirs);
    let targets = theirs.targets.as_slice().iter();
    let targets: Vec<_> = targets.map(|t| (t.addr, t.len_bytes, t.key)).collect();
    let read: Vec<_> = ours.targets.iter().map(|t| (t.address, t.len, t.key)).collect();
    assert_eq!(read, targets);
}

fn record(ours: &RecordRead, theirs: &Theirs) {
    match (ours, theirs) {
        (RecordRead::Eager(a), Theirs::Eager(b)) => message(a, b),
        (RecordRead::Announcement(a), Theirs::Rts(b)) => message(a, b),
        (RecordRead::Ack(a), Theirs::Ack(b)) => state(a, b),
        (RecordRead::Request(a), Theirs::Request(b)) => request(a, b),
        (
            RecordRead::Permission { msg_id, order, op, link_len, link_base, wanted },
            Theirs::Cts(b),
        ) => {
            let theirs = (b.msg_id, b.order, b.op, b.len_bytes, b.base_bytes, b.total_bytes);
            assert_eq!((*msg_id, *order, *op, *link_len, *link_base, *wanted), theirs);
        }
        (RecordRead::Matched { order, op }, Theirs::Matched { op: o, order: r }) => {
            assert_eq!((op, order), (o, r));
        }
        (RecordRead::Answer(a), Theirs::Answer(b)) => {
            let status = b.refusal.map_or(0, |refusal| refusal as u8);
            let theirs = (status, b.len_bytes, b.order, b.op, b.msg_id, b.sent_bytes);
            assert_eq!((a.status, a.half, a.order, a.op, a.msg_id, a.sent), theirs);
        }
        (RecordRead::Done { first, last }, Theirs::Done { first: f, last: l }) => {
            assert_eq!((first, last), (f, l));
        }
        _ => panic!("{ours:?} is not {theirs:?}"),
    }
}

fn ack(ours: &Ack, r: &mut Reader<'_>) {
    state(&ours.state, &AckState::parse(r).expect("a state"));
    let theirs = Sections::parse(r).expect("sections");
    assert_eq!(ours.base, theirs.sack_base_psn);
    assert!(ours.words.iter().copied().eq(theirs.sack_words()));
    let ranges = ours.ranges.iter().map(|r| (r.first, r.count, r.cut_off.then_some(r.attempt)));
    assert!(ranges.eq(theirs.nacks().map(|n| (n.first_psn, n.count, n.trimmed))));
    let runs = ours.records.iter();
    let runs = runs.map(|r| (r.first, r.sent, r.hold_ns, r.path, r.packets, r.marked));
    let echoes = theirs.echoes();
    assert!(runs.eq(echoes.map(|e| (e.psn, e.sent_at_ns, e.hold_ns, e.path, e.count, e.ce))));
}

fn header(ours: &wire::Header, bytes: &[u8]) {
    let h = Header::parse_of(ours.version, bytes).expect("a header");
    let theirs = (h.long, h.kind as u8, h.flags, h.msg_id, h.s_len, h.path, h.attempt);
    let read = (ours.long, ours.kind, ours.flags, ours.msg_id, ours.s_len, ours.path, ours.attempt);
    assert_eq!(read, theirs);
    let theirs = (h.s_offset, h.psn, h.session, h.sent_at_ns);
    assert_eq!((ours.s_offset, ours.psn, ours.session, ours.sent), theirs);
}

/// Judges the fields of a packet.
pub fn judge(packet: &Packet, read: &PacketRead) {
    let bytes = packet.plain.as_ref().unwrap_or(&packet.bytes);
    header(&read.header, bytes);
    let r = &mut Reader::new(&bytes[HEADER_BYTES..]);
    match &read.body {
        Body::Hello(ours) | Body::Welcome(ours) => {
            let mut body = r.rest().to_vec();
            if let Proof::Key(_) = read.proof {
                let behind = if matches!(read.body, Body::Hello(_)) { NAME_BYTES } else { 0 };
                let end = body.len() - behind;
                body.drain(end - 24..end);
            }
            let theirs = TheirGreeting::parse(&mut Reader::new(&body), ours.random.is_some());
            greeting(ours, &theirs.expect("a greeting"));
        }
        Body::Ack(ours) => ack(ours, r),
        Body::Data(data) => match &data.carries {
            Carried::Bundle(records) => {
                assert_eq!(r.u16(), Ok(records.len() as u16));
                records.iter().for_each(|ours| record(ours, &Theirs::parse(r).expect("a record")));
            }
            Carried::EagerSegment { message: ours, ack, .. } => {
                message(ours, &parse_eager_header(r).expect("a message"));
                ack.iter().for_each(|ours| state(ours, &AckState::parse(r).expect("a state")));
            }
            Carried::Segment { .. } | Carried::Trimmed => {}
        },
        _ => {}
    }
}
