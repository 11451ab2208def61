//! Refuses targets that the code is not written for, with a reason, before rustc finds a worse one.

use std::env;

/// Settings of the target that must hold: Cargo's variable, the value, and why.
const NEEDED: [(&str, &str, &str); 4] = [
    ("CARGO_CFG_TARGET_OS", "linux", "sockets, epoll and GSO are Linux's"),
    ("CARGO_CFG_TARGET_POINTER_WIDTH", "64", "libfabric's structures are laid out for 64 bits"),
    ("CARGO_CFG_TARGET_ENDIAN", "little", "no big-endian machine was ever tried"),
    ("CARGO_CFG_PANIC", "unwind", "a panic is caught before it reaches C"),
];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    for (variable, value, reason) in NEEDED {
        let found = env::var(variable).unwrap_or_default();
        if found != value {
            println!("cargo::error={variable} is \"{found}\", must be \"{value}\": {reason}");
        }
    }
}
