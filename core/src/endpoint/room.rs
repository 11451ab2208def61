//! Checks that memory is left for what peers send. The process may have a limit (`RLIMIT_AS`), and Rust's allocator
//! ends a process that reaches it. So everything that grows with peers' packets stops before.

use erd_sys::own_memory;

/// Memory that peers cannot use up: for small allocations without a check, and for the application.
const RESERVE_BYTES: usize = 4 << 20;
/// Use after which the kernel is asked again.
const UNCHECKED_BYTES: usize = 256 << 10;

/// See the module's text.
#[derive(Default)]
pub(crate) struct Room {
    /// Bytes used since the kernel was last asked.
    unchecked_bytes: usize,
    /// The kernel had none then.
    is_short: bool,
}

impl Room {
    /// Whether there is memory for `bytes` more.
    pub(crate) fn has(&mut self, bytes: usize) -> bool {
        self.unchecked_bytes = self.unchecked_bytes.saturating_add(bytes);
        if self.unchecked_bytes < UNCHECKED_BYTES && !self.is_short {
            return true;
        }
        self.unchecked_bytes = 0;
        self.is_short = !own_memory::has_room(bytes.saturating_add(RESERVE_BYTES));
        !self.is_short
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_there_is_is_refused_until_there_is() {
        let mut room = Room::default();
        assert!(room.has(1) && !room.is_short);
        assert!(!room.has(1 << 50), "no process has so much");
        assert!(room.has(1), "it is asked again");
    }
}
