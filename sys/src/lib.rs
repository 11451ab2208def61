//! What erd asks of the operating system and the processor, besides carrying packets.
//!
//! - [`clock`], [`ticks`], [`wait`]: time, and sleeping until a descriptor or a timer is ready;
//! - [`guard`]: where panics end; [`at_exit`]: what ends with the process;
//! - [`sysfs`]: where the kernel describes devices;
//! - [`process`]: which process this is; [`unshared`]: descriptors that forked children do not share; [`own_memory`]: its memory that may be missing;
//!   [`shared_words`]: memory that processes share; [`barrier`]: a barrier between threads whose
//!   frequent half is free;
//! - [`checksum`]: CRC32C by the processor's instructions;
//! - [`visit`]: a socket where a process tells its state to whoever comes to look.

pub mod at_exit;
pub mod barrier;
pub mod checksum;
pub mod clock;
pub mod guard;
pub mod other_memory;
pub mod own_memory;
pub mod process;
pub mod secret;
pub mod shared_words;
pub mod sysfs;
pub mod ticks;
pub mod unshared;
pub mod visit;
pub mod wait;
