//! Writing acknowledgements (protocol.md §6).

use super::acks::Pace;
use super::control::{Proof, emit_control};
use super::path_size::ALWAYS_PASSES_BYTES;
use super::{Core, Peer};
use crate::transmit::TxBurst;
use crate::units::Nanos;
use crate::wire::ack::{ACK_PROBE_ANSWER, AckState, emit_sections};
use crate::wire::header::{Header, PacketKind};

impl Peer {
    /// Inputs to the timing of acknowledgements.
    pub(super) fn pace<'a>(&self, core: &'a Core) -> Pace<'a> {
        Pace {
            cfg: &core.cfg,
            spacing_ns: core.ack_spacing_ns,
            rtt_ns: self.tx.steering.rtt_ns(),
            datagram_bytes: self.datagram_bytes,
        }
    }

    /// The present acknowledgement state. It counts as sent from now on.
    pub(super) fn ack_state(&mut self, core: &mut Core, now: Nanos) -> AckState {
        let state = self.acks.state(now);
        self.with_limits(core, state)
    }

    fn with_limits(&mut self, core: &mut Core, state: AckState) -> AckState {
        let (eager_limit_bytes, order_limit) = self.rx.tell_limits(&core.cfg, &mut core.budget);
        let rtt_ns = self.tx.steering.rtt_ns();
        let window = core.recv_window(self.near, self.datagram_bytes, rtt_ns);
        AckState { eager_limit_bytes, order_limit, window, ..state }
    }

    /// State to piggyback on the message that leaves now, if an acknowledgement is due and may ride.
    pub(super) fn riding_ack(&mut self, core: &mut Core, now: Nanos) -> Option<AckState> {
        let state = self.acks.riding(now)?;
        Some(self.with_limits(core, state))
    }

    /// Writes an acknowledgement packet with the details beyond the state.
    pub(super) fn emit_ack(&mut self, core: &mut Core, now: Nanos, burst: &mut TxBurst) {
        let answered = self.acks.begin_alone();
        let mut state = self.ack_state(core, now);
        if answered.is_some() {
            state.flags |= ACK_PROBE_ANSWER;
        }
        // The reader wants to know the path of what arrived, whatever path the answer takes.
        let path = answered.unwrap_or(state.echo_path);
        let details = self.acks.details(now, self.room_bytes());
        if !details.nacks.is_empty() {
            core.stats.nacks += 1;
        }
        let sent_at_ns = now as u32;
        let h =
            Header { path, sent_at_ns, ..Header::new(PacketKind::Ack, self.session.their_id()) };
        let received = self.acks.received();
        let (base, sack) = (received.cum().0, received.sack(details.sack_words));
        let proof = Proof::Session(self.proofs.as_deref_mut());
        emit_control(core, burst, h, proof, |out| {
            state.emit(out);
            emit_sections(out, base, sack, &details.nacks, &details.echoes);
        });
        self.acks.wrote(details);
        burst.to = self.name;
        // A connection may be stuck, too.
        burst.info_path = self.info_path && !self.answers.are_lost(now);
        // This side may have no data to probe the path's size with.
        let long = burst.total_bytes > ALWAYS_PASSES_BYTES;
        burst.may_fragment = long || self.size.may_fragment(burst.total_bytes);
        // A single path would put all acknowledgements into one queue.
        let path = u16::from(path) % self.paths;
        burst.path = match answered {
            None => self.answers.path(now, path, self.paths),
            Some(asked) => {
                let (path, again) = self.answers.answer(now, path, self.paths);
                if again {
                    self.acks.answer_again(asked);
                }
                path
            }
        };
    }
}
