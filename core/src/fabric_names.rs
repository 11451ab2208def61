//! The names of fabrics (`FI_ERD_FABRIC`). Engines use all interfaces together whose fabric has one name.

use erd_port::udp::Interface;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Longest name.
const NAME_BYTES_MAX: usize = 63;
/// Most names, as many as interfaces that a host may have.
const NAMES_MAX: usize = 256;

/// Names in place of the networks' own.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FabricNames {
    /// That of every interface but loopback.
    all: Option<String>,
    /// Those of some domains, of which the first that fits counts.
    by_domain: Vec<(String, String)>,
}

impl FabricNames {
    /// Reads `cluster`, or `mlx5_0=rail0,mlx5_1=rail1`, or both. A `*` at the end of a domain stands for any end. `None` if
    /// the text is neither.
    #[must_use]
    pub fn parse(text: &str) -> Option<FabricNames> {
        let mut names = FabricNames::default();
        let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
        for part in parts {
            match part.split_once('=') {
                Some((domain, name)) => {
                    let (domain, name) = (is_name(domain.trim())?, is_name(name.trim())?);
                    names.by_domain.push((domain, name));
                }
                None if names.all.is_some() => return None,
                None => names.all = Some(is_name(part)?),
            }
        }
        (names.by_domain.len() <= NAMES_MAX).then_some(names)
    }

    /// The name of the fabric of a domain (an RDMA device, or an interface) at an address of this interface. Loopback
    /// reaches no other interface, so it has the name of all only if it is named itself.
    #[must_use]
    pub fn of(&self, domain: &str, entry: &Interface) -> String {
        let fits = |named: &str| match named.strip_suffix('*') {
            Some(start) => domain.starts_with(start),
            None => domain == named,
        };
        let own = self.by_domain.iter().find(|(named, _)| fits(named)).map(|(_, name)| name);
        let all = self.all.as_ref().filter(|_| !entry.loopback);
        own.or(all).cloned().unwrap_or_else(|| network(entry))
    }

    /// Whether some domain may have this name by the setting.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        let own = self.by_domain.iter().map(|(_, name)| name);
        own.chain(&self.all).any(|has| has == name)
    }
}

fn is_name(text: &str) -> Option<String> {
    let shaped = (1..=NAME_BYTES_MAX).contains(&text.len());
    (shaped && text.bytes().all(|byte| byte.is_ascii_graphic())).then(|| text.to_owned())
}

/// Address bits of `ip` under a prefix.
pub(crate) fn masked(ip: IpAddr, prefix: u8) -> IpAddr {
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

/// The network of an interface: address and prefix. It names the fabric unless the setting does.
#[must_use]
pub fn network(entry: &Interface) -> String {
    format!("{}/{}", masked(entry.addr, entry.prefix), entry.prefix)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::interface;

    #[test]
    fn a_network_is_called_by_address_and_prefix() {
        for (addr, prefix, name) in [
            ("127.0.0.1", 8, "127.0.0.0/8"),
            ("::1", 128, "::1/128"),
            ("2001:db8::5", 64, "2001:db8::/64"),
            ("198.51.100.5", 25, "198.51.100.0/25"),
            ("10.0.0.1", 0, "0.0.0.0/0"),
        ] {
            assert_eq!(network(&interface("x", addr, prefix, None)), name);
        }
    }

    #[test]
    fn names_are_for_all_or_for_one_domain() {
        let (eth0, lo) =
            (interface("eth0", "192.0.2.1", 24, None), interface("lo", "127.0.0.1", 8, None));
        let name = |text: &str, domain: &str, entry: &Interface| {
            FabricNames::parse(text).expect("valid").of(domain, entry)
        };
        assert_eq!(name("", "eth0", &eth0), "192.0.2.0/24");
        assert_eq!(name("cluster", "eth0", &eth0), "cluster");
        assert_eq!(name("cluster", "lo", &lo), "127.0.0.0/8");
        assert_eq!(name("lo=here", "lo", &lo), "here");
        let rails = "mlx5_0=rail0, mlx5_1 = rail1,";
        assert_eq!(name(rails, "mlx5_1", &eth0), "rail1");
        assert_eq!(name(rails, "eth0", &eth0), "192.0.2.0/24");
        assert_eq!(name("others,mlx5_0=rail0", "eth0", &eth0), "others");
        let cards = "mlx5_0=first,mlx5_*=cluster";
        assert_eq!(name(cards, "mlx5_0", &eth0), "first");
        assert_eq!(name(cards, "mlx5_1", &eth0), "cluster");
        assert_eq!(name(cards, "mgmt", &eth0), "192.0.2.0/24");
        let names = FabricNames::parse("others,mlx5_0=rail0").expect("valid");
        assert!(names.has("others") && names.has("rail0") && !names.has("mlx5_0"));
    }

    #[test]
    fn what_names_nothing_or_twice_is_not_valid() {
        for text in ["a b", "=rail0", "mlx5_0=", "one,two", "a=b c", &"x".repeat(64)] {
            assert_eq!(FabricNames::parse(text), None, "{text}");
        }
    }
}
