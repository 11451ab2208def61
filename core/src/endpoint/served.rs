//! The state of a peer's request to registered memory, kept until its answer is sent or its bytes have arrived.

use super::settling::Settling;
use crate::flags::Flags;
use crate::region::{Pass, Region};
use erd_rd::{PeerId, Refusal, Remote};
use erd_types::mutants::{Mutant, mutant};
use smallvec::SmallVec;
use std::ptr::NonNull;
use std::sync::Arc;

/// A stretch of a region.
pub(super) struct Stretch {
    pub region: Arc<Region>,
    pub offset_bytes: u64,
    pub len_bytes: u64,
}

/// The stretches of a request: most have one.
pub(super) type Stretches = SmallVec<[Stretch; 1]>;

/// Bytes of an answer that are kept without an allocation: the result of most atomics.
const SHORT_COPY_BYTES: usize = 16;

/// An answer that is being sent, or a write whose bytes are coming.
#[derive(Default)]
pub(super) struct Served {
    pub stretches: Stretches,
    /// The answer itself, if it is short or was computed.
    pub copy: Option<SmallVec<[u8; SHORT_COPY_BYTES]>>,
    /// [`Flags::RMA`] or [`Flags::ATOMIC`], and the kind of access as the endpoint counts it.
    pub flags: Flags,
    /// The kinds of access as regions count them: fetching an element changes it, too.
    pub kinds: Flags,
    pub data: Option<u64>,
    pub peer: Option<PeerId>,
    pub len_bytes: u64,
    /// Set if memory has gone meanwhile, or was never there.
    pub lost: Option<Refusal>,
}

impl Served {
    /// State for a request; the caller fills in its stretches.
    pub(super) fn of(remote: &Remote, flags: Flags) -> Served {
        let (data, peer) = (remote.data, Some(remote.peer));
        let (kinds, len_bytes) = (flags & Flags::REMOTE, remote.targets.len_bytes());
        Served { flags, kinds, data, peer, len_bytes, ..Served::default() }
    }

    /// Hands the places of a part to `f`, in order, while their regions cannot close.
    pub(super) fn each_part(
        &self,
        offset_bytes: u64,
        len_bytes: u64,
        mut f: impl FnMut(Pass, u64, u64) -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        let (mut skip, mut left) = (offset_bytes, len_bytes);
        for stretch in &self.stretches {
            let take = stretch.len_bytes.saturating_sub(skip).min(left);
            if take > 0 {
                let pass = stretch.region.enter().ok_or(Refusal::Key)?;
                let skip = if mutant(Mutant::ServesFromTheStart) { 0 } else { skip };
                f(pass, stretch.offset_bytes + skip, take)?;
            }
            skip = skip.saturating_sub(stretch.len_bytes);
            left -= take;
        }
        Ok(())
    }

    /// Address of a part, if it is one run of bytes and cannot be missing. `pass` keeps its region; a part in
    /// another region has no address here.
    pub(super) fn run(
        &self,
        offset_bytes: u64,
        len_bytes: usize,
        pass: &mut Option<Pass>,
    ) -> Option<NonNull<u8>> {
        let mut skip = offset_bytes;
        let stretch = self.stretches.iter().find(|stretch| {
            let here = skip < stretch.len_bytes;
            skip -= if here { 0 } else { stretch.len_bytes };
            here
        })?;
        if self.lost.is_some() || len_bytes as u64 > stretch.len_bytes - skip {
            return None;
        }
        if pass.is_none() {
            *pass = stretch.region.enter();
        }
        let pass = pass.as_ref().filter(|pass| pass.is_to(&stretch.region))?;
        pass.run(stretch.offset_bytes + skip, len_bytes)
    }

    /// See [`Settling`].
    pub(super) fn settle(&self, least_bytes: u64, settling: &mut Settling) {
        if self.copy.is_none() && self.len_bytes >= least_bytes {
            self.stretches.iter().for_each(|at| settling.settle(at.region.memory()));
        }
    }

    /// Copies out of the memory.
    pub(super) fn read(&self, offset_bytes: u64, out: &mut [u8]) -> Result<(), Refusal> {
        let len_bytes = out.len() as u64;
        let mut rest = out;
        self.each_part(offset_bytes, len_bytes, |pass, at, len| {
            let (now, after) = std::mem::take(&mut rest).split_at_mut(len as usize);
            rest = after;
            pass.read(at, now).then_some(()).ok_or(Refusal::Bounds)
        })
    }

    /// Copies into the memory.
    pub(super) fn write(&self, offset_bytes: u64, bytes: &[u8]) -> Result<(), Refusal> {
        let mut rest = bytes;
        self.each_part(offset_bytes, bytes.len() as u64, |pass, at, len| {
            let (now, after) = rest.split_at(len as usize);
            rest = after;
            pass.write(at, now).then_some(()).ok_or(Refusal::Bounds)
        })
    }
}
