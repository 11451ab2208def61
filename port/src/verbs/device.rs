//! The RDMA devices of this host: their ports, and what each port offers.

use super::VerbsError;
use super::gid::{self, Gid, GidEntry, GidKind};
use core::ffi::{CStr, c_int};
use erd_ffi::ibv::Library;
use erd_ffi::ibv::*;
use erd_sys::process::Process;
use erd_sys::sysfs::Sysfs;
use std::io;
use std::path::Path;
use std::ptr::NonNull;

/// Most entries of a GID table that are read.
const GIDS_MAX: usize = 512;
/// Mellanox's and NVIDIA's PCI vendor number. Their RoCE takes the UDP source port of a datagram from the flow label of
/// its address handle; other vendors are unknown, and Soft-RoCE does not.
const VENDOR_FLOW_LABEL: u32 = 0x02c9;

/// Soft-RoCE's vendor number.
const VENDOR_SOFT_ROCE: u32 = 0xff_ffff;

/// An active port of a device, with the chosen GID.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// The device's name, such as `mlx5_0`.
    pub device: String,
    /// Number of the port, from 1.
    pub number: u8,
    /// Ports of the device.
    pub ports: u8,
    /// The GID to use.
    pub gid: GidEntry,
    /// Every usable GID of the port.
    pub gids: Vec<GidEntry>,
    /// Largest datagram, in bytes.
    pub mtu_bytes: u16,
    /// Speed in Mbit/s, as the port reports it; 0 if it does not.
    pub speed_mbps: u32,
    /// True for Ethernet (RoCE), false for InfiniBand.
    pub ethernet: bool,
    /// Local identifier on InfiniBand.
    pub lid: u16,
    /// A datagram's path through the network follows its address handle's flow label.
    pub flow_label_paths: bool,
    /// Most work requests of a queue pair, and most entries of a completion queue.
    pub wr_max: u32,
    /// See [`Port::wr_max`].
    pub cqe_max: u32,
    /// PCI numbers of vendor and device.
    pub vendor_id: u32,
    /// See [`Port::vendor_id`].
    pub part_id: u32,
    /// Version of the firmware.
    pub firmware: String,
}

impl Port {
    /// True if the kernel does the device's work, on the sender's processors (Soft-RoCE). No card has these vendor
    /// numbers, which the driver reports in newer and in older kernels.
    #[must_use]
    pub fn is_software(&self) -> bool {
        [0, VENDOR_SOFT_ROCE].contains(&self.vendor_id)
    }

    /// The port's name: the device's, with `:` and the number if the device has several.
    #[must_use]
    pub fn name(&self) -> String {
        if self.ports == 1 {
            return self.device.clone();
        }
        format!("{}:{}", self.device, self.number)
    }
}

/// An open device.
#[derive(Debug)]
pub(super) struct Device {
    pub(super) library: &'static Library,
    pub(super) context: NonNull<ibv_context>,
    process: Process,
}

// SAFETY: a context may be used by any thread (ibv_open_device(3)); it is closed once.
unsafe impl Send for Device {}
// SAFETY: as above.
unsafe impl Sync for Device {}

impl Device {
    /// Opens a device by name.
    ///
    /// # Errors
    /// If there is none of that name, or no permission.
    pub(super) fn open(name: &str) -> Result<Device, VerbsError> {
        let mut found = Err(VerbsError::NoDevice { name: name.to_owned() });
        each_device(|library, device, has| {
            if has == name {
                found = Device::open_raw(library, device, name);
            }
        })?;
        found
    }

    fn open_raw(
        library: &'static Library,
        device: *mut ibv_device,
        name: &str,
    ) -> Result<Device, VerbsError> {
        // SAFETY: a device of the list that is still held.
        let context = unsafe { (library.ibv_open_device)(device) };
        let context =
            NonNull::new(context).ok_or_else(|| VerbsError::last("ibv_open_device", name))?;
        Ok(Device { library, context, process: Process::current() })
    }

    /// True in a forked child of the process that opened it.
    pub(super) fn is_foreign(&self) -> bool {
        !self.process.is_current()
    }

    fn attributes(&self) -> Option<ibv_device_attr> {
        // SAFETY: integers only, for which zero is a valid value.
        let mut attr: ibv_device_attr = unsafe { core::mem::zeroed() };
        // SAFETY: an open context and a structure to fill.
        let rc = unsafe { (self.library.ibv_query_device)(self.context.as_ptr(), &raw mut attr) };
        (rc == 0).then_some(attr)
    }

    /// Most address handles of all processes together; 0 if the device does not say.
    pub(super) fn handles_max(&self) -> u32 {
        self.attributes().map_or(0, |attr| attr.max_ah.try_into().unwrap_or(0))
    }

    /// Attributes of a port.
    pub(super) fn port_attributes(&self, number: u8) -> Option<ibv_port_attr> {
        // SAFETY: as in `attributes`. The library's symbol may leave newer fields as they are.
        let mut attr: ibv_port_attr = unsafe { core::mem::zeroed() };
        // SAFETY: an open context and a structure to fill.
        let rc =
            unsafe { (self.library.ibv_query_port)(self.context.as_ptr(), number, &raw mut attr) };
        (rc == 0).then_some(attr)
    }

    /// The place of a partition in a port's table: with this membership (the top bit), or else with the other; that of the
    /// first without one, and over Ethernet, which has none.
    ///
    /// # Errors
    /// [`VerbsError::NoPartition`].
    pub(super) fn pkey_index(&self, port: &Port, pkey: Option<u16>) -> Result<u16, VerbsError> {
        const PARTITION: u16 = 0x7fff;
        let Some(pkey) = pkey.filter(|_| !port.ethernet) else { return Ok(0) };
        let entries = self.port_attributes(port.number).map_or(0, |attr| attr.pkey_tbl_len);
        let (mut there, mut other) = (Vec::new(), None);
        for index in 0..entries {
            let mut found = 0_u16;
            // SAFETY: an open context, and a place for the answer.
            let rc = unsafe {
                let context = self.context.as_ptr();
                (self.library.ibv_query_pkey)(context, port.number, index.into(), &raw mut found)
            };
            let found = u16::from_be(found);
            if rc != 0 || found & PARTITION == 0 {
                continue;
            }
            if found == pkey {
                return Ok(index);
            }
            if found & PARTITION == pkey & PARTITION {
                other = Some(index);
            }
            there.push(format!("{found:#06x}"));
        }
        let none = || VerbsError::NoPartition { port: port.name(), pkey, there: there.join(", ") };
        other.ok_or_else(none)
    }

    fn gids(&self) -> Vec<ibv_gid_entry> {
        let none =
            ibv_gid_entry { gid: [0; 2], gid_index: 0, port_num: 0, gid_type: 0, ndev_ifindex: 0 };
        let mut table = vec![none; GIDS_MAX];
        let bytes = size_of::<ibv_gid_entry>();
        // SAFETY: an open context, and room for the stated number of entries of the stated size.
        let count = unsafe {
            (self.library._ibv_query_gid_table)(
                self.context.as_ptr(),
                table.as_mut_ptr(),
                table.len(),
                0,
                bytes,
            )
        };
        table.truncate(usize::try_from(count).unwrap_or(0));
        table
    }

    /// True if the table still has this GID in the same place.
    pub(super) fn has_gid(&self, port: u8, gid: &GidEntry) -> bool {
        let table = self.gids();
        let mut of_port = table.iter().filter(|entry| entry.port_num == u32::from(port));
        of_port.any(|entry| gid_entry(entry).as_ref() == Some(gid))
    }

    fn ports(&self, name: &str) -> Vec<Port> {
        let Some(attr) = self.attributes() else { return Vec::new() };
        let gids = self.gids();
        let numbers = 1..=attr.phys_port_cnt;
        numbers.filter_map(|number| self.port(name, number, &attr, &gids)).collect()
    }

    fn port(
        &self,
        name: &str,
        number: u8,
        attr: &ibv_device_attr,
        gids: &[ibv_gid_entry],
    ) -> Option<Port> {
        let port = self.port_attributes(number)?;
        let on_port = gids.iter().filter(|entry| entry.port_num == u32::from(number));
        let gids: Vec<GidEntry> = on_port.filter_map(gid_entry).collect();
        if port.state != IBV_PORT_ACTIVE {
            tracing::info!(device = name, port = number, "the port is not active");
            return None;
        }
        let Some(gid) = gid::best(&gids) else {
            tracing::info!(device = name, port = number, "the port has no GID of use");
            return None;
        };
        let firmware = attr.fw_ver.iter().map(|c| *c as u8).take_while(|c| *c != 0).collect();
        Some(Port {
            device: name.to_owned(),
            number,
            ports: attr.phys_port_cnt,
            gid,
            gids,
            mtu_bytes: 128_u16 << port.active_mtu.min(5),
            speed_mbps: speed_mbps(port.active_width, port.active_speed),
            ethernet: port.link_layer == IBV_LINK_LAYER_ETHERNET,
            lid: port.lid,
            flow_label_paths: attr.vendor_id == VENDOR_FLOW_LABEL,
            wr_max: attr.max_qp_wr.try_into().unwrap_or(0),
            cqe_max: attr.max_cqe.try_into().unwrap_or(0),
            vendor_id: attr.vendor_id,
            part_id: attr.vendor_part_id,
            firmware: String::from_utf8(firmware).unwrap_or_default(),
        })
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        if !self.is_foreign() {
            // SAFETY: the context is open, and everything made with it is gone, since that holds this device.
            unsafe { (self.library.ibv_close_device)(self.context.as_ptr()) };
        }
    }
}

fn gid_entry(raw: &ibv_gid_entry) -> Option<GidEntry> {
    let kind = match raw.gid_type {
        IBV_GID_TYPE_IB => GidKind::InfiniBand,
        IBV_GID_TYPE_ROCE_V2 => GidKind::RoceV2,
        _ => GidKind::RoceV1,
    };
    let [high, low] = raw.gid.map(u64::to_ne_bytes);
    let mut gid = [0; 16];
    gid[..8].copy_from_slice(&high);
    gid[8..].copy_from_slice(&low);
    let index = u8::try_from(raw.gid_index).ok()?;
    Some(GidEntry { index, gid: Gid(gid), kind, ifindex: raw.ndev_ifindex })
}

/// From the codes of `ibv_query_port(3)`: lanes, and Mbit/s of each.
fn speed_mbps(width: u8, speed: u8) -> u32 {
    let lanes = match width {
        1 => 1,
        2 => 4,
        4 => 8,
        8 => 12,
        16 => 2,
        _ => 0,
    };
    let lane_mbps = match speed {
        1 => 2_500,
        2 => 5_000,
        4 | 8 => 10_000,
        16 => 14_000,
        32 => 25_000,
        64 => 50_000,
        128 => 100_000,
        _ => 0,
    };
    lanes * lane_mbps
}

/// Hands every device and its name to `f`.
fn each_device(
    mut f: impl FnMut(&'static Library, *mut ibv_device, &str),
) -> Result<(), VerbsError> {
    // Without devices the library may be missing, which needs no message.
    if !Path::new("/dev/infiniband").exists() {
        return Err(VerbsError::NoDevices);
    }
    let library = Library::get()?;
    let mut count: c_int = 0;
    // SAFETY: a place for the number.
    let list = unsafe { (library.ibv_get_device_list)(&raw mut count) };
    if list.is_null() {
        return Err(VerbsError::last("ibv_get_device_list", "all devices"));
    }
    for at in 0..usize::try_from(count).unwrap_or(0) {
        // SAFETY: the list has `count` devices, each of which has a name.
        unsafe {
            let device = *list.add(at);
            let name = CStr::from_ptr((library.ibv_get_device_name)(device)).to_string_lossy();
            f(library, device, &name);
        }
    }
    // SAFETY: the list is not used after this; contexts that were opened from it stay valid.
    unsafe { (library.ibv_free_device_list)(list) };
    Ok(())
}

/// Every active port of every device that this process may open, and the errors of the others.
///
/// # Errors
/// If there are no devices, or no library for them.
pub fn ports() -> Result<(Vec<Port>, Vec<VerbsError>), VerbsError> {
    let (mut ports, mut refused) = (Vec::new(), Vec::new());
    each_device(|library, device, name| match Device::open_raw(library, device, name) {
        Ok(device) => ports.extend(device.ports(name)),
        Err(error) => refused.push(error),
    })?;
    Ok((ports, refused))
}

/// Whether an interface and a device are of the same card. InfiniBand needs this, where GIDs do not name the interface.
#[must_use]
pub fn shares_card(sysfs: &Sysfs, iface: &str, device: &str) -> bool {
    sysfs.interface(iface).join("device/infiniband").join(device).exists()
}

/// Index of an interface.
///
/// # Errors
/// If there is none of that name.
pub fn ifindex(iface: &str) -> io::Result<u32> {
    let name = std::ffi::CString::new(iface)?;
    // SAFETY: a C string.
    match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => Err(io::Error::last_os_error()),
        index => Ok(index),
    }
}
