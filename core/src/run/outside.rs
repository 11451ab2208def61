//! What the loop has outside itself: a port, a way for control packets beside it, and a clock.

use erd_port::info_path::InfoPath;
use erd_port::udp::Sockets;
use erd_port::{FramePort, Port};
use erd_sys::clock::monotonic_ns;

/// The kinds of these that go together. The loop is compiled for each such set: a call of the clock or of a
/// port costs no more than without.
pub trait Outside {
    /// Carries datagrams.
    type Port: Port;
    /// Carries control packets.
    type Frames: FramePort;
    /// Tells the time.
    type Clock: Clock;
}

/// Tells the time.
pub trait Clock {
    /// Nanoseconds since some moment that stays the same.
    fn now_ns(&self) -> u64;
}

/// Sockets, and the time of this host.
#[derive(Debug)]
pub enum Kernel {}

impl Outside for Kernel {
    type Port = Sockets;
    type Frames = InfoPath;
    type Clock = Monotonic;
}

/// `CLOCK_MONOTONIC`.
#[derive(Clone, Copy, Debug)]
pub struct Monotonic;

impl Clock for Monotonic {
    fn now_ns(&self) -> u64 {
        monotonic_ns()
    }
}
