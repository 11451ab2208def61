//! How switches pause: settings of priority flow control (IEEE 802.1Qbb).

use crate::time::Picos;

/// How the switches of a network pause.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Pfc {
    /// Memory of a switch.
    pub memory: SwitchMemory,
    /// When a sender has to pause.
    pub threshold: Threshold,
}

/// Memory of a switch, which its links share. The headroom of all links that lead to it is a part of it: what comes between
/// the moment when a pause frame is due and the one when it acts.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum SwitchMemory {
    /// So many bytes.
    Bytes(u64),
    /// What all links of the switch carry in this time.
    Time(Picos),
}

/// How much may wait of what came by one link, without the headroom.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Threshold {
    /// So many times what is free of the shared memory (Choudhury and Hahne's dynamic threshold).
    Dynamic {
        /// How many times.
        alpha: f64,
    },
    /// Fixed.
    Fixed {
        /// The sender pauses beyond so many bytes.
        xoff_bytes: u64,
        /// It goes on at so many.
        xon_bytes: u64,
    },
}
