//! Scalable endpoints (`fi_endpoint(3)`): one name, several transmit and receive contexts.
//!
//! Each receive context has an engine and a socket of its own, so threads that receive do not meet. The socket of
//! context `n` has the port number of the first one plus `n`, so a peer that knows the endpoint's name finds a named
//! receive context. All transmit contexts send from the first engine, so that a peer sees one source; each has its own
//! queue and counters.

use crate::av::AvFid;
use crate::domain::DomainFid;
use crate::ep::{EpFid, config_of, context_object, key_of};
use crate::errno;
use crate::object::{self, Class};
use erd_core::av::RX_CONTEXTS_MAX;
use erd_core::domain::Domain;
use erd_core::endpoint::Role;
use erd_core::endpoint::{Bound, Endpoint, EpConfig};
use erd_core::error::Error;
use erd_core::sockaddr;
use erd_core::uses::{Use, Users};
use erd_ffi::fi::{
    FI_CLASS_AV, FI_CLASS_SEP, FI_EADDRINUSE, FI_EINVAL, FI_ENABLE, FI_ENOSYS, FI_ETOOSMALL,
    NOSYS_ATOMIC, NOSYS_CM, NOSYS_COLLECTIVE, NOSYS_EP, NOSYS_FID, NOSYS_MSG, NOSYS_RMA,
    NOSYS_TAGGED, fi_info, fi_ops, fi_ops_cm, fi_ops_ep, fi_rx_attr, fi_tx_attr, fid, fid_ep,
};
use erd_ffi::guard::guarded;
use std::ffi::{c_int, c_void};
use std::net::SocketAddr;
use std::sync::Arc;

/// Most transmit contexts of an endpoint.
pub const TX_CONTEXTS_MAX: usize = 16;
/// Most searches for ports in a row.
const PORT_TRIES: usize = 64;

/// A port is taken.
const IN_USE: Error = Error::System(FI_EADDRINUSE);

/// State of a scalable endpoint.
pub struct SepInner {
    /// One for each receive context.
    engines: Vec<Arc<Endpoint>>,
    tx_contexts: usize,
    config: EpConfig,
    users: Users,
    _domain_use: Use,
}

// SAFETY: `fid_ep` begins with its `fid`, and no other state has this class.
unsafe impl Class for SepInner {
    type Abi = fid_ep;
    const FCLASS: usize = FI_CLASS_SEP;

    fn users(&self) -> &Users {
        &self.users
    }

    fn closing(self: &Arc<Self>) -> Result<(), c_int> {
        self.engines.iter().for_each(Endpoint::close);
        Ok(())
    }
}

/// Ports to begin a row of `count` at: the one asked for, or some of the range of the settings, or the kernel's choices.
fn first_ports(domain: &Domain, asked: u16, count: usize) -> Vec<u16> {
    match (asked, domain.settings.udp_ports) {
        (0, Some(range)) => {
            let rows: Vec<u16> = range.rows(count as u16).take(PORT_TRIES).collect();
            if rows.is_empty() {
                tracing::warn!(count, "FI_ERD_UDP_PORTS has not as many ports in a row");
            }
            rows
        }
        (0, None) => vec![0; PORT_TRIES],
        _ => vec![asked],
    }
}

/// Engines on ports in a row, from the port of `at` on; from any if that is 0.
fn engines(
    domain: &Arc<Domain>,
    config: &EpConfig,
    at: SocketAddr,
    count: usize,
) -> Result<Vec<Arc<Endpoint>>, Error> {
    let first = Endpoint::new(domain, &domain.regions, config.clone(), at)?;
    let port = first.name().map_or(0, |name| name.port());
    let mut all = vec![first];
    for nth in 1..count {
        let next = u16::try_from(nth).ok().and_then(|nth| port.checked_add(nth));
        let at = SocketAddr::new(at.ip(), next.ok_or(IN_USE)?);
        all.push(Endpoint::new(domain, &domain.regions, config.clone(), at)?);
    }
    Ok(all)
}

/// `fi_scalable_ep`.
///
/// # Safety
/// `info` and `sep` are as `fi_endpoint(3)` says.
pub unsafe fn open(
    domain: &Arc<DomainFid>,
    info: *mut fi_info,
    sep: *mut *mut fid_ep,
    context: *mut c_void,
) -> c_int {
    if info.is_null() || sep.is_null() {
        return -FI_EINVAL;
    }
    // SAFETY: the caller's `fi_info`, whose source address is as long as it says.
    let (config, source, counts, key) = unsafe {
        let info = &*info;
        let counts = info.ep_attr.as_ref().map(|ep| (ep.tx_ctx_cnt, ep.rx_ctx_cnt));
        let source = sockaddr::read(info.src_addr, info.src_addrlen);
        let key = key_of(info, domain);
        (config_of(info, domain), source, counts.unwrap_or((1, 1)), key)
    };
    let key = match key {
        Ok(key) => key,
        Err(errno) => return -errno,
    };
    let (tx_contexts, rx_contexts) = (counts.0.max(1), counts.1.max(1));
    let (Ok(source), true, true) =
        (source, tx_contexts <= TX_CONTEXTS_MAX, rx_contexts <= RX_CONTEXTS_MAX)
    else {
        tracing::info!(
            tx_contexts,
            rx_contexts,
            "fi_scalable_ep: at most {TX_CONTEXTS_MAX} and {RX_CONTEXTS_MAX} contexts"
        );
        return -FI_EINVAL;
    };
    let config = EpConfig { key, ..config.scalable(tx_contexts) };
    let at = source.unwrap_or(SocketAddr::new(domain.local, 0));
    let mut opened = Err(IN_USE);
    for port in first_ports(&domain.domain, at.port(), rx_contexts) {
        opened = engines(&domain.domain, &config, SocketAddr::new(at.ip(), port), rx_contexts);
        if opened.as_ref().err() != Some(&IN_USE) {
            break;
        }
    }
    let engines = match opened {
        Ok(engines) => engines,
        Err(error) => return -errno::of(error),
    };
    let inner = Arc::new(SepInner {
        engines,
        tx_contexts,
        config,
        users: Users::default(),
        _domain_use: domain.hold(),
    });
    let abi = fid_ep {
        fid: object::base::<SepInner>(context, &FID_OPS),
        ops: &EP_OPS,
        cm: &CM_OPS,
        msg: &NOSYS_MSG,
        rma: &NOSYS_RMA,
        tagged: &NOSYS_TAGGED,
        atomic: &NOSYS_ATOMIC,
        collective: &NOSYS_COLLECTIVE,
    };
    // SAFETY: the caller gave a place for the new object.
    unsafe { *sep = object::publish(abi, inner) };
    0
}

static FID_OPS: fi_ops =
    fi_ops { close: object::close::<SepInner>, bind: sep_bind, control: sep_control, ..NOSYS_FID };

static EP_OPS: fi_ops_ep = fi_ops_ep { tx_ctx: sep_tx_ctx, rx_ctx: sep_rx_ctx, ..NOSYS_EP };

static CM_OPS: fi_ops_cm = fi_ops_cm { getname: sep_getname, ..NOSYS_CM };

impl SepInner {
    /// The object of a context: its engine, and its role.
    fn context(
        &self,
        engine: usize,
        role: Role,
        flags: (u64, u64),
        context: *mut c_void,
    ) -> *mut fid_ep {
        let engine = &self.engines[engine];
        if let Role::Tx(nth) = role {
            engine.report_losses_as(nth, context);
        }
        let object: EpFid = context_object(role, flags, self.users.add(), context);
        object::publish(object, Arc::clone(engine)).cast()
    }
}

fn nth(index: c_int, count: usize) -> Option<u8> {
    let index = u8::try_from(index).ok().filter(|index| usize::from(*index) < count);
    if index.is_none() {
        tracing::info!(index, count, "the endpoint has no such context");
    }
    index
}

guarded! {
    unsafe extern "C" fn sep_bind(sep: *mut fid, other: *mut fid, _flags: u64) -> c_int {
        // SAFETY: libfabric calls with our open endpoint and another open object or NULL.
        let (Some(sep), Some(av)) = (unsafe { (object::from_fid::<SepInner>(sep), object::from_fid::<AvFid>(other)) })
        else {
            tracing::info!("fi_scalable_ep_bind: an AV ({FI_CLASS_AV}); the rest binds to contexts");
            return -FI_EINVAL;
        };
        let bound = sep.engines.iter().try_for_each(|engine| engine.attach(Bound::Av(&av.av), 0));
        errno::status(bound)
    }

    unsafe extern "C" fn sep_control(sep: *mut fid, command: c_int, _arg: *mut c_void) -> c_int {
        // SAFETY: libfabric calls with our open endpoint.
        let Some(sep) = (unsafe { object::from_fid::<SepInner>(sep) }) else {
            return -FI_EINVAL;
        };
        if command != FI_ENABLE {
            return -FI_ENOSYS;
        }
        let enabled = sep.engines.iter().try_for_each(Endpoint::enable);
        errno::status(enabled)
    }

    unsafe extern "C" fn sep_tx_ctx(
        sep: *mut fid_ep,
        index: c_int,
        attr: *mut fi_tx_attr,
        tx_ep: *mut *mut fid_ep,
        context: *mut c_void,
    ) -> c_int {
        // SAFETY: libfabric calls with our open endpoint; the attributes are NULL or the caller's.
        // Those of an old one are shorter than this structure: no reference is made to it.
        let (sep, asked) = unsafe {
            let asked = (!attr.is_null()).then(|| (&raw const (*attr).op_flags).read());
            (object::inner::<SepInner>(sep), asked)
        };
        let (Some(index), false) = (nth(index, sep.tx_contexts), tx_ep.is_null()) else {
            return -FI_EINVAL;
        };
        let tx_flags = asked.unwrap_or(sep.config.tx_flags.bits());
        let object = sep.context(0, Role::Tx(index), (tx_flags, 0), context);
        // SAFETY: the caller gave a place for the new object.
        unsafe { *tx_ep = object };
        0
    }

    unsafe extern "C" fn sep_rx_ctx(
        sep: *mut fid_ep,
        index: c_int,
        attr: *mut fi_rx_attr,
        rx_ep: *mut *mut fid_ep,
        context: *mut c_void,
    ) -> c_int {
        // SAFETY: as above.
        let (sep, asked) = unsafe {
            let asked = (!attr.is_null()).then(|| (&raw const (*attr).op_flags).read());
            (object::inner::<SepInner>(sep), asked)
        };
        let (Some(index), false) = (nth(index, sep.engines.len()), rx_ep.is_null()) else {
            return -FI_EINVAL;
        };
        let rx_flags = asked.unwrap_or(sep.config.rx_flags.bits());
        let object = sep.context(index.into(), Role::Rx, (0, rx_flags), context);
        // SAFETY: as above.
        unsafe { *rx_ep = object };
        0
    }

    unsafe extern "C" fn sep_getname(sep: *mut fid, addr: *mut c_void, len: *mut usize) -> c_int {
        // SAFETY: libfabric calls with our open endpoint.
        let Some(sep) = (unsafe { object::from_fid::<SepInner>(sep) }) else {
            return -FI_EINVAL;
        };
        let (Some(name), false) = (sep.engines[0].name(), len.is_null()) else {
            return -FI_EINVAL;
        };
        // SAFETY: the caller's buffer has `*len` bytes.
        if unsafe { sockaddr::write(name, addr, len) } { 0 } else { -FI_ETOOSMALL }
    }
}
