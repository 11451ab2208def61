//! Checks of shared memory between processes of this host.

use super::{Finding, Host};
use crate::system::System;
use erd_core::settings::Settings;
use erd_port::local::offer::ProcessId;
use erd_port::local::{LocalPort, Options};
use erd_sys::own_memory;
use std::net::{Ipv4Addr, SocketAddr};

/// Descriptors that a port may use here.
const FILES: usize = 16;

/// Checks both: the memory, and whether long messages are read where they are.
pub fn check(host: &Host) -> Vec<Finding> {
    if !host.settings.local {
        return vec![Finding::skipped("shared-memory", "FI_ERD_LOCAL is udp")];
    }
    let is_root = rustix::process::geteuid().is_root();
    vec![memory(&host.settings), one_copy(&host.system, is_root, own_memory::is_offered())]
}

/// Opens a port, as an endpoint does.
fn memory(settings: &Settings) -> Finding {
    // No endpoint has this name, since ports are not 0, and no other run of this command.
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    let name = SocketAddr::from((Ipv4Addr::new(127, high, middle, low), 0));
    let options = Options {
        name,
        dir: settings.local_dir.clone(),
        process: ProcessId([0; 16]),
        descriptors: FILES,
    };
    match LocalPort::open(options) {
        Ok(port) if port.is_found() => {
            Finding::ok("shared-memory", "processes of one user on this host exchange data by it")
        }
        Ok(_) => Finding::warning("shared-memory", "peers on this host cannot find an endpoint")
            .fix("see that FI_ERD_LOCAL_DIR names a directory that may be written"),
        Err(error) => Finding::warning(
            "shared-memory",
            format!("none between processes of this host ({error}): they use UDP"),
        )
        .fix("let the container make memfds (memfd_create)"),
    }
}

/// Whether long messages take one copy: that depends on what the kernel lets processes read of each other.
fn one_copy(system: &System, is_root: bool, is_offered: bool) -> Finding {
    const CHECK: &str = "one-copy";
    if !is_offered {
        return Finding::warning(
            CHECK,
            "process_vm_readv is forbidden: long messages take two copies",
        )
        .fix("let the container use process_vm_readv (--cap-add=SYS_PTRACE)");
    }
    match system.number("/proc/sys/kernel/yama/ptrace_scope") {
        None | Some(0) => Finding::ok(CHECK, "long messages within this host take one copy"),
        Some(1 | 2) if is_root => Finding::ok(CHECK, "long messages of root take one copy"),
        Some(scope) => Finding::warning(
            CHECK,
            format!("kernel.yama.ptrace_scope is {scope}: long messages within this host take two"),
        )
        .fix("sudo sysctl -w kernel.yama.ptrace_scope=0"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Verdict;

    #[test]
    fn memory_can_be_shared_here() {
        let settings = Settings::read(|_| Ok(None)).expect("the defaults");
        assert_eq!(memory(&settings).verdict, Verdict::Ok);
        let nowhere = Settings { local_dir: Some("/nowhere/at/all".into()), ..settings };
        assert_eq!(memory(&nowhere).verdict, Verdict::Warning);
    }

    #[test]
    fn one_copy_takes_the_kernels_permission() {
        let file = "proc/sys/kernel/yama/ptrace_scope";
        let judge = |scope: &str, is_root, is_offered| {
            one_copy(&System::planted(&[(file, scope)]), is_root, is_offered).verdict
        };
        assert_eq!(judge("0\n", false, true), Verdict::Ok);
        assert_eq!(judge("1\n", false, true), Verdict::Warning);
        assert_eq!(judge("1\n", true, true), Verdict::Ok);
        assert_eq!(judge("3\n", true, true), Verdict::Warning);
        assert_eq!(judge("0\n", true, false), Verdict::Warning);
        let without = System::below("/nowhere".as_ref());
        assert_eq!(one_copy(&without, false, true).verdict, Verdict::Ok);
    }
}
