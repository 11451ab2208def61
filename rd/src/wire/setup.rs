//! Session set-up and end: hello, challenge, welcome, probe, reset, goodbye (protocol.md §3).

use super::ack::AckState;
use super::{Malformed, Reader, put_name};
use crate::cc::AckPolicy;
use alloc::vec::Vec;
use core::net::SocketAddr;

/// Control packets may travel over the TCP information path.
pub const FEATURE_INFO_PATH: u32 = 0x01;
/// The writer wants payload checksums; either side's wish binds both.
pub const FEATURE_PAYLOAD_CRC: u32 = 0x02;
/// The writer takes requests to its memory and answers them (protocol.md §9).
pub const FEATURE_REMOTE: u32 = 0x04;
/// The writer takes sealed segments (protocol.md §2.3).
pub const FEATURE_SEALS: u32 = 0x08;

/// Body of a hello and of a welcome.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Greeting {
    /// `FEATURE_*` bits offered.
    pub features: u32,
    /// The session id by which the writer wants to be addressed.
    pub session: u64,
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
    /// What the writer's controller needs from the receiver.
    pub ack_policy: AckPolicy,
    /// Bytes that may be in flight towards the writer.
    pub window_bytes: u32,
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
    /// The writer's name.
    pub name: SocketAddr,
}

impl Greeting {
    /// Appends the body.
    pub fn emit(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.features.to_be_bytes());
        out.extend_from_slice(&self.session.to_be_bytes());
        out.extend_from_slice(&self.epoch.to_be_bytes());
        for v in [self.incarnation, self.first_psn, self.first_order] {
            out.extend_from_slice(&v.to_be_bytes());
        }
        out.extend_from_slice(&self.datagram_bytes.to_be_bytes());
        out.extend_from_slice(&self.paths.to_be_bytes());
        out.extend_from_slice(&self.ack_policy.to_wire());
        for v in [
            self.window_bytes,
            self.eager_credit_bytes,
            self.order_window,
            self.psn_window,
            self.echo_sent_at_ns,
        ] {
            out.extend_from_slice(&v.to_be_bytes());
        }
        out.extend_from_slice(&self.cookie.to_be_bytes());
        out.extend_from_slice(&self.gave_up.to_be_bytes());
        put_name(out, self.name);
    }

    /// Reads the body.
    ///
    /// # Errors
    /// [`Malformed`] when short or with an unknown value.
    pub fn parse(r: &mut Reader<'_>) -> Result<Greeting, Malformed> {
        let features = r.u32()?;
        let (session, epoch) = (r.u64()?, r.u64()?);
        let (incarnation, first_psn, first_order) = (r.u32()?, r.u32()?, r.u32()?);
        let (datagram_bytes, paths) = (r.u16()?, r.u16()?);
        let ack_policy = AckPolicy::from_wire([r.u8()?, r.u8()?]).ok_or(Malformed)?;
        let (window_bytes, eager_credit_bytes) = (r.u32()?, r.u32()?);
        let (order_window, psn_window, echo_sent_at_ns) = (r.u32()?, r.u32()?, r.u32()?);
        let (cookie, gave_up) = (r.u64()?, r.u64()?);
        Ok(Greeting {
            features,
            session,
            epoch,
            incarnation,
            first_psn,
            first_order,
            datagram_bytes,
            paths,
            ack_policy,
            window_bytes,
            eager_credit_bytes,
            order_window,
            psn_window,
            cookie,
            gave_up,
            echo_sent_at_ns,
            name: r.name()?,
        })
    }
}

/// Body of a probe and the head of a goodbye: who asks, so that a receiver without the session
/// can answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Asker {
    /// The session id by which the writer is addressed.
    pub session: u64,
    /// The writer's name.
    pub name: SocketAddr,
}

impl Asker {
    /// Appends the body.
    pub fn emit(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.session.to_be_bytes());
        put_name(out, self.name);
    }

    /// Reads the body.
    ///
    /// # Errors
    /// [`Malformed`] when short.
    pub fn parse(r: &mut Reader<'_>) -> Result<Asker, Malformed> {
        Ok(Asker { session: r.u64()?, name: r.name()? })
    }
}

/// Body of a goodbye.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Goodbye {
    /// Who leaves.
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

    /// Reads the body.
    ///
    /// # Errors
    /// [`Malformed`] when short.
    pub fn parse(r: &mut Reader<'_>) -> Result<Goodbye, Malformed> {
        Ok(Goodbye { asker: Asker::parse(r)?, ack: AckState::parse(r)? })
    }
}
