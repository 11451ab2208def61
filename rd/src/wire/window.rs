//! A receiver's window (protocol.md §4.4): bytes that a sender may have in flight, or the time between its packets.

/// Bytes that a window of bytes counts for each packet beside its own: the kernel's bookkeeping of a small datagram takes them from
/// a receive buffer.
pub const DATAGRAM_COST_BYTES: u64 = 1024;

/// Bit of a window that holds a time.
const SPACE: u32 = 1 << 31;

/// What a sender may send towards a receiver.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Window(u32);

impl Window {
    /// A window of bytes in flight, at most 2 GiB.
    #[must_use]
    pub fn of_bytes(bytes: u64) -> Window {
        Window(bytes.min(u64::from(SPACE - 1)) as u32)
    }

    /// A time in nanoseconds from one datagram of full size to the next, less than 2^31.
    #[must_use]
    pub fn of_space(space_ns: u64) -> Window {
        Window(space_ns.min(u64::from(SPACE - 1)) as u32 | SPACE)
    }

    /// The window as it is on the wire. Any number is one.
    #[must_use]
    pub const fn from_bits(bits: u32) -> Window {
        Window(bits)
    }

    /// See [`Window::from_bits`].
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Bytes in flight; `None` if the window holds a time.
    #[must_use]
    pub fn bytes(self) -> Option<u32> {
        (self.0 & SPACE == 0).then_some(self.0)
    }

    /// Time in nanoseconds between datagrams; 0 if the window holds bytes.
    #[must_use]
    pub fn space_ns(self) -> u64 {
        match self.bytes() {
            None => u64::from(self.0 & !SPACE),
            Some(_) => 0,
        }
    }
}
