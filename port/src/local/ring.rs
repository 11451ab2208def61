//! A ring: one process writes entries, one other reads them, in memory that both map (`docs/protocol.md` §12.3).
//!
//! This part knows neither mappings nor processes: both sides work on a [`Memory`], and tests run them over one that
//! tries every interleaving. Neither side believes the other. A reader checks each header before it uses it, a writer
//! checks how far the reader says to be, and no value there makes either touch memory outside the ring, or loop.
//!
//! **Layout.** [`CONTROL_BYTES`], then the data. An entry is a header of one word, then its bytes, padded to words. An
//! entry is there once its header is not 0: the writer stores 0 in the place of the header after it, then the bytes,
//! then the header. So a writer that dies in between leaves a ring that is whole.
//!
//! **Extent.** The writer begins with few bytes of the ring. When they are full it goes on behind them, as far as it
//! gets memory, up to the capacity. A header of the kind `WRAP` says that the next entry is at the beginning, so the
//! reader need not know the extent.
//!
//! Each word has one writer, so no word is ever read, changed and written back.

/// Bytes before the data: a cache line for each word that one side writes and the other reads.
pub const CONTROL_BYTES: usize = 256;
/// The bytes that the reader has read, in all. Its word.
const CONSUMED: usize = 0;
/// Not 0 if the reader wants a bell for each entry, because it does not look at this ring at each step. Its word.
const UNWATCHED: usize = 64;
/// How often the writer found no room, and waits for a bell since. Its word.
const STARVED: usize = 128;
/// Not 0 once the writer writes no more. Its word.
const CLOSED: usize = 192;

/// Bytes of a word, and of a header.
const WORD: usize = 8;
/// The kind of a header behind which the ring goes on at its beginning.
const WRAP: u8 = 255;
/// Set in every header.
const PRESENT: u64 = 1 << 63;

/// The memory of a ring, from its control words on. Offsets are in bytes; those of words are multiples of 8.
pub trait Memory {
    /// Reads a word. After it, this side sees everything that the word's writer wrote before.
    fn load(&self, at: usize) -> u64;

    /// Writes a word, after everything that this side wrote before.
    fn store(&self, at: usize, value: u64);

    /// Keeps the loads after it behind the stores before it.
    fn fence(&self);

    /// Writes bytes of an entry.
    fn write(&self, at: usize, bytes: &[u8]);

    /// Reads bytes of an entry. If the other side writes there at the same time, which it must not, they are anything.
    fn read(&self, at: usize, bytes: &mut [u8]);
}

/// Reason why a ring takes no entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// There is no room until the reader has read more.
    Full,
    /// It is longer than the ring takes.
    TooLong,
    /// The other side has written what it must not.
    Broken,
}

/// The other side has written what it must not: nothing in the ring means anything any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Broken;

/// Bytes of an entry with its header.
const fn whole_bytes(len: usize) -> usize {
    WORD + len.next_multiple_of(WORD)
}

/// The header of an entry.
fn header(kind: u8, len: usize) -> u64 {
    PRESENT | u64::from(kind) << 32 | len as u64
}

/// The room for an entry that is not there yet.
#[derive(Debug)]
#[must_use]
pub struct Slot {
    /// Where its bytes go, in [`Memory`].
    pub at: usize,
    /// How many there are.
    pub len: usize,
}

/// The side that writes.
#[derive(Debug)]
pub struct Writer {
    /// Data bytes of the ring.
    capacity: usize,
    /// Data bytes in use, from the first on.
    extent: usize,
    /// Place of the next header. The word there is 0 for the reader.
    next: usize,
    /// Bytes written before this lap.
    lap: u64,
    /// Bytes written before the lap before this one.
    lap_before: u64,
    /// What the reader had read when this side last looked.
    consumed: u64,
    /// The reader was too slow for the extent: the ring gets longer before it goes on at its beginning.
    crowded: bool,
    starved: u64,
}

impl Writer {
    /// For a new ring of `bytes`, all 0, the first `extent` of which are backed by memory.
    #[must_use]
    pub fn new(bytes: usize, extent: usize) -> Writer {
        let (capacity, extent) = (bytes - CONTROL_BYTES, extent - CONTROL_BYTES);
        Writer {
            capacity,
            extent,
            next: 0,
            lap: 0,
            lap_before: 0,
            consumed: 0,
            crowded: false,
            starved: 0,
        }
    }

    /// Bytes written, in all. The entries written so far are read once [`Writer::consumed`] says so much.
    #[must_use]
    pub fn written(&self) -> u64 {
        self.lap + self.next as u64
    }

    /// Bytes that the reader has read, in all.
    ///
    /// # Errors
    /// It says what cannot be.
    pub fn consumed(&mut self, memory: &impl Memory) -> Result<u64, Broken> {
        let told = memory.load(CONSUMED);
        if told < self.consumed || told > self.written() {
            return Err(Broken);
        }
        self.consumed = told;
        Ok(told)
    }

    /// Room for an entry of `len` bytes. `back` gets memory for the ring up to that many bytes, or says that there is
    /// none.
    ///
    /// # Errors
    /// See [`Refused`].
    pub fn reserve(
        &mut self,
        memory: &impl Memory,
        len: usize,
        back: impl FnOnce(usize) -> bool,
    ) -> Result<Slot, Refused> {
        let whole = whole_bytes(len);
        if !self.is_within(whole, self.capacity) {
            return Err(Refused::TooLong);
        }
        if !self.finds_room(memory, whole)? {
            self.extend(memory, whole, back)?;
        }
        Ok(Slot { at: CONTROL_BYTES + self.next + WORD, len })
    }

    /// Whether an entry that takes `whole` bytes finds room in an empty ring of this extent, wherever its last entry
    /// ended.
    fn is_within(&self, whole: usize, extent: usize) -> bool {
        2 * (whole + WORD) <= extent
    }

    /// Whether an entry has room in the memory that the ring has.
    fn finds_room(&mut self, memory: &impl Memory, whole: usize) -> Result<bool, Refused> {
        let fits = self.is_within(whole, self.extent);
        if fits && self.makes_room(memory, whole) {
            return Ok(true);
        }
        self.consumed(memory).map_err(|Broken| Refused::Broken)?;
        Ok(fits && self.makes_room(memory, whole))
    }

    /// Whether an entry has room at `next`. Goes on at the beginning for that, if need be.
    fn makes_room(&mut self, memory: &impl Memory, whole: usize) -> bool {
        // The header after it has a place, too.
        let end = self.next + whole + WORD;
        if self.consumed < self.lap {
            return end as u64 <= self.consumed - self.lap_before;
        }
        if end <= self.extent {
            return true;
        }
        let grows = self.crowded && self.extent < self.capacity;
        if grows || (whole + WORD) as u64 > self.consumed - self.lap {
            return false;
        }
        memory.store(CONTROL_BYTES, 0);
        memory.store(CONTROL_BYTES + self.next, header(WRAP, 0));
        (self.lap_before, self.lap) = (self.lap, self.written() + WORD as u64);
        self.next = 0;
        true
    }

    /// Gets more memory behind the extent, and makes room there.
    fn extend(
        &mut self,
        memory: &impl Memory,
        whole: usize,
        back: impl FnOnce(usize) -> bool,
    ) -> Result<(), Refused> {
        if self.consumed < self.lap {
            // What is in front of the writer is in use, however long the ring is.
            self.crowded = true;
            return Err(Refused::Full);
        }
        self.crowded = false;
        let extent = (2 * self.extent).max(2 * (whole + WORD)).min(self.capacity);
        if extent > self.extent && back(CONTROL_BYTES + extent) {
            self.extent = extent;
        }
        let fits = self.is_within(whole, self.extent);
        match fits && self.makes_room(memory, whole) {
            true => Ok(()),
            false if fits => Err(Refused::Full),
            false => Err(Refused::TooLong),
        }
    }

    /// The entry is there, whose bytes have been written.
    ///
    /// # Panics
    /// If `kind` is 255, which stands for something else.
    pub fn publish(&mut self, memory: &impl Memory, slot: &Slot, kind: u8) {
        assert_ne!(kind, WRAP, "the ring's own kind");
        let (at, next) = (self.next, self.next + whole_bytes(slot.len));
        memory.store(CONTROL_BYTES + next, 0);
        memory.store(CONTROL_BYTES + at, header(kind, slot.len));
        self.next = next;
    }

    /// Whether the reader needs a bell to find what has been published.
    #[must_use]
    pub fn wants_bell(&self, memory: &impl Memory) -> bool {
        memory.fence();
        memory.load(UNWATCHED) != 0
    }

    /// Asks for a bell once there is room. The caller tries once more after this.
    pub fn starve(&mut self, memory: &impl Memory) {
        self.starved += 1;
        memory.store(STARVED, self.starved);
        memory.fence();
    }
}

/// An entry to read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Its kind.
    pub kind: u8,
    /// Its bytes.
    pub len: usize,
    /// Where they are in [`Memory`].
    pub at: usize,
}

/// The side that reads.
#[derive(Debug)]
pub struct Reader {
    capacity: usize,
    /// Place of the next header.
    next: usize,
    /// Bytes read, in all.
    consumed: u64,
    /// The same, as the writer knows it.
    told: u64,
    /// The writer's number, the last time that it was woken.
    starved: u64,
}

impl Reader {
    /// For a new ring of `bytes`.
    #[must_use]
    pub fn new(bytes: usize) -> Reader {
        Reader { capacity: bytes - CONTROL_BYTES, next: 0, consumed: 0, told: 0, starved: 0 }
    }

    /// The next entry, if one is there.
    ///
    /// # Errors
    /// What is there is no entry.
    pub fn next(&mut self, memory: &impl Memory) -> Result<Option<Entry>, Broken> {
        let mut header = memory.load(CONTROL_BYTES + self.next);
        if header == self::header(WRAP, 0) && self.next > 0 {
            self.consumed += WORD as u64;
            self.next = 0;
            header = memory.load(CONTROL_BYTES);
        }
        if header == 0 {
            return Ok(None);
        }
        let (kind, len) = ((header >> 32) as u8, header as u32 as usize);
        // Behind it the next header has a place.
        let left = self.capacity - self.next - WORD;
        if header != self::header(kind, len) || kind == WRAP || whole_bytes(len) > left {
            return Err(Broken);
        }
        Ok(Some(Entry { kind, len, at: CONTROL_BYTES + self.next + WORD }))
    }

    /// The entry that [`Reader::next`] found has been read.
    pub fn pass(&mut self, entry: &Entry) {
        let whole = whole_bytes(entry.len);
        self.next += whole;
        self.consumed += whole as u64;
    }

    /// Tells the writer how far this side has read. True if the writer waits for a bell.
    pub fn tell(&mut self, memory: &impl Memory) -> bool {
        if self.consumed == self.told {
            return false;
        }
        self.told = self.consumed;
        memory.store(CONSUMED, self.consumed);
        memory.fence();
        let starved = memory.load(STARVED);
        starved != std::mem::replace(&mut self.starved, starved)
    }

    /// Whether this side looks at the ring at each step. If it does not, it looks once more after this call, and then
    /// whenever there was a bell.
    pub fn watch(&self, memory: &impl Memory, watched: bool) {
        memory.store(UNWATCHED, u64::from(!watched));
        memory.fence();
    }
}

/// The writer writes no more.
pub fn close(memory: &impl Memory) {
    memory.store(CLOSED, 1);
}

/// True if the writer writes no more. Everything that it wrote can be read by then.
#[must_use]
pub fn is_closed(memory: &impl Memory) -> bool {
    memory.load(CLOSED) != 0
}

#[cfg(test)]
mod tests;
