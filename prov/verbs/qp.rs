//! Queue pairs.

use super::context::check_owner;
use super::cq::CompletionQueue;
use super::error::Error;
use super::mr::RemoteAddr;
use super::pd::{AddressHandle, PdInner, ProtectionDomain};
use super::wr::{Operation, ReceiveRequest, SendFlags, SendRequest, Sge};
use erd_core::atomics::{Datatype, Op};
use erd_core::endpoint::{
    Access, Bound, Buffers, Call, Endpoint, EpConfig, Poster, RecvRequest, RmaPost,
    SendRequest as SendPost,
};
use erd_core::flags::Flags;
use erd_core::peer_index::ANYONE;
use erd_core::settings::{IOV_LIMIT, QUEUE_SIZE_MAX};
use erd_core::uses::Use;
use erd_rd::{Atomic, Form, Target, Targets};
use erd_sys::process::Process;
use std::ffi::c_void;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Options of a queue pair (`struct ibv_qp_init_attr`).
#[derive(Clone, Copy)]
pub struct QpOptions<'a> {
    /// Queue for its sends, writes, reads and atomics.
    pub send_cq: &'a CompletionQueue,
    /// Queue for its receives; it may be the same.
    pub recv_cq: &'a CompletionQueue,
    /// Most send requests outstanding or with unread completions: 1 to 65536, or 0 for the setting `FI_ERD_TX_SIZE`.
    pub max_send_wr: u32,
    /// Receives likewise, or 0 for `FI_ERD_RX_SIZE`.
    pub max_recv_wr: u32,
    /// Every request is signaled.
    pub sq_sig_all: bool,
    /// Its UDP port, for peers; 0 for a free one.
    pub port: u16,
}

impl<'a> QpOptions<'a> {
    /// A queue pair that completes everything in `cq`, with sizes from the settings, a free port, and reports of
    /// success only for signaled requests.
    #[must_use]
    pub fn new(cq: &'a CompletionQueue) -> QpOptions<'a> {
        QpOptions {
            send_cq: cq,
            recv_cq: cq,
            max_send_wr: 0,
            max_recv_wr: 0,
            sq_sig_all: false,
            port: 0,
        }
    }
}

/// Reason why not all requests of a list were posted.
#[derive(Debug, thiserror::Error)]
#[error("request {posted} was not posted: {error}")]
pub struct PostError {
    /// Number of requests posted, before the refused one.
    pub posted: usize,
    /// Reason for refusing the next one.
    #[source]
    pub error: Error,
}

impl From<PostError> for Error {
    fn from(refused: PostError) -> Error {
        refused.error
    }
}

/// A reliable-datagram queue pair (`struct ibv_qp`): it sends to any peer, and receives from any.
///
/// It is ready to send and receive once it is made. Dropping it delivers inline posts, says goodbye to its peers, and
/// ends all other requests without completions. So first wait for the completions of sends that matter.
pub struct QueuePair {
    ep: Arc<Endpoint>,
    pd: Arc<PdInner>,
    number: u32,
    name: SocketAddr,
    process: Process,
    closed: AtomicBool,
    _pd_use: Use,
}

impl ProtectionDomain {
    /// A new queue pair (`ibv_create_qp`), ready to send and receive.
    ///
    /// # Errors
    /// Options out of range, a taken port, no file descriptors or memory; [`Error::Forked`] in a child.
    pub fn create_qp(&self, options: &QpOptions<'_>) -> Result<QueuePair, Error> {
        check_owner(self.inner.process)?;
        QueuePair::new(&self.inner, options)
    }
}

/// Gives each queue pair of the process its number.
static NEXT_NUMBER: AtomicU32 = AtomicU32::new(1);

fn size(parameter: &'static str, asked: u32, default: usize) -> Result<usize, Error> {
    match asked as usize {
        0 => Ok(default.min(QUEUE_SIZE_MAX)),
        size if size <= QUEUE_SIZE_MAX => Ok(size),
        size => Err(Error::argument(
            parameter,
            size,
            format_args!("1 to {QUEUE_SIZE_MAX}, or 0 for {}", default.min(QUEUE_SIZE_MAX)),
        )),
    }
}

impl QueuePair {
    pub(super) fn new(pd: &Arc<PdInner>, options: &QpOptions<'_>) -> Result<QueuePair, Error> {
        let (domain, settings) = (&pd.domain, &pd.domain.settings);
        let number = NEXT_NUMBER.fetch_add(1, Ordering::Relaxed);
        let config = EpConfig::for_queue_pair(
            number,
            size("max_send_wr", options.max_send_wr, settings.tx_size)?,
            size("max_recv_wr", options.max_recv_wr, settings.rx_size)?,
        );
        let make = |errno| Error::system("create a queue pair", errno);
        let at = SocketAddr::new(domain.local, options.port);
        let ep = Endpoint::new(domain, &pd.regions, config, at).map_err(make)?;
        let (send_cq, recv_cq) = (&options.send_cq.inner, &options.recv_cq.inner);
        let bindings = [
            Bound::Av(&pd.av),
            Bound::Cq { cq: send_cq, of: Flags::SEND, selective: !options.sq_sig_all },
            Bound::Cq { cq: recv_cq, of: Flags::RECV, selective: false },
        ];
        bindings.into_iter().try_for_each(|bound| ep.attach(bound, 0)).map_err(make)?;
        ep.enable().map_err(make)?;
        let name = ep.name().ok_or(Error::Closed)?;
        Ok(QueuePair {
            ep,
            pd: Arc::clone(pd),
            number,
            name,
            process: Process::current(),
            closed: AtomicBool::new(false),
            _pd_use: pd.users.add(),
        })
    }

    /// Its number in this process, which its completions have.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Its address, for peers to make address handles of.
    #[must_use]
    pub fn name(&self) -> SocketAddr {
        self.name
    }

    /// Posts requests in order (`ibv_post_send`). Those of one call share datagrams where they
    /// can.
    ///
    /// The compiler asks for the promise below:
    ///
    /// ```compile_fail,E0133
    /// # use erd::verbs::{QueuePair, SendRequest};
    /// fn post(qp: &QueuePair, request: SendRequest<'_>) {
    ///     qp.post_send(&[request]).unwrap();
    /// }
    /// ```
    ///
    /// # Errors
    /// [`PostError`] has the refused request and the reason; those before it are posted, those after it are not.
    ///
    /// # Safety
    /// The memory that a request names must stay valid until its completion has been polled or the queue pair has been
    /// dropped. Meanwhile nobody may write to memory that is sent from, nor touch memory that is read into. Nothing
    /// shows the end of an unsignaled request, not even the completion of a later one. With [`SendFlags::INLINE`] all
    /// this ends with the call.
    pub unsafe fn post_send(&self, requests: &[SendRequest<'_>]) -> Result<(), PostError> {
        // SAFETY: the caller's promise.
        self.post(requests.len(), "send", |at, poster| unsafe {
            self.send_one(poster, &requests[at])
        })
    }

    /// Posts memory for messages, which take it in the order of their arrival (`ibv_post_recv`).
    ///
    /// # Errors
    /// As [`QueuePair::post_send`].
    ///
    /// # Safety
    /// The memory must stay valid, and nobody may touch it, until the request's completion has
    /// been polled or the queue pair has been dropped.
    pub unsafe fn post_recv(&self, requests: &[ReceiveRequest<'_>]) -> Result<(), PostError> {
        // SAFETY: the caller's promise.
        self.post(requests.len(), "receive", |at, poster| unsafe {
            recv_one(poster, &requests[at])
        })
    }

    /// Sends a message of at most 1 KiB, copied in the call, without a report of success.
    ///
    /// # Errors
    /// As [`QueuePair::post_send`].
    pub fn send_inline(
        &self,
        to: &AddressHandle,
        bytes: &[u8],
        imm_data: Option<u64>,
    ) -> Result<(), Error> {
        let operation = Operation::Send { sg_list: &[Sge::from(bytes)], imm_data };
        let flags = SendFlags::INLINE;
        // SAFETY: the bytes are borrowed for the call, in which they are copied.
        unsafe { self.post_send(&[SendRequest { wr_id: 0, to, operation, flags }])? };
        Ok(())
    }

    /// Calls `post` for 0 to `count - 1`, in order, until it refuses one.
    pub(crate) fn post(
        &self,
        count: usize,
        queue: &'static str,
        post: impl FnMut(usize, &mut Poster<'_>) -> Result<(), Error>,
    ) -> Result<(), PostError> {
        if !self.process.is_current() {
            return Err(PostError { posted: 0, error: Error::Forked });
        }
        let refused = |errno| Error::of_post(queue, errno);
        self.ep
            .post_each(count, post, refused)
            .map_err(|(posted, error)| PostError { posted, error })
    }

    /// # Safety
    /// As [`QueuePair::post_send`].
    pub(crate) unsafe fn send_one(
        &self,
        poster: &mut Poster<'_>,
        request: &SendRequest<'_>,
    ) -> Result<(), Error> {
        if !Arc::ptr_eq(&request.to.av, &self.pd.av) {
            let valid = "one of the queue pair's protection domain";
            return Err(Error::argument("address handle", request.to.peer(), valid));
        }
        let call = Call::new(request.to.fi_addr, context(request.wr_id), flags(request)?);
        // SAFETY: the caller's promise.
        let posted = unsafe {
            match request.operation {
                Operation::Send { sg_list, imm_data } => {
                    let (buffers, call) = (Buffers::default(), Call { data: imm_data, ..call });
                    let mut post = SendPost { buffers, tag: None, call };
                    gather(sg_list, &mut post.buffers)?;
                    post.buffers = self.registered(post.buffers, sg_list);
                    poster.send(&mut post)
                }
                Operation::RdmaWrite { sg_list, remote, imm_data } => {
                    let call = Call { data: imm_data, ..call };
                    let mut buffers = Buffers::default();
                    gather(sg_list, &mut buffers)?;
                    let buffers = self.registered(buffers, sg_list);
                    let targets = targets(remote, buffers.len_bytes())?;
                    poster.rma(&mut RmaPost::write(buffers, targets, call))
                }
                Operation::RdmaRead { sg_list, remote } => {
                    let mut buffers = Buffers::default();
                    gather(sg_list, &mut buffers)?;
                    let targets = targets(remote, buffers.len_bytes())?;
                    poster.rma(&mut RmaPost::read(buffers, targets, call))
                }
                Operation::FetchAdd { result, remote, add } => {
                    let mut post = atomic((Op::Sum, Form::Fetch), &result, remote, call)?;
                    poster.rma_with(&mut post, add, None)
                }
                Operation::CompareSwap { result, remote, compare, swap } => {
                    let mut post = atomic((Op::Cswap, Form::Compare), &result, remote, call)?;
                    poster.rma_with(&mut post, swap, Some(compare))
                }
            }
        };
        posted.map_err(|errno| Error::of_post("send", errno))
    }

    /// The same buffers, with the registered memory of one of the pieces, if they are long enough to send without a
    /// copy.
    fn registered(&self, buffers: Buffers, sg_list: &[Sge<'_>]) -> Buffers {
        let least_bytes = self.pd.domain.zero_copy_bytes.unwrap_or(u64::MAX);
        if buffers.len_bytes() < least_bytes {
            return buffers;
        }
        let find = |sge: &Sge<'_>| self.pd.pinned.find(sge.addr.addr(), sge.len_bytes);
        buffers.within(sg_list.iter().find_map(find))
    }

    /// Ends the queue pair; a second time does nothing.
    pub(crate) fn close(&self) {
        if self.process.is_current() && !self.closed.swap(true, Ordering::AcqRel) {
            self.ep.close();
        }
    }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        self.close();
        if !self.process.is_current() {
            // Its sockets and devices are the parent's.
            std::mem::forget(Arc::clone(&self.ep));
        }
    }
}

fn context(wr_id: u64) -> *mut c_void {
    std::ptr::without_provenance_mut(wr_id as usize)
}

fn flags(request: &SendRequest<'_>) -> Result<Flags, Error> {
    let copied = matches!(request.operation, Operation::Send { .. } | Operation::RdmaWrite { .. });
    if request.flags.contains(SendFlags::INLINE) && !copied {
        return Err(Error::argument("flags", "INLINE", "INLINE for sends and writes alone"));
    }
    let of = |flag, fi| if request.flags.contains(flag) { fi } else { Flags::empty() };
    Ok(of(SendFlags::FENCE, Flags::FENCE)
        | of(SendFlags::SIGNALED, Flags::COMPLETION)
        | of(SendFlags::INLINE, Flags::INJECT))
}

/// Puts the pieces of a request into its buffers, which are empty.
///
/// # Safety
/// The pieces are valid until the request is done.
unsafe fn gather(sg_list: &[Sge<'_>], into: &mut Buffers) -> Result<(), Error> {
    // SAFETY: the caller's promise.
    let add = |sge: &Sge<'_>| unsafe { into.add(sge.addr.cast(), sge.len_bytes) };
    if sg_list.len() <= IOV_LIMIT && sg_list.iter().all(add) {
        return Ok(());
    }
    let valid = format_args!("0 to {IOV_LIMIT} pieces of less than 2^63 bytes in all");
    Err(Error::argument("sg_list", format_args!("{} long", sg_list.len()), valid))
}

/// # Safety
/// As [`QueuePair::post_recv`].
pub(crate) unsafe fn recv_one(
    poster: &mut Poster<'_>,
    request: &ReceiveRequest<'_>,
) -> Result<(), Error> {
    let mut post = RecvRequest::new(ANYONE, context(request.wr_id), Flags::COMPLETION);
    // SAFETY: the caller's promise.
    unsafe { gather(request.sg_list, &mut post.buffers) }?;
    let posted = poster.recv(&mut post);
    posted.map_err(|errno| Error::of_post("receive", errno))
}

/// A stretch of `len_bytes` of a peer's memory.
fn targets(remote: RemoteAddr, len_bytes: u64) -> Result<Targets, Error> {
    let target = Target { addr: remote.addr, len_bytes, key: remote.rkey };
    let wraps = || Error::argument("length", len_bytes, "what lies below 2^64 at the peer");
    Targets::new(&[target]).ok_or_else(wraps)
}

/// A request for 8 bytes of a peer's memory, whose old value is the result.
///
/// # Safety
/// As [`QueuePair::post_send`].
unsafe fn atomic(
    (op, form): (Op, Form),
    result: &Sge<'_>,
    remote: RemoteAddr,
    call: Call,
) -> Result<RmaPost, Error> {
    const BYTES: usize = size_of::<u64>();
    if result.len_bytes != BYTES {
        return Err(Error::argument("length of the result", result.len_bytes, BYTES));
    }
    let access = Access::Atomic(Atomic { op: op as u8, datatype: Datatype::Uint64 as u8, form });
    // SAFETY: the caller's promise.
    let buffers = unsafe { Buffers::one(result.addr.cast(), BYTES) };
    Ok(RmaPost { access, ..RmaPost::write(buffers, targets(remote, BYTES as u64)?, call) })
}
