//! The settings: parameters of libfabric or, where a program has no libfabric, environment variables. All faces read
//! their settings here.

use erd_core::settings::{BadSetting, Found, Kind, PARAMETERS, Parameter};
use erd_ffi::param::{DefineError, Param, ParamError};
use std::ffi::{CStr, CString};
use std::sync::OnceLock;

/// A parameter in libfabric's form. Its texts live as long as the process, like libfabric's.
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

/// Registers all parameters with libfabric; returns the errors.
pub(crate) fn define() -> impl Iterator<Item = DefineError> {
    registered().iter().filter_map(|registered| registered.define().err())
}

/// Text of a parameter from libfabric or, without it, from the environment; for
/// [`Settings::read`](erd_core::settings::Settings::read).
///
/// # Errors
/// The value is not of the parameter's type.
///
/// # Panics
/// Never: all parameters of the table are registered.
pub fn read(parameter: &'static Parameter) -> Found {
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
