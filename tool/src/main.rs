//! The command `erd`: what erd would use on this host (`info`), what its processes are doing
//! (`top`), and what keeps it from working well (`doctor`).

#![forbid(unsafe_code)]

mod doctor;
mod info;
mod system;
mod text;
mod top;

use clap::{Args, Parser, Subcommand};
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
    /// Check this host and environment, and say how to mend what is amiss
    Doctor(DoctorArgs),
    /// Watch the flows of all processes of this host
    Top(TopArgs),
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
