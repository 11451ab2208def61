//! Meeting peers' requests to registered memory (`fi_rma(3)`, `fi_atomic(3)`), at the target.
//!
//! Every access is checked against the region of its key: that it exists, its rights and its
//! bounds. Memory is touched only while its region cannot be closed ([`crate::region`]).

use super::complete::Report;
use super::host::EpHost;
use super::ops::{Handle, Kind};
use super::recv::UNREAD_MAX;
use crate::atomics;
use crate::region::{Pass, Region};
use erd_ffi::fi::{FI_ATOMIC, FI_REMOTE_READ, FI_REMOTE_WRITE, FI_RMA};
use erd_rd::{Atomic, Form, Operand, PeerId, RecvToken, Refusal, Remote, SendToken};
use std::sync::Arc;

/// Reads up to this length are copied when they are met, so that what comes after them does not
/// change their answer: `fi_ep_attr.max_order_war_size` says so.
pub(crate) const ORDERED_BYTES: usize = 1024;

/// A stretch of a region.
struct Stretch {
    region: Arc<Region>,
    offset_bytes: u64,
    len_bytes: u64,
}

/// An answer that is being sent, or a write whose bytes are coming.
#[derive(Default)]
pub(super) struct Served {
    stretches: Vec<Stretch>,
    /// The answer itself, if it is short or was computed.
    copy: Option<Vec<u8>>,
    /// `FI_RMA` or `FI_ATOMIC`.
    flags: u64,
    data: Option<u64>,
    peer: Option<PeerId>,
    len_bytes: u64,
    /// A region was closed meanwhile.
    gone: bool,
}

impl Served {
    /// What serves a request; its stretches are to be filled in.
    fn of(remote: &Remote, flags: u64) -> Served {
        let (data, peer) = (remote.data, Some(remote.peer));
        Served { flags, data, peer, len_bytes: remote.targets.len_bytes(), ..Served::default() }
    }

    /// Hands the places of a part to `f`, in order, while they cannot go. False if one has gone.
    fn each_part(
        &self,
        offset_bytes: u64,
        len_bytes: u64,
        mut f: impl FnMut(Pass, u64, u64),
    ) -> bool {
        let (mut skip, mut left) = (offset_bytes, len_bytes);
        for stretch in &self.stretches {
            let take = stretch.len_bytes.saturating_sub(skip).min(left);
            if take > 0 {
                let Some(pass) = stretch.region.enter() else { return false };
                f(pass, stretch.offset_bytes + skip, take);
            }
            skip = skip.saturating_sub(stretch.len_bytes);
            left -= take;
        }
        true
    }
}

/// Copies out of a region's memory.
fn read(pass: &Pass, offset_bytes: u64, out: &mut [u8]) {
    let mut rest = out;
    pass.each_part(offset_bytes, rest.len() as u64, |at, len| {
        let (to, after) = std::mem::take(&mut rest).split_at_mut(len);
        // SAFETY: the part lies in memory that the application registered, and that stays so while
        // the pass is held; `to` is as long.
        unsafe { std::ptr::copy_nonoverlapping(at, to.as_mut_ptr(), len) };
        rest = after;
    });
}

/// Copies into a region's memory.
fn write(pass: &Pass, offset_bytes: u64, bytes: &[u8]) {
    let mut rest = bytes;
    pass.each_part(offset_bytes, rest.len() as u64, |at, len| {
        let (from, after) = rest.split_at(len);
        // SAFETY: as in `read`, and the application registered it for writing.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), at, len) };
        rest = after;
    });
}

impl EpHost {
    /// The memory that a request names, if it may be accessed so.
    fn find(&self, remote: &Remote, right: u64) -> Result<Vec<Stretch>, Refusal> {
        let find = |target: &erd_rd::Target| {
            let region = self.domain.regions.find(target.key).ok_or(Refusal::Key)?;
            if region.access() & right != right {
                return Err(Refusal::Rights);
            }
            let offset = region.offset_of(target.addr, target.len_bytes);
            let offset_bytes = offset.ok_or(Refusal::Bounds)?;
            Ok(Stretch { region, offset_bytes, len_bytes: target.len_bytes })
        };
        remote.targets.as_slice().iter().map(find).collect()
    }

    /// What came with a request, out of the packet or the buffer that kept it.
    fn with_operand<R>(
        &mut self,
        operand: Operand<'_>,
        f: impl FnOnce(&mut EpHost, &[u8]) -> R,
    ) -> R {
        match operand {
            Operand::Here(bytes) => f(self, bytes),
            Operand::Kept(token) => {
                let bytes = self.take_kept(token);
                f(self, &bytes)
            }
        }
    }

    /// Completion data needs room in the queue.
    fn check_room(&self, remote: &Remote) -> Result<(), Refusal> {
        match remote.data.is_some() && self.rx.unread() >= UNREAD_MAX {
            true => Err(Refusal::Room),
            false => Ok(()),
        }
    }

    /// A peer has written here, or read.
    fn accessed(&mut self, served: &Served) {
        let Served { flags, data, len_bytes, peer, .. } = *served;
        self.rx.count(flags, len_bytes);
        for stretch in &served.stretches {
            stretch.region.accessed(flags, stretch.len_bytes);
        }
        if data.is_some() {
            let report = Report::new(std::ptr::null_mut(), flags);
            self.rx.push(Report { data, len_bytes: len_bytes as usize, ..report }, peer);
        }
    }

    fn new_served(&mut self, served: Served) -> Result<Handle, Refusal> {
        let (handle, place) = self.served.take().ok_or(Refusal::Room)?;
        *place = served;
        Ok(handle)
    }

    pub(super) fn write_here(&mut self, to: &Remote, operand: Operand<'_>) -> Result<(), Refusal> {
        self.with_operand(operand, |host, bytes| {
            host.check_room(to)?;
            let served = Served {
                stretches: host.find(to, FI_REMOTE_WRITE)?,
                ..Served::of(to, FI_RMA | FI_REMOTE_WRITE)
            };
            let len_bytes = served.len_bytes;
            let (mut rest, mut passes) = (bytes, Vec::new());
            if !served.each_part(0, len_bytes, |pass, at, len| passes.push((pass, at, len))) {
                return Err(Refusal::Key);
            }
            for (pass, at, len) in passes {
                let (now, after) = rest.split_at(len as usize);
                write(&pass, at, now);
                rest = after;
            }
            host.accessed(&served);
            Ok(())
        })
    }

    pub(super) fn admit_write(&mut self, to: &Remote) -> Result<RecvToken, Refusal> {
        self.check_room(to)?;
        let stretches = self.find(to, FI_REMOTE_WRITE)?;
        let handle =
            self.new_served(Served { stretches, ..Served::of(to, FI_RMA | FI_REMOTE_WRITE) })?;
        Ok(RecvToken(handle.token_of(Kind::Served)))
    }

    /// Bytes of a write.
    pub(super) fn place_served(&mut self, handle: Handle, offset_bytes: u64, bytes: &[u8]) {
        let Some(served) = self.served.get_mut(handle) else { return };
        let mut rest = bytes;
        let there = served.each_part(offset_bytes, bytes.len() as u64, |pass, at, len| {
            let (now, after) = rest.split_at(len as usize);
            write(&pass, at, now);
            rest = after;
        });
        served.gone |= !there;
    }

    pub(super) fn end_write(&mut self, to: RecvToken) -> Result<(), Refusal> {
        let (handle, _) = Handle::from_token(to.0);
        let Some(served) = self.served.get_mut(handle) else { return Err(Refusal::Key) };
        let served = std::mem::take(served);
        self.served.give_back(handle);
        if served.gone {
            return Err(Refusal::Key);
        }
        self.accessed(&served);
        Ok(())
    }

    pub(super) fn read_here(&mut self, from: &Remote) -> Result<SendToken, Refusal> {
        let stretches = self.find(from, FI_REMOTE_READ)?;
        let mut served = Served { stretches, ..Served::of(from, FI_RMA | FI_REMOTE_READ) };
        let len_bytes = served.len_bytes;
        if len_bytes <= ORDERED_BYTES as u64 {
            let mut copy = vec![0; len_bytes as usize];
            let mut rest = &mut copy[..];
            let there = served.each_part(0, len_bytes, |pass, at, len| {
                let (now, after) = std::mem::take(&mut rest).split_at_mut(len as usize);
                read(&pass, at, now);
                rest = after;
            });
            if !there {
                return Err(Refusal::Key);
            }
            served.copy = Some(copy);
        }
        let handle = self.new_served(served)?;
        Ok(SendToken(handle.token_of(Kind::Served)))
    }

    /// Changes memory; what it was is the copy in the answer.
    fn change(
        &mut self,
        at: &Remote,
        atomic: Atomic,
        operand: Operand<'_>,
    ) -> Result<Served, Refusal> {
        self.with_operand(operand, |host, bytes| {
            host.check_room(at)?;
            let operation = atomics::Operation::find(atomic).ok_or(Refusal::Operation)?;
            let right = match (operation.reads_only(), atomic.form) {
                (true, _) => FI_REMOTE_READ,
                (false, Form::Update) => FI_REMOTE_WRITE,
                (false, Form::Fetch | Form::Compare) => FI_REMOTE_READ | FI_REMOTE_WRITE,
            };
            let kind = match atomic.form {
                Form::Update => FI_REMOTE_WRITE,
                Form::Fetch | Form::Compare => FI_REMOTE_READ,
            };
            let mut served =
                Served { stretches: host.find(at, right)?, ..Served::of(at, FI_ATOMIC | kind) };
            let len_bytes = served.len_bytes;
            let mut places = Vec::new();
            let mut passes = Vec::new();
            let there = served.each_part(0, len_bytes, |pass, offset_bytes, len| {
                pass.each_part(offset_bytes, len, |at, len| places.push((at, len)));
                passes.push(pass);
            });
            if !there {
                return Err(Refusal::Key);
            }
            let whole = places.iter().all(|(_, len)| len % operation.element_bytes() == 0);
            if !whole || !operation.takes(len_bytes as usize, bytes.len()) {
                return Err(Refusal::Operation);
            }
            let mut before = vec![0; len_bytes as usize];
            // SAFETY: the places lie in memory that the application registered for such access,
            // and the passes keep it so.
            unsafe { operation.apply(&places, bytes, &mut before) };
            served.copy = Some(before);
            Ok(served)
        })
    }

    pub(super) fn update_here(
        &mut self,
        at: &Remote,
        atomic: Atomic,
        operand: Operand<'_>,
    ) -> Result<(), Refusal> {
        let served = self.change(at, atomic, operand)?;
        self.accessed(&served);
        Ok(())
    }

    pub(super) fn fetch_here(
        &mut self,
        at: &Remote,
        atomic: Atomic,
        operand: Operand<'_>,
    ) -> Result<SendToken, Refusal> {
        // A refusal has no effect, so the place comes before the change.
        let handle = self.new_served(Served::default())?;
        match self.change(at, atomic, operand) {
            Ok(served) => {
                if let Some(place) = self.served.get_mut(handle) {
                    *place = served;
                }
                Ok(SendToken(handle.token_of(Kind::Served)))
            }
            Err(refusal) => {
                self.served.give_back(handle);
                Err(refusal)
            }
        }
    }

    /// A write ends without all of its bytes. Its regions are let go.
    pub(super) fn drop_served(&mut self, handle: Handle) {
        if let Some(served) = self.served.get_mut(handle) {
            *served = Served::default();
        }
        self.served.give_back(handle);
    }

    /// An answer has arrived, or never will.
    pub(super) fn end_answer(&mut self, handle: Handle, arrived: bool) {
        let Some(served) = self.served.get_mut(handle) else { return };
        let served = std::mem::take(served);
        self.served.give_back(handle);
        if arrived && !served.gone {
            self.accessed(&served);
        }
    }

    /// Copies a part of an answer. If its memory has gone, the engine is to hear of it.
    pub(super) fn read_served(&mut self, token: SendToken, offset_bytes: u64, out: &mut [u8]) {
        let Some(served) = self.served.get_mut(Handle::from_token(token.0).0) else { return };
        if let Some(copy) = &served.copy {
            let at = offset_bytes as usize;
            out.copy_from_slice(&copy[at..at + out.len()]);
            return;
        }
        let mut rest = &mut *out;
        let len_bytes = rest.len() as u64;
        let there = served.each_part(offset_bytes, len_bytes, |pass, at, len| {
            let (now, after) = std::mem::take(&mut rest).split_at_mut(len as usize);
            read(&pass, at, now);
            rest = after;
        });
        if !there {
            served.gone = true;
            self.out.gone.push(token);
        }
    }

    /// Adds the pieces of a part of an answer, and what keeps them from going. False if they have
    /// gone.
    pub(super) fn gather_served(
        &self,
        token: SendToken,
        offset_bytes: u64,
        len_bytes: u64,
        pieces: &mut Vec<libc::iovec>,
        passes: &mut Vec<Pass>,
    ) -> bool {
        let Some(served) = self.served.get(Handle::from_token(token.0).0) else { return false };
        if let Some(copy) = &served.copy {
            let part = &copy[offset_bytes as usize..][..len_bytes as usize];
            let base = part.as_ptr().cast_mut().cast();
            pieces.push(libc::iovec { iov_base: base, iov_len: part.len() });
            return true;
        }
        served.each_part(offset_bytes, len_bytes, |pass, at, len| {
            pass.each_part(at, len, |at, iov_len| {
                pieces.push(libc::iovec { iov_base: at.cast(), iov_len });
            });
            passes.push(pass);
        })
    }
}
