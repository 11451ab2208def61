//! Domains: one interface, and the state that its endpoints share.

use crate::admission::Admission;
use crate::error::Error;
use crate::held::Held;
use crate::keys::{KeyTable, KeyTerms};
use crate::plan::{self, Near};
use crate::polled::{Polled, address};
use crate::region::Region;
use crate::run::net_errors::NetErrors;
use crate::scheme::SchemeChoice;
use crate::settings::{PortSetting, Settings};
use crate::sockaddr::Family;
use crate::trigger::Work;
use crate::uses::{Use, Users};
use crate::watch::Watch;
use erd_port::udp::{Interface, PortError, PortOptions, TxSockets};
use erd_port::verbs::{self, Port, Service, VerbsPort};
use erd_sys::process::Process;
use parking_lot::Mutex;
use std::net::IpAddr;
use std::sync::{Arc, Weak};

/// Receives that a port of an RDMA device keeps posted, for all endpoints of its domain together.
const RECV_SLOTS: u32 = 2048;

/// State of a domain. Everything but the locks is fixed when it is opened.
pub struct Domain {
    /// Settings at the time the domain was opened.
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
    /// The application may leave all progress to the provider.
    pub auto_progress: bool,
    /// Memory registered for remote access, and how keys are given.
    pub regions: Arc<KeyTable>,
    /// Initiators that may use the application's keys.
    pub admission: Arc<Admission>,
    /// Errors that the network reported about sends, for all endpoints.
    pub net_errors: Arc<NetErrors>,
    /// Endpoints that are enabled, and counters of accesses to registered memory: reading one of these counters lets
    /// all endpoints progress.
    members: Mutex<Members>,
    /// Work that counters have made due.
    pub work: Arc<Work>,
    /// Endpoints that hold messages back.
    pub held: Arc<Held>,
    /// Congestion control unless the application chooses another.
    scheme: SchemeChoice,
    /// The application's choice, for endpoints that are enabled from then on.
    chosen: Mutex<Option<SchemeChoice>>,
    /// The settings towards peers on this host, where they differ.
    near: Option<Near>,
    /// The verbs port, which carries data beside UDP.
    pub verbs: Option<Arc<VerbsPort>>,
    /// The class of what it sends (DSCP).
    pub(crate) dscp: u8,
    /// Least payload that the port sends from registered memory without a copy.
    pub zero_copy_bytes: Option<u64>,
    /// Registered memory is resident and stays mapped, so the port may register its pages.
    pins: bool,
    tx: Mutex<Option<Arc<TxSockets>>>,
    users: Users,
    owner: Process,
}

#[derive(Default)]
struct Members {
    endpoints: Vec<Weak<dyn Polled>>,
    /// The wait objects of those counters.
    counters: Vec<Weak<Watch>>,
}

impl Domain {
    /// A region that endpoints may send from: registered with the port too if the port sends from it without copying.
    pub fn pinned(&self, region: Region) -> Region {
        match (&self.verbs, self.zero_copy_bytes) {
            (Some(port), Some(least_bytes)) if self.pins => region.pinned(port, least_bytes),
            _ => region,
        }
    }

    /// A domain at `spot`. Its RDMA device, if it has one, is opened, its sockets are not.
    ///
    /// # Errors
    /// [`Error::NoData`] if `FI_ERD_PORT` requires verbs, and there is no RDMA device.
    pub fn new(settings: Settings, spot: Spot, terms: &Terms) -> Result<Arc<Domain>, Error> {
        let Spot { entry, local, port } = spot;
        let paths = plan::paths(&settings, &entry, port.as_ref());
        let dscp = settings.dscp.unwrap_or(terms.dscp);
        let verbs = open_verbs(port.as_ref(), &settings, (paths, dscp))?;
        let zero_copy_bytes =
            plan::zero_copy_bytes(&settings, verbs.as_ref().map(|verbs| verbs.port()));
        let opened = verbs.as_ref().map(|verbs| verbs.port());
        let near = Near::new(&settings, &entry, opened);
        let admission = Arc::new(Admission::new(settings.key_peers, settings.strangers));
        let scheme = settings.scheme_on(plan::is_by_hosts(&entry, opened));
        Ok(Arc::new(Domain {
            verbs,
            dscp,
            zero_copy_bytes,
            pins: terms.stays,
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
            auto_progress: terms.auto_progress,
            regions: Arc::new(KeyTable::new(terms.keys)),
            admission,
            net_errors: Arc::default(),
            members: Mutex::default(),
            work: Arc::default(),
            held: Arc::default(),
            tx: Mutex::new(None),
            users: Users::default(),
            owner: Process::current(),
        }))
    }

    /// True in the process that opened it. A forked child of that has none of its sockets and queues.
    #[must_use]
    pub fn is_own(&self) -> bool {
        self.owner.is_current()
    }

    /// Keeps the domain open until the result is dropped: for endpoints, CQs, AVs, counters, MRs.
    #[must_use]
    pub fn hold(&self) -> Use {
        self.users.add()
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
            ports: self.settings.udp_ports,
            dscp: self.dscp,
            faults: self.settings.test_faults,
            ..PortOptions::default()
        }
    }

    /// The send sockets, which all endpoints of the domain share. The first call opens them.
    ///
    /// # Errors
    /// Error of opening them.
    pub(crate) fn tx_sockets(&self) -> Result<Arc<TxSockets>, PortError> {
        let mut slot = self.tx.lock();
        if let Some(sockets) = &*slot {
            return Ok(Arc::clone(sockets));
        }
        let ecn = self.settings.ecn && self.scheme().uses_ecn();
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

    /// The settings towards peers on this host, for endpoints enabled from now on; `None` if they are the same as
    /// towards all.
    #[must_use]
    pub fn near(&self) -> Option<Near> {
        let near = self.near.clone()?;
        let chosen = self.chosen.lock().clone();
        Some(Near { scheme: chosen.unwrap_or(near.scheme), ..near })
    }

    /// Sets the congestion control of endpoints that are enabled from now on.
    pub fn set_scheme(&self, scheme: SchemeChoice) {
        *self.chosen.lock() = Some(scheme);
    }

    /// `endpoint` was enabled.
    pub fn joined(&self, endpoint: &Arc<dyn Polled>) {
        let mut members = self.members.lock();
        members.endpoints.retain(|known| known.strong_count() > 0);
        members.endpoints.push(Arc::downgrade(endpoint));
        for watch in members.counters.iter().filter_map(Weak::upgrade) {
            watch.add(endpoint);
        }
    }

    /// `endpoint` closes.
    pub fn left(&self, endpoint: &dyn Polled) {
        let mut members = self.members.lock();
        members.endpoints.retain(|known| address(known.as_ptr()) != address(endpoint));
        for watch in members.counters.iter().filter_map(Weak::upgrade) {
            watch.remove(endpoint);
        }
    }

    /// Counter of this watch counts events of any endpoint: accesses to registered memory, or deferred work.
    pub fn watch_region(&self, watch: &Arc<Watch>) {
        let mut members = self.members.lock();
        members.counters.retain(|known| known.strong_count() > 0);
        if members.counters.iter().any(|known| std::ptr::eq(known.as_ptr(), &raw const **watch)) {
            return;
        }
        members.counters.push(Arc::downgrade(watch));
        for endpoint in members.endpoints.iter().filter_map(Weak::upgrade) {
            watch.add(&endpoint);
        }
    }

    /// Objects that need the domain open.
    #[must_use]
    pub fn users(&self) -> &Users {
        &self.users
    }
}

/// Place of a domain.
pub struct Spot {
    /// The interface.
    pub entry: Interface,
    /// The chosen address on it.
    pub local: IpAddr,
    /// The port of an RDMA device on it, if one is to be used.
    pub port: Option<Port>,
}

/// An application's demands on a domain, beside its place.
#[derive(Clone, Copy)]
pub struct Terms {
    /// The application may leave all progress to the library.
    pub auto_progress: bool,
    /// Registered memory is resident and stays mapped while it is registered.
    pub stays: bool,
    /// Rules for keys of registered memory.
    pub keys: KeyTerms,
    /// The class of what the domain sends (DSCP, 0 to 63), unless the settings say another.
    pub dscp: u8,
}

/// Opens the port of an RDMA device; `None`, with one warning, if that fails and UDP will do.
///
/// # Errors
/// [`Error::NoData`] if `FI_ERD_PORT` requires verbs.
fn open_verbs(
    port: Option<&Port>,
    settings: &Settings,
    (paths, dscp): (u16, u8),
) -> Result<Option<Arc<VerbsPort>>, Error> {
    let Some(port) = port else { return Ok(None) };
    let options = verbs::Options {
        paths,
        recv_slots: RECV_SLOTS,
        qkey: crate::random::u64() as u32,
        service: Service { dscp, level: settings.service_level, pkey: settings.pkey },
    };
    match VerbsPort::open(port, &options) {
        Ok(open) => Ok(Some(Arc::new(open))),
        Err(error) if settings.port == PortSetting::Verbs => {
            tracing::warn!(device = port.name(), %error, "no verbs, on which FI_ERD_PORT insists");
            Err(Error::NoData)
        }
        Err(error) => {
            let name = port.name();
            crate::rdma::warn_once(format!("{name} cannot be used, UDP is instead: {error}"));
            Ok(None)
        }
    }
}
