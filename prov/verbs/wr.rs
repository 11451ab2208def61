//! Work requests: sends, receives, reads, writes and atomics.

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
    /// A piece to send or write to a peer.
    fn from(bytes: &'a [u8]) -> Sge<'a> {
        Sge::raw(bytes.as_ptr().cast_mut(), bytes.len())
    }
}

impl<'a> From<&'a mut [u8]> for Sge<'a> {
    /// A piece to receive into, or for the answer of a read or atomic.
    fn from(bytes: &'a mut [u8]) -> Sge<'a> {
        Sge::raw(bytes.as_mut_ptr(), bytes.len())
    }
}

bitflags! {
    /// Flags of a request (`enum ibv_send_flags`).
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct SendFlags: u32 {
        /// It waits for earlier reads and atomics to the same peer.
        const FENCE = 1 << 0;
        /// It reports success, too, not only failure.
        const SIGNALED = 1 << 1;
        /// The call copies the memory, which the program may reuse when it returns: at most 1 KiB, for sends and
        /// writes.
        const INLINE = 1 << 3;
    }
}

/// The operation of a send request (`enum ibv_wr_opcode`).
#[derive(Clone, Copy, Debug)]
pub enum Operation<'a> {
    /// Sends a message, to the next receive that the peer has posted.
    Send {
        /// The message, up to 8 pieces.
        sg_list: &'a [Sge<'a>],
        /// Comes with the receive's completion.
        imm_data: Option<u64>,
    },
    /// Writes to the peer's memory.
    RdmaWrite {
        /// Bytes to write, up to 8 pieces.
        sg_list: &'a [Sge<'a>],
        /// Place in the peer's memory.
        remote: RemoteAddr,
        /// Notifies the peer, by a completion of its own.
        imm_data: Option<u64>,
    },
    /// Reads the peer's memory.
    RdmaRead {
        /// Memory for the bytes, up to 8 pieces.
        sg_list: &'a [Sge<'a>],
        /// Their place in the peer's memory.
        remote: RemoteAddr,
    },
    /// Adds to an integer of 8 bytes at the peer, and returns the old value.
    FetchAdd {
        /// Memory for the old value: 8 bytes.
        result: Sge<'a>,
        /// The integer; its address is best a multiple of 8.
        remote: RemoteAddr,
        /// The addend; the sum wraps.
        add: u64,
    },
    /// Sets 8 bytes at the peer if they are as expected, and returns the old value.
    CompareSwap {
        /// Memory for the old value: 8 bytes.
        result: Sge<'a>,
        /// The integer; its address is best a multiple of 8.
        remote: RemoteAddr,
        /// The expected value.
        compare: u64,
        /// The new value.
        swap: u64,
    },
}

/// A request to a peer (`struct ibv_send_wr`).
///
/// It borrows its memory until it is posted:
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
    /// The peer.
    pub to: &'a AddressHandle,
    /// The operation.
    pub operation: Operation<'a>,
    /// Its flags.
    pub flags: SendFlags,
}

/// Memory for one message (`struct ibv_recv_wr`).
#[derive(Clone, Copy, Debug)]
pub struct ReceiveRequest<'a> {
    /// The program's own number for it, which its completion has.
    pub wr_id: u64,
    /// Memory for the message, up to 8 pieces.
    pub sg_list: &'a [Sge<'a>],
}
