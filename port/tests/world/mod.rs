//! Two endpoints that look for each other's queue pairs, while bytes decide what happens: what the
//! fuzz target `negotiation` runs, and the test that replays its corpus.

use erd_port::verbs::gid::Gid;
use erd_port::verbs::negotiation::address::{Address, DATAGRAM_BYTES, Kind, PortDatagram};
use erd_port::verbs::negotiation::peers::{
    Change, KeyIndex, Outgoing, PeerAddress, Peers, Target, Via,
};
use std::collections::HashSet;
use std::net::{Ipv4Addr, SocketAddr};

/// Most port datagrams under way at once; later ones are lost.
const UNDER_WAY_MAX: usize = 64;
/// No key: the order of events is at stake here.
const KEY: KeyIndex = KeyIndex(0);
/// Names that peers have. One look sends a question or a check for each at most.
const NAMES: u8 = 4;

/// How often each thing happened.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Verbs came into use.
    pub up: u32,
    /// Verbs fell silent.
    pub silent: u32,
    /// A peer said that it has no verbs.
    pub without: u32,
    /// Bytes that no port datagram has.
    pub malformed: u32,
    /// Port datagrams that were made up.
    pub forged: u32,
}

/// Choices, read from the input; none when it ends.
struct Choices<'a>(&'a [u8]);

impl Choices<'_> {
    fn next(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    /// The next eight bytes, with zeros for what is missing.
    fn word(&mut self) -> u64 {
        u64::from_le_bytes(std::array::from_fn(|_| self.next().unwrap_or(0)))
    }
}

fn name(last: u8) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, last % NAMES], 7471))
}

fn peer(last: u8) -> PeerAddress {
    PeerAddress { name: name(last), key: KEY }
}

fn address(last: u8) -> Address {
    let qpn = 16 + u32::from(last) * 16;
    Address {
        gid: Gid(Ipv4Addr::new(192, 0, 2, last).to_ipv6_mapped().octets()),
        lid: 0,
        qpn,
        qkey: 5,
        tag: 1,
        mtu_bytes: 4096,
        senders: [qpn + 1, qpn + 2, 0, 0, 0, 0, 0],
    }
}

struct World<'a> {
    choices: Choices<'a>,
    sides: [Peers; 2],
    under_way: Vec<Outgoing>,
    now: u64,
    counts: Counts,
    /// Nonces that each side was given, all different.
    nonces: [HashSet<u64>; 2],
}

/// The next nonce for a side, of which it may take note or not.
fn fresh(nonces: &mut [HashSet<u64>; 2], at: usize) -> u64 {
    let count = nonces[0].len() as u64 + nonces[1].len() as u64 + 1;
    // An odd factor: no two counts have the same product.
    let nonce = count.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    nonces[at].insert(nonce);
    nonce
}

/// Runs what the bytes say.
///
/// # Panics
/// The negotiation breaks a promise.
pub fn run(data: &[u8]) -> Counts {
    let side = |last: u8| Peers::new(address(last), name(last), [u64::from(last), 1]);
    let mut world = World {
        choices: Choices(data),
        sides: [side(0), side(1)],
        under_way: Vec::new(),
        now: 1,
        counts: Counts::default(),
        nonces: Default::default(),
    };
    while let Some(choice) = world.choices.next() {
        world.step(choice);
        world.check();
    }
    world.counts
}

impl World<'_> {
    fn step(&mut self, choice: u8) {
        let at = usize::from(choice >> 7);
        let argument = self.choices.next().unwrap_or(0);
        let (peer, now) = (peer(argument), self.now);
        let nonce = fresh(&mut self.nonces, at);
        let side = &mut self.sides[at];
        match choice & 0x0f {
            0 | 1 => drop(side.route(peer, now, || nonce)),
            2 => side.renew(peer, now, || nonce),
            3 => {
                let change = side.probed(peer, now, || nonce);
                self.count(change);
            }
            4 => side.refused(peer, now),
            5 => side.unreachable(peer, address(argument % NAMES).gid, now),
            6 => side.heard(address(argument % NAMES).gid, u32::from(argument)),
            7 => side.set_usable(argument & 3 != 0),
            8 | 9 => self.now += 1 << (argument % 36),
            10 => self.forge(at),
            11 => self.garbage(at),
            _ => self.deliver(argument),
        }
        self.send(at);
    }

    /// Sends what is due; a side has at most one question or check for each name.
    fn send(&mut self, at: usize) {
        for _ in 0..=NAMES {
            let Some(sent) = self.sides[at].poll(self.now) else { return };
            self.put(sent);
        }
        panic!("more is due at once than there are peers");
    }

    fn put(&mut self, sent: Outgoing) {
        let read = PortDatagram::decode(&sent.datagram.encode());
        assert_eq!(read, Some(sent.datagram), "what is sent can be read, and is what was meant");
        if self.under_way.len() < UNDER_WAY_MAX {
            self.under_way.push(sent);
        }
    }

    /// Whom a datagram reaches: nobody but the two is there.
    fn reached(to: SocketAddr) -> Option<usize> {
        [name(0), name(1)].iter().position(|name| *name == to)
    }

    /// One datagram arrives, is lost or comes twice.
    fn deliver(&mut self, argument: u8) {
        if self.under_way.is_empty() {
            return;
        }
        let sent = self.under_way[usize::from(argument) % self.under_way.len()];
        if argument & 0x40 == 0 {
            self.under_way.retain(|other| *other != sent);
        }
        let via = match sent.to {
            Target::Udp(_) => Via::Udp,
            Target::Verbs(..) => Via::Verbs(None),
        };
        if let (Some(at), true) = (Self::reached(sent.peer().name), argument & 0x80 == 0) {
            self.hand(at, &sent.datagram, via);
        }
    }

    /// A port datagram that nobody sent, made of what is under way and of what bytes say.
    fn forge(&mut self, at: usize) {
        let (how, word) = (self.choices.word(), self.choices.word());
        let pick = |shift: u32| (how >> shift) as u8;
        let seen = self.under_way.get(usize::from(pick(8)) % self.under_way.len().max(1));
        let seen = seen.map(|sent| sent.datagram);
        let stranger = || address(pick(16) % NAMES);
        let made = PortDatagram {
            kind: [Kind::Ask, Kind::Answer, Kind::Check, Kind::Confirm][usize::from(pick(0) & 3)],
            nonce: seen.filter(|_| pick(2) & 1 == 0).map_or(word, |seen| seen.nonce),
            address: match (pick(3) & 3, seen) {
                (0, Some(seen)) => seen.address,
                (1, _) => Address::NONE,
                (2, _) => Address { lid: 1, ..stranger() },
                _ => stranger(),
            },
            cookie: seen.filter(|_| pick(5) & 1 == 0).map_or(word as u32, |seen| seen.cookie),
            name: name(pick(24)),
        };
        self.counts.forged += 1;
        let from = (pick(6) & 1 == 0).then(|| stranger().gid);
        let via = if pick(7) & 1 == 0 { Via::Udp } else { Via::Verbs(from) };
        self.hand(at, &made, via);
    }

    /// Bytes as they come, or a datagram under way of which some are changed under a sum that fits.
    fn garbage(&mut self, at: usize) {
        let len = usize::from(self.choices.next().unwrap_or(0));
        let mut bytes: Vec<u8> = (0..len).map_while(|_| self.choices.next()).collect();
        if let (true, Some(sent)) = (len % 2 == 1, self.under_way.last()) {
            let changed = std::mem::replace(&mut bytes, sent.datagram.encode().to_vec());
            let last = DATAGRAM_BYTES - 4;
            changed
                .iter()
                .take(8)
                .enumerate()
                .for_each(|(i, to)| bytes[(len + 13 * i) % last] = *to);
            let sum = crc32c::crc32c(&bytes[..last]);
            bytes[last..].copy_from_slice(&sum.to_be_bytes());
        }
        match PortDatagram::decode(&bytes) {
            Some(datagram) => self.hand(at, &datagram, Via::Udp),
            None => self.counts.malformed += 1,
        }
    }

    /// Hands a side a datagram. One that has no nonce of the side's own changes nothing for anybody.
    fn hand(&mut self, at: usize, datagram: &PortDatagram, via: Via) {
        let is_known = self.nonces[at].contains(&datagram.nonce);
        let nonce = fresh(&mut self.nonces, at);
        let before = self.reached_over_verbs(at);
        let handled = self.sides[at].handle(datagram, KEY, via, self.now, || nonce);
        let (answer, change) = handled.unwrap_or_default();
        if !is_known {
            assert_eq!(change, None, "{datagram:?} has a nonce of nobody's");
            assert_eq!(self.reached_over_verbs(at), before, "{datagram:?}");
        }
        if let Some(answer) = answer {
            assert_eq!(
                answer.peer().name,
                datagram.name,
                "an answer goes to the name in the question"
            );
            self.put(answer);
        }
        if let Some(Change::Up(address)) = change {
            // Both sides are on Ethernet.
            let is_the_names = address.gid.ip() == datagram.name.ip() && address.lid == 0;
            assert!(is_the_names && address.is_some(), "{address:?}");
        }
        self.count(change);
    }

    /// Which names a side reaches over verbs.
    fn reached_over_verbs(&self, at: usize) -> [bool; NAMES as usize] {
        std::array::from_fn(|last| self.sides[at].is_up(peer(last as u8)))
    }

    fn count(&mut self, change: Option<Change>) {
        match change {
            Some(Change::Up(_)) => self.counts.up += 1,
            Some(Change::Silent) => self.counts.silent += 1,
            Some(Change::Without) => self.counts.without += 1,
            None => {}
        }
    }

    /// What holds between calls.
    fn check(&self) {
        for side in &self.sides {
            let up = (0..NAMES).filter(|last| side.is_up(peer(*last))).count();
            assert_eq!(side.any_up(), up > 0);
            let due_ns = side.next_ns();
            assert!(due_ns.is_none_or(|due_ns| due_ns < self.now + (1 << 36)), "{due_ns:?}");
        }
    }
}
