//! Where a switch of a dragonfly sends packets, by arithmetic.

use crate::hop::Hop;

/// A switch of a dragonfly. Its links are those to its hosts, those to the other switches of its group by their places, and
/// those to other groups.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DragonflySwitch {
    groups: u32,
    switches: u32,
    hosts: u32,
    global_links: u32,
    /// Where it is: its group, and its place there.
    group: u32,
    place: u32,
}

/// The way of a packet between two groups: through which group, and over which of the parallel links to it and from it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Leap {
    /// None between them: straight.
    by: Option<u32>,
    lane: u32,
}

impl DragonflySwitch {
    /// The switch of this number among all, where there are so many groups, switches of a group, hosts of a switch and
    /// links of a switch to other groups.
    pub(super) fn new([groups, switches, hosts, global_links]: [u32; 4], number: u32) -> Self {
        let (group, place) = (number / switches, number % switches);
        DragonflySwitch { groups, switches, hosts, global_links, group, place }
    }

    /// The first of the hosts nearby.
    pub(super) fn first_host(&self) -> u32 {
        (self.group * self.switches + self.place) * self.hosts
    }

    /// It is the switch of a host.
    pub(super) fn has(&self, host: u32) -> bool {
        (self.group, self.place) == self.of_host(host)
    }

    /// The switch of a host: its group, and its place there.
    fn of_host(&self, host: u32) -> (u32, u32) {
        let switch = host / self.hosts;
        (switch / self.switches, switch % self.switches)
    }

    /// Parallel links between two groups.
    fn lanes(&self) -> u32 {
        self.switches * self.global_links / (self.groups - 1)
    }

    /// The switch, counted from the first of all, at the other end of a link between groups.
    pub(super) fn across(&self, global: u32) -> u32 {
        let lanes = self.lanes();
        let number = self.place * self.global_links + global;
        let group = skipping(self.group, number / lanes);
        // The other group counts its links in the same way.
        let back = order(group, self.group) * lanes + number % lanes;
        group * self.switches + back / self.global_links
    }

    /// Ways from one host to another: the straight ones come first, then those by each other switch of the group, or by each
    /// other group.
    pub(super) fn choices(&self, from: u32, to: u32) -> u32 {
        let ((from_group, from_place), (group, place)) = (self.of_host(from), self.of_host(to));
        match () {
            () if from_group != group => self.lanes() * (self.groups - 1),
            () if from_place != place => self.switches - 1,
            () => 1,
        }
    }

    /// The link for a packet. `pick` chooses one of so many ways, and chooses the same at every switch.
    pub(super) fn link(&self, hop: &Hop, pick: impl FnOnce(u32) -> u32) -> u32 {
        let (from, to) = (hop.from.0, hop.to.0);
        let ((from_group, from_place), (group, place)) = (self.of_host(from), self.of_host(to));
        if self.group == group {
            if self.place == place {
                return to % self.hosts;
            }
            let chosen = if self.has(from) { pick(self.switches - 1) } else { 0 };
            return self.local(match chosen.checked_sub(1) {
                None => place,
                Some(by) => other_than(from_place, place, by),
            });
        }
        let leap = self.leap(from_group, group, pick(self.choices(from, to)));
        let next = leap.by.filter(|_| self.group == from_group).unwrap_or(group);
        let number = order(self.group, next) * self.lanes() + leap.lane;
        match number / self.global_links {
            gate if gate == self.place => {
                self.hosts + self.switches - 1 + number % self.global_links
            }
            gate => self.local(gate),
        }
    }

    fn leap(&self, from: u32, to: u32, chosen: u32) -> Leap {
        let lanes = self.lanes();
        let by = (chosen / lanes).checked_sub(1).map(|by| other_than(from, to, by));
        Leap { by, lane: chosen % lanes }
    }

    /// The link to another switch of the group.
    fn local(&self, place: u32) -> u32 {
        self.hosts + order(self.place, place)
    }
}

/// The place of `other` among all but `this`.
fn order(this: u32, other: u32) -> u32 {
    other - u32::from(other > this)
}

/// Which has this place among all but `this`.
fn skipping(this: u32, place: u32) -> u32 {
    place + u32::from(place >= this)
}

/// Which has this place among all but two.
fn other_than(one: u32, two: u32, place: u32) -> u32 {
    let (low, high) = (one.min(two), one.max(two));
    skipping(high, skipping(low, place))
}
