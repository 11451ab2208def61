//! The flows in Prometheus' text format (version 0.0.4).

use super::snapshot::{CAUSES, Endpoint, Flow, Process};
use std::fmt::Write as _;

/// One metric: its name, what it is, and its value for a flow, if it has one.
type FlowMetric = (&'static str, &'static str, &'static str, fn(&Flow) -> f64);

const NS: f64 = 1e-9;

/// Metrics of flows.
const FLOW_METRICS: &[FlowMetric] = &[
    ("erd_flow_window_bytes", "gauge", "Bytes that may be in flight", |flow| {
        flow.window_bytes as f64
    }),
    (
        "erd_flow_pace_bytes_per_second",
        "gauge",
        "Rate that the controller paces at, 0 if it does not",
        |flow| flow.pace_bytes_per_s as f64,
    ),
    ("erd_flow_in_flight_bytes", "gauge", "Bytes in flight", |flow| flow.in_flight_bytes as f64),
    ("erd_flow_rtt_seconds", "gauge", "Smoothed round trip", |flow| flow.rtt_ns as f64 * NS),
    ("erd_flow_base_rtt_seconds", "gauge", "Least round trip lately, 0 if unknown", |flow| {
        flow.base_rtt_ns as f64 * NS
    }),
    (
        "erd_flow_last_heard_seconds",
        "gauge",
        "When the peer was heard last, on the host's monotonic clock; 0 if unknown",
        |flow| flow.last_heard_ns as f64 * NS,
    ),
    (
        "erd_flow_paths_used",
        "gauge",
        "Paths that the controller uses, 0 if it does not say",
        |flow| flow.paths as f64,
    ),
    ("erd_flow_sent_bytes_total", "counter", "Wire bytes of data, repetitions included", |flow| {
        flow.sent_bytes as f64
    }),
    ("erd_flow_acked_bytes_total", "counter", "Bytes acknowledged", |flow| flow.acked_bytes as f64),
    (
        "erd_flow_marked_bytes_total",
        "counter",
        "Bytes that arrived with a congestion mark",
        |flow| flow.ce_bytes as f64,
    ),
];

/// All of it.
#[must_use]
pub fn text(processes: &[Process]) -> String {
    let mut out = String::new();
    let endpoints: Vec<(String, &Endpoint)> = processes
        .iter()
        .flat_map(|process| process.endpoints.iter().map(move |it| (labels(process, it), it)))
        .collect();
    let mut flows: Vec<(String, &Flow)> = Vec::new();
    for (labels, endpoint) in &endpoints {
        flows.extend(endpoint.flows.iter().map(|flow| {
            let carrier = escaped(&flow.carrier);
            (format!("{labels},peer=\"{}\",carrier=\"{carrier}\"", flow.peer), flow)
        }));
    }
    for (name, kind, help, value) in FLOW_METRICS {
        describe(&mut out, name, kind, help);
        flows.iter().for_each(|(labels, flow)| sample(&mut out, name, labels, value(flow)));
    }
    let name = "erd_flow_retransmitted_packets_total";
    describe(&mut out, name, "counter", "Packets sent again, by what told that they were lost");
    for (labels, flow) in &flows {
        for (cause, count) in CAUSES {
            sample(&mut out, name, &format!("{labels},cause=\"{cause}\""), count(flow) as f64);
        }
    }
    endpoint_counters(&mut out, &endpoints);
    out
}

fn endpoint_counters(out: &mut String, endpoints: &[(String, &Endpoint)]) {
    // Every counter that some endpoint has, under its own name.
    let mut names: Vec<&str> = endpoints
        .iter()
        .flat_map(|(_, endpoint)| endpoint.counters.keys())
        .map(String::as_str)
        .collect();
    names.sort_unstable();
    names.dedup();
    for counter in names {
        let name = format!("erd_endpoint_{counter}_total");
        describe(out, &name, "counter", "See erd_rd::stats::Stats in the documents of erd");
        for (labels, endpoint) in endpoints {
            sample(out, &name, labels, endpoint.counter(counter) as f64);
        }
    }
    let name = "erd_endpoint_dropped_packets_total";
    describe(out, name, "counter", "Received packets that were dropped, by reason");
    for (labels, endpoint) in endpoints {
        for (reason, count) in &endpoint.drops {
            let labels = format!("{labels},reason=\"{}\"", escaped(reason));
            sample(out, name, &labels, *count as f64);
        }
    }
}

fn labels(process: &Process, endpoint: &Endpoint) -> String {
    format!(
        "pid=\"{}\",user=\"{}\",command=\"{}\",interface=\"{}\",endpoint=\"{}\",controller=\"{}\"",
        process.pid,
        escaped(&process.user),
        escaped(&process.command),
        escaped(&endpoint.iface),
        endpoint.name,
        escaped(&endpoint.cc),
    )
}

fn describe(out: &mut String, name: &str, kind: &str, help: &str) {
    // Writing to a string does not fail.
    let _ = write!(out, "# HELP {name} {help}.\n# TYPE {name} {kind}\n");
}

fn sample(out: &mut String, name: &str, labels: &str, value: f64) {
    let _ = writeln!(out, "{name}{{{labels}}} {value}");
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::super::snapshot::tests::{ANSWER, process};
    use super::*;

    #[test]
    fn every_sample_has_its_type_and_labels() {
        let mut process = process(ANSWER);
        process.command = "a\"b".to_owned();
        let text = text(&[process]);
        let labels = r#"pid="7",user="ann",command="a\"b",interface="eth0",endpoint="192.0.2.1:4000",controller="nscc""#;
        for line in [
            "# TYPE erd_flow_rtt_seconds gauge".to_owned(),
            format!(
                "erd_flow_rtt_seconds{{{labels},peer=\"192.0.2.2:5000\",carrier=\"udp\"}} 0.000034"
            ),
            format!(
                "erd_flow_retransmitted_packets_total{{{labels},peer=\"192.0.2.2:5000\",carrier=\"udp\",cause=\"nack\"}} 4"
            ),
            format!("erd_endpoint_tx_payload_bytes_total{{{labels}}} 9000"),
            format!("erd_endpoint_dropped_packets_total{{{labels},reason=\"duplicate\"}} 5"),
        ] {
            assert!(text.lines().any(|it| it == line), "{line}\n{text}");
        }
        let name = |line: &str| line.split(['{', ' ']).next().unwrap_or_default().to_owned();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            assert!(text.contains(&format!("# TYPE {} ", name(line))), "{line}");
        }
    }
}
