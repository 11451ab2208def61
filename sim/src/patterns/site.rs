//! What patterns know of the network: how many hosts there are, which are neighbours, and what their links are like.

use super::error::PatternError;
use super::random::Random;
use crate::ids::HostId;
use crate::time::{PS_PER_S, Picos};
use serde::{Deserialize, Serialize};

/// The link between a host and the network, in both directions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HostLink {
    /// Its rate.
    pub bytes_per_s: u64,
    /// Most payload bytes of a packet.
    pub payload_bytes: u32,
    /// Bytes that a packet takes on the wire besides its payload: all headers, and what Ethernet adds.
    pub overhead_bytes: u32,
}

impl HostLink {
    /// Packets of a message: one at least.
    #[must_use]
    pub fn packets(&self, bytes: u64) -> u64 {
        bytes.div_ceil(self.payload_bytes.into()).max(1)
    }

    /// Bytes that a message takes on the wire.
    #[must_use]
    pub fn wire_bytes(&self, bytes: u64) -> u64 {
        bytes + self.packets(bytes) * u64::from(self.overhead_bytes)
    }

    /// Bytes on the wire of a message's last packet, which is its shortest one.
    #[must_use]
    pub fn last_wire_bytes(&self, bytes: u64) -> u32 {
        let full = (self.packets(bytes) - 1) * u64::from(self.payload_bytes);
        (bytes - full) as u32 + self.overhead_bytes
    }

    /// How long a packet takes, rounded down: the fabric never takes less.
    #[must_use]
    pub fn packet_ps(&self, wire_bytes: u32) -> Picos {
        crate::time::serialization_ps(wire_bytes, self.bytes_per_s)
    }

    /// How long all packets of a message take, one after another.
    #[must_use]
    pub fn sending_ps(&self, bytes: u64) -> Picos {
        let full = self.packet_ps(self.payload_bytes + self.overhead_bytes);
        (self.packets(bytes) - 1) * full + self.packet_ps(self.last_wire_bytes(bytes))
    }

    fn check(&self) -> Result<(), PatternError> {
        // A packet's picoseconds must not overflow, and no packet may take less than one.
        if self.bytes_per_s == 0 || self.bytes_per_s > PS_PER_S {
            return Err(PatternError::new("bytes_per_s", "must be from 1 to 10^12"));
        }
        if self.payload_bytes == 0 || self.payload_bytes > 1 << 16 {
            return Err(PatternError::new("payload_bytes", "must be from 1 to 65536"));
        }
        if self.overhead_bytes > 1 << 16 {
            return Err(PatternError::new("overhead_bytes", "must be at most 65536"));
        }
        Ok(())
    }
}

/// The hosts of a network. Those with neighbouring numbers are neighbours.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Site {
    /// How many there are.
    pub hosts: u32,
    /// Hosts below each leaf switch.
    pub rack_hosts: u32,
    /// Hosts below each child of a top switch: packets between two of these groups cross the top tier. In a tree of two
    /// tiers these are the racks.
    pub pod_hosts: u32,
    /// The links of all hosts.
    pub link: HostLink,
}

impl Site {
    pub(super) fn check(&self) -> Result<(), PatternError> {
        if self.hosts < 2 {
            return Err(PatternError::new("hosts", "must be at least 2"));
        }
        if self.rack_hosts == 0 {
            return Err(PatternError::new("rack_hosts", "must be at least 1"));
        }
        if self.pod_hosts == 0 {
            return Err(PatternError::new("pod_hosts", "must be at least 1"));
        }
        self.link.check()
    }
}

/// How far messages have to go.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reach {
    /// To any other host.
    #[default]
    Anywhere,
    /// To another rack.
    OtherRack,
    /// Across the top tier.
    OtherPod,
    /// To the other half of the hosts: the whole bisection is used.
    OtherHalf,
}

impl Reach {
    /// Messages leave the group of so many neighbours that their sender is in.
    pub(super) fn group_hosts(self, site: &Site) -> Result<u32, PatternError> {
        let (group_hosts, what) = match self {
            Reach::Anywhere => (1, "two hosts"),
            Reach::OtherRack => (site.rack_hosts, "two racks"),
            Reach::OtherPod => (site.pod_hosts, "two groups below the top tier"),
            Reach::OtherHalf => (site.hosts.div_ceil(2), "an even number of hosts"),
        };
        if u64::from(group_hosts) * 2 > site.hosts.into() {
            let hosts = site.hosts;
            return Err(PatternError::new(
                "reach",
                format!("needs {what}, each of at most half of all {hosts} hosts"),
            ));
        }
        Ok(group_hosts)
    }
}

/// Which hosts belong to a group that works together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Placement {
    /// Neighbours, in their order.
    #[default]
    Contiguous,
    /// Any hosts, in any order.
    Random,
    /// Any hosts, but in the order of their numbers: ranks that follow each other share a rack where they can.
    RackAware,
    /// Hosts far apart: each group is spread evenly over all hosts.
    Interleaved,
}

/// Groups of hosts that each do the same, at the same time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Groups {
    /// How many; as many as there is room for if none is given.
    pub groups: Option<u32>,
    /// Hosts of each; all hosts if none is given.
    pub group_hosts: Option<u32>,
    /// Which.
    pub placement: Placement,
}

impl Groups {
    /// The hosts of each group, in the order of their ranks.
    pub(super) fn place(
        &self,
        site: &Site,
        random: &mut Random,
    ) -> Result<Vec<Vec<HostId>>, PatternError> {
        let each = self.group_hosts.unwrap_or(site.hosts);
        if each < 2 || each > site.hosts {
            let valid = format!("must be from 2 to {}, the number of hosts", site.hosts);
            return Err(PatternError::new("group_hosts", valid));
        }
        let most = site.hosts / each;
        let groups = self.groups.unwrap_or(most);
        if groups == 0 || groups > most {
            let valid = format!("must be from 1 to {most}: {} hosts of {each} each", site.hosts);
            return Err(PatternError::new("groups", valid));
        }
        let mut hosts: Vec<HostId> = (0..site.hosts).map(HostId).collect();
        match self.placement {
            Placement::Contiguous => {}
            Placement::Random | Placement::RackAware => random.shuffle(&mut hosts),
            Placement::Interleaved => {
                let apart = site.hosts / each;
                let place = |at: u32| HostId(at % each * apart + at / each);
                hosts = (0..groups * each).map(place).collect();
            }
        }
        let chunks = hosts.chunks_exact(each as usize).take(groups as usize);
        let mut placed: Vec<Vec<HostId>> = chunks.map(<[HostId]>::to_vec).collect();
        if self.placement == Placement::RackAware {
            placed.iter_mut().for_each(|group| group.sort_unstable());
        }
        Ok(placed)
    }
}
