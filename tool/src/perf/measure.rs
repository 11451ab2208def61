//! The measurements of `erd perf`.

use crate::peer::{self, HEADER_BYTES, Header, Kind, Side};
use anyhow::{Context as _, Result, bail};
use erd::verbs::{AddressHandle, Done, Opcode};
use serde::Serialize;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Warm-up rounds.
const WARM_UP: u32 = 20;
/// Longest wait for any completion.
const PATIENCE: Duration = Duration::from_secs(10);
/// Most rounds kept.
const ROUNDS_MAX: usize = 1_000_000;

/// Half round trips.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Latency {
    pub min_ns: u64,
    pub median_ns: u64,
    pub p99_ns: u64,
    /// Number of round trips measured.
    pub rounds: usize,
}

impl Latency {
    /// From whole round trips; `None` without any.
    fn of(mut rtts_ns: Vec<u64>) -> Option<Latency> {
        rtts_ns.sort_unstable();
        let at = |share: f64| rtts_ns.get((share * (rtts_ns.len() as f64 - 1.0)) as usize);
        Some(Latency {
            min_ns: at(0.0)? / 2,
            median_ns: at(0.5)? / 2,
            p99_ns: at(0.99)? / 2,
            rounds: rtts_ns.len(),
        })
    }
}

/// Sends pings one after the other.
///
/// # Errors
/// If nobody answers.
pub fn latency(
    side: &Side,
    (to, server): (&AddressHandle, SocketAddr),
    bytes: usize,
    time: Duration,
) -> Result<Latency> {
    let mut buffers = [Header { kind: Kind::Ping, number: 0 }.message(bytes), vec![0; bytes]];
    let mut rtts_ns = Vec::new();
    for _ in 0..WARM_UP {
        buffers = round(side, (to, server), buffers)?.1;
    }
    let end = Instant::now() + time;
    while rtts_ns.len() < ROUNDS_MAX && (rtts_ns.is_empty() || Instant::now() < end) {
        let (rtt_ns, back) = round(side, (to, server), buffers)?;
        rtts_ns.push(rtt_ns);
        buffers = back;
    }
    Latency::of(rtts_ns).context("no round was made")
}

/// Makes one ping; returns the time until it was sent and answered, and the buffers.
fn round(
    side: &Side,
    (to, server): (&AddressHandle, SocketAddr),
    buffers: [Vec<u8>; 2],
) -> Result<(u64, [Vec<u8>; 2])> {
    let [out, into] = buffers;
    let start = Instant::now();
    side.qp.recv(0, into).map_err(|refused| refused.error)?;
    side.send(to, out)?;
    let (mut sent, mut answer, mut rtt_ns) = (None, None, 0);
    while sent.is_none() || answer.is_none() {
        let done = next(side, server)?;
        if done.completion.opcode == Opcode::Recv {
            rtt_ns = start.elapsed().as_nanos() as u64;
            answer = Some(done.buffer);
        } else {
            sent = Some(done.buffer);
        }
    }
    Ok((rtt_ns, [sent.unwrap_or_default(), answer.unwrap_or_default()]))
}

fn next(side: &Side, server: SocketAddr) -> Result<Done> {
    match side.done_within(PATIENCE)? {
        Some(done) => peer::check(done, server),
        None => bail!("{server} does not answer; does erd serve run there?"),
    }
}

/// Sends `outstanding` messages at a time. Returns messages per second, from the first call until the peer has them
/// all; the peer reports its bytes.
///
/// # Errors
/// If nobody answers, or the peer did not get the messages.
pub fn rate(
    side: &Side,
    (to, server): (&AddressHandle, SocketAddr),
    (bytes, outstanding): (usize, usize),
    time: Duration,
) -> Result<f64> {
    let before = counted(side, (to, server))?;
    let start = Instant::now();
    let (mut begun, mut under_way) = (0_u64, 0_usize);
    for _ in 0..outstanding {
        side.send(to, Header { kind: Kind::Data, number: 0 }.message(bytes))?;
        (begun, under_way) = (begun + 1, under_way + 1);
    }
    while under_way > 0 {
        let done = next(side, server)?;
        under_way -= 1;
        if start.elapsed() < time {
            side.send(to, done.buffer)?;
            (begun, under_way) = (begun + 1, under_way + 1);
        }
    }
    let after = counted(side, (to, server))?;
    let elapsed_s = start.elapsed().as_secs_f64();
    let (sent, got) = (begun * bytes as u64, after.wrapping_sub(before));
    if sent != got {
        bail!("{server} got {got} bytes of {sent}");
    }
    Ok(begun as f64 / elapsed_s)
}

/// Bytes of data that the peer has received from here. Messages arrive in the order in which they were sent, so all are
/// counted.
fn counted(side: &Side, (to, server): (&AddressHandle, SocketAddr)) -> Result<u64> {
    side.qp.recv(0, vec![0; HEADER_BYTES]).map_err(|refused| refused.error)?;
    side.send(to, Header { kind: Kind::Ask, number: 0 }.message(HEADER_BYTES))?;
    let (mut sent, mut count) = (false, None);
    while !sent || count.is_none() {
        let done = next(side, server)?;
        match done.completion.opcode {
            Opcode::Recv => {
                let header = Header::read(done.bytes()).filter(|header| header.kind == Kind::Count);
                count = Some(header.context("a strange answer")?.number);
            }
            _ => sent = true,
        }
    }
    count.context("no answer")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_round_trips_are_ranked() {
        let latency = Latency::of((1..=1000).rev().map(|n| n * 2).collect()).expect("rounds");
        assert_eq!(
            (latency.min_ns, latency.median_ns, latency.p99_ns, latency.rounds),
            (1, 500, 990, 1000)
        );
        assert_eq!(Latency::of(Vec::new()), None);
    }
}
