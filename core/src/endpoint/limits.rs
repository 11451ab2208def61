//! Limits of an endpoint that several of its parts keep to.

/// Longest message that completes when it is copied, in bytes. A write that asks for no level does so up to
/// [`ORDERED_BYTES`]: it is met whole and in its turn, so that a read or a message that is posted after its
/// completion is met after it. A longer write may be overtaken on its way. The copy costs a ping-pong of
/// 64 KiB 4 to 7 % of its time, and saves an exchange of 33,000 to 65,536 B 20 to 45 %, since nobody waits for an
/// acknowledgement. (A payload that the peer reads where it lies is announced first. So the copy is made before
/// its pages are lent: they are the copy's.)
pub const EARLY_BYTES_MAX: u64 = 64 << 10;
/// Operations under way up to which those longer than `inject_size` are copied, and completions reach
/// their queue within the call: who has more under way has no need to wait for one.
pub const FEW_SENDS: usize = 8;
/// Reads up to this length are copied when they are met, so that what comes after them does not
/// change their answer: `fi_ep_attr.max_order_war_size` says so.
pub const ORDERED_BYTES: usize = 1024;
/// Unread completions of one endpoint above which buffers of many messages take no more,
/// and no completion data of peers' writes.
pub const UNREAD_MAX: usize = 1 << 16;
/// Least space below which a multi-receive buffer is released, where the application does not say.
pub const MIN_MULTI_RECV_BYTES: usize = 64;
/// Longest message or transfer, in bytes.
pub const MSG_BYTES_MAX: usize = isize::MAX as usize;
