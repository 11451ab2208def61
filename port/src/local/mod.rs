//! Shared memory between endpoints of one host: the local lane's carrier (`docs/protocol.md` §12).
//!
//! A [`LocalPort`] belongs to one endpoint, as its sockets do. It finds out by itself who else is on this host, and
//! reaches those by links. The engine defines the entries that travel on them.
//!
//! - [`ring`], `segment`, `bell`, `waker`: entries, memory, the hints who has news, and how sleepers learn of them;
//! - [`link`]: a pair of rings between two endpoints;
//! - `courier`, [`offer`], `meeting`: how two processes meet, and come by a link;
//! - `process`: the other processes, and when they end;
//! - `claim`: the descriptors that all of it takes;
//! - `port`: the links of an endpoint.

pub mod bell;
pub mod claim;
pub mod courier;
mod lanes;
pub mod link;
mod meeting;
pub mod offer;
mod port;
pub mod process;
pub mod ring;
pub mod segment;
pub mod waker;

pub use erd_sys::other_memory;
pub use lanes::{Event, Fill, Lanes, LinkId, Pulled, Reach};
pub use link::{End, Fate};
pub use port::{LocalPort, Options};
