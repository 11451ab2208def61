//! Functions that C code may enter.
//!
//! A panic is a bug of ours. It must not unwind into C, which would abort the application. So
//! every exported function is made here: a panic inside is caught, logged,
//! reported to the object's owner through a hook (which marks the object as failed), and answered
//! with `-FI_EOTHER`. Running out of memory still aborts, as Rust does not unwind then.

use crate::fi::{CReturn, FI_EOTHER};
use crate::log::{self, Level, Subsys};

/// Writes `extern "C"` functions from which no panic escapes.
///
/// The first form answers a panic with `-FI_EOTHER` (0, NULL or nothing where the return type has
/// no room for it, see [`CReturn`](crate::fi::CReturn)). With `on_panic = hook;` in front,
/// `hook(first_argument)` is called as well, within `unsafe`; it may be generic over the pointer.
///
/// ```
/// use erd_ffi::fi::{FI_EOTHER, fid};
/// use erd_ffi::guard::guarded;
///
/// unsafe fn fail<T>(object: *mut T) {
///     // A real hook marks the object as failed.
///     assert!(!object.is_null());
/// }
///
/// guarded! {
///     on_panic = fail;
///
///     unsafe extern "C" fn my_close(fid: *mut fid) -> i32 {
///         if fid.is_null() { 0 } else { panic!("a bug") }
///     }
/// }
///
/// let mut object = fid::ZERO;
/// // SAFETY: the object is local.
/// assert_eq!(unsafe { my_close(&raw mut object) }, -FI_EOTHER);
/// ```
#[macro_export]
macro_rules! guarded {
    (on_panic = $hook:path; $(
        $(#[$meta:meta])*
        $vis:vis unsafe extern "C" fn $name:ident(
            $first:ident: $first_ty:ty $(, $arg:ident: $ty:ty)* $(,)?
        ) $(-> $ret:ty)? $body:block
    )*) => {
        $(
            $(#[$meta])*
            $vis unsafe extern "C" fn $name($first: $first_ty $(, $arg: $ty)*) $(-> $ret)? {
                $crate::guard::call(
                    stringify!($name),
                    || $(-> $ret)? { $body },
                    // SAFETY: the hook gets the argument that this function got, for which the
                    // caller of this function vouches.
                    || unsafe { $hook($first) },
                )
            }
        )*
    };
    ($(
        $(#[$meta:meta])*
        $vis:vis unsafe extern "C" fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)?
            $body:block
    )*) => {
        $(
            $(#[$meta])*
            $vis unsafe extern "C" fn $name($($arg: $ty),*) $(-> $ret)? {
                $crate::guard::call(stringify!($name), || $(-> $ret)? { $body }, || ())
            }
        )*
    };
}

pub use guarded;

/// Runs the body of a function that C code entered. [`guarded!`] writes the calls.
///
/// If `body` panics, `on_panic` runs (a panic of its own is swallowed) and the answer is that of
/// [`CReturn::from_errno`] for `FI_EOTHER`.
pub fn call<R: CReturn>(name: &str, body: impl FnOnce() -> R, on_panic: impl FnOnce()) -> R {
    let tell = |text: &str| {
        log::emit(Level::Warn, Subsys::Core, name, 0, format_args!("internal error: {text}"));
    };
    erd_sys::guard::caught(body, tell, on_panic).unwrap_or_else(|| R::from_errno(FI_EOTHER))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    unsafe fn count(failures: *mut AtomicU32) {
        // SAFETY: the tests pass a live counter.
        unsafe { &*failures }.fetch_add(1, Ordering::Relaxed);
    }

    guarded! {
        on_panic = count;

        unsafe extern "C" fn divide(failures: *mut AtomicU32, by: i32) -> isize {
            if by == 1 {
                return 6;
            }
            let _ = failures;
            isize::try_from(6 / by).unwrap_or(0)
        }

        unsafe extern "C" fn no_answer(_failures: *mut AtomicU32) {
            panic!("no status to return")
        }
    }

    guarded! {
        unsafe extern "C" fn text() -> *const std::ffi::c_char {
            // No text, so it is leaked; it has no bytes, so that nothing is reported.
            std::panic::panic_any(())
        }
    }

    #[test]
    fn a_panic_becomes_an_error_and_the_object_is_told() {
        let mut failures = AtomicU32::new(0);
        let object = &raw mut failures;
        // SAFETY: the object is live.
        unsafe {
            assert_eq!(divide(object, 1), 6);
            assert_eq!(divide(object, 2), 3);
            assert_eq!((*object).load(Ordering::Relaxed), 0);
            assert_eq!(divide(object, 0), -(FI_EOTHER as isize));
            no_answer(object);
            assert_eq!((*object).load(Ordering::Relaxed), 2);
            assert!(text().is_null());
        }
    }

    #[test]
    fn a_panic_in_the_hook_is_swallowed() {
        let answer: i32 = call("test", || panic!("first"), || panic!("second"));
        assert_eq!(answer, -FI_EOTHER);
    }
}
