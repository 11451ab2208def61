//! Names of endpoints, as ports write them (`docs/protocol.md` §3.2).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

/// Bytes of a name.
pub(crate) const NAME_BYTES: usize = 24;

/// Writes a name into [`NAME_BYTES`], which are 0.
pub(crate) fn put_name(out: &mut [u8], name: SocketAddr) {
    out[2..4].copy_from_slice(&name.port().to_be_bytes());
    match name {
        SocketAddr::V4(v4) => {
            out[0] = 4;
            out[8..12].copy_from_slice(&v4.ip().octets());
        }
        SocketAddr::V6(v6) => {
            out[0] = 6;
            out[4..8].copy_from_slice(&v6.scope_id().to_be_bytes());
            out[8..24].copy_from_slice(&v6.ip().octets());
        }
    }
}

/// Reads a name from [`NAME_BYTES`].
pub(crate) fn read_name(bytes: &[u8]) -> Option<SocketAddr> {
    let port = u16::from_be_bytes([bytes[2], bytes[3]]);
    match bytes[0] {
        4 => {
            let ip: [u8; 4] = bytes[8..12].try_into().ok()?;
            Some(SocketAddr::new(IpAddr::V4(Ipv4Addr::from(ip)), port))
        }
        6 => {
            let ip: [u8; 16] = bytes[8..24].try_into().ok()?;
            let scope = u32::from_be_bytes(bytes[4..8].try_into().ok()?);
            Some(SocketAddrV6::new(Ipv6Addr::from(ip), port, 0, scope).into())
        }
        _ => None,
    }
}
