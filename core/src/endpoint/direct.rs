//! Posting by Rust callers: many operations under one lock.

use super::driver::Driver;
use super::ops::Buffers;
use super::post_rma::RmaPost;
use super::post_send::SendRequest;
use super::request::RecvRequest;
use super::{Endpoint, State};
use crate::error::Error;
use crate::flags::Flags;
use crate::run::Driven;

/// An endpoint while its lock is held. Each call posts one operation, or returns the reason why not.
pub struct Poster<'a> {
    driver: &'a mut Driver,
    /// [`Flags::MORE`] if others follow in the same call: they can share a datagram.
    more: Flags,
}

impl Poster<'_> {
    /// Posts a send.
    ///
    /// # Errors
    /// As [`Driver::post_send`].
    pub fn send(&mut self, request: &mut SendRequest) -> Result<(), Error> {
        request.call.flags |= self.more;
        self.driver.post_send(&request.buffers, request.tag, &request.call)
    }

    /// Posts a receive.
    ///
    /// # Errors
    /// As [`Driver::post_recv`].
    pub fn recv(&mut self, request: &mut RecvRequest) -> Result<(), Error> {
        request.flags |= self.more;
        self.driver.post_recv(request)
    }

    /// Posts a request for a peer's memory.
    ///
    /// # Errors
    /// As [`Driver::post_rma`].
    pub fn rma(&mut self, request: &mut RmaPost) -> Result<(), Error> {
        request.call.flags |= self.more;
        self.driver.post_rma(request)
    }

    /// Posts a request with operands of 8 bytes, which this fills in.
    pub fn rma_with(
        &mut self,
        request: &mut RmaPost,
        operand: u64,
        comparand: Option<u64>,
    ) -> Result<(), Error> {
        request.operand = word(&operand);
        request.comparand = comparand.as_ref().map_or_else(Buffers::default, word);
        self.rma(request)
    }
}

/// An operand, which posting copies.
fn word(operand: &u64) -> Buffers {
    // SAFETY: the reference outlives the call that posts, which reads it and keeps no pointer.
    unsafe { Buffers::one((&raw const *operand).cast_mut().cast(), size_of::<u64>()) }
}

impl Endpoint {
    /// Calls `post` for 0 to `count - 1`, in order, until it refuses one.
    ///
    /// # Errors
    /// The number posted, and the reason for stopping: that of `post`, or `refused` of an error of the endpoint.
    pub fn post_each<E>(
        &self,
        count: usize,
        mut post: impl FnMut(usize, &mut Poster<'_>) -> Result<(), E>,
        refused: impl Fn(Error) -> E,
    ) -> Result<(), (usize, E)> {
        self.touch();
        if !self.is_usable() {
            return Err((0, refused(Error::Failed)));
        }
        let mut state = self.lock();
        let State::Enabled(driver) = &mut *state else {
            return Err((0, refused(Error::State)));
        };
        for index in 0..count {
            let more = if index + 1 < count { Flags::MORE } else { Flags::empty() };
            if let Err(error) = post(index, &mut Poster { driver, more }) {
                // The operations before it wait for it.
                let now = driver.now_ns();
                driver.parts().transmit(now, true);
                driver.publish();
                return Err((index, error));
            }
        }
        drop(state);
        self.free_others();
        Ok(())
    }
}
