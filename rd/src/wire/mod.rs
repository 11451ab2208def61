//! Packet formats (protocol.md §2 to §6, §9). All integers are big-endian.
//!
//! Parsing never panics: every read is checked and a short packet is an error.

pub mod ack;
pub mod entry;
pub mod header;
pub mod record;
pub mod remote;
pub mod setup;
pub mod window;

use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

/// A packet that is shorter than it says or holds a value that the format does not know.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("malformed packet")]
pub struct Malformed;

/// Reads integers off the front of a byte slice.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Reads from the start of `bytes`.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes }
    }

    /// The unread bytes.
    #[must_use]
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// The next `n` bytes.
    ///
    /// # Errors
    /// [`Malformed`] when fewer are left; likewise for the other readers.
    pub fn take(&mut self, n: usize) -> Result<&'a [u8], Malformed> {
        let (head, rest) = self.rest.split_at_checked(n).ok_or(Malformed)?;
        self.rest = rest;
        Ok(head)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (head, rest) = self.rest.split_first_chunk::<N>().ok_or(Malformed)?;
        self.rest = rest;
        Ok(*head)
    }

    /// One byte.
    ///
    /// # Errors
    /// See [`Reader::take`].
    pub fn u8(&mut self) -> Result<u8, Malformed> {
        Ok(u8::from_be_bytes(self.array()?))
    }

    /// Two bytes.
    ///
    /// # Errors
    /// See [`Reader::take`].
    pub fn u16(&mut self) -> Result<u16, Malformed> {
        Ok(u16::from_be_bytes(self.array()?))
    }

    /// Four bytes.
    ///
    /// # Errors
    /// See [`Reader::take`].
    pub fn u32(&mut self) -> Result<u32, Malformed> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    /// Eight bytes.
    ///
    /// # Errors
    /// See [`Reader::take`].
    pub fn u64(&mut self) -> Result<u64, Malformed> {
        Ok(u64::from_be_bytes(self.array()?))
    }

    /// A name (protocol.md §3.2).
    ///
    /// # Errors
    /// [`Malformed`] when short or of an unknown family.
    pub fn name(&mut self) -> Result<SocketAddr, Malformed> {
        let family = self.u8()?;
        self.u8()?;
        let port = self.u16()?;
        let scope = self.u32()?;
        let ip: [u8; 16] = self.array()?;
        match family {
            4 => {
                let v4 = Ipv4Addr::new(ip[0], ip[1], ip[2], ip[3]);
                Ok(SocketAddr::new(IpAddr::V4(v4), port))
            }
            6 => Ok(SocketAddr::V6(SocketAddrV6::new(Ipv6Addr::from(ip), port, 0, scope))),
            _ => Err(Malformed),
        }
    }
}

/// Bytes of an encoded name.
pub const NAME_BYTES: usize = 24;

/// Appends a name (protocol.md §3.2).
pub fn put_name(out: &mut Vec<u8>, name: SocketAddr) {
    let (family, scope, ip) = match name {
        SocketAddr::V4(v4) => {
            let mut ip = [0; 16];
            ip[..4].copy_from_slice(&v4.ip().octets());
            (4, 0, ip)
        }
        SocketAddr::V6(v6) => (6, v6.scope_id(), v6.ip().octets()),
    };
    out.extend_from_slice(&[family, 0]);
    out.extend_from_slice(&name.port().to_be_bytes());
    out.extend_from_slice(&scope.to_be_bytes());
    out.extend_from_slice(&ip);
}
