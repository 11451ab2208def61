//! What information paths count.

use serde::Serialize;

/// What information paths have carried.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct FrameCounts {
    /// Frames sent, without repeats.
    pub frames: u64,
    /// Repeats of them.
    pub repeats: u64,
    /// Frames that came out of streams: each in its turn and once.
    pub delivered: u64,
    /// Frames that their senders know to have arrived.
    pub acknowledged: u64,
    /// Packets of streams that hosts took, be they frames, repeats or acknowledgements.
    pub packets: u64,
}

impl FrameCounts {
    /// Adds those of another host.
    pub fn add(&mut self, other: FrameCounts) {
        let FrameCounts { frames, repeats, delivered, acknowledged, packets } = other;
        self.frames += frames;
        self.repeats += repeats;
        self.delivered += delivered;
        self.acknowledged += acknowledged;
        self.packets += packets;
    }
}
