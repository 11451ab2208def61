//! Greetings (§3.2).

use super::Error;
use super::bytes::Bytes;
use std::net::SocketAddr;

/// The body of a hello and of a welcome.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Greeting {
    /// Features, by their bits.
    pub features: u32,
    /// The writer's session id.
    pub session: u64,
    /// The writer's asker id.
    pub asker: u64,
    /// The writer's epoch.
    pub epoch: u64,
    /// Incarnation.
    pub incarnation: u32,
    /// The writer's first PSN.
    pub first_psn: u32,
    /// The writer's first send order.
    pub first_order: u32,
    /// The largest datagram that the writer receives.
    pub largest_datagram: u16,
    /// Paths.
    pub paths: u16,
    /// The policy of acknowledgements (§6.1), and its *n*.
    pub policy: [u8; 2],
    /// Window, in bytes.
    pub window: u32,
    /// Eager credit, in bytes.
    pub eager_credit: u32,
    /// Send orders that the writer takes.
    pub order_window: u32,
    /// Packets that the writer's bitmap spans.
    pub psn_window: u32,
    /// Echoed send time.
    pub echoed: u32,
    /// Cookie, 0 without one.
    pub cookie: u64,
    /// The reader's id that the writer gave up, or 0.
    pub given_up: u64,
    /// With a key: random bytes (§11.1).
    pub random: Option<[u8; 16]>,
    /// The writer's name.
    pub name: SocketAddr,
}

impl Greeting {
    pub(super) fn read(b: &mut Bytes<'_>, keyed: bool) -> Result<Greeting, Error> {
        Ok(Greeting {
            features: b.u32()?,
            session: b.u64()?,
            asker: b.u64()?,
            epoch: b.u64()?,
            incarnation: b.u32()?,
            first_psn: b.u32()?,
            first_order: b.u32()?,
            largest_datagram: b.u16()?,
            paths: b.u16()?,
            policy: b.array()?,
            window: b.u32()?,
            eager_credit: b.u32()?,
            order_window: b.u32()?,
            psn_window: b.u32()?,
            echoed: b.u32()?,
            cookie: b.u64()?,
            given_up: b.u64()?,
            random: keyed.then(|| b.array()).transpose()?,
            name: b.name()?,
        })
    }
}
