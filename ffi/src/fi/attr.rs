//! Attributes given when objects are opened: `fi_av(3)`, `fi_av_set(3)`, `fi_cq(3)`, `fi_cntr(3)`,
//! `fi_eq(3)`, `fi_mr(3)`, `fi_poll(3)`, `fi_atomic(3)`, `fi_collective(3)`.
#![allow(missing_docs, reason = "libfabric's names and meanings: the man pages above")]
#![allow(non_camel_case_types, reason = "libfabric's names")]

use super::consts::*;
use super::layout::c_structs;
use super::object::*;
use super::xpu::fid_xpu_ctx;
use core::ffi::{c_char, c_int, c_void};
use libc::iovec;

c_structs! {
    struct fi_av_attr {
        r#type: fi_av_type,
        rx_ctx_bits: c_int,
        count: usize,
        ep_per_node: usize,
        name: *const c_char,
        map_addr: *mut c_void,
        flags: u64,
    }

    struct fi_av_set_attr {
        count: usize,
        start_addr: fi_addr_t,
        end_addr: fi_addr_t,
        stride: u64,
        comm_key_size: usize,
        comm_key: *mut u8,
        flags: u64,
    }

    /// `xpu_ctx` came after 2.6: read it through [`compat`](super::compat).
    struct fi_cq_attr {
        size: usize,
        flags: u64,
        format: fi_cq_format,
        wait_obj: fi_wait_obj,
        signaling_vector: c_int,
        wait_cond: fi_cq_wait_cond,
        wait_set: *mut fid_wait,
        xpu_ctx: *mut fid_xpu_ctx,
    }

    /// `xpu_ctx` came after 2.6: read it through [`compat`](super::compat).
    struct fi_cntr_attr {
        events: fi_cntr_events,
        wait_obj: fi_wait_obj,
        wait_set: *mut fid_wait,
        flags: u64,
        xpu_ctx: *mut fid_xpu_ctx,
    }

    struct fi_eq_attr {
        size: usize,
        flags: u64,
        wait_obj: fi_wait_obj,
        signaling_vector: c_int,
        wait_set: *mut fid_wait,
    }

    struct fi_wait_attr {
        wait_obj: fi_wait_obj,
        flags: u64,
    }

    struct fi_poll_attr {
        flags: u64,
    }

    /// What `FI_GETWAIT` fills in for `FI_WAIT_MUTEX_COND`.
    struct fi_mutex_cond {
        mutex: *mut libc::pthread_mutex_t,
        cond: *mut libc::pthread_cond_t,
    }

    /// What `FI_GETWAIT` fills in for `FI_WAIT_POLLFD`.
    struct fi_wait_pollfd {
        change_index: u64,
        nfds: usize,
        fd: *mut libc::pollfd,
    }

    struct fi_mr_dmabuf {
        fd: c_int,
        offset: u64,
        len: usize,
        base_addr: *mut c_void,
    }

    struct fi_mr_auth_key {
        av: *mut fid_av,
        src_addr: fi_addr_t,
    }

    /// `mr_iov` shares its place with a pointer to [`fi_mr_dmabuf`], meant when the call has
    /// `FI_MR_DMABUF`; `device` is a union of 64 bits. The fields from `hmem_data` on are newer
    /// than 1.17: read them through [`compat`](super::compat).
    struct fi_mr_attr {
        mr_iov: *const iovec,
        iov_count: usize,
        access: u64,
        offset: u64,
        requested_key: u64,
        context: *mut c_void,
        auth_key_size: usize,
        auth_key: *mut u8,
        iface: fi_hmem_iface,
        device: u64,
        hmem_data: *mut c_void,
        page_size: usize,
        base_mr: *const fid_mr,
        sub_mr_cnt: usize,
    }

    /// `FI_REFRESH`; only `mr_iov` and `iov_count` of `attr` carry anything. It ends where the
    /// caller's `fi_mr_attr` ends, so never make a reference to the whole.
    struct fi_mr_modify {
        flags: u64,
        attr: fi_mr_attr,
    }

    struct fi_atomic_attr {
        count: usize,
        size: usize,
    }

    struct fi_collective_attr {
        op: fi_op,
        datatype: fi_datatype,
        datatype_attr: fi_atomic_attr,
        max_members: usize,
        mode: u64,
    }
}
