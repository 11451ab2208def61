//! Spraying over real sockets: a stream of checked messages between two network namespaces, over
//! the test relay (tests/relay) or over links that the kernel limits, with goodput held against what
//! the links carry, and a link taken away under load.

mod network;
mod results;

use crate::fabric::{Counters, Sums};
use crate::pingpong::schemes;
use crate::process::{Job, append};
use crate::programs::{Suite, compile};
use crate::report::{Done, Report};
use anyhow::{Result, bail, ensure};
use network::{LINKS, Network, TAKEN};
use results::{Outcome, Phase};
use std::path::Path;
use std::time::Duration;

/// Least share of what equal links carry together.
const GOODPUT_MIN: f64 = 0.9;
/// A link counts as used from this share of the mean of all.
const USED_MIN: f64 = 0.5;
/// The same where packets are lost at random: the engine leaves a path alone for a while that just lost several.
const USED_LOSSY_MIN: f64 = 0.1;
/// Least share of the remaining links' sum while one is gone.
const WITHOUT_ONE_MIN: f64 = 0.5;
/// Share of the time by which the machine or a relay was late, from which on the run was starved and its
/// measurement may be repeated, once.
const STARVED: f64 = 0.02;

/// Schemes that the short tier runs over the relay. The default is one of them.
const OVER_RELAY: &[&str] = &["erd", "strack", "nscc"];
/// Schemes that the short tier runs without ECN.
const WITHOUT_ECN: &[&str] = &["strack", "nscc"];
/// Schemes that the short tier runs with jitter and loss.
const UNDER_NOISE: &[&str] = &["erd", "strack", "nscc"];
/// Schemes that are given short messages: erd asks for few acknowledgements and takes a path at random for
/// each burst, whatever its queue. With bursts of 64 KiB a slow link often runs empty meanwhile; a burst ends
/// with its message.
const SHORT_MESSAGES: &[&str] = &["erd"];

/// Sizes of a stream.
#[derive(Clone, Copy, Debug)]
struct Stream {
    message_bytes: u64,
    outstanding: u64,
}

const LONG: Stream = Stream { message_bytes: 256 << 10, outstanding: 16 };
const SHORT: Stream = Stream { message_bytes: 8 << 10, outstanding: 256 };

/// What happens to the network, and when, in seconds since the first message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Plan {
    /// Measured from 2.5 to 8.5; then a link is gone until 11.5, and measured again from 13.5 on.
    TakeOneAway,
    /// Measured from 1 to 5.
    Steady,
}

/// The demands on a run beside right data, in order and whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Ask {
    /// All links used, and the goodput that they carry.
    Goodput,
    /// All links used.
    Used,
    /// None; the result is only reported.
    Nothing,
}

/// One run.
#[derive(Clone, Copy, Debug)]
struct Run<'a> {
    network: Network,
    scheme: &'a str,
    stream: Stream,
    plan: Plan,
    ask: Ask,
}

impl Plan {
    fn times(self) -> &'static [f64] {
        match self {
            Plan::TakeOneAway => &[2.5, 8.5, 11.5, 13.5, 15.5],
            Plan::Steady => &[1.0, 5.0],
        }
    }

    /// The change of the network at the nth time.
    fn command(self, nth: usize, network: Network) -> Option<String> {
        match (self, nth) {
            (Plan::TakeOneAway, 1) => Some(network.take_away()),
            (Plan::TakeOneAway, 2) => Some(network.bring_back()),
            _ => None,
        }
    }
}

impl Suite<'_> {
    /// Adds the steps.
    pub fn multipath_steps(&self, report: &mut Report, full: bool) {
        let stream = |scheme| if SHORT_MESSAGES.contains(&scheme) { SHORT } else { LONG };
        let taken = |network, scheme| {
            let (plan, ask) = (Plan::TakeOneAway, Ask::Goodput);
            Run { network, scheme, stream: stream(scheme), plan, ask }
        };
        for scheme in OVER_RELAY {
            self.step(report, "multipath, relay", taken(Network::Relay, scheme));
        }
        for scheme in UNDER_NOISE {
            let network = Network::NoisyRelay;
            let run = Run { plan: Plan::Steady, ask: Ask::Used, ..taken(network, scheme) };
            self.step(report, "multipath, relay with jitter and loss", run);
        }
        for scheme in WITHOUT_ECN {
            self.step(report, "multipath, links without ECN", taken(Network::Links, scheme));
        }
        if full {
            self.all_schemes(report);
        }
    }

    /// Reports every scheme's result with long messages, without a verdict on the goodput.
    fn all_schemes(&self, report: &mut Report) {
        for scheme in schemes(self.layout).unwrap_or_default() {
            for (name, network) in [("relay", Network::Relay), ("links", Network::Links)] {
                let (plan, ask) = (Plan::TakeOneAway, Ask::Nothing);
                let run = Run { network, scheme: &scheme, stream: LONG, plan, ask };
                self.step(report, &format!("multipath survey, {name}"), run);
            }
        }
    }

    fn step(&self, report: &mut Report, name: &str, run: Run<'_>) {
        let missing = || run.network.missing();
        report.step_unless(&format!("{name}, {}", run.scheme), missing, |log| {
            let outcome = self.measure(&run, log)?;
            let (verdict, starved) = (run.judge(&outcome), outcome.phases[1].starved_share());
            let Some(error) = verdict.as_ref().err().filter(|_| starved > STARVED) else {
                return verdict;
            };
            let percent = 100.0 * starved;
            append(log, &format!("{error:#}\nstarved for {percent:.1} % of the time: again\n"))?;
            run.judge(&self.measure(&run, log)?)
        });
    }

    /// Runs it; its end shows that all data were right and whole.
    fn measure(&self, run: &Run<'_>, log: &Path) -> Result<Outcome> {
        let counters = self.provider.counters(log);
        let output = self.multipath_job(run, &counters)?.run(log)?;
        let outcome = Outcome::read(&output, run.network)?;
        let asked = run.plan.times().len();
        ensure!(outcome.phases.len() == asked, "{} phases, not {asked}", outcome.phases.len());
        run.check_counters(&counters.read()?)?;
        Ok(outcome)
    }

    fn multipath_job(&self, run: &Run<'_>, counters: &Counters) -> Result<Job> {
        let program = compile(self.layout, "tests/c/multipath")?;
        let mut job = Job::new(program).args(["-p", &self.provider.name, "-a", "a", "-b", "b"]);
        job = job.args(["-m", &run.stream.message_bytes.to_string()]);
        job = job.args(["-w", &run.stream.outstanding.to_string()]);
        for (nth, time) in run.plan.times().iter().enumerate() {
            let command = run.plan.command(nth, run.network).unwrap_or_default();
            job = job.args(["-t", &format!("{time}:{}; {command}", run.network.report())]);
        }
        let job = run.network.around(self.layout, job)?;
        let job = counters.give(self.provider.give(self.core.give(job)));
        let job =
            run.network.settings().iter().fold(job, |job, (name, value)| job.env(name, value));
        Ok(job.env("FI_ERD_CC", run.scheme).limit(Duration::from_secs(90)))
    }
}

impl Run<'_> {
    fn check_counters(&self, sums: &Sums) -> Result<()> {
        let failed = sums.get("sessions_failed");
        ensure!(failed == 0, "{failed} sessions failed");
        let expected = self.ask != Ask::Nothing;
        ensure!(
            !expected || sums.retransmissions() > 0,
            "nothing was sent again: was nothing lost?"
        );
        Ok(())
    }

    /// Share of the links' sum that a phase carried, in payload that the links can carry.
    fn share(&self, phase: &Phase, links: f64) -> f64 {
        phase.bytes_per_s() / (links * self.network.payload_bytes_per_s(self.stream.message_bytes))
    }

    fn judge(&self, outcome: &Outcome) -> Result<Done> {
        let remark = self.remark(outcome);
        let steady = &outcome.phases[1];
        let (mut asked, mut missed) = (0, Vec::new());
        let mut ask = |holds: bool, what: &str| {
            asked += 1;
            if !holds {
                missed.push(what.to_owned());
            }
        };
        ask(outcome.messages > 0, "messages arrive");
        if self.ask != Ask::Nothing {
            let used_min = if self.network.loses() { USED_LOSSY_MIN } else { USED_MIN };
            ask(steady.least_used() >= used_min, "every link is used");
            let kib = steady.least_path_kib();
            ask(kib > 0 || self.network.hashes(), "the flow sends on every path");
            ask(!self.network.loses() || steady.lost() > 0, "the relay loses packets");
        }
        if self.ask == Ask::Goodput {
            let links = f64::from(LINKS);
            ask(self.share(steady, links) >= GOODPUT_MIN, "the goodput is 90 % of the links' sum");
        }
        if self.ask == Ask::Goodput && self.plan == Plan::TakeOneAway {
            let (without, back) = (&outcome.phases[2], &outcome.phases[4]);
            let share = self.share(without, f64::from(LINKS) - 1.0);
            ask(share >= WITHOUT_ONE_MIN, "traffic goes on without one link");
            ask(back.used(TAKEN) >= USED_MIN, "the link is used again when it is back");
        }
        if !missed.is_empty() {
            bail!("not so: {}\n{remark}", missed.join("; "));
        }
        Done::many(asked, remark)
    }

    fn remark(&self, outcome: &Outcome) -> String {
        let percent = |phase: &Phase, links| 100.0 * self.share(phase, links);
        let (steady, links) = (&outcome.phases[1], f64::from(LINKS));
        let mut text = format!(
            "{:.1} % of {LINKS} links; least used {:.0} % of the mean, round trip {:.0} ms",
            percent(steady, links),
            100.0 * steady.least_used(),
            steady.rtt_ms,
        );
        if self.plan == Plan::TakeOneAway {
            let (without, back) = (&outcome.phases[2], &outcome.phases[4]);
            text += &format!(
                "; without one {:.1} % of {}, {:.0} ms still; back {:.1} %",
                percent(without, links - 1.0),
                LINKS - 1,
                without.longest_wait_ms,
                percent(back, links),
            );
        }
        text += &format!("; starved {:.1} %", 100.0 * steady.starved_share());
        if let Some(relay) = steady.relay {
            text += &format!(
                "; relay: {:.0} % marked, busy {:.0} %, late {:.1} %",
                100.0 * relay.marked_share,
                100.0 * relay.busy_share,
                100.0 * relay.late_share,
            );
        }
        text
    }
}
