//! Faults are planted one at a time, in a network namespace of their own, and `erd doctor` finds
//! each: with its check, how bad it is, and a word of what it is or how to fix it.

#![forbid(unsafe_code)]

use serde_json::Value;
use std::process::Command;

/// A fault.
struct Fault {
    name: &'static str,
    /// Plants it, in a shell that then becomes `erd doctor`.
    plant: &'static str,
    check: &'static str,
    verdict: &'static str,
    /// What the finding or its cure has in it.
    says: &'static str,
}

const LO: &str = "ip link set lo up";

/// A firewall's rule for what comes in or goes out over UDP, of the family `inet` or `ip`.
macro_rules! filter {
    ($family:literal, $hook:literal, $rule:literal) => {
        concat!(
            "nft add table ",
            $family,
            " f && nft add chain ",
            $family,
            " f c '{ type filter hook ",
            $hook,
            " priority 0; }' && nft add rule ",
            $family,
            " f c meta l4proto udp ",
            $rule
        )
    };
}

const FAULTS: &[Fault] = &[
    Fault {
        name: "loopback is down, and there is nothing else",
        plant: "ip link set lo down",
        check: "interfaces",
        verdict: "problem",
        says: "sudo ip link set lo up",
    },
    Fault {
        name: "a firewall drops what arrives over UDP",
        plant: filter!("inet", "input", "drop"),
        check: "firewall",
        verdict: "problem",
        says: "does not arrive",
    },
    Fault {
        name: "a firewall refuses to send over UDP",
        plant: filter!("inet", "output", "drop"),
        check: "firewall",
        verdict: "problem",
        says: "not permitted",
    },
    Fault {
        name: "a firewall drops large packets",
        plant: filter!("inet", "input", "meta length gt 9000 drop"),
        check: "firewall",
        verdict: "problem",
        says: "small datagrams pass",
    },
    Fault {
        name: "ECN marks are cleared",
        plant: filter!("ip", "output", "ip ecn set not-ect"),
        check: "ecn",
        verdict: "warning",
        says: "ecn set not-ect",
    },
    Fault {
        name: "few ephemeral ports",
        plant: "echo 40000 40010 > /proc/sys/net/ipv4/ip_local_port_range",
        check: "ports",
        verdict: "warning",
        says: "sysctl -w net.ipv4.ip_local_port_range",
    },
    Fault {
        name: "interfaces of unequal MTU",
        plant: "ip link add va mtu 1500 type veth peer name vb mtu 9000 && ip link set va up && \
            ip link set vb up && ip addr add 192.0.2.1/24 dev va && ip addr add 198.51.100.1/24 dev vb",
        check: "mtu",
        verdict: "warning",
        says: "va 1500, vb 9000",
    },
    Fault {
        name: "an interface that is not there is asked for",
        plant: "export FI_ERD_IFACE=eth9",
        check: "interfaces",
        verdict: "problem",
        says: "unset FI_ERD_IFACE",
    },
    Fault {
        name: "a setting has a value that is not valid",
        plant: "export FI_ERD_CC=nscx",
        check: "settings",
        verdict: "problem",
        says: "export FI_ERD_CC=nscc",
    },
    Fault {
        name: "a setting is misspelt",
        plant: "export FI_ERD_PATH=8",
        check: "settings",
        verdict: "warning",
        says: "export FI_ERD_PATHS=",
    },
    Fault {
        name: "a buffer larger than users may have",
        plant: "export FI_ERD_RECV_BUFFER=1073741824",
        check: "recv-buffer",
        verdict: "warning",
        says: "sudo sysctl -w net.core.rmem_max=1073741824",
    },
    Fault {
        name: "few files may be open",
        plant: "ulimit -n 40",
        check: "open-files",
        verdict: "problem",
        says: "ulimit -n 1024",
    },
    Fault {
        name: "another provider is asked for",
        plant: "export FI_PROVIDER=tcp",
        check: "provider-filter",
        verdict: "problem",
        says: "export FI_PROVIDER=erd",
    },
    Fault {
        name: "the provider's name is misspelt",
        plant: "export FI_PROVIDER=edr",
        check: "provider-filter",
        verdict: "problem",
        says: "erd was meant?",
    },
    Fault {
        name: "the provider is not where FI_PROVIDER_PATH points",
        plant: "export FI_PROVIDER_PATH=/proc/self",
        check: "provider-path",
        verdict: "problem",
        says: "it has no liberd_fi.so",
    },
    Fault {
        name: "what FI_PROVIDER_PATH points to is no provider",
        plant: "mount -t tmpfs none /mnt && echo text > /mnt/liberd_fi.so && export FI_PROVIDER_PATH=/mnt",
        check: "provider-path",
        verdict: "problem",
        says: "no shared object",
    },
    Fault {
        name: "an RDMA device, and little memory that may be locked",
        plant: "mount -t tmpfs none /mnt && mkdir /mnt/infiniband && touch /mnt/null && \
            mount --bind /dev/null /mnt/null && mount --rbind /mnt /dev && ulimit -l 64",
        check: "locked-memory",
        verdict: "warning",
        says: "ulimit -l unlimited",
    },
];

/// Runs a shell in namespaces of its own, as root there.
fn apart(script: &str) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--map-root-user", "--net", "--mount", "sh", "-c", script]);
    // What this test's environment says of erd is not what is tried.
    for (name, _) in
        std::env::vars_os().filter(|(name, _)| name.as_encoded_bytes().starts_with(b"FI_"))
    {
        command.env_remove(name);
    }
    command
}

/// What the doctor finds after `plant`; `None` if that cannot be planted here.
fn findings(plant: &str) -> Option<Vec<Value>> {
    if !apart(&format!("{LO} && {plant}")).output().is_ok_and(|run| run.status.success()) {
        return None;
    }
    let erd = env!("CARGO_BIN_EXE_erd");
    let run =
        apart(&format!("{LO} && {plant} && exec {erd} doctor --json")).output().expect("unshare");
    let text = String::from_utf8_lossy(&run.stdout);
    let found: Vec<Value> = serde_json::from_str(&text).unwrap_or_else(|error| {
        panic!("{plant}: {error}: {text}{}", String::from_utf8_lossy(&run.stderr))
    });
    let has_problem = found.iter().any(|finding| finding["verdict"] == "problem");
    assert_eq!(run.status.code(), Some(i32::from(has_problem)), "{plant}");
    Some(found)
}

fn tells(finding: &Value, fault: &Fault) -> bool {
    finding["check"] == fault.check
        && finding["verdict"] == fault.verdict
        && format!("{} {}", finding["text"], finding["fix"]).contains(fault.says)
}

#[test]
fn each_planted_fault_is_found() {
    let Some(healthy) = findings("true") else {
        println!("skipped: this user may not make namespaces");
        return;
    };
    let mut tried = 0;
    for fault in FAULTS {
        assert!(
            !healthy.iter().any(|finding| tells(finding, fault)),
            "{}: not planted yet",
            fault.name
        );
        let Some(found) = findings(fault.plant) else {
            println!("skipped: {} cannot be planted here", fault.name);
            continue;
        };
        let found: Vec<Value> =
            found.into_iter().filter(|finding| finding["verdict"] != "ok").collect();
        assert!(found.iter().any(|finding| tells(finding, fault)), "{}: {found:#?}", fault.name);
        println!("found: {}", fault.name);
        tried += 1;
    }
    println!("{tried} of {} faults were planted, and found", FAULTS.len());
    assert!(tried >= 6, "those that need no tools are planted everywhere");
}
