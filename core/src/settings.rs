//! The configuration of the provider: libfabric parameters, `FI_ERD_*` in the environment.
//!
//! [`PARAMETERS`] is the one table of names, defaults, ranges and help texts; `fi_info -e`,
//! `docs/settings.md`, `docs/man/fi_erd.7` and [`Settings::read`] follow it.

use crate::scheme::SchemeChoice;
use erd_port::udp::FaultRates;
use erd_rd::cc::schemes;
use std::fmt;
use thiserror::Error;

/// Most bytes of `fi_inject` and its like; they fit one datagram of every path.
pub const INJECT_BYTES: usize = 1024;
/// Most pieces of one scattered or gathered operation.
pub const IOV_LIMIT: usize = 8;
/// Largest transmit or receive queue that an endpoint can have, in operations.
pub const QUEUE_SIZE_MAX: usize = 65_536;
/// Default number of paths on a network.
pub const PATHS_DEFAULT: u16 = 4;
/// Default number of paths on loopback, which has only one.
pub const PATHS_LOOPBACK: u16 = 1;
/// Default scheme on a network.
pub const SCHEME_DEFAULT: &str = "nscc";
/// Default scheme where a controller would mistake busy processors for a busy network: on loopback, whose queues are
/// the hosts' own buffers, and over Soft-RoCE.
pub const SCHEME_HOSTS: &str = "erd";
/// Its parameters where the peer makes the only copy: the sender waits for that copy, and acknowledging a quarter of
/// the window takes time too (docs/cc/erd.md).
const SHARED_OPTIONS: &str = "window_kib=2048";
/// Default memory of an endpoint for unexpected messages, and the largest fraction of the address space that it may
/// take.
const UNEXPECTED_BYTES: u64 = 64 << 20;
const UNEXPECTED_PART: u64 = 8;
/// Leaves a choice to the interface.
const AUTO: &str = "auto";
/// [`AUTO`] and the names of the schemes.
const SCHEME_WORDS: &[&str] = &scheme_words();

const fn scheme_words() -> [&'static str; schemes::NAMES.len() + 1] {
    let mut words = [AUTO; schemes::NAMES.len() + 1];
    let mut at = 0;
    while at < schemes::NAMES.len() {
        words[at + 1] = schemes::NAMES[at];
        at += 1;
    }
    words
}

/// The valid values of a parameter.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// Anything.
    Text,
    /// A whole number, decimal.
    Number {
        /// Least valid value.
        min: u64,
        /// Greatest valid value.
        max: u64,
    },
    /// "auto" or a number.
    AutoNumber {
        /// Least valid value.
        min: u64,
        /// Greatest valid value.
        max: u64,
    },
    /// "auto" or a number with at most three decimals.
    AutoThousandths {
        /// Least valid value, in thousandths.
        min: u64,
        /// Greatest valid value, in thousandths.
        max: u64,
    },
    /// One of these words.
    Choice(&'static [&'static str]),
    /// A switch: 0 or 1, no or yes, off or on, false or true.
    Switch,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::Text => f.write_str("text"),
            Kind::Number { min, max } => write!(f, "{min} to {max}"),
            Kind::AutoNumber { min, max } => write!(f, "auto, or {min} to {max}"),
            Kind::AutoThousandths { min, max } => {
                let (min, max) = (*min as f64 / 1000.0, *max as f64 / 1000.0);
                write!(f, "auto, or {min} to {max}")
            }
            Kind::Choice([one, other]) => write!(f, "{one} or {other}"),
            Kind::Choice(words) => f.write_str(&words.join(", ")),
            Kind::Switch => f.write_str("0 or 1"),
        }
    }
}

/// One parameter.
#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    /// Name after `FI_ERD_`, in lower case, as libfabric registers it.
    pub name: &'static str,
    /// Its default value.
    pub default: &'static str,
    /// Its valid values.
    pub kind: Kind,
    /// Its effect.
    pub help: &'static str,
}

impl Parameter {
    /// Its name in the environment.
    #[must_use]
    pub fn variable(&self) -> String {
        format!("FI_ERD_{}", self.name.to_uppercase())
    }

    /// Its text in `fi_info -e`.
    #[must_use]
    pub fn description(&self) -> String {
        let default = if self.default.is_empty() { "empty" } else { self.default };
        format!("{}. Valid: {} (default: {default})", self.help, self.kind)
    }
}

/// Every parameter, in the order in which a user would look for them.
pub const PARAMETERS: &[Parameter] = &[
    Parameter {
        name: "iface",
        default: "",
        kind: Kind::Text,
        help: "erd uses these interfaces, by name or address and separated by commas; empty means all",
    },
    Parameter {
        name: "device",
        default: "",
        kind: Kind::Text,
        help: "erd uses these RDMA devices, by name and separated by commas; empty means all",
    },
    Parameter {
        name: "port",
        default: "auto",
        kind: Kind::Choice(&["auto", "verbs", "udp"]),
        help: "Data travels over an RDMA device (verbs), over UDP (udp), or over a device where there is one (auto)",
    },
    Parameter {
        name: "paths",
        default: "auto",
        kind: Kind::AutoNumber { min: 1, max: 256 },
        help: "A domain sprays packets over this many paths; auto means 4, and 1 towards peers on this host",
    },
    Parameter {
        name: "cc",
        default: AUTO,
        kind: Kind::Choice(SCHEME_WORDS),
        help: "A domain uses this congestion control scheme; auto means nscc, and erd towards peers on this host and over Soft-RoCE",
    },
    Parameter {
        name: "cc_options",
        default: "",
        kind: Kind::Text,
        help: "The scheme that FI_ERD_CC names takes these parameters of docs/cc: name=number, separated by commas",
    },
    Parameter {
        name: "link_gbps",
        default: "auto",
        kind: Kind::AutoThousandths { min: 1, max: 10_000_000 },
        help: "Congestion control takes this as the speed of the link, in Gb/s; auto means what the interface says, or what is measured",
    },
    Parameter {
        name: "base_rtt_us",
        default: "auto",
        kind: Kind::AutoNumber { min: 1, max: 1_000_000 },
        help: "Congestion control takes this as the round trip of the idle network, in us; auto means the least that each flow measures",
    },
    Parameter {
        name: "peer_timeout_ms",
        default: "5000",
        kind: Kind::Number { min: 10, max: 3_600_000 },
        help: "Operations fail when their peer owes an answer and stays silent for this many ms",
    },
    Parameter {
        name: "info_path",
        default: "udp",
        kind: Kind::Choice(&["udp", "tcp"]),
        help: "Control packets travel this way: over UDP, or over one TCP connection for each peer",
    },
    Parameter {
        name: "checksum",
        default: "header",
        kind: Kind::Choice(&["header", "payload"]),
        help: "A CRC32C protects the header alone, or the payload too",
    },
    Parameter {
        name: "eager_size",
        default: "65536",
        kind: Kind::Number { min: 0, max: 1 << 20 },
        help: "erd sends messages of up to this many bytes without waiting for their receives",
    },
    Parameter {
        name: "unexpected_size",
        default: "auto",
        kind: Kind::AutoNumber { min: 0, max: 1 << 40 },
        help: "An endpoint spends at most this many bytes on unexpected messages; auto means 67108864, or an eighth of a smaller address space",
    },
    Parameter {
        name: "zero_copy_size",
        default: "auto",
        kind: Kind::AutoNumber { min: 0, max: 1 << 30 },
        help: "An RDMA device sends registered memory without a copy from this many bytes on; auto means 16384, and 0, never, over Soft-RoCE",
    },
    Parameter {
        name: "share_pages",
        default: "1",
        kind: Kind::Switch,
        help: "Processes of one user on one host read each other's payloads of more than 32 KiB in place",
    },
    Parameter {
        name: "tx_size",
        default: "4096",
        kind: Kind::Number { min: 1, max: QUEUE_SIZE_MAX as u64 },
        help: "The transmit queue of an endpoint holds this many operations, unless the application says otherwise",
    },
    Parameter {
        name: "rx_size",
        default: "4096",
        kind: Kind::Number { min: 1, max: QUEUE_SIZE_MAX as u64 },
        help: "The receive queue of an endpoint holds this many operations, unless the application says otherwise",
    },
    Parameter {
        name: "recv_buffer",
        default: "4194304",
        kind: Kind::Number { min: 65_536, max: 1 << 30 },
        help: "erd asks the kernel for a buffer of this many bytes for each receive socket; the kernel may grant less",
    },
    Parameter {
        name: "send_buffer",
        default: "4194304",
        kind: Kind::Number { min: 65_536, max: 1 << 30 },
        help: "erd asks the kernel for a buffer of this many bytes for each send socket; the kernel may grant less",
    },
    Parameter {
        name: "mtu",
        default: "auto",
        kind: Kind::AutoNumber { min: 1232, max: 65_507 },
        help: "A datagram has at most this many bytes of UDP payload; auto means as many as each path carries",
    },
    Parameter {
        name: "mtu_growth_s",
        default: "600",
        kind: Kind::Number { min: 1, max: 86_400 },
        help: "After this many seconds erd tries larger datagrams again on a path that carries less than this host's link",
    },
    Parameter {
        name: "scan_min_us",
        default: "200",
        kind: Kind::Number { min: 1, max: 1_000_000 },
        help: "Two scans for lost packets are at least this many us apart",
    },
    Parameter {
        name: "rto_min_us",
        default: "10000",
        kind: Kind::Number { min: 100, max: 10_000_000 },
        help: "A retransmission timeout is at least this many us long",
    },
    Parameter {
        name: "progress_idle_ms",
        default: "10",
        kind: Kind::Number { min: 1, max: 1000 },
        help: "The helper thread steps in when the application makes no call for this many ms",
    },
    Parameter {
        name: "spin_us",
        default: "100",
        kind: Kind::Number { min: 0, max: 10_000 },
        help: "A call that would sleep first polls for this many us, as long as that pays; 0 means never",
    },
    Parameter {
        name: "gso",
        default: "1",
        kind: Kind::Switch,
        help: "erd sends bursts in one piece (UDP GSO) where the kernel can",
    },
    Parameter {
        name: "gro",
        default: "1",
        kind: Kind::Switch,
        help: "erd receives bursts in one piece (UDP GRO) where the kernel can",
    },
    Parameter {
        name: "ecn",
        default: "1",
        kind: Kind::Switch,
        help: "erd marks packets as ECN-capable under schemes that respond to congestion marks",
    },
    Parameter {
        name: "timestamps",
        default: "1",
        kind: Kind::Switch,
        help: "erd takes the kernel's receive time stamps, for better round-trip times",
    },
    Parameter {
        name: "pci",
        default: AUTO,
        kind: Kind::Choice(&[AUTO, "yes", "no"]),
        help: "erd tells applications where a card is on the PCI bus; auto means all but MPICH",
    },
    Parameter {
        name: "hmem",
        default: AUTO,
        kind: Kind::Choice(&[AUTO, "yes", "no"]),
        help: "erd grants FI_HMEM, for host memory alone; auto means to hints such as those of NCCL's RDMA protocol",
    },
    Parameter {
        name: "key_peers",
        default: "hosts",
        kind: Kind::Choice(&["hosts", "names", "any"]),
        help: "A memory key that the application chose serves the hosts, or the exact names, in the domain's address vectors, or any peer",
    },
    Parameter {
        name: "stats",
        default: "",
        kind: Kind::Text,
        help: "An endpoint that closes appends its counters to this file as a line of JSON; 1 means standard error",
    },
    Parameter {
        name: "monitor",
        default: "1",
        kind: Kind::Switch,
        help: "erd top shows this process's flows to the same user and root",
    },
    Parameter {
        name: "quiet",
        default: "0",
        kind: Kind::Switch,
        help: "The value 1 stops erd's lines on standard error about invalid and unknown settings",
    },
    Parameter {
        name: "test_faults",
        default: "",
        kind: Kind::Text,
        help: "For tests only: erd loses, doubles and reorders arriving packets, as in loss=0.01,dup=0.01,reorder=0.1,seed=1",
    },
];

/// Carrier of control packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InfoPath {
    /// The UDP port that carries data.
    Udp,
    /// One TCP connection for each peer.
    Tcp,
}

/// Initiators that may use memory keys of the application's choice, which a stranger can guess.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyPeers {
    /// Those on hosts (IP addresses) of which an AV of the domain has an address.
    Hosts,
    /// Those whose own address is in an AV of the domain.
    Names,
    /// All.
    Any,
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
    /// See the table.
    pub spin_ns: u64,
    /// UDP GSO.
    pub gso: bool,
    /// Peers on this host read long payloads in place.
    pub share_pages: bool,
    /// UDP GRO.
    pub gro: bool,
    /// ECN.
    pub ecn: bool,
    /// Kernel receive time stamps.
    pub timestamps: bool,
    /// Grant `FI_HMEM`; `None` leaves it to the other hints.
    pub hmem: Option<bool>,
    /// Report the cards' PCI addresses; `None` leaves it to the application's hints.
    pub pci: Option<bool>,
    /// Initiators that may use the keys of applications.
    pub key_peers: KeyPeers,
    /// Destination of counters: a file, "1" for standard error, or none if empty.
    pub stats: String,
    /// Observers outside may read the flows.
    pub monitor: bool,
    /// No reports of mistakes in the environment on standard error.
    pub quiet: bool,
    /// Faults below the engine, in tests.
    pub test_faults: Option<FaultRates>,
}

/// The text of a parameter, `None` if it is not set, or the error of reading it.
pub type Found = Result<Option<String>, BadSetting>;

/// A parameter has a value that is not valid.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("{variable} is \"{value}\"; valid: {valid}")]
pub struct BadSetting {
    /// The parameter's name in the environment.
    pub variable: String,
    /// The value found.
    pub value: String,
    /// The valid values.
    pub valid: String,
}

impl Settings {
    /// Reads and checks all parameters; `lookup` returns the text of one, or `None` if it is not set.
    ///
    /// # Errors
    /// The first parameter whose value is not valid, or what `lookup` refuses.
    pub fn read(lookup: impl Fn(&'static Parameter) -> Found) -> Result<Settings, BadSetting> {
        let from = Reader { lookup };
        Ok(Settings {
            ifaces: from.list("iface")?,
            devices: from.list("device")?,
            port: match from.choice("port")? {
                "verbs" => PortSetting::Verbs,
                "udp" => PortSetting::Udp,
                _ => PortSetting::Auto,
            },
            paths: from.auto_number("paths")?,
            scheme: from.scheme()?,
            base_rtt_us: from.auto_number("base_rtt_us")?,
            link_mbps: from.auto_thousandths("link_gbps")?,
            peer_timeout_ns: from.number::<u64>("peer_timeout_ms")? * 1_000_000,
            info_path: if from.choice("info_path")? == "tcp" {
                InfoPath::Tcp
            } else {
                InfoPath::Udp
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
            spin_ns: from.number::<u64>("spin_us")? * 1_000,
            gso: from.switch("gso")?,
            share_pages: from.switch("share_pages")?,
            gro: from.switch("gro")?,
            ecn: from.switch("ecn")?,
            timestamps: from.switch("timestamps")?,
            hmem: from.decision("hmem")?,
            pci: from.decision("pci")?,
            key_peers: match from.choice("key_peers")? {
                "names" => KeyPeers::Names,
                "any" => KeyPeers::Any,
                _ => KeyPeers::Hosts,
            },
            stats: from.text("stats")?.1,
            monitor: from.switch("monitor")?,
            quiet: from.switch("quiet")?,
            test_faults: from.faults("test_faults")?,
        })
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

    /// Scheme to use on an interface; `by_hosts` if round trips there measure CPU load, `shares` if peers read payloads
    /// in place.
    ///
    /// # Panics
    /// Never: all defaults are of the table.
    #[must_use]
    pub(crate) fn scheme_on(&self, by_hosts: bool, shares: bool) -> SchemeChoice {
        let (name, options) = match by_hosts {
            true if shares => (SCHEME_HOSTS, SHARED_OPTIONS),
            true => (SCHEME_HOSTS, ""),
            false => (SCHEME_DEFAULT, ""),
        };
        let default = || SchemeChoice::new(name, options).expect("it is a scheme");
        self.scheme.clone().unwrap_or_else(default)
    }
}

/// Looks parameters up and checks them against the table.
struct Reader<L> {
    lookup: L,
}

impl<L: Fn(&'static Parameter) -> Found> Reader<L> {
    fn text(&self, name: &str) -> Result<(&'static Parameter, String), BadSetting> {
        let parameter = PARAMETERS
            .iter()
            .find(|parameter| parameter.name == name)
            .expect("only parameters of the table are asked for");
        let text = (self.lookup)(parameter)?.unwrap_or_else(|| parameter.default.to_owned());
        Ok((parameter, text.trim().to_owned()))
    }

    fn scheme(&self) -> Result<Option<SchemeChoice>, BadSetting> {
        let name = self.choice("cc")?;
        let (parameter, options) = self.text("cc_options")?;
        let refused = |valid: String| BadSetting {
            variable: parameter.variable(),
            value: options.clone(),
            valid,
        };
        match name {
            AUTO if options.is_empty() => Ok(None),
            AUTO => Err(refused("nothing, unless FI_ERD_CC names the scheme".to_owned())),
            _ => SchemeChoice::new(name, &options)
                .map(Some)
                .map_err(|error| refused(error.to_string())),
        }
    }

    fn faults(&self, name: &str) -> Result<Option<FaultRates>, BadSetting> {
        let (parameter, text) = self.text(name)?;
        if text.is_empty() {
            return Ok(None);
        }
        let valid = "loss, dup and reorder from 0 to 1, seed a number: loss=0.01,seed=1".to_owned();
        let refused = || BadSetting { variable: parameter.variable(), value: text.clone(), valid };
        FaultRates::parse(&text).map(Some).ok_or_else(refused)
    }

    fn list(&self, name: &str) -> Result<Vec<String>, BadSetting> {
        let (_, text) = self.text(name)?;
        let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
        Ok(parts.map(str::to_owned).collect())
    }

    fn number<T: TryFrom<u64>>(&self, name: &str) -> Result<T, BadSetting> {
        let (parameter, text) = self.text(name)?;
        parse_number(parameter, &text)
    }

    fn auto_number<T: TryFrom<u64>>(&self, name: &str) -> Result<Option<T>, BadSetting> {
        let (parameter, text) = self.text(name)?;
        if text.eq_ignore_ascii_case("auto") {
            return Ok(None);
        }
        parse_number(parameter, &text).map(Some)
    }

    fn auto_thousandths(&self, name: &str) -> Result<Option<u64>, BadSetting> {
        let (parameter, text) = self.text(name)?;
        let Kind::AutoThousandths { min, max } = parameter.kind else {
            unreachable!("{name} is not a number of thousandths");
        };
        if text.eq_ignore_ascii_case("auto") {
            return Ok(None);
        }
        let number = thousandths(&text).filter(|number| (min..=max).contains(number));
        number.map(Some).ok_or_else(|| bad(parameter, text))
    }

    /// A choice between yes, no and auto (`None`).
    fn decision(&self, name: &str) -> Result<Option<bool>, BadSetting> {
        Ok(match self.choice(name)? {
            "yes" => Some(true),
            "no" => Some(false),
            _ => None,
        })
    }

    fn choice(&self, name: &str) -> Result<&'static str, BadSetting> {
        let (parameter, text) = self.text(name)?;
        let Kind::Choice(words) = parameter.kind else {
            unreachable!("{name} is not a choice");
        };
        let found = words.iter().find(|word| word.eq_ignore_ascii_case(&text));
        found.copied().ok_or_else(|| bad(parameter, text))
    }

    fn switch(&self, name: &str) -> Result<bool, BadSetting> {
        let (parameter, text) = self.text(name)?;
        match text.to_ascii_lowercase().as_str() {
            "1" | "yes" | "on" | "true" => Ok(true),
            "0" | "no" | "off" | "false" => Ok(false),
            _ => Err(bad(parameter, text)),
        }
    }
}

fn parse_number<T: TryFrom<u64>>(
    parameter: &'static Parameter,
    text: &str,
) -> Result<T, BadSetting> {
    let (Kind::Number { min, max } | Kind::AutoNumber { min, max }) = parameter.kind else {
        unreachable!("{} is not a number", parameter.name);
    };
    let number = text.parse::<u64>().ok().filter(|number| (min..=max).contains(number));
    number
        .and_then(|number| T::try_from(number).ok())
        .ok_or_else(|| bad(parameter, text.to_owned()))
}

/// A decimal number such as 2.5, in thousandths.
fn thousandths(text: &str) -> Option<u64> {
    let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(part) || part.len() > 3 {
        return None;
    }
    let part = format!("{part:0<3}").parse::<u64>().ok()?;
    whole.parse::<u64>().ok()?.checked_mul(1000)?.checked_add(part)
}

fn bad(parameter: &'static Parameter, value: String) -> BadSetting {
    BadSetting { variable: parameter.variable(), value, valid: parameter.kind.to_string() }
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
        let schemes = [false, true].map(|by_hosts| settings.scheme_on(by_hosts, by_hosts).name());
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
        let manual = include_str!("../../docs/settings.md");
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
        assert_eq!(with("scan_min_us", "7").map(|got| got.scan_min_ns), Ok(7000));
        assert_eq!(with("link_gbps", "400").map(|got| got.link_mbps), Ok(Some(400_000)));
        assert_eq!(with("link_gbps", "2.5").map(|got| got.link_mbps), Ok(Some(2500)));
        assert_eq!(with("link_gbps", "0.05").map(|got| got.link_mbps), Ok(Some(50)));
        assert_eq!(with("link_gbps", "auto").map(|got| got.link_mbps), Ok(None));
        let ifaces = with("iface", "eth0, lo,").map(|got| got.ifaces);
        assert_eq!(ifaces, Ok(vec!["eth0".to_owned(), "lo".to_owned()]));
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
