//! The driver's side of the engine's boundary ([`erd_rd::Host`]): operations and their memory.
//!
//! The engine calls in here with the endpoint's lock held, and may not be called back. What has to
//! be answered to it, and what is to be completed, goes into the `Outbox` until the call returns.

use super::complete::Direction;
use super::limits::FEW_SENDS;
use super::operations::{Claimed, Held, Posted, RecvOp, SendOp, Unexpected};
use super::ops::{Handle, Kind, Pool};
use super::peer_rx::PeerRx;
use super::receives::many::{MultiRecv, Part};
use super::room::Room;
use super::served::Served;
use super::settling::Settling;
use super::shared_rx::SharedRx;
use crate::admission::Admitted;
use crate::cause::Cause;
use crate::keys::KeyTable;
use crate::region::Pass;
use crate::run::Memory;
use crate::run::pieces::Pieces;
use crate::settings::INJECT_BYTES;
use erd_port::udp::{self, SHARED_MIN_BYTES};
use erd_rd::match_order::MatchOrder;
use erd_rd::matching::Matcher;
use erd_rd::{
    Arrived, Atomic, EndReason, Expected, Host, MsgRef, OpError, Operand, Part as BurstPart,
    PeerId, RecvToken, Refusal, Remote, SendToken, TxBurst, Verdict,
};
use std::net::{IpAddr, SocketAddr};
use std::ptr::NonNull;
use std::sync::Arc;

/// Receives under way beyond those that the application posted: parts of multi-receive buffers.
pub(super) const PARTS_MAX: u32 = 1 << 16;

/// The room of a longer copy is not kept in the operation's place.
const LONG_COPY_BYTES: usize = 2 * INJECT_BYTES;

/// What waits for the engine's call to return.
#[derive(Default)]
pub(super) struct Outbox {
    /// Messages that were consumed.
    pub releases: Vec<MsgRef>,
    /// Changes in the number of directed receives.
    pub watches: Vec<(PeerId, i32)>,
    /// Sessions that ended by an error.
    pub ended: Vec<(PeerId, OpError)>,
    /// Answers whose memory has gone. The burst being made must not be sent.
    pub gone: Vec<SendToken>,
}

impl Outbox {
    pub(super) fn is_empty(&self) -> bool {
        let Outbox { releases, watches, ended, gone } = self;
        releases.is_empty() && watches.is_empty() && ended.is_empty() && gone.is_empty()
    }
}

/// See the module's text.
pub struct EpHost {
    /// Bounded by the transmit queue's size.
    pub(super) sends: Pool<SendOp>,
    /// Sends that closing waits for.
    pub(super) promised: usize,
    /// Sends under way that completed early.
    pub(super) early: usize,
    /// Room for copies longer than `inject_size` that nobody uses; [`FEW_SENDS`] at most.
    pub(super) long_copies: Vec<Vec<u8>>,
    /// Peers and transmit contexts of which such a send has failed in this call: told once.
    pub(super) lost: Vec<(PeerId, u8)>,
    /// Bounded by the receive queue's size and [`PARTS_MAX`].
    pub(super) recvs: Pool<RecvOp>,
    pub(super) multis: Pool<MultiRecv>,
    /// Bounded by the eager credit that the engine gives to peers.
    pub(super) helds: Pool<Held>,
    /// Bounded by what the engine admits of each peer.
    pub(super) served: Pool<Served>,
    /// The memory that peers may reach.
    pub(super) regions: Arc<KeyTable>,
    /// Peers that may use keys of the application.
    pub admitted: Admitted,
    pub(super) matcher: Matcher<PeerId, Posted, Unexpected>,
    /// Receives that have met eager messages and are not reported. Each is one of `recvs`.
    pub match_order: MatchOrder<Handle>,
    /// For what peers send.
    pub(super) room: Room,
    /// Messages that a peek claimed.
    pub(super) claimed: Vec<Claimed>,
    /// Unexpected messages wait for room, not for a receive, and must be matched before others.
    pub(super) starved: bool,
    /// Parts of buffers of the shared context whose messages are among the completions of this call.
    pub(super) parts: Vec<Part>,
    pub(super) tx: Direction,
    /// Of the transmit contexts of a scalable endpoint after the first.
    pub(super) more_tx: Vec<Direction>,
    pub(super) rx: Direction,
    /// Receives come from there.
    pub(super) shared: Option<SharedRx>,
    /// Another provider has the receives.
    pub(super) peer: Option<PeerRx>,
    pub(super) out: Outbox,
    pub(super) local: IpAddr,
    /// The interface's limit, or the application's.
    pub(super) datagram_bytes: u16,
    /// The same towards peers on this host, where it is another.
    pub(super) near_bytes: Option<u16>,
    /// Length of a payload that is not copied, if its memory is registered.
    pub(super) zero_copy_bytes: u64,
    pub(super) settling: Settling,
}

/// [`EpHost::tx_of`], to be changed while operations are borrowed.
pub(super) fn tx_of<'a>(
    tx: &'a mut Direction,
    more_tx: &'a mut [Direction],
    ctx: u8,
) -> &'a mut Direction {
    match ctx {
        0 => tx,
        more => &mut more_tx[usize::from(more) - 1],
    }
}

impl EpHost {
    /// Sends that are under way.
    #[must_use]
    pub fn live_sends(&self) -> usize {
        self.sends.live()
    }

    /// A send that is under way.
    pub(super) fn send_op(&self, token: SendToken) -> Option<&SendOp> {
        match Handle::from_token(token.0) {
            (handle, Kind::Own) => self.sends.get(handle),
            _ => None,
        }
    }

    /// Where the sends of a transmit context complete.
    pub(super) fn tx_of(&self, ctx: u8) -> &Direction {
        match ctx {
            0 => &self.tx,
            more => &self.more_tx[usize::from(more) - 1],
        }
    }

    /// Copies a payload that is lent, unless its send has ended.
    pub(super) fn copy(&mut self, handle: Handle) {
        let Some(op) = self.sends.get_mut(handle) else { return };
        if op.len_bytes > INJECT_BYTES as u64 {
            op.bounce = self.long_copies.pop().unwrap_or_default();
        }
        op.bounce.clear();
        op.buffers.append_to(&mut op.bounce);
        (op.bounced, op.lent) = (true, false);
    }

    /// A send is through. A short copy's room stays in its place for the next.
    pub(super) fn end_send(&mut self, handle: Handle) {
        if let Some(op) = self.sends.get_mut(handle)
            && op.bounce.capacity() > LONG_COPY_BYTES
        {
            let copy = std::mem::take(&mut op.bounce);
            if self.long_copies.len() < FEW_SENDS {
                self.long_copies.push(copy);
            }
        }
        self.sends.give_back(handle);
    }

    /// Waits until no datagram of an operation is on its way out of memory that is not ours.
    pub(super) fn settle_all(&mut self) {
        let (least_bytes, settling) = (self.zero_copy_bytes, &mut self.settling);
        if self.sends.handles().next().is_some() || self.served.handles().next().is_some() {
            settling.recall();
        }
        let sends = self.sends.handles().filter_map(|handle| self.sends.get(handle));
        sends.for_each(|op| settling.settle(op.memory(least_bytes)));
        let served = self.served.handles().filter_map(|handle| self.served.get(handle));
        served.for_each(|served| served.settle(least_bytes, settling));
    }

    /// Ends all operations without a word: their memory is the application's again.
    pub(super) fn abandon(&mut self) {
        self.settle_all();
        let sends: Vec<Handle> = self.sends.handles().collect();
        sends.into_iter().for_each(|handle| self.end_send(handle));
        let recvs: Vec<Handle> = self.recvs.handles().collect();
        for handle in recvs {
            self.recvs.get(handle).into_iter().for_each(|op| self.return_lent(op));
            self.recvs.give_back(handle);
        }
        self.matcher = Matcher::new(0, u32::MAX);
        self.match_order = MatchOrder::default();
        (self.promised, self.early) = (0, 0);
    }

    /// Writes into a receive buffer, held or the application's.
    fn write(&mut self, to: RecvToken, offset_bytes: u64, bytes: &[u8]) {
        match Handle::from_token(to.0) {
            (handle, Kind::Own) => {
                if let Some(op) = self.recvs.get(handle) {
                    op.buffers.write(offset_bytes, bytes);
                }
            }
            (handle, Kind::Result) => {
                if let Some(op) = self.sends.get(handle) {
                    op.buffers.write(offset_bytes, bytes);
                }
            }
            (handle, Kind::Served) => self.place_served(handle, offset_bytes, bytes),
            (handle, Kind::Held) => {
                if let Some(held) = self.helds.get_mut(handle) {
                    held.write(offset_bytes, bytes);
                }
            }
        }
    }
}

impl Host for EpHost {
    fn read(&mut self, op: SendToken, offset_bytes: u64, out: &mut [u8]) {
        match Handle::from_token(op.0) {
            (_, Kind::Served) => self.read_served(op, offset_bytes, out),
            _ => self.send_op(op).into_iter().for_each(|op| op.read(offset_bytes, out)),
        }
    }

    fn checksum(&mut self, op: SendToken, offset_bytes: u64, len_bytes: u32, seed: u32) -> u32 {
        let mut sum = seed;
        if let (_, Kind::Served) = Handle::from_token(op.0) {
            let mut bytes = vec![0; len_bytes as usize];
            self.read_served(op, offset_bytes, &mut bytes);
            return crc32c::crc32c_append(sum, &bytes);
        }
        if let Some(op) = self.send_op(op) {
            op.pieces(offset_bytes, len_bytes.into(), |piece| {
                // SAFETY: the piece lies in the operation's memory, which the application lends
                // for reading until the operation completes, or in its own copy.
                let bytes = unsafe {
                    std::slice::from_raw_parts(piece.iov_base.cast::<u8>(), piece.iov_len)
                };
                sum = crc32c::crc32c_append(sum, bytes);
            });
        }
        sum
    }

    fn sent(&mut self, op: SendToken, outcome: Result<(), OpError>) {
        let (handle, kind) = Handle::from_token(op.0);
        if kind == Kind::Served {
            return self.end_answer(handle, outcome.is_ok());
        }
        let Some(op) = self.sends.get(handle) else { return };
        self.promised -= usize::from(op.promised);
        self.early -= usize::from(op.early);
        let tx = tx_of(&mut self.tx, &mut self.more_tx, op.ctx);
        match outcome {
            Ok(()) if op.early => {}
            Ok(()) => tx.send_done(op),
            Err(error) => {
                if op.len_bytes >= u64::from(SHARED_MIN_BYTES) {
                    self.settling.recall();
                }
                self.settling.settle(op.memory(self.zero_copy_bytes));
                let cause = Cause::from(error);
                match op.peer.filter(|_| op.early) {
                    None => tx.send_failed(op, cause),
                    Some(peer) if self.lost.contains(&(peer, op.ctx)) => {}
                    Some(peer) => {
                        self.lost.push((peer, op.ctx));
                        tx.send_lost(op, cause);
                    }
                }
            }
        }
        self.end_send(handle);
    }

    fn arrived(&mut self, msg: &Arrived) -> Verdict {
        self.message_arrived(msg)
    }

    fn hold(&mut self, _peer: PeerId, len_bytes: u64) -> Option<RecvToken> {
        let handle = self.new_held(len_bytes)?;
        Some(RecvToken(handle.token_of(Kind::Held)))
    }

    fn has_room(&mut self, bytes: usize) -> bool {
        self.room.has(bytes)
    }

    fn place(&mut self, to: RecvToken, offset_bytes: u64, bytes: &[u8]) {
        self.write(to, offset_bytes, bytes);
    }

    fn received(&mut self, to: RecvToken, outcome: Result<u64, OpError>) {
        match Handle::from_token(to.0) {
            (handle, Kind::Held) => self.held_ended(handle, outcome.err()),
            (handle, Kind::Served) => drop(self.take_served(handle)),
            (handle, _) => self.recv_ended(handle, outcome.map_err(Cause::from)),
        }
    }

    fn session_ended(&mut self, peer: PeerId, session: u32, reason: EndReason) {
        let error = match reason {
            EndReason::Failed(error) => Some(error),
            EndReason::Goodbye => None,
        };
        self.void_messages(peer, session, error.unwrap_or(OpError::PeerClosed));
        if let Some(error) = error {
            self.fail_directed(peer, Cause::from(error));
            // Our own closing needs no word in the log.
            if error != OpError::Canceled {
                self.out.ended.push((peer, error));
            }
        }
    }

    fn datagram_limit_bytes(&mut self, name: SocketAddr) -> u16 {
        match udp::path_mtu_bytes(self.local, name) {
            Ok(mtu_bytes) => {
                let payload = udp::max_payload_bytes(mtu_bytes, name.is_ipv6());
                let most = self.near_bytes.unwrap_or(0).max(self.datagram_bytes);
                most.min(u16::try_from(payload).unwrap_or(u16::MAX))
            }
            Err(error) => {
                tracing::debug!(%name, %error, "no route yet; taking the interface's MTU");
                self.datagram_bytes
            }
        }
    }

    fn is_near(&mut self, name: SocketAddr) -> bool {
        udp::is_own(name)
    }

    fn shares_memory(&mut self, name: SocketAddr) -> bool {
        self.settling.reaches(name)
    }

    fn keep(&mut self, _peer: PeerId, len_bytes: u64) -> Option<RecvToken> {
        let handle = self.new_held(len_bytes)?;
        Some(RecvToken(handle.token_of(Kind::Held)))
    }

    fn key_stood(&mut self, of: &Remote) -> bool {
        self.all_keys_stood(of)
    }

    fn remote_write(&mut self, to: &Remote, bytes: Operand<'_>) -> Result<(), Refusal> {
        self.write_here(to, bytes)
    }

    fn remote_write_later(&mut self, to: &Remote) -> Result<RecvToken, Refusal> {
        self.admit_write(to)
    }

    fn remote_written(&mut self, to: RecvToken) -> Result<(), Refusal> {
        self.end_write(to)
    }

    fn remote_read(&mut self, from: &Remote) -> Result<SendToken, Refusal> {
        self.read_here(from)
    }

    fn remote_update(
        &mut self,
        at: &Remote,
        atomic: Atomic,
        operand: Operand<'_>,
    ) -> Result<(), Refusal> {
        self.update_here(at, atomic, operand)
    }

    fn remote_fetch(
        &mut self,
        at: &Remote,
        atomic: Atomic,
        operand: Operand<'_>,
    ) -> Result<SendToken, Refusal> {
        self.fetch_here(at, atomic, operand)
    }
}

impl Memory for EpHost {
    fn place_of(&mut self, expected: &Expected, pass: &mut Option<Pass>) -> Option<NonNull<u8>> {
        let (at, len_bytes) = (expected.offset_bytes, usize::from(expected.len_bytes));
        match Handle::from_token(expected.to.0) {
            (handle, Kind::Own) => self.recvs.get(handle)?.buffers.run(at, len_bytes),
            (handle, Kind::Result) => self.sends.get(handle)?.buffers.run(at, len_bytes),
            (handle, Kind::Served) => self.served.get(handle)?.run(at, len_bytes, pass),
            (_, Kind::Held) => None,
        }
    }

    fn gather(&self, burst: &TxBurst, pieces: &mut Pieces) -> Result<(), Option<SendToken>> {
        for part in &burst.parts {
            match *part {
                BurstPart::Inline { start, len_bytes } => {
                    pieces.push_bytes(&burst.bytes[start as usize..][..len_bytes as usize]);
                }
                BurstPart::Payload { op: token, offset_bytes, len_bytes } => {
                    let len_bytes = len_bytes.into();
                    if let Some(op) = self.send_op(token) {
                        pieces.memory = pieces.memory.or_else(|| op.memory(self.zero_copy_bytes));
                        op.pieces(offset_bytes, len_bytes, |piece| pieces.list.push(piece));
                    } else if Handle::from_token(token.0).1 != Kind::Served {
                        return Err(None);
                    } else if !self.gather_served(token, offset_bytes, len_bytes, pieces) {
                        return Err(Some(token));
                    }
                }
            }
        }
        Ok(())
    }

    fn take_gone(&mut self) -> Vec<SendToken> {
        std::mem::take(&mut self.out.gone)
    }

    fn sends(&mut self) {
        self.settling.sends();
    }

    fn has_waited(&self) -> bool {
        self.settling.has_waited()
    }

    fn has_completions(&self) -> bool {
        let is_pending = |direction: &Direction| !direction.done.is_empty();
        is_pending(&self.tx) || is_pending(&self.rx) || self.more_tx.iter().any(is_pending)
    }
}
