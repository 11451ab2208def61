//! Our log, parameters and C memory with a real libfabric, loaded as Python loads it (RTLD_LOCAL). Without one, the
//! two tests that need it are skipped; `cargo xtask test` installs it and insists.
#![cfg(not(miri))]

use erd_ffi::fi::alloc::{Info, InfoList};
use erd_ffi::fi::nic::{Nic, NicSpec, PciAddress};
use erd_ffi::fi::{self, Provider, fi_info, fid_fabric};
use erd_ffi::guard::guarded;
use erd_ffi::host;
use erd_ffi::log::{self, Level, Subsys};
use erd_ffi::param::Param;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::process::Command;

guarded! {
    unsafe extern "C" fn getinfo(
        _version: u32,
        _node: *const c_char,
        _service: *const c_char,
        _flags: u64,
        _hints: *const fi_info,
        _info: *mut *mut fi_info,
    ) -> c_int {
        -fi::FI_ENODATA
    }

    unsafe extern "C" fn fabric(
        _attr: *mut fi::fi_fabric_attr,
        _fabric: *mut *mut fid_fabric,
        _context: *mut c_void,
    ) -> c_int {
        -fi::FI_ENOSYS
    }

    unsafe extern "C" fn cleanup() {}
}

static PROVIDER: Provider = Provider::new(
    c"erd",
    fi::fi_provider {
        version: 1,
        fi_version: fi::NEWEST_API,
        context: fi::fi_context::ZERO,
        name: std::ptr::null(),
        getinfo,
        fabric,
        cleanup,
    },
);

/// A handle of the installed libfabric; NULL without one.
fn library() -> *mut c_void {
    // SAFETY: a C string; libfabric's constructor may run anywhere.
    unsafe { libc::dlopen(c"libfabric.so.1".as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) }
}

/// Whether a libfabric is installed. With headers named in `ERD_FABRIC_INCLUDE`, the tests insist on one.
fn is_installed() -> bool {
    let (found, missing) = (!library().is_null(), "no libfabric.so.1: install libfabric1");
    let insists = std::env::var_os("ERD_FABRIC_INCLUDE").is_some();
    assert!(found || !insists, "{missing}");
    if !found {
        eprintln!("skipped: {missing}");
    }
    found
}

/// A function of the installed libfabric.
fn libfabric(name: &str) -> *mut c_void {
    let handle = library();
    assert!(!handle.is_null(), "who calls this has asked is_installed");
    let name = CString::new(name).expect("no NUL");
    // SAFETY: a valid handle and a C string.
    let function = unsafe { libc::dlsym(handle, name.as_ptr()) };
    assert!(!function.is_null(), "{name:?} not found");
    function
}

/// Makes libfabric read its configuration, as it has before it loads a provider.
fn start_libfabric() {
    type GetParams = unsafe extern "C" fn(*mut *mut c_void, *mut c_int) -> c_int;
    type FreeParams = unsafe extern "C" fn(*mut c_void);
    // SAFETY: the types of these functions; both places are ours, and the list is freed once.
    unsafe {
        let freeparams: FreeParams = std::mem::transmute(libfabric("fi_freeparams"));
        let getparams: GetParams = std::mem::transmute(libfabric("fi_getparams"));
        let (mut params, mut count) = (std::ptr::null_mut(), 0);
        assert_eq!(getparams(&raw mut params, &raw mut count), 0);
        freeparams(params);
    }
}

/// Runs one of the `#[ignore]`d functions below in a process of its own and returns what it wrote.
fn child(name: &str, environment: &[(&str, &str)]) -> String {
    let output = Command::new(std::env::current_exe().expect("a path"))
        .args(["--exact", name, "--ignored", "--nocapture"])
        .env_remove("FI_LOG_LEVEL")
        .envs(environment.iter().copied())
        .output()
        .expect("the test program runs");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{name}:\n{text}{}", String::from_utf8_lossy(&output.stdout));
    text
}

fn say_things() {
    log::emit(Level::Warn, Subsys::Cq, "queue", 7, format_args!("100%s of {}", "it\0"));
    tracing::info!(target: "erd::av", peers = 3, "inserted");
    tracing::debug!(target: "erd::av", "details");
    let span = tracing::info_span!(target: "erd::av", "span");
    span.in_scope(|| tracing::warn!(target: "erd::mr", key = 9));
}

#[test]
#[ignore = "run by libfabric_takes_messages_and_gives_parameters"]
fn with_libfabric() {
    static MTU: Param<usize> =
        Param::new(c"mtu_bytes", c"Packet size (default: 100% of the path's)");
    static PATHS: Param<c_int> = Param::new(c"paths", c"Number of paths (default: 8)");
    static CC: Param<String> = Param::new(c"cc", c"Congestion controller (default: erd)");
    static CRC: Param<bool> = Param::new(c"crc", c"Check payload (default: no)");
    start_libfabric();
    assert!(host::attach(&PROVIDER));
    assert!(log::install().is_ok());
    say_things();
    MTU.define().expect("defined");
    PATHS.define().expect("defined");
    CC.define().expect("defined");
    CRC.define().expect("defined");
    assert_eq!(MTU.get(), Ok(Some(4096)));
    assert_eq!(CC.get(), Ok(Some("nscc".to_owned())));
    assert_eq!(CRC.get(), Ok(None));
    let error = PATHS.get().expect_err("not a number");
    assert_eq!(error.to_string(), "FI_ERD_PATHS=8x: expected an integer of 32 bits");
}

#[test]
fn libfabric_takes_messages_and_gives_parameters() {
    if !is_installed() {
        return;
    }
    let parameters =
        [("FI_ERD_MTU_BYTES", "0x1000"), ("FI_ERD_PATHS", "8x"), ("FI_ERD_CC", "nscc")];
    let text = child("with_libfabric", &[&[("FI_LOG_LEVEL", "info")], &parameters[..]].concat());
    let line = |part: &str| text.lines().find(|line| line.contains(part));
    assert!(line("erd:cq:queue():7<warn> 100%s of it?").is_some(), "{text}");
    assert!(
        line("erd:av:erd::av():").is_some_and(|l| l.ends_with("<info> inserted peers=3")),
        "{text}"
    );
    assert!(line("erd:mr:erd::mr():").is_some_and(|l| l.ends_with("<warn> key=9")), "{text}");
    assert!(line("details").is_none(), "{text}");

    let text = child("with_libfabric", &parameters);
    assert!(!text.contains("erd:"), "nothing is asked for, so nothing is logged: {text}");
}

#[test]
#[ignore = "run by without_libfabric_the_environment_and_standard_error_serve"]
fn without_libfabric() {
    static MTU: Param<usize> = Param::new(c"mtu_bytes", c"Packet size");
    assert!(log::install().is_ok());
    say_things();
    MTU.define().expect("nothing to do");
    assert_eq!(MTU.get(), Ok(Some(4096)));
}

#[test]
fn without_libfabric_the_environment_and_standard_error_serve() {
    let parameters = [("FI_ERD_MTU_BYTES", "4096")];
    let text = child("without_libfabric", &[&[("FI_LOG_LEVEL", "warn")], &parameters[..]].concat());
    assert!(text.contains("cq:queue():7<warn> 100%s of it?\n"), "{text}");
    assert!(text.contains("<warn> key=9\n") && !text.contains("inserted"), "{text}");
    assert!(!child("without_libfabric", &parameters).contains("erd:"));
}

fn full_info() -> Info {
    let mut info = Info::new().expect("memory");
    info.set_caps(fi::FI_MSG | fi::FI_TAGGED);
    info.set_addr_format(fi::FI_SOCKADDR_IN);
    info.tx_mut().size = 64;
    info.rx_mut().iov_limit = 4;
    info.set_ep(&fi::fi_ep_attr { r#type: fi::FI_EP_RDM, ..fi::fi_ep_attr::ZERO });
    info.set_domain(&fi::fi_domain_attr { mr_cnt: 5, ..fi::fi_domain_attr::ZERO });
    info.set_fabric(&fi::fi_fabric_attr { prov_version: 3, ..fi::fi_fabric_attr::ZERO });
    info.set_domain_name("first").expect("memory");
    info.set_domain_name("lo\0cut").expect("memory");
    info.set_fabric_name("127.0.0.0/8").expect("memory");
    info.set_src_addr(&[1, 2, 3, 4]).expect("memory");
    info.set_dest_addr(&[5, 6]).expect("memory");
    let pci = PciAddress { domain: 1, bus: 2, device: 3, function: 4 };
    let nic = NicSpec { name: Some("lo"), pci: Some(pci), mtu_bytes: 65536, ..NicSpec::default() };
    info.set_nic(Some(Nic::new(&nic).expect("memory")));
    info
}

/// Looks at every part of a copy of `full_info`.
///
/// # Safety
///
/// `info` must be valid.
unsafe fn check_full(info: &fi_info) {
    // SAFETY: the caller's promise; addresses have the lengths just compared.
    unsafe {
        assert_eq!((info.caps, info.addr_format), (fi::FI_MSG | fi::FI_TAGGED, fi::FI_SOCKADDR_IN));
        assert_eq!(((*info.tx_attr).size, (*info.rx_attr).iov_limit), (64, 4));
        assert_eq!(((*info.ep_attr).r#type, (*info.ep_attr).auth_key_size), (fi::FI_EP_RDM, 0));
        let domain = &*info.domain_attr;
        assert_eq!((domain.mr_cnt, domain.auth_key_size), (5, 0));
        assert_eq!(CStr::from_ptr(domain.name), c"lo");
        assert_eq!((*info.fabric_attr).prov_version, 3);
        assert_eq!(CStr::from_ptr((*info.fabric_attr).name), c"127.0.0.0/8");
        assert_eq!((info.src_addrlen, info.dest_addrlen), (4, 2));
        assert_eq!(std::slice::from_raw_parts(info.src_addr.cast::<u8>(), 4), [1, 2, 3, 4]);
        let nic = &*info.nic;
        assert_eq!(CStr::from_ptr((*nic.device_attr).name), c"lo");
        assert_eq!((*nic.bus_attr).bus_type, fi::FI_BUS_PCI);
        assert_eq!(((*nic.bus_attr).attr.function_id, (*nic.link_attr).mtu), (4, 65536));
        assert!((*nic.device_attr).driver.is_null());
    }
}

#[test]
fn libfabric_copies_and_frees_our_lists() {
    if !is_installed() {
        return;
    }
    type Dup = unsafe extern "C" fn(*const fi_info) -> *mut fi_info;
    type Free = unsafe extern "C" fn(*mut fi_info);
    // SAFETY: the types of these functions.
    let (dup, free) = unsafe {
        (
            std::mem::transmute::<*mut c_void, Dup>(libfabric("fi_dupinfo")),
            std::mem::transmute::<*mut c_void, Free>(libfabric("fi_freeinfo")),
        )
    };
    let mut list = InfoList::new();
    list.push(full_info());
    list.push(full_info());
    let head = list.into_raw();
    // SAFETY: a list of ours; libfabric's copy is as it says; and each is freed once.
    unsafe {
        check_full(&*(*head).next);
        assert!((*(*head).next).next.is_null());
        let theirs = dup(head);
        check_full(&*theirs);
        free(theirs);
        check_full(&*head);
        free(head);
    }
}
