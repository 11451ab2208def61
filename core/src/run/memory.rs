//! What the loop asks of the memory of an endpoint's operations.

use super::pieces::Pieces;
use crate::region::Pass;
use erd_rd::{Expected, Host, SendToken, TxBurst};
use std::ptr::NonNull;

/// The memory of an endpoint's operations, as the loop needs it.
pub trait Memory: Host {
    /// Where a payload that is expected goes, if it is worth receiving there. `pass` keeps registered memory
    /// from going; what lies in another region than that one has no place.
    fn place_of(&mut self, expected: &Expected, pass: &mut Option<Pass>) -> Option<NonNull<u8>>;

    /// Adds a burst's pieces.
    ///
    /// # Errors
    /// If one of its operations is gone, or the memory of an answer, which is named.
    fn gather(&self, burst: &TxBurst, pieces: &mut Pieces) -> Result<(), Option<SendToken>>;

    /// Answers whose memory went while the engine made a burst of it, which must not be sent.
    fn take_gone(&mut self) -> Vec<SendToken>;

    /// Datagrams are about to be sent.
    fn sends(&mut self) {}

    /// Something was waited for, so that it is later than it was.
    fn has_waited(&self) -> bool {
        false
    }

    /// Completions wait to be handed on.
    fn has_completions(&self) -> bool;
}
