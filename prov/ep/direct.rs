//! Posting by callers in Rust, as many as they like under one lock (see [`crate::verbs`]).

use super::driver::Driver;
use super::ops::Buffers;
use super::post_ask::AskPost;
use super::post_recv::RecvRequest;
use super::post_send::SendRequest;
use super::{EpInner, State};
use erd_ffi::clock::monotonic_ns;
use erd_ffi::fi::{FI_EOPBADSTATE, FI_EOTHER, FI_MORE};
use std::ffi::c_int;

/// One operation.
pub(crate) enum Post {
    Send(SendRequest),
    Ask(AskPost),
    /// A request with these operands of 8 bytes.
    Atomic(AskPost, u64, Option<u64>),
    Recv(RecvRequest),
}

/// An operand, which posting copies.
fn word(operand: &u64) -> Buffers {
    // SAFETY: the reference outlives the call that posts, which reads it and keeps no pointer.
    unsafe { Buffers::one((&raw const *operand).cast_mut().cast(), size_of::<u64>()) }
}

impl Driver {
    fn post(&mut self, post: &Post) -> Result<(), c_int> {
        match post {
            Post::Send(request) => self.post_send(request),
            Post::Ask(request) => self.post_ask(request),
            Post::Atomic(request, operand, comparand) => {
                let comparand = comparand.as_ref().map_or_else(Buffers::default, word);
                self.post_ask(&AskPost { operand: word(operand), comparand, ..*request })
            }
            Post::Recv(request) => self.post_recv(request),
        }
    }
}

impl Post {
    /// What follows in the same call can share its datagram.
    fn set_more(&mut self) {
        let flags = match self {
            Post::Send(request) => &mut request.call.flags,
            Post::Ask(request) | Post::Atomic(request, ..) => &mut request.call.flags,
            Post::Recv(request) => &mut request.flags,
        };
        *flags |= FI_MORE;
    }
}

impl EpInner {
    /// Posts what `make` answers for 0 to `count - 1`, in order, until one is refused.
    ///
    /// # Errors
    /// How many were posted, and why not all: the reason of `make`, or `refused` of a positive
    /// error number.
    pub(crate) fn post_each<E>(
        &self,
        count: usize,
        mut make: impl FnMut(usize) -> Result<Post, E>,
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
            let posted = make(index).and_then(|mut post| {
                if index + 1 < count {
                    post.set_more();
                }
                driver.post(&post).map_err(&refused)
            });
            if let Err(error) = posted {
                // Those before it were told to wait for it.
                driver.transmit(monotonic_ns(), true);
                driver.publish();
                return Err((index, error));
            }
        }
        Ok(())
    }
}
