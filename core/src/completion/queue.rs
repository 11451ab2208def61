//! The entries of one completion queue, in order.

use crate::cause::Cause;
use crate::flags::Flags;
use crate::peer_index::PeerIndex;
use std::collections::VecDeque;
use std::ffi::c_void;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Room kept when a long queue has been read empty, in entries.
const KEPT_ENTRIES: usize = 4096;

/// One completion, good or bad.
pub struct Entry {
    /// The application's context of the operation, never read.
    pub context: *mut c_void,
    /// Kind of the operation.
    pub flags: Flags,
    /// Bytes received.
    pub len_bytes: usize,
    /// Address of a message in a multi-receive buffer, else NULL.
    pub buf: *mut c_void,
    /// Remote CQ data.
    pub data: u64,
    /// Tag of the message.
    pub tag: u64,
    /// The sender, or [`crate::peer_index::NOWHERE`].
    pub source: PeerIndex,
    /// The peer's name, for queue pairs.
    pub peer: Option<SocketAddr>,
    /// The [`Account`] of the queue that holds the operation's slot until this is read.
    pub account: AccountId,
    /// Set for an operation that failed.
    pub failure: Option<Box<Failure>>,
}

// SAFETY: the pointers are the application's; nothing here reads through them.
unsafe impl Send for Entry {}

/// Fields of an error entry beyond an [`Entry`].
#[derive(Clone, Debug)]
pub struct Failure {
    /// Cause of the failure.
    pub cause: Cause,
    /// Bytes that did not fit the buffer.
    pub overflow_bytes: usize,
    /// Text for people, ended by a zero byte; empty if there is nothing to add.
    pub text: Vec<u8>,
}

/// Number of unread completions of one endpoint and direction. The endpoint counts them with its outstanding
/// operations, and so bounds the queue.
pub type Account = Arc<AtomicU32>;

/// Index of an [`Account`] in one queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AccountId(u32);

/// Reason why nothing was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Nothing {
    /// No entry is there.
    Empty,
    /// The first entry is an error, which [`Queue::read_error`] takes.
    Error,
}

/// The queue. It grows as needed: its bound is the sum of the operations that its endpoints admit.
#[derive(Default)]
pub struct Queue {
    entries: VecDeque<Entry>,
    accounts: Vec<Account>,
    /// A waiter must be woken at the next entry.
    pub armed: bool,
}

impl Queue {
    /// Gives an endpoint a new account.
    pub(crate) fn open_account(&mut self) -> (AccountId, Account) {
        let account = Account::default();
        // An account that only the queue still holds ends once all its entries were read.
        let over = |old: &Account| Arc::strong_count(old) == 1 && old.load(Ordering::Relaxed) == 0;
        let index = self.accounts.iter().position(over).unwrap_or(self.accounts.len());
        match self.accounts.get_mut(index) {
            Some(place) => *place = Arc::clone(&account),
            None => self.accounts.push(Arc::clone(&account)),
        }
        (AccountId(index as u32), account)
    }

    /// Number of entries that have not been read.
    #[must_use]
    pub fn unread(&self) -> usize {
        self.entries.len()
    }

    /// True if the next read finds an error.
    #[must_use]
    pub(crate) fn error_is_first(&self) -> bool {
        self.entries.front().is_some_and(|entry| entry.failure.is_some())
    }

    /// Adds an entry.
    pub fn push(&mut self, entry: Entry) {
        self.accounts[entry.account.0 as usize].fetch_add(1, Ordering::Relaxed);
        self.entries.push_back(entry);
    }

    /// Lends the entry at the front, to be returned by [`Queue::put_back`] or [`Queue::written`].
    pub(crate) fn lend(&mut self) -> Option<Entry> {
        self.entries.pop_front()
    }

    /// Puts a lent entry back.
    pub(crate) fn put_back(&mut self, entry: Entry) {
        self.entries.push_front(entry);
    }

    /// Counts a lent entry as read.
    pub(crate) fn written(&mut self, entry: &Entry) {
        self.accounts[entry.account.0 as usize].fetch_sub(1, Ordering::Relaxed);
    }

    /// Hands up to `count` good entries to `sink`, each with its place. Returns how many.
    ///
    /// # Errors
    /// [`Nothing`] if the first entry is missing or an error.
    pub fn read(
        &mut self,
        count: usize,
        sink: &mut impl FnMut(usize, &Entry),
    ) -> Result<usize, Nothing> {
        let mut done = 0;
        while done < count {
            let Some(entry) = self.entries.front() else { break };
            if entry.failure.is_some() {
                if done == 0 {
                    return Err(Nothing::Error);
                }
                break;
            }
            sink(done, entry);
            self.pop();
            done += 1;
        }
        if done == 0 {
            return Err(Nothing::Empty);
        }
        Ok(done)
    }

    /// Takes the error entry at the front.
    pub fn read_error(&mut self) -> Option<Entry> {
        self.entries.front()?.failure.as_ref()?;
        self.pop()
    }

    /// Hands up to `count` entries to `f`, good and bad in their order. Returns how many.
    pub fn take(&mut self, count: usize, mut f: impl FnMut(&Entry)) -> usize {
        let mut taken = 0;
        while taken < count
            && let Some(entry) = self.entries.front()
        {
            f(entry);
            self.pop();
            taken += 1;
        }
        taken
    }

    /// Takes the entry at the front, good or bad.
    fn pop(&mut self) -> Option<Entry> {
        let entry = self.entries.pop_front()?;
        self.accounts[entry.account.0 as usize].fetch_sub(1, Ordering::Relaxed);
        if self.entries.is_empty() && self.entries.capacity() > KEPT_ENTRIES {
            self.entries.shrink_to(KEPT_ENTRIES);
        }
        Some(entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr::null_mut;

    fn good(account: AccountId, tag: u64) -> Entry {
        Entry {
            context: tag as *mut c_void,
            flags: Flags::from_bits_retain(1),
            len_bytes: 2,
            buf: null_mut(),
            data: 3,
            tag,
            source: 9,
            peer: None,
            account,
            failure: None,
        }
    }

    fn bad(account: AccountId, tag: u64) -> Entry {
        let failure = Failure { cause: Cause::BadBuffer, overflow_bytes: 4, text: b"x\0".to_vec() };
        Entry { failure: Some(Box::new(failure)), ..good(account, tag) }
    }

    fn read(queue: &mut Queue, count: usize) -> Result<Vec<u64>, Nothing> {
        let mut out = Vec::new();
        let done = queue.read(count, &mut |place, entry| {
            assert_eq!((place, entry.source), (out.len(), 9));
            out.push(entry.tag);
        })?;
        assert_eq!(done, out.len());
        Ok(out)
    }

    #[test]
    fn errors_come_in_their_place() {
        let mut queue = Queue::default();
        let (id, account) = queue.open_account();
        queue.push(good(id, 1));
        queue.push(bad(id, 2));
        queue.push(good(id, 3));
        assert_eq!(account.load(Ordering::Relaxed), 3);
        assert!(queue.read_error().is_none(), "a good entry is first");
        assert_eq!(read(&mut queue, 8), Ok(vec![1]));
        assert_eq!(read(&mut queue, 8), Err(Nothing::Error));
        let error = queue.read_error().unwrap();
        let failure = error.failure.unwrap();
        assert_eq!((error.tag, failure.cause, failure.overflow_bytes), (2, Cause::BadBuffer, 4));
        assert_eq!(failure.text.len(), 2);
        assert_eq!(read(&mut queue, 8), Ok(vec![3]));
        assert_eq!(read(&mut queue, 8), Err(Nothing::Empty));
        assert_eq!(account.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn an_account_is_reused_only_when_its_entries_are_read() {
        let mut queue = Queue::default();
        let (first, account) = queue.open_account();
        queue.push(good(first, 1));
        drop(account);
        let (second, _second_account) = queue.open_account();
        assert_ne!(first, second);
        assert_eq!(read(&mut queue, 8), Ok(vec![1]));
        let (third, _third_account) = queue.open_account();
        assert_eq!(first, third);
    }

    #[test]
    fn the_queue_grows_past_any_size_asked_for() {
        let mut queue = Queue::default();
        let (id, _account) = queue.open_account();
        (0..100_000).for_each(|tag| queue.push(good(id, tag)));
        assert_eq!(queue.unread(), 100_000);
        for first in (0..100_000).step_by(8) {
            assert_eq!(read(&mut queue, 8), Ok((first..first + 8).collect()));
        }
        assert!(queue.entries.capacity() <= 2 * KEPT_ENTRIES);
    }
}
