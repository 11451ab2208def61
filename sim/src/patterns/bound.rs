//! How fast a network could do work at best. It has three limits: what leaves a host and what reaches it takes time on the
//! host's link, what leaves a part of a tree and what reaches it takes time on all the links there together, and a task
//! cannot begin before those that it waits for are done. A mean completion time below the bound is a bug of the simulator.

use super::site::HostLink;
use crate::fabric::clos::Cut;
use crate::ids::HostId;
use crate::time::{PS_PER_S, Picos};
use crate::work::{Flow, Op, Work};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The least times of work. Streams, which never end, are left out: their least time is 0.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Bound {
    /// Least completion time of each message, from its beginning until the receiver has all of it.
    pub flows_ps: Vec<Picos>,
    /// Least mean of the completion times. Messages that start at a time known beforehand compete for the links; of others
    /// only their own least times count.
    pub mean_ps: Picos,
    /// Earliest time at which the last message has arrived. What is computed after that does not count.
    pub whole_ps: Picos,
}

/// A message, as the bound sees it.
#[derive(Clone, Copy, Default)]
struct Item {
    /// Earliest beginning.
    begins: Picos,
    /// Time that its packets take on a host's link.
    sending: Picos,
    /// Least time from the end of sending a packet until it has arrived.
    rest: Picos,
}

impl Bound {
    /// The bound of work over links of hosts. `lone_ps` tells how long a packet of so many bytes on the wire takes from one
    /// host to another when nothing else is there, sending included.
    ///
    /// # Panics
    /// Tasks wait for each other.
    #[must_use]
    pub fn of(
        work: &Work,
        link: &HostLink,
        lone_ps: impl Fn(HostId, HostId, u32) -> Picos,
    ) -> Bound {
        Bound::within(work, link, &[], lone_ps)
    }

    /// The same where a tree narrows.
    ///
    /// # Panics
    /// As [`Bound::of`].
    #[must_use]
    pub fn within(
        work: &Work,
        link: &HostLink,
        cuts: &[Cut],
        lone_ps: impl Fn(HostId, HostId, u32) -> Picos,
    ) -> Bound {
        let mut items: Vec<Item> =
            work.flows().iter().map(|flow| item(flow, link, &lone_ps)).collect();
        earliest(work, &mut items);
        let last_arrival = items.iter().map(|item| item.begins + item.sending + item.rest).max();
        let flows = work.flows().iter().zip(&items);
        let [leaving, arriving] = [false, true].map(|arrives| {
            let mut hosts: Vec<Vec<(Item, bool)>> = vec![Vec::new(); work.hosts() as usize];
            for (flow, item) in flows.clone().filter(|(flow, _)| flow.bytes > 0) {
                let host = if arrives { flow.to } else { flow.from };
                let task = &work.tasks(flow.from)[flow.send.0 as usize];
                hosts[host.0 as usize].push((*item, task.needs == 0));
            }
            hosts.iter().map(|items| one_link(items, arrives)).collect::<Vec<_>>()
        });
        let sum = |ends: &[Ends]| ends.iter().map(|ends| ends.completions).sum::<u128>();
        let count = work.flows().iter().filter(|flow| flow.bytes > 0).count().max(1) as u128;
        let busy = leaving.iter().chain(&arriving).map(|ends| ends.last);
        let mut whole_ps = busy.max().max(last_arrival).unwrap_or(0);
        let mut completions = sum(&leaving).max(sum(&arriving));
        for cut in cuts {
            for arrives in [false, true] {
                let ends = through(cut, arrives, work, link, &items);
                completions = completions.max(ends.completions);
                whole_ps = whole_ps.max(ends.last);
            }
        }
        Bound {
            flows_ps: items.iter().map(|item| item.sending + item.rest).collect(),
            mean_ps: (completions / count) as Picos,
            whole_ps,
        }
    }
}

fn item(flow: &Flow, link: &HostLink, lone_ps: impl Fn(HostId, HostId, u32) -> Picos) -> Item {
    if flow.bytes == 0 {
        return Item::default();
    }
    // Whichever packet is last: none is shorter than this one.
    let wire_bytes = link.last_wire_bytes(flow.bytes);
    let rest = lone_ps(flow.from, flow.to, wire_bytes).saturating_sub(link.packet_ps(wire_bytes));
    Item { begins: 0, sending: link.sending_ps(flow.bytes), rest }
}

/// Enters the earliest beginnings, with links that take everything at once.
fn earliest(work: &Work, items: &mut [Item]) {
    let order = work.in_order().expect("no task waits for itself");
    let mut begins: Vec<Vec<Picos>> = (0..work.hosts())
        .map(|host| work.tasks(HostId(host)).iter().map(|task| task.not_before).collect())
        .collect();
    for (host, id) in order {
        let task = &work.tasks(host)[id.0 as usize];
        let began = begins[host.0 as usize][id.0 as usize];
        let done = match task.op {
            Op::Send { flow, .. } => {
                let item = &mut items[flow.0 as usize];
                item.begins = began;
                began + item.sending + item.rest
            }
            Op::Receive { flow } => {
                let Item { begins, sending, rest } = items[flow.0 as usize];
                began.max(begins + sending + rest)
            }
            Op::Compute { time_ps, .. } => began + time_ps,
            Op::Stream { .. } | Op::Sink { .. } => continue,
        };
        for then in &task.then {
            let begins = &mut begins[host.0 as usize][then.0 as usize];
            *begins = done.max(*begins);
        }
    }
}

/// What is known of the messages over one link.
struct Ends {
    /// Least sum of their completion times.
    completions: u128,
    /// Earliest arrival of the last one.
    last: Picos,
}

/// The messages of one host's link, each with whether its beginning is known beforehand. The message with the least left to
/// send goes first: no order gives a smaller sum.
fn one_link(items: &[(Item, bool)], arrives: bool) -> Ends {
    // A message occupies the link from its beginning on, or from when its first packet can be there.
    let release = |item: &Item| item.begins + if arrives { item.rest } else { 0 };
    let after = |item: &Item| if arrives { 0 } else { item.rest };
    let mut all: Vec<Item> = items.iter().map(|(item, _)| *item).collect();
    all.sort_by_key(release);
    let mut busy_until = 0;
    for item in &all {
        busy_until = release(item).max(busy_until) + item.sending;
    }
    let least_after = all.iter().map(after).min().unwrap_or(0);
    let mut known: Vec<Item> =
        items.iter().filter(|(_, known)| *known).map(|(item, _)| *item).collect();
    known.sort_by_key(release);
    let others = items.iter().filter(|(_, known)| !known);
    let others: u128 = others.map(|(item, _)| u128::from(item.sending + item.rest)).sum();
    let ends = shortest_first(&known, release);
    let completions = known.iter().zip(ends).map(|(item, end)| end + after(item) - item.begins);
    Ends {
        completions: others + completions.map(u128::from).sum::<u128>(),
        last: if all.is_empty() { 0 } else { busy_until + least_after },
    }
}

/// All messages, where those that leave a group of hosts, or reach one, share its links. They could use all of them at once:
/// no network is better.
fn through(cut: &Cut, arrives: bool, work: &Work, link: &HostLink, items: &[Item]) -> Ends {
    let rate = if arrives { cut.arriving_bytes_per_s } else { cut.leaving_bytes_per_s };
    let groups = work.hosts().div_ceil(cut.hosts) as usize;
    let mut crossing: Vec<Vec<(Item, bool)>> = vec![Vec::new(); groups];
    let (mut least, mut more) = (vec![0; groups], vec![0; groups]);
    let mut completions = 0;
    for (flow, item) in work.flows().iter().zip(items).filter(|(flow, _)| flow.bytes > 0) {
        let [from, to] = [flow.from, flow.to].map(|host| (host.0 / cut.hosts) as usize);
        let alone = item.sending + item.rest;
        if from == to {
            completions += u128::from(alone);
            continue;
        }
        let group = if arrives { to } else { from };
        let wire_bytes = u128::from(link.wire_bytes(flow.bytes)) * u128::from(PS_PER_S);
        let sending = (wire_bytes / u128::from(rate.max(1))) as Picos;
        let is_known = work.tasks(flow.from)[flow.send.0 as usize].needs == 0;
        crossing[group].push((Item { sending, rest: 0, ..*item }, is_known));
        least[group] += u128::from(alone);
        // Those that wait for others count with what they take alone.
        if !is_known {
            more[group] += u128::from(alone.saturating_sub(sending));
        }
    }
    let mut last = 0;
    for (items, (least, more)) in crossing.iter().zip(least.into_iter().zip(more)) {
        let ends = one_link(items, false);
        completions += (ends.completions + more).max(least);
        last = ends.last.max(last);
    }
    Ends { completions, last }
}

/// When each of the messages, which are in the order of their releases, has been sent if always the one goes that has least
/// left.
fn shortest_first(items: &[Item], release: impl Fn(&Item) -> Picos) -> Vec<Picos> {
    let mut ends = vec![0; items.len()];
    let mut left = BinaryHeap::new();
    let (mut now, mut next) = (0, 0);
    loop {
        if left.is_empty() {
            let Some(item) = items.get(next) else { return ends };
            now = release(item).max(now);
        }
        while let Some(item) = items.get(next).filter(|item| release(item) <= now) {
            left.push(Reverse((item.sending, next)));
            next += 1;
        }
        let Some(Reverse((sending, at))) = left.pop() else { continue };
        let until = items.get(next).map_or(Picos::MAX, &release);
        let time = sending.min(until - now);
        now += time;
        if time == sending {
            ends[at] = now;
        } else {
            left.push(Reverse((sending - time, at)));
        }
    }
}
