//! A receive as applications ask for it, of an endpoint or of a shared context.

use super::ops::Buffers;
use erd_ffi::fi::{FI_MSG, FI_RECV, FI_TAGGED, fi_addr_t};
use erd_rd::matching::TagMask;
use std::ffi::c_void;

/// A receive as the application posts it.
#[derive(Clone, Copy)]
pub(crate) struct RecvRequest {
    pub buffers: Buffers,
    pub context: *mut c_void,
    pub source: fi_addr_t,
    /// `None` for `fi_recv` and its like.
    pub tag: Option<TagMask>,
    pub flags: u64,
}

impl RecvRequest {
    /// An untagged receive; the buffers are to be filled in.
    pub(crate) fn new(source: fi_addr_t, context: *mut c_void, flags: u64) -> RecvRequest {
        RecvRequest { buffers: Buffers::default(), context, source, tag: None, flags }
    }

    pub(super) fn completion_flags(&self) -> u64 {
        FI_RECV | if self.tag.is_some() { FI_TAGGED } else { FI_MSG }
    }
}
