//! `fid_domain`: one interface, and what its endpoints share (`fi_domain(3)`).

use crate::admission::Admission;
use crate::cntr::CntrInner;
use crate::ep::EpInner;
use crate::ep::net_errors::NetErrors;
use crate::eq::{BoundEq, EqInner};
use crate::fabric::FabricInner;
use crate::held::Held;
use crate::mr::MrTable;
use crate::object::{self, Class, Use, Users};
use crate::region::Region;
use crate::shared;
use crate::trigger::Work;
use erd_core::plan::{self, Near};
use erd_core::scheme::SchemeChoice;
use erd_core::settings::{PortSetting, Settings};
use erd_core::sockaddr::{self, Family};
use erd_ffi::fi::compat;
use erd_ffi::fi::{
    FI_CANCEL_WORK, FI_CLASS_DOMAIN, FI_EALREADY, FI_EBADFLAGS, FI_EINVAL, FI_ENODATA, FI_ENOSYS,
    FI_FLUSH_WORK, FI_MAP_RAW_MR, FI_MR_ALLOCATED, FI_MR_BASIC, FI_PEER, FI_PROGRESS_AUTO,
    FI_QUEUE_WORK, FI_THREAD_SAFE, FI_THREAD_UNSPEC, FI_UNMAP_KEY, NOSYS_DOMAIN, NOSYS_FID,
    fi_av_attr, fi_cntr_attr, fi_cq_attr, fi_domain_attr, fi_info, fi_ops, fi_ops_domain,
    fi_poll_attr, fi_rx_attr, fi_threading, fi_tx_attr, fid, fid_av, fid_cntr, fid_cq, fid_domain,
    fid_ep, fid_poll, fid_stx,
};
use erd_ffi::guard::guarded;
use erd_port::udp::{Interface, PortError, PortOptions, Shares, TxSockets, interfaces};
use erd_port::verbs::{self, Port, VerbsPort};
use parking_lot::Mutex;
use std::ffi::{CStr, c_int, c_void};
use std::net::IpAddr;
use std::sync::{Arc, Weak};

/// Receives that a port of an RDMA device keeps posted.
const RECV_SLOTS: u32 = 2048;

/// State of a domain. Everything but the locks is fixed when it is opened.
pub struct DomainInner {
    /// The fabric that it was opened under.
    pub fabric: Arc<FabricInner>,
    /// Parameters as they were when the domain was opened.
    pub settings: Settings,
    /// The address of this host that the domain is on.
    pub local: IpAddr,
    /// Name of the interface that has this address.
    pub iface: String,
    /// The interface's MTU in bytes, IP header included.
    pub mtu_bytes: u32,
    /// The interface is the loopback.
    pub loopback: bool,
    /// Paths to spray over, 1 to 256.
    pub paths: u16,
    /// Speed of the link in bytes per second; 0 if unknown.
    pub link_bytes_per_s: u64,
    /// Capabilities granted: those of `fi_info` and those of its domain attributes.
    pub caps: u64,
    /// The threading model that the application keeps to.
    pub threading: fi_threading,
    /// The application may leave all progress to the provider (`FI_PROGRESS_AUTO`).
    pub auto_progress: bool,
    /// Memory registered for remote access, and how keys are given.
    pub regions: Arc<MrTable>,
    /// Whose requests the application's keys are good for.
    pub admission: Arc<Admission>,
    /// What the network said about sends, for all endpoints.
    pub net_errors: NetErrors,
    /// Endpoints that are enabled, and counters of accesses to registered memory: who reads one
    /// of these lets all of those progress.
    members: Mutex<Members>,
    /// What counters have made due.
    pub work: Arc<Work>,
    /// Endpoints that hold messages back.
    pub held: Held,
    /// Congestion control unless the application chooses another.
    scheme: SchemeChoice,
    /// What it has chosen, for endpoints that are enabled from then on.
    chosen: Mutex<Option<SchemeChoice>>,
    /// What holds towards peers on this host, where that is something else.
    near: Option<Near>,
    /// What carries data beside UDP.
    pub verbs: Option<Arc<VerbsPort>>,
    /// How peers on this host read payloads where they lie.
    pub shares: Option<Arc<Shares>>,
    /// Least payload that the port sends from registered memory without a copy.
    pub zero_copy_bytes: Option<u64>,
    /// What is registered is there, and stays: the port may know its pages.
    pins: bool,
    tx: Mutex<Option<Arc<TxSockets>>>,
    eq: Mutex<Option<BoundEq>>,
    users: Users,
    _fabric_use: Use,
}

#[derive(Default)]
struct Members {
    endpoints: Vec<Weak<EpInner>>,
    counters: Vec<Weak<CntrInner>>,
}

// SAFETY: `fid_domain` begins with its `fid`, and no other state has this class.
unsafe impl Class for DomainInner {
    type Abi = fid_domain;
    const FCLASS: usize = FI_CLASS_DOMAIN;

    fn users(&self) -> &Users {
        &self.users
    }
}

impl DomainInner {
    /// A region that may be sent from: registered with the port too if that is to send from it without
    /// copying.
    pub(crate) fn pinned(&self, region: Region) -> Region {
        match (&self.verbs, self.zero_copy_bytes) {
            (Some(port), Some(least_bytes)) if self.pins => region.pinned(port, least_bytes),
            _ => match &self.shares {
                Some(shares) => region.shared(shares),
                None => region,
            },
        }
    }

    /// A domain at `spot`. Its RDMA device, if it has one, is opened, its sockets are not.
    ///
    /// # Errors
    /// `FI_ENODATA` if `FI_ERD_PORT` insists on verbs, and there are none.
    pub(crate) fn new(
        fabric: &Arc<FabricInner>,
        settings: Settings,
        spot: Spot,
        terms: &Terms,
    ) -> Result<Arc<DomainInner>, c_int> {
        let Spot { entry, local, port } = spot;
        let paths = plan::paths(&settings, &entry, port.as_ref());
        let verbs = open_verbs(port.as_ref(), &settings, paths)?;
        let zero_copy_bytes =
            plan::zero_copy_bytes(&settings, verbs.as_ref().map(|verbs| verbs.port()));
        let opened = verbs.as_ref().map(|verbs| verbs.port());
        let near = Near::new(&settings, &entry, opened);
        let shares = plan::shares(&settings, opened)
            .then(|| Shares::new(local, settings.ecn, settings.send_buffer_bytes))
            .flatten()
            .map(Arc::new);
        let admission = Arc::new(Admission::new(settings.key_peers));
        let scheme = settings.scheme_on(plan::is_by_hosts(&entry, opened), shares.is_some());
        Ok(Arc::new(DomainInner {
            fabric: Arc::clone(fabric),
            verbs,
            zero_copy_bytes,
            shares,
            pins: terms.mr_mode & (FI_MR_ALLOCATED | FI_MR_BASIC) != 0,
            paths,
            link_bytes_per_s: plan::link_bytes_per_s(&settings, &entry),
            scheme,
            chosen: Mutex::new(None),
            near,
            settings,
            local,
            iface: entry.name,
            mtu_bytes: entry.mtu_bytes,
            loopback: entry.loopback,
            caps: terms.caps,
            threading: match terms.threading {
                FI_THREAD_UNSPEC => FI_THREAD_SAFE,
                threading => threading,
            },
            auto_progress: terms.auto_progress,
            regions: Arc::new(MrTable::new(terms.mr_mode)),
            admission,
            net_errors: NetErrors::default(),
            members: Mutex::default(),
            work: Arc::default(),
            held: Held::default(),
            tx: Mutex::new(None),
            eq: Mutex::new(None),
            users: Users::default(),
            _fabric_use: fabric.hold(),
        }))
    }

    /// Keeps the domain open until the answer is dropped: for endpoints, CQs, AVs, counters, MRs.
    #[must_use]
    pub fn hold(&self) -> Use {
        self.users.add()
    }

    /// The API version that the application asked for.
    #[must_use]
    pub fn api_version(&self) -> u32 {
        self.fabric.api_version
    }

    /// Address family of the domain and of all addresses in its AVs.
    #[must_use]
    pub fn family(&self) -> Family {
        Family::of(self.local)
    }

    /// Options for this domain's sockets.
    #[must_use]
    pub fn port_options(&self) -> PortOptions {
        PortOptions {
            recv_buffer_bytes: self.settings.recv_buffer_bytes,
            send_buffer_bytes: self.settings.send_buffer_bytes,
            paths: self.paths,
            gso: self.settings.gso,
            gro: self.settings.gro,
            ecn: self.settings.ecn,
            timestamps: self.settings.timestamps,
            faults: self.settings.test_faults,
            shares: self.shares.clone(),
            ..PortOptions::default()
        }
    }

    /// The send sockets, which all endpoints of the domain share. Opened at the first call.
    ///
    /// # Errors
    /// What keeps them from being opened.
    pub fn tx_sockets(&self) -> Result<Arc<TxSockets>, PortError> {
        let mut slot = self.tx.lock();
        if let Some(sockets) = &*slot {
            return Ok(Arc::clone(sockets));
        }
        let ecn = self.settings.ecn && self.scheme().heeds_ecn();
        let options = PortOptions { ecn, ..self.port_options() };
        let sockets = Arc::new(TxSockets::open(self.local, &options)?);
        *slot = Some(Arc::clone(&sockets));
        Ok(sockets)
    }

    /// The congestion control of endpoints that are enabled from now on.
    #[must_use]
    pub fn scheme(&self) -> SchemeChoice {
        self.chosen.lock().as_ref().unwrap_or(&self.scheme).clone()
    }

    /// What endpoints that are enabled from now on use towards peers on this host; `None` if it is what
    /// they use towards all.
    #[must_use]
    pub fn near(&self) -> Option<Near> {
        let near = self.near.clone()?;
        let chosen = self.chosen.lock().clone();
        Some(Near { scheme: chosen.unwrap_or(near.scheme), ..near })
    }

    /// Chooses it.
    pub fn set_scheme(&self, scheme: SchemeChoice) {
        *self.chosen.lock() = Some(scheme);
    }

    /// `endpoint` was enabled.
    pub fn joined(&self, endpoint: &Arc<EpInner>) {
        let mut members = self.members.lock();
        members.endpoints.retain(|known| known.strong_count() > 0);
        members.endpoints.push(Arc::downgrade(endpoint));
        for cntr in members.counters.iter().filter_map(Weak::upgrade) {
            cntr.watch.add(endpoint);
        }
    }

    /// `endpoint` closes.
    pub fn left(&self, endpoint: &EpInner) {
        let mut members = self.members.lock();
        members.endpoints.retain(|known| !std::ptr::eq(known.as_ptr(), endpoint));
        for cntr in members.counters.iter().filter_map(Weak::upgrade) {
            cntr.watch.remove(endpoint);
        }
    }

    /// `cntr` counts what any endpoint may bring: accesses to registered memory, or deferred work.
    pub fn watch_region(&self, cntr: &Arc<CntrInner>) {
        let mut members = self.members.lock();
        members.counters.retain(|known| known.strong_count() > 0);
        if members.counters.iter().any(|known| std::ptr::eq(known.as_ptr(), &raw const **cntr)) {
            return;
        }
        members.counters.push(Arc::downgrade(cntr));
        for endpoint in members.endpoints.iter().filter_map(Weak::upgrade) {
            cntr.watch.add(&endpoint);
        }
    }

    /// Whether objects of another provider may be opened here (`FI_PEER`); `call` would.
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

    /// The event queue bound to the domain.
    #[must_use]
    pub fn event_queue(&self) -> Option<Arc<EqInner>> {
        self.eq.lock().as_ref().map(|bound| Arc::clone(&bound.eq))
    }
}

/// What `fi_domain` is asked for, out of the caller's `fi_info`.
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
        iface: iface.map(|name| name.to_string_lossy().into_owned()),
        address: source.map(|source| source.ip()).filter(|ip| !ip.is_unspecified()),
        family: source
            .map(|source| Family::of(source.ip()))
            .or(crate::addr_format::family(info.addr_format)),
        caps: info.caps | attr.caps,
        attr,
    })
}

/// Where a domain is.
pub(crate) struct Spot {
    pub entry: Interface,
    pub local: IpAddr,
    pub port: Option<Port>,
}

/// What an application asks of a domain beside where it is.
pub(crate) struct Terms {
    pub caps: u64,
    pub threading: fi_threading,
    pub auto_progress: bool,
    pub mr_mode: c_int,
}

/// The interface that a request means: by its name or that of its RDMA device, then by address, then by
/// family; where `FI_ERD_PORT` insists on verbs, only by a device. An address within a loopback network belongs to it, too.
fn pick_spot(request: &Request, settings: &Settings) -> Option<Spot> {
    let fits = |entry: &Interface| {
        entry.up
            && request.family.is_none_or(|family| family == Family::of(entry.addr))
            && request.address.is_none_or(|ip| crate::info::owns(entry, ip))
    };
    let found: Vec<Interface> = interfaces().into_iter().filter(fits).collect();
    let named = |entry: &&Interface| request.iface.as_ref().is_none_or(|name| *name == entry.name);
    let local = |entry: &Interface| request.address.unwrap_or(entry.addr);
    let interface = found.iter().find(named);
    if let Some(entry) = interface.filter(|_| settings.port != PortSetting::Verbs) {
        return Some(Spot { entry: entry.clone(), local: local(entry), port: None });
    }
    let ports = erd_core::rdma::usable(settings).ok()?;
    found.iter().find_map(|entry| {
        let on = erd_core::rdma::on_interface(&ports, entry);
        let named = |port: &Port| request.iface.as_ref().is_none_or(|name| *name == port.name());
        let port = on.into_iter().find(named)?;
        Some(Spot { entry: entry.clone(), local: local(entry), port: Some(port) })
    })
}

/// Opens the port of an RDMA device; `None`, with one warning, if that fails and UDP will do.
///
/// # Errors
/// `FI_ENODATA` if `FI_ERD_PORT` insists on verbs.
fn open_verbs(
    port: Option<&Port>,
    settings: &Settings,
    paths: u16,
) -> Result<Option<Arc<VerbsPort>>, c_int> {
    let Some(port) = port else { return Ok(None) };
    let options =
        verbs::Options { paths, recv_slots: RECV_SLOTS, qkey: erd_core::random::u64() as u32 };
    match VerbsPort::open(port, &options) {
        Ok(open) => Ok(Some(Arc::new(open))),
        Err(error) if settings.port == PortSetting::Verbs => {
            tracing::warn!(device = port.name(), %error, "no verbs, on which FI_ERD_PORT insists");
            Err(FI_ENODATA)
        }
        Err(error) => {
            let name = port.name();
            erd_core::rdma::warn_once(format!("{name} cannot be used, UDP is instead: {error}"));
            Ok(None)
        }
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
    let settings = match crate::entry::settings() {
        Ok(settings) => settings,
        Err(errno) => return -errno,
    };
    let Some(spot) = pick_spot(&request, &settings) else {
        tracing::warn!("fi_domain: no interface that is up fits domain_attr->name and src_addr");
        return -FI_ENODATA;
    };
    let terms = Terms {
        // A caller may have put it there itself.
        caps: request.caps & !if crate::peer::is_available() { 0 } else { FI_PEER },
        threading: request.attr.threading,
        auto_progress: request.attr.data_progress == FI_PROGRESS_AUTO,
        mr_mode: request.attr.mr_mode,
    };
    let inner = match DomainInner::new(fabric, settings, spot, &terms) {
        Ok(inner) => inner,
        Err(errno) => return -errno,
    };
    let abi = fid_domain {
        fid: object::base::<DomainInner>(context, &FID_OPS),
        ops: &DOMAIN_OPS,
        mr: &crate::mr::MR_OPS,
    };
    // SAFETY: the caller gave a place for the new object.
    unsafe { *domain = object::publish(abi, inner) };
    0
}

static FID_OPS: fi_ops = fi_ops {
    close: object::close::<DomainInner>,
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
            (object::from_fid::<DomainInner>(domain), object::from_fid::<EqInner>(other))
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
        let Some(domain) = (unsafe { object::from_fid::<DomainInner>(domain) }) else {
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
        unsafe { crate::av::open(object::inner::<DomainInner>(domain), attr, av, context) }
    }

    unsafe extern "C" fn cq_open(
        domain: *mut fid_domain,
        attr: *mut fi_cq_attr,
        cq: *mut *mut fid_cq,
        context: *mut c_void,
    ) -> c_int {
        // SAFETY: libfabric calls with our open domain and pointers as fi_cq(3) says.
        unsafe { crate::cq::open(object::inner::<DomainInner>(domain), attr, cq, context) }
    }

    unsafe extern "C" fn endpoint(
        domain: *mut fid_domain,
        info: *mut fi_info,
        ep: *mut *mut fid_ep,
        context: *mut c_void,
    ) -> c_int {
        // SAFETY: libfabric calls with our open domain and pointers as fi_endpoint(3) says.
        unsafe { crate::ep::open(object::inner::<DomainInner>(domain), info, ep, context) }
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
        unsafe { crate::ep::open(object::inner::<DomainInner>(domain), info, ep, context) }
    }

    unsafe extern "C" fn stx_ctx(
        domain: *mut fid_domain,
        attr: *mut fi_tx_attr,
        stx: *mut *mut fid_stx,
        context: *mut c_void,
    ) -> c_int {
        // SAFETY: as above.
        unsafe {
            shared::open_transmit(object::inner::<DomainInner>(domain), attr, stx, context)
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
            shared::open_receive(object::inner::<DomainInner>(domain), attr, srx, context)
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
        unsafe { crate::sep::open(object::inner::<DomainInner>(domain), info, sep, context) }
    }

    unsafe extern "C" fn cntr_open(
        domain: *mut fid_domain,
        attr: *mut fi_cntr_attr,
        cntr: *mut *mut fid_cntr,
        context: *mut c_void,
    ) -> c_int {
        // SAFETY: libfabric calls with our open domain and pointers as fi_cntr(3) says.
        unsafe { crate::cntr::open(object::inner::<DomainInner>(domain), attr, cntr, context) }
    }
}
