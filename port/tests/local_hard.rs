//! Shared memory between processes where something is missing, forbidden, or ends (`docs/protocol.md` §12).
//!
//! A test that needs another process runs this program again, with the name of the function to be in an environment
//! variable. That function does nothing in a plain run.

use erd_port::local::claim::Claim;
use erd_port::local::offer::{Answer, Offer, ProcessId, Verdict};
use erd_port::local::ring::Refused;
use erd_port::local::{End, Event, Fate, Lanes, LinkId, LocalPort, Options, Pulled, Reach};
use erd_sys::clock::monotonic_ns;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use socket2::{Domain, SockAddr, Socket, Type};
use std::fmt::Debug;
use std::io::{ErrorKind, Read};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tracing::field::Field;
use tracing::span::{Attributes, Id, Record};
use tracing::{Metadata, Subscriber};

/// What a run of this program as another process has to do.
const PART: &str = "ERD_LOCAL_PART";
/// Longest wait for anything.
const PATIENCE: Duration = Duration::from_secs(20);

fn name(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 6, 1], port))
}

fn process() -> ProcessId {
    let mut id = [0; 16];
    id[..4].copy_from_slice(&std::process::id().to_ne_bytes());
    ProcessId(id)
}

fn try_port(number: u16) -> std::io::Result<LocalPort> {
    let options =
        Options { name: name(number), dir: None, process: process(), descriptors: 1 << 20 };
    LocalPort::open(options)
}

fn port(number: u16) -> LocalPort {
    try_port(number).expect("a port")
}

/// What to do as another process, if this run is one.
fn part() -> Option<String> {
    std::env::var(PART).ok()
}

/// Runs the function of this file as another process.
fn start(function: &str, part: &str) -> Child {
    let program = std::env::current_exe().expect("this program");
    let mut run = Command::new(program);
    run.args([function, "--exact", "--nocapture"]).env(PART, part);
    run.stdout(Stdio::null()).spawn().expect("it runs")
}

/// Lets a port go on: what it read, and what happened.
fn step(port: &mut LocalPort) -> (Vec<Vec<u8>>, Vec<Event>) {
    let (mut read, mut events) = (Vec::new(), Vec::new());
    port.poll(monotonic_ns(), &mut |_, kind, bytes| {
        assert_eq!(kind, 1);
        read.push(bytes.to_vec());
        Fate::Taken
    });
    port.work(monotonic_ns(), &mut |event| events.push(event));
    (read, events)
}

/// Lets the port go on until `done` says so of what it read and what happened.
fn until(port: &mut LocalPort, mut done: impl FnMut(&[Vec<u8>], &[Event]) -> bool) {
    let (mut read, mut events, end) = (Vec::new(), Vec::new(), Instant::now() + PATIENCE);
    while !done(&read, &events) {
        assert!(Instant::now() < end, "{} entries, {events:?}", read.len());
        let (more, new) = step(port);
        read.extend(more);
        events.extend(new);
    }
}

/// Asks for a link until that goes.
fn until_asked(port: &mut LocalPort, name: SocketAddr) {
    let end = Instant::now() + PATIENCE;
    while port.reach(name, monotonic_ns()) == Reach::None {
        assert!(Instant::now() < end, "nobody is there");
        let _ = step(port);
    }
}

/// Asks for a link until there is one.
fn link_with(port: &mut LocalPort, name: SocketAddr) -> LinkId {
    let end = Instant::now() + PATIENCE;
    loop {
        assert!(Instant::now() < end, "no link");
        if let Reach::Link(link) = port.reach(name, monotonic_ns()) {
            return link;
        }
        let _ = step(port);
    }
}

fn put(port: &mut LocalPort, link: LinkId, bytes: &[u8]) -> Option<Result<u64, Refused>> {
    port.put(link, 1, bytes.len(), &mut |write| write(bytes))
}

fn signal(signal: i32) {
    // SAFETY: the call has no pointers; it ends or stops this process before it returns.
    unsafe { libc::raise(signal) };
}

/// A peer that is killed at a step.
#[test]
fn killed_peer() {
    let Some(at) = part().and_then(|part| part.parse::<u32>().ok()) else { return };
    let (mut steps, hub) = (0, name(1));
    let mut next = || {
        if steps == at {
            signal(libc::SIGKILL);
        }
        steps += 1;
    };
    next();
    let mut port = port(2);
    next();
    assert_eq!(port.reach(hub, monotonic_ns()), Reach::Asked);
    next();
    let link = link_with(&mut port, hub);
    next();
    put(&mut port, link, b"first").expect("a link").expect("room");
    next();
    port.put(link, 1, 3000, &mut |write| {
        write(&[7; 1500]);
        next();
        write(&[7; 1500]);
    });
    next();
    port.starve(link);
    next();
    port.close(link);
    next();
}

#[test]
fn a_peer_that_is_killed_at_any_step_is_gone_and_spoils_nothing() {
    let mut hub = port(1);
    for at in 0..9 {
        let mut peer = start("killed_peer", &at.to_string());
        let (mut exited, mut quiet) = (false, 0);
        until(&mut hub, |read, events| {
            exited |= peer.try_wait().expect("a child").is_some();
            let whole = [&b"first"[..], &[7; 3000][..]];
            assert!(read.iter().zip(whole).all(|(read, whole)| read == whole), "step {at}");
            let up = events.iter().filter(|event| matches!(event, Event::Up(..))).count();
            let down = events.iter().filter(|event| matches!(event, Event::Down(..))).count();
            assert!(up <= 1 && (at < 3 || up == 1 || !exited), "step {at}: {events:?}");
            // Whatever has been written is read before the end is told.
            if up == down && exited {
                let there = [0, 0, 0, 0, 1, 1, 2, 2, 2][at as usize];
                assert!(up == 0 || read.len() == there, "step {at}: {}", read.len());
            }
            quiet = if up == down && exited { quiet + 1 } else { 0 };
            quiet > 1000
        });
        assert_eq!(hub.links(), 0, "step {at}");
    }
}

/// A peer that stops in the midst of an entry.
#[test]
fn stopped_peer() {
    if part().is_none() {
        return;
    }
    let mut port = port(4);
    let link = link_with(&mut port, name(3));
    port.put(link, 1, 2000, &mut |write| {
        write(&[1; 1000]);
        signal(libc::SIGSTOP);
        write(&[2; 1000]);
    });
    // Until the other side has it.
    until(&mut port, |_, events| events.iter().any(|event| matches!(event, Event::Down(..))));
}

#[test]
fn a_peer_that_is_stopped_in_the_midst_of_an_entry_holds_nobody_up_and_goes_on() {
    let mut hub = port(3);
    let mut peer = start("stopped_peer", "");
    until(&mut hub, |_, events| events.iter().any(|event| matches!(event, Event::Up(..))));
    let is_stopped = || {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", peer.id())).expect("a child");
        stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('T'))
    };
    let mut looks = 0;
    until(&mut hub, |read, events| {
        assert!(read.is_empty() && events.iter().all(|event| !matches!(event, Event::Down(..))));
        looks += u32::from(is_stopped());
        looks > 1000
    });
    // SAFETY: the call has no pointers, and the child is ours.
    unsafe { libc::kill(peer.id() as i32, libc::SIGCONT) };
    until(&mut hub, |read, _| read.iter().any(|read| read[..] == [[1; 1000], [2; 1000]].concat()));
    drop(hub);
    assert!(peer.wait().expect("a child").success(), "it saw the end");
}

/// Has the kernel answer a system call of this thread with an error, from here on.
fn forbid(call: libc::c_long, error: i32) {
    let step = |code: u32, k: u32, jf: u8| libc::sock_filter { code: code as u16, jt: 0, jf, k };
    let mut steps = [
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, call as u32, 1),
        step(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ERRNO | error as u32, 0),
        step(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW, 0),
    ];
    let filter = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
    // SAFETY: the kernel copies the filter, which is local.
    let set = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter) == 0
    };
    assert!(set, "{}", std::io::Error::last_os_error());
}

/// Runs `f` in a thread of its own, whose limits nobody else has.
fn apart(f: impl FnOnce() + Send + 'static) {
    std::thread::spawn(f).join().expect("it holds");
}

#[test]
fn without_memfds_there_is_no_port_and_the_error_says_so() {
    apart(|| {
        forbid(libc::SYS_memfd_create, libc::EPERM);
        let error = try_port(5).expect_err("no memory to share");
        assert_eq!(error.kind(), ErrorKind::PermissionDenied);
    });
}

#[test]
fn where_nobody_may_read_anothers_memory_the_answer_is_never() {
    apart(|| {
        let (mut one, mut other) = (port(6), port(7));
        assert_eq!(one.reach(name(7), monotonic_ns()), Reach::Asked);
        until(&mut other, |_, events| events.iter().any(|event| matches!(event, Event::Up(..))));
        let link = link_with(&mut one, name(7));
        let (bytes, mut room) = ([7_u8; 64], [0_u8; 64]);
        let mut read = |one: &mut LocalPort| {
            let mut from = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: 64 };
            let mut to = libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: 64 };
            let (from, to) = (std::slice::from_mut(&mut from), std::slice::from_mut(&mut to));
            // SAFETY: the room is local.
            let pulled = unsafe { one.pull(link, from, to, 64) };
            (pulled, room)
        };
        assert_eq!(read(&mut one), (Pulled::Done, bytes));
        forbid(libc::SYS_process_vm_readv, libc::EPERM);
        assert_eq!(read(&mut one).0, Pulled::Never);
        assert_eq!(read(&mut one).0, Pulled::Never, "and is not asked again");
    });
}

/// A process that may make short files alone.
#[test]
fn limited_process() {
    if part().is_none() {
        return;
    }
    let before = getrlimit(Resource::Fsize);
    setrlimit(Resource::Fsize, Rlimit { current: Some(100), ..before }).expect("a lower limit");
    let error = try_port(8).expect_err("the memory is a file");
    assert_eq!(error.kind(), ErrorKind::FileTooLarge);
}

#[test]
fn a_limit_of_files_ends_nobody() {
    assert!(start("limited_process", "").wait().expect("a child").success());
}

/// A process of another user, which knows where an endpoint is met.
#[test]
fn stranger() {
    if part().is_none() {
        return;
    }
    // SAFETY: the calls have no pointers.
    let set = unsafe { libc::setresuid(65534, 65534, 65534) };
    assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
    let mut socket = Socket::new(Domain::UNIX, Type::SEQPACKET, None).expect("a socket");
    let at = SockAddr::unix(format!("\0erd-local-0-{}", name(9))).expect("an address");
    socket.connect(&at).expect("somebody listens");
    let offer = Offer { process: process(), place: 0, from: name(10), to: name(9), ring_bytes: 1 };
    let _ = socket.send(&offer.encode());
    socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let told = socket.read(&mut [0; 200]);
    let is_gone = |error: &std::io::Error| error.kind() == ErrorKind::ConnectionReset;
    assert!(matches!(&told, Ok(0)) || told.as_ref().is_err_and(is_gone), "{told:?}");
}

#[test]
fn another_user_gets_no_answer() {
    // SAFETY: the call has no pointers.
    if unsafe { libc::geteuid() } != 0 {
        return println!("skipped: only root can be another user");
    }
    let mut hub = port(9);
    let mut stranger = start("stranger", "");
    let mut ended = None;
    until(&mut hub, |read, events| {
        assert!(read.is_empty() && events.is_empty(), "{events:?}");
        ended = stranger.try_wait().expect("a child");
        ended.is_some()
    });
    assert!(ended.is_some_and(|status| status.success()));
}

#[test]
fn two_hundred_peers_have_one_name_in_turn() {
    let mut hub = port(11);
    let mut peer = port(12);
    for round in 0..200_u32 {
        let link = {
            // A program that another test starts has a copy of the last peer's socket for a moment.
            until_asked(&mut peer, name(11));
            until(&mut hub, |_, events| events.iter().any(|e| matches!(e, Event::Up(..))));
            link_with(&mut peer, name(11))
        };
        put(&mut peer, link, &round.to_ne_bytes()).expect("a link").expect("room");
        drop(peer);
        until(&mut hub, |read, events| {
            let down = events.iter().any(|e| matches!(e, Event::Down(_, _, End::Closed, _)));
            assert!(!down || read == [round.to_ne_bytes()], "{round}: {read:?}, {events:?}");
            down
        });
        peer = port(12);
    }
    assert_eq!(hub.links(), 0);
}

/// A peer that has forked a child, which outlives it.
#[test]
fn forked_peer() {
    if part().is_none() {
        return;
    }
    let mut port = port(14);
    let _ = link_with(&mut port, name(13));
    // SAFETY: the child makes system calls alone, and leaves by _exit.
    unsafe {
        if libc::fork() == 0 {
            libc::sleep(10);
            libc::_exit(0);
        }
    }
    signal(libc::SIGKILL);
}

#[test]
fn the_end_of_a_process_is_seen_though_it_has_left_a_child() {
    let (mut hub, begun) = (port(13), Instant::now());
    let mut peer = start("forked_peer", "");
    until(&mut hub, |_, events| {
        events.iter().any(|e| matches!(e, Event::Down(_, _, End::Died, _)))
    });
    peer.wait().expect("a child");
    assert_eq!(hub.reach(name(14), monotonic_ns()), Reach::None, "nobody has its name");
    assert!(begun.elapsed() < Duration::from_secs(8), "before the child's own end");
}

/// A process that offers a link in the name of another's endpoint.
#[test]
fn impostor() {
    if part().is_none() {
        return;
    }
    let _own = port(17);
    let offer_of = |from: u16| {
        let mut socket = Socket::new(Domain::UNIX, Type::SEQPACKET, None).expect("a socket");
        // SAFETY: the call has no pointers.
        let uid = unsafe { libc::geteuid() };
        let at = SockAddr::unix(format!("\0erd-local-{uid}-{}", name(15))).expect("an address");
        socket.connect(&at).expect("somebody listens");
        let (from, to) = (name(from), name(15));
        let offer = Offer { process: process(), place: 0, from, to, ring_bytes: 256 << 10 };
        socket.send(&offer.encode()).expect("sent");
        socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let mut answer = [0; 200];
        let bytes = socket.read(&mut answer).unwrap_or(0);
        Answer::decode(&answer[..bytes]).map(|answer| answer.verdict)
    };
    // The offer in its own name lacks the memory alone, so it gets no answer.
    assert_eq!(offer_of(17), None);
    for from in [16, 15, 18] {
        assert_eq!(offer_of(from), Some(Verdict::Refused), "{from}");
    }
}

#[test]
fn nobody_takes_the_place_of_another() {
    let (mut hub, mut true_one) = (port(15), port(16));
    until_asked(&mut true_one, name(15));
    until(&mut hub, |_, events| events.iter().any(|e| matches!(e, Event::Up(..))));
    let mut impostor = start("impostor", "");
    let mut ended = None;
    until(&mut hub, |_, events| {
        assert!(events.iter().all(|event| matches!(event, Event::Room(_))), "{events:?}");
        ended = impostor.try_wait().expect("a child");
        ended.is_some()
    });
    assert!(ended.is_some_and(|status| status.success()));
    assert_eq!(hub.links(), 1);
}

/// Links two ports of this thread, of these numbers: each with its end of the link.
fn linked(one: u16, other: u16) -> [(LocalPort, LinkId); 2] {
    let (mut port_of_one, mut port_of_other) = (port(one), port(other));
    until_asked(&mut port_of_one, name(other));
    until(&mut port_of_other, |_, events| events.iter().any(|e| matches!(e, Event::Up(..))));
    let (here, there) =
        (link_with(&mut port_of_one, name(other)), link_with(&mut port_of_other, name(one)));
    [(port_of_one, here), (port_of_other, there)]
}

/// The bytes of an entry, which its number decides, as it does their count.
fn entry(number: u32, longest: usize) -> Vec<u8> {
    let mix = u64::from(number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let len = (mix >> 32) as usize % (longest + 1);
    (0..len).map(|at| (mix >> (at % 57)) as u8 ^ at as u8).collect()
}

/// Writes entries to one end of a link, and reads them at the other end. The ring is full again and again.
fn stream(
    (from, link): &mut (LocalPort, LinkId),
    (to, _): &mut (LocalPort, LinkId),
    longest: usize,
) {
    const COUNT: u32 = 2000;
    let (mut written, mut read, mut fills) = (0, 0, 0);
    while read < COUNT {
        while written < COUNT {
            match put(from, *link, &entry(written, longest)).expect("a link") {
                Ok(_) => written += 1,
                Err(refused) => {
                    assert_eq!(refused, Refused::Full, "{written}");
                    fills += 1;
                    break;
                }
            }
        }
        for bytes in step(to).0 {
            assert!(bytes == entry(read, longest), "{read}");
            read += 1;
        }
    }
    assert!(fills > 20, "{fills}");
}

#[test]
fn a_ring_that_gets_no_more_memory_goes_on_in_what_it_has() {
    // The memory of a new ring, and more.
    for (at, before, longest) in [(0, 0, 3900), (2, 9000, 9000)] {
        apart(move || {
            let [mut one, mut other] = linked(19 + at, 20 + at);
            for (port, link) in [&mut one, &mut other] {
                put(port, *link, &vec![1; before]).expect("a link").expect("room");
            }
            assert_eq!((step(&mut one.0).0.len(), step(&mut other.0).0.len()), (1, 1));
            forbid(libc::SYS_madvise, libc::ENOMEM);
            for _ in 0..3 {
                stream(&mut one, &mut other, longest);
                stream(&mut other, &mut one, longest);
                let more = put(&mut one.0, one.1, &[0; 12_000]);
                assert_eq!(more, Some(Err(Refused::TooLong)), "there is no memory");
            }
        });
    }
}

/// The descriptors of this process, and how many of them shared memory counts as its own.
fn descriptors() -> (usize, Option<usize>) {
    let open = std::fs::read_dir("/proc/self/fd").expect("a directory").count();
    (open, (0..1 << 20).find(|most| Claim::has(0, *most)))
}

/// Lines that a program would log.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl Subscriber for Log {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let mut line = String::new();
        event.record(&mut |_: &Field, value: &dyn Debug| line += &format!("{value:?} "));
        self.0.lock().expect("one thread").push(line);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// Asks for links for which there is no memory, again and again. The port says why there is none, and keeps nothing.
fn ask_in_vain(port: &mut LocalPort, name: SocketAddr, error: i32) {
    const COUNT: usize = 50;
    let (log, before) = (Log::default(), descriptors());
    tracing::subscriber::with_default(log.clone(), || {
        for _ in 0..COUNT {
            assert_eq!(port.reach(name, monotonic_ns()), Reach::None);
        }
    });
    let error = std::io::Error::from_raw_os_error(error).to_string();
    let reasons = log
        .0
        .lock()
        .expect("one thread")
        .iter()
        .filter(|line| line.contains("cannot offer a link") && line.contains(&error))
        .count();
    assert_eq!((reasons, descriptors()), (COUNT, before), "{error}, {log:?}", log = log.0);
}

/// A process that the kernel gives no memory for links.
#[test]
fn starved_process() {
    let Some(case) = part().and_then(|part| part.parse::<usize>().ok()) else { return };
    let (call, error) = STARVED[case];
    let [mut one, mut other] = linked(23, 24);
    let mut third = port(25);
    forbid(call, error);
    ask_in_vain(&mut one.0, name(25), error);
    let before = descriptors();
    for _ in 0..10 {
        let refused = try_port(26).expect_err("no memory to share");
        assert_eq!(refused.raw_os_error(), Some(error));
    }
    assert_eq!(descriptors(), before);
    stream(&mut one, &mut other, 16 << 10);
    stream(&mut other, &mut one, 16 << 10);
    // It has met those that could offer it nothing.
    until(&mut third, |_, events| {
        assert_eq!(events, []);
        descriptors() == before
    });
}

/// System calls without which there are no links, and reasons for them to fail.
const STARVED: [(libc::c_long, i32); 3] = [
    (libc::SYS_fallocate, libc::ENOSPC),
    (libc::SYS_fallocate, libc::ENOMEM),
    (libc::SYS_memfd_create, libc::EMFILE),
];

#[test]
fn who_gets_no_memory_for_a_link_says_so_and_keeps_those_that_it_has() {
    for (case, starved) in STARVED.iter().enumerate() {
        let ended = start("starved_process", &case.to_string()).wait().expect("a child");
        assert!(ended.success(), "{starved:?}");
    }
}

/// Limits this process's address space to what it has and so much more.
fn limit_address_space(more_bytes: u64) {
    let status = std::fs::read_to_string("/proc/self/status").expect("a file");
    let used =
        status.lines().find_map(|line| line.strip_prefix("VmSize:")?.trim().split(' ').next());
    let kib: u64 = used.and_then(|kib| kib.parse().ok()).expect("a size");
    let bytes = (kib << 10) + more_bytes;
    let before = getrlimit(Resource::As);
    setrlimit(Resource::As, Rlimit { current: Some(bytes), ..before }).expect("a limit");
}

/// A process whose address space has room for little, but not for a link.
#[test]
fn narrow_process() {
    if part().is_none() {
        return;
    }
    // A thread has room for small things of its own.
    apart(|| {
        let mut port = port(27);
        let link = link_with(&mut port, name(28));
        let before = descriptors();
        limit_address_space(256 << 10);
        ask_in_vain(&mut port, name(29), libc::ENOMEM);
        for number in 0..500 {
            let entry = entry(number, 16 << 10);
            while put(&mut port, link, &entry).expect("a link").is_err() {
                assert_eq!(step(&mut port).0.len(), 0);
            }
        }
        until(&mut port, |read, events| {
            let is_up_or_down = |event: &Event| matches!(event, Event::Up(..) | Event::Down(..));
            assert!(!events.iter().any(is_up_or_down), "{events:?}");
            !read.is_empty()
        });
        assert_eq!(descriptors(), before, "nothing of the offer that it could not map");
        limit_address_space(64 << 20);
        let second = link_with(&mut port, name(29));
        put(&mut port, second, b"at last").expect("a link").expect("room");
        until(&mut port, |_, events| events.iter().any(|e| matches!(e, Event::Down(..))));
    });
}

#[test]
fn a_peer_whose_address_space_is_full_gets_no_link_until_there_is_room() {
    let (mut hub, mut second) = (port(28), port(29));
    let mut peer = start("narrow_process", "");
    until(&mut hub, |read, _| {
        let is_all = read.len() == 500;
        let mut expected = (0..).map(|number| entry(number, 16 << 10));
        assert!(!is_all || read.iter().all(|read| expected.next().as_ref() == Some(read)));
        is_all
    });
    until_asked(&mut second, name(27));
    until(&mut second, |_, events| {
        assert!(events.iter().all(|event| *event == Event::Refused(name(27))), "{events:?}");
        !events.is_empty()
    });
    let link = link_with(&mut hub, name(27));
    put(&mut hub, link, b"now there is room").expect("a link").expect("room");
    until(&mut second, |read, _| read == [b"at last"]);
    assert_eq!((hub.links(), second.links()), (1, 1));
    drop((hub, second));
    assert!(peer.wait().expect("a child").success());
}
