//! The loop that runs an engine over its ports. It is the same in an endpoint and in a simulated node.
//!
//! A step takes arrivals, runs the timers that are due, tells the engine which messages were consumed, sends, and
//! hands completions on. An endpoint implements [`Driven`], the memory of its operations [`Memory`]. [`Outside`]
//! names the types of its ports and its clock.
//!
//! - `receive`, `transmit`: the two halves of a step;
//! - [`guess`]: the places for payload received without a copy;
//! - [`sender`], [`pieces`]: from bursts to ports, without copying;
//! - [`link`]: the choice between UDP and verbs; `negotiation`: what makes it possible; [`net_errors`]: the errors that ICMP reports.

mod carriers;
pub mod guess;
pub mod link;
mod local;
mod memory;
mod negotiation;
pub mod net_errors;
mod outside;
pub mod pieces;
mod receive;
pub mod sender;
mod transmit;

pub use carriers::{Carriers, Parts};
pub use memory::Memory;
pub use outside::{Clock, Kernel, Monotonic, Outside};

/// Times that a step looks for arrivals.
const ROUNDS: usize = 8;
/// A timer this late is run even though arrivals keep coming.
const LATE_NS: u64 = 1_000_000;

/// An endpoint, as the loop sees it.
pub trait Driven {
    /// The types of its ports and its clock.
    type Outside: Outside;
    /// The memory of the operations.
    type Memory: Memory;

    /// Its engine, its memory and its ports.
    fn parts(&mut self) -> Parts<'_, Self::Outside, Self::Memory>;

    /// Gives the engine the answers that its callbacks had to leave open.
    fn settle(&mut self);

    /// Resumes messages that waited for room.
    fn feed(&mut self);

    /// Hands completions to the queues.
    fn publish(&mut self);

    /// Runs one step. True if something had arrived.
    fn progress(&mut self) -> bool {
        let mut now = self.parts().now_ns();
        let (mut drained, mut arrived) = (false, false);
        for _ in 0..ROUNDS {
            let (taken, everywhere) = self.parts().receive(&mut now);
            if taken == 0 {
                drained = everywhere;
                break;
            }
            arrived = true;
            self.settle();
            self.parts().transmit(now, true);
            // The application waits for what has completed; the rest can follow.
            if self.parts().host.has_completions() {
                break;
            }
            now = self.parts().now_ns();
            if self.parts().carriers.are_drained() {
                drained = everywhere;
                break;
            }
        }
        self.parts().run_timers(now, if drained { 0 } else { LATE_NS });
        self.feed();
        if self.parts().host.has_waited() {
            now = self.parts().now_ns();
        }
        self.settle();
        self.parts().transmit(now, true);
        self.publish();
        arrived
    }
}
