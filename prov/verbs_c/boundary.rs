//! The boundary between C and Rust: errors out, panics in.

use crate::verbs::Error;
use erd_ffi::guard;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int};
use std::mem::MaybeUninit;

thread_local! {
    static LAST_ERROR: RefCell<CString> = RefCell::new(CString::default());
}

/// Text of the latest error of this thread; it lives until the next.
pub(super) fn last_error() -> *const c_char {
    // A thread that ends has lost its text.
    LAST_ERROR.try_with(|text| text.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

/// Runs the body of a function; a panic in it is [`Error::Failed`].
fn run<R>(name: &str, body: impl FnOnce() -> Result<R, Error>) -> Result<R, c_int> {
    let mut outcome = Err(Error::Failed);
    let into = &mut outcome;
    let _: c_int = guard::call(
        name,
        || {
            *into = body();
            0
        },
        || (),
    );
    outcome.map_err(|error| {
        let text = format!("{name}: {error}").replace('\0', " ");
        let text = CString::new(text).unwrap_or_default();
        let _ = LAST_ERROR.try_with(|last| *last.borrow_mut() = text);
        error.errno()
    })
}

/// Runs a function that returns 0 or an error number.
pub(super) fn status(name: &str, body: impl FnOnce() -> Result<(), Error>) -> c_int {
    run(name, body).err().unwrap_or(0)
}

/// Runs a function that returns a number, or a negative error number.
pub(super) fn count(name: &str, body: impl FnOnce() -> Result<usize, Error>) -> c_int {
    match run(name, body) {
        Ok(count) => c_int::try_from(count).unwrap_or(c_int::MAX),
        Err(errno) => -errno,
    }
}

/// Runs a function that returns a value, or `none` with `errno` set.
pub(super) fn value<R>(name: &str, none: R, body: impl FnOnce() -> Result<R, Error>) -> R {
    run(name, body).unwrap_or_else(|errno| {
        // SAFETY: it is this thread's own.
        unsafe { *libc::__errno_location() = errno };
        none
    })
}

/// Reads a text of C.
///
/// # Safety
/// `text` is NULL or a C string that lives as long as `'a`.
pub(super) unsafe fn text<'a>(
    parameter: &'static str,
    text: *const c_char,
) -> Result<Option<&'a str>, Error> {
    if text.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's promise.
    let text = unsafe { CStr::from_ptr(text) };
    let invalid = |_| Error::argument(parameter, format_args!("{text:?}"), "UTF-8");
    text.to_str().map(Some).map_err(invalid)
}

/// Checks that a pointer is not NULL.
pub(super) fn not_null<T>(parameter: &'static str, place: *const T) -> Result<(), Error> {
    if place.is_null() {
        Err(Error::argument(parameter, "NULL", "a place to look at"))
    } else {
        Ok(())
    }
}

/// Reads a structure of C that begins with its size. It may be longer than ours, or end after the first `least` bytes, as
/// earlier headers had it: fields that it lacks are zero.
///
/// # Safety
/// `from` is NULL, or points to as many bytes as its first field says, which are 8 at least. Any bytes are a valid `T`.
pub(super) unsafe fn sized<T: Copy>(
    parameter: &'static str,
    from: *const T,
    least: usize,
) -> Result<T, Error> {
    not_null(parameter, from)?;
    let ours = size_of::<T>();
    // SAFETY: the caller's promise.
    let size = unsafe { from.cast::<usize>().read_unaligned() };
    let invalid = |valid: std::fmt::Arguments<'_>| {
        Err(Error::argument(parameter, format_args!("of size {size}"), valid))
    };
    if size < least {
        return invalid(format_args!("at least {least}"));
    }
    if size > SIZE_MAX {
        return invalid(format_args!("sizeof it, which here is {ours}"));
    }
    let mut known = MaybeUninit::<T>::zeroed();
    let read = size.min(ours);
    // SAFETY: the caller's promise, as far as the size reaches; the place takes `ours` bytes.
    let newer = unsafe {
        from.cast::<u8>().copy_to_nonoverlapping(known.as_mut_ptr().cast(), read);
        std::slice::from_raw_parts(from.cast::<u8>().add(read), size - read)
    };
    if newer.iter().any(|byte| *byte != 0) {
        return invalid(format_args!(
            "without fields that this library does not know, beyond byte {ours}"
        ));
    }
    // SAFETY: any bytes are a valid `T`.
    Ok(unsafe { known.assume_init() })
}

/// Longest structure that a newer header can have, in bytes.
const SIZE_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy)]
    #[repr(C)]
    struct Attr {
        size: usize,
        value: u64,
    }

    fn read(words: &[u64], least: usize) -> Result<u64, String> {
        // SAFETY: no test says a size beyond its words, unless it is refused for that.
        let read = unsafe { sized::<Attr>("attr", words.as_ptr().cast(), least) };
        read.map(|attr| attr.value).map_err(|error| error.to_string())
    }

    #[test]
    fn structures_grow_at_their_end() {
        assert_eq!(read(&[16, 7], 16), Ok(7));
        assert_eq!(read(&[24, 7, 0], 16), Ok(7));
        assert!(read(&[24, 7, 1], 16).unwrap_err().contains("does not know"));
        assert!(read(&[8, 7], 16).unwrap_err().contains("at least 16"));
        assert_eq!(read(&[8, 7], 8), Ok(0), "the field is not of that header");
        assert!(read(&[1 << 40, 7], 8).unwrap_err().contains("attr is of size 1099511627776"));
    }

    #[test]
    fn a_panic_is_an_error_with_a_text() {
        assert_eq!(status("test", || panic!("a bug")), libc::EIO);
        // SAFETY: a C string of this thread.
        let text = unsafe { CStr::from_ptr(last_error()) }.to_str();
        assert!(text.is_ok_and(|text| text.starts_with("test: an internal error")), "{text:?}");
    }
}
