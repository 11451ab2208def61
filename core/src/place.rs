//! Places for an endpoint: the interfaces, local addresses and peers that an application means. All faces choose places
//! here. The choice sends nothing to a peer.

use crate::error::Error;
use crate::rdma;
use crate::settings::{PortSetting, Settings};
use crate::sockaddr::Family;
use erd_port::udp::{self, Interface};
use erd_port::verbs::Port;
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// A place for an endpoint.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// The interface.
    pub interface: Interface,
    /// The port of an RDMA device that carries data there; UDP alone without.
    pub verbs: Option<Port>,
    /// Local address; port 0 for any.
    pub src: SocketAddr,
    /// The peer, if the application named one.
    pub dest: Option<SocketAddr>,
}

impl Place {
    /// Name of the domain: the device's, or the interface's.
    #[must_use]
    pub fn domain_name(&self) -> String {
        self.verbs.as_ref().map_or_else(|| self.interface.name.clone(), Port::name)
    }
}

/// The local address that an application asks for.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Source {
    /// None: any, with a free port.
    #[default]
    Free,
    /// This port on every interface.
    Port(u16),
    /// One of these.
    At(Vec<SocketAddr>),
}

impl Source {
    fn on(&self, entry: &Interface) -> Option<SocketAddr> {
        match self {
            Source::Free => Some(SocketAddr::new(entry.addr, 0)),
            Source::Port(port) => Some(SocketAddr::new(entry.addr, *port)),
            Source::At(addrs) => addrs.iter().copied().find(|addr| owns(entry, addr.ip())),
        }
    }
}

impl From<Vec<SocketAddr>> for Source {
    /// The unspecified address stands for all.
    fn from(addrs: Vec<SocketAddr>) -> Source {
        let any = addrs.iter().find(|addr| addr.ip().is_unspecified());
        any.map_or_else(|| Source::At(addrs.clone()), |any| Source::Port(any.port()))
    }
}

/// An application's criteria for its place; none by default.
#[derive(Default)]
pub struct Criteria<'a> {
    /// The family of its addresses.
    pub family: Option<Family>,
    /// The name of an interface or of an RDMA device.
    pub domain: Option<&'a str>,
    /// The network, as [`network`] names it.
    pub network: Option<&'a str>,
    /// The local address.
    pub source: Source,
    /// The peers, of which any will do.
    pub dests: Vec<SocketAddr>,
}

/// Address bits of `ip` under a prefix.
fn masked(ip: IpAddr, prefix: u8) -> IpAddr {
    let prefix = u32::from(prefix);
    match ip {
        IpAddr::V4(ip) => {
            let mask = u32::MAX.checked_shl(32_u32.saturating_sub(prefix)).unwrap_or(0);
            Ipv4Addr::from_bits(ip.to_bits() & mask).into()
        }
        IpAddr::V6(ip) => {
            let mask = u128::MAX.checked_shl(128_u32.saturating_sub(prefix)).unwrap_or(0);
            Ipv6Addr::from_bits(ip.to_bits() & mask).into()
        }
    }
}

/// The network of an interface, which names the fabric: address and prefix.
#[must_use]
pub fn network(entry: &Interface) -> String {
    format!("{}/{}", masked(entry.addr, entry.prefix), entry.prefix)
}

/// Whether an endpoint can be bound to `ip` on this interface. Loopback has its whole network.
#[must_use]
pub fn owns(entry: &Interface, ip: IpAddr) -> bool {
    let same_family = entry.addr.is_ipv4() == ip.is_ipv4();
    entry.addr == ip
        || (entry.loopback
            && same_family
            && masked(ip, entry.prefix) == masked(entry.addr, entry.prefix))
}

/// Link-local addresses of IPv6 need a scope, which a peer cannot know.
fn is_usable(entry: &Interface) -> bool {
    let link_local = matches!(entry.addr, IpAddr::V6(ip) if ip.is_unicast_link_local());
    entry.up && !link_local
}

/// Interfaces to offer: fastest first, loopback last, IPv4 before IPv6 on each.
///
/// # Errors
/// [`Error::NoData`] if `FI_ERD_IFACE` names an interface that does not exist; the log lists those that do.
pub fn offered(settings: &Settings, mut found: Vec<Interface>) -> Result<Vec<Interface>, Error> {
    found.retain(is_usable);
    let named =
        |entry: &Interface, name: &String| entry.name == *name || entry.addr.to_string() == *name;
    for name in &settings.ifaces {
        if !found.iter().any(|entry| named(entry, name)) {
            let names: BTreeSet<_> = found.iter().map(|entry| entry.name.as_str()).collect();
            tracing::warn!(
                "FI_ERD_IFACE is \"{name}\", which is no interface with an address that is up; \
                 valid: {}",
                names.into_iter().collect::<Vec<_>>().join(", ")
            );
            return Err(Error::NoData);
        }
    }
    found.retain(|entry| {
        settings.ifaces.is_empty() || settings.ifaces.iter().any(|name| named(entry, name))
    });
    found.sort_by_key(|entry| {
        (entry.loopback, Reverse(entry.speed_mbps.unwrap_or(0)), entry.name.clone(), entry.addr)
    });
    Ok(found)
}

/// Place of a request on an interface; `None` if it does not belong there.
fn settle(
    entry: &Interface,
    source: &Source,
    dests: &[(SocketAddr, Option<IpAddr>)],
) -> Option<Place> {
    let src = source.on(entry)?;
    let place = |dest| Place { interface: entry.clone(), verbs: None, src, dest };
    if dests.is_empty() {
        return Some(place(None));
    }
    let family = Family::of(src.ip());
    let mut reachable = dests.iter().filter(|(dest, _)| Family::of(dest.ip()) == family);
    let fits = |route: &Option<IpAddr>| match source {
        Source::At(_) => true,
        Source::Free | Source::Port(_) => *route == Some(entry.addr),
    };
    let (dest, _) = reachable.find(|(_, route)| fits(route))?;
    Some(place(Some(*dest)))
}

/// All places on the [`offered`] interfaces that meet the criteria, in order of preference. It asks only the routing
/// table.
#[must_use]
pub fn places(
    settings: &Settings,
    offered: &[Interface],
    criteria: &Criteria<'_>,
    ports: &[Port],
) -> Vec<Place> {
    let dests: Vec<_> =
        criteria.dests.iter().map(|dest| (*dest, udp::route_source(*dest).ok())).collect();
    let meant = |entry: &&Interface| {
        criteria.family.is_none_or(|family| family == Family::of(entry.addr))
            && criteria.network.is_none_or(|name| name == network(entry))
    };
    let settled = offered.iter().filter(meant);
    let plain: Vec<_> =
        settled.filter_map(|entry| settle(entry, &criteria.source, &dests)).collect();
    let over_verbs = plain.iter().flat_map(|place| {
        let ports = rdma::on_interface(ports, &place.interface);
        ports.into_iter().map(|port| Place { verbs: Some(port), ..place.clone() })
    });
    let mut places: Vec<_> = over_verbs.collect();
    if settings.port != PortSetting::Verbs {
        places.extend(plain);
    }
    places.retain(|place| criteria.domain.is_none_or(|name| name == place.domain_name()));
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interface(name: &str, addr: &str, prefix: u8, speed_mbps: Option<u32>) -> Interface {
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

    fn host() -> Vec<Interface> {
        vec![
            interface("lo", "127.0.0.1", 8, None),
            interface("lo", "::1", 128, None),
            interface("slow", "192.0.2.17", 24, Some(1000)),
            interface("fast", "2001:db8::5", 64, Some(100_000)),
            interface("fast", "198.51.100.5", 25, Some(100_000)),
            interface("fast", "fe80::5", 64, Some(100_000)),
            Interface { up: false, ..interface("down", "203.0.113.1", 24, Some(400_000)) },
        ]
    }

    fn settings(iface: &str) -> Settings {
        Settings::read(|parameter| Ok((parameter.name == "iface").then(|| iface.to_owned())))
            .expect("settings")
    }

    #[test]
    fn the_interface_setting_keeps_to_what_it_names_and_must_exist() {
        let offered = |iface| {
            offered(&settings(iface), host())
                .map(|all| all.iter().map(|entry| entry.addr.to_string()).collect::<Vec<_>>())
        };
        assert_eq!(offered("slow,127.0.0.1"), Ok(vec!["192.0.2.17".into(), "127.0.0.1".into()]));
        assert_eq!(offered("eth9"), Err(Error::NoData));
        assert_eq!(offered("down"), Err(Error::NoData));
    }

    #[test]
    fn a_network_is_called_by_address_and_prefix() {
        let names: Vec<_> = host().iter().map(network).collect();
        assert_eq!(names[0], "127.0.0.0/8");
        assert_eq!(names[1], "::1/128");
        assert_eq!(names[3], "2001:db8::/64");
        assert_eq!(names[4], "198.51.100.0/25");
        assert_eq!(network(&interface("x", "10.0.0.1", 0, None)), "0.0.0.0/0");
    }

    #[test]
    fn criteria_narrow_the_choice() {
        let settings = settings("");
        let all = offered(&settings, host()).expect("interfaces");
        let found = |criteria: &Criteria<'_>| {
            let places = places(&settings, &all, criteria, &[]);
            places.iter().map(|place| place.src.to_string()).collect::<Vec<_>>()
        };
        let at = |text: &str| Source::from(vec![text.parse().expect("address")]);
        assert_eq!(found(&Criteria::default()).len(), 5);
        assert_eq!(
            found(&Criteria { domain: Some("slow"), ..Criteria::default() }),
            ["192.0.2.17:0"]
        );
        let network = Some("198.51.100.0/25");
        assert_eq!(found(&Criteria { network, ..Criteria::default() }), ["198.51.100.5:0"]);
        let v6 = found(&Criteria { family: Some(Family::V6), ..Criteria::default() });
        assert_eq!(v6, ["[2001:db8::5]:0", "[::1]:0"]);
        let at_slow = Criteria { source: at("192.0.2.17:9"), ..Criteria::default() };
        assert_eq!(found(&at_slow), ["192.0.2.17:9"]);
        let anywhere = found(&Criteria { source: at("0.0.0.0:9"), ..Criteria::default() });
        assert_eq!(anywhere[0], "198.51.100.5:9");
    }
}
