//! Wrong keys of peers (protocol.md §9.7): the endpoint answers an address that tries many ever more slowly.
//!
//! Only refusals are slow. A right key shows at once, so trying many at the same time would still be fast. So an
//! address with too many refusals due must wait before its next unproven key.

use crate::units::{MILLISECOND, Nanos, SECOND};
use crate::wire::remote::{Answer, Targets};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv6Addr};

/// Wrong keys of an address that get an answer at once.
const FREE: u32 = 16;
/// Pause before the answer to the next one; it doubles with each.
const FIRST_PAUSE_NS: Nanos = MILLISECOND;
/// The longest pause is the first one doubled so often: 1.024 s.
const DOUBLINGS: u32 = 10;
/// With so many pauses ahead, an address may try no more keys.
const PAUSES_MAX: u64 = 16;
/// The table forgets an address that has used no wrong key for so long.
const FORGET_NS: Nanos = 600 * SECOND;
/// Most addresses kept; a newcomer takes over the place, and the count, of the one that has been quiet longest.
const ADDRESSES_MAX: usize = 256;
/// Most right keys kept of a session.
const PROVEN_MAX: usize = 16;

/// The tries of an address.
#[derive(Clone, Copy, Debug, Default)]
struct Tries {
    count: u32,
    last_at: Nanos,
    /// Time of its last refusal.
    due_at: Nanos,
}

impl Tries {
    fn pause_ns(self) -> Nanos {
        match self.count.checked_sub(FREE + 1) {
            None => 0,
            Some(beyond) => FIRST_PAUSE_NS << beyond.min(DOUBLINGS),
        }
    }
}

/// Wrong keys by address, over all sessions of an endpoint.
#[derive(Debug, Default)]
pub(crate) struct WrongKeys {
    by_address: BTreeMap<IpAddr, Tries>,
}

/// The network of an address: an owner of one IPv6 address has all of its /64.
fn network(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(_) => ip,
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() & (u128::MAX << 64)).into(),
    }
}

impl WrongKeys {
    /// Counts a wrong key of a peer at this address. Returns the time of its refusal, which may be now.
    pub(super) fn note(&mut self, ip: IpAddr, now: Nanos) -> Nanos {
        let ip = network(ip);
        let mut tries = self.by_address.remove(&ip).unwrap_or_else(|| self.room());
        if now >= tries.last_at + FORGET_NS {
            tries = Tries::default();
        }
        tries.count = tries.count.saturating_add(1);
        tries.last_at = now;
        tries.due_at = tries.due_at.max(now) + tries.pause_ns();
        self.by_address.insert(ip, tries);
        tries.due_at
    }

    /// The tries that a newcomer begins with: none, or in a full table those of another, so that many addresses are of
    /// no use.
    fn room(&mut self) -> Tries {
        let quietest = self.by_address.iter().min_by_key(|(_, tries)| tries.last_at);
        match quietest.map(|(ip, _)| *ip) {
            Some(ip) if self.by_address.len() >= ADDRESSES_MAX => {
                self.by_address.remove(&ip).unwrap_or_default()
            }
            _ => Tries::default(),
        }
    }

    /// Time at which peers at this address may try the next key, unless that is now.
    pub(super) fn opens_at(&self, ip: IpAddr, now: Nanos) -> Option<Nanos> {
        let tries = self.by_address.get(&network(ip))?;
        let at = tries.due_at.saturating_sub(PAUSES_MAX * tries.pause_ns());
        (at > now).then_some(at)
    }
}

/// Keys of a session.
#[derive(Debug, Default)]
pub(super) struct Keys {
    /// The last [`PROVEN_MAX`] that were right.
    proven: Vec<u64>,
    /// Place of the next one.
    next: usize,
    /// Refusals with their times, in order. Bounded by the order window, since their orders are granted again only
    /// later, and by [`PAUSES_MAX`].
    refusals: VecDeque<(Nanos, Answer)>,
    /// Time at which the waiting request may try its key.
    opens_at: Option<Nanos>,
}

impl Keys {
    /// Notes a met request with these keys.
    pub(super) fn prove(&mut self, targets: &Targets) {
        for target in targets.as_slice() {
            if self.proven.contains(&target.key) {
                continue;
            }
            match self.proven.len() < PROVEN_MAX {
                true => self.proven.push(target.key),
                false => self.proven[self.next] = target.key,
            }
            self.next = (self.next + 1) % PROVEN_MAX;
        }
    }

    /// True if all of these were right before. If not, their request waits until `opens_at`.
    pub(super) fn are_proven(&mut self, targets: &Targets, opens_at: Nanos) -> bool {
        let proven = targets.as_slice().iter().all(|target| self.proven.contains(&target.key));
        if !proven {
            self.opens_at = Some(opens_at);
        }
        proven
    }

    /// Queues a refusal for `due_at`.
    pub(super) fn delay(&mut self, due_at: Nanos, answer: Answer) {
        self.refusals.push_back((due_at, answer));
    }

    /// True if refusals wait for their time.
    pub(super) fn has_refusals(&self) -> bool {
        !self.refusals.is_empty()
    }

    /// Takes a refusal that is due.
    pub(super) fn take_refusal(&mut self, now: Nanos) -> Option<Answer> {
        self.refusals.pop_front_if(|(at, _)| *at <= now).map(|(_, answer)| answer)
    }

    /// True, once, when the waiting request may go on.
    pub(super) fn opens(&mut self, now: Nanos) -> bool {
        self.opens_at.take_if(|at| *at <= now).is_some()
    }

    /// Time at which one of these is due; [`Nanos::MAX`] for never.
    pub(super) fn wake_at(&self) -> Nanos {
        let refusal = self.refusals.front().map(|(at, _)| *at);
        [refusal, self.opens_at].into_iter().flatten().fold(Nanos::MAX, Nanos::min)
    }
}
