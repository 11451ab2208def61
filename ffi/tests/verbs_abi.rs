//! Holds our copy of libibverbs' ABI against the installed header; without one there is nothing to
//! compare with.
#![cfg(not(miri))]

use erd_ffi::ibv;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

/// Constants that the header has as members of enumerations.
macro_rules! constants {
    ($($name:ident)*) => { [$((stringify!($name), ibv::$name as i64)),*] };
}

/// Fields that the header spells otherwise, being members of unions.
fn spelled(structure: &str, field: &str) -> String {
    match (structure, field) {
        ("ibv_send_wr", "wr") => "wr.ud".to_owned(),
        _ => field.to_owned(),
    }
}

fn assertions() -> String {
    let constants = constants! {
        IBV_PORT_ACTIVE IBV_LINK_LAYER_ETHERNET IBV_GID_TYPE_IB IBV_GID_TYPE_ROCE_V2
        IBV_ACCESS_LOCAL_WRITE IBV_QPT_UD IBV_QPS_RESET IBV_QPS_INIT IBV_QPS_RTR IBV_QPS_RTS
        IBV_QP_STATE IBV_QP_PKEY_INDEX IBV_QP_PORT IBV_QP_QKEY IBV_QP_SQ_PSN IBV_SEND_SIGNALED
        IBV_SEND_INLINE IBV_WR_SEND_WITH_IMM IBV_WC_SUCCESS IBV_WC_WR_FLUSH_ERR IBV_WC_GRH
        IBV_WC_WITH_IMM IBV_EVENT_DEVICE_FATAL IBV_EVENT_PORT_ACTIVE IBV_EVENT_PORT_ERR
        IBV_EVENT_GID_CHANGE
    };
    let mut source = "#include <stddef.h>\n#include <infiniband/verbs.h>\n".to_owned();
    let mut hold = |claim: String| {
        writeln!(source, "_Static_assert({claim}, \"{claim}\");").expect("a string takes all");
    };
    for (name, value) in constants {
        hold(format!("{name} == {value}"));
    }
    hold(format!("sizeof(struct ibv_grh) == {}", ibv::GRH_BYTES));
    for (name, bytes, fields) in ibv::layouts() {
        hold(format!("sizeof(struct {name}) == {bytes}"));
        for (field, place) in fields {
            hold(format!("offsetof(struct {name}, {}) == {place}", spelled(name, field)));
        }
    }
    source
}

#[test]
fn structures_and_constants_are_those_of_the_installed_header() {
    if !Path::new("/usr/include/infiniband/verbs.h").exists() {
        eprintln!("skipped: libibverbs-dev is not installed");
        return;
    }
    let dir = std::env::temp_dir().join(format!("erd-verbs-abi-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a directory");
    let file = dir.join("abi.c");
    std::fs::write(&file, assertions()).expect("the source");
    let output = Command::new("cc")
        .args(["-std=c11", "-fsyntax-only", "-x", "c"])
        .arg(&file)
        .output()
        .expect("a C compiler");
    std::fs::remove_dir_all(&dir).expect("the directory goes");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
