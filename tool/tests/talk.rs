//! `erd serve` with `erd ping` and `erd perf` against it, over loopback.

#![forbid(unsafe_code)]

use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};

/// A server, which ends with the test.
struct Server {
    child: Child,
    address: String,
}

impl Server {
    fn start() -> Server {
        let mut serve = Command::new(env!("CARGO_BIN_EXE_erd"));
        serve.args(["serve", "--interface", "lo", "--port", "0"]).stdout(Stdio::piped());
        let mut child = serve.spawn().expect("erd runs");
        let mut line = String::new();
        let out = child.stdout.take().expect("its output");
        BufReader::new(out).read_line(&mut line).expect("its first line");
        let address = line.split_whitespace().nth(2).expect("serving at ADDRESS").to_owned();
        Server { child, address }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn erd(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_erd")).args(args).output().expect("erd runs")
}

fn json(run: &Output) -> Value {
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    serde_json::from_slice(&run.stdout).expect("JSON")
}

#[test]
fn every_ping_is_answered_on_every_path() {
    let server = Server::start();
    let args =
        ["ping", &server.address, "--count", "3", "--interval", "0.01", "--paths", "2", "--json"];
    let paths = json(&erd(&args));
    let paths = paths.as_array().expect("paths");
    assert_eq!(paths.len(), 2);
    for path in paths {
        assert_eq!(
            (&path["sent"], &path["answered"], &path["carrier"]),
            (&3.into(), &3.into(), &"udp".into())
        );
        let [least, median, most] =
            ["min_ns", "median_ns", "max_ns"].map(|name| path[name].as_u64());
        assert!(Some(0) < least && least <= median && median <= most, "{path}");
        assert!(path["network_ns"].as_u64() > Some(0), "{path}");
    }
    let text = String::from_utf8(erd(&args[..8]).stdout).expect("text");
    assert!(text.contains(&server.address) && text.contains("network  repeated  marked"), "{text}");
}

#[test]
fn perf_measures_every_size_and_draws_it() {
    let server = Server::start();
    let file = std::env::temp_dir().join(format!("erd-perf-{}.svg", std::process::id()));
    let svg = file.to_str().expect("a path");
    let args = [
        "perf",
        &server.address,
        "--sizes",
        "16,65536",
        "--seconds",
        "0.1",
        "--json",
        "--svg",
        svg,
    ];
    let measured = json(&erd(&args));
    let points = measured["points"].as_array().expect("points");
    assert_eq!(points.len(), 2);
    for (point, bytes) in points.iter().zip([16, 65_536]) {
        assert_eq!(point["bytes"], bytes);
        assert!(point["bytes_per_s"].as_f64() > Some(0.0), "{point}");
        assert!(point["latency"]["median_ns"].as_u64() > Some(0), "{point}");
    }
    let drawn = std::fs::read_to_string(&file).expect("the plot");
    assert!(drawn.contains("half round trip") && drawn.contains(&server.address));
    std::fs::remove_file(file).expect("removed");
}

#[test]
fn what_cannot_be_measured_is_refused_with_a_reason() {
    let run = erd(&["perf", "127.0.0.1", "--sizes", "3"]);
    assert_eq!(run.status.code(), Some(2));
    let text = String::from_utf8_lossy(&run.stderr).into_owned();
    assert!(text.contains("--sizes has 3; valid: 16 to 1048576"), "{text}");
    // Nobody serves there: a port of a socket that was closed.
    let run = erd(&["ping", "127.0.0.1:1", "--count", "1"]);
    let text = String::from_utf8_lossy(&run.stderr).into_owned();
    assert!(!run.status.success() && text.contains("does erd serve run there?"), "{text}");
}
