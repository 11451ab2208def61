//! The own addresses of an AV: index to address and back.

use erd_rd::PeerAddress;
use hashbrown::HashTable;
use std::collections::{BTreeSet, HashMap, hash_map};
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;

/// Most addresses in one AV.
pub const ENTRIES_MAX: usize = 1 << 20;

struct Entry {
    addr: PeerAddress,
    /// Insertions not yet taken back.
    uses: u32,
    /// Its name in completions, if not its index.
    user_id: Option<u64>,
}

/// Addresses by index. A new address takes the lowest free index, so that addresses inserted into
/// an empty table have the indices 0, 1, 2.
#[derive(Default)]
pub struct Table {
    entries: Vec<Option<Entry>>,
    /// Indices by their address.
    by_addr: HashTable<u32>,
    hasher: RandomState,
    /// Number of addresses of each host.
    by_host: HashMap<IpAddr, u32>,
    /// Indices without an address that may get another.
    free: BTreeSet<u32>,
}

/// The table holds [`ENTRIES_MAX`] addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Full;

/// No address is at this index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NotThere;

impl Table {
    /// A table with room for `count` addresses before it grows.
    #[must_use]
    pub(crate) fn with_room(count: usize) -> Table {
        let count = count.min(ENTRIES_MAX);
        Table {
            entries: Vec::with_capacity(count),
            by_addr: HashTable::with_capacity(count),
            ..Table::default()
        }
    }

    /// Inserts an address and returns its index; one that is there already keeps its index and counts once more.
    ///
    /// # Errors
    /// [`Full`].
    pub fn insert(&mut self, addr: PeerAddress) -> Result<u32, Full> {
        if let Some(index) = self.find(&addr)
            && let Some(entry) = &mut self.entries[index as usize]
        {
            entry.uses += 1;
            return Ok(index);
        }
        let entry = Some(Entry { addr, uses: 1, user_id: None });
        let index = match self.free.pop_first() {
            Some(index) => {
                self.entries[index as usize] = entry;
                index
            }
            None if self.entries.len() < ENTRIES_MAX => {
                self.entries.push(entry);
                (self.entries.len() - 1) as u32
            }
            None => return Err(Full),
        };
        let entries = &self.entries;
        let hash_of = |index: &u32| hash_at(entries, &self.hasher, *index);
        self.by_addr.insert_unique(self.hasher.hash_one(addr), index, hash_of);
        *self.by_host.entry(addr.name.ip()).or_default() += 1;
        Ok(index)
    }

    /// Takes one insertion back. Returns the address if that was its last; no other address gets its index before
    /// [`Table::free`].
    ///
    /// # Errors
    /// [`NotThere`].
    pub fn remove(&mut self, index: u64) -> Result<Option<PeerAddress>, NotThere> {
        let place = usize::try_from(index).ok().and_then(|index| self.entries.get_mut(index));
        let Some(place) = place else { return Err(NotThere) };
        let Some(entry) = place else { return Err(NotThere) };
        entry.uses -= 1;
        if entry.uses > 0 {
            return Ok(None);
        }
        let addr = entry.addr;
        *place = None;
        let is_it = |at: &u32| u64::from(*at) == index;
        if let Ok(found) = self.by_addr.find_entry(self.hasher.hash_one(addr), is_it) {
            found.remove();
        }
        if let hash_map::Entry::Occupied(mut host) = self.by_host.entry(addr.name.ip()) {
            *host.get_mut() -= 1;
            if *host.get() == 0 {
                host.remove();
            }
        }
        Ok(Some(addr))
    }

    /// Frees the index of a removed address, once nobody uses it.
    pub fn free(&mut self, index: u64) {
        let vacant = |index: &u32| matches!(self.entries.get(*index as usize), Some(None));
        self.free.extend(u32::try_from(index).ok().filter(vacant));
    }

    /// The address at an index.
    #[must_use]
    pub fn get(&self, index: u64) -> Option<PeerAddress> {
        let index = usize::try_from(index).ok()?;
        self.entries.get(index)?.as_ref().map(|entry| entry.addr)
    }

    /// Name of an address in completions: the user's, or else its index, unless all names are `users_own`.
    #[must_use]
    pub fn name(&self, addr: &PeerAddress, users_own: bool) -> Option<u64> {
        let index = self.find(addr)?;
        let entry = self.entries.get(index as usize)?.as_ref()?;
        entry.user_id.or((!users_own).then_some(index.into()))
    }

    /// Sets the name in completions of the address at an index.
    ///
    /// # Errors
    /// [`NotThere`].
    pub fn set_user_id(&mut self, index: u64, user_id: u64) -> Result<(), NotThere> {
        let index = usize::try_from(index).map_err(|_| NotThere)?;
        let entry = self.entries.get_mut(index).and_then(Option::as_mut).ok_or(NotThere)?;
        entry.user_id = Some(user_id);
        Ok(())
    }

    /// Whether some address is of this host.
    #[must_use]
    pub(crate) fn has_host(&self, host: IpAddr) -> bool {
        self.by_host.contains_key(&host)
    }

    /// The index of an address.
    #[must_use]
    pub fn find(&self, addr: &PeerAddress) -> Option<u32> {
        let is_at = |index: &u32| addr_at(&self.entries, *index).as_ref() == Some(addr);
        self.by_addr.find(self.hasher.hash_one(addr), is_at).copied()
    }
}

fn addr_at(entries: &[Option<Entry>], index: u32) -> Option<PeerAddress> {
    entries.get(index as usize)?.as_ref().map(|entry| entry.addr)
}

/// The hash of the address at an index.
fn hash_at(entries: &[Option<Entry>], hasher: &RandomState, index: u32) -> u64 {
    addr_at(entries, index).map_or(0, |addr| hasher.hash_one(addr))
}

#[cfg(test)]
mod tests {
    use super::*;
    use erd_rd::KeyIndex;
    use std::net::SocketAddr;

    #[test]
    fn an_address_that_its_user_is_to_name_has_no_other_name() {
        let mut table = Table::with_room(1);
        assert_eq!(table.insert(addr(7)), Ok(0));
        assert_eq!((table.name(&addr(7), false), table.name(&addr(7), true)), (Some(0), None));
        assert_eq!(table.set_user_id(0, 77), Ok(()));
        assert_eq!((table.name(&addr(7), false), table.name(&addr(7), true)), (Some(77), Some(77)));
    }

    fn addr(port: u16) -> PeerAddress {
        SocketAddr::from(([127, 0, 0, 1], port)).into()
    }

    #[test]
    fn indices_follow_the_order_of_insertion_and_freed_ones_are_taken_lowest_first() {
        let mut table = Table::with_room(2);
        for port in 1..=5 {
            assert_eq!(table.insert(addr(port)), Ok(u32::from(port) - 1));
        }
        for index in [3, 1] {
            assert_eq!(table.remove(index), Ok(Some(addr(index as u16 + 1))));
            table.free(index);
            table.free(0);
        }
        assert_eq!(table.insert(addr(10)), Ok(1));
        assert_eq!(table.insert(addr(11)), Ok(3));
        assert_eq!(table.insert(addr(12)), Ok(5));
        assert_eq!((table.get(1), table.find(&addr(11))), (Some(addr(10)), Some(3)));
    }

    #[test]
    fn an_address_has_an_index_for_each_key() {
        let mut table = Table::default();
        let other = PeerAddress { key: KeyIndex(1), ..addr(7) };
        assert_eq!((table.insert(addr(7)), table.insert(other)), (Ok(0), Ok(1)));
        assert_eq!((table.get(1), table.find(&other)), (Some(other), Some(1)));
        assert_eq!(table.remove(0), Ok(Some(addr(7))));
        assert_eq!((table.find(&addr(7)), table.get(1)), (None, Some(other)));
    }

    #[test]
    fn an_address_inserted_twice_stays_until_it_is_removed_twice() {
        let mut table = Table::default();
        assert_eq!(table.insert(addr(7)), Ok(0));
        assert_eq!(table.insert(addr(7)), Ok(0));
        assert_eq!(table.remove(0), Ok(None));
        assert_eq!(table.get(0), Some(addr(7)));
        assert_eq!(table.remove(0), Ok(Some(addr(7))));
        assert_eq!((table.get(0), table.find(&addr(7))), (None, None));
        assert_eq!(table.remove(0), Err(NotThere));
    }

    #[test]
    fn a_host_is_known_while_one_of_its_addresses_is() {
        let mut table = Table::default();
        let other = PeerAddress::from(SocketAddr::from(([127, 0, 0, 2], 7)));
        for addr in [addr(7), addr(8), addr(8)] {
            table.insert(addr).expect("room");
        }
        let knows = |table: &Table| [addr(7), other].map(|addr| table.has_host(addr.name.ip()));
        assert_eq!(table.remove(0), Ok(Some(addr(7))));
        assert_eq!(table.remove(1), Ok(None));
        assert_eq!(knows(&table), [true, false]);
        assert_eq!(table.remove(1), Ok(Some(addr(8))));
        assert_eq!(knows(&table), [false, false]);
    }

    #[test]
    fn indices_that_were_never_given_name_nothing() {
        let mut table = Table::default();
        for index in [0, 1, u64::from(u32::MAX), u64::MAX] {
            assert_eq!((table.get(index), table.remove(index)), (None, Err(NotThere)));
        }
    }
}
