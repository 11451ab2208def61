//! `fi_info` and what hangs off it: `fi_getinfo(3)`, `fi_fabric(3)`, `fi_domain(3)`,
//! `fi_endpoint(3)`, `fi_nic(3)`.
#![allow(missing_docs, reason = "libfabric's names and meanings: the man pages above")]
#![allow(non_camel_case_types, reason = "libfabric's names")]

use super::consts::*;
use super::layout::c_structs;
use super::object::*;
use super::xpu::fid_xpu_ctx;
use core::ffi::{c_char, c_int, c_void};

c_structs! {
    struct fi_tx_attr {
        caps: u64,
        mode: u64,
        op_flags: u64,
        msg_order: u64,
        comp_order: u64,
        inject_size: usize,
        size: usize,
        iov_limit: usize,
        rma_iov_limit: usize,
        tclass: u32,
    }

    struct fi_rx_attr {
        caps: u64,
        mode: u64,
        op_flags: u64,
        msg_order: u64,
        comp_order: u64,
        total_buffered_recv: usize,
        size: usize,
        iov_limit: usize,
    }

    /// `xpu_ctx` came after 2.6: read it through [`compat`](super::compat).
    struct fi_ep_attr {
        r#type: fi_ep_type,
        protocol: u32,
        protocol_version: u32,
        max_msg_size: usize,
        msg_prefix_size: usize,
        max_order_raw_size: usize,
        max_order_war_size: usize,
        max_order_waw_size: usize,
        mem_tag_format: u64,
        tx_ctx_cnt: usize,
        rx_ctx_cnt: usize,
        auth_key_size: usize,
        auth_key: *mut u8,
        xpu_ctx: *mut fid_xpu_ctx,
    }

    /// `data_progress` shares its place with what newer headers also call `progress`. The fields
    /// from `max_ep_auth_key` on are newer than 1.17: read them through
    /// [`compat`](super::compat).
    struct fi_domain_attr {
        domain: *mut fid_domain,
        name: *mut c_char,
        threading: fi_threading,
        control_progress: fi_progress,
        data_progress: fi_progress,
        resource_mgmt: fi_resource_mgmt,
        av_type: fi_av_type,
        mr_mode: c_int,
        mr_key_size: usize,
        cq_data_size: usize,
        cq_cnt: usize,
        ep_cnt: usize,
        tx_ctx_cnt: usize,
        rx_ctx_cnt: usize,
        max_ep_tx_ctx: usize,
        max_ep_rx_ctx: usize,
        max_ep_stx_ctx: usize,
        max_ep_srx_ctx: usize,
        cntr_cnt: usize,
        mr_iov_limit: usize,
        caps: u64,
        mode: u64,
        auth_key: *mut u8,
        auth_key_size: usize,
        max_err_data: usize,
        mr_cnt: usize,
        tclass: u32,
        max_ep_auth_key: usize,
        max_group_id: u32,
        max_cntr_value: u64,
        max_err_cntr_value: u64,
        max_xpu_ctx_cnt: usize,
    }

    /// `prov_name` is the core's to set: a provider leaves it NULL.
    struct fi_fabric_attr {
        fabric: *mut fid_fabric,
        name: *mut c_char,
        prov_name: *mut c_char,
        prov_version: u32,
        api_version: u32,
    }

    struct fi_info {
        next: *mut fi_info,
        caps: u64,
        mode: u64,
        addr_format: u32,
        src_addrlen: usize,
        dest_addrlen: usize,
        src_addr: *mut c_void,
        dest_addr: *mut c_void,
        handle: *mut fid,
        tx_attr: *mut fi_tx_attr,
        rx_attr: *mut fi_rx_attr,
        ep_attr: *mut fi_ep_attr,
        domain_attr: *mut fi_domain_attr,
        fabric_attr: *mut fi_fabric_attr,
        nic: *mut fid_nic,
    }

    struct fi_device_attr {
        name: *mut c_char,
        device_id: *mut c_char,
        device_version: *mut c_char,
        vendor_id: *mut c_char,
        driver: *mut c_char,
        firmware: *mut c_char,
    }

    struct fi_pci_attr {
        domain_id: u16,
        bus_id: u8,
        device_id: u8,
        function_id: u8,
    }

    /// `attr` is a C union whose only member is `pci`.
    struct fi_bus_attr {
        bus_type: fi_bus_type,
        attr: fi_pci_attr,
    }

    /// `speed` is in bits a second.
    struct fi_link_attr {
        address: *mut c_char,
        mtu: usize,
        speed: usize,
        state: fi_link_state,
        network_type: *mut c_char,
    }

    struct fid_nic {
        fid: fid,
        device_attr: *mut fi_device_attr,
        bus_attr: *mut fi_bus_attr,
        link_attr: *mut fi_link_attr,
        prov_attr: *mut c_void,
    }
}
