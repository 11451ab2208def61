//! Results of the program (tests/c/multipath.c) and of the networks, phase by phase.

use super::network::{LINKS, Network};
use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// Results of a run.
#[derive(Debug)]
pub struct Outcome {
    /// From one time of the plan to the next.
    pub phases: Vec<Phase>,
    /// Messages that arrived, all that were sent.
    pub messages: u64,
}

/// From one time to the next.
#[derive(Debug, Default)]
pub struct Phase {
    seconds: f64,
    bytes: f64,
    /// Longest time without a message.
    pub longest_wait_ms: f64,
    /// The flow's smoothed round trip at its end.
    pub rtt_ms: f64,
    /// Share of the time for which a program that wanted to run was not let, beyond a millisecond each time.
    pub late_share: f64,
    path_kib: Vec<u64>,
    /// Bytes towards the receiver, by link.
    link_bytes: Vec<f64>,
    lost: Vec<u64>,
    /// The relay's report on itself.
    pub relay: Option<RelayState>,
}

/// The relay's report on itself.
#[derive(Clone, Copy, Debug)]
pub struct RelayState {
    /// Its CPU time.
    pub busy_share: f64,
    /// Time by which its work was late, beyond a millisecond each time.
    pub late_share: f64,
    /// Packets towards the receiver that it marked.
    pub marked_share: f64,
}

impl Outcome {
    /// Reads the lines of JSON, and ignores others.
    ///
    /// # Errors
    /// A line that lacks something; a stream that did not end.
    pub fn read(output: &str, network: Network) -> Result<Outcome> {
        let mut phases: Vec<Phase> = Vec::new();
        let mut before = vec![0.0; LINKS as usize];
        let mut messages = None;
        for line in output.lines() {
            let Ok(value) = serde_json::from_str::<Value>(line) else { continue };
            if value.get("phase_ms").is_some() {
                phases.push(Phase::read(&value).with_context(|| line.to_owned())?);
            } else if let Some(count) = value.get("messages") {
                messages = count.as_u64();
            } else if let Some(phase) = phases.last_mut().filter(|_| messages.is_none()) {
                phase.add_network(&value, &mut before).with_context(|| line.to_owned())?;
            }
        }
        let links = |phase: &Phase| phase.link_bytes.len() == LINKS as usize;
        ensure!(
            phases.iter().all(links),
            "the network did not tell of {LINKS} links in each phase"
        );
        let told = |phase: &Phase| phase.relay.is_some() || network == Network::Links;
        ensure!(phases.iter().all(told), "the relay did not report");
        Ok(Outcome { phases, messages: messages.context("the stream did not end")? })
    }
}

impl Phase {
    fn read(value: &Value) -> Result<Phase> {
        let paths = value["path_kib"].as_array().context("path_kib")?;
        let phase_ms = number(value, "phase_ms")?;
        Ok(Phase {
            seconds: phase_ms / 1000.0,
            late_share: number(value, "late_ms")? / phase_ms,
            bytes: number(value, "bytes")?,
            longest_wait_ms: number(value, "longest_wait_ms")?,
            rtt_ms: number(value, "rtt_us")? / 1000.0,
            path_kib: paths.iter().filter_map(Value::as_u64).collect(),
            ..Phase::default()
        })
    }

    /// A report of the relay since the last one, or of one link of the kernel since it began.
    fn add_network(&mut self, value: &Value, before: &mut [f64]) -> Result<()> {
        if let Some(there) = value.get("there").and_then(Value::as_array) {
            let capacity = Network::link_bytes_per_s() * number(value, "relay_ms")? / 1000.0;
            let (mut delivered, mut marks) = (0.0, 0.0);
            for link in there {
                self.link_bytes.push(number(link, "used")? * capacity);
                self.lost.push(number(link, "lost")? as u64);
                delivered += number(link, "delivered")?;
                marks += number(link, "marks")?;
            }
            self.relay = Some(RelayState {
                busy_share: number(value, "busy_share")?,
                late_share: number(value, "late_share")?,
                marked_share: marks / f64::max(delivered, 1.0),
            });
            return Ok(());
        }
        let link = value.get(0).context("neither a report nor a queue")?;
        let all = number(link, "bytes")?;
        let known = before.get_mut(self.link_bytes.len()).context("more links than there are")?;
        self.link_bytes.push(all - std::mem::replace(known, all));
        Ok(())
    }

    /// Payload that arrived, in bytes per second.
    pub fn bytes_per_s(&self) -> f64 {
        self.bytes / self.seconds
    }

    pub fn starved_share(&self) -> f64 {
        self.relay.map_or(0.0, |relay| relay.late_share).max(self.late_share)
    }

    /// How much a link carried, as a share of the mean of all.
    pub fn used(&self, link: usize) -> f64 {
        let mean = self.link_bytes.iter().sum::<f64>() / f64::from(LINKS);
        self.link_bytes[link] / mean.max(1.0)
    }

    /// The same of the link that carried least.
    pub fn least_used(&self) -> f64 {
        (0..LINKS as usize).map(|link| self.used(link)).fold(f64::INFINITY, f64::min)
    }

    /// KiB sent on the path of the flow that took least.
    pub fn least_path_kib(&self) -> u64 {
        self.path_kib.iter().copied().min().unwrap_or(0)
    }

    /// Packets that a relay lost on the way to the receiver, on the link that lost least.
    pub fn lost(&self) -> u64 {
        self.lost.iter().copied().min().unwrap_or(0)
    }
}

fn number(value: &Value, name: &str) -> Result<f64> {
    value[name].as_f64().with_context(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PHASE: &str = r#"{"phase_ms": 2000.0, "bytes": 1000, "longest_wait_ms": 3.5, "path_kib": [7, 5], "rtt_us": 20000, "late_ms": 50.0}"#;

    #[test]
    fn queues_of_the_kernel_are_told_since_they_began() {
        let queue = |bytes: u32| format!("[{{\"kind\":\"tbf\",\"bytes\":{bytes}}}]\n");
        let all = |bytes: [u32; 4]| bytes.map(queue).concat();
        let output = format!(
            "{PHASE}\n{}{PHASE}\n{}{{\"messages\": 9}}\n",
            all([10, 10, 10, 10]),
            all([40, 20, 20, 10])
        );
        let outcome = Outcome::read(&output, Network::Links).unwrap();
        assert_eq!(outcome.messages, 9);
        assert_eq!(outcome.phases[0].least_used(), 1.0);
        assert_eq!(outcome.phases[1].link_bytes, [30.0, 10.0, 10.0, 0.0]);
        assert_eq!(outcome.phases[1].used(0), 2.4);
        assert_eq!(outcome.phases[1].starved_share(), 0.025);
        assert_eq!(
            (outcome.phases[1].bytes_per_s(), outcome.phases[1].least_path_kib()),
            (500.0, 5)
        );
    }

    #[test]
    fn what_is_missing_is_told() {
        for (output, missing) in [
            (format!("{PHASE}\n{{\"messages\": 9}}\n"), "4 links"),
            (String::new(), "did not end"),
            (r#"{"phase_ms": 1.0}"#.to_owned(), "phase_ms"),
        ] {
            let error = format!("{:#}", Outcome::read(&output, Network::Relay).unwrap_err());
            assert!(error.contains(missing), "{error}");
        }
    }
}
