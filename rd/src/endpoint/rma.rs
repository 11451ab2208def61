//! Accesses to peers' memory (protocol.md §9).

use super::{Endpoint, PostError};
use crate::host::{Host, RecvToken, SendToken};
use crate::peer::{Asked, Op, Role, Task};
use crate::units::{Nanos, PeerId};
use crate::wire::remote::{ATOMIC_MAX_BYTES, Atomic, Form, Targets};

/// Kind of access to a peer's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rma {
    /// Writes the operation's payload there, which has the same length.
    Write,
    /// Reads it, with [`Host::place`], into this buffer.
    Read(RecvToken),
    /// Changes it.
    Atomic {
        /// The operation.
        atomic: Atomic,
        /// Length of the payload: operand, then comparand.
        operand_bytes: u16,
        /// Buffer for the earlier contents, if the form asks for them.
        to: RecvToken,
    },
}

/// A request to a peer's memory. It ends with [`Host::sent`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RmaRequest {
    /// The peer that has the memory.
    pub peer: PeerId,
    /// The driver's name for the operation.
    pub token: SendToken,
    /// The access.
    pub rma: Rma,
    /// The memory.
    pub targets: Targets,
    /// Remote completion data.
    pub data: Option<u64>,
    /// The engine sends it only when everything before it to the same peer has ended.
    pub fence: bool,
}

impl Endpoint {
    /// Queues a request to a peer's memory. It goes out with the next
    /// [`Endpoint::poll_transmit`].
    ///
    /// # Errors
    /// See [`PostError`].
    pub fn rma(&mut self, now: Nanos, request: &RmaRequest) -> Result<(), PostError> {
        self.check_post(request.peer)?;
        let len_bytes = request.targets.len_bytes();
        let (task, operand_bytes) = match request.rma {
            Rma::Write => (Task::Write { later: false }, len_bytes),
            Rma::Read(to) => (Task::Read(to), 0),
            Rma::Atomic { atomic, operand_bytes, to } => {
                if len_bytes > ATOMIC_MAX_BYTES {
                    return Err(PostError::Operand);
                }
                let whole = if atomic.form == Form::Compare { 2 } else { 1 } * len_bytes;
                let operand_bytes = u64::from(operand_bytes);
                if operand_bytes != whole && operand_bytes != 0 {
                    return Err(PostError::Operand);
                }
                (Task::Atomic(atomic, to), operand_bytes)
            }
        };
        let asked = Asked::new(task, request.targets, operand_bytes);
        let role = Role::Request(self.core.asked.insert(asked) as u32);
        let op = Op {
            data: request.data,
            fence: request.fence,
            ..Op::new(request.token, request.peer.index, len_bytes, role)
        };
        self.post(now, request.peer, op);
        Ok(())
    }

    /// Withdraws an answer whose memory cannot be read any more: `token` is from [`Host::remote_read`]. The engine
    /// tells the initiator, and reads the memory no more. The driver must not send earlier bursts that name it; the
    /// engine repairs that like any loss.
    pub fn withdraw<H: Host>(&mut self, token: SendToken, host: &mut H) {
        let answers = self
            .core
            .ops
            .iter()
            .find(|(_, op)| op.token == token && matches!(op.role, Role::Answer { .. }));
        let Some((index, peer)) = answers.map(|(index, op)| (index as u32, op.peer)) else {
            return;
        };
        if let Some(peer) = self.peers.get_mut(peer as usize) {
            peer.withdraw(&mut self.core, host, index);
            self.schedule.ready(peer);
        }
    }
}
