//! The macros that write ABI structures and constants, and keep a table of what they wrote.
//!
//! The tables (`LAYOUTS`, `CONSTANTS` of each module) are what the layout test compares with the
//! installed headers, so nothing can be added here and be missed there.

/// Name and offset in bytes of one field.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// C name of the field (a Rust keyword carries the prefix `r#`).
    pub name: &'static str,
    /// Offset from the start of the structure, in bytes.
    pub offset_bytes: usize,
}

/// Name, size and fields of one ABI structure.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// C tag of the structure.
    pub name: &'static str,
    /// Size in bytes.
    pub size_bytes: usize,
    /// Its fields, in order.
    pub fields: &'static [Field],
}

/// Name and value of one ABI constant.
#[derive(Clone, Copy, Debug)]
pub struct Constant {
    /// C name.
    pub name: &'static str,
    /// Value; wide enough for every C integer.
    pub value: i128,
}

/// Writes `#[repr(C)]` structures, an all-zero value `ZERO` of each, and the module's `LAYOUTS`.
///
/// Fields may only be integers, raw pointers, optional function pointers, and structures or unions
/// of those, so that all zeros is a value of each.
macro_rules! c_structs {
    ($($(#[$meta:meta])* struct $name:ident { $($(#[$fmeta:meta])* $field:ident : $ty:ty,)* })*) => {
        $(
            $(#[$meta])*
            #[repr(C)]
            #[derive(Clone, Copy)]
            pub struct $name { $($(#[$fmeta])* pub $field: $ty,)* }

            impl $name {
                /// All zeros: every pointer NULL, every option absent.
                pub const ZERO: Self =
                    // SAFETY: integers, raw pointers and optional function pointers all have the
                    // all-zero value, and structures written by this macro hold nothing else.
                    unsafe { std::mem::zeroed() };
            }
        )*

        /// What this module declares, for comparison with C headers.
        pub(crate) const LAYOUTS: &[$crate::fi::Layout] = &[$($crate::fi::layout::layout_of!($name { $($field)* }),)*];
    };
}

/// The [`Layout`] of a structure with these fields.
macro_rules! layout_of {
    ($name:ident { $($field:ident)* }) => {
        $crate::fi::Layout {
            name: stringify!($name),
            size_bytes: size_of::<$name>(),
            fields: &[$($crate::fi::Field {
                name: stringify!($field),
                offset_bytes: std::mem::offset_of!($name, $field),
            },)*],
        }
    };
}

/// Writes constants and the module's `CONSTANTS`. Groups are `type: NAME = value, ...;`.
macro_rules! c_consts {
    ($($ty:ty: $($name:ident = $value:expr),+ $(,)?;)*) => {
        $($(pub const $name: $ty = $value;)+)*

        /// What this module declares, for comparison with C headers.
        pub(crate) const CONSTANTS: &[$crate::fi::Constant] = &[
            $($($crate::fi::Constant { name: stringify!($name), value: $name as i128 },)+)*
        ];
    };
}

pub(crate) use {c_consts, c_structs, layout_of};
