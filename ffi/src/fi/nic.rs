//! `fid_nic` in C memory: `fi_nic(3)`.
//!
//! libfabric does not export its own helpers for this, so a provider brings the operations.

use super::alloc::{NoMemory, calloc, strdup};
use super::{
    FI_BUS_PCI, FI_BUS_UNKNOWN, FI_CLASS_NIC, FI_DUP, FI_EINVAL, FI_ENOMEM, FI_ENOSYS, FI_SUCCESS,
    NOSYS_FID, fi_bus_attr, fi_link_state, fi_ops, fi_pci_attr, fid, fid_nic,
};
use crate::guard::guarded;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::mem::ManuallyDrop;
use core::ptr::NonNull;

/// What is known of a network card; `None` is passed on as NULL.
#[derive(Clone, Copy, Debug, Default)]
pub struct NicSpec<'a> {
    /// Name in the operating system.
    pub name: Option<&'a str>,
    /// Device identifier of the maker.
    pub device_id: Option<&'a str>,
    /// Hardware version.
    pub device_version: Option<&'a str>,
    /// Identifier of the maker.
    pub vendor_id: Option<&'a str>,
    /// Name of the driver.
    pub driver: Option<&'a str>,
    /// Firmware version.
    pub firmware: Option<&'a str>,
    /// Place on the PCI bus.
    pub pci: Option<PciAddress>,
    /// Address of the port, in text.
    pub address: Option<&'a str>,
    /// Largest packet in bytes.
    pub mtu_bytes: usize,
    /// Speed of the link in bits a second.
    pub speed_bps: usize,
    /// `FI_LINK_UP` and so on.
    pub link_state: fi_link_state,
    /// Such as "Ethernet".
    pub network_type: Option<&'a str>,
}

/// A PCI address, `domain:bus:device.function`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PciAddress {
    /// PCI domain.
    pub domain: u16,
    /// Bus number.
    pub bus: u8,
    /// Device number.
    pub device: u8,
    /// Function number.
    pub function: u8,
}

/// A `fid_nic` with all three attributes, in C memory.
pub struct Nic(NonNull<fid_nic>);

static NIC_OPS: fi_ops = fi_ops { close: nic_close, control: nic_control, ..NOSYS_FID };

impl Nic {
    /// Allocates and fills one.
    ///
    /// # Errors
    ///
    /// [`NoMemory`].
    pub fn new(spec: &NicSpec<'_>) -> Result<Self, NoMemory> {
        let nic = Self::zeroed()?;
        let text = |text: Option<&str>| text.map_or(Ok(core::ptr::null_mut()), strdup);
        // SAFETY: `zeroed` allocated all three; each string is stored as soon as it exists, so
        // that dropping `nic` after a failure frees it.
        unsafe {
            let raw = nic.0.as_ref();
            let device = &mut *raw.device_attr;
            device.name = text(spec.name)?;
            device.device_id = text(spec.device_id)?;
            device.device_version = text(spec.device_version)?;
            device.vendor_id = text(spec.vendor_id)?;
            device.driver = text(spec.driver)?;
            device.firmware = text(spec.firmware)?;
            *raw.bus_attr = bus_attr(spec.pci);
            let link = &mut *raw.link_attr;
            link.address = text(spec.address)?;
            link.mtu = spec.mtu_bytes;
            link.speed = spec.speed_bps;
            link.state = spec.link_state;
            link.network_type = text(spec.network_type)?;
        }
        Ok(nic)
    }

    /// An empty NIC with its attributes.
    fn zeroed() -> Result<Self, NoMemory> {
        let mut nic = Self(calloc()?);
        // SAFETY: the block is new and ours alone.
        let raw = unsafe { nic.0.as_mut() };
        raw.fid = fid { fclass: FI_CLASS_NIC, context: core::ptr::null_mut(), ops: &NIC_OPS };
        raw.device_attr = calloc()?.as_ptr();
        raw.bus_attr = calloc()?.as_ptr();
        raw.link_attr = calloc()?.as_ptr();
        Ok(nic)
    }

    /// Gives the block to C, which closes it through its operations.
    #[must_use]
    pub fn into_raw(self) -> *mut fid_nic {
        ManuallyDrop::new(self).0.as_ptr()
    }
}

impl Drop for Nic {
    fn drop(&mut self) {
        // SAFETY: the block is ours alone.
        unsafe { free_nic(self.0.as_ptr()) };
    }
}

fn bus_attr(pci: Option<PciAddress>) -> fi_bus_attr {
    match pci {
        None => fi_bus_attr { bus_type: FI_BUS_UNKNOWN, ..fi_bus_attr::ZERO },
        Some(pci) => fi_bus_attr {
            bus_type: FI_BUS_PCI,
            attr: fi_pci_attr {
                domain_id: pci.domain,
                bus_id: pci.bus,
                device_id: pci.device,
                function_id: pci.function,
            },
        },
    }
}

/// Frees a NIC of ours.
///
/// # Safety
///
/// `nic` must come from [`Nic::zeroed`] and be used by nobody else.
unsafe fn free_nic(nic: *mut fid_nic) {
    // SAFETY: attributes and strings are NULL or C blocks of this NIC alone.
    unsafe {
        if let Some(device) = (*nic).device_attr.as_ref() {
            for text in [
                device.name,
                device.device_id,
                device.device_version,
                device.vendor_id,
                device.driver,
                device.firmware,
            ] {
                libc::free(text.cast());
            }
        }
        if let Some(link) = (*nic).link_attr.as_ref() {
            libc::free(link.address.cast());
            libc::free(link.network_type.cast());
        }
        libc::free((*nic).device_attr.cast());
        libc::free((*nic).bus_attr.cast());
        libc::free((*nic).link_attr.cast());
        libc::free(nic.cast());
    }
}

/// A copy of a NIC of ours.
///
/// # Safety
///
/// `nic` must come from [`Nic::new`].
unsafe fn dup(nic: *const fid_nic) -> Result<Nic, NoMemory> {
    /// # Safety
    ///
    /// `text` must be NULL or a C string that outlives `'a`.
    unsafe fn opt<'a>(text: *const c_char) -> Option<&'a str> {
        // SAFETY: the caller's promise. Strings came from `&str`, so they are UTF-8.
        (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_str().unwrap_or(""))
    }

    // SAFETY: `Nic::new` made the attributes and strings, and they live while `nic` does.
    unsafe {
        let (device, link) = (&*(*nic).device_attr, &*(*nic).link_attr);
        let bus = &*(*nic).bus_attr;
        let pci = (bus.bus_type == FI_BUS_PCI).then_some(PciAddress {
            domain: bus.attr.domain_id,
            bus: bus.attr.bus_id,
            device: bus.attr.device_id,
            function: bus.attr.function_id,
        });
        Nic::new(&NicSpec {
            name: opt(device.name),
            device_id: opt(device.device_id),
            device_version: opt(device.device_version),
            vendor_id: opt(device.vendor_id),
            driver: opt(device.driver),
            firmware: opt(device.firmware),
            pci,
            address: opt(link.address),
            mtu_bytes: link.mtu,
            speed_bps: link.speed,
            link_state: link.state,
            network_type: opt(link.network_type),
        })
    }
}

guarded! {
    unsafe extern "C" fn nic_close(fid: *mut fid) -> c_int {
        // SAFETY: only NICs of ours carry this table, and closing gives up the caller's pointer.
        unsafe { free_nic(fid.cast()) };
        FI_SUCCESS
    }

    unsafe extern "C" fn nic_control(fid: *mut fid, command: c_int, arg: *mut c_void) -> c_int {
        if command != FI_DUP {
            return -FI_ENOSYS;
        }
        let Some(place) = NonNull::new(arg.cast::<*mut fid_nic>()) else {
            return -FI_EINVAL;
        };
        // SAFETY: only NICs of ours carry this table.
        match unsafe { dup(fid.cast()) } {
            Ok(nic) => {
                // SAFETY: FI_DUP passes a place for the new pointer.
                unsafe { place.write(nic.into_raw()) };
                FI_SUCCESS
            }
            Err(NoMemory) => -FI_ENOMEM,
        }
    }
}
