//! Memory that two processes map: a sealed memfd, whose file both close once they have it (`docs/protocol.md` §12.2).
//!
//! Nothing of it has a name, so nothing is left when both processes are gone, however they ended.

use super::ring::Memory;
use erd_sys::process::Process;
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// Bytes of a page, or fewer.
pub const PAGE_BYTES: usize = 4096;
/// What keeps the file as long as it is mapped: a shorter one would end the process that touches its end.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// Whether a segment can get memory bit by bit ([`Segment::populate`]).
pub fn grows() -> bool {
    static GROWS: OnceLock<bool> = OnceLock::new();
    *GROWS.get_or_init(|| {
        // SAFETY: no byte is meant: only whether the kernel knows the advice.
        let known =
            unsafe { rustix::mm::madvise(std::ptr::null_mut(), 0, Advice::LinuxPopulateWrite) };
        known.is_ok()
    })
}

/// See the module's text.
#[derive(Debug)]
pub struct Segment {
    base: NonNull<u8>,
    bytes: usize,
    /// The process that mapped it. A forked child does not have the mapping.
    owner: Process,
    /// Of its file, whose number it shares with every other mapping of that.
    #[cfg(erd_tsan)]
    inode: u64,
}

// SAFETY: the mapping belongs to this value, and its bytes are reached by atomic words or by copies of raw memory.
unsafe impl Send for Segment {}
// SAFETY: as above.
unsafe impl Sync for Segment {}

impl Segment {
    /// A new one of `bytes`, all 0, and its file for the other process. It takes no memory before [`Segment::back`].
    ///
    /// # Errors
    /// There is no memory, no descriptor, or no memfd to be had.
    pub fn create(bytes: usize) -> io::Result<(Segment, OwnedFd)> {
        // The kernel ends a process that makes a longer file than it may.
        let most = rustix::process::getrlimit(rustix::process::Resource::Fsize).current;
        if most.is_some_and(|most| most < bytes as u64) {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create("erd", flags)?;
        rustix::fs::ftruncate(&file, bytes as u64)?;
        rustix::fs::fcntl_add_seals(&file, SEALS)?;
        let segment = Segment::map(&file, bytes)?;
        Ok((segment, file))
    }

    /// Maps the file of another process, which must have `bytes` and keep them.
    ///
    /// # Errors
    /// It has another size, or could get one, or there is no memory.
    pub fn open(file: &impl AsFd, bytes: usize) -> io::Result<Segment> {
        // Before the size is looked at: from here on it stays.
        let seals = rustix::fs::fcntl_get_seals(file)?;
        let size = rustix::fs::fstat(file)?.st_size;
        if !seals.contains(SealFlags::SHRINK) || size != bytes as i64 {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Segment::map(file, bytes)
    }

    fn map(file: &impl AsFd, bytes: usize) -> io::Result<Segment> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, where nothing is.
        let base = unsafe {
            rustix::mm::mmap(std::ptr::null_mut(), bytes, access, MapFlags::SHARED, file, 0)?
        };
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        let segment = Segment {
            base,
            bytes,
            owner: Process::current(),
            #[cfg(erd_tsan)]
            inode: rustix::fs::fstat(file)?.st_ino,
        };
        for advice in [Advice::LinuxDontFork, Advice::LinuxDontDump] {
            // SAFETY: the mapping that was just made. Neither changes what this process sees.
            unsafe { rustix::mm::madvise(base.as_ptr().cast(), bytes, advice)? };
        }
        Ok(segment)
    }

    /// Gets memory for these bytes by the file, before the other process has it.
    ///
    /// # Errors
    /// There is none.
    pub fn back(file: &impl AsFd, at: usize, bytes: usize) -> io::Result<()> {
        Ok(rustix::fs::fallocate(file, FallocateFlags::empty(), at as u64, bytes as u64)?)
    }

    /// Gets memory for these bytes by the mapping. False if there is none.
    ///
    /// Before Linux 5.14 the kernel cannot do that: then it is true, and the memory came with [`Segment::back`], which the
    /// maker of the segment has used for all of it ([`grows`]).
    pub fn populate(&self, at: usize, bytes: usize) -> bool {
        let (start, end) = (at / PAGE_BYTES * PAGE_BYTES, (at + bytes).min(self.bytes));
        if start >= end || !self.owner.is_current() {
            return false;
        }
        // SAFETY: within the mapping, as the bound of `end` says.
        let populated = unsafe {
            let from = self.base.as_ptr().add(start).cast();
            rustix::mm::madvise(from, end - start, Advice::LinuxPopulateWrite)
        };
        matches!(populated, Ok(()) | Err(Errno::INVAL))
    }

    /// False in a forked child, which does not have the mapping.
    #[must_use]
    pub fn is_here(&self) -> bool {
        self.owner.is_current()
    }

    /// A part of it. Offsets in the part begin at 0.
    ///
    /// # Panics
    /// If it is not within the segment, or does not begin with a word.
    #[must_use]
    pub fn part(&self, at: usize, bytes: usize) -> Part<'_> {
        let is_within = at.checked_add(bytes).is_some_and(|end| end <= self.bytes);
        assert!(is_within && at.is_multiple_of(8) && self.owner.is_current(), "not of the segment");
        Part { segment: self, at, bytes }
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        // A forked child has something else there, or nothing.
        if self.owner.is_current() {
            // SAFETY: the mapping of this value, which nobody has a reference to: parts borrow the value.
            let unmapped = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.bytes) };
            debug_assert!(unmapped.is_ok(), "a mapping can be unmapped");
        }
    }
}

/// A part of a segment.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    segment: &'a Segment,
    at: usize,
    bytes: usize,
}

impl<'a> Part<'a> {
    /// A word, for everything that atomic words can do.
    ///
    /// # Panics
    /// If it is not in the part.
    #[must_use]
    pub fn word(&self, at: usize) -> &'a AtomicU64 {
        assert!(at.is_multiple_of(8) && at + 8 <= self.bytes, "a word of the part");
        // SAFETY: an aligned word within the mapping, which stays during the borrow. Every process reaches it as an
        // atomic word, or spoils nothing but its value.
        unsafe { AtomicU64::from_ptr(self.segment.base.as_ptr().add(self.at + at).cast()) }
    }

    /// The address of bytes of the part.
    fn bytes_at(&self, at: usize, bytes: usize) -> *mut u8 {
        let is_within = at.checked_add(bytes).is_some_and(|end| end <= self.bytes);
        assert!(is_within, "bytes of the part");
        // SAFETY: within the mapping.
        unsafe { self.segment.base.as_ptr().add(self.at + at) }
    }
}

impl Memory for Part<'_> {
    #[inline]
    fn load(&self, at: usize) -> u64 {
        let value = self.word(at).load(Ordering::Acquire);
        #[cfg(erd_tsan)]
        stand_in::load(self, at);
        value
    }

    #[inline]
    fn store(&self, at: usize, value: u64) {
        #[cfg(erd_tsan)]
        stand_in::store(self, at);
        self.word(at).store(value, Ordering::Release);
    }

    #[inline]
    fn fence(&self) {
        fence(Ordering::SeqCst);
    }

    #[inline]
    fn write(&self, at: usize, bytes: &[u8]) {
        let to = self.bytes_at(at, bytes.len());
        // SAFETY: within the mapping. The other process reads here once the header says so; one that reads or writes
        // earlier spoils what it gets.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
    }

    #[inline]
    fn read(&self, at: usize, bytes: &mut [u8]) {
        let from = self.bytes_at(at, bytes.len());
        // SAFETY: within the mapping. The other process is not to write here before this one has said that it has read.
        // If it does, `bytes` is anything, of which nothing is believed that was not checked in `bytes`.
        unsafe { std::ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), bytes.len()) };
        // What is checked is what was copied: the compiler may not read it a second time.
        std::sync::atomic::compiler_fence(Ordering::Acquire);
    }
}

/// ThreadSanitizer takes two mappings of a file in one process for different memory, so it would report what a thread
/// does before its store to a word, and another one after its load of the same word at the other mapping. For it alone,
/// a word of the process's own memory stands for both.
#[cfg(erd_tsan)]
mod stand_in {
    use super::{AtomicU64, Ordering, Part};

    const WORDS: usize = 4096;
    static STAND_INS: [AtomicU64; WORDS] = [const { AtomicU64::new(0) }; WORDS];

    fn word(part: &Part<'_>, at: usize) -> &'static AtomicU64 {
        let word = (part.at + at) as u64 / 8;
        let place = part.segment.inode.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(word);
        &STAND_INS[place as usize % WORDS]
    }

    pub fn store(part: &Part<'_>, at: usize) {
        word(part, at).fetch_add(1, Ordering::Release);
    }

    pub fn load(part: &Part<'_>, at: usize) {
        word(part, at).load(Ordering::Acquire);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: usize = 4 * PAGE_BYTES;

    #[test]
    #[cfg_attr(miri, ignore = "it makes system calls that Miri does not know")]
    fn two_mappings_of_one_file_are_the_same_memory() {
        let (one, file) = Segment::create(BYTES).expect("a memfd");
        Segment::back(&file, 0, PAGE_BYTES).expect("memory");
        let other = Segment::open(&file, BYTES).expect("a mapping");
        drop(file);
        one.part(64, 64).store(8, 77);
        assert_eq!(other.part(0, PAGE_BYTES).load(72), 77);
        other.part(0, PAGE_BYTES).write(101, b"abc");
        let mut bytes = [0; 3];
        one.part(96, 32).read(5, &mut bytes);
        assert_eq!(&bytes, b"abc");
        assert!(one.populate(PAGE_BYTES, 2 * PAGE_BYTES));
        assert!(!one.populate(BYTES, 1), "it ends there");
    }

    #[test]
    #[cfg_attr(miri, ignore = "it makes system calls that Miri does not know")]
    fn a_file_that_could_get_shorter_is_not_mapped() {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create("test", flags).expect("a memfd");
        rustix::fs::ftruncate(&file, BYTES as u64).expect("a size");
        assert!(Segment::open(&file, BYTES).is_err());
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK).expect("a seal");
        assert!(Segment::open(&file, BYTES + PAGE_BYTES).is_err(), "another size");
        assert!(Segment::open(&file, BYTES).is_ok());
        let (_, sealed) = Segment::create(BYTES).expect("a memfd");
        assert!(rustix::fs::ftruncate(&sealed, 0).is_err());
    }

    #[test]
    #[cfg_attr(miri, ignore = "it makes system calls that Miri does not know")]
    fn parts_lie_within() {
        let (segment, _file) = Segment::create(BYTES).expect("a memfd");
        let is_within = |at, bytes| {
            let part = || segment.part(at, bytes).bytes;
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(part)).ok() == Some(bytes)
        };
        assert!(is_within(0, BYTES) && is_within(BYTES - 8, 8));
        for (at, bytes) in [(BYTES - 8, 16), (BYTES, 8), (4, 8), (usize::MAX - 7, 8)] {
            assert!(!is_within(at, bytes), "{bytes} bytes at {at}");
        }
    }
}
