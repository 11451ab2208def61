//! Queues of another provider, the owner, into which erd completes (`fi_peer(3)`).
//!
//! Each object below is opened with `FI_PEER` and stands for one of the owner's: erd writes completions to the owner's
//! queue, counts them at its counter, and asks its receive context for receives. So a provider that links others, as
//! libfabric's `lnx` does, has one queue and one matching for all.
//!
//! An owner may have no locks except its callers' own. So erd calls its functions only from within its own calls:
//! reading a queue or counter (which lets us progress), starting and discarding messages, and closing. Completions and
//! messages that the helper thread brings wait for the next of these. The caller holds no lock of an endpoint, queue or
//! counter.
//!
//! - `owner`: the owner's functions; `srx`: its receive context, and its calls on messages.

pub(crate) mod owner;
mod srx;

pub(crate) use srx::open as open_srx;

use erd_ffi::fi::fi_version;
use erd_ffi::{caller, host};

/// The interface changed incompatibly in 1.19, 2.0 and 2.3, and not since.
const SINCE: u32 = fi_version(2, 3);

/// Whether the libfabric that calls us has the interface in the form that we know. Where something else calls, the one that
/// loaded us counts.
#[must_use]
pub(crate) fn is_available() -> bool {
    let version = caller::api_version().or_else(host::api_version);
    version.is_some_and(|version| version >= SINCE)
}
