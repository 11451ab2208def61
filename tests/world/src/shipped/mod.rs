//! Endpoints as they ship, in the simulated network: the library's drivers, receive queues, completion queues and
//! registered memory run under the faults of a seed. Applications post operations drawn from the seed, and the world
//! judges the completions in their queues.
//!
//! [`runs`] (a seed from its beginning to its end), [`process`] (one process with an endpoint), [`book`] (the posts,
//! and their judgement), [`receives`] and [`accesses`] (the same for receives, and for accesses to memory).

pub mod accesses;
pub mod book;
pub mod lend;
pub mod plan;
pub mod process;
pub mod receives;
pub mod runs;
