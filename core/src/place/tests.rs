//! A host with ordinary interfaces, and one with eight RDMA NICs.

use super::*;
use crate::samples::{gid, interface};

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
fn criteria_narrow_the_choice() {
    let settings = settings("");
    let all = offered(&settings, host()).expect("interfaces");
    let found = |criteria: &Criteria<'_>| {
        let places = places(&settings, &all, criteria, &[]);
        places.iter().map(|place| place.src.to_string()).collect::<Vec<_>>()
    };
    let at = |text: &str| Source::from(vec![text.parse().expect("address")]);
    assert_eq!(found(&Criteria::default()).len(), 5);
    assert_eq!(found(&Criteria { domain: Some("slow"), ..Criteria::default() }), ["192.0.2.17:0"]);
    let fabric = Some("198.51.100.0/25");
    assert_eq!(found(&Criteria { fabric, ..Criteria::default() }), ["198.51.100.5:0"]);
    let v6 = found(&Criteria { family: Some(Family::V6), ..Criteria::default() });
    assert_eq!(v6, ["[2001:db8::5]:0", "[::1]:0"]);
    let at_slow = Criteria { source: at("192.0.2.17:9"), ..Criteria::default() };
    assert_eq!(found(&at_slow), ["192.0.2.17:9"]);
    let anywhere = found(&Criteria { source: at("0.0.0.0:9"), ..Criteria::default() });
    assert_eq!(anywhere[0], "198.51.100.5:9");
}

fn port(device: &str, addresses: &[String]) -> Port {
    let gids = (0..).zip(addresses).map(|(index, address)| gid(index, address));
    crate::samples::port(device, 4096, gids.collect())
}

/// A node with eight RDMA NICs in eight subnets, a VLAN on the first, two more cards in a bond, an interface for
/// management, and a bridge of containers.
fn node() -> (Vec<Interface>, Vec<Port>) {
    let (mut interfaces, mut ports) = (Vec::new(), Vec::new());
    for k in 0..8 {
        let name = format!("eth{k}");
        interfaces.push(interface(&name, &format!("10.0.{k}.5"), 24, Some(400_000)));
        interfaces.push(interface(&name, &format!("2001:db8:{k}::5"), 64, Some(400_000)));
        ports
            .push(port(&format!("mlx5_{k}"), &[format!("10.0.{k}.5"), format!("2001:db8:{k}::5")]));
    }
    interfaces.push(interface("eth0.7", "10.7.0.5", 24, Some(400_000)));
    ports[0].gids.push(gid(9, "10.7.0.5"));
    // A second address in the same network.
    interfaces.push(interface("eth1", "10.0.1.6", 24, Some(400_000)));
    ports[1].gids.push(gid(9, "10.0.1.6"));
    interfaces.push(interface("bond0", "10.8.0.5", 24, Some(200_000)));
    ports.push(port("mlx5_bond_0", &["10.8.0.5".to_owned()]));
    interfaces.push(interface("mgmt", "192.0.2.5", 24, Some(1000)));
    interfaces.push(interface("docker0", "172.17.0.1", 16, None));
    interfaces.push(interface("lo", "127.0.0.1", 8, None));
    (interfaces, ports)
}

/// Domain, fabric and address of each place.
fn drawn(setting: (&'static str, &'static str), criteria: &Criteria<'_>) -> Vec<String> {
    let (name, value) = setting;
    let settings = Settings::read(|asked| Ok((asked.name == name).then(|| value.to_owned())));
    let settings = settings.expect("settings");
    let (interfaces, ports) = node();
    let offered = offered(&settings, interfaces).expect("interfaces");
    let places = places(&settings, &offered, criteria, &ports);
    let line = |place: &Place| {
        format!("{} {} {}", place.domain_name(), place.fabric_name(&settings), place.src.ip())
    };
    places.iter().map(line).collect()
}

#[test]
fn each_rdma_nic_is_there_once_for_each_network() {
    let v4 = Criteria { family: Some(Family::V4), ..Criteria::default() };
    let expected = [
        "mlx5_0 10.0.0.0/24 10.0.0.5",
        "mlx5_0 10.7.0.0/24 10.7.0.5",
        "mlx5_1 10.0.1.0/24 10.0.1.5",
        "mlx5_2 10.0.2.0/24 10.0.2.5",
        "mlx5_3 10.0.3.0/24 10.0.3.5",
        "mlx5_4 10.0.4.0/24 10.0.4.5",
        "mlx5_5 10.0.5.0/24 10.0.5.5",
        "mlx5_6 10.0.6.0/24 10.0.6.5",
        "mlx5_7 10.0.7.0/24 10.0.7.5",
        "mlx5_bond_0 10.8.0.0/24 10.8.0.5",
        "mgmt 192.0.2.0/24 192.0.2.5",
        "docker0 172.17.0.0/16 172.17.0.1",
        "lo 127.0.0.0/8 127.0.0.1",
    ];
    assert_eq!(drawn(("", ""), &v4), expected);
    let v6 = Criteria { family: Some(Family::V6), ..Criteria::default() };
    let all = drawn(("", ""), &v6);
    assert_eq!((all.len(), all[7].as_str()), (8, "mlx5_7 2001:db8:7::/64 2001:db8:7::5"));
    assert_eq!(drawn(("", ""), &Criteria::default()).len(), expected.len() + all.len());
}

#[test]
fn the_interface_of_an_rdma_nic_is_there_by_name() {
    let by_name = |name| Criteria { domain: Some(name), ..Criteria::default() };
    let plain = ["eth0 10.0.0.0/24 10.0.0.5", "eth0 2001:db8:0::/64 2001:db8::5"];
    let found = drawn(("", ""), &by_name("eth0"));
    assert_eq!(found.len(), plain.len());
    assert_eq!(found[0], plain[0]);
    let device = drawn(("", ""), &by_name("mlx5_3"));
    assert_eq!(device, ["mlx5_3 10.0.3.0/24 10.0.3.5", "mlx5_3 2001:db8:3::/64 2001:db8:3::5"]);
    let verbs = drawn(("port", "verbs"), &Criteria::default());
    assert!(verbs.iter().all(|line| line.starts_with("mlx5")), "{verbs:?}");
    // An address in use, whichever of its network it is.
    let second = Source::from(vec![SocketAddr::new("10.0.1.6".parse().expect("address"), 0)]);
    let at = drawn(("", ""), &Criteria { source: second, ..Criteria::default() });
    assert_eq!(at, ["mlx5_1 10.0.1.0/24 10.0.1.6"]);
}

#[test]
fn an_address_that_no_device_has_goes_over_udp() {
    let (interfaces, mut ports) = node();
    ports[4].gids.remove(1);
    let settings = settings("");
    let offered = offered(&settings, interfaces).expect("interfaces");
    let names = |family| {
        let criteria = Criteria { family, ..Criteria::default() };
        let found = places(&settings, &offered, &criteria, &ports);
        let on = found.iter().filter(|place| place.interface.name == "eth4");
        on.map(Place::domain_name).collect::<Vec<_>>()
    };
    assert_eq!(names(Some(Family::V6)), ["eth4"]);
    assert_eq!(names(None), ["mlx5_4"], "the card is there, and once");
    let fabric = Some("2001:db8:4::/64");
    let found = places(&settings, &offered, &Criteria { fabric, ..Criteria::default() }, &ports);
    assert_eq!(found.iter().map(Place::domain_name).collect::<Vec<_>>(), ["eth4"]);
}

#[test]
fn fabrics_are_called_by_the_setting() {
    let v4 = Criteria { family: Some(Family::V4), ..Criteria::default() };
    let all = drawn(("fabric", "cluster"), &v4);
    assert_eq!(all.iter().filter(|line| line.contains(" cluster ")).count(), 12, "{all:?}");
    assert_eq!(all.last().map(String::as_str), Some("lo 127.0.0.0/8 127.0.0.1"));
    let rails = "mlx5_0=rail0,mlx5_1=rail1";
    let rail = Criteria { fabric: Some("rail1"), ..v4 };
    assert_eq!(drawn(("fabric", rails), &rail), ["mlx5_1 rail1 10.0.1.5"]);
    let network = Criteria { fabric: Some("10.0.2.0/24"), ..Criteria::default() };
    assert_eq!(drawn(("fabric", rails), &network), ["mlx5_2 10.0.2.0/24 10.0.2.5"]);
}
