//! Arrivals by shared memory.

use super::carriers::Parts;
use super::memory::Memory;
use super::outside::Outside;
use erd_port::local::{End, Event, Fate, Lanes};
use erd_rd::{EntryFate, Lane};

impl<O: Outside, M: Memory> Parts<'_, O, M> {
    /// True if peers on this host may be reached by shared memory.
    pub(super) fn has_local(&mut self) -> bool {
        self.host.local().is_some_and(|port| port.is_some())
    }

    /// Takes a bounded number of entries from peers on this host, and goes on with links to them. Returns the number of
    /// entries.
    pub(super) fn receive_local(&mut self, now: u64) -> usize {
        let Some(mut port) = self.host.local().and_then(Option::take) else { return 0 };
        let (engine, host) = (&mut *self.engine, &mut *self.host);
        let count = port.poll(now, &mut |link, kind, bytes| match engine.handle_entry(
            now,
            Lane(link.number()),
            (kind, bytes),
            host,
        ) {
            EntryFate::Taken => Fate::Taken,
            EntryFate::Later => Fate::Later,
            EntryFate::Waits => Fate::Waits,
            EntryFate::Over => Fate::Over,
            EntryFate::Wrong => Fate::Wrong,
        });
        self.work_local(now, &mut *port);
        if let Some(place) = self.host.local() {
            *place = Some(port);
        }
        count
    }

    fn work_local(&mut self, now: u64, port: &mut dyn Lanes) {
        let (engine, host) = (&mut *self.engine, &mut *self.host);
        port.work(now, &mut |event| match event {
            Event::Up(name, _) => {
                tracing::debug!(%name, "shared memory with a local peer");
                engine.handle_reached(name);
            }
            Event::Refused(name) | Event::Room(name) => engine.handle_reached(name),
            Event::Down(name, link, end, read) => {
                if end == End::Broken {
                    tracing::warn!(%name, "a local peer wrote what it must not: its session ends");
                }
                let closed = end == End::Closed;
                engine.handle_lane_down(now, Lane(link.number()), closed, read, host);
            }
        });
    }
}
