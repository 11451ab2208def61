//! Reading of a burst's datagrams from its parts.

/// Reads bytes from a list of parts, in order.
pub(super) struct Gather<'a> {
    parts: &'a [libc::iovec],
    /// Bytes of the first part already read.
    skip: usize,
}

/// The tail of a datagram, in registered memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tail {
    /// Bytes of the datagram before it.
    pub(super) after_bytes: usize,
    /// Its address.
    pub(super) start: usize,
    /// Its length.
    pub(super) len_bytes: usize,
}

impl<'a> Gather<'a> {
    pub(super) fn new(parts: &'a [libc::iovec], skip: usize) -> Self {
        let mut gather = Self { parts, skip: 0 };
        gather.pass(skip);
        gather
    }

    /// Passes over bytes.
    pub(super) fn pass(&mut self, len_bytes: usize) {
        self.skip += len_bytes;
        while let Some((first, rest)) = self.parts.split_first()
            && self.skip >= first.iov_len
        {
            self.skip -= first.iov_len;
            self.parts = rest;
        }
    }

    /// Copies the next bytes.
    ///
    /// # Safety
    /// `to` has room for them, and the parts are readable.
    pub(super) unsafe fn copy(&mut self, to: *mut u8, len_bytes: usize) {
        let mut done = 0;
        while done < len_bytes {
            let Some(first) = self.parts.first() else {
                panic!("a burst's parts add up to its size");
            };
            let take = (first.iov_len - self.skip).min(len_bytes - done);
            // SAFETY: within the part, and within the room.
            unsafe {
                let from = first.iov_base.cast::<u8>().add(self.skip);
                std::ptr::copy_nonoverlapping(from, to.add(done), take);
            }
            done += take;
            self.pass(take);
        }
    }

    /// The tail of the datagram of the next `len_bytes`, if it is one run of at least `least_bytes` within `memory`,
    /// and something comes before it.
    pub(super) fn tail_in(
        &self,
        len_bytes: usize,
        least_bytes: usize,
        memory: std::ops::Range<usize>,
    ) -> Option<Tail> {
        let (mut after_bytes, mut skip) = (0, self.skip);
        for part in self.parts {
            let start = part.iov_base.addr() + skip;
            let here = (part.iov_len - skip).min(len_bytes - after_bytes);
            if after_bytes + here == len_bytes {
                let fits = start >= memory.start && start + here <= memory.end;
                let tail = Tail { after_bytes, start, len_bytes: here };
                return (fits && after_bytes > 0 && here >= least_bytes).then_some(tail);
            }
            (after_bytes, skip) = (after_bytes + here, 0);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts<const N: usize>(data: [&[u8]; N]) -> [libc::iovec; N] {
        data.map(|part| libc::iovec {
            iov_base: part.as_ptr().cast_mut().cast(),
            iov_len: part.len(),
        })
    }

    #[test]
    fn parts_are_one_run_of_bytes() {
        let parts = parts([&b"abc"[..], b"", b"defg", b"h"]);
        for skip in 0..8 {
            let mut gather = Gather::new(&parts, skip);
            let mut out = [0_u8; 8];
            for byte in &mut out[skip..] {
                // SAFETY: a byte of room, and parts that are static strings.
                unsafe { gather.copy(&raw mut *byte, 1) };
            }
            assert_eq!(&out[skip..], &b"abcdefgh"[skip..]);
        }
    }

    #[test]
    fn a_tail_is_one_run_in_the_memory() {
        let memory = [7_u8; 64];
        let within = memory.as_ptr().addr();
        let range = within..within + 40;
        let parts = parts([&b"head"[..], &memory[8..18], b"HEAD", &memory[30..50]]);
        let mut gather = Gather::new(&parts, 0);
        let tail = |gather: &Gather<'_>, len, least| gather.tail_in(len, least, range.clone());
        let first = Tail { after_bytes: 4, start: within + 8, len_bytes: 6 };
        assert_eq!(tail(&gather, 10, 6), Some(first));
        assert_eq!(tail(&gather, 10, 7), None, "too short");
        assert_eq!(tail(&gather, 16, 1), None, "it ends in a head");
        gather.pass(10);
        assert_eq!(tail(&gather, 4, 1), None, "nothing before it");
        gather.pass(4);
        let second = Tail { after_bytes: 4, start: within + 30, len_bytes: 10 };
        assert_eq!(tail(&gather, 14, 1), Some(second));
        assert_eq!(tail(&gather, 15, 1), None, "it leaves the memory");
        assert_eq!(tail(&gather, 100, 1), None, "there is less");
    }
}
