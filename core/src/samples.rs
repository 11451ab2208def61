//! Interfaces and ports for this crate's tests.

use erd_port::udp::Interface;
use erd_port::verbs::Port;
use erd_port::verbs::gid::{Gid, GidEntry, GidKind};
use std::net::IpAddr;

/// An interface that is up; `lo` is loopback.
pub fn interface(name: &str, addr: &str, prefix: u8, speed_mbps: Option<u32>) -> Interface {
    Interface {
        name: name.to_owned(),
        addr: addr.parse().expect("address"),
        prefix,
        mtu_bytes: 1500,
        up: true,
        loopback: name == "lo",
        speed_mbps,
    }
}

/// The RoCE v2 GID that is this address.
pub fn gid(index: u8, address: &str) -> GidEntry {
    let octets = match address.parse().expect("address") {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    };
    GidEntry { index, gid: Gid(octets), kind: GidKind::RoceV2, ifindex: 1 }
}

/// The only port of a RoCE device.
pub fn port(device: &str, mtu_bytes: u16, gids: Vec<GidEntry>) -> Port {
    Port {
        device: device.to_owned(),
        number: 1,
        ports: 1,
        gid: gids[0],
        gids,
        mtu_bytes,
        speed_mbps: 400_000,
        ethernet: true,
        lid: 0,
        flow_label_paths: true,
        wr_max: 1024,
        cqe_max: 1024,
        vendor_id: 0x02c9,
        part_id: 0,
        firmware: String::new(),
    }
}
