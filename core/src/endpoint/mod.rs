//! Reliable datagram endpoints.
//!
//! An endpoint has one lock, around everything that its operations touch. The order of locks is: a watch's list of
//! endpoints, then an endpoint, then queues, counters and a domain's shared objects.
//!
//! - [`Endpoint`]: the object; `object`: opening it, names and options; `bind`: its bindings; `config`: its attributes;
//! - `post_send`, `post_rma`: posting; `call`: their common part; `direct`: many in one call; `later`: operations that
//!   wait for counters;
//! - `driver`: the enabled endpoint, which the loop in [`crate::run`] runs; `host`, `serve`: the answers to
//!   the engine's questions;
//! - `receives`: receives of the endpoint's own, of a shared context, or of another provider's;
//! - `refused`: log lines about peers with a wrong key;
//! - `ops`: operations and memory; `complete`: completions;
//! - `observe`, `stats`: its state for people.

mod bind;
pub mod bindings;
pub mod call;
mod complete;
pub mod config;
pub mod direct;
pub mod driver;
mod enable;
pub mod host;
mod lanes;
pub mod later;
pub mod limits;
mod object;
pub mod observe;
mod operations;
pub mod ops;
pub mod post_rma;
pub mod post_send;
pub(crate) mod receives;
mod refused;
pub mod request;
pub(crate) mod room;
mod serve;
mod served;
mod settling;
pub mod stats;

pub use bindings::{Bound, Role};
pub use call::Call;
pub use config::EpConfig;
pub use direct::Poster;
pub use enable::Made;
pub use later::{Later, Post};
pub use limits::{MIN_MULTI_RECV_BYTES, MSG_BYTES_MAX, ORDERED_BYTES};
pub use ops::Buffers;
pub use post_rma::{Access, RmaPost};
pub use post_send::SendRequest;
pub use receives::foreign::{discard_queued, source_of_queued, start_queued};
pub use request::RecvRequest;

use crate::av::Member;
use crate::domain::Domain;
use crate::error::Error;
use crate::foreign::ReceiveOwner;
use crate::held::{Call as FreeingCall, Known};
use crate::key_file::{OVERLAP, Read};
use crate::keys::KeyTable;
use crate::look::{Look, Teller};
use crate::peer_index::PeerIndex;
use crate::polled::{self, Polled, address};
use crate::run::Driven;
use crate::settings::KeySource;
use crate::uses::{Use, Users};
use bindings::{Bindings, Watched};
use driver::Driver;
use erd_crypto::Keyring;
use erd_port::udp::RxSocket;
use erd_rd::keys::Keys;
use erd_sys::clock::monotonic_ns;
use erd_sys::process::Process;
use parking_lot::{Mutex, MutexGuard};
use std::ops::{Deref, DerefMut};
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

/// A step of the helper thread.
#[derive(Clone, Copy, Default)]
pub(crate) struct HelperStep {
    /// Something had arrived.
    pub(crate) arrived: bool,
    /// Time (ns) at which the next step is due, if any.
    pub(crate) deadline_ns: Option<u64>,
}

/// Time without a call after which the helper thread steps in, where the application leaves
/// progress to the provider.
const AUTO_IDLE_NS: u64 = 1_000_000;
/// Longest wait of `fi_close` for acknowledgements of answers, and for goodbyes; the engine gives up earlier.
const GOODBYE_MAX_NS: u64 = 2_000_000_000;
/// Pause between two looks while closing.
const CLOSING_PAUSE: Duration = Duration::from_micros(100);

/// See [`Endpoint::renew_key`].
const NO_VERSION: u64 = u64::MAX;

/// State of an endpoint.
pub struct Endpoint {
    /// For lists that hold this endpoint.
    me: Weak<Endpoint>,
    /// The domain that it belongs to.
    pub domain: Arc<Domain>,
    state: Mutex<State>,
    /// Counts the application's calls, except looks at many endpoints. From it the helper thread sees whether the
    /// endpoint progresses.
    calls: AtomicU64,
    /// Queues and counters that let this endpoint progress.
    watches: Mutex<Vec<Watched>>,
    /// A bug was caught in the middle of a call: no call reads this state any more.
    failed: AtomicBool,
    /// Tells the looks that cover this endpoint when it is due.
    teller: Arc<Teller>,
    /// The endpoint is in the domain's list of those that hold messages back, or is about to be put back. Changed under
    /// its lock alone.
    listed: AtomicBool,
    /// What its posts have seen of that list.
    known: Known,
    /// The other provider that has the receives, if one does.
    srx_owner: OnceLock<Arc<dyn ReceiveOwner>>,
    /// The number of its key in the job's file; [`NO_VERSION`] if it has none from there.
    key_version: AtomicU64,
    /// Two keys are valid, or were when somebody last looked.
    changes_key: AtomicBool,
    /// Held while asking that provider for receives.
    serving: Mutex<()>,
    owner: Process,
    users: Users,
    _domain_use: Use,
}

/// State of an endpoint.
enum State {
    /// Not enabled yet.
    Setup(Box<Setup>),
    Enabled(Box<Driver>),
    Closed,
}

/// Parts of an endpoint that is not enabled yet.
struct Setup {
    rx: RxSocket,
    config: EpConfig,
    bindings: Bindings,
    /// The memory that peers may reach.
    regions: Arc<KeyTable>,
}

/// Lock of an endpoint. If a bug makes a call panic, the endpoint fails. The caller that unlocks it tells when the
/// endpoint is due.
struct Guard<'a> {
    state: MutexGuard<'a, State>,
    endpoint: &'a Endpoint,
}

impl Deref for Guard<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        &self.state
    }
}

impl DerefMut for Guard<'_> {
    fn deref_mut(&mut self) -> &mut State {
        &mut self.state
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        let endpoint = self.endpoint;
        if std::thread::panicking() {
            endpoint.fail();
        } else if let State::Enabled(driver) = &mut *self.state {
            if endpoint.teller.is_asked() && endpoint.is_usable() {
                endpoint.teller.tell(driver.due_again_ns());
            }
            driver.keep_armed(|| endpoint.is_waited_for());
            if driver.engine.has_unsent() && !endpoint.listed.load(Ordering::Relaxed) {
                endpoint.list();
            }
        }
    }
}

impl Polled for Endpoint {
    fn progress(&self) -> bool {
        self.touch();
        self.step()
    }

    fn progress_if_due(&self, now: u64) -> bool {
        self.teller.ask();
        if !self.is_usable() {
            return true;
        }
        let Some(mut guard) = self.try_lock() else { return false };
        if let State::Enabled(driver) = &mut *guard
            && driver.due_ns() <= now
        {
            // Most timers are stopped before their time.
            driver.engine.poll_true_timeout(now);
            if driver.due_ns() <= now {
                driver.progress();
            }
        }
        drop(guard);
        self.work();
        true
    }

    fn let_out(&self) -> bool {
        if !self.is_usable() {
            return true;
        }
        let Some(mut guard) = self.try_lock() else { return false };
        self.listed.store(false, Ordering::Relaxed);
        if let State::Enabled(driver) = &mut *guard
            && driver.engine.has_unsent()
        {
            driver.progress();
        }
        // An endpoint that still holds something comes back into the list.
        drop(guard);
        self.work();
        true
    }

    fn join_look(&self, look: &Arc<Look>, place: u32) -> bool {
        let told = self.if_enabled(|driver| driver.tells()).unwrap_or(false);
        if told {
            self.teller.join(look, place);
        }
        told
    }

    fn leave_look(&self, look: &Arc<Look>) {
        self.teller.leave(look);
    }

    fn work(&self) {
        if self.domain.work.is_due() {
            self.domain.work.run();
        }
    }

    fn deadline_ns(&self) -> Option<u64> {
        match &mut *self.lock() {
            State::Enabled(driver) if !self.failed.load(Ordering::Relaxed) => {
                driver.parts().deadline_ns()
            }
            _ => None,
        }
    }

    fn each_fd(&self, f: &mut dyn FnMut(BorrowedFd<'_>)) {
        self.if_enabled(|driver| driver.each_fd(f));
    }

    fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    fn serve_owner(&self) {
        self.ask_owner();
    }
}

impl Member for Endpoint {
    fn peer_removed(&self, fi_addr: PeerIndex) {
        self.if_enabled(|driver| driver.forget(fi_addr));
    }

    fn names_added(&self) {
        // The owner may need the addresses of its queued messages.
        self.srx_owner.get().into_iter().for_each(|owner| owner.addresses_changed());
    }

    fn names_changed(&self) {
        self.if_enabled(|driver| driver.sources.clear());
    }
}

impl Endpoint {
    /// Objects that need the endpoint.
    #[must_use]
    pub fn users(&self) -> &Users {
        &self.users
    }

    /// Ends the endpoint: keeps its promises and ends all sessions in good order, within bounds.
    pub fn close(self: &Arc<Self>) {
        crate::progress::unregister(self);
        self.leave_watches();
        self.say_goodbye();
        let mut last = std::mem::replace(&mut *self.lock(), State::Closed);
        let (mut queues, mut shared) = ([None, None], None);
        if let State::Enabled(driver) = &mut last {
            // One that a bug has failed has said no goodbye.
            driver.host.settle_all();
            self.domain.net_errors.leave(&driver.carriers.inbox);
            queues = driver.host.queues();
            shared = driver.host.receives.context();
        }
        drop(last);
        shared.iter().for_each(|srx| srx.tell_of_orphans());
        queues.iter().flatten().for_each(|cq| cq.hand_over());
        // End work that waits for room here, and do what the last completions have made due: nobody else may let the
        // domain progress.
        self.work();
    }

    fn lock(&self) -> Guard<'_> {
        Guard { state: self.state.lock(), endpoint: self }
    }

    /// Goes over to the newest key of the job's file, unless two keys are valid already, or the endpoint is in use: then
    /// later.
    pub(crate) fn renew_key(&self) {
        let (own, settings) = (self.key_version.load(Ordering::Relaxed), &self.domain.settings);
        let KeySource::File(file) = &settings.keys else { return };
        let changes = self.changes_key.load(Ordering::Relaxed);
        if own == NO_VERSION || (own == file.version() && !changes) || !self.is_usable() {
            return;
        }
        let Some(mut guard) = self.try_lock() else { return };
        let State::Enabled(driver) = &mut *guard else { return };
        if driver.engine.is_changing_keys() {
            self.changes_key.store(true, Ordering::Relaxed);
            return;
        }
        driver.retire_keys();
        self.changes_key.store(false, Ordering::Relaxed);
        let Read { version, newest, before } = file.keys();
        if own != version {
            let key: Arc<dyn Keys> = Arc::new(Keyring::new(newest, settings.hides));
            let left = before.map_or(OVERLAP, |(_, left)| left);
            if driver.renew_key(&key, left.as_nanos() as u64) {
                tracing::info!("sessions go over to the job's new key");
                self.key_version.store(version, Ordering::Relaxed);
                self.changes_key.store(true, Ordering::Relaxed);
            }
        }
    }

    /// True if it has keys, of its own or of a session. For tests.
    #[must_use]
    pub fn holds_keys(&self) -> bool {
        self.if_enabled(|driver| driver.engine.holds_keys()).unwrap_or(false)
    }

    /// In a forked child: forgets all keys, unless a thread that the child lacks was in a call.
    pub(crate) fn forget_keys(&self) {
        if let Some(mut state) = self.state.try_lock()
            && let State::Enabled(driver) = &mut *state
        {
            driver.forget_keys();
        }
    }

    /// Calls `f` if the endpoint is enabled.
    fn if_enabled<R>(&self, f: impl FnOnce(&mut Driver) -> R) -> Option<R> {
        match &mut *self.lock() {
            State::Enabled(driver) => Some(f(driver)),
            State::Setup(_) | State::Closed => None,
        }
    }

    /// Calls `f` if the endpoint is enabled and sound.
    fn if_sound<R>(&self, f: impl FnOnce(&mut Driver) -> R) -> Option<R> {
        if self.is_usable() { self.if_enabled(f) } else { None }
    }

    fn try_lock(&self) -> Option<Guard<'_>> {
        Some(Guard { state: self.state.try_lock()?, endpoint: self })
    }

    /// Records a call of the application, so that the helper thread need not step in.
    fn touch(&self) {
        // A lost count of two threads does no harm.
        self.calls.store(self.calls.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    /// Calls of the application, except looks at many endpoints.
    #[must_use]
    pub fn own_calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// Number of calls so far, for comparison with an earlier number.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed).wrapping_add(self.teller.looks())
    }

    /// True if the endpoint belongs to this process, not to the process that forked it.
    #[must_use]
    pub fn is_own(&self) -> bool {
        self.owner.is_current()
    }

    /// False once a bug made a call panic, and in a forked child of the process that made the
    /// endpoint: its datagrams are the parent's.
    fn is_usable(&self) -> bool {
        !self.failed.load(Ordering::Acquire) && self.owner.is_current()
    }

    /// Runs a post. If it fails, this sends earlier ones that waited for it ([`crate::flags::Flags::MORE`]).
    ///
    /// # Errors
    /// Those of `post`, [`Error::State`] if the endpoint is not enabled, [`Error::Failed`].
    pub fn post(&self, post: impl FnOnce(&mut Driver) -> Result<(), Error>) -> Result<(), Error> {
        self.touch();
        if !self.is_usable() {
            return Err(Error::Failed);
        }
        let posted = self.if_enabled(|driver| {
            let posted = post(driver);
            // A caller that must try again has let the endpoint progress.
            if !matches!(posted, Ok(()) | Err(Error::Again)) {
                let now = driver.now_ns();
                driver.parts().transmit(now, false);
            }
            posted
        });
        // An operation that completes at once may bring a counter to a threshold.
        self.work();
        self.free_others();
        posted.unwrap_or(Err(Error::State))
    }

    /// Enters this endpoint, which holds messages back, in the domain's list.
    #[cold]
    fn list(&self) {
        self.listed.store(self.domain.held.list(self.me.clone()), Ordering::Relaxed);
    }

    /// Lets other endpoints send what they hold back, in a call that posts.
    fn free_others(&self) {
        self.domain.held.free(FreeingCall::Post, &self.known, |other| other == address(self));
    }

    /// [`Endpoint::progress`] by the helper thread. It uses try_lock: a descheduled helper must not keep the
    /// application from its endpoint. (It posts work that counters have made due as the application would.) `None`
    /// while the application is in a call. From here on the fds, which `f` gets, report arrivals.
    pub(crate) fn attend(&self, f: &mut dyn FnMut(BorrowedFd<'_>)) -> Option<HelperStep> {
        let mut step = HelperStep::default();
        if !self.is_usable() {
            return Some(step);
        }
        let mut guard = self.try_lock()?;
        if let State::Enabled(driver) = &mut *guard {
            step.arrived = driver.progress();
            step.deadline_ns = driver.parts().deadline_ns();
            driver.each_fd(f);
        }
        drop(guard);
        self.work();
        Some(step)
    }

    /// [`Endpoint::progress`] that does not count as a call.
    pub fn step(&self) -> bool {
        if !self.is_usable() {
            return false;
        }
        let Some(mut guard) = self.try_lock() else { return false };
        let arrived = match &mut *guard {
            State::Enabled(driver) => driver.progress(),
            State::Setup(_) | State::Closed => false,
        };
        drop(guard);
        self.work();
        arrived
    }

    /// True if somebody sleeps until something arrives, or may do so on an fd. The caller holds the endpoint's lock,
    /// before which that of the list comes: while another thread changes the list, somebody may.
    #[must_use]
    fn is_waited_for(&self) -> bool {
        let watches = self.watches.try_lock();
        watches.is_none_or(|all| all.iter().any(|watched| watched.watch().is_waited_for()))
    }

    /// True while a thread of the application sleeps until something arrives.
    #[must_use]
    pub(crate) fn has_sleepers(&self) -> bool {
        self.watches.lock().iter().any(|watched| watched.watch().has_sleepers())
    }

    /// Marks the endpoint as failed by a bug: no call reads its state any more.
    pub fn fail(&self) {
        self.failed.store(true, Ordering::Release);
        polled::note_failure();
    }

    /// Time without a call after which the helper thread steps in.
    #[must_use]
    pub(crate) fn patience_ns(&self) -> u64 {
        let idle_ns = self.domain.settings.progress_idle_ns;
        if self.domain.auto_progress { idle_ns.min(AUTO_IDLE_NS) } else { idle_ns }
    }

    /// Keeps the promises, then ends all sessions in good order; both within bounds.
    fn say_goodbye(&self) {
        if !self.is_usable() {
            return;
        }
        let flush_ns = monotonic_ns() + self.domain.settings.peer_timeout_ns;
        self.step_until(flush_ns, |driver| driver.host.promised == 0);
        let answers_ns = monotonic_ns() + GOODBYE_MAX_NS;
        self.step_until(answers_ns, |driver| !driver.engine.owes_answers());
        self.if_enabled(Driver::leave);
        let end_ns = monotonic_ns() + GOODBYE_MAX_NS;
        self.step_until(end_ns, |driver| driver.engine.is_closed());
        self.if_enabled(|driver| driver.write_stats());
    }

    /// Keeps the promises, unless another thread holds the endpoint or peers do not answer.
    pub(crate) fn flush_until(&self, end: Instant) {
        while self.is_usable() && Instant::now() < end {
            let Some(state) = self.state.try_lock_until(end) else { return };
            let mut guard = Guard { state, endpoint: self };
            match &mut *guard {
                State::Enabled(driver) if driver.host.promised > 0 => {
                    driver.progress();
                }
                _ => return,
            }
            drop(guard);
            std::thread::sleep(CLOSING_PAUSE);
        }
    }

    fn step_until(&self, end_ns: u64, done: impl Fn(&Driver) -> bool) {
        let mut idle = false;
        while monotonic_ns() < end_ns {
            if std::mem::replace(&mut idle, true) {
                std::thread::sleep(CLOSING_PAUSE);
            }
            match &mut *self.lock() {
                State::Enabled(driver) if self.is_usable() && !done(driver) => {
                    driver.progress();
                }
                _ => return,
            }
        }
    }
}
