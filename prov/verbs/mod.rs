//! Verbs: the library for programs that do not speak libfabric.
//!
//! Names and semantics follow libibverbs: a [`Device`] is opened as a [`Context`], which makes
//! [`CompletionQueue`]s and [`ProtectionDomain`]s; these make [`MemoryRegion`]s,
//! [`AddressHandle`]s and [`QueuePair`]s. A queue pair sends [`SendRequest`]s to any peer and takes
//! messages from any into its [`ReceiveRequest`]s, reliably and in order.
//!
//! Differences from libibverbs:
//! - a new queue pair is ready at once; its peers find it by IP address and UDP port;
//! - memory that is only sent from or received into needs no registration, and there are no local
//!   keys; remote keys have 64 bits;
//! - immediate data has 64 bits, and a write with it consumes no receive of its peer;
//! - a completion queue never overflows;
//! - requests complete in the order in which they end: the completion of a signaled one says nothing about earlier
//!   unsignaled ones;
//! - its file descriptor may become readable without a completion.
//!
//! Nothing here needs libfabric. Settings come from the environment, as `FI_ERD_*`
//! ([`erd_core::settings`]), and from the program ([`ContextOptions`]). The log is `tracing`'s: it
//! goes where the program's subscriber sends it.
//!
//! Posting is unsafe, because a peer or the network reads and writes the memory later.
//! [`OwningQueuePair`] is the safe form: requests own their memory, and completions give it back.
//!
//! ```
//! use erd::verbs::{Device, Done, OwningQueuePair, QpSizes};
//!
//! let context = Device::find("127.0.0.1")?.open()?;
//! let pd = context.alloc_pd();
//! let [left, right] =
//!     [0, 1].map(|_| OwningQueuePair::new(&context, &pd, QpSizes::default()).unwrap());
//!
//! right.recv(1, vec![0; 64])?;
//! left.send(2, &pd.create_ah(right.name())?, b"hello".to_vec(), None)?;
//! let received: Done = right.wait(None)?.expect("it waits without end");
//! assert_eq!(received.bytes(), b"hello");
//! assert_eq!(received.completion.peer, Some(left.name()));
//! # Ok::<(), erd::verbs::Error>(())
//! ```

mod context;
mod cq;
mod device;
mod error;
mod mr;
mod owned;
mod pd;
mod pinned;
mod qp;
#[cfg(test)]
mod tests;
mod wr;

pub use context::{Context, ContextOptions, controllers};
pub use cq::{Completion, CompletionQueue, Notify, Opcode, Status};
pub use device::Device;
pub use error::Error;
pub use mr::{Access, MemoryRegion, RemoteAddr};
pub use owned::{Done, OwningQueuePair, QpSizes, Rejected};
pub use pd::{AddressHandle, ProtectionDomain};
pub(crate) use qp::recv_one;
pub use qp::{PostError, QpOptions, QueuePair};
pub use wr::{Operation, ReceiveRequest, SendFlags, SendRequest, Sge};
