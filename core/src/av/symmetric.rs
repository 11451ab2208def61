//! Runs of addresses: consecutive nodes with consecutive services (`fi_av_insertsym`).

use crate::resolve::{self, ResolveError};
use crate::sockaddr::Family;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The first of the nodes.
enum Node<'a> {
    /// A numeric address; the next node has the next address.
    Ip(IpAddr),
    /// A host name; the next node has the next number at its end.
    Name { stem: &'a str, digits: &'a str },
}

impl<'a> Node<'a> {
    fn parse(text: &'a str) -> Node<'a> {
        if let Ok(ip) = text.parse() {
            return Node::Ip(ip);
        }
        let stem = text.trim_end_matches(|digit: char| digit.is_ascii_digit());
        Node::Name { stem, digits: &text[stem.len()..] }
    }

    /// The node `n` places further; `None` beyond the last address or number.
    fn nth(&self, n: u64) -> Option<String> {
        match self {
            Node::Ip(IpAddr::V4(first)) => {
                let bits = first.to_bits().checked_add(u32::try_from(n).ok()?)?;
                Some(Ipv4Addr::from_bits(bits).to_string())
            }
            Node::Ip(IpAddr::V6(first)) => {
                Some(Ipv6Addr::from_bits(first.to_bits().checked_add(n.into())?).to_string())
            }
            Node::Name { stem, digits } if n == 0 => Some(format!("{stem}{digits}")),
            Node::Name { stem, digits } => {
                let number = digits.parse::<u64>().ok()?.checked_add(n)?;
                let width = digits.len();
                Some(format!("{stem}{number:0width$}"))
            }
        }
    }
}

/// A run of `nodes` nodes with `services` services each.
pub struct Run<'a> {
    node: Node<'a>,
    nodes: u64,
    service: &'a str,
    services: u64,
    family: Family,
}

impl<'a> Run<'a> {
    /// Begins at `node` and `service`.
    #[must_use]
    pub fn new(node: (&'a str, usize), service: (&'a str, usize), family: Family) -> Run<'a> {
        Run {
            node: Node::parse(node.0),
            nodes: node.1 as u64,
            service: service.0,
            services: service.1 as u64,
            family,
        }
    }

    /// Number of addresses; `None` if that overflows.
    #[must_use]
    pub fn count(&self) -> Option<usize> {
        usize::try_from(self.nodes.checked_mul(self.services)?).ok()
    }

    /// The address at a place: all services of the first node, then those of the second.
    ///
    /// # Errors
    /// If there is no such node, service or host.
    pub fn nth(&self, place: usize) -> Result<SocketAddr, ResolveError> {
        let (n, s) = (place as u64 / self.services, place as u64 % self.services);
        let node = self.node.nth(n).ok_or(ResolveError::NoSuchPlace)?;
        let first = resolve::lookup(Some(&node), Some(self.service), Some(self.family), false)?;
        let mut addr = *first.first().ok_or(ResolveError::NoSuchPlace)?;
        let port = u64::from(addr.port()) + s;
        addr.set_port(u16::try_from(port).map_err(|_| ResolveError::NoSuchPlace)?);
        Ok(addr)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(
        node: &str,
        nodes: usize,
        service: &str,
        services: usize,
        family: Family,
    ) -> Vec<String> {
        let run = Run::new((node, nodes), (service, services), family);
        let count = run.count().expect("count");
        (0..count).map(|place| run.nth(place).map_or("none".into(), |a| a.to_string())).collect()
    }

    #[test]
    fn addresses_and_ports_count_up() {
        assert_eq!(
            run("10.0.0.255", 2, "100", 2, Family::V4),
            ["10.0.0.255:100", "10.0.0.255:101", "10.0.1.0:100", "10.0.1.0:101"]
        );
        assert_eq!(run("fd00::ff", 2, "7", 1, Family::V6), ["[fd00::ff]:7", "[fd00::100]:7"]);
    }

    #[test]
    fn a_run_ends_with_the_last_address_and_the_last_port() {
        assert_eq!(run("255.255.255.255", 2, "1", 1, Family::V4), ["255.255.255.255:1", "none"]);
        assert_eq!(run("127.0.0.1", 1, "65535", 2, Family::V4), ["127.0.0.1:65535", "none"]);
    }

    #[test]
    fn numbers_at_the_end_of_names_keep_their_width() {
        let node = Node::parse("node08");
        let names: Vec<_> = (0..3).map(|n| node.nth(n)).collect();
        assert_eq!(names, ["node08", "node09", "node10"].map(|name| Some(name.to_owned())));
        assert_eq!(Node::parse("login").nth(1), None);
    }
}
