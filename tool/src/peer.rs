//! The common part of `erd serve` and its clients: its address, and messages of a header and filling.

use anyhow::{Context as _, Result, bail};
use erd::verbs::{
    AddressHandle, ContextOptions, Device, Done, OwningQueuePair, ProtectionDomain, QpSizes,
};
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::time::{Duration, Instant};

/// The default port of `erd serve`.
pub const PORT: u16 = 7471;
/// Longest message that it takes.
pub const MESSAGE_BYTES_MAX: usize = 1 << 20;
/// Bytes of a header, and so of the shortest message.
pub const HEADER_BYTES: usize = 16;

const MAGIC: [u8; 4] = *b"erdt";
/// Time to poll before sleeping: an answer comes sooner, and a sleeper wakes late.
const POLLING: Duration = Duration::from_millis(2);

/// Kind of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Needs a [`Kind::Echo`] of the same length.
    Ping = 1,
    /// The answer.
    Echo = 2,
    /// To be counted.
    Data = 3,
    /// Asks how many bytes of data came from the asker.
    Ask = 4,
    /// The answer, which is its number.
    Count = 5,
}

/// The header of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub kind: Kind,
    pub number: u64,
}

impl Header {
    /// Writes it to the beginning of a message, if that is long enough.
    pub fn write(self, message: &mut [u8]) {
        let bytes = self.bytes();
        if let Some(head) = message.get_mut(..HEADER_BYTES) {
            head.copy_from_slice(&bytes);
        }
    }

    fn bytes(self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4] = self.kind as u8;
        bytes[8..].copy_from_slice(&self.number.to_le_bytes());
        bytes
    }

    /// A message of `len_bytes`, or of a header alone if that is longer.
    #[must_use]
    pub fn message(self, len_bytes: usize) -> Vec<u8> {
        let mut message = vec![0; len_bytes.max(HEADER_BYTES)];
        self.write(&mut message);
        message
    }

    /// `None` for foreign messages.
    #[must_use]
    pub fn read(message: &[u8]) -> Option<Header> {
        let (head, _) = message.split_first_chunk::<HEADER_BYTES>()?;
        if head[..4] != MAGIC {
            return None;
        }
        let kinds = [Kind::Ping, Kind::Echo, Kind::Data, Kind::Ask, Kind::Count];
        let kind = kinds.into_iter().find(|kind| *kind as u8 == head[4])?;
        let (_, number) = head.split_last_chunk::<8>()?;
        Some(Header { kind, number: u64::from_le_bytes(*number) })
    }
}

/// One end of a conversation.
pub struct Side {
    pub pd: ProtectionDomain,
    pub qp: OwningQueuePair,
    pub controller: &'static str,
    pub paths: u16,
}

impl Side {
    /// A queue pair on `device` for so many sends at a time, 0 for the default; port 0 takes a free one.
    ///
    /// # Errors
    /// A setting that is not valid, or a taken port.
    pub fn open(
        device: &Device,
        options: &ContextOptions,
        (port, max_send_wr): (u16, u32),
    ) -> Result<Side> {
        let context = device.open_with(options)?;
        let pd = context.alloc_pd();
        let sizes = QpSizes { port, max_send_wr, ..QpSizes::default() };
        let qp = OwningQueuePair::new(&context, &pd, sizes)?;
        Ok(Side { pd, qp, controller: context.controller(), paths: context.paths() })
    }

    /// Sends a message.
    ///
    /// # Errors
    /// The library's error, such as a full queue.
    pub fn send(&self, to: &AddressHandle, message: Vec<u8>) -> Result<()> {
        Ok(self.qp.send(0, to, message, None).map_err(|refused| refused.error)?)
    }

    /// Waits for a completion or the end of the time: it polls at first, like programs that need short latencies.
    ///
    /// # Errors
    /// The queue pair failed.
    pub fn done_within(&self, time: Duration) -> Result<Option<Done>> {
        let start = Instant::now();
        loop {
            let elapsed = start.elapsed();
            let found = match elapsed < POLLING {
                true => self.qp.poll()?,
                false => self.qp.wait(Some(time.saturating_sub(elapsed)))?,
            };
            if found.is_some() || elapsed >= time {
                return Ok(found);
            }
        }
    }
}

/// Error of a failed request, with the probable reason.
///
/// # Errors
/// It failed.
pub fn check(done: Done, server: SocketAddr) -> Result<Done> {
    if !done.completion.is_ok() {
        bail!("{server}: {}; does erd serve run there?", done.completion.reason());
    }
    Ok(done)
}

/// The address of a server: `host`, `host:port`, an address, or `[address]:port`.
///
/// # Errors
/// If the resolver knows none.
pub fn resolve(server: &str) -> Result<SocketAddr> {
    if let Ok(address) = server.parse() {
        return Ok(address);
    }
    if let Ok(ip) = server.trim_matches(['[', ']']).parse::<IpAddr>() {
        return Ok(SocketAddr::new(ip, PORT));
    }
    let (host, port) = match server.rsplit_once(':') {
        Some((host, port)) => (host, port.parse().with_context(|| format!("port of {server}"))?),
        None => (server, PORT),
    };
    let found = (host, port).to_socket_addrs().with_context(|| format!("looking up {host}"))?;
    // The resolver's first may be of the wrong family for the server; IPv4 is more likely.
    found.min_by_key(SocketAddr::is_ipv6).with_context(|| format!("{host} has no address"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_read_as_they_were_written() {
        let header = Header { kind: Kind::Ask, number: 0x0102_0304_0506_0708 };
        let message = header.message(3);
        assert_eq!((message.len(), Header::read(&message)), (HEADER_BYTES, Some(header)));
        assert_eq!(header.message(100).len(), 100);
        assert_eq!(Header::read(&message[1..]), None);
        assert_eq!(Header::read(&[0; 64]), None);
        let mut unknown = message;
        unknown[4] = 9;
        assert_eq!(Header::read(&unknown), None);
    }

    #[test]
    fn servers_are_found_with_and_without_port() {
        let of = |text: &str| resolve(text).expect(text).to_string();
        assert_eq!(of("192.0.2.1"), "192.0.2.1:7471");
        assert_eq!(of("192.0.2.1:9"), "192.0.2.1:9");
        assert_eq!(
            [of("::1"), of("[::1]"), of("[::1]:9")],
            ["[::1]:7471", "[::1]:7471", "[::1]:9"]
        );
        assert!(resolve("127.0.0.1:many").is_err());
    }
}
