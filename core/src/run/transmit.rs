//! The half of a step that sends, and that reads the errors of earlier sends.

use super::carriers::Parts;
use super::memory::Memory;
use super::outside::Outside;
use super::sender::{Outcome, Refusal};
use erd_port::udp::{self, NetError};
use erd_port::{FramePort, Port};
use std::net::SocketAddr;

/// Batches that a step sends.
const SEND_BATCHES: usize = 16;
/// When to try again after the port was full.
const BLOCKED_RETRY_NS: u64 = 100_000;
/// Least time between two looks for network errors without a sign of any.
const ERROR_LOOK_NS: u64 = 1_000_000;
/// The same while the sockets carry little, since verbs is in use.
const ERROR_LOOK_VERBS_NS: u64 = 10_000_000;

impl<O: Outside, M: Memory> Parts<'_, O, M> {
    /// Sends the bursts that are due until the port is full. See `Engine::poll_transmit` for `flush`.
    #[inline]
    pub fn transmit(&mut self, now: u64, flush: bool) {
        let carriers = &mut *self.carriers;
        // Most looks find nothing to send: they should cost little.
        if carriers.sender.is_empty() && (!self.engine.has_ready() || carriers.port.room() == 0) {
            if flush {
                self.engine.note_flush(now);
            }
            carriers.retry_at_ns = None;
            carriers.link.exchange(&mut carriers.port, now);
            return;
        }
        self.send_due(now, flush);
    }

    // Inlined it would make every look prepare for sending.
    #[inline(never)]
    fn send_due(&mut self, now: u64, flush: bool) {
        // If the batches run out, more waits: the next step is due at once.
        self.carriers.retry_at_ns = Some(now);
        let mut errors_pending = false;
        for _ in 0..SEND_BATCHES {
            self.fill_batch(now, flush);
            let carriers = &mut *self.carriers;
            if carriers.sender.is_empty() {
                carriers.retry_at_ns = None;
                break;
            }
            self.host.sends();
            let ways = (&mut carriers.port, &mut carriers.link);
            let outcome = carriers.sender.send(now, &*self.host, ways, &mut errors_pending);
            for token in std::mem::take(&mut carriers.sender.gone) {
                self.engine.withdraw(token, self.host);
            }
            match outcome {
                // Most often the engine has no more, which it says without being asked for a burst.
                Outcome::Empty if !self.engine.has_ready() => {
                    carriers.retry_at_ns = None;
                    break;
                }
                Outcome::Empty | Outcome::More => {}
                Outcome::Blocked => {
                    carriers.retry_at_ns = Some(now + BLOCKED_RETRY_NS);
                    break;
                }
                Outcome::Refused(to, refusal) => self.refused(now, to, refusal),
            }
        }
        let carriers = &mut *self.carriers;
        carriers.link.exchange(&mut carriers.port, now);
        if errors_pending {
            carriers.net_errors.drain(&mut carriers.port);
        }
    }

    #[cold]
    fn refused(&mut self, now: u64, to: SocketAddr, refusal: Refusal) {
        match refusal {
            Refusal::TooBig(bytes) => self.engine.handle_too_big(now, to, bytes),
            // Seen with buffers that are freed before their completion.
            Refusal::Failed(libc::EFAULT) => self.engine.handle_bad_buffer(to, self.host),
            Refusal::Failed(errno) => tracing::debug!(%to, errno, "cannot send"),
        }
    }

    /// Takes bursts from the engine as long as it may have one.
    fn fill_batch(&mut self, now: u64, flush: bool) {
        let room = self.carriers.port.room();
        while self.carriers.sender.waiting() < room
            && let Some(burst) = self.carriers.sender.vacant()
        {
            if !self.engine.poll_transmit(now, flush, self.host, burst) {
                return;
            }
            let gone = self.host.take_gone();
            if !gone.is_empty() {
                // Made of memory that has gone: the engine repairs it.
                gone.into_iter().for_each(|token| self.engine.withdraw(token, self.host));
                continue;
            }
            let (to, info_path) = (burst.to, burst.info_path);
            self.carriers.link.note(burst, now);
            let taken = info_path && self.send_info(to);
            if !taken {
                self.carriers.sender.filled();
            }
            if !self.engine.has_due() {
                return;
            }
        }
    }

    /// Sends the burst just made over the information path; false if UDP has to take it.
    fn send_info(&mut self, to: SocketAddr) -> bool {
        let Some(path) = &mut self.carriers.info_path else { return false };
        let bytes = self.carriers.sender.vacant_bytes(&*self.host);
        bytes.is_some_and(|bytes| path.send(to, bytes))
    }

    pub(super) fn look_for_errors(&mut self, now: u64) {
        let carriers = &mut *self.carriers;
        let verbs = carriers.link.uses_verbs();
        let every_ns = if verbs { ERROR_LOOK_VERBS_NS } else { ERROR_LOOK_NS };
        carriers.net_errors.look(&mut carriers.port, now, every_ns);
    }

    pub(super) fn read_inbox(&mut self, now: u64) {
        for (name, error) in self.carriers.inbox.take() {
            match error {
                NetError::Unreachable(_) => self.engine.handle_unreachable(name),
                NetError::MtuChanged(mtu_bytes) => {
                    let payload = udp::max_payload_bytes(mtu_bytes, name.is_ipv6());
                    self.engine.handle_path_told(now, name, payload as u16);
                }
                NetError::Other(errno) => tracing::debug!(%name, errno, "ICMP error"),
            }
        }
    }
}
