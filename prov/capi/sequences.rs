//! Random sequences of calls, with handles that are right, foreign, stale or made up: every answer
//! is one that the man pages name, and the library is as good as new afterwards.
//!
//! `CAPI_SEED` in the environment replays one sequence.

use super::tests::{NO_ATTR, Side, last, setting, talk};
use super::types::*;
use super::*;
use std::ffi::{CStr, c_char, c_int};
use std::ptr::{null, null_mut};

/// Sequences of a run.
const SEQUENCES: u64 = 40;
/// Calls of a sequence.
const CALLS: usize = 150;
/// Queue pairs of a sequence: each has sockets.
const QPS_MAX: usize = 5;
/// Memory that all requests name; it outlives them.
const ARENA_BYTES: usize = 16 << 10;
/// What any function may answer where one thread calls.
const ANSWERS: [c_int; 7] =
    [0, libc::EINVAL, libc::ENOMEM, libc::EBUSY, libc::ETIMEDOUT, libc::EADDRINUSE, libc::ENODEV];

struct Sequence {
    seed: u64,
    random: u64,
    arena: *mut u8,
    /// Every handle that was ever given, of any kind, and some that never were.
    handles: Vec<usize>,
    contexts: Vec<*mut erd_context>,
    pds: Vec<*mut erd_pd>,
    mrs: Vec<*mut erd_mr>,
    cqs: Vec<*mut erd_cq>,
    qps: Vec<*mut erd_qp>,
    ahs: Vec<*mut erd_ah>,
    names: Vec<[u32; 7]>,
    keys: Vec<u64>,
    /// Lists that were posted, and completions that were polled.
    posted: usize,
    polled: usize,
}

impl Sequence {
    fn new(seed: u64) -> Sequence {
        // Never freed: a peer's late packet may still name it.
        let arena = Box::leak(vec![0_u64; ARENA_BYTES / 8].into_boxed_slice());
        Sequence {
            seed,
            random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            arena: arena.as_mut_ptr().cast(),
            handles: vec![0, 1, usize::MAX, 0x7fff_1234_5678],
            contexts: Vec::new(),
            pds: Vec::new(),
            mrs: Vec::new(),
            cqs: Vec::new(),
            qps: Vec::new(),
            ahs: Vec::new(),
            names: vec![[0; 7]],
            keys: vec![0],
            posted: 0,
            polled: 0,
        }
    }

    /// A number below `end`.
    fn below(&mut self, end: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 33) as usize % end.max(1)
    }

    /// One of these objects as a rule, and else anything.
    fn any<T>(&mut self, of: impl Fn(&Sequence) -> &Vec<*mut T>) -> *mut T {
        let count = of(self).len();
        if count > 0 && self.below(10) > 0 {
            let at = self.below(count);
            return of(self)[at];
        }
        let at = self.below(self.handles.len());
        self.handles[at] as *mut T
    }

    /// An object was made, or not.
    fn made<T>(&mut self, object: *mut T, to: impl Fn(&mut Sequence) -> &mut Vec<*mut T>) {
        if object.is_null() {
            let errno = std::io::Error::last_os_error().raw_os_error().unwrap_or(0);
            self.answered(errno);
        } else {
            self.handles.push(object as usize);
            to(self).push(object);
        }
    }

    #[track_caller]
    fn answered(&self, errno: c_int) {
        assert!(ANSWERS.contains(&errno.abs()), "CAPI_SEED={}: {errno}: {}", self.seed, last());
    }

    fn pieces(&mut self) -> [erd_sge; 3] {
        [0; 3].map(|_| {
            let (at, length) = (self.below(ARENA_BYTES / 2), self.below(3000));
            let aligned = if length < 1000 { 8 } else { length };
            // SAFETY: within the arena.
            erd_sge { addr: unsafe { self.arena.add(at & !7) }.cast(), length: aligned }
        })
    }

    fn post_send(&mut self) {
        let list = self.pieces();
        let key = self.below(self.keys.len());
        let wr = erd_send_wr {
            wr_id: self.random,
            next: null(),
            sg_list: list.as_ptr(),
            num_sge: self.below(4) as u32,
            opcode: self.below(8) as u32,
            send_flags: [0, 1, 2, 2, 3, 8, 10, 4][self.below(8)],
            reserved: u32::from(self.below(30) == 0),
            ah: self.any(|all| &all.ahs),
            imm_data: self.random,
            remote_addr: self.arena as u64 + self.below(ARENA_BYTES) as u64,
            rkey: self.keys[key],
            compare_add: 1,
            swap: 2,
        };
        let first = erd_send_wr { next: &raw const wr, ..wr };
        let (qp, mut bad) = (self.any(|all| &all.qps), null());
        // SAFETY: the lists are here, and the arena outlives all.
        let rc = unsafe { erd_post_send(qp, &raw const first, &raw mut bad) };
        self.posted += usize::from(rc == 0);
        self.answered(rc);
    }

    fn post_recv(&mut self) {
        let list = self.pieces();
        let num_sge = self.below(4) as u32;
        let (sg_list, reserved) = (list.as_ptr(), 0);
        let wr = erd_recv_wr { wr_id: 1, next: null(), sg_list, num_sge, reserved };
        let qp = self.any(|all| &all.qps);
        // SAFETY: as above.
        let rc = unsafe { erd_post_recv(qp, &raw const wr, null_mut()) };
        self.answered(rc);
    }

    fn open(&mut self, name: &CStr) {
        // Closing waits this long for a peer that is gone.
        let quick = setting(c"peer_timeout_ms", c"50");
        let attr = erd_context_attr { settings: &raw const quick, num_settings: 1, ..NO_ATTR };
        // SAFETY: the texts outlive the call.
        let context = unsafe { erd_open_device(name.as_ptr(), &raw const attr) };
        self.made(context, |all| &mut all.contexts);
    }

    /// What most calls need.
    fn begin(&mut self) {
        self.open(c"127.0.0.1");
        let context = self.contexts[0];
        // SAFETY: handles that were just given.
        unsafe {
            self.made(erd_alloc_pd(context), |all| &mut all.pds);
            self.made(erd_create_cq(context), |all| &mut all.cqs);
        }
        while self.qps.len() < 2 {
            self.create_qp();
        }
        for name in self.names.clone() {
            // SAFETY: as above.
            let ah = unsafe { erd_create_ah(self.pds[0], name.as_ptr().cast(), 16) };
            self.made(ah, |all| &mut all.ahs);
        }
    }

    fn create_qp(&mut self) {
        if self.qps.len() >= QPS_MAX {
            return;
        }
        let attr = erd_qp_init_attr {
            size: [40, 40, 40, 40, 8, 48][self.below(6)],
            send_cq: self.any(|all| &all.cqs),
            recv_cq: self.any(|all| &all.cqs),
            max_send_wr: [0, 1, 4, 70_000][self.below(4)],
            max_recv_wr: [0, 1, 4, 64][self.below(4)],
            sq_sig_all: self.below(2) as u32,
            port: 0,
            reserved: 0,
        };
        // What a newer header could have behind it.
        let room = [attr; 2];
        let pd = self.any(|all| &all.pds);
        // SAFETY: as long as it says.
        let qp = unsafe { erd_create_qp(pd, room.as_ptr()) };
        self.made(qp, |all| &mut all.qps);
        if !qp.is_null() {
            let (mut name, mut length) = ([0; 7], 0);
            // SAFETY: places of our own.
            let rc = unsafe { erd_query_qp_name(qp, name.as_mut_ptr().cast(), &raw mut length) };
            self.answered(rc);
            self.names.push(name);
        }
    }

    fn create(&mut self) {
        let (context, pd) = (self.any(|all| &all.contexts), self.any(|all| &all.pds));
        // SAFETY: handles of any kind are what is tested; the rest is as the pages say.
        unsafe {
            match self.below(6) {
                0 if self.contexts.len() < 2 => {
                    let name = [c"127.0.0.1", c"no such"][self.below(2)];
                    self.open(name);
                }
                1 => self.made(erd_alloc_pd(context), |all| &mut all.pds),
                2 => self.made(erd_create_cq(context), |all| &mut all.cqs),
                3 => {
                    let (mut rkey, at) = (0, self.below(2) * ARENA_BYTES / 2);
                    let (start, access) = (self.arena.add(at).cast(), self.below(16) as u32);
                    let mr = erd_reg_mr(pd, start, ARENA_BYTES / 2, access, &raw mut rkey);
                    self.made(mr, |all| &mut all.mrs);
                    self.keys.push(rkey);
                }
                4 => {
                    let at = self.below(self.names.len());
                    let name = self.names[at];
                    let length = [16, 16, 16, 2, 28][self.below(5)];
                    let ah = erd_create_ah(pd, name.as_ptr().cast(), length);
                    self.made(ah, |all| &mut all.ahs);
                }
                _ => self.create_qp(),
            }
        }
    }

    fn look(&mut self) {
        // SAFETY: every byte is a value of it.
        let mut wc: [erd_wc; 4] = unsafe { std::mem::zeroed() };
        let (cq, pd) = (self.any(|all| &all.cqs), self.any(|all| &all.pds));
        // SAFETY: as above.
        unsafe {
            let polled = erd_poll_cq(cq, self.below(5) as c_int, wc.as_mut_ptr());
            assert!(polled <= 4);
            self.answered(polled.min(0));
            self.polled += polled.max(0) as usize;
            if polled > 0 {
                let text: *const c_char = erd_wc_reason(wc.as_ptr());
                assert!(!text.is_null() && wc[0].status <= 21);
                self.made(erd_create_ah_from_wc(pd, wc.as_ptr()), |all| &mut all.ahs);
            }
            self.answered(erd_wait_cq(cq, 0));
            self.answered(erd_req_notify_cq(cq));
        }
    }

    /// Destroys one object, if it is one and nothing needs it.
    fn destroy(&mut self) {
        // SAFETY: as above.
        unsafe {
            match self.below(6) {
                0 => self.end(|all| &mut all.qps, |qp| erd_destroy_qp(qp)),
                1 => self.end(|all| &mut all.cqs, |cq| erd_destroy_cq(cq)),
                2 => self.end(|all| &mut all.ahs, |ah| erd_destroy_ah(ah)),
                3 => self.end(|all| &mut all.mrs, |mr| erd_dereg_mr(mr)),
                4 => self.end(|all| &mut all.pds, |pd| erd_dealloc_pd(pd)),
                _ => self.end(|all| &mut all.contexts, |context| erd_close_device(context)),
            }
        }
    }

    /// What is gone is taken for right no longer, but stays among the handles that ever were.
    fn end<T>(
        &mut self,
        of: impl Fn(&mut Sequence) -> &mut Vec<*mut T>,
        destroy: impl FnOnce(*mut T) -> c_int,
    ) {
        let (count, right) = (of(self).len(), self.below(10) > 0);
        let at = self.below(if count > 0 && right { count } else { self.handles.len() });
        let object = if count > 0 && right { of(self)[at] } else { self.handles[at] as *mut T };
        let rc = destroy(object);
        self.answered(rc);
        if rc == 0 {
            of(self).retain(|other| *other != object);
        }
    }

    fn run(&mut self) {
        self.begin();
        for _ in 0..CALLS {
            match self.below(10) {
                0 => self.create(),
                1..=4 => self.post_send(),
                5..=6 => self.post_recv(),
                7..=8 => self.look(),
                _ if self.below(3) == 0 => self.destroy(),
                _ => self.look(),
            }
        }
        // In this order nothing is in use; what was destroyed before is refused.
        // SAFETY: as above.
        unsafe {
            let mut refused = Vec::new();
            refused.extend(self.qps.iter().map(|qp| erd_destroy_qp(*qp)));
            refused.extend(self.ahs.iter().map(|ah| erd_destroy_ah(*ah)));
            refused.extend(self.mrs.iter().map(|mr| erd_dereg_mr(*mr)));
            refused.extend(self.cqs.iter().map(|cq| erd_destroy_cq(*cq)));
            refused.extend(self.pds.iter().map(|pd| erd_dealloc_pd(*pd)));
            refused.extend(self.contexts.iter().map(|context| erd_close_device(*context)));
            let fine = refused.iter().all(|rc| [0, libc::EINVAL].contains(rc));
            assert!(fine, "CAPI_SEED={}: {refused:?}", self.seed);
        }
    }
}

#[test]
fn random_calls_are_answered_as_documented() {
    let seeds = match std::env::var("CAPI_SEED") {
        Ok(seed) => vec![seed.parse().expect("CAPI_SEED is a number")],
        Err(_) => (0..SEQUENCES).map(|_| crate::random::u64() >> 1).collect(),
    };
    let (mut posted, mut polled) = (0, 0);
    for seed in &seeds {
        let mut sequence = Sequence::new(*seed);
        sequence.run();
        (posted, polled) = (posted + sequence.posted, polled + sequence.polled);
    }
    assert!(seeds.len() == 1 || posted.min(polled) > 50, "{posted} posted, {polled} polled");
    let (left, right) = (Side::new(), Side::new());
    talk(&left, &right);
    left.close();
    right.close();
}
