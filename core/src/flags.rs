//! Flags of calls and of completions.

use bitflags::bitflags;

bitflags! {
    /// Flags of operations, completions, regions and counters. The bits are those of libfabric's flags of the same
    /// names, so its face translates nothing.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct Flags: u64 {
        /// A message.
        const MSG = 1 << 1;
        /// An access to a peer's memory.
        const RMA = 1 << 2;
        /// A message with a tag.
        const TAGGED = 1 << 3;
        /// An atomic.
        const ATOMIC = 1 << 4;
        /// A read of a peer's memory.
        const READ = 1 << 8;
        /// A write to a peer's memory.
        const WRITE = 1 << 9;
        /// A receive.
        const RECV = 1 << 10;
        /// A send.
        const SEND = 1 << 11;
        /// A peer's read of memory of this process.
        const REMOTE_READ = 1 << 12;
        /// A peer's write to memory of this process.
        const REMOTE_WRITE = 1 << 13;
        /// The buffer takes many messages; in a completion: it takes no more.
        const MULTI_RECV = 1 << 16;
        /// The operation carries the application's data, or the completion has it.
        const REMOTE_CQ_DATA = 1 << 17;
        /// Others follow at once, and can share a datagram.
        const MORE = 1 << 18;
        /// Looks for a message without receiving it.
        const PEEK = 1 << 19;
        /// The operation waits for a counter.
        const TRIGGER = 1 << 20;
        /// The operation waits for those before it.
        const FENCE = 1 << 21;
        /// The operation writes a queue entry, even where only operations that ask for one do.
        const COMPLETION = 1 << 24;
        /// The buffer is the caller's again when the call returns.
        const INJECT = 1 << 25;
        /// The operation completes when its bytes are copied.
        const INJECT_COMPLETE = 1 << 26;
        /// The operation completes when the peer has acknowledged it.
        const TRANSMIT_COMPLETE = 1 << 27;
        /// The operation completes when its bytes are in place.
        const DELIVERY_COMPLETE = 1 << 28;
        /// The operation completes when it has met its receive.
        const MATCH_COMPLETE = 1 << 31;
        /// The receive is another provider's.
        const PEER = 1 << 43;
        /// The source is a key.
        const AUTH_KEY = 1 << 57;
        /// Drops the message that was found or claimed.
        const DISCARD = 1 << 58;
        /// Keeps the message that was found for a later receive, or receives it.
        const CLAIM = 1 << 59;

        /// Levels of completion that wait for the peer.
        const LATE_LEVELS = Self::TRANSMIT_COMPLETE.bits()
            | Self::DELIVERY_COMPLETE.bits()
            | Self::MATCH_COMPLETE.bits();
        /// Peers' accesses.
        const REMOTE = Self::REMOTE_READ.bits() | Self::REMOTE_WRITE.bits();
    }
}
