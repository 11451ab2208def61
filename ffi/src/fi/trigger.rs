//! Triggered and deferred operations: `fi_trigger(3)`.
#![allow(missing_docs, reason = "libfabric's names and meanings: fi_trigger(3)")]
#![allow(non_camel_case_types, reason = "libfabric's names")]

use super::consts::*;
use super::layout::c_structs;
use super::object::{fid_cntr, fid_ep};
use super::structs::*;
use core::ffi::{c_int, c_void};

/// What triggers an operation, by `event_type`; the last member only gives the size.
#[repr(C)]
#[derive(Clone, Copy)]
pub union fi_trigger {
    pub threshold: fi_trigger_threshold,
    pub xpu: fi_trigger_xpu,
    pub internal: [*mut c_void; 3],
}

/// What triggers an operation, by `event_type`; the last member only gives the size.
#[repr(C)]
#[derive(Clone, Copy)]
pub union fi_trigger2 {
    pub threshold: fi_trigger_threshold,
    pub xpu: fi_trigger_xpu,
    pub internal: [*mut c_void; 7],
}

/// The operation of [`fi_deferred_work`], by `op_type`.
#[repr(C)]
#[derive(Clone, Copy)]
pub union fi_deferred_op {
    pub msg: *mut fi_op_msg,
    pub tagged: *mut fi_op_tagged,
    pub rma: *mut fi_op_rma,
    pub atomic: *mut fi_op_atomic,
    pub fetch_atomic: *mut fi_op_fetch_atomic,
    pub compare_atomic: *mut fi_op_compare_atomic,
    pub cntr: *mut fi_op_cntr,
}

c_structs! {
    struct fi_trigger_threshold {
        cntr: *mut fid_cntr,
        threshold: usize,
    }

    /// `value` is a C union of integers and a pointer.
    struct fi_trigger_var {
        datatype: fi_datatype,
        count: c_int,
        addr: *mut c_void,
        value: u64,
    }

    /// `device` is a C union of 64 bits.
    struct fi_trigger_xpu {
        count: c_int,
        iface: fi_hmem_iface,
        device: u64,
        var: *mut fi_trigger_var,
    }

    struct fi_op_msg {
        ep: *mut fid_ep,
        msg: fi_msg,
        flags: u64,
    }

    struct fi_op_tagged {
        ep: *mut fid_ep,
        msg: fi_msg_tagged,
        flags: u64,
    }

    struct fi_op_rma {
        ep: *mut fid_ep,
        msg: fi_msg_rma,
        flags: u64,
    }

    struct fi_op_atomic {
        ep: *mut fid_ep,
        msg: fi_msg_atomic,
        flags: u64,
    }

    struct fi_op_fetch_atomic {
        ep: *mut fid_ep,
        msg: fi_msg_atomic,
        fetch: fi_msg_fetch,
        flags: u64,
    }

    struct fi_op_compare_atomic {
        ep: *mut fid_ep,
        msg: fi_msg_atomic,
        fetch: fi_msg_fetch,
        compare: fi_msg_compare,
        flags: u64,
    }

    struct fi_op_cntr {
        cntr: *mut fid_cntr,
        value: u64,
    }

    /// Lies where the application's [`fi_context`] lies, under `FI_TRIGGER`.
    struct fi_triggered_context {
        event_type: fi_trigger_event,
        trigger: fi_trigger,
    }

    /// Lies where the application's [`fi_context2`] lies, under `FI_TRIGGER`.
    struct fi_triggered_context2 {
        event_type: fi_trigger_event,
        trigger: fi_trigger2,
    }

    /// What `FI_QUEUE_WORK` and `FI_CANCEL_WORK` take.
    struct fi_deferred_work {
        context: fi_context2,
        threshold: u64,
        triggering_cntr: *mut fid_cntr,
        completion_cntr: *mut fid_cntr,
        op_type: fi_op_type,
        op: fi_deferred_op,
    }
}
