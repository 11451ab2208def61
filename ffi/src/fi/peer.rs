//! The peer interface: how one provider uses the queues of another. `fi_peer(3)`. It changed
//! incompatibly in 1.19, 2.0 and 2.3; this is the form of 2.3 and later.
//!
//! Tables named `*_owner` belong to the other provider, so their operations may be missing.
#![allow(missing_docs, reason = "libfabric's names and meanings: fi_peer(3)")]
#![allow(non_camel_case_types, reason = "libfabric's names")]

use super::consts::*;
use super::layout::c_structs;
use super::nosys::ops_tables;
use super::object::*;
use super::structs::fi_av_attr;
use super::structs::fi_info;
use super::structs::{fi_cq_err_entry, fi_cq_tagged_entry};
use core::ffi::{c_int, c_void};
use libc::iovec;

/// How the owner's `foreach_unspec_addr` asks the peer for the source of an entry.
pub type fi_peer_get_addr = unsafe extern "C" fn(entry: *mut fi_peer_rx_entry) -> fi_addr_t;

c_structs! {
    struct fi_ops_av_owner {
        size: usize,
        query: Option<unsafe extern "C" fn(av: *mut fid_peer_av, attr: *mut fi_av_attr) -> c_int>,
        ep_addr: Option<unsafe extern "C" fn(av: *mut fid_peer_av, ep: *mut fid_ep) -> fi_addr_t>,
    }

    struct fid_peer_av {
        fid: fid,
        owner_ops: *const fi_ops_av_owner,
    }

    struct fi_peer_av_context {
        size: usize,
        av: *mut fid_peer_av,
    }

    struct fi_ops_av_set_owner {
        size: usize,
        members: Option<
            unsafe extern "C" fn(
                av_set: *mut fid_peer_av_set,
                addr: *mut fi_addr_t,
                count: *mut usize,
            ) -> c_int,
        >,
    }

    struct fid_peer_av_set {
        fid: fid,
        owner_ops: *const fi_ops_av_set_owner,
    }

    struct fi_peer_av_set_context {
        size: usize,
        av_set: *mut fid_peer_av_set,
    }

    struct fi_ops_cq_owner {
        size: usize,
        write: Option<
            unsafe extern "C" fn(
                cq: *mut fid_peer_cq,
                context: *mut c_void,
                flags: u64,
                len: usize,
                buf: *mut c_void,
                data: u64,
                tag: u64,
                src: fi_addr_t,
            ) -> isize,
        >,
        writeerr: Option<
            unsafe extern "C" fn(cq: *mut fid_peer_cq, entry: *const fi_cq_err_entry) -> isize,
        >,
    }

    struct fid_peer_cq {
        fid: fid,
        owner_ops: *const fi_ops_cq_owner,
    }

    struct fi_peer_cq_context {
        size: usize,
        cq: *mut fid_peer_cq,
    }

    struct fi_ops_cntr_owner {
        size: usize,
        inc: Option<unsafe extern "C" fn(cntr: *mut fid_peer_cntr)>,
        incerr: Option<unsafe extern "C" fn(cntr: *mut fid_peer_cntr)>,
    }

    struct fid_peer_cntr {
        fid: fid,
        owner_ops: *const fi_ops_cntr_owner,
    }

    struct fi_peer_cntr_context {
        size: usize,
        cntr: *mut fid_peer_cntr,
    }

    struct fi_peer_domain_context {
        size: usize,
        domain: *mut fid_domain,
    }

    struct fi_peer_eq_context {
        size: usize,
        eq: *mut fid_eq,
    }

    struct fi_peer_rx_entry {
        srx: *mut fid_peer_srx,
        addr: fi_addr_t,
        msg_size: usize,
        tag: u64,
        cq_data: u64,
        flags: u64,
        context: *mut c_void,
        count: usize,
        desc: *mut *mut c_void,
        peer_context: *mut c_void,
        owner_context: *mut c_void,
        iov: *mut iovec,
    }

    struct fi_peer_match_attr {
        addr: fi_addr_t,
        msg_size: usize,
        tag: u64,
    }

    struct fi_ops_srx_owner {
        size: usize,
        get_msg: Option<
            unsafe extern "C" fn(
                srx: *mut fid_peer_srx,
                attr: *mut fi_peer_match_attr,
                entry: *mut *mut fi_peer_rx_entry,
            ) -> c_int,
        >,
        get_tag: Option<
            unsafe extern "C" fn(
                srx: *mut fid_peer_srx,
                attr: *mut fi_peer_match_attr,
                entry: *mut *mut fi_peer_rx_entry,
            ) -> c_int,
        >,
        queue_msg: Option<unsafe extern "C" fn(entry: *mut fi_peer_rx_entry) -> c_int>,
        queue_tag: Option<unsafe extern "C" fn(entry: *mut fi_peer_rx_entry) -> c_int>,
        foreach_unspec_addr:
            Option<unsafe extern "C" fn(srx: *mut fid_peer_srx, get_addr: fi_peer_get_addr)>,
        free_entry: Option<unsafe extern "C" fn(entry: *mut fi_peer_rx_entry)>,
    }

    /// `peer_ops` is the peer's to set.
    struct fid_peer_srx {
        ep_fid: fid_ep,
        owner_ops: *const fi_ops_srx_owner,
        peer_ops: *const fi_ops_srx_peer,
    }

    struct fi_peer_srx_context {
        size: usize,
        srx: *mut fid_peer_srx,
    }

    struct fi_peer_transfer_context {
        size: usize,
        info: *mut fi_info,
        ep: *mut fid_ep,
        peer_ops: *const fi_ops_transfer_peer,
    }

    struct fi_ops_transfer_peer {
        size: usize,
        complete: Option<
            unsafe extern "C" fn(
                ep: *mut fid_ep,
                buf: *mut fi_cq_tagged_entry,
                src_addr: fi_addr_t,
            ) -> isize,
        >,
        comperr:
            Option<unsafe extern "C" fn(ep: *mut fid_ep, buf: *mut fi_cq_err_entry) -> isize>,
    }
}

/// The table that a peer gives to the owner of a shared receive context.
pub mod srx_peer {
    use super::*;

    ops_tables! {
        table fi_ops_srx_peer = NOSYS_SRX_PEER {
            start_msg(entry: *mut fi_peer_rx_entry) -> c_int;
            start_tag(entry: *mut fi_peer_rx_entry) -> c_int;
            discard_msg(entry: *mut fi_peer_rx_entry) -> c_int;
            discard_tag(entry: *mut fi_peer_rx_entry) -> c_int;
        }
    }
}

pub use srx_peer::{NOSYS_SRX_PEER, fi_ops_srx_peer};
