//! A domain that many threads use, with several endpoints on one AV, one queue and one counter.

use super::op::{Op, retried};
use crate::ep::tests::node::{Node, Options, bind, enable, ok};
use erd_ffi::fi::*;
use std::ffi::{CStr, c_int, c_void};
use std::net::SocketAddr;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicBool, Ordering};

/// Endpoints of a site.
pub const ENDPOINTS: usize = 3;
/// Words at the beginning of the memory that peers reach.
pub const WORDS: usize = 8;
/// Then come pieces of this many bytes, of which each is one thread's.
pub const PIECE_BYTES: usize = 1 << 20;
/// Key of that memory.
const KEY: u64 = 1;
/// What sleepers sleep at most, to see whether they are to end.
const SLEEP_MS: c_int = 20;

/// See the module's text.
pub struct Site {
    node: Node,
    eps: Vec<Endpoint>,
    area: *mut u64,
    area_words: usize,
    region: *mut fid_mr,
}

// SAFETY: the provider grants FI_THREAD_SAFE, and the memory is the peers' until the site is closed.
unsafe impl Send for Site {}
// SAFETY: as above.
unsafe impl Sync for Site {}

/// An endpoint of a site.
#[derive(Clone, Copy)]
pub struct Endpoint(pub *mut fid_ep);

// SAFETY: as above.
unsafe impl Send for Endpoint {}
// SAFETY: as above.
unsafe impl Sync for Endpoint {}

/// Memory of a peer's: its name here, the key and the place.
#[derive(Clone, Copy)]
pub struct Place {
    pub peer: fi_addr_t,
    pub key: u64,
    pub at: u64,
}

impl Place {
    /// A place in the memory of a site's own.
    pub fn of_site(peer: fi_addr_t, at: usize) -> Place {
        Place { peer, key: KEY, at: at as u64 }
    }
}

impl Site {
    /// With memory for so many threads.
    pub fn open(address: &'static CStr, pieces: usize) -> Site {
        let options = Options { wait_obj: FI_WAIT_FD, address, ..Options::NONE };
        let node = Node::disabled(options);
        let more = (1..ENDPOINTS).map(|_| {
            let ep = node.another();
            ok("bind cntr", bind(ep, node.cntr.cast(), FI_RECV) as isize);
            ep
        });
        let eps: Vec<Endpoint> = std::iter::once(node.ep).chain(more).map(Endpoint).collect();
        eps.iter().for_each(|ep| enable(ep.0));
        let area_words = WORDS + pieces * PIECE_BYTES / size_of::<u64>();
        let area = Box::into_raw(vec![0_u64; area_words].into_boxed_slice()).cast::<u64>();
        let mut site = Site { node, eps, area, area_words, region: null_mut() };
        site.region = site.register(area.cast(), area_words * size_of::<u64>(), KEY);
        site
    }

    /// The endpoint of this number, counted around.
    pub fn ep(&self, number: usize) -> Endpoint {
        self.eps[number % ENDPOINTS]
    }

    /// One more endpoint, and its name.
    pub fn open_ep(&self) -> (Endpoint, SocketAddr) {
        let ep = self.node.another();
        enable(ep);
        (Endpoint(ep), Node::name_of(ep))
    }

    /// What this site calls an endpoint.
    pub fn knows(&self, name: &SocketAddr) -> fi_addr_t {
        self.node.knows_name(name)
    }

    /// An endpoint's name is taken out of the AV again.
    pub fn forgets(&self, mut peer: fi_addr_t) {
        let av = self.node.av();
        // SAFETY: the AV is open, and the place is local.
        let rc = unsafe { ((*(*av).ops).remove)(av, &raw mut peer, 1, 0) };
        ok("remove", rc as isize);
    }

    /// Registers memory for peers to read and write.
    pub fn register(&self, at: *mut c_void, len: usize, key: u64) -> *mut fid_mr {
        let (domain, mut mr) = (self.node.domain(), null_mut());
        let access = FI_REMOTE_READ | FI_REMOTE_WRITE;
        // SAFETY: the domain is open; the memory stays until the registration is closed.
        let rc = unsafe {
            let reg = (*(*domain).mr).reg;
            reg(domain.cast(), at, len, access, 0, key, 0, &raw mut mr, null_mut())
        };
        ok("reg", rc as isize);
        mr
    }

    /// Takes completions to their operations until `stop`, asleep on the queue or on its descriptor
    /// between them.
    pub fn read_until(&self, stop: &AtomicBool, by_fd: bool) {
        let fd = self.node.wait_fd();
        while !stop.load(Ordering::Relaxed) {
            if !by_fd {
                self.read_asleep();
            } else if self.node.trywait() == 0 {
                let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
                // SAFETY: one entry; the descriptor is open.
                unsafe { libc::poll(&raw mut poll, 1, SLEEP_MS) };
            }
            while self.read_some() {}
        }
    }

    fn read_asleep(&self) {
        let (cq, mut entry) = (self.node.cq, fi_cq_tagged_entry::ZERO);
        let buf = (&raw mut entry).cast();
        // SAFETY: room for one entry.
        let rc = unsafe { ((*(*cq).ops).sread)(cq, buf, 1, null(), SLEEP_MS) };
        if rc == 1 {
            Op::done(&entry);
        }
    }

    /// Whether there was anything.
    fn read_some(&self) -> bool {
        let (cq, mut entries) = (self.node.cq, [fi_cq_tagged_entry::ZERO; 8]);
        let (buf, count) = (entries.as_mut_ptr().cast(), entries.len());
        // SAFETY: the array has room for so many.
        let rc = unsafe { ((*(*cq).ops).read)(cq, buf, count) };
        if rc == -(FI_EAVAIL as isize) {
            let mut error = fi_cq_err_entry::ZERO;
            // SAFETY: a whole entry. Another thread may have taken the error meanwhile.
            if unsafe { ((*(*cq).ops).readerr)(cq, &raw mut error, 0) } == 1 {
                Op::failed(&error);
            }
            return true;
        }
        assert!(rc > 0 || rc == -(FI_EAGAIN as isize), "reading: {rc}");
        entries.iter().take(usize::try_from(rc).unwrap_or(0)).for_each(Op::done);
        rc > 0
    }

    /// Sleeps on the counter until `stop`; returns how often it counted.
    pub fn count_until(&self, stop: &AtomicBool) -> u64 {
        let cntr = self.node.cntr;
        let mut seen = 0;
        while !stop.load(Ordering::Relaxed) {
            // SAFETY: the counter is open.
            unsafe {
                ((*(*cntr).ops).wait)(cntr, seen + 1, SLEEP_MS);
                let now = ((*(*cntr).ops).read)(cntr);
                assert!(now >= seen, "the counter went from {seen} to {now}");
                seen = now;
            }
        }
        seen
    }

    /// Closes it; returns the words that peers wrote to.
    pub fn close(self) -> [u64; WORDS] {
        close(self.region.cast());
        self.eps.iter().skip(1).for_each(|ep| close(ep.0.cast()));
        drop(self.node);
        // SAFETY: this is the slice that `open` let go of, and no peer reaches it any more.
        let area = unsafe {
            let slice = std::ptr::slice_from_raw_parts_mut(self.area, self.area_words);
            Box::from_raw(slice)
        };
        std::array::from_fn(|word| area[word])
    }
}

/// Closes any object.
pub fn close(object: *mut fid) {
    // SAFETY: an open object that nobody uses any more.
    ok("close", unsafe { ((*(*object).ops).close)(object) } as isize);
}

impl Endpoint {
    pub fn send(self, bytes: &[u8], dest: fi_addr_t, op: &Op) {
        let (ep, at, len) = (self.0, bytes.as_ptr().cast(), bytes.len());
        // SAFETY: the caller keeps buffer and operation until it has ended, or the endpoint is closed.
        retried("send", || unsafe {
            ((*(*ep).msg).send)(ep, at, len, null_mut(), dest, op.context())
        });
    }

    pub fn recv(self, bytes: &mut [u8], op: &Op) {
        let (ep, at, len) = (self.0, bytes.as_mut_ptr().cast(), bytes.len());
        // SAFETY: as above.
        retried("recv", || unsafe {
            ((*(*ep).msg).recv)(ep, at, len, null_mut(), FI_ADDR_UNSPEC, op.context())
        });
    }

    pub fn tsend(self, bytes: &[u8], dest: fi_addr_t, tag: u64, op: &Op) {
        let (ep, at, len) = (self.0, bytes.as_ptr().cast(), bytes.len());
        // SAFETY: as above.
        retried("tsend", || unsafe {
            ((*(*ep).tagged).send)(ep, at, len, null_mut(), dest, tag, op.context())
        });
    }

    pub fn trecv(self, bytes: &mut [u8], tag: u64, op: &Op) {
        let (ep, at, len) = (self.0, bytes.as_mut_ptr().cast(), bytes.len());
        let (none, any) = (null_mut(), FI_ADDR_UNSPEC);
        // SAFETY: as above.
        retried("trecv", || unsafe {
            ((*(*ep).tagged).recv)(ep, at, len, none, any, tag, 0, op.context())
        });
    }

    pub fn cancel(self, op: &Op) {
        // SAFETY: the endpoint is open.
        let rc = unsafe { ((*(*self.0).ops).cancel)(self.0.cast(), op.context()) };
        assert!(rc == 0 || rc == -(FI_ENOENT as isize), "cancel: {rc}");
    }

    pub fn write(self, bytes: &[u8], to: Place, op: &Op) {
        let (ep, at, len) = (self.0, bytes.as_ptr().cast(), bytes.len());
        // SAFETY: as above.
        retried("write", || unsafe {
            let write = (*(*ep).rma).write;
            write(ep, at, len, null_mut(), to.peer, to.at, to.key, op.context())
        });
    }

    pub fn read(self, bytes: &mut [u8], from: Place, op: &Op) {
        let (ep, at, len) = (self.0, bytes.as_mut_ptr().cast(), bytes.len());
        // SAFETY: as above.
        retried("read", || unsafe {
            let read = (*(*ep).rma).read;
            read(ep, at, len, null_mut(), from.peer, from.at, from.key, op.context())
        });
    }

    /// Adds `value` to a word, and fetches what was there where `fetched` is given.
    pub fn add(self, value: &u64, fetched: Option<&mut u64>, to: Place, op: &Op) {
        let (ep, at, none) = (self.0, std::ptr::from_ref(value).cast(), null_mut());
        let Place { peer, key, at: place } = to;
        let result: *mut c_void =
            fetched.map_or(null_mut(), |word| std::ptr::from_mut(word).cast());
        let (kind, sum) = (FI_UINT64, FI_SUM);
        // SAFETY: as above.
        retried("add", || unsafe {
            let ops = &*(*ep).atomic;
            let context = op.context();
            if result.is_null() {
                (ops.write)(ep, at, 1, none, peer, place, key, kind, sum, context)
            } else {
                let fetch = ops.readwrite;
                fetch(ep, at, 1, none, result, none, peer, place, key, kind, sum, context)
            }
        });
    }

    /// Sets a word to `new` if it is `old`; `found` is what was there.
    pub fn swap(self, [old, new]: &[u64; 2], found: &mut u64, to: Place, op: &Op) {
        let word = |word: &u64| std::ptr::from_ref(word).cast::<c_void>();
        let (ep, none, found) = (self.0, null_mut(), std::ptr::from_mut(found).cast());
        let Place { peer, key, at } = to;
        // SAFETY: as above.
        retried("swap", || unsafe {
            let (swap, kind, context) = ((*(*ep).atomic).compwrite, FI_UINT64, op.context());
            let (new, old) = (word(new), word(old));
            swap(ep, new, 1, none, old, none, found, none, peer, at, key, kind, FI_CSWAP, context)
        });
    }
}
