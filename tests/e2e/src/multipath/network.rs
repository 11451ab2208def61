//! The networks of tests/netns: their numbers, and changes to them.

use crate::layout::Layout;
use crate::netns;
use crate::process::Job;
use crate::setup;
use anyhow::Result;

/// Links between the namespaces, all alike.
pub const LINKS: u32 = 4;
/// The link that is taken away.
pub const TAKEN: usize = 1;
/// Rate of each. Slow ones leave the machine idle for most of the time, and make a round trip long
/// beside the time that a process waits for a processor.
const MBPS: u32 = 25;
/// Longest IP packet.
const MTU: u32 = 4200;
/// Delay of the relay, one way. With it a link's BDP is 87,500 bytes, 20 packets; of all links it is two
/// thirds of the default scheme's window.
const DELAY_US: u32 = 14_000;
/// The relay marks from 0.2 to 0.8 of a link's BDP on, as the simulator's tables have it.
const RED_BYTES: [u32; 2] = [17_500, 70_000];
/// Queue of each of the relay's links: schemes without feedback put their whole window there.
const RELAY_QUEUE_BYTES: u32 = 1 << 20;
/// Queue of each of the kernel's links.
const QUEUE_BYTES: u32 = 512 << 10;
/// Mean jitter one way, and packets of a million lost each way, where there is noise.
const JITTER_US: u32 = 1000;
const LOSS_PPM: u32 = 10_000;
/// Sockets, and so source ports, where routers hash them to links: enough that each link has its share.
const HASHED_PATHS: &str = "64";

/// Bytes of a packet outside a message's payload: IP and UDP, our header.
const IP_UDP_BYTES: u64 = 28;
const HEADER_BYTES: u64 = 32;
/// The message header in the packets of a message that is sent without an announcement.
const EAGER_HEADER_BYTES: u64 = 32;
/// Longest such message, the default of `FI_ERD_EAGER_SIZE`.
const EAGER_BYTES_MAX: u64 = 65_536;
/// Room that each packet keeps for a checksum.
const CHECKSUM_BYTES: u64 = 4;
/// Bytes that the relay's links count beside an IP packet: the simulator's frame and headers.
const RELAY_EXTRA_BYTES: u64 = 66;
/// Bytes that the kernel's links count beside it: an Ethernet header.
const LINK_EXTRA_BYTES: u64 = 14;

/// A network.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Network {
    /// The test relay: rate, delay, marks.
    Relay,
    /// The same with jitter and loss.
    NoisyRelay,
    /// Token buckets of the kernel, no marks.
    Links,
}

impl Network {
    /// Reason for having none here, if so.
    pub fn missing(self) -> Option<&'static str> {
        if self == Network::Links { netns::limits_missing() } else { netns::tun_missing() }
    }

    /// Whether its paths are chosen by a hash of the ports.
    pub fn hashes(self) -> bool {
        self == Network::Links
    }

    /// Whether it loses packets at random.
    pub fn loses(self) -> bool {
        self == Network::NoisyRelay
    }

    /// `job` beside this network.
    ///
    /// # Errors
    /// The relay cannot be built.
    pub fn around(self, layout: &Layout, job: Job) -> Result<Job> {
        let mut words = Vec::new();
        if self == Network::Links {
            words.push(layout.root.join("tests/netns/links.sh").into_os_string());
            words.extend([MTU, LINKS, MBPS, QUEUE_BYTES].map(|number| number.to_string().into()));
        } else {
            words.push(layout.root.join("tests/netns/relay.sh").into_os_string());
            words.push(MTU.to_string().into());
            words.push(setup::build_relay(layout)?.into_os_string());
            words.extend(self.relay_options().into_iter().map(Into::into));
        }
        words.push("--".into());
        Ok(netns::beside(job, words))
    }

    fn relay_options(self) -> Vec<String> {
        let [red_min, red_max] = RED_BYTES;
        let mut options = vec![
            format!("--paths={LINKS}"),
            format!("--mbps={MBPS}"),
            format!("--delay-us={DELAY_US}"),
            format!("--red-min-bytes={red_min}"),
            format!("--red-max-bytes={red_max}"),
            format!("--buffer-bytes={RELAY_QUEUE_BYTES}"),
        ];
        if self == Network::NoisyRelay {
            options.push(format!("--jitter-us={JITTER_US}"));
            options.push(format!("--loss-ppm={LOSS_PPM}"));
        }
        options
    }

    /// Settings of the provider. A host's own link is faster than its paths together, or they would
    /// not be where packets queue.
    pub fn settings(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Network::Relay | Network::NoisyRelay => {
                &[("FI_ERD_IFACE", "wire"), ("FI_ERD_LINK_GBPS", "0.15")]
            }
            // The kernel has no delays here: idle, this network's round trip is 10 us, while a packet
            // takes 1.4 ms on a link and a burst of 64 KiB 21. So the schemes are given one to aim
            // at, twice as long as that.
            Network::Links => &[
                ("FI_ERD_IFACE", "wire"),
                ("FI_ERD_LINK_GBPS", "0.125"),
                ("FI_ERD_PATHS", HASHED_PATHS),
                ("FI_ERD_BASE_RTT_US", "40000"),
            ],
        }
    }

    /// The command that makes it report its links.
    pub fn report(self) -> String {
        match self {
            Network::Relay | Network::NoisyRelay => "echo report >$RELAY_COMMANDS".to_owned(),
            Network::Links => (0..LINKS)
                .map(|link| format!("tc -n r -s -j qdisc show dev link{link}"))
                .collect::<Vec<_>>()
                .join("; "),
        }
    }

    /// The command after which a link loses everything.
    pub fn take_away(self) -> String {
        match self {
            Network::Relay | Network::NoisyRelay => format!("echo dead {TAKEN} >$RELAY_COMMANDS"),
            // The far end: the near router continues to send into it.
            Network::Links => format!("ip -n s link set link{TAKEN} down"),
        }
    }

    /// The command that restores the link.
    pub fn bring_back(self) -> String {
        match self {
            Network::Relay | Network::NoisyRelay => format!("echo up {TAKEN} >$RELAY_COMMANDS"),
            Network::Links => format!("ip -n s link set link{TAKEN} up"),
        }
    }

    /// Bytes per second that a link carries, in its own count.
    pub fn link_bytes_per_s() -> f64 {
        f64::from(MBPS) * 125_000.0
    }

    /// Payload of messages of this size that a link carries in a second, if it never rests.
    pub fn payload_bytes_per_s(self, message_bytes: u64) -> f64 {
        let eager = if message_bytes <= EAGER_BYTES_MAX { EAGER_HEADER_BYTES } else { 0 };
        let extra = if self == Network::Links { LINK_EXTRA_BYTES } else { RELAY_EXTRA_BYTES };
        let headers = IP_UDP_BYTES + HEADER_BYTES + eager;
        let packets = message_bytes.div_ceil(u64::from(MTU) - headers - CHECKSUM_BYTES);
        let wire_bytes = message_bytes + packets * (headers + extra);
        Network::link_bytes_per_s() * message_bytes as f64 / wire_bytes as f64
    }
}
