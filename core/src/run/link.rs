//! The choice of a carrier for the datagrams to each peer: UDP, or verbs where both sides have it.
//!
//! The engine knows nothing of it. UDP always works, so set-up uses it. So does everything else until verbs has proven
//! to work towards a peer, and again once verbs fails (`docs/protocol.md` §10).

use super::negotiation::{Negotiation, Unheard, log};
use erd_port::udp::{Dst, SendReport, Stop};
use erd_port::verbs::negotiation::address::{Address, PortDatagram};
use erd_port::verbs::negotiation::peers::{Peers, Target, Via};
use erd_port::verbs::{Member, SendStop, VerbsPort};
use erd_port::{Burst, Port};
use erd_rd::keys::{KeySet, Keys};
use erd_rd::units::KeyIndex;
use erd_rd::wire::header::PacketKind;
use erd_rd::{Ecn, PeerAddress, TxBurst};
use erd_sys::clock::monotonic_ns;
use std::net::SocketAddr;
use std::sync::Arc;

/// Port datagrams sent in one step.
const SENDS: usize = 16;
/// An acknowledgement follows another after the time in which so many datagrams can be sent.
const ACK_PATIENCE: u64 = 4;

/// Bytes of the engine's receive buffer that one posted receive counts for. The engine counts 1 KiB per packet beside its
/// bytes, and fills half the buffer at most. So this many bytes are never more packets than there are receives.
const RECV_SLOT_WORTH_BYTES: u32 = 2 << 10;

/// The receive buffer that a port's receives are, for all endpoints of its domain.
pub(crate) fn recv_buffer_bytes(port: &VerbsPort) -> u32 {
    port.recv_slots().saturating_mul(RECV_SLOT_WORTH_BYTES)
}

/// What the verbs port carried for an endpoint.
#[derive(Clone, Copy, Debug, Default)]
pub struct Carried {
    /// Datagrams sent.
    pub tx_datagrams: u64,
    /// Their bytes.
    pub tx_bytes: u64,
    /// Those of them that were not copied.
    pub tx_uncopied_bytes: u64,
    /// Datagrams received.
    pub rx_datagrams: u64,
    /// Their bytes.
    pub rx_bytes: u64,
    /// Answers to port datagrams.
    pub port_answers: u64,
    /// Port datagrams that were dropped, for the reasons below or another: malformed, no other port than UDP here, a
    /// question from another IP address than its name's, too many answers that wait.
    pub port_drops: u64,
    /// Those of them that name a key which the endpoint does not have.
    pub port_other_key: u64,
    /// Those of them whose proof was wrong.
    pub port_forged: u64,
    /// Answers and confirmations of nothing that was asked for, or not any more.
    pub port_unasked: u64,
}

impl Carried {
    /// Counts a port datagram that was taken, with an answer or without, or dropped.
    fn count(&mut self, taken: Result<bool, Unheard>) {
        self.port_answers += u64::from(taken == Ok(true));
        if let Err(reason) = taken {
            tracing::debug!(?reason, "a port datagram was dropped");
            self.port_drops += 1;
            self.port_other_key += u64::from(reason == Unheard::OtherKey);
            self.port_forged += u64::from(reason == Unheard::Forged);
            self.port_unasked += u64::from(reason == Unheard::Unasked);
        }
    }
}

/// See the module's text.
pub struct Link {
    /// Without it, peers that ask get no answer.
    member: Option<Member>,
    /// The receive buffer of all endpoints of the domain.
    recv_buffer_bytes: u32,
    talk: Negotiation,
    /// Marks are sent.
    ecn: bool,
    /// What sending a datagram over verbs lately took.
    datagram_ns: u64,
    /// What it carried.
    pub carried: Carried,
}

impl Link {
    /// The link of the endpoint called `name`. `verbs` is the endpoint's share of an RDMA device, if there is one, and the
    /// keys that prove what the endpoint says of it. With `ecn`, switches may mark what goes over that device.
    pub fn new(verbs: Option<(Member, KeySet)>, name: SocketAddr, ecn: bool) -> Link {
        let (member, keys) = verbs.unzip();
        let own = member.as_ref().map_or(Address::NONE, Member::address);
        let recv_buffer_bytes =
            member.as_ref().map_or(0, |member| recv_buffer_bytes(member.port()));
        let peers = Peers::new(own, name, [crate::random::u64(), crate::random::u64()]);
        let talk = Negotiation::new(peers, name, keys.unwrap_or_default());
        Link { member, recv_buffer_bytes, talk, ecn, datagram_ns: 0, carried: Carried::default() }
    }

    /// A new key takes the place of another, which stays valid until [`Link::retire_keys`].
    pub(crate) fn renew_key(&mut self, at: KeyIndex, key: Arc<dyn Keys>) {
        self.talk.renew_key(at, key);
    }

    /// Drops keys that others have taken the place of.
    pub(crate) fn retire_keys(&mut self) {
        self.talk.retire_keys();
    }

    /// Drops all keys: the link is not used any more.
    pub(crate) fn forget_keys(&mut self) {
        self.talk.forget_keys();
    }

    /// The endpoint's part of the port's receives, as bytes of buffer, while so many peers send to it; `None` without verbs.
    pub(super) fn recv_share_bytes(&mut self, senders: u32) -> Option<u32> {
        let whole = self.recv_buffer_bytes.into();
        let share = self.member.as_mut()?.share(senders, whole);
        Some(share as u32)
    }

    pub(crate) fn has_verbs(&self) -> bool {
        self.member.is_some()
    }

    /// Some peer is reached over verbs.
    pub(super) fn uses_verbs(&self) -> bool {
        self.talk.peers.any_up()
    }

    /// Time between acknowledgements that leaves most of the time to the data.
    pub(super) fn ack_spacing_ns(&self) -> u64 {
        ACK_PATIENCE * self.datagram_ns
    }

    /// What data to the peer takes now.
    pub(crate) fn carrier(&self, peer: PeerAddress) -> &'static str {
        if self.talk.peers.is_up(peer) { "verbs" } else { "udp" }
    }

    pub(crate) fn member(&self) -> Option<&Member> {
        self.member.as_ref()
    }

    /// Takes a datagram that came over UDP if it is one between ports; the engine gets the others. A question gets an
    /// answer only if the host `admits` its writer.
    pub(super) fn takes(
        &mut self,
        bytes: &[u8],
        from: SocketAddr,
        now: u64,
        admits: impl FnOnce(PeerAddress) -> bool,
    ) -> bool {
        let claimed = PortDatagram::claims(bytes);
        if claimed && self.is_heard() {
            let taken = self.talk.take_over_udp(bytes, from, now, admits);
            self.carried.count(taken);
        }
        claimed
    }

    /// Whether port datagrams count here, of which the peers are told what can be used now. Without verbs they are dropped.
    fn is_heard(&mut self) -> bool {
        let Some(member) = &self.member else {
            self.carried.port_drops += 1;
            return false;
        };
        self.talk.peers.set_usable(member.port().is_usable());
        true
    }

    /// Hands what came over verbs to `f`, with its mark. Where `f` is asked for the peer that has proven to be the
    /// writer, it returns that.
    pub(super) fn recv(
        &mut self,
        now: &mut u64,
        mut f: impl FnMut(u64, &[u8], &erd_port::verbs::Source, bool) -> Option<PeerAddress>,
    ) -> usize {
        let Some(member) = &mut self.member else { return 0 };
        let (keyed, peers, carried) =
            (self.talk.is_keyed(), &mut self.talk.peers, &mut self.carried);
        let mut between_ports = Vec::new();
        let mut read_at = None;
        let count = member.recv(|data, source| {
            *now = *read_at.get_or_insert_with(monotonic_ns);
            if !keyed {
                peers.heard(source.gid, source.qpn);
            }
            if PortDatagram::claims(data) {
                let gid = source.gid;
                between_ports.push((data.to_vec(), (gid.0 != [0; 16]).then_some(gid)));
                return;
            }
            carried.rx_datagrams += 1;
            carried.rx_bytes += data.len() as u64;
            // With keys, only what is proven is a sign of life.
            if let Some(writer) = f(*now, data, source, keyed && peers.has_suspects()) {
                peers.heard_from(writer);
            }
        });
        for (datagram, from) in between_ports {
            if self.is_heard() {
                // Nobody asks over verbs: there the cookie of an answer is shown.
                let taken = self.talk.take(&datagram, Via::Verbs(from), *now, |_| false);
                self.carried.count(taken);
            }
        }
        count
    }

    /// Notes what a burst, made just now, tells of its peer.
    pub(super) fn note(&mut self, burst: &TxBurst, now: u64) {
        if !self.has_verbs() {
            return;
        }
        match burst.kind {
            PacketKind::Hello | PacketKind::Welcome => {
                self.talk.peers.renew(burst.peer(), now, crate::random::u64);
            }
            PacketKind::Probe => {
                let change = self.talk.peers.probed(burst.peer(), now, crate::random::u64);
                log(burst.to, change);
            }
            _ => {}
        }
    }

    /// Where a burst goes over verbs; `None` if it takes UDP.
    pub(super) fn route(&mut self, burst: &TxBurst, now: u64) -> Option<Address> {
        let port = self.member.as_ref()?.port();
        let for_verbs = match burst.kind {
            PacketKind::Data | PacketKind::SizeProbe => !burst.may_fragment,
            PacketKind::Ack | PacketKind::Probe | PacketKind::Goodbye | PacketKind::SizeAnswer => {
                true
            }
            // The peer's address over verbs may be another process's, or none, yet.
            PacketKind::Hello
            | PacketKind::Challenge
            | PacketKind::Welcome
            | PacketKind::Reset
            | PacketKind::GoodbyeAck
            | PacketKind::Version => false,
        };
        if !for_verbs || !port.is_usable() {
            return None;
        }
        let own_bytes = port.address().mtu_bytes;
        let address = self.talk.peers.route(burst.peer(), now, crate::random::u64)?;
        (burst.segment_bytes <= u32::from(own_bytes.min(address.mtu_bytes))).then_some(address)
    }

    /// Sends bursts, each to its address and the peer with that key, in order until one cannot be sent.
    ///
    /// # Safety
    /// Each part of each burst is readable for its length during the call.
    pub(super) unsafe fn send(
        &mut self,
        to: &[(Address, KeyIndex)],
        bursts: &[Burst<'_>],
        now: u64,
    ) -> SendReport {
        let mut report = SendReport::default();
        let Some(member) = &self.member else { return report };
        let (begun, before) = (monotonic_ns(), self.carried.tx_datagrams);
        for ((to, key), burst) in to.iter().zip(bursts) {
            // SAFETY: the caller's promise.
            let sent = unsafe { member.port().send(to, &Burst { ecn: self.mark(), ..*burst }) };
            self.carried.tx_datagrams += u64::from(sent.segments - burst.done_segments);
            self.carried.tx_uncopied_bytes += sent.uncopied_bytes;
            self.carried.tx_bytes += match sent.stop {
                None => u64::from(burst.total_bytes - burst.done_segments * burst.segment_bytes),
                Some(_) => u64::from((sent.segments - burst.done_segments) * burst.segment_bytes),
            };
            match sent.stop {
                None => report.bursts += 1,
                Some(stop) => {
                    report.segments = sent.segments;
                    report.stop = Some(Stop::Blocked);
                    // The rest takes UDP, at once.
                    let peer = PeerAddress { name: burst.dst.addr(), key: *key };
                    match stop {
                        SendStop::Blocked => break,
                        SendStop::Refused => self.talk.peers.refused(peer, now),
                        SendStop::Resolving => self.talk.peers.resolving(peer, now),
                        SendStop::Unreachable => self.talk.peers.unreachable(peer, to.gid, now),
                    }
                    report.stop = None;
                    break;
                }
            }
        }
        if let Some(each_ns) =
            (monotonic_ns() - begun).checked_div(self.carried.tx_datagrams - before)
        {
            self.datagram_ns = (self.datagram_ns * 7 + each_ns) / 8;
        }
        report
    }

    /// The mark of everything sent over verbs: another would take another address handle for each path of each host.
    fn mark(&self) -> Ecn {
        if self.ecn { Ecn::Ect0 } else { Ecn::NotEct }
    }

    /// Sends the questions, checks and answers that are due.
    #[inline]
    pub(super) fn exchange(&mut self, udp: &mut impl Port, now: u64) {
        if self.has_verbs() {
            self.negotiate(udp, now);
        }
    }

    fn negotiate(&mut self, udp: &mut impl Port, now: u64) {
        for nth in 0..SENDS {
            let Some(written) = self.talk.next(nth, now) else { return };
            let bytes = written.bytes();
            let part =
                libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
            let (Target::Udp(peer) | Target::Verbs(_, peer)) = written.to;
            let dst = Dst::from(peer.name);
            let burst = Burst::single(&dst, Ecn::NotEct, &part);
            // What is not sent is sent again, or asked for again.
            match (written.to, &self.member) {
                (Target::Udp(_), _) => {
                    // SAFETY: the one part is the datagram's bytes.
                    let _ = unsafe { udp.send(&[burst]) };
                }
                (Target::Verbs(address, peer), Some(member)) if member.port().is_usable() => {
                    let burst = Burst { ecn: self.mark(), ..burst };
                    // SAFETY: as above.
                    let sent = unsafe { member.port().send(&address, &burst) };
                    if sent.stop == Some(SendStop::Unreachable) {
                        self.talk.peers.unreachable(peer, address.gid, now);
                    }
                }
                _ => {}
            }
        }
    }

    /// When [`Link::exchange`] has something to send.
    pub(crate) fn next_ns(&self) -> Option<u64> {
        self.talk.next_ns()
    }

    /// Before a sleep: true if something is there already.
    pub(crate) fn arm(&mut self) -> bool {
        self.member.as_mut().is_some_and(Member::arm)
    }
}
