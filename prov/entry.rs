//! The entry point that libfabric loads: `fi_prov_ini`, the provider's description, its settings.

use crate::manners::Manners;
use crate::parameters;
use erd_core::mistakes;
use erd_core::settings::{KeySource, Settings};
use erd_ffi::fi::{FI_EINVAL, NEWEST_API, Provider, fi_context, fi_info, fi_provider, fi_version};
use erd_ffi::guard::guarded;
use erd_ffi::{host, log};
use std::ffi::{CString, c_char, c_int};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Version of the provider, from the package's.
const PROVIDER_VERSION: u32 =
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

/// The provider's own name.
const OWN_NAME: &str = "erd";

/// The provider under its own name. The log and the parameters are always those of this one.
static PROVIDER: Provider = Provider::new(c"erd", description(PROVIDER_VERSION));

/// The provider under another's name (`FI_ERD_PROV_NAME`).
struct Renamed {
    provider: Provider,
    manners: Manners,
}

/// The choice of the name, `None` for erd's own. The first call of [`start`] makes it for the process: all libfabrics in
/// it see one provider.
static CHOICE: OnceLock<Option<Renamed>> = OnceLock::new();

/// Version of the provider under another's name. Of two with one name libfabric hides the one with the lower version, and
/// its own providers have that of libfabric times 100.
pub const RENAMED_VERSION: u32 = fi_version(9999, 0);

/// libfabric skips a provider whose `fi_version` is lower than an application asks for, so this is the newest known; erd
/// leaves everything newer than the application's version alone.
const fn description(version: u32) -> fi_provider {
    fi_provider {
        version,
        fi_version: NEWEST_API,
        context: fi_context::ZERO,
        name: std::ptr::null(),
        getinfo,
        fabric: crate::fabric::open,
        cleanup,
    }
}

fn renamed() -> Option<&'static Renamed> {
    CHOICE.get()?.as_ref()
}

/// The version that libfabric was told.
#[must_use]
pub fn version() -> u32 {
    if renamed().is_some() { RENAMED_VERSION } else { PROVIDER_VERSION }
}

/// The manners that the provider's name brings.
#[must_use]
pub fn manners() -> Manners {
    renamed().map_or(Manners::Plain, |renamed| renamed.manners)
}

/// libfabrics of this process that have the provider: an MPI and NCCL's plugin often bring one each. The last one that
/// gives it back ends the helper thread.
static LIBFABRICS: AtomicUsize = AtomicUsize::new(0);

/// Body of `fi_prov_ini`, which the shared object exports: registers log and parameters, and returns the provider.
#[must_use]
pub fn start() -> *mut fi_provider {
    LIBFABRICS.fetch_add(1, Ordering::Relaxed);
    host::attach(&PROVIDER);
    // A Rust application may have installed a subscriber of its own before; it stays.
    let _ = log::install();
    for error in parameters::define() {
        tracing::warn!(%error, "a parameter cannot be set");
    }
    match CHOICE.get_or_init(choose) {
        Some(renamed) => {
            host::register(&renamed.provider);
            renamed.provider.as_ptr()
        }
        None => PROVIDER.as_ptr(),
    }
}

/// Reads the setting. A name that is not valid leaves erd its own, and a filter may then keep libfabric from ever asking
/// erd for anything, so this is the place to tell.
fn choose() -> Option<Renamed> {
    let name = Settings::prov_name(parameters::read)
        .inspect_err(|error| {
            tracing::warn!("{error}");
            mistakes::tell_bad(error, parameters::read);
        })
        .ok()?;
    if name == OWN_NAME {
        return None;
    }
    tracing::info!(name, "FI_ERD_PROV_NAME: erd has this name in libfabric");
    let manners = Manners::of(&name);
    // The name lives as long as the process, like the description.
    let name = Box::leak(CString::new(name).ok()?.into_boxed_c_str());
    Some(Renamed { provider: Provider::new(name, description(RENAMED_VERSION)), manners })
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
        let before = LIBFABRICS.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1));
        if before.is_ok_and(|before| before == 1) {
            erd_core::progress::shutdown();
        }
    }
}
