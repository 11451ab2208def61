//! The types outside the loop: its ports and its clock.

use erd_port::info_path::InfoPath;
use erd_port::udp::Sockets;
use erd_port::{FramePort, Port};
use erd_sys::ticks::Ticks;

/// A set of types that go together. The compiler makes a loop for each set, so a call of a port or of the clock
/// costs no indirection.
pub trait Outside {
    /// The port for datagrams.
    type Port: Port;
    /// The port for control packets.
    type Frames: FramePort;
    /// The clock.
    type Clock: Clock;
}

/// A clock.
pub trait Clock {
    /// Nanoseconds since a fixed moment.
    fn now_ns(&self) -> u64;
}

/// Sockets, and this host's clock.
#[derive(Debug)]
pub enum Kernel {}

impl Outside for Kernel {
    type Port = Sockets;
    type Frames = InfoPath;
    type Clock = Monotonic;
}

/// The time of `CLOCK_MONOTONIC`.
#[derive(Debug, Default)]
pub struct Monotonic(Ticks);

impl Clock for Monotonic {
    fn now_ns(&self) -> u64 {
        self.0.now_ns()
    }
}
