//! The verbs address of each peer, and whether datagrams reach it.
//!
//! First the endpoint asks a peer for its address, over UDP. Then it sends a check over verbs. Only once the peer has
//! confirmed that over verbs does it send its datagrams there, so a network that drops RoCE costs only the attempt.
//! Until then, and whenever probes go unanswered, datagrams take UDP, which every endpoint speaks. Time and randomness
//! are arguments.

use super::address::{Address, DATAGRAM_BYTES, Kind, PortDatagram};
use crate::verbs::gid::Gid;
use erd_types::mutants::{Mutant, mutant};
use siphasher::sip::SipHasher24;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::hash::{Hash, Hasher};
use std::net::SocketAddr;

/// Most peers kept; others take UDP.
pub const PEERS_MAX: usize = 1 << 16;
/// Time between two searches for peers to drop, when the table is full.
const SWEEP_NS: u64 = 1_000_000_000;
/// Age of a confirmed address after which the table may drop the peer, to ask again if need be.
const OLD_NS: u64 = 60_000_000_000;
/// First spacing of questions and checks; doubles with each, up to [`SPACING_MAX_NS`].
const SPACING_NS: u64 = 5_000_000;
const SPACING_MAX_NS: u64 = 250_000_000;
/// Unanswered questions after which the peer is left alone for [`WITHOUT_NS`], and unanswered checks after which it is
/// for [`REST_NS`].
const TRIES_MAX: u32 = 10;
const REST_NS: u64 = 1_000_000_000;
/// Time until the next question to a peer that reports no verbs, does not answer, or has an unreachable address. It is
/// long, since address resolution may stop the caller for a second.
const WITHOUT_NS: u64 = 10_000_000_000;
/// Unreachable GIDs that are remembered. Finding one out may take a second, so more are hardly dead at a time.
const DEAD_GIDS_MAX: usize = 64;
/// Age of a confirmed address after which a new session asks again: the peer may be another process.
const FRESH_NS: u64 = 50_000_000;
/// Probes in a row without news from the peer over verbs, after which a check follows.
const PROBES_MAX: u32 = 2;

/// A port datagram to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// The destination and the carrier.
    pub to: Target,
    /// Its bytes.
    pub bytes: [u8; DATAGRAM_BYTES],
}

/// Destination of a port datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Over UDP, to a peer's name.
    Udp(SocketAddr),
    /// Over verbs, to the peer of this name.
    Verbs(Address, SocketAddr),
}

/// Carrier that brought a port datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Via {
    /// UDP.
    Udp,
    /// Verbs, from this GID; none where the device does not show it.
    Verbs(Option<Gid>),
}

/// The change that an event made, for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Datagrams to the peer take verbs from now on.
    Up(Address),
    /// They take UDP: nothing was heard over verbs.
    Silent,
    /// The peer has no verbs.
    Without,
}

#[derive(Clone, Copy, Debug)]
struct Attempt {
    nonce: u64,
    next_ns: u64,
    tries: u32,
}

impl Attempt {
    fn new(nonce: u64, now: u64) -> Attempt {
        Attempt { nonce, next_ns: now, tries: 0 }
    }

    fn step(&mut self, now: u64) {
        let pause_ns = (SPACING_NS << self.tries.min(8)).min(SPACING_MAX_NS);
        self.next_ns = now + if mutant(Mutant::AsksWithoutAPause) { 0 } else { pause_ns };
        self.tries += 1;
    }
}

/// A peer's address, and the cookie that it wants in checks.
#[derive(Clone, Copy, Debug)]
struct Way {
    address: Address,
    cookie: u32,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Asking(Attempt),
    Checking(Attempt, Way),
    Up { way: Way, since_ns: u64, probes: u32 },
    Without { until_ns: u64 },
}

/// See the module's text.
#[derive(Debug)]
pub struct Peers {
    /// The own address and name.
    own: Address,
    name: SocketAddr,
    states: HashMap<SocketAddr, State>,
    /// Peers under question or check, by the time of the next one.
    pending: BTreeSet<(u64, SocketAddr)>,
    /// Number of peers reached over verbs.
    up: usize,
    /// Those of them that were silent after probes.
    suspects: BTreeSet<SocketAddr>,
    /// True if the own queue pairs are usable now.
    usable: bool,
    swept_ns: u64,
    /// GIDs that were unreachable, newest first, each until a time; at most [`DEAD_GIDS_MAX`].
    dead: VecDeque<(Gid, u64)>,
    /// Key of the cookies.
    key: [u64; 2],
}

impl Peers {
    /// No peers yet; the own address is [`Address::NONE`] without verbs. `key` is random and secret:
    /// cookies are made with it.
    #[must_use]
    pub fn new(own: Address, name: SocketAddr, key: [u64; 2]) -> Peers {
        Peers {
            own,
            name,
            states: HashMap::new(),
            pending: BTreeSet::new(),
            up: 0,
            suspects: BTreeSet::new(),
            usable: true,
            swept_ns: 0,
            dead: VecDeque::new(),
            key,
        }
    }

    /// Sets whether the own queue pairs are usable now, which answers report.
    pub fn set_usable(&mut self, usable: bool) {
        self.usable = usable;
    }

    /// The verbs address for datagrams to a peer; `None` if they take UDP. Begins to ask an unknown peer, with a nonce
    /// from `random`.
    pub fn route(
        &mut self,
        name: SocketAddr,
        now: u64,
        random: impl FnOnce() -> u64,
    ) -> Option<Address> {
        match self.states.get(&name).copied() {
            Some(State::Up { way, .. }) => return Some(way.address),
            Some(State::Without { until_ns }) if now >= until_ns => {}
            Some(_) => return None,
            None if !self.has_room(now) => return None,
            None => {}
        }
        self.ask(name, now, random());
        None
    }

    /// Notes that a session with the peer begins: the known address may be of another process.
    pub fn renew(&mut self, name: SocketAddr, now: u64, random: impl FnOnce() -> u64) {
        match self.states.get(&name).copied() {
            Some(State::Up { since_ns, .. }) if now >= since_ns + FRESH_NS => {}
            Some(State::Without { .. }) => {}
            Some(_) => return,
            None if !self.has_room(now) => return,
            None => {}
        }
        self.ask(name, now, random());
    }

    /// True if there is room for one more peer; drops old ones, once in a while.
    fn has_room(&mut self, now: u64) -> bool {
        if self.states.len() < PEERS_MAX {
            return true;
        }
        if now < self.swept_ns + SWEEP_NS {
            return false;
        }
        self.swept_ns = now;
        let (up, suspects) = (&mut self.up, &mut self.suspects);
        self.states.retain(|name, state| match state {
            State::Asking(_) | State::Checking(..) => true,
            State::Without { until_ns } => now < *until_ns,
            State::Up { since_ns, .. } if now < *since_ns + OLD_NS => true,
            State::Up { .. } => {
                *up -= 1;
                suspects.remove(name);
                false
            }
        });
        self.states.len() < PEERS_MAX
    }

    /// Notes a probe to the peer: something was not acknowledged.
    pub fn probed(
        &mut self,
        name: SocketAddr,
        now: u64,
        random: impl FnOnce() -> u64,
    ) -> Option<Change> {
        let Some(State::Up { way, probes, .. }) = self.states.get_mut(&name) else {
            return None;
        };
        *probes += 1;
        let way = *way;
        self.suspects.insert(name);
        if *probes < PROBES_MAX {
            return None;
        }
        self.enter(name, State::Checking(Attempt::new(random(), now), way));
        Some(Change::Silent)
    }

    /// Notes that no datagram to the peer can go over verbs now.
    pub fn refused(&mut self, name: SocketAddr, now: u64) {
        self.leave(name, now + REST_NS);
    }

    /// Notes that the peer's address is unreachable, which took its time to find out: whoever names that GID, it is left
    /// alone for a while.
    pub fn unreachable(&mut self, name: SocketAddr, gid: Gid, now: u64) {
        self.leave(name, now + WITHOUT_NS);
        self.dead.retain(|(dead, _)| *dead != gid);
        self.dead.truncate(DEAD_GIDS_MAX - 1);
        self.dead.push_front((gid, now + WITHOUT_NS));
    }

    /// True if an endpoint of this name can have the address, and it was not unreachable lately.
    fn reaches(&self, address: &Address, name: SocketAddr, now: u64) -> bool {
        let is_dead = |(gid, until_ns): &(Gid, u64)| *gid == address.gid && now < *until_ns;
        address.fits(name, &self.own) && !self.dead.iter().any(is_dead)
    }

    fn leave(&mut self, name: SocketAddr, until_ns: u64) {
        if self.states.contains_key(&name) {
            self.enter(name, State::Without { until_ns });
        }
    }

    /// True if some peer is reached over verbs.
    #[must_use]
    pub fn any_up(&self) -> bool {
        self.up > 0
    }

    /// True if this peer is reached over verbs.
    #[must_use]
    pub fn is_up(&self, name: SocketAddr) -> bool {
        matches!(self.states.get(&name), Some(State::Up { .. }))
    }

    /// Notes a datagram over verbs from this queue pair; the GID is zero where the device does not show it.
    pub fn heard(&mut self, gid: Gid, qpn: u32) {
        let states = &mut self.states;
        self.suspects.retain(|name| {
            let Some(State::Up { way, probes, .. }) = states.get_mut(name) else { return false };
            let fits = gid == Gid([0; 16]) || gid == way.address.gid;
            if fits && way.address.senders.contains(&qpn) {
                *probes = 0;
            }
            *probes > 0
        });
    }

    /// The next question or check that is due.
    pub fn poll(&mut self, now: u64) -> Option<Outgoing> {
        while let Some((due_ns, name)) = self.pending.first().copied() {
            if now < due_ns {
                return None;
            }
            let state = self.states.get(&name).copied();
            let (Some(State::Asking(mut attempt)) | Some(State::Checking(mut attempt, _))) = state
            else {
                unreachable!("who is pending is asked or checked")
            };
            if attempt.tries < TRIES_MAX {
                attempt.step(now);
                if let Some(State::Checking(_, way)) = state {
                    self.enter(name, State::Checking(attempt, way));
                    let to = Target::Verbs(way.address, name);
                    return Some(self.outgoing(to, Kind::Check, attempt.nonce, way.cookie));
                }
                self.enter(name, State::Asking(attempt));
                return Some(self.outgoing(Target::Udp(name), Kind::Ask, attempt.nonce, 0));
            }
            // A peer that did not even answer has no verbs, or is absent; one that did may be heard soon.
            let rest_ns = if let Some(State::Asking(_)) = state { WITHOUT_NS } else { REST_NS };
            self.enter(name, State::Without { until_ns: now + rest_ns });
        }
        None
    }

    /// Time at which [`Peers::poll`] has something.
    #[must_use]
    pub fn next_ns(&self) -> Option<u64> {
        self.pending.first().map(|(due_ns, _)| *due_ns)
    }

    /// Takes a port datagram. Returns the answer to it, and the change for its sender.
    pub fn handle(
        &mut self,
        datagram: &PortDatagram,
        via: Via,
        now: u64,
        random: impl FnOnce() -> u64,
    ) -> (Option<Outgoing>, Option<Change>) {
        let PortDatagram { nonce, address, cookie, name, .. } = *datagram;
        let known = self.states.get(&name).copied();
        match (datagram.kind, via, known) {
            // An endpoint without verbs stays silent, which tells the peer enough.
            (Kind::Ask, Via::Udp, _) if self.own.is_some() => {
                let cookie = self.cookie(name);
                let to = if mutant(Mutant::AnswersItself) { self.name } else { name };
                (Some(self.outgoing(Target::Udp(to), Kind::Answer, nonce, cookie)), None)
            }
            // A false address would make us resolve hosts of a stranger's choice, which may stop us for a second each;
            // a UD packet's source proves nothing.
            (Kind::Check, Via::Verbs(from), _)
                if address.is_some()
                    && self.own.is_some()
                    && self.reaches(&address, name, now)
                    && from.is_none_or(|from| from == address.gid)
                    && cookie == self.cookie(name) =>
            {
                (Some(self.outgoing(Target::Verbs(address, name), Kind::Confirm, nonce, 0)), None)
            }
            (Kind::Answer, Via::Udp, Some(State::Asking(attempt)))
                if attempt.nonce == nonce || mutant(Mutant::TakesAnyAnswer) =>
            {
                let fits =
                    self.reaches(&address, name, now) || mutant(Mutant::TakesAForeignAddress);
                if address.is_some() && fits {
                    let way = Way { address, cookie };
                    self.enter(name, State::Checking(Attempt::new(random(), now), way));
                    return (None, None);
                }
                self.enter(name, State::Without { until_ns: now + WITHOUT_NS });
                (None, Some(Change::Without))
            }
            (Kind::Confirm, Via::Verbs(_), Some(State::Checking(attempt, way)))
                if attempt.nonce == nonce || mutant(Mutant::TakesAnyConfirmation) =>
            {
                self.enter(name, State::Up { way, since_ns: now, probes: 0 });
                (None, Some(Change::Up(way.address)))
            }
            _ => (None, None),
        }
    }

    fn ask(&mut self, name: SocketAddr, now: u64, nonce: u64) {
        if self.own.is_some() {
            self.enter(name, State::Asking(Attempt::new(nonce, now)));
        }
    }

    fn enter(&mut self, name: SocketAddr, state: State) {
        match self.states.insert(name, state) {
            Some(State::Asking(attempt) | State::Checking(attempt, _)) => {
                self.pending.remove(&(attempt.next_ns, name));
            }
            Some(State::Up { .. }) => {
                self.up -= usize::from(!mutant(Mutant::CountsLostPeers));
                self.suspects.remove(&name);
            }
            _ => {}
        }
        self.up += usize::from(matches!(state, State::Up { .. }));
        if let State::Asking(attempt) | State::Checking(attempt, _) = state {
            self.pending.insert((attempt.next_ns, name));
        }
    }

    fn outgoing(&self, to: Target, kind: Kind, nonce: u64, cookie: u32) -> Outgoing {
        let address = if self.usable { self.own } else { Address::NONE };
        let datagram = PortDatagram { kind, nonce, address, cookie, name: self.name };
        Outgoing { to, bytes: datagram.encode() }
    }

    fn cookie(&self, name: SocketAddr) -> u32 {
        let mut hash = SipHasher24::new_with_keys(self.key[0], self.key[1]);
        name.hash(&mut hash);
        hash.finish() as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::IpAddr;

    const MS: u64 = 1_000_000;

    fn name(last: u8) -> SocketAddr {
        SocketAddr::from(([192, 0, 2, last], 7471))
    }

    fn address(last: u8) -> Address {
        let qpn = u32::from(last) * 16;
        Address {
            gid: Gid(std::net::Ipv4Addr::new(192, 0, 2, last).to_ipv6_mapped().octets()),
            lid: 0,
            qpn,
            qkey: 5,
            tag: 1,
            mtu_bytes: 4096,
            senders: [qpn + 1, qpn + 2, 0, 0, 0, 0, 0],
        }
    }

    fn peers(last: u8) -> Peers {
        Peers::new(address(last), name(last), [u64::from(last), 7])
    }

    /// Carries due datagrams between the two until there are none; returns the changes for the first.
    fn exchange(a: &mut Peers, b: &mut Peers, now: u64, verbs_works: bool) -> Vec<Change> {
        let mut changes = Vec::new();
        let mut nonce = now;
        while let Some(sent) = a.poll(now) {
            let mut to_b = Some(sent);
            while let Some(sent) = to_b.take() {
                let via = match sent.to {
                    Target::Udp(_) => Via::Udp,
                    Target::Verbs(..) if verbs_works => Via::Verbs(None),
                    Target::Verbs(..) => break,
                };
                let datagram = PortDatagram::decode(&sent.bytes).expect("a port datagram");
                let (answer, _) = b.handle(&datagram, via, now, || 0);
                let Some(answer) = answer else { break };
                let datagram = PortDatagram::decode(&answer.bytes).expect("a port datagram");
                nonce += 1;
                let (again, change) = a.handle(&datagram, via, now, || nonce);
                changes.extend(change);
                to_b = again;
            }
        }
        changes
    }

    #[test]
    fn verbs_is_used_once_a_round_trip_over_it_worked() {
        let (mut a, mut b) = (peers(1), peers(2));
        assert_eq!(a.route(name(2), 0, || 11), None);
        assert_eq!(exchange(&mut a, &mut b, 0, true), [Change::Up(address(2))]);
        assert_eq!(a.route(name(2), 1, || 12), Some(address(2)));
        assert_eq!(a.next_ns(), None, "nothing is pending");
        assert!(b.states.is_empty(), "who is asked remembers nothing");
    }

    #[test]
    fn where_verbs_packets_are_dropped_udp_stays_in_use() {
        let (mut a, mut b) = (peers(1), peers(2));
        let mut now = 0;
        a.route(name(2), now, || 11);
        while let Some(next) = a.next_ns() {
            now = next;
            assert_eq!(exchange(&mut a, &mut b, now, false), []);
            assert_eq!(a.route(name(2), now, || 12), None);
        }
        assert!((1000 * MS..3000 * MS).contains(&now), "gives up after {now} ns");
        a.route(name(2), now + REST_NS, || 13);
        assert!(a.next_ns().is_some(), "and tries again later");
    }

    #[test]
    fn a_peer_without_verbs_says_nothing_and_is_left_alone() {
        let mut a = peers(1);
        let mut b = Peers::new(Address::NONE, name(2), [1, 2]);
        let mut now = 0;
        a.route(name(2), now, || 11);
        while let Some(next) = a.next_ns() {
            now = next;
            assert_eq!(exchange(&mut a, &mut b, now, true), []);
        }
        assert_eq!(a.route(name(2), now + WITHOUT_NS - 1, || 12), None);
        assert_eq!(a.next_ns(), None, "it is not asked again so soon");
        assert_eq!(b.route(name(1), 0, || 1), None);
        assert_eq!(b.next_ns(), None, "who has none asks nobody");
    }

    #[test]
    fn answers_that_nobody_asked_for_change_nothing() {
        let mut a = peers(1);
        let forged = |kind, nonce| {
            let (address, name) = (address(2), name(2));
            PortDatagram { kind, nonce, address, cookie: 0, name }
        };
        a.route(name(2), 0, || 11);
        for (kind, via) in [(Kind::Answer, Via::Udp), (Kind::Confirm, Via::Verbs(None))] {
            assert_eq!(a.handle(&forged(kind, 12), via, 0, || 1), (None, None));
        }
        assert_eq!(a.handle(&forged(Kind::Confirm, 11), Via::Verbs(None), 0, || 1), (None, None));
        assert_eq!(a.handle(&forged(Kind::Answer, 11), Via::Verbs(None), 0, || 1), (None, None));
        assert_eq!(a.route(name(2), 0, || 13), None);
        let other = Via::Verbs(Some(address(3).gid));
        assert_eq!(a.handle(&forged(Kind::Check, 1), other, 0, || 1), (None, None));
        let own = Via::Verbs(Some(address(2).gid));
        assert_eq!(a.handle(&forged(Kind::Check, 1), own, 0, || 1), (None, None), "no cookie");
        let elsewhere = PortDatagram { address: address(3), ..forged(Kind::Answer, 11) };
        let without = (None, Some(Change::Without));
        assert_eq!(a.handle(&elsewhere, Via::Udp, 0, || 1), without, "another host's address");
    }

    #[test]
    fn an_address_of_another_kind_of_network_is_not_taken() {
        let check = |peers: &Peers, address| {
            let (kind, name, cookie) = (Kind::Check, name(2), peers.cookie(name(2)));
            PortDatagram { kind, nonce: 1, address, cookie, name }
        };
        let on_infiniband = |last| Address { lid: 7, ..address(last) };
        // With a LID, the GID need not be the name's: the stranger would have us look for any host.
        let mut a = peers(1);
        for address in [on_infiniband(9), on_infiniband(2), address(9)] {
            let datagram = check(&a, address);
            assert_eq!(a.handle(&datagram, Via::Verbs(None), 0, || 1), (None, None), "{address:?}");
            a.route(name(2), 0, || 11);
            let answer = PortDatagram { kind: Kind::Answer, nonce: 11, ..datagram };
            let without = (None, Some(Change::Without));
            assert_eq!(a.handle(&answer, Via::Udp, 0, || 1), without, "{address:?}");
            a = peers(1);
        }
        let datagram = check(&a, address(2));
        assert!(a.handle(&datagram, Via::Verbs(None), 0, || 1).0.is_some());
        let mut a = Peers::new(on_infiniband(1), name(1), [1, 7]);
        let datagram = check(&a, on_infiniband(9));
        assert!(a.handle(&datagram, Via::Verbs(None), 0, || 1).0.is_some(), "any GID has a LID");
        let datagram = check(&a, address(2));
        assert_eq!(a.handle(&datagram, Via::Verbs(None), 0, || 1), (None, None));
    }

    #[test]
    fn an_unreachable_address_is_left_alone_whoever_names_it() {
        let (mut a, gid) = (peers(1), address(2).gid);
        let other = SocketAddr::new(name(2).ip(), 1);
        a.unreachable(name(2), gid, 0);
        let check = |name, cookie| PortDatagram {
            kind: Kind::Check,
            nonce: 1,
            address: address(2),
            cookie,
            name,
        };
        for name in [name(2), other] {
            let datagram = check(name, a.cookie(name));
            let soon = a.handle(&datagram, Via::Verbs(None), WITHOUT_NS - 1, || 1);
            assert_eq!(soon, (None, None), "{name}");
            assert!(a.handle(&datagram, Via::Verbs(None), WITHOUT_NS, || 1).0.is_some(), "{name}");
        }
        a.route(other, 1, || 11);
        let answer = PortDatagram { kind: Kind::Answer, nonce: 11, ..check(other, 0) };
        assert_eq!(a.handle(&answer, Via::Udp, 1, || 1).1, Some(Change::Without));
        for last in 0..200 {
            a.unreachable(name(last), address(last).gid, 1);
        }
        assert_eq!(a.dead.len(), DEAD_GIDS_MAX);
    }

    #[test]
    fn who_cannot_use_verbs_now_says_so() {
        let (mut a, mut b) = (peers(1), peers(2));
        b.set_usable(false);
        a.route(name(2), 0, || 11);
        assert_eq!(exchange(&mut a, &mut b, 0, true), [Change::Without]);
    }

    #[test]
    fn silence_leads_back_to_udp_and_a_sign_of_life_does_not() {
        let (mut a, mut b) = (peers(1), peers(2));
        a.route(name(2), 0, || 11);
        exchange(&mut a, &mut b, 0, true);
        assert_eq!(a.probed(name(2), MS, || 12), None);
        a.heard(address(2).gid, address(2).senders[1]);
        assert_eq!(a.probed(name(2), 2 * MS, || 13), None, "heard since the first");
        a.heard(address(2).gid, 999);
        assert_eq!(a.probed(name(2), 3 * MS, || 14), Some(Change::Silent));
        assert_eq!(a.route(name(2), 3 * MS, || 15), None);
        assert_eq!(exchange(&mut a, &mut b, 3 * MS, true), [Change::Up(address(2))]);
        assert!(a.suspects.is_empty());
    }

    #[test]
    fn a_new_session_asks_anew_unless_it_was_asked_just_now() {
        let (mut a, mut b) = (peers(1), peers(2));
        a.route(name(2), 0, || 11);
        exchange(&mut a, &mut b, 0, true);
        a.renew(name(2), MS, || 12);
        assert!(a.route(name(2), MS, || 13).is_some());
        a.renew(name(2), FRESH_NS, || 14);
        assert_eq!(a.route(name(2), FRESH_NS, || 15), None);
        let restarted = Address { qpn: 77, ..address(2) };
        let mut other = Peers::new(restarted, name(2), [3, 4]);
        assert_eq!(exchange(&mut a, &mut other, FRESH_NS, true), [Change::Up(restarted)]);
    }

    #[test]
    fn whatever_happens_the_counts_are_those_of_the_table() {
        let mut peers = peers(1);
        let mut state = 1_u64;
        let mut random = |below: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        let (mut now, mut nonces) = (0, vec![0]);
        for _ in 0..if cfg!(miri) { 2_000 } else { 20_000 } {
            let (whose, nonce) = (name(2 + random(4) as u8), random(1 << 20));
            now += random(20 * MS);
            match random(8) {
                0 => drop(peers.route(whose, now, || nonce)),
                1 => peers.renew(whose, now, || nonce),
                2 => drop(peers.probed(whose, now, || nonce)),
                3 if random(50) == 0 => peers.refused(whose, now),
                4 => {
                    let theirs = address(2 + random(4) as u8);
                    peers.heard(theirs.gid, theirs.senders[0]);
                }
                5 => {
                    let sent = peers.poll(now);
                    let sent = sent.and_then(|sent| PortDatagram::decode(&sent.bytes));
                    nonces.extend(sent.map(|sent| sent.nonce));
                }
                _ => {
                    let kind =
                        [Kind::Ask, Kind::Answer, Kind::Check, Kind::Confirm][random(4) as usize];
                    let via = [Via::Udp, Via::Verbs(None)][random(2) as usize];
                    let known =
                        nonces[nonces.len() - 1 - random(nonces.len().min(4) as u64) as usize];
                    let IpAddr::V4(ip) = whose.ip() else { unreachable!("see `name`") };
                    let theirs = address(ip.octets()[3]);
                    let address = [theirs, Address::NONE][usize::from(random(8) == 0)];
                    let cookie = peers.cookie(whose);
                    let datagram =
                        PortDatagram { kind, nonce: known, address, cookie, name: whose };
                    peers.handle(&datagram, via, now, || nonce);
                }
            }
            let count = |is: fn(&State) -> bool| peers.states.values().filter(|s| is(s)).count();
            let pending = count(|s| matches!(s, State::Asking(_) | State::Checking(..)));
            assert_eq!(peers.pending.len(), pending);
            assert_eq!(peers.up, count(|s| matches!(s, State::Up { .. })));
            let suspect = |s: &State| matches!(s, State::Up { probes, .. } if *probes > 0);
            assert_eq!(peers.suspects.len(), count(suspect));
        }
        assert!(nonces.len() > 100, "questions were asked");
    }

    #[test]
    #[cfg_attr(miri, ignore = "it takes Miri minutes")]
    fn the_table_is_bounded_and_forgets_who_has_no_verbs() {
        let mut a = peers(1);
        let name = |at: u32| SocketAddr::from((at.to_be_bytes(), 1));
        let more = PEERS_MAX as u32 + 10;
        (0..more).for_each(|at| assert_eq!(a.route(name(at), 0, || 1), None));
        assert_eq!(a.states.len(), PEERS_MAX);
        (0..more).for_each(|at| a.refused(name(at), 0));
        a.route(name(more), REST_NS, || 1);
        assert_eq!(a.states.len(), 1);
        assert!(a.pending.iter().all(|(_, pending)| *pending == name(more)));
    }
}
