//! Enabling an endpoint: from set-up to running, and its end.

use super::bindings::Bindings;
use super::complete::{BoundCq, Direction};
use super::config::{self, EpConfig, OwnKeys};
use super::driver::Driver;
use super::host::{EpHost, PARTS_MAX};
use super::ops::Pool;
use super::receives::Receives;
use super::receives::own::Own;
use super::receives::under_way::UnderWay;
use super::refused::Refused;
use super::settling::Settling;
use super::{Endpoint, NO_VERSION, Setup, State};
use crate::admission::Admitted;
use crate::av::{AddressVector, Member};
use crate::completion::CompletionQueue;
use crate::domain::Domain;
use crate::error::Error;
use crate::keys::KeyTable;
use crate::pause::Pause;
use crate::plan;
use crate::run::link::Link;
use crate::run::{Carriers, Driven, Monotonic, Outside};
use crate::settings::InfoPath as InfoPathSetting;
use erd_port::info_path::InfoPath;
use erd_port::local::{self, Lanes, LocalPort};
use erd_port::udp::{PortError, RxSocket, Sockets, TxSockets};
use erd_port::verbs;
use erd_rd::Endpoint as Engine;
use erd_rd::keys::{KeySet, Keys};
use erd_rd::{KeyIndex, Nanos};
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

impl Endpoint {
    /// `fi_enable`.
    ///
    /// # Errors
    /// Reason why it failed; the endpoint is unchanged then.
    pub fn enable(self: &Arc<Self>) -> Result<(), Error> {
        let mut state = self.lock();
        let State::Setup(setup) = &mut *state else {
            // A program enables each context of a scalable endpoint, and the endpoint too.
            let again = matches!(&*state, State::Enabled(driver) if driver.config.tx_contexts > 0);
            return if again { Ok(()) } else { Err(Error::State) };
        };
        if setup.bindings.av.is_none() {
            return Err(Error::NoAddresses);
        }
        let late = setup.config.tx_contexts > 0;
        if !late && !setup.bindings.tx.is_bound() && !setup.bindings.rx.is_bound() {
            return Err(Error::NoQueue);
        }
        let is_foreign = matches!(setup.bindings.receives, Some(Receives::Foreign(_)));
        if is_foreign && !setup.bindings.rx.has_owner() {
            tracing::info!(
                "fi_enable: with a receive context of FI_PEER, receives complete in a CQ of FI_PEER"
            );
            return Err(Error::NoQueue);
        }
        let parts = Parts::open(&self.domain, setup)?;
        // Nothing can fail from here on.
        self.key_version.store(parts.keys.version.unwrap_or(NO_VERSION), Ordering::Relaxed);
        if let State::Setup(mut setup) = std::mem::replace(&mut *state, State::Closed) {
            // The engine has it now.
            setup.config.key = None;
            *state = match Driver::assemble(self, *setup, parts) {
                Some(driver) => State::Enabled(Box::new(driver)),
                None => return Err(Error::NoAddresses),
            };
        }
        drop(state);
        self.join_watches();
        crate::progress::register(self);
        Ok(())
    }
}

/// Parts to open before an endpoint runs.
struct Parts {
    engine: Engine,
    keys: OwnKeys,
    tx: Arc<TxSockets>,
    info_path: Option<InfoPath>,
    link: Link,
    scheme: &'static str,
}

impl Parts {
    fn open(domain: &Domain, setup: &Setup) -> Result<Parts, Error> {
        let name = name(domain, &setup.rx);
        let recv_bytes = setup.rx.granted_recv_bytes();
        let (av, _) = setup.bindings.av.as_ref().ok_or(Error::NoAddresses)?;
        let keys = config::keys(domain, &setup.config, av)?;
        let engine_config =
            config::engine_config(domain, &setup.config, keys.set.clone(), name, recv_bytes);
        let (scheme, seed) = (domain.scheme(), crate::random::u64());
        let refused = |error| {
            tracing::warn!(%error, "fi_enable: a setting is out of range");
            Error::Invalid
        };
        let mut engine = Engine::new(engine_config, scheme.build(), seed).map_err(refused)?;
        if let Some(near) = config::near(domain) {
            engine.set_near(near).map_err(refused)?;
        }
        let tx = domain.tx_sockets().map_err(|error| port_error(&error))?;
        let info_path = match domain.settings.info_path {
            InfoPathSetting::Udp => None,
            InfoPathSetting::Tcp => {
                let opened = InfoPath::new(Some(name)).and_then(|path| path.in_class(domain.dscp));
                Some(opened.map_err(|error| {
                    tracing::warn!(%name, %error, "cannot open the information path");
                    io_error(&error)
                })?)
            }
        };
        let ecn = domain.settings.ecn && scheme.uses_ecn();
        let member =
            domain.verbs.as_ref().map(verbs::Member::join).transpose().map_err(|error| {
                tracing::warn!(%error, "fi_enable: no fd for the verbs port");
                io_error(&error)
            })?;
        let link = Link::new(member.map(|member| (member, keys.set.clone())), name, ecn);
        Ok(Parts { engine, keys, tx, info_path, link, scheme: scheme.name() })
    }
}

/// Parts of a driver.
pub struct Made<O: Outside> {
    /// The engine, with the address that the port receives at.
    pub engine: Engine,
    /// The keys of the engine.
    pub keys: KeySet,
    /// The ports.
    pub carriers: Carriers<O>,
    /// The name of the engine's congestion control.
    pub scheme: &'static str,
    /// Attributes of the endpoint.
    pub config: EpConfig,
    /// The address vector and the queues.
    pub bindings: Bindings,
    /// The memory that peers may reach.
    pub regions: Arc<KeyTable>,
    /// Shared memory with peers on this host.
    pub lanes: Option<Box<dyn Lanes>>,
}

impl Bindings {
    /// Bindings to an address vector and to one queue for all completions.
    #[must_use]
    pub fn new(av: &Arc<AddressVector>, cq: &Arc<CompletionQueue>) -> Bindings {
        let nobody = Weak::<Endpoint>::new() as Weak<dyn Member>;
        let queue = || Direction { cq: Some(BoundCq::new(cq, false)), ..Direction::default() };
        let av = Some((Arc::clone(av), av.attach(nobody)));
        Bindings { av, tx: queue(), rx: queue(), ..Bindings::default() }
    }
}

impl<O: Outside> Driver<O> {
    /// The driver of an endpoint in `domain`; `None` if no AV is bound.
    pub fn new(domain: &Arc<Domain>, made: Made<O>) -> Option<Driver<O>> {
        let Made { engine, keys, carriers, scheme, config, bindings, regions, lanes } = made;
        let (av, av_use) = bindings.av?;
        let (tx_size, rx_size) = (config.tx_size as u32, config.rx_size as u32);
        // The other provider bounds what it lends.
        let receives = bindings.receives.unwrap_or_else(|| Receives::Own(Own::new(rx_size)));
        let is_foreign = matches!(receives, Receives::Foreign(_));
        let recvs_max = if is_foreign { u32::MAX } else { rx_size + PARTS_MAX };
        let zero_copy_bytes = plan::least_uncopied_bytes(domain.zero_copy_bytes, &keys);
        let host = EpHost {
            sends: Pool::new(tx_size),
            promised: 0,
            early: 0,
            long_copies: Vec::new(),
            lost: Vec::new(),
            served: Pool::new(u32::MAX),
            regions,
            admitted: Admitted::new(&domain.admission),
            keys,
            tx: bindings.tx,
            more_tx: bindings.more_tx,
            under_way: UnderWay::new(bindings.rx, recvs_max, rx_size),
            receives,
            ended: Vec::new(),
            gone: Vec::new(),
            local: domain.local,
            datagram_bytes: config::datagram_bytes(domain),
            near_bytes: domain.near().map(|near| near.datagram_bytes),
            zero_copy_bytes,
            settling: Settling::new(domain.verbs.clone()),
            refused: Refused::default(),
            local_port: lanes,
            pause: Pause::new(domain.settings.pause_file.clone()),
            local_warns: domain.settings.local_warns,
            answer: Vec::new(),
        };
        Some(Driver {
            engine,
            host,
            carriers,
            scheme,
            domain: Arc::clone(domain),
            av,
            _av_use: av_use,
            _eq: bindings.eq,
            _stx: bindings.stx,
            peers: Vec::new(),
            contexts: std::collections::HashMap::new(),
            sources: Vec::new(),
            config,
            owed: None,
        })
    }

    /// A new key takes the place of the job's. Both are valid for so long. False if two are valid already.
    pub(super) fn renew_key(&mut self, key: &Arc<dyn Keys>, left_ns: Nanos) -> bool {
        let (now, at) = (self.now_ns(), KeyIndex::default());
        let renewed = self.engine.renew_key(now, at, Arc::clone(key), left_ns);
        if renewed {
            self.retire_keys();
            self.host.keys.renew(at, Arc::clone(key));
            self.host.refused.forget();
            self.carriers.link.renew_key(at, Arc::clone(key));
        }
        renewed
    }

    /// Drops keys that others have taken the place of.
    pub(super) fn retire_keys(&mut self) {
        self.host.keys.retire();
        self.carriers.link.retire_keys();
    }

    /// See [`Engine::forget_keys`].
    pub(super) fn forget_keys(&mut self) {
        self.engine.forget_keys();
        self.host.keys = KeySet::default();
        self.carriers.link.forget_keys();
    }

    /// Gives up everything that is under way, and starts the goodbyes. The application gets its memory back after this.
    pub fn leave(&mut self) {
        // Before the memory is given back that peers on this host may read.
        self.engine.break_lanes(&mut self.host);
        self.host.abandon();
        self.close();
    }

    /// Starts the goodbyes to all peers.
    pub fn close(&mut self) {
        let now = self.now_ns();
        self.engine.close(now, &mut self.host);
        self.settle();
        self.parts().transmit(now, true);
        self.publish();
    }
}

impl Driver {
    /// `None` if no AV is bound.
    fn assemble(endpoint: &Endpoint, setup: Setup, parts: Parts) -> Option<Driver> {
        let domain = &endpoint.domain;
        let Setup { rx, config, bindings, regions } = setup;
        let Parts { engine, keys, tx, info_path, link, scheme } = parts;
        let OwnKeys { set: keys, newest, .. } = keys;
        let errors = (Arc::clone(&domain.net_errors), domain.net_errors.join(&endpoint.teller));
        let lanes = config.local.then(|| local_port(endpoint, name(domain, &rx))).flatten();
        let carriers =
            Carriers::new(Sockets { rx, tx }, info_path, link, Monotonic::default(), errors);
        let made = Made { engine, keys, carriers, scheme, config, bindings, regions, lanes };
        let mut driver = Driver::new(domain, made)?;
        if let Some((key, left_ns)) = newest {
            driver.renew_key(&key, left_ns);
        }
        Some(driver)
    }

    /// The endpoint's own socket.
    pub(super) fn socket(&self) -> &RxSocket {
        &self.carriers.port.rx
    }

    /// Writes the counters to the place that the settings name.
    pub(super) fn write_stats(&self) {
        let to = &self.domain.settings.stats;
        if to.is_empty() {
            return;
        }
        let name = name(&self.domain, self.socket());
        let (drops, carried) = (self.socket().kernel_drops(), self.carriers.link.carried);
        if let Err(error) = super::stats::write(to, name, self.engine.stats(), drops, carried) {
            tracing::warn!(to, %error, "cannot write statistics");
        }
    }
}

/// The port of shared memory of a new endpoint, where the settings want one and it can be had.
fn local_port(endpoint: &Endpoint, name: SocketAddr) -> Option<Box<dyn Lanes>> {
    let settings = &endpoint.domain.settings;
    if !settings.local {
        return None;
    }
    let descriptors = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let options = local::Options {
        name,
        dir: settings.local_dir.clone(),
        process: crate::random::process_id(),
        descriptors: descriptors.map_or(usize::MAX, |most| most as usize / 2),
    };
    match LocalPort::open(options) {
        Ok(port) => Some(Box::new(port)),
        Err(error) => {
            tracing::info!(%name, %error, "no shared memory with peers on this host");
            None
        }
    }
}

/// The receive socket of a new endpoint.
///
/// # Errors
/// Reason why it could not be bound.
pub(super) fn bind_socket(domain: &Domain, at: SocketAddr) -> Result<RxSocket, Error> {
    RxSocket::bind(at, &domain.port_options()).map_err(|error| port_error(&error))
}

/// Name of an endpoint: its socket's address, with the domain's IP address if the socket is bound to all.
pub(super) fn name(domain: &Domain, rx: &RxSocket) -> SocketAddr {
    let bound = rx.local_addr();
    if bound.ip().is_unspecified() { SocketAddr::new(domain.local, bound.port()) } else { bound }
}

/// A new endpoint's settings before anything is bound.
pub(super) fn setup(
    domain: &Domain,
    regions: &Arc<KeyTable>,
    config: EpConfig,
    at: SocketAddr,
) -> Result<Setup, Error> {
    let rx = bind_socket(domain, at)?;
    let regions = Arc::clone(regions);
    let more_tx = (1..config.tx_contexts).map(|_| Direction::default()).collect();
    let bindings = Bindings { more_tx, ..Default::default() };
    Ok(Setup { rx, config, bindings, regions })
}

fn port_error(error: &PortError) -> Error {
    tracing::warn!(%error, "cannot open a socket");
    match error {
        PortError::Bind { source, .. } | PortError::Socket { source, .. } => io_error(source),
        _ => Error::Invalid,
    }
}

fn io_error(error: &io::Error) -> Error {
    match error.raw_os_error() {
        // No file descriptor is left: the process's limit or the system's.
        Some(libc::ENFILE) => Error::System(libc::EMFILE),
        errno => Error::System(errno.unwrap_or(libc::EIO)),
    }
}
