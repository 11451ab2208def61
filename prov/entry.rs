//! The entry point that libfabric loads: `fi_prov_ini`, the provider's description, its settings.

use crate::parameters;
use erd_core::mistakes;
use erd_core::settings::{KeySource, Settings};
use erd_ffi::fi::{FI_EINVAL, NEWEST_API, Provider, fi_context, fi_info, fi_provider, fi_version};
use erd_ffi::guard::guarded;
use erd_ffi::{host, log};
use std::ffi::{c_char, c_int};

/// Version of the provider, from the package's.
pub const PROVIDER_VERSION: u32 =
    fi_version(decimal(env!("CARGO_PKG_VERSION_MAJOR")), decimal(env!("CARGO_PKG_VERSION_MINOR")));

/// A number that Cargo has checked.
const fn decimal(text: &str) -> u16 {
    let (bytes, mut value, mut at) = (text.as_bytes(), 0, 0);
    while at < bytes.len() {
        value = value * 10 + (bytes[at] - b'0') as u16;
        at += 1;
    }
    value
}

/// The provider. libfabric skips one whose `fi_version` is lower than an application asks for, so this is the newest
/// known; it leaves everything newer than the application's version alone.
static PROVIDER: Provider = Provider::new(fi_provider {
    version: PROVIDER_VERSION,
    fi_version: NEWEST_API,
    context: fi_context::ZERO,
    name: c"erd".as_ptr(),
    getinfo,
    fabric: crate::fabric::open,
    cleanup,
});

/// Body of `fi_prov_ini`, which the shared object exports: registers log and parameters, and returns the provider.
#[must_use]
pub fn start() -> *mut fi_provider {
    host::attach(&PROVIDER);
    // A Rust application may have installed a subscriber of its own before; it stays.
    let _ = log::install();
    for error in parameters::define() {
        tracing::warn!(%error, "a parameter cannot be set");
    }
    PROVIDER.as_ptr()
}

/// The parameters as they are now.
///
/// # Errors
/// A positive error number; the log and standard error name the parameter and its valid values.
pub fn settings() -> Result<Settings, c_int> {
    match Settings::read(parameters::read) {
        Ok(settings) => {
            mistakes::tell_unknown(&settings);
            Ok(settings)
        }
        Err(error) => {
            tracing::warn!("{error}");
            mistakes::tell_bad(&error, parameters::read);
            Err(FI_EINVAL)
        }
    }
}

/// The settings, with the keys that the application chose: they go before `FI_ERD_KEY_FILE`.
///
/// # Errors
/// As [`settings`].
pub fn settings_with(keys: KeySource) -> Result<Settings, c_int> {
    let settings = settings()?;
    Ok(match keys {
        KeySource::None => settings,
        keys => settings.with_keys(keys),
    })
}

guarded! {
    unsafe extern "C" fn getinfo(
        version: u32,
        node: *const c_char,
        service: *const c_char,
        flags: u64,
        hints: *const fi_info,
        info: *mut *mut fi_info,
    ) -> c_int {
        // SAFETY: libfabric passes the application's arguments, as fi_getinfo(3) says.
        unsafe { crate::info::getinfo(version, (node, service), flags, hints, info) }
    }

    unsafe extern "C" fn cleanup() {
        erd_core::progress::shutdown();
    }
}
