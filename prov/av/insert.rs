//! Insertion of addresses, of a name, or of a run of names.

use super::AvFid;
use crate::eq::{Completion, Failure};
use crate::{errno, object};
use erd_core::av::symmetric::Run;
use erd_core::av::table::ENTRIES_MAX;
use erd_core::sockaddr;
use erd_ffi::fi::{
    FI_ADDR_NOTAVAIL, FI_AUTH_KEY, FI_AV_COMPLETE, FI_AV_USER_ID, FI_EADDRNOTAVAIL, FI_EAGAIN,
    FI_EBADFLAGS, FI_EINVAL, FI_ENOEQ, FI_MORE, FI_SYNC_ERR, fi_addr_t, fid_av,
};
use erd_ffi::guard::guarded;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::net::SocketAddr;

/// Destination of an insertion's outcome.
#[derive(Clone, Copy)]
struct Request {
    av: *mut fid_av,
    count: usize,
    /// NULL or `count` places.
    fi_addr: *mut fi_addr_t,
    flags: u64,
    context: *mut c_void,
}

/// Reason for refusing one address: a positive error number.
type Refused = c_int;

impl AvFid {
    /// Inserts an address for a place of the request, with the key that the place names.
    ///
    /// # Safety
    /// As [`AvFid::insert`].
    unsafe fn insert_one(
        &self,
        request: &Request,
        place: usize,
        addr: Result<SocketAddr, Refused>,
    ) -> Result<fi_addr_t, Refused> {
        let with_key = request.flags & FI_AUTH_KEY != 0;
        // SAFETY: with the flag, the caller's array has `count` names of keys.
        let key = with_key.then(|| unsafe { *request.fi_addr.add(place) });
        self.insert_name(addr?, key).map_err(errno::of)
    }

    /// Inserts `count` addresses and returns the result of `fi_av_insert`.
    ///
    /// # Safety
    /// The pointers of `request` are as `fi_av(3)` says.
    unsafe fn insert(
        &self,
        request: Request,
        nth: impl Fn(usize) -> Result<SocketAddr, Refused>,
    ) -> c_int {
        let Request { count, flags, context, .. } = request;
        if flags & !(FI_MORE | FI_SYNC_ERR | FI_AV_USER_ID | FI_AUTH_KEY) != 0 {
            tracing::info!(
                flags,
                "fi_av_insert: flags: FI_MORE, FI_SYNC_ERR, FI_AV_USER_ID, FI_AUTH_KEY"
            );
            return -FI_EBADFLAGS;
        }
        let with_keys = flags & FI_AUTH_KEY != 0;
        if with_keys != self.takes_keys() || (with_keys && request.fi_addr.is_null()) {
            tracing::warn!(
                "fi_av_insert: FI_AUTH_KEY, and the names of keys in fi_addr, belong to a domain with \
                 FI_AV_AUTH_KEY, where each address needs a key"
            );
            return -FI_EINVAL;
        }
        let names = flags & FI_AV_USER_ID != 0;
        if names
            && (with_keys || self.has_user_ids() || self.asynchronous || request.fi_addr.is_null())
        {
            tracing::info!("fi_av_insert: FI_AV_USER_ID needs identifiers, and is not for this AV");
            return -FI_EINVAL;
        }
        let sync_err = flags & FI_SYNC_ERR != 0;
        if (sync_err && (context.is_null() || self.asynchronous)) || count > ENTRIES_MAX {
            tracing::info!(count, "fi_av_insert: FI_SYNC_ERR without a place, or too many");
            return -FI_EINVAL;
        }
        if self.asynchronous {
            // SAFETY: the caller's promise.
            return unsafe { self.insert_async(request, nth) };
        }
        let mut inserted = 0;
        for place in 0..count {
            // SAFETY: the caller's promise.
            let outcome = unsafe { self.insert_one(&request, place, nth(place)) };
            inserted += c_int::from(outcome.is_ok());
            // SAFETY: `fi_addr` is NULL or has `count` places, and so has the array of FI_SYNC_ERR.
            unsafe {
                if let (true, Ok(fi_addr)) = (names, outcome) {
                    // It was inserted just now.
                    let _ = self.set_user_id(fi_addr, *request.fi_addr.add(place));
                }
                write_outcome(&request, place, outcome);
                if sync_err {
                    *context.cast::<c_int>().add(place) = outcome.err().unwrap_or(0);
                }
            }
        }
        self.tell_of_names();
        inserted
    }

    /// Inserts, and reports on the event queue. Inserts nothing if the queue has no room.
    ///
    /// # Safety
    /// As [`AvFid::insert`].
    unsafe fn insert_async(
        &self,
        request: Request,
        nth: impl Fn(usize) -> Result<SocketAddr, Refused>,
    ) -> c_int {
        let slot = self.eq.lock();
        let Some(bound) = &*slot else {
            tracing::info!("fi_av_insert: an AV with FI_EVENT needs an event queue first");
            return -FI_ENOEQ;
        };
        // SAFETY: the caller's promise.
        let one = |place| unsafe { self.insert_one(&request, place, nth(place)) };
        let outcomes: Vec<_> = (0..request.count).map(one).collect();
        let (fid, context) = (request.av.cast(), request.context);
        // SAFETY: the caller's promise.
        let names = unsafe { key_names(&request) };
        let failures: Vec<_> = outcomes
            .iter()
            .zip(0..)
            .filter_map(|(outcome, data)| {
                outcome.err().map(|errno| Failure { fid, context, data, errno })
            })
            .collect();
        let data = (outcomes.len() - failures.len()) as u64;
        let done = Completion { kind: FI_AV_COMPLETE, fid, context, data };
        for (place, outcome) in outcomes.iter().enumerate() {
            // SAFETY: `fi_addr` is NULL or has `count` places.
            unsafe { write_outcome(&request, place, *outcome) };
        }
        if bound.eq.report(&failures, done).is_err() {
            for fi_addr in outcomes.iter().flatten() {
                // It was inserted just now, so it is there; a peer that stays is not disturbed.
                self.take_back(*fi_addr);
            }
            for (place, name) in names.into_iter().enumerate() {
                // SAFETY: as many places as were read.
                unsafe { *request.fi_addr.add(place) = name };
            }
            return -FI_EAGAIN;
        }
        drop(slot);
        self.tell_of_names();
        0
    }
}

/// # Safety
/// `request.fi_addr` is NULL or has a place `place`.
unsafe fn write_outcome(request: &Request, place: usize, outcome: Result<fi_addr_t, Refused>) {
    if let Err(errno) = outcome {
        tracing::info!(place, errno, "fi_av_insert: address refused");
    }
    if !request.fi_addr.is_null() {
        // SAFETY: the caller's promise.
        unsafe { *request.fi_addr.add(place) = outcome.unwrap_or(FI_ADDR_NOTAVAIL) };
    }
}

/// The names of keys in the places of a request that has them, to put back if it is refused.
///
/// # Safety
/// With `FI_AUTH_KEY`, `request.fi_addr` has `request.count` places.
unsafe fn key_names(request: &Request) -> Vec<fi_addr_t> {
    let count = if request.flags & FI_AUTH_KEY == 0 { 0 } else { request.count };
    // SAFETY: the caller's promise.
    (0..count).map(|place| unsafe { *request.fi_addr.add(place) }).collect()
}

/// # Safety
/// `text` is NULL or a C string that outlives `'a`.
unsafe fn utf8<'a>(text: *const c_char) -> Option<&'a str> {
    if text.is_null() {
        return None;
    }
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(text) }.to_str().ok()
}

/// `fi_av_insertsym`.
///
/// # Safety
/// As [`AvFid::insert`]; `node` and `service` are C strings or NULL.
unsafe fn insert_run(
    mut request: Request,
    node: (*const c_char, usize),
    service: (*const c_char, usize),
) -> c_int {
    // SAFETY: the caller's promise.
    let (av, names) =
        unsafe { (object::inner::<AvFid>(request.av), (utf8(node.0), utf8(service.0))) };
    let (Some(first_node), Some(first_service)) = names else {
        tracing::info!("fi_av_insertsym: node and service must be given");
        return -FI_EINVAL;
    };
    let run = Run::new((first_node, node.1), (first_service, service.1), av.domain().family());
    let Some(count) = run.count() else {
        return -FI_EINVAL;
    };
    request.count = count;
    let nth = |place| {
        run.nth(place).map_err(|error| {
            tracing::info!(%error, place, "fi_av_insertsym: cannot resolve");
            FI_EADDRNOTAVAIL
        })
    };
    // SAFETY: the caller's promise.
    unsafe { av.insert(request, nth) }
}

guarded! {
    /// `fi_av_insert`.
    pub(super) unsafe extern "C" fn av_insert(
        av: *mut fid_av,
        addr: *const c_void,
        count: usize,
        fi_addr: *mut fi_addr_t,
        flags: u64,
        context: *mut c_void,
    ) -> c_int {
        if addr.is_null() && count > 0 {
            return -FI_EINVAL;
        }
        // SAFETY: libfabric calls with our open AV.
        let state = unsafe { object::inner::<AvFid>(av) };
        let stride = state.domain().family().addr_bytes();
        let nth = |place: usize| {
            // SAFETY: the caller's array has `count` addresses of the domain's format.
            let read = unsafe { sockaddr::read(addr.byte_add(place * stride), stride) };
            read.map_err(|error| {
                tracing::info!(%error, place, "fi_av_insert: no address of the domain's format");
                FI_EINVAL
            })
            .and_then(|addr| addr.ok_or(FI_EINVAL))
        };
        let request = Request { av, count, fi_addr, flags, context };
        // SAFETY: pointers as fi_av(3) says.
        unsafe { state.insert(request, nth) }
    }

    /// `fi_av_insertsvc`.
    pub(super) unsafe extern "C" fn av_insertsvc(
        av: *mut fid_av,
        node: *const c_char,
        service: *const c_char,
        fi_addr: *mut fi_addr_t,
        flags: u64,
        context: *mut c_void,
    ) -> c_int {
        let request = Request { av, count: 1, fi_addr, flags, context };
        // SAFETY: libfabric calls with our open AV and pointers as fi_av(3) says.
        unsafe { insert_run(request, (node, 1), (service, 1)) }
    }

    /// `fi_av_insertsym`.
    pub(super) unsafe extern "C" fn av_insertsym(
        av: *mut fid_av,
        node: *const c_char,
        nodecnt: usize,
        service: *const c_char,
        svccnt: usize,
        fi_addr: *mut fi_addr_t,
        flags: u64,
        context: *mut c_void,
    ) -> c_int {
        let request = Request { av, count: 0, fi_addr, flags, context };
        // SAFETY: libfabric calls with our open AV and pointers as fi_av(3) says.
        unsafe { insert_run(request, (node, nodecnt), (service, svccnt)) }
    }
}
