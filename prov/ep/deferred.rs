//! The operations of deferred work, read from its structures (`fi_trigger(3)`).

use super::fid::state_of;
use super::{atomic, msg, rma, tagged};
use erd_core::endpoint::{Endpoint, Post};
use erd_ffi::fi::{
    FI_EINVAL, FI_ENOSYS, FI_OP_ATOMIC, FI_OP_COMPARE_ATOMIC, FI_OP_FETCH_ATOMIC, FI_OP_READ,
    FI_OP_RECV, FI_OP_SEND, FI_OP_TRECV, FI_OP_TSEND, FI_OP_WRITE, fi_deferred_work,
};
use erd_rd::Form;
use std::ffi::c_int;
use std::sync::Arc;

/// The operation of a transfer request, and its endpoint.
///
/// # Errors
/// A positive error number.
///
/// # Safety
/// `work` is as the man page says.
pub(crate) unsafe fn deferred_post<'a>(
    work: &fi_deferred_work,
) -> Result<(&'a Arc<Endpoint>, Post), c_int> {
    // SAFETY: the kind says what the union holds; its lists are the caller's.
    let (ep, post) = unsafe {
        match work.op_type {
            FI_OP_SEND | FI_OP_RECV => {
                let op = &*work.op.msg;
                let receives = work.op_type == FI_OP_RECV;
                (op.ep, msg::post_of(&op.msg, op.flags, receives))
            }
            FI_OP_TSEND | FI_OP_TRECV => {
                let op = &*work.op.tagged;
                let receives = work.op_type == FI_OP_TRECV;
                (op.ep, tagged::post_of(&op.msg, op.flags, receives))
            }
            FI_OP_WRITE | FI_OP_READ => {
                let op = &*work.op.rma;
                let reads = work.op_type == FI_OP_READ;
                (op.ep, rma::post_of(&op.msg, op.flags, reads))
            }
            FI_OP_ATOMIC => {
                let op = &*work.op.atomic;
                (op.ep, atomic::message(&op.msg, Form::Update, op.flags).post_later())
            }
            FI_OP_FETCH_ATOMIC => {
                let op = &*work.op.fetch_atomic;
                let request = atomic::message(&op.msg, Form::Fetch, op.flags);
                (op.ep, request.with_result(&op.fetch).post_later())
            }
            FI_OP_COMPARE_ATOMIC => {
                let op = &*work.op.compare_atomic;
                let request = atomic::message(&op.msg, Form::Compare, op.flags);
                let request = request.with_result(&op.fetch).with_comparand(&op.compare);
                (op.ep, request.post_later())
            }
            other => {
                tracing::info!(op_type = other, "FI_QUEUE_WORK: unknown op_type");
                return Err(FI_ENOSYS);
            }
        }
    };
    // SAFETY: NULL or an open endpoint of ours by the caller's promise.
    let caller = unsafe { state_of(ep.cast()) }.ok_or(FI_EINVAL)?;
    let mut post = post?;
    match &mut post {
        Post::Send(request) => request.call.ctx = caller.own.ctx,
        Post::Rma(request) => request.call.ctx = caller.own.ctx,
        Post::Recv(_) => {}
    }
    Ok((caller.ep, post))
}
