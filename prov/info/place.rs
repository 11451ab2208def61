//! Which interfaces, local addresses and peers an application means.

use super::hints::Hints;
use erd_core::resolve;
use erd_core::settings::{PortSetting, Settings};
use erd_core::sockaddr::Family;
use erd_ffi::fi::{FI_EINVAL, FI_ENODATA, FI_NUMERICHOST, FI_PEER, FI_SOURCE};
use erd_port::udp::{self, Interface};
use erd_port::verbs::Port;
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::ffi::c_int;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Where an endpoint could be: one `fi_info`.
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

/// What `fi_getinfo` was asked besides the hints.
#[derive(Clone, Copy, Default)]
pub struct Query<'a> {
    /// Host name or address.
    pub node: Option<&'a str>,
    /// Port number or service name.
    pub service: Option<&'a str>,
    /// `FI_SOURCE`, `FI_NUMERICHOST`.
    pub flags: u64,
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

/// The network that an interface is in, as a fabric is called: address and prefix.
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
/// `FI_ENODATA` if `FI_ERD_IFACE` names one that there is not.
pub fn offered(settings: &Settings, mut found: Vec<Interface>) -> Result<Vec<Interface>, c_int> {
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
            return Err(FI_ENODATA);
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

/// The local address that a request asks for.
enum Source {
    /// None: any, with a free port.
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

fn resolve(query: Query<'_>, family: Option<Family>) -> Result<Vec<SocketAddr>, c_int> {
    let numeric = query.flags & FI_NUMERICHOST != 0;
    resolve::lookup(query.node, query.service, family, numeric).map_err(|error| {
        tracing::info!(%error, node = query.node, service = query.service, "fi_getinfo");
        FI_ENODATA
    })
}

fn source(hints: &Hints, query: Query<'_>, family: Option<Family>) -> Result<Source, c_int> {
    if query.flags & FI_SOURCE == 0 {
        return Ok(match hints.src {
            None => Source::Free,
            Some(src) if src.ip().is_unspecified() => Source::Port(src.port()),
            Some(src) => Source::At(vec![src]),
        });
    }
    match (query.node, query.service) {
        (None, None) => {
            tracing::info!("fi_getinfo: FI_SOURCE needs a node or a service");
            Err(FI_EINVAL)
        }
        (None, Some(_)) => {
            let first = resolve(query, family)?.first().copied();
            Ok(first.map_or(Source::Free, |addr| Source::Port(addr.port())))
        }
        (Some(_), _) => {
            let addrs = resolve(query, family)?;
            let any = addrs.iter().find(|addr| addr.ip().is_unspecified());
            Ok(any.map_or(Source::At(addrs.clone()), |any| Source::Port(any.port())))
        }
    }
}

/// The peers that a request names, of which any will do.
fn destinations(
    hints: &Hints,
    query: Query<'_>,
    family: Option<Family>,
) -> Result<Vec<SocketAddr>, c_int> {
    let named = query.node.is_some() || query.service.is_some();
    if query.flags & FI_SOURCE == 0 && named {
        return resolve(query, family);
    }
    Ok(hints.dest.into_iter().collect())
}

/// Puts a request on an interface; `None` if it does not belong there.
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

/// All places that meet a request, in order of preference. Only the resolver and the routing table
/// are asked; nothing is sent to a peer.
///
/// # Errors
/// `FI_EINVAL` or `FI_ENODATA`, with the reason in the log.
pub fn places(
    settings: &Settings,
    hints: &Hints,
    query: Query<'_>,
    interfaces: Vec<Interface>,
    ports: &[Port],
) -> Result<Vec<Place>, c_int> {
    let family = crate::addr_format::family(hints.addr_format);
    let offered = offered(settings, interfaces)?;
    let source = source(hints, query, family)?;
    let dests: Vec<_> = destinations(hints, query, family)?
        .into_iter()
        .map(|dest| (dest, udp::route_source(dest).ok()))
        .collect();
    let meant = |entry: &&Interface| {
        family.is_none_or(|family| family == Family::of(entry.addr))
            && hints.fabric_name.as_ref().is_none_or(|name| *name == network(entry))
    };
    let plain: Vec<_> =
        offered.iter().filter(meant).filter_map(|entry| settle(entry, &source, &dests)).collect();
    let over_verbs = plain.iter().flat_map(|place| {
        let ports = erd_core::rdma::on_interface(ports, &place.interface);
        ports.into_iter().map(|port| Place { verbs: Some(port), ..place.clone() })
    });
    let mut places: Vec<_> = over_verbs.collect();
    if settings.port != PortSetting::Verbs {
        places.extend(plain);
    }
    places
        .retain(|place| hints.domain_name.as_ref().is_none_or(|name| *name == place.domain_name()));
    if places.is_empty() {
        tracing::info!(
            domain = hints.domain_name,
            fabric = hints.fabric_name,
            node = query.node,
            "fi_getinfo: no interface that is up has that name, network, address or route"
        );
        return Err(FI_ENODATA);
    }
    Ok(places)
}

/// Who links providers (`FI_PEER`) takes every domain that is offered, and links those of one fabric
/// name. Loopback has the same on every host and reaches no other, so it is offered to them only where
/// nothing else is, or by name.
#[must_use]
pub fn for_peers(hints: &Hints, mut places: Vec<Place>) -> Vec<Place> {
    let named = hints.domain_name.is_some() || hints.fabric_name.is_some();
    let elsewhere = places.iter().any(|place| !place.interface.loopback);
    if hints.caps & FI_PEER != 0 && !named && elsewhere {
        places.retain(|place| !place.interface.loopback);
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;
    use erd_ffi::fi::{FI_SOCKADDR_IN, FI_SOCKADDR_IN6};

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

    fn sources(hints: &Hints, query: Query<'_>) -> Result<Vec<String>, c_int> {
        let places = places(&settings(""), hints, query, host(), &[])?;
        Ok(places.iter().map(|place| place.src.to_string()).collect())
    }

    fn source_query<'a>(node: Option<&'a str>, service: Option<&'a str>) -> Query<'a> {
        Query { node, service, flags: FI_SOURCE | FI_NUMERICHOST }
    }

    #[test]
    fn fastest_first_loopback_last_and_nothing_unusable() {
        let all = sources(&Hints::none(), Query::default()).expect("places");
        let expected =
            ["198.51.100.5:0", "[2001:db8::5]:0", "192.0.2.17:0", "127.0.0.1:0", "[::1]:0"];
        assert_eq!(all, expected);
    }

    #[test]
    fn hints_narrow_the_choice() {
        let by = |change: fn(&mut Hints)| {
            let mut hints = Hints::none();
            change(&mut hints);
            sources(&hints, Query::default())
        };
        assert_eq!(by(|h| h.domain_name = Some("slow".into())), Ok(vec!["192.0.2.17:0".into()]));
        let fabric = by(|h| h.fabric_name = Some("198.51.100.0/25".into()));
        assert_eq!(fabric, Ok(vec!["198.51.100.5:0".into()]));
        let v6 = by(|h| h.addr_format = FI_SOCKADDR_IN6).expect("IPv6");
        assert_eq!(v6, ["[2001:db8::5]:0", "[::1]:0"]);
        assert_eq!(by(|h| h.domain_name = Some("down".into())), Err(FI_ENODATA));
        assert_eq!(by(|h| h.src = "192.0.2.17:9".parse().ok()), Ok(vec!["192.0.2.17:9".into()]));
        assert_eq!(by(|h| h.src = "192.0.2.18:9".parse().ok()), Err(FI_ENODATA));
        let any = by(|h| h.src = "0.0.0.0:9".parse().ok()).expect("any address");
        assert_eq!(any[0], "198.51.100.5:9");
    }

    #[test]
    fn a_source_is_bound_where_it_belongs() {
        let at = |node, service| sources(&Hints::none(), source_query(node, service));
        assert_eq!(at(Some("192.0.2.17"), Some("7")), Ok(vec!["192.0.2.17:7".into()]));
        assert_eq!(at(Some("127.0.0.9"), None), Ok(vec!["127.0.0.9:0".into()]));
        assert_eq!(at(Some("192.0.2.99"), Some("7")), Err(FI_ENODATA));
        assert_eq!(at(None, Some("9228")).map(|all| all.len()), Ok(5));
        assert_eq!(
            at(None, Some("9228")).map(|all| all[0].clone()),
            Ok("198.51.100.5:9228".into())
        );
        assert_eq!(at(None, None), Err(FI_EINVAL));
    }

    #[test]
    fn a_peer_is_reached_from_the_interface_that_its_route_leaves_by() {
        let query = Query { node: Some("127.0.0.1"), service: Some("9228"), flags: FI_NUMERICHOST };
        let found = places(&settings(""), &Hints::none(), query, host(), &[]).expect("loopback");
        let only: Vec<_> = found.iter().map(|p| (p.src.to_string(), p.dest)).collect();
        assert_eq!(only, [("127.0.0.1:0".to_owned(), "127.0.0.1:9228".parse().ok())]);
        let hints = Hints { dest: "[::1]:5".parse().ok(), ..Hints::none() };
        let found = places(&settings(""), &hints, Query::default(), host(), &[]);
        // A host without IPv6 has no route to ::1.
        if let Ok(found) = found {
            assert_eq!((found.len(), found[0].dest), (1, hints.dest));
        }
        let hints = Hints { addr_format: FI_SOCKADDR_IN, ..hints };
        assert_eq!(places(&settings(""), &hints, Query::default(), host(), &[]), Err(FI_ENODATA));
    }

    #[test]
    fn the_interface_setting_keeps_to_what_it_names_and_must_exist() {
        let offered = |iface| {
            offered(&settings(iface), host())
                .map(|all| all.iter().map(|entry| entry.addr.to_string()).collect::<Vec<_>>())
        };
        assert_eq!(offered("slow,127.0.0.1"), Ok(vec!["192.0.2.17".into(), "127.0.0.1".into()]));
        assert_eq!(offered("eth9"), Err(FI_ENODATA));
        assert_eq!(offered("down"), Err(FI_ENODATA));
    }

    #[test]
    fn who_links_providers_gets_loopback_only_for_want_of_others() {
        let found = |change: fn(&mut Hints), iface| {
            let mut hints = Hints { caps: FI_PEER, ..Hints::none() };
            change(&mut hints);
            let found = places(&settings(iface), &hints, Query::default(), host(), &[]);
            let all = for_peers(&hints, found.expect("places"));
            all.iter().filter(|place| place.interface.loopback).count()
        };
        assert_eq!(found(|_| (), ""), 0);
        assert_eq!(found(|_| (), "lo"), 2);
        assert_eq!(found(|hints| hints.domain_name = Some("lo".into()), ""), 2);
        assert_eq!(found(|hints| hints.caps = 0, ""), 2);
    }

    #[test]
    fn a_fabric_is_called_after_its_network() {
        let names: Vec<_> = host().iter().map(network).collect();
        assert_eq!(names[0], "127.0.0.0/8");
        assert_eq!(names[1], "::1/128");
        assert_eq!(names[3], "2001:db8::/64");
        assert_eq!(names[4], "198.51.100.0/25");
        assert_eq!(network(&interface("x", "10.0.0.1", 0, None)), "0.0.0.0/0");
    }
}
