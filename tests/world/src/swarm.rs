//! Random runs: every option of a run is drawn from its seed, so that the options cover each
//! other's corners (swarm testing).

use super::app::{Class, DISCARDED_CLASS, HostLimits};
use super::ledger::{Outgoing, Rules};
use super::memory;
use super::net::{Faults, LONG_SPIKE_NS, Links};
use super::node::{Habits, NearSetup, NextKey, Setup};
use super::nonces::{Plains, WatchedKeys};
use super::one_host::{NEAR_SEEDS, plan_partings, share};
use super::record::Record;
use super::rng::Rng;
use super::scheme::TestScheme;
use super::sim::{Action, World};
use erd_rd::cc::{AckPolicy, LossDetection};
use erd_rd::keys::{KEYS_MAX, KeySet, Keys};
use erd_rd::units::{MICROSECOND, MILLISECOND, SECOND};
use erd_rd::{Config, DropReason, Ecn, KeyIndex, Nanos, Stats};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

/// Size probes without an answer after which a session may end (protocol.md §4.6).
const SIZE_PROBES: i32 = 32;

/// The roughness of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Weather {
    /// Nothing is lost: no repair may be needed.
    Still,
    /// Packets suffer, but never for long: every operation must succeed.
    Rough,
    /// Silence beyond the deadline happens: operations may fail, each once.
    Storm,
    /// Like a storm, and processes die and come back.
    Deadly,
}

/// The options of one run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The seed of all draws.
    pub seed: u64,
    /// See [`Weather`].
    pub weather: Weather,
    /// Sends and receives posted.
    pub operations: usize,
    /// Time over which they are posted.
    pub span_ns: Nanos,
    /// Largest message.
    pub len_max_bytes: u64,
    /// Payload posted in all, about.
    pub budget_bytes: u64,
    /// Chance that a receive is wide enough for anything.
    pub roomy: f64,
    /// Tag classes in use; few make matching contend.
    pub classes: u64,
    /// Chance of a directed receive.
    pub directed: f64,
    /// Chance of match-complete sends.
    pub match_complete: f64,
    /// Receives are posted this much before (or after) sends, at most.
    pub spread_ns: Nanos,
    /// Delays.
    pub links: Links,
    /// Random faults.
    pub faults: Faults,
    /// Deadline of every node.
    pub timeout_ns: Nanos,
    /// Set-up of each node.
    pub setups: Vec<Setup>,
    /// The job has a key.
    pub key: Option<KeyChoice>,
}

/// How the key of a job is used.
#[derive(Clone, Copy, Debug)]
pub struct KeyChoice {
    /// Payload is hidden.
    pub hides: bool,
    /// Packets of one phase, as a power of two.
    pub phase_bits: u32,
    /// Number of keys, which each process has in another order. Each pair uses one of them.
    pub count: usize,
    /// The first key gives its place to another while the run lasts.
    pub renews: bool,
}

impl KeyChoice {
    /// A fourth of the seeds have a key. Drawn apart, so that the rest of a seed is the same with and without it.
    fn draw(seed: u64) -> Option<KeyChoice> {
        let rng = &mut Rng::new(seed, 15);
        let (hides, phase_bits) = (rng.chance(0.5), rng.pick(&[10, 12, 22]));
        let drawn = rng.chance(0.25);
        let count = rng.pick(&[1, 1, 3]);
        drawn.then(|| KeyChoice { hides, phase_bits, count, renews: rng.chance(0.5) })
    }
}

/// Longest access to cells with a key: cells are read and written in one piece, so it must fit the smallest datagram.
const KEYED_CELLS_BYTES: u64 = 960;

/// Account of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Report {
    /// Sums over all engines.
    pub stats: Stats,
    /// Sends posted.
    pub sends: u64,
    /// Sends that ended in error.
    pub failed: u64,
    /// Events handled.
    pub events: u64,
    /// Virtual time.
    pub span_ns: Nanos,
    /// Datagrams sent.
    pub datagrams: u64,
    /// Processes killed.
    pub kills: u64,
    /// Datagrams that full sockets dropped.
    pub socket_drops: u64,
    /// See [`super::net::NetCounts::digest`].
    pub digest: u32,
}

fn weather(rng: &mut Rng) -> Weather {
    rng.pick(&[
        Weather::Still,
        Weather::Rough,
        Weather::Rough,
        Weather::Rough,
        Weather::Storm,
        Weather::Deadly,
        Weather::Deadly,
    ])
}

fn faults(rng: &mut Rng, weather: Weather, payload_checksum: bool, timeout_ns: Nanos) -> Faults {
    if weather == Weather::Still {
        return Faults::default();
    }
    let harsh = weather != Weather::Rough;
    let mut some = |p: f64, max: f64| {
        if rng.chance(p) { max * (rng.below(1000) as f64 / 1000.0).powi(2) } else { 0.0 }
    };
    let mut faults = Faults {
        loss: some(0.8, if harsh { 0.3 } else { 0.1 }),
        trim: some(0.3, 1.0),
        burst_loss: some(0.3, 0.05),
        duplicate: some(0.6, 0.2),
        corrupt: some(0.5, 0.05),
        corrupt_header_only: !payload_checksum,
        resize: some(0.4, 0.05),
        spike: some(0.4, 0.02),
        mark: some(0.3, 0.3),
        ..Faults::default()
    };
    faults.loss_run = rng.pick(&[0, 0, 3, 12]);
    if !harsh {
        faults.loss /= 1.0 + faults.loss_run as f64 / 2.0;
    }
    let slow = if harsh { LONG_SPIKE_NS } else { timeout_ns / 8 };
    faults.spike_ns = rng.log_range(50 * MICROSECOND, slow.max(MILLISECOND));
    faults.duplicate_delay_ns = rng.log_range(MICROSECOND, 2 * SECOND);
    faults
}

fn config(rng: &mut Rng) -> Config {
    let name = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
    let mut c = Config::new(name, 1 + (rng.bits() >> 2), crc32c::crc32c_append);
    c.datagram_bytes = rng.pick(&[1232, 1472, 1472, 4096, 8972, 65507]);
    c.burst_bytes = rng.pick(&[1, 16 << 10, 64 << 10, 64 << 10]).max(u32::from(c.datagram_bytes));
    c.paths = rng.pick(&[1, 2, 4, 4, 16, 256]);
    c.peer_timeout_ns = rng.pick(&[500 * MILLISECOND, SECOND, 2 * SECOND, 5 * SECOND]);
    c.scan_min_ns = rng.pick(&[50, 200, 200, 1000]) * MICROSECOND;
    c.rto_min_ns = rng.pick(&[MILLISECOND, 10 * MILLISECOND, 10 * MILLISECOND]);
    c.ack_delay_ns = rng.pick(&[0, 20 * MICROSECOND, 500 * MICROSECOND]);
    c.eager_bytes = rng.pick(&[0, 100, 4 << 10, 16 << 10, 64 << 10]);
    let eager = u64::from(c.eager_bytes);
    c.eager_credit_bytes = rng.log_range(eager.max(64), (4 * eager).max(1 << 20)) as u32;
    c.unexpected_messages = rng.pick(&[1, 2, 8, 64, 1 << 12, 1 << 16]);
    c.recv_buffer_bytes = rng.pick(&[208 << 10, 1 << 20, 4 << 20]);
    c.peers_max = 64;
    c.sends_max = rng.pick(&[1, 4, 64, 1 << 16, 1 << 16]);
    c.first_psn = rng.pick(&[None, Some(0), Some(u32::MAX), Some(u32::MAX - 300), Some(0xffff)]);
    c.payload_checksum = rng.chance(0.5);
    c.info_path = rng.chance(0.3);
    c.link_bytes_per_s = rng.pick(&[0, 0, 12_500_000, 12_500_000_000]);
    c
}

fn scheme(rng: &mut Rng, datagram_bytes: u16) -> TestScheme {
    let datagram = u64::from(datagram_bytes);
    TestScheme {
        window_bytes: rng.log_range(datagram, (1 << 20).max(2 * datagram)),
        policy: rng.pick(&[
            AckPolicy::NackOnly,
            AckPolicy::NackOnly,
            AckPolicy::PerPacket,
            AckPolicy::Coalesced { packets: 1 },
            AckPolicy::Coalesced { packets: 4 },
            AckPolicy::Coalesced { packets: 255 },
        ]),
        detection: rng.pick(&[
            LossDetection::Receiver,
            LossDetection::Receiver,
            LossDetection::OutOfOrder { least_packets: 3 },
            LossDetection::OutOfOrder { least_packets: 64 },
            LossDetection::PathOrder,
        ]),
        learns: rng.chance(0.2),
        pace: rng.pick(&[None, None, None, Some(100_000_000), Some(2_000_000_000)]),
        ecn: rng.pick(&[Ecn::NotEct, Ecn::Ect0, Ecn::Ect1]),
        adaptive: rng.chance(0.5),
        link_share_bdps: rng.pick(&[0.0, 0.1, 1.5]),
    }
}

fn setup(rng: &mut Rng, weather: Weather) -> Setup {
    let config = config(rng);
    let still = weather == Weather::Still;
    Setup {
        scheme: scheme(rng, config.datagram_bytes),
        limits: HostLimits {
            eager_credit_bytes: u64::from(config.eager_credit_bytes),
            unexpected_messages: u64::from(config.unexpected_messages),
            unexpected_bytes: config.unexpected_bytes,
            hold_refusal: if still { 0.0 } else { rng.pick(&[0.0, 0.0, 0.1]) },
            withdrawal: if still { 0.0 } else { 0.1 },
            datagram_limit_bytes: config.datagram_bytes.min(rng.pick(&[1232, 1472, 65507])),
            near: 0,
            near_limit_bytes: 0,
        },
        habits: Habits {
            batch: rng.pick(&[1, 8, 64]),
            gro: rng.pick(&[0.0, 0.5, 1.0]),
            bursts: rng.pick(&[1, 4, 16]),
            round_ns: rng.log_range(200, 20 * MICROSECOND),
            eager_post: rng.pick(&[0.0, 0.5, 1.0]),
            port_full: if still { 0.0 } else { rng.pick(&[0.0, 0.0, 0.02]) },
            singly: false,
            info_path: rng.pick(&[0.0, 0.5, 1.0]),
            awaits: rng.chance(0.5),
        },
        config,
        near: None,
        next_key: None,
        lanes: None,
    }
}

/// Every node alike, or each on its own; they agree on the deadline, and on payload checksums
/// as far as corruption needs them.
fn setups(rng: &mut Rng, weather: Weather) -> Vec<Setup> {
    let nodes = rng.range(3, 6);
    let (v6, alike) = (rng.chance(0.3), rng.chance(0.6));
    let common = setup(rng, weather);
    let mut setups = Vec::new();
    for node in 0..nodes {
        let mut own = if alike { common.clone() } else { setup(rng, weather) };
        let ip = if v6 {
            IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, node as u16 + 1))
        } else {
            IpAddr::V4(Ipv4Addr::new(10, 0, 0, node as u8 + 1))
        };
        own.config.name = SocketAddr::new(ip, 7000 + node as u16);
        own.config.peer_timeout_ns = common.config.peer_timeout_ns;
        own.config.payload_checksum |= common.config.payload_checksum;
        setups.push(own);
    }
    setups
}

/// Puts some of the nodes on one host, in half of all runs; most of these have other settings there.
fn settle(rng: &mut Rng, setups: &mut [Setup]) {
    if rng.chance(0.5) {
        return;
    }
    let host = rng.below(1 << setups.len());
    for (node, setup) in setups.iter_mut().enumerate().filter(|(node, _)| host >> node & 1 != 0) {
        let own = 1 << node;
        setup.limits.near = host & !if rng.chance(0.1) { own } else { 0 };
        setup.limits.near_limit_bytes = setup.limits.datagram_limit_bytes;
        if rng.chance(0.2) {
            continue;
        }
        let datagram_bytes = rng.pick(&[1232, 8972, 65507, 65507]);
        let paths = rng.pick(&[1, 1, 2]).min(setup.config.paths);
        let scheme = scheme(rng, datagram_bytes);
        setup.limits.near_limit_bytes = datagram_bytes.min(rng.pick(&[1232, 65507, 65507]));
        setup.near = Some(NearSetup { datagram_bytes, paths, scheme });
    }
}

impl Options {
    /// The same where some nodes may be on one host.
    pub fn with_neighbours(seed: u64) -> Options {
        match seed.is_multiple_of(NEAR_SEEDS) {
            true => Options::new(seed).near(),
            false => Options::scattered(seed),
        }
    }

    /// The same where each node is on one host or another.
    fn scattered(seed: u64) -> Options {
        let mut options = Options::new(seed);
        settle(&mut Rng::new(seed, 12), &mut options.setups);
        share(&mut Rng::new(seed, 15), &mut options.setups, options.weather);
        options
    }

    /// The same for a run that is recorded: every datagram leaves at once, in the order in which its engine makes it. A
    /// process has one key at most, which stays as it is.
    pub fn for_traces(seed: u64) -> Options {
        let mut options = Options::scattered(seed);
        for setup in &mut options.setups {
            (setup.habits.port_full, setup.habits.singly) = (0.0, true);
            setup.lanes = None;
        }
        if let Some(key) = &mut options.key {
            (key.count, key.renews) = (1, false);
        }
        options
    }

    /// The options that `seed` stands for.
    pub fn new(seed: u64) -> Options {
        let rng = &mut Rng::new(seed, 0);
        let weather = weather(rng);
        let mut setups = setups(rng, weather);
        let timeout_ns = setups[0].config.peer_timeout_ns;
        let key = KeyChoice::draw(seed);
        let protected = key.is_some() || setups.iter().all(|s| s.config.payload_checksum);
        // Whoever sees the packets of a job without a key can do what they like.
        let blind = key.is_none();
        let powers = if blind { [0.0, 0.0, 0.0, 0.1] } else { [0.0, 0.01, 0.1, 0.3] };
        let hostile = Rng::new(seed, 14).pick(&powers);
        let hostile = if weather == Weather::Still { 0.0 } else { hostile };
        let links = Links {
            delay_ns: rng.log_range(2 * MICROSECOND, 2 * MILLISECOND),
            path_step_ns: rng.pick(&[0, 0, MICROSECOND, 10 * MICROSECOND]),
            jitter_ns: rng.pick(&[0, MICROSECOND, 30 * MICROSECOND, 500 * MICROSECOND]),
            bytes_per_us: rng.log_range(100, 25_000),
        };
        // Drawn apart, so that the rest of a seed is the same with and without it.
        let overlap = Rng::new(seed, 11).pick(&[0.0, 0.0, 0.02, 0.5]);
        let overlap = if weather == Weather::Still { 0.0 } else { overlap };
        let budget = &mut Rng::new(seed, 12);
        let plenty = budget.chance(0.3);
        // Budgets of round numbers, or any.
        let any = budget.chance(0.5);
        for setup in &mut setups {
            let round = budget.pick(&[0, 20_000, 200_000, 64 << 20]);
            let odd = budget.log_range(256, 2 << 20);
            let scarce = if any { odd } else { round };
            let bytes = if plenty { 64 << 20 } else { scarce };
            setup.config.unexpected_bytes = bytes;
            setup.limits.unexpected_bytes = bytes;
        }
        Options {
            seed,
            weather,
            operations: rng.range(200, 320) as usize,
            span_ns: rng.log_range(MILLISECOND, SECOND),
            len_max_bytes: rng.pick(&[1 << 12, 1 << 16, 4 << 20, 4 << 20]),
            budget_bytes: rng.log_range(1 << 20, 12 << 20),
            roomy: rng.pick(&[0.5, 0.9, 1.0]),
            classes: rng.range(1, 4),
            directed: rng.pick(&[0.0, 0.3, 0.9]),
            match_complete: rng.pick(&[0.0, 0.1, 0.5]),
            spread_ns: rng.log_range(10 * MICROSECOND, 50 * MILLISECOND),
            faults: Faults {
                overlap,
                hostile,
                blind,
                ..faults(rng, weather, protected, timeout_ns)
            },
            links,
            timeout_ns,
            setups,
            key,
        }
    }

    /// The set-up of each node, with the keys of this run if it has any, but at most so many: the pair of the nodes a
    /// and b uses key a + b, which a has in place b. The keys tell `plains`, if there are some, what their packets were.
    pub(super) fn keyed_setups(&self, most: usize, plains: Option<&Plains>) -> Vec<Setup> {
        let mut setups = self.setups.clone();
        if let Some(KeyChoice { hides, phase_bits, count, renews }) = self.key {
            let count = count.min(most);
            let watched = |byte| WatchedKeys::new(byte, hides, phase_bits).telling(plains);
            let key = |byte| Arc::new(watched(byte)) as Arc<dyn Keys>;
            let keys: Vec<_> = (1..=count as u8).map(key).collect();
            let later: Vec<_> = [key(101)].into_iter().chain(keys[1..].iter().cloned()).collect();
            for (node, setup) in setups.iter_mut().enumerate() {
                let own = |keys: &[Arc<dyn Keys>]| {
                    KeySet::new((0..count).map(|place| Some(keys[(node + place) % count].clone())))
                };
                setup.config.keys = own(&keys);
                let (at, key) = (KeyIndex(((count - node % count) % count) as u8), &later[0]);
                let overlap_ns = self.overlap_ns();
                let next = NextKey { at, key: Arc::clone(key), overlap_ns, keys: own(&later) };
                setup.next_key = renews.then_some(next);
            }
        }
        setups
    }

    pub(super) fn renews(&self) -> bool {
        self.key.is_some_and(|key| key.renews)
    }

    /// Time in which the nodes get a new key, one after another: too little for a set-up that must wait to fail.
    fn renewal_ns(&self) -> Nanos {
        self.timeout_ns / 4
    }

    /// Time in which both keys are valid. All nodes have both for long enough to tell each other, whatever befalls them.
    fn overlap_ns(&self) -> Nanos {
        self.renewal_ns() + 6 * self.timeout_ns + 2 * SECOND
    }

    /// The nodes that get another key, each with the time from the start of the run.
    pub(super) fn renewals(&self) -> Vec<(Nanos, usize)> {
        let rng = &mut Rng::new(self.seed, 16);
        let first = self.spread_ns + rng.below(self.span_ns);
        let nodes = if self.renews() { self.setups.len() } else { 0 };
        (0..nodes).map(|node| (first + rng.below(self.renewal_ns()), node)).collect()
    }

    pub(super) fn nodes(&self) -> u64 {
        self.setups.len() as u64
    }

    /// The failures that a run may report.
    pub(crate) fn rules(&self) -> Rules {
        let harsh = matches!(self.weather, Weather::Storm | Weather::Deadly);
        Rules {
            timeouts: harsh,
            restarts: self.weather == Weather::Deadly,
            closes: harsh,
            blocked: harsh && self.faults.may_lose_all(SIZE_PROBES),
            // While keys change, peers say so too.
            lies: (self.faults.hostile > 0.0 && !self.faults.blind) || self.renews(),
            ..Rules::default()
        }
    }
}

/// Draws a message.
fn message(o: &Options, rng: &mut Rng, left_bytes: &mut u64) -> (u64, Option<u8>) {
    let eager_bytes = u64::from(o.setups[0].config.eager_bytes);
    let len_bytes = match rng.below(10) {
        0 | 1 => 0,
        2..=5 => rng.log_range(1, 256),
        6 | 7 => rng.log_range(1, eager_bytes.max(2) + 1),
        _ => rng.log_range(1, o.len_max_bytes),
    };
    let len_bytes = len_bytes.min(*left_bytes).min(o.len_max_bytes);
    *left_bytes -= len_bytes;
    let class = match rng.below(20) {
        0..=6 => None,
        7 => Some(DISCARDED_CLASS),
        _ => Some(rng.below(o.classes) as u8),
    };
    (len_bytes, class)
}

/// Schedules sends, receives and discards.
fn plan_operations(o: &Options, world: &mut World, rng: &mut Rng) {
    let mut left_bytes = o.budget_bytes;
    let start = world.now + o.spread_ns;
    for _ in 0..o.operations {
        let at = start + rng.below(o.span_ns);
        let from = rng.below(o.nodes()) as usize;
        let to = rng.below(o.nodes()) as usize;
        let (len_bytes, tag_class) = message(o, rng, &mut left_bytes);
        let data = rng.chance(0.3);
        let match_complete = rng.chance(o.match_complete);
        let out = Outgoing { to, len_bytes, tag_class, data, match_complete };
        world.at(at, Action::Send { from, out });
        if rng.chance(0.1) {
            world.at(at + rng.below(o.spread_ns), Action::Discard(to));
        }
        if tag_class == Some(DISCARDED_CLASS) || !rng.chance(0.85) {
            continue;
        }
        let class = match Class::of(tag_class.map(u64::from)) {
            Class::Tag(_) if rng.chance(0.3) => Class::AnyTag,
            class => class,
        };
        let room = if rng.chance(o.roomy) { len_bytes } else { rng.below(len_bytes + 1) };
        let source = rng.chance(o.directed).then_some(from);
        let at = at + rng.below(2 * o.spread_ns) - o.spread_ns;
        let capacity_bytes = room + rng.below(2) * rng.below(64);
        world.at(at, Action::Recv { node: to, source, class, capacity_bytes });
    }
}

/// Schedules requests to memory, in most runs. They are drawn apart, so that the messages of a seed
/// are the same with and without them.
fn plan_requests(o: &Options, world: &mut World) {
    let rng = &mut Rng::new(o.seed, 10);
    let mut left_bytes = o.budget_bytes / 2;
    let start = world.now + o.spread_ns;
    for _ in 0..rng.pick(&[0, 20, 200]) {
        let at = start + rng.below(o.span_ns);
        let (from, to) = (rng.below(o.nodes()) as usize, rng.below(o.nodes()) as usize);
        let mut plan = memory::draw(rng, to, o.len_max_bytes.min(left_bytes).max(8));
        if o.key.is_some() && matches!(plan.what, memory::What::Set | memory::What::Get) {
            plan.len_bytes = plan.len_bytes.min(KEYED_CELLS_BYTES);
        }
        left_bytes -= plan.len_bytes.min(left_bytes);
        // In bursts, too.
        for _ in 0..rng.pick(&[1, 1, 1, 8]) {
            let small = plan.len_bytes <= 1024;
            world.at(at, Action::Rma { from, plan });
            if !small {
                break;
            }
        }
    }
}

/// Schedules stalls, cuts and deaths. In rough weather none lasts near the deadline.
fn plan_disasters(o: &Options, world: &mut World, rng: &mut Rng) {
    if o.weather == Weather::Still {
        return;
    }
    let timeout_ns = o.timeout_ns;
    let longest = if o.weather == Weather::Rough { timeout_ns / 5 } else { 2 * timeout_ns };
    let start = world.now + o.spread_ns;
    let mut at = start;
    for _ in 0..rng.below(4) {
        at += rng.below(o.span_ns);
        let until = at + rng.log_range(MILLISECOND, longest);
        let action = if rng.chance(0.5) {
            Action::Stall(rng.below(o.nodes()) as usize, until)
        } else {
            Action::Cut(rng.bits(), until)
        };
        world.at(at, action);
        // Silences must not add up in rough weather.
        at = if o.weather == Weather::Rough { until + timeout_ns } else { at };
    }
    if o.weather != Weather::Rough && rng.chance(0.5) {
        let pair = (rng.below(o.nodes()) as usize, rng.below(o.nodes()) as usize);
        world.at(start + rng.below(o.span_ns), Action::Forget(pair.0, pair.1));
    }
    plan_partings(o, world, start);
    if o.weather == Weather::Deadly {
        for _ in 0..rng.range(1, 3) {
            let node = rng.below(o.nodes()) as usize;
            let at = start + rng.below(o.span_ns * 5 / 4);
            world.at(at, Action::Kill(node));
            if rng.chance(0.7) {
                world.at(at + rng.log_range(MICROSECOND, 2 * timeout_ns), Action::Restart(node));
            }
        }
    }
}

/// Builds the world of a seed with everything scheduled. It writes to the record, if there is one.
pub(crate) fn build(o: &Options, record: Option<&Record>) -> World {
    let mut rng = Rng::new(o.seed, 9);
    let setups = o.keyed_setups(KEYS_MAX, record.map(Record::plains));
    let mut world = World::new(o.seed, setups, o.links, o.rules());
    if let Some(record) = record {
        world.record(record);
    }
    // Half a deadline for a keepalive to go unanswered, and for late or repeated packets; a whole one for a session that
    // an attacker opens with a hello of the dead which it held back.
    let fooled_ns = if o.faults.hostile > 0.0 { o.timeout_ns } else { 0 };
    let late_ns = o.faults.spike_ns + o.faults.duplicate_delay_ns + 500 * MILLISECOND;
    world.ledger.deadline_ns = o.timeout_ns * 3 / 2 + fooled_ns + late_ns;
    world.net.faults = o.faults;
    world.icmp = rng.pick(&[0.0, 0.3, 1.0]);
    plan_operations(o, &mut world, &mut rng);
    plan_requests(o, &mut world);
    plan_disasters(o, &mut world, &mut rng);
    for (at, node) in o.renewals() {
        world.at(world.now + at, Action::Renew(node));
    }
    world
}

/// Runs one seed to its end; panics when anything is wrong.
pub fn run(o: &Options) -> Report {
    run_through(o, build(o, None))
}

/// The same, and writes down what each process sees. The options should be [`Options::for_traces`].
pub fn run_recorded(o: &Options, record: &Record) -> Report {
    run_through(o, build(o, Some(record)))
}

fn run_through(o: &Options, mut world: World) -> Report {
    let timeout_ns = o.timeout_ns;
    let start = world.now;
    world.run_for(2 * o.spread_ns + 2 * o.span_ns);
    let faults_end = 5 * timeout_ns;
    if o.weather != Weather::Still {
        // Late disasters and restarts.
        world.run_for(faults_end);
    }
    world.calm();
    world.settle(patience_ns(o));
    epilogue(o, &mut world);
    let mut report = Report {
        sends: world.ledger.sends.len() as u64,
        failed: world.ledger.failures(),
        events: world.events.handled,
        span_ns: world.now - start,
        datagrams: world.net.counts.sent,
        kills: world.buried.len() as u64,
        socket_drops: world.socket_drops,
        digest: world.net.counts.digest,
        ..Report::default()
    };
    for stats in world.all_stats() {
        add_stats(&mut report.stats, &stats);
    }
    if o.weather == Weather::Still {
        judge_still(o, &report);
    }
    report
}

/// Virtual time in which everything must end once the faults are over: the deadline for operations to dead peers, the
/// transfer of all payload at a packet per round trip, and a margin.
fn patience_ns(o: &Options) -> Nanos {
    let trip_ns = 2 * (o.links.delay_ns + 256 * o.links.path_step_ns + o.links.jitter_ns);
    let trip_ns = trip_ns + 100 * MICROSECOND + 10 * MILLISECOND;
    3 * o.timeout_ns + o.budget_bytes / 1000 * trip_ns + 10 * SECOND
}

/// After the faults, all living nodes still reach each other, then fall silent, then close.
fn epilogue(o: &Options, world: &mut World) {
    let living: Vec<usize> = (0..o.setups.len()).filter(|n| world.lives(*n)).collect();
    if o.renews() {
        world.run_for(o.overlap_ns());
        let failed = world.all_stats().iter().map(|stats| stats.sessions_failed).sum::<u64>();
        let harsh = matches!(o.weather, Weather::Storm | Weather::Deadly);
        assert!(harsh || failed == 0, "{failed} sessions failed while the key changed");
    }
    let rounds = if o.rules() == Rules::default() { 1 } else { 3 };
    for round in 1..=rounds {
        let first = world.ledger.sends.len();
        for from in &living {
            for to in &living {
                let out = Outgoing {
                    to: *to,
                    len_bytes: 100,
                    tag_class: Some(1),
                    data: false,
                    match_complete: true,
                };
                world.send(*from, &out);
            }
        }
        world.settle(patience_ns(o));
        let failed = (first..world.ledger.sends.len())
            .filter(|id| !matches!(world.ledger.sends[*id].ended, Some((_, Ok(())))))
            .count();
        assert!(failed == 0 || round < rounds, "{failed} sends fail without faults");
    }
    world.ledger.judge_end();
    judge_silence(o, world);
    for node in &living {
        world.close(*node);
    }
    let closed = world.run_until(3 * o.timeout_ns + 10 * SECOND, |w| {
        w.nodes.iter().all(|n| n.endpoint.as_ref().is_none_or(|e| e.is_closed()))
    });
    assert!(closed, "endpoints do not close");
}

/// With nothing to do, nothing is sent, unless a directed receive has its peer watched.
fn judge_silence(o: &Options, world: &mut World) {
    let watching = world.nodes.iter().any(|n| n.app.posted.iter().any(|p| p.source.is_some()));
    world.run_for(2 * o.timeout_ns + SECOND);
    let before = world.net.counts.sent;
    world.run_for(2 * o.timeout_ns);
    let chatter = world.net.counts.sent - before;
    assert!(watching || chatter == 0, "{chatter} datagrams with nothing to do");
}

/// Without faults there is nothing to repair, as long as the sockets took everything.
fn judge_still(o: &Options, report: &Report) {
    let stats = &report.stats;
    assert_eq!(report.failed, 0);
    // Both sides may open or end a session at once; that crosses some control packets.
    let crossing = [DropReason::WrongState, DropReason::UnknownSession, DropReason::OtherKey];
    let crossed: u64 = crossing.iter().map(|r| stats.drops_for(*r)).sum();
    let dropped: u64 = stats.drops.iter().sum();
    let repeated = stats.rtx_nack + stats.rtx_probe + stats.rtx_order;
    assert!(dropped - crossed <= repeated, "drops without faults: {stats:?}");
    if o.links.jitter_ns == 0 && o.links.path_step_ns == 0 && report.socket_drops == 0 {
        assert_eq!(repeated, 0, "repairs without faults: {stats:?}");
    }
}

/// Adds up statistics.
pub fn add_stats(sum: &mut Stats, s: &Stats) {
    for (total, one) in [
        (&mut sum.tx_data, s.tx_data),
        (&mut sum.tx_payload_bytes, s.tx_payload_bytes),
        (&mut sum.tx_control, s.tx_control),
        (&mut sum.tx_challenges, s.tx_challenges),
        (&mut sum.tx_resets, s.tx_resets),
        (&mut sum.tx_goodbye_confirmations, s.tx_goodbye_confirmations),
        (&mut sum.tx_version_refusals, s.tx_version_refusals),
        (&mut sum.answers_withheld, s.answers_withheld),
        (&mut sum.rx_data, s.rx_data),
        (&mut sum.rx_payload_bytes, s.rx_payload_bytes),
        (&mut sum.rx_control, s.rx_control),
        (&mut sum.rtx_nack, s.rtx_nack),
        (&mut sum.rtx_probe, s.rtx_probe),
        (&mut sum.rtx_order, s.rtx_order),
        (&mut sum.rtx_trim, s.rtx_trim),
        (&mut sum.rtx_spurious, s.rtx_spurious),
        (&mut sum.probes, s.probes),
        (&mut sum.nacks, s.nacks),
        (&mut sum.messages_sent, s.messages_sent),
        (&mut sum.messages_received, s.messages_received),
        (&mut sum.sessions_opened, s.sessions_opened),
        (&mut sum.sessions_failed, s.sessions_failed),
        (&mut sum.lanes_opened, s.lanes_opened),
        (&mut sum.lane_tx_entries, s.lane_tx_entries),
        (&mut sum.lane_rx_entries, s.lane_rx_entries),
        (&mut sum.lane_pulled_bytes, s.lane_pulled_bytes),
        (&mut sum.rx_ce, s.rx_ce),
        (&mut sum.requests_served, s.requests_served),
    ] {
        *total += one;
    }
    for (total, one) in sum.drops.iter_mut().zip(s.drops) {
        *total += one;
    }
    for (total, one) in sum.refusals.iter_mut().zip(s.refusals) {
        *total += one;
    }
}
