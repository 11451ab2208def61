//! Posting by callers in Rust, as many as they like under one lock (see [`crate::verbs`]).

use super::driver::Driver;
use super::ops::Buffers;
use super::post_ask::AskPost;
use super::post_send::SendRequest;
use super::request::RecvRequest;
use super::{EpInner, State};
use erd_ffi::fi::{FI_EOPBADSTATE, FI_EOTHER, FI_MORE};
use erd_sys::clock::monotonic_ns;
use std::ffi::c_int;

/// An endpoint while its lock is held. Each call posts one operation, or answers a positive error
/// number.
pub(crate) struct Poster<'a> {
    driver: &'a mut Driver,
    /// [`FI_MORE`] if others follow in the same call: they can share a datagram.
    more: u64,
}

impl Poster<'_> {
    pub(crate) fn send(&mut self, request: &mut SendRequest) -> Result<(), c_int> {
        request.call.flags |= self.more;
        self.driver.post_send(request)
    }

    pub(crate) fn recv(&mut self, request: &mut RecvRequest) -> Result<(), c_int> {
        request.flags |= self.more;
        self.driver.post_recv(request)
    }

    pub(crate) fn ask(&mut self, request: &mut AskPost) -> Result<(), c_int> {
        request.call.flags |= self.more;
        self.driver.post_ask(request)
    }

    /// A request with these operands of 8 bytes, which are to be filled in.
    pub(crate) fn ask_with(
        &mut self,
        request: &mut AskPost,
        operand: u64,
        comparand: Option<u64>,
    ) -> Result<(), c_int> {
        request.operand = word(&operand);
        request.comparand = comparand.as_ref().map_or_else(Buffers::default, word);
        self.ask(request)
    }
}

/// An operand, which posting copies.
fn word(operand: &u64) -> Buffers {
    // SAFETY: the reference outlives the call that posts, which reads it and keeps no pointer.
    unsafe { Buffers::one((&raw const *operand).cast_mut().cast(), size_of::<u64>()) }
}

impl EpInner {
    /// Calls `post` for 0 to `count - 1`, in order, until it refuses one.
    ///
    /// # Errors
    /// How many were posted, and why not all: the reason of `post`, or `refused` of a positive
    /// error number.
    pub(crate) fn post_each<E>(
        &self,
        count: usize,
        mut post: impl FnMut(usize, &mut Poster<'_>) -> Result<(), E>,
        refused: impl Fn(c_int) -> E,
    ) -> Result<(), (usize, E)> {
        self.touch();
        if !self.is_usable() {
            return Err((0, refused(FI_EOTHER)));
        }
        let mut state = self.lock();
        let State::Enabled(driver) = &mut *state else {
            return Err((0, refused(FI_EOPBADSTATE)));
        };
        for index in 0..count {
            let more = if index + 1 < count { FI_MORE } else { 0 };
            if let Err(error) = post(index, &mut Poster { driver, more }) {
                // Those before it were told to wait for it.
                driver.transmit(monotonic_ns(), true);
                driver.publish();
                return Err((index, error));
            }
        }
        drop(state);
        self.free_others();
        Ok(())
    }
}
