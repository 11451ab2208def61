//! Shared memory between the nodes of one host: links that neither lose nor reorder, but that take time to come, are
//! refused, get full, and end with a process.

use super::rng::Rng;
use erd_port::local::ring::Refused;
use erd_port::local::{End, Event, Fate, Fill, Lanes, LinkId, Pulled, Reach};
use erd_rd::Nanos;
use erd_rd::units::{MICROSECOND, MILLISECOND};
use erd_rd::wire::entry::IDS_BYTES;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes that an entry counts beside its own.
const HEADER_BYTES: u64 = 8;
/// Entries that one look hands out.
const ENTRIES_PER_LOOK: usize = 16;
/// Pause before an entry that had to stay comes again.
const AGAIN_NS: Nanos = 50 * MICROSECOND;

/// Time until what waits for something else of a writer who is no more is lost.
const LOST_NS: Nanos = MILLISECOND;

/// How links behave.
#[derive(Clone, Copy, Debug)]
pub struct LaneHabits {
    /// Longest time from a question to a link, or its refusal.
    pub ask_ns: Nanos,
    /// Time until an entry can be read.
    pub delay_ns: Nanos,
    /// Bytes that one way of a link holds. One entry always fits.
    pub capacity_bytes: u64,
    /// Chance that a question is refused.
    pub refusal: f64,
    /// Chance that nobody is found to be asked.
    pub absence: f64,
    /// Payloads may be read where they are.
    pub pulls: bool,
    /// Chance that an entry is garbage: its writer is mad, or hostile.
    pub spoil: f64,
    /// Chance that a side gives a link up at a look at it.
    pub breaks: f64,
    /// Entries are remembered for a time.
    pub remembers: bool,
}

impl Default for LaneHabits {
    fn default() -> LaneHabits {
        let capacity_bytes = 64 << 10;
        LaneHabits {
            ask_ns: 20_000,
            delay_ns: 300,
            capacity_bytes,
            refusal: 0.0,
            absence: 0.0,
            pulls: true,
            spoil: 0.0,
            breaks: 0.0,
            remembers: false,
        }
    }
}

/// Entries that are remembered.
const REMEMBERED: usize = 64;

/// An entry, and between which nodes it was written.
#[derive(Clone, Debug)]
pub struct Written {
    /// The writer.
    pub from: usize,
    /// The reader.
    pub to: usize,
    /// The entry's kind.
    pub kind: u8,
    /// The entry.
    pub bytes: Vec<u8>,
}

/// What one side of a link has written.
#[derive(Debug, Default)]
struct Way {
    entries: VecDeque<(Nanos, u8, Vec<u8>)>,
    written: u64,
    read: u64,
    starved: bool,
    /// When its first entry is lost, which waits for something else of a writer who is no more.
    lost_at: Option<Nanos>,
}

/// A link between two nodes, or the question for one.
#[derive(Debug)]
struct Pair {
    number: u32,
    /// `None` while it is asked for.
    ways: Option<[Way; 2]>,
    ready_at: Nanos,
    refused: bool,
    /// The sides that still have it.
    has: [bool; 2],
    /// Why the other side has it no more.
    end: End,
}

/// The hosts of all nodes.
#[derive(Debug)]
struct Inner {
    names: Vec<SocketAddr>,
    lives: Vec<bool>,
    /// The pairs by their nodes, the lesser first.
    pairs: BTreeMap<(usize, usize), Pair>,
    events: Vec<VecDeque<Event>>,
    wakes: Vec<(usize, Nanos)>,
    links: u32,
    spoiled: u64,
    now: Nanos,
    habits: LaneHabits,
    /// What was written lately, if anybody wants to know.
    lately: Option<VecDeque<Written>>,
    rng: Rng,
}

/// The memory that the nodes of a world share.
#[derive(Clone, Debug)]
pub struct Hall(Arc<Mutex<Inner>>);

/// One process's part of it.
pub struct SimLanes {
    hall: Hall,
    me: usize,
    /// Nodes on the same host, a bit for each.
    near: u64,
}

impl fmt::Debug for SimLanes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimLanes({})", self.me)
    }
}

fn key(one: usize, other: usize) -> (usize, usize) {
    (one.min(other), one.max(other))
}

/// Which side of its pair a node is.
fn side(me: usize, other: usize) -> usize {
    usize::from(me > other)
}

fn id_of(number: u32, peer: usize) -> LinkId {
    LinkId::numbered(u64::from(number) << 32 | peer as u64)
}

fn peer_of(id: LinkId) -> usize {
    (id.number() & 0xffff_ffff) as usize
}

impl Hall {
    /// Memory for the nodes of these names.
    #[must_use]
    pub fn new(names: &[SocketAddr], habits: LaneHabits, rng: Rng) -> Hall {
        Hall(Arc::new(Mutex::new(Inner {
            names: names.to_vec(),
            lives: vec![false; names.len()],
            pairs: BTreeMap::new(),
            events: vec![VecDeque::new(); names.len()],
            wakes: Vec::new(),
            links: 0,
            spoiled: 0,
            now: 0,
            habits,
            lately: habits.remembers.then(VecDeque::new),
            rng,
        })))
    }

    /// See [`super::sim::World::written_lately`].
    #[must_use]
    pub fn written_lately(&self) -> Vec<Written> {
        self.inner().lately.iter().flatten().cloned().collect()
    }

    /// See [`super::sim::World::forge_entry`].
    pub fn forge(&self, entry: Written) {
        let (mut inner, Written { from, to, kind, bytes }) = (self.inner(), entry);
        let at = inner.now + inner.habits.delay_ns;
        let Some(pair) = inner.pairs.get_mut(&key(from, to)) else { return };
        let Some(way) = pair.ways.as_mut().map(|ways| &mut ways[side(from, to)]) else { return };
        way.written += bytes.len() as u64 + HEADER_BYTES;
        way.entries.push_back((at, kind, bytes));
        inner.spoiled += 1;
        inner.wakes.push((to, at));
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        // A run that has failed is of no use any more.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new process of node `me`, with those of `near` on its host.
    #[must_use]
    pub fn enter(&self, me: usize, near: u64) -> SimLanes {
        let mut inner = self.inner();
        inner.lives[me] = true;
        inner.events[me].clear();
        SimLanes { hall: self.clone(), me, near }
    }

    /// Nodes that have something to do, and when.
    pub fn take_wakes(&self) -> Vec<(usize, Nanos)> {
        std::mem::take(&mut self.inner().wakes)
    }

    /// Nothing is refused any more, and nobody is missed.
    pub fn calm(&self) {
        let mut inner = self.inner();
        let habits = &mut inner.habits;
        (habits.refusal, habits.absence) = (0.0, 0.0);
        (habits.spoil, habits.breaks) = (0.0, 0.0);
    }

    /// Entries that were garbage.
    #[must_use]
    pub fn spoiled(&self) -> u64 {
        self.inner().spoiled
    }
}

impl Inner {
    /// The way that `me` writes to `peer`, and the one that it reads; `None` without this link.
    fn ways(&mut self, me: usize, id: LinkId) -> Option<(&mut Way, &mut Way)> {
        let peer = peer_of(id);
        let pair = self.pairs.get_mut(&key(me, peer))?;
        if id_of(pair.number, peer) != id || !pair.has[side(me, peer)] {
            return None;
        }
        let [first, second] = pair.ways.as_mut()?;
        Some(if side(me, peer) == 0 { (first, second) } else { (second, first) })
    }

    /// Goes on with the questions whose time has come.
    fn answer(&mut self) {
        let now = self.now;
        let due = |pair: &Pair| pair.ways.is_none() && pair.ready_at <= now;
        let ready: Vec<_> =
            self.pairs.iter().filter(|(_, pair)| due(pair)).map(|(k, _)| *k).collect();
        for (one, other) in ready {
            let lives = self.lives[one] && self.lives[other];
            let Some(pair) = self.pairs.get_mut(&(one, other)) else { continue };
            let number = pair.number;
            let links = lives && !pair.refused;
            pair.ways = links.then(Default::default);
            for (node, peer) in [(one, other), (other, one)] {
                let name = self.names[peer];
                self.events[node].push_back(match links {
                    true => Event::Up(name, id_of(number, peer)),
                    false => Event::Refused(name),
                });
                self.wakes.push((node, now));
            }
            if !links {
                self.pairs.remove(&(one, other));
            }
        }
    }

    /// Makes garbage of an entry, perhaps. Returns its kind.
    fn spoil(&mut self, kind: u8, entry: &mut Vec<u8>) -> u8 {
        let Inner { rng, habits, .. } = self;
        if !rng.chance(habits.spoil) {
            return kind;
        }
        self.spoiled += 1;
        let at = rng.below(entry.len().max(1) as u64) as usize;
        match rng.below(6) {
            0 => entry.truncate(at),
            1 => entry.extend((0..rng.range(1, 64)).map(|_| rng.below(256) as u8)),
            // The ids stay right.
            2 => entry.iter_mut().skip(IDS_BYTES).for_each(|byte| *byte = rng.below(256) as u8),
            3 => return rng.below(8) as u8,
            4 => entry.iter_mut().skip(at.max(IDS_BYTES)).take(8).for_each(|byte| *byte = 0xff),
            _ => entry.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1 << rng.below(8)),
        }
        kind
    }

    /// A side has the link no more.
    fn leave(&mut self, me: usize, peer: usize, end: End) {
        let Some(pair) = self.pairs.get_mut(&key(me, peer)) else { return };
        if pair.ways.is_none() {
            // It was asked for only.
            pair.refused = true;
            return;
        }
        (pair.has[side(me, peer)], pair.end) = (false, end);
        if pair.has == [false, false] {
            self.pairs.remove(&key(me, peer));
        }
        self.wakes.push((peer, self.now + self.habits.delay_ns));
    }
}

impl Drop for SimLanes {
    fn drop(&mut self) {
        let mut inner = self.hall.inner();
        inner.lives[self.me] = false;
        let others: Vec<_> = inner.pairs.keys().copied().collect();
        for (one, other) in others {
            if one == self.me || other == self.me {
                let peer = one + other - self.me;
                inner.leave(self.me, peer, End::Died);
            }
        }
    }
}

impl Lanes for SimLanes {
    fn reach(&mut self, name: SocketAddr, now: u64) -> Reach {
        let (me, near) = (self.me, self.near);
        let mut inner = self.hall.inner();
        inner.now = now;
        let Some(peer) = inner.names.iter().position(|known| *known == name) else {
            return Reach::None;
        };
        if let Some(pair) = inner.pairs.get(&key(me, peer)) {
            return match pair.ways {
                Some(_) if pair.has[side(me, peer)] => Reach::Link(id_of(pair.number, peer)),
                // What the peer has written before counts first.
                Some(_) => Reach::None,
                None => Reach::Asked,
            };
        }
        let habits = inner.habits;
        let is_there = peer != me && near >> peer & 1 != 0 && inner.lives[peer];
        if !is_there || inner.rng.chance(habits.absence) {
            return Reach::None;
        }
        inner.links += 1;
        let ready_at = now + inner.rng.log_range(1, habits.ask_ns.max(2));
        let refused = inner.rng.chance(habits.refusal);
        let (number, has, end) = (inner.links, [true, true], End::Closed);
        let pair = Pair { number, ways: None, ready_at, refused, has, end };
        inner.pairs.insert(key(me, peer), pair);
        inner.wakes.push((me, ready_at));
        Reach::Asked
    }

    fn put(
        &mut self,
        id: LinkId,
        kind: u8,
        len: usize,
        fill: Fill<'_>,
    ) -> Option<Result<u64, Refused>> {
        let mut inner = self.hall.inner();
        let (now, habits) = (inner.now, inner.habits);
        let (way, _) = inner.ways(self.me, id)?;
        let bytes = len as u64 + HEADER_BYTES;
        if !way.entries.is_empty() && way.written - way.read + bytes > habits.capacity_bytes {
            return Some(Err(Refused::Full));
        }
        let mut entry = Vec::with_capacity(len);
        fill(&mut |piece: &[u8]| entry.extend_from_slice(piece));
        assert_eq!(entry.len(), len, "an entry is as long as was said");
        if let Some(lately) = &mut inner.lately {
            let (from, to, bytes) = (self.me, peer_of(id), entry.clone());
            lately.truncate(REMEMBERED - 1);
            lately.push_front(Written { from, to, kind, bytes });
        }
        let kind = inner.spoil(kind, &mut entry);
        let entry_bytes = entry.len() as u64 + HEADER_BYTES;
        let (way, _) = inner.ways(self.me, id)?;
        way.entries.push_back((now + habits.delay_ns, kind, entry));
        way.written += entry_bytes;
        let written = way.written;
        inner.wakes.push((peer_of(id), now + habits.delay_ns));
        Some(Ok(written))
    }

    fn starve(&mut self, id: LinkId) {
        if let Some((way, _)) = self.hall.inner().ways(self.me, id) {
            way.starved = true;
        }
    }

    fn read_by_peer(&mut self, id: LinkId) -> Option<u64> {
        self.hall.inner().ways(self.me, id).map(|(way, _)| way.read)
    }

    fn has_entries(&mut self, id: LinkId) -> bool {
        self.hall.inner().ways(self.me, id).is_some_and(|(_, way)| !way.entries.is_empty())
    }

    unsafe fn pull(
        &mut self,
        id: LinkId,
        from: &mut [libc::iovec],
        to: &mut [libc::iovec],
        len: usize,
    ) -> Pulled {
        let mut inner = self.hall.inner();
        let (pulls, peer) = (inner.habits.pulls, peer_of(id));
        if inner.ways(self.me, id).is_none() {
            return Pulled::Gone;
        }
        // Who has the link no more may have the buffer no more either.
        let pair = &inner.pairs[&key(self.me, peer)];
        if !pair.has[side(peer, self.me)] {
            return Pulled::Gone;
        }
        // SAFETY: the caller's promise; all simulated processes are this one.
        let read =
            unsafe { erd_port::local::other_memory::read(std::process::id(), from, to, len) };
        match pulls && read.is_ok() {
            true => Pulled::Done,
            false => Pulled::Never,
        }
    }

    fn poll(&mut self, now: u64, f: &mut dyn FnMut(LinkId, u8, &[u8]) -> Fate) -> usize {
        let me = self.me;
        let links: Vec<LinkId> = {
            let mut inner = self.hall.inner();
            inner.now = now;
            let mine = inner.pairs.iter().filter(|((one, other), _)| *one == me || *other == me);
            mine.map(|((one, other), pair)| id_of(pair.number, one + other - me)).collect()
        };
        let mut count = 0;
        for id in links {
            if self.breaks(id) {
                self.give_up(id, now);
                continue;
            }
            for _ in 0..ENTRIES_PER_LOOK {
                let Some(entry) = self.next_entry(id, now) else { break };
                match f(id, entry.1, &entry.2) {
                    Fate::Taken => self.taken(id, &entry),
                    Fate::Later => {
                        self.put_back(id, entry, now + AGAIN_NS);
                        break;
                    }
                    Fate::Waits if !self.is_lost(id, now) => {
                        self.put_back(id, entry, now + AGAIN_NS);
                        break;
                    }
                    fate => {
                        let is_mad = self.hall.spoiled() > 0;
                        assert!(
                            fate != Fate::Wrong || is_mad,
                            "an honest entry of kind {}",
                            entry.1
                        );
                        self.give_up(id, now);
                        break;
                    }
                }
                count += 1;
            }
        }
        count
    }

    fn work(&mut self, now: u64, f: &mut dyn FnMut(Event)) {
        let me = self.me;
        let mut inner = self.hall.inner();
        inner.now = now;
        inner.answer();
        while let Some(event) = inner.events[me].pop_front() {
            // A link that has come and gone meanwhile is told of as one that was refused.
            let told = match event {
                Event::Up(name, id) if inner.ways(me, id).is_none() => Event::Refused(name),
                event => event,
            };
            f(told);
        }
        let all: Vec<_> = inner.pairs.keys().copied().collect();
        for (one, other) in all.into_iter().filter(|(one, other)| *one == me || *other == me) {
            let peer = one + other - me;
            let pair = &inner.pairs[&(one, other)];
            let is_over = pair.ways.is_some() && !pair.has[side(peer, me)];
            let (id, end, name) = (id_of(pair.number, peer), pair.end, inner.names[peer]);
            let ways = inner.ways(me, id).map(|(mine, way)| (mine.read, way.entries.is_empty()));
            if let Some((read, true)) = ways.filter(|_| is_over) {
                inner.pairs.remove(&(one, other));
                f(Event::Down(name, id, end, read));
            }
        }
    }

    fn break_off(&mut self, id: LinkId) {
        self.close(id);
    }

    fn close(&mut self, id: LinkId) {
        let mut inner = self.hall.inner();
        if inner.ways(self.me, id).is_some() {
            inner.leave(self.me, peer_of(id), End::Closed);
        }
    }

    fn rests(&mut self, _: u64) -> bool {
        true
    }

    fn arm(&mut self) -> bool {
        false
    }

    fn was_disarmed(&mut self) -> bool {
        false
    }

    fn rearm(&mut self) {}

    fn next_ns(&self) -> Option<u64> {
        let inner = self.hall.inner();
        let mine = inner.pairs.iter().filter(|((one, other), _)| [*one, *other].contains(&self.me));
        mine.filter(|(_, pair)| pair.ways.is_none()).map(|(_, pair)| pair.ready_at).min()
    }

    fn links(&self) -> usize {
        let inner = self.hall.inner();
        let mine = inner.pairs.iter().filter(|((one, other), _)| [*one, *other].contains(&self.me));
        mine.filter(|(_, pair)| pair.ways.is_some()).count()
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

impl SimLanes {
    /// Whether this side gives the link up now, for whatever reason.
    fn breaks(&self, id: LinkId) -> bool {
        let mut inner = self.hall.inner();
        let chance = inner.habits.breaks;
        inner.ways(self.me, id).is_some() && inner.rng.chance(chance)
    }

    /// Closes a link, and tells this side's engine.
    fn give_up(&mut self, id: LinkId, now: Nanos) {
        let read = self.read_by_peer(id).unwrap_or(0);
        self.close(id);
        let mut inner = self.hall.inner();
        let (me, name) = (self.me, inner.names[peer_of(id)]);
        inner.events[me].push_back(Event::Down(name, id, End::Closed, read));
        inner.wakes.push((me, now));
    }

    fn next_entry(&self, id: LinkId, now: Nanos) -> Option<(Nanos, u8, Vec<u8>)> {
        let mut inner = self.hall.inner();
        let (_, way) = inner.ways(self.me, id)?;
        way.entries.pop_front_if(|(at, ..)| *at <= now)
    }

    /// Whether what waits for something else of its writer waits in vain.
    fn is_lost(&self, id: LinkId, now: Nanos) -> bool {
        let (mut inner, peer) = (self.hall.inner(), peer_of(id));
        if inner.pairs[&key(self.me, peer)].has[side(peer, self.me)] {
            return false;
        }
        inner
            .ways(self.me, id)
            .is_some_and(|(_, way)| now >= *way.lost_at.get_or_insert(now + LOST_NS))
    }

    fn put_back(&self, id: LinkId, entry: (Nanos, u8, Vec<u8>), at: Nanos) {
        let mut inner = self.hall.inner();
        if let Some((_, way)) = inner.ways(self.me, id) {
            way.entries.push_front((at, entry.1, entry.2));
        }
        inner.wakes.push((self.me, at));
    }

    fn taken(&self, id: LinkId, entry: &(Nanos, u8, Vec<u8>)) {
        let mut inner = self.hall.inner();
        let (me, now, delay_ns) = (self.me, inner.now, inner.habits.delay_ns);
        let Some((_, way)) = inner.ways(me, id) else { return };
        way.read += entry.2.len() as u64 + HEADER_BYTES;
        if std::mem::take(&mut way.starved) {
            let (peer, name) = (peer_of(id), inner.names[me]);
            inner.events[peer].push_back(Event::Room(name));
            inner.wakes.push((peer, now + delay_ns));
        }
    }
}
