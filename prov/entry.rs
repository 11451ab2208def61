//! What libfabric loads: `fi_prov_ini`, the provider's description, its parameters.

use erd_core::mistakes;
use erd_core::settings::{BadSetting, Found, Kind, PARAMETERS, Parameter, Settings};
use erd_ffi::fi::{FI_EINVAL, NEWEST_API, Provider, fi_context, fi_info, fi_provider, fi_version};
use erd_ffi::guard::guarded;
use erd_ffi::param::{DefineError, Param, ParamError};
use erd_ffi::{host, log};
use std::ffi::{CStr, CString, c_char, c_int};
use std::sync::OnceLock;

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

/// The provider. libfabric skips one whose `fi_version` is lower than an application asks for, so
/// this is the newest known; everything newer than the application's version is left alone.
static PROVIDER: Provider = Provider::new(fi_provider {
    version: PROVIDER_VERSION,
    fi_version: NEWEST_API,
    context: fi_context::ZERO,
    name: c"erd".as_ptr(),
    getinfo,
    fabric: crate::fabric::open,
    cleanup,
});

/// Body of `fi_prov_ini`, which the shared object exports: registers log and parameters, and
/// answers the provider.
#[must_use]
pub fn start() -> *mut fi_provider {
    host::attach(&PROVIDER);
    // A Rust application may have installed a subscriber of its own before; it stays.
    let _ = log::install();
    for registered in registered() {
        if let Err(error) = registered.define() {
            tracing::warn!(%error, "a parameter cannot be set");
        }
    }
    PROVIDER.as_ptr()
}

/// The parameters as they are now.
///
/// # Errors
/// A positive error number; the log and standard error name the parameter and what is valid.
pub fn settings() -> Result<Settings, c_int> {
    match Settings::read(parameter) {
        Ok(settings) => {
            mistakes::tell_unknown(&settings);
            Ok(settings)
        }
        Err(error) => {
            tracing::warn!("{error}");
            mistakes::tell_bad(&error, parameter);
            Err(FI_EINVAL)
        }
    }
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

/// A parameter as libfabric knows it. Its texts live as long as the process, as libfabric's do.
struct Registered {
    parameter: &'static Parameter,
    name: CString,
    help: CString,
}

fn registered() -> &'static [Registered] {
    static ALL: OnceLock<Vec<Registered>> = OnceLock::new();
    ALL.get_or_init(|| {
        let text = |text: String| CString::new(text).expect("the table's texts hold no NUL");
        let register = |parameter: &'static Parameter| Registered {
            parameter,
            name: text(parameter.name.to_owned()),
            help: text(parameter.description()),
        };
        PARAMETERS.iter().map(register).collect()
    })
}

impl Registered {
    fn texts(&'static self) -> (&'static CStr, &'static CStr) {
        (&self.name, &self.help)
    }

    fn define(&'static self) -> Result<(), DefineError> {
        let (name, help) = self.texts();
        match self.parameter.kind {
            Kind::Number { .. } => Param::<usize>::new(name, help).define(),
            Kind::Switch => Param::<bool>::new(name, help).define(),
            _ => Param::<String>::new(name, help).define(),
        }
    }

    fn get(&'static self) -> Result<Option<String>, ParamError> {
        let (name, help) = self.texts();
        match self.parameter.kind {
            Kind::Number { .. } => {
                let value = Param::<usize>::new(name, help).get()?;
                Ok(value.map(|value| value.to_string()))
            }
            Kind::Switch => {
                let value = Param::<bool>::new(name, help).get()?;
                Ok(value.map(|value| u8::from(value).to_string()))
            }
            _ => Param::<String>::new(name, help).get(),
        }
    }
}

/// Text of a parameter from libfabric or, without it, from the environment; for [`Settings::read`].
///
/// # Errors
/// The value is not of the parameter's type.
///
/// # Panics
/// Never: all parameters of the table are registered.
pub fn parameter(parameter: &'static Parameter) -> Found {
    let registered = registered()
        .iter()
        .find(|registered| registered.parameter.name == parameter.name)
        .expect("all parameters of the table are registered");
    registered.get().map_err(|error| BadSetting {
        variable: error.variable,
        value: error.text,
        valid: parameter.kind.to_string(),
    })
}
