//! The structures and numbers of `include/erd.h`.
#![allow(missing_docs, non_camel_case_types, reason = "the header and the man pages say it")]

use std::ffi::{c_char, c_void};

macro_rules! opaque {
    ($($name:ident)*) => {$(
        /// A handle; never followed.
        #[repr(C)]
        pub struct $name {
            _private: [u8; 0],
        }
    )*};
}

opaque! { erd_context erd_pd erd_mr erd_cq erd_qp erd_ah }

macro_rules! structures {
    ($($(#[$meta:meta])* $name:ident { $($field:ident: $type:ty),* $(,)? })*) => {
        $(
            $(#[$meta])*
            #[derive(Clone, Copy)]
            #[repr(C)]
            pub struct $name {
                $(pub $field: $type),*
            }
        )*

        /// Names, sizes and fields with their offsets, for the record of the ABI.
        #[must_use]
        pub fn layouts() -> Vec<(&'static str, usize, Vec<(&'static str, usize)>)> {
            vec![$((
                stringify!($name),
                size_of::<$name>(),
                vec![$((stringify!($field), std::mem::offset_of!($name, $field))),*],
            )),*]
        }
    };
}

structures! {
    erd_device_info {
        name: [c_char; 64],
        address: [c_char; 48],
        mtu_bytes: u32,
        flags: u32,
        speed_mbps: u64,
    }
    erd_setting {
        name: *const c_char,
        value: *const c_char,
    }
    erd_context_attr {
        size: usize,
        controller: *const c_char,
        controller_options: *const c_char,
        settings: *const erd_setting,
        num_settings: u32,
        paths: u32,
        key_size: u32,
        key: *const u8,
    }
    erd_wc {
        wr_id: u64,
        status: u32,
        opcode: u32,
        byte_len: u64,
        imm_data: u64,
        qp_num: u32,
        wc_flags: u32,
        vendor_err: u32,
        peer_length: u32,
        peer: [u32; 7],
        reserved: u32,
    }
    erd_qp_init_attr {
        size: usize,
        send_cq: *mut erd_cq,
        recv_cq: *mut erd_cq,
        max_send_wr: u32,
        max_recv_wr: u32,
        sq_sig_all: u32,
        port: u16,
        reserved: u16,
    }
    erd_sge {
        addr: *mut c_void,
        length: usize,
    }
    erd_send_wr {
        wr_id: u64,
        next: *const erd_send_wr,
        sg_list: *const erd_sge,
        num_sge: u32,
        opcode: u32,
        send_flags: u32,
        reserved: u32,
        ah: *mut erd_ah,
        imm_data: u64,
        remote_addr: u64,
        rkey: u64,
        compare_add: u64,
        swap: u64,
    }
    erd_recv_wr {
        wr_id: u64,
        next: *const erd_recv_wr,
        sg_list: *const erd_sge,
        num_sge: u32,
        reserved: u32,
    }
}

pub const ERD_DEVICE_LOOPBACK: u32 = 1 << 0;
pub const ERD_DEVICE_RDMA: u32 = 1 << 1;
pub const ERD_WC_WITH_IMM: u32 = 1 << 1;
pub const ERD_WR_RDMA_WRITE: u32 = 0;
pub const ERD_WR_RDMA_WRITE_WITH_IMM: u32 = 1;
pub const ERD_WR_SEND: u32 = 2;
pub const ERD_WR_SEND_WITH_IMM: u32 = 3;
pub const ERD_WR_RDMA_READ: u32 = 4;
pub const ERD_WR_ATOMIC_CMP_AND_SWP: u32 = 5;
pub const ERD_WR_ATOMIC_FETCH_AND_ADD: u32 = 6;
