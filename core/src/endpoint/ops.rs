//! The memory of operations under way: pools, tokens, and the application's buffers.

use crate::settings::IOV_LIMIT;
use erd_port::PinId;
use erd_types::mutants::{Mutant, mutant};
use libc::iovec;
use std::ffi::c_void;
use std::ptr::NonNull;

/// Names a value of one [`Pool`]: its index and the generation of its place, so that a handle kept
/// too long finds nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Handle {
    index: u32,
    generation: u32,
}

/// Kind of a token's target. Its two bits lie above the index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A send, or a posted receive.
    Own = 0,
    /// A buffer that holds a message or an operand before its turn.
    Held = 1,
    /// Memory of this process that a peer reads or writes.
    Served = 2,
    /// Memory for the result of a request.
    Result = 3,
}

/// The lowest bit of a token's kind; indices stay below it.
const KIND_SHIFT: u32 = 30;

impl Handle {
    /// As a token for the engine.
    #[must_use]
    pub fn token(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.index)
    }

    /// As a token of this kind.
    #[must_use]
    pub(crate) fn token_of(self, kind: Kind) -> u64 {
        self.token() | (kind as u64) << KIND_SHIFT
    }

    /// The handle in a token, and what it names.
    #[must_use]
    pub fn from_token(token: u64) -> (Handle, Kind) {
        let low = token as u32;
        let kind =
            [Kind::Own, Kind::Held, Kind::Served, Kind::Result][(low >> KIND_SHIFT) as usize];
        let index = low & ((1 << KIND_SHIFT) - 1);
        (Handle { index, generation: (token >> 32) as u32 }, kind)
    }
}

/// A pool of values. A place keeps its value for the next user, so each value's allocations are made once.
pub struct Pool<T> {
    places: Vec<Place<T>>,
    free: Vec<u32>,
    max: u32,
}

struct Place<T> {
    /// Odd while in use.
    generation: u32,
    value: T,
}

impl<T: Default> Pool<T> {
    /// A pool of at most `max` values (at most 2^30).
    #[must_use]
    pub fn new(max: u32) -> Pool<T> {
        Pool { places: Vec::new(), free: Vec::new(), max: max.min(1 << KIND_SHIFT) }
    }

    /// Number of values in use.
    #[must_use]
    pub fn live(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// True if no place is left.
    #[must_use]
    pub(crate) fn is_full(&self) -> bool {
        self.live() >= self.max as usize
    }

    /// Takes a place. Its value is as its last user left it. `None` at the limit, or without memory for another place.
    pub fn take(&mut self) -> Option<(Handle, &mut T)> {
        let index = match self.free.pop() {
            Some(index) => index,
            None if self.places.len() < self.max as usize => {
                self.places.try_reserve(1).ok()?;
                // Giving back must find room.
                self.free.try_reserve(self.places.len() + 1).ok()?;
                self.places.push(Place { generation: 0, value: T::default() });
                (self.places.len() - 1) as u32
            }
            None => return None,
        };
        let place = &mut self.places[index as usize];
        place.generation = place.generation.wrapping_add(1);
        Some((Handle { index, generation: place.generation }, &mut place.value))
    }

    /// The value, or `None` if the handle is stale.
    pub fn get(&self, handle: Handle) -> Option<&T> {
        let place = self.places.get(handle.index as usize)?;
        (place.generation == handle.generation).then_some(&place.value)
    }

    /// The value, or `None` if the handle is stale.
    pub fn get_mut(&mut self, handle: Handle) -> Option<&mut T> {
        let place = self.places.get_mut(handle.index as usize)?;
        (place.generation == handle.generation).then_some(&mut place.value)
    }

    /// Ends a value's use; handles of it find nothing from now on. A stale handle does nothing.
    pub fn give_back(&mut self, handle: Handle) {
        if let Some(place) = self.places.get_mut(handle.index as usize)
            && place.generation == handle.generation
        {
            place.generation = place.generation.wrapping_add(1);
            self.free.push(handle.index);
        }
    }

    /// Handles of all values in use.
    pub fn handles(&self) -> impl Iterator<Item = Handle> {
        self.places
            .iter()
            .enumerate()
            .filter(|(_, place)| place.generation % 2 == 1)
            .map(|(index, place)| Handle { index: index as u32, generation: place.generation })
    }
}

/// The application's memory of one operation: up to [`IOV_LIMIT`] pieces taken as one run of bytes.
#[derive(Clone, Copy)]
pub struct Buffers {
    parts: [iovec; IOV_LIMIT],
    count: usize,
    len_bytes: u64,
    /// Registered memory that some of it may lie in.
    memory: Option<PinId>,
}

// SAFETY: the memory is lent by the application until the operation completes (`fi_msg(3)`), for
// whichever thread makes progress; all access happens under the endpoint's lock.
unsafe impl Send for Buffers {}

const NO_PART: iovec = iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };

impl Default for Buffers {
    fn default() -> Self {
        Buffers { parts: [NO_PART; IOV_LIMIT], count: 0, len_bytes: 0, memory: None }
    }
}

impl Buffers {
    /// One piece.
    ///
    /// # Safety
    /// The memory must stay valid, for reading or writing as the operation needs, until the operation completes.
    #[must_use]
    pub unsafe fn one(base: *mut c_void, len_bytes: usize) -> Buffers {
        let mut buffers = Buffers::default();
        buffers.parts[0].iov_base = base;
        // SAFETY: the caller's promise. There is room for one.
        let _ = unsafe { buffers.add(base, len_bytes) };
        buffers
    }

    /// Adds a piece; leaves out an empty one. False if there are [`IOV_LIMIT`] already, or the lengths overflow.
    ///
    /// # Safety
    /// As [`Buffers::one`].
    #[must_use]
    pub unsafe fn add(&mut self, base: *mut c_void, len_bytes: usize) -> bool {
        if len_bytes == 0 {
            return true;
        }
        let sum = self.len_bytes.checked_add(len_bytes as u64);
        let (Some(part), Some(sum)) = (self.parts.get_mut(self.count), sum) else { return false };
        *part = iovec { iov_base: base, iov_len: len_bytes };
        self.count += 1;
        self.len_bytes = sum;
        true
    }

    /// Several pieces; leaves out empty ones. `None` if there are more than [`IOV_LIMIT`], the lengths overflow, or
    /// `iov` is NULL with a count.
    ///
    /// # Safety
    /// As [`Buffers::one`] for each piece; `iov` points to `count` pieces, or `count` is 0.
    #[must_use]
    pub unsafe fn many(iov: *const iovec, count: usize) -> Option<Buffers> {
        if count > IOV_LIMIT || (iov.is_null() && count > 0) {
            return None;
        }
        let mut buffers = Buffers::default();
        for index in 0..count {
            // SAFETY: within the `count` pieces that the caller vouches for.
            let part = unsafe { iov.add(index).read() };
            // SAFETY: the caller vouches for each piece.
            if !unsafe { buffers.add(part.iov_base, part.iov_len) } {
                return None;
            }
        }
        Some(buffers)
    }

    /// Becomes the same as `other`. This costs less than a move, which copies places for [`IOV_LIMIT`] pieces.
    pub fn set(&mut self, other: &Buffers) {
        // An empty first piece counts for nothing, but has an address.
        let used = other.count.max(1);
        self.parts[..used].copy_from_slice(&other.parts[..used]);
        (self.count, self.len_bytes, self.memory) = (other.count, other.len_bytes, other.memory);
    }

    /// The same, in the registered memory of the descriptor `desc` (`fi_mr_desc(3)`), if not NULL.
    #[must_use]
    pub fn described(self, desc: *mut c_void) -> Buffers {
        self.within(PinId::from_number(desc.addr() as u64))
    }

    /// The same with a descriptor for each piece: only the first counts.
    ///
    /// # Safety
    /// `descs` is NULL or has as many elements as there are pieces.
    #[must_use]
    pub unsafe fn described_by(self, descs: *const *mut c_void) -> Buffers {
        if descs.is_null() || self.count == 0 {
            return self;
        }
        // SAFETY: there is one at least.
        self.described(unsafe { descs.read() })
    }

    /// The same, in this registered memory.
    #[must_use]
    pub fn within(self, memory: Option<PinId>) -> Buffers {
        Buffers { memory, ..self }
    }

    /// Registered memory that some of it may lie in.
    #[must_use]
    pub fn memory(&self) -> Option<PinId> {
        self.memory
    }

    /// Bytes of all pieces together.
    #[must_use]
    pub fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    /// True if every piece has an address.
    #[must_use]
    pub fn are_somewhere(&self) -> bool {
        self.parts[..self.count].iter().all(|part| !part.iov_base.is_null())
    }

    /// True if it is one piece, or nothing.
    #[must_use]
    pub(crate) fn is_contiguous(&self) -> bool {
        self.count <= 1
    }

    /// The start of the first piece, which may be empty; NULL if there is none.
    #[must_use]
    pub fn base(&self) -> *mut c_void {
        self.parts[0].iov_base
    }

    /// Hands the pieces of `len_bytes` from `offset_bytes` to `f`, in order. Leaves out what lies beyond the end.
    pub fn pieces(&self, offset_bytes: u64, len_bytes: u64, mut f: impl FnMut(iovec)) {
        let (mut skip, mut left) = (offset_bytes, len_bytes);
        for part in &self.parts[..self.count] {
            let part_bytes = part.iov_len as u64;
            if skip >= part_bytes {
                let is_later = mutant(Mutant::IgnoresTheOffsetInALaterPiece);
                skip -= if is_later { skip } else { part_bytes };
                continue;
            }
            let take = (part_bytes - skip).min(left);
            if take == 0 {
                return;
            }
            let base = part.iov_base.cast::<u8>().wrapping_add(skip as usize).cast();
            f(iovec { iov_base: base, iov_len: take as usize });
            left -= take;
            skip = 0;
        }
    }

    /// Address of the `len_bytes` from `offset_bytes`, if they are all in one piece.
    #[must_use]
    pub fn run(&self, offset_bytes: u64, len_bytes: usize) -> Option<NonNull<u8>> {
        let mut run = None;
        self.pieces(offset_bytes, len_bytes as u64, |piece| {
            if piece.iov_len == len_bytes {
                run = NonNull::new(piece.iov_base.cast());
            }
        });
        run
    }

    /// Copies out of the memory.
    pub fn read(&self, offset_bytes: u64, out: &mut [u8]) {
        let mut rest = out;
        self.pieces(offset_bytes, rest.len() as u64, |piece| {
            let (to, after) = std::mem::take(&mut rest).split_at_mut(piece.iov_len);
            // SAFETY: the piece lies in memory that the application lends for reading (promised
            // to `one` and `many`), and `to` is as long.
            unsafe {
                std::ptr::copy_nonoverlapping(piece.iov_base.cast(), to.as_mut_ptr(), to.len());
            }
            rest = after;
        });
    }

    /// Adds a copy of all of it to `out`.
    pub(crate) fn append_to(&self, out: &mut Vec<u8>) {
        self.append_part(0, self.len_bytes, out);
    }

    /// Adds a copy of a part to `out`. Leaves out what lies beyond the end.
    pub(super) fn append_part(&self, offset_bytes: u64, len_bytes: u64, out: &mut Vec<u8>) {
        self.pieces(offset_bytes, len_bytes, |piece| {
            // SAFETY: the piece lies in memory that the application lends for reading (promised to
            // `one` and `many`), at least until the call that posts returns.
            let bytes =
                unsafe { std::slice::from_raw_parts(piece.iov_base.cast::<u8>(), piece.iov_len) };
            out.extend_from_slice(bytes);
        });
    }

    /// Copies into the memory; ignores what lies beyond the end. Bytes that were received straight into their place
    /// ([`Buffers::run`]) are there already.
    pub fn write(&self, offset_bytes: u64, bytes: &[u8]) {
        let mut rest = bytes;
        self.pieces(offset_bytes, rest.len() as u64, |piece| {
            let (from, after) = rest.split_at(piece.iov_len);
            if !std::ptr::eq(from.as_ptr(), piece.iov_base.cast()) {
                // SAFETY: the piece lies in memory that the application lends for writing
                // (promised to `one` and `many`), and `from` is as long. They overlap where an application sends to itself
                // within one buffer.
                unsafe { std::ptr::copy(from.as_ptr(), piece.iov_base.cast(), from.len()) };
            }
            rest = after;
        });
    }
}

/// A context of the application, never read.
#[derive(Clone, Copy)]
pub(super) struct Context(pub *mut c_void);

// SAFETY: see the type's text.
unsafe impl Send for Context {}

impl Default for Context {
    fn default() -> Context {
        Context(std::ptr::null_mut())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stale_handle_finds_nothing() {
        let mut pool = Pool::<u32>::new(2);
        let (first, value) = pool.take().unwrap();
        *value = 7;
        assert_eq!(pool.get(first), Some(&7));
        pool.give_back(first);
        assert_eq!(pool.get(first), None);
        let (second, value) = pool.take().unwrap();
        assert_eq!(*value, 7, "the place keeps its value");
        assert_ne!(first, second);
        pool.give_back(first);
        assert_eq!(pool.live(), 1, "a stale handle frees nothing");
    }

    #[test]
    fn the_limit_holds() {
        let mut pool = Pool::<()>::new(2);
        let first = pool.take().unwrap().0;
        let second = pool.take().unwrap().0;
        assert!(pool.take().is_none());
        assert_eq!(pool.handles().collect::<Vec<_>>(), [first, second]);
        pool.give_back(second);
        assert_eq!(pool.handles().collect::<Vec<_>>(), [first]);
        assert!(pool.take().is_some());
    }

    #[test]
    fn tokens_tell_what_they_name() {
        let handle = Handle { index: 5, generation: 9 };
        assert_eq!(Handle::from_token(handle.token()), (handle, Kind::Own));
        for kind in [Kind::Own, Kind::Held, Kind::Served, Kind::Result] {
            assert_eq!(Handle::from_token(handle.token_of(kind)), (handle, kind));
        }
    }

    #[test]
    fn pieces_are_one_run_of_bytes() {
        let (mut a, mut b, mut c) = ([1_u8, 2, 3], [4_u8; 0], [5_u8, 6]);
        let iov = [&mut a[..], &mut b[..], &mut c[..]]
            .map(|part| iovec { iov_base: part.as_mut_ptr().cast(), iov_len: part.len() });
        // SAFETY: three live arrays.
        let buffers = unsafe { Buffers::many(iov.as_ptr(), iov.len()) }.unwrap();
        assert_eq!(buffers.len_bytes(), 5);
        let mut out = [0; 3];
        buffers.read(1, &mut out);
        assert_eq!(out, [2, 3, 5]);
        buffers.write(2, &[7, 8, 9, 10, 11]);
        assert_eq!((a, c), ([1, 2, 7], [8, 9]), "what does not fit is ignored");
        let mut sizes = Vec::new();
        buffers.pieces(0, 4, |piece| sizes.push(piece.iov_len));
        assert_eq!(sizes, [3, 1]);
        assert_eq!(buffers.run(1, 2).map(NonNull::as_ptr), Some(&raw mut a[1]));
        assert_eq!(buffers.run(2, 2), None, "two pieces");
        assert_eq!(buffers.run(4, 2), None, "past the end");
    }

    #[test]
    fn a_descriptor_names_memory() {
        let (mut byte, named) = (0_u8, PinId::from_number(7));
        let desc = std::ptr::without_provenance_mut(7);
        // SAFETY: a live byte.
        let one = unsafe { Buffers::one((&raw mut byte).cast(), 1) };
        assert_eq!(one.described(desc).memory(), named);
        assert_eq!(one.described(std::ptr::null_mut()).memory(), None);
        // SAFETY: no list, and one as long as there are pieces.
        let listed =
            unsafe { [one.described_by(std::ptr::null()), one.described_by(&raw const desc)] };
        assert_eq!(listed.map(|buffers| buffers.memory()), [None, named]);
        // SAFETY: nothing is read of a list for no pieces.
        let none = unsafe { Buffers::default().described_by(std::ptr::dangling()) };
        assert_eq!(none.memory(), None);
    }

    #[test]
    fn a_list_too_long_is_refused() {
        let iov = [NO_PART; IOV_LIMIT + 1];
        // SAFETY: empty pieces.
        unsafe {
            assert!(Buffers::many(iov.as_ptr(), iov.len()).is_none());
            assert!(Buffers::many(iov.as_ptr(), IOV_LIMIT).is_some());
            assert!(Buffers::many(std::ptr::null(), 1).is_none());
            assert!(Buffers::many(std::ptr::null(), 0).is_some());
        }
    }
}
