//! `erd serve`: the server for `erd ping` and `erd perf`.

use crate::ServeArgs;
use crate::peer::{HEADER_BYTES, Header, Kind, MESSAGE_BYTES_MAX, Side};
use anyhow::{Context as _, Result};
use erd::verbs::{AddressHandle, ContextOptions, Device, Done, Opcode};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::SocketAddr;
use std::time::Duration;

/// Receives posted for messages.
const RECEIVES: usize = 64;
/// Most peers kept. When there are more, all are dropped, and counted again.
const PEERS_MAX: usize = 1024;
/// Most answers under way, of 1 MiB at most: this bounds the memory that hosts which take no answers can claim.
const SENDS_MAX: u32 = 256;
/// Longest sleep without a message.
const SLEEP: Duration = Duration::from_secs(3600);

/// State of a client.
struct Peer {
    handle: AddressHandle,
    /// Bytes of data received.
    bytes: u64,
}

/// Serves until it is killed.
///
/// # Errors
/// If the interface is unusable, or the port is taken.
pub fn run(args: &ServeArgs) -> Result<()> {
    let device = match &args.interface {
        Some(name) => Device::find(name)?,
        None => Device::list()?
            .into_iter()
            .next()
            .context("no interface can be used: see erd doctor")?,
    };
    let side = Side::open(&device, &ContextOptions::new(), (args.port, SENDS_MAX))?;
    println!("serving at {} on {}, controller {}", side.qp.name(), device.name(), side.controller);
    for number in 0..RECEIVES {
        side.qp.recv(number as u64, vec![0; MESSAGE_BYTES_MAX])?;
    }
    let mut peers = HashMap::new();
    loop {
        if let Some(done) =
            side.done_within(SLEEP)?.filter(|done| done.completion.opcode == Opcode::Recv)
        {
            answer(&side, &mut peers, &done)?;
            side.qp.recv(done.completion.wr_id, done.buffer)?;
        }
    }
}

/// Answers a message, if it asks for that. If it cannot, the client asks again or gives up.
fn answer(side: &Side, peers: &mut HashMap<SocketAddr, Peer>, done: &Done) -> Result<()> {
    let message = done.bytes();
    let header = Header::read(message).filter(|_| done.completion.is_ok());
    let (Some(header), Some(name)) = (header, done.completion.peer) else { return Ok(()) };
    if peers.len() >= PEERS_MAX && !peers.contains_key(&name) {
        peers.clear();
    }
    let peer = match peers.entry(name) {
        Entry::Occupied(known) => known.into_mut(),
        Entry::Vacant(new) => new.insert(Peer { handle: side.pd.create_ah(name)?, bytes: 0 }),
    };
    let mut reply = match header.kind {
        Kind::Ping => message.to_vec(),
        Kind::Ask => vec![0; HEADER_BYTES],
        Kind::Data => {
            peer.bytes += message.len() as u64;
            return Ok(());
        }
        Kind::Echo | Kind::Count => return Ok(()),
    };
    let head = match header.kind {
        Kind::Ping => Header { kind: Kind::Echo, ..header },
        _ => Header { kind: Kind::Count, number: peer.bytes },
    };
    head.write(&mut reply);
    if let Err(refused) = side.send(&peer.handle, reply) {
        eprintln!("erd serve: no answer to {name}: {refused:#}");
    }
    Ok(())
}
