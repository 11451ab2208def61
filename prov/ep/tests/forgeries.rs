//! Forgeries over real sockets, against endpoints with a key (protocol.md §11): somebody sees every packet on the
//! loopback and sends many of their own, beside messages whose contents are checked. `FORGERIES_UDP` sets how many. The
//! simulated world tries more of them, and more kinds (tests/world/src/campaign.rs).

use super::monitor::snapshot;
use super::node::{Node, Options, ctx, ok, patience};
use super::tap::{Seen, Tap};
use erd_ffi::fi::*;
use erd_rd::stats::DROP_NAMES;
use erd_rd::wire::header::{HEADER_BYTES, KEYED_VERSION, PacketKind, seal};
use std::net::{SocketAddr, UdpSocket};
use std::time::Instant;

const KEY: [u8; 32] = [9; 32];
/// Forgeries that a plain test run tries.
const FORGERIES: u64 = 20_000;
/// Forgeries beside the messages of one round.
const ROUND: u64 = 256;
/// Forgeries between two looks of the endpoints at their sockets, which hold more.
const AT_ONCE: u64 = 16;
/// Datagrams that the attacker remembers of a kind.
const SEEN_MAX: usize = 64;
const KINDS: usize = 12;
/// Bytes that a key adds to a packet, and those of a name.
const TRAILER_BYTES: usize = 24;
const NAME_BYTES: usize = 24;
/// What UDP carries at most.
const DATAGRAM_BYTES_MAX: usize = 65_507;
/// Lengths of messages, in turn.
const LENGTHS: [usize; 5] = [64, 0, 1_350, 20_000, 200_000];
/// Memory that the process may have more at the end than after a quarter.
const GROWTH_BYTES_MAX: u64 = 16 << 20;

/// Whoever sees packets, and has no key.
struct Attacker {
    tap: Tap,
    socket: UdpSocket,
    names: Vec<SocketAddr>,
    seen: [Vec<Seen>; KINDS],
    state: u64,
    sent: u64,
}

impl Attacker {
    fn new(tap: Tap, nodes: &[&Node]) -> Attacker {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
        let names = nodes.iter().map(|node| node.name()).collect();
        let (seen, state) = (Default::default(), 0x9e37_79b9_7f4a_7c15);
        Attacker { tap, socket, names, seen, state, sent: 0 }
    }

    fn below(&mut self, n: usize) -> usize {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        (self.state % n.max(1) as u64) as usize
    }

    /// Looks at what passed since the last look. Every path of a node has a socket of its own, so that only a reader's
    /// name tells whose packet it is.
    fn look(&mut self) {
        let own = self.socket.local_addr().expect("a name");
        while let Some(seen) = self.tap.next() {
            for seen in seen {
                let kind = usize::from(seen.bytes.first().map_or(0xff, |first| first & 0xf));
                if kind >= KINDS || seen.from == own || !self.names.contains(&seen.to) {
                    continue;
                }
                if self.seen[kind].len() < SEEN_MAX {
                    self.seen[kind].push(seen);
                } else {
                    let at = self.below(SEEN_MAX);
                    self.seen[kind][at] = seen;
                }
            }
        }
    }

    /// One that it saw; each kind as likely as the others.
    fn any(&mut self) -> Seen {
        let kinds: Vec<usize> = (0..KINDS).filter(|kind| !self.seen[*kind].is_empty()).collect();
        assert!(!kinds.is_empty(), "it sees packets");
        let kind = kinds[self.below(kinds.len())];
        let at = self.below(self.seen[kind].len());
        let Seen { from, to, bytes } = &self.seen[kind][at];
        Seen { from: *from, to: *to, bytes: bytes.clone() }
    }

    fn strike(&mut self) {
        let (mut forged, other) = (self.any(), self.any());
        let (len, trailer) = (forged.bytes.len(), trailer_at(&forged.bytes));
        let change = 1 + self.below(255) as u8;
        match self.below(9) {
            // What a reader takes again without any effect is no forgery.
            0 if !is_repeatable(&forged.bytes) => return self.send(&forged),
            1 => {
                // Back to its sender, or to a third one.
                let at = self.names.iter().position(|name| *name == forged.to).unwrap_or(0);
                let more = 1 + self.below(self.names.len() - 1);
                forged.to = self.names[(at + more) % self.names.len()];
                return self.send(&forged);
            }
            2 => forged.bytes.truncate(self.below(len)),
            3 if len < DATAGRAM_BYTES_MAX => {
                let more = 1 + self.below((DATAGRAM_BYTES_MAX - len).min(64));
                forged.bytes.resize(len + more, 0);
            }
            4 => {
                forged.bytes[16..24].copy_from_slice(&other.bytes[16..24]);
                forged.bytes[trailer + 8] ^= change;
            }
            // The best: the next counter, and a proof of the right length.
            5 => {
                let (ahead, at) = (1 + self.below(1 << 20) as u64, trailer..trailer + 8);
                let counter = u64::from_be_bytes(forged.bytes[at.clone()].try_into().expect("8"));
                forged.bytes[at].copy_from_slice(&counter.wrapping_add(ahead).to_be_bytes());
            }
            6 => forged.bytes[trailer + 7] ^= change,
            7 => forged.bytes[HEADER_BYTES.min(len - 1)] ^= change,
            _ => forged.bytes[self.below(len)] ^= change,
        }
        reseal(&mut forged.bytes);
        self.send(&forged);
    }

    fn send(&mut self, forged: &Seen) {
        self.socket.send_to(&forged.bytes, forged.to).expect("the loopback takes it");
        self.sent += 1;
    }
}

/// Where the bytes that a key adds begin.
fn trailer_at(bytes: &[u8]) -> usize {
    let after = if is_of(PacketKind::Hello, bytes) { NAME_BYTES } else { 0 };
    bytes.len() - TRAILER_BYTES - after
}

fn is_of(kind: PacketKind, bytes: &[u8]) -> bool {
    bytes.first().is_some_and(|first| first & 0xf == kind as u8)
}

/// Whether a packet may come again without an effect: a question for a cookie, and the welcome of a session that stands.
fn is_repeatable(bytes: &[u8]) -> bool {
    is_of(PacketKind::Hello, bytes) || is_of(PacketKind::Welcome, bytes)
}

/// Writes the checksum, where the packet's kind has one.
fn reseal(bytes: &mut Vec<u8>) {
    let of_session = [PacketKind::Probe, PacketKind::Goodbye].map(|kind| is_of(kind, bytes));
    let bare = [PacketKind::Data, PacketKind::Ack, PacketKind::SizeProbe, PacketKind::SizeAnswer];
    let covered = match of_session.contains(&true) {
        true => bytes.len().saturating_sub(TRAILER_BYTES),
        false => bytes.len(),
    };
    let keyed = bytes.first().is_some_and(|first| first >> 4 & 7 == KEYED_VERSION);
    if covered >= HEADER_BYTES && !(keyed && bare.iter().any(|kind| is_of(*kind, bytes))) {
        let rest = bytes.split_off(covered);
        seal(bytes, 0, crc32c::crc32c_append);
        bytes.extend(rest);
    }
}

/// The counters of an endpoint, as its process tells them.
struct Counters(String);

impl Counters {
    fn of(node: &Node) -> Counters {
        let start = format!("{{\"kind\":\"endpoint\",\"endpoint\":\"{}\",", node.name());
        let end = Instant::now() + patience();
        // An endpoint at work is left out of a look.
        while Instant::now() < end {
            let text = snapshot();
            if let Some(line) = text.lines().find(|line| line.starts_with(&start)) {
                return Counters(line.to_owned());
            }
        }
        panic!("no counters of {}", node.name());
    }

    fn get(&self, name: &str) -> u64 {
        let (_, after) = self.0.split_once(&format!("\"{name}\":")).expect("a counter");
        let digits = after.split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default();
        digits.parse().expect("a number")
    }

    fn dropped(&self) -> u64 {
        let (_, drops) = self.0.split_once("\"drops\":{").expect("drops");
        let drops = Counters(drops.to_owned());
        DROP_NAMES.iter().map(|name| drops.get(name)).sum::<u64>() + self.get("port_drops")
    }
}

/// A message under way: its sender and receiver, by their places, and its bytes.
struct Transfer {
    from: usize,
    to: usize,
    bytes: Vec<u8>,
    got: Vec<u8>,
}

impl Transfer {
    fn new((from, to): (usize, usize), len: usize, round: u64) -> Transfer {
        let byte = |at: usize| (at as u64 * 31 + round * 7 + from as u64) as u8;
        Transfer { from, to, bytes: (0..len).map(byte).collect(), got: vec![0; len] }
    }

    fn post(&mut self, nodes: &[&Node], target: fi_addr_t) {
        let (from, to) = (nodes[self.from], nodes[self.to]);
        let (buf, len, none) = (self.bytes.as_ptr().cast(), self.bytes.len(), std::ptr::null_mut());
        ok("recv", to.recv(&mut self.got, FI_ADDR_UNSPEC, 2));
        // SAFETY: the endpoint is open, and the caller waits for the completion.
        ok("send", unsafe { ((*(*from.ep).msg).send)(from.ep, buf, len, none, target, ctx(1)) });
    }
}

/// Sends a message along each of the ways, and strikes `count` times meanwhile.
fn round(nodes: &[&Node], ways: &[((usize, usize), fi_addr_t)], number: u64, attack: &mut Attack) {
    let len = LENGTHS[number as usize % LENGTHS.len()];
    let mut transfers: Vec<_> =
        ways.iter().map(|(way, _)| Transfer::new(*way, len, number)).collect();
    for (transfer, (_, target)) in transfers.iter_mut().zip(ways) {
        transfer.post(nodes, *target);
    }
    let (mut ended, end) = (0, Instant::now() + patience());
    while ended < 2 * ways.len() || attack.left > 0 {
        assert!(Instant::now() < end, "{ended} of {} ends", 2 * ways.len());
        for _ in 0..AT_ONCE.min(attack.left) {
            attack.left -= 1;
            attack.attacker.strike();
        }
        for node in nodes {
            match node.read(1) {
                Ok(done) => ended += done.len(),
                Err(rc) if rc == -(FI_EAVAIL as isize) => panic!("{:?}", node.read_error()),
                Err(rc) => assert_eq!(rc, -(FI_EAGAIN as isize)),
            }
        }
        attack.attacker.look();
    }
    for transfer in &transfers {
        assert!(transfer.got == transfer.bytes, "the bytes of round {number}");
    }
}

/// The attacker, and its forgeries left in this round.
struct Attack {
    attacker: Attacker,
    left: u64,
}

fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/statm").expect("Linux tells");
    let pages = status.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok());
    pages.expect("the second number") * 4096
}

#[test]
fn nothing_of_an_attacker_on_the_path_is_taken() {
    let asked = std::env::var("FORGERIES_UDP").ok();
    let count = asked.as_ref().map_or(FORGERIES, |text| text.parse().expect("a number"));
    let tap = match Tap::new() {
        Ok(tap) => tap,
        Err(error) => {
            assert!(asked.is_none(), "nobody sees the packets of the loopback: {error}");
            println!("skipped: nobody sees the packets of the loopback: {error}");
            return;
        }
    };
    let node = || Node::new(Options { key: Some(&KEY), alone: true, ..Options::default() });
    let (a, b, c) = (node(), node(), node());
    let nodes = [&a, &b, &c];
    let ways = [((0, 1), a.knows(&b)), ((1, 0), b.knows(&a)), ((2, 0), c.knows(&a))];
    let mut attack = Attack { attacker: Attacker::new(tap, &nodes), left: 0 };
    // It sees the sessions begin.
    (0..10).for_each(|number| round(&nodes, &ways, number, &mut attack));
    let sessions = |nodes: &[&Node]| -> Vec<(u64, u64)> {
        let counters = nodes.iter().map(|node| Counters::of(node));
        counters.map(|c| (c.get("sessions_opened"), c.get("sessions_failed"))).collect()
    };
    let opened = sessions(&nodes);
    let mut early_bytes = 0;
    for number in 10.. {
        attack.left = ROUND.min(count - attack.attacker.sent);
        if attack.left == 0 {
            break;
        }
        round(&nodes, &ways, number, &mut attack);
        if attack.attacker.sent <= count / 4 {
            early_bytes = resident_bytes();
        }
    }
    // What waits in the sockets is taken.
    (0..100).for_each(|_| nodes.iter().for_each(|node| node.poke()));
    assert_eq!(sessions(&nodes), opened, "no session began or ended");
    let counters = nodes.map(Counters::of);
    let sum = |name: &str| counters.iter().map(|c| c.get(name)).sum::<u64>();
    let dropped: u64 = counters.iter().map(Counters::dropped).sum();
    let kernel = sum("kernel_drops");
    // An honest packet that is sent again may come twice, and an answer to a forged probe is dropped at its reader.
    let repeated: u64 = ["rtx_nack", "rtx_probe", "rtx_order"].map(sum).iter().sum();
    let answers: u64 = ["tx_resets", "tx_goodbye_confirmations", "tx_version_refusals"]
        .map(sum)
        .iter()
        .sum::<u64>()
        + sum("tx_challenges");
    println!("{count} sent, {dropped} dropped, {kernel} by the kernel; {answers} answers");
    println!("{repeated} repeated, {} forged, {} replayed", sum("forged"), sum("replayed"));
    assert!(dropped + kernel >= count, "some were taken: {:?}", counters.map(|c| c.0));
    assert!(dropped <= count + repeated + answers, "honest packets were dropped");
    assert!(sum("forged") > count / 8 && sum("replayed") > count / 64 && sum("other_key") > 0);
    // Other tests of this process need memory too, unless somebody asks for this one alone.
    let grown = resident_bytes().saturating_sub(early_bytes);
    assert!(asked.is_none() || grown <= GROWTH_BYTES_MAX, "{grown} bytes more than early");
}
