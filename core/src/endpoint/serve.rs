//! The target's side of peers' requests to registered memory (`fi_rma(3)`, `fi_atomic(3)`).
//!
//! The endpoint checks every access against the region of its key: existence, rights and bounds. It touches memory only
//! while the region cannot be closed ([`crate::region`]). Missing memory of a region counts as out of bounds.

use super::complete::Report;
use super::host::EpHost;
use super::limits::{ORDERED_BYTES, UNREAD_MAX};
use super::ops::{Handle, Kind};
use super::served::{Served, Stretch, Stretches};
use crate::atomics;
use crate::flags::Flags;
use crate::run::pieces::Pieces;
use erd_rd::keys::{KeyId, Keys};
use erd_rd::{Atomic, Form, Operand, PeerId, RecvToken, Refusal, Remote, SendToken};
use erd_types::mutants::{Mutant, mutant};
use smallvec::{SmallVec, smallvec};
use std::sync::Arc;

impl EpHost {
    /// Memory that a request names, if it may be accessed so. A peer that is not admitted learns nothing of a key:
    /// the answer is as if there were none.
    fn find(&mut self, remote: &Remote, right: Flags) -> Result<Stretches, Refusal> {
        if !self.admits_access(remote) {
            return Err(Refusal::Key);
        }
        let (name, key) = (remote.name, self.key_id(remote.peer));
        let find = |target: &erd_rd::Target| {
            let region = self.regions.find(target.key).ok_or(Refusal::Key)?;
            if !region.is_for(name, key) {
                return Err(Refusal::Key);
            }
            if !region.access().contains(right) && !mutant(Mutant::IgnoresTheRights) {
                return Err(Refusal::Rights);
            }
            let (addr, len_bytes) = (target.addr, target.len_bytes);
            let offset_bytes = region.offset_of(addr, len_bytes).ok_or(Refusal::Bounds)?;
            if region.is_guarded() {
                let pass = region.enter().ok_or(Refusal::Key)?;
                let there = pass.is_there(offset_bytes, len_bytes, false);
                there.then_some(()).ok_or(Refusal::Bounds)?;
            }
            Ok(Stretch { region, offset_bytes, len_bytes })
        };
        remote.targets.as_slice().iter().map(find).collect()
    }

    /// See [`erd_rd::Host::key_stood`]. For a peer that is not admitted no key stands.
    pub(super) fn all_keys_stood(&mut self, remote: &Remote) -> bool {
        let by = (remote.name, self.key_id(remote.peer));
        self.admits_access(remote)
            && remote.targets.as_slice().iter().all(|target| self.regions.stood(target.key, by))
    }

    fn admits_access(&mut self, remote: &Remote) -> bool {
        let key = || self.keys.get(remote.peer.key).map(Keys::id);
        !self.regions.has_guessable_keys() || self.admitted.admits(remote.peer, remote.name, key)
    }

    /// The key of a peer; `None` without keys.
    fn key_id(&self, peer: PeerId) -> Option<KeyId> {
        self.keys.get(peer.key).map(Keys::id)
    }

    /// Calls `f` with a request's operand, from the packet or the buffer that kept it.
    fn with_operand<R>(
        &mut self,
        operand: Operand<'_>,
        f: impl FnOnce(&mut EpHost, &[u8]) -> R,
    ) -> R {
        match operand {
            Operand::Here(bytes) => f(self, bytes),
            Operand::Kept(token) => {
                let bytes = self.under_way.take_kept(token);
                f(self, &bytes)
            }
        }
    }

    /// Checks that the queue has room for completion data.
    fn check_room(&self, remote: &Remote) -> Result<(), Refusal> {
        match remote.data.is_some() && self.under_way.rx.unread() >= UNREAD_MAX {
            true => Err(Refusal::Room),
            false => Ok(()),
        }
    }

    /// Counts and reports a peer's access.
    fn accessed(&mut self, served: &Served) {
        let Served { flags, kinds, data, len_bytes, peer, ref stretches, .. } = *served;
        self.under_way.rx.count(flags, len_bytes);
        // Once for each region, even if several stretches lie in it.
        for (at, Stretch { region, .. }) in stretches.iter().enumerate() {
            let same = |other: &&Stretch| Arc::ptr_eq(&other.region, region);
            if !stretches[..at].iter().any(|other| same(&other)) {
                region.accessed(kinds, stretches.iter().filter(same).map(|s| s.len_bytes).sum());
            }
        }
        if data.is_some() {
            let report = Report::new(std::ptr::null_mut(), flags);
            self.under_way.rx.push(Report { data, len_bytes: len_bytes as usize, ..report }, peer);
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
                stretches: host.find(to, Flags::REMOTE_WRITE)?,
                ..Served::of(to, Flags::RMA | Flags::REMOTE_WRITE)
            };
            // Hold all regions before the first byte is written: a region that closes now waits.
            let mut places = SmallVec::<[_; 1]>::new();
            served.each_part(0, served.len_bytes, |pass, at, len| {
                places.push((pass, at, len as usize));
                Ok(())
            })?;
            let mut rest = bytes;
            for (pass, at, len) in places {
                let (now, after) = rest.split_at(len);
                pass.write(at, now).then_some(()).ok_or(Refusal::Bounds)?;
                rest = after;
            }
            host.accessed(&served);
            Ok(())
        })
    }

    pub(super) fn admit_write(&mut self, to: &Remote) -> Result<RecvToken, Refusal> {
        self.check_room(to)?;
        let stretches = self.find(to, Flags::REMOTE_WRITE)?;
        let served = Served { stretches, ..Served::of(to, Flags::RMA | Flags::REMOTE_WRITE) };
        if mutant(Mutant::TellsOfAWriteBeforeItsEnd) {
            self.accessed(&served);
        }
        let handle = self.new_served(served)?;
        Ok(RecvToken(handle.token_of(Kind::Served)))
    }

    /// Places bytes of a write.
    pub(super) fn place_served(&mut self, handle: Handle, offset_bytes: u64, bytes: &[u8]) {
        if let Some(served) = self.served.get_mut(handle)
            && let Err(refusal) = served.write(offset_bytes, bytes)
        {
            served.lost.get_or_insert(refusal);
        }
    }

    /// Takes the value of a handle, and frees its place.
    pub(super) fn take_served(&mut self, handle: Handle) -> Option<Served> {
        let served = self.served.get_mut(handle).map(std::mem::take);
        self.served.give_back(handle);
        served
    }

    pub(super) fn end_write(&mut self, to: RecvToken) -> Result<(), Refusal> {
        let served = self.take_served(Handle::from_token(to.0).0).ok_or(Refusal::Key)?;
        if let Some(refusal) = served.lost {
            return Err(refusal);
        }
        self.accessed(&served);
        Ok(())
    }

    pub(super) fn read_here(&mut self, from: &Remote) -> Result<SendToken, Refusal> {
        self.check_room(from)?;
        let stretches = self.find(from, Flags::REMOTE_READ)?;
        let mut served = Served { stretches, ..Served::of(from, Flags::RMA | Flags::REMOTE_READ) };
        if served.len_bytes <= ORDERED_BYTES as u64 {
            let mut copy = smallvec![0; served.len_bytes as usize];
            served.read(0, &mut copy)?;
            served.copy = Some(copy);
        }
        let handle = self.new_served(served)?;
        Ok(SendToken(handle.token_of(Kind::Served)))
    }

    /// Changes memory; the answer has a copy of the old value.
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
                (true, _) => Flags::REMOTE_READ,
                (false, Form::Update) => Flags::REMOTE_WRITE,
                (false, Form::Fetch | Form::Compare) => Flags::REMOTE_READ | Flags::REMOTE_WRITE,
            };
            let kind = match atomic.form {
                Form::Update => Flags::REMOTE_WRITE,
                Form::Fetch | Form::Compare => Flags::REMOTE_READ,
            };
            let stretches = host.find(at, right)?;
            let kinds = kind | right & Flags::REMOTE_WRITE;
            let mut served = Served { stretches, kinds, ..Served::of(at, Flags::ATOMIC | kind) };
            let len_bytes = served.len_bytes;
            let (mut places, mut passes) = (SmallVec::<[_; 1]>::new(), SmallVec::<[_; 1]>::new());
            served.each_part(0, len_bytes, |pass, offset_bytes, len| {
                if !pass.is_there(offset_bytes, len, right.intersects(Flags::REMOTE_WRITE)) {
                    return Err(Refusal::Bounds);
                }
                pass.each_part(offset_bytes, len, |at, len| places.push((at, len)));
                passes.push(pass);
                Ok(())
            })?;
            let whole = places.iter().all(|(_, len)| len % operation.element_bytes() == 0);
            if !whole || !operation.takes(len_bytes, bytes.len() as u64) {
                return Err(Refusal::Operation);
            }
            let mut before = smallvec![0; len_bytes as usize];
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

    /// Ends an answer that has arrived, or never will.
    pub(super) fn end_answer(&mut self, handle: Handle, arrived: bool) {
        let Some(served) = self.take_served(handle) else { return };
        if arrived && served.lost.is_none() {
            self.accessed(&served);
        }
        if !arrived {
            served.settle(self.zero_copy_bytes, &mut self.settling);
        }
    }

    /// Copies a part of an answer. If its memory has gone, the engine must learn of it.
    pub(super) fn read_served(&mut self, token: SendToken, offset_bytes: u64, out: &mut [u8]) {
        let Some(served) = self.served.get_mut(Handle::from_token(token.0).0) else { return };
        if let Some(copy) = &served.copy {
            let at = offset_bytes as usize;
            out.copy_from_slice(&copy[at..at + out.len()]);
            return;
        }
        if let Err(refusal) = served.read(offset_bytes, out) {
            served.lost = Some(refusal);
            self.gone.push(token);
        }
    }

    /// Adds the pieces of a part of an answer, and the passes that keep their memory. False if it has gone.
    pub(super) fn gather_served(
        &self,
        token: SendToken,
        offset_bytes: u64,
        len_bytes: u64,
        pieces: &mut Pieces,
    ) -> bool {
        let Some(served) = self.served.get(Handle::from_token(token.0).0) else { return false };
        if let Some(copy) = &served.copy {
            pieces.push_bytes(&copy[offset_bytes as usize..][..len_bytes as usize]);
            return true;
        }
        let gathered = served.each_part(offset_bytes, len_bytes, |pass, at, len| {
            // Otherwise the kernel would fail the whole send.
            if pass.is_guarded() {
                let mut copy = vec![0; len as usize];
                let there = pass.read(at, &mut copy);
                pieces.push_copy(copy);
                return there.then_some(()).ok_or(Refusal::Bounds);
            }
            pass.each_part(at, len, |at, iov_len| {
                pieces.list.push(libc::iovec { iov_base: at.cast(), iov_len });
            });
            if served.len_bytes >= self.zero_copy_bytes {
                pieces.memory = pieces.memory.or_else(|| pass.memory());
            }
            pieces.passes.push(pass);
            Ok(())
        });
        gathered.is_ok()
    }
}
