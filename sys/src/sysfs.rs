//! Where the kernel describes devices: sysfs, or the folder that a test has in its place.

use std::fs;
use std::path::{Path, PathBuf};

/// Most interfaces below another that are followed to a device, as a VLAN on a bond of cards has.
const BELOW_MAX: usize = 4;

/// The root of a tree like `/sys`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sysfs(PathBuf);

impl Default for Sysfs {
    fn default() -> Sysfs {
        Sysfs(PathBuf::from("/sys"))
    }
}

impl Sysfs {
    /// The tree at another place.
    #[must_use]
    pub fn at(root: PathBuf) -> Sysfs {
        Sysfs(root)
    }

    /// The folder of a network interface.
    #[must_use]
    pub fn interface(&self, name: &str) -> PathBuf {
        self.0.join("class/net").join(name)
    }

    /// The hardware of an RDMA device, if it has any.
    #[must_use]
    pub fn rdma_card(&self, device: &str) -> Option<PathBuf> {
        Some(self.0.join("class/infiniband").join(device).join("device")).filter(|dir| dir.exists())
    }

    /// The hardware of an interface, or of the interfaces below it (VLAN, bond, bridge), if there is any. Of a bond it is
    /// that of the active interface, or of the first one by name.
    #[must_use]
    pub fn card(&self, interface: &str) -> Option<PathBuf> {
        self.card_within(interface, BELOW_MAX)
    }

    fn card_within(&self, interface: &str, depth: usize) -> Option<PathBuf> {
        let own = self.interface(interface).join("device");
        if own.exists() {
            return Some(own);
        }
        let depth = depth.checked_sub(1)?;
        self.below(interface).iter().find_map(|below| self.card_within(below, depth))
    }

    /// The interfaces right below another.
    fn below(&self, interface: &str) -> Vec<String> {
        let dir = self.interface(interface);
        let found = fs::read_dir(&dir).into_iter().flatten().flatten();
        let names = found.filter_map(|entry| entry.file_name().into_string().ok());
        let mut below: Vec<_> =
            names.filter_map(|name| name.strip_prefix("lower_").map(str::to_owned)).collect();
        let active = text(&dir.join("bonding/active_slave")).unwrap_or_default();
        below.sort_by_key(|name| (*name != active, name.clone()));
        below
    }

    /// The speed of an interface in Mbit/s. Interfaces without hardware (veth, TUN) invent theirs.
    #[must_use]
    pub fn speed_mbps(&self, interface: &str) -> Option<u32> {
        self.card(interface)?;
        // Interfaces without a speed say -1, or fail the read.
        text(&self.interface(interface).join("speed"))?.parse().ok()
    }
}

/// The text of an attribute, without the end of its line.
#[must_use]
pub fn text(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// Two cards, a bond of both with a VLAN on it, a bridge of a veth, and a loop.
    fn planted(test: &str) -> Sysfs {
        let root = std::env::temp_dir().join(format!("erd-sysfs-{test}-{}", std::process::id()));
        let net = root.join("class/net");
        for (name, below) in [
            ("eth0", vec![]),
            ("eth1", vec![]),
            ("bond0", vec!["eth0", "eth1"]),
            ("bond0.7", vec!["bond0"]),
            ("veth1", vec![]),
            ("br0", vec!["veth1"]),
            ("odd", vec!["odd"]),
        ] {
            let dir = net.join(name);
            fs::create_dir_all(&dir).expect("a folder");
            for lower in below {
                symlink(format!("../{lower}"), dir.join(format!("lower_{lower}"))).expect("a link");
            }
            fs::write(dir.join("speed"), "10000\n").expect("a speed");
        }
        for name in ["eth0", "eth1"] {
            let card = root.join("devices").join(name);
            fs::create_dir_all(&card).expect("a folder");
            symlink(&card, net.join(name).join("device")).expect("a link");
        }
        Sysfs::at(root)
    }

    #[test]
    fn what_lies_below_an_interface_is_its_hardware() {
        let sysfs = planted("cards");
        let card = |name: &str| {
            let found = fs::canonicalize(sysfs.card(name)?).expect("it is there");
            Some(found.file_name()?.to_string_lossy().into_owned())
        };
        assert_eq!(card("eth1").as_deref(), Some("eth1"));
        assert_eq!(card("bond0.7").as_deref(), Some("eth0"));
        for name in ["veth1", "br0", "odd", "none"] {
            assert_eq!(card(name), None, "{name}");
        }
        fs::create_dir(sysfs.interface("bond0").join("bonding")).expect("a folder");
        fs::write(sysfs.interface("bond0").join("bonding/active_slave"), "eth1\n").expect("a file");
        assert_eq!(card("bond0.7").as_deref(), Some("eth1"));
        fs::remove_dir_all(&sysfs.0).expect("removed");
    }

    #[test]
    fn only_hardware_has_a_speed() {
        let sysfs = planted("speeds");
        assert_eq!(sysfs.speed_mbps("bond0.7"), Some(10_000));
        assert_eq!(sysfs.speed_mbps("veth1"), None);
        assert_eq!(sysfs.speed_mbps("none"), None);
        fs::write(sysfs.interface("eth0").join("speed"), "-1\n").expect("a speed");
        assert_eq!(sysfs.speed_mbps("eth0"), None);
        fs::remove_dir_all(&sysfs.0).expect("removed");
    }
}
