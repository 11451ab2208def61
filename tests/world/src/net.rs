//! The network between the nodes: delay, loss, duplication, corruption, partitions.

use super::adversary::{Adversary, Trick};
use super::overlap::Tails;
use super::rng::Rng;
use erd_port::udp::NetError;
use erd_rd::units::{MICROSECOND, MILLISECOND};
use erd_rd::wire::header::{HEADER_BYTES, Header, KEYED_VERSION, PacketKind};
use erd_rd::{Ecn, Nanos};
use std::net::SocketAddr;

/// One datagram on its way.
#[derive(Clone, Debug)]
pub struct Datagram {
    /// Sending node.
    pub from: usize,
    /// Node that owns the address it goes to.
    pub to: usize,
    /// Path it was sent on.
    pub path: u16,
    /// ECN codepoint.
    pub ecn: Ecn,
    /// When the receiving kernel saw it; set on delivery.
    pub stamped_at: Nanos,
    /// Its payload was cut off on the way.
    pub trimmed: bool,
    /// It went over the information path, which neither loses nor reorders.
    pub info_path: bool,
    /// Routers may cut it into fragments.
    pub may_fragment: bool,
    /// Contents.
    pub bytes: Vec<u8>,
}

impl Datagram {
    /// One line for a trace.
    pub fn summary(&self) -> String {
        let route = format!("{}->{} {:>5} B", self.from, self.to, self.bytes.len());
        let Some(h) = header(&self.bytes) else {
            return format!("{route} unreadable");
        };
        format!(
            "{route} {:?} psn {} attempt {} msg {:#x} at {} flags {} session {:x}",
            h.kind, h.psn, h.attempt, h.msg_id, h.s_offset, h.flags, h.session
        )
    }
}

/// The common header of a datagram, with a key or without: it can be read.
pub fn header(bytes: &[u8]) -> Option<Header> {
    Header::parse(bytes).or_else(|_| Header::parse_of(KEYED_VERSION, bytes)).ok()
}

/// Judges that a packet names the path that it takes, or the one that it answers.
fn judge_path(datagram: &Datagram, header: Option<&Header>) {
    let Some(h) = header else { return };
    let answers = matches!(h.kind, PacketKind::Ack | PacketKind::SizeAnswer);
    let says = u16::from(h.path) == datagram.path;
    assert!(answers || says, "on path {}, its header says {}", datagram.path, h.path);
}

/// Header bytes of IP and UDP, for IPv4 and IPv6.
pub const IP_BYTES: [u32; 2] = [28, 48];
/// Bytes that a trimming switch leaves of a datagram.
const TRIMMED_BYTES: usize = 64;

/// Probabilities are per datagram, unless they say otherwise.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// Loss.
    pub loss: f64,
    /// A loss takes the next ones too, up to this many.
    pub loss_run: u64,
    /// A loss cuts the payload off instead.
    pub trim: f64,
    /// A whole burst is lost.
    pub burst_loss: f64,
    /// It comes twice.
    pub duplicate: f64,
    /// Duplicates come up to this much later.
    pub duplicate_delay_ns: Nanos,
    /// Bits are flipped.
    pub corrupt: f64,
    /// Only bits of the header are flipped, because the payload is not protected.
    pub corrupt_header_only: bool,
    /// The end is cut off, or something is added.
    pub resize: f64,
    /// It is held up.
    pub spike: f64,
    /// For this long at most.
    pub spike_ns: Nanos,
    /// Congestion mark on ECN-capable ones.
    pub mark: f64,
    /// A segment begins with the last bytes of the one before it.
    pub overlap: f64,
    /// Somebody adds a datagram of their own.
    pub hostile: f64,
    /// They are blind: they know names and formats, and nothing that is on the wire.
    pub blind: bool,
}

impl Faults {
    /// Whether chance may lose so many questions in a row or the answers to them: more often than in one of 10^8 rows.
    pub fn may_lose_all(&self, questions: i32) -> bool {
        // A run has from none to `loss_run - 1` more.
        let more = self.loss_run.saturating_sub(1) as f64 / 2.0;
        let lost = self.loss * (1.0 + more) / (1.0 + self.loss * more);
        let arrives = (1.0 - lost) * (1.0 - self.burst_loss) * (1.0 - self.corrupt);
        (1.0 - arrives * arrives).powi(questions) > 1e-8
    }
}

/// Delays and rate.
#[derive(Clone, Copy, Debug)]
pub struct Links {
    /// One way on path 0.
    pub delay_ns: Nanos,
    /// More for every further path.
    pub path_step_ns: Nanos,
    /// At most this much more, at random: packets overtake each other.
    pub jitter_ns: Nanos,
    /// Of each node's port.
    pub bytes_per_us: u64,
}

impl Default for Links {
    fn default() -> Links {
        Links { delay_ns: 10 * MICROSECOND, path_step_ns: 0, jitter_ns: 0, bytes_per_us: 10_000 }
    }
}

/// A script's decision on a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// Apply the random faults to it.
    Pass,
    /// Lose it.
    Drop,
    /// Deliver it this much later.
    Delay(Nanos),
    /// Deliver it, and again this much later.
    Twice(Nanos),
}

/// Counts of the fates of datagrams.
#[derive(Clone, Copy, Debug, Default)]
pub struct NetCounts {
    /// Handed in.
    pub sent: u64,
    /// Lost, partitions included.
    pub lost: u64,
    /// Delivered twice.
    pub duplicated: u64,
    /// Bits or length changed.
    pub corrupted: u64,
    /// Added by the adversary.
    pub forged: u64,
    /// Checksum over everything handed in, in order: equal for equal runs.
    pub digest: u32,
}

/// Capacity of the paths between nodes.
#[derive(Clone, Copy, Debug)]
pub struct Carries {
    /// The largest datagram that passes whole.
    pub limit_bytes: usize,
    /// Fragments are lost.
    pub no_fragments: bool,
    /// Routers report by ICMP that a datagram was too big.
    pub tells: bool,
}

impl Default for Carries {
    fn default() -> Carries {
        Carries { limit_bytes: usize::MAX, no_fragments: false, tells: false }
    }
}

impl Carries {
    fn takes(&self, datagram: &Datagram) -> bool {
        datagram.bytes.len() <= self.limit_bytes || (datagram.may_fragment && !self.no_fragments)
    }
}

/// A script: sees each datagram with its header and decides.
pub type Filter = Box<dyn FnMut(&Datagram, &Header) -> Fate>;

/// See the module.
pub struct Net {
    /// Random faults in force.
    pub faults: Faults,
    /// Delays.
    pub links: Links,
    /// Cuts: bit `n` of an entry is the side of node `n`; each lasts until its time.
    pub cut: Option<(u64, Nanos)>,
    /// See [`Filter`].
    pub filter: Option<Filter>,
    /// Capacity of the paths.
    pub carries: Carries,
    /// Reports of routers that refused a datagram: the node that gets it, and the destination.
    pub too_big: Vec<(usize, usize)>,
    /// See [`NetCounts`].
    pub counts: NetCounts,
    rng: Rng,
    port_free_at: Vec<Nanos>,
    info_free_at: Vec<Nanos>,
    loss_left: u64,
    loss_until: Nanos,
    tails: Tails,
    adversary: Adversary,
}

/// A run of losses is over after this time, however few datagrams it took.
const LOSS_RUN_NS: Nanos = MILLISECOND;

impl Net {
    /// A network for `nodes` nodes without faults.
    pub fn new(nodes: usize, links: Links, rng: Rng) -> Net {
        let adversary = rng.apart();
        Net {
            faults: Faults::default(),
            links,
            cut: None,
            filter: None,
            carries: Carries::default(),
            too_big: Vec::new(),
            counts: NetCounts::default(),
            rng,
            port_free_at: vec![0; nodes],
            info_free_at: vec![0; nodes * nodes],
            loss_left: 0,
            loss_until: 0,
            tails: Tails::default(),
            adversary: Adversary::new(nodes, adversary),
        }
    }

    /// A router's report on a datagram to `name` that was too big.
    pub fn too_big_error(&self, name: SocketAddr) -> NetError {
        let limit = u16::try_from(self.carries.limit_bytes).unwrap_or(u16::MAX);
        NetError::MtuChanged(u32::from(limit) + IP_BYTES[usize::from(name.is_ipv6())])
    }

    fn is_cut(&self, now: Nanos, a: usize, b: usize) -> bool {
        self.cut.is_some_and(|(sides, until)| now < until && (sides >> a ^ sides >> b) & 1 == 1)
    }

    /// Takes the datagrams of one burst; returns each arrival with its time, possibly changed.
    pub fn transmit(&mut self, now: Nanos, burst: Vec<Datagram>) -> Vec<(Nanos, Datagram)> {
        let mut out = Vec::new();
        let whole_lost = self.rng.chance(self.faults.burst_loss);
        for mut datagram in burst {
            self.counts.sent += 1;
            let stamped = crc32c::crc32c_append(self.counts.digest, &now.to_be_bytes());
            self.counts.digest = crc32c::crc32c_append(stamped, &datagram.bytes);
            let free_at = &mut self.port_free_at[datagram.from];
            let wire_ns = datagram.bytes.len() as u64 * 1000 / self.links.bytes_per_us;
            *free_at = (*free_at).max(now) + wire_ns;
            let leaves_at = *free_at;
            if self.faults.hostile > 0.0 {
                self.attack(leaves_at, &datagram, &mut out);
            }
            let header = header(&datagram.bytes);
            judge_path(&datagram, header.as_ref());
            let fate = match (&mut self.filter, header) {
                (Some(filter), Some(header)) => filter(&datagram, &header),
                _ => Fate::Pass,
            };
            let cut = self.is_cut(now, datagram.from, datagram.to);
            if datagram.info_path && fate != Fate::Drop && !cut {
                out.push(self.over_info_path(leaves_at, datagram));
                continue;
            }
            let too_big = !self.carries.takes(&datagram);
            if too_big && self.carries.tells && !datagram.may_fragment && !cut {
                self.too_big.push((datagram.from, datagram.to));
            }
            let lost = cut || too_big || fate == Fate::Drop || whole_lost;
            if lost || self.loses(now) {
                self.counts.lost += 1;
                if lost || !self.rng.chance(self.faults.trim) {
                    continue;
                }
                datagram.bytes.truncate(TRIMMED_BYTES);
                datagram.trimmed = true;
            }
            if self.faults.overlap > 0.0 && !datagram.trimmed {
                let overlap = self.rng.chance(self.faults.overlap);
                self.tails.pass(&mut datagram.bytes, overlap);
            }
            self.deliver(leaves_at, datagram, fate, &mut out);
        }
        out
    }

    /// The adversary sees a datagram, and may add one.
    fn attack(&mut self, at: Nanos, datagram: &Datagram, out: &mut Vec<(Nanos, Datagram)>) {
        self.adversary.see(datagram);
        let Faults { hostile, blind, duplicate_delay_ns, .. } = self.faults;
        while let Some((forged, later)) = self.adversary.strike(hostile, blind, duplicate_delay_ns)
        {
            self.counts.forged += 1;
            out.push((at + self.links.delay_ns / 2 + later, forged));
        }
    }

    /// A datagram of the adversary, of what it saw so far, and the trick that it is.
    pub fn forge(&mut self) -> Option<(Trick, Datagram)> {
        let trick = self.adversary.trick();
        let forged = self.adversary.play(trick)?;
        self.counts.forged += 1;
        Some((trick, forged))
    }

    /// All sessions have ended. The adversary keeps what it saw of them apart.
    pub fn sessions_ended(&mut self) {
        self.adversary.sessions_ended();
    }

    fn over_info_path(&mut self, leaves_at: Nanos, datagram: Datagram) -> (Nanos, Datagram) {
        let nodes = self.port_free_at.len();
        let free_at = &mut self.info_free_at[datagram.from * nodes + datagram.to];
        *free_at = (*free_at).max(leaves_at + self.links.delay_ns) + 1;
        (*free_at, datagram)
    }

    fn loses(&mut self, now: Nanos) -> bool {
        if self.loss_left > 0 && now < self.loss_until {
            self.loss_left -= 1;
            return true;
        }
        let lost = self.rng.chance(self.faults.loss);
        if lost && self.faults.loss_run > 0 {
            self.loss_left = self.rng.below(self.faults.loss_run);
            self.loss_until = now + LOSS_RUN_NS;
        }
        lost
    }

    fn deliver(
        &mut self,
        leaves_at: Nanos,
        mut datagram: Datagram,
        fate: Fate,
        out: &mut Vec<(Nanos, Datagram)>,
    ) {
        let links = self.links;
        let mut at = leaves_at
            + links.delay_ns
            + links.path_step_ns * u64::from(datagram.path)
            + self.rng.below(links.jitter_ns + 1);
        if self.rng.chance(self.faults.spike) {
            at += self.rng.below(self.faults.spike_ns);
        }
        if let Fate::Delay(more) = fate {
            at += more;
        }
        if datagram.ecn != Ecn::NotEct && self.rng.chance(self.faults.mark) {
            datagram.ecn = Ecn::Ce;
        }
        let again = match fate {
            Fate::Twice(after) => Some(after),
            _ if self.rng.chance(self.faults.duplicate) => {
                Some(self.rng.below(self.faults.duplicate_delay_ns + 1))
            }
            _ => None,
        };
        if let Some(after) = again {
            self.counts.duplicated += 1;
            out.push((at + after, datagram.clone()));
        }
        self.damage(&mut datagram);
        out.push((at, datagram));
    }

    fn damage(&mut self, datagram: &mut Datagram) {
        let len = datagram.bytes.len() as u64;
        if len > 0 && self.rng.chance(self.faults.corrupt) {
            let reach = if self.faults.corrupt_header_only { HEADER_BYTES as u64 } else { len };
            for _ in 0..self.rng.range(1, 3) {
                let bit = self.rng.below(reach.min(len) * 8);
                datagram.bytes[(bit / 8) as usize] ^= 1 << (bit % 8);
            }
            self.counts.corrupted += 1;
        }
        if len > 0 && self.rng.chance(self.faults.resize) {
            let new = match self.rng.below(4) {
                0 => len + self.rng.range(1, 64),
                1 => self.rng.below(len.min(HEADER_BYTES as u64 + 8)),
                _ => self.rng.below(len),
            };
            datagram.bytes.resize(new as usize, 0xa5);
            self.counts.corrupted += 1;
        }
    }
}

/// A spike long enough to outlive a session.
pub const LONG_SPIKE_NS: Nanos = 400 * MILLISECOND;
