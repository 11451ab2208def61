//! Socket addresses as libfabric passes them: `struct sockaddr_in` and `sockaddr_in6` in bytes.

#[cfg(test)]
mod bounds;

use std::ffi::c_void;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use thiserror::Error;

/// Bytes of a `sockaddr_in`.
pub const V4_BYTES: usize = size_of::<libc::sockaddr_in>();
/// Bytes of a `sockaddr_in6`: the longest name of an endpoint.
pub const V6_BYTES: usize = size_of::<libc::sockaddr_in6>();

/// Address family of a domain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Family {
    /// `AF_INET`.
    V4,
    /// `AF_INET6`.
    V6,
}

impl Family {
    /// The family of an address.
    #[must_use]
    pub fn of(ip: IpAddr) -> Family {
        if ip.is_ipv4() { Family::V4 } else { Family::V6 }
    }

    /// `AF_INET` or `AF_INET6`.
    #[must_use]
    pub fn raw(self) -> libc::sa_family_t {
        let family = match self {
            Family::V4 => libc::AF_INET,
            Family::V6 => libc::AF_INET6,
        };
        family as libc::sa_family_t
    }

    /// Bytes of an address of the family.
    #[must_use]
    pub fn addr_bytes(self) -> usize {
        match self {
            Family::V4 => V4_BYTES,
            Family::V6 => V6_BYTES,
        }
    }
}

/// Bytes that are no IPv4 or IPv6 socket address.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum BadAddress {
    /// Neither `AF_INET` nor `AF_INET6`.
    #[error("address family {0} is neither AF_INET nor AF_INET6")]
    Family(u16),
    /// Shorter than its family's structure.
    #[error("an address of {0} bytes is too short for its family")]
    Length(usize),
}

/// Reads a socket address. Flow labels are dropped, and a scope is kept only where it means
/// something (link-local), so that equal places compare equal.
///
/// # Errors
/// If the bytes are none.
pub fn decode(bytes: &[u8]) -> Result<SocketAddr, BadAddress> {
    let too_short = BadAddress::Length(bytes.len());
    let family = u16::from_ne_bytes(array(bytes, 0).ok_or(too_short)?);
    let (v4, v6) = (Family::V4.raw(), Family::V6.raw());
    if family != v4 && family != v6 {
        return Err(BadAddress::Family(family));
    }
    let port = u16::from_be_bytes(array(bytes, 2).ok_or(too_short)?);
    if family == v4 {
        if bytes.len() < V4_BYTES {
            return Err(too_short);
        }
        let ip = Ipv4Addr::from(array::<4>(bytes, 4).ok_or(too_short)?);
        return Ok(SocketAddrV4::new(ip, port).into());
    }
    let ip = Ipv6Addr::from(array::<16>(bytes, 8).ok_or(too_short)?);
    let scope = u32::from_ne_bytes(array(bytes, 24).ok_or(too_short)?);
    let scope = if ip.is_unicast_link_local() { scope } else { 0 };
    Ok(SocketAddrV6::new(ip, port, 0, scope).into())
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at + N)?.try_into().ok()
}

/// A socket address in C's form.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Encoded {
    bytes: [u8; V6_BYTES],
    len: usize,
}

impl Encoded {
    /// The structure's bytes: 16 or 28.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// Writes a socket address as `sockaddr_in` or `sockaddr_in6`.
#[must_use]
pub fn encode(addr: SocketAddr) -> Encoded {
    let family = Family::of(addr.ip());
    let mut bytes = [0; V6_BYTES];
    bytes[..2].copy_from_slice(&family.raw().to_ne_bytes());
    bytes[2..4].copy_from_slice(&addr.port().to_be_bytes());
    match addr {
        SocketAddr::V4(addr) => bytes[4..8].copy_from_slice(&addr.ip().octets()),
        SocketAddr::V6(addr) => {
            bytes[8..24].copy_from_slice(&addr.ip().octets());
            bytes[24..28].copy_from_slice(&addr.scope_id().to_ne_bytes());
        }
    }
    Encoded { bytes, len: family.addr_bytes() }
}

/// Reads an address that C passed as pointer and length; `None` if the pointer is NULL.
///
/// # Errors
/// If the bytes are no socket address.
///
/// # Safety
/// `addr` is NULL or readable for `len` bytes.
pub unsafe fn read(addr: *const c_void, len: usize) -> Result<Option<SocketAddr>, BadAddress> {
    if addr.is_null() {
        return Ok(None);
    }
    // SAFETY: not NULL, and the caller vouches for the length; no address is longer than this.
    let bytes = unsafe { std::slice::from_raw_parts(addr.cast::<u8>(), len.min(V6_BYTES)) };
    decode(bytes).map(Some)
}

/// Gives an address to C as `fi_getname(3)` and `fi_av_lookup` do: as much as fits, and the whole
/// length in `*len`. True if all of it fitted.
///
/// # Safety
/// `len` is readable and writable, and `out` writable for `*len` bytes.
pub unsafe fn write(addr: SocketAddr, out: *mut c_void, len: *mut usize) -> bool {
    let encoded = encode(addr);
    let bytes = encoded.as_bytes();
    // SAFETY: the caller vouches for both; a NULL buffer has room for nothing.
    unsafe {
        let room = if out.is_null() { 0 } else { *len };
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), out.cast(), room.min(bytes.len()));
        *len = bytes.len();
        room >= bytes.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_survive_the_way_to_c_and_back() {
        for text in ["10.1.2.3:7471", "[2001:db8::1]:9", "0.0.0.0:0"] {
            let addr: SocketAddr = text.parse().expect("address");
            assert_eq!(decode(encode(addr).as_bytes()), Ok(addr), "{text}");
        }
    }

    #[test]
    fn the_kernels_own_layout_is_read() {
        let raw = libc::sockaddr_in {
            sin_family: libc::AF_INET as u16,
            sin_port: 7471_u16.to_be(),
            sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes([10, 1, 2, 3]) },
            sin_zero: [0; 8],
        };
        let at = (&raw const raw).cast();
        // SAFETY: a live structure of this size.
        let read = unsafe { read(at, size_of_val(&raw)) };
        assert_eq!(read, Ok(Some("10.1.2.3:7471".parse().expect("address"))));
    }

    #[test]
    fn what_is_no_address_is_refused() {
        assert_eq!(decode(&[0; 28]), Err(BadAddress::Family(0)));
        assert_eq!(decode(&[]), Err(BadAddress::Length(0)));
        let v6: SocketAddr = "[::1]:1".parse().expect("address");
        assert_eq!(decode(&encode(v6).as_bytes()[..16]), Err(BadAddress::Length(16)));
        let v4: SocketAddr = "1.2.3.4:5".parse().expect("address");
        assert_eq!(decode(&encode(v4).as_bytes()[..8]), Err(BadAddress::Length(8)));
    }

    #[test]
    fn a_short_buffer_gets_a_part_and_the_whole_length() {
        let addr: SocketAddr = "1.2.3.4:5".parse().expect("address");
        let mut out = [0xff_u8; 16];
        let mut len = 4;
        // SAFETY: the buffer is longer than what `len` says.
        let fitted = unsafe { write(addr, out.as_mut_ptr().cast(), &raw mut len) };
        assert!(!fitted);
        assert_eq!((len, out[3], out[4]), (16, 5, 0xff));
    }
}
