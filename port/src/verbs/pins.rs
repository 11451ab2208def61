//! Pins: registered memory of the application that a port sends from without a copy.

use super::QPS_MAX;
use super::objects::Mr;
use super::port::VerbsPort;
use super::send::Marks;
use crate::PinId;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Most registrations of a port; it copies from other memory.
pub const PINS_MAX: usize = 1 << 16;

/// The application's memory, registered with a port until this is dropped, which waits for the
/// datagrams that name it.
#[derive(Debug)]
pub struct Pin {
    port: Arc<VerbsPort>,
    id: PinId,
}

impl Pin {
    pub(super) fn new(port: &Arc<VerbsPort>, id: PinId) -> Pin {
        Pin { port: Arc::clone(port), id }
    }

    /// Id that bursts carry.
    #[must_use]
    pub fn id(&self) -> PinId {
        self.id
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.port.unpin(self.id);
    }
}

/// One registration.
#[derive(Debug)]
struct Pinned {
    mr: Mr,
    memory: Range<usize>,
    /// Requests of each queue that may name it.
    named: Marks,
    /// It is ending: nothing is sent from it any more.
    ends: bool,
}

/// Registrations of a port.
#[derive(Debug, Default)]
pub(super) struct Pins {
    pins: HashMap<PinId, Pinned>,
}

/// The number of the next registration.
static NEXT: AtomicU64 = AtomicU64::new(1);

impl Pins {
    /// # Errors
    /// Adds a registration, or hands it back if there are [`PINS_MAX`] already.
    pub(super) fn add(&mut self, mr: Mr, memory: Range<usize>) -> Result<PinId, Mr> {
        if self.pins.len() >= PINS_MAX {
            return Err(mr);
        }
        let id = PinId::from_number(NEXT.fetch_add(1, Ordering::Relaxed));
        let id = id.expect("nobody registers 2^64 times");
        self.pins.insert(id, Pinned { mr, memory, named: [(0, 0); QPS_MAX - 1], ends: false });
        Ok(id)
    }

    /// Its memory, and the device's key.
    pub(super) fn find(&self, id: PinId) -> Option<(Range<usize>, u32)> {
        let pin = self.pins.get(&id).filter(|pin| !pin.ends)?;
        Some((pin.memory.clone(), pin.mr.key()))
    }

    /// Notes that requests of a queue name it, up to this one.
    pub(super) fn mark(&mut self, id: PinId, queue: usize, mark: (u8, u64)) {
        if let Some(pin) = self.pins.get_mut(&id) {
            pin.named[queue] = mark;
        }
    }

    /// The marks up to which requests name it now.
    pub(super) fn named(&self, id: PinId) -> Option<Marks> {
        self.pins.get(&id).map(|pin| pin.named)
    }

    /// Ends sends from it.
    pub(super) fn end(&mut self, id: PinId) {
        if let Some(pin) = self.pins.get_mut(&id) {
            pin.ends = true;
        }
    }

    /// Takes it out, with the marks up to which requests named it.
    pub(super) fn remove(&mut self, id: PinId) -> Option<(Mr, Marks)> {
        self.pins.remove(&id).map(|pin| (pin.mr, pin.named))
    }
}
