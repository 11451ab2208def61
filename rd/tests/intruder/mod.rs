//! A stranger without any secret, and what it tries. Each function is one attack and judges the
//! victim; `attacks.rs` runs them, and `mutants.rs` those that have to find a mutant.

#![allow(dead_code, reason = "mutants.rs runs some of the attacks alone")]

use erd_rd::cc::fixed::ERD;
use erd_rd::units::{MILLISECOND, PeerAddress, SECOND};
use erd_rd::wire::Reader;
use erd_rd::wire::ack::{ACK_PROBE_ANSWER, AckState, emit_sections};
use erd_rd::wire::header::{HEADER_BYTES, Header, PacketKind, seal};
use erd_rd::wire::record::Record;
use erd_rd::wire::setup::{Asker, Goodbye, Greeting};
use erd_rd::wire::window::Window;
use erd_rd::{
    Arrived, Config, DropReason, Ecn, EndReason, Endpoint, Host, OpError, PeerId, RecvToken,
    RxMeta, SendToken, TxBurst, Verdict, WorkRequest,
};
use std::net::SocketAddr;

pub mod blind;
#[path = "../stranger/mod.rs"]
mod stranger;
use stranger::{bundle, greeting_from, hello, message, nothing_received, packet};

/// A driver without memory: what arrives waits.
#[derive(Default)]
struct Void {
    ended: usize,
    /// It admits this name alone; everybody where it is not set.
    friend: Option<SocketAddr>,
}

impl Host for Void {
    fn read(&mut self, _: SendToken, _: u64, out: &mut [u8]) {
        out.fill(0);
    }

    fn checksum(&mut self, _: SendToken, _: u64, _: u32, seed: u32) -> u32 {
        seed
    }

    fn sent(&mut self, _: SendToken, _: Result<(), OpError>) {
        self.ended += 1;
    }

    fn arrived(&mut self, msg: &Arrived) -> Verdict {
        if msg.rendezvous { Verdict::Wait } else { Verdict::Held(RecvToken(1)) }
    }

    fn hold(&mut self, _: PeerId, _: u64) -> Option<RecvToken> {
        None
    }

    fn place(&mut self, _: RecvToken, _: u64, _: &[u8]) {}

    fn received(&mut self, _: RecvToken, _: Result<u64, OpError>) {}

    fn session_ended(&mut self, _: PeerId, _: u32, _: EndReason) {}

    fn datagram_limit_bytes(&mut self, _: SocketAddr) -> u16 {
        1472
    }

    fn admits(&mut self, PeerAddress { name, .. }: PeerAddress) -> bool {
        self.friend.is_none_or(|friend| friend == name)
    }
}

/// A datagram that an endpoint sends: where to, its header and body.
struct Sent {
    to: SocketAddr,
    h: Header,
    len_bytes: usize,
    body: Vec<u8>,
}

struct Victim {
    engine: Endpoint,
    host: Void,
    now: u64,
}

impl Victim {
    fn new(name: &str, change: impl FnOnce(&mut Config)) -> Victim {
        let mut config = Config::new(name.parse().unwrap(), 1, crc32c::crc32c_append);
        config.first_psn = Some(7);
        change(&mut config);
        let engine = Endpoint::new(config, Box::new(ERD.scheme()), 1).unwrap();
        Victim { engine, host: Void::default(), now: 1 }
    }

    /// Takes a datagram in and returns what goes out.
    fn takes(&mut self, from: SocketAddr, bytes: &[u8]) -> Vec<Sent> {
        let meta = RxMeta { ecn: Ecn::NotEct, trimmed: false, hold_ns: 0, from };
        self.engine.handle_packet(self.now, &meta, bytes, &mut self.host);
        self.sends()
    }

    /// What is due; payload is left out.
    fn sends(&mut self) -> Vec<Sent> {
        let (mut burst, mut out) = (TxBurst::new(), Vec::new());
        while self.engine.poll_transmit(self.now, true, &mut self.host, &mut burst) {
            for _ in 0..burst.datagrams {
                let h = Header::parse(&burst.bytes).unwrap();
                assert_eq!(h.kind, burst.kind);
                let len_bytes = burst.segment_bytes.min(burst.total_bytes) as usize;
                out.push(Sent {
                    to: burst.to,
                    h,
                    len_bytes,
                    body: burst.bytes[HEADER_BYTES..].to_vec(),
                });
            }
        }
        self.now += 1_000;
        out
    }

    /// Lets time pass. Returns what went out meanwhile.
    fn waits(&mut self, span_ns: u64) -> Vec<Sent> {
        let (end, mut out) = (self.now + span_ns, Vec::new());
        while let Some(at) = self.engine.poll_timeout().filter(|at| *at < end) {
            self.now = self.now.max(at);
            self.engine.handle_timeout(self.now, &mut self.host);
            out.extend(self.sends());
        }
        self.now = self.now.max(end);
        out
    }

    fn posts(&mut self, to: SocketAddr, len_bytes: u64) -> Vec<Sent> {
        let peer = self.engine.peer(self.now, to, &mut self.host).unwrap();
        let token = SendToken(1);
        let wr = WorkRequest {
            peer,
            token,
            len_bytes,
            tag: None,
            data: None,
            match_complete: false,
            awaited: false,
            delivery: false,
            fence: false,
        };
        self.engine.send(self.now, wr).unwrap();
        self.sends()
    }

    fn dropped(&self, reason: DropReason) -> u64 {
        self.engine.stats().drops_for(reason)
    }
}

fn only(sent: &[Sent], kind: PacketKind) -> Option<&Sent> {
    sent.iter().find(|sent| sent.h.kind == kind)
}

/// Opens a session in this name: the victim's greeting, if it lets anybody in.
fn enter(victim: &mut Victim, greeting: &mut Greeting) -> Option<Greeting> {
    let from = greeting.name;
    let sent = victim.takes(from, &hello(greeting));
    let challenge = only(&sent, PacketKind::Challenge)?;
    greeting.cookie = u64::from_be_bytes(challenge.body[..8].try_into().unwrap());
    let sent = victim.takes(from, &hello(greeting));
    let welcome = only(&sent, PacketKind::Welcome)?;
    Some(Greeting::parse(&mut Reader::new(&welcome.body), false).unwrap())
}

/// Announces a message that nobody will ever receive.
fn announcement(session: u64, psn: u32) -> Vec<u8> {
    bundle(
        Header { psn, ..Header::new(PacketKind::Data, session) },
        &Record::Rts(message(0, 1 << 30)),
    )
}

/// Opens a session and announces a message.
fn announce(victim: &mut Victim, name: SocketAddr) -> bool {
    let Some(theirs) = enter(victim, &mut greeting_from(name)) else { return false };
    victim.takes(name, &announcement(theirs.session, 0));
    true
}

fn at(net: u8, port: u16) -> SocketAddr {
    SocketAddr::from(([10, 0, net, 1], port))
}

/// Wants to send to somebody who does not know it.
pub fn sends_unbidden() {
    let mut victim = Victim::new("10.0.0.1:1", |_| {});
    let (friend, stranger) = (at(1, 1), at(1, 2));
    victim.host.friend = Some(friend);
    assert!(victim.takes(stranger, &hello(&greeting_from(stranger))).is_empty(), "not a word");
    let of_another_version = |name| {
        let mut bytes = hello(&greeting_from(name));
        bytes[0] ^= 0x10;
        seal(&mut bytes, 0, crc32c::crc32c_append);
        bytes
    };
    assert!(victim.takes(stranger, &of_another_version(stranger)).is_empty(), "nor of the version");
    assert!(!victim.takes(friend, &of_another_version(friend)).is_empty(), "which a friend hears");
    let probe = |name| {
        packet(Header::new(PacketKind::Probe, 5), |out| Asker { id: 9, name, key: None }.emit(out))
    };
    let goodbye = |name| {
        let goodbye = Goodbye { asker: Asker { id: 9, name, key: None }, ack: nothing_received() };
        packet(Header::new(PacketKind::Goodbye, 5), |out| goodbye.emit(out))
    };
    assert!(victim.takes(stranger, &probe(stranger)).is_empty(), "nor that it is there");
    assert!(victim.takes(stranger, &goodbye(stranger)).is_empty(), "nor now");
    assert!(!victim.takes(friend, &probe(friend)).is_empty());
    assert!(!victim.takes(friend, &goodbye(friend)).is_empty());
    assert!(!announce(&mut victim, stranger));
    assert_eq!(victim.dropped(DropReason::Stranger), 2);
    assert!(announce(&mut victim, friend));
    victim.host.friend = Some(stranger);
    assert!(announce(&mut victim, stranger), "once it is known, the next hello is enough");
}

/// One address wants the whole table.
pub fn takes_all_places() {
    let mut victim = Victim::new("10.0.0.1:1", |c| c.peers_max = 1024);
    let entered = (1..=1500).filter(|port| announce(&mut victim, at(1, *port))).count();
    assert!(entered <= 128, "one address has {entered} of 1024 places");
    assert!(victim.dropped(DropReason::Quota) > 0);
    assert!(announce(&mut victim, at(2, 1)), "others are let in");
}

/// Two hellos and an announcement a name, and never a word again.
pub fn fills_the_table_for_good() {
    let mut victim = Victim::new("10.0.0.1:1", |c| c.peers_max = 64);
    for port in 1..=64 {
        announce(&mut victim, at(1, port));
    }
    // The victim's deadline is 5 s, its goodbyes are done soon after.
    for _ in 0..8 {
        victim.waits(SECOND);
        victim.sends();
    }
    assert!((1..=20).any(|port| announce(&mut victim, at(2, port))), "the table is full for good");
}

/// Sessions that hold nothing but announcements go before quiet ones.
pub fn hoarders_go_first() {
    let mut victim = Victim::new("10.0.0.1:1", |c| c.peers_max = 64);
    for port in 1..=30 {
        assert!(enter(&mut victim, &mut greeting_from(at(1, port))).is_some());
        assert!(announce(&mut victim, at(2, port)));
    }
    victim.waits(700 * MILLISECOND);
    let mut left = Vec::new();
    for port in 1..=4 {
        announce(&mut victim, at(3, port));
        let sent = victim.waits(20 * MILLISECOND);
        left.extend(sent.into_iter().filter(|s| s.h.kind == PacketKind::Goodbye));
    }
    assert!(!left.is_empty(), "room is made");
    assert!(left.iter().all(|s| s.to.ip() == at(2, 1).ip()), "quiet sessions are left alone");
}

/// Takes a dead peer's port and acknowledges in its name, by all that a probe tells.
pub fn takes_a_dead_peers_port() {
    let name = at(1, 9);
    let mut victim = Victim::new("10.0.0.1:1", |_| {});
    let mut peer = Victim::new("10.0.1.1:9", |_| {});
    let mut way = victim.posts(name, 16_000);
    // They talk until the data flows; then the peer is gone.
    for _ in 0..3 {
        let mut back = Vec::new();
        for sent in way.drain(..).filter(|sent| sent.h.kind != PacketKind::Data) {
            let bytes = packet(sent.h, |out| out.extend(&sent.body));
            back.extend(peer.takes("10.0.0.1:1".parse().unwrap(), &bytes));
        }
        for sent in back {
            way.extend(victim.takes(name, &packet(sent.h, |out| out.extend(&sent.body))));
        }
    }
    for _ in 0..20 {
        victim.posts(name, 16_000);
    }
    let probes = victim.waits(200 * MILLISECOND);
    let probe = only(&probes, PacketKind::Probe).expect("the peer is silent");
    let asker = Asker::parse(&mut Reader::new(&probe.body), false).unwrap();
    // Half of what was sent is acknowledged; all limits are raised.
    let mut data = 0;
    for cum_psn in (7..=probe.h.psn).rev() {
        let state = raise(cum_psn, probe.h.psn);
        let ack = packet(Header::new(PacketKind::Ack, asker.id), |out| {
            state.emit(out);
            emit_sections(out, cum_psn, [], &[], &[]);
        });
        data += victim.takes(name, &ack).iter().filter(|s| s.h.kind == PacketKind::Data).count();
    }
    assert_eq!(victim.host.ended, 0, "the stranger has acknowledged messages");
    assert_eq!(data, 0, "the stranger was sent more");
}

/// An acknowledgement that grants all there is.
fn raise(cum_psn: u32, high_psn: u32) -> AckState {
    let window = Window::of_bytes(1 << 24);
    AckState { cum_psn, high_psn, eager_limit_bytes: 1 << 24, window, ..nothing_received() }
}

/// Says hello as the peer did, to be told the victim's session id by a welcome.
pub fn asks_for_another_welcome() {
    let mut victim = Victim::new("10.0.0.1:1", |_| {});
    let mut greeting = greeting_from(at(1, 9));
    let theirs = enter(&mut victim, &mut greeting).expect("a stranger may say hello");
    let again = victim.takes(greeting.name, &hello(&greeting));
    assert!(only(&again, PacketKind::Welcome).is_some(), "the welcome may have been lost");
    let probe = Header { psn: 0, ..Header::new(PacketKind::Probe, theirs.session) };
    let asker = Asker { id: greeting.asker, name: greeting.name, key: None };
    let answer = victim.takes(greeting.name, &packet(probe, |out| asker.emit(out)));
    assert!(only(&answer, PacketKind::Ack).is_some(), "the peer has the session id");
    let again = victim.takes(greeting.name, &hello(&greeting));
    assert!(only(&again, PacketKind::Welcome).is_none(), "the peer has no use for it");
}

/// Has the victim send to somebody else.
pub fn gives_anothers_name() {
    let mut victim = Victim::new("10.0.0.1:1", |_| {});
    let (mut challenges, mut longest) = (0, 0);
    for port in 1..=5_000 {
        let greeting = greeting_from(at(3, port));
        let bytes = hello(&greeting);
        victim.now = 1 + u64::from(port);
        let sent = victim.takes(at(1, 9), &bytes);
        challenges += sent.len();
        longest = longest.max(sent.iter().map(|s| s.len_bytes).max().unwrap_or(0));
        assert!(longest <= bytes.len(), "an answer is longer than the question");
    }
    assert!(challenges <= 1024, "{challenges} answers to a third party within a millisecond");
    assert!(challenges > 0, "a host may have several addresses");
    let stats = victim.engine.stats();
    assert_eq!(stats.tx_challenges + stats.answers_withheld, 5_000, "each is counted");
    assert_eq!(stats.tx_challenges, challenges as u64);
    let own = victim.takes(at(3, 1), &hello(&greeting_from(at(3, 1))));
    assert_eq!(own.len(), 1, "who gives its own name is answered");
}

/// Guesses session ids, and looks who is answered.
pub fn guesses_session_ids() {
    let mut victim = Victim::new("10.0.0.1:1", |_| {});
    let theirs = enter(&mut victim, &mut greeting_from(at(1, 9))).expect("an honest peer");
    let me = Asker { id: 0x77, name: at(2, 1), key: None };
    let mut ask = |session: u64| {
        let probe = packet(Header::new(PacketKind::Probe, session), |out| me.emit(out));
        let sent = victim.takes(me.name, &probe);
        let told: Vec<_> =
            sent.iter().map(|s| (s.to, s.h.kind, s.h.session, s.len_bytes)).collect();
        assert_eq!(sent.len(), 1);
        (told, sent[0].body == session.to_be_bytes())
    };
    assert_eq!(ask(theirs.session), ask(theirs.session ^ 1 << 40), "a hit looks like a miss");
}

/// Acknowledges with a number far behind, to raise the limits.
pub fn raises_limits_by_a_stale_acknowledgement() {
    let mut victim = Victim::new("10.0.0.1:1", |_| {});
    let mut greeting = Greeting { order_window: 1, ..greeting_from(at(1, 9)) };
    let theirs = enter(&mut victim, &mut greeting).expect("an honest peer");
    victim.posts(greeting.name, 8);
    victim.posts(greeting.name, 8);
    let before = victim.engine.stats().tx_data;
    assert_eq!(before, 1, "the second message has no permission yet");
    for behind in [1 << 20, 1 << 30] {
        let cum_psn = theirs.first_psn.wrapping_sub(behind);
        let state = raise(cum_psn, cum_psn);
        let ack = packet(Header::new(PacketKind::Ack, theirs.session), |out| {
            state.emit(out);
            emit_sections(out, cum_psn, [], &[], &[]);
        });
        victim.takes(greeting.name, &ack);
    }
    assert_eq!(victim.engine.stats().tx_data, before, "the limits were raised");
    assert_eq!(victim.dropped(DropReason::Window), 2);
}

/// Answers a probe with an acknowledgement of what was never sent: one that counts as an answer after silence makes all
/// other paths suspect.
pub fn answers_a_probe_with_nonsense() {
    let mut victim = Victim::new("10.0.0.1:1", |c| c.paths = 4);
    let mut greeting = Greeting { paths: 4, ..greeting_from(at(1, 9)) };
    let theirs = enter(&mut victim, &mut greeting).expect("an honest peer");
    let first = victim.posts(greeting.name, 8);
    let after = only(&first, PacketKind::Data).expect("it is sent at once").h.psn.wrapping_add(1);
    let probes = victim.waits(500 * MILLISECOND);
    assert!(
        probes.iter().filter(|s| s.h.kind == PacketKind::Probe).count() > 1,
        "the peer is silent"
    );
    let ack = |flags, path, cum_psn: u32, high_psn| {
        let state = AckState { flags, ..raise(cum_psn, high_psn) };
        packet(Header { path, ..Header::new(PacketKind::Ack, theirs.session) }, |out| {
            state.emit(out);
            emit_sections(out, cum_psn, [], &[], &[]);
        })
    };
    let nonsense =
        ack(ACK_PROBE_ANSWER, 2, after.wrapping_add(1 << 20), after.wrapping_add(1 << 20));
    victim.takes(greeting.name, &nonsense);
    assert_eq!(victim.dropped(DropReason::Window), 1);
    victim.takes(greeting.name, &ack(0, 0, after, after));
    let mut packets = [0; 4];
    for _ in 0..20 {
        let sent = victim.posts(greeting.name, 16_000);
        let data = sent.iter().filter(|s| s.h.kind == PacketKind::Data);
        data.for_each(|s| packets[usize::from(s.h.path)] += 1);
    }
    // A path under suspicion carries one packet.
    assert!(packets.iter().all(|count| *count > 1), "packets of each path: {packets:?}");
}

/// Sends the same packet again beyond one that is missing.
pub fn repeats_a_packet() {
    let mut victim = Victim::new("10.0.0.1:1", |_| {});
    let name = at(1, 9);
    let theirs = enter(&mut victim, &mut greeting_from(name)).expect("a stranger may say hello");
    for _ in 0..3 {
        victim.takes(name, &announcement(theirs.session, 1));
    }
    assert_eq!(victim.engine.stats().rx_data, 1, "it is taken once");
    assert_eq!(victim.dropped(DropReason::Duplicate), 2);
}
