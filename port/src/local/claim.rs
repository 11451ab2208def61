//! The descriptors that shared memory takes, over all endpoints of a process: those are for the application first.

use rustix::io::Errno;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How many are taken.
static TAKEN: AtomicUsize = AtomicUsize::new(0);

/// A number of descriptors that are taken, or about to be, until it is dropped.
#[derive(Debug)]
pub struct Claim(usize);

impl Claim {
    /// Takes `many`, of `most` in all.
    ///
    /// # Errors
    /// There are not so many left.
    pub fn take(many: usize, most: usize) -> io::Result<Claim> {
        let add = |taken: usize| taken.checked_add(many).filter(|sum| *sum <= most);
        match TAKEN.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add) {
            Ok(_) => Ok(Claim(many)),
            Err(_) => Err(Errno::MFILE.into()),
        }
    }

    /// True if `many` may be had now.
    #[must_use]
    pub fn has(many: usize, most: usize) -> bool {
        TAKEN.load(Ordering::Relaxed).saturating_add(many) <= most
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        TAKEN.fetch_sub(self.0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_back_can_be_had_again() {
        // Other tests of this program take some meanwhile, and far fewer.
        let most = 1 << 20;
        let one = Claim::take(most / 2, most).expect("half of them");
        assert!(Claim::take(most, most).is_err() && !Claim::has(most, most));
        drop(one);
        assert!(Claim::has(most / 2, most) && Claim::take(most / 2, most).is_ok());
    }
}
