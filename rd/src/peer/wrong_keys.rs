//! Wrong keys of peers (protocol.md §9.7): an address that tries many is answered ever more slowly.
//!
//! What is slow is the refusals alone. But a right key shows at once, so trying many at the same time would still
//! be fast: an address to which too many refusals are due waits with its next key that has not proven right.

use super::Peer;
use super::rx::Rx;
use super::tx::TxRecord;
use crate::host::Host;
use crate::peer::Core;
use crate::units::{MILLISECOND, Nanos, SECOND};
use crate::wire::remote::{Answer, Targets};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv6Addr};

/// Wrong keys of an address that are answered at once.
const FREE: u32 = 16;
/// Pause before the next one's answer; it doubles with each.
const FIRST_PAUSE_NS: Nanos = MILLISECOND;
/// The longest pause is the first one doubled so often: 1.024 s.
const DOUBLINGS: u32 = 10;
/// With so many pauses ahead, an address tries no more keys.
const PAUSES_MAX: u64 = 16;
/// The table forgets an address that has used no wrong key for so long.
const FORGET_NS: Nanos = 600 * SECOND;
/// Addresses remembered; a newcomer takes over the place, and the count, of the one that has been quiet longest.
const ADDRESSES_MAX: usize = 256;
/// Keys remembered of a session because they were right.
const PROVEN_MAX: usize = 16;

/// What an address has tried.
#[derive(Clone, Copy, Debug, Default)]
struct Tries {
    count: u32,
    last_at: Nanos,
    /// When the last of its refusals goes out.
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

/// Who has one IPv6 address has all of its subnet.
fn network(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(_) => ip,
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() & (u128::MAX << 64)).into(),
    }
}

impl WrongKeys {
    /// A peer at this address has used a wrong key. When it is to hear of it, which may be now.
    fn note(&mut self, ip: IpAddr, now: Nanos) -> Nanos {
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

    /// What a newcomer begins with: nothing, or in a full table what another has tried, so that many
    /// addresses are of no use.
    fn room(&mut self) -> Tries {
        let quietest = self.by_address.iter().min_by_key(|(_, tries)| tries.last_at);
        match quietest.map(|(ip, _)| *ip) {
            Some(ip) if self.by_address.len() >= ADDRESSES_MAX => {
                self.by_address.remove(&ip).unwrap_or_default()
            }
            _ => Tries::default(),
        }
    }

    /// When peers at this address may try the next key, unless that is now.
    fn opens_at(&self, ip: IpAddr, now: Nanos) -> Option<Nanos> {
        let tries = self.by_address.get(&network(ip))?;
        let at = tries.due_at.saturating_sub(PAUSES_MAX * tries.pause_ns());
        (at > now).then_some(at)
    }
}

/// What a session has to do with keys.
#[derive(Debug, Default)]
pub(super) struct Keys {
    /// The last [`PROVEN_MAX`] that were right.
    proven: Vec<u64>,
    /// Where the next one goes.
    next: usize,
    /// Refusals and when they go out, in order; bounded by the order window, as their orders are not granted
    /// again before, and by [`PAUSES_MAX`].
    refusals: VecDeque<(Nanos, Answer)>,
    /// A request waits until its key may be tried.
    opens_at: Option<Nanos>,
}

impl Rx {
    /// A request with these keys was met.
    pub(super) fn prove(&mut self, targets: &Targets) {
        for target in targets.as_slice() {
            let keys = self.keys.get_or_insert_with(Box::default);
            if keys.proven.contains(&target.key) {
                continue;
            }
            match keys.proven.len() < PROVEN_MAX {
                true => keys.proven.push(target.key),
                false => keys.proven[keys.next] = target.key,
            }
            keys.next = (keys.next + 1) % PROVEN_MAX;
        }
    }

    /// When something of this is due; `Nanos::MAX` for never.
    pub(super) fn keys_wake(&self) -> Nanos {
        let Some(keys) = &self.keys else { return Nanos::MAX };
        let refusal = keys.refusals.front().map(|(at, _)| *at);
        [refusal, keys.opens_at].into_iter().flatten().fold(Nanos::MAX, Nanos::min)
    }
}

impl Peer {
    /// Whether a request must wait because its address has tried too many keys.
    pub(super) fn keys_must_wait(&mut self, core: &Core, targets: &Targets) -> bool {
        let Some(opens_at) = core.wrong_keys.opens_at(self.name.ip(), core.now) else {
            return false;
        };
        let keys = self.rx.keys.get_or_insert_with(Box::default);
        if targets.as_slice().iter().all(|target| keys.proven.contains(&target.key)) {
            return false;
        }
        keys.opens_at = Some(opens_at);
        true
    }

    /// A key was wrong, which nobody is told before its time. Gives the answer back if that is now.
    pub(super) fn delay_refusal(&mut self, core: &mut Core, answer: Answer) -> Option<Answer> {
        let due_at = core.wrong_keys.note(self.name.ip(), core.now);
        if due_at <= core.now {
            return Some(answer);
        }
        let keys = self.rx.keys.get_or_insert_with(Box::default);
        keys.refusals.push_back((due_at, answer));
        None
    }

    /// Sends the refusals that are due, and goes on where a request waited.
    pub(super) fn run_keys<H: Host>(&mut self, core: &mut Core, host: &mut H, now: Nanos) {
        let Some(keys) = &mut self.rx.keys else { return };
        while let Some((_, answer)) = keys.refusals.pop_front_if(|(at, _)| *at <= now) {
            self.tx.control.push_back(TxRecord::Refused { answer, is_first: true });
        }
        if keys.opens_at.take_if(|at| *at <= now).is_some() {
            self.deliver_early(core, host);
        }
    }
}
