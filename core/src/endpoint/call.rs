//! The common part of all calls that send or access a peer's memory: arguments beside the bytes, their checks, and the
//! begin and end of an operation.

use super::driver::{Driver, refusal};
use super::host::tx_of;
use super::limits::{EARLY_BYTES_MAX, FEW_SENDS, ORDERED_BYTES};
use super::operations::SendOp;
use super::ops::{Buffers, Context, Handle};
use crate::error::Error;
use crate::flags::Flags;
use crate::peer_index::PeerIndex;
use crate::run::{Driven, Outside};
use erd_rd::wire::remote::TARGETS_MAX;
use erd_rd::{PeerId, PostError, Target, Targets};
use erd_types::mutants::{Mutant, mutant};
use std::ffi::c_void;

/// Use of the bytes in an operation's buffers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Payload {
    /// A message carries them.
    Sent,
    /// A write carries them.
    Written,
    /// Buffers of a read or an atomic operation, copied elsewhere.
    Other,
}

/// A call as the application makes it.
#[derive(Clone, Copy)]
pub struct Call {
    /// The peer.
    pub dest: PeerIndex,
    /// The application's context.
    pub context: *mut c_void,
    /// Remote CQ data.
    pub data: Option<u64>,
    /// Flags of the call.
    pub flags: Flags,
    /// A success is not reported, whatever the flags (`fi_inject`).
    pub silent: bool,
    /// The transmit context of a scalable endpoint.
    pub ctx: u8,
}

impl Call {
    /// A call without data.
    pub fn new(dest: PeerIndex, context: *mut c_void, flags: Flags) -> Call {
        Call { dest, context, data: None, flags, silent: false, ctx: 0 }
    }

    /// `fi_inject` and its like.
    pub fn inject(dest: PeerIndex) -> Call {
        Call { silent: true, ..Call::new(dest, std::ptr::null_mut(), Flags::INJECT) }
    }

    /// The same call with data.
    pub fn with_data(self, data: u64) -> Call {
        Call { data: Some(data), ..self }
    }

    /// The same call with a message's data, if its flags say that there is some.
    pub fn with_message_data(self, data: u64) -> Call {
        if !self.flags.intersects(Flags::REMOTE_CQ_DATA) { self } else { self.with_data(data) }
    }
}

/// A caller's list as a slice. `None` if it is longer than `max`, or NULL with a count.
///
/// # Safety
/// `at` is NULL or has `count` elements, which stay during `'a`.
pub unsafe fn list<'a, T>(at: *const T, count: usize, max: usize) -> Option<&'a [T]> {
    if count > max || (at.is_null() && count > 0) {
        return None;
    }
    // SAFETY: not NULL, and the caller vouches for the length.
    Some(if count == 0 { &[] } else { unsafe { std::slice::from_raw_parts(at, count) } })
}

/// Checks that all buffers have addresses: a NULL passed by mistake would end the process.
///
/// # Errors
/// [`Error::Invalid`] if one has none.
pub(super) fn check_buffers(all: &[&Buffers]) -> Result<(), Error> {
    if all.iter().all(|buffers| buffers.are_somewhere()) {
        return Ok(());
    }
    tracing::info!("a buffer is NULL, and its length is not 0");
    Err(Error::Invalid)
}

/// The stretches of a peer's memory in a list of at most [`TARGETS_MAX`].
pub fn targets_of<T>(list: &[T], f: impl Fn(&T) -> Option<Target>) -> Option<Targets> {
    let mut targets = [Target::default(); TARGETS_MAX];
    for (target, part) in targets.iter_mut().zip(list) {
        *target = f(part)?;
    }
    Targets::new(targets.get(..list.len())?)
}

impl<O: Outside> Driver<O> {
    /// Checks a call of `len_bytes` and takes a place for its operation, whose flags the caller fills in.
    /// [`Driver::posted`] copies the `payload` of a message or write, if the application need not wait for it.
    ///
    /// # Errors
    /// Reason why no place was taken.
    pub(super) fn admit(
        &mut self,
        call: &Call,
        buffers: &Buffers,
        len_bytes: u64,
        payload: Payload,
    ) -> Result<(PeerId, Handle, &mut SendOp), Error> {
        self.check(call, len_bytes)?;
        let peer = self.peer_at(call.dest)?;
        let gives = payload != Payload::Other;
        let early = gives && self.is_early((call, payload), buffers, len_bytes, peer);
        let owed = self.owed.take();
        let tx = self.host.tx_of(call.ctx);
        let asked =
            call.flags.intersects(Flags::COMPLETION) || (owed.is_none() && tx.always_completes());
        // A completed operation keeps its place until its completion is read.
        let (live, tx_size) = (self.host.sends.live(), self.config.tx_size);
        if live >= tx_size || live - self.host.early + tx.unread() >= tx_size {
            self.progress();
            return Err(Error::Again);
        }
        let Some((handle, op)) = self.host.sends.take() else { return Err(Error::Again) };
        let injected = call.flags.intersects(Flags::INJECT);
        op.begin(buffers);
        op.lent = gives && (injected || early);
        op.context = Context(call.context);
        op.completion = asked && !call.silent;
        op.promised = injected || early;
        op.early = early;
        op.peer = Some(peer);
        op.len_bytes = len_bytes;
        op.owed = owed;
        op.ctx = call.ctx;
        Ok((peer, handle, op))
    }

    /// Whether an operation that sends bytes completes once they are copied, not once they are delivered.
    fn is_early(
        &self,
        (call, payload): (&Call, Payload),
        buffers: &Buffers,
        len_bytes: u64,
        peer: PeerId,
    ) -> bool {
        let few = self.host.sends.live() < FEW_SENDS;
        let limit_bytes = if few { EARLY_BYTES_MAX } else { self.config.inject_bytes };
        // A card reads registered memory itself, after the call.
        let read_later = buffers.memory().is_some() && len_bytes >= self.host.zero_copy_bytes;
        // What a local peer reads where it is need not be copied.
        let stays = !self.engine.sends_bytes(peer, len_bytes);
        if len_bytes > limit_bytes || read_later || stays || self.owed.is_some() {
            return false;
        }
        let written = payload == Payload::Written;
        let level = call.flags & (Flags::INJECT_COMPLETE | Flags::LATE_LEVELS);
        match level {
            Flags::INJECT_COMPLETE => true,
            _ if !level.is_empty() => false,
            _ if written && len_bytes > ORDERED_BYTES as u64 => false,
            // Nobody waits for `fi_inject`, and a counter that counts it means delivery. So do programs that count
            // writes: at a number they set a flag at the peer. A fence waits for the operations before it.
            _ => {
                let counted = written && self.host.tx_of(call.ctx).writes.is_some();
                self.config.completes_early
                    && !call.silent
                    && !counted
                    && !call.flags.intersects(Flags::FENCE)
                    && self.engine.answers(peer)
            }
        }
    }

    /// Checks a call of `len_bytes`, without taking a place.
    ///
    /// # Errors
    /// Reason for refusing it.
    pub(super) fn check(&self, call: &Call, len_bytes: u64) -> Result<(), Error> {
        if !self.host.tx_of(call.ctx).is_bound() && self.owed.is_none() {
            return Err(Error::NoQueue);
        }
        let limit_bytes = if call.flags.contains(Flags::INJECT) {
            self.config.inject_bytes
        } else {
            self.config.max_msg_bytes
        };
        if len_bytes > limit_bytes {
            tracing::info!(len_bytes, limit_bytes, "a message or transfer is too long");
            return Err(Error::TooLong);
        }
        Ok(())
    }

    /// Ends a post: the engine has taken the operation, or not. An operation that completes early completes now. This
    /// first sends what can go at once from the application's memory, then copies the payload, so the peer does not
    /// wait for the copy.
    ///
    /// # Errors
    /// Reason why nothing was posted.
    pub(super) fn posted(
        &mut self,
        now: u64,
        taken: Result<(), PostError>,
        handle: Handle,
        call: &Call,
    ) -> Result<(), Error> {
        if let Err(refused) = taken {
            self.host.end_send(handle);
            return Err(refusal(refused));
        }
        let mut lent = false;
        if let Some(op) = self.host.sends.get_mut(handle) {
            lent = op.lent;
            self.host.promised += usize::from(op.promised);
            if op.early {
                self.host.early += 1;
                let tx = tx_of(&mut self.host.tx, &mut self.host.more_tx, op.ctx);
                tx.send_done(op);
            }
        }
        if !call.flags.intersects(Flags::MORE) {
            self.transmit_posted(now, handle);
        }
        // A copy that was made meanwhile stays: a local peer may be reading it.
        let lent = lent && self.host.sends.get(handle).is_some_and(|op| op.lent);
        if lent && !mutant(Mutant::SendsWithoutCopying) {
            self.host.copy(handle);
        }
        self.publish_posted(call);
        Ok(())
    }

    /// Sends what can go, most often the operation just posted alone.
    fn transmit_posted(&mut self, now: u64, handle: Handle) {
        if let Some(peer) = self.host.sends.get(handle).and_then(|op| op.peer) {
            self.engine.flush_lane(now, peer, &mut self.host);
        }
        if self.engine.has_due() || !self.carriers.sender.is_empty() {
            self.parts().transmit(now, false);
        }
    }

    /// Ends a post whose message the peer has.
    pub(super) fn written(&mut self, handle: Handle, call: &Call) {
        if let Some(op) = self.host.sends.get(handle) {
            tx_of(&mut self.host.tx, &mut self.host.more_tx, op.ctx).send_done(op);
            self.host.end_send(handle);
        }
        self.publish_posted(call);
    }

    /// Hands over the completions of a post, if there are few or somebody may sleep.
    fn publish_posted(&mut self, call: &Call) {
        if self.host.sends.live() <= FEW_SENDS || self.host.tx_of(call.ctx).may_be_slept_on() {
            self.publish();
        }
    }
}
