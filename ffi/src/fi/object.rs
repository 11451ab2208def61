//! The objects as C sees them. Each begins with [`fid`], so a pointer to an object is a pointer
//! to its `fid`; a provider puts its own state after the C part, in a `#[repr(C)]` structure.
#![allow(missing_docs, reason = "libfabric's names and meanings: fabric(7)")]
#![allow(non_camel_case_types, reason = "libfabric's names")]

use super::layout::c_structs;
use super::ops::*;
use super::ops_data::*;
use core::ffi::{c_int, c_void};

c_structs! {
    struct fid {
        fclass: usize,
        context: *mut c_void,
        ops: *const fi_ops,
    }

    struct fid_fabric {
        fid: fid,
        ops: *const fi_ops_fabric,
        api_version: u32,
    }

    struct fid_domain {
        fid: fid,
        ops: *const fi_ops_domain,
        mr: *const fi_ops_mr,
    }

    struct fid_ep {
        fid: fid,
        ops: *const fi_ops_ep,
        cm: *const fi_ops_cm,
        msg: *const fi_ops_msg,
        rma: *const fi_ops_rma,
        tagged: *const fi_ops_tagged,
        atomic: *const fi_ops_atomic,
        collective: *const fi_ops_collective,
    }

    struct fid_pep {
        fid: fid,
        ops: *const fi_ops_ep,
        cm: *const fi_ops_cm,
    }

    struct fid_stx {
        fid: fid,
        ops: *const fi_ops_ep,
    }

    struct fid_mc {
        fid: fid,
        fi_addr: super::fi_addr_t,
    }

    struct fid_av {
        fid: fid,
        ops: *const fi_ops_av,
    }

    struct fid_av_set {
        fid: fid,
        ops: *const fi_ops_av_set,
    }

    struct fid_mr {
        fid: fid,
        mem_desc: *mut c_void,
        key: u64,
    }

    struct fid_eq {
        fid: fid,
        ops: *const fi_ops_eq,
    }

    struct fid_cq {
        fid: fid,
        ops: *const fi_ops_cq,
    }

    struct fid_cntr {
        fid: fid,
        ops: *const fi_ops_cntr,
    }

    struct fid_wait {
        fid: fid,
        ops: *const fi_ops_wait,
    }

    struct fid_poll {
        fid: fid,
        ops: *const fi_ops_poll,
    }

    // What `fi_ops.control` takes, by command.

    /// `FI_ALIAS`.
    struct fi_alias {
        fid: *mut *mut fid,
        flags: u64,
    }

    /// `FI_GET_VAL`, `FI_SET_VAL`.
    struct fi_fid_var {
        name: c_int,
        val: *mut c_void,
    }

    /// `FI_EXPORT_FID`.
    struct fi_fid_export {
        fid: *mut *mut fid,
        flags: u64,
        context: *mut c_void,
    }

    /// `FI_GET_RAW_MR`.
    struct fi_mr_raw_attr {
        flags: u64,
        base_addr: *mut u64,
        raw_key: *mut u8,
        key_size: *mut usize,
    }

    /// `FI_MAP_RAW_MR`.
    struct fi_mr_map_raw {
        flags: u64,
        base_addr: u64,
        raw_key: *mut u8,
        key_size: usize,
        key: *mut u64,
    }
}
