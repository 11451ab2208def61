//! Queues, counters and receive contexts of another library, the owner, that stand behind ours.
//!
//! This library writes completions to the owner's queue, counts them at its counter, and asks its receive context for
//! receives. An owner may have no locks except its callers' own, so this library calls its functions only from within
//! the owner's own calls. Completions and messages that the helper thread brings wait for the next of these. The caller
//! holds no lock of an endpoint, queue or counter, except an endpoint that gives receives back when it ends.

use crate::completion::queue::Entry;
use crate::endpoint::Buffers;
use crate::flags::Flags;
use crate::peer_index::PeerIndex;
use std::ffi::c_void;

/// An owner's completion queue.
pub trait QueueOwner: Send + Sync {
    /// Writes an entry of ours to the owner's queue, and gives back the receive that it was about.
    /// False if there is no room now.
    fn write(&self, entry: &Entry) -> bool;
}

/// An owner's counter.
pub trait CounterOwner: Send + Sync {
    /// Counts this many completions and failures.
    fn count(&self, completions: u64, failures: u64);
}

/// A receive of the owner's, lent until its completion is written.
pub struct LentReceive {
    /// Its memory; `None` if the owner's list is not valid.
    pub buffers: Option<Buffers>,
    /// Its flags.
    pub flags: Flags,
    /// The context of our own operation, by which the owner knows it.
    pub context: *mut c_void,
}

/// An entry of the owner's, for a receive or for a message that has none.
#[derive(Clone, Copy)]
pub struct Slip(pub *mut c_void);

/// An owner's answer for a message.
pub enum Answer {
    /// Its receive.
    Receive(Slip),
    /// An entry to queue it with.
    NoReceive(Slip),
    /// Nothing now, with the owner's error number.
    Refused(i32),
}

/// A message for which the owner is asked for a receive.
#[derive(Clone, Copy)]
pub struct Offer {
    /// Our number for it.
    pub number: u32,
    /// The sender.
    pub source: PeerIndex,
    /// Its tag, if it has one.
    pub tag: Option<u64>,
    /// The sender's data, if there are any.
    pub data: Option<u64>,
    /// Its length.
    pub len_bytes: u64,
}

/// An owner's receive context.
pub trait ReceiveOwner: Send + Sync {
    /// Asks for the receive of a message.
    fn get(&self, offer: &Offer) -> Answer;

    /// The receive that an entry is for, lent until its completion. This calls no function of the owner.
    fn lend(&self, slip: Slip) -> LentReceive;

    /// Queues a message without a receive under `key`. False if that fails: then the owner has its entry back.
    fn queue(&self, slip: Slip, key: u64, offer: &Offer) -> bool;

    /// Gives an entry that nobody needs back to the owner.
    fn free(&self, slip: Slip);

    /// Addresses have become known: the owner asks for those of its entries.
    fn addresses_changed(&self);

    /// Gives the owner back what it lent with this context, which is not used again.
    fn give_back(&self, context: *mut c_void);
}
