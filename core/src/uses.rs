//! Use counts: how many objects need an object open.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Number of users of an object.
#[derive(Debug, Default)]
pub struct Users(Arc<AtomicUsize>);

impl Users {
    /// Adds a user.
    #[must_use]
    pub fn add(&self) -> Use {
        self.0.fetch_add(1, Ordering::Relaxed);
        Use(Arc::clone(&self.0))
    }

    /// Returns the number of users.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.load(Ordering::Acquire)
    }
}

/// The need of one object for another; dropping it ends the need.
#[derive(Debug)]
pub struct Use(Arc<AtomicUsize>);

impl Drop for Use {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Release);
    }
}
