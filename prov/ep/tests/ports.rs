//! Port datagrams at endpoints without verbs.

use super::node::{Node, Options};
use crate::object;
use erd_core::endpoint::Endpoint;
use erd_core::endpoint::observe::Seen;
use erd_ffi::fi::FI_EAGAIN;
use erd_port::verbs::negotiation::address::{Address, Kind, PortDatagram};
use std::net::UdpSocket;
use std::time::{Duration, Instant};

#[test]
fn who_asks_an_endpoint_without_verbs_gets_no_answer() {
    let node = Node::new(Options::default());
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    socket.set_nonblocking(true).expect("nonblocking");
    let own = socket.local_addr().expect("its address");
    let address = Address { qpn: 17, mtu_bytes: 4096, ..Address::NONE };
    let ask = PortDatagram { kind: Kind::Ask, nonce: 77, address, cookie: 0, name: own };
    socket.send_to(&ask.encode(), node.name()).expect("sent");
    // SAFETY: an open endpoint of ours.
    let inner = unsafe { object::inner::<Endpoint>(node.ep.cast()) };
    let carried = || {
        let mut seen = Seen::default();
        inner.observe(&mut seen, 0);
        seen.head.map(|head| head.carried).unwrap_or_default()
    };
    let end = Instant::now() + Duration::from_secs(20);
    while carried().port_drops == 0 {
        assert_eq!(node.read(1).map(|_| ()), Err(-(FI_EAGAIN as isize)), "no completion");
        assert!(Instant::now() < end, "it is not counted");
    }
    assert_eq!(node.read(1).map(|_| ()), Err(-(FI_EAGAIN as isize)));
    assert!(socket.recv_from(&mut [0; 256]).is_err(), "an answer tells strangers who is there");
    assert_eq!(carried().port_answers, 0);
}
