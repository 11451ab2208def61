//! Network namespaces of our own: a private loopback, with packet loss where a test asks for it, or
//! several that tests/netns joins.
//! Nothing of the machine's own network is touched.

use crate::process::Job;
use rustix::process::getuid;
use std::ffi::OsString;
use std::process::Command;
use std::sync::OnceLock;

/// Whether this user may make network namespaces.
#[must_use]
pub fn available() -> bool {
    static ANSWER: OnceLock<bool> = OnceLock::new();
    *ANSWER.get_or_init(|| succeeds("ip link set lo up"))
}

/// Whether packets can be dropped at random in such a namespace.
#[must_use]
pub fn loss_available() -> bool {
    static ANSWER: OnceLock<bool> = OnceLock::new();
    *ANSWER.get_or_init(|| succeeds(&format!("ip link set lo up && {}", loss_rules(500))))
}

/// Whether such a namespace can have a TUN device that another namespace gets.
#[must_use]
pub fn tun_available() -> bool {
    static ANSWER: OnceLock<bool> = OnceLock::new();
    *ANSWER.get_or_init(|| {
        succeeds_beside("ip tuntap add mode tun name probe && ip link set probe netns probe")
    })
}

/// Whether the kernel limits the rate of a link there.
#[must_use]
pub fn limits_available() -> bool {
    static ANSWER: OnceLock<bool> = OnceLock::new();
    let limit = "tc -n probe qdisc add dev lo root tbf rate 1mbit burst 10000 limit 10000";
    *ANSWER.get_or_init(|| succeeds_beside(limit))
}

/// What a report says where they are not to be had.
pub const MISSING: &str = "this user may not make network namespaces";
/// What a report says where several namespaces cannot be joined.
pub const NETWORKS_MISSING: &str =
    "this user may not make networks of namespaces (TUN devices, token buckets)";
/// What a report says where packets can't be dropped.
pub const LOSS_MISSING: &str = "nftables cannot drop packets at random here";

/// `job` in a network namespace with nothing but a loopback.
#[must_use]
pub fn private(job: Job) -> Job {
    wrap(job, "ip link set lo up && exec \"$@\"")
}

/// `job` in such a namespace, where of 10,000 received UDP packets `lost` are dropped at random.
/// The count of what was dropped is the last thing it writes.
#[must_use]
pub fn lossy(job: Job, lost: u32) -> Job {
    let script = format!(
        "ip link set lo up && {} && \"$@\"; rc=$?; nft list chain inet loss in; exit $rc",
        loss_rules(lost)
    );
    wrap(job, &script)
}

/// `job` at the end of the words of a script of tests/netns, which makes namespaces with names. They are
/// mounted, so it gets mounts of its own too.
#[must_use]
pub fn beside(job: Job, script: Vec<OsString>) -> Job {
    let own: Vec<OsString> =
        unshare().iter().chain(&["--mount", "sh"]).map(|word| (*word).into()).collect();
    job.under(own.into_iter().chain(script))
}

fn succeeds_beside(script: &str) -> bool {
    let words = unshare();
    let script = format!("mount -t tmpfs none /run && ip netns add probe && {script}");
    let mut run = Command::new(words[0]);
    run.args(&words[1..]).args(["--mount", "sh", "-c", &script]);
    run.output().is_ok_and(|output| output.status.success())
}

fn loss_rules(lost: u32) -> String {
    format!(
        "nft add table inet loss && \
         nft add chain inet loss in '{{ type filter hook input priority 0; }}' && \
         nft add rule inet loss in meta l4proto udp numgen random mod 10000 '<' {lost} counter drop"
    )
}

fn wrap(job: Job, script: &str) -> Job {
    job.under(unshare().iter().chain(&["sh", "-c", script, "sh"]))
}

fn unshare() -> &'static [&'static str] {
    if getuid().is_root() {
        &["unshare", "--net"]
    } else {
        &["unshare", "--net", "--map-root-user"]
    }
}

fn succeeds(script: &str) -> bool {
    let words = unshare();
    let run = Command::new(words[0]).args(&words[1..]).args(["sh", "-c", script]).output();
    run.is_ok_and(|output| output.status.success())
}
