//! Posting requests to peers' memory (`fi_rma(3)`, `fi_atomic(3)`).

use super::driver::{Driver, refusal_errno};
use super::host::SendOp;
use super::ops::{Buffers, Handle, Kind};
use erd_ffi::clock::monotonic_ns;
use erd_ffi::fi::{
    FI_ATOMIC, FI_COMPLETION, FI_EAGAIN, FI_EMSGSIZE, FI_ENOCQ, FI_EOPNOTSUPP, FI_FENCE, FI_INJECT,
    FI_MORE, FI_READ, FI_RMA, FI_TRIGGER, FI_WRITE, fi_addr_t,
};
use erd_rd::{Ask, AskRequest, Atomic, Form, RecvToken, SendToken, Targets};
use std::ffi::{c_int, c_void};

/// What is asked for.
#[derive(Clone, Copy)]
pub(super) enum Access {
    Write,
    Read,
    Atomic(Atomic),
}

/// A request as the application posts it.
#[derive(Clone, Copy)]
pub(super) struct AskPost {
    pub access: Access,
    /// What is written, or where the result goes.
    pub buffers: Buffers,
    /// Operand of an atomic request.
    pub operand: Buffers,
    pub comparand: Buffers,
    pub targets: Targets,
    pub context: *mut c_void,
    pub dest: fi_addr_t,
    /// Remote CQ data.
    pub data: Option<u64>,
    pub flags: u64,
    /// A success is not reported, whatever the flags.
    pub silent: bool,
}

impl AskPost {
    /// Flags of its completion.
    fn completion_flags(&self) -> u64 {
        match self.access {
            Access::Write => FI_RMA | FI_WRITE,
            Access::Read => FI_RMA | FI_READ,
            Access::Atomic(Atomic { form: Form::Update, .. }) => FI_ATOMIC | FI_WRITE,
            Access::Atomic(_) => FI_ATOMIC | FI_READ,
        }
    }
}

impl Driver {
    /// Posts a request.
    ///
    /// # Errors
    /// A positive error number; nothing was posted then.
    pub(super) fn post_ask(&mut self, post: &AskPost) -> Result<(), c_int> {
        self.check_ask(post)?;
        let peer = self.peer_at(post.dest)?;
        let flags = post.flags;
        let injected = flags & FI_INJECT != 0;
        let completion =
            !post.silent && (flags & FI_COMPLETION != 0 || self.host.tx.always_completes());
        let room = self.host.sends.live() + self.host.tx.unread() < self.config.tx_size;
        let place = if room { self.host.sends.take() } else { None };
        let Some((handle, op)) = place else {
            self.progress();
            return Err(FI_EAGAIN);
        };
        let atomic = matches!(post.access, Access::Atomic(_));
        *op = SendOp {
            buffers: post.buffers,
            bounce: std::mem::take(&mut op.bounce),
            bounced: injected || atomic,
            context: post.context,
            flags: post.completion_flags(),
            completion,
            promised: injected,
            peer: Some(peer),
            len_bytes: post.targets.len_bytes(),
        };
        if op.bounced {
            copy(post, &mut op.bounce);
        }
        let ask = ask(post, handle);
        let now = monotonic_ns();
        let request = AskRequest {
            peer,
            token: SendToken(handle.token()),
            ask,
            targets: post.targets,
            data: post.data,
            fence: flags & FI_FENCE != 0,
        };
        if let Err(refused) = self.engine.ask(now, &request) {
            self.host.sends.give_back(handle);
            return Err(refusal_errno(refused));
        }
        self.host.promised += usize::from(injected);
        if flags & FI_MORE == 0 {
            self.transmit(now, false);
        }
        self.publish();
        Ok(())
    }

    fn check_ask(&self, post: &AskPost) -> Result<(), c_int> {
        let len_bytes = post.targets.len_bytes();
        if !self.host.tx.is_bound() {
            return Err(FI_ENOCQ);
        }
        if post.flags & FI_TRIGGER != 0 {
            return Err(FI_EOPNOTSUPP);
        }
        let limit_bytes = match post.flags & FI_INJECT {
            0 => self.config.max_msg_bytes,
            _ => self.config.inject_bytes,
        };
        if len_bytes > limit_bytes {
            tracing::info!(len_bytes, limit_bytes, "a transfer is too long");
            return Err(FI_EMSGSIZE);
        }
        Ok(())
    }
}

/// Copies what must not change after the call.
fn copy(post: &AskPost, bounce: &mut Vec<u8>) {
    bounce.clear();
    let parts = match post.access {
        Access::Atomic(_) => [&post.operand, &post.comparand],
        Access::Write | Access::Read => [&post.buffers, &post.comparand],
    };
    for part in parts {
        let at = bounce.len();
        bounce.resize(at + part.len_bytes() as usize, 0);
        part.read(0, &mut bounce[at..]);
    }
}

fn ask(post: &AskPost, handle: Handle) -> Ask {
    let to = RecvToken(handle.token_of(Kind::Result));
    match post.access {
        Access::Write => Ask::Write,
        Access::Read => Ask::Read(to),
        Access::Atomic(atomic) => {
            let operand_bytes = post.operand.len_bytes() + post.comparand.len_bytes();
            // What is too long for this is too long for the engine, which says so.
            let operand_bytes = u16::try_from(operand_bytes).unwrap_or(u16::MAX);
            Ask::Atomic { atomic, operand_bytes, to }
        }
    }
}
