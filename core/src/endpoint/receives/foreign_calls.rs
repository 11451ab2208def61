//! Calls between an endpoint and the owner of its receives (another library), in both directions.

use super::foreign::{Foreign, Key, Queued};
use crate::cause::Cause;
use crate::endpoint::Endpoint;
use crate::endpoint::driver::Driver;
use crate::endpoint::operations::RecvOp;
use crate::endpoint::ops::Context;
use crate::error::Error;
use crate::flags::Flags;
use crate::foreign::{Answer, LentReceive, Offer, ReceiveOwner, Slip};
use crate::peer_index::PeerIndex;
use crate::polled::Polled;
use crate::run::Outside;

impl<O: Outside> Driver<O> {
    /// The next message to ask the owner about.
    fn next_offer(&mut self) -> Option<Offer> {
        let (number, message) = self.host.receives.foreign()?.next()?;
        let source = self.source_of(message.msg.peer);
        let (tag, data, len_bytes) = (message.tag, message.data, message.len_bytes);
        Some(Offer { number, source, tag, data, len_bytes })
    }

    /// Joins the owner's receive with its message.
    ///
    /// # Errors
    /// [`Error::Invalid`]: there is no such message.
    fn begin(&mut self, number: u32, slip: Slip) -> Result<(), Error> {
        let under_way = &mut self.host.under_way;
        let foreign = self.host.receives.foreign().ok_or(Error::Invalid)?;
        let kept = foreign.messages.remove(&number).ok_or(Error::Invalid)?;
        let always = under_way.rx.always_completes();
        let (recv, op) = under_way.recvs.take().ok_or(Error::Failed)?;
        let LentReceive { buffers, flags, context } = foreign.owner.lend(slip);
        let kind = if kept.message.tag.is_some() { Flags::TAGGED } else { Flags::MSG };
        let wanted = if always { Flags::COMPLETION } else { flags & Flags::COMPLETION };
        *op = RecvOp {
            buffers: buffers.unwrap_or_default(),
            context: Context(context),
            flags: Flags::RECV | Flags::PEER | kind | wanted | flags & Flags::MULTI_RECV,
            completion: true,
            ..RecvOp::default()
        };
        let mut cause = kept.void;
        if cause.is_none() && buffers.is_none_or(|buffers| !buffers.are_somewhere()) {
            tracing::info!("a receive of another provider's has no list of buffers that is valid");
            under_way.discard(&kept.message);
            cause = Some(Cause::BadBuffer);
        }
        self.bring(recv, &kept.message, cause);
        Ok(())
    }
}

impl Endpoint {
    /// Asks the owner, from within its own call, for the receives of messages that have come.
    pub(in crate::endpoint) fn ask_owner(&self) {
        let Some(owner) = self.srx_owner.get() else { return };
        let Some(_serving) = self.serving.try_lock() else { return };
        let mut begun = false;
        while let Some(offer) = self.if_sound(Driver::next_offer).flatten() {
            match owner.get(&offer) {
                Answer::Receive(slip) => {
                    begun = true;
                    let started = self.if_sound(|driver| driver.begin(offer.number, slip));
                    if !matches!(started, Some(Ok(()))) {
                        owner.free(slip);
                    }
                    continue;
                }
                Answer::NoReceive(slip) if self.queue_with(&**owner, &offer, slip) => continue,
                Answer::NoReceive(_) => {}
                Answer::Refused(errno) => {
                    tracing::info!(errno, "the owner of receives gives none and no entry");
                }
            }
            self.with_foreign(|foreign| foreign.take_back(offer.number));
            break;
        }
        if begun {
            self.if_sound(|driver| driver.after_meeting(true));
            self.work();
        }
    }

    /// Queues a message with the owner. False if that fails.
    fn queue_with(&self, owner: &dyn ReceiveOwner, offer: &Offer, slip: Slip) -> bool {
        let Some(endpoint) = self.with_foreign(|foreign| foreign.number) else {
            owner.free(slip);
            return false;
        };
        owner.queue(slip, Key { endpoint, message: offer.number }.bits(), offer)
    }

    fn with_foreign<R>(&self, f: impl FnOnce(&mut Foreign) -> R) -> Option<R> {
        self.if_sound(|driver| driver.host.receives.foreign().map(f)).flatten()
    }

    /// Hands owners their completions, from within a call of one of them.
    fn hand_over(&self) {
        let queues = self.if_sound(|driver| driver.host.queues());
        queues.iter().flatten().flatten().for_each(|cq| cq.hand_over());
    }
}

impl Queued for Endpoint {
    fn start(&self, message: u32, slip: Slip) -> Result<(), Error> {
        self.touch();
        let begun = self.if_sound(|driver| {
            let begun = driver.begin(message, slip);
            driver.after_meeting(true);
            begun
        });
        self.work();
        self.hand_over();
        if let Some(Err(_)) = begun {
            tracing::info!("start_msg, start_tag: the entry was not queued, or started before");
        }
        begun.unwrap_or(Err(Error::Failed))
    }

    fn discard(&self, message: u32) {
        self.if_sound(|driver| {
            let kept = driver.host.receives.foreign()?.messages.remove(&message)?;
            if kept.void.is_none() {
                driver.host.under_way.discard(&kept.message);
            }
            driver.after_meeting(true);
            Some(())
        });
    }

    fn source(&self, message: u32) -> Option<PeerIndex> {
        let source = self.if_sound(|driver| {
            let peer = driver.host.receives.foreign()?.peer_of(message)?;
            Some(driver.source_of(peer))
        });
        source.flatten()
    }
}
