//! What two processes say when they meet: an offer of a link, and the answer (`docs/protocol.md` §12.2).

use crate::names::{NAME_BYTES, put_name, read_name};
use std::net::SocketAddr;

/// Bytes of a message, of either kind.
pub const MESSAGE_BYTES: usize = 96;
/// How a message begins: of the version of everything about links that this describes.
const MARK: [u8; 8] = *b"erdlink1";
const OFFER: u8 = 1;
const ANSWER: u8 = 2;

const KIND_AT: usize = 8;
const VERDICT_AT: usize = 9;
const PLACE_AT: usize = 12;
const PROCESS_AT: usize = 16;
const FROM_AT: usize = 32;
const TO_AT: usize = FROM_AT + NAME_BYTES;
const RING_AT: usize = TO_AT + NAME_BYTES;

/// Names a process: 128 random bits of its own.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ProcessId(pub [u8; 16]);

/// An offer. The memory of the rings, the writer's bell and its waker come with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Offer {
    /// The writer's process.
    pub process: ProcessId,
    /// Where the reader rings the writer's bell.
    pub place: u16,
    /// The writer's endpoint.
    pub from: SocketAddr,
    /// The reader's endpoint.
    pub to: SocketAddr,
    /// Bytes of each of the two rings.
    pub ring_bytes: u32,
}

/// What becomes of an offer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The link is there. The reader's bell and its waker come with the answer.
    Taken,
    /// The reader has an offer of its own under way, which stands.
    Crossing,
    /// There is no such endpoint, or it takes no link from there.
    Refused,
    /// It has no room for one more.
    Full,
}

const VERDICTS: [Verdict; 4] = [Verdict::Taken, Verdict::Crossing, Verdict::Refused, Verdict::Full];

/// The answer to an offer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Answer {
    /// The writer's process.
    pub process: ProcessId,
    /// Where the reader rings the writer's bell.
    pub place: u16,
    /// What becomes of the offer.
    pub verdict: Verdict,
}

fn message(kind: u8, process: ProcessId, place: u16) -> [u8; MESSAGE_BYTES] {
    let mut out = [0; MESSAGE_BYTES];
    out[..8].copy_from_slice(&MARK);
    out[KIND_AT] = kind;
    out[PLACE_AT..][..2].copy_from_slice(&place.to_be_bytes());
    out[PROCESS_AT..][..16].copy_from_slice(&process.0);
    out
}

/// The process and the place of a message of this kind.
fn read(bytes: &[u8], kind: u8) -> Option<(ProcessId, u16)> {
    let is_one = bytes.len() == MESSAGE_BYTES && bytes[..8] == MARK && bytes[KIND_AT] == kind;
    if !is_one {
        return None;
    }
    let place = u16::from_be_bytes(bytes[PLACE_AT..][..2].try_into().ok()?);
    Some((ProcessId(bytes[PROCESS_AT..][..16].try_into().ok()?), place))
}

impl Offer {
    /// The message.
    #[must_use]
    pub fn encode(&self) -> [u8; MESSAGE_BYTES] {
        let mut out = message(OFFER, self.process, self.place);
        put_name(&mut out[FROM_AT..TO_AT], self.from);
        put_name(&mut out[TO_AT..RING_AT], self.to);
        out[RING_AT..][..4].copy_from_slice(&self.ring_bytes.to_be_bytes());
        out
    }

    /// Reads a message; `None` if it is no offer.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Offer> {
        let (process, place) = read(bytes, OFFER)?;
        let from = read_name(&bytes[FROM_AT..TO_AT])?;
        let to = read_name(&bytes[TO_AT..RING_AT])?;
        let ring_bytes = u32::from_be_bytes(bytes[RING_AT..][..4].try_into().ok()?);
        Some(Offer { process, place, from, to, ring_bytes })
    }
}

impl Answer {
    /// The message.
    #[must_use]
    pub fn encode(&self) -> [u8; MESSAGE_BYTES] {
        let mut out = message(ANSWER, self.process, self.place);
        let verdict = VERDICTS.iter().position(|verdict| *verdict == self.verdict);
        out[VERDICT_AT] = verdict.map_or(u8::MAX, |at| at as u8);
        out
    }

    /// Reads a message; `None` if it is no answer.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Answer> {
        let (process, place) = read(bytes, ANSWER)?;
        let verdict = *VERDICTS.get(usize::from(bytes[VERDICT_AT]))?;
        Some(Answer { process, place, verdict })
    }
}

/// Which of two offers stands that two endpoints make each other at the same time: both come to the same answer.
#[must_use]
pub fn stands(from: SocketAddr, to: SocketAddr) -> bool {
    from < to
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROCESS: ProcessId = ProcessId([7; 16]);

    fn offer() -> Offer {
        let (from, to) = ("192.0.2.1:7".parse(), "[2001:db8::1%3]:8".parse());
        let (from, to) = (from.expect("a name"), to.expect("a name"));
        Offer { process: PROCESS, place: 4095, from, to, ring_bytes: 1 << 20 }
    }

    #[test]
    fn what_is_written_is_read() {
        assert_eq!(Offer::decode(&offer().encode()), Some(offer()));
        for verdict in VERDICTS {
            let answer = Answer { process: PROCESS, place: 3, verdict };
            assert_eq!(Answer::decode(&answer.encode()), Some(answer));
            assert_eq!(Offer::decode(&answer.encode()), None);
        }
        assert_eq!(Answer::decode(&offer().encode()), None);
    }

    #[test]
    fn other_messages_are_neither() {
        let good = offer().encode();
        for (at, byte) in [(0, b'x'), (7, b'2'), (KIND_AT, 0), (FROM_AT, 5), (TO_AT, 0)] {
            let mut bytes = good;
            bytes[at] = byte;
            assert_eq!(Offer::decode(&bytes), None, "byte {at}");
        }
        assert_eq!(Offer::decode(&good[..MESSAGE_BYTES - 1]), None);
        let mut answer = Answer { process: PROCESS, place: 3, verdict: Verdict::Full }.encode();
        answer[VERDICT_AT] = VERDICTS.len() as u8;
        assert_eq!(Answer::decode(&answer), None);
    }

    #[test]
    fn of_two_offers_that_cross_one_stands() {
        let Offer { from, to, .. } = offer();
        assert_ne!(stands(from, to), stands(to, from));
    }
}
