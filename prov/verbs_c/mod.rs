//! The C interface, `include/erd.h`: the objects of [`crate::verbs`] by handles.
//!
//! `handles` keeps the objects, `boundary` turns errors into numbers and texts and catches
//! panics, [`types`] has the header's structures. The functions are in `objects` (devices, domains,
//! memory, addresses), `queues` (completion queues, queue pairs) and `post`. `tests/verbs_c.rs` and
//! `cargo xtask test` hold them against the header, the record of the ABI and the man pages.
#![allow(clippy::missing_safety_doc, reason = "the man pages of section 3 say what callers owe")]

mod boundary;
pub(crate) mod handles;
mod holds;
mod objects;
mod post;
mod queues;
#[cfg(test)]
mod sequences;
#[cfg(test)]
mod tests;
pub mod types;

pub use objects::*;
pub use post::*;
pub use queues::*;

use crate::verbs::{
    AddressHandle, CompletionQueue, Context, Error, MemoryRegion, ProtectionDomain, QueuePair,
};
use handles::{Missing, OBJECTS_MAX, Table};
use std::sync::Arc;

static CONTEXTS: Table<Context> = Table::new(1);
static PDS: Table<ProtectionDomain> = Table::new(2);
static MRS: Table<MemoryRegion> = Table::new(3);
static CQS: Table<CompletionQueue> = Table::new(4);
static QPS: Table<QueuePair> = Table::new(5);
static AHS: Table<AddressHandle> = Table::new(6);

/// The object behind a handle; `parameter` is its name in the header.
fn find<T, H>(table: &Table<T>, parameter: &'static str, handle: *mut H) -> Result<Arc<T>, Error> {
    table.get(handle.addr() as u64).map_err(|why| no_handle(parameter, handle, why))
}

/// Calls `f` with the object behind a handle, which meanwhile cannot be destroyed.
fn with<T, H, R>(
    table: &Table<T>,
    parameter: &'static str,
    handle: *mut H,
    f: impl FnOnce(&T) -> Result<R, Error>,
) -> Result<R, Error> {
    let outcome = table.with(handle.addr() as u64, f);
    outcome.unwrap_or_else(|why| Err(no_handle(parameter, handle, why)))
}

#[cold]
fn no_handle<H>(parameter: &'static str, handle: *mut H, why: Missing) -> Error {
    if why == Missing::Forked {
        return Error::Forked;
    }
    let valid = "a handle of its kind that this library gave and that was not destroyed";
    if handle.is_null() {
        return Error::argument(parameter, "NULL", valid);
    }
    Error::argument(parameter, format_args!("{handle:?}"), valid)
}

/// A handle of a new object.
fn publish<T, H>(table: &Table<T>, object: T) -> Result<*mut H, Error> {
    match table.insert(Arc::new(object)) {
        Some(handle) => Ok(std::ptr::without_provenance_mut(handle as usize)),
        None => {
            let valid = format_args!("at most {OBJECTS_MAX} objects of a kind");
            Err(Error::argument("number of objects", "too large", valid))
        }
    }
}

/// Takes out an object that nothing needs.
fn remove<T, H>(
    table: &Table<T>,
    parameter: &'static str,
    handle: *mut H,
    users: impl FnOnce(&T) -> usize,
) -> Result<Arc<T>, Error> {
    let users = users(&*find(table, parameter, handle)?);
    if users > 0 {
        return Err(Error::Busy { object: parameter, users });
    }
    table.take(handle.addr() as u64).map_err(|why| no_handle(parameter, handle, why))
}
