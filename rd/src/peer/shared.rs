//! State that all peers of an endpoint share.

use super::inbound::{Inbound, SharedLink};
use super::op::{Asked, Op, Role};
use super::rx::{Budget, SpareGaps};
use super::session::SessionNames;
use super::wrong_keys::WrongKeys;
use crate::cc::Scheme;
use crate::config::{Config, Near};
use crate::keys::{Keys, TRAILER_BYTES};
use crate::stats::Stats;
use crate::units::{KeyIndex, Nanos};
use crate::wire::header::{KEYED_VERSION, VERSION};
use crate::wire::record::Record;
use crate::wire::remote::Refusal;
use crate::wire::setup::Question;
use crate::wire::window::Window;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::hash::Hasher;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use siphasher::sip::SipHasher24;
use slab::Slab;

/// State that all peers of an endpoint share.
pub(crate) struct Core {
    pub cfg: Config,
    /// The endpoint has keys.
    keyed: bool,
    pub scheme: Box<dyn Scheme>,
    /// Settings towards peers on this host, where they differ.
    pub near: Option<Near>,
    pub rng: ChaCha8Rng,
    /// The secret key of cookies and asker ids.
    pub secret: [u64; 2],
    pub stats: Stats,
    /// Bounded by `cfg.sends_max`, and for those that are silent by the answers and reads under way of each peer.
    pub ops: Slab<Op>,
    /// Operations that are not the driver's sends: answers to peers, and reads that were reported.
    pub silent: usize,
    /// Number of `ops` in a peer's queue: not in any datagram yet.
    pub queued: usize,
    /// The request state of requests among `ops`.
    pub asked: Slab<Asked>,
    /// Peers that send data share the receive buffer, and this host's link.
    pub inbound: Inbound,
    /// Peers whose session has no lane, from its set-up to its end: datagrams are to be expected from them.
    pub on_network: usize,
    /// See [`crate::Endpoint::set_ack_spacing`].
    pub ack_spacing_ns: Nanos,
    /// Records of the bundle being read; bounded by a datagram.
    pub scratch: Vec<Record>,
    /// The packet being read, where it does not lie so in its datagram; bounded by that.
    pub opened: Vec<u8>,
    /// Time of the packet or timer being handled.
    pub now: Nanos,
    /// Wrong keys by address.
    pub wrong_keys: WrongKeys,
    /// Sessions begun, over all peers: grows within an epoch.
    pub sessions: u32,
    /// Time of the driver's last flush, which follows each look for arrivals.
    pub looked_at: Nanos,
    /// The loans from [`Config::unexpected_bytes`].
    pub budget: Budget,
    pub spare_gaps: SpareGaps,
    /// The peer whose rendezvous message got a segment last.
    pub filling: Option<u32>,
}

/// The terms of a new session, which depend on the peer's place.
pub(crate) struct Terms<'a> {
    pub datagram_bytes: u16,
    pub paths: u16,
    pub link_bytes_per_s: u64,
    pub scheme: &'a dyn Scheme,
}

impl Core {
    /// State of an endpoint without peers. `seed` is all the randomness it ever gets.
    pub(crate) fn new(cfg: Config, scheme: Box<dyn Scheme>, seed: u64) -> Core {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let secret = [rng.next_u64(), rng.next_u64()];
        Core {
            budget: Budget::new(cfg.unexpected_bytes),
            spare_gaps: SpareGaps::default(),
            keyed: !cfg.keys.is_empty(),
            cfg,
            scheme,
            near: None,
            rng,
            secret,
            stats: Stats::default(),
            ops: Slab::new(),
            silent: 0,
            queued: 0,
            asked: Slab::new(),
            inbound: Inbound::default(),
            on_network: 0,
            ack_spacing_ns: 0,
            scratch: Vec::new(),
            opened: Vec::new(),
            now: 0,
            wrong_keys: WrongKeys::default(),
            sessions: 0,
            looked_at: 0,
            filling: None,
        }
    }

    /// The terms for peers on this host (`near`), or for others.
    pub(crate) fn terms(&self, near: bool) -> Terms<'_> {
        match self.near.as_ref().filter(|_| near) {
            Some(near) => Terms {
                datagram_bytes: near.datagram_bytes,
                paths: near.paths,
                link_bytes_per_s: near.link_bytes_per_s,
                scheme: &*near.scheme,
            },
            None => Terms {
                datagram_bytes: self.cfg.datagram_bytes,
                paths: self.cfg.paths,
                link_bytes_per_s: self.cfg.link_bytes_per_s,
                scheme: &*self.scheme,
            },
        }
    }

    /// Names for the next session, with the peer of this index.
    pub(super) fn name_session(&mut self, index: u32) -> SessionNames {
        self.sessions += 1;
        let random = (self.rng.next_u64() >> 24).max(1);
        SessionNames { number: self.sessions, id: (random << 24) | u64::from(index) }
    }

    /// Our id for the peer of `local_session`, in packets that strangers may read. A keyed hash: the session id does
    /// not follow from it. Both contain the index of the peer.
    pub(crate) fn asker_id(&self, local_session: u64) -> u64 {
        let mut hash = SipHasher24::new_with_keys(self.secret[0], self.secret[1]);
        hash.write_u64(local_session);
        (hash.finish() << 24) | (local_session & 0xff_ffff)
    }

    /// Random bytes of a session's greeting: they do not follow from its id, and are the same in each repetition.
    pub(crate) fn greeting_random(&self, local_session: u64) -> Question {
        let mut random = Question::default();
        for (half, number) in random.chunks_exact_mut(8).zip(1u8..) {
            let mut hash = SipHasher24::new_with_keys(self.secret[0], self.secret[1]);
            hash.write_u64(local_session);
            hash.write_u8(number);
            half.copy_from_slice(&hash.finish().to_be_bytes());
        }
        random
    }

    /// True if the endpoint has keys: then every packet is proven.
    pub(crate) fn is_keyed(&self) -> bool {
        self.keyed
    }

    /// The key in a place; `None` without keys.
    pub(crate) fn key(&self, at: KeyIndex) -> Option<&dyn Keys> {
        self.cfg.keys.get(at)
    }

    /// Bytes of each datagram of a session that its key takes.
    pub(crate) fn trailer_bytes(&self) -> usize {
        if self.is_keyed() { TRAILER_BYTES } else { 0 }
    }

    /// The checksum of headers: with a key there is none.
    pub(crate) fn checksum(&self) -> fn(u32, &[u8]) -> u32 {
        if self.is_keyed() { |_, _| 0 } else { self.cfg.crc32c }
    }

    /// The version of packets that are written and read here.
    pub(crate) fn version(&self) -> u8 {
        if self.is_keyed() { KEYED_VERSION } else { VERSION }
    }

    /// What one sender, `rtt_ns` from here, may have on the way to this endpoint: its share of half the receive buffer (the other
    /// half pays for the kernel's bookkeeping), at least two datagrams, or of the link (protocol.md §4.4). Each packet counts
    /// [`DATAGRAM_COST_BYTES`](crate::wire::window::DATAGRAM_COST_BYTES) more.
    pub(crate) fn recv_window(&self, near: bool, datagram_bytes: u16, rtt_ns: Nanos) -> Window {
        let buffer = self.cfg.recv_buffer_bytes / 2 / self.inbound.senders(self.now).max(1);
        let buffer = Window::of_bytes(buffer.max(2 * u32::from(datagram_bytes)).into());
        let rtt_ns = if self.cfg.base_rtt_ns == 0 { rtt_ns } else { self.cfg.base_rtt_ns };
        if near {
            return buffer;
        }
        match self.inbound.share(self.now, &self.link(), rtt_ns, datagram_bytes) {
            Some(share) if share.bytes().is_none_or(|bytes| Some(bytes) < buffer.bytes()) => share,
            _ => buffer,
        }
    }

    /// The link on which peers on other hosts send to this endpoint.
    pub(super) fn link(&self) -> SharedLink {
        let least_bdps = self.scheme.link_share_bdps();
        SharedLink { bytes_per_s: self.cfg.link_bytes_per_s, least_bdps }
    }
}

impl Core {
    /// Drops the role state of an operation taken out of the table. False if the driver knows of its end.
    pub(crate) fn forget_role(&mut self, op: &Op) -> bool {
        match op.role {
            Role::Message => true,
            Role::Answer { .. } => {
                self.silent -= 1;
                true
            }
            Role::Request(at) => {
                let asked = self.asked.remove(at as usize);
                self.silent -= usize::from(asked.reported);
                !asked.reported
            }
        }
    }
}

impl Core {
    /// Notes that a part of our read will not come.
    pub(super) fn refuse_read(&mut self, op: u32, refusal: Refusal) {
        if let Role::Request(at) = self.ops[op as usize].role {
            self.asked[at as usize].outcome.get_or_insert(Err(refusal));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cc::fixed::ERD;
    use crate::peer::inbound::Arrival;
    use crate::peer::senders::Round;

    #[test]
    fn senders_share_the_receive_buffer_and_have_two_datagrams_at_least() {
        let name = "10.0.0.1:1".parse().expect("an address");
        let config = Config { recv_buffer_bytes: 1 << 20, ..Config::new(name, 1, |seed, _| seed) };
        let mut core = Core::new(config, Box::new(ERD.scheme()), 1);
        let windows = [(0, 512 << 10), (1, 512 << 10), (4, 128 << 10), (1000, 8192)];
        for (senders, bytes) in windows {
            core.inbound = Inbound::default();
            let packet = Arrival {
                now: 0,
                arrived: 0,
                bytes: 64,
                held: false,
                late: false,
                whole_rtt_ns: 0,
            };
            let link = core.link();
            let heard = |_| core.inbound.heard(&packet, &mut Round::default(), &link);
            (0..senders).for_each(heard);
            let window = core.recv_window(false, 4096, 0);
            assert_eq!(window.bytes(), Some(bytes), "{senders} senders");
        }
        // The part that is left for an endpoint beside many others may be nothing.
        core.cfg.recv_buffer_bytes = 0;
        assert_eq!(core.recv_window(false, 4096, 0).bytes(), Some(8192));
    }
}
