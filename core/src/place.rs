//! Places for an endpoint: the interfaces, local addresses and peers that an application means. All faces choose places
//! here. The choice sends nothing to a peer.

use crate::error::Error;
use crate::fabric_names::{masked, network};
use crate::rdma;
use crate::settings::{PortSetting, Settings};
use crate::sockaddr::Family;
use erd_port::udp::{self, Interface};
use erd_port::verbs::Port;
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

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

    /// Name of the fabric.
    #[must_use]
    pub fn fabric_name(&self, settings: &Settings) -> String {
        settings.fabrics.of(&self.domain_name(), &self.interface)
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
    /// The name of a fabric.
    pub fabric: Option<&'a str>,
    /// The local address.
    pub source: Source,
    /// The peers, of which any will do.
    pub dests: Vec<SocketAddr>,
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

/// All places on the [`offered`] interfaces that meet the criteria, in order of preference: one for each card, family of
/// addresses and network. UDP sockets have no place on an interface where an RDMA device has one, unless the criteria
/// name the interface. It asks only the routing table.
#[must_use]
pub fn places(
    settings: &Settings,
    offered: &[Interface],
    criteria: &Criteria<'_>,
    ports: &[Port],
) -> Vec<Place> {
    let dests: Vec<_> =
        criteria.dests.iter().map(|dest| (*dest, udp::route_source(*dest).ok())).collect();
    let meant =
        |entry: &&Interface| criteria.family.is_none_or(|family| family == Family::of(entry.addr));
    let settled = offered.iter().filter(meant);
    let plain = settled.filter_map(|entry| settle(entry, &criteria.source, &dests));
    let mut plain: Vec<_> = plain.collect();
    let in_fabric =
        |place: &Place| criteria.fabric.is_none_or(|name| name == place.fabric_name(settings));
    let over_verbs = plain.iter().flat_map(|place| {
        let ports = rdma::on_interface(settings, ports, &place.interface);
        ports.into_iter().map(|port| Place { verbs: Some(port), ..place.clone() })
    });
    let mut places: Vec<_> = over_verbs.filter(in_fabric).collect();
    let on_cards: BTreeSet<_> = places.iter().map(|place| place.interface.name.clone()).collect();
    plain.retain(|place| {
        let name = &place.interface.name;
        in_fabric(place) && (!on_cards.contains(name) || criteria.domain == Some(name))
    });
    if settings.port != PortSetting::Verbs {
        places.extend(plain);
    }
    places.retain(|place| criteria.domain.is_none_or(|name| name == place.domain_name()));
    if !matches!(criteria.source, Source::At(_)) {
        let mut seen = BTreeSet::new();
        places.retain(|place| {
            let is_v4 = place.interface.addr.is_ipv4();
            seen.insert((place.domain_name(), is_v4, network(&place.interface)))
        });
    }
    places
}

#[cfg(test)]
mod tests;
