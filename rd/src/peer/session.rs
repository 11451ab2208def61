//! Set-up and end of a session (protocol.md §3).

use super::acks::Acks;
use super::control::emit_control;
use super::liveness::Liveness;
use super::sending::Sending;
use super::{Core, PathSize, Peer, Phase, Remote, Setup};
use crate::bitmap::BITS_MAX;
use crate::cc::FlowParams;
use crate::host::{EndReason, Host, OpError};
use crate::mutants::{Mutant, mutant};
use crate::transmit::TxBurst;
use crate::units::{Nanos, Psn};
use crate::wire::header::{Header, Kind};
use crate::wire::setup::{
    Asker, FEATURE_INFO_PATH, FEATURE_PAYLOAD_CRC, FEATURE_REMOTE, FEATURE_SEALS, Goodbye, Greeting,
};
use alloc::vec::Vec;
use rand_chacha::rand_core::Rng;

/// First spacing of hellos and goodbyes; doubles with each.
const HELLO_FIRST_NS: Nanos = 5 * crate::units::MILLISECOND;
/// Widest spacing of hellos.
const HELLO_MAX_NS: Nanos = 250 * crate::units::MILLISECOND;
/// Goodbyes sent before the peer is left alone.
const GOODBYES_MAX: u32 = 3;

/// Why a greeting was not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refusal {
    /// Older than the session that stands.
    Stale,
    /// Does not fit the phase.
    Phase,
}

fn features(cfg: &crate::Config) -> u32 {
    FEATURE_REMOTE
        | FEATURE_SEALS
        | (if cfg.info_path { FEATURE_INFO_PATH } else { 0 })
        | (if cfg.payload_checksum { FEATURE_PAYLOAD_CRC } else { 0 })
}

impl Peer {
    /// Starts a session: new random id, fresh flows, hellos from now on.
    pub(crate) fn begin<H: Host>(&mut self, core: &mut Core, host: &mut H, now: Nanos) {
        debug_assert_eq!(self.phase, Phase::Idle);
        self.choose_id(core);
        let near = core.near.is_some() && host.is_near(self.name);
        if near != self.near {
            self.near = near;
            self.size = PathSize::new(host.datagram_limit_bytes(self.name));
        }
        self.paths = core.terms(near).paths;
        let first = core.cfg.first_psn.unwrap_or_else(|| core.rng.next_u32());
        self.tx.start(Psn(first), first);
        self.rx.open_credit(&core.cfg, &mut core.budget);
        self.setup = Setup { next_at: Some(now), ..Setup::default() };
        self.live = Liveness::owing(now);
        self.phase = Phase::Opening;
    }

    fn choose_id(&mut self, core: &mut Core) {
        core.sessions += 1;
        self.session = core.sessions;
        let random = (core.rng.next_u64() >> 24).max(1);
        self.local_session = (random << 24) | u64::from(self.id.index);
    }

    /// Another process of the peer answers than the one that may know our session id by now: packets
    /// of that one may still be under way, so the id is given up.
    fn renew(&mut self, core: &mut Core, now: Nanos) {
        self.choose_id(core);
        self.setup = Setup { next_at: Some(now), ..Setup::default() };
    }

    /// The peer used our session id in a session that ended there.
    pub(crate) fn on_used_id(&mut self, core: &mut Core, now: Nanos) {
        self.renew(core, now);
        self.live = Liveness::owing(now);
    }

    /// A round trip of the set-up; echo 0 stands for none.
    fn sample_setup(&mut self, arrived: Nanos, echo_sent_at_ns: u32) {
        let rtt = (arrived as u32).wrapping_sub(echo_sent_at_ns);
        if rtt < 1 << 31 && echo_sent_at_ns != 0 {
            self.tx.steering.sample(Nanos::from(rtt));
        }
    }

    fn greeting(&self, core: &Core, echo_sent_at_ns: u32) -> Greeting {
        let terms = core.terms(self.near);
        let (eager_credit_bytes, order_window) = self.rx.granted();
        Greeting {
            features: features(&core.cfg),
            session: self.local_session,
            asker: core.asker_id(self.local_session),
            epoch: core.cfg.epoch,
            incarnation: self.session,
            first_psn: self.tx.flight.first_psn().0,
            first_order: self.tx.out.first_order(),
            datagram_bytes: terms.datagram_bytes,
            paths: terms.paths,
            ack_policy: terms.scheme.ack_policy(),
            window_bytes: core.recv_window_bytes(self.size.limit_bytes()),
            eager_credit_bytes,
            order_window,
            psn_window: BITS_MAX,
            cookie: self.setup.cookie,
            gave_up: self.gave_up,
            echo_sent_at_ns,
            name: core.cfg.name,
        }
    }

    /// Takes over what a greeting says; the session is open afterwards.
    fn adopt(&mut self, core: &mut Core, now: Nanos, g: &Greeting) {
        let Greeting { session, asker, epoch, incarnation, .. } = *g;
        self.remote = Remote { session, asker, epoch, incarnation };
        self.oldest = (g.epoch, g.incarnation);
        let seed = core.rng.next_u64();
        let (cfg, terms) = (&core.cfg, core.terms(self.near));
        self.size.open(now, terms.datagram_bytes.min(g.datagram_bytes), cfg.growth_ns);
        self.datagram_bytes = self.size.usable_bytes();
        self.info_path = cfg.info_path && g.features & FEATURE_INFO_PATH != 0;
        self.payload_checksum = (features(cfg) | g.features) & FEATURE_PAYLOAD_CRC != 0;
        let takes_seals = g.features & FEATURE_SEALS != 0 && !self.payload_checksum;
        self.seals = terms.seals.filter(|_| takes_seals);
        (self.doubted, self.met) = (true, false);
        self.takes_requests = g.features & FEATURE_REMOTE != 0;
        self.tx.out.open(g);
        self.tx.flight.open(g.psn_window.clamp(1, BITS_MAX));
        self.rx.start(g);
        self.acks = Acks::new(Psn(g.first_psn), g.ack_policy);
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
        self.tx.steering.open(cc, terms.scheme.learns(), g.window_bytes);
        self.phase = Phase::Open;
        self.setup.next_at = None;
        self.live = Liveness::new(now);
        self.touch(now);
        core.stats.sessions_opened += 1;
    }

    /// A hello whose cookie is right.
    pub(crate) fn on_hello<H: Host>(
        &mut self,
        core: &mut Core,
        host: &mut H,
        now: Nanos,
        arrived: Nanos,
        g: &Greeting,
        sent_at_ns: u32,
    ) -> Result<(), Refusal> {
        if matches!(self.phase, Phase::Open | Phase::Leaving) {
            let known = (self.remote.epoch, self.remote.incarnation);
            if (g.epoch, g.incarnation) < known {
                if self.phase == Phase::Open {
                    self.live.ask();
                }
                return Err(Refusal::Stale);
            }
            if (g.epoch, g.incarnation) == known && !mutant(Mutant::RestartsOnARepeatedHello) {
                if g.session != self.remote.session || self.phase == Phase::Leaving {
                    return Err(Refusal::Phase);
                }
                if self.met {
                    // Who has our greeting says hello no more: this one is late, or a stranger's who
                    // has the peer's port by now and is not to learn our session id.
                    return Err(Refusal::Phase);
                }
                self.mark_alive(core, now);
                self.setup.welcome = Some(sent_at_ns);
                return Ok(());
            }
            self.end(core, host, EndReason::Failed(OpError::PeerRestarted));
        }
        if g.epoch == self.oldest.0 && g.incarnation < self.oldest.1 {
            return Err(Refusal::Stale);
        }
        match (self.phase, self.setup.proven_to) {
            (Phase::Idle, _) => self.begin(core, host, now),
            (_, Some(epoch)) if epoch > g.epoch => return Err(Refusal::Stale),
            (_, Some(epoch)) if epoch < g.epoch => self.renew(core, now),
            _ if g.gave_up == self.local_session => self.renew(core, now),
            _ => {}
        }
        self.sample_setup(arrived, g.echo_sent_at_ns);
        self.adopt(core, now, g);
        self.setup.welcome = Some(sent_at_ns);
        Ok(())
    }

    /// The peer said goodbye: no hello of the session that ended, or of an earlier one, is to
    /// begin another.
    pub(crate) fn retire(&mut self) {
        self.oldest.1 = self.oldest.1.saturating_add(1);
    }

    /// A challenge to our hello.
    pub(crate) fn on_challenge(
        &mut self,
        core: &mut Core,
        now: Nanos,
        cookie: u64,
        epoch: u64,
        sent_at_ns: u32,
    ) -> Result<(), Refusal> {
        if self.phase != Phase::Opening {
            return Err(Refusal::Phase);
        }
        match *self.setup.proven_to.get_or_insert(epoch) {
            known if known > epoch => return Err(Refusal::Stale),
            known if known < epoch => self.renew(core, now),
            _ if cookie != self.setup.cookie => {
                self.setup.cookie = cookie;
                self.setup.echo = sent_at_ns;
                self.setup.next_at = Some(now);
                self.setup.tries = 0;
            }
            _ => {}
        }
        // The peer answers, so the deadline starts again.
        self.live = Liveness::owing(now);
        Ok(())
    }

    /// A packet of the session came, but its welcome did not: the next hello brings it again.
    pub(crate) fn miss_welcome(&mut self, now: Nanos) {
        if self.phase == Phase::Opening {
            self.live = Liveness::owing(now);
            let soon = now + HELLO_FIRST_NS;
            self.setup.next_at = self.setup.next_at.map(|at| at.min(soon));
        }
    }

    /// A welcome to our hello.
    pub(crate) fn on_welcome(
        &mut self,
        core: &mut Core,
        now: Nanos,
        arrived: Nanos,
        g: &Greeting,
    ) -> Result<(), Refusal> {
        match self.phase {
            Phase::Opening if self.setup.proven_to != Some(g.epoch) => Err(Refusal::Stale),
            Phase::Opening if g.session == self.gave_up => Err(Refusal::Stale),
            Phase::Opening => {
                self.sample_setup(arrived, g.echo_sent_at_ns);
                self.adopt(core, now, g);
                Ok(())
            }
            Phase::Open if g.session == self.remote.session => Ok(()),
            _ => Err(Refusal::Phase),
        }
    }

    /// Ends the session: every operation of it gets its outcome, the flows are emptied.
    pub(crate) fn end<H: Host>(&mut self, core: &mut Core, host: &mut H, reason: EndReason) {
        let error = match reason {
            EndReason::Failed(error) => error,
            EndReason::Goodbye => OpError::PeerClosed,
        };
        if matches!(reason, EndReason::Failed(e) if e != OpError::Canceled) {
            core.stats.sessions_failed += 1;
        }
        self.fail_ops(core, host, error);
        if core::mem::take(&mut self.active) {
            core.active_senders -= 1;
        }
        self.rx.end(host, error);
        core.queued -= self.tx.out.queued();
        let kept = self.rx.close_credit(&core.cfg, &mut core.budget);
        core.budget.orphan(self.session, kept);
        self.tx = Sending::default();
        self.rx = super::Rx::default();
        self.acks = Acks::default();
        self.size.close();
        self.setup = Setup::default();
        self.live = Liveness::default();
        self.local_session = 0;
        if self.remote.session != 0 {
            self.gave_up = self.remote.session;
        }
        self.remote = Remote::default();
        if self.phase != Phase::Idle {
            self.phase = Phase::Idle;
            host.session_ended(self.id, self.session, reason);
        }
    }

    fn fail_ops<H: Host>(&mut self, core: &mut Core, host: &mut H, error: OpError) {
        if !self.tx.out.end_all() {
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
        if self.phase != Phase::Open {
            self.end(core, host, EndReason::Failed(OpError::Canceled));
            return;
        }
        self.fail_ops(core, host, OpError::Canceled);
        self.phase = Phase::Leaving;
        self.setup = Setup { next_at: Some(now), ..Setup::default() };
        self.live = Liveness::default();
    }

    /// When the next goodbye is due after `tries`; `None` when enough were sent.
    pub(crate) fn goodbye_spacing_ns(&self, core: &Core) -> Option<Nanos> {
        (self.setup.tries < GOODBYES_MAX).then(|| self.probe_timeout_ns(core))
    }

    /// Writes a hello and arms the next.
    pub(crate) fn emit_hello(&mut self, core: &mut Core, now: Nanos, burst: &mut TxBurst) {
        // A repetition is too late to tell a round trip.
        let echo = core::mem::take(&mut self.setup.echo);
        self.emit_greeting(core, now, burst, Kind::Hello, 0, echo);
        let spacing = (HELLO_FIRST_NS << self.setup.tries.min(8)).min(HELLO_MAX_NS);
        self.setup.next_at = Some(now + spacing);
        self.setup.tries += 1;
        self.live.sent_hello(now);
    }

    /// Writes a welcome.
    pub(crate) fn emit_welcome(&mut self, core: &mut Core, now: Nanos, burst: &mut TxBurst) {
        let echo = self.setup.welcome.take().unwrap_or(0);
        let to = self.remote.session;
        self.emit_greeting(core, now, burst, Kind::Welcome, to, echo);
    }

    fn emit_greeting(
        &mut self,
        core: &mut Core,
        now: Nanos,
        burst: &mut TxBurst,
        kind: Kind,
        session: u64,
        echo: u32,
    ) {
        let greeting = self.greeting(core, echo);
        let h = Header { sent_at_ns: now as u32, ..Header::new(kind, session) };
        emit_control(core, burst, h, |out| greeting.emit(out));
        burst.to = self.name;
        burst.path = self.next_control_path();
    }

    /// Writes a goodbye and arms the next.
    pub(crate) fn emit_goodbye(&mut self, core: &mut Core, now: Nanos, burst: &mut TxBurst) {
        let ack = self.ack_state(core, now);
        let asker = Asker { id: core.asker_id(self.local_session), name: core.cfg.name };
        let h =
            Header { sent_at_ns: now as u32, ..Header::new(Kind::Goodbye, self.remote.session) };
        emit_control(core, burst, h, |out| Goodbye { asker, ack }.emit(out));
        burst.to = self.name;
        burst.path = self.next_control_path();
        self.setup.tries += 1;
        self.setup.next_at = Some(now + self.probe_timeout_ns(core));
    }

    /// Writes a probe.
    pub(crate) fn emit_probe(&mut self, core: &mut Core, now: Nanos, burst: &mut TxBurst) {
        let asker = Asker { id: core.asker_id(self.local_session), name: core.cfg.name };
        let path = self.next_control_path();
        let h = Header {
            path: path as u8,
            sent_at_ns: now as u32,
            psn: self.tx.flight.next_psn().0,
            ..Header::new(Kind::Probe, self.remote.session)
        };
        emit_control(core, burst, h, |out| asker.emit(out));
        burst.to = self.name;
        burst.path = path;
        self.live.sent_probe();
        self.doubted = true;
        core.stats.probes += 1;
    }
}
