//! A datagram's payload, appended after its header region.

use super::proofs::Proofs;
use super::{Core, Op};
use crate::host::Host;
use crate::keys::TRAILER_BYTES;
use crate::transmit::{Part, TxBurst};
use crate::wire::header::seal;

/// The engine copies payloads up to this length into the header buffer, instead of having them gathered.
const INLINE_BYTES: u32 = 512;

/// Appends a datagram's payload after its sealed header region.
pub(super) struct Payload {
    start: usize,
    region: usize,
    /// Start of inline bytes not yet noted as a part.
    pending: usize,
    pub(super) bytes: u32,
    /// Running checksum, when the session protects payloads.
    crc: Option<u32>,
    /// A key proves the datagram: its bytes stand together, and no longer change.
    proven: bool,
}

impl Payload {
    pub(super) fn new(start: usize, region: usize, protected: bool) -> Payload {
        Payload {
            start,
            region,
            pending: start,
            bytes: 0,
            crc: protected.then_some(0),
            proven: false,
        }
    }

    /// The same, proven by a key.
    pub(super) fn proven(self, proven: bool) -> Payload {
        Payload { proven, ..self }
    }

    pub(super) fn add<H: Host>(
        &mut self,
        host: &mut H,
        burst: &mut TxBurst,
        op: &Op,
        offset_bytes: u64,
        len_bytes: u32,
    ) {
        if len_bytes == 0 {
            return;
        }
        self.bytes += len_bytes;
        if let Some(crc) = &mut self.crc {
            *crc = host.checksum(op.token, offset_bytes, len_bytes, *crc);
        }
        if len_bytes <= INLINE_BYTES || self.proven {
            host.append(op.token, offset_bytes, len_bytes, &mut burst.bytes);
            return;
        }
        burst.push_inline(self.pending);
        self.pending = burst.bytes.len();
        burst.parts.push(Part::Payload { op: op.token, offset_bytes, len_bytes });
    }

    /// Adds zeros in place of memory that is gone: the packet tells the peer not to use them.
    pub(super) fn add_zeros(&mut self, core: &Core, burst: &mut TxBurst, len_bytes: u16) {
        self.bytes += u32::from(len_bytes);
        let at = burst.bytes.len();
        burst.bytes.resize(at + usize::from(len_bytes), 0);
        if let Some(crc) = &mut self.crc {
            *crc = (core.cfg.crc32c)(*crc, &burst.bytes[at..]);
        }
    }

    /// Seals the header and ends the datagram; returns its bytes.
    pub(super) fn finish(
        self,
        core: &Core,
        burst: &mut TxBurst,
        proofs: Option<&mut Proofs>,
    ) -> u32 {
        let mut total = self.region as u32 + self.bytes;
        if let Some(crc) = self.crc {
            burst.bytes.extend_from_slice(&crc.to_be_bytes());
            total += 4;
        }
        match proofs {
            Some(proofs) => {
                proofs.seal(&core.cfg.keys, &mut burst.bytes, self.start);
                total += TRAILER_BYTES as u32;
            }
            None if core.is_keyed() => unreachable!("a session has keys while it may be used"),
            None => seal(&mut burst.bytes[..self.start + self.region], self.start, core.cfg.crc32c),
        }
        burst.push_inline(self.pending);
        burst.end_datagram(total);
        total
    }
}
