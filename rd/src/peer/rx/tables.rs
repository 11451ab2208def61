//! Memory checks for tables that grow with what peers send. If the process has no memory left, the packet is dropped,
//! and comes again.

use crate::host::Host;
use crate::stats::DropReason;
use core::hash::Hash;
use hashbrown::HashMap;
use slab::Slab;

/// Room for one more entry in a map.
pub(in crate::peer) fn in_map<H: Host, K: Eq + Hash, V>(
    host: &mut H,
    map: &mut HashMap<K, V>,
) -> Result<(), DropReason> {
    // A map that has had entries may be full early, depending on the process's hash keys. So do not ask its capacity,
    // or a seed would not replay its run in another process.
    let asks = if map.is_empty() { map.allocation_size() == 0 } else { grows_at(map.len()) };
    if asks && !host.has_room(grown_bytes::<(K, V)>(map.len())) || map.try_reserve(1).is_err() {
        return Err(DropReason::NoBuffer);
    }
    Ok(())
}

/// A map of `len` entries that never had more grows with the next one: it is full at 3, and then at seven
/// eighths of each power of two.
fn grows_at(len: usize) -> bool {
    len == 3 || len.is_multiple_of(7) && (len / 7).is_power_of_two()
}

/// Room for one more entry in a slab.
pub(crate) fn in_slab<H: Host, T>(host: &mut H, slab: &Slab<T>) -> Result<(), DropReason> {
    let fits = slab.len() < slab.capacity() || host.has_room(grown_bytes::<T>(slab.len()));
    if fits { Ok(()) } else { Err(DropReason::NoBuffer) }
}

/// Approximate bytes of a full table of `len` entries once it has grown: while its entries move, the smaller one exists
/// too.
fn grown_bytes<T>(len: usize) -> usize {
    2 * (len + 4) * size_of::<T>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_that_only_grows_does_so_where_it_is_said() {
        let mut map = HashMap::new();
        for len in 0..1000_u32 {
            let full = map.len() == map.capacity();
            assert_eq!(grows_at(map.len()), full && len > 0, "at {len}");
            map.insert(len, ());
        }
    }
}
