//! Segments that begin with the last bytes of the one before them. Honest senders make none, and no byte of them may
//! count twice.

use erd_rd::wire::ack::ACK_BYTES;
use erd_rd::wire::header::{
    FLAG_ACK, FLAG_EAGER, FLAG_PAYLOAD_CRC, FLAG_VOID, HEADER_BYTES, Header, PacketKind, seal,
};
use erd_rd::wire::record::EAGER_HEADER_BYTES;
use std::collections::BTreeMap;

/// Most bytes that come twice so.
const TAIL_BYTES: usize = 16;

/// The latest segment of each message or link.
#[derive(Debug, Default)]
pub struct Tails {
    latest: BTreeMap<(u64, u16), Segment>,
}

#[derive(Debug)]
struct Segment {
    psn: u32,
    /// Where it ended, and its last bytes.
    end: u32,
    tail: Vec<u8>,
}

impl Tails {
    /// Notes a datagram's end. With `overlap`, a segment that follows the one noted before now begins with that one's
    /// last bytes.
    pub fn pass(&mut self, bytes: &mut Vec<u8>, overlap: bool) {
        let Ok(mut h) = Header::parse(bytes) else { return };
        if h.kind != PacketKind::Data || !h.long || h.flags & FLAG_VOID != 0 {
            return;
        }
        let region = HEADER_BYTES
            + if h.flags & FLAG_EAGER != 0 { EAGER_HEADER_BYTES } else { 0 }
            + if h.flags & FLAG_ACK != 0 { ACK_BYTES } else { 0 };
        let payload = bytes[region..region + usize::from(h.s_len)].to_vec();
        let key = (h.session, h.msg_id);
        let tail = payload[payload.len().saturating_sub(TAIL_BYTES)..].to_vec();
        let latest = Segment { psn: h.psn, end: h.s_offset + u32::from(h.s_len), tail };
        // With a packet between them, the one before may be another message's with the same Msg_ID.
        let follows =
            |before: &Segment| before.psn.wrapping_add(1) == h.psn && before.end == h.s_offset;
        let before = self.latest.insert(key, latest).filter(|before| overlap && follows(before));
        let Some(Segment { tail: again, .. }) = before else { return };
        h.s_offset -= again.len() as u32;
        h.s_len += again.len() as u16;
        bytes[4..6].copy_from_slice(&h.s_len.to_be_bytes());
        bytes[8..12].copy_from_slice(&h.s_offset.to_be_bytes());
        bytes.truncate(region);
        seal(bytes, 0, crc32c::crc32c_append);
        let whole = [again, payload].concat();
        bytes.extend(&whole);
        if h.flags & FLAG_PAYLOAD_CRC != 0 {
            bytes.extend(crc32c::crc32c(&whole).to_be_bytes());
        }
    }
}
