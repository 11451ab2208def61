//! Port datagrams, as an endpoint exchanges them (`docs/protocol.md` §10): which it takes and which it answers. With keys
//! it proves those that it sends, and takes none whose proof is not right (§11.10).
//!
//! It has no device. The [`super::link`] carries what it says.

use erd_port::verbs::negotiation::address::{
    KEY_ID_BYTES, Kind as PortKind, MARK, PROOF_BYTES, PROVEN_BYTES, PROVEN_MARK, PortDatagram,
};
use erd_port::verbs::negotiation::peers::{Change, Outgoing, Peers, Refusal, Target, Via};
use erd_rd::PeerAddress;
use erd_rd::keys::{KeySet, Keys, Loose};
use erd_rd::units::KeyIndex;
use erd_rd::wire::header::{KEYED_VERSION, VERSION};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

/// Their first byte is the engine's version with a kind that the engine does not have. So what a key proves of one is never
/// a proof of the other.
const _: () = assert!(MARK == VERSION << 4 | 15 && PROVEN_MARK == KEYED_VERSION << 4 | 15);
const _: () = assert!(KEY_ID_BYTES == erd_rd::keys::KEY_ID_BYTES);
const _: () = assert!(PROOF_BYTES == erd_rd::keys::PROOF_BYTES);

/// Answers that wait to be sent; more are dropped, and asked for again.
const ANSWERS_MAX: usize = 256;
/// Those of them to names of one IP address, or of one /64 of IPv6: one stranger's questions keep nobody else's from being
/// answered.
const ANSWERS_PER_HOST: usize = 64;

/// Reason for dropping a port datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Unheard {
    /// It has another length or a wrong checksum, or it has a key where there is none, or none where there are keys.
    Malformed,
    /// It names a key that the endpoint does not have.
    OtherKey,
    /// Its proof is wrong.
    Forged,
    /// It answers nothing that was asked for, or not any more.
    Unasked,
    /// It asks for what is not told.
    Unfit,
    /// Too many answers wait.
    Full,
}

impl From<Refusal> for Unheard {
    fn from(refusal: Refusal) -> Unheard {
        match refusal {
            Refusal::Unasked => Unheard::Unasked,
            Refusal::Unfit => Unheard::Unfit,
        }
    }
}

/// A port datagram that may go out.
pub(super) struct Written {
    pub(super) to: Target,
    bytes: [u8; PROVEN_BYTES],
    len_bytes: usize,
}

impl Written {
    fn new(to: Target, written: &[u8]) -> Written {
        let mut bytes = [0; PROVEN_BYTES];
        bytes[..written.len()].copy_from_slice(written);
        Written { to, bytes, len_bytes: written.len() }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len_bytes]
    }
}

/// Answers that wait to be sent.
#[derive(Default)]
struct Answers(Vec<Outgoing>);

impl Answers {
    /// Keeps an answer; false if too many wait, or too many to its host.
    fn push(&mut self, answer: Outgoing) -> bool {
        let host = host(&answer);
        let to_host = self.0.iter().filter(|waiting| self::host(waiting) == host).count();
        let takes = self.0.len() < ANSWERS_MAX && to_host < ANSWERS_PER_HOST;
        if takes {
            self.0.push(answer);
        }
        takes
    }
}

/// Whether a question came from the IP address of the name in it, where its answer goes.
fn asks_for_itself(from: SocketAddr, name: SocketAddr) -> bool {
    from.ip().to_canonical() == name.ip().to_canonical()
}

/// The host of the peer that an answer is for: its IPv4 address, or the /64 of its IPv6 address.
fn host(answer: &Outgoing) -> IpAddr {
    match answer.peer().name.ip().to_canonical() {
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() & (u128::MAX << 64)).into(),
        v4 => v4,
    }
}

/// See the module's text.
pub(super) struct Negotiation {
    pub(super) peers: Peers,
    answers: Answers,
    name: SocketAddr,
    keys: KeySet,
}

impl Negotiation {
    /// For an endpoint of this name and these keys; `peers` know its verbs address.
    pub(super) fn new(peers: Peers, name: SocketAddr, keys: KeySet) -> Negotiation {
        Negotiation { peers, answers: Answers::default(), name, keys }
    }

    /// A new key takes the place of another (§11.9), which stays valid until [`Negotiation::retire_keys`].
    pub(super) fn renew_key(&mut self, at: KeyIndex, key: Arc<dyn Keys>) {
        self.keys.renew(at, key);
    }

    /// Drops keys that others have taken the place of.
    pub(super) fn retire_keys(&mut self) {
        self.keys.retire();
    }

    /// Drops all keys.
    pub(super) fn forget_keys(&mut self) {
        self.keys = KeySet::default();
    }

    /// Packets are proven.
    pub(super) fn is_keyed(&self) -> bool {
        !self.keys.is_empty()
    }

    /// Takes a port datagram over UDP from this address. It answers a question only to a peer that the host `admits`.
    ///
    /// # Errors
    /// As [`Negotiation::take`].
    pub(super) fn take_over_udp(
        &mut self,
        bytes: &[u8],
        from: SocketAddr,
        now: u64,
        admits: impl FnOnce(PeerAddress) -> bool,
    ) -> Result<bool, Unheard> {
        let may_ask = |peer: PeerAddress| asks_for_itself(from, peer.name) && admits(peer);
        self.take(bytes, Via::Udp, now, may_ask)
    }

    /// Takes a port datagram. `may_ask` says whether its writer may ask. True if there is an answer to it.
    ///
    /// # Errors
    /// The reason for dropping it.
    pub(super) fn take(
        &mut self,
        bytes: &[u8],
        via: Via,
        now: u64,
        may_ask: impl FnOnce(PeerAddress) -> bool,
    ) -> Result<bool, Unheard> {
        let (datagram, key) = self.read(bytes)?;
        let peer = PeerAddress { name: datagram.name, key };
        if datagram.kind == PortKind::Ask && !may_ask(peer) {
            return Err(Unheard::Unfit);
        }
        let random = crate::random::u64;
        let (answer, change) = self.peers.handle(&datagram, key, via, now, random)?;
        log(datagram.name, change);
        match answer {
            None => Ok(false),
            Some(answer) if self.answers.push(answer) => Ok(true),
            Some(_) => Err(Unheard::Full),
        }
    }

    /// What a port datagram says, and the key that proves it.
    fn read(&self, bytes: &[u8]) -> Result<(PortDatagram, KeyIndex), Unheard> {
        if !self.is_keyed() {
            let datagram = PortDatagram::decode(bytes).ok_or(Unheard::Malformed)?;
            return Ok((datagram, KeyIndex::default()));
        }
        let claimed = PortDatagram::decode_proven(bytes).ok_or(Unheard::Malformed)?;
        let (at, key) = self.keys.find_key(claimed.key_id).ok_or(Unheard::OtherKey)?;
        let writer = claimed.datagram.name;
        let loose = loose(claimed.covered, writer, self.name);
        match key.verify(&loose, claimed.proof) {
            true => Ok((claimed.datagram, at)),
            false => Err(Unheard::Forged),
        }
    }

    /// The `nth` port datagram to send in one step, if one is due.
    pub(super) fn next(&mut self, nth: usize, now: u64) -> Option<Written> {
        // In turn, so that a flood of questions does not keep ours from going out.
        let (answers, peers) = (&mut self.answers.0, &mut self.peers);
        let next = match nth % 2 {
            0 => answers.pop().or_else(|| peers.poll(now)),
            _ => peers.poll(now).or_else(|| answers.pop()),
        };
        Some(self.write(next?))
    }

    fn write(&self, outgoing: Outgoing) -> Written {
        let (Outgoing { to, datagram }, reader) = (outgoing, outgoing.peer());
        if !self.is_keyed() {
            return Written::new(to, &datagram.encode());
        }
        let key = self.keys.get(reader.key).expect("a peer's key is one of the endpoint's");
        let prove = |covered: &[u8]| key.prove(&loose(covered, self.name, reader.name));
        Written::new(to, &datagram.encode_proven(key.id(), prove))
    }

    /// The time at which [`Negotiation::next`] has something.
    pub(super) fn next_ns(&self) -> Option<u64> {
        if self.answers.0.is_empty() { self.peers.next_ns() } else { Some(1) }
    }
}

/// What is proven of a port datagram. An answer has the random number of its question among the covered bytes.
fn loose(packet: &[u8], writer: SocketAddr, reader: SocketAddr) -> Loose<'_> {
    Loose { packet, writer, reader, question: &[] }
}

pub(super) fn log(peer: SocketAddr, change: Option<Change>) {
    match change {
        Some(Change::Up(address)) => {
            tracing::info!(%peer, gid = %address.gid, qpn = address.qpn, "verbs from now on");
        }
        Some(Change::Silent) => {
            tracing::info!(%peer, "nothing comes back over verbs: UDP until it does");
        }
        Some(Change::Without) => tracing::info!(%peer, "the peer has no verbs: UDP"),
        None => {}
    }
}

#[cfg(test)]
mod tests;
