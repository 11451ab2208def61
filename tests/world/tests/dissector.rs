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
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;
use std::sync::Arc;

/// Packets of a phase in these worlds, as a power of two: a short capture has several.
const PHASE_BITS: u32 = 5;
/// Longest message, in bytes: some phases of packets.
const LONG_BYTES: u64 = 120_000;

/// Bytes of a counter with its proof, and of a key id with its proof.
const TRAILER_BYTES: usize = 24;

/// A packet as it went out.
#[derive(Clone, Debug)]
struct Sent {
    from: SocketAddr,
    to: SocketAddr,
    bytes: Vec<u8>,
}

impl Sent {
    fn kind(&self) -> u8 {
        self.bytes[0] & 15
    }

    fn is(&self, kind: PacketKind) -> bool {
        self.kind() == kind as u8
    }

    /// Whether this packet stands outside a session: it has a key id, and no counter.
    fn is_loose(&self) -> bool {
        LOOSE_BYTES.iter().any(|(kind, _)| self.is(*kind))
    }

    fn counter(&self) -> u64 {
        let at = self.bytes.len() - TRAILER_BYTES;
        u64::from_be_bytes(self.bytes[at..at + 8].try_into().expect("eight bytes"))
    }

    /// This packet with these bits changed.
    fn changed(&self, bits: &[(usize, u8)]) -> Sent {
        let mut changed = self.clone();
        for (at, mask) in bits {
            changed.bytes[*at] ^= mask;
        }
        changed
    }

    /// This packet as one of `version`, with so many bytes of its body. Its lengths fit each other.
    fn cut(&self, version: u8, body_bytes: usize) -> Sent {
        let mut bytes = self.bytes[..HEADER_BYTES + body_bytes].to_vec();
        bytes[0] = bytes[0] & 0x8f | version << 4;
        bytes[1] = 0;
        bytes[4..6].copy_from_slice(&(body_bytes as u16).to_be_bytes());
        if version == 3 && !self.is_loose() {
            bytes.extend(&self.bytes[self.bytes.len() - TRAILER_BYTES..]);
        }
        Sent { bytes, ..self.clone() }
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

    /// The dissector, for phases of this world. It tells of each cipher that it makes.
    fn script(&self) -> PathBuf {
        let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../wireshark");
        let changed = |name: &str, old: &str, new: &str| {
            let text = std::fs::read_to_string(own.join(name)).expect("the dissector");
            assert_eq!(text.matches(old).count(), 1, "{name} has no {old}");
            self.write(name, text.replace(old, new).as_bytes())
        };
        let function = "local function new_cipher(secret)\n";
        changed("erd_crypto.lua", function, &format!("{function}io.stderr:write('{CIPHER}\\n')\n"));
        changed("erd.lua", "PHASE_BITS = 22", &format!("PHASE_BITS = {PHASE_BITS}"))
    }

    /// A capture of these packets, each inside `tunnel`.
    fn capture(&self, sent: &[Sent], tunnel: Tunnel) -> PathBuf {
        let words = [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 0xffff, 101];
        let mut out: Vec<u8> = words.into_iter().flat_map(u32::to_le_bytes).collect();
        for (at, sent) in sent.iter().enumerate() {
            let packet = tunnel(udp(sent));
            let len_bytes = packet.len() as u32;
            out.extend([at as u32, 0, len_bytes, len_bytes].into_iter().flat_map(u32::to_le_bytes));
            out.extend(packet);
        }
        self.write("capture.pcap", &out)
    }
}

/// Puts a packet of the network layer into another.
type Tunnel = fn(Vec<u8>) -> Vec<u8>;

/// An IP packet with a UDP datagram.
fn udp(sent: &Sent) -> Vec<u8> {
    let udp_bytes = sent.bytes.len() as u16 + 8;
    let mut datagram: Vec<u8> = Vec::new();
    for word in [sent.from.port(), sent.to.port(), udp_bytes, 0] {
        datagram.extend(word.to_be_bytes());
    }
    datagram.extend(&sent.bytes);
    ip(sent.from.ip(), sent.to.ip(), 17, &datagram)
}

/// An IP packet with a payload of this protocol.
fn ip(from: IpAddr, to: IpAddr, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = Vec::new();
    match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            packet.extend([0x45, 0]);
            packet.extend((payload.len() as u16 + 20).to_be_bytes());
            packet.extend([0, 0, 0x40, 0, 64, protocol, 0, 0]);
            packet.extend([from.octets(), to.octets()].concat());
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            packet.extend([0x60, 0, 0, 0]);
            packet.extend((payload.len() as u16).to_be_bytes());
            packet.extend([protocol, 64]);
            packet.extend([from.octets(), to.octets()].concat());
        }
        _ => panic!("one family: {from}, {to}"),
    }
    packet.extend(payload);
    packet
}

/// What is shown of a packet.
#[derive(Debug)]
struct Shown {
    proof: String,
    hides: bool,
    payload: String,
    malformed: bool,
}

/// What the dissector shows of a capture.
struct Told {
    shown: Vec<Shown>,
    ciphers: usize,
}

/// What a script tells of a cipher that it makes.
const CIPHER: &str = "a cipher";

/// What the dissector tells with the keys of these bytes: never an error of its own. `None` without tshark.
fn told(files: &Files, sent: &[Sent], keys: &[u8], tunnel: Tunnel) -> Option<Told> {
    let needed = std::env::var_os("ERD_TSHARK");
    let program = needed.clone().unwrap_or("tshark".into());
    let key_files: Vec<String> = keys.iter().map(|byte| files.key(*byte)).collect();
    let mut tshark = Command::new(program);
    tshark.arg("-r").arg(files.capture(sent, tunnel)).args(["-o", "udp.try_heuristic_first:TRUE"]);
    tshark.arg("-X").arg(format!("lua_script:{}", files.script().display()));
    tshark.arg("-o").arg(format!("erd.key_files:{}", key_files.join(", ")));
    tshark.args(["-T", "fields", "-E", "separator=;"]);
    let fields = ["erd.proof.state", "erd.hidden", "erd.payload", "erd.malformed"];
    for field in fields.iter().chain(&["_ws.malformed", "_ws.lua.error"]) {
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
        let &[proof, hidden, payload, malformed, by_wireshark, error] = &parts[..] else {
            panic!("{line}")
        };
        // Wireshark repeats what the dissector tells of a malformed packet, and tells of nothing else.
        let same = by_wireshark.is_empty() == malformed.is_empty();
        assert!(same && error.is_empty(), "{line}");
        Shown {
            proof: proof.into(),
            hides: !hidden.is_empty(),
            payload: payload.into(),
            malformed: !malformed.is_empty(),
        }
    };
    let shown: Vec<Shown> = told.lines().map(read).collect();
    assert_eq!(shown.len(), sent.len());
    Some(Told { shown, ciphers: errors.matches(CIPHER).count() })
}

/// What the dissector shows of packets that all have their lengths.
fn shown(files: &Files, sent: &[Sent], keys: &[u8]) -> Option<Vec<Shown>> {
    let all = told(files, sent, keys, |packet| packet)?.shown;
    assert!(all.iter().all(|shown| !shown.malformed), "{all:?}");
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

/// Kinds outside a session, each with the least bytes of its body: with key id, proof, and a greeting's name.
const LOOSE_BYTES: [(PacketKind, usize); 5] = [
    (PacketKind::Hello, 146),
    (PacketKind::Challenge, 40),
    (PacketKind::Welcome, 146),
    (PacketKind::Reset, 32),
    (PacketKind::GoodbyeAck, 32),
];
const RIGHT: &str = "right";
const WRONG: &str = "wrong";
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
        let kinds: BTreeSet<u8> =
            (0..all.len()).filter(is_right).map(|at| sent[at].kind()).collect();
        let expected = (keys == [2]).then_some(PacketKind::GoodbyeAck as u8);
        assert_eq!(kinds, expected.into_iter().collect(), "{keys:?}: {all:?}");
    }
}

/// The packets of the session whose key changes.
fn whole_renewed() -> Vec<Sent> {
    let (before, after, _) = renewed();
    [before, after].concat()
}

#[test]
fn a_changed_packet_of_any_kind_is_wrong() {
    let files = Files::new("changed");
    let captures = [proven(), whole_renewed()];
    for genuine in &captures {
        let kinds: BTreeSet<u8> = genuine.iter().map(Sent::kind).collect();
        let mut whole = Vec::new();
        let mut forged = Vec::new();
        // Each changed packet follows the genuine one at once, and the genuine ones after it stay right.
        for sent in genuine {
            whole.push(sent.clone());
            if forged.iter().any(|at: &usize| whole[*at].kind() == sent.kind()) {
                continue;
            }
            let (last, counter) = (sent.bytes.len() - 1, sent.bytes.len() - TRAILER_BYTES);
            let mut places = vec![(HEADER_BYTES, 1), (last, 1)];
            if !sent.is_loose() {
                // Counters that nobody can reach, with the top bit and without.
                places.extend([(counter, 0x80), (counter, 0x40), (counter, 0xff)]);
            }
            for place in places {
                forged.push(whole.len());
                whole.push(sent.changed(&[place]));
            }
        }
        let Some(all) = shown(&files, &whole, &[2, 1]) else { return };
        for (at, shown) in all.iter().enumerate() {
            let expected = if forged.contains(&at) { WRONG } else { RIGHT };
            assert_eq!(shown.proof, expected, "{at}: {:?}: {kinds:?}", whole[at]);
        }
    }
    let kinds: BTreeSet<u8> = captures.iter().flatten().map(Sent::kind).collect();
    for kind in KINDS {
        assert!(kinds.contains(&(kind as u8)), "{kind:?}");
    }
}

#[test]
fn a_forged_greeting_changes_nothing() {
    let files = Files::new("greetings");
    // Whether payload is hidden, and the random bytes.
    let said = [(HEADER_BYTES + 3, 16), (HEADER_BYTES + 82, 1)];
    for genuine in [proven(), whole_renewed()] {
        let mut whole = Vec::new();
        let mut expected = Vec::new();
        for sent in genuine {
            if !(sent.is(PacketKind::Hello) || sent.is(PacketKind::Welcome)) {
                whole.push(sent);
                expected.push(RIGHT);
                continue;
            }
            let name_bytes = if sent.is(PacketKind::Hello) { 24 } else { 0 };
            let id = sent.bytes.len() - TRAILER_BYTES - name_bytes;
            let wrong = sent.changed(&said);
            let unknown = wrong.changed(&[(id, 1)]);
            // The same words under another key must not count as a second key of the session.
            let other_key = sent.changed(&[(id, 1)]);
            let forged = [other_key, wrong, unknown];
            whole.extend([&forged[..], &[sent], &forged].concat());
            let states = [UNKNOWN, WRONG, UNKNOWN];
            expected.extend([&states[..], &[RIGHT], &states].concat());
        }
        // Nor may it hide that a later packet is wrong.
        let last = whole.iter().rfind(|sent| !sent.is_loose()).expect("a packet of a session");
        let bits = [(last.bytes.len() - 1, 1)];
        whole.push(last.changed(&bits));
        expected.push(WRONG);
        let Some(all) = shown(&files, &whole, &[1, 2]) else { return };
        for (at, shown) in all.iter().enumerate() {
            assert_eq!(shown.proof, expected[at], "{at}: {:?}", whole[at]);
        }
    }
}

#[test]
fn a_greeting_that_nobody_can_judge_gives_way_to_a_right_one() {
    let files = Files::new("gives_way");
    let (hellos, rest): (Vec<Sent>, Vec<Sent>) =
        whole_renewed().into_iter().partition(|sent| sent.is(PacketKind::Hello));
    let genuine = hellos.last().expect("a hello").clone();
    let id = genuine.bytes.len() - TRAILER_BYTES - 24;
    // It tells other features, so other secrets follow from it.
    let forged = genuine.changed(&[(HEADER_BYTES + 3, 16), (id, 1)]);
    let in_session: Vec<usize> = (0..rest.len()).filter(|at| !rest[*at].is_loose()).collect();
    let begin = in_session[5];
    let sent = [&[forged], &rest[..begin], &[genuine], &rest[begin..]].concat();
    let Some(all) = shown(&files, &sent, &[1, 2]) else { return };
    for at in &in_session[..5] {
        assert_eq!(all[at + 1].proof, UNKNOWN, "{at}: {:?}", sent[at + 1]);
    }
    let after = &all[begin + 1..];
    assert_eq!(with(after, RIGHT).count(), after.len(), "{after:?}");
}

/// Lengths of a body that are tried: a greeting with a key is shorter.
const LENGTHS_MAX: usize = 150;

#[test]
fn a_packet_that_is_too_short_is_malformed() {
    let files = Files::new("short");
    for genuine in [proven(), whole_renewed()] {
        let kinds: BTreeSet<u8> = genuine.iter().map(Sent::kind).collect();
        let mut whole = genuine.clone();
        let mut short = Vec::new();
        for kind in kinds {
            let sent = genuine.iter().find(|sent| sent.kind() == kind).expect("one of this kind");
            let lengths = 0..LENGTHS_MAX.min(sent.bytes.len() - HEADER_BYTES);
            for (version, body_bytes) in
                (2..=3).flat_map(|version| lengths.clone().map(move |length| (version, length)))
            {
                let least = LOOSE_BYTES.iter().find(|(kind, _)| sent.is(*kind));
                if version == 3 && least.is_some_and(|(_, least)| body_bytes < *least) {
                    short.push(whole.len());
                }
                whole.push(sent.cut(version, body_bytes));
            }
        }
        let Some(told) = told(&files, &whole, &[1, 2], |packet| packet) else { return };
        assert!(!short.is_empty() && short.iter().all(|at| told.shown[*at].malformed));
        assert!(told.shown[..genuine.len()].iter().all(|shown| !shown.malformed));
    }
}

#[test]
fn nothing_is_read_after_an_unknown_record() {
    let files = Files::new("records");
    let names = [1, 2].map(|last| SocketAddr::from(([10, 1, 0, last], 7100)));
    // Version 2, two records, the first of a kind that nobody knows.
    let mut bytes = vec![0; HEADER_BYTES + 6];
    bytes[0] = 2 << 4;
    bytes[5] = 6;
    bytes[HEADER_BYTES + 1] = 2;
    bytes[HEADER_BYTES + 2] = 99;
    let sent = [Sent { from: names[0], to: names[1], bytes }];
    let Some(told) = told(&files, &sent, &[], |packet| packet) else { return };
    assert!(told.shown[0].malformed);
}

#[test]
fn a_capture_may_miss_a_phase() {
    let files = Files::new("gap");
    let mut sent = whole_renewed();
    let all_packets = sent.len();
    sent.retain(|sent| sent.is_loose() || sent.counter() >> PHASE_BITS != 1);
    assert!(sent.len() + (1 << PHASE_BITS) < all_packets, "a gap");
    let Some(all) = shown(&files, &sent, &[1, 2]) else { return };
    assert_eq!(with(&all, RIGHT).count(), all.len(), "{all:?}");
}

#[test]
fn wrong_packets_cost_few_ciphers() {
    let files = Files::new("ciphers");
    let mut sent = whole_renewed();
    let Some(genuine) = told(&files, &sent, &[1, 2], |packet| packet) else { return };
    assert!(genuine.ciphers > 8, "{}", genuine.ciphers);
    for at in (0..sent.len()).filter(|at| !sent[*at].is_loose()).collect::<Vec<_>>() {
        let bits = [(sent[at].bytes.len() - 1, 1)];
        sent.push(sent[at].changed(&bits));
    }
    let keys: Vec<u8> = (1..=16).collect();
    let Some(told) = told(&files, &sent, &keys, |packet| packet) else { return };
    // Each phase has a cipher of either key.
    assert!(told.ciphers <= 3 * genuine.ciphers, "{} of {}", told.ciphers, genuine.ciphers);
}

/// What two processes tell each other of their queue pairs.
fn negotiation(keys: &dyn Keys, names: [SocketAddr; 2]) -> Vec<Sent> {
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
    let names = [1, 2].map(|last| SocketAddr::from(([10, 1, 0, last], 7100)));
    let mut sent = negotiation(&WatchedKeys::new(1, true, PHASE_BITS), names);
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
    assert_eq!(proofs[genuine..], [WRONG; 5]);
    let Some(all) = shown(&files, &sent, &[2]) else { return };
    assert_eq!(with(&all, UNKNOWN).count(), all.len());
}

#[test]
fn a_forged_question_does_not_take_the_place_of_the_writer() {
    let files = Files::new("questions");
    let names = [1, 2].map(|last| SocketAddr::from(([10, 1, 0, last], 7100)));
    let genuine = negotiation(&WatchedKeys::new(1, true, PHASE_BITS), names);
    // Another port in the name.
    let forged = genuine[0].changed(&[(79, 1)]);
    let other_key = forged.changed(&[(104, 1)]);
    let sent = [&genuine[..1], &[forged, other_key], &genuine[1..]].concat();
    let Some(all) = shown(&files, &sent, &[1]) else { return };
    let proofs: Vec<&str> = all.iter().map(|shown| &shown.proof[..]).collect();
    assert_eq!(proofs, [RIGHT, WRONG, UNKNOWN, RIGHT, RIGHT, RIGHT]);
}

#[test]
fn the_reader_is_the_innermost_one_of_a_tunnel() {
    let files = Files::new("tunnel");
    let inner_4 = [1, 2].map(|last| SocketAddr::from(([10, 1, 0, last], 7100)));
    let inner_6 = [1, 2].map(|last| SocketAddr::from(([0xfd00, 0, 0, 0, 0, 0, 0, last], 7100)));
    let tunnels: [Tunnel; 3] = [|packet| packet, in_ipv4, in_ipv6];
    for (names, tunnel) in
        [inner_4, inner_6].into_iter().flat_map(|names| tunnels.map(|tunnel| (names, tunnel)))
    {
        let sent = negotiation(&WatchedKeys::new(1, true, PHASE_BITS), names);
        let Some(told) = told(&files, &sent, &[1], tunnel) else { return };
        assert_eq!(with(&told.shown, RIGHT).count(), sent.len(), "{names:?}: {:?}", told.shown);
    }
}

/// The number of the protocol in such a packet, for a tunnel.
fn protocol_of(packet: &[u8]) -> u8 {
    if packet[0] >> 4 == 4 { 4 } else { 41 }
}

fn in_ipv4(packet: Vec<u8>) -> Vec<u8> {
    ip([192, 0, 2, 1].into(), [192, 0, 2, 2].into(), protocol_of(&packet), &packet)
}

fn in_ipv6(packet: Vec<u8>) -> Vec<u8> {
    let [from, to] = [1, 2].map(|last| IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, last]));
    ip(from, to, protocol_of(&packet), &packet)
}
