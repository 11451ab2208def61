//! An arriving datagram, and its properties at the port.

use crate::keys::KeyRef;
use crate::units::{Ecn, Nanos};
use crate::wire::header::Header;
use core::net::SocketAddr;

/// The properties of a received datagram, from the port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RxMeta {
    /// Congestion mark.
    pub ecn: Ecn,
    /// True if a switch cut the payload off. Only the simulator's do.
    pub trimmed: bool,
    /// Time since the kernel or the NIC received it.
    pub hold_ns: Nanos,
    /// Its source address. The session identifies a peer, never this. A stranger's IP address tells whether the name
    /// that it gives may be its own.
    pub from: SocketAddr,
}

/// A packet with its header read, and its proof taken off if it has one.
#[derive(Clone, Copy)]
pub(crate) struct Packet<'a> {
    pub header: Header,
    /// The key that proved it outside a session.
    pub key: KeyRef,
    pub datagram: Datagram<'a>,
}

impl<'a> Packet<'a> {
    /// A packet in one piece, without a key, or of a session.
    pub(crate) fn whole(header: &Header, bytes: &'a [u8]) -> Packet<'a> {
        let (key, datagram) = (KeyRef::default(), Datagram::Whole(bytes));
        Packet { header: *header, key, datagram }
    }
}

/// A datagram as the driver hands it in.
#[derive(Clone, Copy)]
pub(crate) enum Datagram<'a> {
    Whole(&'a [u8]),
    /// A common header, and a segment's payload apart from it.
    Apart(&'a [u8], &'a [u8]),
}

impl<'a> Datagram<'a> {
    /// Its common header, and the bytes that follow it in the same slice.
    pub(crate) fn start(self) -> &'a [u8] {
        match self {
            Datagram::Whole(bytes) | Datagram::Apart(bytes, _) => bytes,
        }
    }

    /// Its length in bytes.
    pub(crate) fn len_bytes(self) -> u32 {
        match self {
            Datagram::Whole(bytes) => bytes.len() as u32,
            Datagram::Apart(head, payload) => (head.len() + payload.len()) as u32,
        }
    }
}
