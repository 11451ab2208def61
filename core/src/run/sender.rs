//! Sending: from the engine's bursts to the ports.
//!
//! The sender gathers payload straight from the application's memory. It keeps datagrams that a port does not take now,
//! by name of operation and not by pointer, and sends them first next time.

use super::link::Link;
use super::memory::Memory;
use super::pieces::{Pieces, too_many};
use erd_port::udp::{self, Dst, SendReport, Stop};
use erd_port::verbs::negotiation::address::Address;
use erd_port::{Burst, PinId, Port};
use erd_rd::units::KeyIndex;
use erd_rd::{SendToken, TxBurst};
use std::net::SocketAddr;
use std::ops::{Deref, DerefMut};

/// Bursts handed over in one call.
const BATCH: usize = 8;
/// Bytes above which a batch is full.
const BATCH_BYTES: u32 = 128 << 10;

/// Bursts that are to be sent, oldest first.
pub struct Sender {
    bursts: [TxBurst; BATCH],
    first: usize,
    filled: usize,
    bytes: u32,
    /// Datagrams of the first burst that are sent already.
    done_segments: u32,
    pieces: Pieces,
    /// Answers that could not be sent, since their memory has gone.
    pub gone: Vec<SendToken>,
    /// Where bursts go over verbs, with the key of their peer.
    to: [(Address, KeyIndex); BATCH],
    /// Room to copy bursts of too many pieces together.
    linear: [Vec<u8>; BATCH],
    /// The pieces of the bursts of the call at hand.
    spans: [Span; BATCH],
}

/// The pieces of one burst.
#[derive(Clone, Copy, Default)]
struct Span {
    /// Which burst.
    index: usize,
    /// Its first piece, and one past its last.
    start: usize,
    end: usize,
    memory: Option<PinId>,
}

/// A call that gathers memory. When it ends, and if it panics, the sender lets go of that memory.
struct Gathering<'a>(&'a mut Sender);

impl Deref for Gathering<'_> {
    type Target = Sender;

    fn deref(&self) -> &Sender {
        self.0
    }
}

impl DerefMut for Gathering<'_> {
    fn deref_mut(&mut self) -> &mut Sender {
        self.0
    }
}

impl Drop for Gathering<'_> {
    fn drop(&mut self) {
        self.0.pieces.clear();
    }
}

/// How the first bursts of a batch go.
#[derive(Clone, Copy)]
enum Ways {
    /// So many over UDP.
    Udp(usize),
    /// So many over verbs, to the addresses in [`Sender::to`].
    Verbs(usize),
}

/// How far [`Sender::send`] came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// All bursts are sent, or were dropped for good.
    Empty,
    /// Others wait still, which can be sent at once.
    More,
    /// The port is full: try again later.
    Blocked,
    /// One destination did not take a burst, which was dropped. Others wait still.
    Refused(SocketAddr, Refusal),
}

/// Why a burst was dropped. The engine sends it again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// The path carries datagrams of this many bytes only.
    TooBig(u16),
    /// The error of `sendmsg(2)`.
    Failed(i32),
}

impl Sender {
    pub(super) fn new() -> Sender {
        Sender {
            bursts: std::array::from_fn(|_| TxBurst::new()),
            first: 0,
            filled: 0,
            bytes: 0,
            done_segments: 0,
            pieces: Pieces::default(),
            gone: Vec::new(),
            to: [(Address::NONE, KeyIndex::default()); BATCH],
            linear: Default::default(),
            spans: Default::default(),
        }
    }

    /// Nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.first == self.filled
    }

    /// Bursts that wait.
    pub(super) fn waiting(&self) -> usize {
        self.filled - self.first
    }

    /// A burst to fill; `None` if the batch is full, or waits to be sent again.
    pub fn vacant(&mut self) -> Option<&mut TxBurst> {
        if self.is_empty() {
            (self.first, self.filled, self.bytes, self.done_segments) = (0, 0, 0, 0);
        }
        let room = self.first == 0 && self.filled < BATCH && self.bytes < BATCH_BYTES;
        room.then(|| &mut self.bursts[self.filled])
    }

    /// The burst given by [`Sender::vacant`] is filled.
    pub fn filled(&mut self) {
        self.bytes += self.bursts[self.filled].total_bytes;
        self.filled += 1;
    }

    /// The vacant burst in one piece: for the information path.
    pub(super) fn vacant_bytes(&mut self, host: &impl Memory) -> Option<&[u8]> {
        let filled = self.filled;
        let mut call = Gathering(self);
        let Sender { bursts, linear, pieces, .. } = &mut *call;
        let whole = host.gather(&bursts[filled], pieces).is_ok();
        // SAFETY: `gather` found memory that is readable now.
        unsafe { pieces.join_from(0, &mut linear[filled]) };
        drop(call);
        whole.then_some(&self.linear[filled])
    }

    /// Sends what waits. `errors_pending` is set if the port has errors to tell.
    // Inlined it would make every look for something to send prepare for sending.
    #[inline(never)]
    pub fn send(
        &mut self,
        now: u64,
        host: &impl Memory,
        carriers: (&mut impl Port, &mut Link),
        errors_pending: &mut bool,
    ) -> Outcome {
        let mut call = Gathering(self);
        let count = call.gather_all(host);
        let ways = call.ways(carriers.1, now, count);
        // Most often there is one, and each costs.
        let report = match count {
            1 => call.hand_over::<1>(now, ways, carriers, count),
            _ => call.hand_over::<BATCH>(now, ways, carriers, count),
        };
        *errors_pending |= report.errors_pending;
        call.advance(report, count)
    }

    /// Hands up to `N` gathered bursts to a port.
    #[inline(never)]
    fn hand_over<const N: usize>(
        &self,
        now: u64,
        ways: Ways,
        (port, link): (&mut impl Port, &mut Link),
        count: usize,
    ) -> SendReport {
        let spans = &self.spans[..count];
        let span = |at: usize| spans.get(at).copied().unwrap_or_default();
        let to: [Dst; N] = std::array::from_fn(|at| match at < spans.len() {
            true => Dst::from(self.bursts[span(at).index].to),
            false => Dst::from(SocketAddr::from(([0, 0, 0, 0], 0))),
        });
        let bursts: [Burst<'_>; N] = std::array::from_fn(|at| {
            let Span { index, start, end, memory } = span(at);
            let burst = &self.bursts[index];
            Burst {
                dst: &to[at],
                path: burst.path,
                ecn: burst.ecn,
                iov: &self.pieces.list[start..end],
                segment_bytes: burst.segment_bytes,
                total_bytes: burst.total_bytes,
                done_segments: if index == self.first { self.done_segments } else { 0 },
                may_fragment: burst.may_fragment,
                memory,
            }
        });
        // SAFETY: the pieces lie in this sender's own buffers, in memory of operations under way, which the application
        // lends for reading, or in registered memory that the passes keep.
        unsafe {
            match ways {
                Ways::Udp(count) => port.send(&bursts[..count]),
                Ways::Verbs(count) => link.send(&self.to[..count], &bursts[..count], now),
            }
        }
    }

    /// How the first of the bursts that wait go, and those after them that go the same way.
    fn ways(&mut self, link: &mut Link, now: u64, count: usize) -> Ways {
        let mut by_verbs = 0;
        if !link.has_verbs() {
            return Ways::Udp(count);
        }
        let spans = &self.spans[..count];
        for (count, span) in spans.iter().enumerate() {
            let burst = &self.bursts[span.index];
            match link.route(burst, now) {
                Some(address) if by_verbs == count => {
                    self.to[count] = (address, burst.key);
                    by_verbs += 1;
                }
                None if by_verbs == 0 => {}
                Some(_) => return Ways::Udp(count),
                None => break,
            }
        }
        if by_verbs == 0 { Ways::Udp(spans.len()) } else { Ways::Verbs(by_verbs) }
    }

    /// Gathers all bursts that wait; how many. Those of operations that are gone are left out: their bytes
    /// are not needed any more, or will be sent again.
    fn gather_all(&mut self, host: &impl Memory) -> usize {
        let Sender { bursts, pieces, linear, .. } = self;
        let mut count = 0;
        for index in self.first..self.filled {
            let burst = &bursts[index];
            let start = pieces.list.len();
            pieces.memory = None;
            if let Err(gone) = host.gather(burst, pieces) {
                pieces.list.truncate(start);
                self.gone.extend(gone);
                continue;
            }
            if too_many(&pieces.list[start..], burst.segment_bytes as usize) {
                // SAFETY: `gather` found memory that is readable now.
                unsafe { pieces.join_from(start, &mut linear[index]) };
            }
            let (end, memory) = (pieces.list.len(), pieces.memory_of_others());
            self.spans[count] = Span { index, start, end, memory };
            count += 1;
        }
        count
    }

    /// Moves on past what was sent.
    fn advance(&mut self, report: SendReport, count: usize) -> Outcome {
        let spans = &self.spans[..count];
        let Some(stop) = report.stop else {
            // Without a stop the next one goes by another way.
            let Some(next) = spans.get(report.bursts) else {
                self.first = self.filled;
                return Outcome::Empty;
            };
            (self.first, self.done_segments) = (next.index, report.segments);
            return Outcome::More;
        };
        self.first = spans[report.bursts].index;
        self.done_segments = report.segments;
        let refusal = match stop {
            Stop::Blocked => return Outcome::Blocked,
            Stop::TooBig { mtu_bytes } => {
                let v6 = self.bursts[self.first].to.is_ipv6();
                Refusal::TooBig(udp::max_payload_bytes(mtu_bytes, v6) as u16)
            }
            Stop::Failed { errno } => Refusal::Failed(errno),
        };
        let to = self.bursts[self.first].to;
        self.first += 1;
        self.done_segments = 0;
        Outcome::Refused(to, refusal)
    }
}
