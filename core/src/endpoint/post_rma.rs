//! Posting requests to peers' memory (`fi_rma(3)`, `fi_atomic(3)`).

use super::call::{Call, Payload, check_buffers};
use super::driver::Driver;
use super::ops::{Buffers, Handle, Kind};
use crate::error::Error;
use crate::flags::Flags;
use crate::run::Outside;
use erd_rd::{Atomic, Form, RecvToken, Rma, RmaRequest, SendToken, Targets};

/// Kind of access.
#[derive(Clone, Copy)]
pub enum Access {
    /// A write.
    Write,
    /// A read.
    Read,
    /// An atomic.
    Atomic(Atomic),
}

/// A request as the application posts it.
#[derive(Clone, Copy)]
pub struct RmaPost {
    /// Kind of access.
    pub access: Access,
    /// Bytes to write, or the memory for the result.
    pub buffers: Buffers,
    /// Operand of an atomic request.
    pub operand: Buffers,
    /// Comparand of an atomic request.
    pub comparand: Buffers,
    /// The stretches of the peer's memory.
    pub targets: Targets,
    /// The call.
    pub call: Call,
}

impl RmaPost {
    /// A read. It sends no bytes, so neither [`Flags::INJECT`], even as the endpoint's default, nor remote
    /// CQ data belong to it.
    pub fn read(buffers: Buffers, targets: Targets, call: Call) -> RmaPost {
        let call = Call { data: None, flags: call.flags.difference(Flags::INJECT), ..call };
        RmaPost { access: Access::Read, ..RmaPost::write(buffers.within(None), targets, call) }
    }

    /// A write.
    pub fn write(buffers: Buffers, targets: Targets, call: Call) -> RmaPost {
        let (operand, comparand) = (Buffers::default(), Buffers::default());
        RmaPost { access: Access::Write, buffers, operand, comparand, targets, call }
    }

    /// Flags of its completion.
    fn completion_flags(&self) -> Flags {
        match self.access {
            Access::Write => Flags::RMA | Flags::WRITE,
            Access::Read => Flags::RMA | Flags::READ,
            Access::Atomic(Atomic { form: Form::Update, .. }) => Flags::ATOMIC | Flags::WRITE,
            Access::Atomic(_) => Flags::ATOMIC | Flags::READ,
        }
    }
}

impl<O: Outside> Driver<O> {
    /// Posts a request.
    ///
    /// # Errors
    /// Reason why nothing was posted.
    pub fn post_rma(&mut self, post: &RmaPost) -> Result<(), Error> {
        let RmaPost { call, targets, .. } = post;
        check_buffers(&[&post.buffers, &post.operand, &post.comparand])?;
        let payload = match post.access {
            Access::Write => Payload::Written,
            Access::Read | Access::Atomic(_) => Payload::Other,
        };
        let (peer, handle, op) = self.admit(call, &post.buffers, targets.len_bytes(), payload)?;
        op.flags = post.completion_flags();
        if let Access::Atomic(_) = post.access {
            op.bounced = true;
            op.bounce.clear();
            post.operand.append_to(&mut op.bounce);
            post.comparand.append_to(&mut op.bounce);
        }
        let request = RmaRequest {
            peer,
            token: SendToken(handle.token()),
            rma: rma(post, handle),
            targets: *targets,
            data: call.data,
            fence: call.flags.intersects(Flags::FENCE),
        };
        let now = self.now_ns();
        let taken = self.engine.rma(now, &request);
        self.posted(now, taken, handle, call)
    }
}

fn rma(post: &RmaPost, handle: Handle) -> Rma {
    let to = RecvToken(handle.token_of(Kind::Result));
    match post.access {
        Access::Write => Rma::Write,
        Access::Read => Rma::Read(to),
        Access::Atomic(atomic) => {
            let operand_bytes = post.operand.len_bytes() + post.comparand.len_bytes();
            // An operand too long for this is too long for the engine, which refuses it.
            let operand_bytes = u16::try_from(operand_bytes).unwrap_or(u16::MAX);
            Rma::Atomic { atomic, operand_bytes, to }
        }
    }
}
