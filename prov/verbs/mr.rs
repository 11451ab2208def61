//! Memory regions that peers may reach.

use super::error::Error;
use super::pd::PdInner;
use super::pinned::Pinned;
use bitflags::bitflags;
use erd_core::error::Error as CoreError;
use erd_core::flags::Flags;
use erd_core::keys::{KeyTable, NO_KEY};
use erd_core::region::{Piece, Region};
use erd_core::uses::Use;
use erd_sys::process::Process;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

bitflags! {
    /// The rights of peers to a region (`enum ibv_access_flags`). The program itself needs no right.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct Access: u32 {
        /// Write to it.
        const REMOTE_WRITE = 1 << 1;
        /// Read from it.
        const REMOTE_READ = 1 << 2;
        /// Read and change it atomically: fetch-and-add, compare-and-swap.
        const REMOTE_ATOMIC = 1 << 3;
    }
}

impl Access {
    /// The provider's flags, where atomics need both other rights.
    fn rights(self) -> Flags {
        let of = |flag, rights| if self.contains(flag) { rights } else { Flags::empty() };
        of(Access::REMOTE_WRITE, Flags::REMOTE_WRITE)
            | of(Access::REMOTE_READ, Flags::REMOTE_READ)
            | of(Access::REMOTE_ATOMIC, Flags::REMOTE)
    }
}

/// A place in a peer's memory, from the peer's [`MemoryRegion::remote`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RemoteAddr {
    /// Address in the peer's process.
    pub addr: u64,
    /// Key of its region.
    pub rkey: u64,
}

impl RemoteAddr {
    /// The place this many bytes further.
    #[must_use]
    pub fn offset(self, bytes: u64) -> RemoteAddr {
        RemoteAddr { addr: self.addr.wrapping_add(bytes), ..self }
    }
}

/// Registered memory (`struct ibv_mr`).
///
/// Peers reach it from its registration until it is dropped, which waits for accesses under way.
pub struct MemoryRegion {
    start: NonNull<u8>,
    len_bytes: usize,
    /// The memory is a boxed slice of the region's own.
    owned: bool,
    region: Arc<Region>,
    regions: Arc<KeyTable>,
    pinned: Arc<Pinned>,
    rkey: u64,
    process: Process,
    _pd_use: Use,
}

// SAFETY: the memory is reached through raw pointers, by copies and atomics alone.
unsafe impl Send for MemoryRegion {}
// SAFETY: as above.
unsafe impl Sync for MemoryRegion {}

impl MemoryRegion {
    pub(super) fn owned(
        pd: &Arc<PdInner>,
        memory: Box<[u8]>,
        access: Access,
    ) -> Result<MemoryRegion, Error> {
        let len_bytes = memory.len();
        let start = Box::into_raw(memory).cast::<u8>();
        // SAFETY: the memory is the region's own from here on.
        match unsafe { MemoryRegion::raw(pd, start, len_bytes, access) } {
            Ok(mut region) => {
                region.owned = true;
                Ok(region)
            }
            Err(error) => {
                // SAFETY: as it was made above, and nobody got to know it.
                drop(unsafe {
                    Box::from_raw(std::ptr::slice_from_raw_parts_mut(start, len_bytes))
                });
                Err(error)
            }
        }
    }

    /// # Safety
    /// As [`super::ProtectionDomain::reg_mr_raw`].
    pub(super) unsafe fn raw(
        pd: &Arc<PdInner>,
        start: *mut u8,
        len_bytes: usize,
        access: Access,
    ) -> Result<MemoryRegion, Error> {
        let Some(start) = NonNull::new(start) else {
            return Err(Error::argument("addr", "NULL", "the address of readable memory"));
        };
        let begin = start.as_ptr().expose_provenance();
        if begin.checked_add(len_bytes).is_none() {
            let valid = "what is left of the address space, at most";
            return Err(Error::argument("length", len_bytes, valid));
        }
        let rights = access.rights();
        let pieces = vec![Piece { start: begin, len_bytes }];
        let region = Arc::new(pd.domain.pinned(Region::new(pieces, rights, true)));
        let rkey = if rights.is_empty() {
            NO_KEY
        } else {
            let full = |_| Error::system("register more than 2^20 regions", CoreError::NoMemory);
            pd.regions.insert(Arc::clone(&region), 0).map_err(full)?
        };
        if let Some(id) = region.memory() {
            pd.pinned.add(begin, len_bytes, id);
        }
        Ok(MemoryRegion {
            start,
            len_bytes,
            owned: false,
            region,
            regions: Arc::clone(&pd.regions),
            pinned: Arc::clone(&pd.pinned),
            rkey,
            process: Process::current(),
            _pd_use: pd.users.add(),
        })
    }

    /// The remote address of the region's first byte, for a peer.
    #[must_use]
    pub fn remote(&self) -> RemoteAddr {
        RemoteAddr { addr: self.start.as_ptr().addr() as u64, rkey: self.rkey }
    }

    /// Key for peers; `u64::MAX` if they have no access.
    #[must_use]
    pub fn rkey(&self) -> u64 {
        self.rkey
    }

    /// Its length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len_bytes
    }

    /// True if it has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len_bytes == 0
    }

    /// Its first byte.
    #[must_use]
    pub fn as_mut_ptr(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// Copies bytes out of the region. Each byte that a peer changes at the same time is old or new.
    ///
    /// # Errors
    /// If the bytes do not lie within the region.
    pub fn read_at(&self, offset_bytes: usize, out: &mut [u8]) -> Result<(), Error> {
        let range = self.range(offset_bytes, out.len())?;
        for (at, byte) in range.zip(out) {
            *byte = self.byte(at).load(Ordering::Relaxed);
        }
        Ok(())
    }

    /// Copies bytes into the region. A peer that reads them at the same time finds, byte by byte,
    /// old or new ones.
    ///
    /// # Errors
    /// As [`MemoryRegion::read_at`].
    pub fn write_at(&self, offset_bytes: usize, bytes: &[u8]) -> Result<(), Error> {
        let range = self.range(offset_bytes, bytes.len())?;
        for (at, byte) in range.zip(bytes) {
            self.byte(at).store(*byte, Ordering::Relaxed);
        }
        Ok(())
    }

    /// The 8 bytes at an offset as an atomic number: fetch-and-add and compare-and-swap of peers are in one order with
    /// the program's operations here.
    ///
    /// # Errors
    /// If they do not lie within the region, or their address is not a multiple of 8.
    pub fn atomic_u64(&self, offset_bytes: usize) -> Result<&AtomicU64, Error> {
        self.range(offset_bytes, size_of::<u64>())?;
        // SAFETY: within the region.
        let at = unsafe { self.start.as_ptr().add(offset_bytes) };
        if at.addr() % align_of::<AtomicU64>() != 0 {
            return Err(Error::argument("offset", offset_bytes, "an address that 8 divides"));
        }
        // SAFETY: aligned, within memory that lives as long as `self`, and reached by atomics or
        // by the provider's copies alone.
        Ok(unsafe { AtomicU64::from_ptr(at.cast()) })
    }

    /// Ends the registration, and returns the memory if the region owned it.
    #[must_use]
    pub fn dereg(mut self) -> Option<Box<[u8]>> {
        self.end();
        std::mem::take(&mut self.owned).then(|| {
            let whole = std::ptr::slice_from_raw_parts_mut(self.start.as_ptr(), self.len_bytes);
            // SAFETY: `owned` made it of a box, no peer reaches it any more, and dropping `self`
            // leaves it alone from here on.
            unsafe { Box::from_raw(whole) }
        })
    }

    fn range(&self, offset_bytes: usize, len_bytes: usize) -> Result<Range<usize>, Error> {
        let end = offset_bytes.checked_add(len_bytes).filter(|end| *end <= self.len_bytes);
        let reaches = || {
            let value = format_args!("{offset_bytes}, and the length {len_bytes}").to_string();
            Error::argument("offset", value, format_args!("up to {} in all", self.len_bytes))
        };
        end.map(|end| offset_bytes..end).ok_or_else(reaches)
    }

    fn byte(&self, at: usize) -> &AtomicU8 {
        // SAFETY: the callers have checked the bounds; see `atomic_u64` for the rest.
        unsafe { AtomicU8::from_ptr(self.start.as_ptr().add(at)) }
    }

    /// Ends the registration, and waits for accesses under way; a second time does nothing.
    pub(crate) fn end(&self) {
        // In a forked child nobody reaches it, and a lock may be held for ever.
        if !self.process.is_current() {
            return;
        }
        if self.rkey != NO_KEY {
            self.regions.remove(self.rkey);
        }
        if let Some(id) = self.region.memory() {
            self.pinned.remove(self.start.as_ptr().addr(), id);
        }
        self.region.close();
    }
}

impl Drop for MemoryRegion {
    fn drop(&mut self) {
        self.end();
        if self.owned {
            let whole = std::ptr::slice_from_raw_parts_mut(self.start.as_ptr(), self.len_bytes);
            // SAFETY: as in `dereg`.
            drop(unsafe { Box::from_raw(whole) });
        }
    }
}
