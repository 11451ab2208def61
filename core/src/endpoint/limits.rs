//! Limits of an endpoint that several of its parts share.

/// Longest message that completes when it is copied, in bytes. A write that asks for no level does so up to
/// [`ORDERED_BYTES`]: the target applies it whole and in its turn, so a read or message posted after its completion
/// arrives after it. A longer write may be overtaken. The copy costs a ping-pong of 64 KiB 4 to 7 % of its time. It
/// saves an exchange of 33,000 to 65,536 B 20 to 45 %, since nobody waits for an acknowledgement.
pub const EARLY_BYTES_MAX: u64 = 64 << 10;
/// Operations under way up to which an endpoint copies those longer than `inject_size`, and puts completions into their
/// queue within the call. An application with more under way need not wait for one.
pub const FEW_SENDS: usize = 8;
/// The target copies reads up to this length when it meets them, so later operations do not change their answer
/// (`fi_ep_attr.max_order_war_size`).
pub const ORDERED_BYTES: usize = 1024;
/// Unread completions of one endpoint above which it takes no more messages into multi-receive buffers, and no
/// completion data of peers' writes.
pub const UNREAD_MAX: usize = 1 << 16;
/// Least space below which a multi-receive buffer is released, where the application does not say.
pub const MIN_MULTI_RECV_BYTES: usize = 64;
/// Longest message or transfer, in bytes.
pub const MSG_BYTES_MAX: usize = isize::MAX as usize;
