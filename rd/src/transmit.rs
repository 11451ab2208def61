//! Bursts: the datagrams that the engine asks the driver to send.

use crate::host::SendToken;
use crate::units::{Ecn, KeyIndex, PeerAddress};
use crate::wire::header::PacketKind;
use alloc::vec::Vec;
use core::net::SocketAddr;

/// One piece of a datagram, in order of transmission.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// `len_bytes` of [`TxBurst::bytes`] from `start`.
    Inline {
        /// Index of the first byte.
        start: u32,
        /// Number of bytes.
        len_bytes: u32,
    },
    /// Payload that the driver gathers from the user's buffer.
    Payload {
        /// The operation that has the memory.
        op: SendToken,
        /// Offset in the operation's buffer.
        offset_bytes: u64,
        /// Number of bytes.
        len_bytes: u32,
    },
}

/// A run of datagrams to one peer on one path: the unit of spraying. All datagrams but the last
/// have `segment_bytes` bytes, so that a port with segmentation offload sends them in one call.
///
/// The driver owns it and passes it to [`crate::Endpoint::poll_transmit`] again and again, so
/// its buffers are allocated once.
#[derive(Clone, Debug)]
pub struct TxBurst {
    /// Destination: the peer's name.
    pub to: SocketAddr,
    /// The key that the peer and this endpoint use.
    pub key: KeyIndex,
    /// Path (entropy) to use, below the negotiated path count.
    pub path: u16,
    /// ECN codepoint to send with.
    pub ecn: Ecn,
    /// Kind of its packets.
    pub kind: PacketKind,
    /// Bytes of every datagram but the last.
    pub segment_bytes: u32,
    /// Number of datagrams.
    pub datagrams: u32,
    /// Sum of all datagrams.
    pub total_bytes: u32,
    /// True for a control packet that may take ERD's information path, if the driver has one open to this peer.
    pub info_path: bool,
    /// True if it is larger than the path now carries: it may be fragmented.
    pub may_fragment: bool,
    /// Headers and small payloads.
    pub bytes: Vec<u8>,
    /// All parts of all datagrams, in order.
    pub parts: Vec<Part>,
}

impl TxBurst {
    /// An empty burst.
    #[must_use]
    pub fn new() -> TxBurst {
        TxBurst {
            to: SocketAddr::new(core::net::IpAddr::V4(core::net::Ipv4Addr::UNSPECIFIED), 0),
            key: KeyIndex::default(),
            path: 0,
            ecn: Ecn::NotEct,
            kind: PacketKind::Data,
            segment_bytes: 0,
            datagrams: 0,
            total_bytes: 0,
            info_path: false,
            may_fragment: false,
            bytes: Vec::new(),
            parts: Vec::new(),
        }
    }

    /// Empties it, keeping its buffers.
    pub fn clear(&mut self) {
        self.segment_bytes = 0;
        self.datagrams = 0;
        self.total_bytes = 0;
        self.path = 0;
        self.ecn = Ecn::NotEct;
        self.kind = PacketKind::Data;
        self.info_path = false;
        self.may_fragment = false;
        self.bytes.clear();
        self.parts.clear();
    }

    /// The peer that it is for.
    #[must_use]
    pub fn peer(&self) -> PeerAddress {
        PeerAddress { name: self.to, key: self.key }
    }

    /// Notes that inline bytes from `start` to the end of `bytes` belong to the datagram.
    pub(crate) fn push_inline(&mut self, start: usize) {
        let len_bytes = (self.bytes.len() - start) as u32;
        if len_bytes == 0 {
            return;
        }
        if let Some(Part::Inline { start: s, len_bytes: l }) = self.parts.last_mut()
            && *s + *l == start as u32
        {
            *l += len_bytes;
            return;
        }
        self.parts.push(Part::Inline { start: start as u32, len_bytes });
    }

    /// Counts one finished datagram of `len_bytes`.
    pub(crate) fn end_datagram(&mut self, len_bytes: u32) {
        if self.datagrams == 0 {
            self.segment_bytes = len_bytes;
        }
        debug_assert!(len_bytes <= self.segment_bytes);
        self.datagrams += 1;
        self.total_bytes += len_bytes;
    }
}

impl Default for TxBurst {
    fn default() -> Self {
        Self::new()
    }
}
