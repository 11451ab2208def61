//! What Wireshark shows of packets with a key: `wireshark/erd.lua` reads captures that the world makes. Without tshark
//! these tests are skipped, unless `ERD_TSHARK` names it.

use erd_port::verbs::gid::Gid;
use erd_port::verbs::negotiation::address::{Address, Kind, PortDatagram};
use erd_rd::KeyIndex;
use erd_rd::keys::{KeySet, Keys, Loose};
use erd_rd::units::{MILLISECOND, SECOND};
use erd_rd::wire::header::{HEADER_BYTES, PacketKind};
use erd_world::keyed::talk;
use erd_world::net::Fate;
use erd_world::node::NextKey;
use erd_world::nonces::WatchedKeys;
use erd_world::pattern;
use erd_world::script::{ANY_FAILURE, NO_FAILURE, PATIENCE_NS, world};
use erd_world::sim::{Action, World};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;
use std::sync::Arc;

/// Packets of a phase in these worlds, as a power of two: a short capture has several.
const PHASE_BITS: u32 = 5;
/// Longest message, in bytes: some phases of packets.
const LONG_BYTES: u64 = 120_000;

/// A packet as it went out.
#[derive(Clone)]
struct Sent {
    from: SocketAddr,
    to: SocketAddr,
    bytes: Vec<u8>,
}

impl Sent {
    fn kind(&self) -> u8 {
        self.bytes[0] & 15
    }
}

/// Notes all that is sent from now on.
fn watch(w: &mut World) -> Rc<RefCell<Vec<Sent>>> {
    let seen = Rc::new(RefCell::new(Vec::new()));
    let all = Rc::clone(&seen);
    let names: Vec<SocketAddr> = w.nodes.iter().map(|node| node.name).collect();
    w.net.filter = Some(Box::new(move |datagram, _| {
        // A path has a port of its own to send from.
        let from = SocketAddr::new(names[datagram.from].ip(), 40_000 + datagram.path);
        let bytes = datagram.bytes.clone();
        all.borrow_mut().push(Sent { from, to: names[datagram.to], bytes });
        Fate::Pass
    }));
    seen
}

fn set(key: &Arc<WatchedKeys>) -> KeySet {
    KeySet::one(Arc::clone(key) as Arc<dyn Keys>)
}

/// A session whose key changes. Returns what was sent before and after that, and the number of the first send.
fn renewed() -> (Vec<Sent>, Vec<Sent>, usize) {
    let keys = [1, 2].map(|byte| Arc::new(WatchedKeys::new(byte, true, PHASE_BITS)));
    let mut w = world(2, NO_FAILURE, |s| {
        s.config.keys = set(&keys[0]);
        let key = Arc::clone(&keys[1]) as Arc<dyn Keys>;
        let (at, overlap_ns) = (KeyIndex(0), 4 * SECOND);
        s.next_key = Some(NextKey { at, key, overlap_ns, keys: set(&keys[1]) });
    });
    let seen = watch(&mut w);
    w.want(1, 100);
    let first = w.post(0, 1, 100);
    w.settle(PATIENCE_NS);
    talk(&mut w, &[LONG_BYTES, 10]);
    w.act(Action::Renew(0));
    talk(&mut w, &[1_000]);
    w.run_for(10 * MILLISECOND);
    let before = seen.take();
    w.act(Action::Renew(1));
    w.run_for(2 * SECOND);
    let asked = seen.take();
    talk(&mut w, &[LONG_BYTES, 10]);
    // The one that was asked leaves.
    w.close(1);
    w.run_for(SECOND);
    ([before, asked].concat(), seen.take(), first)
}

/// Sessions under a key that stays, payload readable: two that begin at once, and one with a process that is replaced.
fn proven() -> Vec<Sent> {
    let keys = Arc::new(WatchedKeys::new(1, false, PHASE_BITS));
    let mut w = world(2, ANY_FAILURE, |s| s.config.keys = set(&keys));
    let seen = watch(&mut w);
    for (from, to) in [(0, 1), (1, 0)] {
        w.want(to, 10_000);
        w.post(from, to, 10_000);
    }
    w.settle(PATIENCE_NS);
    w.act(Action::Kill(1));
    w.act(Action::Restart(1));
    w.post(0, 1, 10_000);
    w.settle(PATIENCE_NS);
    w.close(0);
    w.run_for(SECOND);
    seen.take()
}

/// Files of one test.
struct Files(PathBuf);

impl Files {
    fn new(test: &str) -> Files {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(test);
        std::fs::create_dir_all(&dir).expect("a directory");
        Files(dir)
    }

    fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, bytes).expect("written");
        path
    }

    /// A file with the key that has this byte 32 times, in one of the two forms.
    fn key(&self, byte: u8) -> String {
        let digits = format!("{byte:02x}").repeat(32) + "\n";
        let bytes = if byte % 2 == 1 { digits.into_bytes() } else { vec![byte; 32] };
        self.write(&format!("{byte}.key"), &bytes).display().to_string()
    }

    /// The dissector, for phases of this world.
    fn script(&self) -> PathBuf {
        let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../wireshark/erd.lua");
        let text = std::fs::read_to_string(own).expect("the dissector");
        let changed = text.replace("PHASE_BITS = 22", &format!("PHASE_BITS = {PHASE_BITS}"));
        assert_ne!(text, changed, "the length of a phase has another name");
        self.write("erd.lua", changed.as_bytes())
    }

    /// A capture of IPv4 packets.
    fn capture(&self, sent: &[Sent]) -> PathBuf {
        let words = [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 0xffff, 101];
        let mut out: Vec<u8> = words.into_iter().flat_map(u32::to_le_bytes).collect();
        for (at, Sent { from, to, bytes }) in sent.iter().enumerate() {
            let udp_bytes = bytes.len() + 8;
            let mut packet = vec![0x45, 0];
            packet.extend((udp_bytes as u16 + 20).to_be_bytes());
            packet.extend([0, 0, 0x40, 0, 64, 17, 0, 0]);
            for name in [from, to] {
                let SocketAddr::V4(name) = name else { panic!("the world has IPv4 names") };
                packet.extend(name.ip().octets());
            }
            for word in [from.port(), to.port(), udp_bytes as u16, 0] {
                packet.extend(word.to_be_bytes());
            }
            packet.extend(bytes);
            let len_bytes = packet.len() as u32;
            out.extend([at as u32, 0, len_bytes, len_bytes].into_iter().flat_map(u32::to_le_bytes));
            out.extend(packet);
        }
        self.write("capture.pcap", &out)
    }
}

/// What is shown of a packet.
#[derive(Debug)]
struct Shown {
    proof: String,
    hides: bool,
    payload: String,
}

/// What the dissector shows with the keys of these bytes. `None` without tshark.
fn shown(files: &Files, sent: &[Sent], keys: &[u8]) -> Option<Vec<Shown>> {
    let needed = std::env::var_os("ERD_TSHARK");
    let program = needed.clone().unwrap_or("tshark".into());
    let key_files: Vec<String> = keys.iter().map(|byte| files.key(*byte)).collect();
    let mut tshark = Command::new(program);
    tshark.arg("-r").arg(files.capture(sent)).args(["-o", "udp.try_heuristic_first:TRUE"]);
    tshark.arg("-X").arg(format!("lua_script:{}", files.script().display()));
    tshark.arg("-o").arg(format!("erd.key_files:{}", key_files.join(", ")));
    tshark.args(["-T", "fields", "-E", "separator=;"]);
    for field in ["erd.proof.state", "erd.hidden", "erd.payload", "_ws.malformed"] {
        tshark.args(["-e", field]);
    }
    let output = match tshark.output() {
        Err(error) if needed.is_none() => {
            eprintln!("skipped: tshark: {error}");
            return None;
        }
        output => output.expect("tshark, which ERD_TSHARK names"),
    };
    let (told, errors) =
        [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).expect("text")).into();
    assert!(output.status.success() && !errors.contains("rror"), "{errors}");
    let read = |line: &str| {
        let parts: Vec<&str> = line.split(';').collect();
        let &[proof, hidden, payload, malformed] = &parts[..] else { panic!("{line}") };
        assert!(malformed.is_empty(), "{line}");
        Shown { proof: proof.into(), hides: !hidden.is_empty(), payload: payload.into() }
    };
    let all: Vec<Shown> = told.lines().map(read).collect();
    assert_eq!(all.len(), sent.len());
    Some(all)
}

/// The packets that are shown so.
fn with<'a>(all: &'a [Shown], proof: &'a str) -> impl Iterator<Item = &'a Shown> {
    all.iter().filter(move |shown| shown.proof == proof)
}

/// Kinds that a capture must have. The paths of these worlds need no size probes.
const KINDS: [PacketKind; 9] = [
    PacketKind::Data,
    PacketKind::Ack,
    PacketKind::Probe,
    PacketKind::Hello,
    PacketKind::Challenge,
    PacketKind::Welcome,
    PacketKind::Reset,
    PacketKind::Goodbye,
    PacketKind::GoodbyeAck,
];

const RIGHT: &str = "right";
const UNKNOWN: &str = "of an unknown key";

#[test]
fn with_both_keys_everything_is_shown_while_the_key_changes() {
    let files = Files::new("both_keys");
    let (mut sent, after, first) = renewed();
    sent.extend(after);
    assert!(sent.len() > 8 << PHASE_BITS, "several phases of both directions");
    let Some(all) = shown(&files, &sent, &[1, 2]) else { return };
    assert_eq!(with(&all, RIGHT).filter(|shown| !shown.hides).count(), all.len(), "{all:?}");
    let mut part = [0; 100];
    pattern::fill(first as u64, 0, &mut part);
    let part: String = part.iter().map(|byte| format!("{byte:02x}")).collect();
    assert!(all.iter().any(|shown| shown.payload.contains(&part)));
}

#[test]
fn with_one_key_nothing_is_shown_that_the_other_hides() {
    let files = Files::new("one_key");
    let (mut sent, after, _) = renewed();
    let before = sent.len();
    sent.extend(after);
    for keys in [&[1][..], &[2], &[]] {
        let Some(all) = shown(&files, &sent, keys) else { return };
        let right = with(&all, RIGHT).filter(|shown| !shown.hides).count();
        let unknown = with(&all, UNKNOWN).filter(|shown| shown.payload.is_empty()).count();
        assert_eq!(right + unknown, all.len(), "{keys:?}: {all:?}");
        let is_right = |at: &usize| all[*at].proof == RIGHT;
        if keys == [1] {
            assert!(all[before..].iter().all(|shown| shown.proof == UNKNOWN), "all is renewed");
            assert!((0..before).filter(is_right).count() > before * 9 / 10);
            continue;
        }
        // The session began with the first key. The end of it is confirmed under the second.
        let mut kinds = (0..all.len()).filter(is_right).map(|at| sent[at].kind());
        assert!(kinds.all(|kind| keys == [2] && kind == PacketKind::GoodbyeAck as u8), "{all:?}");
    }
}

#[test]
fn a_changed_packet_of_any_kind_is_wrong() {
    let files = Files::new("changed");
    let mut sent = proven();
    let (mut before, after, _) = renewed();
    before.extend(after);
    for whole in [&mut sent, &mut before] {
        let genuine = whole.len();
        let kinds: BTreeSet<u8> = whole.iter().map(Sent::kind).collect();
        for kind in &kinds {
            let mut changed = whole.iter().find(|sent| sent.kind() == *kind).unwrap().clone();
            let at = changed.bytes.len() - 1;
            for at in [HEADER_BYTES, at] {
                changed.bytes[at] ^= 1;
                whole.push(changed.clone());
                changed.bytes[at] ^= 1;
            }
        }
        let Some(all) = shown(&files, whole, &[2, 1]) else { return };
        assert_eq!(with(&all[..genuine], RIGHT).count(), genuine, "{all:?}");
        assert_eq!(with(&all[genuine..], "wrong").count(), 2 * kinds.len(), "{kinds:?}: {all:?}");
    }
    let kinds: BTreeSet<u8> = sent.iter().chain(&before).map(Sent::kind).collect();
    for kind in KINDS {
        assert!(kinds.contains(&(kind as u8)), "{kind:?}");
    }
}

/// What two processes tell each other of their queue pairs.
fn negotiation(keys: &dyn Keys) -> Vec<Sent> {
    let names = [1, 2].map(|last| SocketAddr::from(([10, 1, 0, last], 7100)));
    let address = Address {
        gid: Gid([3; 16]),
        lid: 0,
        qpn: 4,
        qkey: 5,
        tag: 6,
        mtu_bytes: 4096,
        senders: Default::default(),
    };
    let of = |kind, nonce, at: usize| {
        let (writer, reader) = (names[at], names[1 - at]);
        let datagram = PortDatagram { kind, nonce, address, cookie: 8, name: writer };
        let prove = |packet: &[u8]| keys.prove(&Loose { packet, writer, reader, question: &[] });
        let bytes = datagram.encode_proven(keys.id(), prove).to_vec();
        Sent { from: writer, to: reader, bytes }
    };
    vec![
        of(Kind::Ask, 1, 0),
        of(Kind::Answer, 1, 1),
        of(Kind::Check, 2, 0),
        of(Kind::Confirm, 2, 1),
    ]
}

#[test]
fn port_datagrams_are_proven_for_one_reader() {
    let files = Files::new("ports");
    let mut sent = negotiation(&WatchedKeys::new(1, true, PHASE_BITS));
    let genuine = sent.len();
    for at in 0..genuine {
        let mut changed = sent[at].clone();
        changed.bytes[40] ^= 1;
        sent.push(changed);
    }
    let mut elsewhere = sent[0].clone();
    elsewhere.to.set_port(7101);
    sent.push(elsewhere);
    let Some(all) = shown(&files, &sent, &[1]) else { return };
    let proofs: Vec<&str> = all.iter().map(|shown| &shown.proof[..]).collect();
    assert_eq!(proofs[..genuine], [RIGHT; 4]);
    assert_eq!(proofs[genuine..], ["wrong"; 5]);
    let Some(all) = shown(&files, &sent, &[2]) else { return };
    assert_eq!(with(&all, UNKNOWN).count(), all.len());
}
