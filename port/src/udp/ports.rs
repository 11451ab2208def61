//! The ports of sockets that no one chose a port for.

use super::PortError;
use socket2::Socket;
use std::io;
use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::sync::atomic::{AtomicU32, Ordering};

/// A range of UDP ports, as a firewall lets through.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PortRange {
    first: NonZeroU16,
    last: NonZeroU16,
}

impl PortRange {
    /// Reads `20000-20999`. `None` if the text is no range of ports.
    #[must_use]
    pub fn parse(text: &str) -> Option<PortRange> {
        let (first, last) = text.split_once('-')?;
        let port = |text: &str| text.trim().parse::<NonZeroU16>().ok();
        let (first, last) = (port(first)?, port(last)?);
        (first <= last).then_some(PortRange { first, last })
    }

    /// First ports of rows of `count` in the range; rows do not overlap. Sockets in a row are bound to them by number.
    pub fn rows(self, count: u16) -> impl Iterator<Item = u16> {
        let (first, count) = (self.first.get(), u32::from(count.max(1)));
        let rows = (u32::from(self.last.get() - first) + 1) / count;
        let turn = turn();
        (0..rows).map(move |nth| first + (turn.wrapping_add(nth) % rows * count) as u16)
    }

    /// The ports, each once, from the `turn`th on.
    fn from(self, turn: u32) -> impl Iterator<Item = u16> {
        let (first, count) = (self.first.get(), u32::from(self.last.get() - self.first.get()) + 1);
        (0..count).map(move |nth| first + (turn.wrapping_add(nth) % count) as u16)
    }
}

/// Where this process goes on: its next socket likely finds the next port free.
static TURN: AtomicU32 = AtomicU32::new(0);

/// Processes that start together begin at different ports.
fn turn() -> u32 {
    std::process::id().wrapping_mul(61).wrapping_add(TURN.fetch_add(1, Ordering::Relaxed))
}

/// Binds to `addr`. If its port is 0, the port is one of the range, or the kernel's choice where there is none.
///
/// # Errors
/// [`PortError::Bind`]: the port, or every port of the range, is taken, or the address is not this host's.
pub(super) fn bind(
    socket: &Socket,
    addr: SocketAddr,
    range: Option<PortRange>,
) -> Result<(), PortError> {
    let at = |port| {
        let addr = SocketAddr::new(addr.ip(), port);
        socket.bind(&addr.into()).map_err(|source| PortError::Bind { addr, source })
    };
    let Some(range) = range.filter(|_| addr.port() == 0) else { return at(addr.port()) };
    let mut last = Err(PortError::Bind { addr, source: io::ErrorKind::AddrInUse.into() });
    for port in range.from(turn()) {
        last = at(port);
        match &last {
            // A range may begin below the ports that every user may have.
            Err(PortError::Bind { source, .. })
                if matches!(
                    source.kind(),
                    io::ErrorKind::AddrInUse | io::ErrorKind::PermissionDenied
                ) => {}
            _ => return last,
        }
    }
    last
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_two_ports_in_order() {
        for text in ["", "7", "0-9", "9-8", "1-65536", "a-b", "1-2-3"] {
            assert_eq!(PortRange::parse(text), None, "{text}");
        }
        let range = PortRange::parse("20000 - 20002").expect("a range");
        assert_eq!(range.from(4).collect::<Vec<_>>(), [20001, 20002, 20000]);
        let mut rows: Vec<u16> =
            PortRange::parse("20000-20009").expect("a range").rows(4).collect();
        rows.sort_unstable();
        assert_eq!(rows, [20000, 20004], "20008 has no row of four");
        assert_eq!(range.rows(4).count(), 0);
        let last = PortRange::parse("65535-65535").expect("a range");
        assert_eq!(last.from(u32::MAX).collect::<Vec<_>>(), [65535]);
    }
}
