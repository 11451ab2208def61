//! One process with an endpoint: the library's driver over simulated ports, with its own domain, address vector,
//! completion queue and registered memory.

use super::accesses::Memory;
use super::book::{Book, Post};
use super::receives::Form;
use crate::lanes::Hall;
use crate::ledger::Life;
use crate::net::Datagram;
use crate::node::Setup;
use crate::port::{self, SimClock, Simulated, Wire};
use crate::rng::Rng;
use erd_core::av::AddressVector;
use erd_core::completion::CompletionQueue;
use erd_core::domain::{Domain, Spot, Terms};
use erd_core::endpoint::bindings::Bindings;
use erd_core::endpoint::driver::Driver;
use erd_core::endpoint::{Call, EpConfig, Made};
use erd_core::error::Error;
use erd_core::keys::KeyTerms;
use erd_core::peer_index::PeerIndex;
use erd_core::run::{Carriers, Driven};
use erd_core::settings::Settings;
use erd_core::watch::{WaitKind, Watch};
use erd_port::local::Lanes;
use erd_port::udp::{Interface, NetError};
use erd_rd::units::MILLISECOND;
use erd_rd::{Endpoint as Engine, Nanos};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

/// An application's own options, apart from its peers.
#[derive(Clone, Copy, Debug)]
pub struct Manners {
    /// Size of the transmit queue.
    pub tx_size: usize,
    /// Size of the receive queue.
    pub rx_size: usize,
    /// Least space below which a buffer of many messages is released, in bytes.
    pub least_bytes: u64,
    /// Operations may complete when they are copied.
    pub completes_early: bool,
    /// Completions that it reads after each step, at most.
    pub reads: u64,
    /// Chance that a post is followed by others at once.
    pub more: f64,
}

/// A living process.
pub struct Process {
    /// The endpoint, which is dropped before the memory that it reaches.
    pub driver: Driver<Simulated>,
    cq: Arc<CompletionQueue>,
    /// Memory that peers reach.
    pub memory: Memory,
    /// The nodes' indices in its address vector.
    pub names: Vec<PeerIndex>,
    /// Posts that the library had no room for, in order: messages and accesses, and receives.
    waiting: [VecDeque<Post>; 2],
    /// It has closed its endpoint, and goes when its peers have heard of that.
    pub leaves: bool,
}

/// A node, whose processes follow each other.
pub struct Node {
    /// Its address.
    pub name: SocketAddr,
    /// See [`Setup`].
    pub setup: Setup,
    /// See [`Manners`].
    pub manners: Manners,
    /// The process; `None` while it is dead.
    pub process: Option<Process>,
    /// Number of the process.
    pub life: Life,
    /// The datagrams between its ports and the network.
    pub wire: Rc<RefCell<Wire>>,
    clock: SimClock,
    /// It does not run until then.
    pub stalled_until: Nanos,
    /// Time of its next run.
    pub wake_at: Nanos,
    storm: u32,
    hall: Option<Hall>,
    rng: Rng,
}

/// Rounds in a row after which a timer may still be due before it counts as a livelock.
const STORM_ROUNDS: u32 = 100;
/// Time after which an application retries posts that the library had no room for.
const RETRY_NS: Nanos = 5 * MILLISECOND;

impl Node {
    /// A node whose first process runs.
    pub fn new(
        setup: Setup,
        manners: Manners,
        index: usize,
        seed: u64,
        (names, hall): (&[SocketAddr], Option<&Hall>),
    ) -> Node {
        let rng = Rng::new(seed, 600 + index as u64);
        let wire =
            Wire::new(index, names.to_vec(), setup.habits, Rng::new(seed, 500 + index as u64));
        let life = Life { node: index, incarnation: 0 };
        let mut node = Node {
            name: setup.config.name,
            setup,
            manners,
            process: None,
            life,
            wire: Rc::new(RefCell::new(wire)),
            clock: SimClock::default(),
            stalled_until: 0,
            wake_at: Nanos::MAX,
            storm: 0,
            hall: hall.cloned(),
            rng,
        };
        node.boot(life, names);
        node
    }

    /// The process's part of its host's memory.
    fn enter(&self, life: Life) -> Option<Box<dyn Lanes>> {
        let hall = self.hall.as_ref().filter(|_| self.setup.lanes.is_some())?;
        Some(Box::new(hall.enter(life.node, self.setup.limits.near)))
    }

    fn boot(&mut self, life: Life, names: &[SocketAddr]) {
        let domain = domain(&self.setup);
        let cq = {
            let watch = Watch::new(WaitKind::Never, 0, &domain.held);
            CompletionQueue::new(&domain, watch, None)
        };
        let av = AddressVector::new(&domain, names.len());
        let indices =
            names.iter().map(|name| av.insert_name(*name, None).expect("a name")).collect();
        let memory = Memory::new(&domain, life.node);
        let (name, info_path) = (self.name, self.setup.config.info_path);
        let mut config = self.setup.config.clone();
        config.epoch += u64::from(life.incarnation);
        config.sends_max = self.manners.tx_size as u32;
        let (scheme, keys) = (Box::new(self.setup.scheme), config.keys.clone());
        let engine = Engine::new(config, scheme, self.rng.bits()).expect("the settings are valid");
        let made = Made {
            engine,
            keys,
            carriers: port::carriers(name, info_path, &self.wire, &self.clock),
            scheme: "test",
            config: ep_config(&self.manners),
            bindings: Bindings::new(&av, &cq),
            regions: Arc::clone(&domain.regions),
            lanes: self.enter(life),
        };
        let driver = Driver::new(&domain, made).expect("an AV is bound");
        let waiting = Default::default();
        self.process = Some(Process { driver, cq, memory, names: indices, waiting, leaves: false });
        self.life = life;
        self.wire.borrow_mut().clear();
        (self.stalled_until, self.storm) = (0, 0);
    }

    /// The process dies without a goodbye.
    pub fn kill(&mut self) {
        self.process = None;
        self.wire.borrow_mut().clear();
        self.wake_at = Nanos::MAX;
    }

    /// The process closes its endpoint. Its application uses all its buffers again.
    pub fn leave(&mut self, now: Nanos, book: &mut Book) {
        self.begin(now);
        let Some(process) = &mut self.process else { return };
        process.driver.leave();
        (process.leaves, process.waiting) = (true, Default::default());
        book.reuse(self.life);
    }

    /// The key of the set-up takes the place of another.
    pub fn renew_key(&mut self, now: Nanos) {
        if let Some(next) = self.setup.next_key.take() {
            let engine = self.process.as_mut().map(|process| &mut process.driver.engine);
            next.renew(now, &mut self.setup, engine);
        }
    }

    /// Another process takes the name.
    pub fn restart(&mut self, names: &[SocketAddr]) {
        let life = self.life;
        self.boot(Life { incarnation: life.incarnation + 1, ..life }, names);
    }

    /// The kernel takes a datagram; false when the socket's buffer is full.
    pub fn enqueue(&mut self, datagram: Datagram) -> bool {
        let room = u64::from(self.setup.config.recv_buffer_bytes);
        self.wire.borrow_mut().enqueue(datagram, room)
    }

    /// The network reports an error of a datagram to `name`.
    pub fn hear(&mut self, name: SocketAddr, error: NetError) {
        let Some(process) = &mut self.process else { return };
        self.wire.borrow_mut().errors.push((name, error));
        let Carriers { net_errors, port, .. } = &mut process.driver.carriers;
        net_errors.drain(port);
    }

    fn begin(&mut self, now: Nanos) {
        self.clock.0.set(now);
        let mut wire = self.wire.borrow_mut();
        let Setup { habits, limits, .. } = &self.setup;
        (wire.habits, wire.bursts_left) = (*habits, habits.bursts);
        let limit = |name: &SocketAddr| (*name, limits.datagram_limit_bytes);
        wire.limit_bytes = wire.names.iter().map(limit).collect();
    }

    /// Posts something, after what waits.
    pub fn post(&mut self, now: Nanos, book: &mut Book, post: Post) {
        self.begin(now);
        let more = self.rng.chance(self.manners.more);
        let Some(process) = &mut self.process else { return };
        let queue = usize::from(matches!(post, Post::Receive(_)));
        if !process.waiting[queue].is_empty() || !process.try_post(book, post, more) {
            process.waiting[queue].push_back(post);
        }
    }

    /// Runs one step, as a read of the completion queue does, and reads the completions.
    pub fn drive(&mut self, now: Nanos, book: &mut Book) {
        self.begin(now);
        let life = self.life;
        let Some(process) = &mut self.process else { return };
        let arrived = process.driver.progress();
        if process.leaves {
            return;
        }
        let read = process.read(self.rng.range(0, self.manners.reads) as usize, life, book);
        process.post_waiting(book);
        let Process { driver, .. } = process;
        let idle = !arrived && read == 0 && self.wire.borrow().out.is_empty();
        let idle = idle && driver.carriers.sender.is_empty();
        let again = idle && driver.engine.poll_timeout().is_some_and(|at| at <= now);
        self.storm = if again { self.storm + 1 } else { 0 };
        assert!(self.storm < STORM_ROUNDS, "timers of {} never rest", self.name);
    }

    /// The time of the next step.
    pub fn next_run(&mut self, now: Nanos) -> Nanos {
        let soon = now + self.setup.habits.round_ns.max(1);
        let Some(process) = &mut self.process else { return Nanos::MAX };
        self.clock.0.set(now);
        let at = port::next_step(&mut process.driver, &self.wire.borrow(), soon);
        let at = if process.cq.has_news() && !process.leaves { soon } else { at };
        let at = if process.is_waiting() { at.min(soon + RETRY_NS) } else { at };
        at.max(self.stalled_until)
    }
}

impl Process {
    /// Reads at most `count` completions; returns their number.
    fn read(&mut self, count: usize, life: Life, book: &mut Book) -> usize {
        // A look in vain may give the processor up.
        match self.cq.has_news() {
            true => self.cq.poll(count, |entry| book.judge(life, entry)),
            false => 0,
        }
    }

    /// Something waits for room.
    fn is_waiting(&self) -> bool {
        self.waiting.iter().any(|queue| !queue.is_empty())
    }

    /// The application has something to post or to read, or the library something to deliver.
    pub fn is_open(&self) -> bool {
        if self.leaves {
            return true;
        }
        self.is_waiting() || self.driver.host.live_sends() > 0 || self.cq.has_news()
    }

    fn post_waiting(&mut self, book: &mut Book) {
        for queue in 0..self.waiting.len() {
            while let Some(post) = self.waiting[queue].front().copied()
                && self.try_post(book, post, false)
            {
                self.waiting[queue].pop_front();
            }
        }
    }

    /// False if there is no room.
    fn try_post(&mut self, book: &mut Book, post: Post, more: bool) -> bool {
        let more = if more { erd_core::flags::Flags::MORE } else { Default::default() };
        let taken = match post {
            Post::Message(id) => {
                let buffers = book.payload(id);
                let message = &book.messages[id];
                let flags = message.flags | more;
                let call = Call::new(self.names[message.to], post.context(), flags);
                let call = Call { data: message.data, silent: message.silent, ..call };
                self.driver.post_send(&buffers, message.tag, &call)
            }
            Post::Access(id) => {
                let to = self.names[book.accesses.all[id].to];
                let mut request = book.accesses.post(id, to);
                request.call.flags |= more;
                self.driver.post_rma(&request)
            }
            Post::Receive(id) => {
                let mut request = book.receives.request(id, &self.names);
                request.flags |= more;
                self.driver.post_recv(&request)
            }
        };
        match (taken, post) {
            (Ok(()), Post::Message(id)) => book.posted(id),
            (Ok(()), Post::Access(id)) => book.accesses.posted(id),
            (Ok(()), Post::Receive(_)) => {}
            (Err(Error::Again), _) => return false,
            (Err(error), _) => panic!("{post:?} is refused: {error:?}"),
        }
        true
    }

    /// Cancels a receive, if it has met nothing.
    pub fn cancel(&mut self, book: &mut Book, id: usize) {
        let receive = &mut book.receives.all[id];
        if receive.over || !matches!(receive.form, Form::One | Form::Many) {
            return;
        }
        if let Some(at) = self.waiting[1].iter().position(|post| *post == Post::Receive(id)) {
            // The library has never heard of it.
            self.waiting[1].remove(at);
            receive.over = true;
            return;
        }
        match self.driver.cancel(Post::Receive(id).context()) {
            Ok(()) => receive.canceled = true,
            Err(Error::NotFound) => {}
            Err(error) => panic!("canceling receive {id}: {error:?}"),
        }
    }
}

fn ep_config(manners: &Manners) -> EpConfig {
    EpConfig {
        queue_pair: None,
        directed: true,
        source: true,
        completes_early: manners.completes_early,
        min_multi_recv_bytes: manners.least_bytes as usize,
        ..EpConfig::for_queue_pair(0, manners.tx_size, manners.rx_size)
    }
}

/// A domain at a node's address. Nothing of it opens a socket.
fn domain(setup: &Setup) -> Arc<Domain> {
    let local = setup.config.name.ip();
    let settings = Settings::read(|_| Ok(None)).expect("settings");
    let entry = Interface {
        name: "lo".to_owned(),
        addr: local,
        prefix: 8,
        mtu_bytes: 65_536,
        up: true,
        loopback: true,
        speed_mbps: None,
    };
    let terms = Terms { auto_progress: false, stays: false, keys: KeyTerms::default(), dscp: 0 };
    let spot = Spot { entry, local, port: None };
    Domain::new(settings, spot, &terms).expect("a domain without devices")
}
