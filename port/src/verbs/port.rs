//! A domain's verbs port.

use super::device::Device;
use super::maker::Maker;
use super::negotiation::address::Address;
use super::objects::{Ah, Channel, Cq, Entry, Mr, Pd, Qp, QpSpec, set_nonblocking};
use super::pins::{PINS_MAX, Pin};
use super::receive::{Receiver, Senders};
use super::send::{Sender, Sent};
use super::{Port, QPS_MAX, VerbsError};
use crate::{Burst, PinId};
use erd_ffi::ibv::*;
use erd_sys::clock::monotonic_ns;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Least receive slots; with fewer a port is not useful.
const SLOTS_MIN: u32 = 128;
/// Requested inline bytes: the headers of a packet and a small message.
const INLINE_BYTES: u32 = 188;
/// Time within which datagrams from memory being released are sent, or dropped.
pub const SETTLE_NS: u64 = 20_000_000;
/// Longest wait for the first address handle to a host, and only while no other is being looked up. The usual case takes a
/// system call; the rest is for hosts that do not answer at once, whose datagrams take UDP meanwhile.
const SOON: Duration = Duration::from_millis(1);
/// Time between two looks for events of the device.
const EVENTS_NS: u64 = 10_000_000;

/// Options of a port.
#[derive(Clone, Debug)]
pub struct Options {
    /// Queue pairs that send, each with a path of its own: 1 to 7.
    pub paths: u16,
    /// Receives to keep posted, each as large as the port's datagrams. Fewer are taken if the limit
    /// on locked memory asks for it, down to 128.
    pub recv_slots: u32,
    /// Key of the queue pairs, chosen at random; its top bit is not used.
    pub qkey: u32,
    /// The service that switches are asked for.
    pub service: Service,
}

/// How switches are to treat what a port sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Service {
    /// The class in IP headers (DSCP), 0 to 63.
    pub dscp: u8,
    /// The service level of InfiniBand, 0 to 15.
    pub level: u8,
    /// The partition (P_Key); `None` for the first in the port's table.
    pub pkey: Option<u16>,
}

/// Unreliable datagrams over one port of an RDMA device, for all endpoints of a domain.
pub struct VerbsPort {
    pub(super) receiver: Mutex<Receiver>,
    sender: Mutex<Sender>,
    /// The maker of the sender's address handles.
    maker: Arc<Maker<Ah>>,
    pub(super) channel: Arc<Channel>,
    pd: Arc<Pd>,
    port: Port,
    address: Address,
    up: AtomicBool,
    /// True while its GID is in the device's table.
    named: AtomicBool,
    /// True while its receiving queue pair works.
    hears: AtomicBool,
    looked_ns: AtomicU64,
    /// The peers that lately sent to its members.
    pub(super) senders: Senders,
}

impl fmt::Debug for VerbsPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VerbsPort").field("port", &self.port).finish_non_exhaustive()
    }
}

impl VerbsPort {
    /// Opens queue pairs on `port`.
    ///
    /// # Errors
    /// No permission, too little lockable memory, or another refusal of the device.
    pub fn open(port: &Port, options: &Options) -> Result<VerbsPort, VerbsError> {
        let device = Device::open(&port.device)?;
        let pd = Pd::new(device, &port.device)?;
        // SAFETY: an open context, whose fd is written once, when it is opened.
        set_nonblocking(unsafe { (*pd.context()).async_fd })?;
        let channel = Channel::new(&pd)?;
        let qkey = options.qkey & 0x7fff_ffff;
        let pkey_index = pd.device.pkey_index(port, options.service.pkey)?;
        let entry = Entry { port: port.number, pkey_index, qkey };
        let sender = Sender::new(&pd, port, options, entry)?;
        let receiver = open_receiver(&pd, port, options, &channel, entry)?;
        let mut senders = [0; QPS_MAX - 1];
        senders.iter_mut().zip(sender.numbers()).for_each(|(to, number)| *to = number);
        let address = Address {
            gid: port.gid.gid,
            lid: port.lid,
            qpn: receiver.number(),
            qkey,
            tag: 0,
            mtu_bytes: port.mtu_bytes,
            senders,
        };
        tracing::info!(
            device = port.name(),
            gid = %port.gid.gid,
            gid_index = port.gid.index,
            kind = ?port.gid.kind,
            mtu_bytes = port.mtu_bytes,
            speed_mbps = port.speed_mbps,
            queue_pairs = sender.numbers().count() + 1,
            recv_slots = receiver.slots(),
            inline_bytes = sender.inline_bytes(),
            paths_by = if port.flow_label_paths { "flow label and queue pair" } else { "queue pair" },
            "verbs port"
        );
        Ok(VerbsPort {
            maker: Arc::clone(sender.maker()),
            receiver: Mutex::new(receiver),
            sender: Mutex::new(sender),
            channel,
            pd,
            port: port.clone(),
            address,
            up: AtomicBool::new(true),
            named: AtomicBool::new(true),
            hears: AtomicBool::new(true),
            looked_ns: AtomicU64::new(0),
            senders: Senders::default(),
        })
    }

    /// The port of the device.
    #[must_use]
    pub fn port(&self) -> &Port {
        &self.port
    }

    /// Address of the port; each endpoint adds its tag.
    #[must_use]
    pub fn address(&self) -> Address {
        self.address
    }

    /// Number of receives kept posted.
    #[must_use]
    pub fn recv_slots(&self) -> u32 {
        self.receiver.lock().unwrap_or_else(PoisonError::into_inner).slots()
    }

    /// Sends the rest of a burst to a peer, as far as the path's queue takes it. Never blocks, except for the first
    /// datagram to a host: it waits up to 1 ms for the way there to be known, without the lock that other endpoints need.
    ///
    /// # Safety
    /// Each part of the burst is readable for its length during the call.
    pub unsafe fn send(&self, to: &Address, burst: &Burst<'_>) -> Sent {
        // SAFETY: the caller's promise.
        let (sent, soon) = unsafe { self.sender().send(to, burst) };
        if !soon || !self.maker.wait(SOON) {
            return sent;
        }
        // SAFETY: as above.
        unsafe { self.sender().send(to, burst) }.0
    }

    /// Registers `len_bytes` of the application's memory from `start`, so that the port sends bursts that name it
    /// ([`Burst::memory`]) without a copy. The kernel keeps its pages for that.
    ///
    /// # Errors
    /// Some of it is missing, there is too little lockable memory or too many registrations, or a forked child would
    /// lose it.
    pub fn pin(
        self: &Arc<VerbsPort>,
        start: *const u8,
        len_bytes: usize,
    ) -> Result<Pin, VerbsError> {
        if self.is_foreign() {
            return Err(VerbsError::Foreign);
        }
        if !self.pd.device.library.forks_keep_pages {
            return Err(VerbsError::Forks);
        }
        // For reading alone.
        let mr = Mr::new(&self.pd, start.cast_mut(), len_bytes, 0)?;
        let memory = start.expose_provenance()..start.addr() + len_bytes;
        // Drop a registration handed back only once the lock is free.
        let added = self.sender().pin(mr, memory);
        let id = added.map_err(|_| VerbsError::Pins { max: PINS_MAX })?;
        Ok(Pin::new(self, id))
    }

    pub(super) fn unpin(&self, id: PinId) {
        // In a child the lock may be held for ever, and the registration is the parent's.
        if !self.is_foreign() {
            self.sender().end_pin(id);
            self.settle(id, monotonic_ns() + SETTLE_NS);
            // The lock is free before the kernel is called.
            let mr = self.sender().unpin(id);
            drop(mr);
        }
    }

    /// Waits until the datagrams that name this memory now are sent. After `until_ns` ([`SETTLE_NS`] from now) it drops
    /// them, with the other datagrams of their queue pairs, like losses of the network.
    pub fn settle(&self, id: PinId, until_ns: u64) {
        if self.is_foreign() {
            return;
        }
        let Some(marks) = self.sender().named(id) else { return };
        loop {
            let mut sender = self.sender();
            if sender.is_settled(&marks) {
                return;
            }
            if monotonic_ns() > until_ns {
                return sender.discard(&marks);
            }
            drop(sender);
            std::thread::yield_now();
        }
    }

    fn sender(&self) -> MutexGuard<'_, Sender> {
        self.sender.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if the port is usable now: it is up, and the device works. Reads the device's events once in a while.
    pub fn is_usable(&self) -> bool {
        let now = monotonic_ns();
        let looked = self.looked_ns.load(Ordering::Relaxed);
        if now >= looked + EVENTS_NS
            && self
                .looked_ns
                .compare_exchange(looked, now, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
        {
            self.take_events();
        }
        [&self.up, &self.named, &self.hears].into_iter().all(|good| good.load(Ordering::Relaxed))
    }

    /// True in a forked child of the process that opened it.
    pub(super) fn is_foreign(&self) -> bool {
        self.pd.is_foreign()
    }

    fn take_events(&self) {
        let library = self.pd.device.library;
        let mut event = ibv_async_event { element: std::ptr::null_mut(), event_type: u32::MAX };
        // SAFETY: an open context whose fd does not block; every event is acknowledged.
        while unsafe { (library.ibv_get_async_event)(self.pd.context(), &raw mut event) } == 0 {
            let (kind, element) = (event.event_type, event.element);
            // SAFETY: the event just taken.
            unsafe { (library.ibv_ack_async_event)(&raw mut event) };
            // For events of ports the element is the number, in the first bytes of a union.
            let number = element.addr() as u32;
            let ours = number == u32::from(self.port.number);
            match kind {
                IBV_EVENT_PORT_ERR if ours => self.turn(false, "the port went down"),
                IBV_EVENT_PORT_ACTIVE if ours => self.turn(true, "the port is up"),
                IBV_EVENT_DEVICE_FATAL => self.turn(false, "the device failed"),
                IBV_EVENT_GID_CHANGE if ours => self.look_for_gid(),
                _ => tracing::debug!(kind, "an event of the device"),
            }
        }
        let mut receiver = self.receiver.lock().unwrap_or_else(PoisonError::into_inner);
        receiver.revive();
        self.hears.store(receiver.works(), Ordering::Relaxed);
    }

    /// Checks for our GID after a change of the table: it may have gone or returned.
    fn look_for_gid(&self) {
        let there = self.pd.device.has_gid(self.port.number, &self.port.gid);
        if self.named.swap(there, Ordering::Relaxed) != there {
            let (device, gid) = (self.port.name(), self.port.gid.gid);
            tracing::warn!(device, %gid, there, "the port's GID has gone, or is there again");
        }
        self.sender().age_handles();
    }

    /// Name of the port, as [`Port::name`].
    #[must_use]
    pub fn name(&self) -> String {
        self.port.name()
    }

    fn turn(&self, up: bool, why: &str) {
        if self.up.swap(up, Ordering::Relaxed) != up {
            tracing::warn!(device = self.port.name(), "{why}");
        }
    }
}

/// Faults of a port, for tests.
#[cfg(test)]
impl VerbsPort {
    pub(super) fn break_sender(&self, at: usize) {
        self.sender.lock().expect("the sender").break_queue(at);
    }

    pub(super) fn break_receiver(&self) {
        self.receiver.lock().expect("the receiver").break_queue();
    }

    pub(super) fn discard(&self, id: PinId) {
        let mut sender = self.sender();
        let marks = sender.named(id).expect("it is registered");
        sender.discard(&marks);
    }

    pub(super) fn age_handles(&self) {
        self.sender.lock().expect("the sender").age_handles();
    }
}

/// Opens a receiver with as many slots as the limit on locked memory allows.
fn open_receiver(
    pd: &Arc<Pd>,
    port: &Port,
    options: &Options,
    channel: &Arc<Channel>,
    entry: Entry,
) -> Result<Receiver, VerbsError> {
    let most = port.wr_max.min(port.cqe_max).max(SLOTS_MIN);
    let mut slots = options.recv_slots.clamp(SLOTS_MIN, most);
    loop {
        match Receiver::new(pd, port, slots, channel, entry) {
            Ok(receiver) => return Ok(receiver),
            Err(error) if slots <= SLOTS_MIN => return Err(error),
            Err(error) => {
                slots = (slots / 2).max(SLOTS_MIN);
                tracing::warn!(%error, slots, "fewer receives are kept posted");
            }
        }
    }
}

/// A queue pair with these depths to send and to receive.
pub(super) fn open_qp(
    pd: &Arc<Pd>,
    send_cq: &Arc<Cq>,
    recv_cq: &Arc<Cq>,
    (send_wr, recv_wr): (u32, u32),
    entry: Entry,
) -> Result<Qp, VerbsError> {
    let with = |inline_bytes| {
        Qp::new(pd, &QpSpec { send_cq, recv_cq, send_wr, recv_wr, inline_bytes, entry })
    };
    // Some devices refuse in place of granting less.
    with(INLINE_BYTES).or_else(|_| with(0))
}
