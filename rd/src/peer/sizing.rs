//! Size probes of a session: sending, answering, and the effect of the answers (protocol.md §4.6).

use super::control::{Proof, emit_control};
use super::path_size::{Outcome, SizeProbe, SizeQuestion};
use super::{Core, Peer};
use crate::host::{EndReason, Host, OpError};
use crate::transmit::TxBurst;
use crate::units::Nanos;
use crate::wire::header::{Header, PacketKind};

impl Peer {
    /// Takes a size probe of `bytes`.
    pub(crate) fn on_size_probe(
        &mut self,
        core: &Core,
        now: Nanos,
        h: &Header,
        number: u16,
        bytes: u16,
    ) {
        self.heard(core, now);
        self.size.asked(SizeQuestion { number, bytes, path: h.path });
    }

    /// Notes that the peer has received a size probe of `bytes`.
    pub(crate) fn on_size_answer(&mut self, core: &Core, now: Nanos, number: u16, bytes: u16) {
        self.heard(core, now);
        // Answers arrive, so a probe without one was lost itself.
        self.live.answered(now, self.tx.flight.packets() > 0);
        if self.size.answered(now, number, bytes) {
            self.resize();
        }
    }

    /// Notes an ICMP report of the size that the path to the peer carries.
    pub(crate) fn on_path_told(&mut self, now: Nanos, bytes: u16) {
        if self.session.is_open() {
            self.size.told(now, bytes);
        }
    }

    /// Notes that the kernel refused a datagram to the peer, and the size that would pass.
    pub(crate) fn on_too_big(&mut self, now: Nanos, bytes: u16) {
        if self.size.refused(now, bytes) {
            self.resize();
        }
    }

    /// Changes the session's datagram size to the one that passes.
    fn resize(&mut self) {
        self.datagram_bytes = self.size.usable_bytes();
    }

    /// Runs a trial's next step, if due.
    pub(super) fn check_size<H: Host>(&mut self, core: &mut Core, host: &mut H, now: Nanos) {
        let cfg = &core.cfg;
        match self.size.timer(now, self.live.heard_at(), cfg.peer_timeout_ns) {
            Outcome::Nothing => {}
            Outcome::Changed => self.resize(),
            Outcome::Blocked => {
                self.end(core, host, EndReason::Failed(OpError::PathBlocked));
            }
        }
    }

    /// Writes a size probe or the answer to one, if one is due.
    pub(super) fn transmit_size(
        &mut self,
        core: &mut Core,
        now: Nanos,
        burst: &mut TxBurst,
    ) -> bool {
        let session = self.session.their_id();
        let sent_at_ns = now as u32;
        if let Some(SizeQuestion { number, bytes, path }) = self.size.take_question() {
            let h = Header { path, sent_at_ns, ..Header::new(PacketKind::SizeAnswer, session) };
            let proof = Proof::Session(self.proofs.as_deref_mut());
            emit_control(core, burst, h, proof, |out| {
                out.extend_from_slice(&number.to_be_bytes());
                out.extend_from_slice(&bytes.to_be_bytes());
            });
            burst.path = self.answers.path(now, u16::from(path) % self.paths, self.paths);
        } else if let Some(SizeProbe { bytes, number, may_fragment }) = self.size.due() {
            let path = self.question_path(now);
            let h = Header {
                path: path as u8,
                sent_at_ns,
                ..Header::new(PacketKind::SizeProbe, session)
            };
            let end = burst.bytes.len() + usize::from(bytes) - core.trailer_bytes();
            let proof = Proof::Session(self.proofs.as_deref_mut());
            emit_control(core, burst, h, proof, |out| {
                out.extend_from_slice(&number.to_be_bytes());
                out.resize(end, 0);
            });
            burst.path = path;
            burst.may_fragment = may_fragment;
            self.size.sent(now, self.probe_timeout_ns(core));
            core.stats.size_probes += 1;
            if self.tx.flight.packets() == 0 {
                // Where nothing else gets an answer, a probe tells whether the peer is there.
                self.live.ask();
            }
        } else {
            return false;
        }
        burst.to = self.name;
        true
    }
}
