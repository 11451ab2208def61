//! The configuration of the provider: libfabric parameters, `FI_ERD_*` in the environment.
//!
//! [`PARAMETERS`] is the one table of names, defaults, ranges and help texts; `fi_info -e`,
//! `docs/settings.md`, `docs/man/fi_erd.7` and [`Settings::read`] follow it.

mod declared;
mod read;

pub use declared::{Kind, PARAMETERS, Parameter, QUEUE_SIZE_MAX, RX_SIZE_MAX};
pub use erd_crypto::JobKey;
pub use erd_crypto::job::KEY_BYTES;
pub use read::{BadSetting, Found};

use crate::fabric_names::FabricNames;
use crate::key_file::KeyFile;
use crate::pause;
use crate::region::Audience;
use crate::scheme::SchemeChoice;
use erd_port::udp::{FaultRates, PortRange};
use erd_sys::sysfs::Sysfs;
use read::Reader;
use rustix::thread::CpuSet;
use std::path::PathBuf;
use std::sync::Arc;

/// Most bytes of `fi_inject` and its like; they fit one datagram of every path.
pub const INJECT_BYTES: usize = 1024;
/// Most pieces of one scattered or gathered operation.
pub const IOV_LIMIT: usize = 8;
/// Default number of paths on a network.
pub const PATHS_DEFAULT: u16 = 4;
/// Default number of paths on loopback, which has only one.
pub const PATHS_LOOPBACK: u16 = 1;
/// Default scheme on a network.
pub const SCHEME_DEFAULT: &str = "nscc";
/// Default scheme where a controller would mistake busy processors for a busy network: on loopback, whose queues are
/// the hosts' own buffers, and over Soft-RoCE.
pub const SCHEME_HOSTS: &str = "erd";
/// Default memory of an endpoint for unexpected messages, and the largest fraction of the address space that it may
/// take.
const UNEXPECTED_BYTES: u64 = 64 << 20;
const UNEXPECTED_PART: u64 = 8;
/// Carrier of control packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InfoPath {
    /// The UDP port that carries data.
    Udp,
    /// One TCP connection for each peer.
    Tcp,
}

/// The peers that may do something, by the domain's address vectors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PeerRule {
    /// Those on hosts (IP addresses) of which an AV of the domain has an address.
    Hosts,
    /// Those whose own address is in an AV of the domain.
    Names,
    /// All.
    Any,
}

impl PeerRule {
    /// The rule of a word of `FI_ERD_KEY_PEERS` or `FI_ERD_STRANGERS`.
    fn of(word: &str) -> PeerRule {
        match word {
            "any" | "yes" => PeerRule::Any,
            "names" | "no" => PeerRule::Names,
            _ => PeerRule::Hosts,
        }
    }
}

/// Carrier of data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PortSetting {
    /// Verbs where there is a device, and UDP.
    Auto,
    /// Verbs, or nothing is offered.
    Verbs,
    /// UDP alone.
    Udp,
}

/// Values of all parameters, checked.
#[derive(Clone, PartialEq, Debug)]
pub struct Settings {
    /// Interfaces to use, by name or address; empty for all.
    pub ifaces: Vec<String>,
    /// RDMA devices to use, by name; empty for all.
    pub devices: Vec<String>,
    /// Carrier of data.
    pub port: PortSetting,
    /// Names of fabrics.
    pub fabrics: FabricNames,
    /// Ports of sockets for which the application names none.
    pub udp_ports: Option<PortRange>,
    /// The class of packets (DSCP); `None` leaves it to the application.
    pub dscp: Option<u8>,
    /// The service level over InfiniBand.
    pub service_level: u8,
    /// The partition; `None` for the first of a port.
    pub pkey: Option<u16>,
    /// Paths to spray over, 1 to 256; `None` leaves it to the interface.
    pub paths: Option<u16>,
    /// Congestion control scheme; `None` leaves it to the interface.
    pub scheme: Option<SchemeChoice>,
    /// Round trip without queues; `None` leaves it to measurement.
    pub base_rtt_us: Option<u64>,
    /// Speed of the link in Mb/s; `None` leaves it to the interface.
    pub link_mbps: Option<u64>,
    /// Silence of a peer that owes an answer until it counts as dead.
    pub peer_timeout_ns: u64,
    /// See [`crate::pause`].
    pub pause_file: Option<PathBuf>,
    /// Carrier of control packets.
    pub info_path: InfoPath,
    /// CRC32C over the payload as well as the header.
    pub payload_checksum: bool,
    /// Longest message sent without waiting for its receive.
    pub eager_bytes: u32,
    /// Memory of an endpoint for unexpected messages; `None` leaves it to the process's limits.
    pub unexpected_bytes: Option<u64>,
    /// Least payload sent from registered memory without a copy, 0 for none.
    pub zero_copy_bytes: Option<u64>,
    /// Default transmit queue, in operations.
    pub tx_size: usize,
    /// Default receive queue, in operations.
    pub rx_size: usize,
    /// Kernel buffer to ask for, each receive socket.
    pub recv_buffer_bytes: usize,
    /// Kernel buffer to ask for, each send socket.
    pub send_buffer_bytes: usize,
    /// Largest datagram (UDP payload), 1232 to 65507; `None` for what each path carries.
    pub mtu_bytes: Option<u16>,
    /// Time after a search until larger datagrams are tried again.
    pub mtu_growth_ns: u64,
    /// Shortest spacing of scans for lost packets.
    pub scan_min_ns: u64,
    /// Shortest retransmission timeout.
    pub rto_min_ns: u64,
    /// Time without a call until the helper thread progresses.
    pub progress_idle_ns: u64,
    /// The processors of the helper thread; `None` for those of the thread that starts it.
    pub progress_cpus: Option<CpuSet>,
    /// See the table.
    pub spin_ns: u64,
    /// UDP GSO.
    pub gso: bool,
    /// Data of peers on this host goes through shared memory.
    pub local: bool,
    /// A peer on this host that is not reached so is worth a warning.
    pub local_warns: bool,
    /// Where endpoints of several network namespaces find each other.
    pub local_dir: Option<PathBuf>,
    /// UDP GRO.
    pub gro: bool,
    /// ECN.
    pub ecn: bool,
    /// Kernel receive time stamps.
    pub timestamps: bool,
    /// Grant `FI_HMEM`.
    pub hmem: bool,
    /// Report the cards' PCI addresses; `None` leaves it to the application's hints.
    pub pci: Option<bool>,
    /// Initiators that may use the keys of applications.
    pub key_peers: PeerRule,
    /// The peers that may open sessions.
    pub strangers: PeerRule,
    /// The source of keys.
    pub keys: KeySource,
    /// With a key: payload is hidden.
    pub hides: bool,
    /// Destination of counters: a file, "1" for standard error, or none if empty.
    pub stats: String,
    /// Observers outside may read the flows.
    pub monitor: bool,
    /// No reports of mistakes in the environment on standard error.
    pub quiet: bool,
    /// Faults below the engine, in tests.
    pub test_faults: Option<FaultRates>,
    /// The kernel's description of devices.
    pub sysfs: Sysfs,
}

/// The source of the keys of a domain's endpoints.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum KeySource {
    /// There are none: packets are not proven.
    None,
    /// `FI_ERD_KEY_FILE`.
    File(Arc<KeyFile>),
    /// The application: this key for the endpoints and the memory of a domain.
    Application(JobKey),
    /// The address vectors (`FI_AV_AUTH_KEY`).
    Vectors,
}

impl KeySource {
    /// The peers that may reach memory for which the application names no key. Its own key for the domain is the
    /// memory's too (`fi_domain(3)`); that of the file closes nothing to endpoints with other keys.
    #[must_use]
    pub fn audience(&self) -> Audience {
        match self {
            KeySource::Application(job) => Audience::Keys(vec![job.id()]),
            KeySource::None | KeySource::File(_) | KeySource::Vectors => Audience::All,
        }
    }
}

impl Settings {
    /// Reads and checks all parameters; `lookup` returns the text of one, or `None` if it is not set.
    ///
    /// # Errors
    /// The first parameter whose value is not valid, or what `lookup` refuses.
    pub fn read(lookup: impl Fn(&'static Parameter) -> Found) -> Result<Settings, BadSetting> {
        let from = Reader { lookup };
        // The provider has taken it when it started; a mistake in it is one, too.
        from.prov_name()?;
        let settings = Settings {
            ifaces: from.list("iface")?,
            devices: from.list("device")?,
            port: match from.choice("port")? {
                "verbs" => PortSetting::Verbs,
                "udp" => PortSetting::Udp,
                _ => PortSetting::Auto,
            },
            fabrics: from.fabrics("fabric")?,
            udp_ports: from.ports("udp_ports")?,
            dscp: from.auto_number("dscp")?,
            service_level: from.number("service_level")?,
            pkey: from.partition("pkey")?,
            paths: from.auto_number("paths")?,
            scheme: from.scheme()?,
            base_rtt_us: from.auto_number("base_rtt_us")?,
            link_mbps: from.auto_thousandths("link_gbps")?,
            peer_timeout_ns: from.number::<u64>("peer_timeout_ms")? * 1_000_000,
            pause_file: pause::file(&from.text("pause_file")?.1),
            info_path: match from.choice("info_path")? {
                "tcp" => InfoPath::Tcp,
                _ => InfoPath::Udp,
            },
            payload_checksum: from.choice("checksum")? == "payload",
            eager_bytes: from.number("eager_size")?,
            unexpected_bytes: from.auto_number("unexpected_size")?,
            zero_copy_bytes: from.auto_number("zero_copy_size")?,
            tx_size: from.number("tx_size")?,
            rx_size: from.number("rx_size")?,
            recv_buffer_bytes: from.number("recv_buffer")?,
            send_buffer_bytes: from.number("send_buffer")?,
            mtu_bytes: from.auto_number("mtu")?,
            mtu_growth_ns: from.number::<u64>("mtu_growth_s")? * 1_000_000_000,
            scan_min_ns: from.number::<u64>("scan_min_us")? * 1000,
            rto_min_ns: from.number::<u64>("rto_min_us")? * 1000,
            progress_idle_ns: from.number::<u64>("progress_idle_ms")? * 1_000_000,
            progress_cpus: from.processors("progress_cpus")?,
            spin_ns: from.number::<u64>("spin_us")? * 1_000,
            gso: from.switch("gso")?,
            local: from.choice("local")? != "udp",
            local_warns: from.choice("local")? == "shm",
            local_dir: from.folder("local_dir")?,
            gro: from.switch("gro")?,
            ecn: from.switch("ecn")?,
            timestamps: from.switch("timestamps")?,
            hmem: from.switch("hmem")?,
            pci: from.decision("pci")?,
            key_peers: PeerRule::of(from.choice("key_peers")?),
            strangers: PeerRule::of(from.choice("strangers")?),
            keys: KeySource::None,
            hides: from.choice("protection")? == "encrypt",
            stats: from.text("stats")?.1,
            monitor: from.switch("monitor")?,
            quiet: from.switch("quiet")?,
            test_faults: from.faults("test_faults")?,
            sysfs: from.folder("test_sysfs")?.map(Sysfs::at).unwrap_or_default(),
        };
        Ok(match from.key("key_file")? {
            None => settings,
            Some(file) => settings.with_keys(KeySource::File(file)),
        })
    }

    /// The provider's name in libfabric, `FI_ERD_PROV_NAME`; `lookup` as for [`Settings::read`].
    ///
    /// # Errors
    /// It is not valid.
    pub fn prov_name(lookup: impl Fn(&'static Parameter) -> Found) -> Result<String, BadSetting> {
        Reader { lookup }.prov_name()
    }

    /// The same with these keys.
    #[must_use]
    pub fn with_keys(self, keys: KeySource) -> Settings {
        Settings { keys, ..self }
    }

    /// Memory for unexpected messages in a process that may map `limit_bytes` in all.
    #[must_use]
    pub(crate) fn unexpected_within(&self, limit_bytes: Option<u64>) -> u64 {
        let most = limit_bytes.map_or(u64::MAX, |limit| limit / UNEXPECTED_PART);
        self.unexpected_bytes.unwrap_or(most.min(UNEXPECTED_BYTES))
    }

    /// Paths to use on an interface.
    #[must_use]
    pub fn paths_on(&self, loopback: bool) -> u16 {
        self.paths.unwrap_or(if loopback { PATHS_LOOPBACK } else { PATHS_DEFAULT })
    }

    /// Scheme to use on an interface; `by_hosts` if round trips there measure CPU load.
    ///
    /// # Panics
    /// Never: all defaults are of the table.
    #[must_use]
    pub(crate) fn scheme_on(&self, by_hosts: bool) -> SchemeChoice {
        let name = if by_hosts { SCHEME_HOSTS } else { SCHEME_DEFAULT };
        let default = || SchemeChoice::new(name, "").expect("it is a scheme");
        self.scheme.clone().unwrap_or_else(default)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(name: &'static str, value: &'static str) -> Result<Settings, BadSetting> {
        Settings::read(|asked| Ok((asked.name == name).then(|| value.to_owned())))
    }

    #[test]
    fn the_tables_own_defaults_are_valid() {
        let settings = Settings::read(|_| Ok(None)).expect("defaults");
        assert_eq!((settings.paths, settings.mtu_bytes), (None, None));
        assert_eq!((settings.paths_on(false), settings.paths_on(true)), (4, 1));
        let schemes = [false, true].map(|by_hosts| settings.scheme_on(by_hosts).name());
        assert_eq!(schemes, ["nscc", "erd"]);
        assert_eq!(settings.peer_timeout_ns, 5_000_000_000);
        assert_eq!((settings.tx_size, settings.eager_bytes), (4096, 65_536));
        assert!(settings.gso && settings.ecn && !settings.payload_checksum);
        assert_eq!(settings.info_path, InfoPath::Udp);
        assert!(settings.ifaces.is_empty());
    }

    #[test]
    fn unexpected_memory_is_a_part_of_what_there_is() {
        let settings = Settings::read(|_| Ok(None)).expect("defaults");
        let within = [None, Some(1 << 40), Some(80 << 20)].map(|at| settings.unexpected_within(at));
        assert_eq!(within, [64 << 20, 64 << 20, 10 << 20]);
        let settings = with("unexpected_size", "7").expect("valid");
        assert_eq!(settings.unexpected_within(Some(8)), 7);
    }

    #[test]
    fn the_manuals_table_is_this_table() {
        let manual = include_str!("../../../docs/settings.md");
        let row = |p: &Parameter| {
            let default = if p.default.is_empty() { "empty" } else { p.default };
            format!("| `{}` | {default} | {} | {} |\n", p.variable(), p.kind, p.help)
        };
        let table: String = PARAMETERS.iter().map(row).collect();
        assert!(manual.contains(&table), "docs/settings.md must contain:\n{table}");
        assert_eq!(manual.matches("| `FI_ERD_").count(), PARAMETERS.len());
    }

    #[test]
    fn every_parameter_is_read() {
        let asked = std::cell::RefCell::new(Vec::new());
        let read = Settings::read(|parameter| {
            asked.borrow_mut().push(parameter.name);
            Ok(None)
        });
        assert!(read.is_ok());
        for parameter in PARAMETERS {
            assert!(asked.borrow().contains(&parameter.name), "{}", parameter.name);
        }
    }

    #[test]
    fn values_are_taken() {
        assert_eq!(with("paths", "256").map(|got| got.paths), Ok(Some(256)));
        assert_eq!(with("paths", " Auto ").map(|got| got.paths), Ok(None));
        assert_eq!(with("info_path", "TCP").map(|got| got.info_path), Ok(InfoPath::Tcp));
        assert_eq!(with("checksum", "payload").map(|got| got.payload_checksum), Ok(true));
        assert_eq!(with("gro", "off").map(|got| got.gro), Ok(false));
        assert_eq!(with("pkey", "0x8001").map(|got| got.pkey), Ok(Some(0x8001)));
        assert_eq!(with("dscp", "46").map(|got| got.dscp), Ok(Some(46)));
        let processors = |text| {
            let found = with("progress_cpus", text).expect("valid").progress_cpus;
            found.map(|set| (0..16).filter(|at| set.is_set(*at)).collect::<Vec<_>>())
        };
        assert_eq!(processors(""), None);
        assert_eq!(processors("0-2, 8"), Some(vec![0, 1, 2, 8]));
        assert_eq!(with("scan_min_us", "7").map(|got| got.scan_min_ns), Ok(7000));
        assert_eq!(with("link_gbps", "400").map(|got| got.link_mbps), Ok(Some(400_000)));
        assert_eq!(with("link_gbps", "2.5").map(|got| got.link_mbps), Ok(Some(2500)));
        assert_eq!(with("link_gbps", "0.05").map(|got| got.link_mbps), Ok(Some(50)));
        assert_eq!(with("link_gbps", "auto").map(|got| got.link_mbps), Ok(None));
        let ifaces = with("iface", "eth0, lo,").map(|got| got.ifaces);
        assert_eq!(ifaces, Ok(vec!["eth0".to_owned(), "lo".to_owned()]));
    }

    #[test]
    fn the_provider_has_another_name_if_told() {
        let name = |value: Option<&str>| Settings::prov_name(|_| Ok(value.map(str::to_owned)));
        assert_eq!(name(None), Ok("erd".to_owned()));
        assert_eq!(name(Some(" EFA")), Ok("efa".to_owned()));
        assert!(name(Some("lnx")).is_err() && name(Some(&"x".repeat(32))).is_err());
    }

    #[test]
    fn a_bad_value_names_the_parameter_and_what_is_valid() {
        for (name, value) in [
            ("paths", "0"),
            ("paths", "257"),
            ("paths", "four"),
            ("paths", "4x"),
            ("paths", "-1"),
            ("cc", "cubic"),
            ("cc_options", "window_kib=0"),
            ("info_path", ""),
            ("checksum", "none"),
            ("eager_size", "1048577"),
            ("unexpected_size", "-1"),
            ("mtu", "1000"),
            ("gso", "2"),
            ("tx_size", "99999999999999999999"),
            ("link_gbps", "0"),
            ("link_gbps", "0.0001"),
            ("link_gbps", "10000.001"),
            ("link_gbps", "2."),
            ("link_gbps", "99999999999999999999.5"),
            ("prov_name", ""),
            ("prov_name", "verbs;ofi_rxm"),
            ("prov_name", "ofi_rxm"),
            ("prov_name", "shm"),
            ("fabric", "one,two"),
            ("udp_ports", "20000"),
            ("pkey", "0x10000"),
            ("pkey", "0x8000"),
            ("progress_cpus", "3-1"),
            ("progress_cpus", "100000"),
            ("test_faults", "loss=1.5"),
        ] {
            let error = with(name, value).expect_err(value);
            assert_eq!(error.value, value);
            let text = error.to_string();
            assert!(text.contains(&format!("FI_ERD_{}", name.to_uppercase())), "{text}");
            assert!(text.contains(&error.valid) && !error.valid.is_empty(), "{text}");
        }
    }
}
