//! The endpoint as an object: opening, names and options.

use super::config::EpConfig;
use super::driver::Driver;
use super::host::tx_of;
use super::ops::Context;
use super::{Endpoint, NO_VERSION, State, enable};
use crate::domain::Domain;
use crate::error::Error;
use crate::held::Known;
use crate::keys::KeyTable;
use crate::peer_index::PeerIndex;
use crate::uses::Users;
use erd_rd::{FlowView, PeerId};
use erd_sys::process::Process;
use parking_lot::Mutex;
use std::ffi::c_void;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, OnceLock};

impl Endpoint {
    /// An endpoint at the address `at`. The caller binds it to an AV and queues, and enables it. Peers may reach the
    /// memory in `regions`.
    ///
    /// # Errors
    /// Reason why it failed; [`Error::Failed`] in a forked child of the process that opened the domain.
    pub fn new(
        domain: &Arc<Domain>,
        regions: &Arc<KeyTable>,
        config: EpConfig,
        at: SocketAddr,
    ) -> Result<Arc<Endpoint>, Error> {
        if !domain.is_own() {
            tracing::error!(
                "this process is a child of the one that opened the domain: it has to open its own"
            );
            return Err(Error::Failed);
        }
        let setup = enable::setup(domain, regions, config, at)?;
        Ok(Arc::new_cyclic(|me| Endpoint {
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
            key_version: AtomicU64::new(NO_VERSION),
            changes_key: AtomicBool::new(true),
            serving: Mutex::new(()),
            owner: Process::current(),
            users: Users::default(),
            _domain_use: domain.hold(),
        }))
    }

    /// Sets the context of failures of early-completed operations, for a transmit context.
    pub fn report_losses_as(&self, ctx: u8, context: *mut c_void) {
        let mut state = self.lock();
        let (tx, more_tx) = match &mut *state {
            State::Setup(setup) => (&mut setup.bindings.tx, &mut setup.bindings.more_tx),
            State::Enabled(driver) => (&mut driver.host.tx, &mut driver.host.more_tx),
            State::Closed => return,
        };
        tx_of(tx, more_tx, ctx).context = Context(context);
    }

    /// The endpoint's name; `None` once it is closed.
    pub fn name(&self) -> Option<SocketAddr> {
        match &*self.lock() {
            State::Setup(setup) => Some(enable::name(&self.domain, &setup.rx)),
            State::Enabled(driver) => Some(enable::name(&self.domain, driver.socket())),
            State::Closed => None,
        }
    }

    /// A snapshot of the flow to a peer.
    ///
    /// # Errors
    /// Reason why it failed.
    pub fn flow(&self, peer: PeerIndex) -> Result<FlowView, Error> {
        self.with_peer(peer, |driver, peer| driver.engine.flow(peer).ok_or(Error::NoData))?
    }

    /// KiB sent to a peer on each path; empty without a flow.
    ///
    /// # Errors
    /// Reason why it failed.
    pub fn path_kib(&self, peer: PeerIndex) -> Result<Vec<u32>, Error> {
        self.with_peer(peer, |driver, peer| driver.engine.path_kib(peer).collect())
    }

    fn with_peer<R>(
        &self,
        peer: PeerIndex,
        f: impl FnOnce(&mut Driver, PeerId) -> R,
    ) -> Result<R, Error> {
        let mut state = self.lock();
        let State::Enabled(driver) = &mut *state else { return Err(Error::State) };
        let peer = driver.peer_at(peer)?;
        Ok(f(driver, peer))
    }

    /// Binds the endpoint to another name.
    ///
    /// # Errors
    /// [`Error::State`] if it is enabled, or the system's.
    pub fn set_name(&self, name: SocketAddr) -> Result<(), Error> {
        let mut state = self.lock();
        let State::Setup(setup) = &mut *state else { return Err(Error::State) };
        if setup.rx.local_addr() != name {
            setup.rx = enable::bind_socket(&self.domain, name)?;
        }
        Ok(())
    }

    /// Calls `f` with the attributes of the endpoint.
    ///
    /// # Errors
    /// [`Error::State`] if it is closed.
    pub fn with_config<R>(&self, f: impl FnOnce(&mut EpConfig) -> R) -> Result<R, Error> {
        match &mut *self.lock() {
            State::Setup(setup) => Ok(f(&mut setup.config)),
            State::Enabled(driver) => Ok(f(&mut driver.config)),
            State::Closed => Err(Error::State),
        }
    }

    /// Whether the endpoint may share memory with peers on its host.
    ///
    /// # Errors
    /// [`Error::State`] if it is enabled or closed.
    pub fn allow_local(&self, allowed: bool) -> Result<(), Error> {
        match &mut *self.lock() {
            State::Setup(setup) => {
                setup.config.local = allowed;
                Ok(())
            }
            State::Enabled(_) | State::Closed => Err(Error::State),
        }
    }

    /// Cancels the operation posted with this context.
    ///
    /// # Errors
    /// [`Error::NotFound`] if there is none, [`Error::Unimplemented`] if another provider has the receives, or as
    /// [`Endpoint::post`].
    pub fn cancel(&self, context: *mut c_void) -> Result<(), Error> {
        self.post(|driver| driver.cancel(context))
    }
}
