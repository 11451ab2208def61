//! Counters of one endpoint. It counts every dropped packet under a reason.

use crate::wire::remote::{REFUSALS, Refusal};

/// Reason for dropping a received packet (protocol.md §8).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum DropReason {
    /// Shorter than its header says, or not of any known form.
    Malformed,
    /// Another protocol version.
    Version,
    /// Header checksum does not match.
    HeaderChecksum,
    /// Payload checksum does not match.
    PayloadChecksum,
    /// Names a session that does not exist here.
    UnknownSession,
    /// Does not fit the session's state.
    WrongState,
    /// Already received.
    Duplicate,
    /// Outside the receive window.
    Window,
    /// Cookie missing its proof, or stale set-up packet.
    Cookie,
    /// Names a message or transfer that does not exist, or bytes outside it.
    Message,
    /// The sender exceeded the credits given to it.
    Credit,
    /// No buffer to hold an early message.
    NoBuffer,
    /// A table is full (peers, early messages).
    TableFull,
    /// A switch cut its payload off; the endpoint asked for it again.
    Trimmed,
    /// A hello from an address whose newcomers have all the places that they may have.
    Quota,
    /// A hello of a peer that the host does not admit.
    Stranger,
    /// Proven with another job's key.
    OtherKey,
    /// Its proof is wrong.
    Forged,
    /// Its counter was taken before, or is too far from those that were.
    Replayed,
}

/// Number of [`DropReason`]s.
pub const DROP_REASONS: usize = DropReason::Replayed as usize + 1;

/// Names of the reasons, in order.
pub const DROP_NAMES: [&str; DROP_REASONS] = [
    "malformed",
    "version",
    "header_checksum",
    "payload_checksum",
    "unknown_session",
    "wrong_state",
    "duplicate",
    "window",
    "cookie",
    "message",
    "credit",
    "no_buffer",
    "table_full",
    "trimmed",
    "quota",
    "stranger",
    "other_key",
    "forged",
    "replayed",
];

/// Counters since the endpoint was made. All count packets unless the name says otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Data packets sent for the first time.
    pub tx_data: u64,
    /// Payload bytes sent for the first time.
    pub tx_payload_bytes: u64,
    /// Control packets sent.
    pub tx_control: u64,
    /// Answers to hellos: the endpoint asks for a proof before it keeps any state.
    pub tx_challenges: u64,
    /// Answers to probes of sessions that do not exist.
    pub tx_resets: u64,
    /// Answers to goodbyes.
    pub tx_goodbye_confirmations: u64,
    /// Answers to hellos of another version.
    pub tx_version_refusals: u64,
    /// Answers due but withheld: too many at once, or too many in one second to names at other addresses than the
    /// question's.
    pub answers_withheld: u64,
    /// Data packets accepted.
    pub rx_data: u64,
    /// Payload bytes placed.
    pub rx_payload_bytes: u64,
    /// Control packets accepted.
    pub rx_control: u64,
    /// Retransmissions after a NACK.
    pub rtx_nack: u64,
    /// Retransmissions after a probe's answer.
    pub rtx_probe: u64,
    /// Retransmissions after acknowledgements of later packets.
    pub rtx_order: u64,
    /// Retransmissions of packets whose payload was cut off.
    pub rtx_trim: u64,
    /// Retransmissions whose original arrived after all, before or after them (reported by the receiver).
    pub rtx_spurious: u64,
    /// Probes sent.
    pub probes: u64,
    /// Size probes sent.
    pub size_probes: u64,
    /// NACKs sent.
    pub nacks: u64,
    /// Messages sent whole.
    pub messages_sent: u64,
    /// Messages received whole.
    pub messages_received: u64,
    /// Sessions set up.
    pub sessions_opened: u64,
    /// Sessions ended by an error.
    pub sessions_failed: u64,
    /// Of the sessions set up, those whose data goes through shared memory.
    pub lanes_opened: u64,
    /// Entries written to lanes.
    pub lane_tx_entries: u64,
    /// Entries of lanes taken.
    pub lane_rx_entries: u64,
    /// Bytes of messages and writes read where they lie in the memory of local peers.
    pub lane_pulled_bytes: u64,
    /// Received data packets that carried a congestion mark.
    pub rx_ce: u64,
    /// Requests of peers to this endpoint's memory that were done.
    pub requests_served: u64,
    /// Requests of peers that were refused, by [`Refusal`], in the order of
    /// [`REFUSAL_NAMES`](crate::wire::remote::REFUSAL_NAMES).
    pub refusals: [u64; REFUSALS],
    /// Drops by [`DropReason`].
    pub drops: [u64; DROP_REASONS],
}

impl Stats {
    /// Counts a drop.
    pub fn drop_packet(&mut self, reason: DropReason) {
        self.drops[reason as usize] += 1;
    }

    /// Counts a refusal.
    pub fn refuse(&mut self, refusal: Refusal) {
        self.refusals[refusal as usize - 1] += 1;
    }

    /// Drops counted under `reason`.
    #[must_use]
    pub fn drops_for(&self, reason: DropReason) -> u64 {
        self.drops[reason as usize]
    }
}
