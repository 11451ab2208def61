//! The loop that runs an engine over its ports. It is the same in an endpoint and in a simulated node.
//!
//! A step is: take what arrived, run timers that are due, tell the engine what was consumed, send, and
//! hand completions on. [`Driven`] is who has an engine to run, [`Memory`] what the loop asks of its
//! operations' memory, [`Outside`] where datagrams and time come from.
//!
//! - `receive`, `transmit`: the two halves of a step;
//! - [`guess`]: payload that is received straight into its place;
//! - [`sender`], [`pieces`]: from bursts to ports, without copying;
//! - [`link`]: whether UDP or verbs carries a burst; [`net_errors`]: what ICMP tells.

mod carriers;
pub mod guess;
pub mod link;
mod memory;
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

/// Who has an engine to run.
pub trait Driven {
    /// What is outside.
    type Outside: Outside;
    /// The memory of the operations.
    type Memory: Memory;

    /// What a step works on.
    fn parts(&mut self) -> Parts<'_, Self::Outside, Self::Memory>;

    /// Tells the engine what its callbacks could not answer.
    fn settle(&mut self);

    /// Takes up what waited for room.
    fn feed(&mut self);

    /// Hands completions on.
    fn publish(&mut self);

    /// One step; whether something had arrived.
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

    /// Sends what is due, as far as the port takes it. See `Engine::poll_transmit` for `flush`.
    fn transmit(&mut self, now: u64, flush: bool) {
        self.parts().transmit(now, flush);
    }
}
