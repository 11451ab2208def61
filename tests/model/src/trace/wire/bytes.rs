//! Big-endian numbers off the front of bytes.

use super::Error;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV6};

/// The unread bytes. Each call takes some, or fails with [`Error::Short`].
pub(super) struct Bytes<'a>(pub(super) &'a [u8]);

impl<'a> Bytes<'a> {
    pub(super) fn take(&mut self, count: usize) -> Result<&'a [u8], Error> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(Error::Short)?;
        self.0 = rest;
        Ok(taken)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        self.take(N)?.try_into().map_err(|_| Error::Short)
    }

    pub(super) fn u8(&mut self) -> Result<u8, Error> {
        self.array().map(u8::from_be_bytes)
    }

    pub(super) fn u16(&mut self) -> Result<u16, Error> {
        self.array().map(u16::from_be_bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32, Error> {
        self.array().map(u32::from_be_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, Error> {
        self.array().map(u64::from_be_bytes)
    }

    /// A name (§3.2).
    pub(super) fn name(&mut self) -> Result<SocketAddr, Error> {
        let (family, _) = (self.u8()?, self.u8()?);
        let (port, scope, address) = (self.u16()?, self.u32()?, self.array::<16>()?);
        match family {
            4 => {
                let [a, b, c, d, ..] = address;
                Ok(SocketAddr::new(IpAddr::V4(Ipv4Addr::new(a, b, c, d)), port))
            }
            6 => Ok(SocketAddr::V6(SocketAddrV6::new(address.into(), port, 0, scope))),
            _ => Err(Error::Value),
        }
    }
}
