//! Session set-up and end: hello, challenge, welcome, probe, reset, goodbye (protocol.md §3).

use super::ack::AckState;
use super::header::{HEADER_BYTES, PacketKind, checksum_ok, names_kind, version};
use super::window::Window;
use super::{Malformed, NAME_BYTES, Reader, put_name};
use crate::cc::AckPolicy;
use crate::keys::KeyId;
use alloc::vec::Vec;
use core::net::SocketAddr;

/// Control packets may travel over the TCP information path.
pub const FEATURE_INFO_PATH: u32 = 0x01;
/// The writer wants payload checksums; either side's wish binds both.
pub const FEATURE_PAYLOAD_CRC: u32 = 0x02;
/// The writer takes requests to its memory and answers them (protocol.md §9).
pub const FEATURE_REMOTE: u32 = 0x04;
/// The writer has a key and wants payload hidden; either side's wish binds both (protocol.md §11.4).
pub const FEATURE_HIDE: u32 = 0x10;

/// The writer can reach the reader by a lane, and uses it if the reader can (protocol.md §12).
pub const FEATURE_LANE: u32 = 0x20;

/// Random bytes of a greeting that a key proves.
pub type Question = [u8; 16];

/// Body of a hello and of a welcome.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Greeting {
    /// `FEATURE_*` bits offered.
    pub features: u32,
    /// The session id by which the writer wants to be addressed.
    pub session: u64,
    /// The writer's id in its probes and goodbyes, which may reach a stranger.
    pub asker: u64,
    /// The writer's epoch: grows with every process at this name.
    pub epoch: u64,
    /// Counts the writer's sessions with this peer within its epoch.
    pub incarnation: u32,
    /// First PSN of the writer's flow.
    pub first_psn: u32,
    /// First send order of the writer's messages.
    pub first_order: u32,
    /// Largest datagram the writer receives on this path, in bytes.
    pub datagram_bytes: u16,
    /// Paths the writer sprays over.
    pub paths: u16,
    /// The acknowledgement policy that the writer's controller needs from the receiver.
    pub ack_policy: AckPolicy,
    /// What may be sent towards the writer.
    pub window: Window,
    /// Eager bytes that the writer takes unmatched.
    pub eager_credit_bytes: u32,
    /// Messages that the writer takes unmatched.
    pub order_window: u32,
    /// Packets the writer's receive bitmap spans.
    pub psn_window: u32,
    /// The cookie of a challenge, 0 without one.
    pub cookie: u64,
    /// The reader's session id that an earlier session of the writer used last, 0 for none.
    pub gave_up: u64,
    /// Send time of the packet that this one answers.
    pub echo_sent_at_ns: u32,
    /// With a key: random bytes of the writer's session id.
    pub random: Option<Question>,
    /// The writer's name.
    pub name: SocketAddr,
}

impl Greeting {
    /// Appends the body.
    pub fn emit(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.features.to_be_bytes());
        out.extend_from_slice(&self.session.to_be_bytes());
        out.extend_from_slice(&self.asker.to_be_bytes());
        out.extend_from_slice(&self.epoch.to_be_bytes());
        for v in [self.incarnation, self.first_psn, self.first_order] {
            out.extend_from_slice(&v.to_be_bytes());
        }
        out.extend_from_slice(&self.datagram_bytes.to_be_bytes());
        out.extend_from_slice(&self.paths.to_be_bytes());
        out.extend_from_slice(&self.ack_policy.to_wire());
        for v in [
            self.window.bits(),
            self.eager_credit_bytes,
            self.order_window,
            self.psn_window,
            self.echo_sent_at_ns,
        ] {
            out.extend_from_slice(&v.to_be_bytes());
        }
        out.extend_from_slice(&self.cookie.to_be_bytes());
        out.extend_from_slice(&self.gave_up.to_be_bytes());
        out.extend(self.random.into_iter().flatten());
        put_name(out, self.name);
    }

    /// Reads the body; a `keyed` one has random bytes.
    ///
    /// # Errors
    /// [`Malformed`] when short or with an unknown value.
    pub fn parse(r: &mut Reader<'_>, keyed: bool) -> Result<Greeting, Malformed> {
        let features = r.u32()?;
        let (session, asker, epoch) = (r.u64()?, r.u64()?, r.u64()?);
        let (incarnation, first_psn, first_order) = (r.u32()?, r.u32()?, r.u32()?);
        let (datagram_bytes, paths) = (r.u16()?, r.u16()?);
        let ack_policy = AckPolicy::from_wire([r.u8()?, r.u8()?]).ok_or(Malformed)?;
        let (window, eager_credit_bytes) = (Window::from_bits(r.u32()?), r.u32()?);
        let (order_window, psn_window, echo_sent_at_ns) = (r.u32()?, r.u32()?, r.u32()?);
        let (cookie, gave_up) = (r.u64()?, r.u64()?);
        let random = if keyed { Some(r.array()?) } else { None };
        Ok(Greeting {
            features,
            session,
            asker,
            epoch,
            incarnation,
            first_psn,
            first_order,
            datagram_bytes,
            paths,
            ack_policy,
            window,
            eager_credit_bytes,
            order_window,
            psn_window,
            cookie,
            gave_up,
            echo_sent_at_ns,
            random,
            name: r.name()?,
        })
    }
}

/// Body of a probe and head of a goodbye: the sender, so that a receiver without the session can answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Asker {
    /// The writer's [`Greeting::asker`]. It is no session id: nothing can be sent to it.
    pub id: u64,
    /// The writer's name.
    pub name: SocketAddr,
    /// With a key: its id.
    pub key: Option<KeyId>,
}

impl Asker {
    /// Appends the body.
    pub fn emit(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.id.to_be_bytes());
        put_name(out, self.name);
        out.extend(self.key.into_iter().flatten());
    }

    /// Reads the body; a `keyed` one has the id of a key.
    ///
    /// # Errors
    /// [`Malformed`] when short.
    pub fn parse(r: &mut Reader<'_>, keyed: bool) -> Result<Asker, Malformed> {
        let (id, name) = (r.u64()?, r.name()?);
        let key = if keyed { Some(r.array()?) } else { None };
        Ok(Asker { id, name, key })
    }
}

/// Body of a goodbye.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Goodbye {
    /// The writer.
    pub asker: Asker,
    /// Its final acknowledgement state.
    pub ack: AckState,
}

impl Goodbye {
    /// Appends the body.
    pub fn emit(&self, out: &mut Vec<u8>) {
        self.asker.emit(out);
        self.ack.emit(out);
    }

    /// Reads the body; see [`Asker::parse`].
    ///
    /// # Errors
    /// [`Malformed`] when short.
    pub fn parse(r: &mut Reader<'_>, keyed: bool) -> Result<Goodbye, Malformed> {
        Ok(Goodbye { asker: Asker::parse(r, keyed)?, ack: AckState::parse(r)? })
    }
}

/// Body of the refusal of another version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VersionNotice {
    /// The version of the writer.
    pub spoken: u8,
    /// The version of the hello that it refuses.
    pub refused: u8,
}

impl VersionNotice {
    /// Appends the body.
    pub fn emit(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&[self.spoken, self.refused, 0, 0, 0, 0, 0, 0]);
    }

    /// Reads the body.
    ///
    /// # Errors
    /// [`Malformed`] when short.
    pub fn parse(r: &mut Reader<'_>) -> Result<VersionNotice, Malformed> {
        let notice = VersionNotice { spoken: r.u8()?, refused: r.u8()? };
        r.take(6)?;
        Ok(notice)
    }
}

/// Part of a hello that is the same in every version (protocol.md §3.4).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ForeignHello {
    /// Its version.
    pub version: u8,
    /// The session id by which the writer wants to be addressed.
    pub session: u64,
    /// The writer's name.
    pub name: SocketAddr,
}

impl ForeignHello {
    /// Offset of the session id of a greeting, after its features.
    const SESSION_AT: usize = HEADER_BYTES + 4;

    /// Reads a hello of whatever version; `None` for any other datagram.
    #[must_use]
    pub fn parse(bytes: &[u8], crc: fn(u32, &[u8]) -> u32) -> Option<ForeignHello> {
        let first = *bytes.first()?;
        let body_bytes = bytes.len().checked_sub(HEADER_BYTES)?;
        let told = usize::from(u16::from_be_bytes([bytes[4], bytes[5]]));
        if !names_kind(first, PacketKind::Hello) || told != body_bytes {
            return None;
        }
        let mut r = Reader::new(bytes.get(Self::SESSION_AT..)?);
        let session = r.u64().ok()?;
        let name = Reader::new(r.rest().get(r.rest().len().checked_sub(NAME_BYTES)?..)?).name();
        checksum_ok(bytes, crc).then_some(ForeignHello {
            version: version(first),
            session,
            name: name.ok()?,
        })
    }
}
