//! Feeds one controller with acknowledgements of single packets, for counting what one costs:
//! `controller_cost SCHEME PATHS ACKS NETWORK`, where the network is `ecn` (one packet in eight is
//! marked) or `noecn`. Run it under callgrind with two numbers of acknowledgements; the difference is
//! the cost of those between. `--toggle-collect` leaves this loop out of it. `cargo xtask cost` does
//! so.

use erd_rd::cc::{AckSample, FlowParams, SentBurst, schemes};
use std::hint::black_box;

/// Bytes of a packet.
const PACKET_BYTES: u32 = 4096;

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let [_, scheme, paths, acks, network] = args.as_slice() else {
        panic!("usage: controller_cost SCHEME PATHS ACKS ecn|noecn");
    };
    let marks = match network.as_str() {
        "ecn" => true,
        "noecn" => false,
        other => panic!("{other} is neither ecn nor noecn"),
    };
    let scheme = schemes::by_name(scheme).expect("a scheme's name");
    let paths = paths.parse().expect("a number of paths");
    let acks: u64 = acks.parse().expect("a number of acknowledgements");
    let params = FlowParams {
        now: 0,
        datagram_bytes: PACKET_BYTES,
        paths,
        first_rtt_ns: 12_000,
        base_rtt_ns: 12_000,
        link_bytes_per_s: 50_000_000_000,
        burst_bytes: 0,
        trimming: false,
    };
    let mut flow = scheme.build(&params, 1);
    let in_flight_bytes = 100 * u64::from(PACKET_BYTES);
    let mut bits = 1_u32;
    for at in 0..acks {
        // A linear congruence: round trips of 12 to 20 us, one mark in eight.
        bits = bits.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let now = 100_000 + at * 82;
        let path = flow.next_path(now);
        flow.on_sent(&SentBurst {
            now,
            bytes: PACKET_BYTES,
            packets: 1,
            path,
            in_flight_bytes,
            retransmission: false,
        });
        let rtt_ns = 12_000 + u64::from(bits >> 19);
        flow.on_ack(&AckSample {
            now,
            sent_at: now.saturating_sub(rtt_ns),
            acked_bytes: PACKET_BYTES.into(),
            acked_packets: 1,
            rtt_ns: Some(rtt_ns),
            path,
            ce_bytes: if marks && bits >> 29 == 0 { PACKET_BYTES } else { 0 },
            lag_packets: 0,
            in_flight_bytes,
            app_limited: false,
        });
        black_box((flow.window_bytes(), flow.pace_bytes_per_s()));
    }
}
