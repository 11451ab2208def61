//! The driver's side of the engine's boundary ([`erd_rd::Host`]): operations and their memory.
//!
//! The engine calls in here with the endpoint's lock held, and nothing may call it back. Answers to it and completions
//! wait here until the call returns.

use super::complete::Direction;
use super::limits::FEW_SENDS;
use super::operations::SendOp;
use super::ops::{Handle, Kind, Pool};
use super::receives::Receives;
use super::receives::under_way::UnderWay;
use super::refused::Refused;
use super::served::Served;
use super::settling::Settling;
use crate::admission::Admitted;
use crate::cause::Cause;
use crate::completion::CompletionQueue;
use crate::keys::KeyTable;
use crate::pause::Pause;
use crate::region::Pass;
use crate::run::Memory;
use crate::run::pieces::Pieces;
use crate::settings::INJECT_BYTES;
use erd_port::local::{self, Lanes, LinkId};
use erd_port::udp;
use erd_rd::keys::{KeySet, Keys};
use erd_rd::match_order::MatchOrder;
use erd_rd::{
    Arrived, Atomic, EndReason, Expected, Host, KeyMismatch, Lane, Nanos, OpError, Operand,
    Part as BurstPart, Payload, PeerAddress, PeerId, Pull, Put, Reach, RecvToken, Refusal, Remote,
    SendToken, Sources, TxBurst, Verdict,
};
use erd_types::mutants::{Mutant, mutant};
use std::net::{IpAddr, SocketAddr};
use std::ptr::NonNull;
use std::sync::Arc;

/// Receives under way beyond those that the application posted: parts of multi-receive buffers.
pub(super) const PARTS_MAX: u32 = 1 << 16;

/// Longest copy whose buffer stays in the operation's place for the next.
const LONG_COPY_BYTES: usize = 2 * INJECT_BYTES;

/// See the module's text.
pub struct EpHost {
    /// Bounded by the transmit queue's size.
    pub(super) sends: Pool<SendOp>,
    /// Number of sends that closing waits for.
    pub(super) promised: usize,
    /// Number of sends under way that completed early.
    pub(super) early: usize,
    /// Unused buffers for copies longer than `inject_size`; [`FEW_SENDS`] at most.
    pub(super) long_copies: Vec<Vec<u8>>,
    /// Peers and transmit contexts whose early send has failed in this call: reported once.
    pub(super) lost: Vec<(PeerId, u8)>,
    /// Bounded by the requests that the engine admits from each peer.
    pub(super) served: Pool<Served>,
    /// The memory that peers may reach.
    pub(super) regions: Arc<KeyTable>,
    /// Peers that may use keys of the application.
    pub admitted: Admitted,
    /// The keys of the engine.
    pub(super) keys: KeySet,
    pub(super) tx: Direction,
    /// The directions of a scalable endpoint's transmit contexts after the first.
    pub(super) more_tx: Vec<Direction>,
    /// Receives until they are reported.
    pub(super) under_way: UnderWay,
    /// Receives that messages match.
    pub(super) receives: Receives,
    /// Sessions that ended by an error, to report when the engine's call is over.
    pub(super) ended: Vec<(PeerId, OpError)>,
    /// Answers whose memory has gone. The driver must not send the burst under construction.
    pub(super) gone: Vec<SendToken>,
    pub(super) local: IpAddr,
    /// Largest datagram: the interface's limit, or the application's.
    pub(super) datagram_bytes: u16,
    /// The same towards peers on this host, where it differs.
    pub(super) near_bytes: Option<u16>,
    /// Least payload that is sent without a copy, if its memory is registered.
    pub(super) zero_copy_bytes: u64,
    pub(super) settling: Settling,
    pub(super) refused: Refused,
    /// Shared memory with peers on this host. The loop takes it out while it reads there.
    pub(super) local_port: Option<Box<dyn Lanes>>,
    pub(super) pause: Pause,
    /// A peer on this host that it does not reach is worth a warning.
    pub(super) local_warns: bool,
    /// Bytes of an answer on its way to shared memory.
    pub(super) answer: Vec<u8>,
}

/// [`EpHost::tx_of`], mutable while operations are borrowed.
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
    /// Number of sends under way.
    #[must_use]
    pub fn live_sends(&self) -> usize {
        self.sends.live()
    }

    /// True if receives have met messages and are not reported.
    #[must_use]
    pub fn has_unreported(&self) -> bool {
        !self.under_way.match_order.is_empty()
    }

    /// A send that is under way.
    pub(super) fn send_op(&self, token: SendToken) -> Option<&SendOp> {
        match Handle::from_token(token.0) {
            (handle, Kind::Own) => self.sends.get(handle),
            _ => None,
        }
    }

    /// The queue and counters of a transmit context's sends.
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

    /// Ends a send. The buffer of a short copy stays in its place for the next.
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

    /// Waits until no datagram of an operation is being sent from memory that is not ours.
    pub(super) fn settle_all(&mut self) {
        let (least_bytes, settling) = (self.zero_copy_bytes, &mut self.settling);
        let sends = self.sends.handles().filter_map(|handle| self.sends.get(handle));
        sends.for_each(|op| settling.settle(op.memory(least_bytes)));
        let served = self.served.handles().filter_map(|handle| self.served.get(handle));
        served.for_each(|served| served.settle(least_bytes, settling));
    }

    /// Ends all operations without a report: the application gets their memory back.
    pub(super) fn abandon(&mut self) {
        self.settle_all();
        let sends: Vec<Handle> = self.sends.handles().collect();
        sends.into_iter().for_each(|handle| self.end_send(handle));
        let UnderWay { recvs, match_order, .. } = &mut self.under_way;
        for handle in recvs.handles().collect::<Vec<_>>() {
            recvs.get(handle).into_iter().for_each(|op| self.receives.give_back(op));
            recvs.give_back(handle);
        }
        *match_order = MatchOrder::default();
        self.receives.abandon();
        (self.promised, self.early) = (0, 0);
    }

    /// The completion queues of sends and of receives.
    pub(super) fn queues(&self) -> [Option<Arc<CompletionQueue>>; 2] {
        [&self.tx, &self.under_way.rx]
            .map(|part| part.cq.as_ref().map(|bound| Arc::clone(&bound.cq)))
    }

    /// True if calls of the engine left something to tell it.
    pub(super) fn has_to_settle(&self) -> bool {
        let UnderWay { releases, watches, .. } = &self.under_way;
        let nothing = releases.is_empty() && watches.is_empty() && self.gone.is_empty();
        !(nothing && self.ended.is_empty()) || self.refused.has_lines()
    }

    /// Writes into a receive buffer, held or the application's.
    fn write(&mut self, to: RecvToken, offset_bytes: u64, bytes: &[u8]) {
        match Handle::from_token(to.0) {
            (handle, Kind::Own) => {
                if let Some(op) = self.under_way.recvs.get(handle) {
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
                if let Some(held) = self.under_way.helds.get_mut(handle) {
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

    fn append(&mut self, op: SendToken, offset_bytes: u64, len_bytes: u32, out: &mut Vec<u8>) {
        let end = out.len() + len_bytes as usize;
        if let Some(send) = self.send_op(op) {
            // Without clearing the place first, which the copy fills.
            send.append(offset_bytes, len_bytes, out);
            debug_assert_eq!(out.len(), end, "a packet has bytes of its operation alone");
            out.resize(end, 0);
        } else {
            let at = out.len();
            out.resize(end, 0);
            self.read(op, offset_bytes, &mut out[at..]);
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
            Ok(()) if op.early && !mutant(Mutant::CompletesEarlyTwice) => {}
            Ok(()) => tx.send_done(op),
            Err(error) => {
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
        self.receives.arrived(msg, &mut self.under_way)
    }

    fn hold(&mut self, _peer: PeerId, len_bytes: u64) -> Option<RecvToken> {
        let handle = self.under_way.new_held(len_bytes)?;
        Some(RecvToken(handle.token_of(Kind::Held)))
    }

    fn has_room(&mut self, bytes: usize) -> bool {
        self.under_way.room.has(bytes)
    }

    fn place(&mut self, to: RecvToken, offset_bytes: u64, bytes: &[u8]) {
        self.write(to, offset_bytes, bytes);
    }

    fn received(&mut self, to: RecvToken, outcome: Result<u64, OpError>) {
        match Handle::from_token(to.0) {
            (handle, Kind::Held) => {
                if let Some(cause) = self.under_way.held_ended(handle, outcome.err()) {
                    self.receives.void(cause, |message| message.held == Some(handle));
                }
            }
            (handle, Kind::Served) => drop(self.take_served(handle)),
            (handle, _) => self.under_way.recv_ended(handle, outcome.map_err(Cause::from)),
        }
    }

    fn session_ended(&mut self, peer: PeerId, session: u32, reason: EndReason) {
        let error = match reason {
            EndReason::Failed(error) => Some(error),
            EndReason::Goodbye => None,
        };
        let cause = Cause::from(error.unwrap_or(OpError::PeerClosed));
        // Bytes that still wait at their sender will never come.
        self.receives.void(cause, |message| {
            message.held.is_none() && message.msg.peer == peer && message.msg.session == session
        });
        if let Some(error) = error {
            self.receives.fail_directed(peer, cause, &mut self.under_way);
            // Closing this side needs no log line.
            if error != OpError::Canceled {
                self.ended.push((peer, error));
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

    fn admits(&mut self, peer: PeerAddress) -> bool {
        self.admitted.may_open(peer.name, self.keys.get(peer.key).map(Keys::id))
    }

    fn refused(&mut self, now: Nanos, name: SocketAddr, from: SocketAddr, why: KeyMismatch) {
        let knows = |host| self.admitted.knows(host);
        self.refused.note(now, [name, from], why, knows);
    }

    fn is_near(&mut self, name: SocketAddr) -> bool {
        udp::is_own(name)
    }

    fn is_paused(&mut self) -> bool {
        self.pause.is_on()
    }

    fn reach(&mut self, now: Nanos, name: SocketAddr) -> Reach {
        let reach = match &mut self.local_port {
            Some(port) => port.reach(name, now),
            None => local::Reach::None,
        };
        match reach {
            local::Reach::Link(link) => Reach::Lane(Lane(link.number())),
            local::Reach::Asked => Reach::Asked,
            local::Reach::None => {
                if self.local_warns && udp::is_own(name) {
                    tracing::warn!(%name, "a peer on this host, but no shared memory with it");
                }
                Reach::Datagrams
            }
        }
    }

    fn put(&mut self, lane: Lane, kind: u8, head: &[u8], payload: Option<Payload>) -> Put {
        self.put_entry(lane, kind, head, payload)
    }

    fn pull(
        &mut self,
        lane: Lane,
        from: &Sources,
        offset_bytes: u64,
        to: RecvToken,
        len_bytes: u64,
    ) -> Pull {
        self.pull_bytes(lane, from, offset_bytes, to, len_bytes)
    }

    fn is_there(&mut self, answer: SendToken) -> bool {
        self.is_served(answer)
    }

    fn has_entries(&mut self, lane: Lane) -> bool {
        let port = self.local_port.as_mut();
        port.is_some_and(|port| port.has_entries(LinkId::numbered(lane.0)))
    }

    fn break_off(&mut self, lane: Lane) {
        if let Some(port) = &mut self.local_port {
            port.close(LinkId::numbered(lane.0));
        }
    }

    fn read_by_peer(&mut self, lane: Lane) -> Option<u64> {
        self.local_port.as_mut()?.read_by_peer(LinkId::numbered(lane.0))
    }

    fn starve(&mut self, lane: Lane) {
        if let Some(port) = &mut self.local_port {
            port.starve(LinkId::numbered(lane.0));
        }
    }

    fn keep(&mut self, peer: PeerId, len_bytes: u64) -> Option<RecvToken> {
        self.hold(peer, len_bytes)
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
            (handle, Kind::Own) => self.under_way.recvs.get(handle)?.buffers.run(at, len_bytes),
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
        std::mem::take(&mut self.gone)
    }

    fn sends(&mut self) {
        self.settling.sends();
    }

    fn has_waited(&self) -> bool {
        self.settling.has_waited()
    }

    fn local(&mut self) -> Option<&mut Option<Box<dyn Lanes>>> {
        Some(&mut self.local_port)
    }

    fn has_completions(&self) -> bool {
        let is_pending = |direction: &Direction| !direction.done.is_empty();
        is_pending(&self.tx)
            || is_pending(&self.under_way.rx)
            || self.more_tx.iter().any(is_pending)
    }
}
