//! Regions: memory that peers may reach, with its bounds, its rights and its end.
//!
//! A region is the application's memory until it is closed; closing waits for accesses under way, and no access begins
//! afterwards ([`Region::enter`]).

use crate::flags::Flags;
use crate::uses::Use;
use erd_port::PinId;
use erd_port::verbs::{Pin, VerbsPort};
use erd_rd::keys::KeyId;
use erd_sys::own_memory;
use parking_lot::Mutex;
use std::net::SocketAddr;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Once};

/// One piece of registered memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// Address of its first byte.
    pub start: usize,
    /// Its length.
    pub len_bytes: usize,
}

/// Longer pieces hold addresses where nothing is mapped: no host has as much memory.
const PIECE_BYTES_MAX: usize = 1 << 46;
/// Below this address nothing is mapped.
const ADDRESS_MIN: usize = 4096;

impl Piece {
    /// True if all of it can be mapped at once. False for MPI's dynamic windows, which cover the whole address space.
    fn can_be_there(&self) -> bool {
        let end = self.start.checked_add(self.len_bytes);
        self.len_bytes == 0
            || self.start >= ADDRESS_MIN
                && self.len_bytes <= PIECE_BYTES_MAX
                && end.is_some_and(|end| isize::try_from(end).is_ok())
    }
}

/// Bit of [`Region::users`] that says that the region is closed.
const CLOSED: usize = 1 << (usize::BITS - 1);

/// A counter of accesses, with the kinds that it counts.
struct Counts {
    kinds: Flags,
    counter: Arc<dyn AccessCounter>,
    _open: Use,
}

/// A counter of accesses to a region.
pub trait AccessCounter: Send + Sync {
    /// An access to `len_bytes` is done.
    fn accessed(&self, len_bytes: u64);
}

/// Memory that peers may reach.
pub struct Region {
    pieces: Vec<Piece>,
    /// [`Flags::REMOTE_READ`] and [`Flags::REMOTE_WRITE`] as registered.
    access: Flags,
    /// Address of its first byte, as peers use it.
    base: u64,
    /// Parts of it may be unmapped, and peers choose the address: the library probes memory before every access, or
    /// leaves it to the kernel.
    guarded: bool,
    /// Accesses under way, and [`CLOSED`].
    users: AtomicUsize,
    /// Its registration with the domain's verbs port, until it is closed.
    pin: Mutex<Option<Pin>>,
    /// Id that bursts from it carry.
    memory: Option<PinId>,
    /// Counters of accesses to this region alone, with the kinds that each counts.
    counters: Mutex<Vec<Counts>>,
    audience: Audience,
}

/// Peers that may reach a region.
#[derive(Clone, Debug, Default)]
pub enum Audience {
    /// All of the domain's.
    #[default]
    All,
    /// Those with one of these keys.
    Keys(Vec<KeyId>),
    /// The one of this name, with this key.
    One(SocketAddr, KeyId),
}

impl Audience {
    /// Whether the peer of this name and key is among them.
    #[must_use]
    pub(crate) fn has(&self, name: SocketAddr, key: Option<KeyId>) -> bool {
        match self {
            Audience::All => true,
            Audience::Keys(keys) => key.is_some_and(|key| keys.contains(&key)),
            Audience::One(only, wanted) => *only == name && Some(*wanted) == key,
        }
    }
}

impl Region {
    /// A region of these pieces, as one run of bytes. Peers address it from 0 or, with `by_address`, from the first
    /// piece's address.
    #[must_use]
    pub fn new(pieces: Vec<Piece>, access: Flags, by_address: bool) -> Region {
        let base =
            if by_address { pieces.first().map_or(0, |piece| piece.start as u64) } else { 0 };
        let guarded = !pieces.iter().all(Piece::can_be_there) && own_memory::is_offered();
        let (users, counters) = (AtomicUsize::new(0), Mutex::default());
        let (pin, memory) = (Mutex::default(), None);
        let audience = Audience::All;
        Region { pieces, access, base, guarded, users, pin, memory, counters, audience }
    }

    /// The region, for these peers alone.
    #[must_use]
    pub fn only_for(self, audience: Audience) -> Region {
        Region { audience, ..self }
    }

    /// Whether the peer of this name and key may reach it.
    #[must_use]
    pub(crate) fn is_for(&self, name: SocketAddr, key: Option<KeyId>) -> bool {
        self.audience.has(name, key)
    }

    /// The peers that may reach it.
    #[must_use]
    pub(crate) fn audience(&self) -> &Audience {
        &self.audience
    }

    /// The region, registered with a port if it is one piece of `least_bytes` or more and the device takes it.
    #[must_use]
    pub fn pinned(self, port: &Arc<VerbsPort>, least_bytes: u64) -> Region {
        let [Piece { start, len_bytes }] = self.pieces[..] else { return self };
        if self.guarded || (len_bytes as u64) < least_bytes {
            return self;
        }
        match port.pin(std::ptr::with_exposed_provenance(start), len_bytes) {
            Ok(pin) => Region { memory: Some(pin.id()), pin: Mutex::new(Some(pin)), ..self },
            Err(error) => {
                static SAID: Once = Once::new();
                SAID.call_once(|| tracing::warn!(%error, "registered memory is copied to be sent"));
                self
            }
        }
    }

    /// Id that bursts from it carry.
    #[must_use]
    pub fn memory(&self) -> Option<PinId> {
        self.memory
    }

    /// [`Flags::REMOTE_READ`] and [`Flags::REMOTE_WRITE`] as registered.
    #[must_use]
    pub fn access(&self) -> Flags {
        self.access
    }

    /// Address of its first byte, as peers use it.
    #[must_use]
    pub fn base(&self) -> u64 {
        self.base
    }

    /// True if parts may be missing: then use only [`Pass::read`] and [`Pass::write`], or ask [`Pass::is_there`] first.
    #[must_use]
    pub(crate) fn is_guarded(&self) -> bool {
        self.guarded
    }

    /// From now on `cntr` counts accesses of these kinds, [`Flags::REMOTE_READ`] and [`Flags::REMOTE_WRITE`].
    pub fn count_in(&self, cntr: Arc<dyn AccessCounter>, open: Use, kinds: Flags) {
        self.counters.lock().push(Counts { kinds, counter: cntr, _open: open });
    }

    /// An access of these kinds is done.
    pub(crate) fn accessed(&self, kinds: Flags, len_bytes: u64) {
        for counts in &*self.counters.lock() {
            if counts.kinds.intersects(kinds) {
                counts.counter.accessed(len_bytes);
            }
        }
    }

    /// Offset of the `len_bytes` at the peers' address `addr`; `None` if they are not all within.
    #[must_use]
    pub fn offset_of(&self, addr: u64, len_bytes: u64) -> Option<u64> {
        let offset = addr.checked_sub(self.base)?;
        let end = offset.checked_add(len_bytes)?;
        let sum = |sum: u64, piece: &Piece| sum.saturating_add(piece.len_bytes as u64);
        (end <= self.pieces.iter().fold(0, sum)).then_some(offset)
    }

    /// Begins an access; `None` if the region is closed.
    #[must_use]
    pub fn enter(self: &Arc<Region>) -> Option<Pass> {
        if self.users.fetch_add(1, Ordering::Acquire) & CLOSED != 0 {
            self.users.fetch_sub(1, Ordering::Release);
            return None;
        }
        Some(Pass(Arc::clone(self)))
    }

    /// Lets no access begin any more. Waits for those under way (each a copy, or one system call that does not block)
    /// and for the device's sends from it. Its counters are free then, though peers' requests may still hold the
    /// region.
    pub fn close(&self) {
        self.users.fetch_or(CLOSED, Ordering::AcqRel);
        while self.users.load(Ordering::Acquire) != CLOSED {
            std::thread::yield_now();
        }
        self.counters.lock().clear();
        let pin = self.pin.lock().take();
        drop(pin);
    }

    /// Hands the parts of `len_bytes` from `offset_bytes` to `f`, in order. Leaves out what lies beyond the end.
    pub(crate) fn each_part(
        &self,
        offset_bytes: u64,
        len_bytes: u64,
        mut f: impl FnMut(*mut u8, usize),
    ) {
        let (mut skip, mut left) = (offset_bytes, len_bytes);
        for piece in &self.pieces {
            let piece_bytes = piece.len_bytes as u64;
            if skip >= piece_bytes {
                skip -= piece_bytes;
                continue;
            }
            let take = (piece_bytes - skip).min(left);
            if take == 0 {
                return;
            }
            let start = piece.start.wrapping_add(skip as usize);
            f(std::ptr::with_exposed_provenance_mut(start), take as usize);
            left -= take;
            skip = 0;
        }
    }
}

/// An access to a region, which keeps its memory until the access is dropped.
pub struct Pass(Arc<Region>);

impl Pass {
    /// Copies out of the memory; false if not all of it is there.
    #[must_use]
    pub fn read(&self, offset_bytes: u64, out: &mut [u8]) -> bool {
        let (mut rest, mut there) = (out, true);
        self.each_part(offset_bytes, rest.len() as u64, |at, len| {
            let (to, after) = std::mem::take(&mut rest).split_at_mut(len);
            if self.guarded {
                there = there && own_memory::read(at.addr(), to);
            } else {
                // SAFETY: the part lies in memory that the application registered, and that stays
                // so while the pass is held; `to` is as long.
                unsafe { std::ptr::copy_nonoverlapping(at, to.as_mut_ptr(), len) };
            }
            rest = after;
        });
        there
    }

    /// Whether this is an access to `region`.
    #[must_use]
    pub(crate) fn is_to(&self, region: &Arc<Region>) -> bool {
        Arc::ptr_eq(&self.0, region)
    }

    /// Memory of the `len_bytes` from `offset_bytes`, if it is in one piece and cannot be missing.
    #[must_use]
    pub fn run(&self, offset_bytes: u64, len_bytes: usize) -> Option<NonNull<u8>> {
        let mut run = None;
        if !self.guarded {
            self.each_part(offset_bytes, len_bytes as u64, |at, len| {
                if len == len_bytes {
                    run = NonNull::new(at);
                }
            });
        }
        run
    }

    /// Copies into the memory; false if not all of it is there. Bytes that were received straight into
    /// their place ([`Pass::run`]) are there already.
    #[must_use]
    pub fn write(&self, offset_bytes: u64, bytes: &[u8]) -> bool {
        let (mut rest, mut there) = (bytes, true);
        self.each_part(offset_bytes, rest.len() as u64, |at, len| {
            let (from, after) = rest.split_at(len);
            // SAFETY: as in `read`, and the application registered it for writing. It may write from one place of its memory to
            // another, and both may overlap.
            unsafe {
                if self.guarded {
                    there = there && own_memory::write(at.addr(), from);
                } else if !std::ptr::eq(from.as_ptr(), at) {
                    std::ptr::copy(from.as_ptr(), at, len);
                }
            }
            rest = after;
        });
        there
    }

    /// Whether the memory is mapped now, judged by its ends; with `changes`, whether it is writable. The application
    /// may still unmap it afterwards, or parts in between.
    #[must_use]
    pub(crate) fn is_there(&self, offset_bytes: u64, len_bytes: u64, changes: bool) -> bool {
        let mut there = true;
        if self.guarded {
            self.each_part(offset_bytes, len_bytes, |at, len| {
                there = there
                    && match changes {
                        true => own_memory::is_writable(at.addr(), len),
                        false => own_memory::has_ends(at.addr(), len),
                    };
            });
        }
        there
    }
}

impl Deref for Pass {
    type Target = Region;

    fn deref(&self) -> &Region {
        &self.0
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        self.0.users.fetch_sub(1, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(by_address: bool) -> Region {
        let pieces = vec![
            Piece { start: 4096, len_bytes: 10 },
            Piece { start: 8192, len_bytes: 0 },
            Piece { start: 8192, len_bytes: 5 },
        ];
        Region::new(pieces, Flags::empty(), by_address)
    }

    #[test]
    fn bounds_are_those_of_all_pieces() {
        assert_eq!(region(false).offset_of(0, 15), Some(0));
        assert_eq!(region(false).offset_of(15, 0), Some(15));
        assert_eq!(region(false).offset_of(10, 6), None);
        assert_eq!(region(false).offset_of(u64::MAX, 2), None);
        assert_eq!(region(true).offset_of(4100, 3), Some(4));
        assert_eq!(region(true).offset_of(4095, 1), None);
    }

    #[test]
    fn the_whole_address_space_is_a_region() {
        let all =
            Region::new(vec![Piece { start: 0, len_bytes: usize::MAX }], Flags::empty(), true);
        assert_eq!(all.offset_of(0x7fff_1234_5678, 8), Some(0x7fff_1234_5678));
        let mut parts = Vec::new();
        all.each_part(0x7fff_1234_5678, 8, |at, len| parts.push((at as usize, len)));
        assert_eq!(parts, [(0x7fff_1234_5678, 8)]);
    }

    #[test]
    fn pieces_that_cannot_be_mapped_are_told() {
        let piece = |start, len_bytes| Piece { start, len_bytes };
        for usual in [piece(4096, 10), piece(0, 0), piece(0x7fff_0000_0000, 1 << 40)] {
            assert!(usual.can_be_there(), "{usual:?}");
        }
        for all in [piece(0, usize::MAX), piece(0, 8), piece(4096, usize::MAX), piece(1 << 63, 8)] {
            assert!(!all.can_be_there(), "{all:?}");
        }
    }

    #[test]
    fn memory_that_is_missing_is_not_touched() {
        let all = vec![Piece { start: 0, len_bytes: usize::MAX }];
        let all = Arc::new(Region::new(all, Flags::empty(), true));
        assert!(all.is_guarded(), "this test needs process_vm_readv");
        let pass = all.enter().expect("open");
        let mut cell = 5_u64.to_ne_bytes();
        let at = cell.as_mut_ptr().expose_provenance() as u64;
        let mut out = [0; 8];
        assert!(pass.read(at, &mut out) && pass.write(at, &9_u64.to_ne_bytes()));
        assert_eq!((u64::from_ne_bytes(out), u64::from_ne_bytes(cell)), (5, 9));
        assert!(pass.is_there(at, 8, false) && pass.is_there(at, 8, true));
        assert!(!pass.read(8, &mut out) && !pass.write(8, &out));
        assert!(!pass.is_there(8, 8, false) && !pass.is_there(8, 8, true));
    }

    #[test]
    fn parts_follow_the_pieces() {
        let mut parts = Vec::new();
        region(false).each_part(8, 4, |at, len| parts.push((at as usize, len)));
        assert_eq!(parts, [(4104, 2), (8192, 2)]);
    }

    #[test]
    fn a_run_is_one_piece_that_cannot_be_missing() {
        let run = |region: Region, at, len| {
            let pass = Arc::new(region).enter().expect("open");
            pass.run(at, len).map(|at| at.as_ptr().addr())
        };
        assert_eq!(run(region(false), 8, 2), Some(4104));
        assert_eq!(run(region(false), 10, 5), Some(8192));
        assert_eq!(run(region(false), 8, 4), None, "two pieces");
        assert_eq!(run(region(false), 12, 4), None, "past the end");
        let all = vec![Piece { start: 0, len_bytes: usize::MAX }];
        assert_eq!(
            run(Region::new(all, Flags::empty(), true), 1 << 20, 8),
            None,
            "it may be missing"
        );
    }

    #[test]
    fn a_closed_region_lets_nobody_in() {
        let region = Arc::new(region(false));
        let pass = region.enter().expect("open");
        let closing = Arc::clone(&region);
        let closer = std::thread::spawn(move || closing.close());
        while region.enter().is_some() {
            std::thread::yield_now();
        }
        assert!(!closer.is_finished(), "an access is under way");
        drop(pass);
        closer.join().expect("the region closes");
        assert!(region.enter().is_none());
    }
}
