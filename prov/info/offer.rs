//! The provider's capabilities and default attributes.

use erd_core::endpoint::{MSG_BYTES_MAX, ORDERED_BYTES};
use erd_core::keys::REGIONS_MAX;
use erd_core::registration::MR_IOV_LIMIT;
use erd_core::settings::{INJECT_BYTES, IOV_LIMIT, QUEUE_SIZE_MAX, RX_SIZE_MAX};
use erd_ffi::fi::*;
use erd_rd::keys::KEYS_MAX;
use erd_rd::wire::remote::TARGETS_MAX;

/// Transfers of a transmitter, each granted when asked for.
pub const TX_CAPS: u64 =
    FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_FENCE | FI_TRIGGER | FI_SEND | FI_READ | FI_WRITE;
/// Transfers of a receiver, likewise.
pub const RX_PRIMARY_CAPS: u64 = FI_MSG
    | FI_TAGGED
    | FI_RMA
    | FI_ATOMIC
    | FI_TRIGGER
    | FI_RECV
    | FI_REMOTE_READ
    | FI_REMOTE_WRITE
    | FI_DIRECTED_RECV;
/// Capabilities that a receiver always has, except `FI_SOURCE`.
pub const RX_SECONDARY_CAPS: u64 = FI_MULTI_RECV | FI_RMA_EVENT | FI_SOURCE;
/// All capabilities of a receiver.
pub const RX_CAPS: u64 = RX_PRIMARY_CAPS | RX_SECONDARY_CAPS;
/// Capabilities of every interface, including loopback.
pub const DOMAIN_CAPS: u64 = FI_LOCAL_COMM | FI_REMOTE_COMM;
/// Capabilities that change the provider's behaviour, or that some applications use whenever they see them: granted
/// when asked for, and hidden otherwise.
pub const HINTED_CAPS: u64 = FI_NAMED_RX_CTX | FI_SOURCE_ERR | FI_HMEM | HINTED_DOMAIN_CAPS;
/// The hinted capabilities of a domain.
pub const HINTED_DOMAIN_CAPS: u64 = FI_SHARED_AV | FI_AV_USER_ID | FI_PEER | FI_DIRECTED_RECV;
/// Everything else.
pub const CAPS: u64 = TX_CAPS | RX_CAPS | DOMAIN_CAPS;
/// Capabilities granted only when asked for.
pub const PRIMARY_CAPS: u64 = TX_CAPS | RX_PRIMARY_CAPS;
/// Directions of messages. A request for messages without a direction gets both.
pub const DIRECTION_CAPS: u64 = FI_SEND | FI_RECV;
/// Directions of RMA and atomics. A request for these without a direction gets all.
pub const RMA_DIRECTION_CAPS: u64 = FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;

/// Operation flags that a transmitter can have as its default.
pub const TX_OP_FLAGS: u64 = FI_INJECT
    | FI_COMPLETION
    | FI_INJECT_COMPLETE
    | FI_TRANSMIT_COMPLETE
    | FI_DELIVERY_COMPLETE
    | FI_MATCH_COMPLETE;
/// Likewise a receiver.
pub const RX_OP_FLAGS: u64 = FI_COMPLETION | FI_MULTI_RECV;

/// Matching follows the send order of each peer, and so do short accesses to memory and all atomic ones. Longer ones
/// (over 1 KiB) happen in any order.
pub const MSG_ORDER: u64 = FI_ORDER_SAS
    | FI_ORDER_RAW
    | FI_ORDER_WAR
    | FI_ORDER_WAW
    | FI_ORDER_RMA_RAW
    | FI_ORDER_RMA_WAR
    | FI_ORDER_RMA_WAW
    | FI_ORDER_ATOMIC_RAR
    | FI_ORDER_ATOMIC_RAW
    | FI_ORDER_ATOMIC_WAR
    | FI_ORDER_ATOMIC_WAW;

/// Number of the erd protocol: it spells its name. The top bit, which marks a provider's own by
/// convention, is clear: Mercury takes the number for an `int` and refuses a negative one.
pub const PROTOCOL: u32 = u32::from_be_bytes([0, b'e', b'r', b'd']);
const _: () = assert!(PROTOCOL <= i32::MAX as u32);
/// The protocol version for libfabric. It is not that of the wire format, which peers settle between themselves
/// (protocol.md 3.4): libfabric's lnx takes no provider with more than its own 1.
pub const PROTOCOL_VERSION: u32 = 1;

/// Endpoints, queues and counters of a domain, as the attributes report them. Each endpoint holds a socket, so the
/// process's file descriptors are the real limit.
const OBJECTS: usize = 1024;

/// Attributes of a transmitter, with the largest queue.
pub const TX: fi_tx_attr = fi_tx_attr {
    caps: TX_CAPS,
    op_flags: TX_OP_FLAGS,
    msg_order: MSG_ORDER,
    inject_size: INJECT_BYTES,
    size: QUEUE_SIZE_MAX,
    iov_limit: IOV_LIMIT,
    rma_iov_limit: TARGETS_MAX,
    ..fi_tx_attr::ZERO
};

/// Attributes of a receiver, with the largest queue.
pub const RX: fi_rx_attr = fi_rx_attr {
    caps: RX_CAPS,
    op_flags: RX_OP_FLAGS,
    msg_order: MSG_ORDER,
    size: RX_SIZE_MAX,
    iov_limit: IOV_LIMIT,
    ..fi_rx_attr::ZERO
};

/// Most receives to report to a provider that links others (`FI_PEER`) and has the receives itself: libfabric's `lnx`
/// shows the number as its own, and then refuses more.
pub const PEER_RX_SIZE: usize = 1024;
/// Likewise pieces of a message.
pub const PEER_IOV_LIMIT: usize = 4;
/// Likewise keys of an endpoint: such a provider knows none.
pub const PEER_KEYS: usize = 0;

/// Attributes of an endpoint. A tag has 64 bits.
pub const EP: fi_ep_attr = fi_ep_attr {
    r#type: FI_EP_RDM,
    protocol: PROTOCOL,
    protocol_version: PROTOCOL_VERSION,
    max_msg_size: MSG_BYTES_MAX,
    max_order_raw_size: ORDERED_BYTES,
    max_order_war_size: ORDERED_BYTES,
    max_order_waw_size: ORDERED_BYTES,
    mem_tag_format: u64::MAX,
    tx_ctx_cnt: 1,
    rx_ctx_cnt: 1,
    ..fi_ep_attr::ZERO
};

/// Attributes of a domain. No registration mode is required.
pub const DOMAIN: fi_domain_attr = fi_domain_attr {
    threading: FI_THREAD_SAFE,
    control_progress: FI_PROGRESS_MANUAL,
    data_progress: FI_PROGRESS_MANUAL,
    resource_mgmt: FI_RM_ENABLED,
    av_type: FI_AV_UNSPEC,
    mr_key_size: size_of::<u64>(),
    cq_data_size: size_of::<u64>(),
    cq_cnt: OBJECTS,
    ep_cnt: OBJECTS,
    tx_ctx_cnt: OBJECTS,
    rx_ctx_cnt: OBJECTS,
    max_ep_tx_ctx: 1,
    max_ep_rx_ctx: 1,
    max_ep_stx_ctx: OBJECTS,
    max_ep_srx_ctx: OBJECTS,
    max_ep_auth_key: KEYS_MAX,
    cntr_cnt: OBJECTS,
    mr_iov_limit: MR_IOV_LIMIT,
    caps: DOMAIN_CAPS,
    mr_cnt: REGIONS_MAX,
    max_cntr_value: u64::MAX,
    max_err_cntr_value: u64::MAX,
    ..fi_domain_attr::ZERO
};
