//! Memory of a host that runs the erd engine: payload is counted by task and not kept.

use super::agenda::Agenda;
use crate::packet::ZEROS;
use crate::work::{FlowId, TaskId};
use erd_core::region::Pass;
use erd_core::run::pieces::Pieces;
use erd_rd::{
    Arrived, EndReason, Expected, Host, MsgRef, OpError, Part, PeerId, RecvToken, SendToken,
    TxBurst, Verdict,
};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::ptr::NonNull;

/// The token of a message that no task waits for: no task has such a number.
const STRANGER: u64 = u32::MAX as u64;
/// Tokens of messages that came before their turn begin here.
const HELD: u64 = 1 << 63;

/// See the module.
#[derive(Debug, Default)]
pub struct Memory {
    /// The host's tasks.
    pub agenda: Agenda,
    /// Messages that came before their turn, by token. The credit that the engine gives bounds them.
    held: HashMap<u64, Held>,
    held_ever: u64,
    /// Held messages that tasks have taken since, whose credit returns.
    taken: Vec<MsgRef>,
}

/// A message that came before its turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Held {
    /// Payload that came before its turn.
    bytes: u64,
    /// For whom it is. The engine tells when its turn has come.
    receiver: Option<RecvToken>,
}

impl Memory {
    /// That of a host with these tasks.
    pub fn new(agenda: Agenda) -> Memory {
        Memory { agenda, ..Memory::default() }
    }

    /// Takes out the held messages that tasks have taken.
    pub fn take_taken(&mut self) -> Vec<MsgRef> {
        std::mem::take(&mut self.taken)
    }

    /// The turn of a held message has come.
    fn arrived_early(&mut self, held: RecvToken, msg: MsgRef, receiver: RecvToken) {
        let Some(entry) = self.held.get_mut(&held.0) else { return };
        entry.receiver = Some(receiver);
        let bytes = std::mem::take(&mut entry.bytes);
        self.agenda.give_back(bytes);
        self.count(receiver, bytes);
        self.taken.push(msg);
    }

    fn count(&mut self, to: RecvToken, bytes: u64) {
        if to.0 != STRANGER {
            self.agenda.placed(TaskId(to.0 as u32), bytes);
        }
    }
}

impl Host for Memory {
    fn read(&mut self, _: SendToken, _: u64, out: &mut [u8]) {
        out.fill(0);
    }

    /// Checksums are off.
    fn checksum(&mut self, _: SendToken, _: u64, _: u32, seed: u32) -> u32 {
        seed
    }

    fn sent(&mut self, op: SendToken, outcome: Result<(), OpError>) {
        if outcome.is_err() {
            self.agenda.failed();
        }
        self.agenda.sent(TaskId(op.0 as u32));
    }

    fn arrived(&mut self, msg: &Arrived) -> Verdict {
        let task = msg.tag.and_then(|tag| self.agenda.receiver_of(FlowId(tag as u32)));
        let receiver = RecvToken(task.map_or(STRANGER, |task| task.0.into()));
        if let Some(held) = msg.held {
            self.arrived_early(held, msg.msg, receiver);
        }
        Verdict::Matched(receiver, msg.len_bytes)
    }

    fn hold(&mut self, _: PeerId, _: u64) -> Option<RecvToken> {
        let token = HELD | self.held_ever;
        self.held_ever += 1;
        self.held.insert(token, Held::default());
        Some(RecvToken(token))
    }

    fn place(&mut self, to: RecvToken, _: u64, bytes: &[u8]) {
        let len_bytes = bytes.len() as u64;
        match self.held.get_mut(&to.0).map(|held| (held.receiver, held)) {
            None => self.count(to, len_bytes),
            Some((Some(receiver), _)) => self.count(receiver, len_bytes),
            Some((None, held)) => {
                held.bytes += len_bytes;
                self.agenda.hold(len_bytes);
            }
        }
    }

    fn received(&mut self, token: RecvToken, outcome: Result<u64, OpError>) {
        let held = self.held.remove(&token.0);
        self.agenda.give_back(held.map_or(0, |held| held.bytes));
        let receiver = held.map_or(Some(token), |held| held.receiver);
        let task = receiver.filter(|receiver| receiver.0 != STRANGER);
        if outcome.is_err() || task.is_none() {
            self.agenda.failed();
        }
        if let Some(task) = task {
            self.agenda.received(TaskId(task.0 as u32));
        }
    }

    fn session_ended(&mut self, _: PeerId, _: u32, _: EndReason) {}

    fn datagram_limit_bytes(&mut self, _: SocketAddr) -> u16 {
        u16::MAX
    }
}

impl erd_core::run::Memory for Memory {
    fn place_of(&mut self, _: &Expected, _: &mut Option<Pass>) -> Option<NonNull<u8>> {
        None
    }

    fn gather(&self, burst: &TxBurst, pieces: &mut Pieces) -> Result<(), Option<SendToken>> {
        for part in &burst.parts {
            match *part {
                Part::Inline { start, len_bytes } => {
                    pieces.push_bytes(&burst.bytes[start as usize..][..len_bytes as usize]);
                }
                Part::Payload { len_bytes, .. } => pieces.push_bytes(&ZEROS[..len_bytes as usize]),
            }
        }
        Ok(())
    }

    /// No memory goes.
    fn take_gone(&mut self) -> Vec<SendToken> {
        Vec::new()
    }

    /// Nobody waits for completions.
    fn has_completions(&self) -> bool {
        false
    }
}
