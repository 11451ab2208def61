//! The command `erd`: what erd would use on this host (`info`), what its processes are doing
//! (`top`), what keeps it from working well (`doctor`), and how it does towards another host
//! (`ping`, `perf`, and `serve` there).

#![forbid(unsafe_code)]

mod doctor;
mod info;
mod keygen;
mod peer;
mod perf;
mod ping;
mod serve;
mod system;
mod text;
mod top;

use clap::{Args, Parser, Subcommand};
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Debug, Parser)]
#[command(
    name = "erd",
    version,
    about = "Reliable datagrams: what they use on this host, how they do, what ails them"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show interfaces, RDMA devices, what the kernel grants, settings, and what would be chosen
    Info(InfoArgs),
    /// Check this host and environment, and say how to repair what is wrong
    Doctor(DoctorArgs),
    /// Watch the flows of all processes of this host
    Top(TopArgs),
    /// Measure round trips on each path to a host where `erd serve` runs
    Ping(PingArgs),
    /// Measure latency and rate by message size to a host where `erd serve` runs
    Perf(PerfArgs),
    /// Answer `erd ping` and `erd perf`
    Serve(ServeArgs),
    /// Make the key of a job, with which erd proves and hides what it sends
    Keygen(KeygenArgs),
}

/// Options of `info`.
#[derive(Debug, Args)]
pub struct InfoArgs {
    /// List every setting, not only those that were changed
    #[arg(long)]
    all: bool,
    /// Write JSON
    #[arg(long)]
    json: bool,
}

/// Options of `doctor`.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Write JSON: an array with one object for each finding
    #[arg(long)]
    json: bool,
    /// Show only what is amiss
    #[arg(long, short)]
    quiet: bool,
}

/// Options of `keygen`.
#[derive(Debug, Args)]
pub struct KeygenArgs {
    /// The file to make
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

/// Options of `top`.
#[derive(Debug, Args)]
pub struct TopArgs {
    /// Seconds between two looks
    #[arg(long, short, value_name = "SECONDS", default_value_t = 1.0, value_parser = seconds)]
    interval: f64,
    /// Look twice, print one table and end
    #[arg(long)]
    once: bool,
    /// Write a line of JSON for each look, with totals since the flows began
    #[arg(long)]
    json: bool,
    /// Look once and write Prometheus' text format
    #[arg(long, conflicts_with_all = ["json", "once"])]
    prometheus: bool,
}

/// Options of `ping`.
#[derive(Debug, Args)]
pub struct PingArgs {
    /// Where `erd serve` runs: host, host:port, address or [address]:port
    server: String,
    /// Pings on each path
    #[arg(long, short, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    count: u32,
    /// Seconds from one ping to the next
    #[arg(long, short, default_value_t = 0.5, value_parser = pause)]
    interval: f64,
    /// Paths, each from a port of its own (default: 4, and 1 on loopback)
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=64))]
    paths: Option<u16>,
    /// Bytes of a message, 16 to 1048576
    #[arg(long, short, default_value_t = 64, value_parser = clap::value_parser!(u32).range(16..=1 << 20))]
    size: u32,
    /// Write JSON: an array with one object for each path
    #[arg(long)]
    json: bool,
}

/// Options of `perf`.
#[derive(Debug, Args)]
pub struct PerfArgs {
    /// Where `erd serve` runs: host, host:port, address or [address]:port
    server: String,
    /// Bytes of messages, 16 to 1048576, separated by commas
    #[arg(long, value_delimiter = ',', default_value = "64,1024,8192,65536,1048576")]
    sizes: Vec<usize>,
    /// Seconds for each measurement
    #[arg(long, default_value_t = 1.0, value_parser = seconds)]
    seconds: f64,
    /// Messages under way while the rate is measured
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=1024))]
    outstanding: u16,
    /// Congestion controller (default: as FI_ERD_CC says)
    #[arg(long)]
    controller: Option<String>,
    /// Paths to spray over (default: as FI_ERD_PATHS says)
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=256))]
    paths: Option<u16>,
    /// Write JSON
    #[arg(long)]
    json: bool,
    /// Draw a plot
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

/// Options of `serve`.
#[derive(Debug, Args)]
pub struct ServeArgs {
    /// Interface, by name or address (default: the fastest)
    #[arg(long)]
    interface: Option<String>,
    /// UDP port; 0 for a free one
    #[arg(long, short, default_value_t = peer::PORT)]
    port: u16,
}

fn pause(text: &str) -> Result<f64, String> {
    let valid = |seconds: &f64| (0.0..=3600.0).contains(seconds);
    text.parse().ok().filter(valid).ok_or_else(|| "a number from 0 to 3600".to_owned())
}

fn seconds(text: &str) -> Result<f64, String> {
    let valid = |seconds: &f64| (0.1..=3600.0).contains(seconds);
    text.parse().ok().filter(valid).ok_or_else(|| "a number from 0.1 to 3600".to_owned())
}

fn main() -> ExitCode {
    // FI_LOG_LEVEL shows what the provider's own code has to say.
    let _ = erd_ffi::log::install();
    let outcome = match Cli::parse().command {
        Command::Info(args) => info::run(&args).map(|()| true),
        Command::Doctor(args) => doctor::run(&args),
        Command::Top(args) => top::run(&args).map(|()| true),
        Command::Ping(args) => ping::run(&args),
        Command::Perf(args) => perf::run(&args).map(|()| true),
        Command::Serve(args) => serve::run(&args).map(|()| true),
        Command::Keygen(args) => keygen::run(&args).map(|()| true),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("erd: {error:#}");
            ExitCode::from(2)
        }
    }
}
