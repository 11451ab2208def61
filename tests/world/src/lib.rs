//! A world in which real engines run in virtual time, under faults, and are judged.
//!
//! Read in this order: [`sim`] (nodes, network and clock), [`node`] (one engine, and the library's loop that runs it),
//! [`port`] (its ports instead of sockets), [`lend`] (its memory), [`app`] (the driver's receives), [`ledger`] (the
//! truth and the judgement), [`memory`] (the same for requests to memory), [`net`] (faults), [`events`] (the event
//! queue), [`record`] (what a model of the protocol reads of a run), [`overlap`] (bytes that come twice), [`adversary`]
//! (whoever sees and adds), [`nonces`] (keys), [`keyed`] and [`campaign`] (attacks on them), [`swarm`] (random runs from
//! a seed), [`one_host`] (those whose nodes share memory), [`shipped`] (the same of endpoints as they ship), [`seeds`] (the seeds to run), [`script`] (short worlds for
//! scripted tests), [`neighbours`] (such of two nodes of one host), [`dead_paths`] (such of two nodes whose paths are dead), [`controllers`] (congestion controllers without an engine), [`fuzz`] and [`fuzz_lane`] (the bodies of the fuzz
//! targets), [`toy`] (a key without secrets for them).

pub mod adversary;
pub mod app;
pub mod campaign;
pub mod controllers;
pub mod dead_paths;
pub mod events;
pub mod fuzz;
pub mod fuzz_lane;
pub mod garbage;
pub mod keyed;
pub mod lanes;
pub mod ledger;
pub mod lend;
pub mod memory;
pub mod neighbours;
pub mod net;
pub mod node;
pub mod nonces;
pub mod one_host;
pub mod overlap;
pub mod pattern;
pub mod port;
pub mod record;
pub mod rng;
pub mod scheme;
pub mod script;
pub mod seeds;
pub mod shipped;
pub mod sim;
pub mod swarm;
#[path = "../../../rd/tests/keyed/mod.rs"]
pub mod toy;
