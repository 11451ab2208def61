//! `fid_domain`: one interface, and the state that its endpoints share (`fi_domain(3)`).

use crate::auth_key;
use crate::eq::{BoundEq, EqInner};
use crate::fabric::FabricInner;
use crate::object::{self, Class};
use crate::{addr_format, entry, errno, traffic_class};
use erd_core::domain::{Domain, Spot, Terms};
use erd_core::keys::KeyTerms;
use erd_core::place;
use erd_core::settings::{PortSetting, Settings};
use erd_core::sockaddr::{self, Family};
use erd_core::uses::{Use, Users};
use erd_ffi::fi::compat;
use erd_ffi::fi::{
    FI_CANCEL_WORK, FI_CLASS_DOMAIN, FI_EALREADY, FI_EBADFLAGS, FI_EINVAL, FI_ENODATA, FI_ENOSYS,
    FI_FLUSH_WORK, FI_MAP_RAW_MR, FI_MR_ALLOCATED, FI_MR_BASIC, FI_MR_ENDPOINT, FI_MR_PROV_KEY,
    FI_MR_VIRT_ADDR, FI_PEER, FI_PROGRESS_AUTO, FI_QUEUE_WORK, FI_UNMAP_KEY, NOSYS_DOMAIN,
    NOSYS_FID, fi_av_attr, fi_cntr_attr, fi_cq_attr, fi_domain_attr, fi_info, fi_ops,
    fi_ops_domain, fi_poll_attr, fi_rx_attr, fi_tx_attr, fid, fid_av, fid_cntr, fid_cq, fid_domain,
    fid_ep, fid_poll, fid_stx,
};
use erd_ffi::guard::guarded;
use erd_port::udp::{Interface, interfaces};
use erd_port::verbs::Port;
use parking_lot::Mutex;
use std::ffi::{CStr, c_int, c_void};
use std::net::IpAddr;
use std::ops::Deref;
use std::sync::Arc;

/// A domain, with the state that only libfabric needs.
pub struct DomainFid {
    /// The domain.
    pub domain: Arc<Domain>,
    /// Capabilities granted: those of `fi_info` and those of its domain attributes.
    pub(crate) caps: u64,
    /// The event queue bound to it.
    eq: Mutex<Option<BoundEq>>,
    fabric: Arc<FabricInner>,
    _fabric_use: Use,
}

impl Deref for DomainFid {
    type Target = Domain;

    fn deref(&self) -> &Domain {
        &self.domain
    }
}

// SAFETY: `fid_domain` begins with its `fid`, and no other state has this class.
unsafe impl Class for DomainFid {
    type Abi = fid_domain;
    const FCLASS: usize = FI_CLASS_DOMAIN;

    fn users(&self) -> &Users {
        self.domain.users()
    }
}

impl DomainFid {
    /// The API version that the application asked for.
    #[must_use]
    pub fn api_version(&self) -> u32 {
        self.fabric.api_version
    }

    /// Whether `call` may open objects of another provider here (`FI_PEER`).
    pub(crate) fn takes_peers(&self, call: &str) -> bool {
        let granted = self.caps & FI_PEER != 0;
        if !granted {
            tracing::info!(
                "{call}: FI_PEER: the domain was opened without this capability, which hints ask \
                 for and libfabric 2.3 and later have"
            );
        }
        granted
    }
}

/// A request for a domain, from the caller's `fi_info`.
struct Request {
    iface: Option<String>,
    address: Option<IpAddr>,
    family: Option<Family>,
    caps: u64,
    attr: fi_domain_attr,
}

/// # Safety
/// `info` is valid as `fi_domain(3)` says, made for `api_version`.
unsafe fn read_request(info: &fi_info, api_version: u32) -> Option<Request> {
    if info.domain_attr.is_null() {
        return None;
    }
    // SAFETY: the caller's attribute, read as far as its API version reaches; its name is NULL or
    // a C string; an address is as long as its length says.
    let (attr, iface, source) = unsafe {
        let attr = compat::read(info.domain_attr, api_version);
        let name = (!attr.name.is_null()).then(|| CStr::from_ptr(attr.name));
        (attr, name, sockaddr::read(info.src_addr, info.src_addrlen))
    };
    let source = source.ok().flatten();
    Some(Request {
        iface: iface.map(|name| entry::manners().device(&name.to_string_lossy()).to_owned()),
        address: source.map(|source| source.ip()).filter(|ip| !ip.is_unspecified()),
        family: source
            .map(|source| Family::of(source.ip()))
            .or(addr_format::family(info.addr_format)),
        caps: info.caps | attr.caps,
        attr,
    })
}

/// The interface that a request means: by its name or that of its RDMA device, then by address, then by family; where
/// `FI_ERD_PORT` requires verbs, only by a device. An address within a loopback network belongs to it, too.
fn pick_spot(request: &Request, settings: &Settings) -> Option<Spot> {
    let fits = |entry: &Interface| {
        entry.up
            && request.family.is_none_or(|family| family == Family::of(entry.addr))
            && request.address.is_none_or(|ip| place::owns(entry, ip))
    };
    let found: Vec<Interface> = interfaces(&settings.sysfs).into_iter().filter(fits).collect();
    let named = |entry: &&Interface| request.iface.as_ref().is_none_or(|name| *name == entry.name);
    let local = |entry: &Interface| request.address.unwrap_or(entry.addr);
    let interface = found.iter().find(named);
    if let Some(entry) = interface.filter(|_| settings.port != PortSetting::Verbs) {
        return Some(Spot { entry: entry.clone(), local: local(entry), port: None });
    }
    let ports = erd_core::rdma::usable(settings).ok()?;
    found.iter().find_map(|entry| {
        let on = erd_core::rdma::on_interface(settings, &ports, entry);
        let named = |port: &Port| request.iface.as_ref().is_none_or(|name| *name == port.name());
        let port = on.into_iter().find(named)?;
        Some(Spot { entry: entry.clone(), local: local(entry), port: Some(port) })
    })
}

/// Rules for keys under this `mr_mode`.
pub(crate) fn key_terms(mr_mode: c_int) -> KeyTerms {
    // Before 1.5, FI_MR_BASIC was the name for these modes together.
    let has = |bit| mr_mode & (bit | FI_MR_BASIC) != 0;
    KeyTerms {
        random: has(FI_MR_PROV_KEY),
        at_enable: mr_mode & FI_MR_ENDPOINT != 0,
        by_address: has(FI_MR_VIRT_ADDR),
    }
}

/// `fi_domain(3)`.
///
/// # Safety
/// `info` and `domain` are as the man page says.
pub unsafe fn open(
    fabric: &Arc<FabricInner>,
    info: *mut fi_info,
    domain: *mut *mut fid_domain,
    context: *mut c_void,
) -> c_int {
    if info.is_null() || domain.is_null() {
        return -FI_EINVAL;
    }
    // SAFETY: the caller's `fi_info`, from `fi_getinfo` of the fabric's API version.
    let Some(request) = (unsafe { read_request(&*info, fabric.api_version) }) else {
        return -FI_EINVAL;
    };
    // SAFETY: the attributes are as `fi_domain(3)` says.
    let keys = unsafe { auth_key::of_domain(&request.attr) };
    let keys = keys.map_err(|bad| bad.refuse("fi_domain: domain_attr->auth_key"));
    let settings = match keys.and_then(crate::entry::settings_with) {
        Ok(settings) => settings,
        Err(errno) => return -errno,
    };
    let Some(spot) = pick_spot(&request, &settings) else {
        tracing::warn!("fi_domain: no interface that is up fits domain_attr->name and src_addr");
        return -FI_ENODATA;
    };
    let mr_mode = request.attr.mr_mode;
    let Some(dscp) = traffic_class::dscp(request.attr.tclass) else {
        let tclass = format!("{:#x}", request.attr.tclass);
        tracing::warn!(tclass, "fi_domain: domain_attr->tclass is none of fi_domain(3)'s classes");
        return -FI_EINVAL;
    };
    let terms = Terms {
        auto_progress: request.attr.data_progress == FI_PROGRESS_AUTO,
        stays: mr_mode & (FI_MR_ALLOCATED | FI_MR_BASIC) != 0,
        keys: key_terms(mr_mode),
        dscp,
    };
    let opened = match Domain::new(settings, spot, &terms) {
        Ok(opened) => opened,
        Err(error) => return -errno::of(error),
    };
    let inner = Arc::new(DomainFid {
        domain: opened,
        // A caller may have put it there itself.
        caps: request.caps & !if fabric.takes_peers { 0 } else { FI_PEER },
        eq: Mutex::new(None),
        fabric: Arc::clone(fabric),
        _fabric_use: fabric.hold(),
    });
    let abi = fid_domain {
        fid: object::base::<DomainFid>(context, &FID_OPS),
        ops: &DOMAIN_OPS,
        mr: &crate::mr::MR_OPS,
    };
    // SAFETY: the caller gave a place for the new object.
    unsafe { *domain = object::publish(abi, inner) };
    0
}

static FID_OPS: fi_ops = fi_ops {
    close: object::close::<DomainFid>,
    bind: domain_bind,
    control: domain_control,
    ops_open: crate::extension::domain_ops_open,
    ..NOSYS_FID
};

static DOMAIN_OPS: fi_ops_domain = fi_ops_domain {
    av_open,
    cq_open,
    endpoint,
    endpoint2,
    scalable_ep,
    stx_ctx,
    srx_ctx,
    poll_open: domain_poll_open,
    cntr_open,
    query_atomic: crate::ep::query_atomic,
    ..NOSYS_DOMAIN
};

guarded! {
    unsafe extern "C" fn domain_bind(domain: *mut fid, other: *mut fid, flags: u64) -> c_int {
        if flags != 0 {
            tracing::info!(flags, "fi_domain_bind: registration is never asynchronous");
            return -FI_EBADFLAGS;
        }
        // SAFETY: libfabric calls with our open domain and another open object.
        let (Some(domain), Some(eq)) = (unsafe {
            (object::from_fid::<DomainFid>(domain), object::from_fid::<EqInner>(other))
        }) else {
            return -FI_EINVAL;
        };
        let mut slot = domain.eq.lock();
        if slot.is_some() {
            return -FI_EALREADY;
        }
        *slot = Some(BoundEq::new(eq));
        0
    }

    unsafe extern "C" fn domain_control(domain: *mut fid, command: c_int, arg: *mut c_void) -> c_int {
        // SAFETY: libfabric calls with our open domain.
        let Some(domain) = (unsafe { object::from_fid::<DomainFid>(domain) }) else {
            return -FI_EINVAL;
        };
        if arg.is_null() && command != FI_FLUSH_WORK {
            return -FI_EINVAL;
        }
        match command {
            // SAFETY: these commands' argument is what fi_trigger(3) says.
            FI_QUEUE_WORK | FI_CANCEL_WORK | FI_FLUSH_WORK => unsafe {
                crate::deferred::control(domain, command, arg)
            },
            // SAFETY: this command's argument is what fi_mr(3) says.
            FI_MAP_RAW_MR => unsafe { crate::mr::map_raw(arg.cast()) },
            FI_UNMAP_KEY => 0,
            _ => -FI_ENOSYS,
        }
    }

    unsafe extern "C" fn av_open(
        domain: *mut fid_domain,
        attr: *mut fi_av_attr,
        av: *mut *mut fid_av,
        context: *mut c_void,
    ) -> c_int {
        // SAFETY: libfabric calls with our open domain and pointers as fi_av(3) says.
        unsafe { crate::av::open(object::inner::<DomainFid>(domain), attr, av, context) }
    }

    unsafe extern "C" fn cq_open(
        domain: *mut fid_domain,
        attr: *mut fi_cq_attr,
        cq: *mut *mut fid_cq,
        context: *mut c_void,
    ) -> c_int {
        // SAFETY: libfabric calls with our open domain and pointers as fi_cq(3) says.
        unsafe { crate::cq::open(object::inner::<DomainFid>(domain), attr, cq, context) }
    }

    unsafe extern "C" fn endpoint(
        domain: *mut fid_domain,
        info: *mut fi_info,
        ep: *mut *mut fid_ep,
        context: *mut c_void,
    ) -> c_int {
        // SAFETY: libfabric calls with our open domain and pointers as fi_endpoint(3) says.
        unsafe { crate::ep::open(object::inner::<DomainFid>(domain), info, ep, context) }
    }

    unsafe extern "C" fn endpoint2(
        domain: *mut fid_domain,
        info: *mut fi_info,
        ep: *mut *mut fid_ep,
        flags: u64,
        context: *mut c_void,
    ) -> c_int {
        if flags != 0 {
            tracing::info!(flags, "fi_endpoint2: peer objects are not supported; flags must be 0");
            return -FI_ENOSYS;
        }
        // SAFETY: as above.
        unsafe { crate::ep::open(object::inner::<DomainFid>(domain), info, ep, context) }
    }

    unsafe extern "C" fn stx_ctx(
        domain: *mut fid_domain,
        attr: *mut fi_tx_attr,
        stx: *mut *mut fid_stx,
        context: *mut c_void,
    ) -> c_int {
        // SAFETY: as above.
        unsafe {
            crate::shared::open_transmit(object::inner::<DomainFid>(domain), attr, stx, context)
        }
    }

    unsafe extern "C" fn srx_ctx(
        domain: *mut fid_domain,
        attr: *mut fi_rx_attr,
        srx: *mut *mut fid_ep,
        context: *mut c_void,
    ) -> c_int {
        // SAFETY: as above.
        unsafe {
            crate::shared::open_receive(object::inner::<DomainFid>(domain), attr, srx, context)
        }
    }

    unsafe extern "C" fn domain_poll_open(
        domain: *mut fid_domain,
        attr: *mut fi_poll_attr,
        pollset: *mut *mut fid_poll,
    ) -> c_int {
        // SAFETY: libfabric calls with our open domain and pointers as fi_poll(3) says.
        unsafe { crate::poll::open(domain, attr, pollset) }
    }

    unsafe extern "C" fn scalable_ep(
        domain: *mut fid_domain,
        info: *mut fi_info,
        sep: *mut *mut fid_ep,
        context: *mut c_void,
    ) -> c_int {
        // SAFETY: as above.
        unsafe { crate::sep::open(object::inner::<DomainFid>(domain), info, sep, context) }
    }

    unsafe extern "C" fn cntr_open(
        domain: *mut fid_domain,
        attr: *mut fi_cntr_attr,
        cntr: *mut *mut fid_cntr,
        context: *mut c_void,
    ) -> c_int {
        // SAFETY: libfabric calls with our open domain and pointers as fi_cntr(3) says.
        unsafe { crate::cntr::open(object::inner::<DomainFid>(domain), attr, cntr, context) }
    }
}
