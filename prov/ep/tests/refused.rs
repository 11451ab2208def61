//! The log of an endpoint that refuses peers for their key.

use super::node::{Node, Options, ok, patience, slowness};
use std::fs;
use std::io::Write;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const KEY: [u8; 32] = [7; 32];
const OTHER: [u8; 32] = [8; 32];
/// Set in the children that these tests start, whose log goes to standard error, as libfabric's would. Says what the
/// child does: a number of [`CASES`], or anything where a test has one child.
const CHILD: &str = "ERD_TEST_REFUSES";
const KEY_FILE: &str = "FI_ERD_KEY_FILE";
/// Peers that each endpoint hears.
const PEERS: usize = 2;

/// A domain's key, if it has one.
type Key = Option<&'static [u8; 32]>;

fn node(key: Key) -> Node {
    Node::new(Options { key, ..Options::default() })
}

/// What an endpoint and its peers have for keys, and the line that it logs, if any.
struct Case {
    own: Key,
    theirs: Key,
    line: Option<&'static str>,
}

const CASES: [Case; 4] = [
    Case { own: Some(&KEY), theirs: Some(&KEY), line: None },
    Case {
        own: Some(&KEY),
        theirs: None,
        line: Some("refused a peer without a key: this process has one; both need the same key"),
    },
    Case { own: Some(&KEY), theirs: Some(&OTHER), line: Some("refused a peer with another key, ") },
    Case {
        own: None,
        theirs: Some(&KEY),
        line: Some("refused a peer with a key: this process has none; both need the same key"),
    },
];

/// Lets peers say hello, each twice. Writes the name of the first before the log.
fn refuse(Case { own, theirs, line }: &Case) {
    let refuser = node(*own);
    let peers: [Node; PEERS] = std::array::from_fn(|_| node(*theirs));
    eprintln!("case {}", peers[0].name());
    for peer in &peers {
        let to = peer.knows(&refuser);
        for context in [1, 2] {
            ok("tsend", peer.tsend(&[5; 4], to, 1, context));
            assert_eq!(peer.next(&[&refuser]).is_err(), line.is_some());
        }
    }
}

/// Runs a test again, in a process of its own. Peers that are `refused` give up soon. Returns what it logs.
fn log_of(test: &str, part: &str, refused: bool, key_file: Option<&Path>) -> String {
    let mut child = Command::new(std::env::current_exe().expect("this program"));
    child
        .args(["--exact", &format!("ep::tests::refused::{test}"), "--nocapture"])
        .envs([(CHILD, part), ("FI_LOG_LEVEL", "warn")])
        .envs(key_file.map(|path| (KEY_FILE, path)))
        .stdout(Stdio::null());
    if refused {
        child.env("FI_ERD_PEER_TIMEOUT_MS", (300 * slowness()).to_string());
    }
    let child = child.output().expect("the child runs");
    let log = String::from_utf8(child.stderr).expect("text");
    assert!(child.status.success(), "{log}");
    log
}

/// What this process does if it is a child.
fn part() -> Option<String> {
    let part = std::env::var(CHILD).ok()?;
    erd_ffi::log::install().expect("nothing else is installed");
    Some(part)
}

fn refusals(log: &str) -> Vec<&str> {
    log.lines().filter(|line| line.contains("refused")).collect()
}

#[test]
fn who_refuses_a_peer_for_its_key_says_so_once() {
    const TEST: &str = "who_refuses_a_peer_for_its_key_says_so_once";
    if let Some(part) = part() {
        return refuse(&CASES[part.parse::<usize>().expect("a case")]);
    }
    for (number, Case { line, .. }) in CASES.iter().enumerate() {
        let log = log_of(TEST, &number.to_string(), line.is_some(), None);
        let (_, told) = log.split_once("case ").expect("a case");
        let (name, told) = told.split_once('\n').expect("a line");
        let lines = refusals(told);
        let Some(line) = line else {
            assert!(lines.is_empty(), "{log}");
            continue;
        };
        assert_eq!(lines.len(), 1, "one host has {PEERS} peers: {log}");
        let source = format!(" peer={name} source=127.0.0.1:");
        let has = ["<warn> ", line, &source].map(|part| lines[0].contains(part));
        assert_eq!(has, [true; 3], "{log}");
    }
}

/// Puts a key into a file that the endpoint reads, in the place of another.
fn put(path: &Path, key: &[u8; 32]) {
    let part = path.with_extension("new");
    let mut file =
        fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&part).expect("new");
    file.write_all(key).expect("room");
    fs::rename(part, path).expect("the same folder");
}

/// Until the endpoint has the next key, it refuses a peer that has it. Then it refuses one with a third key.
fn refuse_before_and_after() {
    let refuser = node(None);
    let first = node(Some(&OTHER));
    let to = first.knows(&refuser);
    ok("tsend", first.tsend(&[5; 4], to, 1, 1));
    assert!(first.next(&[&refuser]).is_err(), "the endpoint has the old key");
    put(&PathBuf::from(std::env::var_os(KEY_FILE).expect("a file")), &OTHER);
    let begin = Instant::now();
    loop {
        ok("tsend", first.tsend(&[5; 4], to, 1, 2));
        if first.next(&[&refuser]).is_ok() {
            break;
        }
        assert!(begin.elapsed() < patience(), "the endpoint reads its new key");
    }
    let last = node(Some(&[9; 32]));
    ok("tsend", last.tsend(&[5; 4], last.knows(&refuser), 1, 3));
    assert!(last.next(&[&refuser]).is_err());
}

#[test]
fn with_a_new_key_a_host_is_news_again() {
    const TEST: &str = "with_a_new_key_a_host_is_news_again";
    if part().is_some() {
        return refuse_before_and_after();
    }
    let path = std::env::temp_dir().join(format!("erd-refused-{}.key", std::process::id()));
    put(&path, &KEY);
    let log = log_of(TEST, "1", true, Some(&path));
    fs::remove_file(&path).expect("it is there");
    let lines = refusals(&log);
    assert_eq!(lines.len(), 2, "{log}");
    assert!(lines.iter().all(|line| line.contains("with another key")), "{log}");
}

/// The hello of a peer without a key, as it leaves.
fn hello() -> Vec<u8> {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    socket.set_read_timeout(Some(Duration::from_millis(1))).expect("a time");
    let (peer, mut bytes, begin) = (node(None), vec![0; 2048], Instant::now());
    let to = peer.knows_name(&socket.local_addr().expect("bound"));
    ok("tsend", peer.tsend(&[5; 4], to, 1, 1));
    while begin.elapsed() < patience() {
        peer.poke_any();
        if let Ok((len, _)) = socket.recv_from(&mut bytes) {
            bytes.truncate(len);
            return bytes;
        }
    }
    panic!("no hello");
}

const STRANGERS: std::ops::Range<u8> = 2..18;
const LATE_STRANGER: u8 = 50;
const KNOWN: u8 = 60;

/// The address of a host on loopback.
fn host(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(127, 0, 0, number)
}

/// Hosts say hello in turn for so long, in the same name.
fn say(refuser: &Node, hello: &[u8], hosts: &[u8], time: Duration) {
    let sockets = hosts.iter().map(|number| UdpSocket::bind((host(*number), 0)).expect("loopback"));
    let (sockets, begin): (Vec<_>, _) = (sockets.collect(), Instant::now());
    while begin.elapsed() < time {
        for socket in &sockets {
            socket.send_to(hello, refuser.name()).expect("loopback takes it");
            refuser.poke();
        }
    }
}

fn refuse_many() {
    let (refuser, hello) = (node(Some(&KEY)), hello());
    refuser.knows_name(&(host(KNOWN), 9).into());
    // Four lines a second, and as many seconds to spare.
    say(&refuser, &hello, &STRANGERS.collect::<Vec<_>>(), Duration::from_secs(8));
    say(&refuser, &hello, &[LATE_STRANGER, KNOWN], Duration::from_secs(2));
}

#[test]
fn strangers_leave_a_line_to_a_host_that_is_known() {
    const TEST: &str = "strangers_leave_a_line_to_a_host_that_is_known";
    if part().is_some() {
        return refuse_many();
    }
    let log = log_of(TEST, "1", false, None);
    let lines = refusals(&log);
    let of = |number| {
        let source = format!(" source={}:", host(number));
        lines.iter().filter(|line| line.contains(&source)).count()
    };
    assert!(STRANGERS.map(of).all(|count| count == 1), "{log}");
    assert_eq!([LATE_STRANGER, KNOWN].map(of), [0, 1], "{log}");
    assert_eq!(lines.len(), STRANGERS.len() + 1, "{log}");
}
