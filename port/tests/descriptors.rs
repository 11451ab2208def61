//! The information path leaves file descriptors to the application. Alone in its process, whose limit it
//! sets.
#![cfg(not(miri))]

use erd_port::info_path::{FDS_SHARE, InfoPath};
use socket2::{Domain, SockAddr, Socket, Type};
use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

/// Descriptors that this process may open.
const LIMIT: usize = 512;

#[test]
fn connections_of_strangers_leave_descriptors_to_the_application() {
    let mut to = InfoPath::new(Some((Ipv4Addr::LOCALHOST, 0).into())).unwrap();
    let dst = to.local_addr().unwrap();
    let limit = libc::rlimit { rlim_cur: LIMIT as u64, rlim_max: LIMIT as u64 };
    // SAFETY: the limit outlives the call.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }, 0);
    // From many addresses: one alone gets a part of the places.
    let from = |at: usize| SockAddr::from(SocketAddr::from(([127, 0, 1, 1 + at as u8 / 4], 0)));
    let strangers: Vec<Socket> = (0..LIMIT / 2)
        .map(|at| {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
            socket.bind(&from(at)).unwrap();
            socket.connect(&dst.into()).unwrap();
            socket
        })
        .collect();
    let deadline = Instant::now() + Duration::from_secs(10);
    let (most, all) = (LIMIT / FDS_SHARE, strangers.len() as u64);
    while to.drops().refused < all - most as u64 {
        assert!(Instant::now() < deadline, "{:?}", to.drops());
        to.recv(|_, _| false).unwrap();
    }
    let own: Vec<_> = (0..LIMIT / 8).map(|_| File::open("/dev/null")).collect();
    assert!(own.iter().all(Result::is_ok), "the application's own descriptors");
}
