//! The memory of an endpoint's operations, as the loop sees it.

use super::pieces::Pieces;
use crate::region::Pass;
use erd_port::local::Lanes;
use erd_rd::{Expected, Host, SendToken, TxBurst};
use std::ptr::NonNull;

/// The loop asks this, beside what the engine asks of its [`Host`].
pub trait Memory: Host {
    /// The memory that an expected payload goes to; `None` if the payload is to be copied there later. `pass`
    /// keeps a region of registered memory open. A payload for another region than that one has no place.
    fn place_of(&mut self, expected: &Expected, pass: &mut Option<Pass>) -> Option<NonNull<u8>>;

    /// Adds the pieces of a burst.
    ///
    /// # Errors
    /// `None` if an operation of the burst has ended, the token of an answer if its memory has gone.
    fn gather(&self, burst: &TxBurst, pieces: &mut Pieces) -> Result<(), Option<SendToken>>;

    /// The answers whose memory went while the engine made a burst of them. The loop does not send that burst.
    fn take_gone(&mut self) -> Vec<SendToken>;

    /// The loop is about to send.
    fn sends(&mut self) {}

    /// A call of the engine has waited, so the loop must read the clock again.
    fn has_waited(&self) -> bool {
        false
    }

    /// The place of the port of shared memory, which the loop empties while it reads there.
    fn local(&mut self) -> Option<&mut Option<Box<dyn Lanes>>> {
        None
    }

    /// Completions wait for [`super::Driven::publish`].
    fn has_completions(&self) -> bool;
}
