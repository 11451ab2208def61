//! The places that an application's hints, node and service select.

use super::hints::Hints;
use crate::entry;
use erd_core::place::{self, Criteria, Place, Source};
use erd_core::resolve;
use erd_core::settings::Settings;
use erd_core::sockaddr::Family;
use erd_ffi::fi::{FI_EINVAL, FI_ENODATA, FI_NUMERICHOST, FI_PEER, FI_SOURCE};
use erd_port::udp::Interface;
use erd_port::verbs::Port;
use std::ffi::c_int;
use std::net::SocketAddr;

/// The arguments of `fi_getinfo` besides the hints.
#[derive(Clone, Copy, Default)]
pub struct Query<'a> {
    /// Host name or address.
    pub node: Option<&'a str>,
    /// Port number or service name.
    pub service: Option<&'a str>,
    /// `FI_SOURCE`, `FI_NUMERICHOST`.
    pub flags: u64,
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
        return Ok(hints.src.map_or(Source::Free, |src| Source::from(vec![src])));
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
        (Some(_), _) => Ok(Source::from(resolve(query, family)?)),
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

/// All places that meet a request, in order of preference. It asks only the resolver and the routing table, and sends
/// nothing to a peer.
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
    let offered = place::offered(settings, interfaces).map_err(crate::errno::of)?;
    let criteria = Criteria {
        family,
        domain: hints.domain_name.as_deref().map(|name| entry::manners().device(name)),
        fabric: hints.fabric_name.as_deref(),
        source: source(hints, query, family)?,
        dests: destinations(hints, query, family)?,
    };
    let places = place::places(settings, &offered, &criteria, ports);
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

/// A provider that links others (`FI_PEER`) takes every offered domain, and links those of one fabric name. Loopback
/// has the same name on every host and reaches no other. So they get it only where nothing else is offered, or by name.
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
    fn an_interface_that_is_not_there_is_no_data() {
        let found = |iface| places(&settings(iface), &Hints::none(), Query::default(), host(), &[]);
        assert_eq!(found("eth9"), Err(FI_ENODATA));
        assert!(found("slow,127.0.0.1").is_ok_and(|places| places.len() == 2));
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
}
