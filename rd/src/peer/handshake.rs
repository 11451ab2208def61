//! Set-up and end of a session: the effect of each step of [`Session`](super::session::Session) on the flows, and its
//! packets (protocol.md §3).

use super::acks::Acks;
use super::answers::Answers;
use super::control::{Proof, emit_control};
use super::lane_side::ROOM_BYTES;
use super::liveness::Liveness;
use super::proofs::Proofs;
use super::requester::Requester;
use super::responder::Responder;
use super::restraint::Restraint;
use super::rtt::longest_spacing_ns;
use super::sending::Sending;
use super::session::{Challenge, Hello};
use super::tail::Tail;
use super::{Core, PathSize, Peer, Phase};
use crate::bitmap::BITS_MAX;
use crate::cc::{FlowParams, LossDetection};
use crate::host::{EndReason, Host, OpError, Reach};
use crate::keys::{KeyRef, Keys};
use crate::mutants::{Mutant, mutant};
use crate::stats::DropReason;
use crate::transmit::TxBurst;
use crate::units::{KeyIndex, Nanos, Psn};
use crate::wire::header::{Header, PacketKind};
use crate::wire::setup::{
    Asker, FEATURE_HIDE, FEATURE_INFO_PATH, FEATURE_LANE, FEATURE_PAYLOAD_CRC, FEATURE_REMOTE,
    Goodbye, Greeting, Question,
};
use crate::wire::window::Window;
use alloc::boxed::Box;
use alloc::vec::Vec;
use rand_chacha::rand_core::Rng;

/// The features that this side offers a peer with this key.
fn features(core: &Core, key: KeyIndex) -> u32 {
    let (cfg, keyed) = (&core.cfg, core.is_keyed());
    let hides = core.key(key).is_some_and(Keys::hides);
    // A key proves payloads.
    let checksum = cfg.payload_checksum && !keyed;
    FEATURE_REMOTE
        | (if cfg.info_path { FEATURE_INFO_PATH } else { 0 })
        | (if checksum { FEATURE_PAYLOAD_CRC } else { 0 })
        | (if hides { FEATURE_HIDE } else { 0 })
}

/// A challenge to our hello.
#[derive(Clone, Copy)]
pub(crate) struct Challenged {
    pub cookie: u64,
    /// Of the process that wrote it.
    pub epoch: u64,
    pub sent_at_ns: u32,
    /// The key that proves it.
    pub key: KeyRef,
}

impl Peer {
    /// Starts a session: new random id, fresh flows, hellos from now on.
    pub(crate) fn begin<H: Host>(&mut self, core: &mut Core, host: &mut H, now: Nanos) {
        let reach = host.reach(now, self.name);
        self.begin_by(core, host, now, reach);
    }

    /// The same, once it is known how the peer is reached.
    pub(super) fn begin_by<H: Host>(
        &mut self,
        core: &mut Core,
        host: &mut H,
        now: Nanos,
        reach: Reach,
    ) {
        self.lane.begin(reach);
        self.session.begin(now, core.name_session(self.id.index));
        let near = core.near.is_some() && host.is_near(self.name);
        if near != self.near {
            self.near = near;
            self.size = PathSize::new(host.datagram_limit_bytes(self.name));
        }
        self.paths = core.terms(near).paths;
        let first = core.cfg.first_psn.unwrap_or_else(|| core.rng.next_u32());
        self.tx.start(Psn(first), first);
        self.rx.open_credit(&core.cfg, &mut core.budget);
        self.live = Liveness::owing(now);
        self.note_network(core);
    }

    /// Counts the session among those without a lane, or no more.
    fn note_network(&mut self, core: &mut Core) {
        let is = self.is_on_network();
        let was = core::mem::replace(&mut self.on_network, is);
        core.on_network += usize::from(is);
        core.on_network -= usize::from(was);
    }

    /// True while a session is set up, open or ended without a lane.
    pub(crate) fn is_on_network(&self) -> bool {
        self.session.phase() != Phase::Idle && !self.has_lane()
    }

    /// Gives up our session id.
    fn renew(&mut self, core: &mut Core, now: Nanos) {
        self.session.renew(now, core.name_session(self.id.index));
    }

    /// The lane that our greeting offers is no more: from here on the session is set up without one.
    pub(crate) fn lose_offer(&mut self, core: &mut Core, now: Nanos) {
        self.lane.forget();
        self.renew(core, now);
    }

    /// A hello is about to be repeated. If the peer has come within reach of a lane meanwhile, the session is set up with
    /// it.
    pub(super) fn look_for_lane<H: Host>(&mut self, core: &mut Core, host: &mut H, now: Nanos) {
        if self.lane.offer.is_some() || !self.session.is_unheard() {
            return;
        }
        let reach = host.reach(now, self.name);
        if let Reach::Lane(_) = reach {
            self.lane.begin(reach);
            self.renew(core, now);
        }
    }

    /// Renews our session id, which the peer used in a session that ended there.
    pub(crate) fn on_used_id(&mut self, core: &mut Core, now: Nanos) {
        self.renew(core, now);
        self.answers_setup(core, now);
    }

    /// The peer answers, so the deadline of the set-up starts again, unless the set-up lasts too long.
    fn answers_setup(&mut self, core: &Core, now: Nanos) {
        if self.session.may_restart_deadline(now, core.cfg.peer_timeout_ns) {
            self.live = Liveness::owing(now);
        }
    }

    /// Samples a round trip of the set-up; echo 0 stands for none.
    fn sample_setup(&mut self, arrived: Nanos, echo_sent_at_ns: u32) {
        let rtt = (arrived as u32).wrapping_sub(echo_sent_at_ns);
        if rtt < 1 << 31 && echo_sent_at_ns != 0 {
            self.tx.steering.sample(Nanos::from(rtt));
        }
    }

    pub(super) fn greeting(&self, core: &Core, echo_sent_at_ns: u32) -> Greeting {
        let terms = core.terms(self.near);
        let (eager_credit_bytes, order_window) = self.rx.granted();
        let (datagram_bytes, rtt_ns) = (self.size.limit_bytes(), self.tx.steering.rtt_ns());
        let window = core.recv_window(self.near, datagram_bytes, rtt_ns);
        // The first acknowledgement tells a space.
        let window_bytes = window.bytes().unwrap_or(2 * u32::from(datagram_bytes));
        Greeting {
            features: features(core, self.id.key) | self.lane.feature(),
            session: self.session.our_id(),
            asker: core.asker_id(self.session.our_id()),
            epoch: core.cfg.epoch,
            incarnation: self.session.number(),
            first_psn: self.tx.flight.first_psn().0,
            first_order: self.tx.out.first_order(),
            datagram_bytes: terms.datagram_bytes,
            paths: terms.paths,
            ack_policy: terms.scheme.ack_policy(),
            window: Window::of_bytes(window_bytes.into()),
            eager_credit_bytes,
            order_window,
            psn_window: BITS_MAX,
            cookie: self.session.cookie(),
            gave_up: self.session.gave_up(),
            echo_sent_at_ns,
            random: core.is_keyed().then(|| core.greeting_random(self.session.our_id())),
            name: core.cfg.name,
        }
    }

    /// Takes over a greeting's values; the session is open afterwards, and begins with the key that proved the greeting.
    fn adopt(&mut self, core: &mut Core, now: Nanos, (g, key): (&Greeting, KeyRef)) {
        let ours = self.greeting(core, 0);
        self.proofs = Proofs::new(&core.cfg.keys, key, &ours, g).map(Box::new);
        self.session.open(g);
        self.watch_key(core, now);
        let seed = core.rng.next_u64();
        let (cfg, terms) = (&core.cfg, core.terms(self.near));
        self.lane.open(g.features & FEATURE_LANE != 0);
        let by_lane = self.lane.way.is_some();
        if by_lane {
            self.datagram_bytes = ROOM_BYTES;
        } else {
            self.size.open(now, terms.datagram_bytes.min(g.datagram_bytes), cfg.growth_ns);
            self.datagram_bytes = self.size.usable_bytes();
        }
        self.info_path = !by_lane && cfg.info_path && g.features & FEATURE_INFO_PATH != 0;
        let ours = features(core, self.id.key);
        self.payload_checksum = (ours | g.features) & FEATURE_PAYLOAD_CRC != 0;
        self.requester = Requester::new(g.features & FEATURE_REMOTE != 0);
        self.tx.out.open(g);
        self.tx.flight.open(g.psn_window.clamp(1, BITS_MAX));
        self.rx.start(g);
        self.acks = Acks::new(Psn(g.first_psn), g.ack_policy);
        self.answers = Answers::default();
        self.live = Liveness::new(now);
        self.touch(now);
        core.stats.sessions_opened += 1;
        core.stats.lanes_opened += u64::from(by_lane);
        self.note_network(core);
        if !by_lane {
            if core.terms(self.near).scheme.loss_detection() == LossDetection::PathOrder {
                self.tx.flight.keep_order();
            }
            self.begin_control(core, now, seed, g.window);
        }
    }

    /// Begins congestion control.
    fn begin_control(&mut self, core: &Core, now: Nanos, seed: u64, told: Window) {
        let (cfg, terms) = (&core.cfg, core.terms(self.near));
        let params = FlowParams {
            now,
            datagram_bytes: u32::from(self.datagram_bytes),
            paths: terms.paths,
            first_rtt_ns: self.tx.steering.rtt_ns(),
            base_rtt_ns: cfg.base_rtt_ns,
            link_bytes_per_s: terms.link_bytes_per_s,
            burst_bytes: cfg.burst_bytes,
            trimming: cfg.trimming,
        };
        let cc = terms.scheme.build(&params, seed);
        let restraint = Restraint::new(terms.scheme.learns(), cfg.base_rtt_ns > 0);
        self.tx.steering.open(cc, restraint, told);
    }

    /// Starts congestion control again, if there is any, in both directions.
    pub(crate) fn renew_control(&mut self, core: &mut Core, now: Nanos) {
        if self.session.is_open() && !self.has_lane() {
            self.acks.begin_again();
            let (seed, told) = (core.rng.next_u64(), self.tx.steering.told());
            self.begin_control(core, now, seed, told);
        }
    }

    /// Takes a hello whose cookie is right.
    pub(crate) fn on_hello<H: Host>(
        &mut self,
        core: &mut Core,
        host: &mut H,
        now: Nanos,
        arrived: Nanos,
        (g, sent_at_ns, key): (&Greeting, u32, KeyRef),
    ) -> Result<(), DropReason> {
        let hello = self.session.hello(g);
        if hello == Err(DropReason::Cookie) && self.session.is_open() {
            self.live.ask();
        }
        match hello? {
            Hello::First => self.begin(core, host, now),
            Hello::Crossing => {}
            Hello::Stranger => self.renew(core, now),
            // Somebody may repeat it who has no key, when the peer is gone.
            Hello::Repeated if core.is_keyed() => {}
            Hello::Repeated => self.mark_alive(core, now),
            // What the process before this one has written counts. The hello comes again.
            Hello::Restarted if self.has_entries(host) => return Err(DropReason::WrongState),
            Hello::Restarted => {
                self.end(core, host, EndReason::Failed(OpError::PeerRestarted));
                self.begin(core, host, now);
            }
        }
        if !self.session.is_open() {
            self.sample_setup(arrived, g.echo_sent_at_ns);
            self.adopt(core, now, (g, key));
        }
        self.session.owe_welcome(sent_at_ns, g.random);
        Ok(())
    }

    /// Takes the peer's goodbye.
    pub(crate) fn on_goodbye<H: Host>(&mut self, core: &mut Core, host: &mut H) {
        self.session.retire();
        self.end(core, host, EndReason::Goodbye);
    }

    /// Takes a challenge to our hello.
    pub(crate) fn on_challenge(
        &mut self,
        core: &mut Core,
        now: Nanos,
        challenge: &Challenged,
    ) -> Result<(), DropReason> {
        let Challenged { cookie, epoch, sent_at_ns, key } = *challenge;
        match self.session.challenge(now, cookie, epoch, sent_at_ns)? {
            Challenge::New => {
                self.session.say_hello_with(core.cfg.keys.before(key.at) == Some(key))
            }
            Challenge::OfAnother => self.renew(core, now),
            // Somebody may repeat it who has no key.
            Challenge::Known if core.is_keyed() => return Ok(()),
            Challenge::Known => {}
        }
        self.answers_setup(core, now);
        Ok(())
    }

    /// Notes a packet of the session that came before its welcome.
    pub(crate) fn miss_welcome(&mut self, core: &Core, now: Nanos) {
        // With a key, the packet is not proven: its keys follow from the welcome.
        if self.session.miss_welcome(now) && !core.is_keyed() {
            self.answers_setup(core, now);
        }
    }

    /// Takes a welcome to our hello.
    pub(crate) fn on_welcome(
        &mut self,
        core: &mut Core,
        now: Nanos,
        arrived: Nanos,
        (g, key): (&Greeting, KeyRef),
    ) -> Result<(), DropReason> {
        if self.session.welcome(g)? {
            self.sample_setup(arrived, g.echo_sent_at_ns);
            self.adopt(core, now, (g, key));
        }
        Ok(())
    }

    /// Ends the session: gives every operation its outcome, and empties the flows.
    pub(crate) fn end<H: Host>(&mut self, core: &mut Core, host: &mut H, reason: EndReason) {
        let error = match reason {
            EndReason::Failed(error) => error,
            EndReason::Goodbye => OpError::PeerClosed,
        };
        if matches!(reason, EndReason::Failed(e) if e != OpError::Canceled) {
            core.stats.sessions_failed += 1;
        }
        self.settle_at_end(core, host);
        // Before the application gets buffers back that the peer may read. What the peer has not read by now comes too
        // late, and nothing of another session may stand behind it.
        let breaks = matches!(reason, EndReason::Failed(_)) || self.has_unread(host);
        let breaks = breaks && !mutant(Mutant::KeepsTheLaneOfAnEndedSession);
        if let Some(lane) = self.lane.way.filter(|_| breaks) {
            host.break_off(lane);
        }
        self.fail_ops(core, host, error);
        self.rx.end(host, error, self.responder.kept().chain(self.lane.buffers()));
        core.budget.give_back(self.responder.kept_bytes());
        core.queued -= self.tx.out.queued();
        let kept = self.rx.close_credit(&core.cfg, &mut core.budget);
        core.budget.orphan(self.session.number(), kept);
        self.tx = Sending::default();
        self.requester = Requester::default();
        self.responder = Responder::default();
        self.rx = super::Rx::default();
        self.acks = Acks::default();
        self.answers = Answers::default();
        self.lane.forget();
        self.size.close();
        self.live = Liveness::default();
        self.tail = Tail::default();
        self.proofs = None;
        let had_session = self.session.end();
        self.note_network(core);
        if had_session {
            host.session_ended(self.id, self.session.number(), reason);
        }
    }

    fn fail_ops<H: Host>(&mut self, core: &mut Core, host: &mut H, error: OpError) {
        let had_answers = self.responder.end_answers();
        if !(self.tx.out.end_all() || had_answers) {
            return;
        }
        let mine = |op: &super::Op| op.peer == self.id.index;
        let ops: Vec<usize> = core.ops.iter().filter(|(_, op)| mine(op)).map(|(i, _)| i).collect();
        for i in ops {
            let op = core.ops.remove(i);
            if core.forget_role(&op) {
                host.sent(op.token, Err(error));
            }
        }
    }

    /// Starts to leave an open session; anything else just ends.
    pub(crate) fn leave<H: Host>(&mut self, core: &mut Core, host: &mut H, now: Nanos) {
        if !self.session.is_open() {
            self.end(core, host, EndReason::Failed(OpError::Canceled));
            return;
        }
        self.break_lane(host);
        self.fail_ops(core, host, OpError::Canceled);
        self.session.leave(now);
        self.live = Liveness::default();
        self.tail = Tail::default();
    }

    /// Writes a hello and arms the next.
    pub(crate) fn emit_hello(&mut self, core: &mut Core, now: Nanos, burst: &mut TxBurst) {
        let key = self.hello_key(core);
        let echo = self.session.sent_hello(now, longest_spacing_ns(&core.cfg));
        self.emit_greeting(core, now, burst, (PacketKind::Hello, 0, key), (echo, None));
        self.live.sent_hello(now);
    }

    /// Writes a welcome, which echoes the hello's send time, and answers its random bytes.
    pub(crate) fn emit_welcome(
        &mut self,
        core: &mut Core,
        now: Nanos,
        burst: &mut TxBurst,
        answered: (u32, Option<Question>),
    ) {
        let key = self.proofs.as_ref().map(|proofs| proofs.base()).unwrap_or_default();
        let kind = (PacketKind::Welcome, self.session.their_id(), key);
        self.emit_greeting(core, now, burst, kind, answered);
    }

    fn emit_greeting(
        &mut self,
        core: &mut Core,
        now: Nanos,
        burst: &mut TxBurst,
        (kind, session, key): (PacketKind, u64, KeyRef),
        (echo, question): (u32, Option<Question>),
    ) {
        let greeting = self.greeting(core, echo);
        let path = self.next_greeting_path();
        let h = Header { path: path as u8, sent_at_ns: now as u32, ..Header::new(kind, session) };
        let question = question.as_ref().map_or(&[][..], |random| random);
        let proof = Proof::Loose { key, reader: self.name, question };
        emit_control(core, burst, h, proof, |out| greeting.emit(out));
        burst.to = self.name;
        burst.path = path;
    }

    /// Who we are, for a reader that may not know the session: with the key in use, which it has.
    fn asker(&self, core: &Core) -> Asker {
        let key = self.proofs.as_ref().and_then(|proofs| core.cfg.keys.of(proofs.in_use()));
        Asker {
            id: core.asker_id(self.session.our_id()),
            name: core.cfg.name,
            key: key.or_else(|| core.key(self.id.key)).map(Keys::id),
        }
    }

    /// Writes a goodbye and arms the next.
    pub(crate) fn emit_goodbye(&mut self, core: &mut Core, now: Nanos, burst: &mut TxBurst) {
        let ack = self.ack_state(core, now);
        let asker = self.asker(core);
        let path = self.next_control_path();
        let h = Header {
            path: path as u8,
            sent_at_ns: now as u32,
            ..Header::new(PacketKind::Goodbye, self.session.their_id())
        };
        let proof = Proof::Session(self.proofs.as_deref_mut());
        emit_control(core, burst, h, proof, |out| Goodbye { asker, ack }.emit(out));
        burst.to = self.name;
        burst.path = path;
        self.session.sent_goodbye(now + self.probe_timeout_ns(core));
    }

    /// Writes a probe.
    pub(crate) fn emit_probe(&mut self, core: &mut Core, now: Nanos, burst: &mut TxBurst) {
        self.write_probe(core, now, burst);
        self.tail.asked(now, None);
        self.live.sent_probe();
    }

    /// Writes a probe that counts like one of the next round, and not against the peer.
    pub(crate) fn emit_question(&mut self, core: &mut Core, now: Nanos, burst: &mut TxBurst) {
        self.write_probe(core, now, burst);
        self.tail.asked(now, self.tx.steering.tail_timeout_ns(&core.cfg));
    }

    fn write_probe(&mut self, core: &mut Core, now: Nanos, burst: &mut TxBurst) {
        let asker = self.asker(core);
        let asker = match core::mem::take(&mut self.tells_key) {
            true => Asker { key: core.key(self.id.key).map(Keys::id), ..asker },
            false => asker,
        };
        let (path, round) = (self.question_path(now), self.live.round());
        let h = Header {
            path: path as u8,
            msg_id: round.number,
            attempt: round.unanswered,
            sent_at_ns: now as u32,
            psn: self.tx.flight.next_psn().0,
            ..Header::new(PacketKind::Probe, self.session.their_id())
        };
        let proof = Proof::Session(self.proofs.as_deref_mut());
        emit_control(core, burst, h, proof, |out| asker.emit(out));
        burst.to = self.name;
        burst.path = path;
        self.stays_awake(now);
        core.stats.probes += 1;
    }
}
