//! The UDP port over loopback, both address families.
#![cfg(not(miri))]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::process::Command;
use std::time::{Duration, Instant};

use erd_port::Burst;
use erd_port::udp::{
    Dst, Ecn, MAX_DATAGRAM_BYTES, NetError, Next, Plan, PortError, PortOptions, PortRange,
    RxDatagram, RxSocket, SendReport, Stop, TxSockets, Unreachable, interfaces, is_own,
    max_payload_bytes, path_mtu_bytes, route_source,
};
use erd_sys::sysfs::Sysfs;

const V4: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const V6: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);

/// No test waits longer for what must come.
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Got {
    data: Vec<u8>,
    src: SocketAddr,
    ecn: Ecn,
}

fn pair(ip: IpAddr, options: &PortOptions) -> (TxSockets, RxSocket, Dst) {
    let rx = RxSocket::bind(SocketAddr::new(ip, 0), options).unwrap();
    let dst = Dst::from(rx.local_addr());
    (TxSockets::open(ip, options).unwrap(), rx, dst)
}

fn no_offload() -> PortOptions {
    PortOptions { gso: false, gro: false, ..PortOptions::default() }
}

/// A burst over `parts`, which it borrows.
struct Parts<'a> {
    iov: Vec<libc::iovec>,
    total_bytes: u32,
    bytes: std::marker::PhantomData<&'a [u8]>,
}

impl<'a> Parts<'a> {
    fn new(parts: &[&'a [u8]]) -> Self {
        let iovec = |part: &&[u8]| libc::iovec {
            iov_base: part.as_ptr().cast_mut().cast(),
            iov_len: part.len(),
        };
        Self {
            iov: parts.iter().map(iovec).collect(),
            total_bytes: parts.iter().map(|part| part.len() as u32).sum(),
            bytes: std::marker::PhantomData,
        }
    }

    fn burst<'b>(&'b self, dst: &'b Dst, segment_bytes: u32) -> Burst<'b> {
        Burst {
            dst,
            path: 0,
            ecn: Ecn::Ect0,
            iov: &self.iov,
            segment_bytes,
            total_bytes: self.total_bytes,
            done_segments: 0,
            may_fragment: false,
            memory: None,
        }
    }
}

fn send(tx: &TxSockets, bursts: &[Burst<'_>]) -> SendReport {
    // SAFETY: every burst here is made by `Parts`, which borrows what it points to.
    unsafe { tx.send(bursts) }
}

fn send_one(tx: &TxSockets, dst: &Dst, data: &[u8]) -> SendReport {
    send(tx, &[Parts::new(&[data]).burst(dst, data.len() as u32)])
}

fn assert_all_sent(report: SendReport, bursts: usize) {
    assert_eq!((report.bursts, report.segments, report.stop), (bursts, 0, None));
}

fn receive(rx: &mut RxSocket, count: usize) -> Vec<Got> {
    let deadline = Instant::now() + PATIENCE;
    let mut got = Vec::new();
    while got.len() < count {
        assert!(Instant::now() < deadline, "{} of {count} datagrams came", got.len());
        rx.recv(64, |datagram| {
            got.push(Got { data: datagram.data.to_vec(), src: datagram.src, ecn: datagram.ecn });
        })
        .unwrap();
    }
    got
}

fn assert_nothing_more(rx: &mut RxSocket) {
    assert_eq!(rx.recv(64, |datagram| panic!("one more: {datagram:?}")).unwrap(), 0);
}

#[test]
fn a_datagram_arrives_as_it_was_sent() {
    for ip in [V4, V6] {
        let (tx, mut rx, dst) = pair(ip, &PortOptions::default());
        assert_eq!(dst.addr(), rx.local_addr());
        assert_all_sent(send_one(&tx, &dst, b"one"), 1);
        let got = receive(&mut rx, 1);
        assert_eq!(got[0].data, b"one");
        assert_eq!(got[0].src.ip(), ip);
        assert_nothing_more(&mut rx);
    }
}

#[test]
fn header_and_payload_are_gathered() {
    for ip in [V4, V6] {
        let (tx, mut rx, dst) = pair(ip, &PortOptions::default());
        let payload = vec![7_u8; 60_000];
        let parts = Parts::new(&[b"header", &payload, b"trailer"]);
        assert_all_sent(send(&tx, &[parts.burst(&dst, parts.total_bytes)]), 1);
        let wanted = [b"header".as_slice(), &payload, b"trailer"].concat();
        assert_eq!(receive(&mut rx, 1)[0].data, wanted);
    }
}

/// 40 datagrams of 1000 bytes, the last of 600, each a header and a payload of its own.
fn forty() -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
    let headers = (0..40_u8).map(|index| vec![index; 32]).collect();
    let bytes = |index| if index == 39 { 568 } else { 968 };
    let payloads = (0..40_u8).map(|index| vec![200 - index; bytes(index)]).collect();
    (headers, payloads)
}

fn forty_datagrams() -> Vec<Vec<u8>> {
    let (headers, payloads) = forty();
    headers.into_iter().zip(payloads).map(|(header, payload)| [header, payload].concat()).collect()
}

fn send_forty(tx: &TxSockets, dst: &Dst, done_segments: u32) -> SendReport {
    let (headers, payloads) = forty();
    let parts: Vec<&[u8]> = headers
        .iter()
        .zip(&payloads)
        .flat_map(|(header, payload)| [header.as_slice(), payload.as_slice()])
        .collect();
    let parts = Parts::new(&parts);
    let burst = Burst { done_segments, ..parts.burst(dst, 1000) };
    assert_eq!(burst.segments(), 40);
    send(tx, &[burst])
}

#[test]
fn a_burst_keeps_its_boundaries_with_and_without_offload() {
    let gso_only = PortOptions { gro: false, ..PortOptions::default() };
    let gro_only = PortOptions { gso: false, ..PortOptions::default() };
    for options in [PortOptions::default(), gso_only, gro_only, no_offload()] {
        for ip in [V4, V6] {
            let (tx, mut rx, dst) = pair(ip, &options);
            assert_all_sent(send_forty(&tx, &dst, 0), 1);
            let got: Vec<_> = receive(&mut rx, 40).into_iter().map(|got| got.data).collect();
            assert_eq!(got, forty_datagrams(), "{options:?} {ip}");
            assert_nothing_more(&mut rx);
        }
    }
}

#[test]
fn a_burst_travels_in_one_piece_with_offload() {
    let (tx, mut rx, dst) = pair(V4, &PortOptions::default());
    assert!(tx.gso_max_segments() >= 64, "every kernel that erd supports has GSO");
    assert_all_sent(send_forty(&tx, &dst, 0), 1);
    let mut sizes = Vec::new();
    assert_eq!(rx.recv(1, |datagram| sizes.push(datagram.data.len())).unwrap(), 40);
    assert_eq!(sizes[..39], [1000; 39]);
    assert_eq!(sizes[39], 600);
}

#[test]
fn a_half_sent_burst_is_taken_up_where_it_stopped() {
    for options in [PortOptions::default(), no_offload()] {
        let (tx, mut rx, dst) = pair(V4, &options);
        assert_all_sent(send_forty(&tx, &dst, 15), 1);
        let got: Vec<_> = receive(&mut rx, 25).into_iter().map(|got| got.data).collect();
        assert_eq!(got, forty_datagrams()[15..]);
        assert_nothing_more(&mut rx);
    }
}

#[test]
fn a_burst_beyond_the_offload_limits_is_sent_all_the_same() {
    let (tx, mut rx, dst) = pair(V4, &PortOptions::default());
    let small = vec![1_u8; 200];
    let many = Parts::new(&[&small]);
    let large = vec![2_u8; 3 * 30_000];
    let big = Parts::new(&[&large]);
    assert_all_sent(send(&tx, &[many.burst(&dst, 1), big.burst(&dst, 30_000)]), 2);
    let got = receive(&mut rx, 203);
    assert!(got[..200].iter().all(|got| got.data == [1]));
    assert!(got[200..].iter().all(|got| got.data == large[..30_000]));
}

#[test]
fn many_bursts_arrive_in_order() {
    let (tx, mut rx, dst) = pair(V4, &PortOptions::default());
    let data: Vec<[u8; 100]> = (0..100).map(|index| [index; 100]).collect();
    let parts: Vec<_> = data.iter().map(|data| Parts::new(&[data.as_slice()])).collect();
    let bursts: Vec<_> = parts.iter().map(|parts| parts.burst(&dst, 100)).collect();
    assert_all_sent(send(&tx, &bursts), 100);
    let got: Vec<_> = receive(&mut rx, 100).into_iter().map(|got| got.data).collect();
    assert_eq!(got, data);
}

#[test]
fn marks_travel_both_ways_of_asking() {
    for ip in [V4, V6] {
        let (tx, mut rx, dst) = pair(ip, &PortOptions::default());
        for ecn in [Ecn::NotEct, Ecn::Ect0, Ecn::Ect1, Ecn::Ce] {
            let parts = Parts::new(&[b"0123", b"4567"]);
            // One datagram, and a burst of two: the mark and the segment size share a buffer.
            for segment_bytes in [8, 4] {
                let burst = Burst { ecn, ..parts.burst(&dst, segment_bytes) };
                assert_all_sent(send(&tx, &[burst]), 1);
                let got = receive(&mut rx, 8 / segment_bytes as usize);
                assert!(got.iter().all(|got| got.ecn == ecn), "{ecn:?} over {ip}: {got:?}");
            }
        }
    }
}

#[test]
fn a_port_without_ecn_sends_unmarked() {
    let (_, mut rx, dst) = pair(V4, &PortOptions::default());
    let tx = TxSockets::open(V4, &PortOptions { ecn: false, ..PortOptions::default() }).unwrap();
    let parts = Parts::new(&[b"plain"]);
    assert_all_sent(send(&tx, &[Burst { ecn: Ecn::Ce, ..parts.burst(&dst, 5) }]), 1);
    assert_eq!(receive(&mut rx, 1)[0].ecn, Ecn::NotEct);
}

#[test]
fn each_path_has_a_source_port_of_its_own() {
    let (tx, mut rx, dst) = pair(V4, &PortOptions { paths: 4, ..PortOptions::default() });
    assert_eq!(tx.fds().count(), 4);
    let parts = Parts::new(&[b"x"]);
    let bursts: Vec<_> = (0..8).map(|path| Burst { path, ..parts.burst(&dst, 1) }).collect();
    assert_all_sent(send(&tx, &bursts), 8);
    let ports: Vec<_> = receive(&mut rx, 8).into_iter().map(|got| got.src.port()).collect();
    assert_eq!(ports[..4], ports[4..], "a path keeps its port");
    let mut distinct = ports[..4].to_vec();
    distinct.sort_unstable();
    distinct.dedup();
    assert_eq!(distinct.len(), 4, "{ports:?}");
}

#[test]
fn two_threads_share_the_send_sockets() {
    let (tx, mut rx, dst) = pair(V4, &PortOptions::default());
    std::thread::scope(|scope| {
        for thread in 0..2_u8 {
            let (tx, dst) = (&tx, &dst);
            scope.spawn(move || {
                for index in 0..100_u8 {
                    assert_all_sent(send_one(tx, dst, &[thread, index]), 1);
                }
            });
        }
    });
    let mut got: Vec<_> = receive(&mut rx, 200).into_iter().map(|got| got.data).collect();
    got.sort();
    let wanted: Vec<_> =
        (0..2).flat_map(|thread| (0..100).map(move |index| vec![thread, index])).collect();
    assert_eq!(got, wanted);
}

fn dead_addr(ip: IpAddr) -> SocketAddr {
    UdpSocket::bind((ip, 0)).unwrap().local_addr().unwrap()
}

#[test]
fn a_dead_destination_does_not_hurt_a_live_one() {
    for ip in [V4, V6] {
        let (tx, mut rx, live) = pair(ip, &PortOptions::default());
        let dead = Dst::from(dead_addr(ip));
        let mut errors_pending = false;
        for round in 0..50_u8 {
            // The live one's send meets the error that the dead one has left on the socket.
            assert_all_sent(send_one(&tx, &dead, b"anyone?"), 1);
            let report = send_one(&tx, &live, &[round]);
            assert_all_sent(report, 1);
            errors_pending |= report.errors_pending;
        }
        let got: Vec<_> = receive(&mut rx, 50).into_iter().map(|got| got.data[0]).collect();
        assert_eq!(got, (0..50).collect::<Vec<_>>());
        assert!(errors_pending, "the port says that there are errors to drain");
        let mut told = 0;
        tx.drain_errors(|dst, error| {
            assert_eq!((dst, error), (dead.addr(), NetError::Unreachable(Unreachable::Port)));
            told += 1;
        });
        assert!(told > 0);
        assert_all_sent(send_one(&tx, &live, b"still here"), 1);
        assert_eq!(receive(&mut rx, 1)[0].data, b"still here");
    }
}

#[test]
fn a_datagram_above_the_limit_names_the_mtu_and_spares_the_rest() {
    let (tx, mut rx, dst) = pair(V4, &PortOptions::default());
    let data = vec![1_u8; MAX_DATAGRAM_BYTES + 1];
    let big = Parts::new(&[&data]);
    let small = Parts::new(&[b"small"]);
    let bursts = [small.burst(&dst, 5), big.burst(&dst, big.total_bytes), small.burst(&dst, 5)];
    let report = send(&tx, &bursts);
    let mtu_bytes = path_mtu_bytes(V4, dst.addr()).unwrap();
    assert_eq!((report.bursts, report.stop), (1, Some(Stop::TooBig { mtu_bytes })));
    assert_all_sent(send(&tx, &bursts[2..]), 1);
    assert_eq!(receive(&mut rx, 2).len(), 2);
    let largest = vec![2_u8; max_payload_bytes(mtu_bytes, false)];
    assert_all_sent(send_one(&tx, &dst, &largest), 1);
    assert_eq!(receive(&mut rx, 1)[0].data, largest);
}

/// Runs `f` in a network namespace of its own whose loopback has this MTU. False if this process
/// may not make one.
fn in_namespace(mtu_bytes: i32, f: impl FnOnce() + Send) -> bool {
    let body = || {
        // SAFETY: takes no pointers, and changes this thread alone, which ends with the scope.
        if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
            return false;
        }
        // SAFETY: plain system calls on a socket of ours and on requests that outlive them.
        unsafe {
            let fd = libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0);
            let mut request: libc::ifreq = std::mem::zeroed();
            request.ifr_name[..2].copy_from_slice(&[b'l' as libc::c_char, b'o' as libc::c_char]);
            request.ifr_ifru.ifru_mtu = mtu_bytes;
            assert_eq!(libc::ioctl(fd, libc::SIOCSIFMTU, &raw mut request), 0);
            request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
            assert_eq!(libc::ioctl(fd, libc::SIOCSIFFLAGS, &raw mut request), 0);
            libc::close(fd);
        }
        f();
        true
    };
    std::thread::scope(|scope| scope.spawn(body).join().unwrap())
}

#[test]
fn a_small_link_refuses_what_does_not_fit() {
    let entered = in_namespace(1500, || {
        let (tx, mut rx, dst) = pair(V4, &PortOptions::default());
        assert_eq!(path_mtu_bytes(V4, dst.addr()).unwrap(), 1500);
        let data = vec![1_u8; 6000];
        let parts = Parts::new(&[&data]);
        let too_big = Some(Stop::TooBig { mtu_bytes: 1500 });
        // In one datagram, and as a burst whose segments do not fit.
        for segment_bytes in [6000, 2000] {
            let report = send(&tx, &[parts.burst(&dst, segment_bytes)]);
            assert_eq!((report.bursts, report.segments, report.stop), (0, 0, too_big));
        }
        assert_nothing_more(&mut rx);
        // What was cut for a larger path goes out in fragments.
        let again = Burst { may_fragment: true, ..parts.burst(&dst, 6000) };
        assert_all_sent(send(&tx, &[again]), 1);
        assert_eq!(receive(&mut rx, 1)[0].data, data);
        assert_all_sent(send(&tx, &[parts.burst(&dst, 1472)]), 1);
        assert_eq!(receive(&mut rx, 5).len(), 5);
        let unreachable = Dst::from(SocketAddr::from(([192, 0, 2, 1], 9)));
        let stop = send_one(&tx, &unreachable, b"x").stop;
        assert_eq!(stop, Some(Stop::Failed { errno: libc::ENETUNREACH }));
    });
    if !entered {
        eprintln!("not run: no right to make a network namespace");
    }
}

#[test]
fn buffers_are_granted_and_told() {
    let small = PortOptions { recv_buffer_bytes: 64 << 10, ..PortOptions::default() };
    let (_, rx, _) = pair(V4, &small);
    assert!(rx.granted_recv_bytes() >= 64 << 10, "{}", rx.granted_recv_bytes());
    let (_, large, _) = pair(V4, &PortOptions::default());
    assert!(large.granted_recv_bytes() >= rx.granted_recv_bytes());
}

#[test]
fn kernel_drops_are_counted() {
    let options = PortOptions { recv_buffer_bytes: 8 << 10, ..PortOptions::default() };
    let (tx, mut rx, dst) = pair(V4, &options);
    for _ in 0..200 {
        assert_all_sent(send_one(&tx, &dst, &[0; 1000]), 1);
    }
    let mut taken = 0;
    while rx.recv(64, |_| taken += 1).unwrap() > 0 {}
    assert!(taken < 200, "the buffer holds all {taken}");
    // The counter comes with the next arrival.
    assert_all_sent(send_one(&tx, &dst, b"counter"), 1);
    receive(&mut rx, 1);
    assert_eq!(rx.kernel_drops() + taken, 200);
    assert_eq!(rx.truncated_drops(), 0);
}

#[test]
fn the_budget_bounds_a_call() {
    let (tx, mut rx, dst) = pair(V4, &no_offload());
    for _ in 0..40 {
        assert_all_sent(send_one(&tx, &dst, b"x"), 1);
    }
    let mut total = 0;
    while total < 40 {
        let taken = rx.recv(3, |_| ()).unwrap();
        assert!((1..=3).contains(&taken), "{taken}");
        total += taken;
    }
    assert_eq!(rx.recv(0, |_| panic!("no budget")).unwrap(), 0);
    assert_nothing_more(&mut rx);
}

#[test]
fn time_in_the_queue_is_told() {
    let (tx, mut rx, dst) = pair(V4, &PortOptions::default());
    // The kernel turns stamping on in the background, so the first ones may be stamped late.
    let told = (0..100).any(|_| {
        assert_all_sent(send_one(&tx, &dst, b"wait"), 1);
        std::thread::sleep(Duration::from_millis(10));
        let mut hold_ns = 0;
        assert_eq!(rx.recv(1, |datagram| hold_ns = datagram.hold_ns).unwrap(), 1);
        hold_ns >= 5_000_000
    });
    assert!(told, "a datagram that lay 10 ms in the queue says so");
    let options = PortOptions { timestamps: false, ..PortOptions::default() };
    let (tx, mut rx, dst) = pair(V4, &options);
    assert_all_sent(send_one(&tx, &dst, b"wait"), 1);
    assert_eq!(rx.recv(1, |datagram| assert_eq!(datagram.hold_ns, 0)).unwrap(), 1);
}

#[test]
fn an_empty_datagram_is_handed_on() {
    let (_, mut rx, dst) = pair(V4, &PortOptions::default());
    UdpSocket::bind((V4, 0)).unwrap().send_to(&[], dst.addr()).unwrap();
    assert_eq!(receive(&mut rx, 1)[0].data, b"");
}

#[test]
fn strangers_cannot_fill_a_send_socket() {
    let (tx, mut rx, dst) = pair(V4, &PortOptions::default());
    assert_all_sent(send_one(&tx, &dst, b"hello"), 1);
    let source = receive(&mut rx, 1)[0].src;
    let stranger = UdpSocket::bind((V4, 0)).unwrap();
    // Large ones first, then small ones for the gap that is left.
    for bytes in [1400, 1] {
        for _ in 0..1000 {
            stranger.send_to(&[0; 1400][..bytes], source).unwrap();
        }
    }
    let dead = Dst::from(dead_addr(V4));
    assert_all_sent(send_one(&tx, &dead, b"anyone?"), 1);
    let mut told = Vec::new();
    assert_eq!(tx.drain_errors(|dst, _| told.push(dst)), 1);
    assert_eq!(told, [dead.addr()]);
}

#[test]
fn options_out_of_range_are_named() {
    let options = PortOptions { paths: 0, recv_slots: 99, ..PortOptions::default() };
    let error = TxSockets::open(V4, &options).unwrap_err();
    assert_eq!(error.to_string(), "paths is 0; valid values are 1 to 256");
    let error = RxSocket::bind(SocketAddr::new(V4, 0), &options).unwrap_err();
    assert_eq!(error.to_string(), "recv_slots is 99; valid values are 1 to 32");
    let (_, rx, _) = pair(V4, &PortOptions::default());
    let error = RxSocket::bind(rx.local_addr(), &PortOptions::default()).unwrap_err();
    assert!(matches!(error, PortError::Bind { addr, .. } if addr == rx.local_addr()), "{error}");
}

#[test]
fn interfaces_and_routes_are_known() {
    let found = interfaces(&Sysfs::default());
    let lo = found.iter().find(|found| found.addr == V4).expect("127.0.0.1 is an interface's");
    assert!(lo.up && lo.loopback && lo.prefix == 8, "{lo:?}");
    let mtu_bytes = path_mtu_bytes(V4, SocketAddr::new(V4, 9)).unwrap();
    assert_eq!(mtu_bytes, lo.mtu_bytes.min(65_535), "no IP packet is longer");
    assert_eq!(route_source(SocketAddr::new(V4, 9)).unwrap(), V4);
    assert_eq!(route_source(SocketAddr::new(V6, 9)).unwrap(), V6);
    for own in &found {
        assert!(
            !own.up || is_own(SocketAddr::new(own.addr, 9)) || is_link_local(own.addr),
            "{own:?}"
        );
    }
    assert!(is_own(SocketAddr::from(([127, 4, 5, 6], 9))), "all of its network is loopback's");
    for other in ["203.0.113.77:9", "[2001:db8::77]:9"] {
        assert!(!is_own(other.parse().unwrap()), "{other}");
    }
    assert_eq!(max_payload_bytes(1500, false), 1472);
    assert_eq!(max_payload_bytes(1500, true), 1452);
    assert_eq!(max_payload_bytes(65_536, false), MAX_DATAGRAM_BYTES);
    assert_eq!(max_payload_bytes(0, true), 0);
}

/// Such an address means nothing without its interface.
fn is_link_local(addr: IpAddr) -> bool {
    matches!(addr, IpAddr::V6(v6) if v6.is_unicast_link_local())
}

/// An address is a namespace's own, the second one of a network too, and not another namespace's.
#[test]
fn own_addresses_are_those_of_this_namespace() {
    let own = |ip: &str| is_own(SocketAddr::new(ip.parse().unwrap(), 9));
    let outside = interfaces(&Sysfs::default()).into_iter().map(|found| found.addr);
    let outside: Vec<IpAddr> =
        outside.filter(|addr| !addr.is_loopback() && !is_link_local(*addr)).collect();
    let entered = in_namespace(65_536, || {
        assert!(!own("198.51.100.1"));
        for address in ["198.51.100.1/24", "198.51.100.2/24"] {
            let added = Command::new("ip").args(["address", "add", address, "dev", "lo"]).status();
            if !added.is_ok_and(|status| status.success()) {
                eprintln!("not run: no ip command");
                return;
            }
        }
        assert!(own("198.51.100.1") && own("198.51.100.2"));
        assert!(!own("198.51.101.1"));
        for addr in &outside {
            assert!(!is_own(SocketAddr::new(*addr, 9)), "{addr} is of the namespace outside");
        }
    });
    if !entered {
        eprintln!("not run: no right to make a network namespace");
    }
}

/// What `recv_planned` gave: data, whether it was placed, and what is in memory afterwards.
fn receive_planned(
    rx: &mut RxSocket,
    places: &[usize],
    expected: impl Fn(usize, &[u8]) -> bool,
) -> (Vec<Vec<u8>>, bool, Vec<u8>) {
    let mut memory = vec![0xa5_u8; places.iter().sum()];
    let mut plan = Plan::new(32);
    let mut at = std::ptr::NonNull::new(memory.as_mut_ptr()).unwrap();
    for len_bytes in places {
        assert!(plan.push(at, *len_bytes));
        // SAFETY: the places together are as long as the memory.
        at = unsafe { at.add(*len_bytes) };
    }
    let deadline = Instant::now() + PATIENCE;
    loop {
        assert!(Instant::now() < deadline, "nothing came");
        let mut got = Vec::new();
        let take = |datagram: RxDatagram<'_>| {
            got.push([datagram.data, datagram.placed.unwrap_or(&[])].concat());
        };
        // SAFETY: the places are in `memory`, which is not touched meanwhile.
        let taken = unsafe { rx.recv_planned(&plan, &expected, take) }.unwrap();
        if taken.datagrams > 0 {
            assert_eq!(taken.datagrams, got.len());
            return (got, taken.placed, memory);
        }
    }
}

fn is_head(place: usize, head: &[u8]) -> bool {
    head == [place as u8; 32]
}

#[test]
fn an_expected_payload_is_received_into_its_place() {
    for ip in [V4, V6] {
        let (tx, mut rx, dst) = pair(ip, &PortOptions::default());
        let sent = [vec![0; 32], vec![7; 60_000]].concat();
        assert_all_sent(send_one(&tx, &dst, &sent), 1);
        let (got, placed, memory) = receive_planned(&mut rx, &[60_000], is_head);
        assert!(placed);
        assert_eq!((got, memory), (vec![sent], vec![7; 60_000]));
    }
}

#[test]
fn an_expected_burst_is_received_into_its_places() {
    let (tx, mut rx, dst) = pair(V4, &PortOptions::default());
    assert_all_sent(send_forty(&tx, &dst, 0), 1);
    let (_, payloads) = forty();
    let places: Vec<usize> = payloads.iter().map(Vec::len).collect();
    let (got, placed, memory) = receive_planned(&mut rx, &places, is_head);
    assert!(placed);
    assert_eq!((got, memory), (forty_datagrams(), payloads.concat()));
}

#[test]
fn a_datagram_that_goes_on_behind_its_place_arrives_whole() {
    let (tx, mut rx, dst) = pair(V4, &PortOptions::default());
    for more_bytes in [0, 1, 8, 32, 33, 100, 132] {
        let more: Vec<u8> = (0..more_bytes).collect();
        let sent = [vec![0; 32], vec![7; 60_000], more].concat();
        assert_all_sent(send_one(&tx, &dst, &sent), 1);
        let (got, placed, _) = receive_planned(&mut rx, &[60_000, 100], is_head);
        assert_eq!((got, placed), (vec![sent], more_bytes == 0), "{more_bytes} bytes more");
    }
}

#[test]
fn a_look_ahead_tells_the_expected_and_leaves_it() {
    for ip in [V4, V6] {
        let (tx, mut rx, dst) = pair(ip, &PortOptions::default());
        let mut memory = vec![0xa5_u8; 40 * 968];
        let mut plan = Plan::new(32);
        for place in memory.chunks_exact_mut(968) {
            assert!(plan.push(std::ptr::NonNull::new(place.as_mut_ptr()).unwrap(), 968));
        }
        assert_eq!(rx.look_ahead(&plan, |_| true).unwrap(), Next::Nothing);
        let heads = [vec![0; 32], vec![1; 32]];
        let arrivals = [(&heads[0], 968), (&heads[1], 968), (&heads[0], 967), (&heads[0], 2967)];
        for (head, bytes) in arrivals {
            assert_all_sent(send_one(&tx, &dst, &[head.clone(), vec![7; bytes]].concat()), 1);
        }
        assert_all_sent(send_one(&tx, &dst, &[0; 31]), 1);
        for (at, bytes) in [1000, 1000, 999, 2999, 31].into_iter().enumerate() {
            let deadline = Instant::now() + PATIENCE;
            let mut look = |wanted| loop {
                match rx.look_ahead(&plan, |head| wanted && head == [0; 32]).unwrap() {
                    Next::Nothing => assert!(Instant::now() < deadline, "nothing came"),
                    next => return next,
                }
            };
            let next = if at == 0 { Next::Planned { bytes } } else { Next::Other { bytes } };
            assert_eq!((look(true), look(false)), (next, Next::Other { bytes }));
            let mut taken = 0;
            assert_eq!(rx.recv(1, |datagram| taken = datagram.data.len()).unwrap(), 1);
            assert_eq!(taken, bytes, "it was still there");
        }
        assert_eq!(memory, vec![0xa5; 40 * 968]);
    }
}

#[test]
fn what_was_not_expected_arrives_whole() {
    let (tx, mut rx, dst) = pair(V4, &PortOptions::default());
    let long: Vec<u8> = (0..5000_u32).map(|at| at as u8).collect();
    let stranger = UdpSocket::bind((V4, 0)).unwrap();
    for bytes in [0, 5, 32, 33, 1000, 4032, 5000] {
        stranger.send_to(&long[..bytes], rx.local_addr()).unwrap();
        let (got, placed, _) = receive_planned(&mut rx, &[1000, 3000], |_, _| true);
        assert!(!placed, "{bytes} bytes are no planned arrival");
        assert_eq!(got, [&long[..bytes]]);
    }
    // As long as planned, but another one.
    assert_all_sent(send_one(&tx, &dst, &long[..1032]), 1);
    let (got, placed, _) = receive_planned(&mut rx, &[1000], |_, _| false);
    assert_eq!((got, placed), (vec![long[..1032].to_vec()], false));
}

#[test]
fn a_burst_in_which_one_is_not_expected_arrives_whole() {
    let (tx, mut rx, dst) = pair(V4, &PortOptions::default());
    let (_, payloads) = forty();
    let lengths: Vec<usize> = payloads.iter().map(Vec::len).collect();
    let twenty_is_another = |place: usize, head: &[u8]| place != 20 && is_head(place, head);
    let other_lengths = vec![900; 40];
    for (places, expected) in [
        (&lengths, &twenty_is_another as &dyn Fn(usize, &[u8]) -> bool),
        (&other_lengths, &is_head),
        (&lengths[..39].to_vec(), &is_head),
    ] {
        assert_all_sent(send_forty(&tx, &dst, 0), 1);
        let (got, placed, _) = receive_planned(&mut rx, places, expected);
        assert_eq!((got, placed), (forty_datagrams(), false));
    }
}

#[test]
fn a_plan_has_room_for_one_arrival() {
    let mut plan = Plan::new(32);
    let mut memory = vec![0_u8; 70_000];
    let at = std::ptr::NonNull::new(memory.as_mut_ptr()).unwrap();
    assert!(!plan.push(at, 65_600));
    assert!(plan.is_empty());
    assert!(plan.push(at, 60_000));
    assert!(!plan.push(at, 6_000));
    plan.clear();
    let pushed = (0..1000).take_while(|_| plan.push(at, 100)).count();
    assert_eq!(pushed, 128);
}

/// The TOS bytes of the next `count` datagrams.
fn classes(socket: &UdpSocket, count: usize) -> Vec<u8> {
    let next = || {
        let (mut data, mut control) = ([0_u8; 64], [0_u64; 8]);
        let mut part = libc::iovec { iov_base: data.as_mut_ptr().cast(), iov_len: data.len() };
        // SAFETY: integers and pointers, for which zero is a valid value.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        (message.msg_iov, message.msg_iovlen) = (&raw mut part, 1);
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = size_of_val(&control);
        // SAFETY: the buffers outlive the call, and are as long as the message says; the kernel writes a byte of this
        // type after the header.
        unsafe {
            assert!(libc::recvmsg(socket.as_raw_fd(), &raw mut message, 0) > 0, "an arrival");
            let header = libc::CMSG_FIRSTHDR(&raw const message);
            assert_eq!(
                ((*header).cmsg_level, (*header).cmsg_type),
                (libc::IPPROTO_IP, libc::IP_TOS)
            );
            libc::CMSG_DATA(header).read()
        }
    };
    (0..count).map(|_| next()).collect()
}

#[test]
fn packets_have_the_class_asked_for_and_their_own_mark() {
    let to = UdpSocket::bind((V4, 0)).unwrap();
    to.set_read_timeout(Some(PATIENCE)).unwrap();
    let on = 1_i32;
    // SAFETY: an int of the stated size.
    let rc = unsafe {
        let bytes = size_of::<i32>() as libc::socklen_t;
        let value = (&raw const on).cast();
        libc::setsockopt(to.as_raw_fd(), libc::IPPROTO_IP, libc::IP_RECVTOS, value, bytes)
    };
    assert_eq!(rc, 0);
    let dst = Dst::from(to.local_addr().unwrap());
    for (dscp, ecn, seen) in
        [(46, true, [0xba, 0xb8]), (46, false, [0xb8, 0xb8]), (0, true, [2, 0])]
    {
        let tx = TxSockets::open(V4, &PortOptions { dscp, ecn, ..no_offload() }).unwrap();
        for mark in [Ecn::Ect0, Ecn::NotEct] {
            let parts = Parts::new(&[b"of a class"]);
            let burst = Burst { ecn: mark, ..parts.burst(&dst, 10) };
            assert_all_sent(send(&tx, &[burst]), 1);
        }
        assert_eq!(classes(&to, 2), seen, "DSCP {dscp}, ECN {ecn}");
    }
}

#[test]
fn sockets_take_the_ports_of_a_range_and_no_others() {
    // Another process may take some of these at any moment: as many tries as there are ranges.
    let bound = (0..16).find_map(|nth| {
        let first = 21_000 + nth * 8;
        let ports = Some(PortRange::parse(&format!("{first}-{}", first + 3)).unwrap());
        let options = PortOptions { ports, ..no_offload() };
        let bind = |_| RxSocket::bind(SocketAddr::new(V4, 0), &options).ok();
        let all: Vec<RxSocket> = (0..4).map_while(bind).collect();
        (all.len() == 4).then_some((first, options, all))
    });
    let (first, options, all) = bound.expect("four free ports in a row");
    let mut taken: Vec<u16> = all.iter().map(|rx| rx.local_addr().port()).collect();
    taken.sort_unstable();
    assert_eq!(taken, (first..first + 4).collect::<Vec<_>>());
    let more = RxSocket::bind(SocketAddr::new(V4, 0), &options);
    assert!(matches!(more, Err(PortError::Bind { .. })), "the range is taken");
    let chosen = RxSocket::bind(SocketAddr::new(V4, first + 4), &options).unwrap();
    assert_eq!(chosen.local_addr().port(), first + 4, "who names a port gets it");
    drop(all);
    assert!(TxSockets::open(V4, &PortOptions { paths: 4, ..options }).is_ok());
}

/// A child that was forked while the sockets were open lives on.
#[test]
fn a_port_is_free_again_though_a_forked_child_lives() {
    let free = PortOptions::default();
    let (tx, rx, _) = pair(V4, &free);
    let ends: Vec<SocketAddr> = tx.fds().map(local_of).chain([rx.local_addr()]).collect();
    // SAFETY: the child makes system calls alone, and is ended below.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: ends the child without touching what it shares with the parent.
        unsafe {
            libc::sleep(60);
            libc::_exit(0);
        }
    }
    drop((tx, rx));
    // A program that another test starts has copies until it runs.
    let end = Instant::now() + PATIENCE;
    for addr in &ends {
        while UdpSocket::bind(addr).is_err() {
            assert!(Instant::now() < end, "{addr} is taken");
        }
    }
    let mut status = 0;
    // SAFETY: ends our child, and waits for it; the status outlives the call.
    unsafe {
        assert_eq!(libc::waitpid(child, &raw mut status, libc::WNOHANG), 0, "the child lives");
        libc::kill(child, libc::SIGKILL);
        libc::waitpid(child, &raw mut status, 0);
    }
}

fn local_of(fd: std::os::fd::BorrowedFd<'_>) -> SocketAddr {
    socket2::SockRef::from(&fd).local_addr().unwrap().as_socket().unwrap()
}
