//! The choice of a carrier for the datagrams to each peer: UDP, or verbs where both sides have it.
//!
//! The engine knows nothing of it. UDP always works, so set-up uses it. So does everything else until verbs has proven
//! to work towards a peer, and again once verbs fails (`docs/protocol.md` §10).

use erd_port::udp::{Dst, SendReport, Stop};
use erd_port::verbs::negotiation::address::{Address, Kind as PortKind, MARK, PortDatagram};
use erd_port::verbs::negotiation::peers::{Change, Outgoing, Peers, Target, Via};
use erd_port::verbs::{Member, SendStop};
use erd_port::{Burst, Port};
use erd_rd::wire::header::{PacketKind, VERSION};
use erd_rd::{Ecn, TxBurst};
use erd_sys::clock::monotonic_ns;
use std::net::SocketAddr;

/// Their first byte is the engine's version with a kind that the engine does not have.
const _: () = assert!(MARK == VERSION << 4 | 15);
/// Port datagrams sent in one step.
const SENDS: usize = 16;
/// An acknowledgement follows another after the time in which so many datagrams can be sent.
const ACK_PATIENCE: u64 = 4;
/// Answers that wait to be sent; more are dropped, and asked for again.
const ANSWERS_MAX: usize = 64;

/// What the ports carried for an endpoint: datagrams of verbs, but where the name says otherwise.
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
    /// What UDP carried without a copy.
    pub udp_tx_uncopied_bytes: u64,
    /// Answers to port datagrams.
    pub port_answers: u64,
    /// Port datagrams that were malformed, or not answered: there is no other port than UDP here, the question
    /// came from another IP address than its name's, or too many answers wait.
    pub port_drops: u64,
}

/// See the module's text.
pub struct Link {
    /// Without it, peers that ask get no answer.
    member: Option<Member>,
    peers: Peers,
    answers: Vec<Outgoing>,
    /// Marks are sent.
    ecn: bool,
    /// What sending a datagram over verbs lately took.
    datagram_ns: u64,
    /// What it carried.
    pub carried: Carried,
}

impl Link {
    /// The link of the endpoint called `name`. `member` is the endpoint's share of an RDMA device, if there is one. With
    /// `ecn`, bursts over that device carry their marks.
    pub fn new(member: Option<Member>, name: SocketAddr, ecn: bool) -> Link {
        let own = member.as_ref().map_or(Address::NONE, Member::address);
        let peers = Peers::new(own, name, [crate::random::u64(), crate::random::u64()]);
        Link {
            member,
            peers,
            answers: Vec::new(),
            ecn,
            datagram_ns: 0,
            carried: Carried::default(),
        }
    }

    pub(crate) fn has_verbs(&self) -> bool {
        self.member.is_some()
    }

    /// Some peer is reached over verbs.
    pub(super) fn uses_verbs(&self) -> bool {
        self.peers.any_up()
    }

    /// Time between acknowledgements that leaves most of the time to the data.
    pub(super) fn ack_spacing_ns(&self) -> u64 {
        ACK_PATIENCE * self.datagram_ns
    }

    /// What data to the peer takes now.
    pub(crate) fn carrier(&self, peer: SocketAddr) -> &'static str {
        if self.peers.is_up(peer) { "verbs" } else { "udp" }
    }

    pub(crate) fn member(&self) -> Option<&Member> {
        self.member.as_ref()
    }

    /// Takes a datagram that came over UDP if it is one between ports; the engine gets the others. A question gets an
    /// answer only if the host `admits` the name in it.
    pub(super) fn takes(
        &mut self,
        bytes: &[u8],
        from: SocketAddr,
        now: u64,
        admits: impl FnOnce(SocketAddr) -> bool,
    ) -> bool {
        let claimed = PortDatagram::claims(bytes);
        if claimed {
            let may_ask = |name: SocketAddr| {
                from.ip().to_canonical() == name.ip().to_canonical() && admits(name)
            };
            self.take(bytes, Via::Udp, now, may_ask);
        }
        claimed
    }

    /// A question has to come from the name in it, where the answer goes; `may_ask` says whether that is so.
    fn take(&mut self, bytes: &[u8], via: Via, now: u64, may_ask: impl FnOnce(SocketAddr) -> bool) {
        let Some(datagram) = PortDatagram::decode(bytes) else {
            tracing::debug!("a malformed port datagram");
            self.carried.port_drops += 1;
            return;
        };
        if datagram.kind == PortKind::Ask && !(self.has_verbs() && may_ask(datagram.name)) {
            self.carried.port_drops += 1;
            return;
        }
        let usable = self.member.as_ref().is_some_and(|member| member.port().is_usable());
        self.peers.set_usable(usable);
        let (answer, change) = self.peers.handle(&datagram, via, now, crate::random::u64);
        match answer {
            Some(answer) if self.answers.len() < ANSWERS_MAX => {
                self.answers.push(answer);
                self.carried.port_answers += 1;
            }
            Some(_) => self.carried.port_drops += 1,
            None => {}
        }
        log(datagram.name, change);
    }

    /// Hands what came over verbs to `f`, with its mark.
    pub(super) fn recv(
        &mut self,
        now: &mut u64,
        mut f: impl FnMut(u64, &[u8], &erd_port::verbs::Source),
    ) -> usize {
        let Some(member) = &mut self.member else { return 0 };
        let (peers, carried) = (&mut self.peers, &mut self.carried);
        let mut between_ports = Vec::new();
        let mut read_at = None;
        let count = member.recv(|data, source| {
            *now = *read_at.get_or_insert_with(monotonic_ns);
            peers.heard(source.gid, source.qpn);
            if PortDatagram::claims(data) {
                let gid = source.gid;
                between_ports.push((data.to_vec(), (gid.0 != [0; 16]).then_some(gid)));
                return;
            }
            carried.rx_datagrams += 1;
            carried.rx_bytes += data.len() as u64;
            f(*now, data, source);
        });
        for (datagram, from) in between_ports {
            // Nobody asks over verbs: there the cookie of an answer is shown.
            self.take(&datagram, Via::Verbs(from), *now, |_| false);
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
                self.peers.renew(burst.to, now, crate::random::u64);
            }
            PacketKind::Probe => {
                let change = self.peers.probed(burst.to, now, crate::random::u64);
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
        let address = self.peers.route(burst.to, now, crate::random::u64)?;
        (burst.segment_bytes <= u32::from(own_bytes.min(address.mtu_bytes))).then_some(address)
    }

    /// Sends bursts, each to its address, in order until one cannot be sent.
    ///
    /// # Safety
    /// Each part of each burst is readable for its length during the call.
    pub(super) unsafe fn send(
        &mut self,
        to: &[Address],
        bursts: &[Burst<'_>],
        now: u64,
    ) -> SendReport {
        let mut report = SendReport::default();
        let Some(member) = &self.member else { return report };
        let (begun, before) = (monotonic_ns(), self.carried.tx_datagrams);
        for (to, burst) in to.iter().zip(bursts) {
            let ecn = if self.ecn { burst.ecn } else { Ecn::NotEct };
            // SAFETY: the caller's promise.
            let sent = unsafe { member.port().send(to, &Burst { ecn, ..*burst }) };
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
                    match stop {
                        SendStop::Blocked => break,
                        SendStop::Refused => self.peers.refused(burst.dst.addr(), now),
                        SendStop::Unreachable => {
                            self.peers.unreachable(burst.dst.addr(), to.gid, now);
                        }
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

    /// Sends the questions, checks and answers that are due.
    #[inline]
    pub(super) fn exchange(&mut self, udp: &mut impl Port, now: u64) {
        if self.has_verbs() {
            self.negotiate(udp, now);
        }
    }

    fn negotiate(&mut self, udp: &mut impl Port, now: u64) {
        for nth in 0..SENDS {
            // In turn, so that a flood of questions does not keep ours from going out.
            let (answers, peers) = (&mut self.answers, &mut self.peers);
            let next = match nth % 2 {
                0 => answers.pop().or_else(|| peers.poll(now)),
                _ => peers.poll(now).or_else(|| answers.pop()),
            };
            let Some(outgoing) = next else { return };
            let bytes = &outgoing.bytes;
            let part =
                libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
            let name = match outgoing.to {
                Target::Udp(name) => name,
                Target::Verbs(_, name) => name,
            };
            let dst = Dst::from(name);
            let burst = Burst::single(&dst, Ecn::NotEct, &part);
            // What is not sent is sent again, or asked for again.
            match (outgoing.to, &self.member) {
                (Target::Udp(_), _) => {
                    // SAFETY: the one part is the datagram's bytes.
                    let _ = unsafe { udp.send(&[burst]) };
                }
                (Target::Verbs(address, name), Some(member)) if member.port().is_usable() => {
                    // SAFETY: as above.
                    let sent = unsafe { member.port().send(&address, &burst) };
                    if sent.stop == Some(SendStop::Unreachable) {
                        self.peers.unreachable(name, address.gid, now);
                    }
                }
                _ => {}
            }
        }
    }

    /// When [`Link::exchange`] has something to send.
    pub(crate) fn next_ns(&self) -> Option<u64> {
        if self.answers.is_empty() { self.peers.next_ns() } else { Some(1) }
    }

    /// Before a sleep: true if something is there already.
    pub(crate) fn arm(&mut self) -> bool {
        self.member.as_mut().is_some_and(Member::arm)
    }
}

fn log(peer: SocketAddr, change: Option<Change>) {
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
