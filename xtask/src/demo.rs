//! `cargo xtask demo`: a ping-pong and a bandwidth run of fi_pingpong, and two ranks of MPI.

use anyhow::{Context, Result};
use erd_e2e::fabric::{Core, ERD, Provider, bytes_text};
use erd_e2e::layout::Layout;
use erd_e2e::mpi::{Kind, Mpi};
use erd_e2e::pingpong::PingPong;
use erd_e2e::{report, setup};

/// Packages to install.
const DEBIAN_PACKAGES: &[&str] =
    &["gcc", "libc6-dev", "libfabric-dev", "libfabric-bin", "python3", "python3-venv"];
/// Sizes of the ping-pong, and the iterations of each.
const LATENCY: &[(u64, u64)] = &[(0, 10_000), (64, 10_000), (1024, 10_000), (8192, 5000)];
/// Sizes of the bandwidth runs.
const BANDWIDTH: &[(u64, u64)] = &[(65_536, 5000), (1_048_576, 1000), (8_388_608, 200)];

/// Runs the demonstration.
///
/// # Errors
/// The first failure.
pub fn run(layout: &Layout) -> Result<()> {
    setup::packages(layout, DEBIAN_PACKAGES)?;
    setup::build_provider(layout)?;
    let provider = Provider::new(layout, ERD);
    println!(
        "\n1. fi_pingpong -e rdm -p erd: two processes, reliable datagrams over UDP on loopback\n"
    );
    ping_pong(layout, &provider)?;
    println!("\n2. MPI: two ranks of MPICH (mpi4py), its own shared memory off\n");
    mpi(layout, &provider)?;
    println!(
        "\nTo use it in your own programs:\n  export FI_PROVIDER_PATH={} FI_PROVIDER=erd",
        layout.provider_dir().display()
    );
    Ok(())
}

fn ping_pong(layout: &Layout, provider: &Provider) -> Result<()> {
    let log = layout.logs.join("demo-pingpong.log");
    let counters = provider.counters(&log);
    let mut table = report::table(["bytes", "round trips", "us one way", "MB/s"]);
    let mut moved_bytes = 0;
    for (size, iterations) in LATENCY.iter().chain(BANDWIDTH) {
        moved_bytes += 2 * size * iterations;
        let (size, iterations) = (size.to_string(), iterations.to_string());
        let mut run = PingPong::new(&["-m", "tagged", "-S", &size, "-I", &iterations]);
        run.args.retain(|arg| *arg != "-c");
        let output = run.run(&Core::system(), provider, &counters, &log)?;
        let words: Vec<&str> = result_row(&output).context("fi_pingpong printed no result")?;
        table.add_row([&size, &iterations, words[6], words[5]]);
    }
    println!("{table}\n");
    println!("{}", counters.proof(moved_bytes)?);
    Ok(())
}

/// The words of fi_pingpong's one row: bytes, sent, acknowledged, total, time, MB/s, us, M/s.
fn result_row(output: &str) -> Option<Vec<&str>> {
    output
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .find(|words| words.len() == 8 && words[0].starts_with(|c: char| c.is_ascii_digit()))
}

fn mpi(layout: &Layout, provider: &Provider) -> Result<()> {
    let mpi = Mpi::get(layout, Kind::Mpich)?;
    let log = layout.logs.join("demo-mpi.log");
    let counters = provider.counters(&log);
    let job = mpi.job(provider, 2, &layout.root.join("examples/mpi_demo.py"));
    print!("{}", counters.give(job).run(&log)?);
    let sums = counters.read()?;
    println!("\n{}", sums.remark());
    println!("erd received {} for the two ranks", bytes_text(sums.get("rx_payload_bytes")));
    Ok(())
}
