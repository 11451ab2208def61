//! Searches for messages: [`Flags::PEEK`], [`Flags::CLAIM`] and [`Flags::DISCARD`].

use super::many::Part;
use super::queue::Claimed;
use crate::cause::Cause;
use crate::endpoint::complete::Report;
use crate::endpoint::driver::Driver;
use crate::endpoint::host::EpHost;
use crate::endpoint::ops::Context;
use crate::endpoint::request::RecvRequest;
use crate::error::Error;
use crate::flags::Flags;
use crate::run::{Driven, Outside};
use erd_rd::PeerId;
use erd_rd::matching::Pattern;
use erd_types::mutants::{Mutant, mutant};

impl<O: Outside> Driver<O> {
    /// Looks for a message; without a pattern nothing is found.
    pub(super) fn search(
        &mut self,
        request: &RecvRequest,
        at: Option<&Pattern<PeerId>>,
    ) -> Result<(), Error> {
        let Some(mask) = request.tag else { return Err(Error::Invalid) };
        if !request.flags.intersects(Flags::PEEK) {
            return self.take_claimed(request);
        }
        let EpHost { receives, under_way, .. } = &mut self.host;
        // Looks at waiting messages, without progress: reading the queue for the answer makes progress.
        let found = receives.queue().zip(at).and_then(|(queue, at)| Some((queue.find(at)?, queue)));
        let Some((key, queue)) = found else {
            let report = Report::new(request.context, request.completion_flags());
            let cause = Some(Cause::NoMessage);
            under_way.rx.push(Report { tag: mask.tag, cause, ..report }, None);
            self.publish();
            return Ok(());
        };
        let (context, message) = (Context(request.context), *queue.matcher.unexpected_mut(key));
        under_way.report_found(request, &message);
        if request.flags.intersects(Flags::DISCARD) {
            queue.matcher.remove_unexpected(key);
            under_way.discard(&message);
        } else if request.flags.intersects(Flags::CLAIM) {
            if !mutant(Mutant::KeepsAClaimedMessage) {
                queue.matcher.remove_unexpected(key);
            }
            queue.claimed.push(Claimed { context, message, void: None });
        }
        self.settle();
        self.publish();
        Ok(())
    }

    /// [`Flags::CLAIM`] without [`Flags::PEEK`]: receives or discards a message that an earlier peek claimed.
    fn take_claimed(&mut self, request: &RecvRequest) -> Result<(), Error> {
        let is_claim = request.flags.intersects(Flags::CLAIM);
        if !is_claim || !self.host.receives.claims(request.context) {
            tracing::info!("FI_CLAIM: no message was claimed with this context");
            return Err(Error::Invalid);
        }
        let discards = request.flags.intersects(Flags::DISCARD);
        let recv = if discards { None } else { Some(self.take_recv(request, Part::default())?) };
        if let Some(Claimed { message, void, .. }) =
            self.host.receives.queue().and_then(|queue| queue.take_claimed(request.context))
        {
            match recv {
                Some(recv) => self.bring(recv, &message, void),
                None => {
                    self.host.under_way.report_found(request, &message);
                    if void.is_none() {
                        self.host.under_way.discard(&message);
                    }
                }
            }
        }
        self.after_meeting(true);
        Ok(())
    }
}
