//! How far a run is: tasks, simulated time and events a second, on standard error if that is a terminal.

use erd_sim::experiment::Observer;
use erd_sim::fabric::Fabric;
use erd_sim::host::SimHost;
use erd_sim::series::sampler::Sampler;
use erd_sim::time::Picos;
use erd_sim::work::Flow;
use indicatif::{ProgressBar, ProgressStyle};
use std::time::{Duration, Instant};

/// Time between two looks.
const EVERY: Duration = Duration::from_millis(200);

/// A bar of so many things, which vanishes at the end.
pub fn bar(things: usize, what: &str, quiet: bool) -> ProgressBar {
    if quiet {
        return ProgressBar::hidden();
    }
    let template = format!("{{bar:30}} {{pos}} of {{len}} {what} {{msg}}");
    let style = ProgressStyle::with_template(&template).expect("a valid template");
    ProgressBar::new(things as u64).with_style(style)
}

/// Samples a run and shows how far it is.
pub struct Watched {
    pub sampler: Sampler,
    quiet: bool,
    bar: ProgressBar,
    begin: Picos,
    tasks: usize,
    looked: Instant,
    events: u64,
}

impl Watched {
    pub fn new(quiet: bool) -> Watched {
        Watched {
            sampler: Sampler::default(),
            quiet,
            bar: ProgressBar::hidden(),
            begin: 0,
            tasks: 0,
            looked: Instant::now(),
            events: 0,
        }
    }

    /// The run is over.
    pub fn clear(&self) {
        self.bar.finish_and_clear();
    }
}

fn open_tasks(fabric: &Fabric) -> usize {
    fabric.hosts().map(SimHost::open_tasks).sum()
}

impl Observer for Watched {
    fn begin(&mut self, fabric: &mut Fabric, flows: &[Flow], begin: Picos) {
        self.sampler.begin(fabric, flows, begin);
        (self.begin, self.tasks, self.looked) = (begin, open_tasks(fabric), Instant::now());
        self.bar = bar(self.tasks, "tasks", self.quiet);
    }

    fn run_until(&mut self, fabric: &mut Fabric, end: Picos) {
        self.sampler.run_until(fabric, end);
        let passed = self.looked.elapsed();
        if passed < EVERY || self.bar.is_hidden() {
            return;
        }
        let simulated_us = fabric.now().saturating_sub(self.begin) as f64 / 1e6;
        let millions = (fabric.events() - self.events) as f64 / passed.as_secs_f64() / 1e6;
        self.bar.set_message(format!(
            "after {simulated_us:.0} us, {millions:.2} million events a second"
        ));
        self.bar.set_position((self.tasks - open_tasks(fabric).min(self.tasks)) as u64);
        (self.looked, self.events) = (Instant::now(), fabric.events());
    }
}
