//! The memory that the links of a switch share where switches pause. The switch tells the sender at the other end of a link
//! to pause before it would have to drop what comes from there.
//!
//! The memory counts what waits by the link that it came by. A packet that goes at once to a free link takes none, and neither does
//! what overtakes ([`crate::link::LinkConfig::control_first`]): that is another class, which is not paused. One class is
//! lossless. A packet leaves the memory when its link begins to send it.

use super::blueprint::{Blueprint, LinkPlan, NodeId};
use super::pfc::{Pfc, SwitchMemory, Threshold};
use crate::link::LinkConfig;
use crate::mutants::{Mutant, mutant};
use crate::time::{PS_PER_S, Picos};
use crate::wire::Wire;
use std::collections::HashMap;

/// A pause frame on a link: 64 bytes, preamble and gap.
pub(super) const FRAME_BYTES: u32 = 84;
/// Longest packet that may be under way when a pause frame is to be sent, or arrives: a jumbo frame.
const PACKET_MAX_BYTES: u64 = 9216;
/// A sender may go on once this much less waits than made it pause: two packets (DCQCN, section 4: two MTU).
const RESUME_BELOW_BYTES: u64 = 2 * Wire::Ethernet.full_bytes() as u64;
/// Most links that lead to one switch: packets carry the number of theirs.
const INGRESS_MAX: usize = 1 << 16;

/// Why switches cannot pause like that.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PfcError {
    /// A switch has too little memory.
    #[error(
        "a switch of {links} links needs more than {headroom_bytes} bytes of memory, its headroom, but has {bytes}"
    )]
    Headroom {
        /// Links that lead to it.
        links: usize,
        /// Their headroom.
        headroom_bytes: u64,
        /// Memory.
        bytes: u64,
    },
    /// A pause frame has no way to the sender.
    #[error("each link needs one in the other direction, and a rate")]
    OneWay,
    /// Dropping and pausing exclude each other.
    #[error("links that trim cannot pause")]
    Trimming,
    /// Too many links.
    #[error("at most {INGRESS_MAX} links lead to a switch")]
    Links,
}

/// How links belong together: what each has as its number among those that lead to the same node, and its way back.
#[derive(Clone, Debug, Default)]
pub(super) struct Wiring {
    ingress: Vec<u16>,
    reverse: Vec<u32>,
}

impl Wiring {
    /// Of a network.
    pub(super) fn of(plan: &Blueprint) -> Result<Wiring, PfcError> {
        let links = plan.links();
        let mut between: HashMap<(NodeId, NodeId), Vec<u32>> = HashMap::new();
        let mut counts = vec![0_usize; plan.nodes() as usize];
        let mut wiring = Wiring::default();
        for (at, link) in links.iter().enumerate() {
            between.entry((link.from, link.to)).or_default().push(at as u32);
            let count = &mut counts[link.to.0 as usize];
            wiring.ingress.push(u16::try_from(*count).map_err(|_| PfcError::Links)?);
            *count += 1;
        }
        wiring.reverse = vec![0; links.len()];
        for ((from, to), there) in &between {
            let back = between.get(&(*to, *from)).filter(|back| back.len() == there.len());
            let back = back.ok_or(PfcError::OneWay)?;
            for (link, reverse) in there.iter().zip(back) {
                wiring.reverse[*link as usize] = *reverse;
            }
        }
        Ok(wiring)
    }

    /// The number of a link among those that lead to the same node.
    pub(super) fn ingress(&self, link: u32) -> u16 {
        self.ingress[link as usize]
    }
}

impl Blueprint {
    /// The same network, but its switches pause instead of dropping: queues hold what a switch's memory holds.
    ///
    /// # Errors
    /// Memory is too small for that, or a link cannot pause.
    pub fn with_pfc(mut self, pfc: Pfc) -> Result<Blueprint, PfcError> {
        if self.links().iter().any(|link| link.config.trimming) {
            return Err(PfcError::Trimming);
        }
        memories(&self, &Wiring::of(&self)?, &pfc, (self.hosts()..self.nodes()).map(NodeId))?;
        self.set_pfc(pfc);
        Ok(self)
    }
}

/// The memories of some switches.
pub(super) fn memories(
    plan: &Blueprint,
    wiring: &Wiring,
    pfc: &Pfc,
    switches: impl Iterator<Item = NodeId>,
) -> Result<Vec<SharedMemory>, PfcError> {
    switches.map(|switch| SharedMemory::new(plan, wiring, pfc, switch)).collect()
}

/// What came by one link and waits.
#[derive(Clone, Debug)]
struct Ingress {
    shared_bytes: u64,
    headroom_bytes: u64,
    headroom_max_bytes: u64,
    is_paused: bool,
    /// The link itself, and the one that pause frames take, by their numbers in the network.
    link: u32,
    reverse: u32,
    /// When the latest pause frame has been sent.
    frame_sent_at: Picos,
}

/// A switch's memory.
#[derive(Clone, Debug)]
pub(super) struct SharedMemory {
    threshold: Threshold,
    shared_max_bytes: u64,
    shared_bytes: u64,
    /// By the links that lead to the switch.
    ingress: Vec<Ingress>,
}

/// What becomes of a packet that has to wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Admission {
    /// It has a place.
    Kept,
    /// The same, and the sender has to pause.
    Pauses,
    /// There is no place: the headroom was too small.
    Lost,
}

/// A pause frame that is due: the link whose sender it is for, the one that it takes, and when the one before was sent.
pub(super) struct Frame<'a> {
    pub(super) link: u32,
    pub(super) reverse: u32,
    pub(super) sent_at: &'a mut Picos,
}

/// Bytes that come by a link after a pause frame is due: until it has left (a packet is being sent), has arrived, and the
/// packet of the sender that is being sent then is over.
fn headroom_bytes(link: &LinkConfig, reverse: &LinkConfig) -> Option<u64> {
    let (rate, back) = (link.bytes_per_s?, reverse.bytes_per_s?);
    let frame_ps = (PACKET_MAX_BYTES + u64::from(FRAME_BYTES)) as u128 * u128::from(PS_PER_S)
        / u128::from(back);
    let delay_ps = u128::from(link.propagation_ps + reverse.propagation_ps) + frame_ps;
    let on_the_way = u128::from(rate) * delay_ps / u128::from(PS_PER_S);
    Some(on_the_way as u64 + 2 * PACKET_MAX_BYTES)
}

impl SharedMemory {
    fn new(
        plan: &Blueprint,
        wiring: &Wiring,
        pfc: &Pfc,
        node: NodeId,
    ) -> Result<SharedMemory, PfcError> {
        let links = plan.links();
        let config = |link: u32| &links[link as usize].config;
        let mut ingress: Vec<Ingress> = Vec::new();
        // A link leads here if its way back begins here.
        let mut lead_here: Vec<u32> =
            plan.links_of(node).map(|link| wiring.reverse[link as usize]).collect();
        lead_here.sort_by_key(|link| wiring.ingress[*link as usize]);
        for link in lead_here {
            let reverse = wiring.reverse[link as usize];
            let headroom = headroom_bytes(config(link), config(reverse));
            ingress.push(Ingress {
                shared_bytes: 0,
                headroom_bytes: 0,
                headroom_max_bytes: headroom.ok_or(PfcError::OneWay)?,
                is_paused: false,
                link,
                reverse,
                frame_sent_at: 0,
            });
        }
        let rate = |link: &LinkPlan| link.config.bytes_per_s.unwrap_or(0);
        let rates: u64 = plan.links_of(node).map(|link| rate(&links[link as usize])).sum();
        let bytes = match pfc.memory {
            SwitchMemory::Bytes(bytes) => bytes,
            SwitchMemory::Time(time) => {
                (u128::from(rates) * u128::from(time) / u128::from(PS_PER_S)) as u64
            }
        };
        let headroom_bytes: u64 = ingress.iter().map(|one| one.headroom_max_bytes).sum();
        let shared = bytes.checked_sub(headroom_bytes).filter(|shared| *shared > 0);
        let links = ingress.len();
        let error = PfcError::Headroom { links, headroom_bytes, bytes };
        let shared_max_bytes = shared.ok_or(error)?;
        Ok(SharedMemory { threshold: pfc.threshold, shared_max_bytes, shared_bytes: 0, ingress })
    }

    /// How much may wait of what came by a link, and at how much a paused sender may go on.
    fn thresholds(&self) -> (u64, u64) {
        match self.threshold {
            Threshold::Fixed { xoff_bytes, xon_bytes } => (xoff_bytes, xon_bytes),
            Threshold::Dynamic { alpha } => {
                let free = self.shared_max_bytes.saturating_sub(self.shared_bytes);
                let xoff = (free as f64 * alpha) as u64;
                (xoff, xoff.saturating_sub(RESUME_BELOW_BYTES))
            }
        }
    }

    /// Bytes that wait.
    pub(super) fn taken_bytes(&self) -> u64 {
        self.shared_bytes + self.ingress.iter().map(|one| one.headroom_bytes).sum::<u64>()
    }

    /// Takes a packet in that waits.
    pub(super) fn admit(&mut self, ingress: u16, bytes: u32) -> Admission {
        let bytes = u64::from(bytes);
        let is_full = self.shared_bytes + bytes > self.shared_max_bytes;
        let one = &mut self.ingress[usize::from(ingress)];
        if one.is_paused || is_full {
            let is_over = one.headroom_bytes + bytes > one.headroom_max_bytes;
            if is_over || mutant(Mutant::HasNoHeadroom) {
                return Admission::Lost;
            }
            one.headroom_bytes += bytes;
            let was_paused = std::mem::replace(&mut one.is_paused, true);
            return if was_paused { Admission::Kept } else { Admission::Pauses };
        }
        one.shared_bytes += bytes;
        self.shared_bytes += bytes;
        let xoff = self.thresholds().0;
        let one = &mut self.ingress[usize::from(ingress)];
        one.is_paused = one.shared_bytes > xoff;
        if one.is_paused { Admission::Pauses } else { Admission::Kept }
    }

    /// A packet leaves; true if its sender may go on. Packets in the headroom go first.
    pub(super) fn release(&mut self, ingress: u16, bytes: u32) -> bool {
        let one = &mut self.ingress[usize::from(ingress)];
        let from_headroom = one.headroom_bytes.min(bytes.into());
        one.headroom_bytes -= from_headroom;
        let from_shared = u64::from(bytes) - from_headroom;
        one.shared_bytes -= from_shared;
        self.shared_bytes -= from_shared;
        let xon = self.thresholds().1;
        let one = &mut self.ingress[usize::from(ingress)];
        let resumes = one.is_paused && one.headroom_bytes == 0 && one.shared_bytes <= xon;
        let resumes = resumes && !mutant(Mutant::PausesForGood);
        one.is_paused &= !resumes;
        resumes
    }

    /// The pause frame to the sender of what comes by a link.
    pub(super) fn frame(&mut self, ingress: u16) -> Frame<'_> {
        let one = &mut self.ingress[usize::from(ingress)];
        Frame { link: one.link, reverse: one.reverse, sent_at: &mut one.frame_sent_at }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKET_BYTES: u32 = 1000;

    /// A memory of 20,000 shared bytes for two links with a headroom of 2,000 bytes each.
    fn memory(threshold: Threshold) -> SharedMemory {
        let one = Ingress {
            shared_bytes: 0,
            headroom_bytes: 0,
            headroom_max_bytes: 2_000,
            is_paused: false,
            link: 0,
            reverse: 1,
            frame_sent_at: 0,
        };
        let ingress = vec![one.clone(), one];
        SharedMemory { threshold, shared_max_bytes: 20_000, shared_bytes: 0, ingress }
    }

    fn admit(memory: &mut SharedMemory, ingress: u16, count: usize) -> Vec<Admission> {
        (0..count).map(|_| memory.admit(ingress, PACKET_BYTES)).collect()
    }

    #[test]
    fn the_headroom_takes_what_comes_after_the_pause() {
        let mut memory = memory(Threshold::Fixed { xoff_bytes: 3_000, xon_bytes: 1_000 });
        use Admission::{Kept, Lost, Pauses};
        assert_eq!(admit(&mut memory, 0, 7), [Kept, Kept, Kept, Pauses, Kept, Kept, Lost]);
        assert_eq!(admit(&mut memory, 1, 1), [Kept], "the other link goes on");
        let resumes: Vec<bool> = (0..6).map(|_| memory.release(0, PACKET_BYTES)).collect();
        assert_eq!(resumes, [false, false, false, false, true, false]);
        assert_eq!(memory.shared_bytes, 1_000, "what the other link brought is left");
    }

    /// With alpha 1 one link may fill half of the memory, and two a third each.
    #[test]
    fn a_dynamic_threshold_follows_what_is_free() {
        let pauses_after = |busy: usize| {
            let mut memory = memory(Threshold::Dynamic { alpha: 1.0 });
            admit(&mut memory, 1, busy);
            admit(&mut memory, 0, 15).iter().position(|one| *one == Admission::Pauses)
        };
        assert_eq!((pauses_after(0), pauses_after(6)), (Some(10), Some(7)));
    }

    #[test]
    fn a_full_memory_uses_the_headroom() {
        let mut memory = memory(Threshold::Dynamic { alpha: 64.0 });
        admit(&mut memory, 1, 20);
        assert_eq!(memory.admit(0, PACKET_BYTES), Admission::Pauses);
        assert!(memory.release(0, PACKET_BYTES), "nothing of it waits any more");
    }
}
