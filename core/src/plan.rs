//! The effective configuration of a domain on an interface, for opening it and for queries beforehand.

use crate::scheme::SchemeChoice;
use crate::settings::{KeySource, Settings};
use erd_port::udp::{Interface, max_payload_bytes};
use erd_port::verbs::{self, Port};
use erd_rd::config::DATAGRAM_MIN_BYTES;
use erd_rd::keys::KeySet;

/// Below this a copy costs less than a registration or its lookup.
const ZERO_COPY_BYTES: u64 = 16 << 10;
/// The default MTU of loopback. The kernel reports a changed one for each peer.
const LOOPBACK_MTU_BYTES: u32 = 65_536;
/// A speed of 1 Mbit/s.
const BYTES_PER_S_OF_MBPS: u64 = 125_000;
/// Most paths that are queue pairs of their own.
const QP_PATHS_MAX: u16 = verbs::QPS_MAX as u16 - 1;

/// The configuration that follows from the settings, the interface and the port of an RDMA device on it.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Paths to spray over, 1 to 256.
    pub paths: u16,
    /// Congestion control, unless the application chooses another.
    pub scheme: SchemeChoice,
    /// Speed of the link in bytes per second; 0 if unknown.
    pub link_bytes_per_s: u64,
    /// Largest datagram, sent or received, in bytes of UDP payload.
    pub datagram_bytes: u16,
    /// Packets are marked as ECN-capable.
    pub ecn: bool,
    /// The configuration towards peers on this host, where it differs.
    pub near: Option<Near>,
}

/// The configuration between processes of one host. Whatever interface has their addresses, the kernel connects them as
/// on loopback.
#[derive(Clone, PartialEq, Debug)]
pub struct Near {
    /// See [`Plan::paths`].
    pub paths: u16,
    /// See [`Plan::scheme`].
    pub scheme: SchemeChoice,
    /// See [`Plan::link_bytes_per_s`]; the interface's speed does not matter here.
    pub link_bytes_per_s: u64,
    /// See [`Plan::datagram_bytes`].
    pub datagram_bytes: u16,
}

impl Near {
    /// `None` on loopback, where all peers are near, and on an RDMA device, which has its own path.
    #[must_use]
    pub fn new(settings: &Settings, entry: &Interface, port: Option<&Port>) -> Option<Near> {
        if entry.loopback || port.is_some() {
            return None;
        }
        Some(Near {
            paths: settings.paths_on(true),
            scheme: settings.scheme_on(true),
            link_bytes_per_s: settings.link_mbps.unwrap_or(0) * BYTES_PER_S_OF_MBPS,
            datagram_bytes: datagram_bytes(
                settings,
                LOOPBACK_MTU_BYTES,
                entry.addr.is_ipv6(),
                None,
            ),
        })
    }
}

impl Plan {
    /// The configuration on `entry`, over `port` if there is one.
    #[must_use]
    pub fn new(settings: &Settings, entry: &Interface, port: Option<&Port>) -> Plan {
        let scheme = settings.scheme_on(is_by_hosts(entry, port));
        let verbs_bytes = port.map(|port| port.mtu_bytes);
        Plan {
            paths: paths(settings, entry, port),
            link_bytes_per_s: link_bytes_per_s(settings, entry),
            datagram_bytes: datagram_bytes(
                settings,
                entry.mtu_bytes,
                entry.addr.is_ipv6(),
                verbs_bytes,
            ),
            ecn: settings.ecn && scheme.uses_ecn(),
            scheme,
            near: Near::new(settings, entry, port),
        }
    }
}

/// True on loopback and Soft-RoCE, where round trips measure CPU load, not the network.
pub(crate) fn is_by_hosts(entry: &Interface, port: Option<&Port>) -> bool {
    entry.loopback || port.is_some_and(Port::is_software)
}

/// Paths to use: the setting, over verbs limited to the number of queue pairs unless an address handle makes a path
/// too.
pub fn paths(settings: &Settings, entry: &Interface, port: Option<&Port>) -> u16 {
    let paths = settings.paths_on(entry.loopback);
    let most =
        if port.is_some_and(|port| !port.flow_label_paths) { QP_PATHS_MAX } else { u16::MAX };
    paths.min(most)
}

/// Least payload, in bytes, sent from registered memory without a copy; `None` if all are copied: where packets are
/// proven, and over Soft-RoCE, which copies each datagram by itself, and more slowly from two places.
pub fn zero_copy_bytes(settings: &Settings, port: Option<&Port>) -> Option<u64> {
    let port = port.filter(|_| settings.keys == KeySource::None)?;
    let default = if port.is_software() { 0 } else { ZERO_COPY_BYTES };
    let bytes = settings.zero_copy_bytes.unwrap_or(default);
    // A payload shorter than a datagram may share it with others.
    (bytes > 0).then(|| bytes.max(port.mtu_bytes.into()))
}

/// The same for an endpoint with these keys, of a domain of which [`zero_copy_bytes`] are known. What a key proves was
/// copied before: a device that reads the application's memory would send what changes under its proof.
pub(crate) fn least_uncopied_bytes(of_domain: Option<u64>, keys: &KeySet) -> u64 {
    of_domain.filter(|_| keys.is_empty()).unwrap_or(u64::MAX)
}

/// Link speed in bytes per second: the setting, or what the interface reports.
pub(crate) fn link_bytes_per_s(settings: &Settings, entry: &Interface) -> u64 {
    let set_mbps = settings.link_mbps;
    set_mbps.or(entry.speed_mbps.map(u64::from)).unwrap_or(0) * BYTES_PER_S_OF_MBPS
}

/// Datagram size in bytes: what the link carries in one piece, unless the setting or a device limits it.
pub fn datagram_bytes(
    settings: &Settings,
    mtu_bytes: u32,
    v6: bool,
    verbs_bytes: Option<u16>,
) -> u16 {
    let payload = max_payload_bytes(mtu_bytes, v6) as u16;
    let limit = settings.mtu_bytes.unwrap_or(u16::MAX);
    // UDP must carry every datagram, too.
    payload.min(verbs_bytes.unwrap_or(u16::MAX)).min(limit).max(DATAGRAM_MIN_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{JobKey, PortSetting};
    use erd_crypto::Keyring;
    use erd_port::verbs::gid::{Gid, GidEntry, GidKind};
    use std::sync::Arc;

    fn plan(change: &[(&str, &str)], loopback: bool) -> Plan {
        plan_over(change, loopback, None)
    }

    fn plan_over(change: &[(&str, &str)], loopback: bool, port: Option<&Port>) -> Plan {
        let said = |name: &str| change.iter().find(|(asked, _)| *asked == name);
        let settings =
            Settings::read(|asked| Ok(said(asked.name).map(|(_, value)| (*value).to_owned())));
        let entry = Interface {
            name: "eth0".to_owned(),
            addr: "192.0.2.1".parse().expect("address"),
            prefix: 24,
            mtu_bytes: 9000,
            up: true,
            loopback,
            speed_mbps: Some(100_000),
        };
        Plan::new(&settings.expect("settings"), &entry, port)
    }

    fn port_of(vendor_id: u32) -> Port {
        let gid = GidEntry { index: 1, gid: Gid([1; 16]), kind: GidKind::RoceV2, ifindex: 2 };
        Port {
            device: "rdma0".to_owned(),
            number: 1,
            ports: 1,
            gid,
            gids: vec![gid],
            mtu_bytes: 4096,
            speed_mbps: 100_000,
            ethernet: true,
            lid: 0,
            flow_label_paths: false,
            wr_max: 1024,
            cqe_max: 1024,
            vendor_id,
            part_id: 0,
            firmware: String::new(),
        }
    }

    #[test]
    fn soft_roce_has_the_scheme_of_loopback_and_cards_that_of_networks() {
        for (vendor_id, scheme) in [(0xff_ffff, "erd"), (0, "erd"), (0x02c9, "nscc")] {
            let plan = plan_over(&[], false, Some(&port_of(vendor_id)));
            assert_eq!(plan.scheme.name(), scheme, "vendor {vendor_id:#x}");
        }
        let set = plan_over(&[("cc", "strack")], false, Some(&port_of(0)));
        assert_eq!(set.scheme.name(), "strack");
    }

    #[test]
    fn cards_send_without_a_copy_and_soft_roce_only_if_it_is_set() {
        let least = |value: Option<&str>, vendor_id: Option<u32>| {
            let settings = Settings::read(|asked| {
                Ok(value.filter(|_| asked.name == "zero_copy_size").map(str::to_owned))
            });
            let port = vendor_id.map(port_of);
            zero_copy_bytes(&settings.expect("settings"), port.as_ref())
        };
        let (card, soft) = (Some(0x02c9), Some(0xff_ffff));
        assert_eq!((least(None, card), least(None, soft)), (Some(16384), None));
        assert_eq!(
            (least(Some("4096"), card), least(Some("4096"), soft)),
            (Some(4096), Some(4096))
        );
        assert_eq!(least(Some("100"), card), Some(4096), "the datagrams are so large");
        assert_eq!((least(Some("0"), card), least(Some("4096"), None)), (None, None));
    }

    #[test]
    fn with_a_key_no_device_reads_memory_that_an_application_may_change() {
        let settings = |value: &'static str| {
            Settings::read(|asked| Ok((asked.name == "zero_copy_size").then(|| value.to_owned())))
        };
        let key = || JobKey::new(&[5; 32]);
        for source in [KeySource::Application(key()), KeySource::Vectors] {
            for value in ["4096", "1", "auto"] {
                let keyed = settings(value).expect("settings").with_keys(source.clone());
                assert_eq!(zero_copy_bytes(&keyed, Some(&port_of(0x02c9))), None, "{value}");
            }
        }
        // An endpoint's own key, in a domain without one.
        let own = KeySet::one(Arc::new(Keyring::new(key(), true)));
        assert_eq!(least_uncopied_bytes(Some(4096), &own), u64::MAX);
        assert_eq!(least_uncopied_bytes(Some(4096), &KeySet::default()), 4096);
        assert_eq!(least_uncopied_bytes(None, &KeySet::default()), u64::MAX);
    }

    #[test]
    fn a_key_leaves_the_choice_of_the_port() {
        for (value, port) in [("auto", PortSetting::Auto), ("verbs", PortSetting::Verbs)] {
            let settings =
                Settings::read(|asked| Ok((asked.name == "port").then(|| value.to_owned())));
            let keyed = settings.expect("settings").with_keys(KeySource::Vectors);
            assert_eq!(keyed.port, port);
        }
    }

    #[test]
    fn the_interface_decides_unless_a_setting_does() {
        let plain = plan(&[], false);
        assert_eq!((plain.paths, plain.scheme.name(), plain.ecn), (4, "nscc", true));
        assert_eq!((plain.datagram_bytes, plain.link_bytes_per_s), (8972, 12_500_000_000));
        let loopback = plan(&[], true);
        assert_eq!((loopback.paths, loopback.scheme.name(), loopback.ecn), (1, "erd", false));
        assert_eq!(loopback.near, None, "all peers are");
        let near = plain.near.expect("peers on this host");
        assert_eq!((near.paths, near.scheme.clone()), (loopback.paths, loopback.scheme));
        assert_eq!((near.datagram_bytes, near.link_bytes_per_s), (65_507, 0), "no card is between");
        let said = [("paths", "16"), ("cc", "swift"), ("mtu", "1400"), ("link_gbps", "1")];
        let set = plan(&said, true);
        assert_eq!((set.paths, set.scheme.name(), set.datagram_bytes), (16, "swift", 1400));
        assert_eq!(set.link_bytes_per_s, 125_000_000);
        let near = plan(&said, false).near.expect("peers on this host");
        assert_eq!((near.paths, near.scheme, near.datagram_bytes), (16, set.scheme, 1400));
        assert_eq!(near.link_bytes_per_s, 125_000_000);
        assert_eq!(plan_over(&[], false, Some(&port_of(0x02c9))).near, None, "verbs are its way");
    }
}
