//! Counts the steps of searches in tests, which bound them: entries and groups looked at, classes asked, entries put
//! into an index or taken out. In programs it counts nothing.

#[cfg(not(test))]
pub(super) const fn count() {}

#[cfg(test)]
pub(super) use counting::{count, counted};

#[cfg(test)]
mod counting {
    extern crate std;
    use core::cell::Cell;

    std::thread_local! {
        static STEPS: Cell<u64> = const { Cell::new(0) };
    }

    pub fn count() {
        STEPS.set(STEPS.get() + 1);
    }

    /// What `run` returns, and the steps that it took.
    pub fn counted<T>(run: impl FnOnce() -> T) -> (T, u64) {
        let before = STEPS.get();
        let result = run();
        (result, STEPS.get() - before)
    }
}
