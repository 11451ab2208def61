//! What calls and queues carry: `fi_msg(3)`, `fi_tagged(3)`, `fi_rma(3)`, `fi_atomic(3)`,
//! `fi_collective(3)`, `fi_cq(3)`, `fi_eq(3)`.
#![allow(missing_docs, reason = "libfabric's names and meanings: the man pages above")]
#![allow(non_camel_case_types, reason = "libfabric's names")]

use super::consts::*;
use super::info::fi_info;
use super::layout::c_structs;
use super::object::{fid, fid_av_set, fid_ep};
use core::ffi::{c_int, c_void};
use libc::iovec;

c_structs! {
    struct fi_ioc {
        addr: *mut c_void,
        count: usize,
    }

    struct fi_rma_iov {
        addr: u64,
        len: usize,
        key: u64,
    }

    struct fi_rma_ioc {
        addr: u64,
        count: usize,
        key: u64,
    }

    struct fi_msg {
        msg_iov: *const iovec,
        desc: *mut *mut c_void,
        iov_count: usize,
        addr: fi_addr_t,
        context: *mut c_void,
        data: u64,
    }

    struct fi_msg_tagged {
        msg_iov: *const iovec,
        desc: *mut *mut c_void,
        iov_count: usize,
        addr: fi_addr_t,
        tag: u64,
        ignore: u64,
        context: *mut c_void,
        data: u64,
    }

    struct fi_msg_rma {
        msg_iov: *const iovec,
        desc: *mut *mut c_void,
        iov_count: usize,
        addr: fi_addr_t,
        rma_iov: *const fi_rma_iov,
        rma_iov_count: usize,
        context: *mut c_void,
        data: u64,
    }

    struct fi_msg_atomic {
        msg_iov: *const fi_ioc,
        desc: *mut *mut c_void,
        iov_count: usize,
        addr: fi_addr_t,
        rma_iov: *const fi_rma_ioc,
        rma_iov_count: usize,
        datatype: fi_datatype,
        op: fi_op,
        context: *mut c_void,
        data: u64,
    }

    struct fi_msg_fetch {
        msg_iov: *mut fi_ioc,
        desc: *mut *mut c_void,
        iov_count: usize,
    }

    struct fi_msg_compare {
        msg_iov: *const fi_ioc,
        desc: *mut *mut c_void,
        iov_count: usize,
    }

    struct fi_msg_collective {
        msg_iov: *const fi_ioc,
        desc: *mut *mut c_void,
        iov_count: usize,
        coll_addr: fi_addr_t,
        root_addr: fi_addr_t,
        coll: fi_collective_op,
        datatype: fi_datatype,
        op: fi_op,
        context: *mut c_void,
    }

    /// The address that `fi_ops_cm.join` takes with `FI_COLLECTIVE`.
    struct fi_collective_addr {
        set: *const fid_av_set,
        coll_addr: fi_addr_t,
    }

    /// Space that the application lends with each operation under mode `FI_CONTEXT`.
    struct fi_context {
        internal: [*mut c_void; 4],
    }

    /// Space that the application lends with each operation under mode `FI_CONTEXT2`.
    struct fi_context2 {
        internal: [*mut c_void; 8],
    }

    struct fi_recv_context {
        ep: *mut fid_ep,
        context: *mut c_void,
    }

    struct fi_cq_entry {
        op_context: *mut c_void,
    }

    struct fi_cq_msg_entry {
        op_context: *mut c_void,
        flags: u64,
        len: usize,
    }

    struct fi_cq_data_entry {
        op_context: *mut c_void,
        flags: u64,
        len: usize,
        buf: *mut c_void,
        data: u64,
    }

    struct fi_cq_tagged_entry {
        op_context: *mut c_void,
        flags: u64,
        len: usize,
        buf: *mut c_void,
        data: u64,
        tag: u64,
    }

    /// `src_addr` is newer than 1.19: fill the caller's entry through
    /// [`compat::write_cq_err`](super::compat::write_cq_err).
    struct fi_cq_err_entry {
        op_context: *mut c_void,
        flags: u64,
        len: usize,
        buf: *mut c_void,
        data: u64,
        tag: u64,
        olen: usize,
        err: c_int,
        prov_errno: c_int,
        err_data: *mut c_void,
        err_data_size: usize,
        src_addr: fi_addr_t,
    }

    struct fi_eq_entry {
        fid: *mut fid,
        context: *mut c_void,
        data: u64,
    }

    struct fi_eq_err_entry {
        fid: *mut fid,
        context: *mut c_void,
        data: u64,
        err: c_int,
        prov_errno: c_int,
        err_data: *mut c_void,
        err_data_size: usize,
    }

    /// `data` is as long as the connection data.
    struct fi_eq_cm_entry {
        fid: *mut fid,
        info: *mut fi_info,
        data: [u8; 0],
    }
}
