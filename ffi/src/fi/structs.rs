//! Structures that calls take and queues give: `fi_info` and what hangs off it (`fi_getinfo(3)`,
//! `fi_fabric(3)`, `fi_domain(3)`, `fi_endpoint(3)`, `fi_nic(3)`), then the attributes that objects are
//! opened with (`fi_av(3)`, `fi_av_set(3)`, `fi_cq(3)`, `fi_cntr(3)`, `fi_eq(3)`, `fi_mr(3)`, `fi_poll(3)`,
//! `fi_atomic(3)`, `fi_collective(3)`), then messages and completions (`fi_msg(3)`, `fi_tagged(3)`,
//! `fi_rma(3)`, `fi_cq(3)`, `fi_eq(3)`).
#![allow(missing_docs, reason = "libfabric's names and meanings: the man pages above")]
#![allow(non_camel_case_types, reason = "libfabric's names")]

use super::consts::*;
use super::layout::c_structs;
use super::object::*;
use super::xpu::fid_xpu_ctx;
use core::ffi::{c_char, c_int, c_void};
use libc::iovec;

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
