//! Accesses to registered memory, and the judgement of their effects.

use super::book::{Bytes, Post, may_fail};
use super::lend::lend;
use crate::ledger::{Life, Rules};
use crate::pattern;
use erd_core::atomics::{Datatype, Op};
use erd_core::cause::Cause;
use erd_core::completion::queue::Entry;
use erd_core::domain::Domain;
use erd_core::endpoint::{Access as Kind, Buffers, Call, RmaPost};
use erd_core::flags::Flags;
use erd_core::peer_index::PeerIndex;
use erd_core::region::{Audience, Piece};
use erd_core::registration::{Registration, Wanted};
use erd_rd::{Atomic, Form, Target, Targets};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Bytes that peers write to, at each process.
pub const SLOT_BYTES: usize = 1 << 20;
/// Bytes that peers read.
pub const SOURCE_BYTES: usize = 1 << 18;
/// Numbers that peers add to.
pub const CELLS: usize = 4;

/// The keys of these, and one that no memory has.
const SLOTS_KEY: u64 = 1;
const SOURCE_KEY: u64 = 2;
const CELLS_KEY: u64 = 3;
const NO_SUCH_KEY: u64 = 99;
/// First key of the pattern of a node's source; add the node.
const SOURCE_PATTERN: u64 = 1 << 40;
/// First key of the pattern of a write; add its number.
const WRITE_PATTERN: u64 = 1 << 41;

/// Kind of an access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum What {
    /// It writes to the slots from this byte on.
    Write(usize),
    /// It reads the source from this byte on.
    Read(usize),
    /// It adds 1 to a cell.
    Add(usize),
    /// It adds 1 to a cell, and fetches the old value.
    FetchAdd(usize),
}

/// The mistake in an access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wrong {
    /// Nothing.
    No,
    /// Its key.
    Key,
    /// It reaches past the end.
    Bounds,
    /// It writes to read-only memory.
    Rights,
}

impl Wrong {
    fn cause(self) -> Option<Cause> {
        match self {
            Wrong::No => None,
            Wrong::Key => Some(Cause::RefusedKey),
            Wrong::Bounds => Some(Cause::RefusedBounds),
            Wrong::Rights => Some(Cause::RefusedRights),
        }
    }
}

/// An access.
#[derive(Debug)]
pub struct Access {
    /// Its process.
    pub from: Life,
    /// The node that has the memory.
    pub to: usize,
    /// Its kind.
    pub what: What,
    /// Its mistake.
    pub wrong: Wrong,
    /// Flags of the call.
    pub flags: Flags,
    /// A write notifies the target.
    pub data: bool,
    /// Its outcome.
    pub ended: Option<Result<(), Cause>>,
    /// The target has read of it.
    told: bool,
    bytes: Bytes,
    /// The addend.
    one: [u8; 8],
}

/// The memory of one process that peers reach.
pub struct Memory {
    slots: Vec<u8>,
    source: Vec<u8>,
    cells: Vec<u64>,
    registrations: Vec<Arc<Registration>>,
}

impl Memory {
    /// Registers the memory of a process of `node`.
    pub fn new(domain: &Arc<Domain>, node: usize) -> Memory {
        let mut source = vec![0; SOURCE_BYTES];
        pattern::fill(SOURCE_PATTERN + node as u64, 0, &mut source);
        let (slots, cells) = (vec![0; SLOT_BYTES], vec![0; CELLS]);
        let mut memory = Memory { slots, source, cells, registrations: Vec::new() };
        let Memory { slots, source, cells, .. } = &mut memory;
        let both = Flags::REMOTE_READ | Flags::REMOTE_WRITE;
        // Two pieces, which a write may straddle.
        let (front, back) = slots.split_at_mut(SLOT_BYTES / 3);
        let wanted = [
            (vec![piece(front), piece(back)], Flags::REMOTE_WRITE, SLOTS_KEY),
            (vec![piece(source)], Flags::REMOTE_READ, SOURCE_KEY),
            (vec![piece(cells)], both, CELLS_KEY),
        ];
        memory.registrations = wanted
            .map(|(pieces, access, key)| {
                Registration::register(
                    domain,
                    Wanted { pieces, access, key, audience: Audience::All },
                )
                .expect("the key is free")
            })
            .into();
        memory
    }

    /// Takes the keys back.
    pub fn close(&self) {
        self.registrations.iter().for_each(|registration| registration.close());
    }

    fn has(&self, id: usize, access: &Access) -> bool {
        let What::Write(at) = access.what else { return true };
        let there = &self.slots[at..at + access.bytes.0.len()];
        pattern::equal(WRITE_PATTERN + id as u64, 0, there)
    }
}

fn piece<T>(memory: &mut [T]) -> Piece {
    let start = memory.as_mut_ptr().expose_provenance();
    Piece { start, len_bytes: size_of_val(memory) }
}

/// See the module.
#[derive(Debug)]
pub struct Accesses {
    /// All of them.
    pub all: Vec<Access>,
    /// Writes that have completed since the last look, with their effects in place.
    pub delivered: Vec<usize>,
    /// The first free slot of each node.
    free: Vec<usize>,
    /// Old values of cells, by node and cell.
    fetched: BTreeSet<(usize, usize, u64)>,
}

impl Accesses {
    /// None yet.
    pub fn new(nodes: usize) -> Accesses {
        let (all, delivered, fetched) = (Vec::new(), Vec::new(), BTreeSet::new());
        Accesses { all, delivered, free: vec![0; nodes], fetched }
    }

    /// Room in the slots of a node; `None` if it is used up.
    pub fn slot(&mut self, node: usize, len_bytes: u64) -> Option<usize> {
        let at = self.free[node];
        let end = at + len_bytes as usize;
        (end <= SLOT_BYTES).then(|| {
            self.free[node] = end;
            at
        })
    }

    /// Adds an access to `len_bytes`.
    pub fn add(
        &mut self,
        (from, to): (Life, usize),
        (what, len_bytes): (What, u64),
        wrong: Wrong,
        (flags, data): (Flags, bool),
    ) -> usize {
        let id = self.all.len();
        let mut bytes = vec![0; len_bytes as usize];
        if let What::Write(_) = what {
            pattern::fill(WRITE_PATTERN + id as u64, 0, &mut bytes);
        }
        let access = Access {
            from,
            to,
            what,
            wrong,
            flags,
            data,
            ended: None,
            told: false,
            bytes: Bytes(bytes),
            one: 1_u64.to_ne_bytes(),
        };
        self.all.push(access);
        id
    }

    /// The call that posts it.
    pub fn post(&mut self, id: usize, to: PeerIndex) -> RmaPost {
        let access = &mut self.all[id];
        let call = Call::new(to, Post::Access(id).context(), access.flags);
        let call = if access.data { call.with_data(id as u64) } else { call };
        let len_bytes = access.bytes.0.len() as u64;
        let (key, addr) = match access.what {
            What::Write(at) => (SLOTS_KEY, at as u64),
            What::Read(at) => (SOURCE_KEY, at as u64),
            What::Add(cell) | What::FetchAdd(cell) => (CELLS_KEY, 8 * cell as u64),
        };
        let (key, addr) = match access.wrong {
            Wrong::No => (key, addr),
            Wrong::Key => (NO_SUCH_KEY, addr),
            Wrong::Bounds => (key, (SLOT_BYTES as u64).max(addr)),
            Wrong::Rights => (SOURCE_KEY, 0),
        };
        // Two stretches, where there is something to divide.
        let first_bytes = if id.is_multiple_of(2) && access.in_bytes() { len_bytes / 2 } else { 0 };
        let rest_bytes = len_bytes - first_bytes;
        let all = [
            Target { addr, len_bytes: first_bytes, key },
            Target { addr: addr + first_bytes, len_bytes: rest_bytes, key },
        ];
        let list = if first_bytes == 0 { &all[1..] } else { &all[..] };
        let targets = Targets::new(list).expect("two stretches fit");
        let cut = access.bytes.0.len() / 3;
        let buffers = lend(access.bytes.0.split_at_mut(cut).into());
        access.call(buffers, targets, call)
    }

    /// The call was taken. Its buffer is used again if the call has copied it.
    pub fn posted(&mut self, id: usize) {
        let access = &mut self.all[id];
        if access.flags.intersects(Flags::INJECT) {
            access.bytes.0.fill(0xdd);
        }
    }

    /// Judges the completion of an access.
    pub fn judge(&mut self, life: Life, id: usize, entry: &Entry, rules: Rules) {
        let access = &mut self.all[id];
        assert_eq!(access.from, life, "access {id} completes at another process");
        assert_eq!(access.ended, None, "access {id} completes twice");
        assert_eq!(entry.flags, access.completion_flags(), "flags of access {id}");
        let outcome = entry.failure.as_ref().map_or(Ok(()), |failure| Err(failure.cause));
        access.ended = Some(outcome);
        match (outcome, access.wrong.cause()) {
            (Ok(()), None) => self.judge_success(id),
            // What completes when it is copied has not been refused yet.
            (Ok(()), Some(_)) => assert!(!access.is_late(), "access {id} succeeds: {access:?}"),
            (Err(cause), wrong) => {
                let right = wrong == Some(cause) || may_fail(rules, cause);
                assert!(right, "access {id} fails: {cause:?}, {access:?}");
            }
        }
    }

    fn judge_success(&mut self, id: usize) {
        let access = &mut self.all[id];
        match access.what {
            What::Write(_) if access.is_late() => self.delivered.push(id),
            What::Write(_) | What::Add(_) => {}
            What::Read(at) => {
                let key = SOURCE_PATTERN + access.to as u64;
                let same = pattern::equal(key, at as u64, &access.bytes.0);
                assert!(same, "read {id} got other bytes");
            }
            What::FetchAdd(cell) => {
                let was = u64::from_ne_bytes(access.bytes.0[..8].try_into().expect("8 bytes"));
                self.fetched.insert((access.to, cell, was));
            }
        }
    }

    /// Judges that the writes which have completed since the last look are in the memory of their targets.
    pub fn judge_delivered<'a>(&mut self, memory: impl Fn(usize) -> Option<&'a Memory>) {
        for id in std::mem::take(&mut self.delivered) {
            let access = &self.all[id];
            let there = memory(access.to).is_none_or(|memory| memory.has(id, access));
            assert!(there, "write {id} is not in place: {access:?}");
        }
    }

    /// Judges what a target reads of an access.
    pub fn judge_at_target(&mut self, life: Life, entry: &Entry) {
        let id = entry.data as usize;
        let access = &mut self.all[id];
        let flags = Flags::RMA | Flags::REMOTE_WRITE | Flags::REMOTE_CQ_DATA;
        assert_eq!(entry.flags, flags, "what the target of access {id} reads");
        let right = access.to == life.node && access.data && !access.told;
        assert!(right && entry.failure.is_none(), "told of access {id}: {access:?}");
        assert_eq!(entry.len_bytes, access.bytes.0.len(), "bytes of access {id} at its target");
        access.told = true;
        self.delivered.push(id);
    }

    /// An access that is refused so has completed before, when it was copied.
    pub fn has_early(&self, life: Life, cause: Cause) -> bool {
        let early = |access: &Access| access.from == life && access.ended == Some(Ok(()));
        self.all.iter().any(|access| early(access) && access.wrong.cause() == Some(cause))
    }

    /// Accesses of living processes have not ended.
    pub fn is_open(&self, lives: impl Fn(Life) -> bool) -> bool {
        self.all.iter().any(|access| access.ended.is_none() && lives(access.from))
    }

    /// Judges what holds when all have ended without a failure.
    pub fn judge_end(&self, memory: &[&Memory]) {
        let right = |access: &&Access| access.wrong == Wrong::No;
        for (id, access) in self.all.iter().enumerate().filter(|(_, access)| right(access)) {
            assert!(memory[access.to].has(id, access), "write {id} is not in place: {access:?}");
            assert!(access.told || !access.data, "nobody was told of access {id}: {access:?}");
        }
        for (node, memory) in memory.iter().enumerate() {
            for (cell, value) in memory.cells.iter().enumerate() {
                let adds = |what| {
                    let all = self.all.iter().filter(right).filter(|access| access.to == node);
                    all.filter(|access| access.what == what).count()
                };
                let (silent, fetched) = (adds(What::Add(cell)), adds(What::FetchAdd(cell)));
                assert_eq!(*value, (silent + fetched) as u64, "cell {cell} of node {node}");
                let seen = self.fetched.range((node, cell, 0)..=(node, cell, u64::MAX)).count();
                assert_eq!(seen, fetched, "two accesses to cell {cell} fetched the same");
            }
        }
    }
}

impl Access {
    fn in_bytes(&self) -> bool {
        matches!(self.what, What::Write(_) | What::Read(_))
    }

    /// Its completion says that its effect is in place.
    fn is_late(&self) -> bool {
        self.flags.intersects(Flags::DELIVERY_COMPLETE) || !matches!(self.what, What::Write(_))
    }

    fn completion_flags(&self) -> Flags {
        match self.what {
            What::Write(_) => Flags::RMA | Flags::WRITE,
            What::Read(_) => Flags::RMA | Flags::READ,
            What::Add(_) => Flags::ATOMIC | Flags::WRITE,
            What::FetchAdd(_) => Flags::ATOMIC | Flags::READ,
        }
    }

    fn call(&mut self, buffers: Buffers, targets: Targets, call: Call) -> RmaPost {
        let form = match self.what {
            What::Write(_) => return RmaPost::write(buffers, targets, call),
            What::Read(_) => return RmaPost::read(buffers, targets, call),
            What::Add(_) => Form::Update,
            What::FetchAdd(_) => Form::Fetch,
        };
        let (op, datatype) = (Op::Sum as u8, Datatype::Uint64 as u8);
        // The call copies it.
        let operand = lend(self.one.split_at_mut(0).into());
        let buffers = if form == Form::Fetch { buffers } else { Buffers::default() };
        let access = Kind::Atomic(Atomic { op, datatype, form });
        RmaPost { access, operand, ..RmaPost::write(buffers, targets, call) }
    }
}
