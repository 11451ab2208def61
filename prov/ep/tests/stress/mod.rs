//! Many threads at once on a few domains: messages of all sizes, peers' memory, atomics, cancels, and
//! endpoints, registrations and domains that close with operations outstanding, while other threads
//! sleep on the queues. It is short among the other tests; `cargo xtask test --full` runs it for longer
//! under the sanitizers, over lossy networks and over verbs.
//!
//! `ERD_STRESS_SECONDS` says how long, `ERD_STRESS_SEED` with which choices, and `ERD_TEST_ADDRESSES`
//! names two addresses in place of loopback's.

mod op;
mod site;
mod work;

use crate::ep::tests::node::Node;
use erd_ffi::fi::fi_addr_t;
use op::Op;
use site::{ENDPOINTS, Site, WORDS};
use std::env;
use std::ffi::{CStr, CString};
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};
use work::{ADDED, Lane, SWAPPED};

const SITES: usize = 3;
/// A round of work.
type Work = fn(&mut Lane);
/// Kinds of work, each with its name and how many threads each site has for it.
const WORKS: [(&str, usize, Work); 8] = [
    ("tagged", 2, Lane::tagged),
    ("untagged", 1, Lane::untagged),
    ("memory", 1, Lane::memory),
    ("atomics", 1, Lane::atomics),
    ("cancel", 1, Lane::cancel),
    ("closing", 1, Lane::closing),
    ("deregistering", 1, Lane::deregistering),
    ("domains", 1, Lane::domains),
];
/// Lanes of all sites.
const LANES: usize = SITES * 9;

/// What all threads share.
pub struct World {
    sites: Vec<Site>,
    addresses: [&'static CStr; 2],
    /// What each site calls the endpoints of each site.
    names: Vec<Vec<[fi_addr_t; ENDPOINTS]>>,
    /// What the words of each site should be at the end.
    sums: [[AtomicU64; WORDS]; SITES],
    /// Operations of closed endpoints, whose completions may yet be read.
    kept: Mutex<Vec<Arc<Op>>>,
}

/// A sequence of choices (splitmix64).
pub struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }
}

impl World {
    fn open() -> World {
        let addresses = addresses();
        let sites: Vec<Site> =
            (0..SITES).map(|site| Site::open(addresses[site % 2], LANES)).collect();
        let names_in = |knower: &Site| {
            let names =
                |site: &Site| std::array::from_fn(|ep| knower.knows(&Node::name_of(site.ep(ep).0)));
            sites.iter().map(names).collect()
        };
        let names = sites.iter().map(names_in).collect();
        let sums = Default::default();
        World { sites, addresses, names, sums, kept: Mutex::default() }
    }

    fn peer_of(&self, site: usize) -> usize {
        (site + 1) % SITES
    }

    fn address_of(&self, site: usize) -> &'static CStr {
        self.addresses[site % 2]
    }

    fn keep(&self, ops: impl IntoIterator<Item = Arc<Op>>) {
        self.kept.lock().expect("no panic").extend(ops);
    }
}

/// The two addresses, which stay for the rest of the process.
fn addresses() -> [&'static CStr; 2] {
    static GIVEN: OnceLock<Vec<CString>> = OnceLock::new();
    let given = GIVEN.get_or_init(|| {
        let text = env::var("ERD_TEST_ADDRESSES").unwrap_or_default();
        text.split_whitespace().map(|word| CString::new(word).expect("no NUL")).collect()
    });
    match &given[..] {
        [one, other] => [one, other],
        _ => [c"127.0.0.1"; 2],
    }
}

fn number<T: FromStr>(name: &str, default: T) -> T {
    env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Runs every lane until `end`, and at least once; returns the rounds of each kind of work, none if a lane failed.
fn run(world: &Arc<World>, seed: u64, end: Instant) -> Vec<(&'static str, Option<u64>)> {
    let (stop, lanes) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        for site in &world.sites {
            scope.spawn(|| site.read_until(&stop, true));
            scope.spawn(|| site.read_until(&stop, false));
            scope.spawn(|| assert!(site.count_until(&stop) > 0, "nothing was counted"));
        }
        let lane = |site: usize, work: Work| {
            let number = lanes.fetch_add(1, Ordering::Relaxed);
            let random = Random(seed << 32 ^ number);
            let (world, number) = (Arc::clone(world), number as usize);
            let mut lane = Lane { world, number, site, random, rounds: 0 };
            scope.spawn(move || {
                while lane.rounds == 0 || Instant::now() < end {
                    lane.rounds += 1;
                    work(&mut lane);
                }
                lane.rounds
            })
        };
        let mut running = Vec::new();
        for (name, threads, work) in WORKS {
            let sites = (0..SITES).flat_map(|site| std::iter::repeat_n(site, threads));
            running.push((name, sites.map(|site| lane(site, work)).collect::<Vec<_>>()));
        }
        let rounds = running
            .into_iter()
            .map(|(name, lanes)| (name, lanes.into_iter().map(|lane| lane.join().ok()).sum()));
        let rounds = rounds.collect();
        stop.store(true, Ordering::Relaxed);
        rounds
    })
}

#[test]
fn many_threads_do_everything_at_once() {
    let seconds = Duration::from_secs(number("ERD_STRESS_SECONDS", 2));
    let world = Arc::new(World::open());
    let rounds = run(&world, number("ERD_STRESS_SEED", 1), Instant::now() + seconds);
    let world = Arc::into_inner(world).expect("no lane is left");
    let World { sites, sums, kept, .. } = world;
    for (site, sums) in sites.into_iter().zip(&sums) {
        let words = site.close();
        for word in [ADDED, SWAPPED] {
            assert_eq!(words[word], sums[word].load(Ordering::Relaxed), "word {word}");
        }
    }
    drop(kept);
    let rounds: Vec<(&str, u64)> = rounds
        .into_iter()
        .map(|(name, rounds)| (name, rounds.unwrap_or_else(|| panic!("a thread of {name} failed"))))
        .collect();
    println!("rounds: {rounds:?}");
}
