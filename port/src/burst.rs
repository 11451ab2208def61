//! Bursts: the datagrams that a caller gives a port to send.

use crate::udp::Dst;
use erd_types::Ecn;
use std::num::NonZeroU64;

/// Id of memory that is registered with a port, unique within the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PinId(NonZeroU64);

impl PinId {
    /// Id with this number; `None` for 0.
    #[must_use]
    pub fn from_number(number: u64) -> Option<PinId> {
        NonZeroU64::new(number).map(PinId)
    }

    /// Its number.
    #[must_use]
    pub fn number(self) -> u64 {
        self.0.get()
    }
}

/// Datagrams that travel together: same destination, path and mark, all but the last of the same size.
#[derive(Clone, Copy, Debug)]
pub struct Burst<'a> {
    /// The destination.
    pub dst: &'a Dst,
    /// The send socket, counted modulo their number.
    pub path: u16,
    /// The mark; ignored if the port was opened without ECN.
    pub ecn: Ecn,
    /// Header and payload parts of all datagrams, in order; at most 1024 of them (`UIO_MAXIOV`),
    /// and at most 128 for each datagram of a burst of several.
    pub iov: &'a [libc::iovec],
    /// Size of each datagram but the last; at least 1.
    pub segment_bytes: u32,
    /// Size of all together; at least 1, and the sum of the lengths in `iov`.
    pub total_bytes: u32,
    /// Number of datagrams of this burst that earlier calls have sent: 0 at first, then
    /// [`SendReport::segments`](crate::udp::SendReport::segments).
    pub done_segments: u32,
    /// The path may not carry it whole: this host and routers may fragment it. The port sends it from another socket
    /// with the same source port, datagram by datagram.
    pub may_fragment: bool,
    /// Registered memory that contains parts, for the verbs port.
    pub memory: Option<PinId>,
}

impl<'a> Burst<'a> {
    /// One datagram, of one part, from the first path's socket.
    #[must_use]
    pub fn single(dst: &'a Dst, ecn: Ecn, part: &'a libc::iovec) -> Burst<'a> {
        let bytes = part.iov_len as u32;
        Burst {
            dst,
            path: 0,
            ecn,
            iov: std::slice::from_ref(part),
            segment_bytes: bytes,
            total_bytes: bytes,
            done_segments: 0,
            may_fragment: false,
            memory: None,
        }
    }

    /// Number of datagrams in this burst.
    #[must_use]
    pub fn segments(&self) -> u32 {
        self.total_bytes.div_ceil(self.segment_bytes)
    }
}
