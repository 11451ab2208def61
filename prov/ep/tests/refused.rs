//! The log of an endpoint that refuses peers for their key.

use super::node::{Node, Options, ok};
use std::process::{Command, Stdio};

const KEY: [u8; 32] = [7; 32];
const OTHER: [u8; 32] = [8; 32];
/// Set in the child that this test starts: its log goes to standard error, as libfabric's would.
const CHILD: &str = "ERD_TEST_REFUSES";
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

/// Lets peers say hello, each twice. Writes the name of the first beside the log.
fn refuse() {
    erd_ffi::log::install().expect("nothing else is installed");
    for Case { own, theirs, line } in CASES {
        let refuser = node(own);
        let peers: [Node; PEERS] = std::array::from_fn(|_| node(theirs));
        eprintln!("case {}", peers[0].name());
        for peer in &peers {
            let to = peer.knows(&refuser);
            for context in [1, 2] {
                ok("tsend", peer.tsend(&[5; 4], to, 1, context));
                assert_eq!(peer.next(&[&refuser]).is_err(), line.is_some());
            }
        }
    }
}

#[test]
fn who_refuses_a_peer_for_its_key_says_so_once() {
    if std::env::var_os(CHILD).is_some() {
        return refuse();
    }
    let child = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "ep::tests::refused::who_refuses_a_peer_for_its_key_says_so_once"])
        .arg("--nocapture")
        .envs([(CHILD, "1"), ("FI_LOG_LEVEL", "warn"), ("FI_ERD_PEER_TIMEOUT_MS", "300")])
        .stdout(Stdio::null())
        .output()
        .expect("the child runs");
    let log = String::from_utf8(child.stderr).expect("text");
    assert!(child.status.success(), "{log}");
    let told: Vec<&str> = log.split("case ").skip(1).collect();
    assert_eq!(told.len(), CASES.len(), "{log}");
    for (told, Case { line, .. }) in told.into_iter().zip(CASES) {
        let (name, told) = told.split_once('\n').expect("a line");
        let lines: Vec<&str> = told.lines().filter(|told| told.contains("refused")).collect();
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
