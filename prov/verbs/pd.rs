//! Protection domains, and handles of peers' addresses.

use super::context::{KEYS, check_owner, leave_to_parent};
use super::error::Error;
use super::mr::{Access, MemoryRegion};
use super::pinned::Pinned;
use erd_core::av::AddressVector;
use erd_core::domain::Domain;
use erd_core::error::Error as CoreError;
use erd_core::keys::KeyTable;
use erd_core::peer_index::PeerIndex;
use erd_core::resolve;
use erd_core::uses::{Use, Users};
use erd_sys::process::Process;
use std::net::SocketAddr;
use std::sync::Arc;

/// A protection domain: queue pairs, the memory that their peers may reach, and handles of those peers' addresses
/// (`struct ibv_pd`).
pub struct ProtectionDomain {
    pub(super) inner: Arc<PdInner>,
}

pub(super) struct PdInner {
    pub domain: Arc<Domain>,
    pub av: Arc<AddressVector>,
    pub regions: Arc<KeyTable>,
    pub pinned: Arc<Pinned>,
    pub users: Users,
    /// Process of the context.
    pub process: Process,
}

impl Drop for PdInner {
    fn drop(&mut self) {
        leave_to_parent(&self.domain, self.process);
    }
}

impl ProtectionDomain {
    pub(super) fn new(domain: &Arc<Domain>, process: Process) -> ProtectionDomain {
        let inner = PdInner {
            domain: Arc::clone(domain),
            av: AddressVector::new(domain, 0),
            regions: Arc::new(KeyTable::new(KEYS)),
            pinned: Arc::default(),
            users: Users::default(),
            process,
        };
        ProtectionDomain { inner: Arc::new(inner) }
    }

    /// Registers memory, which the region owns until it is dropped (`ibv_reg_mr`). Peers may access it as `access`
    /// allows, through the queue pairs of this protection domain.
    ///
    /// Memory that is only sent from or received into needs no registration. If the context has an RDMA device, it
    /// sends long messages and writes from registered memory without a copy (`FI_ERD_ZERO_COPY_SIZE`).
    ///
    /// The region gives the memory back when its registration ends, not before:
    ///
    /// ```compile_fail,E0382
    /// # use erd::verbs::{Access, ProtectionDomain};
    /// fn register(pd: &ProtectionDomain, memory: Vec<u8>) {
    ///     let region = pd.reg_mr(memory, Access::REMOTE_READ).unwrap();
    ///     assert_eq!(memory.len(), region.len());
    /// }
    /// ```
    ///
    /// # Errors
    /// If the protection domain has 2^20 regions; [`Error::Forked`] in a child.
    pub fn reg_mr(
        &self,
        memory: impl Into<Box<[u8]>>,
        access: Access,
    ) -> Result<MemoryRegion, Error> {
        check_owner(self.inner.process)?;
        MemoryRegion::owned(&self.inner, memory.into(), access)
    }

    /// Registers memory that something else owns.
    ///
    /// # Errors
    /// As [`ProtectionDomain::reg_mr`]; NULL, and a length beyond the end of the address space.
    ///
    /// # Safety
    /// The `len_bytes` from `start` are readable and writable as `access` says, until the region has been dropped or,
    /// if it is forgotten, until the process ends. Peers change them at any time.
    pub unsafe fn reg_mr_raw(
        &self,
        start: *mut u8,
        len_bytes: usize,
        access: Access,
    ) -> Result<MemoryRegion, Error> {
        check_owner(self.inner.process)?;
        // SAFETY: the caller's promise is the same.
        unsafe { MemoryRegion::raw(&self.inner, start, len_bytes, access) }
    }

    /// A handle of the address of a peer's queue pair (`ibv_create_ah`). Sends nothing.
    ///
    /// # Errors
    /// An address that no queue pair can have: of the other family, port 0, all hosts. More than
    /// 2^20 addresses; [`Error::Forked`] in a child.
    pub fn create_ah(&self, peer: SocketAddr) -> Result<AddressHandle, Error> {
        check_owner(self.inner.process)?;
        AddressHandle::new(&self.inner, peer)
    }

    /// A handle of the address "host:port", from the system's resolver.
    ///
    /// # Errors
    /// A name without an address of the context's family; as [`ProtectionDomain::create_ah`].
    pub fn create_ah_by_name(&self, name: &str) -> Result<AddressHandle, Error> {
        let invalid = |valid: &str| Error::argument("name", format_args!("\"{name}\""), valid);
        let form = "host:port, with [host] for an IPv6 address";
        let (host, port) = name.rsplit_once(':').ok_or_else(|| invalid(form))?;
        let host = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
        let family = Some(self.inner.domain.family());
        let found = resolve::lookup(Some(host), Some(port), family, false)
            .map_err(|error| invalid(&format!("{form}; {error}")))?;
        match found.first() {
            Some(peer) => self.create_ah(*peer),
            None => Err(invalid("a name with an address of the context's family")),
        }
    }

    /// Number of objects that need the protection domain.
    pub(crate) fn users(&self) -> usize {
        self.inner.users.count()
    }
}

/// Address of a peer's queue pair (`struct ibv_ah`). A program may drop it while requests to the peer are
/// outstanding.
pub struct AddressHandle {
    pub(super) fi_addr: PeerIndex,
    pub(super) av: Arc<AddressVector>,
    peer: SocketAddr,
    process: Process,
    _pd_use: Use,
}

impl AddressHandle {
    fn new(pd: &Arc<PdInner>, peer: SocketAddr) -> Result<AddressHandle, Error> {
        let fi_addr = pd.av.insert_name(peer, None).map_err(|error| match error {
            CoreError::NoMemory => Error::system("keep more than 2^20 addresses", error),
            _ => Error::argument("address", peer, valid_name(&pd.domain)),
        })?;
        Ok(AddressHandle {
            fi_addr,
            av: Arc::clone(&pd.av),
            peer,
            process: Process::current(),
            _pd_use: pd.users.add(),
        })
    }

    /// The peer's address.
    #[must_use]
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }
}

fn valid_name(domain: &Domain) -> String {
    let family = if domain.local.is_ipv4() { "IPv4" } else { "IPv6" };
    format!("an {family} address of one host, with a port that is not 0")
}

impl Drop for AddressHandle {
    fn drop(&mut self) {
        if self.process.is_current() {
            // It was inserted, so it is there.
            let _ = self.av.remove(self.fi_addr);
        }
    }
}
