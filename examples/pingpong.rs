//! A ping-pong between two processes over queue pairs.
//!
//! ```sh
//! cargo run --release --example pingpong                    # starts both sides
//! cargo run --release --example pingpong -- wait eth0       # waits for the other, at port 7471
//! cargo run --release --example pingpong -- 192.0.2.1:7471  # the other; may end with the rounds
//! ```

mod together;

use erd::verbs::{AddressHandle, Device, Done, Error, OwningQueuePair, ProtectionDomain, QpSizes};
use std::time::{Duration, Instant};
use together::Other;

const ROUNDS: u32 = 20_000;
const BYTES: usize = 64;
/// A side that is silent for so long is gone: a receive from anyone never fails by itself.
const PATIENCE: Duration = Duration::from_secs(10);
/// Polls between two looks at the clock.
const POLLS: u32 = 1 << 16;
/// Where a side that waits can be found.
const PORT: u16 = 7471;

fn open(device: &Device, port: u16) -> Result<(ProtectionDomain, OwningQueuePair), Error> {
    let context = device.open()?;
    let pd = context.alloc_pd();
    let qp = OwningQueuePair::new(&context, &pd, QpSizes { port, ..QpSizes::default() })?;
    Ok((pd, qp))
}

/// The next completion; polling, as a program does that wants short round trips.
fn done(qp: &OwningQueuePair) -> Result<Done, Error> {
    let mut silent_since = None;
    loop {
        for _ in 0..POLLS {
            if let Some(done) = qp.poll()? {
                return Ok(succeeded(done));
            }
        }
        let since = *silent_since.get_or_insert_with(Instant::now);
        assert!(since.elapsed() < PATIENCE, "the other side is silent");
    }
}

fn succeeded(done: Done) -> Done {
    assert!(done.completion.is_ok(), "{}", done.completion.reason());
    done
}

/// Sends a message, and waits until it is sent and another has come.
fn round(
    qp: &OwningQueuePair,
    peer: &AddressHandle,
    buffers: [Vec<u8>; 2],
) -> Result<[Vec<u8>; 2], Error> {
    let [out, into] = buffers;
    qp.recv(0, into)?;
    qp.send(0, peer, out, None)?;
    Ok([done(qp)?.buffer, done(qp)?.buffer])
}

/// Sends first. The number of rounds comes with the first message.
fn play(peer: &str, rounds: u32) -> Result<(), Error> {
    let address = peer.parse().unwrap_or_else(|_| panic!("{peer} is not address:port"));
    let (pd, qp) = open(&Device::towards(address)?, 0)?;
    let peer = pd.create_ah(address)?;
    qp.send(0, &peer, Vec::new(), Some(rounds.into()))?;
    done(&qp)?;
    let mut buffers = [vec![b'p'; BYTES], vec![0; BYTES]];
    let start = Instant::now();
    for _ in 0..rounds {
        buffers = round(&qp, &peer, buffers)?;
    }
    let one_way_us = start.elapsed().as_secs_f64() * 1e6 / f64::from(rounds) / 2.0;
    println!("{rounds} rounds of {BYTES} bytes: {one_way_us:.2} us one way");
    Ok(())
}

/// Answers each message with another, until all have come.
fn answer(device: &Device, port: u16, tell: impl FnOnce(&str)) -> Result<(), Error> {
    let (pd, qp) = open(device, port)?;
    qp.recv(0, Vec::new())?;
    tell(&qp.name().to_string());
    // The other side may be started at any time.
    let first = succeeded(qp.wait(None)?.expect("it waits without end")).completion;
    let peer = pd.create_ah(first.peer.expect("a message has a sender"))?;
    let rounds = first.imm_data.expect("the first message says how many follow");
    qp.recv(0, vec![0; BYTES])?;
    let mut buffers = [done(&qp)?.buffer, vec![0; BYTES]];
    for _ in 1..rounds {
        buffers = round(&qp, &peer, buffers)?;
    }
    let [out, _] = buffers;
    qp.send(0, &peer, out, None)?;
    done(&qp)?;
    Ok(())
}

fn main() -> Result<(), Error> {
    let args: Vec<String> = std::env::args().collect();
    let rounds = |text: Option<&String>| text.map_or(ROUNDS, |text| text.parse().expect("rounds"));
    match args.get(1).map(String::as_str) {
        Some("wait") => {
            let device = args.get(2).map_or("lo", String::as_str);
            answer(&Device::find(device)?, PORT, |name| println!("waiting at {name}"))
        }
        Some("with") => {
            let told = together::end_with_first();
            play(&told.recv().expect("a line"), rounds(args.get(2)))
        }
        Some(peer) if peer.contains(':') => play(peer, rounds(args.get(2))),
        _ => {
            let rounds = rounds(args.get(1)).to_string();
            let mut other = Other::with_args(&["with".to_owned(), rounds]);
            answer(&Device::find("127.0.0.1")?, 0, |name| other.tell(name))?;
            other.finish();
            Ok(())
        }
    }
}
