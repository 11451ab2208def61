//! `erd info`: this host's network, and a program's choice on it.

mod choice;
mod settings;
mod show;

use crate::{InfoArgs, system, text};
use anyhow::Result;
use choice::Place;
use erd_core::settings::Settings;
use erd_port::udp::{Capabilities, Interface, PortOptions, interfaces};
use erd_port::verbs::{Port, gid::GidKind, ports};
use erd_sys::sysfs::Sysfs;
use serde::Serialize;
use std::net::IpAddr;

pub use choice::{Choice, choose};
pub use settings::{problems as setting_problems, read as read_settings};

/// Everything that is shown.
#[derive(Debug, Serialize)]
struct Info {
    version: &'static str,
    host: String,
    kernel: String,
    processors: usize,
    /// The default choice of a program with its reasons, or the reason for having none.
    choice: Choice,
    /// The places that programs are offered, best first.
    offered: Vec<Place>,
    /// Addresses that programs are not offered.
    left_out: Vec<LeftOut>,
    devices: Vec<Device>,
    /// Reason for having no usable devices.
    no_devices: Option<String>,
    /// The kernel's grants at the chosen address.
    granted: Option<Granted>,
    settings: Vec<settings::Row>,
}

/// An address that is not offered.
#[derive(Debug, Serialize)]
struct LeftOut {
    interface: String,
    address: IpAddr,
    reason: &'static str,
}

/// A port of an RDMA device.
#[derive(Debug, Serialize)]
struct Device {
    name: String,
    link: &'static str,
    datagram_bytes: u16,
    speed_mbps: u32,
    firmware: String,
    gids: Vec<Gid>,
}

/// An entry of a port's table of GIDs.
#[derive(Debug, Serialize)]
struct Gid {
    index: u8,
    gid: String,
    kind: &'static str,
    /// True if erd would use it.
    used: bool,
}

/// The kernel's grants.
#[derive(Debug, Serialize)]
struct Granted {
    address: IpAddr,
    recv_buffer_bytes: usize,
    recv_buffer_asked_bytes: usize,
    send_buffer_bytes: usize,
    send_buffer_asked_bytes: usize,
    gso_segments: u16,
    gro: bool,
    ecn_read: bool,
    ecn_write: bool,
    timestamps: bool,
    drop_counts: bool,
    dont_fragment: bool,
}

/// Shows the information.
///
/// # Errors
/// Standard output cannot be written.
pub fn run(args: &InfoArgs) -> Result<()> {
    let info = Info::gather();
    if args.json {
        return text::print(&format!("{}\n", serde_json::to_string_pretty(&info)?));
    }
    text::print(&show::text(&info, args.all))
}

impl Info {
    fn gather() -> Info {
        let (host, kernel) = system::host();
        let (ports, no_devices) = match ports() {
            Ok((ports, refused)) => (ports, refused.first().map(ToString::to_string)),
            Err(error) => (Vec::new(), Some(error.to_string())),
        };
        let settings = read_settings();
        let sysfs = settings.as_ref().map_or_else(|_| Sysfs::default(), |read| read.sysfs.clone());
        let found = interfaces(&sysfs);
        let (choice, offered) = match &settings {
            Ok(settings) => choose(settings, found.clone(), no_devices.as_deref()),
            Err(error) => (Choice::none(error.to_string()), Vec::new()),
        };
        let granted = match (&settings, offered.first()) {
            (Ok(settings), Some(place)) => Granted::at(place.address, settings),
            _ => None,
        };
        Info {
            version: env!("CARGO_PKG_VERSION"),
            host,
            kernel,
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            left_out: left_out(&found, &offered, settings.is_ok()),
            choice,
            offered,
            devices: ports.iter().map(device).collect(),
            no_devices,
            granted,
            settings: settings::rows(),
        }
    }
}

/// The options with which an endpoint opens its sockets.
#[must_use]
pub fn port_options(settings: &Settings) -> PortOptions {
    PortOptions {
        recv_buffer_bytes: settings.recv_buffer_bytes,
        send_buffer_bytes: settings.send_buffer_bytes,
        gso: settings.gso,
        gro: settings.gro,
        ecn: settings.ecn,
        timestamps: settings.timestamps,
        ..PortOptions::default()
    }
}

impl Granted {
    fn at(address: IpAddr, settings: &Settings) -> Option<Granted> {
        let got = Capabilities::of(address, &port_options(settings)).ok()?;
        Some(Granted {
            address,
            // The kernel counts twice what it grants.
            recv_buffer_bytes: got.recv_buffer_bytes / 2,
            recv_buffer_asked_bytes: settings.recv_buffer_bytes,
            send_buffer_bytes: got.send_buffer_bytes / 2,
            send_buffer_asked_bytes: settings.send_buffer_bytes,
            gso_segments: got.gso_segments,
            gro: got.gro,
            ecn_read: got.ecn_read,
            ecn_write: got.ecn_write,
            timestamps: got.timestamps,
            drop_counts: got.drop_counts,
            dont_fragment: got.dont_fragment,
        })
    }
}

fn left_out(found: &[Interface], offered: &[Place], valid: bool) -> Vec<LeftOut> {
    let is_offered = |entry: &&Interface| !offered.iter().any(|place| place.address == entry.addr);
    let reason = |entry: &Interface| match entry.addr {
        _ if !entry.up => "it is down",
        IpAddr::V6(ip) if ip.is_unicast_link_local() => "peers cannot use an address of one link",
        _ if !valid => "a setting is not valid",
        _ => "the settings leave it out",
    };
    found
        .iter()
        .filter(is_offered)
        .map(|entry| LeftOut {
            interface: entry.name.clone(),
            address: entry.addr,
            reason: reason(entry),
        })
        .collect()
}

fn device(port: &Port) -> Device {
    let kind = |kind| match kind {
        GidKind::InfiniBand => "InfiniBand",
        GidKind::RoceV1 => "RoCE v1",
        GidKind::RoceV2 => "RoCE v2",
    };
    let gids = port.gids.iter().map(|entry| Gid {
        index: entry.index,
        gid: entry.gid.to_string(),
        kind: kind(entry.kind),
        used: *entry == port.gid,
    });
    Device {
        name: port.name(),
        link: if port.ethernet { "Ethernet" } else { "InfiniBand" },
        datagram_bytes: port.mtu_bytes,
        speed_mbps: port.speed_mbps,
        firmware: port.firmware.clone(),
        gids: gids.collect(),
    }
}
