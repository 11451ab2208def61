//! Stateless answers to strangers (protocol.md §3, §8).

use crate::host::Host;
use crate::keys::KeyRef;
use crate::peer::{Core, Proof, emit_control};
use crate::transmit::TxBurst;
use crate::units::{Nanos, SECOND};
use crate::wire::header::{Header, PacketKind};
use crate::wire::setup::{Question, VersionNotice};
use alloc::collections::VecDeque;
use core::net::SocketAddr;

/// Most stateless replies waiting to be sent; the endpoint drops more, and their askers repeat.
const REPLIES_MAX: usize = 1024;
/// Most answers per second to names at other IP addresses than the question came from. Hosts with several addresses
/// send such questions, and so do attackers that aim our answers at others.
const ELSEWHERE_PER_S: u32 = 1024;
/// Most answers per second that a key proves: each costs a hash, and may be asked for by anybody.
const PROVEN_PER_S: u32 = 32_768;
/// An answer to a stranger, for whom the endpoint keeps no state.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reply {
    pub to: SocketAddr,
    /// The key that proves it.
    pub key: KeyRef,
    pub kind: PacketKind,
    pub session: u64,
    /// Cookie of a challenge, unknown session of a reset, session of a goodbye, or the refused version.
    pub word: u64,
    /// The random bytes that it answers: a hello's, with a key.
    pub question: Option<Question>,
}

/// A count of events in the present second, with a limit.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Allowance {
    second: Nanos,
    used: u32,
}

impl Allowance {
    fn take(&mut self, now: Nanos, most: u32) -> bool {
        let second = now / SECOND;
        if second != self.second {
            *self = Allowance { second, used: 0 };
        }
        let allowed = self.used < most;
        self.used += u32::from(allowed);
        allowed
    }
}

impl Reply {
    fn emit(self, core: &mut Core, now: Nanos, path: u16, burst: &mut TxBurst) {
        let sent_at_ns = now as u32;
        let h = Header { path: path as u8, sent_at_ns, ..Header::new(self.kind, self.session) };
        let (epoch, spoken) = (core.cfg.epoch, core.version());
        let question = self.question.as_ref().map_or(&[][..], |random| random);
        let proof = match self.kind {
            PacketKind::Version => Proof::None,
            _ => Proof::Loose { key: self.key, reader: self.to, question },
        };
        emit_control(core, burst, h, proof, |out| {
            if self.kind == PacketKind::Version {
                VersionNotice { spoken, refused: self.word as u8 }.emit(out);
                return;
            }
            out.extend_from_slice(&self.word.to_be_bytes());
            if self.kind == PacketKind::Challenge {
                out.extend_from_slice(&epoch.to_be_bytes());
            }
        });
        (burst.to, burst.key, burst.path) = (self.to, self.key.at, path);
    }
}

/// Path of an answer by its number. Answers take turns, since a path may be dead and an asker repeats its question. Multiples of
/// the golden ratio spread every second or third answer over all paths, too: those to one asker may be just these.
fn turn(number: u32, paths: u16) -> u16 {
    (number.wrapping_mul(0x9e37_79b9) >> 16) as u16 % paths
}

/// Answers that wait to be sent; at most [`REPLIES_MAX`].
#[derive(Debug, Default)]
pub(super) struct Replies {
    waiting: VecDeque<Reply>,
    /// Answers in this second to names at other IP addresses than the question's.
    elsewhere: Allowance,
    /// Answers in this second that a key proves.
    proven: Allowance,
    /// Answers so far.
    count: u32,
}

impl Replies {
    /// Queues an answer to a stranger. `from` is the source of the question: the name to answer may be another host's.
    pub(super) fn push(&mut self, core: &mut Core, now: Nanos, from: SocketAddr, reply: Reply) {
        let proven = core.is_keyed() && reply.kind != PacketKind::Version;
        let stats = &mut core.stats;
        let own = from.ip().to_canonical() == reply.to.ip().to_canonical();
        let room = self.waiting.len() < REPLIES_MAX;
        let allowed = room
            && (own || self.elsewhere.take(now, ELSEWHERE_PER_S))
            && (!proven || self.proven.take(now, PROVEN_PER_S));
        if !allowed {
            stats.answers_withheld += 1;
            return;
        }
        match reply.kind {
            PacketKind::Challenge => stats.tx_challenges += 1,
            PacketKind::Reset => stats.tx_resets += 1,
            PacketKind::GoodbyeAck => stats.tx_goodbye_confirmations += 1,
            _ => stats.tx_version_refusals += 1,
        }
        self.waiting.push_back(reply);
    }

    /// Writes the next one; false if there is none.
    pub(super) fn emit_next<H: Host>(
        &mut self,
        core: &mut Core,
        now: Nanos,
        burst: &mut TxBurst,
        host: &mut H,
    ) -> bool {
        let Some(reply) = self.waiting.pop_front() else { return false };
        let near = core.near.is_some() && host.is_near(reply.to);
        let path = turn(self.count, core.terms(near).paths);
        self.count = self.count.wrapping_add(1);
        reply.emit(core, now, path, burst);
        true
    }

    /// True if no answer waits.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;

    /// Whichever of several askers each answer is for, its answers reach every path within a few turns.
    #[test]
    fn answers_to_one_of_several_askers_take_all_paths() {
        for (askers, paths) in [(1, 2), (2, 2), (2, 8), (3, 3), (4, 4), (8, 16)] {
            for first in 0..askers {
                let answers = (0..u32::from(paths) * 6).map(|round| first + round * askers);
                let taken: BTreeSet<u16> = answers.map(|number| turn(number, paths)).collect();
                assert_eq!(taken.len(), usize::from(paths), "{askers} askers, {paths} paths");
            }
        }
    }
}
