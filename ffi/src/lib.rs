//! Foreign ABIs, written out by hand, and the libraries behind them, found at run time.
//!
//! - [`fi`]: the provider side of libfabric's ABI; [`host`]: the libfabric that loaded us; [`caller`]:
//!   the one that calls; [`log`] and [`param`]: its log and its configuration;
//! - [`guard`]: functions that C code may enter; no panic crosses them;
//! - [`mod@ibv`]: the ABI of libibverbs.

pub mod caller;
pub mod fi;
pub mod guard;
pub mod host;
pub mod ibv;
pub mod log;
pub mod param;
