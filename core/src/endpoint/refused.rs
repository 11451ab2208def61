//! The log lines about peers that were refused for their key (protocol.md §11.1). The peer's own error says why; these
//! lines say it on this side. Anybody can make such peers up, so there are few lines.
//!
//! The engine tells of them in its call; the driver writes the lines when it settles.

use erd_rd::KeyMismatch;
use std::net::{IpAddr, SocketAddr};

/// Pairs of a host and a reason that an endpoint remembers, and names no second time. With as many there, only hosts of
/// the application's address vectors get further lines: each takes the place of the oldest stranger. `other_key` and
/// `version` in the statistics count on. A job whose processes have different keys shows that in its first hosts.
const NAMED_MAX: usize = 16;
/// A pair is forgotten after this long, so that strangers who fill the table silence nobody for good: 10 minutes, as
/// long as two keys of a job are valid.
const FORGET_NS: u64 = 600 * SECOND_NS;
/// Lines in a second, and lines that wait for the driver. A host that gets none is named when its next hello is refused.
const LINES_PER_S: usize = 4;
const SECOND_NS: u64 = 1_000_000_000;

/// A host that was named for this reason.
struct Named {
    host: IpAddr,
    why: KeyMismatch,
    at_ns: u64,
    /// Some address vector has an address of it.
    known: bool,
}

/// A line that waits for the driver.
struct Line {
    name: SocketAddr,
    from: SocketAddr,
    why: KeyMismatch,
}

/// Whom an endpoint has refused and named.
#[derive(Default)]
pub(super) struct Refused {
    /// At most [`NAMED_MAX`], the oldest first.
    named: Vec<Named>,
    /// At most [`LINES_PER_S`].
    waiting: Vec<Line>,
    /// The second of the last line, and the lines in it.
    second: u64,
    lines: usize,
}

impl Refused {
    /// A hello in the name of `name`, which came from `from`, was refused. `knows` says whether an address vector has
    /// this host.
    pub(super) fn note(
        &mut self,
        now_ns: u64,
        [name, from]: [SocketAddr; 2],
        why: KeyMismatch,
        knows: impl FnOnce(IpAddr) -> bool,
    ) {
        if self.waiting.len() < LINES_PER_S && self.is_news(now_ns, from.ip(), why, knows) {
            self.waiting.push(Line { name, from, why });
        }
    }

    /// True if lines wait.
    pub(super) fn has_lines(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Writes the lines that wait.
    pub(super) fn write(&mut self) {
        for Line { name, from, why } in self.waiting.drain(..) {
            let text = match why {
                KeyMismatch::PeerHasNone => "a peer without a key: this process has one",
                KeyMismatch::PeerHasAnother => {
                    "a peer with another key, which this process may not have read yet if it is new"
                }
                KeyMismatch::PeerHasOne => "a peer with a key: this process has none",
            };
            tracing::warn!(peer = %name, source = %from, "refused {text}; both need the same key");
        }
    }

    /// The endpoint has another key: whom it refuses now is news. The limit on lines in a second stays.
    pub(super) fn forget(&mut self) {
        self.named.clear();
    }

    /// Whether this gets a line, which it notes.
    fn is_news(
        &mut self,
        now_ns: u64,
        from: IpAddr,
        why: KeyMismatch,
        knows: impl FnOnce(IpAddr) -> bool,
    ) -> bool {
        let host = from.to_canonical();
        self.named.retain(|named| now_ns < named.at_ns.saturating_add(FORGET_NS));
        if self.named.iter().any(|named| (named.host, named.why) == (host, why)) {
            return false;
        }
        let second = now_ns / SECOND_NS;
        if second != self.second {
            (self.second, self.lines) = (second, 0);
        }
        if self.lines == LINES_PER_S {
            return false;
        }
        let is_full = self.named.len() == NAMED_MAX;
        let stranger = self.named.iter().position(|named| !named.known);
        if is_full && stranger.is_none() {
            return false;
        }
        let known = knows(from);
        if is_full && !known {
            return false;
        }
        if let Some(stranger) = stranger.filter(|_| is_full) {
            self.named.remove(stranger);
        }
        self.lines += 1;
        self.named.push(Named { host, why, at_ns: now_ns, known });
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    const NONE: KeyMismatch = KeyMismatch::PeerHasNone;
    const ANOTHER: KeyMismatch = KeyMismatch::PeerHasAnother;

    fn host(number: u8) -> IpAddr {
        Ipv4Addr::new(10, 0, 0, number).into()
    }

    /// A stranger to all address vectors.
    fn stranger(_: IpAddr) -> bool {
        false
    }

    /// The hosts that get a line in each of ten seconds. In each, 100 strangers say hello ten times.
    fn named(refused: &mut Refused, begin_ns: u64, why: KeyMismatch) -> Vec<usize> {
        let lines_in = |second: u64, refused: &mut Refused| {
            let mut all = (0..10).flat_map(|_| 0..100);
            let times = (0..1000).map(|at| begin_ns + second * SECOND_NS + at * 1_000_000);
            times
                .filter(|now_ns| {
                    refused.is_news(*now_ns, host(all.next().expect("one each")), why, stranger)
                })
                .count()
        };
        (1..=10).map(|second| lines_in(second, refused)).collect()
    }

    #[test]
    fn few_hosts_get_a_line_and_each_one_alone() {
        let mut refused = Refused::default();
        assert_eq!(named(&mut refused, 0, NONE), [4, 4, 4, 4, 0, 0, 0, 0, 0, 0]);
        assert_eq!(named(&mut refused, 0, ANOTHER), [0; 10], "the table is full");
        assert!(refused.named.capacity() <= 2 * NAMED_MAX);
    }

    #[test]
    fn strangers_silence_nobody_for_good() {
        let mut refused = Refused::default();
        named(&mut refused, 0, NONE);
        let last = FORGET_NS - SECOND_NS;
        assert_eq!(named(&mut refused, last - 10 * SECOND_NS, ANOTHER), [0; 10]);
        let after = FORGET_NS + 4 * SECOND_NS;
        assert_eq!(named(&mut refused, after, ANOTHER), [4, 4, 4, 4, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn a_host_is_named_again_after_a_while_or_with_another_key() {
        let mut refused = Refused::default();
        let mut at = |now_ns| refused.is_news(now_ns, host(1), NONE, stranger);
        assert_eq!([0, FORGET_NS - 1, FORGET_NS].map(&mut at), [true, false, true]);
        refused.forget();
        assert!(refused.is_news(FORGET_NS + 1, host(1), NONE, stranger));
        let lines: usize = named(&mut refused, FORGET_NS - SECOND_NS, ANOTHER)[0];
        assert_eq!(lines, LINES_PER_S - 2, "the second has its limit still");
    }

    #[test]
    fn a_known_host_takes_the_place_of_the_oldest_stranger() {
        let mut refused = Refused::default();
        assert!(refused.is_news(0, host(200), NONE, |_| true));
        named(&mut refused, 0, NONE);
        let oldest = refused.named[1].host;
        for known in 201..=215 {
            let now_ns = 20 * SECOND_NS + u64::from(known) * SECOND_NS;
            assert!(!refused.is_news(now_ns, host(199), NONE, stranger));
            assert!(refused.is_news(now_ns, host(known), NONE, |_| true), "{known}");
            assert_eq!(refused.named.len(), NAMED_MAX);
            assert!(refused.named.iter().all(|named| named.host != oldest));
            assert!(refused.named[0].host == host(200), "a known one keeps its place");
        }
        let unasked = |_| -> bool { panic!("no place could become free") };
        assert!(!refused.is_news(500 * SECOND_NS, host(216), NONE, unasked));
    }

    #[test]
    fn a_known_host_gets_no_more_lines_in_a_second() {
        let mut refused = Refused::default();
        let told = (0..100).filter(|number| refused.is_news(7, host(*number), NONE, |_| true));
        assert_eq!(told.count(), LINES_PER_S);
    }

    #[test]
    fn a_host_is_named_once_for_each_reason_whatever_its_ports() {
        let (mut refused, host) = (Refused::default(), IpAddr::from(Ipv4Addr::LOCALHOST));
        let mut news = |why| refused.is_news(0, host, why, stranger);
        assert_eq!([NONE, ANOTHER].map(&mut news), [true; 2]);
        assert_eq!([NONE, ANOTHER].map(&mut news), [false; 2]);
    }

    /// The engine may refuse many before the driver settles.
    #[test]
    fn few_lines_wait_and_whom_none_waits_for_is_named_later() {
        let mut refused = Refused::default();
        let note = |refused: &mut Refused, second: u64, number: u8| {
            let from = SocketAddr::new(host(number), 1);
            refused.note(second * SECOND_NS, [from; 2], NONE, stranger);
        };
        (0..12).for_each(|number| note(&mut refused, u64::from(number), number));
        assert_eq!((refused.waiting.len(), refused.named.len()), (LINES_PER_S, LINES_PER_S));
        refused.write();
        assert!(!refused.has_lines());
        note(&mut refused, 12, 11);
        note(&mut refused, 12, 0);
        assert_eq!(
            refused.waiting.iter().map(|line| line.from.ip()).collect::<Vec<_>>(),
            [host(11)]
        );
    }
}
