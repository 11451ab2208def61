//! Tests of the address handles, with handles and a network of their own.

use super::gid::Gid;
use super::handles::{Found, Handles, Room};
use super::maker::{Maker, Way};
use std::collections::HashSet;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

/// Longest wait for anything.
const LIMIT: Duration = Duration::from_secs(20);
const SECOND: u64 = 1_000_000_000;

/// The hosts, as the maker sees them.
#[derive(Default)]
struct Network {
    /// A handle to these waits until they are in no such state any more.
    slow: Mutex<HashSet<u32>>,
    changed: Condvar,
    /// A handle to these fails so.
    failing: Mutex<Vec<(u32, i32)>>,
    /// Handles made, there now, and the most that were there at a time.
    made: AtomicU64,
    there: AtomicU64,
    most: AtomicU64,
}

/// A handle, which knows the number of its making.
struct Handle(Arc<Network>, u64);

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.there.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Network {
    fn make(self: &Arc<Network>, way: Way) -> io::Result<Handle> {
        let host = host_of(way);
        let slow = self.slow.lock().expect("no panic");
        let waits = |slow: &mut HashSet<u32>| slow.contains(&host);
        let (slow, waited) = self.changed.wait_timeout_while(slow, LIMIT, waits).expect("no panic");
        drop(slow);
        if waited.timed_out() {
            return Err(io::Error::from_raw_os_error(libc::ETIMEDOUT));
        }
        let failing = self.failing.lock().expect("no panic");
        if let Some((_, errno)) = failing.iter().find(|(of, _)| *of == host) {
            return Err(io::Error::from_raw_os_error(*errno));
        }
        let there = self.there.fetch_add(1, Ordering::Relaxed) + 1;
        self.most.fetch_max(there, Ordering::Relaxed);
        Ok(Handle(Arc::clone(self), self.made.fetch_add(1, Ordering::Relaxed)))
    }

    fn made(&self) -> u64 {
        self.made.load(Ordering::Relaxed)
    }

    fn slow(&self, host: u32, is_slow: bool) {
        let mut slow = self.slow.lock().expect("no panic");
        if is_slow {
            slow.insert(host);
        } else {
            slow.remove(&host);
        }
        self.changed.notify_all();
    }
}

fn host_of(way: Way) -> u32 {
    u32::from_be_bytes([way.gid.0[12], way.gid.0[13], way.gid.0[14], way.gid.0[15]])
}

fn way(host: u32, path: u32, traffic_class: u8) -> Way {
    let mut gid = [0; 16];
    gid[12..].copy_from_slice(&host.to_be_bytes());
    Way { gid: Gid(gid), lid: 0, flow_label: path, traffic_class }
}

struct Table {
    network: Arc<Network>,
    handles: Handles<Handle>,
    now: u64,
}

/// What came of a search: the number of the handle's making.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Got {
    Handle(u64),
    Wait,
    Unreachable,
}

impl Table {
    fn new(room: Room) -> Table {
        let network = Arc::<Network>::default();
        let of = Arc::clone(&network);
        Table {
            network,
            handles: Handles::new(room, Maker::new(move |way| of.make(way))),
            now: SECOND,
        }
    }

    /// As a sender does, whose requests have completed.
    fn find(&mut self, of: Way) -> Got {
        let useless = self.handles.collect(self.now);
        self.handles.maker().destroy(useless.into_iter());
        let first = Way { flow_label: 0, ..of };
        match self.handles.find(of, first, 0, self.now) {
            Found::Handle(handle) => Got::Handle(handle.1),
            Found::Wait { .. } => Got::Wait,
            Found::Unreachable => Got::Unreachable,
        }
    }

    /// Looks for it until `wanted` is found.
    fn until(&mut self, of: Way, wanted: impl Fn(Got) -> bool) -> Got {
        let begun = Instant::now();
        loop {
            let got = self.find(of);
            if wanted(got) {
                return got;
            }
            assert!(begun.elapsed() < LIMIT, "{got:?} remains");
            self.handles.maker().wait(Duration::from_millis(5));
        }
    }

    /// The way's own handle: the one that `made` counts last.
    fn get(&mut self, of: Way) -> u64 {
        let before = self.network.made();
        match self.until(of, |got| matches!(got, Got::Handle(made) if made >= before)) {
            Got::Handle(made) => made,
            _ => unreachable!("it is a handle"),
        }
    }
}

#[test]
fn a_host_that_does_not_answer_delays_no_other() {
    let mut table = Table::new(Room::new(0));
    let (near, dying, dead) = (way(1, 0, 0), way(2, 0, 0), way(3, 0, 0));
    let known = [table.get(near), table.get(dying)].map(Got::Handle);
    table.network.slow(2, true);
    table.network.slow(3, true);
    // A host without a handle does not answer.
    assert_eq!(table.find(dead), Got::Wait);
    assert_eq!([table.find(near), table.find(dying)], known);
    table.network.slow(3, false);
    table.until(dead, |got| matches!(got, Got::Handle(_)));
    // Nor does one whose handle is old: it is used on, and another host gets its first.
    table.handles.age(table.now + 1);
    table.now += 2;
    assert_eq!(table.find(dying), known[1]);
    let new = table.get(way(4, 0, 0));
    assert_eq!([table.find(dying), table.find(way(4, 0, 0))], [known[1], Got::Handle(new)]);
    table.network.slow(2, false);
    table.until(dying, |got| got != known[1]);
}

#[test]
fn a_host_that_stops_answering_loses_its_handles_and_is_tried_again_later() {
    let mut table = Table::new(Room::new(0));
    table.get(way(1, 0, 0));
    table.get(way(1, 5, 0));
    let other = Got::Handle(table.get(way(2, 0, 0)));
    table.network.failing.lock().expect("no panic").push((1, libc::ETIMEDOUT));
    table.now += 30 * SECOND;
    table.until(way(1, 5, 0), |got| got == Got::Unreachable);
    assert_eq!(table.find(way(1, 0, 0)), Got::Unreachable);
    assert_eq!(table.find(way(2, 0, 0)), other, "it is old, and there");
    table.network.failing.lock().expect("no panic").clear();
    let made = table.network.made();
    table.now += SECOND - 1;
    assert_eq!(table.find(way(1, 5, 0)), Got::Unreachable);
    table.now += 1;
    assert!(table.get(way(1, 5, 0)) >= made);
}

#[test]
fn a_device_that_refuses_leaves_the_old_handles() {
    let mut table = Table::new(Room::new(0));
    let first = Got::Handle(table.get(way(1, 0, 0)));
    table.network.failing.lock().expect("no panic").push((1, libc::ENOMEM));
    table.now += 30 * SECOND;
    assert_eq!(table.find(way(1, 0, 0)), first);
    assert!(table.handles.maker().wait(LIMIT), "it was tried");
    assert_eq!(table.find(way(1, 0, 0)), first);
    // Nor is another path's asked for at once.
    assert_eq!(table.find(way(1, 7, 0)), first);
    assert!(!table.handles.maker().wait(Duration::from_millis(20)), "it is not asked for");
    // Without any it is as good as unreachable.
    table.network.failing.lock().expect("no panic").push((2, libc::ENOMEM));
    table.until(way(2, 0, 0), |got| got == Got::Unreachable);
}

#[test]
fn the_first_path_stands_in_and_each_path_gets_its_own() {
    let mut table = Table::new(Room::new(0));
    assert_eq!(table.find(way(1, 3, 0)), Got::Wait);
    let first = table.until(way(1, 3, 0), |got| got != Got::Wait);
    assert_eq!(first, Got::Handle(0));
    assert_eq!(table.until(way(1, 3, 0), |got| got != first), Got::Handle(1));
    assert_eq!(table.find(way(1, 0, 0)), first);
    // Another class has handles of its own.
    assert_eq!(table.find(way(1, 3, 2)), Got::Wait);
}

#[test]
fn of_many_the_one_goes_that_was_not_used() {
    let kept = 1000;
    let mut table = Table::new(Room { kept, spare: 10 });
    for host in 0..kept as u32 {
        table.get(way(host, 0, 0));
    }
    // All were used: the hand passes them once, and takes the first.
    table.get(way(5000, 0, 0));
    let unused = 617;
    let are_there = |table: &mut Table| {
        let mut others = (1..kept as u32).filter(|host| *host != unused);
        others.all(|host| matches!(table.find(way(host, 0, 0)), Got::Handle(_)))
    };
    assert!(are_there(&mut table));
    let made = table.network.made();
    table.get(way(5001, 0, 0));
    assert!(are_there(&mut table));
    assert_eq!(table.network.made(), made + 1, "one was made, in place of one");
    assert_eq!(table.find(way(unused, 0, 0)), Got::Wait);
}

#[test]
fn a_large_cluster_has_all_its_handles_at_once() {
    // Miri takes a thousand times as long.
    const HOSTS: u32 = if cfg!(miri) { 16 } else { 1024 };
    let mut table = Table::new(Room::new(0));
    let ways = |hosts: u32| {
        (0..hosts)
            .flat_map(|host| (0..8).flat_map(move |path| [way(host, path, 0), way(host, path, 2)]))
    };
    for of in ways(HOSTS) {
        table.get(of);
    }
    let made = table.network.made();
    assert_eq!(made, u64::from(HOSTS) * 8 * 2, "none twice");
    for of in ways(HOSTS) {
        assert!(matches!(table.find(of), Got::Handle(_)));
    }
    assert!(!table.handles.maker().wait(Duration::from_millis(20)));
    assert_eq!(table.network.made(), made, "none again");
}

#[test]
fn handles_are_never_more_than_the_device_has() {
    for (device_max, room) in [
        (0, Room { kept: 1 << 16, spare: 1 << 10 }),
        (u32::MAX, Room { kept: 1 << 16, spare: 1 << 10 }),
        (32_767, Room { kept: 31_743, spare: 1 << 10 }),
        (100, Room { kept: 75, spare: 25 }),
        (1, Room { kept: 1, spare: 1 }),
    ] {
        assert_eq!(Room::new(device_max), room);
    }
    let mut table = Table::new(Room::new(100));
    for round in 0..3 {
        for host in 0..200 {
            table.find(way(host, round, 0));
        }
        table.get(way(1000 + round, 0, 0));
    }
    for host in 0..200 {
        table.get(way(2000 + host, 0, 0));
    }
    assert!(table.network.made() > 100);
    let most = table.network.most.load(Ordering::Relaxed);
    assert!((75..=100).contains(&most), "{most} at a time");
}

#[test]
fn nothing_is_left_of_a_table_that_goes_while_a_host_does_not_answer() {
    let mut table = Table::new(Room::new(0));
    table.get(way(1, 0, 0));
    table.network.slow(2, true);
    assert_eq!(table.find(way(2, 0, 0)), Got::Wait);
    let network = Arc::clone(&table.network);
    drop(table);
    network.slow(2, false);
    let begun = Instant::now();
    while Arc::strong_count(&network) > 1 {
        assert!(begun.elapsed() < LIMIT, "its thread remains");
        std::thread::yield_now();
    }
    // The count is read without an order, so what the thread did before it left would not have to be seen.
    fence(Ordering::Acquire);
    assert_eq!(network.there.load(Ordering::Relaxed), 0);
}
