//! The TCP information path: framing, limits, and peers that misbehave.
#![cfg(not(miri))]

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use erd_port::info_path::{ADDRESS_SHARE, InfoPath, MAX_CONNECTIONS, MAX_FRAME_BYTES};
use erd_sys::wait::{Interest, WaitSet};

const PATIENCE: Duration = Duration::from_secs(10);

fn any_port() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 0).into()
}

fn listening(addr: SocketAddr) -> (InfoPath, SocketAddr) {
    let path = InfoPath::new(Some(addr)).unwrap();
    let addr = path.local_addr().unwrap();
    (path, addr)
}

/// Runs both until `done`, collecting what `to` receives.
fn run(
    from: &mut InfoPath,
    to: &mut InfoPath,
    got: &mut Vec<Vec<u8>>,
    mut done: impl FnMut(&mut InfoPath, &[Vec<u8>]) -> bool,
) {
    let deadline = Instant::now() + PATIENCE;
    while !done(from, got) {
        assert!(Instant::now() < deadline, "{} frames came", got.len());
        from.recv(|frame, src| panic!("{} bytes from {src}", frame.len())).unwrap();
        to.recv(|frame, _| {
            got.push(frame.to_vec());
            true
        })
        .unwrap();
    }
}

#[test]
fn frames_arrive_whole_and_in_order() {
    for addr in [any_port(), (Ipv6Addr::LOCALHOST, 0).into()] {
        let (mut to, dst) = listening(addr);
        let mut from = InfoPath::new(None).unwrap();
        let sizes = [1, 2, 100, MAX_FRAME_BYTES, 1500, MAX_FRAME_BYTES - 1];
        let frames: Vec<Vec<u8>> =
            (0..300).map(|index| vec![index as u8; sizes[index % sizes.len()]]).collect();
        let mut next = 0;
        let mut got = Vec::new();
        run(&mut from, &mut to, &mut got, |from, got| {
            while next < frames.len() && from.send(dst, &frames[next]) {
                next += 1;
            }
            got.len() == frames.len()
        });
        assert!(got == frames);
    }
}

#[test]
fn what_does_not_fit_a_frame_is_refused() {
    let (_to, dst) = listening(any_port());
    let mut from = InfoPath::new(None).unwrap();
    assert!(!from.send(dst, &[]));
    assert!(!from.send(dst, &[0; MAX_FRAME_BYTES + 1]));
    assert!(from.send(dst, &[0; MAX_FRAME_BYTES]));
}

#[test]
fn a_peer_that_does_not_read_fills_a_bounded_queue_and_loses_nothing_of_it() {
    let slow = TcpListener::bind(any_port()).unwrap();
    let dst = slow.local_addr().unwrap();
    let mut from = InfoPath::new(None).unwrap();
    // The kernel's buffers on both sides hold a few MiB at most.
    let taken = (0..100_000).find(|index| {
        from.recv(|_, _| false).unwrap();
        !from.send(dst, &[*index as u8; MAX_FRAME_BYTES])
    });
    let taken = taken.expect("1.6 GB were taken for a peer that reads nothing");
    let (mut stream, _) = slow.accept().unwrap();
    stream.set_nonblocking(true).unwrap();
    let mut got = Vec::new();
    let deadline = Instant::now() + PATIENCE;
    // Small reads open the peer's window bit by bit, so the queue is flushed in pieces.
    let mut piece = [0; 10_007];
    while got.len() < taken * (2 + MAX_FRAME_BYTES) {
        assert!(Instant::now() < deadline, "{} bytes of {taken} frames came", got.len());
        from.recv(|_, _| false).unwrap();
        match stream.read(&mut piece) {
            Ok(bytes) => got.extend_from_slice(&piece[..bytes]),
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock),
        }
    }
    for (index, frame) in got.chunks(2 + MAX_FRAME_BYTES).enumerate() {
        assert_eq!(frame[..2], (MAX_FRAME_BYTES as u16).to_be_bytes(), "frame {index}");
        assert!(frame[2..].iter().all(|byte| *byte == index as u8), "frame {index}");
    }
}

#[test]
fn nobody_listening_means_udp() {
    let dst = TcpListener::bind(any_port()).unwrap().local_addr().unwrap();
    let mut from = InfoPath::new(None).unwrap();
    let deadline = Instant::now() + PATIENCE;
    while from.send(dst, b"anyone?") {
        assert!(Instant::now() < deadline);
        from.recv(|_, _| false).unwrap();
    }
    assert!(!from.send(dst, b"a failed peer is left alone for a while"));
    let (mut to, _) = listening(dst);
    from.close_peer(dst);
    assert!(from.send(dst, b"hello"), "a forgotten failure is tried again");
    let mut got = Vec::new();
    run(&mut from, &mut to, &mut got, |_, got| got.len() == 1);
    assert_eq!(got, [b"hello"]);
}

#[test]
fn a_restarted_peer_is_found_again() {
    let (mut to, dst) = listening(any_port());
    let mut from = InfoPath::new(None).unwrap();
    let mut got = Vec::new();
    assert!(from.send(dst, b"first"));
    run(&mut from, &mut to, &mut got, |_, got| got.len() == 1);
    drop(to);
    let (mut to, _) = listening(dst);
    // The old connection is found dead, and after a pause a new one is opened.
    run(&mut from, &mut to, &mut got, |from, got| {
        from.send(dst, b"again");
        got.len() > 1
    });
    assert_eq!(got[1], b"again");
}

/// Polls `to` until the peer on the other end sees its connection closed.
fn assert_closed(to: &mut InfoPath, stream: &mut TcpStream) {
    stream.set_nonblocking(true).unwrap();
    let deadline = Instant::now() + PATIENCE;
    loop {
        assert!(Instant::now() < deadline, "the connection is still open");
        to.recv(|frame, _| panic!("a frame of {} bytes", frame.len())).unwrap();
        match stream.read(&mut [0; 16]) {
            Ok(0) => return,
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_malformed_length_closes_that_connection_only() {
    let (mut to, dst) = listening(any_port());
    let mut from = InfoPath::new(None).unwrap();
    let mut got = Vec::new();
    assert!(from.send(dst, b"before"));
    run(&mut from, &mut to, &mut got, |_, got| got.len() == 1);
    let too_long = (MAX_FRAME_BYTES as u16 + 1).to_be_bytes();
    for length in [[0, 0], [0xff, 0xff], too_long] {
        let mut stream = TcpStream::connect(dst).unwrap();
        stream.write_all(&length).unwrap();
        assert_closed(&mut to, &mut stream);
    }
    assert_eq!(to.drops().malformed, 3);
    assert!(from.send(dst, b"after"));
    run(&mut from, &mut to, &mut got, |_, got| got.len() == 2);
    assert_eq!(got, [b"before".as_slice(), b"after"]);
}

#[test]
fn what_came_before_a_malformed_length_counts() {
    let (mut to, dst) = listening(any_port());
    let mut stream = TcpStream::connect(dst).unwrap();
    stream.write_all(b"\0\x04good\0\0").unwrap();
    let deadline = Instant::now() + PATIENCE;
    let mut got = Vec::new();
    while to.drops().malformed == 0 {
        assert!(Instant::now() < deadline);
        to.recv(|frame, _| {
            got.push(frame.to_vec());
            true
        })
        .unwrap();
    }
    assert_eq!(got, [b"good"]);
}

#[test]
fn a_frame_may_come_byte_by_byte() {
    let (mut to, dst) = listening(any_port());
    let mut stream = TcpStream::connect(dst).unwrap();
    stream.set_nodelay(true).unwrap();
    let src = stream.local_addr().unwrap();
    let mut got = Vec::new();
    for byte in b"\0\x05hello\0\x02yo" {
        stream.write_all(&[*byte]).unwrap();
        to.recv(|frame, from| {
            got.push((frame.to_vec(), from));
            true
        })
        .unwrap();
    }
    let deadline = Instant::now() + PATIENCE;
    while got.len() < 2 {
        assert!(Instant::now() < deadline);
        to.recv(|frame, from| {
            got.push((frame.to_vec(), from));
            true
        })
        .unwrap();
    }
    assert_eq!(got, [(b"hello".to_vec(), src), (b"yo".to_vec(), src)]);
}

#[test]
fn a_wait_set_hears_the_path() {
    let (mut to, dst) = listening(any_port());
    let set = WaitSet::new().unwrap();
    set.add(to.fd(), Interest::Readable).unwrap();
    let mut stream = TcpStream::connect(dst).unwrap();
    stream.write_all(b"\0\x01x").unwrap();
    let mut frames = 0;
    let deadline = Instant::now() + PATIENCE;
    while frames == 0 {
        assert!(Instant::now() < deadline);
        assert!(set.wait(Some(PATIENCE)).unwrap().fd);
        frames = to.recv(|_, _| true).unwrap();
    }
    assert_eq!(frames, 1);
    assert!(!set.wait(Some(Duration::ZERO)).unwrap().fd, "an idle path is silent");
}

#[test]
fn a_connection_that_proves_no_session_is_closed_and_a_peers_is_not() {
    let (mut to, dst) = listening(any_port());
    let mut peer = TcpStream::connect(dst).unwrap();
    peer.write_all(b"\0\x04peer").unwrap();
    let mut strangers: Vec<TcpStream> = (0..20).map(|_| TcpStream::connect(dst).unwrap()).collect();
    // Some say something, which is no proof.
    strangers[0].write_all(b"\0\x08stranger").unwrap();
    let deadline = Instant::now() + PATIENCE;
    while to.drops().unproven < 20 {
        assert!(Instant::now() < deadline, "{:?}", to.drops());
        to.recv(|frame, _| frame == b"peer").unwrap();
    }
    assert_closed(&mut to, &mut strangers[0]);
    peer.set_nonblocking(true).unwrap();
    let still = peer.read(&mut [0]).expect_err("the peer has proven its session");
    assert_eq!(still.kind(), std::io::ErrorKind::WouldBlock);
}

/// One address takes its share of the places alone.
#[test]
fn an_address_that_proves_nothing_keeps_no_other_out() {
    let (mut to, dst) = listening(any_port());
    let mut strangers: Vec<TcpStream> = Vec::new();
    let deadline = Instant::now() + PATIENCE;
    while to.drops().refused == 0 {
        assert!(Instant::now() < deadline, "{} connections, {:?}", strangers.len(), to.drops());
        strangers.extend((0..8).map(|_| TcpStream::connect(dst).unwrap()));
        to.recv(|_, _| false).unwrap();
    }
    assert!(strangers.len() <= MAX_CONNECTIONS / ADDRESS_SHARE + 8, "{}", strangers.len());
    let elsewhere = SocketAddr::from((Ipv4Addr::new(127, 0, 0, 2), 0));
    let peer = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    peer.bind(&elsewhere.into()).unwrap();
    peer.connect(&dst.into()).unwrap();
    peer.send(b"\0\x04peer").unwrap();
    let mut came = false;
    while !came {
        assert!(Instant::now() < deadline, "{:?}", to.drops());
        to.recv(|frame, from| {
            came |= frame == b"peer" && from.ip() == elsewhere.ip();
            came
        })
        .unwrap();
    }
}
