//! Socket addresses in the kernel's form.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// Either family's socket address; every byte pattern is valid for both.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) union RawAddr {
    family: libc::sa_family_t,
    v4: libc::sockaddr_in,
    v6: libc::sockaddr_in6,
}

impl RawAddr {
    pub(super) const BYTES: libc::socklen_t = size_of::<RawAddr>() as libc::socklen_t;

    pub(super) const fn zeroed() -> Self {
        // SAFETY: both variants are plain integers, for which zero is a valid value.
        unsafe { std::mem::zeroed() }
    }

    fn encode(addr: SocketAddr) -> (Self, libc::socklen_t) {
        let mut raw = Self::zeroed();
        let bytes = match addr {
            SocketAddr::V4(addr) => {
                raw.v4 = libc::sockaddr_in {
                    sin_family: libc::AF_INET as libc::sa_family_t,
                    sin_port: addr.port().to_be(),
                    sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(addr.ip().octets()) },
                    sin_zero: [0; 8],
                };
                size_of::<libc::sockaddr_in>()
            }
            SocketAddr::V6(addr) => {
                raw.v6 = libc::sockaddr_in6 {
                    sin6_family: libc::AF_INET6 as libc::sa_family_t,
                    sin6_port: addr.port().to_be(),
                    sin6_flowinfo: addr.flowinfo(),
                    sin6_addr: libc::in6_addr { s6_addr: addr.ip().octets() },
                    sin6_scope_id: addr.scope_id(),
                };
                size_of::<libc::sockaddr_in6>()
            }
        };
        (raw, bytes as libc::socklen_t)
    }

    /// The address, or `None` if the kernel wrote no IPv4 or IPv6 address of that length.
    pub(super) fn decode(&self, bytes: libc::socklen_t) -> Option<SocketAddr> {
        let bytes = bytes as usize;
        // SAFETY: every byte of the union is initialised and any value of the field is valid.
        let family = libc::c_int::from(unsafe { self.family });
        if family == libc::AF_INET && bytes >= size_of::<libc::sockaddr_in>() {
            // SAFETY: as above.
            let v4 = unsafe { self.v4 };
            let ip = Ipv4Addr::from(v4.sin_addr.s_addr.to_ne_bytes());
            return Some(SocketAddrV4::new(ip, u16::from_be(v4.sin_port)).into());
        }
        if family == libc::AF_INET6 && bytes >= size_of::<libc::sockaddr_in6>() {
            // SAFETY: as above.
            let v6 = unsafe { self.v6 };
            let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
            let port = u16::from_be(v6.sin6_port);
            return Some(SocketAddrV6::new(ip, port, v6.sin6_flowinfo, v6.sin6_scope_id).into());
        }
        None
    }

    /// One interface address of `getifaddrs(3)`.
    ///
    /// # Safety
    /// `from` is null or points to a socket address of the length that its family implies.
    pub(super) unsafe fn read_ip(from: *const libc::sockaddr) -> Option<IpAddr> {
        if from.is_null() {
            return None;
        }
        // SAFETY: not null, and the caller vouches for a socket address.
        let family = libc::c_int::from(unsafe { (*from).sa_family });
        let mut raw = Self::zeroed();
        if family == libc::AF_INET {
            // SAFETY: the family says that a sockaddr_in lies there.
            raw.v4 = unsafe { from.cast::<libc::sockaddr_in>().read_unaligned() };
        } else if family == libc::AF_INET6 {
            // SAFETY: the family says that a sockaddr_in6 lies there.
            raw.v6 = unsafe { from.cast::<libc::sockaddr_in6>().read_unaligned() };
        }
        raw.decode(Self::BYTES).map(|addr| addr.ip())
    }
}

/// A destination in the kernel's form (28 bytes and a length): encode once per peer and keep it.
#[derive(Clone, Copy)]
pub struct Dst {
    raw: RawAddr,
    bytes: libc::socklen_t,
}

impl Dst {
    /// The address again.
    ///
    /// # Panics
    /// Never: it was made from an address.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.raw.decode(self.bytes).expect("a Dst is made from a SocketAddr")
    }

    pub(super) fn name(&self) -> (*mut libc::c_void, libc::socklen_t) {
        ((&raw const self.raw).cast_mut().cast(), self.bytes)
    }
}

impl From<SocketAddr> for Dst {
    fn from(addr: SocketAddr) -> Self {
        let (raw, bytes) = RawAddr::encode(addr);
        Self { raw, bytes }
    }
}

impl fmt::Debug for Dst {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.addr(), f)
    }
}
