//! What engines expect of a provider with a name that they know, beyond `fi_getinfo(3)`. The name is the user's choice
//! (`FI_ERD_PROV_NAME`).

use crate::info::hints::Hints;
use erd_core::place::Place;
use erd_ffi::fi::{FI_MSG, FI_RMA};
use std::collections::BTreeSet;
use std::ffi::c_void;
use std::net::SocketAddr;

/// The manners of a provider.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Manners {
    /// Those that libfabric's manual pages describe.
    Plain,
    /// Those of any other name: an engine may also name the protocol of the provider that it knows, as Mercury does, and
    /// an operation without a level is complete when the peer has its bytes.
    Borrowed,
    /// Those of `efa`, as NIXL and Mooncake know it. They are [`Manners::Borrowed`], and:
    ///
    /// - A domain's name is the device's, followed by `-rdm`. Mooncake asks for it so.
    /// - Each domain is a card of its own. NIXL opens every entry of the list, and connects each with all of a peer's.
    /// - A domain for virtual addresses is given if asked for. Mooncake uses nothing else, and does not look.
    /// - A descriptor is not NULL, or Mooncake takes the memory for not registered.
    Efa,
}

/// What follows the device's name in a domain's name of `efa`.
const EFA_SUFFIX: &str = "-rdm";
/// A descriptor that names no memory. Those that name some count from 1.
const NO_MEMORY: usize = usize::MAX;

impl Manners {
    /// The manners of a provider of this name.
    #[must_use]
    pub fn of(name: &str) -> Manners {
        if name == "efa" { Manners::Efa } else { Manners::Borrowed }
    }

    /// Whether it goes by any protocol that hints name (`ep_attr->protocol`), and not by its own alone.
    #[must_use]
    pub fn takes_protocols(self) -> bool {
        self != Manners::Plain
    }

    /// The name of the domain of a device or an interface. Who asked for it by the device's name alone gets that back:
    /// libfabric drops an entry with another name than the hints'.
    #[must_use]
    pub fn domain_name(self, device: &str, hinted: Option<&str>) -> String {
        if self == Manners::Efa && hinted != Some(device) {
            return format!("{device}{EFA_SUFFIX}");
        }
        device.to_owned()
    }

    /// The device or interface that an application means by this name of a domain.
    #[must_use]
    pub fn device(self, domain_name: &str) -> &str {
        let suffix = if self == Manners::Efa { EFA_SUFFIX } else { "" };
        domain_name.strip_suffix(suffix).unwrap_or(domain_name)
    }

    /// Whether a domain takes virtual addresses if asked to. Otherwise it takes offsets, which `fi_mr(3)` prefers.
    #[must_use]
    pub fn keeps_addresses(self) -> bool {
        self == Manners::Efa
    }

    /// Whether a small operation may be complete when its bytes are copied. Engines that know another name tell the peer
    /// over another connection that its bytes are there.
    #[must_use]
    pub fn completes_early(self) -> bool {
        self == Manners::Plain
    }

    /// Whether hints with these transfers get `FI_HMEM` without the user's word. NIXL asks for it with messages and RMA
    /// alone. A provider of another name that refuses it has memory of a GPU registered as the host's; one that grants it
    /// may refuse that memory.
    #[must_use]
    pub fn grants_hmem(self, transfers: u64) -> bool {
        self != Manners::Plain && transfers == FI_MSG | FI_RMA
    }

    /// The descriptor of memory with this number; 0 if it has none.
    #[must_use]
    pub fn descriptor(self, number: u64) -> *mut c_void {
        let number = match (self, number) {
            (Manners::Efa, 0) => NO_MEMORY,
            (_, number) => number as usize,
        };
        // Never dereferenced: a number that may be stale, and then names nothing.
        std::ptr::without_provenance_mut(number)
    }

    /// The places to tell an application about. With the manners of `efa` it is one for each card, all with addresses of
    /// one family, and without loopback, which reaches no other host: unless the application names what it wants.
    #[must_use]
    pub fn offered(self, hints: &Hints, is_named: bool, mut places: Vec<Place>) -> Vec<Place> {
        let no_family = crate::addr_format::family(hints.addr_format).is_none();
        let is_free = hints.src.is_none() && hints.dest.is_none() && no_family;
        if self != Manners::Efa || is_named || !is_free {
            return places;
        }
        let outside = |place: &Place| !place.interface.loopback;
        if hints.domain_name.is_none() && places.iter().any(outside) {
            places.retain(outside);
        }
        if places.iter().any(|place| place.src.is_ipv4()) {
            places.retain(|place| place.src.is_ipv4());
        }
        // A device comes before the interface that it shares an address with.
        let mut names = BTreeSet::new();
        let mut addresses: BTreeSet<SocketAddr> = BTreeSet::new();
        places.retain(|place| names.insert(place.domain_name()) && addresses.insert(place.src));
        places
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use erd_ffi::fi::{FI_SOCKADDR, FI_SOCKADDR_IN, FI_TAGGED};
    use erd_port::udp::Interface;

    fn place(name: &str, addr: &str) -> Place {
        let addr = addr.parse().expect("address");
        let interface = Interface {
            name: name.to_owned(),
            addr,
            prefix: 24,
            mtu_bytes: 1500,
            up: true,
            loopback: name == "lo",
            speed_mbps: None,
        };
        Place { interface, verbs: None, src: SocketAddr::new(addr, 0), dest: None }
    }

    fn all() -> Vec<Place> {
        vec![
            place("fast", "198.51.100.5"),
            place("fast", "198.51.100.6"),
            place("fast", "2001:db8::5"),
            place("six", "2001:db8:1::5"),
            place("slow", "192.0.2.17"),
            place("lo", "127.0.0.1"),
        ]
    }

    fn offered(manners: Manners, is_named: bool, change: impl FnOnce(&mut Hints)) -> Vec<String> {
        let mut hints = Hints::none();
        change(&mut hints);
        let places = manners.offered(&hints, is_named, all());
        places.iter().map(|place| place.src.ip().to_string()).collect()
    }

    #[test]
    fn efa_has_one_entry_for_each_card_and_no_loopback() {
        assert_eq!(offered(Manners::Efa, false, |_| ()), ["198.51.100.5", "192.0.2.17"]);
        assert_eq!(offered(Manners::Plain, false, |_| ()).len(), 6);
        assert_eq!(offered(Manners::Efa, true, |_| ()).len(), 6, "a node was named");
        let format = |hints: &mut Hints| hints.addr_format = FI_SOCKADDR_IN;
        assert_eq!(offered(Manners::Efa, false, format).len(), 6, "a family was named");
        let any = |hints: &mut Hints| hints.addr_format = FI_SOCKADDR;
        assert_eq!(offered(Manners::Efa, false, any).len(), 2, "no family");
        let by_name = |hints: &mut Hints| hints.domain_name = Some("lo".to_owned());
        assert_eq!(offered(Manners::Efa, false, by_name).len(), 3, "loopback is not left out");
        let alone = Manners::Efa.offered(&Hints::none(), false, vec![place("lo", "127.0.0.1")]);
        assert_eq!(alone.len(), 1, "there is nothing else");
        let six = Manners::Efa.offered(&Hints::none(), false, vec![place("six", "2001:db8::5")]);
        assert_eq!(six.len(), 1, "there is no IPv4");
    }

    #[test]
    fn efa_has_a_device_and_not_its_interface_beside_it() {
        // As with a place over verbs, the name differs, and the address does not.
        let all = ["mlx5_0", "eth0"].map(|name| place(name, "192.0.2.1"));
        let all = all.into_iter().chain([place("eth1", "198.51.100.1")]).collect();
        let places = Manners::Efa.offered(&Hints::none(), false, all);
        let names: Vec<_> = places.iter().map(Place::domain_name).collect();
        assert_eq!(names, ["mlx5_0", "eth1"]);
    }

    #[test]
    fn efa_s_domains_are_called_after_their_devices() {
        assert_eq!(Manners::Efa.domain_name("eth0", None), "eth0-rdm");
        assert_eq!(Manners::Efa.domain_name("eth0", Some("eth0-rdm")), "eth0-rdm");
        assert_eq!(Manners::Efa.domain_name("eth0", Some("eth0")), "eth0");
        assert_eq!(Manners::Efa.device("eth0-rdm"), "eth0");
        assert_eq!(Manners::Efa.device("eth0"), "eth0");
        assert_eq!(Manners::Plain.device("eth0-rdm"), "eth0-rdm");
        assert_eq!(Manners::Borrowed.domain_name("eth0", None), "eth0");
    }

    #[test]
    fn operations_complete_early_under_erd_s_own_name_alone() {
        assert!(Manners::Plain.completes_early());
        assert!(!Manners::of("tcp").completes_early() && !Manners::of("efa").completes_early());
    }

    #[test]
    fn engines_that_know_another_name_get_hmem() {
        assert!(Manners::Efa.grants_hmem(FI_MSG | FI_RMA));
        assert!(!Manners::Efa.grants_hmem(FI_MSG | FI_TAGGED));
        assert!(!Manners::Plain.grants_hmem(FI_MSG | FI_RMA));
    }

    #[test]
    fn efa_s_descriptors_are_not_null() {
        assert!(!Manners::Efa.descriptor(0).is_null());
        assert!(Manners::Plain.descriptor(0).is_null());
        for manners in [Manners::Plain, Manners::Borrowed, Manners::Efa] {
            assert_eq!(manners.descriptor(7).addr(), 7);
        }
    }
}
