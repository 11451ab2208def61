//! Endpoints over loopback, in one process, through libfabric's tables.

mod addresses;
mod admission;
mod contexts;
mod early;
mod failures;
mod floods;
mod forgeries;
mod held;
mod keys;
mod lanes;
mod late;
mod many;
mod match_order;
mod memory;
mod monitor;
mod node;
mod ports;
mod refused;
mod semantics;
mod strangers;
mod stress;
mod tap;
mod transfers;
mod triggers;
mod waiting;
