//! Receive requests of applications, to an endpoint or to a shared context.

use super::ops::Buffers;
use crate::flags::Flags;
use crate::peer_index::PeerIndex;
use erd_rd::matching::TagMask;
use std::ffi::c_void;

/// A receive as the application posts it.
#[derive(Clone, Copy)]
pub struct RecvRequest {
    /// Memory for the message.
    pub buffers: Buffers,
    /// The application's context.
    pub context: *mut c_void,
    /// The peer whose messages it takes, or [`crate::peer_index::ANYONE`].
    pub source: PeerIndex,
    /// `None` for `fi_recv` and its like.
    pub tag: Option<TagMask>,
    /// Flags of the call.
    pub flags: Flags,
}

impl RecvRequest {
    /// An untagged receive; the caller fills in the buffers.
    pub fn new(source: PeerIndex, context: *mut c_void, flags: Flags) -> RecvRequest {
        RecvRequest { buffers: Buffers::default(), context, source, tag: None, flags }
    }

    pub(super) fn completion_flags(&self) -> Flags {
        Flags::RECV | if self.tag.is_some() { Flags::TAGGED } else { Flags::MSG }
    }
}
