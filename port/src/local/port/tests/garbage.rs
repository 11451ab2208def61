//! A peer that writes garbage into every word that it shares: of both rings, of its own bell, and of the reader's. It
//! spoils its own link and no other.

use super::*;
use crate::local::courier::Said;
use crate::local::link::{LINK_BYTES, RING_BYTES};
use crate::local::offer::{Answer, MESSAGE_BYTES, Offer};
use crate::local::ring::{CONTROL_BYTES, Memory};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// How many words are spoiled, if nobody asks for more by [`WRITES`].
const FEW_WRITES: u64 = 20_000;
const WRITES: &str = "ERD_GARBAGE_WRITES";
/// Steps between two messages each way of the one that shares nothing with the spoiler but its peer.
const STEPS_PER_MESSAGE: u64 = 50;
const PATIENCE: Duration = Duration::from_secs(20);
/// In every header (`docs/protocol.md` §12.3).
const PRESENT: u64 = 1 << 63;
const WRAP: u64 = PRESENT | 255 << 32;
const DATA_BYTES: usize = RING_BYTES - CONTROL_BYTES;

fn below(rng: &mut Pcg64Mcg, end: usize) -> usize {
    (rng.next_u64() % end as u64) as usize
}

/// The peer, from one link to the next.
struct Spoiler {
    rng: Pcg64Mcg,
    listener: Listener,
    sleep: Sleep,
    /// Words to be spoiled yet.
    left: u64,
}

/// What it shares with the reader.
struct Shared {
    link: Segment,
    own_bell: Segment,
    their_bell: Segment,
    _connection: Connection,
    /// One of so many writes is garbage, and the others are entries.
    calm: usize,
    /// Where its next header goes.
    next: usize,
    /// What it has written to the reader, in all.
    sent: u64,
    /// What the reader has written to it, in all.
    written: u64,
}

impl Spoiler {
    fn name() -> SocketAddr {
        SocketAddr::from(([127, 0, 5, 7], 82))
    }

    /// A link with the hub.
    fn meet(&mut self, hub: &mut LocalPort) -> (Shared, LinkId) {
        let (link, file) = Segment::create(LINK_BYTES).expect("a memfd");
        let (own_bell, bell_file) = Segment::create(BELL_BYTES).expect("a memfd");
        let to = hub.options.name;
        let connection = Connection::open(to, None, usize::MAX).expect("a socket").expect("a hub");
        let place = self.rng.next_u32() as u16;
        let (process, ring_bytes) = (ProcessId([9; 16]), RING_BYTES as u32);
        let offer = Offer { process, place, from: Spoiler::name(), to, ring_bytes };
        let fds = [file.as_fd(), bell_file.as_fd(), self.sleep.for_peers()];
        connection.send(&offer.encode(), &fds).expect("sent");
        let events = worked(hub);
        let [Event::Up(_, id)] = events[..] else { panic!("{events:?}") };
        let mut bytes = [0; MESSAGE_BYTES];
        let Said::Message(received) = connection.receive(&mut bytes) else { panic!("an answer") };
        assert!(Answer::decode(&bytes).is_some());
        let their_bell = Segment::open(&received.fds[0], BELL_BYTES).expect("a bell");
        let calm = [1, 4, 32][below(&mut self.rng, 3)];
        let shared = Shared {
            link,
            own_bell,
            their_bell,
            _connection: connection,
            calm,
            next: 0,
            sent: 0,
            written: 0,
        };
        (shared, id)
    }

    /// Writes what an honest peer would, or garbage.
    fn write(&mut self, shared: &mut Shared) {
        match below(&mut self.rng, shared.calm) {
            0 => self.spoil(shared),
            _ if below(&mut self.rng, 4) == 0 => {
                shared.link.part(RING_BYTES, RING_BYTES).store(0, shared.written);
            }
            _ => self.write_entry(shared),
        }
    }

    /// An entry where the reader looks for it, or one that is too long for the end of the ring.
    fn write_entry(&mut self, shared: &mut Shared) {
        let longest = [100, 4000, ENTRY_MAX_BYTES][below(&mut self.rng, 3)];
        let len = below(&mut self.rng, longest);
        let whole = 8 + len.next_multiple_of(8);
        let read = shared.link.part(0, RING_BYTES).load(0);
        if shared.sent.saturating_sub(read) > DATA_BYTES as u64 / 2 {
            return;
        }
        let ring = shared.link.part(CONTROL_BYTES, DATA_BYTES);
        let header = PRESENT | 1 << 32 | len as u64;
        if shared.next + whole + 8 > DATA_BYTES {
            if below(&mut self.rng, 2) == 0 {
                return ring.store(shared.next, header);
            }
            ring.store(0, 0);
            ring.store(shared.next, WRAP);
            (shared.next, shared.sent) = (0, shared.sent + 8);
        }
        ring.store(shared.next + whole, 0);
        ring.store(shared.next, header);
        (shared.next, shared.sent) = (shared.next + whole, shared.sent + whole as u64);
    }

    /// Any word gets any value. Those that mean most get most of it.
    fn spoil(&mut self, shared: &Shared) {
        let rng = &mut self.rng;
        let value = match below(rng, 8) {
            0 => rng.next_u64(),
            1 => WRAP,
            2 => PRESENT | (below(rng, 256) as u64) << 32 | below(rng, 64) as u64,
            3 => PRESENT | below(rng, 2 * RING_BYTES) as u64,
            4 => below(rng, 2 * RING_BYTES) as u64,
            5 => shared.written.wrapping_add(8 * below(rng, 8) as u64).wrapping_sub(32),
            6 => 0,
            _ => 1 << below(rng, 64),
        };
        let at = match below(rng, 6) {
            0 | 1 => 64 * below(rng, 4),
            2 | 3 => CONTROL_BYTES + 8 * below(rng, 64),
            4 => CONTROL_BYTES + shared.next,
            _ => 8 * below(rng, RING_BYTES / 8),
        };
        let of_bell = [0, 64, 8 * below(rng, BELL_BYTES / 8)][below(rng, 3)];
        match below(rng, 8) {
            0 => shared.own_bell.part(0, BELL_BYTES).store(of_bell, value),
            1 => shared.their_bell.part(0, BELL_BYTES).store(of_bell, value),
            2..=5 => shared.link.part(0, RING_BYTES).store(at, value),
            _ => shared.link.part(RING_BYTES, RING_BYTES).store(at, value),
        }
        self.left = self.left.saturating_sub(1);
    }

    /// What the hub does with an entry of the spoiler, which writes on meanwhile.
    fn fate(&mut self, shared: &mut Shared) -> Fate {
        self.write(shared);
        match below(&mut self.rng, 64) {
            0 => Fate::Later,
            1 => Fate::Waits,
            2 => Fate::Over,
            _ => Fate::Taken,
        }
    }
}

/// What has happened.
#[derive(Default, Debug)]
struct Counts {
    links: u64,
    entries: u64,
    closed: u64,
    broken: u64,
    steps: u64,
}

/// The hub, and the one that has an honest link with it.
struct Others {
    hub: LocalPort,
    honest: LocalPort,
    /// Both ends of their link.
    ends: (LinkId, LinkId),
    /// The hub's link with the spoiler.
    spoiled: LinkId,
    counts: Counts,
}

impl Others {
    /// A step of the hub.
    fn step(&mut self, spoiler: &mut Spoiler, shared: &mut Shared) {
        let (hub, id) = (&mut self.hub, self.spoiled);
        match below(&mut spoiler.rng, 4) {
            0 => self.put(spoiler, shared),
            1 => {
                let _ = (hub.rests(monotonic_ns()), hub.arm(), hub.next_ns(), hub.has_entries(id));
            }
            _ => {
                self.poll(spoiler, shared);
            }
        }
        self.counts.steps += 1;
        if self.counts.steps.is_multiple_of(STEPS_PER_MESSAGE) {
            self.exchange(spoiler, shared);
        }
    }

    /// The hub writes to the spoiler, which writes on meanwhile.
    fn put(&mut self, spoiler: &mut Spoiler, shared: &mut Shared) {
        for _ in 0..8 {
            let longest = [64, ENTRY_MAX_BYTES][below(&mut spoiler.rng, 2)];
            let len = below(&mut spoiler.rng, longest);
            let put = self.hub.put(self.spoiled, 1, len, &mut |write| {
                spoiler.write(shared);
                write(&[1; ENTRY_MAX_BYTES][..len]);
            });
            match put {
                Some(Ok(written)) => shared.written = written,
                Some(Err(Refused::Full)) => self.hub.starve(self.spoiled),
                _ => {}
            }
            self.hub.read_by_peer(self.spoiled);
        }
    }

    /// Reads what has come: the number in the honest one's message.
    fn poll(&mut self, spoiler: &mut Spoiler, shared: &mut Shared) -> Option<u64> {
        let mut number = None;
        self.hub.poll(monotonic_ns(), &mut |link, _, bytes| {
            if link == self.spoiled {
                assert!(bytes.len() <= ENTRY_MAX_BYTES);
                self.counts.entries += 1;
                return spoiler.fate(shared);
            }
            assert_eq!((link, number), (self.ends.1, None));
            number = Some(u64::from_ne_bytes(bytes.try_into().expect("a number")));
            Fate::Taken
        });
        number
    }

    /// A message each way between the hub and the honest one.
    fn exchange(&mut self, spoiler: &mut Spoiler, shared: &mut Shared) {
        let (number, end) = (self.counts.steps, Instant::now() + PATIENCE);
        put(&mut self.honest, self.ends.0, 7, &number.to_ne_bytes()).expect("room");
        let come = loop {
            assert!(Instant::now() < end, "nobody hears the honest one: {:?}", self.counts);
            if let Some(come) = self.poll(spoiler, shared) {
                break come;
            }
        };
        assert_eq!(come, number);
        put(&mut self.hub, self.ends.1, 7, &number.to_ne_bytes()).expect("room");
        assert_eq!(polled(&mut self.honest), [(7, number.to_ne_bytes().to_vec())]);
    }

    /// True once the link with the spoiler has ended.
    fn has_ended(&mut self) -> bool {
        let events = worked(&mut self.hub);
        for event in &events {
            match event {
                Event::Down(name, id, End::Broken, _)
                    if (*name, *id) == (Spoiler::name(), self.spoiled) =>
                {
                    self.counts.broken += 1;
                }
                Event::Down(name, id, End::Closed, _)
                    if (*name, *id) == (Spoiler::name(), self.spoiled) =>
                {
                    self.counts.closed += 1;
                }
                other => panic!("{other:?}"),
            }
        }
        !events.is_empty()
    }
}

#[test]
#[cfg_attr(miri, ignore = "it makes system calls that Miri does not know")]
fn garbage_in_every_word_that_is_shared_spoils_one_link() {
    let left = std::env::var(WRITES).map_or(FEW_WRITES, |text| text.parse().expect("a number"));
    let (mut hub, mut honest) = (port(80, 1), port(81, 2));
    let ends = join(&mut honest, &mut hub);
    let mut spoiler = Spoiler {
        rng: Pcg64Mcg::seed_from_u64(1),
        listener: Listener::open(Spoiler::name(), None).expect("a listener"),
        sleep: Sleep::new().expect("a pipe"),
        left,
    };
    let mut others = Others { hub, honest, ends, spoiled: ends.0, counts: Counts::default() };
    while spoiler.left > 0 {
        let (mut shared, id) = spoiler.meet(&mut others.hub);
        others.spoiled = id;
        others.counts.links += 1;
        while spoiler.left > 0 && !others.has_ended() {
            for _ in 0..=below(&mut spoiler.rng, 24) {
                spoiler.write(&mut shared);
            }
            others.step(&mut spoiler, &mut shared);
        }
        // The hub has looked who is at its place.
        while spoiler.listener.accept(usize::MAX).expect("a socket").is_some() {}
    }
    println!("{left} words spoiled: {:?}", others.counts);
    let Counts { links, entries, closed, broken, .. } = others.counts;
    assert!(links > 100 && entries > 1000 && closed > 10 && broken > 10);
}
