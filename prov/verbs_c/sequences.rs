//! Random sequences of calls, with handles that are right, foreign, stale, NULL or made up, structures of wrong sizes,
//! several devices, and a second thread now and then. Every result is one that the man pages name, no request ends
//! twice, and the library is as good as new afterwards.
//!
//! It frees memory as soon as the man pages allow it, lists and names when a call returns, so a sanitizer catches late
//! reads. The tests and the fuzz target `calls` run this.

use super::types::*;
use super::*;
use std::collections::{HashMap, HashSet};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::{null, null_mut};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Calls that one input may ask for; the rest of it is ignored.
const CALLS_MAX: usize = 400;
/// Queue pairs and contexts of a sequence at a time: each has sockets.
const QPS_MAX: usize = 6;
const CONTEXTS_MAX: usize = 3;
/// Memory of a registration, in words.
const REGION_WORDS: usize = 1024;
/// Results that any function may return.
const ANSWERS: [c_int; 8] = [
    0,
    libc::EINVAL,
    libc::ENOMEM,
    libc::EBUSY,
    libc::ETIMEDOUT,
    libc::EADDRINUSE,
    libc::ENODEV,
    libc::ESHUTDOWN,
];
/// `ERD_SEND_INLINE`
const SEND_INLINE: u32 = 1 << 3;
/// Settings of every context: closing one waits no longer than this for a peer that is gone.
const QUICK: erd_setting = erd_setting { name: c"peer_timeout_ms".as_ptr(), value: c"10".as_ptr() };
const SETTINGS: [(&CStr, &CStr); 5] = [
    (c"cc", c"strack"),
    (c"paths", c"3"),
    (c"eager_size", c"64"),
    (c"checksum", c"payload"),
    (c"mtu", c"12"),
];
const DEVICES: [&CStr; 6] = [c"127.0.0.1", c"127.0.0.1", c"::1", c"lo", c"no such", c""];
const HOSTS: [&CStr; 8] = [
    c"127.0.0.1:9",
    c"[::1]:9",
    c"127.0.0.1",
    c"127.0.0.1:",
    c":9",
    c"127.0.0.1:70000",
    c"255.255.255.255:1",
    c"",
];

/// The deeds of a sequence, in numbers.
#[derive(Clone, Copy, Default, Debug)]
pub struct Did {
    /// Calls that posted all their requests.
    pub posted: usize,
    /// Completions of requests of the sequence.
    pub completed: usize,
}

/// Memory that the library may read until a request is done.
struct Lent {
    qp: usize,
    _pieces: Vec<Box<[u8]>>,
}

struct Sequence<'a> {
    input: &'a [u8],
    /// Every handle that was ever given, of any kind, and some that never were.
    handles: Vec<usize>,
    contexts: Vec<*mut erd_context>,
    pds: Vec<*mut erd_pd>,
    mrs: Vec<*mut erd_mr>,
    cqs: Vec<*mut erd_cq>,
    qps: Vec<*mut erd_qp>,
    ahs: Vec<*mut erd_ah>,
    names: Vec<([u32; 7], usize)>,
    /// Address and key of every registration that ever was.
    remotes: Vec<(u64, u64)>,
    registered: HashMap<usize, Box<[u64]>>,
    lent: HashMap<u64, Lent>,
    /// Requests whose queue pair is gone.
    withdrawn: HashSet<u64>,
    /// Numbers that many requests have.
    ringed: HashSet<u64>,
    next_id: u64,
    did: Did,
}

/// Runs the sequence that `input` chooses.
///
/// # Panics
/// If a call's result is not as documented.
pub fn run(input: &[u8]) -> Did {
    let mut sequence = Sequence {
        input,
        handles: vec![0, 1, usize::MAX, 0x7fff_1234_5678],
        contexts: Vec::new(),
        pds: Vec::new(),
        mrs: Vec::new(),
        cqs: Vec::new(),
        qps: Vec::new(),
        ahs: Vec::new(),
        names: vec![([0; 7], 16)],
        remotes: vec![(0, 0), (u64::MAX - 7, u64::MAX)],
        registered: HashMap::new(),
        lent: HashMap::new(),
        withdrawn: HashSet::new(),
        ringed: HashSet::new(),
        next_id: 1,
        did: Did::default(),
    };
    sequence.begin();
    for _ in 0..CALLS_MAX {
        if sequence.input.is_empty() {
            break;
        }
        sequence.call();
    }
    sequence.end_all();
    others_still_talk();
    sequence.did
}

fn last() -> String {
    // SAFETY: a C string of this thread's.
    unsafe { CStr::from_ptr(erd_last_error()) }.to_string_lossy().into_owned()
}

#[track_caller]
fn answered(errno: c_int) {
    assert!(ANSWERS.contains(&errno), "{errno}: {}", last());
    let told = errno == 0 || errno == libc::ETIMEDOUT || last().starts_with("erd_");
    assert!(told, "{errno} without a text: {}", last());
}

impl Sequence<'_> {
    fn byte(&mut self) -> usize {
        let Some((first, rest)) = self.input.split_first() else { return 0 };
        self.input = rest;
        usize::from(*first)
    }

    /// A number below `end`.
    fn below(&mut self, end: usize) -> usize {
        let wide = if end > 256 { self.byte() << 8 } else { 0 };
        (wide | self.byte()) % end.max(1)
    }

    fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == count - 1
    }

    /// One of these objects as a rule, and else anything.
    fn any<T>(&mut self, of: impl Fn(&Self) -> &Vec<*mut T>) -> *mut T {
        let count = of(self).len();
        if count > 0 && !self.one_in(10) {
            let at = self.below(count);
            return of(self)[at];
        }
        let at = self.below(self.handles.len());
        self.handles[at] as *mut T
    }

    /// An object was made, or not.
    fn made<T>(&mut self, object: *mut T, to: impl Fn(&mut Self) -> &mut Vec<*mut T>) {
        if object.is_null() {
            let errno = std::io::Error::last_os_error().raw_os_error().unwrap_or(0);
            assert_ne!(errno, 0, "nothing was made, and nothing said why");
            answered(errno);
        } else {
            assert!(!self.handles.contains(&(object as usize)), "a handle was given twice");
            self.handles.push(object as usize);
            to(self).push(object);
        }
    }

    /// Makes the objects that most calls need.
    fn begin(&mut self) {
        self.open(c"127.0.0.1", &[QUICK]);
        let context = self.contexts[0];
        // SAFETY: a handle that was just given.
        unsafe {
            self.made(erd_alloc_pd(context), |all| &mut all.pds);
            self.made(erd_create_cq(context), |all| &mut all.cqs);
        }
        for _ in 0..2 {
            self.create_qp_of(self.pds[0], &attr(self.cqs[0], [0; 2]));
        }
        for (name, _) in self.names.clone() {
            // SAFETY: as above.
            let ah = unsafe { erd_create_ah(self.pds[0], name.as_ptr().cast(), 16) };
            self.made(ah, |all| &mut all.ahs);
        }
    }

    fn call(&mut self) {
        match self.below(24) {
            0..=6 => self.post_send(),
            7..=10 => self.post_recv(),
            11..=15 => self.look(),
            16..=19 => self.create(),
            20 => self.race(),
            21 => self.ask(),
            _ => self.destroy(),
        }
    }

    fn open(&mut self, name: &CStr, settings: &[erd_setting]) {
        let attr = erd_context_attr {
            size: size_of::<erd_context_attr>(),
            controller: null(),
            controller_options: null(),
            settings: settings.as_ptr(),
            num_settings: settings.len() as u32,
            paths: 0,
            key_size: 0,
            key: null(),
        };
        // SAFETY: the texts outlive the call.
        let context = unsafe { erd_open_device(name.as_ptr(), &raw const attr) };
        self.made(context, |all| &mut all.contexts);
    }

    fn open_any(&mut self) {
        if self.contexts.len() >= CONTEXTS_MAX {
            return;
        }
        let name = DEVICES[self.below(DEVICES.len())];
        let (name_of, value) = SETTINGS[self.below(SETTINGS.len())];
        let other = erd_setting { name: name_of.as_ptr(), value: value.as_ptr() };
        let settings = [QUICK, other];
        let count = 1 + self.below(2);
        self.open(name, &settings[..count]);
    }

    fn create(&mut self) {
        let (context, pd) = (self.any(|all| &all.contexts), self.any(|all| &all.pds));
        // SAFETY: handles of any kind are what is tried; the rest is as the pages say.
        unsafe {
            match self.below(7) {
                0 => self.open_any(),
                1 => self.made(erd_alloc_pd(context), |all| &mut all.pds),
                2 => self.made(erd_create_cq(context), |all| &mut all.cqs),
                3 => self.register(pd),
                4 => self.create_ah(pd),
                5 => {
                    let host = HOSTS[self.below(HOSTS.len())];
                    self.made(erd_create_ah_by_name(pd, host.as_ptr()), |all| &mut all.ahs);
                }
                _ => self.create_qp(pd),
            }
        }
    }

    fn register(&mut self, pd: *mut erd_pd) {
        let mut memory = vec![0_u64; REGION_WORDS].into_boxed_slice();
        let (access, mut rkey) = (self.below(18) as u32, 0);
        let length = [REGION_WORDS * 8, 0, 8, 100][self.below(4)];
        let start = if self.one_in(16) { null_mut() } else { memory.as_mut_ptr() };
        // SAFETY: the memory is kept until the registration is gone.
        let mr = unsafe { erd_reg_mr(pd, start.cast(), length, access, &raw mut rkey) };
        self.made(mr, |all| &mut all.mrs);
        if !mr.is_null() {
            self.remotes.push((start as u64, rkey));
            self.registered.insert(mr as usize, memory);
        }
    }

    fn create_ah(&mut self, pd: *mut erd_pd) {
        let at = self.below(self.names.len());
        let (words, right) = self.names[at];
        let length = [right, right, right, 0, 2, 16, 28, 128][self.below(8)];
        // As long as it says, and no byte more.
        let mut name = vec![0_u8; length].into_boxed_slice();
        for (to, from) in name.iter_mut().zip(words.iter().flat_map(|word| word.to_ne_bytes())) {
            *to = from;
        }
        let place: *const u8 = if self.one_in(16) { null() } else { name.as_ptr() };
        // SAFETY: as above.
        let ah = unsafe { erd_create_ah(pd, place.cast(), length as libc::socklen_t) };
        self.made(ah, |all| &mut all.ahs);
    }

    fn create_qp(&mut self, pd: *mut erd_pd) {
        if self.qps.len() >= QPS_MAX {
            return;
        }
        let sizes = [0, 1, 4, 70_000];
        let sizes = [sizes[self.below(4)], sizes[self.below(4)]];
        let mut attr = attr(self.any(|all| &all.cqs), sizes);
        attr.recv_cq = self.any(|all| &all.cqs);
        attr.sq_sig_all = self.below(2) as u32;
        attr.reserved = u16::from(self.one_in(16));
        let ours = size_of::<erd_qp_init_attr>();
        attr.size = [ours, ours, ours, ours, 8, ours - 1, ours + 8, 4096, 4097][self.below(9)];
        self.create_qp_of(pd, &attr);
    }

    fn create_qp_of(&mut self, pd: *mut erd_pd, attr: &erd_qp_init_attr) {
        // As long as it says, and no byte more; fields of a newer header are zero.
        let mut given = vec![0_u8; attr.size].into_boxed_slice();
        // SAFETY: every byte of it has a value.
        let bytes = unsafe {
            std::slice::from_raw_parts((&raw const *attr).cast::<u8>(), size_of_val(attr))
        };
        given.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
        // SAFETY: as long as it says.
        let qp = unsafe { erd_create_qp(pd, given.as_ptr().cast()) };
        self.made(qp, |all| &mut all.qps);
        if !qp.is_null() {
            let (mut name, mut length) = ([0; 7], 0);
            // SAFETY: places of our own.
            let rc = unsafe { erd_query_qp_name(qp, name.as_mut_ptr().cast(), &raw mut length) };
            assert_eq!(rc, 0, "{}", last());
            self.names.push((name, length as usize));
        }
    }

    /// Memory for a request, and the list that names it.
    fn pieces(&mut self, most: usize) -> (Vec<Box<[u8]>>, Box<[erd_sge]>) {
        let count = self.below(most + 1);
        let mut memory = Vec::new();
        for _ in 0..count {
            let length = [8, 8, 0, 1, 100, 1025, 3000, 70_000][self.below(8)];
            memory.push(vec![7_u8; length].into_boxed_slice());
        }
        let sge = |piece: &mut Box<[u8]>| erd_sge {
            addr: piece.as_mut_ptr().cast(),
            length: piece.len(),
        };
        let mut list: Box<[erd_sge]> = memory.iter_mut().map(sge).collect();
        if self.one_in(20)
            && let Some(first) = list.first_mut()
        {
            first.addr = null_mut();
        }
        (memory, list)
    }

    fn lend(&mut self, qp: *mut erd_qp, pieces: Vec<Box<[u8]>>) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.lent.insert(id, Lent { qp: qp as usize, _pieces: pieces });
        id
    }

    fn send_wr(&mut self, qp: *mut erd_qp, list: &mut Vec<Box<[erd_sge]>>) -> erd_send_wr {
        let opcode = self.below(8) as u32;
        let atomic = [ERD_WR_ATOMIC_CMP_AND_SWP, ERD_WR_ATOMIC_FETCH_AND_ADD].contains(&opcode);
        let (pieces, named) = self.pieces(if atomic { 1 } else { 3 });
        let num_sge = if self.one_in(20) { 9 } else { named.len() as u32 };
        let remote = self.below(self.remotes.len());
        let (addr, rkey) = self.remotes[remote];
        let send_flags = [2, 2, 2, 0, 1, 3, 8, 10, 4][self.below(9)];
        let wr_id = self.lend(qp, pieces);
        let sg_list = if num_sge == 9 { null() } else { named.as_ptr() };
        list.push(named);
        erd_send_wr {
            wr_id,
            next: null(),
            sg_list,
            num_sge,
            opcode,
            send_flags,
            reserved: u32::from(self.one_in(30)),
            ah: self.any(|all| &all.ahs),
            imm_data: wr_id,
            remote_addr: addr.wrapping_add(8 * self.below(8) as u64),
            rkey,
            compare_add: 1,
            swap: 2,
        }
    }

    fn post_send(&mut self) {
        let qp = self.any(|all| &all.qps);
        let (mut lists, mut requests) = (Vec::new(), Vec::new());
        for _ in 0..=self.below(3) {
            requests.push(self.send_wr(qp, &mut lists));
        }
        for at in 1..requests.len() {
            requests[at - 1].next = &raw const requests[at];
        }
        if self.one_in(40) {
            return self.post_ring(qp, requests);
        }
        let mut bad = null();
        // SAFETY: the lists are here, and what they name is lent.
        let rc = unsafe { erd_post_send(qp, requests.as_ptr(), &raw mut bad) };
        let (ids, inline) =
            requests.iter().map(|wr| (wr.wr_id, wr.send_flags & SEND_INLINE != 0)).unzip();
        let bad = (0..requests.len()).find(|at| std::ptr::eq(&raw const requests[*at], bad));
        self.posted(rc, ids, inline, bad);
    }

    /// A list that goes in a ring is longer than any queue.
    fn post_ring(&mut self, qp: *mut erd_qp, mut requests: Vec<erd_send_wr>) {
        let first = requests.as_ptr();
        for wr in &mut requests {
            // Its memory is copied. Many requests share each number, and some may fail.
            wr.send_flags = SEND_INLINE;
        }
        let last = requests.len() - 1;
        requests[last].next = first;
        // SAFETY: as in `post_send`.
        let rc = unsafe { erd_post_send(qp, requests.as_ptr(), null_mut()) };
        assert_ne!(rc, 0, "a ring was posted");
        answered(rc);
        for wr in &requests {
            self.lent.remove(&wr.wr_id);
            self.ringed.insert(wr.wr_id);
        }
    }

    fn post_recv(&mut self) {
        let qp = self.any(|all| &all.qps);
        let (mut lists, mut requests) = (Vec::new(), Vec::new());
        for _ in 0..=self.below(3) {
            let (pieces, list) = self.pieces(3);
            let (sg_list, num_sge) = (list.as_ptr(), list.len() as u32);
            let (wr_id, reserved) = (self.lend(qp, pieces), u32::from(self.one_in(30)));
            requests.push(erd_recv_wr { wr_id, next: null(), sg_list, num_sge, reserved });
            lists.push(list);
        }
        for at in 1..requests.len() {
            requests[at - 1].next = &raw const requests[at];
        }
        let mut bad = null();
        // SAFETY: as in `post_send`.
        let rc = unsafe { erd_post_recv(qp, requests.as_ptr(), &raw mut bad) };
        let bad = (0..requests.len()).find(|at| std::ptr::eq(&raw const requests[*at], bad));
        let ids: Vec<u64> = requests.iter().map(|wr| wr.wr_id).collect();
        let inline = vec![false; ids.len()];
        self.posted(rc, ids, inline, bad);
    }

    /// Frees memory of refused and of copied requests at once.
    fn posted(&mut self, rc: c_int, ids: Vec<u64>, inline: Vec<bool>, bad: Option<usize>) {
        answered(rc);
        self.did.posted += usize::from(rc == 0);
        let taken = if rc == 0 { ids.len() } else { bad.unwrap_or(0) };
        for (at, (id, inline)) in ids.into_iter().zip(inline).enumerate() {
            if at >= taken {
                self.lent.remove(&id);
            } else if inline && let Some(lent) = self.lent.get_mut(&id) {
                lent._pieces.clear();
            }
        }
    }

    /// Polls, and frees memory of completed requests.
    fn look(&mut self) {
        let (cq, pd) = (self.any(|all| &all.cqs), self.any(|all| &all.pds));
        let room = self.below(6);
        // SAFETY: every byte is a value of it.
        let mut wc = vec![unsafe { std::mem::zeroed::<erd_wc>() }; room].into_boxed_slice();
        // SAFETY: as much room as is said.
        let polled = unsafe { erd_poll_cq(cq, room as c_int, wc.as_mut_ptr()) };
        answered(-polled.min(0));
        for wc in &wc[..polled.max(0) as usize] {
            self.completed(wc);
        }
        if polled > 0 && self.one_in(4) {
            // SAFETY: a completion that was polled.
            let ah = unsafe { erd_create_ah_from_wc(pd, wc.as_ptr()) };
            self.made(ah, |all| &mut all.ahs);
        }
        if self.one_in(3) {
            // SAFETY: as above.
            unsafe {
                answered(erd_wait_cq(cq, self.below(2) as c_int));
                answered(erd_req_notify_cq(cq));
                assert!(erd_cq_fd(cq) >= -1);
            }
        }
    }

    fn completed(&mut self, wc: &erd_wc) {
        // SAFETY: static texts.
        let [status, reason] = unsafe {
            [erd_wc_status_str(wc.status), erd_wc_reason(wc)].map(|text| CStr::from_ptr(text))
        };
        assert!(!status.is_empty() && !reason.is_empty());
        assert_ne!(status, c"not a status", "{}", wc.status);
        assert_eq!(wc.status == 0, reason == c"success");
        if self.ringed.contains(&wc.wr_id) {
            return;
        }
        if wc.opcode == 129 {
            assert_eq!((wc.wr_id, wc.wc_flags), (0, ERD_WC_WITH_IMM));
            return;
        }
        let known = self.lent.remove(&wc.wr_id).is_some() || self.withdrawn.remove(&wc.wr_id);
        assert!(known, "request {} ended twice, or was never posted: {reason:?}", wc.wr_id);
        self.did.completed += 1;
    }

    /// Calls functions that need no object of the right kind.
    fn ask(&mut self) {
        let room = self.below(3);
        // SAFETY: every byte is a value of it.
        let mut list = vec![unsafe { std::mem::zeroed::<erd_device_info>() }; room];
        let (qp, cq) = (self.any(|all| &all.qps), self.any(|all| &all.cqs));
        let (mut name, mut length) = ([0_u32; 7], 0);
        let name: *mut c_void = if self.one_in(4) { null_mut() } else { name.as_mut_ptr().cast() };
        // SAFETY: as much room as is said.
        unsafe {
            assert!(erd_query_devices(list.as_mut_ptr(), room as c_int) >= 1, "{}", last());
            answered(-erd_query_devices(null_mut(), 1));
            answered(-erd_poll_cq(cq, 1, null_mut()).min(0));
            answered(-erd_poll_cq(cq, -1, null_mut()).min(0));
            answered(erd_query_qp_name(qp, name, &raw mut length));
            erd_qp_num(qp);
            answered(erd_post_send(qp, null(), null_mut()));
            answered(erd_post_recv(qp, null(), null_mut()));
            let text: *const c_char = erd_wc_reason(null());
            assert!(!text.is_null());
            let nothing = erd_create_ah_from_wc(self.any(|all| &all.pds), null());
            self.made(nothing, |all| &mut all.ahs);
        }
    }

    /// Destroys objects while another thread uses them.
    fn race(&mut self) {
        let (qp, cq) = (self.any(|all| &all.qps) as usize, self.any(|all| &all.cqs) as usize);
        let (pd, mr) = (self.any(|all| &all.pds) as usize, self.any(|all| &all.mrs) as usize);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let (mut name, mut length) = ([0_u32; 7], 0);
                let [qp, cq] = [qp as *mut c_void, cq as *mut c_void];
                // SAFETY: as in `ask`.
                unsafe {
                    answered(-erd_poll_cq(cq.cast(), 0, null_mut()).min(0));
                    answered(erd_post_recv(qp.cast(), null(), null_mut()));
                    answered(erd_wait_cq(cq.cast(), 1));
                    let name = name.as_mut_ptr().cast();
                    answered(erd_query_qp_name(qp.cast(), name, &raw mut length));
                    answered(erd_req_notify_cq(cq.cast()));
                    erd_qp_num(qp.cast());
                    let none = erd_create_ah_by_name(pd as *mut erd_pd, c"".as_ptr());
                    assert!(none.is_null());
                }
            });
            match self.below(4) {
                0 => self.end(qp as *mut erd_qp, |all| &mut all.qps, erd_destroy_qp),
                1 => self.end(cq as *mut erd_cq, |all| &mut all.cqs, erd_destroy_cq),
                2 => self.end(mr as *mut erd_mr, |all| &mut all.mrs, erd_dereg_mr),
                _ => self.end(pd as *mut erd_pd, |all| &mut all.pds, erd_dealloc_pd),
            }
        });
    }

    fn destroy(&mut self) {
        macro_rules! end {
            ($objects:ident, $destroy:ident) => {{
                let object = self.any(|all| &all.$objects);
                self.end(object, |all| &mut all.$objects, $destroy);
            }};
        }
        match self.below(6) {
            0 => end!(qps, erd_destroy_qp),
            1 => end!(cqs, erd_destroy_cq),
            2 => end!(ahs, erd_destroy_ah),
            3 => end!(mrs, erd_dereg_mr),
            4 => end!(pds, erd_dealloc_pd),
            _ => end!(contexts, erd_close_device),
        }
    }

    /// Destroys an object: it leaves the valid ones, but stays among the handles that ever were.
    fn end<T>(
        &mut self,
        object: *mut T,
        of: impl Fn(&mut Self) -> &mut Vec<*mut T>,
        destroy: unsafe extern "C" fn(*mut T) -> c_int,
    ) {
        // SAFETY: handles of any kind are what is tried.
        let rc = unsafe { destroy(object) };
        answered(rc);
        let objects = of(self);
        let was_there = objects.contains(&object);
        assert!(rc != 0 || was_there, "what is no object of this kind was destroyed");
        assert_ne!((rc, was_there), (libc::EINVAL, true), "{}", last());
        if rc == 0 {
            objects.retain(|other| *other != object);
            self.give_back(object as usize);
        }
    }

    /// Frees the memory lent to an object that is gone: nobody may read it now.
    fn give_back(&mut self, object: usize) {
        self.registered.remove(&object);
        let of_it = self.lent.iter().filter(|(_, lent)| lent.qp == object);
        let ids: Vec<u64> = of_it.map(|(id, _)| *id).collect();
        for id in ids {
            self.lent.remove(&id);
            self.withdrawn.insert(id);
        }
    }

    /// Ends all objects, in an order in which none is in use.
    fn end_all(&mut self) {
        macro_rules! end {
            ($($objects:ident $destroy:ident),*) => {$(
                for object in self.$objects.clone() {
                    self.end(object, |all| &mut all.$objects, $destroy);
                }
                assert_eq!(self.$objects, [], "{}", last());
            )*};
        }
        end!(qps erd_destroy_qp, ahs erd_destroy_ah, mrs erd_dereg_mr, cqs erd_destroy_cq);
        end!(pds erd_dealloc_pd, contexts erd_close_device);
        assert!(self.lent.is_empty() && self.registered.is_empty());
    }
}

fn attr(cq: *mut erd_cq, [max_send_wr, max_recv_wr]: [u32; 2]) -> erd_qp_init_attr {
    erd_qp_init_attr {
        size: size_of::<erd_qp_init_attr>(),
        send_cq: cq,
        recv_cq: cq,
        max_send_wr,
        max_recv_wr,
        sq_sig_all: 1,
        port: 0,
        reserved: 0,
    }
}

/// Two queue pairs that no sequence knows of.
struct Others {
    left: [usize; 2],
    right: [usize; 2],
    to_right: usize,
}

impl Others {
    fn open() -> Others {
        // SAFETY: handles as they were given.
        unsafe {
            let context = erd_open_device(c"127.0.0.1".as_ptr(), null());
            let pd = erd_alloc_pd(context);
            let [left, right] = [(); 2].map(|()| {
                let cq = erd_create_cq(context);
                let qp = erd_create_qp(pd, &attr(cq, [0; 2]));
                assert!(!qp.is_null(), "{}", last());
                [qp as usize, cq as usize]
            });
            let (mut name, mut length) = ([0_u32; 7], 0);
            let qp = right[0] as *mut erd_qp;
            assert_eq!(erd_query_qp_name(qp, name.as_mut_ptr().cast(), &raw mut length), 0);
            let to_right = erd_create_ah(pd, name.as_ptr().cast(), length) as usize;
            Others { left, right, to_right }
        }
    }

    fn talk(&self) {
        let mut bytes = [[7_u8; 32], [0; 32]];
        let sge = |at: &mut [u8; 32]| erd_sge { addr: at.as_mut_ptr().cast(), length: 32 };
        let [out, into] = bytes.each_mut().map(sge);
        let sg_list = &raw const into;
        let recv = erd_recv_wr { wr_id: 1, next: null(), sg_list, num_sge: 1, reserved: 0 };
        let send = erd_send_wr {
            wr_id: 2,
            next: null(),
            sg_list: &raw const out,
            num_sge: 1,
            opcode: ERD_WR_SEND,
            send_flags: 0,
            reserved: 0,
            ah: self.to_right as *mut erd_ah,
            imm_data: 0,
            remote_addr: 0,
            rkey: 0,
            compare_add: 0,
            swap: 0,
        };
        let [left, right] = [self.left[0], self.right[0]].map(|qp| qp as *mut erd_qp);
        // SAFETY: the lists are here, and what they name lives until both completions came.
        unsafe {
            assert_eq!(erd_post_recv(right, &raw const recv, null_mut()), 0, "{}", last());
            assert_eq!(erd_post_send(left, &raw const send, null_mut()), 0, "{}", last());
        }
        for cq in [self.right[1], self.left[1]] {
            let start = Instant::now();
            // SAFETY: every byte is a value of it.
            let mut wc = unsafe { std::mem::zeroed::<erd_wc>() };
            // SAFETY: room for one.
            while unsafe { erd_poll_cq(cq as *mut erd_cq, 1, &raw mut wc) } != 1 {
                assert!(start.elapsed() < Duration::from_secs(20), "no completion came");
            }
            assert_eq!(wc.status, 0);
        }
        assert_eq!(bytes[1], [7; 32]);
    }
}

/// A sequence never harms other queue pairs.
fn others_still_talk() {
    static OTHERS: Mutex<Option<Others>> = Mutex::new(None);
    OTHERS.lock().expect("no test failed before").get_or_insert_with(Others::open).talk();
}
