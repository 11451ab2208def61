//! Plans for receiving payload straight into its place.
//!
//! A caller that expects certain arrivals can have the kernel write their payload in place: a plan names the places. A
//! wrong guess only costs a copy: the port takes the bytes back.

use std::ptr::NonNull;

use super::SLOT_BYTES;

/// Most places of one plan: the datagrams of the longest GRO batch.
const PLACES_MAX: usize = 128;

/// Place of one datagram's payload.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub at: NonNull<u8>,
    pub len_bytes: usize,
}

/// The places for the payloads of the next arrival (one datagram or a GRO batch), if it is the expected one: one for
/// each datagram. See [`super::RxSocket::recv_planned`].
#[derive(Debug)]
pub struct Plan {
    head_bytes: usize,
    /// At most [`PLACES_MAX`].
    places: Vec<Place>,
    /// Length of the arrival.
    bytes: usize,
}

// SAFETY: a plan is addresses, which it never dereferences; the caller that receives by it vouches for them.
unsafe impl Send for Plan {}

impl Plan {
    /// An empty plan for datagrams with `head_bytes` before their payload.
    #[must_use]
    pub fn new(head_bytes: usize) -> Self {
        Self { head_bytes, places: Vec::new(), bytes: 0 }
    }

    /// Forgets all places.
    pub fn clear(&mut self) {
        self.places.clear();
        self.bytes = 0;
    }

    /// Adds the place of the next datagram; false if it does not fit into an arrival, which has at most 64 KiB.
    pub fn push(&mut self, at: NonNull<u8>, len_bytes: usize) -> bool {
        let bytes = self.bytes + self.head_bytes + len_bytes;
        let room = bytes <= SLOT_BYTES && self.places.len() < PLACES_MAX;
        if room {
            self.bytes = bytes;
            self.places.push(Place { at, len_bytes });
        }
        room
    }

    /// Fills all places with zeros.
    ///
    /// # Safety
    /// They are writable, and meanwhile only code that may spoil them reads or writes them.
    pub unsafe fn wipe(&self) {
        for place in &self.places {
            // SAFETY: the caller's promise.
            unsafe { place.at.write_bytes(0, place.len_bytes) };
        }
    }

    /// True without any place.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Whether an arrival of so many bytes ends with one of the places.
    #[must_use]
    pub fn ends_at(&self, bytes: usize) -> bool {
        self.starts().any(|(start, place)| start + self.head_bytes + place.len_bytes == bytes)
    }

    /// Bytes before each payload.
    #[must_use]
    pub fn head_bytes(&self) -> usize {
        self.head_bytes
    }

    /// For each datagram: its start in the arrival, and the place and length of its payload.
    pub fn places(&self) -> impl Iterator<Item = (usize, NonNull<u8>, usize)> {
        self.starts().map(|(start, place)| (start, place.at, place.len_bytes))
    }

    /// Start of each datagram in the arrival, in bytes, and its place.
    pub(super) fn starts(&self) -> impl Iterator<Item = (usize, &Place)> {
        let mut next = 0;
        self.places.iter().map(move |place| {
            let start = next;
            next += self.head_bytes + place.len_bytes;
            (start, place)
        })
    }
}
