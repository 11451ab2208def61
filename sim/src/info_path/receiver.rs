//! The receiving side of a stream: frames come out in order, each once.

use super::sender::FRAMES_MAX;
use crate::mutants::{Mutant, mutant};
use std::collections::BTreeMap;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct StreamReceiver {
    /// The frame that comes out next.
    expected: u32,
    /// Frames that came before their turn: fewer than [`FRAMES_MAX`].
    early: BTreeMap<u32, Vec<u8>>,
}

impl StreamReceiver {
    /// Takes a frame, and hands those whose turn it is to `f`. Returns which one it expects next.
    pub(super) fn take(&mut self, number: u32, frame: Vec<u8>, mut f: impl FnMut(Vec<u8>)) -> u32 {
        let ahead = number.checked_sub(self.expected);
        if ahead.is_none() && mutant(Mutant::HandsFramesOutAgain) {
            f(frame);
            return self.expected;
        }
        if ahead.is_some_and(|ahead| ahead < FRAMES_MAX) {
            self.early.insert(number, frame);
        }
        while let Some(frame) = self.early.remove(&self.expected) {
            f(frame);
            self.expected += 1;
        }
        self.expected
            + u32::from(mutant(Mutant::AcknowledgesMissingFrames) && !self.early.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_out_in_order_and_once() {
        let mut receiver = StreamReceiver::default();
        let mut came = Vec::new();
        let arrivals = [2, 0, 0, 2, 1, FRAMES_MAX + 3, 1, 3];
        let expected = arrivals
            .map(|number| receiver.take(number, vec![number as u8], |frame| came.push(frame[0])));
        assert_eq!(expected, [0, 1, 1, 1, 3, 3, 3, 4]);
        assert_eq!((came, receiver.early.len()), (vec![0, 1, 2, 3], 0));
    }
}
