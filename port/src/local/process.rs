//! The processes that this one shares memory with. Of the connections on which they met one stays open between each two:
//! the kernel closes it when either ends, however that happens.
//!
//! A process says who it is, but the kernel says which number it has: one that uses the id of another is another neighbour.

use super::courier::Connection;
use super::offer::ProcessId;
use erd_sys::process::Process;
use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Another process.
#[derive(Debug)]
pub struct Neighbour {
    id: ProcessId,
    pid: u32,
    /// One that each of the two has made, or only one of them, and those that the other one is about to close.
    connections: Mutex<Vec<(Side, Arc<Connection>)>>,
    dead: AtomicBool,
    /// The kernel does not let this process read its memory.
    unreadable: AtomicBool,
    /// It is this process.
    own: bool,
}

/// Who made the connection at hand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// This process, which closes it if it has made another that stays. What the other one has made does not count: that
    /// one may be closing it for the same reason.
    Initiator,
    /// The other one, likewise.
    Acceptor,
}

/// Longest wait for the list of neighbours.
const LOCK_PATIENCE: Duration = Duration::from_secs(1);

/// The neighbours of a process.
type Neighbours = (Process, HashMap<(ProcessId, u32), Weak<Neighbour>>);

/// Those of the process that last asked.
static ALL: Mutex<Option<Neighbours>> = Mutex::new(None);

impl Neighbour {
    /// The process of this id, at the other end of `connection`, and the connection by which to see it end. `own` is the
    /// id of this one: another endpoint of it may be there.
    pub fn meet(
        own: ProcessId,
        id: ProcessId,
        connection: Connection,
        side: Side,
    ) -> (Arc<Neighbour>, Arc<Connection>) {
        let pid = connection.who().pid;
        let is_own = id == own && pid == std::process::id();
        let new = || {
            let (connections, dead) = (Mutex::default(), AtomicBool::new(false));
            let unreadable = AtomicBool::new(pid == 0);
            Arc::new(Neighbour { id, pid, connections, dead, unreadable, own: is_own })
        };
        if is_own {
            return (new(), Arc::new(connection));
        }
        // A process without a number here could be any, and a thread that a forked child lacks may have had the lock.
        let all = (pid != 0).then(|| ALL.try_lock_for(LOCK_PATIENCE)).flatten();
        let Some(mut all) = all else {
            let (neighbour, connection) = (new(), Arc::new(connection));
            neighbour.connections.lock().push((side, Arc::clone(&connection)));
            return (neighbour, connection);
        };
        // A forked child has met nobody.
        if all.as_ref().is_none_or(|(owner, _)| !owner.is_current()) {
            *all = Some((Process::current(), HashMap::new()));
        }
        let (_, known) = all.as_mut().expect("made above");
        known.retain(|_, neighbour| neighbour.strong_count() > 0);
        let found = known.get(&(id, pid)).and_then(Weak::upgrade).filter(|found| found.is_alive());
        let neighbour = found.unwrap_or_else(|| {
            let new = new();
            known.insert((id, pid), Arc::downgrade(&new));
            new
        });
        let mut connections = neighbour.connections.lock();
        let made = connections.iter().find(|(by, _)| *by == Side::Initiator);
        let made = made.filter(|_| side == Side::Initiator).map(|(_, made)| Arc::clone(made));
        let seen_by = made.unwrap_or_else(|| {
            let new = Arc::new(connection);
            connections.push((side, Arc::clone(&new)));
            new
        });
        drop(connections);
        (neighbour, seen_by)
    }

    /// Its id.
    #[must_use]
    pub fn id(&self) -> ProcessId {
        self.id
    }

    /// Its number here; 0 if it has none in this PID namespace.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Whether this process may read its memory, as far as is known.
    #[must_use]
    pub fn is_readable(&self) -> bool {
        !self.unreadable.load(Ordering::Relaxed)
    }

    /// The kernel does not let this process read its memory.
    pub fn note_unreadable(&self) {
        self.unreadable.store(true, Ordering::Relaxed);
    }

    /// Whether it lived at the last look.
    #[must_use]
    pub fn seems_alive(&self) -> bool {
        !self.dead.load(Ordering::Relaxed)
    }

    /// Looks whether the process lives.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        if self.own {
            return true;
        }
        if self.dead.load(Ordering::Relaxed) {
            return false;
        }
        let mut connections = self.connections.lock();
        connections.retain(|(_, connection)| !is_closed(connection));
        // Before the first one it is about to get one.
        if connections.is_empty() {
            self.dead.store(true, Ordering::Relaxed);
        }
        !connections.is_empty()
    }

    /// A connection by which to see it end, if it lives.
    #[must_use]
    pub fn connection(&self) -> Option<Arc<Connection>> {
        self.connections.lock().first().map(|(_, first)| Arc::clone(first))
    }
}

/// True if the other side has gone.
pub(super) fn is_closed(connection: &Connection) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(connection.fd(), PollFlags::RDHUP)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    let gone = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
    matches!(rustix::event::poll(&mut fds, Some(&now)), Ok(1)) && fds[0].revents().intersects(gone)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::local::courier::Listener;
    use std::net::SocketAddr;
    use std::time::Instant;

    fn connect(listener: &Listener, name: SocketAddr) -> (Connection, Connection) {
        let one = Connection::open(name, None, usize::MAX).expect("a socket").expect("it listens");
        (one, listener.accept(usize::MAX).expect("a socket").expect("it came"))
    }

    #[test]
    #[cfg_attr(miri, ignore = "it makes system calls that Miri does not know")]
    fn one_connection_stays_and_its_end_is_the_end_of_the_process() {
        let name = SocketAddr::from(([127, 0, 5, 8], 1));
        let listener = Listener::open(name, None).expect("a listener");
        // This process stands for two.
        let (here, there) = (ProcessId([1; 16]), ProcessId([2; 16]));
        let (one, other) = connect(&listener, name);
        let (theirs, first) = Neighbour::meet(here, there, one, Side::Initiator);
        let (ours, _) = Neighbour::meet(there, here, other, Side::Acceptor);
        let (one, other) = connect(&listener, name);
        let (again, same) = Neighbour::meet(here, there, one, Side::Initiator);
        assert!(Arc::ptr_eq(&theirs, &again) && Arc::ptr_eq(&first, &same), "one is enough");
        let (also, second) = Neighbour::meet(there, here, other, Side::Acceptor);
        assert!(Arc::ptr_eq(&ours, &also));
        assert!(is_closed(&second), "the initiator closed it");
        assert!(ours.is_alive() && theirs.is_alive());
        assert_eq!(ours.connections.lock().len(), 1);
        drop((theirs, again, first, same));
        // A child that another test has forked has it until it runs its program.
        let end = Instant::now() + Duration::from_secs(20);
        while ours.is_alive() {
            assert!(Instant::now() < end, "the other process has gone");
        }
        assert!(ours.connection().is_none());
        assert!(!ours.is_alive(), "for good");
    }

    #[test]
    #[cfg_attr(miri, ignore = "it makes system calls that Miri does not know")]
    fn two_that_ask_each_other_at_once_live_on() {
        let names = [3, 4].map(|port| SocketAddr::from(([127, 0, 5, 8], port)));
        let listeners = names.map(|name| Listener::open(name, None).expect("a listener"));
        let (a, b) = (ProcessId([4; 16]), ProcessId([5; 16]));
        let (from_a, to_b) = connect(&listeners[0], names[0]);
        let (from_b, to_a) = connect(&listeners[1], names[1]);
        // Each receives the other before it has its own answer.
        let (at_a, _) = Neighbour::meet(a, b, to_a, Side::Acceptor);
        let (at_b, _) = Neighbour::meet(b, a, to_b, Side::Acceptor);
        let _ = Neighbour::meet(a, b, from_a, Side::Initiator);
        let _ = Neighbour::meet(b, a, from_b, Side::Initiator);
        assert!(at_a.is_alive() && at_b.is_alive());
    }

    #[test]
    #[cfg_attr(miri, ignore = "it makes system calls that Miri does not know")]
    fn a_process_sees_no_end_of_itself() {
        let name = SocketAddr::from(([127, 0, 5, 8], 2));
        let listener = Listener::open(name, None).expect("a listener");
        let here = ProcessId([3; 16]);
        let (one, other) = connect(&listener, name);
        let (first, seen_by) = Neighbour::meet(here, here, one, Side::Initiator);
        let (second, _) = Neighbour::meet(here, here, other, Side::Acceptor);
        drop(seen_by);
        assert!(first.is_alive() && second.is_alive());
    }
}
