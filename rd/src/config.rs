//! Settings of one engine, checked once.

use crate::cc::Scheme;
use crate::keys::KeySet;
use crate::units::{Ecn, MICROSECOND, MILLISECOND, Nanos, SECOND};
use alloc::boxed::Box;
use core::net::SocketAddr;

/// Smallest datagram limit the protocol works with, in bytes: the IPv6 minimum MTU less headers.
pub const DATAGRAM_MIN_BYTES: u16 = 1232;
/// Largest path count (protocol.md §2.1: the path field has 8 bits).
pub const PATHS_MAX: u16 = 256;

/// Largest peer table.
pub const PEERS_MAX: u32 = 1 << 24;
/// Largest credit, in bytes or messages.
pub const CREDIT_MAX: u32 = 1 << 30;

/// Settings of an [`crate::Endpoint`]. Start from [`Config::new`].
#[derive(Clone, Debug)]
pub struct Config {
    /// The endpoint's own full name, as peers know it.
    pub name: SocketAddr,
    /// Grows with every process that uses this name; wall-clock nanoseconds serve.
    pub epoch: u64,
    /// Largest datagram this endpoint receives, in bytes, 1232 to 65507.
    pub datagram_bytes: u16,
    /// Most bytes in one [`crate::TxBurst`]; one datagram on ports without segmentation offload.
    pub burst_bytes: u32,
    /// Paths to spray over, 1 to 256.
    pub paths: u16,
    /// Silence of a peer that owes an answer for this long is its death, 10 ms to 24 h.
    pub peer_timeout_ns: Nanos,
    /// Time after a search until the engine looks again whether a path carries larger datagrams.
    pub growth_ns: Nanos,
    /// Shortest spacing of receive bitmap scans, 1 us to 1 min; likewise the next.
    pub scan_min_ns: Nanos,
    /// Shortest retransmission (probe) timeout.
    pub rto_min_ns: Nanos,
    /// Longest wait of an acknowledgement for data to piggyback on.
    pub ack_delay_ns: Nanos,
    /// Messages up to this length are sent without waiting for their match, in bytes.
    pub eager_bytes: u32,
    /// Eager bytes of one peer that may wait here for their match, at most 2^30.
    pub eager_credit_bytes: u32,
    /// Messages of one peer that may wait here for their match, 1 to 2^30.
    pub unexpected_messages: u32,
    /// Memory for unexpected messages of all peers together, in bytes: their payload, and
    /// [`MESSAGE_COST_BYTES`](crate::MESSAGE_COST_BYTES) for each message beyond the first
    /// [`ORDERS_LEAST`](crate::ORDERS_LEAST) of a peer. Peers get credit while memory is left, and otherwise announce
    /// their messages.
    pub unexpected_bytes: u64,
    /// Receive buffering below the engine (the socket's granted buffer), in bytes.
    pub recv_buffer_bytes: u32,
    /// Most peers known at a time, at most 2^24.
    pub peers_max: u32,
    /// Most sends outstanding at a time; a further post returns [`crate::PostError::Full`].
    pub sends_max: u32,
    /// First PSN, send order and message number; random from the seed when `None`.
    pub first_psn: Option<u32>,
    /// Protect the payload with CRC32C too.
    pub payload_checksum: bool,
    /// Round trip without queues, for controllers, where it is known; 0 to measure it.
    pub base_rtt_ns: Nanos,
    /// Speed of the local link in bytes per second, for controllers; 0 if unknown.
    pub link_bytes_per_s: u64,
    /// Switches cut payloads off instead of dropping packets. Only the simulator's do.
    pub trimming: bool,
    /// Under the coalescing policy, acknowledge a marked packet at once, and nothing only because time has passed
    /// (protocol.md §6.1). Only the simulator's hosts do, as those of uet-htsim.
    pub prompt_acks: bool,
    /// Offer the TCP information path for control packets.
    pub info_path: bool,
    /// CRC32C (Castagnoli) of bytes, continuing from a seed.
    pub crc32c: fn(u32, &[u8]) -> u32,
    /// Keys of jobs: with any, every packet is proven, and processes without one of them are no peers.
    pub keys: KeySet,
}

/// Settings towards peers on this host ([`crate::Host::is_near`]), in place of those of the same names: no network lies
/// between.
pub struct Near {
    /// See [`Config::datagram_bytes`].
    pub datagram_bytes: u16,
    /// See [`Config::paths`]; at most as many.
    pub paths: u16,
    /// See [`Config::link_bytes_per_s`].
    pub link_bytes_per_s: u64,
    /// ECN codepoint of data, whatever the scheme says: no switch reads it, so it is the one that costs the driver
    /// least.
    pub ecn: Ecn,
    /// Congestion control.
    pub scheme: Box<dyn Scheme>,
}

impl Near {
    /// Checks ranges.
    ///
    /// # Errors
    /// Names the first value that is out of range.
    pub fn check(&self) -> Result<(), ConfigError> {
        check_datagram(self.datagram_bytes)?;
        check_paths(self.paths)
    }
}

fn check_datagram(datagram_bytes: u16) -> Result<(), ConfigError> {
    let fits = (DATAGRAM_MIN_BYTES..=65507).contains(&datagram_bytes);
    if fits { Ok(()) } else { Err(ConfigError::Datagram(datagram_bytes)) }
}

fn check_paths(paths: u16) -> Result<(), ConfigError> {
    let fits = (1..=PATHS_MAX).contains(&paths);
    if fits { Ok(()) } else { Err(ConfigError::Paths(paths)) }
}

/// Error in a [`Config`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ConfigError {
    /// See the text.
    #[error("datagram_bytes must lie between 1232 and 65507, not {0}")]
    Datagram(u16),
    /// See the text.
    #[error("paths must lie between 1 and 256, not {0}")]
    Paths(u16),
    /// See the text.
    #[error("peer_timeout_ns must lie between 10 ms and 24 h, not {0} ns")]
    PeerTimeout(u64),
    /// See the text.
    #[error("{0} must lie between 1 us and 1 min, not {1} ns")]
    Time(&'static str, u64),
    /// See the text.
    #[error("{0} must be at most {1}, not {2}")]
    Large(&'static str, u32, u32),
    /// See the text.
    #[error("{0} must be at least 1")]
    Zero(&'static str),
}

impl Config {
    /// Defaults for an endpoint called `name`.
    #[must_use]
    pub fn new(name: SocketAddr, epoch: u64, crc32c: fn(u32, &[u8]) -> u32) -> Config {
        Config {
            name,
            epoch,
            datagram_bytes: 1472,
            burst_bytes: 64 << 10,
            paths: 4,
            peer_timeout_ns: 5 * SECOND,
            growth_ns: 600 * SECOND,
            scan_min_ns: 200 * MICROSECOND,
            rto_min_ns: 10 * MILLISECOND,
            ack_delay_ns: 10 * MICROSECOND,
            eager_bytes: 16 << 10,
            eager_credit_bytes: 1 << 20,
            unexpected_messages: 1 << 16,
            unexpected_bytes: 64 << 20,
            recv_buffer_bytes: 1 << 20,
            peers_max: 1 << 16,
            sends_max: 1 << 16,
            first_psn: None,
            payload_checksum: false,
            base_rtt_ns: 0,
            link_bytes_per_s: 0,
            trimming: false,
            prompt_acks: false,
            info_path: false,
            crc32c,
            keys: KeySet::default(),
        }
    }

    /// Checks ranges.
    ///
    /// # Errors
    /// Names the first setting that is out of range.
    pub fn check(&self) -> Result<(), ConfigError> {
        check_datagram(self.datagram_bytes)?;
        check_paths(self.paths)?;
        if !(10 * MILLISECOND..=24 * 3600 * SECOND).contains(&self.peer_timeout_ns) {
            return Err(ConfigError::PeerTimeout(self.peer_timeout_ns));
        }
        for (value, name) in [(self.scan_min_ns, "scan_min_ns"), (self.rto_min_ns, "rto_min_ns")] {
            if !(MICROSECOND..=60 * SECOND).contains(&value) {
                return Err(ConfigError::Time(name, value));
            }
        }
        // A session id has 24 bits of table index; credits are compared by the sign of a
        // difference.
        let limited = [
            (self.peers_max, PEERS_MAX, "peers_max"),
            (self.eager_credit_bytes, CREDIT_MAX, "eager_credit_bytes"),
            (self.unexpected_messages, CREDIT_MAX, "unexpected_messages"),
        ];
        if let Some((value, most, name)) = limited.iter().find(|(value, most, _)| value > most) {
            return Err(ConfigError::Large(name, *most, *value));
        }
        let nonzero = [
            (self.burst_bytes, "burst_bytes"),
            (self.unexpected_messages, "unexpected_messages"),
            (self.recv_buffer_bytes, "recv_buffer_bytes"),
            (self.peers_max, "peers_max"),
            (self.sends_max, "sends_max"),
        ];
        match nonzero.iter().find(|(value, _)| *value == 0) {
            Some((_, name)) => Err(ConfigError::Zero(name)),
            None => Ok(()),
        }
    }
}
