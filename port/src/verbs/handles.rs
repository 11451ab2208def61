//! The address handles of a port: which there are, which are to be made, and which go.
//!
//! A handle belongs to a host, a path's flow label and a traffic class. `H` is what the device gives; tests have one of
//! their own. Nothing here waits: [`Maker`] makes handles, and until one is there its datagrams take another way.
//!
//! - **The first path** of a host comes first. Its handle shows whether the host answers, so a host that does not has one
//!   job at a time. The other paths' handles are made after it, and it stands in for them meanwhile.
//! - **Age**: a handle that is old is used while another is made. The peer's hardware address may have changed.
//! - **Room**: the table holds [`Room::kept`] handles. When it is full, the one goes that was not used since the hand of
//!   a clock last passed it.

use super::gid::Gid;
use super::maker::{Job, Lane, Made, Maker, Way};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::Arc;

/// Age at which another handle is made.
const AGE_NS: u64 = 30_000_000_000;
/// Least time between two tries to make a handle to a host that does not answer, or one more handle to any host after
/// the device refused one.
const RETRY_NS: u64 = 1_000_000_000;
/// Hosts without an answer that are remembered; the newest stay. To find one out takes a second, so there are few.
const SILENT_MAX: usize = 64;
/// Most handles kept: 4,096 hosts with 16 paths. A handle takes about half a KiB in all: 130 bytes here, and by the sources of
/// the kernel and of rdma-core 100 to 400 in the library and the kernel.
const KEPT_MAX: usize = 1 << 16;
/// Most handles beside those: asked for, or out of use while requests name them.
const SPARE_MAX: usize = 1 << 10;

/// How many handles a port may have; together never more than the device has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Room {
    pub(super) kept: usize,
    /// Asked for, or out of use.
    pub(super) spare: usize,
}

impl Room {
    /// The room on a device that reports so many for all processes; 0 if it reports none.
    pub(super) fn new(device_max: u32) -> Room {
        let all = if device_max == 0 { usize::MAX } else { device_max as usize };
        let spare = (all / 4).clamp(1, SPARE_MAX);
        Room { kept: (all - spare).clamp(1, KEPT_MAX), spare }
    }
}

/// An answer of the table.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found<'a, H> {
    /// The way's handle, or the host's first.
    Handle(&'a H),
    /// It is being made, or there is no room to make it now. `soon` if [`Maker::wait`] is worth a try.
    Wait { soon: bool },
    /// The host does not answer.
    Unreachable,
}

#[derive(Debug)]
struct Slot<H> {
    way: Way,
    handle: H,
    /// When it was asked for: it may be of any time since.
    made_ns: u64,
    /// Used since the hand passed.
    used: bool,
}

/// See the module's text.
#[derive(Debug)]
pub(super) struct Handles<H: Send + 'static> {
    slots: Vec<Slot<H>>,
    /// Where each way's handle is in `slots`.
    ways: HashMap<Way, usize>,
    /// The next slot that may go.
    hand: usize,
    room: Room,
    /// Ways that the maker has, at most [`Room::spare`], and since when.
    asked: HashMap<Way, u64>,
    /// Hosts that do not answer, newest first, each until a time.
    silent: VecDeque<(Gid, u64)>,
    /// Hosts that have a handle get no other until then.
    pause_until_ns: u64,
    /// Handles made before this are old: the table of GIDs has changed since.
    valid_from_ns: u64,
    maker: Arc<Maker<H>>,
}

impl<H: Send + 'static> Handles<H> {
    pub(super) fn new(room: Room, maker: Maker<H>) -> Handles<H> {
        Handles {
            slots: Vec::new(),
            ways: HashMap::new(),
            hand: 0,
            room,
            asked: HashMap::new(),
            silent: VecDeque::new(),
            pause_until_ns: 0,
            valid_from_ns: 0,
            maker: Arc::new(maker),
        }
    }

    pub(super) fn maker(&self) -> &Arc<Maker<H>> {
        &self.maker
    }

    /// The handle for `way`, or that for `first`, the host's first path. `unsettled` handles are out of use, and not
    /// destroyed.
    pub(super) fn find(
        &mut self,
        way: Way,
        first: Way,
        unsettled: usize,
        now: u64,
    ) -> Found<'_, H> {
        let own = self.ways.get(&way).copied();
        if let Some(at) = own.filter(|at| !self.is_old(*at, now)) {
            self.slots[at].used = true;
            return Found::Handle(&self.slots[at].handle);
        }
        let found = own.or_else(|| self.ways.get(&first).copied());
        let Some(at) = found else {
            if self.silent.iter().any(|(gid, until_ns)| *gid == way.gid && now < *until_ns) {
                return Found::Unreachable;
            }
            return Found::Wait { soon: self.ask(first, unsettled, now) };
        };
        let first_is_good = self.ways.get(&first).is_some_and(|at| !self.is_old(*at, now));
        if now >= self.pause_until_ns {
            self.ask(if first_is_good { way } else { first }, unsettled, now);
        }
        self.slots[at].used = true;
        Found::Handle(&self.slots[at].handle)
    }

    fn is_old(&self, at: usize, now: u64) -> bool {
        let made_ns = self.slots[at].made_ns;
        made_ns < self.valid_from_ns || now >= made_ns + AGE_NS
    }

    /// Has the maker make it. True if that may be soon.
    fn ask(&mut self, way: Way, unsettled: usize, now: u64) -> bool {
        if self.asked.contains_key(&way) {
            return false;
        }
        if self.asked.len() + unsettled + self.maker.going() >= self.room.spare {
            return false;
        }
        self.asked.insert(way, now);
        let known = self.ways.contains_key(&way);
        self.maker.ask(Job { way, lane: if known { Lane::Renewal } else { Lane::New } })
    }

    /// Takes what has been made since the last call; returns the handles that are out of use now.
    pub(super) fn collect(&mut self, now: u64) -> Vec<H> {
        let mut useless = Vec::new();
        for (way, made) in self.maker.take() {
            self.take((way, made), now, &mut useless);
        }
        useless
    }

    fn take(&mut self, (way, made): Made<H>, now: u64, useless: &mut Vec<H>) {
        let asked_ns = self.asked.remove(&way).unwrap_or(now);
        let at = self.ways.get(&way).copied();
        match (made, at) {
            (Ok(handle), Some(at)) => {
                let slot = &mut self.slots[at];
                slot.made_ns = asked_ns;
                useless.push(std::mem::replace(&mut slot.handle, handle));
            }
            (Ok(handle), None) => {
                if self.slots.len() >= self.room.kept {
                    useless.push(self.evict());
                }
                self.ways.insert(way, self.slots.len());
                self.slots.push(Slot { way, handle, made_ns: asked_ns, used: true });
            }
            (Err(error), at) => {
                tracing::warn!(gid = %way.gid, %error, "no way to a peer over verbs");
                self.failed(way, at, is_silence(&error), now, useless);
            }
        }
    }

    /// No handle could be made. A host that does not answer loses all; otherwise an old one is better than none.
    fn failed(
        &mut self,
        way: Way,
        at: Option<usize>,
        silence: bool,
        now: u64,
        useless: &mut Vec<H>,
    ) {
        let has_others = self.slots.iter().any(|slot| slot.way.gid == way.gid);
        if has_others && !silence {
            self.pause_until_ns = now + RETRY_NS;
            if let Some(at) = at {
                self.slots[at].made_ns = now;
            }
            return;
        }
        for at in (0..self.slots.len()).rev() {
            if self.slots[at].way.gid == way.gid {
                useless.push(self.remove(at));
            }
        }
        self.silent.retain(|(gid, _)| *gid != way.gid);
        self.silent.truncate(SILENT_MAX - 1);
        self.silent.push_front((way.gid, now + RETRY_NS));
    }

    /// Takes the handle out that was least lately used, as the clock knows it. The table is not empty.
    fn evict(&mut self) -> H {
        loop {
            self.hand %= self.slots.len();
            if !std::mem::take(&mut self.slots[self.hand].used) {
                return self.remove(self.hand);
            }
            self.hand += 1;
        }
    }

    fn remove(&mut self, at: usize) -> H {
        let slot = self.slots.swap_remove(at);
        self.ways.remove(&slot.way);
        if let Some(moved) = self.slots.get(at) {
            self.ways.insert(moved.way, at);
        }
        slot.handle
    }

    /// All handles are old from here on: each is used until another is made at its next use.
    pub(super) fn age(&mut self, now: u64) {
        self.valid_from_ns = now;
    }
}

/// True for errors that mean that the host, or the way to it, is not there.
fn is_silence(error: &io::Error) -> bool {
    let silence =
        [libc::ETIMEDOUT, libc::EHOSTUNREACH, libc::ENETUNREACH, libc::EHOSTDOWN, libc::ENETDOWN];
    error.raw_os_error().is_some_and(|errno| silence.contains(&errno))
}
