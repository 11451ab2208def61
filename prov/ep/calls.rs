//! The endpoint as an object: opening, control, names and options.

use super::complete::Context;
use super::config::EpConfig;
use super::driver::Driver;
use super::fid::{EpFid, alias, state_of};
use super::host::tx_of;
use super::{EpInner, State, enable, msg, tagged};
use crate::domain::DomainInner;
use crate::held::Known;
use crate::mr::MrTable;
use crate::object::{self, Users};
use erd_core::sockaddr;
use erd_ffi::fi::{
    FI_ALIAS, FI_EADDRNOTAVAIL, FI_EINVAL, FI_ENABLE, FI_ENODATA, FI_ENOENT, FI_ENOPROTOOPT,
    FI_ENOSYS, FI_EOPBADSTATE, FI_EOPNOTSUPP, FI_ETOOSMALL, FI_GETOPSFLAG, FI_HMEM_P2P_DISABLED,
    FI_OPT_CM_DATA_SIZE, FI_OPT_CUDA_API_PERMITTED, FI_OPT_ENDPOINT, FI_OPT_FI_HMEM_P2P,
    FI_OPT_INJECT_ATOMIC_SIZE, FI_OPT_INJECT_MSG_SIZE, FI_OPT_INJECT_RMA_SIZE,
    FI_OPT_INJECT_TAGGED_SIZE, FI_OPT_MAX_ATOMIC_SIZE, FI_OPT_MAX_MSG_SIZE, FI_OPT_MAX_RMA_SIZE,
    FI_OPT_MAX_TAGGED_SIZE, FI_OPT_MIN_MULTI_RECV, FI_OPT_SHARED_MEMORY_PERMITTED, FI_SETOPSFLAG,
    NOSYS_CM, NOSYS_COLLECTIVE, NOSYS_EP, NOSYS_FID, fi_addr_t, fi_info, fi_ops, fi_ops_cm,
    fi_ops_ep, fid, fid_ep,
};
use erd_ffi::guard::guarded;
use erd_rd::wire::remote::ATOMIC_MAX_BYTES;
use erd_rd::{FlowView, PeerId};
use erd_sys::process::Process;
use parking_lot::Mutex;
use std::ffi::{c_int, c_void};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, OnceLock};

pub(super) static FID_OPS: fi_ops = fi_ops {
    close: object::close::<EpInner>,
    bind: ep_bind,
    control: ep_control,
    ops_open: crate::extension::ep_ops_open,
    ..NOSYS_FID
};

static EP_OPS: fi_ops_ep =
    fi_ops_ep { cancel: ep_cancel, getopt: ep_getopt, setopt: ep_setopt, ..NOSYS_EP };

static CM_OPS: fi_ops_cm = fi_ops_cm { setname: ep_setname, getname: ep_getname, ..NOSYS_CM };

/// `fi_endpoint(3)`.
///
/// # Safety
/// `info` and `ep` are as the man page says.
pub unsafe fn open(
    domain: &Arc<DomainInner>,
    info: *mut fi_info,
    ep: *mut *mut fid_ep,
    context: *mut c_void,
) -> c_int {
    if info.is_null() || ep.is_null() {
        return -FI_EINVAL;
    }
    // SAFETY: the caller's `fi_info`, whose source address is as long as it says.
    let (config, source) = unsafe {
        let info = &*info;
        (EpConfig::read(info, domain), sockaddr::read(info.src_addr, info.src_addrlen))
    };
    let Ok(source) = source else {
        tracing::info!("fi_endpoint: src_addr is no IPv4 or IPv6 address");
        return -FI_EINVAL;
    };
    let at = source.unwrap_or(SocketAddr::new(domain.local, 0));
    let inner = match EpInner::new(domain, &domain.regions, config, at) {
        Ok(inner) => inner,
        Err(errno) => return -errno,
    };
    inner.report_losses_as(0, context);
    let flags = (config.tx_flags, config.rx_flags);
    let ep_part = tables(object::base::<EpInner>(context, &FID_OPS));
    // SAFETY: the caller gave a place for the new object.
    unsafe { *ep = object::publish(EpFid::new(ep_part, flags, None), inner).cast() };
    0
}

/// C's part of an endpoint, or of a context of one.
pub(super) fn tables(fid: fid) -> fid_ep {
    fid_ep {
        fid,
        ops: &EP_OPS,
        cm: &CM_OPS,
        msg: &msg::MSG_OPS,
        rma: &super::rma::RMA_OPS,
        tagged: &tagged::TAGGED_OPS,
        atomic: &super::atomic::ATOMIC_OPS,
        collective: &NOSYS_COLLECTIVE,
    }
}

impl EpInner {
    /// An endpoint bound to `at`, to be bound to an AV and queues and to be enabled. Peers may
    /// reach the memory in `regions`.
    ///
    /// # Errors
    /// A positive error number.
    pub(crate) fn new(
        domain: &Arc<DomainInner>,
        regions: &Arc<MrTable>,
        config: EpConfig,
        at: SocketAddr,
    ) -> Result<Arc<EpInner>, c_int> {
        let setup = enable::setup(domain, regions, config, at)?;
        Ok(Arc::new_cyclic(|me| EpInner {
            me: me.clone(),
            domain: Arc::clone(domain),
            state: Mutex::new(State::Setup(Box::new(setup))),
            calls: AtomicU64::new(0),
            watches: Mutex::default(),
            failed: AtomicBool::new(false),
            teller: Arc::default(),
            listed: AtomicBool::new(false),
            known: Known::default(),
            srx_owner: OnceLock::new(),
            serving: Mutex::new(()),
            owner: Process::current(),
            users: Users::default(),
            _domain_use: domain.hold(),
        }))
    }

    /// Failures of operations that completed early have this context, at this transmit context.
    pub(crate) fn report_losses_as(&self, ctx: u8, context: *mut c_void) {
        let mut state = self.lock();
        let (tx, more_tx) = match &mut *state {
            State::Setup(setup) => (&mut setup.bindings.tx, &mut setup.bindings.more_tx),
            State::Enabled(driver) => (&mut driver.host.tx, &mut driver.host.more_tx),
            State::Closed => return,
        };
        tx_of(tx, more_tx, ctx).context = Context(context);
    }

    /// The endpoint's name; `None` once it is closed.
    pub(crate) fn name(&self) -> Option<SocketAddr> {
        match &*self.lock() {
            State::Setup(setup) => Some(enable::name(&self.domain, &setup.rx)),
            State::Enabled(driver) => Some(enable::name(&self.domain, &driver.rx)),
            State::Closed => None,
        }
    }

    /// A snapshot of the flow to a peer.
    ///
    /// # Errors
    /// A positive error number.
    pub(crate) fn flow(&self, peer: fi_addr_t) -> Result<FlowView, c_int> {
        self.with_peer(peer, |driver, peer| driver.engine.flow(peer).ok_or(FI_ENODATA))?
    }

    /// KiB sent to a peer on each path; empty without a flow.
    ///
    /// # Errors
    /// A positive error number.
    pub(crate) fn path_kib(&self, peer: fi_addr_t) -> Result<Vec<u32>, c_int> {
        self.with_peer(peer, |driver, peer| driver.engine.path_kib(peer).collect())
    }

    fn with_peer<R>(
        &self,
        peer: fi_addr_t,
        f: impl FnOnce(&mut Driver, PeerId) -> R,
    ) -> Result<R, c_int> {
        let mut state = self.lock();
        let State::Enabled(driver) = &mut *state else { return Err(FI_EOPBADSTATE) };
        let peer = driver.peer_at(peer)?;
        Ok(f(driver, peer))
    }

    fn set_name(&self, name: SocketAddr) -> Result<(), c_int> {
        let mut state = self.lock();
        let State::Setup(setup) = &mut *state else { return Err(FI_EOPBADSTATE) };
        if setup.rx.local_addr() != name {
            setup.rx = enable::bind_socket(&self.domain, name)?;
        }
        Ok(())
    }

    fn with_config<R>(&self, f: impl FnOnce(&mut EpConfig) -> R) -> Result<R, c_int> {
        match &mut *self.lock() {
            State::Setup(setup) => Ok(f(&mut setup.config)),
            State::Enabled(driver) => Ok(f(&mut driver.config)),
            State::Closed => Err(FI_EOPBADSTATE),
        }
    }

    fn size_option(&self, name: c_int) -> Result<usize, c_int> {
        self.with_config(|config| match name {
            FI_OPT_MIN_MULTI_RECV => Ok(config.min_multi_recv_bytes),
            FI_OPT_CM_DATA_SIZE => Ok(0),
            _ => limit_bytes(config, name),
        })?
    }

    fn set_size_option(&self, name: c_int, bytes: usize) -> Result<(), c_int> {
        self.with_config(|config| {
            if name == FI_OPT_MIN_MULTI_RECV {
                config.min_multi_recv_bytes = bytes;
                return Ok(());
            }
            // A promise to stay below the limit needs nothing of us.
            if bytes <= limit_bytes(config, name)? { Ok(()) } else { Err(FI_EINVAL) }
        })?
    }
}

/// Most bytes of one operation of a kind.
fn limit_bytes(config: &EpConfig, name: c_int) -> Result<usize, c_int> {
    let bytes = match name {
        FI_OPT_MAX_MSG_SIZE | FI_OPT_MAX_TAGGED_SIZE | FI_OPT_MAX_RMA_SIZE => config.max_msg_bytes,
        FI_OPT_MAX_ATOMIC_SIZE => config.max_msg_bytes.min(ATOMIC_MAX_BYTES),
        FI_OPT_INJECT_MSG_SIZE | FI_OPT_INJECT_TAGGED_SIZE | FI_OPT_INJECT_RMA_SIZE => {
            config.inject_bytes
        }
        FI_OPT_INJECT_ATOMIC_SIZE => config.inject_bytes.min(ATOMIC_MAX_BYTES),
        _ => return Err(FI_ENOPROTOOPT),
    };
    Ok(bytes as usize)
}

fn status(result: Result<(), c_int>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(errno) => -errno,
    }
}

/// Options that are not sizes: all ask to leave something alone that erd never touches.
///
/// # Safety
/// `value` points to `len` bytes.
unsafe fn set_permission(name: c_int, value: *const c_void, len: usize) -> Result<(), c_int> {
    // SAFETY: each is read only if it is as long as its option says.
    let (int, bool) = unsafe {
        let int = (len >= size_of::<c_int>()).then(|| value.cast::<c_int>().read_unaligned());
        (int, (len >= 1).then(|| value.cast::<u8>().read() != 0))
    };
    match (name, int, bool) {
        (FI_OPT_FI_HMEM_P2P, Some(FI_HMEM_P2P_DISABLED), _)
        | (FI_OPT_SHARED_MEMORY_PERMITTED, _, Some(false)) => Ok(()),
        (FI_OPT_FI_HMEM_P2P, Some(_), _)
        | (FI_OPT_SHARED_MEMORY_PERMITTED | FI_OPT_CUDA_API_PERMITTED, _, Some(_)) => {
            Err(FI_EOPNOTSUPP)
        }
        (FI_OPT_FI_HMEM_P2P | FI_OPT_SHARED_MEMORY_PERMITTED | FI_OPT_CUDA_API_PERMITTED, ..) => {
            Err(FI_EINVAL)
        }
        _ => Err(FI_ENOPROTOOPT),
    }
}

guarded! {
    unsafe extern "C" fn ep_bind(ep: *mut fid, other: *mut fid, flags: u64) -> c_int {
        // SAFETY: libfabric calls with our open endpoint and another open object.
        unsafe {
            match state_of(ep) {
                Some(caller) => status(caller.ep.bind(other, flags, caller.own.ctx)),
                None => -FI_EINVAL,
            }
        }
    }

    unsafe extern "C" fn ep_control(ep: *mut fid, command: c_int, arg: *mut c_void) -> c_int {
        // SAFETY: libfabric calls with our open endpoint.
        let Some(caller) = (unsafe { state_of(ep) }) else {
            return -FI_EINVAL;
        };
        match command {
            // SAFETY: the argument of this command is what fi_alias(3) says.
            FI_ALIAS if !arg.is_null() => unsafe { alias(ep, arg.cast()) },
            FI_ENABLE => status(caller.ep.enable()),
            FI_GETOPSFLAG | FI_SETOPSFLAG if arg.is_null() => -FI_EINVAL,
            FI_GETOPSFLAG | FI_SETOPSFLAG => {
                // SAFETY: the argument of these commands points to flags (fi_endpoint(3)).
                let flags = unsafe { &mut *arg.cast::<u64>() };
                status(caller.ops_flag(flags, command == FI_SETOPSFLAG))
            }
            _ => -FI_ENOSYS,
        }
    }

    unsafe extern "C" fn ep_cancel(ep: *mut fid, context: *mut c_void) -> isize {
        // SAFETY: libfabric calls with our open endpoint.
        let Some(ep) = (unsafe { state_of(ep) }) else {
            return -(FI_EINVAL as isize);
        };
        ep.post(|driver| {
            if driver.host.peer.is_some() {
                tracing::info!("fi_cancel: another provider has the receives of this endpoint");
                return Err(FI_ENOSYS);
            }
            let found = driver.host.cancel(context);
            driver.settle();
            driver.publish();
            if found { Ok(()) } else { Err(FI_ENOENT) }
        })
    }

    unsafe extern "C" fn ep_getname(ep: *mut fid, addr: *mut c_void, addrlen: *mut usize) -> c_int {
        // SAFETY: libfabric calls with our open endpoint.
        let Some(ep) = (unsafe { state_of(ep) }) else {
            return -FI_EINVAL;
        };
        let (Some(name), false) = (ep.name(), addrlen.is_null()) else {
            return -FI_EINVAL;
        };
        // SAFETY: the caller's buffer has `*addrlen` bytes.
        if unsafe { sockaddr::write(name, addr, addrlen) } { 0 } else { -FI_ETOOSMALL }
    }

    unsafe extern "C" fn ep_setname(ep: *mut fid, addr: *mut c_void, addrlen: usize) -> c_int {
        // SAFETY: libfabric calls with our open endpoint, and an address of this length.
        let (ep, name) =
            unsafe { (state_of(ep), sockaddr::read(addr, addrlen)) };
        match (ep, name) {
            (Some(ep), Ok(Some(name))) => status(ep.set_name(name)),
            (Some(_), Err(_)) => -FI_EADDRNOTAVAIL,
            _ => -FI_EINVAL,
        }
    }

    unsafe extern "C" fn ep_getopt(
        ep: *mut fid,
        level: c_int,
        name: c_int,
        value: *mut c_void,
        len: *mut usize,
    ) -> c_int {
        // SAFETY: libfabric calls with our open endpoint.
        let Some(ep) = (unsafe { state_of(ep) }) else {
            return -FI_EINVAL;
        };
        if level != FI_OPT_ENDPOINT || value.is_null() || len.is_null() {
            return -FI_ENOPROTOOPT;
        }
        let size = match ep.size_option(name) {
            Ok(size) => size,
            Err(errno) => return -errno,
        };
        // SAFETY: the caller's buffer has `*len` bytes.
        unsafe {
            if *len < size_of::<usize>() {
                return -FI_ETOOSMALL;
            }
            value.cast::<usize>().write_unaligned(size);
            *len = size_of::<usize>();
        }
        0
    }

    unsafe extern "C" fn ep_setopt(
        ep: *mut fid,
        level: c_int,
        name: c_int,
        value: *const c_void,
        len: usize,
    ) -> c_int {
        // SAFETY: libfabric calls with our open endpoint.
        let Some(ep) = (unsafe { state_of(ep) }) else {
            return -FI_EINVAL;
        };
        if level != FI_OPT_ENDPOINT || value.is_null() {
            return -FI_ENOPROTOOPT;
        }
        // SAFETY: the caller's value has `len` bytes.
        let permission = unsafe { set_permission(name, value, len) };
        if permission != Err(FI_ENOPROTOOPT) {
            return status(permission);
        }
        // What is no option is none at any length.
        if let Err(errno) = ep.size_option(name) {
            return -errno;
        }
        if len < size_of::<usize>() {
            return -FI_EINVAL;
        }
        // SAFETY: as above, and long enough.
        status(ep.set_size_option(name, unsafe { value.cast::<usize>().read_unaligned() }))
    }
}
