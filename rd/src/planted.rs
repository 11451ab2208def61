//! Protocol bugs that tests switch on, one at a time, to prove that the fault tests find them.
//!
//! Without the feature `planted-bugs` every check is the constant `false` and compiles to
//! nothing. The switch is one for the whole process: tests that use it run alone.

#[cfg(feature = "planted-bugs")]
use core::sync::atomic::{AtomicUsize, Ordering};

/// What each bug breaks; bug `n` is entry `n - 1`.
pub const BUGS: [&str; 27] = [
    "a data packet that came before is taken again",
    "segments are placed in order of arrival, not at their offset",
    "a long message completes with its last segment, whatever is missing",
    "a send completes when its packets are sent, not when they are acknowledged",
    "a lost packet is forgotten when the window is closed",
    "the bitmap of an acknowledgement is read one place off",
    "PSNs are compared without regard to their wrap",
    "send orders are compared without regard to their wrap",
    "any packet for a peer's table entry is taken, whatever its session",
    "a repeated hello starts the session anew",
    "a consumed message does not give its order credit back",
    "permissions to send are left out when their bundle is repeated",
    "a message counts as matched when it arrives",
    "a message that came before its turn is reported at once",
    "a waiting rendezvous is not watched for its peer's death",
    "an answer does not stop the deadline",
    "the payload checksum is not checked",
    "a lost packet stays in flight",
    "the receive bitmap forgets its bits when it grows",
    "receives under way are not failed when their session ends",
    "bytes are expected where some have been received",
    "a broken seal is not seen",
    "bytes count each time that they come",
    "limits are raised by a stale acknowledgement",
    "newcomers of one address have no quota",
    "a message is reported before one that was matched earlier",
    "what is lent to peers is not charged to the budget",
];

#[cfg(feature = "planted-bugs")]
static PLANTED: AtomicUsize = AtomicUsize::new(0);

/// Switches one bug on, from 1; 0 for none.
#[cfg(feature = "planted-bugs")]
pub fn plant(number: usize) {
    PLANTED.store(number, Ordering::Relaxed);
}

/// Whether bug `number` is on.
#[cfg(feature = "planted-bugs")]
pub(crate) fn planted(number: usize) -> bool {
    PLANTED.load(Ordering::Relaxed) == number
}

/// Whether bug `number` is on.
#[cfg(not(feature = "planted-bugs"))]
pub(crate) const fn planted(_: usize) -> bool {
    false
}
