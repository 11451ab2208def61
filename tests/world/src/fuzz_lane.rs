//! The body of the fuzz target of lanes (protocol.md §12): whoever may write into a lane writes what it likes.

use super::fuzz::{Input, PAYLOAD_MAX_BYTES, STEPS_MAX, finish};
use super::lanes::{LaneHabits, Written};
use super::ledger::Rules;
use super::script::{ANY_FAILURE, world};
use super::sim::{Action, World};
use erd_rd::Stats;
use erd_rd::units::MILLISECOND;
use erd_rd::wire::entry::{
    Entry, IDS_BYTES, Ids, LENT, LIMITS, RECORD, SEGMENT, SegmentHead, TAKEN, emit_lent,
    emit_limits, emit_taken,
};
use erd_rd::wire::record::Record;

/// Both parsers on the same bytes. What they read is written, and must be the same.
pub fn parse(kind: u8, bytes: &[u8]) {
    let mut again = Vec::new();
    let Some((ids, rest)) = Ids::read(bytes) else {
        assert!(bytes.len() < IDS_BYTES);
        return;
    };
    ids.emit(&mut again);
    assert_eq!(again, bytes[..IDS_BYTES]);
    let Ok(entry) = Entry::parse(kind, rest) else { return };
    again.clear();
    match entry {
        Entry::Record(record, payload) => {
            record.emit(&mut again);
            again.extend_from_slice(payload);
        }
        Entry::Segment(head, payload) => {
            head.emit(&mut again);
            again.extend_from_slice(payload);
        }
        Entry::Lent { msg_id, answer, sources } => {
            emit_lent(&mut again, msg_id, answer);
            emit_pieces(&mut again, &sources.pieces);
            again.truncate(rest.len());
        }
        Entry::Taken { answer, order, sends } => emit_taken(&mut again, answer, order, sends),
        Entry::Limits { eager_bytes, order } => emit_limits(&mut again, eager_bytes, order),
    }
    assert_eq!(Entry::parse(kind, &again), Ok(entry));
}

fn emit_pieces(out: &mut Vec<u8>, pieces: &[(u64, u64)]) {
    for (addr, len) in pieces {
        out.extend_from_slice(&addr.to_be_bytes());
        out.extend_from_slice(&len.to_be_bytes());
    }
}

impl Input<'_> {
    /// Pieces of a buffer, of which nothing is true.
    fn pieces(&mut self) -> Vec<(u64, u64)> {
        let lens = [0, 1, 20_000, 1 << 20, u64::MAX];
        (0..self.below(4)).map(|_| (u64::from(self.byte()) << 12, lens[self.below(5)])).collect()
    }

    /// What stands behind an entry's ids, with numbers near the real ones; also its kind.
    fn entry(&mut self, near: u32) -> (u8, Vec<u8>) {
        let (mut out, msg_id) = (Vec::new(), 0x8000 | u16::from(self.byte() % 4));
        let kind = [RECORD, SEGMENT, LIMITS, LENT, TAKEN, RECORD, SEGMENT][self.below(7)];
        match kind {
            RECORD => {
                let record = self.record(near);
                record.emit(&mut out);
                match record.has_sources() {
                    true => emit_pieces(&mut out, &self.pieces()),
                    false => out.resize(out.len() + record.payload_bytes(), 0x5a),
                }
            }
            SEGMENT => {
                let offset_bytes = u32::from(self.byte()) * [1, 16_360, 1 << 24][self.below(3)];
                SegmentHead { msg_id, offset_bytes }.emit(&mut out);
                out.resize(out.len() + self.len_bytes().min(16_360) as usize, 0x5a);
            }
            LIMITS => {
                let far = u32::from(self.byte()) << 24;
                emit_limits(&mut out, far, near.wrapping_add(far));
            }
            LENT => {
                emit_lent(&mut out, msg_id, u32::from(self.byte() % 8));
                emit_pieces(&mut out, &self.pieces());
            }
            _ => {
                let order = near.wrapping_add(u32::from(self.byte() % 8)).wrapping_sub(3);
                emit_taken(&mut out, u32::from(self.byte() % 8), order, self.byte() & 1 != 0);
            }
        }
        (kind, out)
    }
}

/// A live session between two engines of one host, and an attacker that writes into its lane.
struct Attack {
    world: World,
    left_bytes: u64,
}

impl Attack {
    fn new(input: &mut Input<'_>) -> Attack {
        let bits = input.byte();
        let rules = Rules { timeouts: true, ..Rules::default() };
        let world = world(2, rules, |s| {
            if bits & 1 != 0 {
                s.config.eager_credit_bytes = 20_000;
                s.config.unexpected_messages = 4;
            }
            (s.limits.near, s.limits.near_limit_bytes) = (0b11, u16::MAX);
            let capacity_bytes = [1, 20 << 10, 256 << 10, 256 << 10][usize::from(bits >> 1 & 3)];
            s.limits.hold_refusal = if bits & 8 != 0 { 0.2 } else { 0.0 };
            let habits = LaneHabits::default();
            s.lanes = Some(LaneHabits { capacity_bytes, remembers: true, ..habits });
        });
        let mut attack = Attack { world, left_bytes: PAYLOAD_MAX_BYTES };
        attack.warm_up();
        attack
    }

    /// Opens the session and leaves a bit of everything under way.
    fn warm_up(&mut self) {
        for (from, to) in [(0, 1), (1, 0)] {
            self.world.want(to, 64);
            for len_bytes in [64, 2000, 40 << 10] {
                self.world.post(from, to, len_bytes);
            }
        }
        self.world.run_for(MILLISECOND);
    }

    /// A real entry, the newest first.
    fn pick(&self, input: &mut Input<'_>) -> Option<Written> {
        let lately = self.world.written_lately();
        let back = input.below(lately.len().max(1));
        lately.into_iter().nth(back)
    }

    fn write(&mut self, entry: Written) {
        parse(entry.kind, &entry.bytes);
        self.world.ledger.rules = Rules { forged: true, ..ANY_FAILURE };
        self.world.forge_entry(entry);
    }

    fn mutate(&mut self, input: &mut Input<'_>) {
        let Some(mut entry) = self.pick(input) else { return };
        // The ids stay right, or nothing behind them would be looked at.
        let spared = if input.byte() & 3 == 0 { 0 } else { IDS_BYTES };
        for _ in 0..=input.below(4) {
            let at = usize::from(u16::from_be_bytes([input.byte(), input.byte()]));
            let len = entry.bytes.len() - spared;
            entry.bytes[spared + at % len] ^= input.byte();
        }
        if input.byte() & 3 == 0 {
            let len = usize::from(input.byte());
            entry.bytes.truncate(len);
        }
        self.write(entry);
    }

    /// An entry of the session, of which only the numbers may be wrong.
    fn forge(&mut self, input: &mut Input<'_>) {
        let Some(mut entry) = self.pick(input) else { return };
        let near = match Entry::parse(entry.kind, &entry.bytes[IDS_BYTES..]) {
            Ok(Entry::Record(Record::Eager(msg) | Record::Rts(msg), _)) => msg.order,
            Ok(Entry::Record(Record::Request(request), _)) => request.order,
            _ => 0,
        };
        let (kind, rest) = input.entry(near);
        entry.kind = kind;
        entry.bytes.truncate(IDS_BYTES);
        entry.bytes.extend_from_slice(&rest);
        self.write(entry);
    }

    fn step(&mut self, input: &mut Input<'_>) {
        let node = input.below(2);
        match input.below(10) {
            0 => {
                let (kind, len) = (input.byte() % 8, input.below(256));
                let bytes = input.bytes(len).to_vec();
                self.write(Written { from: 1 - node, to: node, kind, bytes });
            }
            1 => self.mutate(input),
            2 => {
                if let Some(entry) = self.pick(input) {
                    self.write(entry);
                }
            }
            3 | 4 => self.world.run_for(input.span_ns()),
            5 => {
                let post = input.post(1 - node, &mut self.left_bytes);
                self.world.post_to(node, 1 - node, &post);
            }
            6 => {
                let (class, len) = (input.class(), input.len_bytes());
                self.world.recv(node, None, class, len);
            }
            7 => {
                self.world.ledger.rules = Rules { forged: true, ..ANY_FAILURE };
                self.world.act(Action::Forget(node, 1 - node));
            }
            _ => self.forge(input),
        }
    }
}

/// Arbitrary, mutated, forged and repeated entries in the lane of a live session.
pub fn lane(data: &[u8]) -> Stats {
    let mut input = Input(data);
    let mut attack = Attack::new(&mut input);
    for _ in 0..STEPS_MAX {
        if input.0.is_empty() {
            break;
        }
        attack.step(&mut input);
    }
    finish(attack.world)
}
