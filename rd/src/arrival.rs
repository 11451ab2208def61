//! A datagram that came in, and what the port knows of it.

use crate::units::{Ecn, Nanos};
use core::net::SocketAddr;

/// What the port knows of a received datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RxMeta {
    /// Congestion mark.
    pub ecn: Ecn,
    /// A switch cut the payload off. Only the simulator's do.
    pub trimmed: bool,
    /// How long ago the kernel or the NIC received it.
    pub hold_ns: Nanos,
    /// Its source: a peer is known by its session, never by this. A stranger's IP address says whether the
    /// name that it gives may be its own.
    pub from: SocketAddr,
}

/// A datagram as it is handed in.
#[derive(Clone, Copy)]
pub(crate) enum Datagram<'a> {
    Whole(&'a [u8]),
    /// A common header, and a segment's payload that lies elsewhere.
    Apart(&'a [u8], &'a [u8]),
}

impl<'a> Datagram<'a> {
    /// Its common header, and what follows it if that is in one piece.
    pub(crate) fn start(self) -> &'a [u8] {
        match self {
            Datagram::Whole(bytes) | Datagram::Apart(bytes, _) => bytes,
        }
    }

    /// Its length.
    pub(crate) fn len_bytes(self) -> u32 {
        match self {
            Datagram::Whole(bytes) => bytes.len() as u32,
            Datagram::Apart(head, payload) => (head.len() + payload.len()) as u32,
        }
    }
}
