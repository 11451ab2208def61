//! The links of one endpoint.

mod meetings;

use super::bell::{BELL_BYTES, Bell, PLACES};
use super::claim::Claim;
use super::courier::{Connection, FDS_MAX, Listener};
use super::lanes::{Event, Fill, Lanes, LinkId, Pulled, Reach};
use super::link::{Behind, ENTRY_MAX_BYTES, End, Fate, Link};
use super::meeting::{MEETINGS_MAX, Meeting};
use super::offer::ProcessId;
use super::ring::{Broken, Refused};
use super::segment::Segment;
use super::waker::{Sleep, Waker};
use erd_sys::clock::monotonic_ns;
use erd_sys::wait::Bundle;
use slab::Slab;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

/// Links whose rings are looked at in each step. The peers of the others ring the bell.
const WATCHED_MAX: usize = 4;
/// Time without an entry until a ring is not looked at in each step any more.
const WATCH_NS: u64 = 1_000_000;
/// Entries of one link that a step reads.
const ENTRIES_PER_LOOK: usize = 32;
/// Time between two looks at rings that nobody rang for, one ring at a time: a peer that spoils the bell cannot keep
/// others from being heard.
const SWEEP_NS: u64 = 50_000;
/// Most rings that one step looks at so, after a pause.
const SWEEPS_MAX: u64 = 256;
/// Longest sleep of an endpoint with links, for the same reason.
const SLEEP_NS: u64 = 500_000_000;
/// Time between two looks at an entry that its reader could not take, while that sleeps.
const KEPT_NS: u64 = 100_000;
/// Time between two looks for processes that have ended, where the kernel tells no sleeper of it.
const BLIND_NS: u64 = 20_000_000;
/// Time until others are received again, after there was no room or no descriptor for them.
const FULL_NS: u64 = 10_000_000;
/// Time until an endpoint whose name somebody else has at its meeting place tries again to be found; it doubles, up to
/// [`LISTEN_MAX_NS`]. A program that is being started has copies of all sockets for a moment.
const LISTEN_NS: u64 = 1_000_000;
/// The longest such time.
const LISTEN_MAX_NS: u64 = 1_000_000_000;
/// Within this time the number of a process that has ended is not that of another one: all other numbers come before.
/// The system call that would tell takes as long as it takes to copy 4 KiB. A process that goes on with another program
/// within this time has lent its buffers and let them go.
const SURELY_NS: u64 = 100_000;
/// Descriptors of an endpoint without links: the bell, three of the pipe, two sets, the listener.
const OWN_DESCRIPTORS: usize = 7;
/// Time after the last entry, in or out, until an endpoint rests: one that does is woken by a system call.
const BUSY_NS: u64 = 50_000;
/// Links that are noted as having room between two steps. The others are tried again by the clock.
const ROOMS_MAX: usize = 64;
/// Time between two looks at sockets, while nobody waits to be met.
const LOOK_NS: u64 = 1_000_000;

/// Where and how an endpoint opens its port.
#[derive(Clone, Debug)]
pub struct Options {
    /// The endpoint's name.
    pub name: SocketAddr,
    /// The directory in which endpoints of several network namespaces meet.
    pub dir: Option<PathBuf>,
    /// This process.
    pub process: ProcessId,
    /// Most descriptors for shared memory, over all endpoints of this process.
    pub descriptors: usize,
}

/// A link in the table.
#[derive(Debug)]
struct Place {
    link: Link,
    generation: u32,
    /// The connection by which this endpoint sees the peer's process end.
    seen_by: Arc<Connection>,
    /// It is among [`LocalPort::unread`].
    listed: bool,
    /// Sleepers wake when that closes. Otherwise the clock does.
    sees: bool,
    /// Its first entry could not be taken in the last step.
    kept: bool,
    /// When the ring was last seen to be empty.
    empty_ns: u64,
    /// When entries were last read.
    read_ns: u64,
    /// When the peer's process lived, to go by its entries.
    alive_ns: u64,
    /// When an entry is lost that waits for something else of its writer, who is no more.
    lost_at_ns: Option<u64>,
}

/// See the module's text.
#[derive(Debug)]
pub struct LocalPort {
    options: Options,
    /// `None` if others cannot find this endpoint.
    listener: Option<Listener>,
    /// Without a listener: when to try next, and how long to wait after that.
    listens_again: (u64, u64),
    /// Until when nobody is received.
    full_until_ns: Option<u64>,
    bell: Bell,
    bell_file: OwnedFd,
    sleep: Sleep,
    /// Wakes this endpoint's own sleepers.
    waker: Waker,
    /// All descriptors that wake a sleeper.
    set: Bundle,
    /// Those of them that tell of the end of a process.
    ends: Bundle,
    /// Links by the place at which their peers ring the bell; `None` for those that are about to be made.
    places: Slab<Option<Place>>,
    by_name: HashMap<SocketAddr, u32>,
    generation: u32,
    /// [`MEETINGS_MAX`] at most.
    meetings: Vec<Meeting>,
    /// Endpoints that have refused a link or not answered, and until when they are not asked again; the latest
    /// [`MEETINGS_MAX`].
    refused: VecDeque<(SocketAddr, u64)>,
    /// How many links see their process end by this descriptor.
    seen: HashMap<RawFd, u32>,
    /// The next look for processes that have ended, if some of those cannot be waited for.
    blind_at_ns: Option<u64>,
    /// The links that are looked at in each step, the latest first; [`WATCHED_MAX`] at most.
    watched: Vec<u32>,
    /// Links that have more than a step reads, each once.
    unread: VecDeque<u32>,
    /// Links whose peers rang without entries, until the next [`LocalPort::work`]; 64 at most.
    rooms: Vec<u32>,
    /// Links that have ended, and why, until the next [`LocalPort::work`]. Each once.
    ended: Vec<(u32, End)>,
    /// Word of links that this side has closed, until the next [`LocalPort::work`]. Each once.
    closed: Vec<Event>,
    sweep: usize,
    swept_ns: u64,
    /// When an entry is looked at again that could not be taken in the last step.
    kept_at_ns: Option<u64>,
    look_at_ns: u64,
    armed: bool,
    /// Until when a sleep lasts that begins now, at most.
    sleep_until_ns: u64,
    /// See [`Lanes::was_disarmed`].
    disarmed: bool,
    /// Something came or went since the last [`LocalPort::rests`].
    stirred: bool,
    busy_until_ns: u64,
    scratch: Box<[u8]>,
    _claim: Claim,
}

impl LocalPort {
    /// The port of an endpoint.
    ///
    /// # Errors
    /// There is no memory or no descriptor to be had.
    pub fn open(options: Options) -> io::Result<LocalPort> {
        let claim = Claim::take(OWN_DESCRIPTORS, options.descriptors)?;
        let (page, bell_file) = Segment::create(BELL_BYTES)?;
        Segment::back(&bell_file, 0, BELL_BYTES)?;
        let (sleep, set, ends) = (Sleep::new()?, Bundle::new()?, Bundle::new()?);
        let waker = sleep.waker()?;
        set.add(sleep.fd())?;
        set.add(ends.fd())?;
        let mut port = LocalPort {
            options,
            listener: None,
            listens_again: (0, LISTEN_NS),
            full_until_ns: None,
            bell: Bell::new(page),
            bell_file,
            sleep,
            waker,
            set,
            ends,
            places: Slab::new(),
            by_name: HashMap::new(),
            generation: 0,
            meetings: Vec::new(),
            refused: VecDeque::new(),
            seen: HashMap::new(),
            blind_at_ns: None,
            watched: Vec::with_capacity(WATCHED_MAX + 1),
            unread: VecDeque::new(),
            rooms: Vec::new(),
            ended: Vec::new(),
            closed: Vec::new(),
            sweep: 0,
            swept_ns: 0,
            kept_at_ns: None,
            look_at_ns: 0,
            armed: false,
            sleep_until_ns: 0,
            disarmed: false,
            stirred: false,
            busy_until_ns: 0,
            scratch: vec![0; ENTRY_MAX_BYTES].into_boxed_slice(),
            _claim: claim,
        };
        port.listen(0);
        Ok(port)
    }

    /// True if others find this endpoint.
    #[must_use]
    pub fn is_found(&self) -> bool {
        self.listener.is_some()
    }

    /// Sees to it that others find this endpoint, if they do not and it is time to try. False if they do not find it.
    fn listen(&mut self, now: u64) -> bool {
        let (next_ns, pause_ns) = self.listens_again;
        if self.listener.is_some() || now < next_ns {
            return self.listener.is_some();
        }
        self.listens_again = (now + pause_ns, (2 * pause_ns).min(LISTEN_MAX_NS));
        let name = self.options.name;
        let opened = Listener::open(name, self.options.dir.as_deref());
        let added = opened.and_then(|opened| self.set.add(opened.fd()).map(|()| opened));
        let added = added.inspect_err(|error| match &self.options.dir {
            // It was said at the first try.
            _ if pause_ns > LISTEN_NS => {}
            None => tracing::info!(%name, %error, "local peers cannot find this endpoint"),
            Some(dir) => {
                let dir = dir.display();
                tracing::warn!(%name, %dir, %error, "local peers cannot find this endpoint there");
            }
        });
        self.listener = added.ok();
        self.listener.is_some()
    }

    /// Whether another link has room.
    fn has_room(&self) -> bool {
        // The connection, and what comes with an offer.
        self.places.len() < PLACES && Claim::has(1 + FDS_MAX, self.options.descriptors)
    }

    fn id(&self, index: usize) -> LinkId {
        let generation = self.places[index].as_ref().map_or(0, |place| place.generation);
        LinkId { index: index as u32, generation }
    }

    fn place(&mut self, id: LinkId) -> Option<&mut Place> {
        let place = self.places.get_mut(id.index as usize)?.as_mut()?;
        (place.generation == id.generation).then_some(place)
    }

    fn link(&mut self, id: LinkId) -> Option<&mut Link> {
        self.place(id).map(|place| &mut place.link)
    }

    fn answer_bell(&mut self, now: u64, f: &mut dyn FnMut(LinkId, u8, &[u8]) -> Fate) -> usize {
        let (mut rung, mut many) = ([0; 64], 0);
        self.bell.answer(|place| {
            rung[many] = place as u32;
            many += 1;
        });
        rung[..many].iter().map(|index| self.look_closely(*index, now, f)).sum()
    }

    /// Looks at a link whose peer rang the bell, perhaps to say that it has closed it.
    fn look_closely(
        &mut self,
        index: u32,
        now: u64,
        f: &mut dyn FnMut(LinkId, u8, &[u8]) -> Fate,
    ) -> usize {
        let Some(Some(place)) = self.places.get(index as usize) else { return 0 };
        // Before the entries: what was written before it was closed is there then.
        let is_closed = place.link.is_closed();
        let count = self.look_at(index, now, f);
        if is_closed && count == 0 && !self.has_news(index) {
            self.note_end(index, End::Closed);
        } else if is_closed {
            self.list(index);
        } else if count > 0 {
            self.watch(index);
        } else if self.rooms.len() < ROOMS_MAX {
            self.rooms.push(index);
        }
        count
    }

    fn has_news(&mut self, index: u32) -> bool {
        let place = self.places.get_mut(index as usize).and_then(Option::as_mut);
        place.is_some_and(|place| place.link.has_news())
    }

    /// Reads entries of a link.
    fn look_at(
        &mut self,
        index: u32,
        now: u64,
        f: &mut dyn FnMut(LinkId, u8, &[u8]) -> Fate,
    ) -> usize {
        let Some(Some(place)) = self.places.get_mut(index as usize) else { return 0 };
        let id = LinkId { index, generation: place.generation };
        let read =
            place.link.read(ENTRIES_PER_LOOK, &mut self.scratch, |kind, bytes| f(id, kind, bytes));
        if let Ok((count, behind)) = read {
            if count > 0 {
                // The first of them has been written after that.
                place.alive_ns = place.empty_ns;
                place.read_ns = now;
            }
            if behind == Behind::Nothing {
                place.empty_ns = now;
            }
        }
        match read {
            Ok((count, Behind::Nothing)) => count,
            Ok((count, Behind::More)) => {
                if !place.link.is_watched() {
                    self.list(index);
                }
                count
            }
            Ok((count, Behind::Kept)) => {
                self.keep(index, now);
                count
            }
            Ok((count, Behind::Waiting)) => {
                let is_over = place.link.is_closed() || !place.link.process.seems_alive();
                if is_over && now >= *place.lost_at_ns.get_or_insert(now + LOOK_NS) {
                    let end = if place.link.is_closed() { End::Closed } else { End::Died };
                    self.note_end(index, end);
                } else {
                    self.keep(index, now);
                }
                count
            }
            Ok((count, Behind::Unwanted)) => {
                self.note_end(index, End::Closed);
                count
            }
            Err(Broken) => {
                self.note_end(index, End::Broken);
                0
            }
        }
    }

    /// Looks at the ring of this link in each step from now on, and no more at that of another.
    fn watch(&mut self, index: u32) {
        let Some(Some(place)) = self.places.get_mut(index as usize) else { return };
        if place.link.is_watched() {
            return;
        }
        place.link.watch(true);
        self.watched.insert(0, index);
        if self.watched.len() > WATCHED_MAX
            && let Some(last) = self.watched.pop()
        {
            self.unwatch(last);
        }
    }

    /// The peer rings for each entry from now on.
    fn unwatch(&mut self, index: u32) {
        let Some(Some(place)) = self.places.get_mut(index as usize) else { return };
        place.link.watch(false);
        if place.link.has_news() {
            self.list(index);
        }
    }

    /// Looks no more in each step at the ring of a link that has been idle: each such look takes as long as a tenth of a step.
    fn unwatch_idle(&mut self, index: u32, now: u64) {
        let Some(Some(place)) = self.places.get(index as usize) else { return };
        if place.link.is_watched() && now > place.read_ns + WATCH_NS {
            self.watched.retain(|other| *other != index);
            self.unwatch(index);
        }
    }

    /// True if there are entries that a step would take, or look at for the first time.
    fn has_unread_now(&mut self) -> bool {
        let place = |index: &u32| self.places.get(*index as usize).and_then(Option::as_ref);
        let has_listed = self.unread.iter().filter_map(place).any(|place| !place.kept);
        has_listed
            || (0..self.watched.len()).any(|at| {
                let index = self.watched[at];
                let is_kept = self.places[index as usize].as_ref().is_some_and(|place| place.kept);
                !is_kept && self.has_news(index)
            })
    }

    /// Looks at a link in the next step.
    fn list(&mut self, index: u32) {
        if let Some(Some(place)) = self.places.get_mut(index as usize)
            && !std::mem::replace(&mut place.listed, true)
        {
            self.unread.push_back(index);
        }
    }

    /// Looks in the next step at a link whose first entry could not be taken. A sleep need not end for that at once.
    fn keep(&mut self, index: u32, now: u64) {
        self.kept_at_ns = Some(now + KEPT_NS);
        self.list(index);
        if let Some(Some(place)) = self.places.get_mut(index as usize) {
            place.kept = true;
        }
    }

    fn note_end(&mut self, index: u32, end: End) {
        if self.ended.iter().all(|(other, _)| *other != index) {
            self.ended.push((index, end));
        }
    }

    /// Notes the ends of links whose processes have ended, once everything that they wrote has been read.
    fn look_for_deaths(&mut self, now: u64) {
        for index in 0..self.places.capacity() as u32 {
            let Some(Some(place)) = self.places.get_mut(index as usize) else { continue };
            if place.link.process.is_alive() {
                let stays = place.link.process.connection();
                if let Some(stays) = stays.filter(|stays| !Arc::ptr_eq(stays, &place.seen_by)) {
                    let before = std::mem::replace(&mut place.seen_by, Arc::clone(&stays));
                    self.unsee_one(index, &before);
                    self.see_one(index, &stays);
                }
            } else if !place.link.has_news() {
                // It may have closed the link before.
                let end = if place.link.is_closed() { End::Closed } else { End::Died };
                self.note_end(index, end);
            } else {
                // It stays closed, and must not keep the sleeper awake while its last entry cannot be taken.
                let seen_by = Arc::clone(&place.seen_by);
                self.list(index);
                self.unsee_one(index, &seen_by);
            }
        }
        let is_blind = self.places.iter().any(|(_, place)| place.as_ref().is_some_and(|p| !p.sees));
        self.blind_at_ns = is_blind.then_some(now + BLIND_NS);
    }

    fn see_one(&mut self, index: u32, connection: &Connection) {
        let sees = self.see(connection);
        if let Some(Some(place)) = self.places.get_mut(index as usize) {
            place.sees = sees;
        }
    }

    fn unsee_one(&mut self, index: u32, connection: &Connection) {
        let place = self.places.get_mut(index as usize).and_then(Option::as_mut);
        if place.is_some_and(|place| std::mem::take(&mut place.sees)) {
            self.unsee(connection);
        }
    }

    /// Sleepers wake when this connection closes, if this is true.
    fn see(&mut self, connection: &Connection) -> bool {
        let fd = connection.fd().as_raw_fd();
        if !self.seen.contains_key(&fd)
            && let Err(error) = self.ends.add_end(connection.fd())
        {
            // The kernel bounds how many sets one descriptor wakes.
            tracing::debug!(%error, "the end of a local peer is looked for by the clock");
            self.blind_at_ns = Some(0);
            return false;
        }
        *self.seen.entry(fd).or_default() += 1;
        true
    }

    fn unsee(&mut self, connection: &Connection) {
        let Some(count) = self.seen.get_mut(&connection.fd().as_raw_fd()) else { return };
        *count -= 1;
        if *count == 0 {
            self.seen.remove(&connection.fd().as_raw_fd());
            if let Err(error) = self.ends.remove(connection.fd()) {
                tracing::trace!(%error, "a connection was not waited for");
            }
        }
    }

    /// Takes a link out of the table.
    fn leave(&mut self, index: usize, end: End, f: &mut dyn FnMut(Event)) {
        let place = self.places.get_mut(index).and_then(Option::take);
        let Some(Place { mut link, seen_by, sees, generation, .. }) = place else { return };
        let id = LinkId { index: index as u32, generation };
        self.places.remove(index);
        self.by_name.remove(&link.name);
        self.watched.retain(|other| *other as usize != index);
        self.unread.retain(|other| *other as usize != index);
        self.ended.retain(|(other, _)| *other as usize != index);
        if sees {
            self.unsee(&seen_by);
        }
        // A peer that says what cannot be has read nothing more than is known.
        let (name, read) = (link.name, link.read_by_peer().unwrap_or(0));
        // The ring says so before anybody gets memory back that the peer may read.
        drop(link);
        f(Event::Down(name, id, end, read));
    }

    fn disarm(&mut self) {
        if !std::mem::replace(&mut self.armed, false) {
            return;
        }
        self.bell.sleep(false);
        self.sleep.drain();
        self.disarmed = true;
    }

    /// Looks at rings that nobody rang for, as many as are due.
    fn sweep(&mut self, now: u64, f: &mut dyn FnMut(LinkId, u8, &[u8]) -> Fate) -> usize {
        let places = self.places.capacity();
        let due = (now.saturating_sub(self.swept_ns) / SWEEP_NS).min(SWEEPS_MAX);
        if due == 0 || places == 0 {
            return 0;
        }
        self.swept_ns = now;
        let mut count = 0;
        for _ in 0..due.min(places as u64) {
            self.sweep = (self.sweep + 1) % places;
            count += self.look_closely(self.sweep as u32, now, f);
            self.unwatch_idle(self.sweep as u32, now);
        }
        count
    }

    /// Receives nobody until later, if others cannot be received now.
    fn pause(&mut self, now: u64) {
        if let (None, Some(listener)) = (self.full_until_ns, &self.listener) {
            self.full_until_ns = Some(now + FULL_NS);
            if let Err(error) = self.set.remove(listener.fd()) {
                tracing::trace!(%error, "the listener was not waited for");
            }
        }
    }

    /// Receives others again, if it is time.
    fn resume(&mut self, now: u64) {
        if let Some(listener) = &self.listener
            && self.full_until_ns.take_if(|until| *until <= now).is_some()
            && let Err(error) = self.set.add(listener.fd())
        {
            tracing::debug!(%error, "others wait until this side hears of them again");
            self.full_until_ns = Some(now + FULL_NS);
        }
    }
}

impl Lanes for LocalPort {
    fn reach(&mut self, name: SocketAddr, now: u64) -> Reach {
        if let Some(index) = self.by_name.get(&name) {
            return Reach::Link(self.id(*index as usize));
        }
        let has_room = self.meetings.len() < MEETINGS_MAX && self.has_room();
        // An endpoint that nobody finds could not prove its name.
        if name == self.options.name || !self.listen(now) {
            return Reach::None;
        }
        let is_refused = self.refused.iter().any(|(other, until)| *other == name && now < *until);
        match self.is_asked(name) || (has_room && !is_refused && self.ask(name, now)) {
            true => Reach::Asked,
            false => Reach::None,
        }
    }

    fn put(
        &mut self,
        id: LinkId,
        kind: u8,
        len: usize,
        fill: Fill<'_>,
    ) -> Option<Result<u64, Refused>> {
        let put = self.link(id)?.put(kind, len, fill);
        self.stirred |= put.is_ok();
        if put == Err(Refused::Broken) {
            self.note_end(id.index, End::Broken);
        }
        Some(put)
    }

    fn starve(&mut self, id: LinkId) {
        self.link(id).into_iter().for_each(Link::starve);
    }

    fn read_by_peer(&mut self, id: LinkId) -> Option<u64> {
        let read = self.link(id)?.read_by_peer();
        if read.is_err() {
            self.note_end(id.index, End::Broken);
        }
        read.ok()
    }

    fn has_entries(&mut self, id: LinkId) -> bool {
        self.link(id).is_some_and(Link::has_news)
    }

    unsafe fn pull(
        &mut self,
        id: LinkId,
        from: &mut [libc::iovec],
        to: &mut [libc::iovec],
        len: usize,
    ) -> Pulled {
        let Some(place) = self.place(id) else { return Pulled::Gone };
        let (alive_ns, link) = (place.alive_ns, &mut place.link);
        if !link.process.is_readable() {
            return Pulled::Never;
        }
        // SAFETY: the caller's promise.
        let read = unsafe { erd_sys::other_memory::read(link.process.pid(), from, to, len) };
        // What follows is looked at after the bytes.
        fence(Ordering::SeqCst);
        match read {
            // What was read is what the peer wanted read, if it has kept its buffer until now, and its number was still its
            // own.
            Ok(()) if link.is_closed() => Pulled::Gone,
            Ok(()) if monotonic_ns() < alive_ns + SURELY_NS || link.process.is_alive() => {
                Pulled::Done
            }
            Ok(()) => Pulled::Gone,
            Err(error) if matches!(error.raw_os_error(), Some(libc::EPERM | libc::ENOSYS)) => {
                tracing::info!(peer = %link.name, %error, "bytes of a local peer go through its ring");
                link.process.note_unreadable();
                Pulled::Never
            }
            // Nothing else of the peer's memory is known to be wrong: it may copy from there itself.
            Err(error) => {
                tracing::debug!(peer = %link.name, %error, "cannot read a local peer's memory");
                Pulled::Never
            }
        }
    }

    fn poll(&mut self, now: u64, f: &mut dyn FnMut(LinkId, u8, &[u8]) -> Fate) -> usize {
        self.disarm();
        self.kept_at_ns = None;
        self.sleep_until_ns = now + SLEEP_NS;
        let mut count = 0;
        for at in 0..self.watched.len() {
            count += self.look_at(self.watched[at], now, f);
        }
        for _ in 0..self.unread.len() {
            let Some(index) = self.unread.pop_front() else { break };
            if let Some(Some(place)) = self.places.get_mut(index as usize) {
                (place.listed, place.kept) = (false, false);
            }
            count += self.look_closely(index, now, f);
        }
        if self.bell.has_rung() {
            count += self.answer_bell(now, f);
        }
        count += self.sweep(now, f);
        self.stirred |= count > 0;
        count
    }

    fn work(&mut self, now: u64, f: &mut dyn FnMut(Event)) {
        while let Some(index) = self.rooms.pop() {
            if let Some(Some(place)) = self.places.get(index as usize) {
                f(Event::Room(place.link.name));
            }
        }
        std::mem::take(&mut self.closed).into_iter().for_each(&mut *f);
        for (index, end) in std::mem::take(&mut self.ended) {
            self.leave(index as usize, end, f);
        }
        let is_due = self.blind_at_ns.is_some_and(|at| at <= now);
        let resumes = self.full_until_ns.is_some_and(|until| until <= now);
        if now < self.look_at_ns && self.meetings.is_empty() && !is_due && !resumes {
            return;
        }
        self.look_at_ns = now + LOOK_NS;
        self.resume(now);
        self.listen(now);
        let is_late = self.meetings.iter().any(|m| m.ends_at_ns <= now || m.theirs.is_some());
        if is_late || is_due || self.set.is_ready() {
            self.meet(now, f);
            if is_due || self.ends.is_ready() {
                self.look_for_deaths(now);
            }
        }
    }

    fn break_off(&mut self, id: LinkId) {
        if self.link(id).is_some() {
            self.note_end(id.index, End::Broken);
        }
    }

    fn close(&mut self, id: LinkId) {
        if self.link(id).is_some() {
            let mut told = None;
            self.leave(id.index as usize, End::Closed, &mut |event| told = Some(event));
            self.closed.extend(told);
        }
    }

    fn rests(&mut self, now: u64) -> bool {
        if std::mem::take(&mut self.stirred) {
            self.busy_until_ns = now + BUSY_NS;
        }
        now >= self.busy_until_ns
    }

    fn arm(&mut self) -> bool {
        if !self.armed {
            self.bell.sleep(true);
            self.armed = true;
        }
        let is_told = self.ended.is_empty() && self.closed.is_empty();
        let has_news = !is_told || self.bell.has_rung() || self.has_unread_now();
        if has_news {
            self.disarm();
        }
        has_news
    }

    fn was_disarmed(&mut self) -> bool {
        std::mem::take(&mut self.disarmed)
    }

    fn rearm(&mut self) {
        if self.arm() {
            self.armed = true;
            self.waker.wake();
        }
    }

    fn next_ns(&self) -> Option<u64> {
        let meetings = self.meetings.iter().map(|meeting| meeting.ends_at_ns).min();
        let sleep = (!self.by_name.is_empty()).then_some(self.sleep_until_ns);
        let dues = [meetings, sleep, self.kept_at_ns, self.full_until_ns, self.blind_at_ns];
        dues.into_iter().flatten().min()
    }

    fn links(&self) -> usize {
        self.by_name.len()
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.set.fd())
    }
}

#[cfg(test)]
mod tests;
