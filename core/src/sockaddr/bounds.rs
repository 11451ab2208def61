//! Every address within bounds is read by the layout of C's structures, and written again in its only form.

use super::{BadAddress, Family, V4_BYTES, V6_BYTES, decode, encode};
use std::net::{SocketAddr, SocketAddrV6};

/// What the bytes say by `struct sockaddr_in` and `sockaddr_in6`.
fn by_the_layout(bytes: &[u8]) -> Result<SocketAddr, BadAddress> {
    let short = Err(BadAddress::Length(bytes.len()));
    let Some(family) = bytes.first_chunk().map(|family| u16::from_ne_bytes(*family)) else {
        return short;
    };
    let whole = match i32::from(family) {
        libc::AF_INET => V4_BYTES,
        libc::AF_INET6 => V6_BYTES,
        _ => return Err(BadAddress::Family(family)),
    };
    if bytes.len() < whole {
        return short;
    }
    let port = u16::from(bytes[2]) << 8 | u16::from(bytes[3]);
    if whole == V4_BYTES {
        return Ok(([bytes[4], bytes[5], bytes[6], bytes[7]], port).into());
    }
    let ip: [u8; 16] = bytes[8..24].try_into().expect("16 bytes");
    let is_of_a_link = ip[0] == 0xfe && ip[1] & 0xc0 == 0x80;
    let scope = u32::from_ne_bytes(bytes[24..28].try_into().expect("4 bytes"));
    Ok(SocketAddrV6::new(ip.into(), port, 0, if is_of_a_link { scope } else { 0 }).into())
}

fn judge(bytes: &[u8]) {
    let read = decode(bytes);
    assert_eq!(read, by_the_layout(bytes), "{bytes:?}");
    let Ok(addr) = read else { return };
    let mut expected = bytes[..Family::of(addr.ip()).addr_bytes()].to_vec();
    match addr {
        SocketAddr::V4(_) => expected[8..].fill(0),
        SocketAddr::V6(v6) => {
            expected[4..8].fill(0);
            expected[24..].copy_from_slice(&v6.scope_id().to_ne_bytes());
        }
    }
    let written = encode(addr);
    assert_eq!(written.as_bytes(), expected, "{bytes:?}");
    assert_eq!(decode(written.as_bytes()), Ok(addr));
}

const NAMES: [&str; 5] =
    ["1.2.3.4:5", "0.0.0.0:0", "[fe80::1%7]:65535", "[2001:db8::9]:1", "[::ffff:1.2.3.4]:9"];

#[test]
fn every_family_of_every_length_is_read_by_the_layout() {
    for fill in [0, 0x5a, 0xff] {
        let mut bytes = [fill; V6_BYTES + 8];
        for family in 0..=u16::MAX {
            bytes[..2].copy_from_slice(&family.to_ne_bytes());
            let is_known = [libc::AF_INET, libc::AF_INET6].contains(&family.into());
            let step = if is_known { 1 } else { 9 };
            (0..=bytes.len()).step_by(step).for_each(|len| judge(&bytes[..len]));
        }
    }
}

#[test]
fn every_change_of_a_byte_is_read_by_the_layout() {
    for name in NAMES {
        let addr: SocketAddr = name.parse().expect("a name");
        let whole = encode(addr);
        assert_eq!(decode(whole.as_bytes()), Ok(addr));
        let mut bytes = whole.as_bytes().to_vec();
        for at in 0..bytes.len() {
            for value in 0..=u8::MAX {
                bytes[at] = value;
                judge(&bytes);
            }
            bytes[at] = whole.as_bytes()[at];
        }
    }
}
