//! Checks whether libfabric finds the provider.

use super::{Finding, Host};
use erd::entry::RENAMED_VERSION;
use erd_core::settings::Settings;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// The file that libfabric loads.
const FILE: &str = "liberd_fi.so";
/// The provider's own name.
const OWN_NAME: &str = "erd";
/// The function that libfabric calls in it.
const ENTRY: &[u8] = b"fi_prov_ini";
/// Longest wait for `fi_info`, and the pause between two checks for its end.
const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(10);

/// Checks `FI_PROVIDER_PATH`, and asks libfabric.
pub fn check(_: &Host) -> Vec<Finding> {
    let path = env::var("FI_PROVIDER_PATH").ok().filter(|path| !path.is_empty());
    let mut found: Vec<Finding> = path.as_deref().map(searched).into_iter().collect();
    let filter = env::var("FI_PROVIDER").ok().filter(|filter| !filter.trim().is_empty());
    let name = name();
    found.extend(filter.as_deref().map(|filter| filtered(filter, &name)));
    found.push(asked(path.is_some(), &name));
    found
}

/// The provider's name in libfabric. Another check covers one that is not valid.
fn name() -> String {
    let set = Settings::prov_name(|parameter| Ok(env::var(parameter.variable()).ok()));
    set.unwrap_or_else(|_| OWN_NAME.to_owned())
}

/// The filter of `FI_PROVIDER`: the providers that it names, or with a `^` before the first all others. One name may
/// have several layers, with semicolons between.
fn filtered(filter: &str, own: &str) -> Finding {
    let (check, filter) = ("provider-filter", filter.trim());
    let (excludes, names) = match filter.strip_prefix('^') {
        Some(names) => (true, names),
        None => (false, filter),
    };
    let mut layers = names.split([',', ';']).map(str::trim);
    match (excludes, layers.clone().any(|name| name.eq_ignore_ascii_case(own))) {
        (false, true) => return Finding::ok(check, format!("FI_PROVIDER={filter} names {own}")),
        (true, false) => return Finding::ok(check, format!("FI_PROVIDER={filter} leaves erd")),
        (true, true) => {
            let text = format!("FI_PROVIDER={filter} keeps programs from erd");
            return Finding::problem(check, text).fix("unset FI_PROVIDER");
        }
        (false, false) => {}
    }
    let is_slip = |name: &str| strsim::osa_distance(&name.to_lowercase(), own) == 1;
    let slip = layers.find(|name| is_slip(name));
    let text = match slip {
        Some(slip) => {
            format!("FI_PROVIDER={filter}: no provider is called {slip}; {own} was meant?")
        }
        None => format!("FI_PROVIDER={filter} keeps programs from erd: they get those providers"),
    };
    Finding::problem(check, text).fix(format!("export FI_PROVIDER={own}"))
}

/// Searches where libfabric does: in directories separated by colons. An `@` before the first means that their order
/// decides.
fn searched(path: &str) -> Finding {
    let mut looked = Vec::new();
    let path = path.strip_prefix('@').unwrap_or(path);
    for dir in path.split(':').filter(|dir| !dir.is_empty()) {
        let file = Path::new(dir).join(FILE);
        match loadable(&file) {
            Ok(()) => return Finding::ok("provider-path", format!("{} is there", file.display())),
            Err(why) => looked.push(format!("{dir}: {why}")),
        }
    }
    let text = format!("no {FILE} where FI_PROVIDER_PATH points: {}", looked.join("; "));
    let finding = Finding::problem("provider-path", text);
    match beside_this_program() {
        Some(dir) => finding.fix(format!("export FI_PROVIDER_PATH={}", dir.display())),
        None => finding.fix(format!("export FI_PROVIDER_PATH=<directory of {FILE}>; or unset it, if the package is installed")),
    }
}

/// Whether a file could be the provider for this processor.
fn loadable(file: &Path) -> Result<(), String> {
    let dir = file.parent().unwrap_or(Path::new("/"));
    if !dir.is_dir() {
        return Err("there is no such directory".to_owned());
    }
    if !file.exists() {
        return Err(format!("it has no {FILE}"));
    }
    let bytes = fs::read(file).map_err(|error| format!("{FILE}: {error}"))?;
    let own = env::current_exe().ok().and_then(|own| fs::read(own).ok()).unwrap_or_default();
    // ELF: magic, 64 bits, byte order; and the machine, at offset 18.
    let kind = |bytes: &[u8]| Some([bytes.get(..6)?, bytes.get(18..20)?].concat());
    if bytes.get(..4) != Some(b"\x7fELF") {
        return Err(format!("{FILE} is no shared object"));
    }
    if !own.is_empty() && kind(&bytes) != kind(&own) {
        return Err(format!("{FILE} is for another processor"));
    }
    if !bytes.windows(ENTRY.len()).any(|window| window == ENTRY) {
        return Err(format!("{FILE} is no provider of libfabric"));
    }
    Ok(())
}

/// Place of it in a build or an unpacked tarball.
fn beside_this_program() -> Option<PathBuf> {
    let own = env::current_exe().ok()?;
    let dir = own.parent()?;
    let places = [dir.to_owned(), dir.join("../lib/libfabric")];
    places.into_iter().find(|dir| loadable(&dir.join(FILE)).is_ok())
}

/// `fi_info -p NAME`, which comes with libfabric.
fn asked(has_path: bool, name: &str) -> Finding {
    let check = "libfabric";
    // Another check covers the filter.
    let ask = ["-p", name];
    let output = match limited(Command::new("fi_info").args(ask).env_remove("FI_PROVIDER")) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Finding::skipped(
                check,
                "fi_info is not installed: it would show whether libfabric finds erd",
            );
        }
        Err(error) => return Finding::problem(check, format!("fi_info -p {name}: {error}")),
        Ok(output) => output,
    };
    let domains = entries(&output, name);
    if domains > 0 {
        return Finding::ok(check, format!("fi_info shows {domains} interfaces of erd"));
    }
    let finding = Finding::problem(
        check,
        format!(
            "fi_info -p {name} shows nothing: libfabric does not find erd, or a setting is not valid"
        ),
    );
    match beside_this_program() {
        Some(dir) if !has_path => finding.fix(format!("export FI_PROVIDER_PATH={}", dir.display())),
        None if !has_path => finding
            .fix(format!("install the package, or: export FI_PROVIDER_PATH=<directory of {FILE}>")),
        _ => finding
            .fix(format!("FI_LOG_LEVEL=info fi_info -p {name} 2>&1 | grep -i -e erd -e provider")),
    }
}

/// Entries of erd in the output of `fi_info`. Under another name it is told from libfabric's own provider by its version.
fn entries(output: &str, name: &str) -> usize {
    let field = |line: &str, field: &str, value: &str| {
        line.trim().strip_prefix(field).is_some_and(|rest| rest.trim() == value)
    };
    // As `fi_info` prints it.
    let renamed = format!("{}.{}", RENAMED_VERSION >> 16, RENAMED_VERSION & 0xffff);
    let mut entries = 0;
    let mut is_named = false;
    for line in output.lines() {
        if line.trim_start().starts_with("provider:") {
            is_named = field(line, "provider:", name);
            entries += usize::from(is_named && name == OWN_NAME);
        } else if is_named && name != OWN_NAME && field(line, "version:", &renamed) {
            entries += 1;
        }
    }
    entries
}

/// Runs a program for a bounded time; returns its output.
fn limited(command: &mut Command) -> std::io::Result<String> {
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    let end = Instant::now() + PATIENCE;
    // It writes little, so its pipe is never full.
    while child.try_wait()?.is_none() {
        if Instant::now() >= end {
            child.kill()?;
            child.wait()?;
            return Err(std::io::ErrorKind::TimedOut.into());
        }
        thread::sleep(PAUSE);
    }
    Ok(String::from_utf8_lossy(&child.wait_with_output()?.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Verdict;
    use crate::system::System;

    fn path(system: &System) -> String {
        system.path("/lib").display().to_string()
    }

    #[test]
    fn a_filter_that_leaves_erd_out_is_told() {
        for good in ["erd", "tcp, ERD", "^tcp,udp", "erd;ofi_rxm"] {
            assert_eq!(filtered(good, "erd").verdict, Verdict::Ok, "{good}");
        }
        for bad in ["tcp", "edr", "^erd", "udp;ofi_rxd"] {
            assert_eq!(filtered(bad, "erd").verdict, Verdict::Problem, "{bad}");
        }
        assert!(filtered("edr", "erd").text.ends_with("no provider is called edr; erd was meant?"));
        assert_eq!(filtered("tcp", "erd").fix, ["export FI_PROVIDER=erd"]);
        assert_eq!(filtered("^erd", "erd").fix, ["unset FI_PROVIDER"]);
        assert_eq!(filtered("tcp", "tcp").verdict, Verdict::Ok);
        assert_eq!(filtered("erd", "tcp").fix, ["export FI_PROVIDER=tcp"]);
    }

    #[test]
    fn erd_under_another_name_is_told_from_who_has_it() {
        let entry = |name: &str, version: &str| {
            format!("provider: {name}\n    fabric: 127.0.0.0/8\n    version: {version}\n")
        };
        let theirs = entry("tcp", "206.0") + &entry("tcp;ofi_rxm", "206.0");
        assert_eq!(entries(&theirs, "tcp"), 0);
        assert_eq!(entries(&(theirs + &entry("tcp", "9999.0")), "tcp"), 1);
        assert_eq!(entries(&entry("erd", "0.1").repeat(2), "erd"), 2);
        assert_eq!(entries(&entry("erd;ofi_rxm", "0.1"), "erd"), 0);
    }

    #[test]
    fn a_path_without_the_provider_says_what_is_there() {
        let empty = System::planted(&[("lib/other.so", "")]);
        let finding = searched(&path(&empty));
        assert_eq!(finding.verdict, Verdict::Problem);
        assert!(finding.text.ends_with("it has no liberd_fi.so"), "{}", finding.text);
        let text = System::planted(&[("lib/liberd_fi.so", "not a library")]);
        assert!(searched(&path(&text)).text.ends_with("is no shared object"));
        let own = fs::read(env::current_exe().expect("this test")).expect("readable");
        let head: String = own[..20].iter().map(|byte| char::from(*byte)).collect();
        // A file of text is UTF-8, in which bytes above 127 would be others.
        if head.is_ascii() {
            let other = System::planted(&[("lib/liberd_fi.so", &head)]);
            assert!(searched(&path(&other)).text.ends_with("is no provider of libfabric"));
            let whole = System::planted(&[("lib/liberd_fi.so", &format!("{head}fi_prov_ini"))]);
            assert_eq!(searched(&format!("@/nowhere:{}", path(&whole))).verdict, Verdict::Ok);
        }
        assert!(searched("/nowhere").text.contains("no such directory"));
    }
}
