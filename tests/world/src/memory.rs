//! Requests to nodes' memory, and their judgement: a node meets every request at most once, in send order, with the
//! bytes that were sent, and the outcome matches the effect.
//!
//! Memory is of two kinds. A stretch made of a request's own [`pattern`] needs no storage: it is written or read whole.
//! The cells are real, and every change happens twice: by the bytes from the wire, and on a reference model by the
//! request as it was drawn.

use super::ledger::{Life, Rules, is_free};
use super::pattern;
use super::rng::Rng;
use erd_rd::wire::remote::ATOMIC_MAX_BYTES;
use erd_rd::{Atomic, Form, Nanos, OpError, Operand, Refusal, Remote, Target, Targets};
use std::collections::{BTreeMap, BTreeSet};

/// Tokens of requests, of answers and writes served to peers, and of operands kept for their turn.
pub const ASK: u64 = 1 << 48;
/// See [`ASK`].
pub const SERVED: u64 = 2 << 48;
/// See [`ASK`].
pub const KEPT: u64 = 3 << 48;
/// The part of a token that tells its kind.
pub const KIND: u64 = 0xff << 48;

/// Keys of the two kinds of memory.
const PATTERN_KEY: u64 = 0x9a77;
const CELLS_KEY: u64 = 0xce11;
/// Key with limited rights: pattern is read-only, cells are write-only.
const READ_ONLY_KEY: u64 = 0x4ead;
/// Bytes of a node's cells.
pub const CELLS_BYTES: usize = 1 << 10;
/// An address is the request's number and an offset.
const OFFSET_BITS: u32 = 32;

/// Atomic operations of these tests.
pub const ADD: u8 = 2;
/// Writes the operand where the comparand is.
pub const SWAP: u8 = 12;

/// Kind of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum What {
    /// A write of its own pattern.
    Write,
    /// A read of its own pattern.
    Read,
    /// A write of its own pattern to cells.
    Set,
    /// A read of cells.
    Get,
    /// Adds to each of its 8-byte cells.
    Add(Form),
    /// Exchanges them where they equal the comparand.
    Swap,
}

/// The mistake in a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wrong {
    /// Nothing.
    No,
    /// Its last stretch has a key of nobody.
    Key,
    /// It reaches past the end.
    Bounds,
    /// It writes to read-only memory.
    Rights,
    /// An operation that does not exist.
    Operation,
}

/// A request as it is drawn.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Node that has the memory.
    pub to: usize,
    /// See [`What`].
    pub what: What,
    /// Its length.
    pub len_bytes: u64,
    /// Its place in the cells.
    pub at: u64,
    /// Its number of stretches.
    pub stretches: usize,
    /// See [`Wrong`].
    pub wrong: Wrong,
    /// Waits for all before it.
    pub fence: bool,
    /// Carries completion data.
    pub data: bool,
}

/// A request and its outcome.
#[derive(Clone, Debug)]
pub struct Asked {
    /// Process that asks.
    pub from: Life,
    /// As it was drawn.
    pub plan: Plan,
    /// When it was posted.
    pub posted_at: Nanos,
    /// How it ended.
    pub ended: Option<Result<(), OpError>>,
    /// Number of times that it was met.
    met: u32,
    /// The old value of the cells, for requests that fetch it.
    result: Vec<u8>,
    /// Bytes of its pattern that came, start to end.
    covered: BTreeMap<u64, u64>,
    /// Bytes came that are not the right ones.
    spoiled: bool,
    /// The memory behind it is gone.
    withdrawn: bool,
    /// Tokens of its answers, or of its write under way, that have not ended.
    serving: BTreeSet<u64>,
}

/// One answer, or one write under way, at the process that serves it.
#[derive(Clone, Copy, Debug)]
struct Served {
    ask: usize,
    base_bytes: u64,
    len_bytes: u64,
}

/// All requests of a run.
#[derive(Debug, Default)]
pub struct Memory {
    /// See [`Asked`]; a token is [`ASK`] and an index here.
    pub asked: Vec<Asked>,
    served: Vec<Served>,
    kept: Vec<Option<Vec<u8>>>,
    /// Cells as the wire made them, and as they should be.
    cells: BTreeMap<Life, (Vec<u8>, Vec<u8>)>,
    /// Not ended, by process.
    pub outstanding: BTreeMap<Life, BTreeSet<usize>>,
    /// The last request that was met, by initiator and target.
    last_met: BTreeMap<(Life, Life), usize>,
}

fn fresh_cells() -> (Vec<u8>, Vec<u8>) {
    (vec![0; CELLS_BYTES], vec![0; CELLS_BYTES])
}

fn add(cell: &mut [u8], value: &[u8]) {
    let sum = u64::from_le_bytes(cell.try_into().unwrap())
        .wrapping_add(u64::from_le_bytes(value.try_into().unwrap()));
    cell.copy_from_slice(&sum.to_le_bytes());
}

/// Does an atomic operation on cells; returns their old value.
fn change(cells: &mut [u8], op: u8, operand: &[u8]) -> Vec<u8> {
    let before = cells.to_vec();
    let (value, comparand) = operand.split_at(cells.len());
    for (at, cell) in cells.chunks_mut(8).enumerate() {
        let part = at * 8..at * 8 + 8;
        match op {
            ADD => add(cell, &value[part]),
            _ if *cell == comparand[part.clone()] => cell.copy_from_slice(&value[part]),
            _ => {}
        }
    }
    before
}

impl Asked {
    /// Bytes that go with it to the peer.
    pub fn operand_bytes(&self) -> u64 {
        match self.plan.what {
            What::Write | What::Set | What::Add(_) => self.plan.len_bytes,
            What::Swap => 2 * self.plan.len_bytes,
            What::Read | What::Get => 0,
        }
    }

    /// It is a write.
    pub fn writes(&self) -> bool {
        matches!(self.plan.what, What::Write | What::Set)
    }

    /// The atomic operation that it asks for.
    pub fn atomic(&self) -> Option<Atomic> {
        let op = if self.plan.wrong == Wrong::Operation { 99 } else { ADD };
        match self.plan.what {
            What::Add(form) => Some(Atomic { op, datatype: 7, form }),
            What::Swap => Some(Atomic { op: op.max(SWAP), datatype: 7, form: Form::Compare }),
            _ => None,
        }
    }

    fn in_cells(&self) -> bool {
        !matches!(self.plan.what, What::Write | What::Read)
    }

    /// Memory that it asks for.
    pub fn targets(&self, id: usize) -> Targets {
        let plan = &self.plan;
        let right = if self.in_cells() { CELLS_KEY } else { PATTERN_KEY };
        let start = (id as u64) << OFFSET_BITS;
        // A stretch ends on a whole cell.
        let step = (plan.len_bytes / plan.stretches as u64 / 8 * 8).max(8);
        let mut list = Vec::new();
        let mut done = 0;
        while list.is_empty() || done < plan.len_bytes {
            let last = list.len() + 1 == plan.stretches;
            let left = plan.len_bytes - done;
            let len_bytes = if last { left } else { left.min(step) };
            list.push(Target { addr: start + plan.at + done, len_bytes, key: right });
            done += len_bytes;
        }
        let last = list.last_mut().unwrap();
        match plan.wrong {
            Wrong::No | Wrong::Operation => {}
            Wrong::Key => last.key = 1,
            Wrong::Bounds => last.addr = start + (1 << OFFSET_BITS) - 1,
            Wrong::Rights => last.key = READ_ONLY_KEY,
        }
        Targets::new(&list).unwrap()
    }

    fn refusal(&self) -> Option<Refusal> {
        let writes = !matches!(self.plan.what, What::Read | What::Get);
        match self.plan.wrong {
            Wrong::Key => Some(Refusal::Key),
            Wrong::Bounds => Some(Refusal::Bounds),
            Wrong::Rights if writes => Some(Refusal::Rights),
            Wrong::Operation if self.atomic().is_some() => Some(Refusal::Operation),
            _ => None,
        }
    }

    fn cover(&mut self, offset_bytes: u64, len_bytes: u64) {
        super::ledger::cover(&mut self.covered, offset_bytes, offset_bytes + len_bytes);
    }

    fn is_covered(&self) -> bool {
        let len_bytes = self.plan.len_bytes;
        len_bytes == 0 || self.covered.get(&0) == Some(&len_bytes)
    }
}

/// The key of a request's pattern.
fn contents(id: usize) -> u64 {
    ASK | id as u64
}

impl Memory {
    /// Notes a post.
    pub fn post(&mut self, now: Nanos, from: Life, plan: Plan) -> usize {
        let id = self.asked.len();
        self.asked.push(Asked {
            from,
            plan,
            posted_at: now,
            ended: None,
            met: 0,
            result: Vec::new(),
            covered: BTreeMap::new(),
            spoiled: false,
            withdrawn: false,
            serving: BTreeSet::new(),
        });
        self.outstanding.entry(from).or_default().insert(id);
        id
    }

    /// Takes back the newest post, which the engine refused.
    pub fn unpost(&mut self, id: usize) {
        let asked = self.asked.pop().unwrap();
        assert_eq!(id, self.asked.len());
        self.outstanding.get_mut(&asked.from).unwrap().remove(&id);
    }

    /// The end of a request of `life`.
    pub fn ended(
        &mut self,
        life: Life,
        id: usize,
        outcome: Result<(), OpError>,
        allowed: impl FnOnce(OpError) -> bool,
        rules: Rules,
    ) {
        let asked = &mut self.asked[id];
        assert_eq!(asked.from, life, "request {id} ended at another's endpoint");
        assert_eq!(asked.ended, None, "request {id} ended twice, now {outcome:?}");
        asked.ended = Some(outcome);
        self.outstanding.get_mut(&life).unwrap().remove(&id);
        if rules.forged {
            return;
        }
        match outcome {
            Ok(()) => {
                assert!(asked.met >= 1, "request {id} reported done: {asked:?}");
                let reads = asked.plan.what == What::Read;
                let right = !asked.spoiled && (!reads || asked.is_covered());
                assert!(right, "request {id} got other bytes: {asked:?}");
            }
            Err(OpError::Refused(refusal)) => {
                let gone = asked.withdrawn && refusal == Refusal::Key;
                let just = asked.refusal() == Some(refusal) || gone;
                assert!(just, "request {id} was refused for {refusal:?}: {asked:?}");
            }
            Err(error) => assert!(allowed(error), "request {id} failed with {error:?}: {asked:?}"),
        }
    }

    /// A process was killed.
    pub fn killed(&mut self, life: Life) {
        self.outstanding.remove(&life);
    }

    /// Every request and every answer has ended.
    pub fn judge_end(&self, rules: Rules) {
        for (id, asked) in self.asked.iter().enumerate() {
            let once = asked.met == u32::from(asked.refusal().is_none());
            let right = once && asked.serving.is_empty() || asked.withdrawn;
            assert!(rules != Rules::default() || right, "request {id} at the end: {asked:?}");
        }
    }

    /// Requests of living processes that have not ended.
    pub fn unfinished(&self) -> usize {
        self.outstanding.values().map(BTreeSet::len).sum()
    }

    /// Whether what a token names has not ended.
    pub fn lives(&self, token: u64) -> bool {
        let id = (token & !KIND) as usize;
        match token & KIND {
            ASK => self.asked[id].ended.is_none(),
            _ => self.asked[self.served[id].ask].serving.contains(&token),
        }
    }

    /// The payload behind a token of a request or of an answer. False if the memory is gone.
    pub fn payload(&self, token: u64, offset_bytes: u64, out: &mut [u8]) -> bool {
        let id = (token & !KIND) as usize;
        if token & KIND == ASK {
            let asked = &self.asked[id];
            assert_eq!(asked.ended, None, "request {id} was read after its end");
            let end = offset_bytes + out.len() as u64;
            assert!(end <= asked.operand_bytes(), "request {id} was read past its end");
            self.operand(id, offset_bytes, out);
            return true;
        }
        let Served { ask, base_bytes, len_bytes } = self.served[id];
        let gone = self.asked[ask].withdrawn;
        let asked = &self.asked[ask];
        assert!(asked.serving.contains(&token), "an answer to {ask} was read after its end");
        assert!(
            offset_bytes + out.len() as u64 <= len_bytes,
            "past the end of the answer to {ask}"
        );
        if asked.in_cells() {
            out.copy_from_slice(&asked.result[offset_bytes as usize..][..out.len()]);
        } else {
            pattern::fill(contents(ask), base_bytes + offset_bytes, out);
        }
        !gone
    }

    /// Bytes that go with a request.
    fn operand(&self, id: usize, offset_bytes: u64, out: &mut [u8]) {
        let plan = &self.asked[id].plan;
        if plan.what != What::Swap || offset_bytes < plan.len_bytes {
            assert!(plan.what != What::Swap || offset_bytes == 0, "operands are read whole");
            pattern::fill(contents(id), offset_bytes, out);
        }
        if plan.what == What::Swap {
            // Half of the comparands are right: cells begin as zeros.
            out[plan.len_bytes as usize..].fill((id % 2) as u8);
        }
    }

    fn whole_operand(&self, id: usize) -> Vec<u8> {
        let mut operand = vec![0; self.asked[id].operand_bytes() as usize];
        self.operand(id, 0, &mut operand);
        operand
    }

    /// Bytes for a request's result, for a write under way, or for a kept operand.
    pub fn place(&mut self, life: Life, token: u64, offset_bytes: u64, bytes: &[u8], rules: Rules) {
        let id = (token & !KIND) as usize;
        if token & KIND == KEPT {
            let kept = self.kept[id].as_mut().expect("placed into a kept buffer after its end");
            kept[offset_bytes as usize..][..bytes.len()].copy_from_slice(bytes);
            return;
        }
        let (ask, base_bytes) = match token & KIND == ASK {
            true => (id, 0),
            false => (self.served[id].ask, self.served[id].base_bytes),
        };
        let asked = &mut self.asked[ask];
        if token & KIND == ASK {
            assert_eq!(asked.from, life, "request {ask} is another's");
            assert_eq!(asked.ended, None, "bytes for request {ask} after its end");
        } else {
            assert!(asked.serving.contains(&token), "bytes for write {ask} after its end");
        }
        if rules.forged {
            return;
        }
        let same = match asked.in_cells() {
            true => asked.result == bytes && offset_bytes == 0,
            false => pattern::equal(contents(ask), base_bytes + offset_bytes, bytes),
        };
        asked.spoiled |= !same;
        assert!(same || asked.withdrawn, "wrong bytes at {offset_bytes} for request {ask}");
        asked.cover(base_bytes + offset_bytes, bytes.len() as u64);
    }

    /// A port wrote wrong bytes where bytes of a request were expected: no harm, if its memory is still lent and none
    /// had come there.
    pub fn scribble(&mut self, life: Life, token: u64, offset_bytes: u64, len_bytes: usize) {
        let id = (token & !KIND) as usize;
        let (ask, base_bytes, room_bytes) = match token & KIND {
            ASK => (id, 0, self.asked[id].plan.len_bytes),
            SERVED => (self.served[id].ask, self.served[id].base_bytes, self.served[id].len_bytes),
            kind => panic!("bytes expected for {kind:#x}"),
        };
        let (asked, own) = (&self.asked[ask], token & KIND == ASK);
        let lent = if own { asked.ended.is_none() } else { asked.serving.contains(&token) };
        assert!(lent, "bytes expected for request {ask} after its end");
        let right = if own { asked.from == life && !asked.writes() } else { asked.writes() };
        assert!(right, "bytes expected for request {ask}, which gets none here");
        let end = offset_bytes + len_bytes as u64;
        assert!(end <= room_bytes, "bytes expected past the end of request {ask}");
        let free = is_free(&asked.covered, base_bytes + offset_bytes, base_bytes + end);
        assert!(free, "bytes expected at {offset_bytes} of request {ask}");
    }

    /// A buffer for an operand before its turn.
    pub fn keep(&mut self, len_bytes: u64) -> u64 {
        self.kept.push(Some(vec![0; len_bytes as usize]));
        KEPT | (self.kept.len() - 1) as u64
    }

    /// A kept operand, or an answer or write under way, is void.
    pub fn void(&mut self, token: u64) {
        let id = (token & !KIND) as usize;
        if token & KIND == KEPT {
            assert!(self.kept[id].take().is_some(), "a kept buffer ended twice");
            return;
        }
        let ask = self.served[id].ask;
        assert!(self.asked[ask].serving.remove(&token), "an answer to {ask} ended twice");
    }

    /// Bytes that came with a request.
    pub fn take(&mut self, operand: Operand<'_>) -> Vec<u8> {
        match operand {
            Operand::Here(bytes) => bytes.to_vec(),
            Operand::Kept(token) => {
                let id = (token.0 & !KIND) as usize;
                self.kept[id].take().expect("a kept operand is used once")
            }
        }
    }

    /// Finds the posted request, and judges that this one equals it.
    ///
    /// # Errors
    /// The host's answer to it.
    pub fn meet(
        &mut self,
        life: Life,
        remote: &Remote,
        atomic: Option<Atomic>,
        rules: Rules,
    ) -> Result<usize, Refusal> {
        let first = remote.targets.as_slice()[0];
        let id = (first.addr >> OFFSET_BITS) as usize;
        let targets = remote.targets.as_slice();
        let known = |t: &Target| [PATTERN_KEY, CELLS_KEY, READ_ONLY_KEY].contains(&t.key);
        let Some(asked) = self.asked.get_mut(id).filter(|_| targets.iter().all(known)) else {
            assert!(rules.forged || targets.iter().any(|t| t.key == 1), "{remote:?}");
            return Err(Refusal::Key);
        };
        if rules.forged {
            return Err(Refusal::Rights);
        }
        assert_eq!(asked.plan.to, life.node, "request {id} reached another node");
        assert_eq!(asked.atomic(), atomic, "request {id} changed on its way");
        assert_eq!(remote.data.is_some(), asked.plan.data, "request {id}: completion data");
        if let Some(refusal) = asked.refusal() {
            return Err(refusal);
        }
        asked.met += 1;
        assert_eq!(asked.met, 1, "request {id} was met twice");
        let last = self.last_met.insert((asked.from, life), id);
        assert!(last.is_none_or(|last| last <= id), "request {id} was met after {last:?}");
        Ok(id)
    }

    /// A write with its bytes.
    pub fn write(&mut self, life: Life, id: usize, operand: Operand<'_>) {
        let bytes = self.take(operand);
        assert_eq!(bytes, self.whole_operand(id), "write {id} has other bytes");
        let at = self.asked[id].plan.at as usize;
        if self.asked[id].in_cells() {
            let (real, model) = self.cells.entry(life).or_insert_with(fresh_cells);
            real[at..at + bytes.len()].copy_from_slice(&bytes);
            pattern::fill(contents(id), 0, &mut model[at..at + bytes.len()]);
            assert_eq!(real, model, "cells after write {id}");
        }
    }

    /// A write whose bytes follow, or a read: names what is served.
    pub fn serve(&mut self, life: Life, id: usize, remote: &Remote) -> u64 {
        let offset = |addr: u64| addr & ((1 << OFFSET_BITS) - 1);
        let base_bytes = match self.asked[id].in_cells() {
            true => 0,
            false => offset(remote.targets.as_slice()[0].addr),
        };
        let len_bytes = remote.targets.len_bytes();
        if self.asked[id].plan.what == What::Get {
            let at = self.asked[id].plan.at as usize;
            let cells = self.cells.entry(life).or_insert_with(fresh_cells);
            self.asked[id].result = cells.1[at..at + len_bytes as usize].to_vec();
        }
        let token = SERVED | self.served.len() as u64;
        self.served.push(Served { ask: id, base_bytes, len_bytes });
        self.asked[id].serving.insert(token);
        token
    }

    /// All bytes of a write that followed are there.
    pub fn written(&mut self, token: u64, rules: Rules) {
        let ask = self.served[(token & !KIND) as usize].ask;
        self.void(token);
        assert!(
            rules.forged || self.asked[ask].is_covered(),
            "write {ask} ended without its bytes"
        );
    }

    /// An atomic operation; keeps what the cells were.
    pub fn change(&mut self, life: Life, id: usize, atomic: Atomic, operand: Operand<'_>) {
        assert!(self.asked[id].plan.len_bytes <= ATOMIC_MAX_BYTES);
        let (bytes, own) = (self.take(operand), self.whole_operand(id));
        let plan = self.asked[id].plan;
        let part = plan.at as usize..(plan.at + plan.len_bytes) as usize;
        let (real, model) = self.cells.entry(life).or_insert_with(fresh_cells);
        change(&mut real[part.clone()], atomic.op, &bytes);
        let before =
            change(&mut model[part], if plan.what == What::Swap { SWAP } else { ADD }, &own);
        assert_eq!(real, model, "cells after request {id}");
        self.asked[id].result = before;
    }

    /// The memory behind an answer goes. False if it is not the kind that can.
    pub fn withdraw(&mut self, token: u64) -> bool {
        let ask = self.served[(token & !KIND) as usize].ask;
        let asked = &mut self.asked[ask];
        asked.withdrawn |= asked.plan.what == What::Read && asked.serving.contains(&token);
        asked.withdrawn
    }
}

/// Draws a request.
pub fn draw(rng: &mut Rng, to: usize, len_max_bytes: u64) -> Plan {
    let what = rng.pick(&[
        What::Write,
        What::Write,
        What::Read,
        What::Read,
        What::Set,
        What::Get,
        What::Add(Form::Update),
        What::Add(Form::Fetch),
        What::Add(Form::Fetch),
        What::Swap,
    ]);
    let large = match rng.below(10) {
        0 => 0,
        1..=4 => rng.log_range(1, 1024),
        _ => rng.log_range(1, len_max_bytes),
    };
    let len_bytes = match what {
        What::Write | What::Read => large,
        What::Set | What::Get => rng.range(1, 1024),
        What::Add(_) | What::Swap => 8 * rng.range(1, ATOMIC_MAX_BYTES / 8),
    };
    let in_cells = !matches!(what, What::Write | What::Read);
    let room = CELLS_BYTES as u64 - len_bytes.min(CELLS_BYTES as u64);
    let at = if in_cells { rng.below(room / 8 + 1) * 8 } else { 0 };
    let wrong = match rng.below(20) {
        0 => rng.pick(&[Wrong::Key, Wrong::Bounds, Wrong::Rights, Wrong::Operation]),
        _ => Wrong::No,
    };
    let stretches = if len_bytes >= 64 { rng.range(1, 4) as usize } else { 1 };
    let (fence, data) = (rng.chance(0.05), rng.chance(0.1));
    Plan { to, what, len_bytes, at, stretches, wrong, fence, data }
}
