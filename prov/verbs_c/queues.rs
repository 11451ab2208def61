//! The functions for completion queues and queue pairs.

use super::boundary::{count, not_null, sized, status, value};
use super::types::{
    ERD_WC_WITH_IMM, erd_context, erd_cq, erd_pd, erd_qp, erd_qp_init_attr, erd_wc,
};
use super::{CONTEXTS, CQS, PDS, QPS, find, publish, remove, with};
use crate::verbs::{Completion, Error, Notify, QpOptions};
use erd_core::cause;
use erd_core::sockaddr;
use std::ffi::{c_char, c_int, c_void};
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::ptr::null_mut;
use std::time::Duration;

/// Bytes of `union erd_name`.
const NAME_BYTES: usize = sockaddr::V6_BYTES;

/// `erd_create_cq(3)`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn erd_create_cq(context: *mut erd_context) -> *mut erd_cq {
    value("erd_create_cq", null_mut(), || {
        publish(&CQS, find(&CONTEXTS, "context", context)?.create_cq()?)
    })
}

/// `erd_create_cq(3)`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn erd_destroy_cq(cq: *mut erd_cq) -> c_int {
    status("erd_destroy_cq", || {
        remove(&CQS, "cq", cq, |cq| cq.users())?.close();
        Ok(())
    })
}

/// `erd_poll_cq(3)`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn erd_poll_cq(
    cq: *mut erd_cq,
    num_entries: c_int,
    wc: *mut erd_wc,
) -> c_int {
    count("erd_poll_cq", || {
        with(&CQS, "cq", cq, |cq| {
            let room = usize::try_from(num_entries)
                .map_err(|_| Error::argument("num_entries", num_entries, "0 or more"))?;
            if room > 0 {
                not_null("wc", wc)?;
            }
            let mut at = 0;
            cq.take(room, |entry| {
                // SAFETY: the caller's array has `num_entries` places, and no more are handed out.
                unsafe { wc.add(at).write(completion(&Completion::of(entry))) };
                at += 1;
            })
        })
    })
}

fn completion(from: &Completion) -> erd_wc {
    let (peer, peer_length) = from.peer.map_or(([0; 7], 0), words);
    erd_wc {
        wr_id: from.wr_id,
        status: from.status as u32,
        opcode: from.opcode as u32,
        byte_len: from.byte_len,
        imm_data: from.imm_data.unwrap_or(0),
        qp_num: from.qp_num,
        wc_flags: if from.imm_data.is_some() { ERD_WC_WITH_IMM } else { 0 },
        vendor_err: from.vendor_err(),
        peer_length,
        peer,
        reserved: 0,
    }
}

/// A name as `union erd_name`, and its length.
fn words(name: SocketAddr) -> ([u32; 7], u32) {
    let encoded = sockaddr::encode(name);
    let mut words = [0; NAME_BYTES / 4];
    for (word, bytes) in words.iter_mut().zip(encoded.as_bytes().chunks_exact(4)) {
        *word = u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    }
    (words, encoded.as_bytes().len() as u32)
}

/// `erd_wait_cq(3)`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn erd_wait_cq(cq: *mut erd_cq, timeout_ms: c_int) -> c_int {
    let mut there = false;
    let failed = status("erd_wait_cq", || {
        let timeout = u64::try_from(timeout_ms).ok().map(Duration::from_millis);
        there = find(&CQS, "cq", cq)?.wait(timeout)?;
        Ok(())
    });
    if failed == 0 && !there { libc::ETIMEDOUT } else { failed }
}

/// `erd_req_notify_cq(3)`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn erd_cq_fd(cq: *mut erd_cq) -> c_int {
    value("erd_cq_fd", -1, || Ok(find(&CQS, "cq", cq)?.fd()?.as_raw_fd()))
}

/// `erd_req_notify_cq(3)`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn erd_req_notify_cq(cq: *mut erd_cq) -> c_int {
    status("erd_req_notify_cq", || {
        let cq = find(&CQS, "cq", cq)?;
        if cq.req_notify()? == Notify::Ready {
            // Present sleepers must wake at once.
            cq.wake();
        }
        Ok(())
    })
}

/// `erd_poll_cq(3)`
#[unsafe(no_mangle)]
pub extern "C" fn erd_wc_status_str(status: u32) -> *const c_char {
    let text = match status {
        0 => c"success",
        1 => c"local length error",
        4 => c"local protection error",
        5 => c"work request flushed error",
        9 => c"remote invalid request error",
        10 => c"remote access error",
        11 => c"remote operation error",
        12 => c"transport retry counter exceeded",
        16 => c"remote aborted",
        21 => c"general error",
        _ => c"not a status",
    };
    text.as_ptr()
}

/// `erd_poll_cq(3)`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn erd_wc_reason(wc: *const erd_wc) -> *const c_char {
    if wc.is_null() {
        return c"no completion".as_ptr();
    }
    // SAFETY: the caller's completion.
    match unsafe { (*wc).vendor_err } {
        0 => c"success".as_ptr(),
        cause => cause::text(cause as c_int).as_ptr(),
    }
}

/// `erd_create_qp(3)`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn erd_create_qp(
    pd: *mut erd_pd,
    attr: *const erd_qp_init_attr,
) -> *mut erd_qp {
    value("erd_create_qp", null_mut(), || {
        let pd = find(&PDS, "pd", pd)?;
        // SAFETY: the caller's structure, of which every byte is a value.
        let attr = unsafe { sized("attr", attr, size_of::<erd_qp_init_attr>()) }?;
        if attr.reserved != 0 {
            return Err(Error::argument("attr->reserved", attr.reserved, 0));
        }
        let send_cq = find(&CQS, "attr->send_cq", attr.send_cq)?;
        let recv_cq = find(&CQS, "attr->recv_cq", attr.recv_cq)?;
        let options = QpOptions {
            send_cq: &send_cq,
            recv_cq: &recv_cq,
            max_send_wr: attr.max_send_wr,
            max_recv_wr: attr.max_recv_wr,
            sq_sig_all: attr.sq_sig_all != 0,
            port: attr.port,
        };
        publish(&QPS, pd.create_qp(&options)?)
    })
}

/// `erd_create_qp(3)`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn erd_destroy_qp(qp: *mut erd_qp) -> c_int {
    status("erd_destroy_qp", || {
        // A call of another thread may hold it; it is closed all the same.
        remove(&QPS, "qp", qp, |_| 0)?.close();
        Ok(())
    })
}

/// `erd_query_qp_name(3)`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn erd_query_qp_name(
    qp: *mut erd_qp,
    name: *mut c_void,
    length: *mut libc::socklen_t,
) -> c_int {
    status("erd_query_qp_name", || {
        let qp = find(&QPS, "qp", qp)?;
        not_null("name", name)?;
        not_null("length", length)?;
        let (words, bytes) = words(qp.name());
        // SAFETY: the caller's union and length.
        unsafe {
            name.cast::<[u32; NAME_BYTES / 4]>().write_unaligned(words);
            length.write(bytes);
        }
        Ok(())
    })
}

/// `erd_query_qp_name(3)`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn erd_qp_num(qp: *mut erd_qp) -> u32 {
    value("erd_qp_num", 0, || Ok(find(&QPS, "qp", qp)?.number()))
}
