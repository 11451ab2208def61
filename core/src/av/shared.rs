//! Addresses that processes of one user share under a name (`fi_av(3)`).
//!
//! No index is ever used for another address: a process learns of no removals, so it would mistake one address for
//! another.

use super::table::{ENTRIES_MAX, Full, NotThere};
use crate::error::Error;
use crate::sockaddr::Family;
use erd_sys::shared_words::SharedWords;
use std::collections::HashMap;
use std::ffi::c_void;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::Ordering;

/// Least room; pages that nobody touches cost nothing.
const ROOM_MIN: usize = 1 << 14;
/// Number of addresses, in use or not.
const COUNT: usize = 0;
/// Start of the list of `fi_addr`, one for each address.
const FI_ADDRS: usize = 1;
/// Words of an address: its uses and port, its IP address, and the scope of that.
const ENTRY_WORDS: usize = 4;
/// Lowest bit of the port, above the uses.
const PORT_SHIFT: u32 = 32;
/// Marks an IPv6 address.
const V6: u64 = 1 << 63;

/// See the module's text.
pub struct Shared {
    words: SharedWords,
    room: usize,
    read_only: bool,
    seen: parking_lot::Mutex<Seen>,
}

/// The addresses that this process has looked at, in use or not.
#[derive(Default)]
struct Seen {
    count: usize,
    by_addr: HashMap<SocketAddr, u32>,
    by_host: HashMap<IpAddr, Vec<u32>>,
}

impl Shared {
    /// The addresses called `name`, with room for `count` if they are new.
    ///
    /// # Errors
    /// Error of opening them.
    pub fn open(
        name: &str,
        count: usize,
        family: Family,
        read_only: bool,
    ) -> Result<Shared, Error> {
        let room = count.clamp(ROOM_MIN, ENTRIES_MAX);
        // SAFETY: the call takes nothing and cannot fail.
        let user = unsafe { libc::getuid() };
        let file = format!("erd-av-{user}-{}-{name}", family.addr_bytes());
        let words = FI_ADDRS + room * (1 + ENTRY_WORDS);
        let words = SharedWords::open(&file, words, !read_only).map_err(|error| {
            tracing::info!(name, %error, "fi_av_open: cannot open the addresses of this name");
            match error.kind() {
                ErrorKind::NotFound => Error::NotFound,
                ErrorKind::InvalidInput => Error::Invalid,
                _ => Error::of_system(&error, Error::System(libc::EIO)),
            }
        })?;
        let room = words.count().saturating_sub(FI_ADDRS) / (1 + ENTRY_WORDS);
        Ok(Shared { words, room, read_only, seen: parking_lot::Mutex::default() })
    }

    /// True if nothing can be inserted or removed.
    pub(crate) fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// The `fi_addr` of each address in turn.
    pub fn map_addr(&self) -> *mut c_void {
        self.words.word(FI_ADDRS).as_ptr().cast()
    }

    fn load(&self, at: usize) -> u64 {
        self.words.word(at).load(Ordering::Acquire)
    }

    fn store(&self, at: usize, value: u64) {
        self.words.word(at).store(value, Ordering::Release);
    }

    /// The word at which an address begins.
    fn entry(&self, index: usize) -> usize {
        FI_ADDRS + self.room + index * ENTRY_WORDS
    }

    /// Number of addresses, limited to the room: another process may have broken the count.
    fn count(&self) -> usize {
        usize::try_from(self.load(COUNT)).unwrap_or(0).min(self.room)
    }

    /// Uses and address at an index below the count.
    fn at(&self, index: usize) -> (u32, SocketAddr) {
        let at = self.entry(index);
        let [head, high, low, scope] = [0, 1, 2, 3].map(|nth| self.load(at + nth));
        let ip = u128::from(high) << 64 | u128::from(low);
        let ip = match head & V6 {
            0 => IpAddr::V4((low as u32).into()),
            _ => IpAddr::V6(ip.into()),
        };
        let mut addr = SocketAddr::new(ip, (head >> PORT_SHIFT) as u16);
        if let SocketAddr::V6(addr) = &mut addr {
            addr.set_scope_id(scope as u32);
        }
        (head as u32, addr)
    }

    /// Index of an address, in use or not.
    fn find(&self, addr: &SocketAddr) -> Option<u32> {
        self.look().by_addr.get(addr).copied()
    }

    /// Looks at the addresses that have come since the last time.
    fn look(&self) -> parking_lot::MutexGuard<'_, Seen> {
        let mut seen = self.seen.lock();
        for index in seen.count..self.count() {
            let addr = self.at(index).1;
            seen.by_addr.insert(addr, index as u32);
            seen.by_host.entry(addr.ip()).or_default().push(index as u32);
            seen.count = index + 1;
        }
        seen
    }

    /// Whether some address is of this host.
    pub(crate) fn has_host(&self, host: IpAddr) -> bool {
        let seen = self.look();
        let mut indices = seen.by_host.get(&host).into_iter().flatten();
        indices.any(|index| self.get((*index).into()).is_some())
    }

    /// Inserts an address and returns its index; one that was ever there keeps its index and counts once more.
    ///
    /// # Errors
    /// [`Full`].
    pub fn insert(&self, addr: SocketAddr) -> Result<u32, Full> {
        // Without the lock nothing can be inserted in order: as good as full.
        let _locked = self.words.lock().map_err(|_| Full)?;
        if let Some(index) = self.find(&addr) {
            self.words.word(self.entry(index as usize)).fetch_add(1, Ordering::AcqRel);
            return Ok(index);
        }
        let index = self.count();
        if index >= self.room {
            return Err(Full);
        }
        let at = self.entry(index);
        let (mark, ip, scope) = match addr {
            SocketAddr::V4(addr) => (0, u32::from(*addr.ip()).into(), 0),
            SocketAddr::V6(addr) => (V6, u128::from(*addr.ip()), addr.scope_id().into()),
        };
        for (nth, word) in [(1, (ip >> 64) as u64), (2, ip as u64), (3, scope)] {
            self.store(at + nth, word);
        }
        self.store(at, mark | u64::from(addr.port()) << PORT_SHIFT | 1);
        self.store(FI_ADDRS + index, index as u64);
        self.store(COUNT, index as u64 + 1);
        Ok(index as u32)
    }

    /// Takes one insertion back. Returns the address if that was its last.
    ///
    /// # Errors
    /// [`NotThere`], also where nothing can be removed.
    pub fn remove(&self, index: u64) -> Result<Option<SocketAddr>, NotThere> {
        let _locked = self.words.lock().map_err(|_| NotThere)?;
        let index = usize::try_from(index).map_err(|_| NotThere)?;
        if self.read_only || index >= self.count() {
            return Err(NotThere);
        }
        let (uses, addr) = self.at(index);
        if uses == 0 {
            return Err(NotThere);
        }
        self.words.word(self.entry(index)).fetch_sub(1, Ordering::AcqRel);
        Ok((uses == 1).then_some(addr))
    }

    /// The address at an index.
    pub fn get(&self, index: u64) -> Option<SocketAddr> {
        let index = usize::try_from(index).ok().filter(|index| *index < self.count())?;
        let (uses, addr) = self.at(index);
        (uses > 0).then_some(addr)
    }

    /// Name of an address in completions.
    pub fn name(&self, addr: &SocketAddr) -> Option<u64> {
        let index = self.find(addr)?;
        self.get(index.into()).map(|_| index.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(name: &str, read_only: bool) -> Result<Shared, Error> {
        let name = format!("{name}-{}", std::process::id());
        Shared::open(&name, 0, Family::V4, read_only)
    }

    #[test]
    fn who_opens_a_name_sees_what_others_insert() {
        assert_eq!(open("test-av", true).err(), Some(Error::NotFound));
        let (writer, reader) = (open("test-av", false).unwrap(), open("test-av", true).unwrap());
        let addrs: [SocketAddr; 2] =
            ["127.0.0.1:9".parse().unwrap(), "[fe80::1%3]:70".parse().unwrap()];
        for (index, addr) in (0..).zip(addrs) {
            assert_eq!(writer.insert(addr), Ok(index));
            assert_eq!(reader.get(index.into()), Some(addr));
            assert_eq!(reader.name(&addr), Some(index.into()));
            assert!(reader.has_host(addr.ip()));
        }
        assert_eq!((reader.get(2), writer.insert(addrs[0])), (None, Ok(0)));
        assert_eq!(reader.remove(0), Err(NotThere), "it is for reading only");
        assert_eq!(writer.remove(0), Ok(None), "it was inserted twice");
        assert_eq!(writer.remove(0), Ok(Some(addrs[0])));
        assert_eq!((reader.get(0), reader.name(&addrs[0])), (None, None));
        assert!(!reader.has_host(addrs[0].ip()) && reader.has_host(addrs[1].ip()));
        assert_eq!(writer.insert("127.0.0.1:10".parse().unwrap()), Ok(2), "0 stays free");
        assert_eq!(writer.insert(addrs[0]), Ok(0), "unless it is the same again");
    }
}
