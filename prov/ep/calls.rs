//! The endpoint as an object: opening, control, names and options.

use super::attr::{config_of, key_of};
use super::fid::{Caller, EpFid, alias, state_of};
use super::{msg, tagged};
use crate::domain::DomainFid;
use crate::errno;
use crate::object::{self, Class};
use erd_core::endpoint::{Endpoint, EpConfig};
use erd_core::sockaddr;
use erd_core::uses::Users;
use erd_ffi::fi::{
    FI_ALIAS, FI_CLASS_EP, FI_EADDRNOTAVAIL, FI_EINVAL, FI_ENABLE, FI_ENOPROTOOPT, FI_ENOSYS,
    FI_EOPNOTSUPP, FI_ETOOSMALL, FI_GETOPSFLAG, FI_HMEM_P2P_DISABLED, FI_OPT_CM_DATA_SIZE,
    FI_OPT_CUDA_API_PERMITTED, FI_OPT_ENDPOINT, FI_OPT_FI_HMEM_P2P, FI_OPT_INJECT_ATOMIC_SIZE,
    FI_OPT_INJECT_MSG_SIZE, FI_OPT_INJECT_RMA_SIZE, FI_OPT_INJECT_TAGGED_SIZE,
    FI_OPT_MAX_ATOMIC_SIZE, FI_OPT_MAX_MSG_SIZE, FI_OPT_MAX_RMA_SIZE, FI_OPT_MAX_TAGGED_SIZE,
    FI_OPT_MIN_MULTI_RECV, FI_OPT_SHARED_MEMORY_PERMITTED, FI_SETOPSFLAG, NOSYS_CM,
    NOSYS_COLLECTIVE, NOSYS_EP, NOSYS_FID, fi_info, fi_ops, fi_ops_cm, fi_ops_ep, fid, fid_ep,
};
use erd_ffi::guard::guarded;
use erd_rd::wire::remote::ATOMIC_MAX_BYTES;
use std::ffi::{c_int, c_void};
use std::net::SocketAddr;
use std::sync::Arc;

pub(super) static FID_OPS: fi_ops = fi_ops {
    close: object::close::<Endpoint>,
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
    domain: &Arc<DomainFid>,
    info: *mut fi_info,
    ep: *mut *mut fid_ep,
    context: *mut c_void,
) -> c_int {
    if info.is_null() || ep.is_null() {
        return -FI_EINVAL;
    }
    // SAFETY: the caller's `fi_info`, whose source address is as long as it says.
    let (config, source, key) = unsafe {
        let info = &*info;
        let source = sockaddr::read(info.src_addr, info.src_addrlen);
        (config_of(info, domain), source, key_of(info, domain))
    };
    let config = match key {
        Ok(key) => EpConfig { key, ..config },
        Err(errno) => return -errno,
    };
    let Ok(source) = source else {
        tracing::info!("fi_endpoint: src_addr is no IPv4 or IPv6 address");
        return -FI_EINVAL;
    };
    let at = source.unwrap_or(SocketAddr::new(domain.local, 0));
    let flags = (config.tx_flags.bits(), config.rx_flags.bits());
    let inner = match Endpoint::new(&domain.domain, &domain.regions, config, at) {
        Ok(inner) => inner,
        Err(error) => return -errno::of(error),
    };
    inner.report_losses_as(0, context);
    let ep_part = tables(object::base::<Endpoint>(context, &FID_OPS));
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

// SAFETY: `EpFid` begins with `fid_ep`, that with its `fid`, and no other state has this class.
unsafe impl Class for Endpoint {
    type Abi = EpFid;
    const FCLASS: usize = FI_CLASS_EP;

    fn users(&self) -> &Users {
        Endpoint::users(self)
    }

    fn closing(self: &Arc<Self>) -> Result<(), c_int> {
        self.close();
        Ok(())
    }
}

impl Caller<'_> {
    fn size_option(&self, name: c_int) -> Result<usize, c_int> {
        let option = self.with_config(|config| match name {
            FI_OPT_MIN_MULTI_RECV => Ok(config.min_multi_recv_bytes),
            FI_OPT_CM_DATA_SIZE => Ok(0),
            _ => limit_bytes(config, name),
        });
        option.map_err(errno::of)?
    }

    /// Writes whether the endpoint may share memory.
    ///
    /// # Safety
    /// `value` has `len` bytes.
    unsafe fn tell_local(&self, value: *mut bool, len: &mut usize) -> Result<(), c_int> {
        if *len < size_of::<bool>() {
            return Err(FI_ETOOSMALL);
        }
        let allowed = self.with_config(|config| config.local).map_err(errno::of)?;
        // SAFETY: it is long enough, and every address is aligned for a `bool`.
        unsafe { value.write(allowed) };
        *len = size_of::<bool>();
        Ok(())
    }

    fn set_size_option(&self, name: c_int, bytes: usize) -> Result<(), c_int> {
        let set = self.with_config(|config| {
            if name == FI_OPT_MIN_MULTI_RECV {
                config.min_multi_recv_bytes = bytes;
                return Ok(());
            }
            // A promise to stay below the limit needs no action.
            if bytes <= limit_bytes(config, name)? { Ok(()) } else { Err(FI_EINVAL) }
        });
        set.map_err(errno::of)?
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

/// Options that are not sizes.
///
/// # Safety
/// `value` points to `len` bytes.
unsafe fn set_permission(
    ep: &Caller<'_>,
    name: c_int,
    value: *const c_void,
    len: usize,
) -> Result<(), c_int> {
    // SAFETY: each is read only if it is as long as its option says.
    let (int, bool) = unsafe {
        let int = (len >= size_of::<c_int>()).then(|| value.cast::<c_int>().read_unaligned());
        (int, (len >= 1).then(|| value.cast::<u8>().read() != 0))
    };
    match (name, int, bool) {
        // What it forbids erd never does.
        (FI_OPT_FI_HMEM_P2P, Some(FI_HMEM_P2P_DISABLED), _) => Ok(()),
        (FI_OPT_SHARED_MEMORY_PERMITTED, _, Some(allowed)) => {
            ep.allow_local(allowed).map_err(errno::of)
        }
        (FI_OPT_FI_HMEM_P2P, Some(_), _) | (FI_OPT_CUDA_API_PERMITTED, _, Some(_)) => {
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
                Some(caller) => status(caller.bind(other, flags)),
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
            FI_ENABLE => errno::status(caller.ep.enable()),
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
        errno::answer(ep.ep.cancel(context))
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
            (Some(ep), Ok(Some(name))) => errno::status(ep.set_name(name)),
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
        if name == FI_OPT_SHARED_MEMORY_PERMITTED {
            // SAFETY: the caller's buffer has `*len` bytes.
            return status(unsafe { ep.tell_local(value.cast(), &mut *len) });
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
        let permission = unsafe { set_permission(&ep, name, value, len) };
        if permission != Err(FI_ENOPROTOOPT) {
            return status(permission);
        }
        // An unknown option is unknown at any length.
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
