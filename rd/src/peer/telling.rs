//! When a peer is told of a new key of the job (protocol.md §11.9).

use crate::units::{MILLISECOND, Nanos, SECOND};

/// First spacing of the probes that tell of a key.
const TELL_FIRST_NS: Nanos = 250 * MILLISECOND;
/// Widest spacing of them.
const TELL_MAX_NS: Nanos = 10 * SECOND;
/// The spacing is the time since the key came, divided by this.
const TELL_PARTS: Nanos = 8;
/// Sessions tell of a new key one after another within so many steps, of a millisecond each.
const TELL_STEPS: u32 = 1024;

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(super) struct Telling {
    since: Nanos,
    /// Time of the next probe.
    next_at: Nanos,
}

impl Telling {
    /// For a session that goes on while the key changes; `index` is its place in the table.
    pub(super) fn of_open(now: Nanos, index: u32) -> Telling {
        let wait = Nanos::from(index % TELL_STEPS) * MILLISECOND;
        Telling { since: now, next_at: now + wait }
    }

    /// For a session that begins while two keys are valid.
    pub(super) fn of_new(now: Nanos) -> Telling {
        Telling { since: now, next_at: now + TELL_FIRST_NS }
    }

    /// Time of the next probe.
    pub(super) fn next_at(self) -> Nanos {
        self.next_at
    }

    /// The same after a probe at `now`.
    pub(super) fn told(self, now: Nanos) -> Telling {
        let spacing = (now - self.since) / TELL_PARTS;
        Telling { next_at: now + spacing.clamp(TELL_FIRST_NS, TELL_MAX_NS), ..self }
    }
}
