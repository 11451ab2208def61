//! Tables of operations on objects: `fi_fabric(3)`, `fi_domain(3)`, `fi_endpoint(3)`, `fi_cm(3)`,
//! `fi_av(3)`, `fi_mr(3)`, `fi_eq(3)`, `fi_cq(3)`, `fi_cntr(3)`, `fi_poll(3)`.
#![allow(missing_docs, reason = "libfabric's names and meanings: the man pages above")]
#![allow(non_camel_case_types, reason = "libfabric's names")]

use super::consts::*;
use super::nosys::ops_tables;
use super::object::*;
use super::structs::*;
use super::xpu::*;
use core::ffi::{c_char, c_int, c_void};
use libc::iovec;

ops_tables! {
    /// What every object has.
    table fi_ops = NOSYS_FID {
        close(fid: *mut fid) -> c_int;
        bind(fid: *mut fid, bfid: *mut fid, flags: u64) -> c_int;
        control(fid: *mut fid, command: c_int, arg: *mut c_void) -> c_int;
        ops_open(
            fid: *mut fid,
            name: *const c_char,
            flags: u64,
            ops: *mut *mut c_void,
            context: *mut c_void,
        ) -> c_int;
        tostr(fid: *const fid, buf: *mut c_char, len: usize) -> c_int;
        ops_set(
            fid: *mut fid,
            name: *const c_char,
            flags: u64,
            ops: *mut c_void,
            context: *mut c_void,
        ) -> c_int;
    }

    table fi_ops_fabric = NOSYS_FABRIC {
        domain(
            fabric: *mut fid_fabric,
            info: *mut fi_info,
            dom: *mut *mut fid_domain,
            context: *mut c_void,
        ) -> c_int;
        passive_ep(
            fabric: *mut fid_fabric,
            info: *mut fi_info,
            pep: *mut *mut fid_pep,
            context: *mut c_void,
        ) -> c_int;
        eq_open(
            fabric: *mut fid_fabric,
            attr: *mut fi_eq_attr,
            eq: *mut *mut fid_eq,
            context: *mut c_void,
        ) -> c_int;
        wait_open(
            fabric: *mut fid_fabric,
            attr: *mut fi_wait_attr,
            waitset: *mut *mut fid_wait,
        ) -> c_int;
        trywait(fabric: *mut fid_fabric, fids: *mut *mut fid, count: c_int) -> c_int;
        domain2(
            fabric: *mut fid_fabric,
            info: *mut fi_info,
            dom: *mut *mut fid_domain,
            flags: u64,
            context: *mut c_void,
        ) -> c_int;
    }

    table fi_ops_domain = NOSYS_DOMAIN {
        av_open(
            domain: *mut fid_domain,
            attr: *mut fi_av_attr,
            av: *mut *mut fid_av,
            context: *mut c_void,
        ) -> c_int;
        cq_open(
            domain: *mut fid_domain,
            attr: *mut fi_cq_attr,
            cq: *mut *mut fid_cq,
            context: *mut c_void,
        ) -> c_int;
        endpoint(
            domain: *mut fid_domain,
            info: *mut fi_info,
            ep: *mut *mut fid_ep,
            context: *mut c_void,
        ) -> c_int;
        scalable_ep(
            domain: *mut fid_domain,
            info: *mut fi_info,
            sep: *mut *mut fid_ep,
            context: *mut c_void,
        ) -> c_int;
        cntr_open(
            domain: *mut fid_domain,
            attr: *mut fi_cntr_attr,
            cntr: *mut *mut fid_cntr,
            context: *mut c_void,
        ) -> c_int;
        poll_open(
            domain: *mut fid_domain,
            attr: *mut fi_poll_attr,
            pollset: *mut *mut fid_poll,
        ) -> c_int;
        stx_ctx(
            domain: *mut fid_domain,
            attr: *mut fi_tx_attr,
            stx: *mut *mut fid_stx,
            context: *mut c_void,
        ) -> c_int;
        srx_ctx(
            domain: *mut fid_domain,
            attr: *mut fi_rx_attr,
            rx_ep: *mut *mut fid_ep,
            context: *mut c_void,
        ) -> c_int;
        query_atomic(
            domain: *mut fid_domain,
            datatype: fi_datatype,
            op: fi_op,
            attr: *mut fi_atomic_attr,
            flags: u64,
        ) -> c_int;
        query_collective(
            domain: *mut fid_domain,
            coll: fi_collective_op,
            attr: *mut fi_collective_attr,
            flags: u64,
        ) -> c_int;
        endpoint2(
            domain: *mut fid_domain,
            info: *mut fi_info,
            ep: *mut *mut fid_ep,
            flags: u64,
            context: *mut c_void,
        ) -> c_int;
        xpu_ctx(
            domain: *mut fid_domain,
            attr: *mut fi_xpu_attr,
            ctx: *mut *mut fid_xpu_ctx,
            context: *mut c_void,
        ) -> c_int;
    }

    table fi_ops_mr = NOSYS_MR {
        reg(
            fid: *mut fid,
            buf: *const c_void,
            len: usize,
            access: u64,
            offset: u64,
            requested_key: u64,
            flags: u64,
            mr: *mut *mut fid_mr,
            context: *mut c_void,
        ) -> c_int;
        regv(
            fid: *mut fid,
            iov: *const iovec,
            count: usize,
            access: u64,
            offset: u64,
            requested_key: u64,
            flags: u64,
            mr: *mut *mut fid_mr,
            context: *mut c_void,
        ) -> c_int;
        regattr(
            fid: *mut fid,
            attr: *const fi_mr_attr,
            flags: u64,
            mr: *mut *mut fid_mr,
        ) -> c_int;
    }

    table fi_ops_ep = NOSYS_EP {
        cancel(fid: *mut fid, context: *mut c_void) -> isize;
        getopt(
            fid: *mut fid,
            level: c_int,
            optname: c_int,
            optval: *mut c_void,
            optlen: *mut usize,
        ) -> c_int;
        setopt(
            fid: *mut fid,
            level: c_int,
            optname: c_int,
            optval: *const c_void,
            optlen: usize,
        ) -> c_int;
        tx_ctx(
            sep: *mut fid_ep,
            index: c_int,
            attr: *mut fi_tx_attr,
            tx_ep: *mut *mut fid_ep,
            context: *mut c_void,
        ) -> c_int;
        rx_ctx(
            sep: *mut fid_ep,
            index: c_int,
            attr: *mut fi_rx_attr,
            rx_ep: *mut *mut fid_ep,
            context: *mut c_void,
        ) -> c_int;
        rx_size_left(ep: *mut fid_ep) -> isize;
        tx_size_left(ep: *mut fid_ep) -> isize;
        export_xpu(ep: *mut fid_ep, flags: u64, xpu_ep: *mut fid_xpu_ep) -> c_int;
    }

    table fi_ops_cm = NOSYS_CM {
        setname(fid: *mut fid, addr: *mut c_void, addrlen: usize) -> c_int;
        getname(fid: *mut fid, addr: *mut c_void, addrlen: *mut usize) -> c_int;
        getpeer(ep: *mut fid_ep, addr: *mut c_void, addrlen: *mut usize) -> c_int;
        connect(
            ep: *mut fid_ep,
            addr: *const c_void,
            param: *const c_void,
            paramlen: usize,
        ) -> c_int;
        listen(pep: *mut fid_pep) -> c_int;
        accept(ep: *mut fid_ep, param: *const c_void, paramlen: usize) -> c_int;
        reject(
            pep: *mut fid_pep,
            handle: *mut fid,
            param: *const c_void,
            paramlen: usize,
        ) -> c_int;
        shutdown(ep: *mut fid_ep, flags: u64) -> c_int;
        join(
            ep: *mut fid_ep,
            addr: *const c_void,
            flags: u64,
            mc: *mut *mut fid_mc,
            context: *mut c_void,
        ) -> c_int;
    }

    table fi_ops_av = NOSYS_AV {
        insert(
            av: *mut fid_av,
            addr: *const c_void,
            count: usize,
            fi_addr: *mut fi_addr_t,
            flags: u64,
            context: *mut c_void,
        ) -> c_int;
        insertsvc(
            av: *mut fid_av,
            node: *const c_char,
            service: *const c_char,
            fi_addr: *mut fi_addr_t,
            flags: u64,
            context: *mut c_void,
        ) -> c_int;
        insertsym(
            av: *mut fid_av,
            node: *const c_char,
            nodecnt: usize,
            service: *const c_char,
            svccnt: usize,
            fi_addr: *mut fi_addr_t,
            flags: u64,
            context: *mut c_void,
        ) -> c_int;
        remove(av: *mut fid_av, fi_addr: *mut fi_addr_t, count: usize, flags: u64) -> c_int;
        lookup(
            av: *mut fid_av,
            fi_addr: fi_addr_t,
            addr: *mut c_void,
            addrlen: *mut usize,
        ) -> c_int;
        straddr(
            av: *mut fid_av,
            addr: *const c_void,
            buf: *mut c_char,
            len: *mut usize,
        ) -> *const c_char;
        av_set(
            av: *mut fid_av,
            attr: *mut fi_av_set_attr,
            av_set: *mut *mut fid_av_set,
            context: *mut c_void,
        ) -> c_int;
        insert_auth_key(
            av: *mut fid_av,
            auth_key: *const c_void,
            auth_key_size: usize,
            fi_addr: *mut fi_addr_t,
            flags: u64,
        ) -> c_int;
        lookup_auth_key(
            av: *mut fid_av,
            fi_addr: fi_addr_t,
            auth_key: *mut c_void,
            auth_key_size: *mut usize,
        ) -> c_int;
        set_user_id(
            av: *mut fid_av,
            fi_addr: fi_addr_t,
            user_id: fi_addr_t,
            flags: u64,
        ) -> c_int;
        lookup2(
            av: *mut fid_av,
            fi_addr: fi_addr_t,
            buf: *mut c_void,
            len: *mut usize,
            flags: u64,
            ctx: *mut fid_xpu_ctx,
        ) -> c_int;
    }

    table fi_ops_av_set = NOSYS_AV_SET {
        set_union(dst: *mut fid_av_set, src: *const fid_av_set) -> c_int;
        intersect(dst: *mut fid_av_set, src: *const fid_av_set) -> c_int;
        diff(dst: *mut fid_av_set, src: *const fid_av_set) -> c_int;
        insert(set: *mut fid_av_set, addr: fi_addr_t) -> c_int;
        remove(set: *mut fid_av_set, addr: fi_addr_t) -> c_int;
        addr(set: *mut fid_av_set, coll_addr: *mut fi_addr_t) -> c_int;
    }

    table fi_ops_eq = NOSYS_EQ {
        read(eq: *mut fid_eq, event: *mut u32, buf: *mut c_void, len: usize, flags: u64) -> isize;
        readerr(eq: *mut fid_eq, buf: *mut fi_eq_err_entry, flags: u64) -> isize;
        write(eq: *mut fid_eq, event: u32, buf: *const c_void, len: usize, flags: u64) -> isize;
        sread(
            eq: *mut fid_eq,
            event: *mut u32,
            buf: *mut c_void,
            len: usize,
            timeout_ms: c_int,
            flags: u64,
        ) -> isize;
        strerror(
            eq: *mut fid_eq,
            prov_errno: c_int,
            err_data: *const c_void,
            buf: *mut c_char,
            len: usize,
        ) -> *const c_char;
    }

    table fi_ops_cq = NOSYS_CQ {
        read(cq: *mut fid_cq, buf: *mut c_void, count: usize) -> isize;
        readfrom(
            cq: *mut fid_cq,
            buf: *mut c_void,
            count: usize,
            src_addr: *mut fi_addr_t,
        ) -> isize;
        readerr(cq: *mut fid_cq, buf: *mut fi_cq_err_entry, flags: u64) -> isize;
        sread(
            cq: *mut fid_cq,
            buf: *mut c_void,
            count: usize,
            cond: *const c_void,
            timeout_ms: c_int,
        ) -> isize;
        sreadfrom(
            cq: *mut fid_cq,
            buf: *mut c_void,
            count: usize,
            src_addr: *mut fi_addr_t,
            cond: *const c_void,
            timeout_ms: c_int,
        ) -> isize;
        signal(cq: *mut fid_cq) -> c_int;
        strerror(
            cq: *mut fid_cq,
            prov_errno: c_int,
            err_data: *const c_void,
            buf: *mut c_char,
            len: usize,
        ) -> *const c_char;
        export_xpu(cq: *mut fid_cq, flags: u64, xpu_cq: *mut fid_xpu_cq) -> c_int;
    }

    /// `read` and `readerr` cannot report an error: their defaults answer 0.
    table fi_ops_cntr = NOSYS_CNTR {
        read(cntr: *mut fid_cntr) -> u64;
        readerr(cntr: *mut fid_cntr) -> u64;
        add(cntr: *mut fid_cntr, value: u64) -> c_int;
        set(cntr: *mut fid_cntr, value: u64) -> c_int;
        wait(cntr: *mut fid_cntr, threshold: u64, timeout_ms: c_int) -> c_int;
        adderr(cntr: *mut fid_cntr, value: u64) -> c_int;
        seterr(cntr: *mut fid_cntr, value: u64) -> c_int;
        export_xpu(cntr: *mut fid_cntr, flags: u64, xpu_cntr: *mut fid_xpu_cntr) -> c_int;
    }

    table fi_ops_wait = NOSYS_WAIT {
        wait(waitset: *mut fid_wait, timeout_ms: c_int) -> c_int;
    }

    table fi_ops_poll = NOSYS_POLL {
        poll(pollset: *mut fid_poll, context: *mut *mut c_void, count: c_int) -> c_int;
        poll_add(pollset: *mut fid_poll, event_fid: *mut fid, flags: u64) -> c_int;
        poll_del(pollset: *mut fid_poll, event_fid: *mut fid, flags: u64) -> c_int;
    }
}
