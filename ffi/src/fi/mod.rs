//! The provider side of libfabric's ABI, written out by hand from the newest headers.
//!
//! Names, field order and values are libfabric's own, so its man pages document them. C `enum`s
//! are integer aliases here, because a C caller may hand over any value. A structure may be longer
//! than the one the caller was compiled with: read and write structures that the *caller*
//! allocated through [`compat`], which goes by the API version asked for.
//!
//! - Flags, enumerators, versions, error numbers: constants under their C names.
//! - Structures under their C names, each with an all-zero value `ZERO` for struct update syntax.
//! - Tables of operations `fi_ops_*`, and for each a full default table `NOSYS_*`, to be completed
//!   with struct update syntax.
//! - [`Provider`]: what `fi_prov_ini` returns a pointer to.
//! - [`alloc`] and [`nic`]: `fi_info` lists and `fid_nic` in C memory, as `fi_freeinfo` frees them.

mod consts;
mod errno;
mod layout;
mod nosys;
mod object;
mod ops;
mod ops_data;
mod peer;
mod provider;
mod structs;
mod trigger;
mod xpu;

pub mod alloc;
pub mod compat;
pub mod nic;

pub use consts::*;
pub use errno::*;
pub use layout::{Constant, Field, Layout};
pub use nosys::CReturn;
pub use object::*;
pub use ops::*;
pub use ops_data::*;
pub use peer::*;
pub use provider::*;
pub use structs::*;
pub use trigger::*;
pub use xpu::*;

/// Every structure declared here, for comparison with C headers.
pub fn layouts() -> impl Iterator<Item = &'static Layout> {
    [
        object::LAYOUTS,
        structs::LAYOUTS,
        ops::LAYOUTS,
        ops_data::LAYOUTS,
        peer::LAYOUTS,
        peer::srx_peer::LAYOUTS,
        provider::LAYOUTS,
        trigger::LAYOUTS,
    ]
    .into_iter()
    .flatten()
}

/// Every constant declared here, for comparison with C headers.
pub fn constants() -> impl Iterator<Item = &'static Constant> {
    [consts::CONSTANTS, errno::CONSTANTS, provider::CONSTANTS].into_iter().flatten()
}
