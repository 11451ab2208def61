//! One peer: an engine, and the application that answers.

use erd_rd::cc::schemes;
use erd_rd::host::EndReason;
use erd_rd::{
    Arrived, Config, Ecn, Endpoint, Host, OpError, PeerId, RecvToken, RxMeta, SendToken, TxBurst,
    Verdict, WorkRequest,
};
use std::net::SocketAddr;

/// Longest message.
const MESSAGE_MAX_BYTES: usize = 64;
/// Congestion control of the peers. It hardly matters, as each has one message under way.
const SCHEME: &str = "nscc";
/// Messages that a peer takes before it has answered the first.
const ANSWERS_MAX: usize = 64;

/// See the module.
pub struct Peer {
    engine: Endpoint,
    echo: Echo,
    burst: TxBurst,
    deadline: Option<u64>,
}

/// A message to be answered.
struct Asked {
    peer: PeerId,
    tag: Option<u64>,
    len_bytes: u64,
}

/// The application. Its answers are zeroes, so it keeps no payload.
#[derive(Default)]
struct Echo {
    /// At most [`ANSWERS_MAX`].
    asked: Vec<Asked>,
}

impl Host for Echo {
    fn read(&mut self, _op: SendToken, _offset_bytes: u64, out: &mut [u8]) {
        out.fill(0);
    }

    fn checksum(&mut self, _op: SendToken, _offset_bytes: u64, len_bytes: u32, seed: u32) -> u32 {
        crc32c::crc32c_append(seed, &[0; MESSAGE_MAX_BYTES][..len_bytes as usize])
    }

    fn sent(&mut self, _op: SendToken, _outcome: Result<(), OpError>) {}

    fn arrived(&mut self, msg: &Arrived) -> Verdict {
        if self.asked.len() == ANSWERS_MAX {
            return Verdict::NoBuffer;
        }
        if msg.rendezvous || !msg.whole || msg.len_bytes > MESSAGE_MAX_BYTES as u64 {
            return Verdict::Discard;
        }
        self.asked.push(Asked { peer: msg.msg.peer, tag: msg.tag, len_bytes: msg.len_bytes });
        Verdict::Matched(RecvToken(0), msg.len_bytes)
    }

    fn hold(&mut self, _peer: PeerId, _len_bytes: u64) -> Option<RecvToken> {
        None
    }

    fn place(&mut self, _to: RecvToken, _offset_bytes: u64, _bytes: &[u8]) {}

    fn received(&mut self, _to: RecvToken, _outcome: Result<u64, OpError>) {}

    fn session_ended(&mut self, _peer: PeerId, _session: u32, _reason: EndReason) {}

    fn datagram_limit_bytes(&mut self, _name: SocketAddr) -> u16 {
        1472
    }
}

impl Peer {
    /// # Panics
    /// If the engine refuses its own defaults.
    pub fn new(name: SocketAddr, epoch: u64, seed: u64) -> Peer {
        let mut config = Config::new(name, epoch, crc32c::crc32c_append);
        config.paths = 1;
        config.burst_bytes = u32::from(config.datagram_bytes);
        let scheme = schemes::by_name(SCHEME).expect("the scheme is of the table");
        let engine = Endpoint::new(config, scheme, epoch ^ seed).expect("defaults are in range");
        Peer { engine, echo: Echo::default(), burst: TxBurst::new(), deadline: None }
    }

    pub fn take(&mut self, now: u64, from: SocketAddr, datagram: &[u8]) {
        let meta = RxMeta { ecn: Ecn::NotEct, trimmed: false, hold_ns: 0, from };
        self.engine.handle_packet(now, &meta, datagram, &mut self.echo);
        for asked in self.echo.asked.drain(..) {
            let answer = WorkRequest {
                peer: asked.peer,
                token: SendToken(0),
                len_bytes: asked.len_bytes,
                tag: asked.tag,
                data: None,
                match_complete: false,
                awaited: false,
                delivery: false,
                fence: false,
            };
            // A full table drops the answer, and the program that waits for it ends by its own limit.
            let _ = self.engine.send(now, answer);
        }
    }

    /// The next datagrams to send.
    pub fn next_burst(&mut self, now: u64) -> Option<&TxBurst> {
        self.engine.poll_transmit(now, true, &mut self.echo, &mut self.burst).then_some(&self.burst)
    }

    /// The time at which it must run again, if that is earlier than what this told before.
    pub fn new_deadline(&mut self, now: u64) -> Option<u64> {
        let at = self.engine.poll_true_timeout(now)?;
        if self.deadline.is_some_and(|known| known <= at) {
            return None;
        }
        self.deadline = Some(at);
        self.deadline
    }

    /// True if `at` is the last time told.
    pub fn is_due(&self, at: u64) -> bool {
        self.deadline == Some(at)
    }

    pub fn run_timers(&mut self, now: u64) {
        self.deadline = None;
        self.engine.handle_timeout(now, &mut self.echo);
    }
}
