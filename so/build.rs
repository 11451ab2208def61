//! Names the shared object for programs that link it, and keeps it in memory once it is loaded: its
//! helper thread may still be at work when libfabric, or the program, lets it go.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,liberd.so.1");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
