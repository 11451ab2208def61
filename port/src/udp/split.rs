//! Splitting a burst into its datagrams, where the kernel does not.

use std::mem::MaybeUninit;

use crate::Burst;

/// A place in a burst's parts.
pub(super) struct Cursor<'a> {
    parts: &'a [libc::iovec],
    /// Bytes of the first part already passed.
    offset: usize,
    segment_bytes: usize,
    left_bytes: usize,
}

impl<'a> Cursor<'a> {
    /// The place after `segments` datagrams.
    pub(super) fn new(burst: &Burst<'a>, segments: u32) -> Self {
        let segment_bytes = burst.segment_bytes as usize;
        let mut skip = segment_bytes * segments as usize;
        let left_bytes = (burst.total_bytes as usize).saturating_sub(skip);
        let mut parts = burst.iov;
        while let Some((first, rest)) = parts.split_first()
            && skip >= first.iov_len
        {
            skip -= first.iov_len;
            parts = rest;
        }
        Self { parts, offset: skip, segment_bytes, left_bytes }
    }

    /// Writes the next datagram's parts to the front of `free`; returns them and the rest of
    /// `free`. `None` at the end of the burst, or when they do not fit.
    pub(super) fn next_datagram<'f>(
        &mut self,
        free: &'f mut [MaybeUninit<libc::iovec>],
    ) -> Option<(&'f [libc::iovec], &'f mut [MaybeUninit<libc::iovec>])> {
        let mut wanted = self.segment_bytes.min(self.left_bytes);
        let (mut parts, mut offset) = (self.parts, self.offset);
        let mut used = 0;
        let bytes = wanted;
        while wanted > 0 {
            let (first, rest) = parts.split_first()?;
            let taken = (first.iov_len - offset).min(wanted);
            let base = first.iov_base.cast::<u8>().wrapping_add(offset).cast();
            free.get_mut(used)?.write(libc::iovec { iov_base: base, iov_len: taken });
            used += 1;
            wanted -= taken;
            offset += taken;
            if offset == first.iov_len {
                (parts, offset) = (rest, 0);
            }
        }
        if used == 0 {
            return None;
        }
        (self.parts, self.offset) = (parts, offset);
        self.left_bytes -= bytes;
        let (written, rest) = free.split_at_mut(used);
        // SAFETY: the first `used` entries were written above, and an iovec needs no drop.
        let written = unsafe { &*(&raw const *written as *const [libc::iovec]) };
        Some((written, rest))
    }
}
