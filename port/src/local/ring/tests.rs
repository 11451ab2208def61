use super::*;
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};
use std::cell::RefCell;
use std::collections::VecDeque;

/// Memory that one thread has, and that counts what is written.
struct Own {
    words: RefCell<Vec<u64>>,
}

impl Own {
    fn new(bytes: usize) -> Own {
        Own { words: RefCell::new(vec![0; bytes / WORD]) }
    }

    fn bytes<R>(&self, f: impl FnOnce(&mut [u8]) -> R) -> R {
        let mut words = self.words.borrow_mut();
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let result = f(&mut bytes);
        for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(WORD)) {
            *word = u64::from_ne_bytes(bytes.try_into().expect("a word"));
        }
        result
    }
}

impl Memory for Own {
    fn load(&self, at: usize) -> u64 {
        assert_eq!(at % WORD, 0, "words are aligned");
        self.words.borrow()[at / WORD]
    }

    fn store(&self, at: usize, value: u64) {
        assert_eq!(at % WORD, 0, "words are aligned");
        self.words.borrow_mut()[at / WORD] = value;
    }

    fn fence(&self) {}

    fn write(&self, at: usize, bytes: &[u8]) {
        self.bytes(|all| all[at..at + bytes.len()].copy_from_slice(bytes));
    }

    fn read(&self, at: usize, bytes: &mut [u8]) {
        self.bytes(|all| bytes.copy_from_slice(&all[at..at + bytes.len()]));
    }
}

fn rng(seed: u64) -> Pcg64Mcg {
    Pcg64Mcg::seed_from_u64(seed)
}

fn below(rng: &mut Pcg64Mcg, end: usize) -> usize {
    (rng.next_u64() % end as u64) as usize
}

/// Both sides of a ring.
struct Both {
    memory: Own,
    writer: Writer,
    reader: Reader,
    /// Bytes that have memory, and that may get some.
    backed: usize,
    most: usize,
}

impl Both {
    fn new(bytes: usize, extent: usize, most: usize) -> Both {
        let (writer, reader) = (Writer::new(bytes, extent), Reader::new(bytes));
        Both { memory: Own::new(bytes), writer, reader, backed: extent, most }
    }

    fn write(&mut self, kind: u8, bytes: &[u8]) -> Result<(), Refused> {
        let (backed, most) = (&mut self.backed, self.most);
        let slot = self.writer.reserve(&self.memory, bytes.len(), |wanted| {
            let gets = wanted <= most;
            *backed = if gets { wanted } else { *backed };
            gets
        })?;
        assert!(slot.at + bytes.len() + WORD <= self.backed, "it lies in memory");
        // As from several pieces.
        let (one, other) = bytes.split_at(bytes.len() / 2);
        self.memory.write(slot.at, one);
        self.memory.write(slot.at + one.len(), other);
        self.writer.publish(&self.memory, &slot, kind);
        Ok(())
    }

    fn read(&mut self) -> Option<(u8, Vec<u8>)> {
        let entry = self.reader.next(&self.memory).expect("a sound ring")?;
        let mut bytes = vec![0; entry.len];
        self.memory.read(entry.at, &mut bytes);
        self.reader.pass(&entry);
        Some((entry.kind, bytes))
    }
}

#[test]
fn what_is_written_is_read_once_and_in_order() {
    for seed in 0..300 {
        let mut rng = rng(seed);
        let bytes = CONTROL_BYTES + WORD * (8 + below(&mut rng, 200));
        let extent =
            CONTROL_BYTES + WORD * (4 + below(&mut rng, (bytes - CONTROL_BYTES) / WORD - 3));
        let most = [extent, bytes][below(&mut rng, 2)];
        let mut ring = Both::new(bytes, extent, most);
        let (mut under_way, mut written) = (VecDeque::new(), 0);
        let longest = 1 + below(&mut rng, most - CONTROL_BYTES);
        for _ in 0..2000 {
            if below(&mut rng, 2) == 0 {
                let len = below(&mut rng, longest);
                let entry: Vec<u8> = (0..len).map(|_| rng.next_u32() as u8).collect();
                let kind = below(&mut rng, 255) as u8;
                match ring.write(kind, &entry) {
                    Ok(()) => {
                        under_way.push_back((kind, entry));
                        written += 1;
                    }
                    Err(Refused::Full) => {
                        assert!(!under_way.is_empty(), "seed {seed}: it is empty")
                    }
                    Err(Refused::TooLong) => {
                        assert!(
                            2 * (whole_bytes(len) + WORD) > most - CONTROL_BYTES,
                            "seed {seed}"
                        );
                    }
                    Err(Refused::Broken) => panic!("seed {seed}: nobody broke it"),
                }
            } else {
                for _ in 0..below(&mut rng, 4) {
                    assert_eq!(ring.read(), under_way.pop_front(), "seed {seed}");
                }
                ring.reader.tell(&ring.memory);
            }
        }
        assert!(written > 20, "seed {seed}: {written}");
    }
}

#[test]
fn a_full_ring_has_room_once_it_is_read() {
    let bytes = CONTROL_BYTES + 128;
    let mut ring = Both::new(bytes, bytes, bytes);
    while ring.write(1, &[7; 20]).is_ok() {}
    ring.writer.starve(&ring.memory);
    assert_eq!(ring.write(1, &[7; 20]), Err(Refused::Full));
    assert!(!ring.reader.tell(&ring.memory), "nothing was read");
    assert_eq!(ring.read(), Some((1, vec![7; 20])));
    assert_eq!(ring.write(1, &[7; 20]), Err(Refused::Full), "the writer does not know yet");
    assert!(ring.reader.tell(&ring.memory), "it waits for a bell");
    ring.read();
    assert!(!ring.reader.tell(&ring.memory), "once");
    while ring.read().is_some() {}
    ring.reader.tell(&ring.memory);
    assert_eq!(ring.writer.consumed(&ring.memory), Ok(ring.writer.written()));
    ring.write(2, &[8; 20]).expect("room");
}

#[test]
fn a_ring_stays_small_while_its_reader_keeps_up() {
    let (bytes, extent) = (CONTROL_BYTES + 8192, CONTROL_BYTES + 256);
    let mut ring = Both::new(bytes, extent, bytes);
    for _ in 0..1000 {
        ring.write(1, &[1; 40]).expect("room");
        ring.read().expect("an entry");
        ring.reader.tell(&ring.memory);
    }
    assert_eq!(ring.backed, extent);
    // A reader that is always late by as much as the ring holds.
    for _ in 0..1000 {
        while ring.write(1, &[1; 40]) == Ok(()) {}
        ring.read().expect("an entry");
        ring.reader.tell(&ring.memory);
    }
    assert_eq!(ring.backed, bytes);
    while ring.read().is_some() {}
    ring.reader.tell(&ring.memory);
    ring.write(1, &[1; 4000]).expect("room for a long one");
}

#[test]
fn a_ring_grows_at_once_as_far_as_an_entry_needs() {
    let (bytes, extent) = (CONTROL_BYTES + 8192, CONTROL_BYTES + 256);
    let mut ring = Both::new(bytes, extent, bytes);
    ring.write(1, &[1; 3000]).expect("room");
    assert!(ring.backed > extent && ring.backed < bytes);
    let mut short = Both::new(bytes, extent, extent);
    assert_eq!(short.write(1, &[1; 3000]), Err(Refused::TooLong), "there is no memory");
    assert_eq!(short.write(1, &[1; 5000]), Err(Refused::TooLong), "there never is");
}

#[test]
fn an_entry_is_not_there_before_it_is_published() {
    let bytes = CONTROL_BYTES + 256;
    let (memory, mut writer, mut reader) =
        (Own::new(bytes), Writer::new(bytes, bytes), Reader::new(bytes));
    for round in 0..50_u64 {
        let slot = writer.reserve(&memory, 16, |_| false).expect("room");
        // Bytes that look like a header.
        memory.write(slot.at, &[0xff; 16]);
        assert_eq!(reader.next(&memory), Ok(None), "round {round}: the writer died here");
        writer.publish(&memory, &slot, 3);
        let entry = reader.next(&memory).expect("sound").expect("an entry");
        assert_eq!((entry.kind, entry.len), (3, 16));
        reader.pass(&entry);
        reader.tell(&memory);
    }
}

/// A peer that writes anything anywhere, all the time, spoils its own entries and nothing else.
#[test]
fn garbage_leads_nobody_out_of_the_ring() {
    for seed in 0..2000 {
        let mut rng = rng(seed);
        let bytes = CONTROL_BYTES + WORD * (4 + below(&mut rng, 60));
        let mut ring = Both::new(bytes, bytes, bytes);
        for _ in 0..50 {
            let at = WORD * below(&mut rng, bytes / WORD);
            let word = match below(&mut rng, 4) {
                0 => rng.next_u64(),
                1 => header(WRAP, 0),
                2 => header(rng.next_u32() as u8, below(&mut rng, 2 * bytes)),
                _ => rng.next_u64() % (2 * bytes as u64),
            };
            ring.memory.store(at, word);
            if let Ok(slot) = ring.writer.reserve(&ring.memory, below(&mut rng, bytes), |_| true) {
                assert!(slot.at >= CONTROL_BYTES && slot.at + slot.len + WORD <= bytes);
                ring.writer.publish(&ring.memory, &slot, 1);
            }
            if let Ok(Some(entry)) = ring.reader.next(&ring.memory) {
                assert!(entry.at >= CONTROL_BYTES && entry.at + entry.len <= bytes);
                ring.reader.pass(&entry);
            }
            ring.reader.tell(&ring.memory);
        }
    }
}

#[test]
fn who_claims_to_have_read_more_or_less_than_was_said_is_found_out() {
    let bytes = CONTROL_BYTES + 256;
    let mut ring = Both::new(bytes, bytes, bytes);
    ring.write(1, &[0; 8]).expect("room");
    ring.write(1, &[0; 8]).expect("room");
    ring.read();
    ring.reader.tell(&ring.memory);
    assert_eq!(ring.writer.consumed(&ring.memory), Ok(16));
    for wrong in [8, 33, u64::MAX] {
        ring.memory.store(CONSUMED, wrong);
        assert_eq!(ring.writer.consumed(&ring.memory), Err(Broken), "{wrong}");
    }
    ring.memory.store(CONSUMED, 32);
    assert_eq!(ring.writer.consumed(&ring.memory), Ok(32));
}
