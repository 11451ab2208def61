//! Looking in at a process: who is told, and that nobody waits.
#![cfg(not(miri))]

use erd_sys::visit::{Listener, names, visit};
use erd_sys::wait::{WaitSet, Woken};
use socket2::{Domain, SockAddr, Socket, Type};
use std::io::{ErrorKind, Read};
use std::time::Duration;

const PATIENCE: Option<Duration> = Some(Duration::from_secs(10));

fn listener(what: &str) -> (Listener, String) {
    let name = format!("erd-test-{what}-{}", std::process::id());
    (Listener::open(&name).expect("a name that is free"), name)
}

#[test]
fn a_visitor_is_heard_of_told_and_left() {
    let (listener, name) = listener("told");
    let set = WaitSet::new().unwrap();
    set.add_listener(listener.fd()).unwrap();
    assert!(listener.accept().unwrap().is_none(), "nobody is there");
    assert!(names("erd-test-told").unwrap().contains(&name));
    let (mut stream, who) = visit(&name).unwrap();
    assert_eq!(who.pid, std::process::id());
    let woken = Woken { visitor: true, ..Woken::default() };
    assert_eq!(set.wait(PATIENCE).unwrap(), woken);
    let visitor = listener.accept().unwrap().expect("a visitor");
    assert_eq!(visitor.tell(b"all is well").unwrap(), 11);
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert_eq!(text, "all is well");
    set.remove(listener.fd()).unwrap();
}

#[test]
fn who_does_not_read_or_has_left_holds_nobody_up() {
    let (listener, name) = listener("slow");
    let (mut stream, _) = visit(&name).unwrap();
    let visitor = listener.accept().unwrap().expect("a visitor");
    let long = vec![b'x'; 64 << 20];
    let told = visitor.tell(&long).unwrap();
    assert!(told > 0 && told < long.len(), "{told}: what the kernel holds, and no more");
    let mut got = Vec::new();
    stream.read_to_end(&mut got).unwrap();
    assert_eq!(got.len(), told);
    drop(visit(&name).unwrap());
    // The kernel may have noticed by now or not; no signal ends the process.
    let _ = listener.accept().unwrap().expect("a visitor").tell(&long);
}

#[test]
fn a_listener_that_takes_nobody_holds_no_visitor_up() {
    let name = format!("erd-test-full-{}", std::process::id());
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
    socket.bind(&SockAddr::unix(format!("\0{name}")).unwrap()).unwrap();
    socket.listen(1).unwrap();
    let visits: Vec<_> = (0..8).map(|_| visit(&name)).collect();
    let refused = visits.iter().filter_map(|visit| visit.as_ref().err());
    let kinds: Vec<ErrorKind> = refused.map(std::io::Error::kind).collect();
    assert!(
        kinds.len() >= 5 && kinds.iter().all(|kind| *kind == ErrorKind::WouldBlock),
        "{kinds:?}"
    );
}

#[test]
fn other_users_are_told_nothing() {
    let (listener, name) = listener("others");
    // SAFETY: the calls have no pointers.
    if unsafe { libc::geteuid() } != 0 {
        return;
    }
    // SAFETY: the child makes system calls and looks at a few bytes of its own, and leaves by _exit.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        // SAFETY: no pointers; what fails is told by the exit status.
        let other = unsafe { libc::setresuid(65534, 65534, 65534) } == 0;
        let mut byte = [0; 1];
        let told = other
            && visit(&name)
                .is_ok_and(|(mut stream, _)| stream.read(&mut byte).is_ok_and(|n| n > 0));
        // SAFETY: ends the child without touching what it shares with the parent.
        unsafe { libc::_exit(if other && !told { 0 } else { 1 }) }
    }
    let mut status = -1;
    // Until the child has its answer there is nobody to be told.
    while status == -1 {
        assert!(listener.accept().unwrap().is_none(), "a stranger");
        std::thread::sleep(Duration::from_millis(1));
        let mut now = 0;
        // SAFETY: `now` is writable, and the child is ours.
        if unsafe { libc::waitpid(child, &raw mut now, libc::WNOHANG) } == child {
            status = now;
        }
    }
    assert_eq!(status, 0, "the child was told something");
}
