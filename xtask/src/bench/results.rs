//! Measured points: the program's lines, medians over the runs, JSON.

use anyhow::{Context, Result};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// The tests of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Test {
    /// Half a round trip.
    Latency,
    /// The same, but both sleep until an answer comes.
    Sleep,
    /// Both send at once, until both completions are there.
    Exchange,
    /// One way, 64 outstanding.
    Bandwidth,
    /// The same with one buffer a side for all messages, as `osu_bw` and `fi_rdm_tagged_bw` do it.
    Reuse,
    /// One way, acknowledged every 64 messages.
    Rate,
    /// Writes into the peer's memory, 64 outstanding.
    Write,
    /// Reads from the peer's memory, likewise.
    Read,
    /// An atomic fetch and add of 8 bytes, from the call to the completion.
    Fetch,
    /// Round trips between one endpoint and many of another process. In place of a size of messages the
    /// results have the number of endpoints.
    Hub,
    /// A message until the peer's word that it has come, while a long one is under way.
    Behind,
    /// What a long one carries beside such messages, as a share of what it carries alone. Their program writes both.
    Bulk,
}

impl Test {
    /// As the program names it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Test::Latency => "latency",
            Test::Sleep => "sleep",
            Test::Exchange => "exchange",
            Test::Bandwidth => "bandwidth",
            Test::Reuse => "reuse",
            Test::Rate => "rate",
            Test::Write => "write",
            Test::Read => "read",
            Test::Fetch => "fetch",
            Test::Hub => "hub",
            Test::Behind => "behind",
            Test::Bulk => "bulk",
        }
    }

    fn named(name: &str) -> Option<Test> {
        let messages = [Test::Latency, Test::Sleep, Test::Exchange, Test::Bandwidth, Test::Reuse];
        let others = [Test::Rate, Test::Write, Test::Read, Test::Fetch, Test::Hub];
        let bulk = [Test::Behind, Test::Bulk];
        let all = messages.into_iter().chain(others).chain(bulk);
        all.into_iter().find(|test| test.name() == name)
    }

    /// The value that the table compares.
    #[must_use]
    pub fn main_value(self) -> &'static str {
        match self {
            Test::Latency | Test::Sleep | Test::Exchange | Test::Fetch | Test::Behind => "p50_us",
            Test::Bandwidth | Test::Reuse | Test::Write | Test::Read => "bytes_per_s",
            Test::Bulk => "share",
            Test::Rate | Test::Hub => "messages_per_s",
        }
    }
}

/// A kind of runs of a point. The processors of a virtual machine move between those of its host. While they share a
/// cache, all traffic between them is two to three times as fast. So runs are compared only with runs of the same kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Every run.
    Any,
    /// Those in which a cache line took the least time between the processors, as nearly as
    /// [`FAR_TIMES`] tells.
    Near,
    /// Those in which it took longer, before and after; what changed in the middle is neither.
    Far,
}

/// A line that takes so many times the least goes between caches.
const FAR_TIMES: f64 = 2.0;

/// Values of a run: the time of a cache line before it and after it.
const LINES: [&str; 2] = ["line_before_ns", "line_after_ns"];

/// Provider, test, size in bytes.
pub type Point = (String, Test, u64);

/// Results of all runs.
#[derive(Debug, Default)]
pub struct Results {
    /// Values by name, one for each run.
    points: BTreeMap<Point, BTreeMap<String, Vec<f64>>>,
    /// Failures, by provider and test.
    failures: BTreeMap<(String, Test), String>,
    /// The providers that really ran: some tests need others over the one that was named.
    runs: BTreeMap<String, BTreeSet<String>>,
    libfabric: String,
}

impl Results {
    /// Takes the lines of one run of `provider`; returns the number of points.
    ///
    /// # Errors
    /// A line that is not as the program writes them.
    pub fn take(&mut self, provider: &str, output: &str) -> Result<usize> {
        let mut found = 0;
        for line in output.lines().filter(|line| line.starts_with('{')) {
            let value: Value = serde_json::from_str(line).with_context(|| line.to_owned())?;
            let map = value.as_object().with_context(|| line.to_owned())?;
            if let Some(runs) = map.get("runs").and_then(Value::as_str) {
                self.runs.entry(provider.to_owned()).or_default().insert(runs.to_owned());
                map["libfabric"].as_str().unwrap_or_default().clone_into(&mut self.libfabric);
            } else if map.contains_key("test") && !map.contains_key("error") {
                self.take_point(provider, map).with_context(|| line.to_owned())?;
                found += 1;
            }
        }
        Ok(found)
    }

    fn take_point(&mut self, provider: &str, map: &Map<String, Value>) -> Result<()> {
        let test =
            map.get("test").and_then(Value::as_str).and_then(Test::named).context("no test")?;
        let size = map.get("size").and_then(Value::as_u64).context("no size")?;
        let point = self.points.entry((provider.to_owned(), test, size)).or_default();
        for (name, value) in map {
            if let (Some(value), false) = (value.as_f64(), name == "size") {
                point.entry(name.clone()).or_default().push(value);
            }
        }
        let lines = map.get("line_ns").and_then(Value::as_array).into_iter().flatten();
        for (name, value) in LINES.iter().zip(lines.filter_map(Value::as_f64)) {
            point.entry((*name).to_owned()).or_default().push(value);
        }
        Ok(())
    }

    /// Notes that `provider` did not get through `test`; returns the reason, if known.
    pub fn gave_up(&mut self, provider: &str, test: Test, output: &str) -> String {
        let said =
            output.lines().rev().find(|line| line.contains("\"error\"") || line.contains("FAILED"));
        let why = said.map_or_else(|| "ended early".to_owned(), str::to_owned);
        self.failures.insert((provider.to_owned(), test), why.clone());
        why
    }

    /// Whether nothing was measured.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.points.is_empty()
    }

    /// Median over the runs of a kind.
    #[must_use]
    pub fn median(
        &self,
        provider: &str,
        test: Test,
        size: u64,
        value: &str,
        place: Place,
    ) -> Option<f64> {
        let point = self.points.get(&(provider.to_owned(), test, size))?;
        let values = point.get(value)?.iter().enumerate();
        let far_ns = self.far_ns();
        let of_place = values.filter(|(run, _)| is_at(point, *run, far_ns, place));
        median(&of_place.map(|(_, value)| *value).collect::<Vec<f64>>())
    }

    /// The kinds of runs that a size is to be shown for: one, unless the processors moved.
    #[must_use]
    pub fn places(&self, test: Test, size: u64) -> &'static [Place] {
        let far_ns = self.far_ns();
        let mut points =
            self.points.iter().filter(|((_, of, bytes), _)| (*of, *bytes) == (test, size));
        let moved = points.any(|(_, point)| {
            LINES.iter().filter_map(|name| point.get(*name)).flatten().any(|ns| *ns >= far_ns)
        });
        if moved { &[Place::Near, Place::Far] } else { &[Place::Any] }
    }

    /// From here on a cache line took long.
    fn far_ns(&self) -> f64 {
        let lines = self.points.values().flat_map(|point| LINES.map(|name| point.get(name)));
        FAR_TIMES * lines.flatten().flatten().copied().fold(f64::INFINITY, f64::min)
    }

    /// Bytes on `lo` for each byte of payload, over all runs.
    #[must_use]
    pub fn lo_share(&self, provider: &str, test: Test, size: u64) -> Option<f64> {
        let point = self.points.get(&(provider.to_owned(), test, size))?;
        let total = |name: &str| point.get(name).map(|values| values.iter().sum::<f64>());
        let both = matches!(test, Test::Latency | Test::Sleep | Test::Exchange | Test::Fetch);
        let ways = if both { 2.0 } else { 1.0 };
        #[expect(clippy::cast_precision_loss, reason = "sizes are far below 2^52")]
        let payload = total("count")? * size as f64 * ways;
        (payload > 0.0).then_some(total("lo_bytes")? / payload)
    }

    /// The failures.
    pub fn failures(&self) -> impl Iterator<Item = (&str, Test, &str)> {
        self.failures.iter().map(|((name, test), why)| (name.as_str(), *test, why.as_str()))
    }

    /// The providers that ran under a name.
    pub fn runs(&self, provider: &str) -> impl Iterator<Item = &str> {
        self.runs.get(provider).into_iter().flatten().map(String::as_str)
    }

    /// Version of the libfabric that ran.
    #[must_use]
    pub fn libfabric(&self) -> &str {
        &self.libfabric
    }

    /// Everything, for other programs.
    #[must_use]
    pub fn json(&self, core: &str, cpus: &str) -> Value {
        let points: Vec<Value> = self
            .points
            .iter()
            .map(|((provider, test, size), values)| {
                let medians: BTreeMap<&String, Option<f64>> =
                    values.iter().map(|(name, runs)| (name, median(runs))).collect();
                json!({"provider": provider, "test": test.name(), "size_bytes": size,
                       "median": medians, "runs": values})
            })
            .collect();
        let failures: Vec<Value> = self
            .failures()
            .map(|(provider, test, why)| json!({"provider": provider, "test": test.name(), "why": why}))
            .collect();
        json!({"core": core, "libfabric": self.libfabric, "cpus": cpus, "providers": self.runs,
               "points": points, "failures": failures})
    }
}

/// Whether a run of a point is of a kind.
fn is_at(point: &BTreeMap<String, Vec<f64>>, run: usize, far_ns: f64, place: Place) -> bool {
    let is_far =
        |name: &str| point.get(name).and_then(|runs| runs.get(run)).map(|ns| *ns >= far_ns);
    match place {
        Place::Any => true,
        Place::Near => LINES.iter().all(|name| is_far(name) == Some(false)),
        Place::Far => LINES.iter().all(|name| is_far(name) == Some(true)),
    }
}

fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        count if count % 2 == 1 => Some(sorted[middle]),
        _ => Some(f64::midpoint(sorted[middle - 1], sorted[middle])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_are_taken_over_runs() {
        let mut results = Results::default();
        for us in [3.0, 1.0, 2.0] {
            let line = format!(
                "{{\"provider\":\"x\",\"test\":\"latency\",\"size\":64,\"count\":10,\
                 \"lo_bytes\":2560,\"p50_us\":{us}}}\nnoise\n"
            );
            assert_eq!(results.take("x", &line).expect("a good line"), 1);
        }
        assert_eq!(results.median("x", Test::Latency, 64, "p50_us", Place::Any), Some(2.0));
        assert_eq!(results.median("x", Test::Latency, 65, "p50_us", Place::Any), None);
        assert_eq!(results.places(Test::Latency, 64), [Place::Any]);
        assert_eq!(results.lo_share("x", Test::Latency, 64), Some(2.0));
        assert!(results.take("x", "{\"test\":\"latency\"}").is_err());
    }

    #[test]
    fn runs_between_caches_are_told_from_the_others() {
        let mut results = Results::default();
        let runs = [
            (1.0, [70, 80]),
            (9.0, [300, 310]),
            (5.0, [75, 300]),
            (3.0, [90, 70]),
            (8.0, [290, 280]),
        ];
        for (us, [before, after]) in runs {
            let line = format!(
                "{{\"provider\":\"x\",\"test\":\"latency\",\"size\":64,\"count\":10,\"lo_bytes\":1,\
                 \"line_ns\":[{before},{after}],\"p50_us\":{us}}}\n"
            );
            assert_eq!(results.take("x", &line).expect("a good line"), 1);
        }
        assert_eq!(results.places(Test::Latency, 64), [Place::Near, Place::Far]);
        let median = |place| results.median("x", Test::Latency, 64, "p50_us", place);
        assert_eq!(median(Place::Near), Some(2.0));
        assert_eq!(median(Place::Far), Some(8.5));
        assert_eq!(median(Place::Any), Some(5.0));
    }

    #[test]
    fn all_that_ran_under_a_name_is_told() {
        let mut results = Results::default();
        for runs in ["tcp", "tcp;ofi_rxm", "tcp"] {
            let line =
                format!("{{\"provider\":\"tcp\",\"runs\":\"{runs}\",\"libfabric\":\"2.5\"}}\n");
            assert_eq!(results.take("tcp", &line).expect("a good line"), 0);
        }
        assert!(results.runs("tcp").eq(["tcp", "tcp;ofi_rxm"]));
        assert_eq!(results.runs("udp").count(), 0);
    }

    #[test]
    fn an_even_number_of_runs_has_a_median_between() {
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(&[]), None);
    }
}
