//! The calls of `fi_atomic(3)`.

use super::fid::{Caller, state};
use crate::errno;
use erd_core::atomics::Operation;
use erd_core::endpoint::Buffers;
use erd_core::endpoint::Call;
use erd_core::endpoint::Post;
use erd_core::endpoint::call::{list, targets_of};
use erd_core::endpoint::{Access, RmaPost};
use erd_core::flags::Flags;
use erd_core::settings::IOV_LIMIT;
use erd_ffi::fi::{
    FI_ATOMIC_READ, FI_COMPARE_ATOMIC, FI_EINVAL, FI_EMSGSIZE, FI_EOPNOTSUPP, FI_FETCH_ATOMIC,
    NOSYS_ATOMIC, fi_addr_t, fi_atomic_attr, fi_datatype, fi_ioc, fi_msg_atomic, fi_msg_compare,
    fi_msg_fetch, fi_op, fi_ops_atomic, fi_rma_ioc, fid_domain, fid_ep,
};
use erd_ffi::guard::guarded;
use erd_rd::wire::remote::{ATOMIC_MAX_BYTES, TARGETS_MAX};
use erd_rd::{Atomic, Form, Target, Targets};
use std::ffi::{c_int, c_void};

/// All calls, for every endpoint.
pub(super) static ATOMIC_OPS: fi_ops_atomic = fi_ops_atomic {
    write,
    writev,
    writemsg,
    inject,
    readwrite,
    readwritev,
    readwritemsg,
    compwrite,
    compwritev,
    compwritemsg,
    writevalid,
    readwritevalid,
    compwritevalid,
    ..NOSYS_ATOMIC
};

/// Lists of elements as a call passes them: NULL or `count` long.
#[derive(Clone, Copy)]
struct Elements(*const fi_ioc, usize);

impl Elements {
    const NONE: Elements = Elements(std::ptr::null(), 0);

    fn one(part: &fi_ioc) -> Elements {
        Elements(part, 1)
    }

    /// Adds the elements to `buffers`. `None` if the list is not valid.
    ///
    /// # Safety
    /// The list is as long as it says, and each part as `fi_atomic(3)` asks for.
    unsafe fn add_to(self, buffers: &mut Buffers, element_bytes: usize) -> Option<()> {
        // SAFETY: the caller's promise.
        for ioc in unsafe { list(self.0, self.1, IOV_LIMIT) }? {
            let len_bytes = ioc.count.checked_mul(element_bytes)?;
            // SAFETY: the caller's promise.
            unsafe { buffers.add(ioc.addr, len_bytes) }.then_some(())?;
        }
        Some(())
    }
}

/// The arguments of one call.
#[derive(Clone, Copy)]
pub(super) struct Request {
    form: Form,
    op: fi_op,
    datatype: fi_datatype,
    operand: Elements,
    comparand: Elements,
    result: Elements,
    targets: (*const fi_rma_ioc, usize),
    call: Call,
}

impl Request {
    /// An update of one stretch; for more, the caller fills in lists of comparands and results.
    fn new(
        form: Form,
        (op, datatype): (fi_op, fi_datatype),
        operand: Elements,
        at: &fi_rma_ioc,
        call: Call,
    ) -> Request {
        let (comparand, result) = (Elements::NONE, Elements::NONE);
        let targets = (std::ptr::from_ref(at), 1);
        Request { form, op, datatype, operand, comparand, result, targets, call }
    }

    /// # Safety
    /// All lists are as long as they say, and each part as `fi_atomic(3)` asks for.
    unsafe fn post(self, ep: Caller<'_>) -> isize {
        let refused = |errno: c_int| -(errno as isize);
        // SAFETY: the caller's promise.
        let (operation, targets) = match unsafe { self.goal() } {
            Ok(goal) => goal,
            Err(errno) => return refused(errno),
        };
        let call = Call { ctx: ep.own.ctx, ..self.call };
        // It is filled in where it is: a whole one is long.
        let mut ask = RmaPost::write(Buffers::default(), targets, call);
        // SAFETY: the caller's promise.
        if let Err(errno) = unsafe { self.prepare(operation, &mut ask) } {
            return refused(errno);
        }
        if call.flags.intersects(Flags::TRIGGER) {
            return ep.trigger(Post::Rma(Box::new(ask)));
        }
        errno::answer(ep.post(|driver| driver.post_rma(&ask)))
    }

    /// The request as work that is posted later.
    ///
    /// # Errors
    /// A positive error number.
    ///
    /// # Safety
    /// As [`Request::post`].
    pub(super) unsafe fn post_later(&self) -> Result<Post, c_int> {
        // SAFETY: the caller's promise.
        let (operation, targets) = unsafe { self.goal() }?;
        let mut ask = Box::new(RmaPost::write(Buffers::default(), targets, self.call));
        // SAFETY: the caller's promise.
        unsafe { self.prepare(operation, &mut ask) }.map(|()| Post::Rma(ask))
    }

    /// The operation, and where it is done.
    ///
    /// # Errors
    /// A positive error number.
    ///
    /// # Safety
    /// As [`Request::post`].
    unsafe fn goal(&self) -> Result<(Operation, Targets), c_int> {
        let known = Operation::numbered(self.op, self.datatype, self.form);
        // FI_TAGGED is for buffers of receives.
        let known = known.filter(|_| !self.call.flags.contains(Flags::TAGGED));
        let operation = known.ok_or(FI_EOPNOTSUPP)?;
        let element_bytes = operation.element_bytes();
        // SAFETY: the caller's promise.
        let targets = unsafe { list(self.targets.0, self.targets.1, TARGETS_MAX) };
        let targets = targets.and_then(|list| {
            targets_of(list, |ioc| {
                let len_bytes = ioc.count.checked_mul(element_bytes)? as u64;
                Some(Target { addr: ioc.addr, len_bytes, key: ioc.key })
            })
        });
        Ok((operation, targets.ok_or(FI_EINVAL)?))
    }

    /// Fills in everything but the targets and the call.
    ///
    /// # Errors
    /// A positive error number.
    ///
    /// # Safety
    /// As [`Request::post`].
    unsafe fn prepare(&self, operation: Operation, ask: &mut RmaPost) -> Result<(), c_int> {
        let element_bytes = operation.element_bytes();
        let operand = if self.op == FI_ATOMIC_READ { Elements::NONE } else { self.operand };
        // SAFETY: the caller's promise.
        let given = unsafe {
            operand
                .add_to(&mut ask.operand, element_bytes)
                .and_then(|()| self.comparand.add_to(&mut ask.comparand, element_bytes))
                .and_then(|()| self.result.add_to(&mut ask.buffers, element_bytes))
        };
        given.ok_or(FI_EINVAL)?;
        let len_bytes = ask.targets.len_bytes();
        let given_bytes = ask.operand.len_bytes().saturating_add(ask.comparand.len_bytes());
        let fits = operation.takes(len_bytes, given_bytes)
            && (self.form == Form::Update || ask.buffers.len_bytes() == len_bytes);
        if !fits || len_bytes == 0 {
            tracing::info!("fi_atomic: the lists have different numbers of elements, or none");
            return Err(FI_EINVAL);
        }
        if len_bytes > ATOMIC_MAX_BYTES {
            let most = operation.elements_max();
            tracing::info!(len_bytes, most, "fi_atomic: more elements than a request takes");
            return Err(FI_EMSGSIZE);
        }
        let (op, datatype) = (self.op as u8, self.datatype as u8);
        ask.access = Access::Atomic(Atomic { op, datatype, form: self.form });
        Ok(())
    }

    /// With the results of a message structure.
    pub(super) fn with_result(self, fetch: &fi_msg_fetch) -> Request {
        Request { result: Elements(fetch.msg_iov, fetch.iov_count), ..self }
    }

    /// With the comparands of a message structure.
    pub(super) fn with_comparand(self, compare: &fi_msg_compare) -> Request {
        Request { comparand: Elements(compare.msg_iov, compare.iov_count), ..self }
    }
}

/// One list of remote elements, as many as the local list has.
///
/// # Safety
/// The list of `local` is valid, as its caller promised.
unsafe fn one(local: Elements, addr: u64, key: u64) -> fi_rma_ioc {
    // SAFETY: the caller's promise. A list that is none is refused by who makes buffers of it.
    let parts = unsafe { list(local.0, local.1, IOV_LIMIT) }.unwrap_or_default();
    let count = parts.iter().fold(0_usize, |sum, ioc| sum.saturating_add(ioc.count));
    fi_rma_ioc { addr, count, key }
}

/// The request in a message; the caller fills in its lists of results and comparands.
///
/// # Safety
/// `msg` is valid as `fi_atomic(3)` says.
pub(super) unsafe fn message(msg: &fi_msg_atomic, form: Form, flags: u64) -> Request {
    Request {
        form,
        op: msg.op,
        datatype: msg.datatype,
        operand: Elements(msg.msg_iov, msg.iov_count),
        comparand: Elements::NONE,
        result: Elements::NONE,
        targets: (msg.rma_iov, msg.rma_iov_count),
        call: Call::new(msg.addr, msg.context, Flags::from_bits_retain(flags))
            .with_message_data(msg.data),
    }
}

/// Result of a `*valid` call.
///
/// # Safety
/// `count` is NULL or writable.
unsafe fn valid(datatype: fi_datatype, op: fi_op, form: Form, count: *mut usize) -> c_int {
    let Some(operation) = Operation::numbered(op, datatype, form) else { return -FI_EOPNOTSUPP };
    if count.is_null() {
        return -FI_EINVAL;
    }
    // SAFETY: the caller's place.
    unsafe { *count = operation.elements_max() };
    0
}

guarded! {
    unsafe extern "C" fn write(
        ep: *mut fid_ep,
        buf: *const c_void,
        count: usize,
        _desc: *mut c_void,
        dest: fi_addr_t,
        addr: u64,
        key: u64,
        datatype: fi_datatype,
        op: fi_op,
        context: *mut c_void,
    ) -> isize {
        let ioc = fi_ioc { addr: buf.cast_mut(), count };
        let at = fi_rma_ioc { addr, count, key };
        // SAFETY: libfabric calls with our open endpoint; the lists are local, and the buffer is
        // lent for the call.
        unsafe {
            let ep = state(ep);
            let call = Call::new(dest, context, ep.tx_flags());
            let operand = Elements::one(&ioc);
            let request = Request::new(Form::Update, (op, datatype), operand, &at, call);
            request.post(ep)
        }
    }

    unsafe extern "C" fn writev(
        ep: *mut fid_ep,
        iov: *const fi_ioc,
        _desc: *mut *mut c_void,
        count: usize,
        dest: fi_addr_t,
        addr: u64,
        key: u64,
        datatype: fi_datatype,
        op: fi_op,
        context: *mut c_void,
    ) -> isize {
        let operand = Elements(iov, count);
        // SAFETY: as above, for each of `count` parts.
        unsafe {
            let (ep, at) = (state(ep), one(operand, addr, key));
            let call = Call::new(dest, context, ep.tx_flags());
            let request = Request::new(Form::Update, (op, datatype), operand, &at, call);
            request.post(ep)
        }
    }

    unsafe extern "C" fn writemsg(ep: *mut fid_ep, msg: *const fi_msg_atomic, flags: u64) -> isize {
        if msg.is_null() {
            return -(FI_EINVAL as isize);
        }
        // SAFETY: as above; the message and its lists are the caller's.
        unsafe { message(&*msg, Form::Update, flags).post(state(ep)) }
    }

    unsafe extern "C" fn inject(
        ep: *mut fid_ep,
        buf: *const c_void,
        count: usize,
        dest: fi_addr_t,
        addr: u64,
        key: u64,
        datatype: fi_datatype,
        op: fi_op,
    ) -> isize {
        let ioc = fi_ioc { addr: buf.cast_mut(), count };
        let at = fi_rma_ioc { addr, count, key };
        let call = Call::inject(dest);
        let operand = Elements::one(&ioc);
        let request = Request::new(Form::Update, (op, datatype), operand, &at, call);
        // SAFETY: as above.
        unsafe { request.post(state(ep)) }
    }

    unsafe extern "C" fn readwrite(
        ep: *mut fid_ep,
        buf: *const c_void,
        count: usize,
        _desc: *mut c_void,
        result: *mut c_void,
        _result_desc: *mut c_void,
        dest: fi_addr_t,
        addr: u64,
        key: u64,
        datatype: fi_datatype,
        op: fi_op,
        context: *mut c_void,
    ) -> isize {
        let ioc = fi_ioc { addr: buf.cast_mut(), count };
        let into = fi_ioc { addr: result, count };
        let at = fi_rma_ioc { addr, count, key };
        // SAFETY: as above; the result's buffer is lent until completion.
        unsafe {
            let ep = state(ep);
            let call = Call::new(dest, context, ep.tx_flags());
            let operand = Elements::one(&ioc);
            let request = Request::new(Form::Fetch, (op, datatype), operand, &at, call);
            Request { result: Elements::one(&into), ..request }.post(ep)
        }
    }

    unsafe extern "C" fn readwritev(
        ep: *mut fid_ep,
        iov: *const fi_ioc,
        _desc: *mut *mut c_void,
        count: usize,
        resultv: *mut fi_ioc,
        _result_desc: *mut *mut c_void,
        result_count: usize,
        dest: fi_addr_t,
        addr: u64,
        key: u64,
        datatype: fi_datatype,
        op: fi_op,
        context: *mut c_void,
    ) -> isize {
        let result = Elements(resultv, result_count);
        // SAFETY: as above, for each part of the lists.
        unsafe {
            let (ep, at) = (state(ep), one(result, addr, key));
            let call = Call::new(dest, context, ep.tx_flags());
            let operand = Elements(iov, count);
            let request = Request::new(Form::Fetch, (op, datatype), operand, &at, call);
            Request { result, ..request }.post(ep)
        }
    }

    unsafe extern "C" fn readwritemsg(
        ep: *mut fid_ep,
        msg: *const fi_msg_atomic,
        resultv: *mut fi_ioc,
        _result_desc: *mut *mut c_void,
        result_count: usize,
        flags: u64,
    ) -> isize {
        if msg.is_null() {
            return -(FI_EINVAL as isize);
        }
        let result = Elements(resultv, result_count);
        // SAFETY: as above; the message and its lists are the caller's.
        unsafe { Request { result, ..message(&*msg, Form::Fetch, flags) }.post(state(ep)) }
    }

    unsafe extern "C" fn compwrite(
        ep: *mut fid_ep,
        buf: *const c_void,
        count: usize,
        _desc: *mut c_void,
        compare: *const c_void,
        _compare_desc: *mut c_void,
        result: *mut c_void,
        _result_desc: *mut c_void,
        dest: fi_addr_t,
        addr: u64,
        key: u64,
        datatype: fi_datatype,
        op: fi_op,
        context: *mut c_void,
    ) -> isize {
        let ioc = fi_ioc { addr: buf.cast_mut(), count };
        let with = fi_ioc { addr: compare.cast_mut(), count };
        let into = fi_ioc { addr: result, count };
        let at = fi_rma_ioc { addr, count, key };
        // SAFETY: as above; the result's buffer is lent until completion.
        unsafe {
            let ep = state(ep);
            let call = Call::new(dest, context, ep.tx_flags());
            let operand = Elements::one(&ioc);
            let request = Request::new(Form::Compare, (op, datatype), operand, &at, call);
            let (comparand, result) = (Elements::one(&with), Elements::one(&into));
            Request { comparand, result, ..request }.post(ep)
        }
    }

    unsafe extern "C" fn compwritev(
        ep: *mut fid_ep,
        iov: *const fi_ioc,
        _desc: *mut *mut c_void,
        count: usize,
        comparev: *const fi_ioc,
        _compare_desc: *mut *mut c_void,
        compare_count: usize,
        resultv: *mut fi_ioc,
        _result_desc: *mut *mut c_void,
        result_count: usize,
        dest: fi_addr_t,
        addr: u64,
        key: u64,
        datatype: fi_datatype,
        op: fi_op,
        context: *mut c_void,
    ) -> isize {
        let operand = Elements(iov, count);
        // SAFETY: as above, for each part of the lists.
        unsafe {
            let (ep, at) = (state(ep), one(operand, addr, key));
            let call = Call::new(dest, context, ep.tx_flags());
            let request = Request::new(Form::Compare, (op, datatype), operand, &at, call);
            let comparand = Elements(comparev, compare_count);
            let result = Elements(resultv, result_count);
            Request { comparand, result, ..request }.post(ep)
        }
    }

    unsafe extern "C" fn compwritemsg(
        ep: *mut fid_ep,
        msg: *const fi_msg_atomic,
        comparev: *const fi_ioc,
        _compare_desc: *mut *mut c_void,
        compare_count: usize,
        resultv: *mut fi_ioc,
        _result_desc: *mut *mut c_void,
        result_count: usize,
        flags: u64,
    ) -> isize {
        if msg.is_null() {
            return -(FI_EINVAL as isize);
        }
        let comparand = Elements(comparev, compare_count);
        let result = Elements(resultv, result_count);
        // SAFETY: as above; the message and its lists are the caller's.
        unsafe {
            let request = message(&*msg, Form::Compare, flags);
            Request { comparand, result, ..request }.post(state(ep))
        }
    }

    unsafe extern "C" fn writevalid(
        _ep: *mut fid_ep,
        datatype: fi_datatype,
        op: fi_op,
        count: *mut usize,
    ) -> c_int {
        // SAFETY: the caller's place.
        unsafe { valid(datatype, op, Form::Update, count) }
    }

    unsafe extern "C" fn readwritevalid(
        _ep: *mut fid_ep,
        datatype: fi_datatype,
        op: fi_op,
        count: *mut usize,
    ) -> c_int {
        // SAFETY: the caller's place.
        unsafe { valid(datatype, op, Form::Fetch, count) }
    }

    unsafe extern "C" fn compwritevalid(
        _ep: *mut fid_ep,
        datatype: fi_datatype,
        op: fi_op,
        count: *mut usize,
    ) -> c_int {
        // SAFETY: the caller's place.
        unsafe { valid(datatype, op, Form::Compare, count) }
    }

    /// `fi_query_atomic(3)`.
    pub(crate) unsafe extern "C" fn query_atomic(
        _domain: *mut fid_domain,
        datatype: fi_datatype,
        op: fi_op,
        attr: *mut fi_atomic_attr,
        flags: u64,
    ) -> c_int {
        let form = match flags {
            0 => Form::Update,
            FI_FETCH_ATOMIC => Form::Fetch,
            FI_COMPARE_ATOMIC => Form::Compare,
            _ => return -FI_EOPNOTSUPP,
        };
        let Some(operation) = Operation::numbered(op, datatype, form) else { return -FI_EOPNOTSUPP };
        if attr.is_null() {
            return -FI_EINVAL;
        }
        // SAFETY: the caller's structure.
        unsafe {
            (*attr).count = operation.elements_max();
            (*attr).size = operation.element_bytes();
        }
        0
    }
}
