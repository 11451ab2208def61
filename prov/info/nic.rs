//! The card behind an interface, as sysfs describes it (`fi_nic(3)`).

use erd_core::place::Place;
use erd_ffi::fi::FI_LINK_UP;
use erd_ffi::fi::alloc::NoMemory;
use erd_ffi::fi::nic::{Nic, NicSpec, PciAddress};
use erd_port::verbs::Port;
use erd_sys::sysfs::{Sysfs, text};
use std::fs;
use std::path::Path;

/// `ARPHRD_*` of `/sys/class/net/<name>/type` that have a name.
const NETWORK_TYPES: [(&str, &str); 2] = [("1", "Ethernet"), ("32", "InfiniBand")];

/// Describes the card of a place, with its place on the PCI bus if asked for. Loopback has none, nor has an interface
/// without hardware (veth, a bridge of containers): programs take those that have one for ways out of this host.
///
/// # Errors
/// [`NoMemory`].
pub fn describe(sysfs: &Sysfs, place: &Place, tell_pci: bool) -> Result<Option<Nic>, NoMemory> {
    let (entry, port) = (&place.interface, place.verbs.as_ref());
    let device = match port {
        Some(port) => sysfs.rdma_card(&port.device).or_else(|| sysfs.card(&entry.name)),
        None => sysfs.card(&entry.name),
    };
    if entry.loopback || (port.is_none() && device.is_none()) {
        return Ok(None);
    }
    let of_card = |name: &str| text(&device.as_ref()?.join(name));
    let driver = device.as_ref().and_then(|device| {
        let target = fs::read_link(device.join("driver")).ok()?;
        Some(target.file_name()?.to_string_lossy().into_owned())
    });
    let kind = text(&sysfs.interface(&entry.name).join("type"));
    let firmware = port.map(|port| port.firmware.as_str()).filter(|text| !text.is_empty());
    let speed_mbps = entry.speed_mbps.or(port.map(|port| port.speed_mbps)).unwrap_or(0);
    let name = port.map(Port::name);
    let path =
        device.as_ref().filter(|_| tell_pci).and_then(|device| fs::canonicalize(device).ok());
    let known = NETWORK_TYPES.iter().find(|(number, _)| kind.as_deref() == Some(number));
    Nic::new(&NicSpec {
        name: Some(name.as_ref().unwrap_or(&entry.name)),
        device_id: of_card("device").as_deref(),
        device_version: of_card("revision").as_deref(),
        vendor_id: of_card("vendor").as_deref(),
        driver: driver.as_deref(),
        firmware,
        pci: path.and_then(|path| pci_address(&path)),
        address: Some(&entry.addr.to_string()),
        mtu_bytes: port.map_or(entry.mtu_bytes, |port| port.mtu_bytes.into()) as usize,
        speed_bps: speed_mbps as usize * 1_000_000,
        link_state: FI_LINK_UP,
        network_type: known.map(|(_, name)| *name),
    })
    .map(Some)
}

/// The PCI function nearest to a device: the last part of its path that is a PCI address.
fn pci_address(path: &Path) -> Option<PciAddress> {
    path.iter().rev().find_map(|part| parse_pci(part.to_str()?))
}

/// Reads `0000:17:00.1`, as sysfs writes it.
fn parse_pci(text: &str) -> Option<PciAddress> {
    let (slot, function) = text.split_once('.')?;
    let mut fields = slot.split(':');
    let (domain, bus, device) = (fields.next()?, fields.next()?, fields.next()?);
    let shape = (domain.len(), bus.len(), device.len(), function.len(), fields.next());
    if shape != (4, 2, 2, 1, None) {
        return None;
    }
    Some(PciAddress {
        domain: u16::from_str_radix(domain, 16).ok()?,
        bus: u8::from_str_radix(bus, 16).ok()?,
        device: u8::from_str_radix(device, 16).ok()?,
        function: u8::from_str_radix(function, 16).ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_pci_function_is_found() {
        let found = |path: &str| pci_address(Path::new(path));
        let card = PciAddress { domain: 0, bus: 0x17, device: 0, function: 1 };
        assert_eq!(found("/sys/devices/pci0000:16/0000:16:02.0/0000:17:00.1"), Some(card));
        let virtio = PciAddress { domain: 0, bus: 0, device: 5, function: 0 };
        assert_eq!(found("/sys/devices/pci0000:00/0000:00:05.0/virtio2"), Some(virtio));
        assert_eq!(found("/sys/devices/virtual/net/veth0"), None);
    }
}
