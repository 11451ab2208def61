//! The plan of a run's applications, drawn from its seed.

use super::accesses::{CELLS, SOURCE_BYTES, What, Wrong};
use super::book::{Book, Post};
use super::process::Manners;
use super::receives::Form;
use crate::app::Class;
use crate::ledger::Life;
use crate::rng::Rng;
use crate::swarm::{Options, Weather};
use erd_core::flags::Flags;
use erd_core::settings::INJECT_BYTES;
use erd_rd::Nanos;
use erd_rd::units::{MICROSECOND, MILLISECOND};

/// An action of an application or of the world.
#[derive(Clone, Copy, Debug)]
pub enum Action {
    /// A node posts a message.
    Send {
        /// Node that posts.
        from: usize,
        /// The receiving node.
        to: usize,
        /// Its length.
        len_bytes: u64,
        /// Class of its tag.
        class: Option<u8>,
        /// It carries data.
        data: bool,
        /// Flags of the call.
        flags: Flags,
        /// Nobody learns of its success.
        silent: bool,
    },
    /// A node posts a receive.
    Recv {
        /// Node that posts.
        node: usize,
        /// Only from this node.
        source: Option<usize>,
        /// Messages that it takes.
        class: Class,
        /// Bytes that fit.
        room_bytes: u64,
        /// Its form.
        form: Form,
    },
    /// A node posts an access.
    Access {
        /// Node that posts.
        from: usize,
        /// Node that has the memory.
        to: usize,
        /// Its kind; the place of a write is chosen when it is posted.
        what: What,
        /// Its length.
        len_bytes: u64,
        /// Its mistake.
        wrong: Wrong,
        /// Flags of the call.
        flags: Flags,
        /// It notifies the target.
        data: bool,
    },
    /// A node cancels one of its receives.
    Cancel(usize),
    /// A node does not run until the time.
    Stall(usize, Nanos),
    /// Nodes are cut from each other until the time.
    Cut(u64, Nanos),
    /// A node gets its next key.
    Renew(usize),
    /// A process closes its endpoint and goes; another takes its place.
    Leave(usize),
    /// A process dies.
    Kill(usize),
    /// A dead process is replaced.
    Restart(usize),
}

impl Action {
    /// Writes the application's post into the book; `None` if it posts nothing.
    pub fn enter(
        self,
        book: &mut Book,
        life: impl Fn(usize) -> Life,
        least_bytes: u64,
    ) -> Option<(usize, Post)> {
        match self {
            Action::Send { from, to, len_bytes, class, data, flags, silent } => {
                let ends = (life(from), to);
                let id = book.add_message(ends, len_bytes, class, data, (flags, silent));
                Some((from, Post::Message(id)))
            }
            Action::Recv { node, source, class, room_bytes, form } => {
                let owner = life(node);
                let room = (room_bytes, least_bytes);
                let id = book.receives.add(owner, (source, class), room, form);
                Some((node, Post::Receive(id)))
            }
            Action::Access { from, to, what, len_bytes, wrong, flags, data } => {
                let what = match what {
                    What::Write(_) => What::Write(book.accesses.slot(to, len_bytes)?),
                    what => what,
                };
                let ends = (life(from), to);
                let id = book.accesses.add(ends, (what, len_bytes), wrong, (flags, data));
                Some((from, Post::Access(id)))
            }
            _ => None,
        }
    }
}

/// Behaviour of a node's application.
pub fn manners(rng: &mut Rng) -> Manners {
    Manners {
        tx_size: rng.pick(&[1, 4, 64, 1024]),
        rx_size: rng.pick(&[8, 64, 1024]),
        least_bytes: rng.pick(&[1, 64, 1024]),
        completes_early: rng.chance(0.5),
        reads: rng.pick(&[1, 4, 64]),
        more: rng.pick(&[0.0, 0.0, 0.3]),
    }
}

/// Flags of a message or write of `len_bytes`.
fn send_flags(rng: &mut Rng, len_bytes: u64) -> Flags {
    let level = rng.pick(&[
        Flags::empty(),
        Flags::empty(),
        Flags::TRANSMIT_COMPLETE,
        Flags::DELIVERY_COMPLETE,
        Flags::INJECT_COMPLETE,
    ]);
    let copied = len_bytes <= INJECT_BYTES as u64 && rng.chance(0.3);
    let fence = if rng.chance(0.05) { Flags::FENCE } else { Flags::empty() };
    level | fence | if copied { Flags::INJECT } else { Flags::empty() }
}

/// The messages and receives of a run, with the times when they are posted.
pub fn messages(o: &Options, rng: &mut Rng) -> Vec<(Nanos, Action)> {
    let mut all = Vec::new();
    let mut left_bytes = o.budget_bytes;
    let nodes = o.setups.len() as u64;
    for _ in 0..o.operations {
        let at = o.spread_ns + rng.below(o.span_ns);
        let (from, to) = (rng.below(nodes) as usize, rng.below(nodes) as usize);
        let len_bytes = match rng.below(10) {
            0 => 0,
            1..=5 => rng.log_range(1, 2048),
            _ => rng.log_range(1, o.len_max_bytes),
        };
        let len_bytes = len_bytes.min(left_bytes);
        left_bytes -= len_bytes;
        let class = (!rng.chance(0.4)).then(|| rng.below(o.classes) as u8);
        let (data, flags) = (rng.chance(0.3), send_flags(rng, len_bytes));
        let matched = rng.chance(o.match_complete);
        let flags = if matched {
            flags.difference(Flags::LATE_LEVELS | Flags::INJECT_COMPLETE) | Flags::MATCH_COMPLETE
        } else {
            flags
        };
        let silent = flags.intersects(Flags::INJECT) && rng.chance(0.3);
        all.push((at, Action::Send { from, to, len_bytes, class, data, flags, silent }));
        let at = at + rng.below(2 * o.spread_ns) - o.spread_ns;
        receive(o, rng, at, (from, to), (len_bytes, class), &mut all);
        if rng.chance(0.1) {
            all.push((at + rng.below(2 * o.spread_ns), Action::Cancel(to)));
        }
    }
    all
}

/// A receive that suits a message, most of the time.
fn receive(
    o: &Options,
    rng: &mut Rng,
    at: Nanos,
    (from, node): (usize, usize),
    (len_bytes, class): (u64, Option<u8>),
    all: &mut Vec<(Nanos, Action)>,
) {
    if !rng.chance(0.85) {
        return;
    }
    let class = match class {
        None => Class::Untagged,
        Some(_) if rng.chance(0.3) => Class::AnyTag,
        Some(class) => Class::Tag(class),
    };
    let source = rng.chance(o.directed).then_some(from);
    if class != Class::Untagged && rng.chance(0.2) {
        let form = rng.pick(&[Form::Peek, Form::Claim, Form::Claim, Form::Discard]);
        let at = at + rng.below(o.spread_ns);
        all.push((at, Action::Recv { node, source, class, room_bytes: 0, form }));
    }
    if rng.chance(0.15) {
        let (room_bytes, form) = (rng.log_range(1 << 12, 1 << 18), Form::Many);
        all.push((at, Action::Recv { node, source, class, room_bytes, form }));
        return;
    }
    let fits = rng.chance(o.roomy);
    let room_bytes = if fits { len_bytes + rng.below(64) } else { rng.below(len_bytes + 1) };
    all.push((at, Action::Recv { node, source, class, room_bytes, form: Form::One }));
}

/// The accesses of a run, in most runs.
pub fn accesses(o: &Options, rng: &mut Rng) -> Vec<(Nanos, Action)> {
    let mut all = Vec::new();
    let nodes = o.setups.len() as u64;
    for _ in 0..rng.pick(&[0, 20, 100]) {
        let at = o.spread_ns + rng.below(o.span_ns);
        let (from, to) = (rng.below(nodes) as usize, rng.below(nodes) as usize);
        let len_bytes = match rng.below(8) {
            0 => 0,
            1..=4 => rng.log_range(1, 1024),
            _ => rng.log_range(1, o.len_max_bytes.min(1 << 16)),
        };
        let (what, len_bytes) = match rng.below(8) {
            0..=2 => (What::Write(0), len_bytes),
            3 | 4 => {
                (What::Read(rng.below(SOURCE_BYTES as u64 - len_bytes + 1) as usize), len_bytes)
            }
            5 => (What::Add(rng.below(CELLS as u64) as usize), 8),
            _ => (What::FetchAdd(rng.below(CELLS as u64) as usize), 8),
        };
        let wrong = match rng.below(12) {
            0 if len_bytes > 0 => rng.pick(&[Wrong::Key, Wrong::Bounds, Wrong::Rights]),
            _ => Wrong::No,
        };
        let reads = matches!(what, What::Read(_));
        let wrong = if reads && wrong == Wrong::Rights { Wrong::No } else { wrong };
        let writes = matches!(what, What::Write(_));
        let flags = if writes { send_flags(rng, len_bytes) } else { Flags::empty() };
        let data = writes && rng.chance(0.3) && wrong == Wrong::No;
        all.push((at, Action::Access { from, to, what, len_bytes, wrong, flags, data }));
    }
    all
}

/// Stalls, cuts and deaths. In rough weather none lasts near the deadline.
pub fn disasters(o: &Options, rng: &mut Rng) -> Vec<(Nanos, Action)> {
    let mut all = Vec::new();
    if o.weather == Weather::Still {
        return all;
    }
    let nodes = o.setups.len() as u64;
    let timeout_ns = o.timeout_ns;
    let longest = if o.weather == Weather::Rough { timeout_ns / 5 } else { 2 * timeout_ns };
    let mut at = o.spread_ns;
    for _ in 0..rng.below(4) {
        at += rng.below(o.span_ns);
        let until = at + rng.log_range(MILLISECOND, longest);
        all.push(match rng.chance(0.5) {
            true => (at, Action::Stall(rng.below(nodes) as usize, until)),
            false => (at, Action::Cut(rng.bits(), until)),
        });
        at = if o.weather == Weather::Rough { until + timeout_ns } else { at };
    }
    if o.weather == Weather::Deadly {
        for _ in 0..rng.range(1, 3) {
            let node = rng.below(nodes) as usize;
            let at = o.spread_ns + rng.below(o.span_ns * 5 / 4);
            all.push((at, Action::Kill(node)));
            if rng.chance(0.7) {
                let again = at + rng.log_range(MICROSECOND, 2 * timeout_ns);
                all.push((again, Action::Restart(node)));
            }
        }
    }
    partings(o, &mut all);
    all
}

/// Ends of sessions while their lanes are in use. They are drawn apart, so that the rest of a seed is the same with and
/// without them.
fn partings(o: &Options, all: &mut Vec<(Nanos, Action)>) {
    let has_lanes = o.setups.iter().any(|setup| setup.lanes.is_some());
    if !has_lanes || matches!(o.weather, Weather::Still | Weather::Rough) {
        return;
    }
    let rng = &mut Rng::new(o.seed, 28);
    let node = |rng: &mut Rng| rng.below(o.setups.len() as u64) as usize;
    for _ in 0..rng.pick(&[0, 2, 8]) {
        let at = o.spread_ns + rng.below(o.span_ns);
        // The second is longer than peers wait.
        let stall_ns = rng.pick(&[o.span_ns / 8, o.timeout_ns * 3 / 2]);
        all.push((at, Action::Stall(node(rng), at + stall_ns)));
        if o.weather == Weather::Deadly {
            all.push((at + rng.below(stall_ns), Action::Leave(node(rng))));
        }
    }
}
