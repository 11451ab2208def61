//! End-to-end tests: they build the provider, start real programs over it, and judge what the programs wrote
//! and what erd's counters show. The programs are C programs of `tests/c`, libfabric's own, MPI ranks and the
//! examples. Some run in network namespaces, in a virtual machine with Soft-RoCE devices, under sanitizers
//! or valgrind, or on an installed package.
//!
//! Each module adds its steps to a [`report::Report`], and `cargo xtask test` sets their order. Other commands of
//! `xtask` use the parts below the steps: [`process`] runs a program within a time limit, [`setup`] installs and builds
//! what is missing, [`fabric`] gives a program a libfabric and a provider.
//!
//! A step that cannot run here gives the reason, and counts as skipped. A step that checked nothing has failed.

pub mod apart;
pub mod clients;
pub mod cprograms;
pub mod fabric;
pub mod fabtests;
pub mod keyed;
pub mod kv;
pub mod layout;
pub mod mpi;
pub mod mpi4py;
pub mod multipath;
pub mod netns;
pub mod package;
pub mod path_mtu;
pub mod pingpong;
pub mod process;
pub mod programs;
pub mod report;
pub mod sanitizers;
pub mod setup;
pub mod tool;
pub mod valgrind;
pub mod verbs;
pub mod vm;
pub mod wire;
