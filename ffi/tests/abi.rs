//! Holds our copy of libfabric's ABI against the installed headers.
//!
//! Headers older than ours may lack fields and constants at the end of what they have, but only
//! those listed as newer here; all else must lie at the same place and have the same value. Other
//! headers than `/usr/include` are taken from the directory in `ERD_FABRIC_INCLUDE`. Without libfabric's
//! headers there is nothing to compare with, unless that names a directory: then they have to be there.
#![cfg(not(miri))]

use erd_ffi::fi::{self, Layout};
use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// In which headers something is there.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Since {
    /// From this release on.
    Release(u16, u16),
    /// Where there is `rdma/fi_xpu.h`, which came after 2.6.0 without a new version number.
    Xpu,
}

use Since::{Release, Xpu};

/// Fields newer than 1.17.
const NEWER_FIELDS: &[(&str, &str, Since)] = &[
    ("fi_domain_attr", "max_ep_auth_key", Release(1, 20)),
    ("fi_domain_attr", "max_group_id", Release(2, 0)),
    ("fi_domain_attr", "max_cntr_value", Release(2, 5)),
    ("fi_domain_attr", "max_err_cntr_value", Release(2, 5)),
    ("fi_domain_attr", "max_xpu_ctx_cnt", Xpu),
    ("fi_ep_attr", "xpu_ctx", Xpu),
    ("fi_cq_attr", "xpu_ctx", Xpu),
    ("fi_cntr_attr", "xpu_ctx", Xpu),
    ("fi_cq_err_entry", "src_addr", Release(1, 20)),
    ("fi_mr_attr", "hmem_data", Release(1, 19)),
    ("fi_mr_attr", "page_size", Release(1, 22)),
    ("fi_mr_attr", "base_mr", Release(2, 0)),
    ("fi_mr_attr", "sub_mr_cnt", Release(2, 0)),
    ("fi_ops_av", "insert_auth_key", Release(1, 20)),
    ("fi_ops_av", "lookup_auth_key", Release(1, 20)),
    ("fi_ops_av", "set_user_id", Release(1, 20)),
    ("fi_ops_av", "lookup2", Xpu),
    ("fi_ops_domain", "xpu_ctx", Xpu),
    ("fi_ops_ep", "export_xpu", Xpu),
    ("fi_ops_cq", "export_xpu", Xpu),
    ("fi_ops_cntr", "export_xpu", Xpu),
];

/// Structures newer than 1.17. Those of the peer interface are compared from 2.3 on, because it
/// changed incompatibly until then.
fn struct_since(name: &str) -> Option<Since> {
    match name {
        "fi_mr_dmabuf" | "fi_mr_auth_key" => Some(Release(1, 20)),
        _ if name.contains("peer") || name.ends_with("_owner") => Some(Release(2, 3)),
        _ => None,
    }
}

/// Constants newer than 1.17.
const NEWER_CONSTANTS: &[(Since, &[&str])] = &[
    (Release(1, 18), &["FI_OPT_CUDA_API_PERMITTED"]),
    (Release(1, 19), &["FI_CLASS_PEER_CNTR"]),
    (
        Release(1, 20),
        &["FI_AUTH_KEY", "FI_AV_AUTH_KEY", "FI_CLASS_PROFILE", "FI_ENOMR", "FI_MR_DMABUF"],
    ),
    (
        Release(1, 21),
        &["FI_CNTR_EVENTS_BYTES", "FI_OPT_SHARED_MEMORY_PERMITTED", "FI_PROGRESS_CONTROL_UNIFIED"],
    ),
    (
        Release(1, 22),
        &[
            "FI_OPT_INJECT_ATOMIC_SIZE",
            "FI_OPT_INJECT_MSG_SIZE",
            "FI_OPT_INJECT_RMA_SIZE",
            "FI_OPT_INJECT_TAGGED_SIZE",
            "FI_OPT_MAX_ATOMIC_SIZE",
            "FI_OPT_MAX_MSG_SIZE",
            "FI_OPT_MAX_RMA_SIZE",
            "FI_OPT_MAX_TAGGED_SIZE",
        ],
    ),
    (
        Release(2, 0),
        &[
            "FI_BFLOAT16",
            "FI_DIFF",
            "FI_EPROTO",
            "FI_EXACT_DIRECTED_RECV",
            "FI_FLOAT16",
            "FI_FLOAT8_E4M3",
            "FI_FLOAT8_E5M2",
            "FI_MPI_IGNORE_PAYLOAD",
            "FI_MPI_IGNORE_TAG",
            "FI_MR_SINGLE_USE",
            "FI_TAGGED_DIRECTED_RECV",
            "FI_TAGGED_MULTI_RECV",
            "FI_TAG_BITS",
            "FI_TAG_CCL",
            "FI_TAG_MAX_FORMAT",
            "FI_TAG_MPI",
        ],
    ),
    (
        Release(2, 2),
        &["FI_EFIREWALLADDR", "FI_FIREWALL_ADDR", "FI_GET_FD", "FI_OPT_FIREWALL_ADDR", "FI_RESCAN"],
    ),
    (Release(2, 3), &["FI_SOCKADDR_IP"]),
    (Xpu, &["FI_CLASS_XPU_CTX", "FI_GET_MR_XPU_DESC", "FI_MR_XPU_DESC", "FI_XPU"]),
];

/// Structures that end with one that grew.
const ENDS_WITH_GROWN: [&str; 1] = ["fi_mr_modify"];

const HEADERS: &[&str] = &[
    "rdma/fabric.h",
    "rdma/fi_errno.h",
    "rdma/fi_domain.h",
    "rdma/fi_endpoint.h",
    "rdma/fi_cm.h",
    "rdma/fi_eq.h",
    "rdma/fi_rma.h",
    "rdma/fi_tagged.h",
    "rdma/fi_atomic.h",
    "rdma/fi_collective.h",
    "rdma/fi_trigger.h",
    "rdma/fi_ext.h",
    "rdma/providers/fi_prov.h",
    "rdma/providers/fi_log.h",
    "rdma/providers/fi_peer.h",
    "rdma/fi_xpu.h",
];

/// The installed headers.
struct Headers {
    include: PathBuf,
    scratch: PathBuf,
    prologue: String,
    /// All of them after preprocessing, without comments.
    text: String,
    /// Names that they define: macros, and every identifier of the text.
    names: HashSet<String>,
    version: (u16, u16),
}

impl Headers {
    /// The headers; `None` without any, unless a directory was named.
    fn open() -> Option<Self> {
        let named = std::env::var_os("ERD_FABRIC_INCLUDE").map(PathBuf::from);
        let include = named.clone().unwrap_or_else(|| PathBuf::from("/usr/include"));
        if !include.join("rdma/fabric.h").exists() {
            let missing = format!(
                "no rdma/fabric.h in {}: install libfabric-dev (Debian) or libfabric-devel (Fedora)",
                include.display()
            );
            assert!(named.is_none(), "{missing}");
            eprintln!("skipped: {missing}");
            return None;
        }
        let scratch = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
        let mut prologue = String::from(
            "#include <stdio.h>\n#include <stddef.h>\n#include <stdint.h>\n#include <string.h>\n",
        );
        for header in HEADERS.iter().filter(|header| include.join(header).exists()) {
            let _ = writeln!(prologue, "#include <{header}>");
        }
        let source = scratch.join("erd_abi_headers.c");
        std::fs::write(&source, &prologue).expect("scratch directory is writable");
        let text = run(compiler(&include).args(["-E", "-P"]).arg(&source));
        let macros = run(compiler(&include).args(["-E", "-dM"]).arg(&source));
        let mut names: HashSet<String> = identifiers(&text).map(str::to_owned).collect();
        let mut values = HashMap::new();
        for line in macros.lines() {
            let mut parts = line.split_whitespace().skip(1);
            if let Some(name) = parts.next() {
                names.insert(name.to_owned());
                values.insert(name, parts.next().unwrap_or_default());
            }
        }
        let number = |name| values.get(name).and_then(|v| v.parse().ok()).expect("a version");
        let version = (number("FI_MAJOR_VERSION"), number("FI_MINOR_VERSION"));
        Some(Self { include, scratch, prologue, text, names, version })
    }

    fn have(&self, since: Since) -> bool {
        match since {
            Release(major, minor) => self.version >= (major, minor),
            Xpu => self.include.join("rdma/fi_xpu.h").exists(),
        }
    }

    /// What is between the braces of a structure's definition.
    fn body(&self, name: &str) -> Option<&str> {
        let start = self.text.find(&format!("struct {name} {{"))?;
        let open = start + self.text[start..].find('{')?;
        let mut depth = 0_usize;
        for (at, c) in self.text[open..].char_indices() {
            match c {
                '{' => depth += 1,
                '}' if depth == 1 => return Some(&self.text[open + 1..open + at]),
                '}' => depth -= 1,
                _ => (),
            }
        }
        None
    }

    /// Compiles and runs a program that prints `name value` lines.
    fn print(&self, name: &str, statements: &str) -> HashMap<String, i128> {
        let source = self.scratch.join(format!("{name}.c"));
        let program = self.scratch.join(name);
        let text = format!("{}int main(void) {{\n{statements}return 0;\n}}\n", self.prologue);
        std::fs::write(&source, text).expect("scratch directory is writable");
        run(compiler(&self.include).arg("-o").arg(&program).arg(&source));
        run(&mut Command::new(&program))
            .lines()
            .filter_map(|line| line.split_once(' '))
            .map(|(key, value)| (key.to_owned(), value.parse().expect("a number")))
            .collect()
    }
}

fn compiler(include: &Path) -> Command {
    // Outside a build script the `cc` crate must be told what it builds for: this machine.
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let mut command = cc::Build::new()
        .target(&target)
        .host(&target)
        .opt_level(0)
        .cargo_metadata(false)
        .get_compiler()
        .to_command();
    command.arg("-w").arg("-I").arg(include);
    command
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}: install gcc"));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?} failed:\n{error}");
    String::from_utf8(output.stdout).expect("text")
}

fn identifiers(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).filter(|word| !word.is_empty())
}

fn c_name(field: &str) -> &str {
    field.strip_prefix("r#").unwrap_or(field)
}

/// The fields that the headers have; complains about those that they should have.
fn present_fields(
    headers: &Headers,
    layout: &Layout,
    body: &str,
    errors: &mut Vec<String>,
) -> Vec<&'static str> {
    let words: HashSet<&str> = identifiers(body).collect();
    let mut present = Vec::new();
    for field in layout.fields.iter().map(|field| c_name(field.name)) {
        let newer = NEWER_FIELDS
            .iter()
            .find(|(name, newer, _)| (*name, *newer) == (layout.name, field))
            .is_some_and(|(_, _, since)| !headers.have(*since));
        match (words.contains(field), newer) {
            (true, _) => present.push(field),
            (false, true) => (),
            (false, false) => errors.push(format!("{}.{field}: not in the headers", layout.name)),
        }
    }
    present
}

#[test]
fn structures_lie_as_in_the_installed_headers() {
    let Some(headers) = Headers::open() else { return };
    let mut errors = Vec::new();
    let mut statements = String::new();
    for layout in fi::layouts() {
        if struct_since(layout.name).is_some_and(|since| !headers.have(since)) {
            continue;
        }
        let name = layout.name;
        let Some(body) = headers.body(name) else {
            errors.push(format!("{name}: not in the headers"));
            continue;
        };
        let _ = writeln!(statements, "printf(\"{name} %zu\\n\", sizeof(struct {name}));");
        for field in present_fields(&headers, layout, body, &mut errors) {
            let _ = writeln!(
                statements,
                "printf(\"{name}.{field} %zu\\n\", offsetof(struct {name}, {field}));"
            );
        }
    }
    let theirs = headers.print("erd_abi_structs", &statements);
    assert!(theirs.len() > 300, "only {} things compared", theirs.len());
    for layout in fi::layouts() {
        errors.extend(differences(layout, &theirs));
    }
    assert!(errors.is_empty(), "headers {:?}:\n{}", headers.version, errors.join("\n"));
}

/// How our structure differs from the headers' one.
fn differences(layout: &Layout, theirs: &HashMap<String, i128>) -> Vec<String> {
    let Some(&size_bytes) = theirs.get(layout.name) else { return Vec::new() };
    let mut errors = Vec::new();
    let mut complete = !ENDS_WITH_GROWN.contains(&layout.name);
    for field in layout.fields {
        let name = format!("{}.{}", layout.name, c_name(field.name));
        match theirs.get(&name) {
            Some(&offset) if offset == field.offset_bytes as i128 => (),
            Some(offset) => {
                errors.push(format!("{name}: at {offset}, ours {}", field.offset_bytes))
            }
            None => complete = false,
        }
    }
    let ours = layout.size_bytes as i128;
    if (complete && size_bytes != ours) || size_bytes > ours {
        errors.push(format!("{}: {size_bytes} bytes, ours {ours}", layout.name));
    }
    errors
}

#[test]
fn constants_have_the_values_of_the_installed_headers() {
    let Some(headers) = Headers::open() else { return };
    let mut errors = Vec::new();
    let mut statements = String::new();
    for constant in fi::constants() {
        let name = constant.name;
        let newer = NEWER_CONSTANTS
            .iter()
            .any(|(since, newer)| newer.contains(&name) && !headers.have(*since));
        match (headers.names.contains(name), newer) {
            // Signed 64 bits hold all but the all-ones values, which wrap to -1 on both sides.
            (true, _) => {
                let _ = writeln!(statements, "printf(\"{name} %lld\\n\", (long long)({name}));");
            }
            (false, true) => (),
            (false, false) => errors.push(format!("{name}: not in the headers")),
        }
    }
    let theirs = headers.print("erd_abi_constants", &statements);
    for constant in fi::constants() {
        if let Some(&value) = theirs.get(constant.name) {
            let ours = i128::from(constant.value as i64);
            if value != ours {
                errors.push(format!("{}: {value}, ours {ours}", constant.name));
            }
        }
    }
    assert!(errors.is_empty(), "headers {:?}:\n{}", headers.version, errors.join("\n"));
}
