//! Many peers in one process, for measurements of an endpoint that talks to thousands: each is an engine of its own, with
//! an address of its own in 127.0.0.0/8, and all share one socket bound to every address. Each answers a message of
//! at most 64 bytes with one of the same tag and length.
//!
//! The first peer is 127.1.0.0, and peer N is N addresses further. The program prints its port, and ends when its
//! standard input does.
#![forbid(unsafe_code)]

mod peer;
mod socket;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use peer::Peer;
use rustix::time::{ClockId, clock_gettime};
use socket::{Received, Socket};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{SystemTime, UNIX_EPOCH};

/// Address of the first peer.
const FIRST: u32 = 0x7f01_0000;
/// Most peers: addresses up to 127.255.255.254.
const PEERS_MAX: u32 = 0x00fe_ffff;
/// Datagrams that are taken between two looks at the clock's deadlines.
const BATCH: usize = 64;
/// Rounds between two looks at the standard input.
const ROUNDS_PER_LOOK: u32 = 4096;

#[derive(Debug, Parser)]
#[command(
    name = "erd-crowd",
    about = "Thousands of peers behind one socket, which answer each message"
)]
struct Args {
    /// Most peers
    #[arg(long, default_value_t = 16_384)]
    peers: u32,
    /// UDP port of all peers; any free one if 0
    #[arg(long, default_value_t = 0)]
    port: u16,
}

/// The peers, and the time at which each must run.
struct Crowd {
    socket: Socket,
    peers: Vec<Peer>,
    /// Earliest deadlines first. A peer may have several: those that are not its present one are passed over.
    deadlines: BinaryHeap<Reverse<(u64, u32)>>,
}

fn now_ns() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

impl Crowd {
    fn new(args: &Args) -> Result<Crowd> {
        ensure!(
            (1..=PEERS_MAX).contains(&args.peers),
            "--peers must lie between 1 and {PEERS_MAX}"
        );
        let socket = Socket::bind(args.port)?;
        let epoch = SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos() as u64;
        let name = |index| SocketAddr::from((Ipv4Addr::from(FIRST + index), socket.port()));
        let peers = (0..args.peers).map(|index| Peer::new(name(index), epoch, index.into()));
        Ok(Crowd { peers: peers.collect(), deadlines: BinaryHeap::new(), socket })
    }

    /// Runs the peer to which a datagram came.
    fn take(&mut self, now: u64, received: &Received) -> Result<()> {
        let index = u32::from(received.to).wrapping_sub(FIRST);
        let Some(peer) = self.peers.get_mut(index as usize) else { return Ok(()) };
        for datagram in self.socket.datagrams(received) {
            peer.take(now, received.from, datagram);
        }
        self.settle(now, index)
    }

    /// Sends what a peer has to send, and notes when it must run again.
    fn settle(&mut self, now: u64, index: u32) -> Result<()> {
        let peer = &mut self.peers[index as usize];
        let from = Ipv4Addr::from(FIRST + index);
        while let Some(burst) = peer.next_burst(now) {
            self.socket.send(from, burst)?;
        }
        if let Some(at) = peer.new_deadline(now) {
            self.deadlines.push(Reverse((at, index)));
        }
        Ok(())
    }

    fn run_timers(&mut self, now: u64) -> Result<()> {
        while let Some(Reverse((at, index))) =
            self.deadlines.peek().copied().filter(|Reverse((at, _))| *at <= now)
        {
            self.deadlines.pop();
            let peer = &mut self.peers[index as usize];
            if peer.is_due(at) {
                peer.run_timers(now);
                self.settle(now, index)?;
            }
        }
        Ok(())
    }

    fn round(&mut self) -> Result<()> {
        for _ in 0..BATCH {
            let Some(received) = self.socket.receive()? else { break };
            self.take(now_ns(), &received)?;
        }
        self.run_timers(now_ns())
    }
}

fn main() -> Result<()> {
    let args = Args::parse();
    let mut crowd = Crowd::new(&args)?;
    println!("{}", crowd.socket.port());
    std::io::stdout().flush().context("standard output")?;
    while !socket::is_over(std::io::stdin())? {
        for _ in 0..ROUNDS_PER_LOOK {
            crowd.round()?;
        }
    }
    Ok(())
}
