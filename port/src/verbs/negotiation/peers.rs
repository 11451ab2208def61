//! The verbs address of each peer, and whether datagrams reach it.
//!
//! First the endpoint asks a peer for its address, over UDP. Then it sends a check over verbs. Only once the peer has
//! confirmed that over verbs does it send its datagrams there, so a network that drops RoCE costs only the attempt.
//! Until then, and whenever probes go unanswered, datagrams take UDP, which every endpoint speaks. Time and randomness
//! are arguments.
//!
//! A peer is a name and a key: what one key proves changes nothing for a peer with another. The caller checks the proof of
//! each datagram that it hands in, and proves those that it gets.

use super::address::{Address, Kind, PortDatagram};
use crate::verbs::gid::Gid;
use erd_types::mutants::{Mutant, mutant};
pub use erd_types::{KeyIndex, PeerAddress};
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
/// long, since address resolution takes a second, in which other addresses wait.
const WITHOUT_NS: u64 = 10_000_000_000;
/// Time for which datagrams take UDP while the way to a peer is being looked up.
const DETOUR_NS: u64 = 1_000_000;
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
    /// What it says.
    pub datagram: PortDatagram,
}

impl Outgoing {
    /// The peer that it is for.
    #[must_use]
    pub fn peer(&self) -> PeerAddress {
        match self.to {
            Target::Udp(peer) | Target::Verbs(_, peer) => peer,
        }
    }
}

/// Destination of a port datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Over UDP, to a peer's name.
    Udp(PeerAddress),
    /// Over verbs, to this peer.
    Verbs(Address, PeerAddress),
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

/// Reason for ignoring a port datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It answers no question or check that stands: nobody asked, or another answer came first.
    Unasked,
    /// It is a question or a check, and came by a carrier that brings none, lacks the cookie, or names an address that its
    /// writer cannot have.
    Unfit,
}

/// The answer to a port datagram, and the change for its sender.
pub type Handled = (Option<Outgoing>, Option<Change>);

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
    /// Reached over verbs, from `from_ns` on.
    Up {
        way: Way,
        since_ns: u64,
        probes: u32,
        from_ns: u64,
    },
    Without {
        until_ns: u64,
    },
}

/// See the module's text.
#[derive(Debug)]
pub struct Peers {
    /// The own address and name.
    own: Address,
    name: SocketAddr,
    states: HashMap<PeerAddress, State>,
    /// Peers under question or check, by the time of the next one.
    pending: BTreeSet<(u64, PeerAddress)>,
    /// Number of peers reached over verbs.
    up: usize,
    /// Those of them that were silent after probes.
    suspects: BTreeSet<PeerAddress>,
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
        peer: PeerAddress,
        now: u64,
        random: impl FnOnce() -> u64,
    ) -> Option<Address> {
        match self.states.get(&peer).copied() {
            Some(State::Up { way, from_ns, .. }) => {
                return (now >= from_ns).then_some(way.address);
            }
            Some(State::Without { until_ns }) if now >= until_ns => {}
            Some(_) => return None,
            None if !self.has_room(now) => return None,
            None => {}
        }
        self.ask(peer, now, random());
        None
    }

    /// Notes that a session with the peer begins: the known address may be of another process.
    pub fn renew(&mut self, peer: PeerAddress, now: u64, random: impl FnOnce() -> u64) {
        match self.states.get(&peer).copied() {
            Some(State::Up { since_ns, .. }) if now >= since_ns + FRESH_NS => {}
            Some(State::Without { .. }) => {}
            Some(_) => return,
            None if !self.has_room(now) => return,
            None => {}
        }
        self.ask(peer, now, random());
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
        self.states.retain(|peer, state| match state {
            State::Asking(_) | State::Checking(..) => true,
            State::Without { until_ns } => now < *until_ns,
            State::Up { since_ns, .. } if now < *since_ns + OLD_NS => true,
            State::Up { .. } => {
                *up -= 1;
                suspects.remove(peer);
                false
            }
        });
        self.states.len() < PEERS_MAX
    }

    /// Notes a probe to the peer: something was not acknowledged.
    pub fn probed(
        &mut self,
        peer: PeerAddress,
        now: u64,
        random: impl FnOnce() -> u64,
    ) -> Option<Change> {
        let Some(State::Up { way, probes, .. }) = self.states.get_mut(&peer) else {
            return None;
        };
        *probes += 1;
        let way = *way;
        self.suspects.insert(peer);
        if *probes < PROBES_MAX {
            return None;
        }
        self.enter(peer, State::Checking(Attempt::new(random(), now), way));
        Some(Change::Silent)
    }

    /// Notes that no datagram to the peer can go over verbs now.
    pub fn refused(&mut self, peer: PeerAddress, now: u64) {
        self.leave(peer, now + REST_NS);
    }

    /// Notes that the way to the peer is being looked up: its datagrams take UDP for a moment.
    pub fn resolving(&mut self, peer: PeerAddress, now: u64) {
        if let Some(State::Up { from_ns, .. }) = self.states.get_mut(&peer) {
            *from_ns = now + DETOUR_NS;
        }
    }

    /// Notes that the peer's address is unreachable, which took its time to find out: whoever names that GID, it is left
    /// alone for a while.
    pub fn unreachable(&mut self, peer: PeerAddress, gid: Gid, now: u64) {
        self.leave(peer, now + WITHOUT_NS);
        self.dead.retain(|(dead, _)| *dead != gid);
        self.dead.truncate(DEAD_GIDS_MAX - 1);
        self.dead.push_front((gid, now + WITHOUT_NS));
    }

    /// True if an endpoint of this name can have the address, and it was not unreachable lately.
    fn reaches(&self, address: &Address, name: SocketAddr, now: u64) -> bool {
        let is_dead = |(gid, until_ns): &(Gid, u64)| *gid == address.gid && now < *until_ns;
        address.fits(name, &self.own) && !self.dead.iter().any(is_dead)
    }

    fn leave(&mut self, peer: PeerAddress, until_ns: u64) {
        if self.states.contains_key(&peer) {
            self.enter(peer, State::Without { until_ns });
        }
    }

    /// True if some peer is reached over verbs.
    #[must_use]
    pub fn any_up(&self) -> bool {
        self.up > 0
    }

    /// True if this peer is reached over verbs.
    #[must_use]
    pub fn is_up(&self, peer: PeerAddress) -> bool {
        matches!(self.states.get(&peer), Some(State::Up { .. }))
    }

    /// Notes a datagram over verbs from this queue pair; the GID is zero where the device does not show it. Nobody proves
    /// that, so with keys the caller uses [`Peers::heard_from`].
    pub fn heard(&mut self, gid: Gid, qpn: u32) {
        let states = &mut self.states;
        self.suspects.retain(|peer| {
            let Some(State::Up { way, probes, .. }) = states.get_mut(peer) else { return false };
            let fits = gid == Gid([0; 16]) || gid == way.address.gid;
            if fits && way.address.senders.contains(&qpn) {
                *probes = 0;
            }
            *probes > 0
        });
    }

    /// True if [`Peers::heard_from`] would change something.
    #[must_use]
    pub fn has_suspects(&self) -> bool {
        !self.suspects.is_empty()
    }

    /// Notes a datagram over verbs that this peer has proven to be its own.
    pub fn heard_from(&mut self, peer: PeerAddress) {
        if let Some(State::Up { probes, .. }) = self.states.get_mut(&peer) {
            *probes = 0;
            self.suspects.remove(&peer);
        }
    }

    /// The next question or check that is due.
    pub fn poll(&mut self, now: u64) -> Option<Outgoing> {
        while let Some((due_ns, peer)) = self.pending.first().copied() {
            if now < due_ns {
                return None;
            }
            let state = self.states.get(&peer).copied();
            let (Some(State::Asking(mut attempt)) | Some(State::Checking(mut attempt, _))) = state
            else {
                unreachable!("who is pending is asked or checked")
            };
            if attempt.tries < TRIES_MAX {
                attempt.step(now);
                if let Some(State::Checking(_, way)) = state {
                    self.enter(peer, State::Checking(attempt, way));
                    let to = Target::Verbs(way.address, peer);
                    return Some(self.outgoing(to, Kind::Check, attempt.nonce, way.cookie));
                }
                self.enter(peer, State::Asking(attempt));
                return Some(self.outgoing(Target::Udp(peer), Kind::Ask, attempt.nonce, 0));
            }
            // A peer that did not even answer has no verbs, or is absent; one that did may be heard soon.
            let rest_ns = if let Some(State::Asking(_)) = state { WITHOUT_NS } else { REST_NS };
            self.enter(peer, State::Without { until_ns: now + rest_ns });
        }
        None
    }

    /// Time at which [`Peers::poll`] has something.
    #[must_use]
    pub fn next_ns(&self) -> Option<u64> {
        self.pending.first().map(|(due_ns, _)| *due_ns)
    }

    /// Takes a port datagram. Returns the answer to it, and the change for its sender.
    ///
    /// # Errors
    /// The reason for ignoring it.
    pub fn handle(
        &mut self,
        datagram: &PortDatagram,
        key: KeyIndex,
        via: Via,
        now: u64,
        random: impl FnOnce() -> u64,
    ) -> Result<Handled, Refusal> {
        let PortDatagram { nonce, address, cookie, name, .. } = *datagram;
        let peer = PeerAddress { name, key };
        let known = self.states.get(&peer).copied();
        match (datagram.kind, via, known) {
            // An endpoint without verbs stays silent, which tells the peer enough.
            (Kind::Ask, Via::Udp, _) if self.own.is_some() => {
                let cookie = self.cookie(peer);
                let to_name = if mutant(Mutant::AnswersItself) { self.name } else { name };
                let to = Target::Udp(PeerAddress { name: to_name, key });
                Ok((Some(self.outgoing(to, Kind::Answer, nonce, cookie)), None))
            }
            // A false address would make us resolve hosts of a stranger's choice, which takes a second each; a UD packet's source proves nothing.
            (Kind::Check, Via::Verbs(from), _)
                if address.is_some()
                    && self.own.is_some()
                    && self.reaches(&address, name, now)
                    && from.is_none_or(|from| from == address.gid)
                    && cookie == self.cookie(peer) =>
            {
                let to = Target::Verbs(address, peer);
                Ok((Some(self.outgoing(to, Kind::Confirm, nonce, 0)), None))
            }
            (Kind::Answer, Via::Udp, Some(State::Asking(attempt)))
                if attempt.nonce == nonce || mutant(Mutant::TakesAnyAnswer) =>
            {
                let fits =
                    self.reaches(&address, name, now) || mutant(Mutant::TakesAForeignAddress);
                if address.is_some() && fits {
                    let way = Way { address, cookie };
                    self.enter(peer, State::Checking(Attempt::new(random(), now), way));
                    return Ok((None, None));
                }
                self.enter(peer, State::Without { until_ns: now + WITHOUT_NS });
                Ok((None, Some(Change::Without)))
            }
            (Kind::Confirm, Via::Verbs(_), Some(State::Checking(attempt, way)))
                if attempt.nonce == nonce || mutant(Mutant::TakesAnyConfirmation) =>
            {
                self.enter(peer, State::Up { way, since_ns: now, probes: 0, from_ns: now });
                Ok((None, Some(Change::Up(way.address))))
            }
            (Kind::Answer | Kind::Confirm, ..) => Err(Refusal::Unasked),
            (Kind::Ask | Kind::Check, ..) => Err(Refusal::Unfit),
        }
    }

    fn ask(&mut self, peer: PeerAddress, now: u64, nonce: u64) {
        if self.own.is_some() {
            self.enter(peer, State::Asking(Attempt::new(nonce, now)));
        }
    }

    fn enter(&mut self, peer: PeerAddress, state: State) {
        match self.states.insert(peer, state) {
            Some(State::Asking(attempt) | State::Checking(attempt, _)) => {
                self.pending.remove(&(attempt.next_ns, peer));
            }
            Some(State::Up { .. }) => {
                self.up -= usize::from(!mutant(Mutant::CountsLostPeers));
                self.suspects.remove(&peer);
            }
            _ => {}
        }
        self.up += usize::from(matches!(state, State::Up { .. }));
        if let State::Asking(attempt) | State::Checking(attempt, _) = state {
            self.pending.insert((attempt.next_ns, peer));
        }
    }

    fn outgoing(&self, to: Target, kind: Kind, nonce: u64, cookie: u32) -> Outgoing {
        let address = if self.usable { self.own } else { Address::NONE };
        let datagram = PortDatagram { kind, nonce, address, cookie, name: self.name };
        Outgoing { to, datagram }
    }

    fn cookie(&self, peer: PeerAddress) -> u32 {
        let mut hash = SipHasher24::new_with_keys(self.key[0], self.key[1]);
        peer.hash(&mut hash);
        hash.finish() as u32
    }
}

#[cfg(test)]
mod tests;
