//! Accesses to peers' memory (protocol.md §9).

use super::{Endpoint, PostError};
use crate::host::{Host, RecvToken, SendToken};
use crate::peer::{Asked, Op, Role, Task};
use crate::units::{Nanos, PeerId};
use crate::wire::remote::{ATOMIC_MAX_BYTES, Atomic, Form, Targets};

/// What to do with a peer's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rma {
    /// Write the operation's payload there, which is as long.
    Write,
    /// Bring what is there, with [`Host::place`] into this buffer.
    Read(RecvToken),
    /// Change it.
    Atomic {
        /// How.
        atomic: Atomic,
        /// Length of the payload: operand, then comparand.
        operand_bytes: u16,
        /// Where the earlier contents go, if the form asks for them.
        to: RecvToken,
    },
}

/// A request to a peer's memory. It ends with [`Host::sent`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RmaRequest {
    /// Whose memory.
    pub peer: PeerId,
    /// The driver's name for the operation.
    pub token: SendToken,
    /// What to do.
    pub rma: Rma,
    /// Which memory.
    pub targets: Targets,
    /// Remote completion data.
    pub data: Option<u64>,
    /// It goes out only when everything before it to the same peer has ended.
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

    /// The memory behind an answer can not be read any more: `token` is what
    /// [`Host::remote_read`] gave. The initiator is told. The engine reads it no more; bursts made before
    /// that name it must not be sent, which is repaired as any loss is.
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
