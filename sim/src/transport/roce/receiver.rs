//! The receiving end of a queue pair: it takes packets in order, and asks for what is missing.

use super::settings::RoceSettings;
use crate::header::RoceKind;
use crate::mutants::{Mutant, mutant};
use crate::time::Picos;

/// What the receiver answers, and what it makes of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Taken {
    /// Its payload is taken.
    pub(super) is_placed: bool,
    /// An acknowledgement, or a call to go back.
    pub(super) answer: Option<RoceKind>,
    /// The sender is told of a mark.
    pub(super) notifies: bool,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub(super) struct QpReceiver {
    pub(super) expected_psn: u32,
    /// Packets taken since the last acknowledgement.
    unacked: u32,
    /// It has asked for the expected packet, which has not come since.
    has_asked: bool,
    /// When it may notify of a mark again.
    notify_at: Picos,
}

impl QpReceiver {
    /// A packet comes.
    pub(super) fn take(
        &mut self,
        now: Picos,
        (psn, last): (u32, bool),
        (is_trimmed, is_marked): (bool, bool),
        settings: &RoceSettings,
    ) -> Taken {
        let notifies = is_marked && now >= self.notify_at;
        if notifies {
            self.notify_at = now + settings.cnp_ps;
        }
        let skips = mutant(Mutant::SkipsWhatIsMissing) && psn > self.expected_psn;
        let is_next = psn == self.expected_psn || skips;
        if is_next && !is_trimmed {
            self.expected_psn = psn + 1;
            self.has_asked = false;
            self.unacked += 1;
            let answers = last || self.unacked >= settings.ack_packets;
            if answers {
                self.unacked = 0;
            }
            let answer = answers.then_some(RoceKind::Ack);
            return Taken { is_placed: true, answer, notifies };
        }
        let answer = if psn < self.expected_psn {
            // It came before: the sender has missed the answer.
            Some(RoceKind::Ack)
        } else if self.has_asked && !is_next {
            None
        } else {
            self.has_asked = true;
            Some(RoceKind::Nak)
        };
        let is_placed = mutant(Mutant::TakesRepeatsAgain) && psn < self.expected_psn;
        Taken { is_placed, answer, notifies }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::from_ns;

    const SOUND: (bool, bool) = (false, false);

    #[test]
    fn it_asks_once_for_what_is_missing() {
        let (settings, mut receiver) = (RoceSettings::default(), QpReceiver::default());
        let mut take = |psn| receiver.take(0, (psn, false), SOUND, &settings);
        assert!(take(0).is_placed);
        let asked: Vec<Option<RoceKind>> = (2..5).map(|psn| take(psn).answer).collect();
        assert_eq!(asked, [Some(RoceKind::Nak), None, None]);
        assert!(take(1).is_placed && take(2).is_placed, "what follows is taken in order again");
        assert_eq!(take(4).answer, Some(RoceKind::Nak), "it asks for another one");
        assert_eq!(take(0).answer, Some(RoceKind::Ack), "a packet that came before");
    }

    #[test]
    fn acknowledgements_cover_several_packets() {
        let settings = RoceSettings { ack_packets: 3, ..RoceSettings::default() };
        let mut receiver = QpReceiver::default();
        let answers: Vec<bool> = (0..5)
            .map(|psn| receiver.take(0, (psn, psn == 4), SOUND, &settings).answer.is_some())
            .collect();
        assert_eq!(answers, [false, false, true, false, true]);
    }

    #[test]
    fn a_trimmed_packet_is_asked_for_each_time() {
        let (settings, mut receiver) = (RoceSettings::default(), QpReceiver::default());
        let answers =
            [0; 2].map(|psn| receiver.take(0, (psn, true), (true, false), &settings).answer);
        assert_eq!(answers, [Some(RoceKind::Nak); 2]);
        assert_eq!(receiver.expected_psn, 0);
    }

    #[test]
    fn marks_are_told_of_once_in_a_while() {
        let (settings, mut receiver) = (RoceSettings::default(), QpReceiver::default());
        let mut told = |psn, at_us: u64| {
            receiver.take(from_ns(at_us * 1000), (psn, false), (false, true), &settings).notifies
        };
        assert_eq!([told(0, 0), told(1, 49), told(2, 50), told(3, 99)], [true, false, true, false]);
    }
}
