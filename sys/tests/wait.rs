//! What wakes a wait set.
#![cfg(not(miri))]

use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::AsFd;
use std::time::Duration;

use erd_sys::clock::monotonic_ns;
use erd_sys::wait::{Interest, WaitSet, Woken};

const PATIENCE: Option<Duration> = Some(Duration::from_secs(10));
const NOT_AT_ALL: Option<Duration> = Some(Duration::ZERO);

fn receiver() -> UdpSocket {
    UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap()
}

fn send_to(rx: &UdpSocket) {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    socket.send_to(b"wake up", rx.local_addr().unwrap()).unwrap();
}

#[test]
fn a_packet_wakes() {
    let (set, rx) = (WaitSet::new().unwrap(), receiver());
    set.add(rx.as_fd(), Interest::Readable).unwrap();
    assert_eq!(set.wait(NOT_AT_ALL).unwrap(), Woken::default());
    send_to(&rx);
    assert_eq!(set.wait(PATIENCE).unwrap(), Woken { fd: true, ..Woken::default() });
    rx.recv(&mut [0; 16]).unwrap();
    assert_eq!(set.wait(NOT_AT_ALL).unwrap(), Woken::default());
    set.remove(rx.as_fd()).unwrap();
    send_to(&rx);
    assert_eq!(set.wait(NOT_AT_ALL).unwrap(), Woken::default());
    assert!(set.remove(rx.as_fd()).is_err());
}

#[test]
fn a_signal_wakes_until_it_is_cleared() {
    let set = WaitSet::new().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| set.signal());
        assert!(set.wait(PATIENCE).unwrap().signal);
    });
    set.signal();
    assert!(set.wait(NOT_AT_ALL).unwrap().signal);
    set.clear();
    assert_eq!(set.wait(NOT_AT_ALL).unwrap(), Woken::default());
}

#[test]
fn the_timer_wakes() {
    let set = WaitSet::new().unwrap();
    let deadline_ns = monotonic_ns() + 5_000_000;
    set.arm_timer(Some(deadline_ns)).unwrap();
    assert!(set.wait(PATIENCE).unwrap().timer);
    assert!(monotonic_ns() >= deadline_ns);
    set.clear();
    assert_eq!(set.wait(NOT_AT_ALL).unwrap(), Woken::default());
    // The same deadline again, now in the past, and the first instant of all.
    for deadline_ns in [deadline_ns, 0] {
        set.arm_timer(Some(deadline_ns)).unwrap();
        assert!(set.wait(PATIENCE).unwrap().timer);
        set.clear();
    }
    set.arm_timer(Some(monotonic_ns() + 3_600_000_000_000)).unwrap();
    set.arm_timer(None).unwrap();
    assert_eq!(set.wait(NOT_AT_ALL).unwrap(), Woken::default());
}

#[test]
fn others_may_poll_the_set() {
    let (outer, inner, rx) = (WaitSet::new().unwrap(), WaitSet::new().unwrap(), receiver());
    inner.add(rx.as_fd(), Interest::Readable).unwrap();
    outer.add(inner.fd(), Interest::Readable).unwrap();
    send_to(&rx);
    assert!(outer.wait(PATIENCE).unwrap().fd);
}

#[test]
fn a_forked_child_leaves_the_parents_set_alone() {
    let (set, rx) = (WaitSet::new().unwrap(), receiver());
    set.add(rx.as_fd(), Interest::Readable).unwrap();
    set.arm_timer(Some(monotonic_ns() + 3_600_000_000_000)).unwrap();
    // SAFETY: the child makes system calls only, and leaves by _exit.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        let removed = set.remove(rx.as_fd());
        set.signal();
        let _ = set.arm_timer(Some(1));
        let slept = set.wait(PATIENCE);
        drop(set);
        let quiet = removed.is_ok() && slept.is_ok_and(|woken| woken == Woken::default());
        // SAFETY: ends the child without touching what it shares with the parent.
        unsafe { libc::_exit(if quiet { 0 } else { 1 }) }
    }
    let mut status = 0;
    // SAFETY: `status` is writable, and the child is ours.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0, "the child's calls did nothing");
    assert_eq!(set.wait(NOT_AT_ALL).unwrap(), Woken::default());
    send_to(&rx);
    assert!(set.wait(PATIENCE).unwrap().fd, "the parent still hears its socket");
}

#[test]
fn a_send_socket_can_be_watched() {
    let set = WaitSet::new().unwrap();
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    set.add(socket.as_fd(), Interest::Errors).unwrap();
    assert_eq!(set.wait(NOT_AT_ALL).unwrap(), Woken::default());
    set.remove(socket.as_fd()).unwrap();
    set.add(socket.as_fd(), Interest::Writable).unwrap();
    assert!(set.wait(NOT_AT_ALL).unwrap().fd);
}

#[test]
fn fds_with_numbers_are_told_while_they_are_readable() {
    let set = WaitSet::new().unwrap();
    let all: Vec<UdpSocket> = (0..100).map(|_| receiver()).collect();
    for (rx, number) in all.iter().zip(0..) {
        set.add_numbered(rx.as_fd(), number).unwrap();
    }
    let ready = || {
        let mut ready = Vec::new();
        set.ready(|number| ready.push(number)).unwrap();
        ready.sort_unstable();
        ready
    };
    set.signal();
    assert!(ready().is_empty(), "a signal has no number");
    set.clear();
    send_to(&all[7]);
    send_to(&all[99]);
    assert_eq!(ready(), [7, 99]);
    assert!(set.wait(NOT_AT_ALL).unwrap().fd, "a sleeper wakes for them");
    all[7].recv(&mut [0; 16]).unwrap();
    assert_eq!(ready(), [99]);
    all.iter().for_each(send_to);
    let (first, second) = (ready(), ready());
    assert_eq!((first.len(), second.len()), (64, 64));
    let mut both: Vec<u32> = first.into_iter().chain(second).collect();
    both.sort_unstable();
    both.dedup();
    assert_eq!(both.len(), 100, "what stays ready comes after the others");
}
