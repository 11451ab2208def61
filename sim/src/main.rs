//! Prints the simulator's tables.

use clap::{Parser, Subcommand};

/// The simulator of erd.
#[derive(Parser)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Prints a table.
    Table {
        /// Its name.
        name: String,
        /// Only these schemes.
        #[arg(long)]
        scheme: Vec<String>,
    },
    /// Runs one flow count and tells how fast the simulator is.
    Speed {
        /// Scheme.
        #[arg(default_value = "erd")]
        scheme: String,
        /// Flows.
        #[arg(default_value_t = 32)]
        flows: u32,
    },
}
fn main() {
    match Args::parse().command {
        Command::Table { .. } => {}
        Command::Speed { scheme, flows } => {
            let mut s = erd_sim::scenario::Scenario::new(std::rc::Rc::new(move || erd_sim::schemes::by_name(&scheme).unwrap()), flows, 1);
            s.measured_rtts = 5000;
            let t = std::time::Instant::now();
            let o = s.run();
            println!("{o:?} {:?}", t.elapsed());
        }
    }
}
