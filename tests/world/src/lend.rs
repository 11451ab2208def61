//! The memory of a node, as the library's loop sees it: places for expected payload, and payloads to send.

use super::app::View;
use super::memory::KIND;
use super::pattern;
use erd_core::region::Pass;
use erd_core::run::Memory;
use erd_core::run::pieces::Pieces;
use erd_port::local::Lanes;
use erd_rd::wire::header::PacketKind;
use erd_rd::{Expected, Part, SendToken, TxBurst};
use std::ptr::NonNull;

impl Memory for View<'_> {
    fn local(&mut self) -> Option<&mut Option<Box<dyn Lanes>>> {
        Some(&mut self.app.lanes)
    }

    /// The ledger judges that no received byte lies at the place, since the port may write anything there.
    fn place_of(&mut self, expected: &Expected, _: &mut Option<Pass>) -> Option<NonNull<u8>> {
        self.ledger.touches += 1;
        let (token, len_bytes) = (expected.to.0, usize::from(expected.len_bytes));
        let (life, at) = (self.app.life, expected.offset_bytes);
        match token & KIND {
            0 => self.ledger.scribble(life, token as usize, at, len_bytes),
            _ => self.ledger.memory.scribble(life, token, at, len_bytes),
        }
        NonNull::new(self.app.place(len_bytes))
    }

    fn gather(&self, burst: &TxBurst, pieces: &mut Pieces) -> Result<(), Option<SendToken>> {
        self.judge_burst(burst);
        for part in &burst.parts {
            match *part {
                Part::Inline { start, len_bytes } => {
                    pieces.push_bytes(&burst.bytes[start as usize..][..len_bytes as usize]);
                }
                Part::Payload { op, offset_bytes, len_bytes } => {
                    let payload = self.payload(op, offset_bytes, len_bytes)?;
                    pieces.push_bytes(&payload);
                    self.app.lend(payload);
                }
            }
        }
        Ok(())
    }

    /// The node withdraws answers after the engine's call.
    fn take_gone(&mut self) -> Vec<SendToken> {
        Vec::new()
    }

    /// The host tells the ledger at once.
    fn has_completions(&self) -> bool {
        false
    }
}

impl View<'_> {
    /// A part of an operation's payload.
    ///
    /// # Errors
    /// If the operation ended, or its memory went, while the burst waited.
    fn payload(
        &self,
        op: SendToken,
        offset_bytes: u64,
        len_bytes: u32,
    ) -> Result<Vec<u8>, Option<SendToken>> {
        let mut bytes = vec![0; len_bytes as usize];
        if op.0 & KIND != 0 {
            let gone = self.app.keeps && !self.ledger.memory.lives(op.0);
            let there = !gone && self.ledger.memory.payload(op.0, offset_bytes, &mut bytes);
            return there.then_some(bytes).ok_or(None);
        }
        if self.app.keeps && self.ledger.sends[op.0 as usize].ended.is_some() {
            return Err(None);
        }
        self.ledger.judge_reading(self.app.life, op.0, offset_bytes, u64::from(len_bytes));
        pattern::fill(op.0, offset_bytes, &mut bytes);
        Ok(bytes)
    }

    fn judge_burst(&self, burst: &TxBurst) {
        let (config, limits) = (&self.setup.config, &self.setup.limits);
        assert!(burst.datagrams > 0 && burst.total_bytes > 0, "an empty burst: {burst:?}");
        let fits = burst.total_bytes <= config.burst_bytes.max(burst.segment_bytes);
        assert!(fits, "a burst of {} bytes", burst.total_bytes);
        let paths = self.setup.paths(burst.to);
        assert!(burst.path < paths, "path {} of {paths}", burst.path);
        let probes = burst.kind == PacketKind::SizeProbe;
        let limit = u32::from(limits.limit_bytes(burst.to));
        let refused = burst.segment_bytes > limit && !burst.may_fragment;
        assert!(probes || !refused, "a datagram of {} bytes", burst.segment_bytes);
        // A proof holds for bytes that nobody can change before they are sent, by whatever carrier.
        let lent = burst.parts.iter().any(|part| matches!(part, Part::Payload { .. }));
        assert!(!lent || config.keys.is_empty(), "proven, and sent from an application: {burst:?}");
        let known_key = config.keys.is_empty() || config.keys.get(burst.key).is_some();
        assert!(known_key, "{:?} is no key of the node", burst.key);
        // Only a forged greeting can have named a stranger, or a forged question, which gets its answer.
        let known = self.wire.borrow().names.contains(&burst.to);
        let answers =
            matches!(burst.kind, PacketKind::Reset | PacketKind::GoodbyeAck | PacketKind::Version);
        let rules = self.ledger.rules;
        let forged = rules.forged || rules.lies && answers;
        assert!(known || forged, "{burst:?} goes to nobody");
    }
}
