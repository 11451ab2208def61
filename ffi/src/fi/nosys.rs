//! Tables of operations and their defaults.
//!
//! libfabric's inline wrappers call most operations without looking whether they are there, so a
//! table must be full. Fields are therefore plain function pointers, never NULL, and every table
//! has a constant `NOSYS_*` in which each operation answers `-FI_ENOSYS`.

use super::errno::FI_ENOSYS;
use core::ffi::{c_char, c_int};

/// A value that a C function can return to report an error number.
pub trait CReturn {
    /// The answer for the (positive) error number `errno`: its negative where the type is a
    /// status; zero, NULL or false where the type has no room for one.
    fn from_errno(errno: c_int) -> Self;
}

impl CReturn for c_int {
    fn from_errno(errno: c_int) -> Self {
        -errno
    }
}

impl CReturn for isize {
    fn from_errno(errno: c_int) -> Self {
        -(errno as isize)
    }
}

impl CReturn for u32 {
    fn from_errno(_: c_int) -> Self {
        0
    }
}

impl CReturn for u64 {
    fn from_errno(_: c_int) -> Self {
        0
    }
}

impl CReturn for bool {
    fn from_errno(_: c_int) -> Self {
        false
    }
}

impl CReturn for () {
    fn from_errno(_: c_int) -> Self {}
}

impl CReturn for *const c_char {
    fn from_errno(_: c_int) -> Self {
        core::ptr::null()
    }
}

impl<T> CReturn for *mut T {
    fn from_errno(_: c_int) -> Self {
        core::ptr::null_mut()
    }
}

/// What every default operation returns.
pub(crate) fn nosys<R: CReturn>() -> R {
    R::from_errno(FI_ENOSYS)
}

/// Writes tables of operations, their `NOSYS_*` defaults and the module's `LAYOUTS`.
macro_rules! ops_tables {
    ($(
        $(#[$meta:meta])*
        table $table:ident = $default:ident {
            $($op:ident($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)?;)*
        }
    )*) => {
        $(
            $(#[$meta])*
            #[repr(C)]
            #[derive(Clone, Copy)]
            pub struct $table {
                /// Size of the table in bytes; operations beyond it do not exist.
                pub size: usize,
                $(pub $op: unsafe extern "C" fn($($arg: $ty),*) $(-> $ret)?,)*
            }

            /// Every operation answers `-FI_ENOSYS`; complete it with struct update syntax.
            pub const $default: $table = $table {
                size: size_of::<$table>(),
                $($op: {
                    extern "C" fn $op($(_: $ty),*) $(-> $ret)? {
                        $crate::fi::nosys::nosys()
                    }
                    $op
                },)*
            };
        )*

        /// What this module declares, for comparison with C headers.
        pub(crate) const LAYOUTS: &[$crate::fi::Layout] =
            &[$($crate::fi::layout::layout_of!($table { size $($op)* }),)*];
    };
}

pub(crate) use ops_tables;
