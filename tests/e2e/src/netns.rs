//! Network namespaces: a private loopback, with packet loss where a test asks for it, or several that tests/netns
//! joins. They leave the machine's own network alone.

use crate::process::Job;
use rustix::process::getuid;
use std::ffi::OsString;
use std::process::Command;
use std::sync::OnceLock;

/// Whether this user may make network namespaces.
#[must_use]
pub fn available() -> bool {
    missing().is_none()
}

/// Reason why this user may not, if so.
#[must_use]
pub fn missing() -> Option<&'static str> {
    static ANSWER: OnceLock<Option<String>> = OnceLock::new();
    let what = "this user may not make network namespaces";
    ANSWER.get_or_init(|| refused(what, "ip link set lo up")).as_deref()
}

/// Reason why such a namespace cannot count packets by their first bytes, if so.
#[must_use]
pub fn count_missing() -> Option<&'static str> {
    static ANSWER: OnceLock<Option<String>> = OnceLock::new();
    let script = "nft add table inet probe && nft add chain inet probe in && \
                  nft add rule inet probe in meta l4proto udp '@th,64,8 & 0x70 == 0x30' counter";
    ANSWER.get_or_init(|| refused("nftables cannot count packets here", script)).as_deref()
}

/// Reason why such a namespace cannot drop packets at random, if so.
#[must_use]
pub fn loss_missing() -> Option<&'static str> {
    static ANSWER: OnceLock<Option<String>> = OnceLock::new();
    let script = || format!("ip link set lo up && {}", loss_rules(500));
    let what = "nftables cannot drop packets at random here";
    ANSWER.get_or_init(|| refused(what, &script())).as_deref()
}

/// Reason why such a namespace cannot have a TUN device for another one, if so.
#[must_use]
pub fn tun_missing() -> Option<&'static str> {
    static ANSWER: OnceLock<Option<String>> = OnceLock::new();
    let script = "ip tuntap add mode tun name probe && ip link set probe netns probe";
    let what = "namespaces cannot be joined by TUN devices here";
    ANSWER.get_or_init(|| refused_beside(what, script)).as_deref()
}

/// Reason why the kernel does not limit the rate of a link there, if so.
#[must_use]
pub fn limits_missing() -> Option<&'static str> {
    static ANSWER: OnceLock<Option<String>> = OnceLock::new();
    let limit = "tc -n probe qdisc add dev lo root tbf rate 1mbit burst 10000 limit 10000";
    let what = "the rate of a namespace's links cannot be limited by token buckets here";
    ANSWER.get_or_init(|| refused_beside(what, limit)).as_deref()
}

/// Reason why a named namespace cannot be a router with its own rules, if so.
#[must_use]
pub fn routers_missing() -> Option<&'static str> {
    static ANSWER: OnceLock<Option<String>> = OnceLock::new();
    let rules = "ip netns exec probe nft add table inet probe";
    let what = "a namespace cannot be a router with rules of its own here";
    ANSWER.get_or_init(|| refused_beside(what, rules)).as_deref()
}

/// `job` in a network namespace with nothing but a loopback.
#[must_use]
pub fn private(job: Job) -> Job {
    wrap(job, "ip link set lo up && exec \"$@\"")
}

/// `job` in such a namespace, where of 10,000 received UDP packets `lost` are dropped at random. The count of dropped
/// packets is its last output.
#[must_use]
pub fn lossy(job: Job, lost: u32) -> Job {
    let script = format!(
        "ip link set lo up && {} && \"$@\"; rc=$?; nft list chain inet loss in; exit $rc",
        loss_rules(lost)
    );
    wrap(job, &script)
}

/// `job` in such a namespace, which drops all UDP but that of DSCP 46 between ports of this range.
#[must_use]
pub fn restricted(job: Job, ports: &str) -> Job {
    let rule =
        |rule: &str| format!("nft add rule inet rules in meta l4proto udp {rule} counter drop");
    let rules = [
        "ip dscp != 46".to_owned(),
        format!("udp sport != {ports}"),
        format!("udp dport != {ports}"),
    ];
    let rules: Vec<String> = rules.iter().map(|text| rule(text)).collect();
    let script = format!(
        "ip link set lo up && nft add table inet rules && \
         nft add chain inet rules in '{{ type filter hook input priority 0; }}' && {} && exec \"$@\"",
        rules.join(" && ")
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

fn refused_beside(what: &str, script: &str) -> Option<String> {
    let words = unshare();
    let script = format!("mount -t tmpfs none /run && ip netns add probe && {script}");
    let mut run = Command::new(words[0]);
    run.args(&words[1..]).args(["--mount", "sh", "-c", &script]);
    why(what, &mut run)
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

fn refused(what: &str, script: &str) -> Option<String> {
    let words = unshare();
    why(what, Command::new(words[0]).args(&words[1..]).args(["sh", "-c", script]))
}

/// The missing feature when `probe` fails, with its last output.
fn why(what: &str, probe: &mut Command) -> Option<String> {
    let said = match probe.output() {
        Ok(output) if output.status.success() => return None,
        Ok(output) => String::from_utf8_lossy(&output.stderr).trim_end().to_owned(),
        Err(error) => format!("{}: {error}", probe.get_program().display()),
    };
    let last = said.lines().last().unwrap_or("its probe said nothing");
    Some(format!("{what} ({last})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_told_with_the_reason() {
        let sh = |script| why("no luck", Command::new("sh").args(["-c", script]));
        assert_eq!(sh("true"), None);
        let told = sh("echo first >&2; echo no such table >&2; false");
        assert_eq!(told.as_deref(), Some("no luck (no such table)"));
        let none = why("no luck", &mut Command::new("/no/such/program")).expect("told");
        assert!(none.contains("/no/such/program"), "{none}");
    }
}
