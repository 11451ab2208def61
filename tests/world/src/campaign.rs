//! A campaign against a job with a key (protocol.md §11): an adversary that sees every packet adds many more than there
//! are honest ones, of every kind and by every trick, while sessions rest and while they carry messages.
//!
//! The judgement rests on a balance. Nothing is lost here, so each datagram that was sent or added is counted once by
//! the process that got it: as taken, or under the reason for dropping it.

use super::adversary::Trick;
use super::keyed::talk;
use super::ledger::Rules;
use super::memory::{Plan, What, Wrong};
use super::net::{Carries, Fate};
use super::node::{Node, Setup};
use super::nonces::WatchedKeys;
use super::script::{PATIENCE_NS, message, setup};
use super::sim::{Action, World};
use erd_rd::keys::{KeySet, Keys};
use erd_rd::stats::DROP_REASONS;
use erd_rd::units::{MICROSECOND, MILLISECOND, SECOND};
use erd_rd::wire::header::{HEADER_BYTES, PacketKind};
use erd_rd::{DropReason, PeerId, Stats};
use std::cell::RefCell;
use std::collections::{BTreeMap, HashSet};
use std::rc::Rc;
use std::sync::Arc;

/// Processes of the job. The last one has no session with anybody.
const NODES: usize = 4;
/// Pairs that have a session.
const PAIRS: [(usize, usize); 3] = [(0, 1), (1, 2), (0, 2)];
/// Forgeries that arrive at one time.
const AT_ONCE: u64 = 16;
/// Forgeries of a round with resting sessions, and of one beside messages.
const ROUND: u64 = 4_096;
/// A session that rests gives its memory back within this time.
const REST_NS: u64 = 700 * MILLISECOND;

/// One run.
#[derive(Clone, Copy, Debug)]
pub struct Campaign {
    /// All its randomness.
    pub seed: u64,
    /// Payload is hidden.
    pub hides: bool,
    /// Secrets last for 2^`phase_bits` packets.
    pub phase_bits: u32,
    /// Forgeries.
    pub count: u64,
}

/// What came of it.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Forgeries by trick, and by the kind that the packet's first byte names.
    pub tried: BTreeMap<(Trick, u8), u64>,
    /// Drops by reason, of forgeries and of the answers to them.
    pub drops: [u64; DROP_REASONS],
    /// Answers that readers sent.
    pub answers: u64,
    /// Forgeries that were exact copies of what may come again without an effect: a hello without a cookie, which is
    /// asked for a proof, and the welcome of a session that stands.
    pub copies: u64,
}

impl Outcome {
    /// Adds another.
    pub fn add(&mut self, other: &Outcome) {
        for (what, count) in &other.tried {
            *self.tried.entry(*what).or_default() += count;
        }
        self.drops.iter_mut().zip(other.drops).for_each(|(sum, more)| *sum += more);
        self.answers += other.answers;
        self.copies += other.copies;
    }

    /// Forgeries in all.
    pub fn count(&self) -> u64 {
        self.tried.values().sum()
    }
}

/// Counts of all processes, before or after a round.
#[derive(Clone, Copy, Debug)]
struct Balance {
    drops: [u64; DROP_REASONS],
    port_drops: u64,
    taken: u64,
    data: u64,
    sent: u64,
    /// Answers to strangers that went to a process of the job.
    answers: u64,
    sessions: (u64, u64),
    touches: u64,
}

impl Balance {
    fn of(w: &World) -> Balance {
        let all = w.all_stats();
        let sum = |count: fn(&Stats) -> u64| all.iter().map(count).sum::<u64>();
        Balance {
            drops: std::array::from_fn(|at| all.iter().map(|stats| stats.drops[at]).sum()),
            port_drops: w.nodes.iter().map(Node::port_drops).sum(),
            taken: sum(|s| s.rx_data + s.rx_control),
            data: sum(|s| s.rx_data),
            sent: w.net.counts.sent,
            answers: sum(|s| {
                s.tx_challenges + s.tx_resets + s.tx_goodbye_confirmations + s.tx_version_refusals
            }) - w.nodes.iter().map(|node| node.wire.borrow().strays).sum::<u64>(),
            sessions: (sum(|s| s.sessions_opened), sum(|s| s.sessions_failed)),
            touches: w.ledger.touches,
        }
    }

    fn dropped(&self) -> u64 {
        self.drops.iter().sum::<u64>() + self.port_drops
    }
}

/// The hellos without a cookie and the welcomes that honest processes have sent: who reads them, and their bytes.
type Repeatable = Rc<RefCell<HashSet<(usize, Vec<u8>)>>>;

fn is_of(kind: PacketKind, bytes: &[u8]) -> bool {
    bytes.first().is_some_and(|first| first & 0xf == kind as u8)
}

/// Whether a datagram may come again without an effect.
fn is_repeatable(bytes: &[u8]) -> bool {
    let cookie = bytes.get(HEADER_BYTES + 66..HEADER_BYTES + 74);
    let asks = is_of(PacketKind::Hello, bytes) && cookie == Some(&[0; 8]);
    asks || is_of(PacketKind::Welcome, bytes)
}

/// A run under way.
struct Attack {
    w: World,
    outcome: Outcome,
    repeatable: Repeatable,
    frames: u64,
}

fn member(node: u8, keys: &Arc<WatchedKeys>) -> Setup {
    let mut s = setup(node);
    s.config.keys = KeySet::one(Arc::clone(keys) as Arc<dyn Keys>);
    s.config.info_path = true;
    s.habits.info_path = 0.3;
    // A search for larger datagrams now and then.
    (s.config.datagram_bytes, s.config.growth_ns) = (2_000, SECOND);
    s.limits.datagram_limit_bytes = s.config.datagram_bytes;
    s
}

/// The job after a first life: sessions that have ended, some in order and some by a death, and new ones.
fn world_with_a_past(campaign: &Campaign, repeatable: &Repeatable) -> World {
    let keys = Arc::new(WatchedKeys::new(1, campaign.hides, campaign.phase_bits));
    let setups = (0..NODES).map(|node| member(node as u8, &keys)).collect();
    let mut w = World::new(campaign.seed, setups, Default::default(), Rules::default());
    let seen = Rc::clone(repeatable);
    w.net.filter = Some(Box::new(move |datagram, _| {
        if is_repeatable(&datagram.bytes) {
            seen.borrow_mut().insert((datagram.to, datagram.bytes.clone()));
        }
        Fate::Pass
    }));
    // It sees what is sent from here on, and adds nothing of its own accord.
    w.net.faults.hostile = f64::MIN_POSITIVE;
    w.net.faults.loss = 0.05;
    PAIRS.iter().for_each(|pair| exchange(&mut w, *pair, 30_000));
    w.run_for(2 * SECOND);
    w.close(1);
    w.run_for(100 * MILLISECOND);
    for node in [1, 2] {
        w.act(Action::Kill(node));
        w.act(Action::Restart(node));
    }
    w.net.sessions_ended();
    repeatable.borrow_mut().retain(|(_, bytes)| is_of(PacketKind::Hello, bytes));
    w.net.faults.loss = 0.0;
    for (one, other) in PAIRS {
        // The younger process begins: the older one learns by its hello that the one before it is gone.
        w.want(one, 10);
        w.send(other, &message(one, 10));
        w.settle(PATIENCE_NS);
    }
    // What is lost it does not see, so that the windows have gaps of which it knows no packet. And the path carries less
    // than the hosts' links for a while, so that they look for the largest datagram, now and later.
    (w.net.faults.hostile, w.net.faults.loss) = (0.0, 0.2);
    w.net.carries.limit_bytes = 1_500;
    PAIRS.iter().for_each(|pair| exchange(&mut w, *pair, 60_000));
    (w.net.faults.hostile, w.net.faults.loss) = (f64::MIN_POSITIVE, 0.0);
    w.net.carries = Carries::default();
    w.run_for(2 * SECOND);
    // Who computes for long is probed.
    w.act(Action::Stall(1, w.now + 200 * MILLISECOND));
    PAIRS.iter().for_each(|pair| exchange(&mut w, *pair, 20_000));
    w.run_for(REST_NS);
    // A forged probe may name anybody, who gets its answer.
    w.ledger.rules.lies = true;
    w
}

/// A message, a write and a read each way.
fn exchange(w: &mut World, (one, other): (usize, usize), len_bytes: u64) {
    post_exchange(w, (one, other), len_bytes);
    w.settle(PATIENCE_NS);
}

fn post_exchange(w: &mut World, (one, other): (usize, usize), len_bytes: u64) {
    for (from, to) in [(one, other), (other, one)] {
        w.want(to, len_bytes);
        w.send(from, &message(to, len_bytes));
        for what in [What::Write, What::Read] {
            let (at, stretches, wrong) = (0, 1, Wrong::No);
            let plan =
                Plan { to, what, len_bytes, at, stretches, wrong, fence: false, data: false };
            w.rma(from, &plan);
        }
    }
}

impl Attack {
    /// Adds a forgery; it arrives at once.
    fn strike(&mut self) {
        let (trick, mut forged) = self.w.net.forge().expect("it has seen packets");
        self.frames += 1;
        forged.info_path = self.frames.is_multiple_of(8);
        let kind = forged.bytes.first().map_or(0, |first| first & 0xf);
        *self.outcome.tried.entry((trick, kind)).or_default() += 1;
        if is_repeatable(&forged.bytes) && !forged.info_path {
            let copy = (forged.to, forged.bytes.clone());
            self.outcome.copies += u64::from(self.repeatable.borrow().contains(&copy));
        }
        self.w.inject(forged);
    }

    /// Forgeries while sessions rest: no process tells its application anything, and none touches memory.
    fn beside_rest(&mut self, count: u64) {
        let before = Balance::of(&self.w);
        let copies = self.outcome.copies;
        for at in 1..=count {
            self.strike();
            if at % AT_ONCE == 0 {
                self.w.run_for(20 * MICROSECOND);
            }
        }
        self.w.run_for(20 * MILLISECOND);
        let after = self.judge(&before, count, copies);
        assert_eq!(after.touches, before.touches, "no application hears of a forgery");
        assert_eq!(after.data, before.data, "none carries data");
        assert_eq!(after.sessions, before.sessions, "none begins or ends a session");
    }

    /// Forgeries beside messages, writes and reads, whose contents the ledger judges.
    fn beside_messages(&mut self, count: u64) {
        let before = Balance::of(&self.w);
        let copies = self.outcome.copies;
        let mut left = count;
        while left > 0 {
            for (at, pair) in PAIRS.into_iter().enumerate() {
                post_exchange(&mut self.w, pair, 10 + left * 20 * at as u64 % 60_000);
            }
            for _ in 0..AT_ONCE {
                for _ in 0..AT_ONCE.min(left) {
                    self.strike();
                }
                left = left.saturating_sub(AT_ONCE);
                self.w.run_for(5 * MICROSECOND);
            }
            self.w.settle(PATIENCE_NS);
        }
        self.w.run_for(20 * MILLISECOND);
        let after = self.judge(&before, count, copies);
        assert_eq!(after.sessions, before.sessions, "none begins or ends a session");
    }

    /// The balance of a round: all that came was counted, and each forgery dropped.
    fn judge(&mut self, before: &Balance, count: u64, copies: u64) -> Balance {
        let after = Balance::of(&self.w);
        let dropped = after.dropped() - before.dropped();
        let arrived = after.sent - before.sent + count;
        let answers = after.answers - before.answers;
        assert_eq!(self.w.socket_drops, 0);
        assert_eq!(after.taken - before.taken + dropped, arrived, "each was counted once");
        let copies = self.outcome.copies - copies;
        assert_eq!(dropped, count - copies + answers, "{before:?} {after:?}");
        self.outcome.answers += answers;
        for (at, sum) in self.outcome.drops.iter_mut().enumerate() {
            *sum += after.drops[at] - before.drops[at];
        }
        after
    }

    /// Peers of each process, and places of their tables.
    fn peers(&self) -> Vec<(usize, Vec<Option<PeerId>>)> {
        let engines = self.w.nodes.iter().map(|node| node.endpoint.as_ref().expect("it lives"));
        engines
            .map(|e| {
                let places = e.peer_places();
                (places, (0..places).map(|place| e.peer_at(place)).collect())
            })
            .collect()
    }
}

impl Campaign {
    /// Runs it.
    ///
    /// # Panics
    /// If a forgery is taken, or anything else changes by one.
    pub fn run(&self) -> Outcome {
        let (outcome, repeatable) = Default::default();
        let w = world_with_a_past(self, &repeatable);
        let mut attack = Attack { w, outcome, repeatable, frames: 0 };
        let peers = attack.peers();
        let mut left = self.count;
        while left > 0 {
            let rest = left.min(ROUND);
            attack.beside_rest(rest);
            let busy = (left - rest).min(ROUND / 4);
            attack.beside_messages(busy);
            left -= rest + busy;
        }
        assert_eq!(attack.peers(), peers, "no table of peers changed");
        attack.w.run_for(REST_NS);
        talk(&mut attack.w, &[100, 100_000]);
        attack.w.ledger.rules = Rules::default();
        attack.w.ledger.judge_end();
        assert_eq!(attack.w.net.counts.forged, self.count);
        assert_eq!(attack.outcome.count(), self.count);
        assert_eq!(attack.w.stats(NODES - 1).sessions_opened, 0);
        let replayed = attack.outcome.drops[DropReason::Replayed as usize];
        assert!(replayed > 0);
        attack.outcome
    }
}
