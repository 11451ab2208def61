//! Ports carry datagrams between endpoints. They know neither the protocol, which is the engine's (`erd_rd`), nor
//! applications.
//!
//! A caller gives them a [`Burst`] to send. UDP and the simulated network both implement [`Port`].
//!
//! - [`udp`]: UDP sockets, which every endpoint has;
//! - [`local`]: shared memory, between endpoints of one host;
//! - [`verbs`]: UD queue pairs of RDMA devices, where there are some;
//! - [`info_path`]: the TCP connections beside them, for control packets alone.

mod burst;
pub mod info_path;
pub mod local;
mod names;
mod port;
pub mod udp;
pub mod verbs;

pub use burst::{Burst, PinId};
pub use port::{FramePort, Port};
