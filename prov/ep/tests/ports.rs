//! Port datagrams at endpoints without verbs.

use super::node::{Options, Pair};
use crate::sockaddr;
use erd_ffi::fi::FI_EAGAIN;
use erd_ffi::verbs::address::{Address, DATAGRAM_BYTES, Kind, PortDatagram};
use std::ffi::c_void;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

/// The name of a pair's first endpoint.
fn name(pair: &Pair) -> SocketAddr {
    let (mut bytes, mut len) = ([0_u8; 64], 64_usize);
    // SAFETY: an open endpoint, and room for the stated length.
    unsafe {
        let fid = pair.a.ep.cast();
        let at: *mut c_void = bytes.as_mut_ptr().cast();
        assert_eq!(((*(*pair.a.ep).cm).getname)(fid, at, &raw mut len), 0);
        sockaddr::read(at.cast_const(), len).expect("an address").expect("a name")
    }
}

#[test]
fn who_asks_an_endpoint_without_verbs_is_told_so() {
    let pair = Pair::new(Options::default());
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    socket.set_nonblocking(true).expect("nonblocking");
    let own = socket.local_addr().expect("its address");
    let address = Address { qpn: 17, mtu_bytes: 4096, ..Address::NONE };
    let ask = PortDatagram { kind: Kind::Ask, nonce: 77, address, cookie: 0, name: own };
    let to = name(&pair);
    let end = Instant::now() + Duration::from_secs(20);
    let mut got = [0; DATAGRAM_BYTES + 1];
    let len = loop {
        socket.send_to(&ask.encode(), to).expect("sent");
        assert_eq!(pair.a.read(1).map(|_| ()), Err(-(FI_EAGAIN as isize)), "no completion");
        if let Ok((len, _)) = socket.recv_from(&mut got) {
            break len;
        }
        assert!(Instant::now() < end, "no answer");
    };
    let answer = PortDatagram::decode(&got[..len]).expect("a port datagram");
    assert_eq!((answer.kind, answer.nonce, answer.name), (Kind::Answer, 77, to));
    assert!(!answer.address.is_some());
}
