//! Devices: an address of an interface, with or without an RDMA device.

use super::context::{Context, ContextOptions};
use super::error::Error;
use erd_core::place::{self, Criteria, Place, Source};
use erd_core::settings::Settings;
use erd_port::udp::interfaces;
use std::net::{IpAddr, SocketAddr};

/// A device: the place of a program in the network.
///
/// A device is one address of one interface. An interface with an RDMA device has a device for that, too, ahead of the
/// plain one. `FI_ERD_IFACE`, `FI_ERD_DEVICE` and `FI_ERD_PORT` in the environment select among them.
#[derive(Clone, Debug)]
pub struct Device {
    place: Place,
}

impl Device {
    /// All devices: the fastest first, loopback last.
    ///
    /// # Errors
    /// A setting in the environment that is not valid. No device at all is an empty list.
    pub fn list() -> Result<Vec<Device>, Error> {
        Device::fitting(&Criteria::default())
    }

    /// The first device of this name, such as `eth0`, or with this address, such as `127.0.0.1`.
    ///
    /// # Errors
    /// [`Error::NoDevice`], which lists the devices.
    pub fn find(name: &str) -> Result<Device, Error> {
        let found = match name.parse::<IpAddr>() {
            Ok(ip) => {
                let source = Source::from(vec![SocketAddr::new(ip, 0)]);
                Device::fitting(&Criteria { source, ..Criteria::default() })?.into_iter().next()
            }
            Err(_) => Device::list()?.into_iter().find(|device| device.name() == name),
        };
        match found {
            Some(device) => Ok(device),
            None => Err(Device::none(name.to_owned())),
        }
    }

    /// The first device from which a route leads to `peer`.
    ///
    /// # Errors
    /// [`Error::NoDevice`] if there is no route.
    pub fn towards(peer: SocketAddr) -> Result<Device, Error> {
        let criteria = Criteria { dests: vec![peer], ..Criteria::default() };
        let found = Device::fitting(&criteria)?.into_iter().next();
        found.ok_or_else(|| Device::none(format!("on the way to {peer}")))
    }

    fn none(name: String) -> Error {
        let shown = |device: &Device| format!("{} ({})", device.name(), device.address());
        let there: Vec<String> = Device::list().unwrap_or_default().iter().map(shown).collect();
        Error::NoDevice { name, there: there.join(", ") }
    }

    fn fitting(criteria: &Criteria<'_>) -> Result<Vec<Device>, Error> {
        let settings = Settings::read(crate::parameters::read)?;
        let ports = erd_core::rdma::usable(&settings)
            .map_err(|error| Error::system("look for RDMA devices", error))?;
        // The only error is that there are none.
        let offered = place::offered(&settings, interfaces(&settings.sysfs)).unwrap_or_default();
        let places = place::places(&settings, &offered, criteria, &ports);
        Ok(places.into_iter().map(|place| Device { place }).collect())
    }

    /// Name of the interface, or of the RDMA device and its port.
    #[must_use]
    pub fn name(&self) -> String {
        self.place.domain_name()
    }

    /// Its address.
    #[must_use]
    pub fn address(&self) -> IpAddr {
        self.place.src.ip()
    }

    /// The interface's MTU in bytes, IP header included.
    #[must_use]
    pub fn mtu_bytes(&self) -> u32 {
        self.place.interface.mtu_bytes
    }

    /// Speed of the link in Mb/s, where the interface reports it.
    #[must_use]
    pub fn speed_mbps(&self) -> Option<u32> {
        self.place.interface.speed_mbps
    }

    /// True for the loopback.
    #[must_use]
    pub fn is_loopback(&self) -> bool {
        self.place.interface.loopback
    }

    /// True if an RDMA device carries data, not only UDP sockets.
    #[must_use]
    pub fn is_rdma(&self) -> bool {
        self.place.verbs.is_some()
    }

    /// Opens the device with the settings of the environment.
    ///
    /// # Errors
    /// A setting that is not valid; an RDMA device that cannot be opened.
    pub fn open(&self) -> Result<Context, Error> {
        self.open_with(&ContextOptions::new())
    }

    /// Opens the device with the program's own settings.
    ///
    /// # Errors
    /// As [`Device::open`].
    pub fn open_with(&self, options: &ContextOptions) -> Result<Context, Error> {
        Context::open(&self.place, options)
    }
}
