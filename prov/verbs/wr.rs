//! Work requests: what is to be sent, received, read, written.

use super::mr::RemoteAddr;
use super::pd::AddressHandle;
use bitflags::bitflags;
use std::marker::PhantomData;

/// A piece of the program's memory (`struct ibv_sge`). It need not be registered.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Sge<'a> {
    pub(super) addr: *mut u8,
    pub(super) len_bytes: usize,
    memory: PhantomData<&'a mut [u8]>,
}

impl<'a> Sge<'a> {
    /// A piece by address and length. Only posting it touches it.
    #[must_use]
    pub fn raw(addr: *mut u8, len_bytes: usize) -> Sge<'a> {
        Sge { addr, len_bytes, memory: PhantomData }
    }
}

impl<'a> From<&'a [u8]> for Sge<'a> {
    /// To be sent or written to a peer, which reads it.
    fn from(bytes: &'a [u8]) -> Sge<'a> {
        Sge::raw(bytes.as_ptr().cast_mut(), bytes.len())
    }
}

impl<'a> From<&'a mut [u8]> for Sge<'a> {
    /// To be received into, or for the answer of a read or atomic.
    fn from(bytes: &'a mut [u8]) -> Sge<'a> {
        Sge::raw(bytes.as_mut_ptr(), bytes.len())
    }
}

bitflags! {
    /// How a request is done (`enum ibv_send_flags`).
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct SendFlags: u32 {
        /// Not before the reads and atomics posted before it, to the same peer, are done.
        const FENCE = 1 << 0;
        /// Success is reported too, not failure alone.
        const SIGNALED = 1 << 1;
        /// The memory is copied in the call, and the program's again when it returns: 1 KiB at
        /// most, for sends and writes.
        const INLINE = 1 << 3;
    }
}

/// What a send request does (`enum ibv_wr_opcode`).
#[derive(Clone, Copy, Debug)]
pub enum Operation<'a> {
    /// Sends a message to whatever receive the peer has posted.
    Send {
        /// The message, up to 8 pieces.
        sg_list: &'a [Sge<'a>],
        /// Comes with the receive's completion.
        imm_data: Option<u64>,
    },
    /// Writes to the peer's memory.
    RdmaWrite {
        /// What is written, up to 8 pieces.
        sg_list: &'a [Sge<'a>],
        /// Where to.
        remote: RemoteAddr,
        /// Tells the peer, by a completion of its own.
        imm_data: Option<u64>,
    },
    /// Reads the peer's memory.
    RdmaRead {
        /// Where the bytes go, up to 8 pieces.
        sg_list: &'a [Sge<'a>],
        /// Where they are.
        remote: RemoteAddr,
    },
    /// Adds to 8 bytes at the peer, an integer, and answers what they were.
    FetchAdd {
        /// Where the old value goes: 8 bytes.
        result: Sge<'a>,
        /// The integer; its address is best a multiple of 8.
        remote: RemoteAddr,
        /// The addend; the sum wraps.
        add: u64,
    },
    /// Sets 8 bytes at the peer if they are as expected, and answers what they were.
    CompareSwap {
        /// Where the old value goes: 8 bytes.
        result: Sge<'a>,
        /// The integer; its address is best a multiple of 8.
        remote: RemoteAddr,
        /// What they must be.
        compare: u64,
        /// What they become.
        swap: u64,
    },
}

/// A request to a peer (`struct ibv_send_wr`).
///
/// It borrows what it names until it is posted:
///
/// ```compile_fail,E0505
/// # use erd::verbs::{AddressHandle, Operation, QueuePair, SendFlags, SendRequest};
/// fn post(qp: &QueuePair, to: AddressHandle, operation: Operation<'_>) {
///     let request = SendRequest { wr_id: 1, to: &to, operation, flags: SendFlags::SIGNALED };
///     drop(to);
///     // SAFETY: nothing is sent, since this does not compile.
///     unsafe { qp.post_send(&[request]) }.unwrap();
/// }
/// ```
#[derive(Clone, Copy)]
pub struct SendRequest<'a> {
    /// The program's own number for it, which its completion has.
    pub wr_id: u64,
    /// Which peer.
    pub to: &'a AddressHandle,
    /// What is done.
    pub operation: Operation<'a>,
    /// How it is done.
    pub flags: SendFlags,
}

/// Memory for one message (`struct ibv_recv_wr`).
#[derive(Clone, Copy, Debug)]
pub struct ReceiveRequest<'a> {
    /// The program's own number for it, which its completion has.
    pub wr_id: u64,
    /// Where the message goes, up to 8 pieces.
    pub sg_list: &'a [Sge<'a>],
}
