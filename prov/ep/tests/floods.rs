//! Goodput beside a flood (docs/security.md): what the best forgeries cost a receiver, beside as many random bytes. A
//! measurement, which asserts nothing of its times:
//!
//! `cargo test --release --package erd --lib -- --ignored --exact --nocapture ep::tests::floods::goodput`
//!
//! It needs `CAP_NET_RAW`, to see the packets of the loopback, and two idle processors.

use super::node::{Node, Options, ctx, ok};
use super::tap::Tap;
use erd_ffi::fi::*;
use erd_rd::wire::header::PacketKind;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const KEY: [u8; 32] = [9; 32];
const TRAILER_BYTES: usize = 24;
/// Messages under way.
const WINDOW: usize = 32;
/// Time of one measurement.
const SPAN: Duration = Duration::from_millis(700);
/// Measurements of each flood, in turn.
const ROUNDS: usize = 9;
/// Forgeries until the flood looks at the honest packets again.
const LOOK: u64 = 512;
/// Bytes of messages.
const LENGTHS: [usize; 3] = [64, 1_350, 65_536];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Flood {
    None,
    /// Random bytes, as long as an honest packet.
    Random,
    /// An honest packet with the next counters and a wrong proof: each costs the cipher.
    Best,
}

const FLOODS: [Flood; 3] = [Flood::None, Flood::Random, Flood::Best];

/// A packet of the sender's latest, and what the flood is now.
struct State {
    kind: Mutex<Flood>,
    stop: AtomicBool,
    sent: AtomicU64,
}

/// Floods the node at `to` until it is stopped.
fn flood(state: &State, to: SocketAddr) {
    let mut tap = Tap::new().expect("CAP_NET_RAW");
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    socket.connect(to).expect("an address");
    let (mut honest, mut random) = (Vec::new(), 0x9e37_79b9_7f4a_7c15_u64);
    while !state.stop.load(Ordering::Relaxed) {
        while let Some(seen) = tap.next() {
            let data =
                |bytes: &[u8]| bytes.first().is_some_and(|b| b & 15 == PacketKind::Data as u8);
            let newest = seen.into_iter().rfind(|seen| seen.to == to && data(&seen.bytes));
            honest = newest.map_or(honest, |seen| seen.bytes);
        }
        let kind = *state.kind.lock().expect("no panic holds it");
        if kind == Flood::None || honest.len() < TRAILER_BYTES {
            std::thread::sleep(Duration::from_millis(1));
            continue;
        }
        let mut forged = honest.clone();
        let at = forged.len() - TRAILER_BYTES;
        let counter = u64::from_be_bytes(forged[at..at + 8].try_into().expect("8 bytes"));
        for ahead in 0..LOOK {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            match kind {
                Flood::Best => {
                    forged[at..at + 8].copy_from_slice(&(counter + 4096 + ahead).to_be_bytes());
                    forged[at + 8..at + 16].copy_from_slice(&random.to_be_bytes());
                }
                _ => forged.chunks_mut(8).for_each(|part| {
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    part.copy_from_slice(&random.to_be_bytes()[..part.len()]);
                }),
            }
            let _ = socket.send(&forged);
        }
        state.sent.fetch_add(LOOK, Ordering::Relaxed);
    }
}

/// Bytes a second that arrive at `b`, and forgeries a second beside them.
fn measure(a: &Node, b: &Node, target: fi_addr_t, len: usize, state: &State) -> (f64, f64) {
    let bytes = a.lend(&vec![7; len]);
    let mut got = vec![0_u8; len];
    let (mut sent, mut received) = (0, 0);
    let (begun, forged) = (Instant::now(), state.sent.load(Ordering::Relaxed));
    // SAFETY: the endpoint is open, and the bytes stay until it is closed.
    let send = || unsafe {
        let msg = &*(*a.ep).msg;
        (msg.send)(a.ep, bytes.as_ptr().cast(), len, std::ptr::null_mut(), target, ctx(1))
    };
    loop {
        let over = begun.elapsed() >= SPAN;
        while !over && sent - received < WINDOW {
            ok("recv", b.recv(&mut got, FI_ADDR_UNSPEC, 2));
            ok("send", send());
            sent += 1;
        }
        received += b.read(16).map_or(0, |done| done.len());
        let _ = a.read(16);
        if over && received == sent {
            break;
        }
    }
    let seconds = begun.elapsed().as_secs_f64();
    let forged = state.sent.load(Ordering::Relaxed) - forged;
    ((received * len) as f64 / seconds, forged as f64 / seconds)
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

#[test]
#[ignore = "a measurement: its command is in the module's text"]
fn goodput() {
    let node = || Node::new(Options { key: Some(&KEY), ..Options::default() });
    let (a, b) = (node(), node());
    let target = a.knows(&b);
    let to = b.name();
    let state = State {
        kind: Mutex::new(Flood::None),
        stop: AtomicBool::new(false),
        sent: AtomicU64::new(0),
    };
    std::thread::scope(|scope| {
        scope.spawn(|| flood(&state, to));
        for len in LENGTHS {
            let mut all = FLOODS.map(|_| (Vec::new(), Vec::new()));
            for _ in 0..ROUNDS {
                for (kind, all) in FLOODS.into_iter().zip(&mut all) {
                    *state.kind.lock().expect("no panic holds it") = kind;
                    let (goodput, forged) = measure(&a, &b, target, len, &state);
                    all.0.push(goodput);
                    all.1.push(forged);
                }
            }
            let [none, random, best] =
                all.map(|(goodput, forged)| (median(goodput), median(forged)));
            println!(
                "{len} bytes: {:.1} MB/s alone; {:.1} beside {:.0} k/s random; {:.1} beside {:.0} k/s of the best; ratio {:.2}",
                none.0 / 1e6,
                random.0 / 1e6,
                random.1 / 1e3,
                best.0 / 1e6,
                best.1 / 1e3,
                best.0 / random.0
            );
        }
        state.stop.store(true, Ordering::Relaxed);
    });
}
