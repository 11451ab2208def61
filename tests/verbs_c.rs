//! Holds the C interface together: the header, the library's structures and functions, the record
//! of the ABI, the man pages.
//!
//! The record may grow while the library is `liberd.so.1`; a line of it that changes or goes needs
//! another name. `cargo xtask test` compares it with what the shared object exports.

use erd::verbs::{Access, Opcode, SendFlags, Status};
use erd::verbs_c::types;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

const HEADER: &str = include_str!("../include/erd.h");
const RECORD: &str = include_str!("abi/liberd.so.1.txt");
/// Where the exported functions are.
const SOURCES: [&str; 3] = [
    include_str!("../prov/verbs_c/objects.rs"),
    include_str!("../prov/verbs_c/queues.rs"),
    include_str!("../prov/verbs_c/post.rs"),
];

/// Prototypes of the header, one a line.
fn prototypes() -> Vec<&'static str> {
    HEADER.lines().filter(|line| line.ends_with(");")).collect()
}

/// The name in a prototype.
fn name(prototype: &str) -> &str {
    let before = prototype.split('(').next().unwrap_or_default();
    before.rsplit([' ', '*']).next().unwrap_or_default()
}

fn functions() -> BTreeSet<&'static str> {
    prototypes().into_iter().map(name).collect()
}

/// Enumerators of the header as they are written: name and value.
fn enumerators() -> Vec<(&'static str, &'static str)> {
    let pairs = HEADER.lines().filter_map(|line| line.strip_prefix("    ERD_")?.split_once(" = "));
    let value = |text: &'static str| text.split([',', '/']).next().unwrap_or_default().trim();
    pairs.map(|(name, rest)| (name, value(rest))).collect()
}

fn record() -> String {
    let mut text = String::new();
    let mut line = |of: String| writeln!(text, "{of}").expect("a string takes all");
    for (name, bytes, fields) in types::layouts() {
        line(format!("struct {name}: {bytes} bytes"));
        fields.iter().for_each(|(field, at)| line(format!("    {field} at {at}")));
    }
    enumerators().iter().for_each(|(name, value)| line(format!("ERD_{name} = {value}")));
    prototypes().iter().for_each(|prototype| line((*prototype).to_owned()));
    text
}

/// Compiles a source that asserts; what the compiler says if it does not like it.
fn compile(compiler: &str, standard: &str, language: &str, source: &str) -> Result<(), String> {
    let dir = std::env::temp_dir().join(format!("erd-verbs_c-{}-{standard}", std::process::id()));
    fs::create_dir_all(&dir).expect("a directory");
    let file = dir.join("header.c");
    fs::write(&file, source).expect("the source");
    let output = Command::new(compiler)
        .args([&format!("-std={standard}"), "-Wall", "-Wextra", "-Werror", "-pedantic"])
        .args(["-fsyntax-only", "-x", language, "-I"])
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("include"))
        .arg(&file)
        .output()
        .unwrap_or_else(|error| panic!("{compiler}: {error}"));
    fs::remove_dir_all(&dir).expect("the directory goes");
    if output.status.success() {
        return Ok(());
    }
    Err(String::from_utf8_lossy(&output.stderr).into_owned())
}

/// Asserts that the header's structures and numbers are the library's.
fn assertions(keyword: &str) -> String {
    let mut source = "#include <erd.h>\n".to_owned();
    let mut hold = |claim: String| {
        writeln!(source, "{keyword}({claim}, \"{claim}\");").expect("a string takes all");
    };
    for (name, bytes, fields) in types::layouts() {
        hold(format!("sizeof(struct {name}) == {bytes}"));
        for (field, at) in fields {
            hold(format!("offsetof(struct {name}, {field}) == {at}"));
        }
    }
    let numbers = [
        ("ERD_WC_SUCCESS", Status::Success as u32),
        ("ERD_WC_LOC_LEN_ERR", Status::LocalLength as u32),
        ("ERD_WC_LOC_PROT_ERR", Status::LocalProtection as u32),
        ("ERD_WC_WR_FLUSH_ERR", Status::Flushed as u32),
        ("ERD_WC_REM_INV_REQ_ERR", Status::RemoteInvalidRequest as u32),
        ("ERD_WC_REM_ACCESS_ERR", Status::RemoteAccess as u32),
        ("ERD_WC_REM_OP_ERR", Status::RemoteOperation as u32),
        ("ERD_WC_RETRY_EXC_ERR", Status::RetryExceeded as u32),
        ("ERD_WC_REM_ABORT_ERR", Status::RemoteAborted as u32),
        ("ERD_WC_GENERAL_ERR", Status::General as u32),
        ("ERD_WC_SEND", Opcode::Send as u32),
        ("ERD_WC_RDMA_WRITE", Opcode::RdmaWrite as u32),
        ("ERD_WC_RDMA_READ", Opcode::RdmaRead as u32),
        ("ERD_WC_ATOMIC", Opcode::Atomic as u32),
        ("ERD_WC_RECV", Opcode::Recv as u32),
        ("ERD_WC_RECV_RDMA_WITH_IMM", Opcode::RecvRdmaWithImm as u32),
        ("ERD_WC_WITH_IMM", types::ERD_WC_WITH_IMM),
        ("ERD_DEVICE_LOOPBACK", types::ERD_DEVICE_LOOPBACK),
        ("ERD_DEVICE_RDMA", types::ERD_DEVICE_RDMA),
        ("ERD_ACCESS_REMOTE_WRITE", Access::REMOTE_WRITE.bits()),
        ("ERD_ACCESS_REMOTE_READ", Access::REMOTE_READ.bits()),
        ("ERD_ACCESS_REMOTE_ATOMIC", Access::REMOTE_ATOMIC.bits()),
        ("ERD_SEND_FENCE", SendFlags::FENCE.bits()),
        ("ERD_SEND_SIGNALED", SendFlags::SIGNALED.bits()),
        ("ERD_SEND_INLINE", SendFlags::INLINE.bits()),
        ("ERD_WR_RDMA_WRITE", types::ERD_WR_RDMA_WRITE),
        ("ERD_WR_RDMA_WRITE_WITH_IMM", types::ERD_WR_RDMA_WRITE_WITH_IMM),
        ("ERD_WR_SEND", types::ERD_WR_SEND),
        ("ERD_WR_SEND_WITH_IMM", types::ERD_WR_SEND_WITH_IMM),
        ("ERD_WR_RDMA_READ", types::ERD_WR_RDMA_READ),
        ("ERD_WR_ATOMIC_CMP_AND_SWP", types::ERD_WR_ATOMIC_CMP_AND_SWP),
        ("ERD_WR_ATOMIC_FETCH_AND_ADD", types::ERD_WR_ATOMIC_FETCH_AND_ADD),
    ];
    let all: BTreeSet<String> =
        enumerators().iter().map(|(name, _)| format!("ERD_{name}")).collect();
    assert_eq!(all, numbers.iter().map(|(name, _)| (*name).to_owned()).collect());
    numbers.iter().for_each(|(name, value)| hold(format!("{name} == {value}")));
    source
}

#[test]
fn the_header_is_c11_and_has_the_librarys_structures() {
    assert_eq!(compile("cc", "c11", "c", &assertions("_Static_assert")), Ok(()));
    let wrong = "#include <erd.h>\n_Static_assert(sizeof(struct erd_wc) == 1, \"wrong\");\n";
    assert!(compile("cc", "c11", "c", wrong).is_err(), "a wrong claim is not seen");
}

#[test]
fn the_header_is_cplusplus17() {
    if Command::new("c++").arg("--version").output().is_err() {
        eprintln!("skipped: there is no C++ compiler");
        return;
    }
    assert_eq!(compile("c++", "c++17", "c++", &assertions("static_assert")), Ok(()));
}

#[test]
fn the_abi_is_the_recorded_one() {
    assert!(record() == RECORD, "tests/abi/liberd.so.1.txt is not what there is:\n{}", record());
}

#[test]
fn what_the_header_declares_is_exported_and_no_more() {
    let exported: BTreeSet<&str> = SOURCES
        .iter()
        .flat_map(|source| source.split("#[unsafe(no_mangle)]").skip(1))
        .filter_map(|text| text.split("fn ").nth(1)?.split('(').next())
        .collect();
    assert_eq!(exported, functions());
    assert!(exported.len() > 20);
}

/// What the NAME section of a page names.
fn described(page: &str) -> Vec<&str> {
    let section = page.split_once("\n.SH NAME\n").expect("a NAME section").1;
    section.split_once(" \\- ").expect("a description").0.split(", ").collect()
}

#[test]
fn every_function_has_a_man_page() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/man");
    let squeezed = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut names = BTreeSet::new();
    for entry in fs::read_dir(&dir).expect("the man pages") {
        let file = entry.expect("a page").path();
        if file.extension().is_none_or(|section| section != "3") {
            continue;
        }
        let (page, shown) = (fs::read_to_string(&file).expect("a page"), file.display());
        assert!(page.contains(".SH \"RETURN VALUE\""), "{shown} does not say what is answered");
        let synopsis = squeezed(&page.replace('"', " "));
        for described in described(&page).into_iter().filter(|name| *name != "erd") {
            let prototype = prototypes().into_iter().find(|line| name(line) == described);
            let prototype = prototype.unwrap_or_else(|| panic!("{shown}: no {described}()"));
            assert!(synopsis.contains(&squeezed(prototype)), "{shown} has no \"{prototype}\"");
            assert!(names.insert(described.to_owned()), "{described} is described twice");
        }
    }
    assert_eq!(names, functions().into_iter().map(str::to_owned).collect());
}
