//! The defaults of a program that asks for nothing, and their reasons.

use crate::text;
use erd_core::place::{self, Criteria};
use erd_core::plan::Plan;
use erd_core::settings::{PortSetting, Settings};
use erd_port::udp::Interface;
use serde::Serialize;
use std::net::IpAddr;

/// One result of `fi_getinfo`, and the domain on it.
#[derive(Clone, Debug, Serialize)]
pub struct Place {
    pub interface: String,
    pub address: IpAddr,
    pub network: String,
    pub loopback: bool,
    /// The RDMA device's port that carries data; none for UDP alone.
    pub device: Option<String>,
    pub mtu_bytes: u32,
    /// Speed as the interface reports it.
    pub speed_mbps: Option<u32>,
    pub datagram_bytes: u16,
    pub paths: u16,
    pub controller: &'static str,
    pub ecn: bool,
    /// The choice towards peers on this host, where it differs.
    pub near: Option<Near>,
}

/// See [`erd_core::plan::Near`].
#[derive(Clone, Debug, Serialize)]
pub struct Near {
    pub datagram_bytes: u16,
    pub paths: u16,
    pub controller: &'static str,
}

/// The first place, with reasons; or none.
#[derive(Debug, Serialize)]
pub struct Choice {
    pub place: Option<Place>,
    /// A reason for a part of the choice, or for having none.
    pub reasons: Vec<(&'static str, String)>,
}

impl Choice {
    /// No place is available.
    #[must_use]
    pub fn none(why: String) -> Choice {
        Choice { place: None, reasons: vec![("nothing", why)] }
    }
}

/// The places on offer, and the reasons for the first. `no_devices` is the reason for having no verbs.
#[must_use]
pub fn choose(
    settings: &Settings,
    found: Vec<Interface>,
    no_devices: Option<&str>,
) -> (Choice, Vec<Place>) {
    let ports = match erd_core::rdma::usable(settings) {
        Ok(ports) => ports,
        Err(_) if !settings.devices.is_empty() => {
            let why = format!("FI_ERD_DEVICE is {}: no such device", settings.devices.join(","));
            return (Choice::none(why), Vec::new());
        }
        Err(_) => {
            let why = no_devices.unwrap_or("no device has a port that can be used");
            return (Choice::none(format!("FI_ERD_PORT is verbs: {why}")), Vec::new());
        }
    };
    let names: Vec<String> = found.iter().map(|entry| entry.name.clone()).collect();
    let usable = place::offered(settings, found).unwrap_or_default();
    let places = place::places(settings, &usable, &Criteria::default(), &ports);
    if places.is_empty() {
        return (Choice::none(nothing(settings, &names)), Vec::new());
    }
    let offered: Vec<Place> = places.iter().map(|place| described(settings, place)).collect();
    let reasons = offered.first().map(|first| reasons(settings, first, &offered, no_devices));
    (Choice { place: offered.first().cloned(), reasons: reasons.unwrap_or_default() }, offered)
}

fn nothing(settings: &Settings, names: &[String]) -> String {
    if settings.ifaces.is_empty() {
        return "no interface is up and has an address".to_owned();
    }
    let missing = settings.ifaces.join(",");
    let mut names = names.to_vec();
    names.dedup();
    format!(
        "FI_ERD_IFACE is {missing}: not all of it is up and has an address; there are: {}",
        names.join(", ")
    )
}

fn described(settings: &Settings, place: &place::Place) -> Place {
    let entry = &place.interface;
    let plan = Plan::new(settings, entry, place.verbs.as_ref());
    Place {
        interface: entry.name.clone(),
        address: entry.addr,
        network: place.fabric_name(settings),
        loopback: entry.loopback,
        device: place.verbs.as_ref().map(erd_port::verbs::Port::name),
        mtu_bytes: entry.mtu_bytes,
        speed_mbps: entry.speed_mbps,
        datagram_bytes: plan.datagram_bytes,
        paths: plan.paths,
        controller: plan.scheme.name(),
        ecn: plan.ecn,
        near: plan.near.map(|near| Near {
            datagram_bytes: near.datagram_bytes,
            paths: near.paths,
            controller: near.scheme.name(),
        }),
    }
}

/// How processes of this host are reached.
fn local(settings: &Settings) -> String {
    let others = match (settings.local, &settings.local_dir) {
        (false, _) => return "over the network path: FI_ERD_LOCAL is udp".to_owned(),
        (true, None) => "and network namespace".to_owned(),
        (true, Some(dir)) => format!("and meet in {}", dir.display()),
    };
    format!("through shared memory, if they are of this user {others}")
}

fn reasons(
    settings: &Settings,
    first: &Place,
    offered: &[Place],
    no_devices: Option<&str>,
) -> Vec<(&'static str, String)> {
    let kind = if first.loopback { "on loopback" } else { "on a network" };
    let interface = match settings.ifaces.as_slice() {
        [] if offered.iter().all(|place| place.interface == first.interface) => {
            "the only one that is up and has an address".to_owned()
        }
        [] => "the fastest comes first, loopback last".to_owned(),
        names => format!("FI_ERD_IFACE is {}", names.join(",")),
    };
    let port = match (&first.device, settings.port) {
        (Some(_), PortSetting::Verbs) => "FI_ERD_PORT insists on verbs".to_owned(),
        (Some(device), _) => format!(
            "verbs, since {device} belongs to the interface; UDP before that works, and if it fails"
        ),
        (None, PortSetting::Udp) => "FI_ERD_PORT is udp".to_owned(),
        (None, _) => {
            format!("UDP: {}", no_devices.unwrap_or("no RDMA device belongs to the interface"))
        }
    };
    let controller = match &settings.scheme {
        None => format!("FI_ERD_CC is auto: {} {kind}", first.controller),
        Some(_) => format!("FI_ERD_CC is {}", first.controller),
    };
    let paths = match settings.paths {
        None => format!("FI_ERD_PATHS is auto: {} {kind}", first.paths),
        Some(asked) if asked == first.paths => format!("FI_ERD_PATHS is {asked}"),
        Some(asked) => format!("FI_ERD_PATHS is {asked}, and the device has no more"),
    };
    let link = match (settings.link_mbps, first.speed_mbps) {
        (Some(set), _) => format!("FI_ERD_LINK_GBPS says {}", text::speed(set)),
        (None, Some(told)) => format!("the interface says {}", text::speed(told.into())),
        (None, None) => "the interface tells no speed: flows measure it".to_owned(),
    };
    let datagram = match settings.mtu_bytes {
        Some(limit) if limit == first.datagram_bytes => format!("FI_ERD_MTU is {limit}"),
        _ => format!(
            "what the MTU of {} leaves, or less if the peer or the path takes less",
            first.mtu_bytes
        ),
    };
    let mut said = vec![
        ("interface", interface),
        ("port", port),
        ("controller", controller),
        ("paths", paths),
        ("link speed", link),
        ("datagrams", datagram),
    ];
    said.push(("processes on this host", local(settings)));
    if let Some(near) = &first.near {
        let (controller, paths, bytes) = (near.controller, near.paths, near.datagram_bytes);
        let plural = if paths == 1 { "" } else { "s" };
        let why =
            format!("controller {controller}, {paths} path{plural}, datagrams of {bytes} bytes");
        said.push(("others on this host", why));
    }
    said
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interface(name: &str, addr: &str, speed_mbps: Option<u32>) -> Interface {
        Interface {
            name: name.to_owned(),
            addr: addr.parse().expect("address"),
            prefix: 24,
            mtu_bytes: 1500,
            up: true,
            loopback: name == "lo",
            speed_mbps,
        }
    }

    fn with(name: &'static str, value: &'static str) -> (Choice, Vec<Place>) {
        let settings = Settings::read(|asked| Ok((asked.name == name).then(|| value.to_owned())))
            .expect("settings");
        let host =
            vec![interface("lo", "127.0.0.1", None), interface("eth0", "192.0.2.1", Some(25_000))];
        choose(&settings, host, Some("no devices"))
    }

    #[test]
    fn the_network_comes_first_and_says_why() {
        let (choice, offered) = with("port", "udp");
        let names: Vec<&str> = offered.iter().map(|place| place.interface.as_str()).collect();
        assert_eq!(names, ["eth0", "lo"]);
        let first = choice.place.expect("a choice");
        assert_eq!((first.controller, first.paths, first.datagram_bytes), ("nscc", 4, 1472));
        let said = |part| choice.reasons.iter().find(|(of, _)| *of == part).expect(part).1.as_str();
        assert_eq!(said("port"), "FI_ERD_PORT is udp");
        assert_eq!(said("controller"), "FI_ERD_CC is auto: nscc on a network");
        assert_eq!(said("link speed"), "the interface says 25.0 Gbit/s");
    }

    #[test]
    fn what_cannot_be_had_is_named() {
        let (choice, offered) = with("iface", "eth9");
        assert!(choice.place.is_none() && offered.is_empty());
        assert!(choice.reasons[0].1.contains("eth9") && choice.reasons[0].1.contains("eth0"));
    }
}
