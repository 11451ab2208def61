//! Activity of a peer: whether its session must be watched, whether it may be dropped, and the memory that it needs
//! (protocol.md §3.5, §7.3).

use super::{Core, Peer};
use crate::mutants::{Mutant, mutant};
use crate::units::{MILLISECOND, Nanos};
use core::num::NonZeroU64;

/// Quiet time after which a flow frees its memory: long enough that a busy peer keeps it, short enough that an endpoint
/// with many peers in turn does not hold it for all of them.
const GIVE_BACK_NS: Nanos = 50 * MILLISECOND;
/// Quiet time after which a flow no longer counts as in use, and drops the state of its paths.
const RECLAIM_NS: Nanos = 500 * MILLISECOND;
const _: () = assert!(GIVE_BACK_NS < RECLAIM_NS);

impl Peer {
    /// Notes that the flows are in use, so that their memory stays.
    pub(crate) fn touch(&mut self, now: Nanos) {
        self.active_at = now;
        self.reclaim_at = NonZeroU64::new(now + GIVE_BACK_NS);
    }

    /// Sees to it that a session whose keys are in use gives their memory back later.
    pub(crate) fn stays_awake(&mut self, now: Nanos) {
        let awake = self.proofs.as_ref().is_some_and(|proofs| proofs.is_awake());
        if awake && self.reclaim_at.is_none() {
            self.reclaim_at = NonZeroU64::new(now + GIVE_BACK_NS);
        }
    }

    /// True if the peer owes us data: something is missing, or half received.
    fn expects_data(&self) -> bool {
        let amid = self.rx.is_amid() || self.has_pulls();
        amid || self.acks.received().has_holes() || self.responder.has_early()
    }

    /// True if the peer's liveness matters though it owes no acknowledgement: a match, data or a directed receive waits
    /// for it.
    pub(super) fn needs_watch(&self) -> bool {
        self.session.is_open()
            && (self.watched > 0
                || (self.tx.out.ops() > 0 && !mutant(Mutant::LeavesTheRendezvousUnwatched))
                || self.expects_data()
                || self.rx.awaits_application())
    }

    /// True if only unfinished business of the peer keeps the session, which may never end: messages that the
    /// application does not match, or incomplete ones.
    pub(crate) fn hoards(&self, core: &Core, now: Nanos) -> bool {
        let patience_ns = if self.expects_data() { core.cfg.peer_timeout_ns } else { RECLAIM_NS };
        self.session.is_open()
            && (self.rx.awaits_application() || self.expects_data())
            && now >= self.active_at + patience_ns
            && self.watched == 0
            && self.tx.out.ops() == 0
            && !self.tx.outstanding()
            && !self.responder.has_done()
            && !self.responder.has_refusals()
    }

    /// True if the session is open, but nothing is under way, was so lately, or waits for the application.
    pub(crate) fn is_quiet(&self) -> bool {
        self.session.is_open()
            && self.reclaim_at.is_none()
            && !self.needs_watch()
            && !self.tx.outstanding()
            && self.tx.out.ops() == 0
            && !self.responder.has_done()
            && !self.responder.has_refusals()
    }

    /// Frees memory that is not in use. Data that the peer owes comes without a further touch, so this runs again
    /// later.
    pub(super) fn reclaim(&mut self, now: Nanos) {
        self.session.reclaim();
        self.tx.reclaim();
        self.acks.reclaim();
        self.requester.reclaim();
        self.responder.reclaim();
        self.rx.reclaim();
        let rests = !self.expects_data() && !self.tx.outstanding();
        if let Some(proofs) = self.proofs.as_mut().filter(|_| rests) {
            proofs.rest();
        }
        let unused_at = self.active_at + RECLAIM_NS;
        if now < unused_at {
            self.reclaim_at = NonZeroU64::new(unused_at);
            return;
        }
        if !self.tx.outstanding() {
            self.tx.steering.reclaim();
        }
        let expects_data = self.expects_data();
        let again = expects_data || self.tx.outstanding() || self.responder.has_done();
        self.reclaim_at = NonZeroU64::new(now + RECLAIM_NS).filter(|_| again);
    }

    /// True if the peer has not got an answer or a match notice that it waits for.
    pub(crate) fn owes_answers(&self) -> bool {
        self.session.is_open() && (self.responder.owes_answers() || self.tx.has_endings())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cc::fixed::ERD;
    use crate::config::Config;
    use crate::peer::PathSize;
    use crate::peer::steering::BUFFER_IDLE_BYTES;
    use crate::units::{KeyIndex, PeerId};
    use crate::wire::remote::Answer;
    use crate::wire::window::Window;
    use alloc::boxed::Box;

    fn core() -> Core {
        let name = "10.0.0.1:1".parse().expect("an address");
        Core::new(Config::new(name, 1, |seed, _| seed), Box::new(ERD.scheme()), 1)
    }

    /// A peer with an open session.
    fn open_peer(core: &mut Core) -> Peer {
        let id = PeerId { index: 0, generation: 1, key: KeyIndex(0) };
        let mut peer = Peer::new(id, core.cfg.name, PathSize::new(1472), 0);
        peer.session.begin(0, core.name_session(id.index));
        peer.session.open(&peer.greeting(core, 0));
        peer
    }

    #[test]
    fn a_quiet_flow_gives_its_memory_back_long_before_it_counts_as_unused() {
        let mut core = core();
        let mut peer = open_peer(&mut core);
        peer.touch(7);
        peer.tx.flight.reserve(32);
        let told = Window::of_bytes(2 * u64::from(BUFFER_IDLE_BYTES));
        peer.tx.steering.window_told(7, told, &mut core.rng);
        assert_eq!(peer.next_wake(&core), 7 + GIVE_BACK_NS);
        peer.reclaim(7 + GIVE_BACK_NS);
        assert_eq!(peer.tx.flight.reserved(), (0, 0));
        assert!(!peer.is_quiet(), "what is known of its paths is kept");
        assert_eq!(peer.tx.steering.told(), told);
        assert_eq!(peer.next_wake(&core), 7 + RECLAIM_NS);
        peer.reclaim(7 + RECLAIM_NS);
        assert!(peer.is_quiet());
        assert_eq!(peer.tx.steering.told().bytes(), Some(BUFFER_IDLE_BYTES));
        assert_eq!(peer.next_wake(&core), Nanos::MAX);
    }

    #[test]
    fn who_waits_for_a_refusal_is_not_quiet() {
        let mut core = core();
        let mut peer = open_peer(&mut core);
        let answer =
            Answer { order: 2, op: 1, msg_id: 0, refusal: None, len_bytes: 0, sent_bytes: 0 };
        peer.responder.delay(RECLAIM_NS, answer);
        assert!(!peer.is_quiet(), "the session stands until the refusal is out");
        assert_eq!(peer.responder.take_refusal(RECLAIM_NS), Some(answer));
        assert!(peer.is_quiet());
    }

    #[test]
    fn a_flow_in_use_keeps_its_memory() {
        let mut core = core();
        let mut peer = open_peer(&mut core);
        peer.touch(0);
        peer.tx.out.post(0, 8, 0);
        peer.reclaim(GIVE_BACK_NS);
        peer.reclaim(RECLAIM_NS);
        assert!(peer.tx.out.queued() > 0 && !peer.is_quiet());
        assert_eq!(peer.reclaim_at, NonZeroU64::new(2 * RECLAIM_NS));
    }
}
