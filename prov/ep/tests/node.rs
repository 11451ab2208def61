//! One endpoint with all it needs, driven through libfabric's own tables of operations.

use crate::{fabric, info};
use erd_core::sockaddr;
use erd_ffi::fi::*;
use std::cell::RefCell;
use std::ffi::{CStr, c_int, c_void};
use std::net::SocketAddr;
use std::ptr::{null, null_mut};
use std::time::{Duration, Instant};

/// A machine that is so many times as slow as others says so in `ERD_TEST_SLOWNESS`.
pub fn slowness() -> u32 {
    std::env::var("ERD_TEST_SLOWNESS").ok().and_then(|text| text.parse().ok()).unwrap_or(1)
}

/// After this long a completion that does not come has failed its test.
pub fn patience() -> Duration {
    Duration::from_secs(20) * slowness()
}

/// What a test asks of a node beyond the defaults.
#[derive(Clone, Copy)]
pub struct Options {
    pub rx_size: usize,
    pub tx_size: usize,
    /// Flags of binding the CQ, beside the directions.
    pub bind_flags: u64,
    pub wait_obj: fi_wait_obj,
    /// Counters are bound in place of a CQ.
    pub counters_only: bool,
    /// Capabilities beside those that everybody gets.
    pub caps: u64,
    pub rx_ctx_bits: c_int,
    /// Where its endpoint is.
    pub address: &'static CStr,
    /// As the application sets it to open the domain.
    pub mr_mode: c_int,
    /// Key of the domain.
    pub key: Option<&'static [u8; 32]>,
    /// Key of the endpoint alone.
    pub ep_key: Option<&'static [u8; 32]>,
    /// Keys of the address vector, if the domain leaves keys to it.
    pub av_keys: &'static [[u8; 32]],
    /// Its endpoint shares no memory with others of this host.
    pub alone: bool,
}

impl Options {
    pub const NONE: Options = Options {
        rx_size: 0,
        tx_size: 0,
        bind_flags: 0,
        wait_obj: FI_WAIT_NONE,
        counters_only: false,
        caps: 0,
        rx_ctx_bits: 0,
        address: c"127.0.0.1",
        mr_mode: 0,
        key: None,
        ep_key: None,
        av_keys: &[],
        alone: false,
    };

    /// Over the network path.
    pub const APART: Options = Options { alone: true, ..Options::NONE };
}

impl Default for Options {
    fn default() -> Options {
        Options::NONE
    }
}

/// See the module's text.
pub struct Node {
    info: *mut fi_info,
    fabric: *mut fid_fabric,
    domain: *mut fid_domain,
    av: *mut fid_av,
    /// The names of its address vector's keys.
    pub keys: Vec<fi_addr_t>,
    pub cq: *mut fid_cq,
    pub cntr: *mut fid_cntr,
    pub ep: *mut fid_ep,
    /// What its operations read. Many a test ends before its last send has: the helper thread may repeat
    /// that until the endpoint is closed, and this goes after it.
    lent: RefCell<Vec<Box<[u8]>>>,
}

/// A completion with all that a read can tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    pub context: usize,
    pub flags: u64,
    pub len: usize,
    pub buf: usize,
    pub data: u64,
    pub tag: u64,
    pub source: fi_addr_t,
}

/// An error entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bad {
    pub context: usize,
    pub flags: u64,
    pub len: usize,
    pub olen: usize,
    pub tag: u64,
    pub err: c_int,
    pub prov_errno: c_int,
    pub err_data: usize,
    pub err_data_size: usize,
    pub src_addr: fi_addr_t,
}

pub fn ok(what: &str, rc: isize) {
    assert_eq!(rc, 0, "{what}");
}

/// The context of every endpoint.
pub const EP_CONTEXT: usize = 0xe0;

/// A context that names an operation in a test.
pub fn ctx(number: usize) -> *mut c_void {
    number as *mut c_void
}

impl Node {
    pub fn new(options: Options) -> Node {
        let node = Node::disabled(options);
        if options.alone {
            ok("setopt", set_shared_memory(node.ep, false));
        }
        ok("enable", node.control(FI_ENABLE, null_mut()) as isize);
        node
    }

    /// A node whose endpoint is bound but not enabled.
    pub fn disabled(options: Options) -> Node {
        let mut node = Node {
            info: null_mut(),
            fabric: null_mut(),
            domain: null_mut(),
            av: null_mut(),
            keys: Vec::new(),
            cq: null_mut(),
            cntr: null_mut(),
            ep: null_mut(),
            lent: RefCell::default(),
        };
        let version = fi_version(2, 0);
        // SAFETY: the arguments are as the man pages say, and the objects are those just opened.
        unsafe {
            let names = (options.address.as_ptr(), null());
            let rc = info::getinfo(version, names, FI_SOURCE, null(), &raw mut node.info);
            ok("getinfo", rc as isize);
            let attr = (*node.info).fabric_attr;
            (*attr).api_version = version;
            ok("fabric", fabric::open(attr, &raw mut node.fabric, null_mut()) as isize);
            let domain_attr = &mut *(*node.info).domain_attr;
            domain_attr.mr_mode = options.mr_mode;
            if let Some(key) = options.key {
                domain_attr.auth_key = key.as_ptr().cast_mut();
                domain_attr.auth_key_size = key.len();
            }
            if !options.av_keys.is_empty() {
                domain_attr.auth_key_size = FI_AV_AUTH_KEY;
            }
            let ops = &*(*node.fabric).ops;
            let rc = (ops.domain)(node.fabric, node.info, &raw mut node.domain, null_mut());
            ok("domain", rc as isize);
            // The info frees its own keys alone.
            (domain_attr.auth_key, domain_attr.auth_key_size) = (null_mut(), 0);
            (*node.info).caps |= options.caps;
            if options.rx_size > 0 {
                (*(*node.info).rx_attr).size = options.rx_size;
            }
            if options.tx_size > 0 {
                (*(*node.info).tx_attr).size = options.tx_size;
            }
            let ep_attr = (*node.info).ep_attr;
            if let Some(key) = options.ep_key {
                (*ep_attr).auth_key = key.as_ptr().cast_mut();
                (*ep_attr).auth_key_size = key.len();
            }
            node.open_objects(options);
            ((*ep_attr).auth_key, (*ep_attr).auth_key_size) = (null_mut(), 0);
        }
        node
    }

    /// # Safety
    /// Info, fabric and domain are open.
    unsafe fn open_objects(&mut self, options: Options) {
        let mut av_attr = fi_av_attr {
            r#type: FI_AV_TABLE,
            rx_ctx_bits: options.rx_ctx_bits,
            ..fi_av_attr::ZERO
        };
        let mut cq_attr = fi_cq_attr {
            format: FI_CQ_FORMAT_TAGGED,
            wait_obj: options.wait_obj,
            ..fi_cq_attr::ZERO
        };
        let mut cntr_attr = fi_cntr_attr { wait_obj: FI_WAIT_UNSPEC, ..fi_cntr_attr::ZERO };
        let (domain, none) = (self.domain, null_mut());
        // SAFETY: the caller's promise; attributes and places are local or our own.
        unsafe {
            let ops = &*(*domain).ops;
            let rc = (ops.av_open)(domain, &raw mut av_attr, &raw mut self.av, none);
            ok("av", rc as isize);
            for key in options.av_keys {
                let name = self.insert_key(key).expect("a key");
                self.keys.push(name);
            }
            let rc = (ops.cq_open)(domain, &raw mut cq_attr, &raw mut self.cq, none);
            ok("cq", rc as isize);
            let rc = (ops.cntr_open)(domain, &raw mut cntr_attr, &raw mut self.cntr, none);
            ok("cntr", rc as isize);
            let rc = (ops.endpoint)(domain, self.info, &raw mut self.ep, ctx(EP_CONTEXT));
            ok("endpoint", rc as isize);
        }
        ok("bind av", self.bind(self.av.cast(), 0) as isize);
        let both = FI_SEND | FI_RECV;
        if options.counters_only {
            ok("bind cntr", self.bind(self.cntr.cast(), both) as isize);
        } else {
            ok("bind cq", self.bind(self.cq.cast(), both | options.bind_flags) as isize);
            ok("bind cntr", self.bind(self.cntr.cast(), FI_RECV) as isize);
        }
    }

    pub fn bind(&self, other: *mut fid, flags: u64) -> c_int {
        bind(self.ep, other, flags)
    }

    /// Another endpoint with the same AV and CQ, not enabled.
    pub fn another(&self) -> *mut fid_ep {
        self.another_on(self.cq)
    }

    /// A further CQ.
    pub fn new_cq(&self) -> *mut fid_cq {
        let mut attr = fi_cq_attr { format: FI_CQ_FORMAT_TAGGED, ..fi_cq_attr::ZERO };
        let mut cq = null_mut();
        let open = self.domain_ops().cq_open;
        // SAFETY: the domain is open, the attributes and the place are local.
        let rc = unsafe { open(self.domain, &raw mut attr, &raw mut cq, null_mut()) };
        ok("cq", rc as isize);
        cq
    }

    /// Another endpoint with the same AV and this CQ, not enabled.
    pub fn another_on(&self, cq: *mut fid_cq) -> *mut fid_ep {
        let mut ep = null_mut();
        let open = self.domain_ops().endpoint;
        // SAFETY: the domain is open, the info is what it was made of, the place is local.
        let rc = unsafe { open(self.domain, self.info, &raw mut ep, ctx(EP_CONTEXT)) };
        ok("endpoint", rc as isize);
        ok("bind av", bind(ep, self.av.cast(), 0) as isize);
        ok("bind cq", bind(ep, cq.cast(), FI_SEND | FI_RECV) as isize);
        ep
    }

    /// A scalable endpoint of so many contexts of each kind.
    pub fn scalable(&self, contexts: usize) -> *mut fid_ep {
        let mut sep = null_mut();
        let open = self.domain_ops().scalable_ep;
        // SAFETY: as above.
        unsafe {
            (*(*self.info).ep_attr).tx_ctx_cnt = contexts;
            (*(*self.info).ep_attr).rx_ctx_cnt = contexts;
            ok("sep", open(self.domain, self.info, &raw mut sep, null_mut()) as isize);
        }
        ok("bind av", bind(sep, self.av.cast(), 0) as isize);
        sep
    }

    /// A transmit or receive context of it with a queue of its own, not enabled.
    pub fn context(
        &self,
        sep: *mut fid_ep,
        index: c_int,
        sends: bool,
    ) -> (*mut fid_ep, *mut fid_cq) {
        let (mut ep, none) = (null_mut(), null_mut());
        // SAFETY: the objects are open, the place is local.
        unsafe {
            let ops = &*(*sep).ops;
            let rc = match sends {
                true => (ops.tx_ctx)(sep, index, null_mut(), &raw mut ep, none),
                false => (ops.rx_ctx)(sep, index, null_mut(), &raw mut ep, none),
            };
            ok("context", rc as isize);
        }
        let cq = self.new_cq();
        ok("bind", bind(ep, cq.cast(), if sends { FI_SEND } else { FI_RECV }) as isize);
        (ep, cq)
    }

    /// A wait set, and a counter in it.
    pub fn wait_set(&self) -> (*mut fid_wait, *mut fid_cntr) {
        let mut attr = fi_wait_attr { wait_obj: FI_WAIT_UNSPEC, flags: 0 };
        let (mut set, mut cntr) = (null_mut(), null_mut());
        // SAFETY: the fabric and the domain are open, attributes and places are local.
        unsafe {
            let open = (*(*self.fabric).ops).wait_open;
            ok("wait set", open(self.fabric, &raw mut attr, &raw mut set) as isize);
            let wait_obj = FI_WAIT_SET;
            let mut attr = fi_cntr_attr { wait_obj, wait_set: set, ..fi_cntr_attr::ZERO };
            let open = self.domain_ops().cntr_open;
            ok("cntr", open(self.domain, &raw mut attr, &raw mut cntr, null_mut()) as isize);
        }
        (set, cntr)
    }

    pub fn control(&self, command: c_int, arg: *mut c_void) -> c_int {
        // SAFETY: the endpoint is open; the callers pass what the command takes.
        unsafe { ((*(*self.ep).fid.ops).control)(self.ep.cast(), command, arg) }
    }

    /// Inserts another node's name here.
    pub fn knows(&self, other: &Node) -> fi_addr_t {
        self.knows_name(&other.name())
    }

    /// Inserts a name.
    pub fn knows_name(&self, name: &SocketAddr) -> fi_addr_t {
        self.insert(name, FI_ADDR_NOTAVAIL, 0)
    }

    /// Inserts a name that completions call `user_id`.
    pub fn knows_as(&self, name: &SocketAddr, user_id: u64) -> fi_addr_t {
        self.insert(name, user_id, FI_AV_USER_ID)
    }

    /// Inserts a name with the key of this name.
    pub fn knows_with(&self, name: &SocketAddr, key: fi_addr_t) -> fi_addr_t {
        self.insert(name, key, FI_AUTH_KEY)
    }

    /// Inserts a key.
    pub fn insert_key(&self, key: &[u8]) -> Result<fi_addr_t, c_int> {
        let mut name = FI_ADDR_NOTAVAIL;
        // SAFETY: the AV is open, key and place are local.
        let rc = unsafe {
            let insert = (*(*self.av).ops).insert_auth_key;
            insert(self.av, key.as_ptr().cast(), key.len(), &raw mut name, 0)
        };
        if rc == 0 { Ok(name) } else { Err(rc) }
    }

    fn insert(&self, name: &SocketAddr, mut fi_addr: fi_addr_t, flags: u64) -> fi_addr_t {
        let name = sockaddr::encode(*name);
        let (at, none) = (name.as_bytes().as_ptr().cast(), null_mut());
        // SAFETY: the node is open, and the buffer holds a name.
        unsafe {
            let insert = (*(*self.av).ops).insert;
            assert_eq!(insert(self.av, at, 1, &raw mut fi_addr, flags, none), 1);
        }
        fi_addr
    }

    /// The endpoint's name.
    pub fn name(&self) -> SocketAddr {
        Node::name_of(self.ep)
    }

    /// The name of an endpoint.
    pub fn name_of(ep: *mut fid_ep) -> SocketAddr {
        let mut name = [0_u8; 64];
        let mut len = name.len();
        // SAFETY: the endpoint is open, and the buffer as long as stated.
        let read = unsafe {
            let rc = ((*(*ep).cm).getname)(ep.cast(), name.as_mut_ptr().cast(), &raw mut len);
            ok("getname", rc as isize);
            sockaddr::read(name.as_ptr().cast(), len)
        };
        read.expect("an address").expect("not none")
    }

    /// A copy of `bytes` for operations of endpoints of this node, which stays until those are closed.
    pub fn lend(&self, bytes: &[u8]) -> &[u8] {
        let copy = Box::<[u8]>::from(bytes);
        let (at, len) = (copy.as_ptr(), copy.len());
        self.lent.borrow_mut().push(copy);
        // SAFETY: a box's bytes stay where they are, nobody writes to them, and boxes only go with the node.
        unsafe { std::slice::from_raw_parts(at, len) }
    }

    pub fn send(&self, bytes: &[u8], dest: fi_addr_t, context: usize) -> isize {
        self.send_by(self.ep, bytes, dest, context)
    }

    /// The same from another endpoint of this node.
    pub fn send_by(&self, ep: *mut fid_ep, bytes: &[u8], dest: fi_addr_t, context: usize) -> isize {
        let (buf, none) = (self.lend(bytes).as_ptr().cast(), null_mut());
        // SAFETY: the endpoint is open, and the bytes stay until it is closed.
        unsafe { ((*(*ep).msg).send)(ep, buf, bytes.len(), none, dest, ctx(context)) }
    }

    pub fn recv(&self, bytes: &mut [u8], source: fi_addr_t, context: usize) -> isize {
        let buf = bytes.as_mut_ptr().cast();
        let none = null_mut();
        // SAFETY: the tests keep their buffers until they have read the completion.
        unsafe { ((*(*self.ep).msg).recv)(self.ep, buf, bytes.len(), none, source, ctx(context)) }
    }

    pub fn tsend(&self, bytes: &[u8], dest: fi_addr_t, tag: u64, context: usize) -> isize {
        let (buf, none) = (self.lend(bytes).as_ptr().cast(), null_mut());
        let tsend = self.tagged().send;
        // SAFETY: as in `send`.
        unsafe { tsend(self.ep, buf, bytes.len(), none, dest, tag, ctx(context)) }
    }

    pub fn trecv(&self, bytes: &mut [u8], tag: u64, ignore: u64, context: usize) -> isize {
        let (buf, none) = (bytes.as_mut_ptr().cast(), null_mut());
        let trecv = self.tagged().recv;
        // SAFETY: as in `recv`.
        unsafe { trecv(self.ep, buf, bytes.len(), none, FI_ADDR_UNSPEC, tag, ignore, ctx(context)) }
    }

    /// `fi_trecvmsg` with one buffer and no ignored bits.
    pub fn trecvmsg(&self, bytes: &mut [u8], tag: u64, context: usize, flags: u64) -> isize {
        self.trecvmsg_from(bytes, FI_ADDR_UNSPEC, tag, context, flags)
    }

    pub fn trecvmsg_from(
        &self,
        bytes: &mut [u8],
        addr: fi_addr_t,
        tag: u64,
        context: usize,
        flags: u64,
    ) -> isize {
        self.trecvmsg_by((self.ep, addr), bytes, (tag, context), flags)
    }

    /// The same by an endpoint or shared context of this node.
    pub fn trecvmsg_by(
        &self,
        (ep, addr): (*mut fid_ep, fi_addr_t),
        bytes: &mut [u8],
        (tag, context): (u64, usize),
        flags: u64,
    ) -> isize {
        let iov = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
        let msg = fi_msg_tagged {
            msg_iov: &raw const iov,
            iov_count: 1,
            addr,
            tag,
            context: ctx(context),
            ..fi_msg_tagged::ZERO
        };
        // SAFETY: as in `recv`; the message is read before the call returns.
        unsafe { ((*(*ep).tagged).recvmsg)(ep, &raw const msg, flags) }
    }

    pub fn sendmsg(&self, parts: &[&[u8]], dest: fi_addr_t, context: usize, flags: u64) -> isize {
        let iov: Vec<libc::iovec> = parts
            .iter()
            .map(|part| self.lend(part))
            .map(|part| libc::iovec {
                iov_base: part.as_ptr().cast_mut().cast(),
                iov_len: part.len(),
            })
            .collect();
        let msg = fi_msg {
            msg_iov: iov.as_ptr(),
            iov_count: iov.len(),
            addr: dest,
            context: ctx(context),
            data: 0xdada,
            ..fi_msg::ZERO
        };
        // SAFETY: as in `send`; the message is read before the call returns.
        unsafe { ((*(*self.ep).msg).sendmsg)(self.ep, &raw const msg, flags) }
    }

    /// `fi_recvmsg` with `FI_MULTI_RECV`.
    pub fn recv_many(&self, bytes: &mut [u8], context: usize) -> isize {
        recv_many(self.ep, bytes, context)
    }

    pub fn inject(&self, bytes: &[u8], dest: fi_addr_t) -> isize {
        // SAFETY: the bytes are copied before the call returns.
        unsafe { ((*(*self.ep).msg).inject)(self.ep, bytes.as_ptr().cast(), bytes.len(), dest) }
    }

    pub fn cancel(&self, context: usize) -> isize {
        // SAFETY: the endpoint is open.
        unsafe { ((*(*self.ep).ops).cancel)(self.ep.cast(), ctx(context)) }
    }

    pub fn set_min_multi_recv(&self, bytes: usize) {
        set_min_multi_recv(self.ep, bytes);
    }

    fn tagged(&self) -> &'static fi_ops_tagged {
        // SAFETY: every endpoint has the table, which is a static.
        unsafe { &*(*self.ep).tagged }
    }

    /// One read of at most `count` completions.
    pub fn read(&self, count: usize) -> Result<Vec<Done>, isize> {
        self.read_from(self.cq, count)
    }

    /// The same of another queue.
    pub fn read_from(&self, cq: *mut fid_cq, count: usize) -> Result<Vec<Done>, isize> {
        let mut entries = [fi_cq_tagged_entry::ZERO; 16];
        let mut sources = [0; 16];
        let (buf, from) = (entries.as_mut_ptr().cast(), sources.as_mut_ptr());
        // SAFETY: both arrays have room for 16.
        let rc = unsafe { ((*(*cq).ops).readfrom)(cq, buf, count.min(16), from) };
        if rc < 0 {
            return Err(rc);
        }
        let done = entries.iter().zip(sources).take(rc as usize).map(|(entry, source)| Done {
            context: entry.op_context as usize,
            flags: entry.flags,
            len: entry.len,
            buf: entry.buf as usize,
            data: entry.data,
            tag: entry.tag,
            source,
        });
        Ok(done.collect())
    }

    pub fn read_error(&self) -> Bad {
        let mut entry = fi_cq_err_entry::ZERO;
        // SAFETY: a whole entry.
        let rc = unsafe { ((*(*self.cq).ops).readerr)(self.cq, &raw mut entry, 0) };
        assert_eq!(rc, 1, "an error was announced");
        Bad {
            context: entry.op_context as usize,
            flags: entry.flags,
            len: entry.len,
            olen: entry.olen,
            tag: entry.tag,
            err: entry.err,
            prov_errno: entry.prov_errno,
            err_data: entry.err_data as usize,
            err_data_size: entry.err_data_size,
            src_addr: entry.src_addr,
        }
    }

    /// The next completion of this node; `others` progress meanwhile.
    pub fn next(&self, others: &[&Node]) -> Result<Done, Bad> {
        let end = Instant::now() + patience();
        while Instant::now() < end {
            match self.read(1) {
                Ok(done) => return Ok(done[0]),
                Err(rc) if rc == -(FI_EAVAIL as isize) => return Err(self.read_error()),
                Err(rc) => assert_eq!(rc, -(FI_EAGAIN as isize)),
            }
            others.iter().for_each(|other| other.poke());
        }
        panic!("no completion within {:?}", patience());
    }

    /// Progress without reading.
    pub fn poke(&self) {
        let rc = self.read(0);
        assert_eq!(rc, Err(-(FI_EAGAIN as isize)));
    }

    /// Progress of a node whose completions nobody wants.
    pub fn poke_any(&self) {
        let _ = self.read(1);
    }

    pub fn counted(&self) -> (u64, u64) {
        // SAFETY: the counter is open.
        unsafe {
            let ops = &*(*self.cntr).ops;
            ((ops.read)(self.cntr), (ops.readerr)(self.cntr))
        }
    }

    pub fn av(&self) -> *mut fid_av {
        self.av
    }

    pub fn info(&self) -> *mut fi_info {
        self.info
    }

    pub fn domain(&self) -> *mut fid_domain {
        self.domain
    }

    /// A counter that no endpoint is bound to.
    pub fn new_cntr(&self) -> *mut fid_cntr {
        let mut attr = fi_cntr_attr { wait_obj: FI_WAIT_UNSPEC, ..fi_cntr_attr::ZERO };
        let mut cntr = null_mut();
        let open = self.domain_ops().cntr_open;
        // SAFETY: the domain is open, the attributes and the place are local.
        let rc = unsafe { open(self.domain, &raw mut attr, &raw mut cntr, null_mut()) };
        ok("cntr", rc as isize);
        cntr
    }

    pub fn domain_ops(&self) -> &'static fi_ops_domain {
        // SAFETY: the domain is open, and its table is a static.
        unsafe { &*(*self.domain).ops }
    }

    /// Closes something of this node.
    pub fn close(&self, object: *mut fid) {
        close(object);
    }

    pub fn close_cntrs(&self, cntrs: &[*mut fid_cntr]) {
        cntrs.iter().for_each(|cntr| close(cntr.cast()));
    }

    /// Closes the endpoint alone.
    pub fn close_ep(&mut self) {
        close(self.ep.cast());
        self.ep = null_mut();
    }

    pub fn trywait(&self) -> c_int {
        self.trywait_on(self.cq.cast())
    }

    pub fn trywait_on(&self, any: *mut fid) -> c_int {
        let mut fids: [*mut fid; 1] = [any];
        // SAFETY: one open object.
        unsafe { ((*(*self.fabric).ops).trywait)(self.fabric, fids.as_mut_ptr(), 1) }
    }

    pub fn wait_fd(&self) -> c_int {
        let mut fd = -1;
        let at: *mut c_int = &raw mut fd;
        // SAFETY: the argument of FI_GETWAIT is an int here.
        let rc = unsafe { ((*(*self.cq).fid.ops).control)(self.cq.cast(), FI_GETWAIT, at.cast()) };
        ok("FI_GETWAIT", rc as isize);
        fd
    }

    pub fn sread(&self, timeout_ms: c_int) -> isize {
        let mut entry = fi_cq_tagged_entry::ZERO;
        let buf = (&raw mut entry).cast();
        // SAFETY: room for one entry.
        unsafe { ((*(*self.cq).ops).sread)(self.cq, buf, 1, null(), timeout_ms) }
    }
}

pub fn bind(ep: *mut fid_ep, other: *mut fid, flags: u64) -> c_int {
    // SAFETY: the endpoint is open, and so is `other`.
    unsafe { ((*(*ep).fid.ops).bind)(ep.cast(), other, flags) }
}

pub fn enable(ep: *mut fid_ep) {
    // SAFETY: the endpoint is open.
    let rc = unsafe { ((*(*ep).fid.ops).control)(ep.cast(), FI_ENABLE, null_mut()) };
    ok("enable", rc as isize);
}

fn close(object: *mut fid) {
    if !object.is_null() {
        // SAFETY: an open object that nobody uses any more.
        let rc = unsafe { ((*(*object).ops).close)(object) };
        ok("close", rc as isize);
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // The endpoint stays open, and so does what it may read.
            std::mem::forget(self.lent.take());
            return;
        }
        close(self.ep.cast());
        close(self.cq.cast());
        close(self.cntr.cast());
        close(self.av.cast());
        close(self.domain.cast());
        close(self.fabric.cast());
        // SAFETY: the list came from `getinfo`.
        unsafe { alloc::free_list(self.info) };
    }
}

/// Two nodes that know each other.
pub struct Pair {
    pub a: Node,
    pub b: Node,
    pub a_to_b: fi_addr_t,
    pub b_to_a: fi_addr_t,
}

impl Pair {
    pub fn new(options: Options) -> Pair {
        let (a, b) = (Node::new(options), Node::new(options));
        let (a_to_b, b_to_a) = (a.knows(&b), b.knows(&a));
        Pair { a, b, a_to_b, b_to_a }
    }

    /// Lets both progress until `done`.
    pub fn until(&self, mut done: impl FnMut() -> bool) {
        let end = Instant::now() + patience();
        while !done() {
            assert!(Instant::now() < end, "not done within {:?}", patience());
            self.a.poke();
            self.b.poke();
        }
    }
}

/// `fi_recvmsg` with `FI_MULTI_RECV` at an endpoint or a shared context.
pub fn recv_many(ep: *mut fid_ep, bytes: &mut [u8], context: usize) -> isize {
    let iov = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    let msg = fi_msg {
        msg_iov: &raw const iov,
        iov_count: 1,
        addr: FI_ADDR_UNSPEC,
        context: ctx(context),
        ..fi_msg::ZERO
    };
    // SAFETY: it is open, the message local, and the buffer stays until the test ends.
    unsafe { ((*(*ep).msg).recvmsg)(ep, &raw const msg, FI_MULTI_RECV) }
}

/// Sets `FI_OPT_SHARED_MEMORY_PERMITTED` of an endpoint.
pub fn set_shared_memory(ep: *mut fid_ep, permitted: bool) -> isize {
    let (value, len) = ((&raw const permitted).cast(), size_of::<bool>());
    let option = FI_OPT_SHARED_MEMORY_PERMITTED;
    // SAFETY: it is open, and the value is as long as stated.
    let rc = unsafe { ((*(*ep).ops).setopt)(ep.cast(), FI_OPT_ENDPOINT, option, value, len) };
    rc as isize
}

/// Sets `FI_OPT_MIN_MULTI_RECV` of an endpoint or a shared context.
pub fn set_min_multi_recv(ep: *mut fid_ep, bytes: usize) {
    let (value, len) = ((&raw const bytes).cast(), size_of::<usize>());
    let option = FI_OPT_MIN_MULTI_RECV;
    // SAFETY: it is open, and the value is as long as stated.
    let rc = unsafe { ((*(*ep).ops).setopt)(ep.cast(), FI_OPT_ENDPOINT, option, value, len) };
    ok("setopt", rc as isize);
}
