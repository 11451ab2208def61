//! The safe form of posting: a request owns its memory until it is done.

use super::context::Context;
use super::cq::{Completion, CompletionQueue, Notify};
use super::error::Error;
use super::mr::RemoteAddr;
use super::pd::{AddressHandle, ProtectionDomain};
use super::qp::{QpOptions, QueuePair};
use super::wr::{Operation, ReceiveRequest, SendFlags, SendRequest, Sge};
use parking_lot::Mutex;
use slab::Slab;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// Bytes of an atomic's operand.
const WORD_BYTES: usize = size_of::<u64>();

/// Sizes and port of an [`OwningQueuePair`]; 0 means as in [`QpOptions`].
#[derive(Clone, Copy, Debug, Default)]
pub struct QpSizes {
    /// [`QpOptions::max_send_wr`].
    pub max_send_wr: u32,
    /// [`QpOptions::max_recv_wr`].
    pub max_recv_wr: u32,
    /// [`QpOptions::port`].
    pub port: u16,
}

/// A queue pair with a completion queue of its own. Requests take buffers, and completions give them back, so no call
/// is unsafe.
///
/// A buffer cannot be used while its request is under way:
///
/// ```compile_fail,E0382
/// # use erd::verbs::{AddressHandle, OwningQueuePair};
/// fn send(qp: &OwningQueuePair, peer: &AddressHandle, buffer: Vec<u8>) {
///     qp.send(1, peer, buffer, None).unwrap();
///     drop(buffer);
/// }
/// ```
///
/// The same without the last use:
///
/// ```
/// # use erd::verbs::{AddressHandle, OwningQueuePair};
/// fn send(qp: &OwningQueuePair, peer: &AddressHandle, buffer: Vec<u8>) {
///     qp.send(1, peer, buffer, None).unwrap();
/// }
/// ```
pub struct OwningQueuePair {
    // Dropped before the buffers: after its close nobody reaches them.
    qp: QueuePair,
    cq: CompletionQueue,
    /// By the queue pair's number for the request. Bounded by its queues' sizes.
    under_way: Mutex<Slab<Request>>,
}

struct Request {
    wr_id: u64,
    buffer: Vec<u8>,
}

/// A completed request, with its buffer.
#[derive(Clone, Debug)]
pub struct Done {
    /// Its completion.
    pub completion: Completion,
    /// The posted buffer, with the bytes received or read; empty for a peer's write with immediate data.
    pub buffer: Vec<u8>,
}

impl Done {
    /// The bytes received: the beginning of the buffer; all of it for other requests.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        let received = self.completion.opcode == super::cq::Opcode::Recv;
        let len = if received { self.completion.byte_len as usize } else { self.buffer.len() };
        &self.buffer[..len.min(self.buffer.len())]
    }

    /// The peer's value before an atomic request.
    #[must_use]
    pub fn old_value(&self) -> Option<u64> {
        let word = self.buffer.first_chunk::<WORD_BYTES>()?;
        (self.completion.opcode == super::cq::Opcode::Atomic).then(|| u64::from_ne_bytes(*word))
    }
}

/// A refused request, with its buffer.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct Rejected {
    /// The reason.
    pub error: Error,
    /// The buffer, as it was.
    pub buffer: Vec<u8>,
}

impl From<Rejected> for Error {
    fn from(rejected: Rejected) -> Error {
        rejected.error
    }
}

impl OwningQueuePair {
    /// A new queue pair of `pd`, which is one of `context`.
    ///
    /// # Errors
    /// As [`ProtectionDomain::create_qp`] and [`Context::create_cq`].
    pub fn new(
        context: &Context,
        pd: &ProtectionDomain,
        sizes: QpSizes,
    ) -> Result<OwningQueuePair, Error> {
        let cq = context.create_cq()?;
        let QpSizes { max_send_wr, max_recv_wr, port } = sizes;
        let options =
            QpOptions { max_send_wr, max_recv_wr, port, sq_sig_all: true, ..QpOptions::new(&cq) };
        let qp = pd.create_qp(&options)?;
        Ok(OwningQueuePair { qp, cq, under_way: Mutex::default() })
    }

    /// Its address, for peers to make address handles of.
    #[must_use]
    pub fn name(&self) -> SocketAddr {
        self.qp.name()
    }

    /// Receives one message into `buffer`, up to its length.
    ///
    /// # Errors
    /// [`Rejected`] gives the buffer back.
    pub fn recv(&self, wr_id: u64, buffer: Vec<u8>) -> Result<(), Rejected> {
        self.keep(wr_id, buffer, |number, sge| {
            // SAFETY: the buffer is kept until its completion was polled, or dropped after the
            // queue pair.
            let posted =
                unsafe { self.qp.post_recv(&[ReceiveRequest { wr_id: number, sg_list: &[sge] }]) };
            posted.map_err(Error::from)
        })
    }

    /// Sends a message.
    ///
    /// # Errors
    /// As [`OwningQueuePair::recv`].
    pub fn send(
        &self,
        wr_id: u64,
        to: &AddressHandle,
        buffer: Vec<u8>,
        imm_data: Option<u64>,
    ) -> Result<(), Rejected> {
        self.keep(wr_id, buffer, |number, sge| {
            self.post(number, to, Operation::Send { sg_list: &[sge], imm_data })
        })
    }

    /// Writes to the memory of a peer; immediate data notifies it.
    ///
    /// # Errors
    /// As [`OwningQueuePair::recv`].
    pub fn write(
        &self,
        wr_id: u64,
        to: &AddressHandle,
        buffer: Vec<u8>,
        remote: RemoteAddr,
        imm_data: Option<u64>,
    ) -> Result<(), Rejected> {
        self.keep(wr_id, buffer, |number, sge| {
            self.post(number, to, Operation::RdmaWrite { sg_list: &[sge], remote, imm_data })
        })
    }

    /// Fills the whole `buffer` from the memory of a peer.
    ///
    /// # Errors
    /// As [`OwningQueuePair::recv`].
    pub fn read(
        &self,
        wr_id: u64,
        from: &AddressHandle,
        buffer: Vec<u8>,
        remote: RemoteAddr,
    ) -> Result<(), Rejected> {
        self.keep(wr_id, buffer, |number, sge| {
            self.post(number, from, Operation::RdmaRead { sg_list: &[sge], remote })
        })
    }

    /// Adds to a number of 64 bits at a peer; [`Done::old_value`] is the old one.
    ///
    /// # Errors
    /// Reason for refusing it.
    pub fn fetch_add(
        &self,
        wr_id: u64,
        at: &AddressHandle,
        remote: RemoteAddr,
        add: u64,
    ) -> Result<(), Error> {
        let posted = self.keep(wr_id, vec![0; WORD_BYTES], |number, result| {
            self.post(number, at, Operation::FetchAdd { result, remote, add })
        });
        Ok(posted?)
    }

    /// Sets a number of 64 bits at a peer to `swap` if it is `compare`; [`Done::old_value`] is the old one.
    ///
    /// # Errors
    /// Reason for refusing it.
    pub fn compare_swap(
        &self,
        wr_id: u64,
        at: &AddressHandle,
        remote: RemoteAddr,
        (compare, swap): (u64, u64),
    ) -> Result<(), Error> {
        let posted = self.keep(wr_id, vec![0; WORD_BYTES], |number, result| {
            self.post(number, at, Operation::CompareSwap { result, remote, compare, swap })
        });
        Ok(posted?)
    }

    /// Returns one completed request, if there is one. Does not wait.
    ///
    /// # Errors
    /// As [`CompletionQueue::poll`].
    pub fn poll(&self) -> Result<Option<Done>, Error> {
        let mut place = [Completion::default()];
        let Some(found) = self.cq.poll(&mut place)?.first().copied() else { return Ok(None) };
        let number = found.wr_id as usize;
        if found.opcode == super::cq::Opcode::RecvRdmaWithImm {
            return Ok(Some(Done { completion: found, buffer: Vec::new() }));
        }
        let request = self.under_way.lock().try_remove(number);
        Ok(request.map(|Request { wr_id, buffer }| Done {
            completion: Completion { wr_id, ..found },
            buffer,
        }))
    }

    /// Returns one completed request, after a sleep if need be; `None` if the time runs out first.
    ///
    /// # Errors
    /// As [`CompletionQueue::poll`].
    pub fn wait(&self, timeout: Option<Duration>) -> Result<Option<Done>, Error> {
        match self.poll()? {
            Some(done) => Ok(Some(done)),
            None if self.cq.wait(timeout)? => self.poll(),
            None => Ok(None),
        }
    }

    /// [`CompletionQueue::req_notify`].
    ///
    /// # Errors
    /// As for the method of [`CompletionQueue`].
    pub fn req_notify(&self) -> Result<Notify, Error> {
        self.cq.req_notify()
    }

    /// [`CompletionQueue::fd`].
    ///
    /// # Errors
    /// As for the method of [`CompletionQueue`].
    pub fn fd(&self) -> Result<BorrowedFd<'_>, Error> {
        self.cq.fd()
    }

    fn post(&self, number: u64, to: &AddressHandle, operation: Operation<'_>) -> Result<(), Error> {
        let flags = SendFlags::SIGNALED;
        let request = SendRequest { wr_id: number, to, operation, flags };
        // SAFETY: as in `recv`.
        Ok(unsafe { self.qp.post_send(&[request]) }?)
    }

    /// Keeps a buffer, and posts it under a number of its own.
    fn keep(
        &self,
        wr_id: u64,
        mut buffer: Vec<u8>,
        post: impl FnOnce(u64, Sge<'_>) -> Result<(), Error>,
    ) -> Result<(), Rejected> {
        // A buffer's memory does not move with the vector.
        let (start, len_bytes) = (buffer.as_mut_ptr(), buffer.len());
        let number = self.under_way.lock().insert(Request { wr_id, buffer });
        match post(number as u64, Sge::raw(start, len_bytes)) {
            Ok(()) => Ok(()),
            Err(error) => {
                let buffer = self.under_way.lock().remove(number).buffer;
                Err(Rejected { error, buffer })
            }
        }
    }
}
