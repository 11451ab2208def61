//! `cargo xtask test`: all steps in order, a table, and the closing line.

use crate::TestArgs;
use crate::{checks, demo, dist, reproduce};
use anyhow::Result;
use erd_e2e::fabric::{Core, ERD, Provider, WHEEL};
use erd_e2e::layout::Layout;
use erd_e2e::mpi::{KINDS, Kind};
use erd_e2e::programs::Suite;
use erd_e2e::report::{Done, Report};
use erd_e2e::{
    clients, fabtests, keyed, kv, mpi, mpi4py, package, pingpong, sanitizers, setup, tool, verbs,
    vm,
};

/// Runs the tier in `args`; returns whether nothing failed.
///
/// # Errors
/// If something needed cannot be installed.
pub fn run(layout: &Layout, args: &TestArgs) -> Result<bool> {
    let mut report = Report::new(&layout.logs, args.only.clone(), args.list);
    let (provider, near) = (Provider::new(layout, ERD), Provider::new(layout, ERD).by_lanes());
    let provider = provider.over_network();
    let packages = report.needed("packages", |_| {
        let missing = setup::packages(layout, setup::TEST_PACKAGES)?;
        Done::one(if missing.is_empty() { "all there".to_owned() } else { missing.join(" ") })
    });
    checks::steps(&mut report, layout, args.full);
    if args.full {
        sanitizers::steps(&mut report, layout);
    }
    if packages {
        sanitizers::memcheck_step(&mut report, layout);
        checks::packaging_steps(&mut report, layout);
        package::steps(&mut report, layout, &provider, args.full, dist::run);
    }
    if !packages || !prepare(&mut report, layout) {
        return Ok(report.close());
    }
    let system = Core::system();
    let wheel = match Core::wheel(layout) {
        Err(_) if args.list => Core { name: WHEEL.to_owned(), ..Core::system() },
        found => found?,
    };
    reproduce::step(&mut report, layout);
    verbs::steps(&mut report, layout);
    for core in [&system, &wheel] {
        pingpong::steps(&mut report, core, &provider);
        pingpong::memcheck_steps(&mut report, core, &provider);
        Suite { layout, core, provider: &provider }.steps(&mut report);
    }
    for core in [&system, &wheel] {
        pingpong::name_step(&mut report, core, &provider);
    }
    pingpong::scheme_steps(&mut report, layout, &wheel, &provider);
    tool::steps(&mut report, layout, &system, &provider);
    let suite = Suite { layout, core: &wheel, provider: &provider };
    suite.peer_steps(&mut report);
    suite.engine_steps(&mut report);
    suite.multipath_steps(&mut report, args.full);
    suite.path_mtu_steps(&mut report, args.full);
    vm::steps::steps(&mut report, layout, args.full);
    mpi::steps(&mut report, layout, &provider, args.full);
    lane_steps(&mut report, layout, [&system, &wheel], &near, args.full);
    keyed::steps(&mut report, layout, [&system, &wheel], &provider, args.full)?;
    if args.full {
        fabtests::step(&mut report, layout, &provider);
        mpi4py::steps(&mut report, layout, &provider);
        clients::steps(&mut report, layout, &provider);
        kv::steps(&mut report, layout, &wheel, &provider);
    }
    report.step("demo", |_| {
        demo::run(layout)?;
        Done::one("both parts, erd's counters show the bytes")
    });
    Ok(report.close())
}

/// What runs over the network runs over shared memory, too.
fn lane_steps(
    report: &mut Report,
    layout: &Layout,
    cores: [&Core; 2],
    provider: &Provider,
    full: bool,
) {
    for core in if full { &cores[..] } else { &cores[1..] } {
        pingpong::steps(report, core, provider);
    }
    let suite = Suite { layout, core: cores[1], provider };
    suite.lane_steps(report);
    suite.apart_steps(report);
    let ranks = if full { &[2, 4][..] } else { &[2] };
    for kind in KINDS {
        let seconds = (kind != Kind::OpenMpi41).then_some(if full { "60" } else { "3" });
        mpi::more_steps(report, layout, provider, kind, ranks, seconds);
    }
    if full {
        fabtests::step(report, layout, provider);
        mpi4py::steps(report, layout, provider);
        clients::steps(report, layout, provider);
    }
}

/// The needs of the programs, whatever `--only` selects.
fn prepare(report: &mut Report, layout: &Layout) -> bool {
    let environments = report.needed("MPI environments", |_| {
        for kind in KINDS {
            setup::venv(layout, kind.venv())?;
        }
        Done::one("all there")
    });
    let built = report.needed("release build", |_| {
        setup::build_provider(layout)?;
        Done::one("liberd_fi.so")
    });
    environments && built
}
