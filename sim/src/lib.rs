//! A packet-level network simulator that runs the erd protocol engine itself in virtual time.
//!
//! The pieces do not know each other's internals, so they combine to whole fabrics: a [`link::Link`] queues, marks,
//! trims, loses and delays packets; a [`switch::Switch`] picks the link on which a packet leaves; a [`host::SimHost`]
//! runs one [`erd_rd::Endpoint`], by the loop that also runs it in the library, over a [`port::SimPort`];
//! [`network::Network`] joins them and runs the events. [`topology`] builds networks, [`scenario`] runs flows over them
//! and measures, [`trial`] breaks paths and measures how traffic reacts, [`tables`] prints what the repository keeps
//! under `sim/tables`.
//!
//! Nothing depends on the machine: one seed gives one run, to the last event.
#![deny(unsafe_code)]

pub mod events;
pub mod host;
pub mod ids;
pub mod link;
pub mod meter;
pub mod network;
pub mod packet;
#[allow(
    unsafe_code,
    reason = "the trait `Port` has unsafe methods: a burst names its bytes by pointers, for sendmsg(2)"
)]
pub mod port;
pub mod scenario;
pub mod schemes;
pub mod switch;
pub mod tables;
pub mod time;
pub mod topology;
pub mod trial;
