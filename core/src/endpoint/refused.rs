//! The log lines about peers that were refused for their key (protocol.md §11.1). The peer's own error says why; these
//! lines say it on this side. Anybody can make such peers up, so there are few lines.

use erd_rd::KeyMismatch;
use std::net::{IpAddr, SocketAddr};

/// Hosts that an endpoint names, each once for each reason. Later ones get no line; `other_key` and `version` in the
/// statistics go on counting. A job whose processes have different keys shows that in the first of them.
const NAMED_MAX: usize = 16;
/// Lines in a second. A host that gets none is named when its next hello is refused.
const LINES_PER_S: u32 = 4;
const SECOND_NS: u64 = 1_000_000_000;

/// Whom an endpoint has refused and named.
#[derive(Default)]
pub(super) struct Refused {
    /// At most [`NAMED_MAX`].
    named: Vec<(IpAddr, KeyMismatch)>,
    /// The second of the last line, and the lines in it.
    second: u64,
    lines: u32,
}

impl Refused {
    /// A hello in the name of `name`, which came from `from`, was refused.
    pub(super) fn tell(
        &mut self,
        now_ns: u64,
        name: SocketAddr,
        from: SocketAddr,
        why: KeyMismatch,
    ) {
        if !self.is_news(now_ns, from.ip().to_canonical(), why) {
            return;
        }
        let text = match why {
            KeyMismatch::PeerHasNone => "a peer without a key: this process has one",
            KeyMismatch::PeerHasAnother => {
                "a peer with another key, which this process may not have read yet if it is new"
            }
            KeyMismatch::PeerHasOne => "a peer with a key: this process has none",
        };
        tracing::warn!(peer = %name, source = %from, "refused {text}; both need the same key");
    }

    /// Whether this gets a line, which it notes.
    fn is_news(&mut self, now_ns: u64, from: IpAddr, why: KeyMismatch) -> bool {
        if self.named.len() == NAMED_MAX || self.named.contains(&(from, why)) {
            return false;
        }
        let second = now_ns / SECOND_NS;
        if second != self.second {
            (self.second, self.lines) = (second, 0);
        }
        if self.lines == LINES_PER_S {
            return false;
        }
        self.lines += 1;
        self.named.push((from, why));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    /// The hosts that get a line, of 100 which say hello ten times each in every second of ten.
    fn named(refused: &mut Refused, why: KeyMismatch) -> Vec<usize> {
        let lines_in = |second: u64, refused: &mut Refused| {
            let of = |host: u8| IpAddr::from(Ipv4Addr::new(10, 0, 0, host));
            let mut all = (0..10).flat_map(|_| 0..100);
            let times = (0..1000).map(|at| second * SECOND_NS + at * 1_000_000);
            times
                .filter(|now_ns| refused.is_news(*now_ns, of(all.next().expect("one each")), why))
                .count()
        };
        (1..=10).map(|second| lines_in(second, refused)).collect()
    }

    #[test]
    fn few_hosts_get_a_line_and_each_one_alone() {
        let mut refused = Refused::default();
        assert_eq!(named(&mut refused, KeyMismatch::PeerHasNone), [4, 4, 4, 4, 0, 0, 0, 0, 0, 0]);
        assert_eq!(named(&mut refused, KeyMismatch::PeerHasAnother), [0; 10], "the table is full");
        assert!(refused.named.capacity() <= 2 * NAMED_MAX);
    }

    #[test]
    fn a_host_is_named_once_for_each_reason_whatever_its_ports() {
        let (mut refused, host) = (Refused::default(), IpAddr::from(Ipv4Addr::LOCALHOST));
        let reasons = [KeyMismatch::PeerHasNone, KeyMismatch::PeerHasAnother];
        let mut news = |why| refused.is_news(0, host, why);
        assert_eq!(reasons.map(&mut news), [true; 2]);
        assert_eq!(reasons.map(&mut news), [false; 2]);
    }
}
