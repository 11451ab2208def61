//! Posting of requests in the lists that C links.

use super::boundary::{not_null, status};
use super::types::{
    ERD_WR_ATOMIC_CMP_AND_SWP, ERD_WR_ATOMIC_FETCH_AND_ADD, ERD_WR_RDMA_READ, ERD_WR_RDMA_WRITE,
    ERD_WR_RDMA_WRITE_WITH_IMM, ERD_WR_SEND, ERD_WR_SEND_WITH_IMM, erd_qp, erd_recv_wr,
    erd_send_wr, erd_sge,
};
use super::{AHS, QPS, with};
use crate::verbs::recv_one;
use crate::verbs::{
    Error, Operation, PostError, ReceiveRequest, RemoteAddr, SendFlags, SendRequest, Sge,
};
use erd_core::settings::{IOV_LIMIT, QUEUE_SIZE_MAX};
use std::ffi::c_int;

/// A list of requests that C has linked.
trait Linked: Copy {
    fn next(&self) -> *const Self;
}

impl Linked for erd_send_wr {
    fn next(&self) -> *const Self {
        self.next
    }
}

impl Linked for erd_recv_wr {
    fn next(&self) -> *const Self {
        self.next
    }
}

/// Requests of a list; a ring counts as more than any queue takes.
///
/// # Safety
/// Every request of the list is readable.
unsafe fn length<W: Linked>(first: *const W) -> usize {
    let (mut at, mut count) = (first, 0);
    while !at.is_null() && count <= QUEUE_SIZE_MAX {
        // SAFETY: the caller's promise.
        at = unsafe { (*at).next() };
        count += 1;
    }
    count
}

/// Returns the refused request in `bad`, and the error.
///
/// # Safety
/// `bad` is NULL or writable, and `first` as in [`length`].
unsafe fn refused<W: Linked>(
    result: Result<Result<(), PostError>, Error>,
    first: *const W,
    bad: *mut *const W,
) -> Result<(), Error> {
    let nothing = |error| Err(PostError { posted: 0, error });
    let Err(PostError { posted, error }) = result.unwrap_or_else(nothing) else { return Ok(()) };
    let mut at = first;
    for _ in 0..posted {
        // SAFETY: so many requests were read before.
        at = unsafe { (*at).next() };
    }
    if !bad.is_null() {
        // SAFETY: the caller's place.
        unsafe { bad.write(at) };
    }
    Err(error)
}

/// The pieces of a request.
///
/// # Safety
/// `list` is NULL or has `count` pieces.
unsafe fn pieces<'a>(list: *const erd_sge, count: u32) -> Result<&'a [Sge<'a>], Error> {
    if count == 0 {
        return Ok(&[]);
    }
    if count as usize > IOV_LIMIT {
        return Err(Error::argument("num_sge", count, format_args!("0 to {IOV_LIMIT}")));
    }
    not_null("sg_list", list)?;
    // SAFETY: the caller's promise; both structures are an address and a length.
    Ok(unsafe { std::slice::from_raw_parts(list.cast::<Sge<'_>>(), count as usize) })
}

const _: () = assert!(size_of::<erd_sge>() == size_of::<Sge<'_>>());

/// The operation of a request.
///
/// # Safety
/// The request's list is as long as it says.
unsafe fn operation<'a>(wr: &erd_send_wr) -> Result<Operation<'a>, Error> {
    // SAFETY: the caller's promise.
    let sg_list = unsafe { pieces(wr.sg_list, wr.num_sge) }?;
    let remote = RemoteAddr { addr: wr.remote_addr, rkey: wr.rkey };
    let imm_data = Some(wr.imm_data);
    let word = || match sg_list {
        [result] => Ok(*result),
        _ => Err(Error::argument("num_sge", wr.num_sge, "1 for the result of an atomic")),
    };
    Ok(match wr.opcode {
        ERD_WR_SEND => Operation::Send { sg_list, imm_data: None },
        ERD_WR_SEND_WITH_IMM => Operation::Send { sg_list, imm_data },
        ERD_WR_RDMA_WRITE => Operation::RdmaWrite { sg_list, remote, imm_data: None },
        ERD_WR_RDMA_WRITE_WITH_IMM => Operation::RdmaWrite { sg_list, remote, imm_data },
        ERD_WR_RDMA_READ => Operation::RdmaRead { sg_list, remote },
        ERD_WR_ATOMIC_FETCH_AND_ADD => {
            Operation::FetchAdd { result: word()?, remote, add: wr.compare_add }
        }
        ERD_WR_ATOMIC_CMP_AND_SWP => {
            let (compare, swap) = (wr.compare_add, wr.swap);
            Operation::CompareSwap { result: word()?, remote, compare, swap }
        }
        opcode => return Err(Error::argument("opcode", opcode, "one of enum erd_wr_opcode")),
    })
}

/// `erd_post_send(3)`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn erd_post_send(
    qp: *mut erd_qp,
    wr: *const erd_send_wr,
    bad_wr: *mut *const erd_send_wr,
) -> c_int {
    let list = wr;
    status("erd_post_send", || {
        let posted = with(&QPS, "qp", qp, |qp| {
            not_null("wr", list)?;
            // SAFETY: the caller's list.
            let (count, mut at) = unsafe { (length(list), list) };
            Ok(qp.post(count, "send", |_, poster| {
                // SAFETY: within the list.
                let wr = unsafe { &*at };
                at = wr.next;
                let invalid =
                    || Error::argument("send_flags", wr.send_flags, "flags of enum erd_send_flags");
                let flags = SendFlags::from_bits(wr.send_flags).ok_or_else(invalid)?;
                no_reserved(wr.reserved)?;
                // SAFETY: the caller's list of pieces, which it lends until completion.
                let operation = unsafe { operation(wr) }?;
                with(&AHS, "ah", wr.ah, |to| {
                    let request = SendRequest { wr_id: wr.wr_id, to, operation, flags };
                    // SAFETY: as above.
                    unsafe { qp.send_one(poster, &request) }
                })
            }))
        });
        // SAFETY: the caller's list and place.
        unsafe { refused(posted, list, bad_wr) }
    })
}

/// `erd_post_recv(3)`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn erd_post_recv(
    qp: *mut erd_qp,
    wr: *const erd_recv_wr,
    bad_wr: *mut *const erd_recv_wr,
) -> c_int {
    let list = wr;
    status("erd_post_recv", || {
        let posted = with(&QPS, "qp", qp, |qp| {
            not_null("wr", list)?;
            // SAFETY: the caller's list.
            let (count, mut at) = unsafe { (length(list), list) };
            Ok(qp.post(count, "receive", |_, poster| {
                // SAFETY: within the list.
                let wr = unsafe { &*at };
                at = wr.next;
                no_reserved(wr.reserved)?;
                // SAFETY: the caller's list of pieces, which it lends until completion.
                unsafe {
                    let sg_list = pieces(wr.sg_list, wr.num_sge)?;
                    recv_one(poster, &ReceiveRequest { wr_id: wr.wr_id, sg_list })
                }
            }))
        });
        // SAFETY: the caller's list and place.
        unsafe { refused(posted, list, bad_wr) }
    })
}

/// A field that is not used yet.
fn no_reserved(value: u32) -> Result<(), Error> {
    if value == 0 { Ok(()) } else { Err(Error::argument("reserved", value, 0)) }
}
