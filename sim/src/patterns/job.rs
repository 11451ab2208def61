//! A pattern that is being made.

use super::error::PatternError;
use super::random::Random;
use super::site::Site;
use crate::ids::HostId;
use crate::time::Picos;
use crate::work::{FlowId, Work};

/// Most messages of a pattern: each takes about 200 bytes of memory before the run.
pub const MESSAGES_MAX: u64 = 1 << 26;
/// A pattern that is being made.
pub(super) struct Job<'a> {
    pub(super) work: &'a mut Work,
    pub(super) site: &'a Site,
    pub(super) random: Random,
}

impl Job<'_> {
    /// There is room for so many more messages; `parameter` says how many there are.
    pub(super) fn room(&self, messages: u64, parameter: &'static str) -> Result<(), PatternError> {
        let all = messages.saturating_add(self.work.flows().len() as u64);
        if all <= MESSAGES_MAX {
            return Ok(());
        }
        let valid = format!("gives {all} messages, at most {MESSAGES_MAX} are possible");
        Err(PatternError::new(parameter, valid))
    }

    /// A message that starts at a random time of a span.
    pub(super) fn send(
        &mut self,
        from: HostId,
        to: HostId,
        bytes: u64,
        spread_ps: Picos,
    ) -> FlowId {
        let flow = self.work.message(from, to, bytes);
        let at = self.random.up_to(spread_ps);
        if at > 0 {
            self.work.start_at(flow, at);
        }
        flow
    }
}
