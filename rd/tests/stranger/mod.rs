//! What a stranger without any secret says. The provider's tests say it too, over sockets.

#![allow(dead_code, reason = "three test programs compile this module, and each uses its part")]

use erd_rd::cc::AckPolicy;
use erd_rd::wire::ack::AckState;
use erd_rd::wire::header::{FLAG_EAGER, HEADER_BYTES, Header, PacketKind, seal};
use erd_rd::wire::record::{MsgHeader, Record, emit_eager_header};
use erd_rd::wire::setup::Greeting;
use erd_rd::wire::window::Window;
use std::net::SocketAddr;

/// The first greeting of the process of epoch 1 at this name.
pub fn greeting_from(name: SocketAddr) -> Greeting {
    greeting_of(1, name)
}

/// The first greeting of the process of this epoch, at least 1, at this name. Its ids tell both.
pub fn greeting_of(epoch: u64, name: SocketAddr) -> Greeting {
    Greeting {
        features: 4,
        session: epoch << 30 | u64::from(name.port()),
        asker: epoch << 29 | u64::from(name.port()),
        epoch,
        incarnation: 1,
        first_psn: 0,
        first_order: 0,
        datagram_bytes: 1472,
        paths: 1,
        ack_policy: AckPolicy::NackOnly,
        window: Window::of_bytes(1 << 20),
        eager_credit_bytes: 1 << 20,
        order_window: 1 << 16,
        psn_window: 1 << 14,
        cookie: 0,
        gave_up: 0,
        echo_sent_at_ns: 0,
        random: None,
        name,
    }
}

/// A packet with this header and body.
pub fn packet(mut h: Header, body: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = vec![0; HEADER_BYTES];
    body(&mut out);
    h.s_len = (out.len() - HEADER_BYTES) as u16;
    let mut head = Vec::new();
    h.emit(&mut head);
    out[..HEADER_BYTES].copy_from_slice(&head);
    seal(&mut out, 0, crc32c::crc32c_append);
    out
}

/// A hello with this greeting.
pub fn hello(greeting: &Greeting) -> Vec<u8> {
    packet(Header::new(PacketKind::Hello, 0), |out| greeting.emit(out))
}

/// A bundle of one record.
pub fn bundle(h: Header, record: &Record) -> Vec<u8> {
    packet(h, |out| {
        out.extend(1u16.to_be_bytes());
        record.emit(out);
    })
}

/// A message of no kind in particular.
pub fn message(order: u32, len_bytes: u64) -> MsgHeader {
    MsgHeader { order, op: 0, tag: None, data: None, match_notice: false, len_bytes }
}

/// The first byte of an eager message.
pub fn eager_byte(mut h: Header, msg: &MsgHeader) -> Vec<u8> {
    (h.long, h.flags, h.s_len) = (true, FLAG_EAGER, 1);
    let mut bytes = Vec::new();
    h.emit(&mut bytes);
    emit_eager_header(&mut bytes, msg);
    seal(&mut bytes, 0, crc32c::crc32c_append);
    bytes.push(7);
    bytes
}

/// The acknowledgement state of a side that has received nothing.
pub fn nothing_received() -> AckState {
    AckState {
        cum_psn: 0,
        high_psn: 0,
        latest_sent_at_ns: 0,
        echo_sent_at_ns: 0,
        hold_ns: 0,
        echo_path: 0,
        flags: 0,
        spurious: 0,
        ce_bytes: 0,
        recv_bytes: 0,
        eager_limit_bytes: 1 << 20,
        order_limit: 1 << 16,
        window: Window::of_bytes(1 << 20),
    }
}
