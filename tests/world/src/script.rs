//! Short worlds for scripted tests: few nodes, no random faults, every event explicit.

use super::app::{Class, HostLimits};
use super::ledger::{Outgoing, RecvState, Rules};
use super::net::{Fate, Links};
use super::node::{Habits, Setup};
use super::scheme::TestScheme;
use super::sim::World;
use erd_rd::cc::{AckPolicy, LossDetection};
use erd_rd::units::SECOND;
use erd_rd::wire::header::Header;
use erd_rd::{Config, Ecn, Nanos, OpError};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Time in which everything in a script ends, except operations that wait on purpose.
pub const PATIENCE_NS: Nanos = 30 * SECOND;

/// The default node of a script.
pub fn setup(node: u8) -> Setup {
    let name = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 1, 0, node + 1)), 7100);
    let mut config = Config::new(name, 1, crc32c::crc32c_append);
    config.peer_timeout_ns = SECOND;
    config.first_psn = Some(u32::MAX - 2);
    let limits = HostLimits {
        eager_credit_bytes: u64::from(config.eager_credit_bytes),
        unexpected_messages: u64::from(config.unexpected_messages),
        unexpected_bytes: config.unexpected_bytes,
        hold_refusal: 0.0,
        withdrawal: 0.0,
        datagram_limit_bytes: config.datagram_bytes,
        near: 0,
        near_limit_bytes: 0,
    };
    let scheme = TestScheme {
        window_bytes: 256 << 10,
        policy: AckPolicy::NackOnly,
        detection: LossDetection::Receiver,
        learns: false,
        pace: None,
        ecn: Ecn::NotEct,
        adaptive: false,
        link_share_bdps: 0.0,
    };
    Setup {
        config,
        scheme,
        limits,
        habits: Habits::default(),
        near: None,
        next_key: None,
        lanes: None,
    }
}

/// A world of `nodes` default nodes, each changed by `change`.
pub fn world(nodes: u8, rules: Rules, mut change: impl FnMut(&mut Setup)) -> World {
    let setups = (0..nodes).map(|node| {
        let mut setup = setup(node);
        change(&mut setup);
        setup.limits.eager_credit_bytes = u64::from(setup.config.eager_credit_bytes);
        setup.limits.unexpected_messages = u64::from(setup.config.unexpected_messages);
        setup.limits.unexpected_bytes = setup.config.unexpected_bytes;
        setup.limits.datagram_limit_bytes = setup.config.datagram_bytes;
        setup
    });
    World::new(1, setups.collect(), Links::default(), rules)
}

/// Rules under which nothing may fail.
pub const NO_FAILURE: Rules = Rules {
    timeouts: false,
    restarts: false,
    closes: false,
    blocked: false,
    lies: false,
    forged: false,
};

/// Rules under which every kind of failure is allowed; a script then names what it expects.
pub const ANY_FAILURE: Rules = Rules { timeouts: true, restarts: true, closes: true, ..NO_FAILURE };

/// An untagged message.
pub fn message(to: usize, len_bytes: u64) -> Outgoing {
    Outgoing { to, len_bytes, tag_class: None, data: true, match_complete: false }
}

impl World {
    /// Posts an untagged send; returns its number in the ledger.
    pub fn post(&mut self, from: usize, to: usize, len_bytes: u64) -> usize {
        let id = self.ledger.sends.len();
        self.send(from, &message(to, len_bytes));
        id
    }

    /// Posts an untagged receive from anyone.
    pub fn want(&mut self, node: usize, capacity_bytes: u64) -> usize {
        self.recv(node, None, Class::Untagged, capacity_bytes).expect("the node lives")
    }

    /// How a send ended, if it did.
    pub fn outcome(&self, send: usize) -> Option<Result<(), OpError>> {
        self.ledger.sends[send].ended.map(|(_, outcome)| outcome)
    }

    /// How a receive ended, if it did.
    pub fn result(&self, recv: usize) -> Option<Result<u64, OpError>> {
        match self.ledger.recvs[recv].state {
            RecvState::Done(outcome) => Some(outcome),
            RecvState::Posted | RecvState::Open => None,
        }
    }

    /// Loses the first `count` datagrams that `which` picks.
    pub fn lose(
        &mut self,
        mut count: u32,
        mut which: impl FnMut(usize, &Header) -> bool + 'static,
    ) {
        self.net.filter = Some(Box::new(move |datagram, header| {
            if count > 0 && which(datagram.from, header) {
                count -= 1;
                return Fate::Drop;
            }
            Fate::Pass
        }));
    }
}
