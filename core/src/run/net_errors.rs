//! Network errors of a domain's sends.
//!
//! The sockets are shared, so an endpoint that drains them may find errors for others. Every endpoint has an inbox, and
//! gets every error.

use crate::look::Teller;
use erd_port::Port;
use erd_port::udp::NetError;
use parking_lot::Mutex;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Errors kept for an endpoint that does not look; more of them say nothing new.
const INBOX_ERRORS: usize = 64;

/// The inboxes of one domain's endpoints.
#[derive(Default)]
pub struct NetErrors {
    inboxes: Mutex<Vec<Arc<Inbox>>>,
    /// When somebody last looked without a sign of an error.
    looked_ns: AtomicU64,
}

/// Errors that one endpoint has not looked at.
#[derive(Default)]
pub struct Inbox {
    /// The endpoint is to be called when there is something.
    teller: Arc<Teller>,
    waiting: AtomicBool,
    errors: Mutex<Vec<(SocketAddr, NetError)>>,
}

impl NetErrors {
    /// An inbox for a new endpoint.
    #[must_use]
    pub fn join(&self, teller: &Arc<Teller>) -> Arc<Inbox> {
        let inbox = Arc::new(Inbox { teller: Arc::clone(teller), ..Inbox::default() });
        self.inboxes.lock().push(Arc::clone(&inbox));
        inbox
    }

    /// The endpoint with this inbox closes.
    pub fn leave(&self, inbox: &Arc<Inbox>) {
        self.inboxes.lock().retain(|other| !Arc::ptr_eq(other, inbox));
    }

    /// [`NetErrors::drain`], unless some endpoint has looked within `every_ns`: each look takes a system call for each
    /// of the sockets, which all endpoints share.
    pub fn look(&self, port: &mut impl Port, now: u64, every_ns: u64) {
        let looked_ns = self.looked_ns.load(Ordering::Relaxed);
        let due = now.saturating_sub(looked_ns) >= every_ns;
        let (order, failed) = (Ordering::Relaxed, Ordering::Relaxed);
        if due && self.looked_ns.compare_exchange(looked_ns, now, order, failed).is_ok() {
            self.drain(port);
        }
    }

    /// Takes the errors that a port has, and puts each in every inbox.
    pub fn drain(&self, port: &mut impl Port) {
        let inboxes = self.inboxes.lock();
        port.drain_errors(|to, error| inboxes.iter().for_each(|inbox| inbox.put(to, error)));
    }
}

impl Inbox {
    fn put(&self, to: SocketAddr, error: NetError) {
        let mut errors = self.errors.lock();
        if errors.len() < INBOX_ERRORS && !errors.contains(&(to, error)) {
            errors.push((to, error));
        }
        self.waiting.store(true, Ordering::Release);
        drop(errors);
        self.teller.tell(0);
    }

    /// Takes what is there.
    #[must_use]
    pub fn take(&self) -> Vec<(SocketAddr, NetError)> {
        if !self.waiting.load(Ordering::Acquire) {
            return Vec::new();
        }
        let mut errors = self.errors.lock();
        self.waiting.store(false, Ordering::Release);
        std::mem::take(&mut errors)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use erd_port::udp::Unreachable;

    #[test]
    fn every_inbox_gets_every_error_once() {
        let all = NetErrors::default();
        let (one, other) = (all.join(&Arc::default()), all.join(&Arc::default()));
        let error = NetError::Unreachable(Unreachable::Port);
        let to = "127.0.0.1:9".parse().unwrap();
        for inbox in &*all.inboxes.lock() {
            inbox.put(to, error);
            inbox.put(to, error);
        }
        assert_eq!(one.take(), [(to, error)]);
        assert!(one.take().is_empty());
        all.leave(&other);
        assert_eq!(all.inboxes.lock().len(), 1);
        assert_eq!(other.take(), [(to, error)], "what came before stays");
    }

    #[test]
    fn an_inbox_is_bounded() {
        let inbox = Inbox::default();
        for port in 0..1000 {
            inbox.put(([127, 0, 0, 1], port).into(), NetError::Other(5));
        }
        assert_eq!(inbox.take().len(), INBOX_ERRORS);
    }
}
