//! `fid_av`: the address vector, peers' names by index (`fi_av(3)`).
//!
//! Inserting an address never touches the network. `FI_AV_MAP` behaves as `FI_AV_TABLE`, as the
//! man page encourages. An address that is inserted again keeps its `fi_addr`, and leaves when it
//! has been removed as often as it was inserted.

mod insert;
mod symmetric;
mod table;

use crate::domain::{BoundEq, DomainInner};
use crate::object::{self, Class, Use, Users};
use crate::sockaddr;
use erd_ffi::fi::{
    FI_ADDR_NOTAVAIL, FI_AV_MAP, FI_AV_TABLE, FI_AV_UNSPEC, FI_CLASS_AV, FI_EALREADY, FI_EBADFLAGS,
    FI_EINVAL, FI_ENOSYS, FI_EVENT, FI_SYMMETRIC, NOSYS_AV, NOSYS_FID, fi_addr_t, fi_av_attr,
    fi_ops, fi_ops_av, fid, fid_av, fid_xpu_ctx,
};
use erd_ffi::guard::guarded;
use parking_lot::{Mutex, RwLock};
use std::ffi::{c_char, c_int, c_void};
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use table::{NotThere, Table};

pub use table::ENTRIES_MAX;

/// What an AV tells an endpoint that is bound to it.
pub trait Member: Send + Sync {
    /// `addr` is not at `fi_addr` any more. Its session may go on: the other side decides, too.
    fn peer_removed(&self, fi_addr: fi_addr_t, addr: SocketAddr);
}

/// State of an address vector.
pub struct AvInner {
    domain: Arc<DomainInner>,
    table: RwLock<Table>,
    /// Insertions report on an event queue.
    asynchronous: bool,
    eq: Mutex<Option<BoundEq>>,
    /// Endpoints bound here; those that are gone are swept out when one is added.
    members: Mutex<Vec<Weak<dyn Member>>>,
    users: Users,
    _domain_use: Use,
}

// SAFETY: `fid_av` begins with its `fid`, and no other state has this class.
unsafe impl Class for AvInner {
    type Abi = fid_av;
    const FCLASS: usize = FI_CLASS_AV;

    fn users(&self) -> &Users {
        &self.users
    }
}

impl AvInner {
    /// An AV without addresses, with room for `count` before it grows.
    pub(crate) fn new(domain: &Arc<DomainInner>, count: usize, asynchronous: bool) -> Arc<AvInner> {
        Arc::new(AvInner {
            domain: Arc::clone(domain),
            table: RwLock::new(Table::with_room(count)),
            asynchronous,
            eq: Mutex::new(None),
            members: Mutex::new(Vec::new()),
            users: Users::default(),
            _domain_use: domain.hold(),
        })
    }

    /// The domain that the AV belongs to.
    #[must_use]
    pub fn domain(&self) -> &Arc<DomainInner> {
        &self.domain
    }

    /// The address at `fi_addr`.
    #[must_use]
    pub fn addr(&self, fi_addr: fi_addr_t) -> Option<SocketAddr> {
        self.table.read().get(fi_addr)
    }

    /// Where `addr` is, or `FI_ADDR_NOTAVAIL`.
    #[must_use]
    pub fn find(&self, addr: SocketAddr) -> fi_addr_t {
        self.table.read().find(&addr).map_or(FI_ADDR_NOTAVAIL, fi_addr_t::from)
    }

    /// Binds an endpoint: it is told of removals, and the AV stays open until the answer is
    /// dropped.
    #[must_use]
    pub fn attach(&self, member: Weak<dyn Member>) -> Use {
        let mut members = self.members.lock();
        members.retain(|member| member.strong_count() > 0);
        members.push(member);
        self.users.add()
    }

    /// Takes one insertion of an address back.
    ///
    /// # Errors
    /// [`NotThere`].
    pub(crate) fn remove(&self, fi_addr: fi_addr_t) -> Result<(), NotThere> {
        let gone = self.table.write().remove(fi_addr)?;
        if let Some(addr) = gone {
            // Outside the locks: a member may look an address up meanwhile.
            let members = self.members.lock().clone();
            members
                .iter()
                .filter_map(Weak::upgrade)
                .for_each(|member| member.peer_removed(fi_addr, addr));
        }
        Ok(())
    }
}

/// `fi_av_open` of `fi_av(3)`.
///
/// # Safety
/// `attr` and `av` are as the man page says.
pub unsafe fn open(
    domain: &Arc<DomainInner>,
    attr: *mut fi_av_attr,
    av: *mut *mut fid_av,
    context: *mut c_void,
) -> c_int {
    if attr.is_null() || av.is_null() {
        return -FI_EINVAL;
    }
    // SAFETY: the caller's attributes, which never grew.
    let asked = unsafe { *attr };
    if !asked.name.is_null() || asked.rx_ctx_bits > 0 {
        tracing::info!("fi_av_open: named AVs and receive context bits are not supported");
        return -FI_ENOSYS;
    }
    let known_type = matches!(asked.r#type, FI_AV_UNSPEC | FI_AV_MAP | FI_AV_TABLE);
    if !known_type || asked.flags & !(FI_EVENT | FI_SYMMETRIC) != 0 {
        tracing::info!(
            av_type = asked.r#type,
            flags = asked.flags,
            "fi_av_open: type may be UNSPEC, MAP or TABLE, flags FI_EVENT and FI_SYMMETRIC"
        );
        return -FI_EINVAL;
    }
    let inner = AvInner::new(domain, asked.count, asked.flags & FI_EVENT != 0);
    let abi = fid_av { fid: object::base::<AvInner>(context, &FID_OPS), ops: &AV_OPS };
    // SAFETY: the caller gave its attributes, of which `type` is also an answer, and a place for
    // the new object.
    unsafe {
        if asked.r#type == FI_AV_UNSPEC {
            (*attr).r#type = FI_AV_TABLE;
        }
        *av = object::publish(abi, inner);
    }
    0
}

static FID_OPS: fi_ops = fi_ops { close: object::close::<AvInner>, bind: av_bind, ..NOSYS_FID };

static AV_OPS: fi_ops_av = fi_ops_av {
    insert: insert::av_insert,
    insertsvc: insert::av_insertsvc,
    insertsym: insert::av_insertsym,
    remove: av_remove,
    lookup: av_lookup,
    straddr: av_straddr,
    lookup2: av_lookup2,
    ..NOSYS_AV
};

/// `fi_av_lookup`.
///
/// # Safety
/// `av` is open, the buffer as the man page says.
unsafe fn lookup(
    av: *mut fid_av,
    fi_addr: fi_addr_t,
    addr: *mut c_void,
    addrlen: *mut usize,
) -> c_int {
    // SAFETY: the caller's promise.
    let found = unsafe { object::inner::<AvInner>(av) }.addr(fi_addr);
    let (Some(found), false) = (found, addrlen.is_null()) else {
        return -FI_EINVAL;
    };
    // SAFETY: the caller's buffer and length. Like libfabric's own providers, a short buffer gets
    // a part and no error: the length tells.
    unsafe { sockaddr::write(found, addr, addrlen) };
    0
}

guarded! {
    unsafe extern "C" fn av_bind(av: *mut fid, other: *mut fid, flags: u64) -> c_int {
        if flags != 0 {
            return -FI_EBADFLAGS;
        }
        // SAFETY: libfabric calls with our open AV and another open object.
        let (Some(av), Some(eq)) = (unsafe {
            (object::from_fid::<AvInner>(av), object::from_fid(other))
        }) else {
            return -FI_EINVAL;
        };
        let mut slot = av.eq.lock();
        if slot.is_some() {
            return -FI_EALREADY;
        }
        *slot = Some(BoundEq::new(eq));
        0
    }

    unsafe extern "C" fn av_remove(
        av: *mut fid_av,
        fi_addr: *mut fi_addr_t,
        count: usize,
        flags: u64,
    ) -> c_int {
        if flags != 0 || (fi_addr.is_null() && count > 0) {
            return -FI_EINVAL;
        }
        // SAFETY: libfabric calls with our open AV.
        let av = unsafe { object::inner::<AvInner>(av) };
        let mut answer = 0;
        for index in 0..count {
            // SAFETY: the caller's array has `count` places.
            let fi_addr = unsafe { *fi_addr.add(index) };
            if av.remove(fi_addr) == Err(NotThere) {
                tracing::info!(fi_addr, "fi_av_remove: no such address");
                answer = -FI_EINVAL;
            }
        }
        answer
    }

    unsafe extern "C" fn av_lookup(
        av: *mut fid_av,
        fi_addr: fi_addr_t,
        addr: *mut c_void,
        addrlen: *mut usize,
    ) -> c_int {
        // SAFETY: libfabric calls with our open AV and a buffer as fi_av(3) says.
        unsafe { lookup(av, fi_addr, addr, addrlen) }
    }

    unsafe extern "C" fn av_lookup2(
        av: *mut fid_av,
        fi_addr: fi_addr_t,
        buf: *mut c_void,
        len: *mut usize,
        flags: u64,
        _ctx: *mut fid_xpu_ctx,
    ) -> c_int {
        if flags != 0 {
            return -FI_ENOSYS;
        }
        // SAFETY: as above.
        unsafe { lookup(av, fi_addr, buf, len) }
    }

    unsafe extern "C" fn av_straddr(
        av: *mut fid_av,
        addr: *const c_void,
        buf: *mut c_char,
        len: *mut usize,
    ) -> *const c_char {
        // SAFETY: libfabric calls with our open AV, whose addresses all have one length.
        let family = unsafe { object::inner::<AvInner>(av) }.domain.family();
        // SAFETY: the caller's address and, unless NULL, its length.
        let (decoded, no_len) =
            unsafe { (sockaddr::read(addr, family.addr_bytes()), len.is_null()) };
        let text = match decoded {
            Ok(Some(SocketAddr::V4(addr))) => format!("fi_sockaddr_in://{addr}"),
            Ok(Some(SocketAddr::V6(addr))) => format!("fi_sockaddr_in6://{addr}"),
            _ => return std::ptr::null(),
        };
        if no_len || buf.is_null() {
            return std::ptr::null();
        }
        // SAFETY: the caller's buffer has `*len` bytes; what is written ends with a 0 within it.
        unsafe {
            let kept = text.len().min((*len).saturating_sub(1));
            if *len > 0 {
                std::ptr::copy_nonoverlapping(text.as_ptr().cast(), buf, kept);
                buf.add(kept).write(0);
            }
            *len = text.len() + 1;
        }
        buf
    }
}
