//! The libfabric and the provider of a program, and erd's counters as proof of what it carried.

use crate::layout::Layout;
use crate::netns;
use crate::process::Job;
use crate::setup;
use crate::wire::{self, Protection};
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The provider under test.
pub const ERD: &str = "erd";

/// Name in reports of the MPICH wheel's libfabric.
pub const WHEEL: &str = "MPICH wheel's libfabric";

/// One libfabric installation.
#[derive(Clone, Debug)]
pub struct Core {
    /// Its name in reports.
    pub name: String,
    /// Directory of its libfabric.so.1; `None` for the system's.
    pub library_dir: Option<PathBuf>,
}

impl Core {
    /// The system's own.
    #[must_use]
    pub fn system() -> Core {
        Core { name: "system libfabric".to_owned(), library_dir: None }
    }

    /// The one in the MPICH wheel: libfabric 2.5 or later, without headers.
    ///
    /// # Errors
    /// The wheel's environment has not been made.
    pub fn wheel(layout: &Layout) -> Result<Core> {
        let dir = setup::wheel_libfabric(&layout.venv("mpich"), "mpich")?;
        Ok(Core { name: WHEEL.to_owned(), library_dir: Some(dir) })
    }

    /// `job` with this libfabric.
    #[must_use]
    pub fn give(&self, job: Job) -> Job {
        match &self.library_dir {
            Some(dir) => job.env("LD_LIBRARY_PATH", dir),
            None => job,
        }
    }
}

/// A provider, with its settings for programs on loopback.
#[derive(Clone, Debug)]
pub struct Provider {
    /// Its name.
    pub name: String,
    dir: PathBuf,
    settings: Vec<(String, String)>,
    protection: Option<Protection>,
    /// It is erd, whatever its name.
    is_erd: bool,
    /// Its programs must have lanes.
    has_lanes: bool,
}

impl Provider {
    /// The provider `name`; `erd` is the one just built.
    #[must_use]
    pub fn new(layout: &Layout, name: &str) -> Provider {
        Provider {
            name: name.to_owned(),
            dir: layout.provider_dir(),
            settings: Vec::new(),
            protection: None,
            is_erd: name == ERD,
            has_lanes: false,
        }
    }

    /// The same without shared memory: what its programs send can be lost, seen and counted.
    #[must_use]
    pub fn over_network(self) -> Provider {
        self.with("FI_ERD_LOCAL", "udp")
    }

    /// The same for programs that share memory, which their counters must show.
    #[must_use]
    pub fn by_lanes(self) -> Provider {
        Provider { has_lanes: true, ..self }
    }

    /// The same with a setting of the environment.
    #[must_use]
    pub fn with(mut self, name: &str, value: &str) -> Provider {
        self.settings.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The same provider, with `name` in libfabric.
    #[must_use]
    pub fn called(self, name: &str) -> Provider {
        let called = self.with("FI_ERD_PROV_NAME", name).with("FI_PROVIDER", name);
        Provider { name: name.to_owned(), ..called }
    }

    /// The same with a job's key, from the file `key`.
    #[must_use]
    pub fn keyed(self, key: &Path, protection: Protection) -> Provider {
        let keyed = self.with("FI_ERD_KEY_FILE", &key.to_string_lossy());
        let keyed = keyed.with("FI_ERD_PROTECTION", protection.name());
        Provider { protection: Some(protection), ..keyed }
    }

    /// Whether its programs must have lanes.
    #[must_use]
    pub fn has_lanes(&self) -> bool {
        self.has_lanes
    }

    /// Whether it has a job's key.
    #[must_use]
    pub fn is_keyed(&self) -> bool {
        self.protection.is_some()
    }

    /// What the names of steps say of its key and its lanes: nothing without.
    #[must_use]
    pub fn traits(&self) -> String {
        let lanes = if self.has_lanes { ", shared memory" } else { "" };
        let key = self.protection.map_or_else(String::new, |protection| {
            format!(", a key, FI_ERD_PROTECTION={}", protection.name())
        });
        format!("{lanes}{key}")
    }

    /// `job` with its datagrams counted if it has a key. It must get a network namespace of its own around that.
    #[must_use]
    pub fn watch(&self, job: Job) -> Job {
        if self.is_keyed() { wire::watched(job) } else { job }
    }

    /// The same in such a namespace; without a key `job` as it is.
    #[must_use]
    pub fn alone(&self, job: Job) -> Job {
        if self.is_keyed() { netns::private(self.watch(job)) } else { job }
    }

    /// Checks that the datagrams of a job that was watched are as its key demands; a remark for the report.
    ///
    /// # Errors
    /// They are not.
    pub fn check_wire(&self, output: &str) -> Result<Option<String>> {
        self.protection.map(|protection| wire::check(protection, output)).transpose()
    }

    /// Reason why its jobs' datagrams cannot be counted, if they must be.
    #[must_use]
    pub fn watch_missing(&self) -> Option<&'static str> {
        if self.is_keyed() { netns::count_missing() } else { None }
    }

    /// Whether it is erd.
    #[must_use]
    pub fn is_erd(&self) -> bool {
        self.is_erd
    }

    /// `job` with nothing but this provider, on loopback unless a setting says otherwise.
    #[must_use]
    pub fn give(&self, job: Job) -> Job {
        let set = |job: Job, (name, value): &(String, String)| job.env(name, value);
        if self.is_erd() {
            let job = job.env("FI_PROVIDER", ERD).env("FI_PROVIDER_PATH", &self.dir);
            return self.settings.iter().fold(job.env("FI_ERD_IFACE", "lo"), set);
        }
        let job = self.settings.iter().fold(job, set);
        let job = job.env("FI_TCP_IFACE", "lo").env("FI_UDP_IFACE", "lo");
        if self.name.contains(';') { job } else { job.env("FI_PROVIDER", &self.name) }
    }

    /// The file for erd's counters of a step's programs, beside its log.
    #[must_use]
    pub fn counters(&self, log: &Path) -> Counters {
        let file = log.with_extension("stats");
        let _ = fs::remove_file(&file);
        Counters { file, need_lanes: self.has_lanes }
    }
}

/// The file for the counters of a job's endpoints.
#[derive(Debug)]
pub struct Counters {
    file: PathBuf,
    /// Some session must have had a lane.
    need_lanes: bool,
}

/// Sums over all endpoints of a job.
#[derive(Debug, Default)]
pub struct Sums {
    /// Number of endpoints that reported.
    pub endpoints: usize,
    sums: BTreeMap<String, u64>,
}

impl Counters {
    /// Counters that programs left in `file`.
    #[must_use]
    pub fn at(file: PathBuf) -> Counters {
        Counters { file, need_lanes: false }
    }

    /// `job` with erd writing its counters there.
    #[must_use]
    pub fn give(&self, job: Job) -> Job {
        job.env("FI_ERD_STATS", &self.file)
    }

    /// Reads the counters.
    ///
    /// # Errors
    /// erd wrote no counters, or not JSON.
    pub fn read(&self) -> Result<Sums> {
        let text = fs::read_to_string(&self.file)
            .context("erd wrote no counters: it did not carry this program")?;
        let mut sums = Sums::default();
        for line in text.lines() {
            let value: Value =
                serde_json::from_str(line).with_context(|| format!("counters: {line}"))?;
            sums.add("", &value);
            sums.endpoints += 1;
        }
        Ok(sums)
    }

    /// Proof that erd carried at least `bytes` of payload; a remark for the report.
    ///
    /// # Errors
    /// If it carried less.
    pub fn proof(&self, bytes: u64) -> Result<String> {
        let sums = self.read()?;
        if self.need_lanes && sums.get("lanes_opened") == 0 {
            bail!("erd's counters show no lane");
        }
        let carried = sums.get("rx_payload_bytes");
        if carried < bytes {
            bail!(
                "erd's counters show {carried} payload bytes received; the program moved {bytes}"
            );
        }
        Ok(sums.remark())
    }
}

impl Sums {
    /// A counter's sum; nested ones are named `outer.inner`. 0 when no endpoint has it.
    #[must_use]
    pub fn get(&self, name: &str) -> u64 {
        self.sums.get(name).copied().unwrap_or(0)
    }

    /// Sum of all counters below `outer`.
    #[must_use]
    pub fn below(&self, outer: &str) -> u64 {
        let prefix = format!("{outer}.");
        self.sums.iter().filter(|(name, _)| name.starts_with(&prefix)).map(|(_, sum)| sum).sum()
    }

    /// Retransmissions of all kinds.
    #[must_use]
    pub fn retransmissions(&self) -> u64 {
        self.get("rtx_nack") + self.get("rtx_probe") + self.get("rtx_order")
    }

    /// Retransmissions that were not needed, in parts of all data packets.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a share for reading, not for counting")]
    pub fn spurious_share(&self) -> f64 {
        self.get("rtx_spurious") as f64 / self.get("tx_data").max(1) as f64
    }

    /// The remark for a report.
    #[must_use]
    pub fn remark(&self) -> String {
        format!(
            "erd: {} endpoints, {} lanes, {} received, {} retransmitted, {} spurious ({:.3} %)",
            self.endpoints,
            self.get("lanes_opened"),
            bytes_text(self.get("rx_payload_bytes")),
            self.retransmissions(),
            self.get("rtx_spurious"),
            self.spurious_share() * 100.0,
        )
    }

    fn add(&mut self, name: &str, value: &Value) {
        match value {
            Value::Object(map) => {
                for (key, value) in map {
                    let inner = if name.is_empty() { key.clone() } else { format!("{name}.{key}") };
                    self.add(&inner, value);
                }
            }
            Value::Number(number) => {
                *self.sums.entry(name.to_owned()).or_default() += number.as_u64().unwrap_or(0);
            }
            _ => {}
        }
    }
}

/// Bytes for reading.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
pub fn bytes_text(bytes: u64) -> String {
    let mut value = bytes as f64;
    for unit in ["B", "KiB", "MiB"] {
        if value < 1024.0 {
            return if unit == "B" { format!("{bytes} B") } else { format!("{value:.1} {unit}") };
        }
        value /= 1024.0;
    }
    format!("{value:.1} GiB")
}
