//! The ports of RDMA devices that the settings permit.

use crate::error::Error;
use crate::settings::{PortSetting, Settings};
use erd_port::udp::Interface;
use erd_port::verbs::gid::GidKind;
use erd_port::verbs::{Port, VerbsError, ports, shares_card};
use erd_rd::config::DATAGRAM_MIN_BYTES;
use parking_lot::Mutex;
use std::collections::BTreeSet;

/// Logs a warning once per process.
pub(crate) fn warn_once(text: String) {
    static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let mut said = SAID.lock();
    if !said.contains(&text) {
        tracing::warn!("{text}");
        said.insert(text);
    }
}

/// The ports to use, in the order of the devices. None where verbs is switched off or unusable; a warning gives the
/// reason, except when there are no devices.
///
/// # Errors
/// [`Error::NoData`] if `FI_ERD_DEVICE` names a device that does not exist, or `FI_ERD_PORT` requires verbs and no port
/// is usable.
pub fn usable(settings: &Settings) -> Result<Vec<Port>, Error> {
    if settings.port == PortSetting::Udp {
        return Ok(Vec::new());
    }
    let found = match ports() {
        Ok((found, refused)) => {
            let why = refused.iter().map(ToString::to_string);
            why.for_each(|why| warn_once(format!("an RDMA device cannot be used: {why}")));
            found
        }
        Err(error) => {
            if !matches!(error, VerbsError::NoDevices) {
                warn_once(format!("no verbs: {error}"));
            }
            Vec::new()
        }
    };
    let ports = chosen(settings, found)?;
    if ports.is_empty() && settings.port == PortSetting::Verbs {
        warn_once(
            "FI_ERD_PORT is \"verbs\", but no port of an RDMA device can be used (see above, and \
             docs/verbs.md)"
                .to_owned(),
        );
        return Err(Error::NoData);
    }
    Ok(ports)
}

fn chosen(settings: &Settings, mut found: Vec<Port>) -> Result<Vec<Port>, Error> {
    let named = |port: &Port, name: &String| port.name() == *name || port.device == *name;
    for name in &settings.devices {
        if !found.iter().any(|port| named(port, name)) {
            let names: Vec<_> = found.iter().map(Port::name).collect();
            warn_once(format!(
                "FI_ERD_DEVICE is \"{name}\", which is no RDMA device with an active port; valid: {}",
                names.join(", ")
            ));
            return Err(Error::NoData);
        }
    }
    found.retain(|port| {
        settings.devices.is_empty() || settings.devices.iter().any(|name| named(port, name))
    });
    found.retain(|port| {
        let large = port.mtu_bytes >= DATAGRAM_MIN_BYTES;
        if !large {
            warn_once(format!(
                "{} carries datagrams of {} bytes, and erd needs 2048: set the MTU of its interface \
                 to 2200 or more, on switches too",
                port.name(),
                port.mtu_bytes
            ));
        }
        large
    });
    Ok(found)
}

/// The port of `ports` that an interface's address belongs to, with the GID that is this address.
#[must_use]
pub fn on_interface(settings: &Settings, ports: &[Port], entry: &Interface) -> Vec<Port> {
    ports.iter().filter_map(|port| on(settings, port, entry)).collect()
}

fn on(settings: &Settings, port: &Port, entry: &Interface) -> Option<Port> {
    if !port.ethernet {
        return shares_card(&settings.sysfs, &entry.name, &port.device).then(|| port.clone());
    }
    let is_this = |gid: &&erd_port::verbs::gid::GidEntry| {
        gid.kind == GidKind::RoceV2 && gid.gid.ip() == entry.addr
    };
    let gid = *port.gids.iter().find(is_this)?;
    Some(Port { gid, ..port.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::{gid, interface};

    fn port(device: &str, mtu_bytes: u16) -> Port {
        let gids = vec![gid(1, "192.0.2.1"), gid(3, "192.0.2.9")];
        crate::samples::port(device, mtu_bytes, gids)
    }

    fn settings(device: &str) -> Settings {
        Settings::read(|parameter| Ok((parameter.name == "device").then(|| device.to_owned())))
            .expect("settings")
    }

    #[test]
    fn devices_are_chosen_by_name_and_must_exist() {
        let all = || vec![port("mlx5_0", 4096), port("mlx5_1", 4096), port("rxe0", 1024)];
        let names = |device: &str| {
            chosen(&settings(device), all())
                .map(|ports| ports.iter().map(Port::name).collect::<Vec<_>>())
        };
        assert_eq!(
            names(""),
            Ok(vec!["mlx5_0".to_owned(), "mlx5_1".to_owned()]),
            "1024 is too few"
        );
        assert_eq!(names("mlx5_1"), Ok(vec!["mlx5_1".to_owned()]));
        assert_eq!(names("mlx4_0"), Err(Error::NoData));
    }

    #[test]
    fn an_address_has_the_gid_that_it_is() {
        let entry = |addr: &str| interface("eth0", addr, 24, None);
        let ports = [port("mlx5_0", 4096)];
        let found = on_interface(&settings(""), &ports, &entry("192.0.2.9"));
        assert_eq!(found.iter().map(|port| port.gid.index).collect::<Vec<_>>(), [3]);
        assert_eq!(on_interface(&settings(""), &ports, &entry("192.0.2.2")), []);
    }
}
