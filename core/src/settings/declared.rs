//! The declaration of each setting: its name, default, valid values and help.

use erd_rd::cc::schemes;
use std::fmt;

/// Largest transmit queue that an endpoint can have, in operations, and largest receive queue of a queue pair.
pub const QUEUE_SIZE_MAX: usize = 65_536;
/// Largest receive queue that an endpoint or a shared context can have. Matching costs the same with any number of
/// receives, so only their memory bounds it: some hundred bytes for each receive that is posted.
pub const RX_SIZE_MAX: usize = 1 << 20;
/// Leaves a choice to the interface.
pub(super) const AUTO: &str = "auto";
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
        name: "fabric",
        default: "",
        kind: Kind::Text,
        help: "Fabrics have these names: one for all, domain=name for some (mlx5_*=cluster), separated by commas; empty means the network's address and prefix. Engines use all interfaces of one fabric together",
    },
    Parameter {
        name: "udp_ports",
        default: "",
        kind: Kind::Text,
        help: "Sockets take UDP ports of this range, as in 20000-20999, where the application names none; empty means the kernel's choice",
    },
    Parameter {
        name: "dscp",
        default: AUTO,
        kind: Kind::AutoNumber { min: 0, max: 63 },
        help: "Packets have this DSCP; auto means that of the application's traffic class (tclass), or 0",
    },
    Parameter {
        name: "service_level",
        default: "0",
        kind: Kind::Number { min: 0, max: 15 },
        help: "An InfiniBand device sends at this service level",
    },
    Parameter {
        name: "pkey",
        default: AUTO,
        kind: Kind::AutoNumber { min: 1, max: 65_535 },
        help: "An RDMA device sends and receives in this partition (P_Key, such as 0x8001); auto means the first of its port",
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
        name: "pause_file",
        default: "auto",
        kind: Kind::Text,
        help: "While a file of this name exists, no peer counts as dead; it must belong to the process's user, or to root. auto means /dev/shm/erd-pause-UID, with the user's number; none means that nothing pauses deadlines",
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
        name: "local",
        default: AUTO,
        kind: Kind::Choice(&[AUTO, "shm", "udp"]),
        help: "Peers on this host, of the same user, are reached through shared memory where it can be had (auto; shm warns where it cannot), or over UDP (udp)",
    },
    Parameter {
        name: "local_dir",
        default: "",
        kind: Kind::Text,
        help: "Endpoints of several network namespaces of one host find each other in this directory; empty means those of one namespace, without one",
    },
    Parameter {
        name: "tx_size",
        default: "4096",
        kind: Kind::Number { min: 1, max: QUEUE_SIZE_MAX as u64 },
        help: "The transmit queue of an endpoint holds this many operations, unless the application says otherwise",
    },
    Parameter {
        name: "rx_size",
        default: "65536",
        kind: Kind::Number { min: 1, max: RX_SIZE_MAX as u64 },
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
        name: "progress_cpus",
        default: "",
        kind: Kind::Text,
        help: "The helper thread runs on these processors, as in 0-3,8; empty means where the thread runs that opens the first endpoint",
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
        default: "0",
        kind: Kind::Switch,
        help: "erd grants FI_HMEM, for host memory alone, to programs that demand it",
    },
    Parameter {
        name: "prov_name",
        default: "erd",
        kind: Kind::Text,
        help: "erd has this name in libfabric, for engines that choose from a fixed table of names, and hides a provider that has it",
    },
    Parameter {
        name: "key_peers",
        default: "hosts",
        kind: Kind::Choice(&["hosts", "names", "any"]),
        help: "A memory key that the application chose serves the hosts, or the exact names, in the domain's address vectors, or any peer",
    },
    Parameter {
        name: "strangers",
        default: "yes",
        kind: Kind::Choice(&["yes", "hosts", "no"]),
        help: "A peer that no address vector of the domain has may open sessions: yes, if the vectors have its host, or no",
    },
    Parameter {
        name: "key_file",
        default: "",
        kind: Kind::Text,
        help: "The file with the job's key: erd proves every packet with it, and who has another or none is no peer. The key may change",
    },
    Parameter {
        name: "protection",
        default: "encrypt",
        kind: Kind::Choice(&["encrypt", "auth"]),
        help: "With a key, erd hides payload too, or proves packets alone",
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
    Parameter {
        name: "test_sysfs",
        default: "/sys",
        kind: Kind::Text,
        help: "For tests only: erd reads the speeds and bus addresses of cards below this folder",
    },
];
