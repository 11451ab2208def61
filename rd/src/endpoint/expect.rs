//! Predictions of the next arrivals, so that a port can receive payload straight into its place.

use super::Endpoint;
use crate::host::RecvToken;
use crate::wire::header::{FLAG_EAGER, FLAG_PAYLOAD_CRC, HEADER_BYTES, Header, PacketKind};

/// A segment that comes next unless packets are lost or reordered, and the place of its payload. No byte of that place
/// has arrived yet, so a port that guessed wrong does no harm by writing there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Expected {
    /// The receive that it belongs to.
    pub to: RecvToken,
    /// Place of the payload in the message, in bytes.
    pub offset_bytes: u64,
    /// Length of the payload in bytes.
    pub len_bytes: u16,
    session: u64,
    msg_id: u16,
    s_offset: u32,
}

impl Expected {
    /// Bytes of a segment before its payload.
    pub const HEAD_BYTES: usize = HEADER_BYTES;

    /// Whether `head`, the first [`Expected::HEAD_BYTES`] of a datagram that ends with its payload, is the segment's.
    #[must_use]
    pub fn is(&self, head: &[u8]) -> bool {
        Header::parse(head).is_ok_and(|h| {
            h.kind == PacketKind::Data
                && h.long
                && h.flags & (FLAG_EAGER | FLAG_PAYLOAD_CRC) == 0
                && (h.session, h.msg_id) == (self.session, self.msg_id)
                && (h.s_offset, h.s_len) == (self.s_offset, self.len_bytes)
        })
    }
}

impl Endpoint {
    /// Hands the next expected segments to `f`, in order, until it returns false: those of the peer whose rendezvous
    /// message got one last. It ignores lost packets, other peers and other kinds; after many wrong guesses a port
    /// should stop asking for a while.
    pub fn each_expected(&self, mut f: impl FnMut(&Expected) -> bool) {
        let Some(index) = self.core.filling else { return };
        let Some(peer) = self.peers.get(index as usize) else { return };
        // With a payload checksum, that ends the datagram; with a key, nothing unproven may lie there.
        // Over a lane nothing is received so, and what a peer's memory was read into would be spoiled.
        let is_apart = peer.has_lane() || peer.payload_checksum || peer.proofs.is_some();
        if !peer.session.is_open() || is_apart {
            return;
        }
        let session = peer.session.our_id();
        peer.rx.each_next_segment(|next| {
            f(&Expected {
                to: next.to,
                offset_bytes: next.offset_bytes,
                len_bytes: next.len_bytes,
                session,
                msg_id: next.msg_id,
                s_offset: next.s_offset,
            })
        });
    }
}
