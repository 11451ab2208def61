//! The control plane as an application sees it, through the tables of operations: `fi_getinfo`,
//! fabrics, domains, address vectors, event queues, memory registration. On loopback only.

use erd_ffi::fi::*;
use std::ffi::{CStr, CString, c_int, c_void};
use std::net::SocketAddr;
use std::ptr::{null, null_mut};

/// API version of the applications played here.
const API: u32 = fi_version(1, 21);

/// An object that is closed when the test is done with it.
struct Open<T>(*mut T);

impl<T> Open<T> {
    fn fid(&self) -> *mut fid {
        self.0.cast()
    }

    fn close(&self) -> c_int {
        let fid = self.fid();
        // SAFETY: the object is open; its table is the provider's.
        unsafe { ((*(*fid).ops).close)(fid) }
    }

    fn bind<U>(&self, other: &Open<U>, flags: u64) -> c_int {
        let fid = self.fid();
        // SAFETY: both objects are open.
        unsafe { ((*(*fid).ops).bind)(fid, other.fid(), flags) }
    }

    fn control(&self, command: c_int, arg: *mut c_void) -> c_int {
        let fid = self.fid();
        // SAFETY: the object is open; each test passes what the command takes.
        unsafe { ((*(*fid).ops).control)(fid, command, arg) }
    }
}

/// A list of `fi_getinfo`.
struct Infos(*mut fi_info);

impl Drop for Infos {
    fn drop(&mut self) {
        // SAFETY: the provider made the list.
        unsafe { alloc::free_list(self.0) };
    }
}

impl Infos {
    fn iter(&self) -> impl Iterator<Item = &fi_info> {
        // SAFETY: the list is valid as long as `self`, and ends with NULL.
        let at = |info: *mut fi_info| unsafe { info.as_ref() };
        std::iter::successors(at(self.0), move |info| at(info.next))
    }
}

fn provider() -> fi_provider {
    // SAFETY: `start` answers a static description.
    unsafe { *crate::entry::start() }
}

fn getinfo(
    version: u32,
    node: Option<&str>,
    service: Option<&str>,
    flags: u64,
) -> Result<Infos, c_int> {
    let text = |text: Option<&str>| text.map(|text| CString::new(text).expect("no NUL"));
    let (node, service) = (text(node), text(service));
    let at = |text: &Option<CString>| text.as_ref().map_or(null(), |text| text.as_ptr());
    let mut list = null_mut();
    // SAFETY: strings live through the call, hints may be NULL.
    let rc = unsafe {
        (provider().getinfo)(version, at(&node), at(&service), flags, null(), &raw mut list)
    };
    if rc == 0 { Ok(Infos(list)) } else { Err(rc) }
}

/// A domain on 127.0.0.1, with `mr_mode` as the application set it.
struct Loopback {
    domain: Open<fid_domain>,
    fabric: Open<fid_fabric>,
    _infos: Infos,
}

impl Loopback {
    fn open(mr_mode: c_int) -> Loopback {
        let infos = getinfo(API, Some("127.0.0.1"), None, FI_SOURCE).expect("loopback");
        let (mut fabric, mut domain) = (null_mut(), null_mut());
        // SAFETY: the list is the provider's; attributes are there.
        unsafe {
            let info = infos.0;
            (*(*info).fabric_attr).api_version = API;
            (*(*info).domain_attr).mr_mode = mr_mode;
            let rc = (provider().fabric)((*info).fabric_attr, &raw mut fabric, null_mut());
            assert_eq!(rc, 0);
            let open = (*(*fabric).ops).domain;
            assert_eq!(open(fabric, info, &raw mut domain, null_mut()), 0);
        }
        Loopback { domain: Open(domain), fabric: Open(fabric), _infos: infos }
    }

    fn eq(&self, attr: fi_eq_attr) -> Result<Open<fid_eq>, c_int> {
        let (mut attr, mut eq, fabric) = (attr, null_mut(), self.fabric.0);
        // SAFETY: the fabric is open.
        let rc =
            unsafe { ((*(*fabric).ops).eq_open)(fabric, &raw mut attr, &raw mut eq, null_mut()) };
        if rc == 0 { Ok(Open(eq)) } else { Err(rc) }
    }

    fn av(&self, flags: u64) -> Open<fid_av> {
        let mut attr = fi_av_attr { flags, ..fi_av_attr::ZERO };
        let (mut av, domain) = (null_mut(), self.domain.0);
        // SAFETY: the domain is open.
        let rc =
            unsafe { ((*(*domain).ops).av_open)(domain, &raw mut attr, &raw mut av, null_mut()) };
        assert_eq!((rc, attr.r#type), (0, FI_AV_TABLE));
        Open(av)
    }

    fn register(&self, memory: &[u8], access: u64, key: u64) -> Result<Open<fid_mr>, c_int> {
        let (mut mr, domain) = (null_mut(), self.domain.0);
        let (buf, len, mr_at) = (memory.as_ptr().cast(), memory.len(), &raw mut mr);
        // SAFETY: the domain is open.
        let rc = unsafe {
            let reg = (*(*domain).mr).reg;
            reg(domain.cast(), buf, len, access, 0, key, 0, mr_at, null_mut())
        };
        if rc == 0 { Ok(Open(mr)) } else { Err(rc) }
    }

    fn close(self) {
        assert_eq!((self.domain.close(), self.fabric.close()), (0, 0));
    }
}

impl Open<fid_av> {
    fn insert(
        &self,
        addrs: &[&str],
        fi_addr: &mut [u64],
        flags: u64,
        context: *mut c_void,
    ) -> c_int {
        let mut bytes = Vec::new();
        for text in addrs {
            let mut place = [0; 16];
            if let Ok(addr) = text.parse::<SocketAddr>() {
                let encoded = erd_core::sockaddr::encode(addr);
                place.copy_from_slice(&encoded.as_bytes()[..16]);
            }
            bytes.extend(place);
        }
        let (av, out) = (self.0, fi_addr.as_mut_ptr());
        // SAFETY: the AV is open; the arrays have as many places as are said.
        unsafe {
            ((*(*av).ops).insert)(av, bytes.as_ptr().cast(), addrs.len(), out, flags, context)
        }
    }

    fn remove(&self, fi_addr: u64) -> c_int {
        let (av, mut fi_addr) = (self.0, fi_addr);
        // SAFETY: the AV is open, the array has one place.
        unsafe { ((*(*av).ops).remove)(av, &raw mut fi_addr, 1, 0) }
    }

    fn lookup(&self, fi_addr: u64) -> Result<SocketAddr, c_int> {
        let (av, mut place, mut len) = (self.0, [0_u8; 28], 28);
        // SAFETY: the AV is open, the buffer as long as said.
        let rc =
            unsafe { ((*(*av).ops).lookup)(av, fi_addr, place.as_mut_ptr().cast(), &raw mut len) };
        if rc == 0 {
            Ok(erd_core::sockaddr::decode(&place[..len]).expect("address"))
        } else {
            Err(rc)
        }
    }
}

impl Open<fid_eq> {
    fn read(&self) -> Result<(u32, fi_eq_entry), isize> {
        let (eq, mut kind, mut entry) = (self.0, 0, fi_eq_entry::ZERO);
        let (out, room) = ((&raw mut entry).cast(), size_of_val(&entry));
        // SAFETY: the queue is open, the buffer as long as said.
        let got = unsafe { ((*(*eq).ops).read)(eq, &raw mut kind, out, room, 0) };
        if got == room as isize { Ok((kind, entry)) } else { Err(got) }
    }

    fn read_error(&self) -> Result<fi_eq_err_entry, isize> {
        let (eq, mut entry) = (self.0, fi_eq_err_entry::ZERO);
        // SAFETY: the queue is open.
        let got = unsafe { ((*(*eq).ops).readerr)(eq, &raw mut entry, 0) };
        if got > 0 { Ok(entry) } else { Err(got) }
    }

    fn write(&self, kind: u32) -> isize {
        let (eq, entry) = (self.0, fi_eq_entry::ZERO);
        let (from, len) = ((&raw const entry).cast(), size_of_val(&entry));
        // SAFETY: the queue is open, the event as long as said.
        unsafe { ((*(*eq).ops).write)(eq, kind, from, len, 0) }
    }
}

fn refused<T>(result: Result<T, c_int>) -> c_int {
    result.err().map_or(0, |rc| -rc)
}

#[test]
fn every_info_names_its_interface_and_loopback_comes_last() {
    // Version 0 is what MPICH asks with.
    for version in [0, fi_version(1, 5), API, NEWEST_API] {
        let infos = getinfo(version, None, None, 0).expect("infos");
        let mut seen_loopback = false;
        for info in infos.iter() {
            // SAFETY: the provider fills all attributes.
            let (name, domain, fabric) = unsafe {
                let name = erd_core::sockaddr::read(info.src_addr, info.src_addrlen);
                (name, &*info.domain_attr, &*info.fabric_attr)
            };
            let name = name.expect("source address").expect("source address");
            assert!(name.port() == 0 && info.dest_addr.is_null());
            assert!(name.ip().is_loopback() || !seen_loopback, "{name} after loopback");
            seen_loopback |= name.ip().is_loopback();
            assert!(!domain.name.is_null() && !fabric.name.is_null());
            assert!(fabric.prov_name.is_null(), "the core sets the provider's name");
            assert_eq!(domain.mr_mode == FI_MR_SCALABLE, version < fi_version(1, 5));
        }
        assert!(seen_loopback);
    }
}

#[test]
fn a_peer_is_given_back_with_the_address_to_reach_it_from() {
    let infos = getinfo(API, Some("127.0.0.1"), Some("9228"), FI_NUMERICHOST).expect("infos");
    let all: Vec<_> = infos.iter().collect();
    assert_eq!(all.len(), 1);
    // SAFETY: addresses are as long as said.
    let (src, dest) = unsafe {
        (
            erd_core::sockaddr::read(all[0].src_addr, all[0].src_addrlen),
            erd_core::sockaddr::read(all[0].dest_addr, all[0].dest_addrlen),
        )
    };
    assert_eq!(src, Ok("127.0.0.1:0".parse().ok()));
    assert_eq!(dest, Ok("127.0.0.1:9228".parse().ok()));
    assert_eq!(all[0].addr_format, FI_SOCKADDR_IN);
    assert_eq!(getinfo(API, None, None, FI_SOURCE).err(), Some(-FI_EINVAL));
}

#[test]
fn objects_in_use_are_not_closed() {
    let net = Loopback::open(0);
    let eq = net.eq(fi_eq_attr::ZERO).expect("queue");
    let av = net.av(FI_EVENT);
    assert_eq!(av.bind(&eq, 0), 0);
    assert_eq!(av.bind(&eq, 0), -FI_EALREADY);
    assert_eq!(net.fabric.close(), -FI_EBUSY);
    assert_eq!(net.domain.close(), -FI_EBUSY);
    assert_eq!(eq.close(), -FI_EBUSY);
    assert_eq!((av.close(), eq.close()), (0, 0));
    assert_eq!(net.domain.bind(&net.fabric, 0), -FI_EINVAL);
    net.close();
}

#[test]
fn addresses_are_inserted_in_order_and_bad_ones_told_apart() {
    let net = Loopback::open(0);
    let av = net.av(0);
    let mut places = [0; 5];
    let mut errors = [-1; 5];
    let addrs = ["127.0.0.1:7", "", "0.0.0.0:7", "127.0.0.1:0", "127.0.0.2:7"];
    let rc = av.insert(&addrs, &mut places, FI_SYNC_ERR, errors.as_mut_ptr().cast());
    assert_eq!(rc, 2);
    assert_eq!(places, [0, FI_ADDR_NOTAVAIL, FI_ADDR_NOTAVAIL, FI_ADDR_NOTAVAIL, 1]);
    assert_eq!(errors, [0, FI_EINVAL, FI_EADDRNOTAVAIL, FI_EADDRNOTAVAIL, 0]);
    assert_eq!(av.lookup(1), Ok("127.0.0.2:7".parse().expect("address")));
    assert_eq!(av.lookup(2), Err(-FI_EINVAL));
    assert_eq!(av.insert(&[""], &mut places, FI_SYNC_ERR, null_mut()), -FI_EINVAL);
    assert_eq!(av.insert(&[""], &mut places, FI_READ, null_mut()), -FI_EBADFLAGS);
    assert_eq!(av.close(), 0);
    net.close();
}

#[test]
fn an_address_inserted_twice_is_removed_twice() {
    let net = Loopback::open(0);
    let av = net.av(0);
    let mut places = [9; 2];
    assert_eq!(av.insert(&["127.0.0.1:7", "127.0.0.1:7"], &mut places, 0, null_mut()), 2);
    assert_eq!(places, [0, 0]);
    assert_eq!(av.remove(0), 0);
    assert!(av.lookup(0).is_ok());
    assert_eq!(av.remove(0), 0);
    assert_eq!((av.remove(0), av.lookup(0)), (-FI_EINVAL, Err(-FI_EINVAL)));
    assert_eq!(av.insert(&["127.0.0.3:7"], &mut places, 0, null_mut()), 1);
    assert_eq!(places[0], 0);
    assert_eq!(av.close(), 0);
    net.close();
}

#[test]
fn runs_of_names_are_inserted_and_addresses_shown_as_text() {
    let net = Loopback::open(0);
    let av = net.av(0);
    let mut places = [9; 4];
    let ops = av.0;
    // SAFETY: the AV is open, the array has 2 x 2 places.
    let rc = unsafe {
        let insertsym = (*(*ops).ops).insertsym;
        let (node, service) = (c"127.0.0.1".as_ptr(), c"9000".as_ptr());
        insertsym(av.0, node, 2, service, 2, places.as_mut_ptr(), 0, null_mut())
    };
    assert_eq!((rc, places), (4, [0, 1, 2, 3]));
    assert_eq!(av.lookup(3), Ok("127.0.0.2:9001".parse().expect("address")));
    let addr = erd_core::sockaddr::encode("127.0.0.2:9001".parse().expect("address"));
    let (mut text, mut len) = ([1; 64], 64);
    // SAFETY: the AV is open, the buffer as long as said, and the answer a C string.
    let shown = unsafe {
        let straddr = (*(*ops).ops).straddr;
        let addr = addr.as_bytes().as_ptr().cast();
        CStr::from_ptr(straddr(av.0, addr, text.as_mut_ptr(), &raw mut len))
    };
    assert_eq!(shown, c"fi_sockaddr_in://127.0.0.2:9001");
    assert_eq!(len, shown.to_bytes_with_nul().len());
    assert_eq!(av.close(), 0);
    net.close();
}

#[test]
fn asynchronous_insertion_reports_failures_first() {
    let net = Loopback::open(0);
    let eq = net.eq(fi_eq_attr { wait_obj: FI_WAIT_FD, ..fi_eq_attr::ZERO }).expect("queue");
    let av = net.av(FI_EVENT);
    let (mut places, mut context) = ([7; 3], 0);
    let at = (&raw mut context).cast();
    let addrs = ["127.0.0.1:7", "0.0.0.0:1", "127.0.0.2:7"];
    assert_eq!(av.insert(&addrs, &mut places, 0, at), -FI_ENOEQ);
    assert_eq!(av.bind(&eq, 0), 0);
    assert_eq!(av.insert(&addrs, &mut places, 0, at), 0);
    assert_eq!(places, [0, FI_ADDR_NOTAVAIL, 1]);
    assert_eq!(eq.read().err(), Some(-(FI_EAVAIL as isize)));
    let error = eq.read_error().expect("failure");
    assert_eq!((error.data, error.err, error.context), (1, FI_EADDRNOTAVAIL, at));
    assert_eq!(eq.read_error().err(), Some(-(FI_EAGAIN as isize)));
    let (kind, done) = eq.read().expect("completion");
    assert_eq!((kind, done.data, done.context, done.fid), (FI_AV_COMPLETE, 2, at, av.fid()));
    assert_eq!(eq.read().err(), Some(-(FI_EAGAIN as isize)));
    assert_eq!((av.close(), eq.close()), (0, 0));
    net.close();
}

#[test]
fn a_full_event_queue_refuses_and_an_insertion_then_does_nothing() {
    let net = Loopback::open(0);
    let eq = net.eq(fi_eq_attr { flags: FI_WRITE, size: 2000, ..fi_eq_attr::ZERO });
    let eq = eq.expect("queue");
    let av = net.av(FI_EVENT);
    assert_eq!(av.bind(&eq, 0), 0);
    let written = (0..1 << 20).take_while(|_| eq.write(FI_NOTIFY) > 0).count();
    assert_eq!(written, 2000);
    let mut places = [7];
    assert_eq!(av.insert(&["127.0.0.1:7"], &mut places, 0, null_mut()), -FI_EAGAIN);
    assert_eq!(av.lookup(0), Err(-FI_EINVAL));
    assert!(eq.read().is_ok());
    assert_eq!(av.insert(&["127.0.0.1:7"], &mut places, 0, null_mut()), 0);
    assert!(av.lookup(0).is_ok());
    assert_eq!((av.close(), eq.close()), (0, 0));
    assert_eq!(refused(net.eq(fi_eq_attr { size: 1 << 17, ..fi_eq_attr::ZERO })), FI_EINVAL);
    let unwritable = net.eq(fi_eq_attr::ZERO).expect("queue");
    assert_eq!(unwritable.write(FI_NOTIFY), -(FI_EINVAL as isize));
    assert_eq!(unwritable.close(), 0);
    net.close();
}

fn key(mr: &Open<fid_mr>) -> u64 {
    // SAFETY: the registration is open.
    unsafe { (*mr.0).key }
}

#[test]
fn keys_are_the_applications_own_unless_the_provider_gives_them() {
    let memory = [0; 64];
    let net = Loopback::open(0);
    let mr = net.register(&memory, FI_REMOTE_WRITE, 5).expect("registration");
    assert_eq!(key(&mr), 5);
    assert_eq!(refused(net.register(&memory, FI_REMOTE_READ, 5)), FI_ENOKEY);
    let local = net.register(&memory, FI_SEND | FI_RECV, 5).expect("local use needs no key");
    assert_eq!(key(&local), FI_KEY_NOTAVAIL);
    assert_eq!(net.domain.close(), -FI_EBUSY);
    assert_eq!((mr.close(), local.close()), (0, 0));
    let again = net.register(&memory, FI_REMOTE_READ, 5).expect("the key is free again");
    assert_eq!(again.close(), 0);
    net.close();

    let net = Loopback::open(FI_MR_PROV_KEY | FI_MR_VIRT_ADDR);
    let all = [5, 5].map(|asked| net.register(&memory, FI_REMOTE_READ, asked).expect("key"));
    assert!(key(&all[0]) != key(&all[1]) && key(&all[0]) != 5);
    all.iter().for_each(|mr| assert_eq!(mr.close(), 0));
    net.close();
}

#[test]
fn a_registration_bound_to_an_endpoint_gets_its_key_when_enabled() {
    let memory = [0; 64];
    let net = Loopback::open(FI_MR_ENDPOINT);
    let mr = net.register(&memory, FI_REMOTE_READ, 9).expect("registration");
    assert_eq!(key(&mr), FI_KEY_NOTAVAIL);
    assert_eq!(mr.control(FI_ENABLE, null_mut()), 0);
    assert_eq!(key(&mr), 9);
    assert_eq!(mr.control(FI_ENABLE, null_mut()), -FI_EOPBADSTATE);
    assert_eq!(mr.close(), 0);
    net.close();
}

#[test]
fn a_raw_key_becomes_the_key_again() {
    let memory = [0; 64];
    let net = Loopback::open(FI_MR_VIRT_ADDR);
    let mr = net.register(&memory, FI_REMOTE_READ, 77).expect("registration");
    let (mut base, mut raw, mut size) = (0, [0_u8; 8], 4);
    let mut attr = fi_mr_raw_attr {
        flags: 0,
        base_addr: &raw mut base,
        raw_key: raw.as_mut_ptr(),
        key_size: &raw mut size,
    };
    let ask = (&raw mut attr).cast();
    assert_eq!(mr.control(FI_GET_RAW_MR, ask), -FI_ETOOSMALL);
    assert_eq!(mr.control(FI_GET_RAW_MR, ask), 0, "the size needed was told");
    assert_eq!(base, memory.as_ptr() as u64);
    let mut mapped = 0;
    let mut map = fi_mr_map_raw {
        raw_key: raw.as_mut_ptr(),
        key_size: size,
        key: &raw mut mapped,
        ..fi_mr_map_raw::ZERO
    };
    assert_eq!(net.domain.control(FI_MAP_RAW_MR, (&raw mut map).cast()), 0);
    assert_eq!(mapped, 77);
    assert_eq!(mr.close(), 0);
    net.close();
}

#[test]
fn a_forked_child_leaves_its_parents_objects_alone() {
    let net = Loopback::open(0);
    let eq = net.eq(fi_eq_attr { wait_obj: FI_WAIT_FD, flags: FI_WRITE, ..fi_eq_attr::ZERO });
    let eq = eq.expect("queue");
    // SAFETY: the child only closes and exits.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let closed = eq.close();
        // SAFETY: leaves without running the test harness's own clean-up.
        unsafe { libc::_exit(closed) };
    }
    let mut status = -1;
    // SAFETY: waits for the child made above.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0, "closing answers success in the child");
    assert!(eq.write(FI_NOTIFY) > 0);
    let mut fd = libc::pollfd { fd: -1, events: libc::POLLIN, revents: 0 };
    assert_eq!(eq.control(FI_GETWAIT, (&raw mut fd.fd).cast()), 0);
    // SAFETY: one pollfd.
    assert_eq!(unsafe { libc::poll(&raw mut fd, 1, 0) }, 1, "the parent still hears of events");
    assert_eq!(eq.close(), 0);
    net.close();
}

#[test]
fn an_authorization_key_is_refused_where_it_would_not_count() {
    let at = Loopback::open(0);
    let (info, fabric, domain) = (at._infos.0, at.fabric.0, at.domain.0);
    let (mut none, mut ep, mut mr) = (null_mut(), null_mut(), null_mut());
    let memory = [0_u8; 8];
    let iov = libc::iovec { iov_base: memory.as_ptr().cast_mut().cast(), iov_len: 8 };
    let mut attr = fi_mr_attr { access: FI_REMOTE_READ, iov_count: 1, ..fi_mr_attr::ZERO };
    (attr.mr_iov, attr.auth_key_size) = (&raw const iov, 32);
    // SAFETY: the list is the provider's, fabric and domain are open, and the registration ends before the memory.
    unsafe {
        let (domain_attr, ep_attr) = ((*info).domain_attr, (*info).ep_attr);
        let mut key = [1_u8; 32];
        let at = key.as_mut_ptr();
        for (at, size) in [(null_mut(), 32), (at, 31), (at, FI_AV_AUTH_KEY)] {
            ((*domain_attr).auth_key, (*domain_attr).auth_key_size) = (at, size);
            let opened = ((*(*fabric).ops).domain)(fabric, info, &raw mut none, null_mut());
            assert_eq!(opened, -FI_EINVAL, "{size} bytes");
        }
        ((*domain_attr).auth_key, (*domain_attr).auth_key_size) = (null_mut(), 0);
        let ops = (*domain).ops;
        (*ep_attr).auth_key_size = 32;
        assert_eq!(((*ops).endpoint)(domain, info, &raw mut ep, null_mut()), -FI_EINVAL);
        assert_eq!(((*ops).scalable_ep)(domain, info, &raw mut ep, null_mut()), -FI_EINVAL);
        (*ep_attr).auth_key_size = 0;
        let regattr = (*(*domain).mr).regattr;
        assert_eq!(regattr(domain.cast(), &raw const attr, 0, &raw mut mr), -FI_EINVAL);
        attr.auth_key_size = 0;
        assert_eq!(regattr(domain.cast(), &raw const attr, FI_AUTH_KEY, &raw mut mr), -FI_EINVAL);
        assert_eq!(regattr(domain.cast(), &raw const attr, 0, &raw mut mr), 0);
    }
    assert_eq!(Open(mr).close(), 0);
    at.close();
}
