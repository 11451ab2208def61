//! Writing of control packets.

use super::shared::Core;
use crate::transmit::TxBurst;
use crate::wire::header::{HEADER_BYTES, Header, seal};
use alloc::vec::Vec;

/// Writes one control datagram: header, body, checksum over both.
pub(crate) fn emit_control(
    core: &mut Core,
    burst: &mut TxBurst,
    mut header: Header,
    body: impl FnOnce(&mut Vec<u8>),
) {
    burst.kind = header.kind;
    let start = burst.bytes.len();
    header.emit(&mut burst.bytes);
    body(&mut burst.bytes);
    let len = burst.bytes.len() - start;
    header.s_len = (len - HEADER_BYTES) as u16;
    burst.bytes[start + 4..start + 6].copy_from_slice(&header.s_len.to_be_bytes());
    seal(&mut burst.bytes, start, core.cfg.crc32c);
    burst.push_inline(start);
    burst.end_datagram(len as u32);
    core.stats.tx_control += 1;
}
