//! Checks of RDMA devices: whether there are any, whether they open, and the memory that they lock.

use super::{Finding, Host};
use crate::text;
use erd_core::settings::PortSetting;
use erd_port::verbs::{VerbsError, ports};
use rustix::process::{Resource, getrlimit};
use std::io::ErrorKind;

/// Memory that a domain locks at an MTU of 4096: 2048 receives, and 128 sends on each of 4 paths.
const LOCKED_BYTES: u64 = 11 << 20;

/// Checks devices, library and limit.
pub fn check(host: &Host) -> Vec<Finding> {
    if host.settings.port == PortSetting::Udp {
        return vec![Finding::ok("rdma", "not looked for: FI_ERD_PORT is udp")];
    }
    let mut found = vec![usable(host)];
    if host.system.path("/dev/infiniband").exists() {
        found.push(lockable(getrlimit(Resource::Memlock).current));
    }
    found
}

fn usable(host: &Host) -> Finding {
    let insists = host.settings.port == PortSetting::Verbs;
    let bad = |text: String| match insists {
        true => Finding::problem("rdma", text),
        false => Finding::warning("rdma", format!("{text}; UDP is used instead")),
    };
    match ports() {
        Ok((ports, refused)) => match (ports.as_slice(), refused.first()) {
            (_, Some(error)) => refusal(bad(error.to_string()), error),
            ([], None) => {
                bad("no device has an active port".to_owned()).fix("rdma link; ibv_devinfo")
            }
            (ports, None) => {
                let names: Vec<String> = ports.iter().map(erd_port::verbs::Port::name).collect();
                Finding::ok("rdma", names.join(", "))
            }
        },
        Err(VerbsError::NoDevices) => none(host, insists),
        Err(error @ VerbsError::Library(_)) => {
            bad(error.to_string()).fix("sudo apt install libibverbs1 ibverbs-providers")
        }
        Err(error) => bad(error.to_string()),
    }
}

fn none(host: &Host, insists: bool) -> Finding {
    let hidden = host.system.names("/sys/class/infiniband");
    if !hidden.is_empty() {
        let text =
            format!("the host has {}, but there is no /dev/infiniband here", hidden.join(", "));
        return Finding::warning("rdma", text)
            .fix("sudo modprobe ib_uverbs   # or, for a container: --device=/dev/infiniband --ulimit memlock=-1");
    }
    if insists {
        return Finding::problem("rdma", "FI_ERD_PORT is verbs, but there are no RDMA devices")
            .fix("unset FI_ERD_PORT");
    }
    Finding::ok("rdma", "no devices: UDP is used")
}

fn refusal(finding: Finding, error: &VerbsError) -> Finding {
    let VerbsError::Call { source, .. } = error else { return finding };
    if source.kind() == ErrorKind::PermissionDenied {
        return finding
            .fix("sudo chmod a+rw /dev/infiniband/uverbs*   # or add the user to their group");
    }
    finding
}

fn lockable(limit: Option<u64>) -> Finding {
    match limit {
        Some(limit) if limit < LOCKED_BYTES => {
            let text = format!(
                "{} may be locked, a domain takes {}: fewer receives are posted, or verbs is not used",
                text::bytes(limit),
                text::bytes(LOCKED_BYTES)
            );
            Finding::warning("locked-memory", text)
                .fix("ulimit -l unlimited")
                .fix("printf '* - memlock unlimited\\n' | sudo tee /etc/security/limits.d/90-erd.conf   # for good")
        }
        Some(limit) => {
            Finding::ok("locked-memory", format!("{} may be locked", text::bytes(limit)))
        }
        None => Finding::ok("locked-memory", "without limit"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Verdict;

    #[test]
    fn a_low_limit_is_told() {
        let low = lockable(Some(64 << 10));
        assert!(low.verdict == Verdict::Warning && low.text.contains("64.0 KiB"), "{}", low.text);
        assert_eq!(lockable(None).verdict, Verdict::Ok);
    }
}
