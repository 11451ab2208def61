//! Routing around dead links, as BGP over a tree does: a switch takes a dead link of its own out of the groups that it
//! chooses from, and later all switches take out the links to those that have no way left to a receiver. Packets make no
//! detour over longer ways: a switch that has no way left loses them.

use super::blueprint::{Blueprint, NodeId, Rerouting};
use crate::ids::{HostId, LinkId};
use crate::mutants::{Mutant, mutant};
use crate::time::Picos;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// The groups that differ from the network's own.
#[derive(Debug)]
pub(super) struct Detours {
    /// For each host the number of its switch among those that have hosts.
    leaf_of: Arc<[u32]>,
    /// For each switch, if some of its groups differ: for each switch with hosts the place in `groups`, or [`SAME`].
    by_switch: Vec<Option<Box<[u32]>>>,
    /// Links, counted from their switch's first one. Those that are equal are kept once.
    groups: Vec<Box<[u32]>>,
}

/// A group that is the network's own.
const SAME: u32 = u32::MAX;

impl Detours {
    /// The links to choose from at a switch, if they differ from the network's own. There may be none.
    pub(super) fn group(&self, switch: u32, to: HostId) -> Option<&[u32]> {
        let groups = self.by_switch[switch as usize].as_ref()?;
        let group = groups[self.leaf_of[to.0 as usize] as usize];
        (group != SAME).then(|| &*self.groups[group as usize])
    }
}

/// What the switches know of dead links.
#[derive(Debug)]
pub(super) struct Routing {
    times: Rerouting,
    leaf_of: Arc<[u32]>,
    /// For each switch with hosts: its number, and one of its hosts.
    leaves: Vec<(u32, HostId)>,
    /// Dead links, in truth.
    dead: BTreeSet<u32>,
    /// Those that the switches know where they begin, and those that all others know.
    near: BTreeSet<u32>,
    far: BTreeSet<u32>,
    /// What they learn, by time: at most two entries for each change of a link.
    due: BTreeMap<Picos, Vec<News>>,
}

/// A link died or came back.
#[derive(Clone, Copy, Debug)]
struct News {
    link: u32,
    dead: bool,
    /// It is known where the link begins; otherwise everywhere else.
    near: bool,
}

impl Routing {
    /// Of a network whose switches reroute, and choose between links themselves.
    pub(super) fn new(plan: &Blueprint) -> Option<Routing> {
        let times = plan.rerouting()?;
        let mut leaves = Vec::new();
        let mut numbers = HashMap::new();
        let leaf_of = (0..plan.hosts()).map(|host| {
            let link = plan.links_of(NodeId(host)).start;
            let switch = plan.links()[link as usize].to.0 - plan.hosts();
            *numbers.entry(switch).or_insert_with(|| {
                leaves.push((switch, HostId(host)));
                leaves.len() as u32 - 1
            })
        });
        let leaf_of = leaf_of.collect();
        let (dead, near, far) = Default::default();
        Some(Routing { times, leaf_of, leaves, dead, near, far, due: BTreeMap::new() })
    }

    /// A link died or came back, or neither.
    pub(super) fn note(&mut self, now: Picos, link: LinkId, dead: bool) {
        let changed = if dead { self.dead.insert(link.0) } else { self.dead.remove(&link.0) };
        if changed {
            for (after, near) in [(self.times.near_ps, true), (self.times.far_ps, false)] {
                let news = News { link: link.0, dead, near };
                self.due.entry(now + after).or_default().push(news);
            }
        }
    }

    /// When switches learn something next.
    pub(super) fn next_at(&self) -> Option<Picos> {
        self.due.keys().next().copied()
    }

    /// They learn what is due. Returns the groups that then differ, if there are any.
    pub(super) fn learn(&mut self, plan: &Blueprint, now: Picos) -> Option<Arc<Detours>> {
        while let Some(entry) = self.due.first_entry().filter(|entry| *entry.key() <= now) {
            for News { link, dead, near } in entry.remove() {
                let known = if near { &mut self.near } else { &mut self.far };
                if dead {
                    known.insert(link);
                } else if !mutant(Mutant::ForgetsRecoveries) {
                    known.remove(&link);
                }
            }
        }
        if self.near.is_empty() && self.far.is_empty() {
            return None;
        }
        Some(Arc::new(self.detours(plan)))
    }

    fn detours(&self, plan: &Blueprint) -> Detours {
        let switches = plan.switches().len();
        let mut by_switch: Vec<Option<Box<[u32]>>> = vec![None; switches];
        let mut places: HashMap<Box<[u32]>, u32> = HashMap::new();
        let mut groups = Vec::new();
        for (leaf, (last, host)) in self.leaves.iter().enumerate() {
            let reaches = self.reaches(plan, *last, *host);
            for switch in (0..switches as u32).filter(|switch| switch != last) {
                let first = plan.links_of(NodeId(plan.hosts() + switch)).start;
                let is_left = |link: &u32| {
                    let link = first + link;
                    let next = plan.links()[link as usize].to.0.checked_sub(plan.hosts());
                    !self.near.contains(&link)
                        && next.is_some_and(|next| {
                            reaches[next as usize] == Reachable::Yes
                                || mutant(Mutant::LeadsIntoDeadEnds)
                        })
                };
                let group = plan.switches()[switch as usize].group(*host);
                let left: Box<[u32]> = group.clone().filter(is_left).collect();
                if left.len() == group.count() {
                    continue;
                }
                let place = *places.entry(left).or_insert_with_key(|left| {
                    groups.push(left.clone());
                    groups.len() as u32 - 1
                });
                let same = || vec![SAME; self.leaves.len()].into();
                by_switch[switch as usize].get_or_insert_with(same)[leaf] = place;
            }
        }
        Detours { leaf_of: Arc::clone(&self.leaf_of), by_switch, groups }
    }

    /// Which switches have a way left to the last one before a host, as far as all know.
    fn reaches(&self, plan: &Blueprint, last: u32, host: HostId) -> Vec<Reachable> {
        let known = if self.far.is_empty() { Reachable::Yes } else { Reachable::Unknown };
        let mut reaches = vec![known; plan.switches().len()];
        reaches[last as usize] = Reachable::Yes;
        for start in 0..plan.switches().len() as u32 {
            // Switches on one way: each is looked at again when all those after it are known.
            let mut open = vec![start];
            while let Some(&switch) = open.last() {
                if reaches[switch as usize] != Reachable::Unknown {
                    open.pop();
                    continue;
                }
                let first = plan.links_of(NodeId(plan.hosts() + switch)).start;
                let group = plan.switches()[switch as usize].group(host);
                let alive = group.filter(|link| !self.far.contains(&(first + link)));
                let next = alive.filter_map(|link| {
                    plan.links()[(first + link) as usize].to.0.checked_sub(plan.hosts())
                });
                let mut reach = Reachable::No;
                for next in next {
                    match reaches[next as usize] {
                        Reachable::Unknown => {
                            open.push(next);
                            reach = Reachable::Unknown;
                            break;
                        }
                        Reachable::Yes => reach = Reachable::Yes,
                        Reachable::No => {}
                    }
                }
                reaches[switch as usize] = reach;
            }
        }
        reaches
    }
}

/// Whether a switch has a way left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Reachable {
    Unknown,
    Yes,
    No,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::clos::Clos;
    use crate::hop::Hop;
    use crate::link::LinkConfig;
    use std::collections::HashSet;

    /// 24 hosts below 12 leaves in 3 pods, with two switches in the middle of each pod and four at the top.
    fn tree() -> Blueprint {
        let tree = Clos::of(LinkConfig::delay(1_000), &[(2, 2), (4, 2), (3, 0)], 3);
        let plan = tree.build().expect("a tree");
        plan.with_rerouting(Rerouting { near_ps: 10, far_ps: 1_000 })
    }

    /// What the switches know of these dead links at a time after they died.
    fn detours(plan: &Blueprint, dead: &[u32], now: Picos) -> Option<Arc<Detours>> {
        let mut routing = Routing::new(plan).expect("it reroutes");
        dead.iter().for_each(|link| routing.note(0, LinkId(*link), true));
        routing.learn(plan, now)
    }

    /// The links of a packet, up to its receiver or to where no link is left.
    fn way(plan: &Blueprint, detours: &Detours, hop: &Hop) -> (Vec<u32>, bool) {
        let mut way = vec![plan.links_of(NodeId(hop.from.0)).start];
        loop {
            let node = plan.links()[way[way.len() - 1] as usize].to;
            let Some(switch) = node.0.checked_sub(plan.hosts()) else { return (way, true) };
            let plan_of = &plan.switches()[switch as usize];
            let link = match detours.group(switch, hop.to) {
                Some([]) => return (way, false),
                Some(group) => group[plan_of.spread.pick(group.len() as u32, hop) as usize],
                None => plan_of.route(hop),
            };
            way.push(plan.links_of(node).start + link);
        }
    }

    /// Sender and receiver, and the links between them; `None` where the way ends.
    type Way = ((u32, u32), Option<Vec<u32>>);

    /// All ways between all hosts by 16 path numbers.
    fn ways(plan: &Blueprint, detours: &Detours) -> Vec<Way> {
        let mut ways = Vec::new();
        for from in 0..plan.hosts() {
            for to in (0..plan.hosts()).filter(|to| *to != from) {
                for path in 0..16 {
                    let hop = Hop { path, ..Hop::probe(HostId(from), HostId(to), 100) };
                    let (way, arrives) = way(plan, detours, &hop);
                    ways.push(((from, to), arrives.then_some(way)));
                }
            }
        }
        ways
    }

    fn up_of(plan: &Blueprint, switch: u32, link: u32) -> u32 {
        plan.links_of(NodeId(plan.hosts() + switch)).start + link
    }

    fn back_of(plan: &Blueprint, link: u32) -> u32 {
        let there = &plan.links()[link as usize];
        let mut back = plan.links_of(there.to);
        back.find(|back| plan.links()[*back as usize].to == there.from).expect("both directions")
    }

    #[test]
    fn all_switches_avoid_dead_links_once_they_know() {
        let plan = tree();
        // From the first leaf to a middle switch, and from a middle switch of the last pod to the top.
        let up = [up_of(&plan, 0, 2), up_of(&plan, 12 + 5, 4)];
        let dead = [up[0], back_of(&plan, up[0]), up[1], back_of(&plan, up[1])];
        assert!(detours(&plan, &dead, 9).is_none(), "nobody knows yet");
        let detours = detours(&plan, &dead, 1_000).expect("links are dead");
        let mut pairs = HashSet::new();
        for ((from, to), way) in ways(&plan, &detours) {
            let way = way.expect("every host can be reached");
            assert!(way.iter().all(|link| !dead.contains(link)), "{from} to {to}: {way:?}");
            let straight = plan.way(&Hop::probe(HostId(from), HostId(to), 100));
            assert_eq!(way.len(), straight.len(), "no way is longer");
            if plan.links()[way[way.len() - 2] as usize].from.0 == plan.hosts() + 12 {
                pairs.insert((from, to));
            }
        }
        assert!(
            pairs.iter().all(|(_, to)| *to >= 2),
            "no way to the first leaf by the middle switch"
        );
        assert!(pairs.iter().any(|(from, _)| *from >= 8), "others still use it");
    }

    #[test]
    fn before_the_news_spread_only_the_switches_at_the_links_avoid_them() {
        let plan = tree();
        let up = up_of(&plan, 0, 2);
        let dead = [up, back_of(&plan, up)];
        let detours = detours(&plan, &dead, 10).expect("links are dead");
        let ways = ways(&plan, &detours);
        let ends = |(pair, way): &Way| way.is_none().then_some(*pair);
        let ended: HashSet<(u32, u32)> = ways.iter().filter_map(ends).collect();
        assert!(!ended.is_empty() && ended.iter().all(|(_, to)| *to < 2), "{ended:?}");
        let uses = |link: u32| ways.iter().flat_map(|(_, way)| way).any(|way| way.contains(&link));
        assert!(!uses(dead[0]) && !uses(dead[1]));
    }

    #[test]
    fn links_that_come_back_are_used_again() {
        let plan = tree();
        let mut routing = Routing::new(&plan).expect("it reroutes");
        let link = LinkId(up_of(&plan, 0, 2));
        routing.note(0, link, true);
        routing.note(5, link, true);
        routing.note(500, link, false);
        let mut times = Vec::new();
        while let Some(at) = routing.next_at() {
            times.push((at, routing.learn(&plan, at).is_some()));
        }
        // At 1000 the others learn that it died, while the switch itself has it back.
        assert_eq!(times, [(10, true), (510, false), (1_000, true), (1_500, false)]);
    }
}
