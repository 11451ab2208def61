//! A process whose memory is limited, and peers that send messages without receives: it lives, and serves honest peers.

use super::node::{Node, Options, ok, patience};
use erd_rd::wire::Reader;
use erd_rd::wire::header::{HEADER_BYTES, Header, PacketKind};
use erd_rd::wire::record::Record;
use erd_rd::wire::setup::Greeting;
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, UdpSocket};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

#[path = "../../../rd/tests/stranger/mod.rs"]
mod stranger;
use stranger::{bundle, eager_byte, greeting_of, hello, message};

/// What the child may map.
const LIMIT_BYTES: u64 = 300 << 20;
const NAMES: usize = 4_000;
/// Names that attack at a time: each has a socket.
const NAMES_AT_ONCE: usize = 200;
/// Tells the test below that it is the child.
const CHILD: &str = "ERD_TEST_STRANGERS_CHILD";
const TAG: u64 = 7;
const HONEST_BYTES: usize = 5_000;

/// The memory in use of a process, by the kernel's name for it.
fn status_of(process: u32, what: &str) -> String {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with(what));
    line.unwrap_or("unknown").to_owned()
}

#[test]
#[ignore = "not a test: the two tests below run it as another process, with a limit on its memory"]
fn victim() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let limit = libc::rlimit { rlim_cur: LIMIT_BYTES, rlim_max: LIMIT_BYTES };
    // SAFETY: the limit is a value of ours.
    ok("setrlimit", unsafe { libc::setrlimit(libc::RLIMIT_AS, &limit) } as isize);
    let node = Node::new(Options::default());
    let mut got = vec![0; HONEST_BYTES];
    ok("trecv", node.trecv(&mut got, TAG, 0, 1));
    println!("\nat {}", node.name());
    let end = Instant::now() + 4 * patience();
    while Instant::now() < end {
        if node.read(1).is_ok_and(|done| done[0].tag == TAG) {
            assert!(got.iter().all(|byte| *byte == 0x5a), "the honest peer's bytes");
            println!("\nserved");
            return;
        }
    }
    panic!("the honest peer's message did not come");
}

/// A name that attacks, with a session.
struct Stranger {
    socket: UdpSocket,
    to: SocketAddr,
    victim: Greeting,
    psn: u32,
}

impl Stranger {
    fn new(victim: SocketAddr, number: u64) -> Stranger {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
        socket.set_read_timeout(Some(Duration::from_millis(100))).expect("a timeout");
        let name = socket.local_addr().expect("a name");
        let mut greeting = greeting_of(number + 1, name);
        let challenge = greet(&socket, victim, &greeting, PacketKind::Challenge);
        let mut r = Reader::new(&challenge[HEADER_BYTES..]);
        greeting.cookie = r.u64().expect("a cookie");
        let welcome = greet(&socket, victim, &greeting, PacketKind::Welcome);
        let greeting =
            Greeting::parse(&mut Reader::new(&welcome[HEADER_BYTES..]), false).expect("greeting");
        Stranger { socket, to: victim, victim: greeting, psn: 0 }
    }

    fn header(&mut self) -> Header {
        self.psn += 1;
        Header { psn: self.psn - 1, ..Header::new(PacketKind::Data, self.victim.session) }
    }

    /// One byte of an eager message.
    fn claim(&mut self, order: u32, len_bytes: u64) {
        let bytes = eager_byte(self.header(), &message(order, len_bytes));
        let _ = self.socket.send_to(&bytes, self.to);
    }

    fn announce(&mut self, order: u32) {
        let bytes = bundle(self.header(), &Record::Rts(message(order, 1 << 30)));
        let _ = self.socket.send_to(&bytes, self.to);
    }
}

/// Says hello until an answer of this kind comes.
fn greet(socket: &UdpSocket, to: SocketAddr, greeting: &Greeting, answer: PacketKind) -> Vec<u8> {
    let bytes = hello(greeting);
    let end = Instant::now() + patience();
    while Instant::now() < end {
        let _ = socket.send_to(&bytes, to);
        let mut got = [0; 2048];
        while let Ok(len) = socket.recv(&mut got) {
            if Header::parse(&got[..len]).is_ok_and(|h| h.kind == answer) {
                return got[..len].to_vec();
            }
        }
    }
    panic!("no {answer:?} within {:?}", patience());
}

/// Attacks a child whose budget is as said.
fn attack(unexpected_size: &str) {
    let mut child = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "ep::tests::strangers::victim", "--ignored", "--nocapture"])
        .env(CHILD, "1")
        .env("FI_ERD_UNEXPECTED_SIZE", unexpected_size)
        .stdout(Stdio::piped())
        .spawn()
        .expect("the child starts");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let mut line = |start: &str| {
        let mut found = lines.by_ref().map_while(Result::ok).filter(|line| line.starts_with(start));
        found.next().unwrap_or_else(|| panic!("the child ended before it said \"{start}\""))
    };
    let victim: SocketAddr = line("at ")[3..].parse().expect("a name");
    // The victim forgets those that are gone only later.
    let mut names = std::collections::VecDeque::new();
    for name in 0..NAMES {
        if name % 500 == 0 {
            let of = |what| status_of(child.id(), what);
            println!("{unexpected_size}, {name} names: {} {}", of("VmSize"), of("VmRSS"));
        }
        let mut stranger = Stranger::new(victim, name as u64);
        let granted_bytes = stranger.victim.eager_credit_bytes;
        stranger.claim(0, granted_bytes.max(2).into());
        stranger.claim(1, 1 << 20);
        for order in 1..stranger.victim.order_window.min(100) {
            stranger.announce(order);
        }
        names.push_back(stranger);
        if names.len() > NAMES_AT_ONCE {
            names.pop_front();
        }
    }
    let honest = Node::new(Options::default());
    let to = honest.knows_name(&victim);
    ok("tsend", honest.tsend(&[0x5a; HONEST_BYTES], to, TAG, 1));
    honest.next(&[]).expect("the honest peer is served");
    line("served");
    assert!(child.wait().expect("the child ends").success());
}

#[test]
#[ignore = "4,000 strangers take some 10 s: `cargo xtask test --full` runs it (strangers and little memory)"]
fn a_budget_keeps_strangers_from_using_up_the_memory() {
    attack("auto");
}

/// The budget is no bound here, the process's limit is.
#[test]
#[ignore = "4,000 strangers take some 10 s: `cargo xtask test --full` runs it (strangers and little memory)"]
fn a_process_without_memory_left_drops_what_strangers_send() {
    attack("1099511627776");
}
