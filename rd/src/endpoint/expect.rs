//! Predictions of the next arrivals, so that a port can receive payload straight into its place.

use super::Endpoint;
use crate::host::RecvToken;
use crate::wire::header::{
    FLAG_EAGER, FLAG_PAYLOAD_CRC, FLAG_SEAL, HEADER_BYTES, Header, PacketKind, SEAL_BYTES,
    seal_holds,
};

/// A segment that comes next if nothing is lost or overtaken, and where its payload belongs.
/// No byte of that place has been received yet, so a port that guessed wrong does no harm by
/// writing there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Expected {
    /// The receive it is for.
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

    /// Whether `head`, the first [`Expected::HEAD_BYTES`] of a datagram, is that of the segment, and
    /// how many bytes follow the payload then.
    #[must_use]
    pub fn tail_bytes(&self, head: &[u8]) -> Option<usize> {
        let h = Header::parse(head).ok()?;
        let is_it = h.kind == PacketKind::Data
            && h.long
            && h.flags & (FLAG_EAGER | FLAG_PAYLOAD_CRC) == 0
            && (h.session, h.msg_id) == (self.session, self.msg_id)
            && (h.s_offset, h.s_len) == (self.s_offset, self.len_bytes);
        is_it.then_some(if h.flags & FLAG_SEAL == 0 { 0 } else { SEAL_BYTES })
    }

    /// Whether a datagram is the segment, and its payload what was sent, by what comes before it and what
    /// follows it.
    #[must_use]
    pub fn is(&self, head: &[u8], tail: &[u8]) -> bool {
        self.tail_bytes(head) == Some(tail.len()) && (tail.is_empty() || seal_holds(tail))
    }
}

impl Endpoint {
    /// Hands the segments that are to be expected next to `f`, in order, until it returns false:
    /// those of the peer whose rendezvous message got one last. It knows nothing of lost packets,
    /// of other peers' and of other kinds; a port should stop asking for a while when many
    /// guesses were wrong.
    pub fn each_expected(&self, mut f: impl FnMut(&Expected) -> bool) {
        let Some(index) = self.core.filling else { return };
        let Some(peer) = self.peers.get(index as usize) else { return };
        // A checksum ends the datagram then.
        if !peer.session.is_open() || peer.payload_checksum {
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
