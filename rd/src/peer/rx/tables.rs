//! Room in tables that grow with what peers send. A process may have no memory left: then the packet
//! is dropped, and comes again.

use crate::host::Host;
use crate::stats::DropReason;
use core::hash::Hash;
use hashbrown::HashMap;
use slab::Slab;

/// Room for one more entry in a map.
pub(super) fn in_map<H: Host, K: Eq + Hash, V>(
    host: &mut H,
    map: &mut HashMap<K, V>,
) -> Result<(), DropReason> {
    if map.len() < map.capacity() {
        return Ok(());
    }
    let bytes = grown_bytes::<(K, V)>(map.len());
    if !host.has_room(bytes) || map.try_reserve(1).is_err() {
        return Err(DropReason::NoBuffer);
    }
    Ok(())
}

/// Room for one more entry in a slab.
pub(crate) fn in_slab<H: Host, T>(host: &mut H, slab: &Slab<T>) -> Result<(), DropReason> {
    let fits = slab.len() < slab.capacity() || host.has_room(grown_bytes::<T>(slab.len()));
    if fits { Ok(()) } else { Err(DropReason::NoBuffer) }
}

/// What a full table of `len` entries takes once it has grown, about: as long as its entries move, the
/// smaller one is there too.
fn grown_bytes<T>(len: usize) -> usize {
    2 * (len + 4) * size_of::<T>()
}
