//! Receiving payload straight into its place.
//!
//! Who knows what will arrive can have the kernel write it where it belongs: a plan names the
//! places. A guess that was wrong costs a copy, nothing else: what landed there is taken back.

use std::ptr::NonNull;

use super::SLOT_BYTES;

/// Most places of one plan: the datagrams of the longest GRO batch.
const PLACES_MAX: usize = 128;

/// Where the payload of one datagram goes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub at: NonNull<u8>,
    pub len_bytes: usize,
}

/// Where the payloads of the next arrival go (one datagram or a GRO batch), if it is the expected
/// one: a place for each datagram. See [`super::RxSocket::recv_planned`].
#[derive(Debug)]
pub struct Plan {
    head_bytes: usize,
    /// At most [`PLACES_MAX`].
    places: Vec<Place>,
    /// Length of the arrival.
    bytes: usize,
}

// SAFETY: a plan is addresses, which it never looks behind; who receives by it vouches for them.
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

    /// Adds the place of the next datagram; false if there is no room for it in an arrival, which
    /// is 64 KiB at most.
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
    /// They can be written to, and nobody reads or writes them meanwhile but who may spoil them.
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

    /// Where in the arrival each datagram starts, where its payload goes, and how long that is.
    pub fn places(&self) -> impl Iterator<Item = (usize, NonNull<u8>, usize)> {
        self.starts().map(|(start, place)| (start, place.at, place.len_bytes))
    }

    /// Each place, and where in the arrival its datagram starts, in bytes.
    pub(super) fn starts(&self) -> impl Iterator<Item = (usize, &Place)> {
        let mut next = 0;
        self.places.iter().map(move |place| {
            let start = next;
            next += self.head_bytes + place.len_bytes;
            (start, place)
        })
    }
}
