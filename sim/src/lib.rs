//! A packet-level network simulator that runs the erd protocol engine itself in virtual time.
//!
//! [`fabric`] joins hosts, links and switches to a network and runs the events; its blueprints say what a network looks
//! like. A [`queue::Queue`] marks, trims and loses packets. A [`host::SimHost`] does what its tasks say
//! ([`work`]) over a [`transport`]: one [`erd_rd::Endpoint`], run over a [`port::SimPort`] by the loop that also runs it in
//! the library. [`patterns`] makes work: permutations, incasts, collectives, flows by a distribution. [`read`] reads
//! networks and work from files. [`topology`] builds
//! a bottleneck, [`scenario`] runs endless flows over it and measures, [`trial`] breaks paths and measures how traffic
//! reacts, [`tables`] prints what the repository keeps under `sim/tables`. [`series`] samples a run over time,
//! [`report`] shows it.
//!
//! Nothing depends on the machine: one seed gives one run, to the last event.
#![deny(unsafe_code)]

pub mod advise;
mod baselines;
mod calendar;
pub mod compare;
pub mod critical;
mod days;
mod exchange;
pub mod experiment;
pub mod fabric;
mod first;
mod header;
pub mod hop;
pub mod host;
pub mod ids;
pub mod info_path;
pub mod link;
pub mod meter;
pub mod mutants;
mod oblivious;
mod order;
pub mod packet;
pub mod patterns;
#[allow(
    unsafe_code,
    reason = "the trait `Port` has unsafe methods: a burst names its bytes by pointers, for sendmsg(2)"
)]
pub mod port;
pub mod queue;
pub mod read;
pub mod report;
pub mod reproduce;
pub mod scenario;
pub mod schemes;
pub mod series;
pub mod summary;
pub mod tables;
mod tasks;
pub mod time;
pub mod topology;
pub mod transport;
pub mod trial;
pub mod wire;
pub mod work;
