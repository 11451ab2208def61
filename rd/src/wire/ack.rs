//! Acknowledgements: cumulative state, SACK bitmap, NACK ranges, per-packet echoes
//! (protocol.md §6).

use super::window::Window;
use super::{Malformed, Reader};
use alloc::vec::Vec;

/// Bytes of [`AckState`] on the wire.
pub const ACK_BYTES: usize = 44;
/// The echo fields hold a sample.
pub const ACK_ECHO: u8 = 0x01;
/// Answers a probe: every packet sent before the probe and not shown as received is lost.
pub const ACK_PROBE_ANSWER: u8 = 0x02;
/// Bytes before the first section's content: the bitmap's base and the counts.
pub const SECTIONS_HEAD_BYTES: usize = 12;
/// Most 64-bit words of SACK bitmap in one packet.
pub const SACK_WORDS_MAX: usize = 64;
/// Most NACK ranges in one packet.
pub const NACK_RANGES_MAX: usize = 64;
/// Most per-packet echoes in one packet.
pub const ECHOES_MAX: usize = 48;

/// State in every acknowledgement. All of it is absolute, so a newer one replaces older ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AckState {
    /// The lowest PSN not received.
    pub cum_psn: u32,
    /// One past the highest PSN received or named by a probe.
    pub high_psn: u32,
    /// The latest send time seen in any packet of the sender.
    pub latest_sent_at_ns: u32,
    /// Send time of the packet whose round trip this measures.
    pub echo_sent_at_ns: u32,
    /// How long that packet waited at the receiver, in nanoseconds, saturating.
    pub hold_ns: u32,
    /// Path of that packet.
    pub echo_path: u8,
    /// `ACK_*` flags.
    pub flags: u8,
    /// Duplicates caused by needless retransmission, counted, wrapping.
    pub spurious: u16,
    /// Bytes received with a congestion mark, counted, wrapping.
    pub ce_bytes: u32,
    /// Bytes received, counted, wrapping.
    pub recv_bytes: u32,
    /// Eager bytes the sender may have sent since the session began, wrapping.
    pub eager_limit_bytes: u32,
    /// First send order that may not be sent.
    pub order_limit: u32,
    /// What may be sent towards this receiver.
    pub window: Window,
}

impl AckState {
    /// Appends the state.
    pub fn emit(&self, out: &mut Vec<u8>) {
        for v in [self.cum_psn, self.high_psn, self.latest_sent_at_ns, self.echo_sent_at_ns] {
            out.extend_from_slice(&v.to_be_bytes());
        }
        out.extend_from_slice(&self.hold_ns.to_be_bytes());
        out.extend_from_slice(&[self.echo_path, self.flags]);
        out.extend_from_slice(&self.spurious.to_be_bytes());
        for v in [
            self.ce_bytes,
            self.recv_bytes,
            self.eager_limit_bytes,
            self.order_limit,
            self.window.bits(),
        ] {
            out.extend_from_slice(&v.to_be_bytes());
        }
    }

    /// Reads the state.
    ///
    /// # Errors
    /// [`Malformed`] when short.
    pub fn parse(r: &mut Reader<'_>) -> Result<AckState, Malformed> {
        Ok(AckState {
            cum_psn: r.u32()?,
            high_psn: r.u32()?,
            latest_sent_at_ns: r.u32()?,
            echo_sent_at_ns: r.u32()?,
            hold_ns: r.u32()?,
            echo_path: r.u8()?,
            flags: r.u8()?,
            spurious: r.u16()?,
            ce_bytes: r.u32()?,
            recv_bytes: r.u32()?,
            eager_limit_bytes: r.u32()?,
            order_limit: r.u32()?,
            window: Window::from_bits(r.u32()?),
        })
    }
}

/// A run of received packets of one burst, for controllers that want a record of every packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Echo {
    /// The first of them.
    pub psn: u32,
    /// Their send time.
    pub sent_at_ns: u32,
    /// How long the first waited here before this acknowledgement was written, in nanoseconds.
    pub hold_ns: u32,
    /// The path they took.
    pub path: u8,
    /// Number of packets, at least 1.
    pub count: u8,
    /// Number of them that carried a congestion mark.
    pub ce: u8,
}

/// A run of missing packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NackRange {
    /// First missing PSN.
    pub first_psn: u32,
    /// Number of packets, at least 1.
    pub count: u16,
    /// The attempt of the transmission, if a switch cut their payload off.
    pub trimmed: Option<u8>,
}

/// The sections that follow the state in an acknowledgement packet.
#[derive(Clone, Copy, Debug)]
pub struct Sections<'a> {
    /// PSN of the bitmap's first bit.
    pub sack_base_psn: u32,
    sack: &'a [u8],
    nacks: &'a [u8],
    echoes: &'a [u8],
}

impl<'a> Sections<'a> {
    /// Reads the sections.
    ///
    /// # Errors
    /// [`Malformed`] when short or over a limit.
    pub fn parse(r: &mut Reader<'a>) -> Result<Sections<'a>, Malformed> {
        let sack_base_psn = r.u32()?;
        let (words, ranges) = (r.u16()? as usize, r.u16()? as usize);
        let echoes = r.u16()? as usize;
        r.u16()?;
        if words > SACK_WORDS_MAX || ranges > NACK_RANGES_MAX || echoes > ECHOES_MAX {
            return Err(Malformed);
        }
        Ok(Sections {
            sack_base_psn,
            sack: r.take(words * 8)?,
            nacks: r.take(ranges * 8)?,
            echoes: r.take(echoes * 16)?,
        })
    }

    /// Bitmap words; bit `i` of word `w` stands for PSN `sack_base_psn + 64 w + i`.
    pub fn sack_words(&self) -> impl Iterator<Item = u64> + 'a {
        self.sack().iter().map(|word| u64::from_be_bytes(*word))
    }

    /// The same as bytes, the highest first.
    pub fn sack(&self) -> &'a [[u8; 8]] {
        self.sack.as_chunks().0
    }

    /// Missing runs.
    pub fn nacks(&self) -> impl Iterator<Item = NackRange> + 'a {
        let (ranges, _) = self.nacks.as_chunks::<8>();
        ranges.iter().map(|b| NackRange {
            first_psn: u32::from_be_bytes([b[0], b[1], b[2], b[3]]),
            count: u16::from_be_bytes([b[4], b[5]]),
            trimmed: (b[6] != 0).then_some(b[7]),
        })
    }

    /// Per-packet records.
    pub fn echoes(&self) -> impl Iterator<Item = Echo> + 'a {
        let (echoes, _) = self.echoes.as_chunks::<16>();
        echoes.iter().map(|b| Echo {
            psn: u32::from_be_bytes([b[0], b[1], b[2], b[3]]),
            sent_at_ns: u32::from_be_bytes([b[4], b[5], b[6], b[7]]),
            hold_ns: u32::from_be_bytes([b[8], b[9], b[10], b[11]]),
            path: b[12],
            count: b[13].max(1),
            ce: b[14].min(b[13].max(1)),
        })
    }
}

/// Appends the sections.
pub fn emit_sections(
    out: &mut Vec<u8>,
    sack_base_psn: u32,
    sack: impl IntoIterator<Item = u64, IntoIter: ExactSizeIterator>,
    nacks: &[NackRange],
    echoes: &[Echo],
) {
    let sack = sack.into_iter();
    out.extend_from_slice(&sack_base_psn.to_be_bytes());
    for n in [sack.len(), nacks.len(), echoes.len(), 0] {
        out.extend_from_slice(&(n as u16).to_be_bytes());
    }
    let start = out.len();
    out.resize(start + 8 * sack.len(), 0);
    let (words, _) = out[start..].as_chunks_mut::<8>();
    for (to, word) in words.iter_mut().zip(sack) {
        *to = word.to_be_bytes();
    }
    for n in nacks {
        out.extend_from_slice(&n.first_psn.to_be_bytes());
        out.extend_from_slice(&n.count.to_be_bytes());
        out.extend_from_slice(&[u8::from(n.trimmed.is_some()), n.trimmed.unwrap_or(0)]);
    }
    for e in echoes {
        out.extend_from_slice(&e.psn.to_be_bytes());
        out.extend_from_slice(&e.sent_at_ns.to_be_bytes());
        out.extend_from_slice(&e.hold_ns.to_be_bytes());
        out.extend_from_slice(&[e.path, e.count, e.ce, 0]);
    }
}
