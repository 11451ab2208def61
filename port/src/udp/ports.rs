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

    /// The ports, each once, from the `turn`th on.
    fn from(self, turn: u32) -> impl Iterator<Item = u16> {
        let (first, count) = (self.first.get(), u32::from(self.last.get() - self.first.get()) + 1);
        (0..count).map(move |nth| first + (turn.wrapping_add(nth) % count) as u16)
    }
}

/// Where this process goes on: its next socket likely finds the next port free.
static TURN: AtomicU32 = AtomicU32::new(0);

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
    // Processes that start together begin at different ports.
    let turn =
        std::process::id().wrapping_mul(61).wrapping_add(TURN.fetch_add(1, Ordering::Relaxed));
    let mut last = Err(PortError::Bind { addr, source: io::ErrorKind::AddrInUse.into() });
    for port in range.from(turn) {
        last = at(port);
        match &last {
            Err(PortError::Bind { source, .. }) if source.kind() == io::ErrorKind::AddrInUse => {}
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
        let last = PortRange::parse("65535-65535").expect("a range");
        assert_eq!(last.from(u32::MAX).collect::<Vec<_>>(), [65535]);
    }
}
