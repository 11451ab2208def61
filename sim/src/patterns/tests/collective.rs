use super::super::collective::program::Transfer;
use super::*;
use crate::work::{Op, TaskId};
use std::collections::HashSet;
use std::ops::Range;

fn collective(operation: Operation, algorithm: Algorithm, data_bytes: u64) -> Collective {
    Collective {
        operation,
        algorithm,
        data_bytes,
        chunk_bytes: None,
        outstanding_chunks: 2,
        reduce_ps_per_byte: 0.0,
        groups: Groups::default(),
    }
}

/// All that exist for a number of ranks.
fn kinds(ranks: u32) -> Vec<(Operation, Algorithm)> {
    let mut kinds = vec![
        (Operation::AllReduce, Algorithm::Ring),
        (Operation::ReduceScatter, Algorithm::Ring),
        (Operation::AllGather, Algorithm::Ring),
        (Operation::AllReduce, Algorithm::HalvingDoubling),
        (Operation::AllReduce, Algorithm::DoubleTree),
    ];
    if ranks.is_power_of_two() {
        kinds.push((Operation::ReduceScatter, Algorithm::HalvingDoubling));
        kinds.push((Operation::AllGather, Algorithm::HalvingDoubling));
    }
    kinds
}

/// What a message means.
struct Meaning {
    from: usize,
    to: usize,
    units: Range<u32>,
    reduces: bool,
}

/// The meanings of all messages, in the order of their numbers.
fn meanings(collective: &Collective, ranks: u32) -> Vec<Meaning> {
    let grid = collective.grid(ranks).expect("it fits");
    let mut all = Vec::new();
    collective.program(ranks, &grid, &mut |transfer| {
        let Transfer { from, to, units, reduces, .. } = transfer;
        let (from, to) = (from as usize, to as usize);
        all.extend(grid.cut(units).map(|units| Meaning { from, to, units, reduces }));
    });
    all
}

/// Which messages' data is certainly there, and which messages have certainly begun, when a task begins.
#[derive(Clone, Default)]
struct Past {
    there: HashSet<usize>,
    begun: HashSet<usize>,
}

impl Past {
    fn add(&mut self, other: &Past) {
        self.there.extend(&other.there);
        self.begun.extend(&other.begun);
    }
}

/// The past of each message's sending and receiving task.
fn pasts(work: &Work, meanings: &[Meaning], computes: bool) -> Vec<[Past; 2]> {
    let mut pasts: Vec<Vec<Past>> = (0..work.hosts())
        .map(|host| vec![Past::default(); work.tasks(HostId(host)).len()])
        .collect();
    // Which message a computation adds.
    let mut adds = std::collections::HashMap::new();
    let mut of_flows = vec![[Past::default(), Past::default()]; work.flows().len()];
    for (host, id) in work.in_order().expect("no circle") {
        let task = &work.tasks(host)[id.0 as usize];
        let mut past = pasts[host.0 as usize][id.0 as usize].clone();
        match task.op {
            Op::Send { flow, .. } => {
                of_flows[flow.0 as usize][0] = past.clone();
                past.begun.insert(flow.0 as usize);
                let flow = work.flows()[flow.0 as usize];
                pasts[flow.to.0 as usize][flow.receive.0 as usize].add(&past);
                // The sender knows later that it has arrived, not that it has been added.
            }
            Op::Receive { flow } => {
                let flow = flow.0 as usize;
                of_flows[flow][1] = past.clone();
                if computes && meanings[flow].reduces {
                    adds.extend(task.then.iter().map(|then| ((host, *then), flow)));
                } else {
                    past.there.insert(flow);
                }
            }
            Op::Compute { .. } => {
                let flow: Option<&usize> = adds.get(&(host, id));
                past.there.insert(*flow.expect("a computation adds a message"));
            }
            Op::Stream { .. } | Op::Sink { .. } => panic!("no streams"),
        }
        let then: Vec<TaskId> = task.then.clone();
        then.iter().for_each(|then| pasts[host.0 as usize][then.0 as usize].add(&past));
    }
    of_flows
}

/// How often each rank's data is in a unit.
type Sum = Vec<u32>;

/// Runs a collective on sets instead of data: what a message carries is what is certainly there when it is sent. Nothing
/// else may get in between.
struct Check {
    ranks: u32,
    meanings: Vec<Meaning>,
    pasts: Vec<[Past; 2]>,
    /// What each message carries of each of its units.
    carried: Vec<Vec<Sum>>,
    gathers: bool,
}

impl Check {
    fn new(collective: &Collective, ranks: u32) -> Check {
        let meanings = meanings(collective, ranks);
        let work = Pattern::Collective(*collective).work(&site(ranks), 1).expect("it fits");
        assert_eq!((work.circle(), work.flows().len()), (None, meanings.len()));
        for (flow, meaning) in work.flows().iter().zip(&meanings) {
            assert_eq!(
                [flow.from.0, flow.to.0].map(|host| host as usize),
                [meaning.from, meaning.to]
            );
        }
        let pasts = pasts(&work, &meanings, collective.reduce_ps_per_byte > 0.0);
        let gathers = collective.operation == Operation::AllGather;
        let mut check = Check { ranks, meanings, pasts, carried: Vec::new(), gathers };
        for at in 0..check.meanings.len() {
            let carried = check.carry(at);
            check.carried.push(carried);
        }
        check
    }

    /// What a rank has of a unit before anything was sent: for a gathering, who sends it first is whose it is.
    fn begin(&self, rank: usize, unit: u32) -> Sum {
        let mut sum = vec![0; self.ranks as usize];
        let first = self.meanings.iter().find(|meaning| meaning.units.contains(&unit));
        sum[rank] = u32::from(!self.gathers || first.is_some_and(|first| first.from == rank));
        sum
    }

    /// What a rank has of a unit once these messages are there.
    fn state(&self, rank: usize, unit: u32, is_there: impl Fn(usize) -> bool) -> Sum {
        let mut sum = self.begin(rank, unit);
        for (at, carried) in self.carried.iter().enumerate().filter(|(at, _)| is_there(*at)) {
            let meaning = &self.meanings[at];
            if meaning.to != rank || !meaning.units.contains(&unit) {
                continue;
            }
            let more = &carried[(unit - meaning.units.start) as usize];
            if meaning.reduces {
                sum.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
            } else {
                sum.clone_from(more);
            }
        }
        sum
    }

    fn carry(&self, at: usize) -> Vec<Sum> {
        let Meaning { from, to, ref units, reduces } = self.meanings[at];
        let sent = &self.pasts[at][0];
        for (other, meaning) in self.meanings.iter().enumerate() {
            if meaning.units.start >= units.end || meaning.units.end <= units.start {
                continue;
            }
            // What reaches the sender there is there before, or comes only after this was sent.
            if meaning.to == from && !sent.there.contains(&other) {
                let begun = &self.pasts[other][1].begun;
                assert!(
                    other > at && begun.contains(&at),
                    "{other} races with the sending of {at}"
                );
            }
            // What takes the place of other data comes after it.
            if meaning.to == to && other < at && !reduces {
                assert!(sent.there.contains(&other), "{at} may be overwritten by {other}");
            }
        }
        units.clone().map(|unit| self.state(from, unit, |at| sent.there.contains(&at))).collect()
    }

    /// Ranks that have everything of a unit once and only once in the end; nobody has anything twice.
    fn complete(&self, unit: u32) -> Vec<usize> {
        let whole = |rank: &usize| {
            let sum = self.state(*rank, unit, |_| true);
            assert!(sum.iter().all(|count| *count <= 1), "{rank} has {sum:?} of unit {unit}");
            sum.iter().sum::<u32>() == if self.gathers { 1 } else { self.ranks }
        };
        (0..self.ranks as usize).filter(whole).collect()
    }
}

/// Every rank ends with every rank's contribution once and only once, whatever the order of what is not ordered.
#[test]
fn collectives_compute_what_they_should() {
    for ranks in (2..=9).chain([12, 16]) {
        for (operation, algorithm) in kinds(ranks) {
            for (chunk_bytes, reduce_ps_per_byte) in [(None, 0.0), (Some(7), 1.5)] {
                let collective = Collective {
                    chunk_bytes,
                    reduce_ps_per_byte,
                    ..collective(operation, algorithm, u64::from(ranks) * 16 + 3)
                };
                let check = Check::new(&collective, ranks);
                let grid = collective.grid(ranks).expect("it fits");
                let mut owned = vec![0; ranks as usize];
                for unit in 0..grid.units {
                    let complete = check.complete(unit);
                    complete.iter().for_each(|rank| owned[*rank] += 1);
                    let expected = match operation {
                        Operation::AllReduce | Operation::AllGather => ranks as usize,
                        Operation::ReduceScatter => 1,
                    };
                    assert_eq!(complete.len(), expected, "{collective:?}, {ranks} ranks");
                }
                let pieces = if operation == Operation::ReduceScatter { ranks } else { 1 };
                assert_eq!(owned, vec![grid.units / pieces; ranks as usize], "{collective:?}");
            }
        }
    }
}

/// Each host sends and receives what the algorithm's description says, however it is cut.
#[test]
fn collectives_send_the_bytes_that_they_must() {
    const PIECE: u64 = 60_000;
    for ranks in (2..=17).chain([32, 100]) {
        for (operation, algorithm) in kinds(ranks) {
            for chunk_bytes in [None, Some(25_000)] {
                let data = PIECE * u64::from(ranks);
                let collective =
                    Collective { chunk_bytes, ..collective(operation, algorithm, data) };
                let work = Pattern::Collective(collective).work(&site(ranks), 1).expect("it fits");
                assert_eq!(work.circle(), None);
                if chunk_bytes.is_some() {
                    assert!(work.flows().iter().all(|flow| flow.bytes <= 25_000));
                }
                let rounds = if operation == Operation::AllReduce { 2 } else { 1 };
                check_bytes_sent(&work, algorithm, (ranks, data, rounds));
            }
        }
    }
}

fn check_bytes_sent(work: &Work, algorithm: Algorithm, (ranks, data, rounds): (u32, u64, u64)) {
    let bytes = bytes_of(work);
    let [sent, received] = &bytes;
    let n = u64::from(ranks);
    match algorithm {
        Algorithm::Ring => {
            let each = rounds * (n - 1) * data / n;
            assert_eq!(bytes, [(); 2].map(|()| vec![each; ranks as usize]));
        }
        Algorithm::HalvingDoubling => {
            let active = 1_u64 << ranks.ilog2();
            let pairs = n - active;
            for rank in 0..n {
                let passive = rank < 2 * pairs && rank % 2 == 0;
                let halves = if passive { 0 } else { rounds * (active - 1) * data / active };
                let pair = if rank < 2 * pairs { data } else { 0 };
                for bytes in &bytes {
                    let off = bytes[rank as usize].abs_diff(halves + pair);
                    assert!(off <= 2 * active, "{off} bytes off, rank {rank} of {ranks}");
                }
            }
        }
        Algorithm::DoubleTree => {
            assert_eq!(sent, received, "what goes up comes down");
            assert_eq!(sent.iter().sum::<u64>(), 2 * (n - 1) * data);
            // Two children in one tree and none in the other; one rank of an odd number works in both.
            let busy = sent.iter().filter(|sent| **sent > 2 * data).count() as u64;
            assert!(busy <= n % 2, "{busy} of {ranks} send more than twice the data");
        }
    }
}

/// A rank that is to compute does so between what it receives and what it sends of it.
#[test]
fn reducing_takes_its_time() {
    let mut ring = collective(Operation::AllReduce, Algorithm::Ring, 4_000);
    ring.reduce_ps_per_byte = 3.0;
    let work = Pattern::Collective(ring).work(&site(4), 1).expect("it fits");
    for host in (0..4).map(HostId) {
        let times = work.tasks(host).iter().filter_map(|task| match task.op {
            Op::Compute { time_ps, .. } => Some(time_ps),
            _ => None,
        });
        assert_eq!(times.collect::<Vec<_>>(), [3_000; 3]);
    }
}

/// Groups work at the same time, apart from each other.
#[test]
fn groups_do_the_same_apart() {
    let text = r#"{"pattern":"collective","operation":"all-reduce","algorithm":"halving-doubling",
        "data_bytes":4096,"groups":{"group_hosts":4,"placement":"random"}}"#;
    let work = work(text, 19);
    assert_eq!(work.flows().len(), 4 * 4 * 4);
    let mut partners = vec![HashSet::new(); 19];
    for flow in work.flows() {
        partners[flow.from.0 as usize].insert(flow.to);
    }
    assert_eq!(partners.iter().filter(|all| all.len() == 2).count(), 16);
}

/// Of the messages that wait for no data, as many begin at once as may be outstanding; the next one waits for the first.
#[test]
fn few_chunks_are_outstanding() {
    let mut tree = collective(Operation::AllReduce, Algorithm::DoubleTree, 40_000);
    (tree.chunk_bytes, tree.outstanding_chunks) = (Some(1_000), 3);
    let work = Pattern::Collective(tree).work(&site(8), 1).expect("it fits");
    let mut leaves = 0;
    for host in (0..8).map(HostId) {
        let sends = work.tasks(host).iter().filter(|task| matches!(task.op, Op::Send { .. }));
        let free = sends.filter(|task| task.needs == 0).count();
        assert!(free == 0 || free == 3, "{host:?} begins with {free}");
        leaves += usize::from(free == 3);
    }
    assert_eq!(leaves, 8, "everyone is a leaf of one tree");
}
