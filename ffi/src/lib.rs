//! Everything foreign that erd touches, and the only crate besides the provider that holds `unsafe` code.
//!
//! - [`fi`]: the provider side of libfabric's ABI, written out by hand.
//! - [`guard`]: functions and threads that C code may enter; no panic crosses them.
//! - [`udp`] and [`info_path`]: the UDP port and the TCP connections beside it; [`wait`], [`clock`] and
//!   [`checksum`];
//!   [`at_exit`]: what ends with the process;
//!   [`barrier`]: a barrier between threads whose frequent half is free.
//! - [`host`]: the libfabric that loaded us, found at run time; [`log`] and [`param`]: its log and
//!   its configuration;
//! - [`process`]: which process this is;
//!   [`own_memory`]: memory of this process that may be missing; [`shared_words`]: memory that
//!   processes share;
//! - [`visit`]: a socket where a process tells its state to whoever comes to look.

pub mod at_exit;
pub mod barrier;
pub mod checksum;
pub mod clock;
pub mod fi;
pub mod guard;
pub mod host;
pub mod info_path;
pub mod log;
pub mod own_memory;
pub mod param;
pub mod process;
pub mod shared_words;
pub mod udp;
pub mod verbs;
pub mod visit;
pub mod wait;
