//! Writing of data packets: headers, records and payload (protocol.md §4, §5).

use super::bundle::{bundled, msg_header, wire_record};
use super::flight::Content;
use super::op::Role;
use super::payload::Payload;
use super::proofs::Proofs;
use super::record::TxRecord;
use super::shared::Core;
use crate::host::Host;
use crate::transmit::TxBurst;
use crate::wire::ack::AckState;
use crate::wire::header::{
    FLAG_ACK, FLAG_EAGER, FLAG_PAYLOAD_CRC, FLAG_VOID, HEADER_BYTES, Header,
};
use crate::wire::record::{Record, emit_eager_header};

/// How the bytes of a data packet are protected.
pub(super) struct Form<'a> {
    /// The payload has a checksum.
    pub checksum: bool,
    /// With a key: everything is proven.
    pub proofs: Option<&'a mut Proofs>,
}

/// Writes a bundle of these records; returns its bytes.
pub(super) fn emit_bundle<'a, H: Host>(
    core: &mut Core,
    host: &mut H,
    burst: &mut TxBurst,
    mut h: Header,
    records: impl ExactSizeIterator<Item = &'a TxRecord> + Clone,
    ack: Option<AckState>,
    form: Form<'_>,
) -> u32 {
    let start = burst.bytes.len();
    if form.checksum {
        h.flags |= FLAG_PAYLOAD_CRC;
    }
    h.emit(&mut burst.bytes);
    let total = records.len() as u16 + u16::from(ack.is_some());
    burst.bytes.extend_from_slice(&total.to_be_bytes());
    if let Some(ack) = ack {
        Record::Ack(ack).emit(&mut burst.bytes);
    }
    for record in records.clone() {
        wire_record(record, core, h.attempt).emit(&mut burst.bytes);
    }
    let region = burst.bytes.len() - start;
    let mut payload = Payload::new(start, region, form.checksum).proven(form.proofs.is_some());
    for record in records {
        if let Some((op, len_bytes)) = bundled(core, record) {
            payload.add(host, burst, &op, 0, len_bytes);
        }
    }
    let s_len = (region - HEADER_BYTES + payload.bytes as usize) as u16;
    burst.bytes[start + 4..start + 6].copy_from_slice(&s_len.to_be_bytes());
    core.stats.tx_payload_bytes += u64::from(payload.bytes) * u64::from(h.attempt == 0);
    payload.finish(core, burst, form.proofs)
}

/// Writes one segment, with a piggybacked acknowledgement if due; returns its bytes.
pub(super) fn emit_segment<H: Host>(
    core: &mut Core,
    host: &mut H,
    burst: &mut TxBurst,
    mut h: Header,
    content: Content,
    ack: Option<AckState>,
    form: Form<'_>,
) -> u32 {
    let Content::Segment { op: index, msg_id, s_offset, offset_bytes, len, eager } = content else {
        unreachable!("bundles have their own writer");
    };
    let op = core.ops[index as usize];
    h.long = true;
    (h.msg_id, h.s_len, h.s_offset) = (msg_id, len, s_offset);
    let void = matches!(op.role, Role::Answer { withdrawn: true, .. });
    for (flag, is_set) in [
        (FLAG_EAGER, eager),
        (FLAG_PAYLOAD_CRC, form.checksum),
        (FLAG_VOID, void),
        (FLAG_ACK, ack.is_some()),
    ] {
        h.flags |= if is_set { flag } else { 0 };
    }
    let start = burst.bytes.len();
    h.emit(&mut burst.bytes);
    if eager {
        emit_eager_header(&mut burst.bytes, &msg_header(index, &op));
    }
    if let Some(ack) = ack {
        ack.emit(&mut burst.bytes);
    }
    let region = burst.bytes.len() - start;
    let mut payload = Payload::new(start, region, form.checksum).proven(form.proofs.is_some());
    match void {
        true => payload.add_zeros(core, burst, len),
        false => payload.add(host, burst, &op, offset_bytes, u32::from(len)),
    }
    payload.finish(core, burst, form.proofs)
}
