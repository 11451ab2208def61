//! The information path leaves file descriptors to the application. Alone in its process, whose limit it
//! sets.
#![cfg(not(miri))]

use erd_port::info_path::{FDS_SHARE, InfoPath};
use std::fs::File;
use std::net::{Ipv4Addr, TcpStream};
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
    let strangers: Vec<TcpStream> =
        (0..LIMIT / 2).map(|_| TcpStream::connect(dst).unwrap()).collect();
    let deadline = Instant::now() + Duration::from_secs(10);
    let (most, all) = (LIMIT / FDS_SHARE, strangers.len() as u64);
    while to.drops().refused < all - most as u64 {
        assert!(Instant::now() < deadline, "{:?}", to.drops());
        to.recv(|_, _| false).unwrap();
    }
    let own: Vec<_> = (0..LIMIT / 8).map(|_| File::open("/dev/null")).collect();
    assert!(own.iter().all(Result::is_ok), "the application's own descriptors");
}
