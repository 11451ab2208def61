//! Parameters, `fi_param_get` of `fi_provider(3)`.
//!
//! With libfabric they are defined there (`fi_info -e` lists them) and read from its environment
//! and configuration file. Without it they are read from the environment alone. The names in the
//! environment are the same: `FI_ERD_` and the parameter's name in upper case.
//!
//! libfabric takes a number from whatever a value begins with; here a value that is not entirely
//! a number is an error that names the parameter.

use crate::fi::{
    FI_EINVAL, FI_ENODATA, FI_PARAM_BOOL, FI_PARAM_INT, FI_PARAM_SIZE_T, FI_PARAM_STRING,
    FI_SUCCESS, fi_param_type,
};
use crate::host::{self, Host};
use core::ffi::{CStr, c_char, c_int};
use core::marker::PhantomData;

/// What is in front of every parameter's name in the environment.
const PREFIX: &str = "FI_ERD_";

/// A value that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{variable}={text}: expected {expected}")]
pub struct ParamError {
    /// Name in the environment.
    pub variable: String,
    /// The value found.
    pub text: String,
    /// What is valid.
    pub expected: String,
}

/// libfabric would not take a parameter, and what it answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("libfabric refused to define parameter {name:?}: {status}")]
pub struct DefineError {
    /// Name of the parameter.
    pub name: &'static CStr,
    /// What `fi_param_define` returned, a negative error number.
    pub status: c_int,
}

/// A type that parameters can have: [`String`], [`c_int`], [`bool`] or [`usize`].
pub trait Value: Sized + private::Sealed {}

impl Value for String {}
impl Value for c_int {}
impl Value for bool {}
impl Value for usize {}

mod private {
    use super::fi_param_type;

    /// How libfabric and the environment express a value.
    pub trait Sealed: Sized {
        const TYPE: fi_param_type;
        const EXPECTED: &'static str;
        /// What `fi_param_get` writes to.
        type Raw: Copy;
        const EMPTY: Self::Raw;

        fn parse(text: &str) -> Option<Self>;

        /// # Safety
        ///
        /// `fi_param_get` must have written `raw` for a parameter of `TYPE`.
        unsafe fn from_raw(raw: Self::Raw) -> Self;
    }
}

impl private::Sealed for String {
    const TYPE: fi_param_type = FI_PARAM_STRING;
    const EXPECTED: &'static str = "text";
    type Raw = *const c_char;
    const EMPTY: Self::Raw = core::ptr::null();

    fn parse(text: &str) -> Option<Self> {
        Some(text.to_owned())
    }

    unsafe fn from_raw(raw: Self::Raw) -> Self {
        // SAFETY: libfabric answers with a C string that it owns.
        unsafe { CStr::from_ptr(raw) }.to_string_lossy().into_owned()
    }
}

impl private::Sealed for c_int {
    const TYPE: fi_param_type = FI_PARAM_INT;
    const EXPECTED: &'static str = "an integer of 32 bits";
    type Raw = c_int;
    const EMPTY: Self::Raw = 0;

    fn parse(text: &str) -> Option<Self> {
        match text.strip_prefix('-') {
            Some(magnitude) => {
                Self::try_from(-i64::try_from(parse_unsigned(magnitude)?).ok()?).ok()
            }
            None => Self::try_from(parse_unsigned(text)?).ok(),
        }
    }

    unsafe fn from_raw(raw: Self::Raw) -> Self {
        raw
    }
}

impl private::Sealed for bool {
    const TYPE: fi_param_type = FI_PARAM_BOOL;
    const EXPECTED: &'static str = "0, 1, false, true, no, yes, off or on";
    type Raw = c_int;
    const EMPTY: Self::Raw = 0;

    fn parse(text: &str) -> Option<Self> {
        let is = |word: &str| text.eq_ignore_ascii_case(word);
        if ["0", "false", "no", "off"].into_iter().any(is) {
            Some(false)
        } else {
            ["1", "true", "yes", "on"].into_iter().any(is).then_some(true)
        }
    }

    unsafe fn from_raw(raw: Self::Raw) -> Self {
        raw != 0
    }
}

impl private::Sealed for usize {
    const TYPE: fi_param_type = FI_PARAM_SIZE_T;
    const EXPECTED: &'static str = "a number, 0 or more";
    type Raw = usize;
    const EMPTY: Self::Raw = 0;

    fn parse(text: &str) -> Option<Self> {
        parse_unsigned(text).and_then(|value| Self::try_from(value).ok())
    }

    unsafe fn from_raw(raw: Self::Raw) -> Self {
        raw
    }
}

/// A number as C's `strtol` with base 0 writes it: decimal, `0x` hexadecimal, `0` octal. It must
/// also fit into `strtol`'s 63 bits, as libfabric reads sizes with it.
fn parse_unsigned(text: &str) -> Option<u64> {
    let (digits, radix) = if let Some(hex) = text.strip_prefix("0x").or(text.strip_prefix("0X")) {
        (hex, 16)
    } else if text.len() > 1 && text.starts_with('0') {
        (&text[1..], 8)
    } else {
        (text, 10)
    };
    let digits_only = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    let value = u64::from_str_radix(digits, radix).ok().filter(|_| digits_only)?;
    (value <= i64::MAX as u64).then_some(value)
}

/// A parameter of type `T`; meant for a `static`.
#[derive(Debug)]
pub struct Param<T> {
    name: &'static CStr,
    help: &'static CStr,
    value: PhantomData<fn() -> T>,
}

impl<T: Value> Param<T> {
    /// Describes a parameter. `name` is in lower case, without prefix; `help` is not empty and
    /// states the default.
    #[must_use]
    pub const fn new(name: &'static CStr, help: &'static CStr) -> Self {
        Self { name, help, value: PhantomData }
    }

    /// Makes the parameter known to libfabric, if there is one. Once, before [`Param::get`].
    ///
    /// # Errors
    ///
    /// libfabric refused, as it ran out of memory.
    pub fn define(&self) -> Result<(), DefineError> {
        let Some(host) = host::get() else { return Ok(()) };
        // SAFETY: the provider is static, all strings are C strings, and the format takes exactly
        // one string.
        let status = unsafe {
            (host.param_define)(
                host.provider.as_ptr(),
                self.name.as_ptr(),
                T::TYPE,
                c"%s".as_ptr(),
                self.help.as_ptr(),
            )
        };
        if status == FI_SUCCESS { Ok(()) } else { Err(DefineError { name: self.name, status }) }
    }

    /// The value, `None` if none is set.
    ///
    /// # Errors
    ///
    /// The value is not of type `T`.
    ///
    /// # Panics
    ///
    /// If there is a libfabric and [`Param::define`] has not been called.
    pub fn get(&self) -> Result<Option<T>, ParamError> {
        let text = std::env::var_os(self.variable()).map(|v| v.to_string_lossy().into_owned());
        let parsed = match text.as_deref().map(|text| T::parse(text).ok_or(text)) {
            Some(Err(text)) => return Err(self.invalid(text, T::EXPECTED)),
            Some(Ok(value)) => Some(value),
            None => None,
        };
        match host::get() {
            None => Ok(parsed),
            Some(host) => self.ask(host),
        }
    }

    /// An error about a value of the right type that is out of range; `expected` says what is not.
    #[must_use]
    pub fn invalid(&self, text: impl ToString, expected: &str) -> ParamError {
        ParamError {
            variable: self.variable(),
            text: text.to_string(),
            expected: expected.to_owned(),
        }
    }

    /// The parameter's name in the environment.
    #[must_use]
    pub fn variable(&self) -> String {
        format!("{PREFIX}{}", self.name.to_string_lossy().to_ascii_uppercase())
    }

    /// libfabric's answer, which may come from its configuration file.
    fn ask(&self, host: &Host) -> Result<Option<T>, ParamError> {
        let mut raw = T::EMPTY;
        let provider = host.provider.as_ptr();
        // SAFETY: the provider is static, the name a C string, and `raw` has the type that
        // libfabric writes for a parameter of this type.
        let status =
            unsafe { (host.param_get)(provider, self.name.as_ptr(), (&raw mut raw).cast()) };
        match -status {
            // SAFETY: libfabric has just written it.
            FI_SUCCESS => Ok(Some(unsafe { T::from_raw(raw) })),
            FI_ENODATA => Ok(None),
            FI_EINVAL => Err(self.invalid("(configuration file)", T::EXPECTED)),
            _ => panic!("parameter {:?} is not defined: {status}", self.name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::private::Sealed;
    use super::*;

    #[test]
    fn numbers_are_read_whole_or_not_at_all() {
        let sizes = [("64", Some(64)), ("0x10", Some(16)), ("010", Some(8)), ("0", Some(0))];
        for (text, value) in sizes {
            assert_eq!(usize::parse(text), value, "{text}");
        }
        for text in ["", "64K", "-1", "1.5", "0x", "+-3", " 1", "9223372036854775808"] {
            assert_eq!(usize::parse(text), None, "{text}");
        }
        assert_eq!(c_int::parse("-2147483648"), Some(c_int::MIN));
        assert_eq!(c_int::parse("2147483648"), None);
        assert_eq!(c_int::parse("--1"), None);
    }

    #[test]
    fn booleans_are_libfabrics() {
        assert_eq!(bool::parse("Yes"), Some(true));
        assert_eq!(bool::parse("off"), Some(false));
        assert_eq!(bool::parse("2"), None);
    }

    #[test]
    fn errors_name_the_variable_and_what_is_valid() {
        let param = Param::<usize>::new(c"mtu", c"Packet size");
        let error = param.invalid("9", "1280 to 65507");
        assert_eq!(error.to_string(), "FI_ERD_MTU=9: expected 1280 to 65507");
    }
}
