//! The C functions as C calls them, with what is right and what is not.

use super::types::*;
use super::*;
use crate::verbs::Status;
use std::ffi::{CStr, c_int};
use std::ptr::{null, null_mut};
use std::time::{Duration, Instant};

/// Sequences of a run.
const SEQUENCES: u64 = 40;

/// One side, whose calls are all made through handles.
pub(super) struct Side {
    context: *mut erd_context,
    pd: *mut erd_pd,
    cq: *mut erd_cq,
    qp: *mut erd_qp,
}

/// A device as the environment has it.
pub(super) const NO_ATTR: erd_context_attr = erd_context_attr {
    size: size_of::<erd_context_attr>(),
    controller: null(),
    controller_options: null(),
    settings: null(),
    num_settings: 0,
    paths: 0,
    key_size: 0,
    key: null(),
};

pub(super) fn setting(name: &'static CStr, value: &'static CStr) -> erd_setting {
    erd_setting { name: name.as_ptr(), value: value.as_ptr() }
}

fn attr(cq: *mut erd_cq) -> erd_qp_init_attr {
    erd_qp_init_attr {
        size: size_of::<erd_qp_init_attr>(),
        send_cq: cq,
        recv_cq: cq,
        max_send_wr: 0,
        max_recv_wr: 0,
        sq_sig_all: 1,
        port: 0,
        reserved: 0,
    }
}

pub(super) fn last() -> String {
    // SAFETY: a C string of this thread's.
    unsafe { CStr::from_ptr(erd_last_error()) }.to_string_lossy().into_owned()
}

/// The call failed with this number, and the text says what about it.
#[track_caller]
fn refused(errno: c_int, expected: c_int, parts: &[&str]) {
    let text = last();
    assert_eq!(errno, expected, "{text}");
    assert!(parts.iter().all(|part| text.contains(part)), "{text}");
}

/// The call answered NULL.
#[track_caller]
fn no_object<T>(object: *mut T, expected: c_int, parts: &[&str]) {
    assert!(object.is_null());
    refused(std::io::Error::last_os_error().raw_os_error().unwrap(), expected, parts);
}

impl Side {
    pub(super) fn new() -> Side {
        Side::with(|_| ())
    }

    fn with(change: impl FnOnce(&mut erd_qp_init_attr)) -> Side {
        // SAFETY: handles and structures as the pages say.
        unsafe {
            let context = erd_open_device(c"127.0.0.1".as_ptr(), null());
            let (pd, cq) = (erd_alloc_pd(context), erd_create_cq(context));
            let mut attr = attr(cq);
            change(&mut attr);
            let qp = erd_create_qp(pd, &raw const attr);
            assert!(!qp.is_null(), "{}", last());
            Side { context, pd, cq, qp }
        }
    }

    fn knows(&self, other: &Side) -> *mut erd_ah {
        let (mut name, mut length) = ([0_u32; 7], 0);
        // SAFETY: as above.
        unsafe {
            let rc = erd_query_qp_name(other.qp, name.as_mut_ptr().cast(), &raw mut length);
            assert_eq!((rc, length), (0, 16));
            erd_create_ah(self.pd, name.as_ptr().cast(), length)
        }
    }

    fn done(&self) -> erd_wc {
        // SAFETY: every byte is a value of it.
        let mut wc: erd_wc = unsafe { std::mem::zeroed() };
        let start = Instant::now();
        // SAFETY: room for one.
        while unsafe { erd_poll_cq(self.cq, 1, &raw mut wc) } != 1 {
            assert!(start.elapsed() < Duration::from_secs(20), "no completion came");
        }
        wc
    }

    pub(super) fn close(self) {
        // SAFETY: as above.
        unsafe {
            for rc in [
                erd_destroy_qp(self.qp),
                erd_destroy_cq(self.cq),
                erd_dealloc_pd(self.pd),
                erd_close_device(self.context),
            ] {
                assert_eq!(rc, 0, "{}", last());
            }
        }
    }
}

fn sge(memory: &mut [u8]) -> erd_sge {
    erd_sge { addr: memory.as_mut_ptr().cast(), length: memory.len() }
}

fn send_wr(wr_id: u64, ah: *mut erd_ah, list: &[erd_sge]) -> erd_send_wr {
    erd_send_wr {
        wr_id,
        next: null(),
        sg_list: list.as_ptr(),
        num_sge: list.len() as u32,
        opcode: ERD_WR_SEND,
        send_flags: 0,
        reserved: 0,
        ah,
        imm_data: 0,
        remote_addr: 0,
        rkey: 0,
        compare_add: 0,
        swap: 0,
    }
}

fn post_send(side: &Side, wr: &erd_send_wr) -> c_int {
    // SAFETY: the tests keep their memory until it is done.
    unsafe { erd_post_send(side.qp, wr, null_mut()) }
}

fn post_recv(side: &Side, wr_id: u64, list: &[erd_sge]) -> c_int {
    let (sg_list, num_sge) = (list.as_ptr(), list.len() as u32);
    let wr = erd_recv_wr { wr_id, next: null(), sg_list, num_sge, reserved: 0 };
    // SAFETY: as above.
    unsafe { erd_post_recv(side.qp, &raw const wr, null_mut()) }
}

/// A message from one to the other arrives.
pub(super) fn talk(from: &Side, to: &Side) {
    let (mut out, mut into) = (*b"message", [0; 16]);
    assert_eq!(post_recv(to, 1, &[sge(&mut into)]), 0, "{}", last());
    let ah = from.knows(to);
    assert_eq!(post_send(from, &send_wr(2, ah, &[sge(&mut out)])), 0, "{}", last());
    let (received, sent) = (to.done(), from.done());
    assert_eq!((received.wr_id, received.byte_len, &into[..7]), (1, 7, &b"message"[..]));
    assert_eq!((sent.wr_id, sent.status), (2, 0));
    // SAFETY: handles of this test.
    unsafe {
        let back = erd_create_ah_from_wc(to.pd, &raw const received);
        assert_eq!((erd_destroy_ah(back), erd_destroy_ah(ah)), (0, 0));
    }
}

#[test]
fn memory_is_written_read_and_changed_and_all_is_closed() {
    let (left, right) = (Side::new(), Side::new());
    talk(&left, &right);
    let (mut memory, mut out, mut into) = ([0_u64; 4], [7_u8; 8], [0_u8; 8]);
    let (ah, mut rkey) = (left.knows(&right), 0);
    // SAFETY: the memory outlives its registration.
    let mr = unsafe { erd_reg_mr(right.pd, memory.as_mut_ptr().cast(), 32, 0b1110, &raw mut rkey) };
    let base = erd_send_wr { remote_addr: memory.as_ptr() as u64, rkey, ..send_wr(3, ah, &[]) };
    let (from, result) = ([sge(&mut out)], [sge(&mut into)]);
    let on = |list: &[erd_sge; 1], opcode, compare_add, swap| {
        let (sg_list, num_sge) = (list.as_ptr(), 1);
        let wr = erd_send_wr { sg_list, num_sge, opcode, compare_add, swap, imm_data: 9, ..base };
        assert_eq!(post_send(&left, &wr), 0, "{}", last());
        assert_eq!(left.done().status, 0);
    };
    on(&from, ERD_WR_RDMA_WRITE_WITH_IMM, 0, 0);
    let told = right.done();
    assert_eq!((told.opcode, told.imm_data, told.wc_flags, told.byte_len), (129, 9, 2, 8));
    on(&result, ERD_WR_RDMA_READ, 0, 0);
    assert_eq!(into, [7; 8]);
    let sevens = u64::from_ne_bytes([7; 8]);
    on(&result, ERD_WR_ATOMIC_FETCH_AND_ADD, 1, 0);
    on(&result, ERD_WR_ATOMIC_CMP_AND_SWP, sevens + 1, 5);
    assert_eq!(u64::from_ne_bytes(into), sevens + 1);
    // SAFETY: handles of this test; nobody writes to the memory any more.
    unsafe {
        assert_eq!((erd_dereg_mr(mr), memory.as_ptr().read_volatile()), (0, 5));
        assert_eq!(erd_destroy_ah(ah), 0);
        assert_ne!((erd_qp_num(left.qp), erd_qp_num(left.qp)), (0, erd_qp_num(right.qp)));
    }
    left.close();
    right.close();
}

/// `erd_poll_cq(3)` says from which length on, and over which ports, the kernel looks at the memory.
#[test]
fn a_send_from_memory_that_is_not_there_fails_by_itself_where_the_kernel_reads_it() {
    const NAME: &str =
        "a_send_from_memory_that_is_not_there_fails_by_itself_where_the_kernel_reads_it";
    // Through shared memory the process copies by itself.
    if std::env::var("FI_ERD_LOCAL").as_deref() != Ok("udp") {
        let program = std::env::current_exe().expect("this program");
        let mut again = std::process::Command::new(program);
        let again = again.args([&format!("verbs_c::tests::{NAME}"), "--exact"]);
        let output = again.env("FI_ERD_LOCAL", "udp").output().expect("it runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        return;
    }
    let (a, b) = (Side::new(), Side::new());
    let ah = a.knows(&b);
    let mut memory = vec![0; 200_000];
    for length in [513, 4000, 40_000, 200_000] {
        let list = [erd_sge { addr: std::ptr::without_provenance_mut(0x10), length }];
        assert_eq!(post_recv(&b, 1, &[sge(&mut memory)]), 0);
        assert_eq!(post_send(&a, &send_wr(2, ah, &list)), 0);
        let bad = a.done();
        assert_eq!((bad.wr_id, bad.status), (2, Status::LocalProtection as _), "{length} bytes");
        assert_eq!(post_recv(&b, 1, &[sge(&mut memory)]), 0);
        let mut bytes = [7; 3];
        assert_eq!(post_send(&a, &send_wr(3, ah, &[sge(&mut bytes)])), 0);
        assert_eq!(a.done().wr_id, 3, "the queue pair stays usable");
        // The receive that a long message met ends by an error first.
        while b.done().byte_len != 3 {}
    }
    // SAFETY: the handle is ours.
    assert_eq!(unsafe { erd_destroy_ah(ah) }, 0);
    a.close();
    b.close();
}

#[test]
fn handles_that_are_null_foreign_or_stale_are_refused() {
    let (left, right) = (Side::new(), Side::new());
    let gone = Side::new();
    let (stale_qp, stale_cq) = (gone.qp, gone.cq);
    let (stale_pd, stale_context) = (gone.pd, gone.context);
    gone.close();
    let mut wc: [erd_wc; 1] = [right_now()];
    // SAFETY: wrong handles are what is tested; nothing else is wrong.
    unsafe {
        for cq in [null_mut(), stale_cq, left.qp.cast(), std::ptr::dangling_mut()] {
            refused(-erd_poll_cq(cq, 1, wc.as_mut_ptr()), libc::EINVAL, &["cq is "]);
            refused(erd_wait_cq(cq, 0), libc::EINVAL, &["erd_wait_cq: cq is "]);
            refused(erd_req_notify_cq(cq), libc::EINVAL, &["cq is "]);
            refused(erd_destroy_cq(cq), libc::EINVAL, &["cq is "]);
            assert_eq!(erd_cq_fd(cq), -1);
            no_object(erd_create_qp(left.pd, &attr(cq)), libc::EINVAL, &["attr->send_cq is "]);
        }
        for qp in [null_mut(), stale_qp, left.cq.cast(), usize::MAX as *mut erd_qp] {
            let wr = send_wr(1, null_mut(), &[]);
            refused(erd_post_send(qp, &raw const wr, null_mut()), libc::EINVAL, &["qp is "]);
            refused(erd_post_recv(qp, null(), null_mut()), libc::EINVAL, &["qp is "]);
            refused(erd_destroy_qp(qp), libc::EINVAL, &["was not destroyed"]);
            assert_eq!(erd_qp_num(qp), 0);
        }
        for pd in [null_mut(), stale_pd, left.context.cast()] {
            no_object(erd_create_qp(pd, &attr(left.cq)), libc::EINVAL, &["pd is "]);
            no_object(
                erd_reg_mr(pd, wc.as_mut_ptr().cast(), 1, 0, null_mut()),
                libc::EINVAL,
                &["pd"],
            );
            no_object(erd_create_ah_by_name(pd, c"localhost:1".as_ptr()), libc::EINVAL, &["pd"]);
            refused(erd_dealloc_pd(pd), libc::EINVAL, &["pd is "]);
        }
        for context in [null_mut(), stale_context, left.pd.cast()] {
            no_object(erd_alloc_pd(context), libc::EINVAL, &["context is "]);
            no_object(erd_create_cq(context), libc::EINVAL, &["context is "]);
            refused(erd_close_device(context), libc::EINVAL, &["context is "]);
        }
        refused(erd_dereg_mr(left.qp.cast()), libc::EINVAL, &["mr is 0x"]);
        refused(erd_destroy_ah(null_mut()), libc::EINVAL, &["ah is NULL"]);
    }
    talk(&left, &right);
    left.close();
    right.close();
}

fn right_now() -> erd_wc {
    // SAFETY: every byte is a value of it.
    unsafe { std::mem::zeroed() }
}

#[test]
fn what_is_in_use_stays() {
    let side = Side::new();
    let ah = side.knows(&side);
    // SAFETY: handles of this test.
    unsafe {
        refused(erd_destroy_cq(side.cq), libc::EBUSY, &["the cq is in use by 2 other objects"]);
        refused(erd_dealloc_pd(side.pd), libc::EBUSY, &["the pd is in use by 2 other"]);
        refused(erd_close_device(side.context), libc::EBUSY, &["the context is in use"]);
        assert_eq!(erd_destroy_ah(ah), 0);
        refused(erd_destroy_ah(ah), libc::EINVAL, &["ah is 0x"]);
    }
    talk(&side, &Side::new());
    side.close();
}

#[test]
fn requests_that_are_not_valid_are_named() {
    let (left, right) = (Side::new(), Side::new());
    let (ah, foreign) = (left.knows(&right), right.knows(&left));
    let mut bytes = [1_u8; 8];
    let list = [sge(&mut bytes); 9];
    let good = send_wr(1, ah, &list[..1]);
    let nowhere = [erd_sge { addr: null_mut(), length: 1 }];
    let cases: [(erd_send_wr, &str); 9] = [
        (erd_send_wr { ah: null_mut(), ..good }, "ah is NULL"),
        (erd_send_wr { ah: foreign, ..good }, "one of the queue pair's protection domain"),
        (erd_send_wr { opcode: 99, ..good }, "opcode is 99"),
        (erd_send_wr { send_flags: 1 << 20, ..good }, "send_flags is 1048576"),
        (erd_send_wr { reserved: 1, ..good }, "reserved is 1; valid: 0"),
        (erd_send_wr { num_sge: 9, ..good }, "num_sge is 9; valid: 0 to 8"),
        (erd_send_wr { sg_list: null(), ..good }, "sg_list is NULL"),
        (erd_send_wr { sg_list: nowhere.as_ptr(), ..good }, "addr in sg_list is NULL"),
        (
            erd_send_wr { opcode: ERD_WR_ATOMIC_FETCH_AND_ADD, num_sge: 2, ..good },
            "num_sge is 2; valid: 1",
        ),
    ];
    for (wr, part) in &cases {
        let (first, mut bad) = (erd_send_wr { next: wr, send_flags: 0, ..good }, null());
        // SAFETY: what is wrong is refused before it is used.
        let rc = unsafe { erd_post_send(left.qp, &raw const first, &raw mut bad) };
        refused(rc, libc::EINVAL, &["erd_post_send: ", part]);
        assert!(std::ptr::eq(bad, wr), "bad_wr is the request that was refused");
        assert_eq!(left.done().wr_id, 1, "the one before it was posted");
    }
    // SAFETY: as above.
    unsafe {
        refused(erd_post_send(left.qp, null(), null_mut()), libc::EINVAL, &["wr is NULL"]);
        refused(-erd_poll_cq(left.cq, -1, null_mut()), libc::EINVAL, &["num_entries is -1"]);
        refused(-erd_poll_cq(left.cq, 1, null_mut()), libc::EINVAL, &["wc is NULL"]);
        assert_eq!(erd_poll_cq(left.cq, 0, null_mut()), 0);
        refused(erd_wait_cq(left.cq, 1), libc::ETIMEDOUT, &[]);
        assert_eq!((erd_destroy_ah(ah), erd_destroy_ah(foreign)), (0, 0));
    }
    // Nine of these messages are there already.
    let right_again = Side::new();
    talk(&left, &right_again);
    left.close();
}

#[test]
fn a_full_queue_and_an_endless_list_are_refused() {
    let (left, right) = (Side::with(|attr| attr.max_send_wr = 4), Side::new());
    let ah = left.knows(&right);
    let mut bytes = [1_u8; 8];
    let list = [sge(&mut bytes)];
    let mut ring = send_wr(1, ah, &list);
    ring.next = &raw const ring;
    let mut bad = null();
    // SAFETY: the ring outlives the call.
    let rc = unsafe { erd_post_send(left.qp, &raw const ring, &raw mut bad) };
    refused(rc, libc::ENOMEM, &["the send queue is full"]);
    assert!(std::ptr::eq(bad, &raw const ring));
    for _ in 0..4 {
        assert_eq!(left.done().status, 0);
    }
    // SAFETY: a handle of this test.
    unsafe { erd_destroy_ah(ah) };
    talk(&left, &Side::new());
    left.close();
}

#[test]
fn attributes_that_are_not_valid_are_named() {
    let side = Side::new();
    let mut context_attr = erd_context_attr { controller: c"strack".as_ptr(), paths: 2, ..NO_ATTR };
    let open = |attr: &erd_context_attr| {
        // SAFETY: the texts are static, and the lists as long as they say.
        unsafe { erd_open_device(c"127.0.0.1".as_ptr(), attr) }
    };
    let context = open(&context_attr);
    assert!(!context.is_null(), "{}", last());
    // SAFETY: handles of this test, and structures as they say, or wrong in what is refused.
    unsafe {
        assert_eq!(erd_close_device(context), 0);
        no_object(erd_open_device(c"eth99".as_ptr(), null()), libc::ENODEV, &["called eth99"]);
        no_object(erd_open_device(c"\xff".as_ptr(), null()), libc::EINVAL, &["valid: UTF-8"]);
        no_object(erd_create_qp(side.pd, null()), libc::EINVAL, &["attr is NULL"]);
        let short = erd_qp_init_attr { size: 8, ..attr(side.cq) };
        no_object(erd_create_qp(side.pd, &short), libc::EINVAL, &["at least 40"]);
        let large = erd_qp_init_attr { max_recv_wr: 70_000, ..attr(side.cq) };
        no_object(erd_create_qp(side.pd, &large), libc::EINVAL, &["max_recv_wr is 70000"]);
        let mr = erd_reg_mr(side.pd, side.pd.cast(), 1, 1 << 9, null_mut());
        no_object(mr, libc::EINVAL, &["access is 512"]);
        no_object(
            erd_reg_mr(side.pd, null_mut(), 1, 2, null_mut()),
            libc::EINVAL,
            &["addr is NULL"],
        );
        no_object(erd_create_ah(side.pd, null(), 16), libc::EINVAL, &["name is NULL"]);
        no_object(erd_create_ah_from_wc(side.pd, &right_now()), libc::EINVAL, &["wc->peer"]);
        no_object(erd_create_ah_by_name(side.pd, null()), libc::EINVAL, &["NULL"]);
        no_object(
            erd_create_ah_by_name(side.pd, c"127.0.0.1".as_ptr()),
            libc::EINVAL,
            &["host:port"],
        );
    }
    context_attr.paths = 1000;
    no_object(open(&context_attr), libc::EINVAL, &["FI_ERD_PATHS is \"1000\""]);
    let settings = [setting(c"mtu", c"1500"), setting(c"nonsense", c"1")];
    context_attr =
        erd_context_attr { settings: settings.as_ptr(), num_settings: 2, paths: 0, ..context_attr };
    no_object(open(&context_attr), libc::EINVAL, &["setting nonsense is \"1\""]);
    let key = [7_u8; 32];
    context_attr = erd_context_attr { key: key.as_ptr(), key_size: 31, ..NO_ATTR };
    no_object(open(&context_attr), libc::EINVAL, &["attr->key_size is 31; valid: 32"]);
    context_attr = erd_context_attr { key: null(), key_size: 32, ..NO_ATTR };
    no_object(open(&context_attr), libc::EINVAL, &["attr->key is NULL"]);
    // A program of an earlier header has no such fields, and anything behind its own.
    context_attr.size = std::mem::offset_of!(erd_context_attr, key_size);
    let context = open(&context_attr);
    assert!(!context.is_null(), "{}", last());
    // SAFETY: a handle of this test.
    assert_eq!(unsafe { erd_close_device(context) }, 0);
    context_attr.size -= 8;
    no_object(open(&context_attr), libc::EINVAL, &["of size 32", "at least 40"]);
    context_attr = erd_context_attr { key: key.as_ptr(), key_size: 32, ..NO_ATTR };
    let context = open(&context_attr);
    assert!(!context.is_null(), "{}", last());
    // SAFETY: a handle of this test.
    assert_eq!(unsafe { erd_close_device(context) }, 0);
    side.close();
}

#[test]
fn devices_are_listed_as_far_as_there_is_room() {
    // SAFETY: every byte is a value of it.
    let mut list: [erd_device_info; 1] = unsafe { std::mem::zeroed() };
    // SAFETY: room for one.
    let count = unsafe { erd_query_devices(list.as_mut_ptr(), 1) };
    // SAFETY: no room.
    assert!(count >= 1 && unsafe { erd_query_devices(null_mut(), 0) } == count);
    // SAFETY: the fields are C strings.
    let [name, address] = unsafe {
        [CStr::from_ptr(list[0].name.as_ptr()), CStr::from_ptr(list[0].address.as_ptr())]
    };
    assert!(!name.is_empty() && address.to_str().unwrap().parse::<std::net::IpAddr>().is_ok());
    assert!(list[0].mtu_bytes >= 1280);
    // SAFETY: a static text.
    let version = unsafe { CStr::from_ptr(erd_version()) };
    assert_eq!(version.to_str(), Ok(env!("CARGO_PKG_VERSION")));
    // SAFETY: static texts.
    let text = |status| unsafe { CStr::from_ptr(erd_wc_status_str(status)) }.to_str().unwrap();
    assert_eq!((text(10), text(99)), ("remote access error", "not a status"));
}

#[test]
fn receives_and_lengths_that_are_not_valid_are_named() {
    let (left, right) = (Side::with(|attr| attr.max_recv_wr = 2), Side::new());
    let ah = left.knows(&right);
    let mut bytes = [1_u8; 2000];
    let list = [sge(&mut bytes); 9];
    let nowhere = [erd_sge { addr: null_mut(), length: 1 }];
    let good = erd_recv_wr {
        wr_id: 1,
        next: null(),
        sg_list: &raw const list[0],
        num_sge: 1,
        reserved: 0,
    };
    for (wr, part) in [
        (erd_recv_wr { num_sge: 9, ..good }, "num_sge is 9; valid: 0 to 8"),
        (erd_recv_wr { sg_list: null(), ..good }, "sg_list is NULL"),
        (erd_recv_wr { sg_list: nowhere.as_ptr(), ..good }, "addr in sg_list is NULL"),
        (erd_recv_wr { reserved: 7, ..good }, "reserved is 7; valid: 0"),
    ] {
        let mut bad = null();
        // SAFETY: what is wrong is refused before it is used.
        let rc = unsafe { erd_post_recv(left.qp, &raw const wr, &raw mut bad) };
        refused(rc, libc::EINVAL, &["erd_post_recv: ", part]);
        assert!(std::ptr::eq(bad, &raw const wr));
    }
    let inline = erd_send_wr { send_flags: 1 << 3, ..send_wr(2, ah, &list[..1]) };
    refused(post_send(&left, &inline), libc::EINVAL, &["1024 inline"]);
    let read = erd_send_wr { opcode: ERD_WR_RDMA_READ, ..inline };
    refused(post_send(&left, &read), libc::EINVAL, &["INLINE for sends and writes alone"]);
    let add = erd_send_wr { opcode: ERD_WR_ATOMIC_FETCH_AND_ADD, send_flags: 0, ..inline };
    refused(post_send(&left, &add), libc::EINVAL, &["length of the result is 2000; valid: 8"]);
    for expected in [0, 0, libc::ENOMEM] {
        assert_eq!(post_recv(&left, 3, &list[..1]), expected, "{}", last());
    }
    assert!(last().contains("the receive queue is full"), "{}", last());
    let mut bad = null();
    // SAFETY: as above.
    unsafe {
        let rc = erd_post_send(null_mut(), &raw const inline, &raw mut bad);
        refused(rc, libc::EINVAL, &["qp is NULL"]);
        assert!(std::ptr::eq(bad, &raw const inline), "the first is what was refused");
        assert_eq!(erd_destroy_ah(ah), 0);
    }
    talk(&right, &Side::new());
    left.close();
}

#[test]
fn names_and_places_that_are_not_valid_are_named() {
    let (left, right) = (Side::new(), Side::new());
    let (mut name, mut length) = ([0_u32; 7], 0);
    // SAFETY: what is wrong is refused before it is used; names are as long as they say.
    unsafe {
        let query = |qp, name, length| erd_query_qp_name(qp, name, length);
        refused(query(left.qp, null_mut(), &raw mut length), libc::EINVAL, &["name is NULL"]);
        refused(
            query(left.qp, name.as_mut_ptr().cast(), null_mut()),
            libc::EINVAL,
            &["length is NULL"],
        );
        refused(
            query(null_mut(), name.as_mut_ptr().cast(), null_mut()),
            libc::EINVAL,
            &["qp is NULL"],
        );
        assert_eq!(query(right.qp, name.as_mut_ptr().cast(), &raw mut length), 0);
        for wrong in [0, 1, 15] {
            no_object(
                erd_create_ah(left.pd, name.as_ptr().cast(), wrong),
                libc::EINVAL,
                &["name is "],
            );
        }
        refused(-erd_query_devices(null_mut(), 1), libc::EINVAL, &["list is NULL"]);
        refused(
            -erd_query_devices(null_mut(), -1),
            libc::EINVAL,
            &["count is -1; valid: 0 or more"],
        );
        no_object(erd_create_ah_from_wc(left.pd, null()), libc::EINVAL, &["wc is NULL"]);
        assert_eq!(CStr::from_ptr(erd_wc_reason(null())), c"no completion");
    }
    talk(&left, &right);
    left.close();
    right.close();
}

#[test]
fn a_queue_that_another_thread_destroys_wakes_who_sleeps_on_it() {
    // SAFETY: handles as the pages say, but for the one that is destroyed.
    unsafe {
        let context = erd_open_device(c"127.0.0.1".as_ptr(), null());
        let cq = erd_create_cq(context) as usize;
        let sleepers = [(); 2]
            .map(|()| std::thread::spawn(move || (erd_wait_cq(cq as *mut erd_cq, -1), last())));
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(erd_destroy_cq(cq as *mut erd_cq), 0);
        for sleeper in sleepers {
            let (rc, text) = sleeper.join().unwrap();
            // One that came late finds no queue.
            assert!([libc::ESHUTDOWN, libc::EINVAL].contains(&rc), "{rc}: {text}");
        }
        assert_eq!(erd_close_device(context), 0);
    }
}

/// What the fuzz target `calls` runs, from an input of the given seed.
fn input_of(seed: u64) -> Vec<u8> {
    let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut byte = || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random >> 33) as u8
    };
    (0..1500).map(|_| byte()).collect()
}

/// `CAPI_SEED` in the environment replays one sequence.
#[test]
fn random_calls_are_answered_as_documented() {
    let seeds = match std::env::var("CAPI_SEED") {
        Ok(seed) => vec![seed.parse().expect("CAPI_SEED is a number")],
        Err(_) => (0..SEQUENCES).map(|_| erd_core::random::u64() >> 1).collect(),
    };
    let (mut posted, mut completed) = (0, 0);
    for seed in &seeds {
        println!("CAPI_SEED={seed}");
        let did = super::sequences::run(&input_of(*seed));
        (posted, completed) = (posted + did.posted, completed + did.completed);
    }
    let did = posted.min(completed);
    assert!(seeds.len() == 1 || did > 50, "{posted} posted, {completed} completed");
}

#[test]
fn the_corpus_of_the_fuzz_target_is_answered_as_documented() {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/corpus/calls");
    let mut count = 0;
    for file in std::fs::read_dir(dir).expect("the corpus") {
        let file = file.expect("an input").path();
        println!("{}", file.display());
        super::sequences::run(&std::fs::read(&file).expect("an input"));
        count += 1;
    }
    assert!(count > 10, "{count} inputs");
}
