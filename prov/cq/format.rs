//! Completion entries in libfabric's structures.

use crate::errno;
use erd_core::completion::queue::{Entry, Failure};
use erd_ffi::fi::{
    fi_cq_data_entry, fi_cq_entry, fi_cq_err_entry, fi_cq_msg_entry, fi_cq_tagged_entry,
};

/// Structures that `fi_cq_read` can fill.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// `fi_cq_entry`.
    Context,
    /// `fi_cq_msg_entry`.
    Msg,
    /// `fi_cq_data_entry`.
    Data,
    /// `fi_cq_tagged_entry`.
    Tagged,
}

impl Format {
    /// Bytes of one structure.
    #[must_use]
    pub const fn stride_bytes(self) -> usize {
        match self {
            Format::Context => size_of::<fi_cq_entry>(),
            Format::Msg => size_of::<fi_cq_msg_entry>(),
            Format::Data => size_of::<fi_cq_data_entry>(),
            Format::Tagged => size_of::<fi_cq_tagged_entry>(),
        }
    }

    /// Writes one entry.
    ///
    /// # Safety
    /// `to` is writable for [`Format::stride_bytes`].
    pub(super) unsafe fn write(self, to: *mut u8, entry: &Entry) {
        let tagged = fi_cq_tagged_entry {
            op_context: entry.context,
            flags: entry.flags.bits(),
            len: entry.len_bytes,
            buf: entry.buf,
            data: entry.data,
            tag: entry.tag,
        };
        // SAFETY: every shorter structure is a prefix of the tagged one (`fi_eq.h`; the layout test
        // holds the offsets), and the caller vouches for the room.
        unsafe {
            let from = (&raw const tagged).cast::<u8>();
            std::ptr::copy_nonoverlapping(from, to, self.stride_bytes());
        }
    }
}

/// The error entry of a failed operation, without a text.
pub(crate) fn error(entry: &Entry, failure: &Failure) -> fi_cq_err_entry {
    fi_cq_err_entry {
        op_context: entry.context,
        flags: entry.flags.bits(),
        len: entry.len_bytes,
        buf: entry.buf,
        data: entry.data,
        tag: entry.tag,
        olen: failure.overflow_bytes,
        err: errno::of_cause(failure.cause),
        prov_errno: failure.cause.number(),
        src_addr: entry.source,
        ..fi_cq_err_entry::ZERO
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use erd_core::completion::queue::AccountId;
    use erd_core::flags::Flags;

    #[test]
    fn shorter_formats_are_prefixes() {
        let entry = |tag: u64| Entry {
            context: std::ptr::without_provenance_mut(tag as usize),
            flags: Flags::SEND,
            len_bytes: 2,
            buf: std::ptr::null_mut(),
            data: 3,
            tag,
            source: 9,
            peer: None,
            account: AccountId::default(),
            failure: None,
        };
        let mut out = [fi_cq_msg_entry::ZERO; 3];
        for (place, tag) in [5, 6].into_iter().enumerate() {
            // SAFETY: a place of the array.
            unsafe { Format::Msg.write((&raw mut out[place]).cast(), &entry(tag)) };
        }
        let (last, send) = (&out[1], erd_ffi::fi::FI_SEND);
        assert_eq!((last.op_context as u64, last.flags, last.len), (6, send, 2));
        assert!(out[2].op_context.is_null(), "nothing is written past what was read");
    }
}
