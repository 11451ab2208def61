//! The congestion control of a domain's endpoints: scheme and parameters.

use erd_rd::Ecn;
use erd_rd::cc::options::{OptionError, OptionInfo};
use erd_rd::cc::{FlowParams, Scheme, schemes};
use thiserror::Error;

/// A scheme by its name, and those of its parameters that were set.
#[derive(Clone, PartialEq, Debug)]
pub struct SchemeChoice {
    name: &'static str,
    options: Vec<(&'static str, f32)>,
}

/// Reason for refusing a scheme.
#[derive(Clone, PartialEq, Debug, Error)]
pub enum SchemeError {
    /// No scheme has this name.
    #[error("no scheme is called \"{0}\"; there are: {list}", list = schemes::NAMES.join(", "))]
    Name(String),
    /// Not of the form name=number.
    #[error("\"{0}\" is not of the form name=number")]
    Form(String),
    /// The scheme refuses a parameter.
    #[error("{text}: {error}; the parameters of {scheme} are: {list}", list = listed(scheme))]
    Option {
        /// The scheme's name.
        scheme: &'static str,
        /// The text of the option.
        text: String,
        /// The scheme's reason.
        error: OptionError,
    },
}

impl SchemeChoice {
    /// The scheme `name` with `options`: "name=number" each, separated by commas.
    ///
    /// # Errors
    /// [`SchemeError`] says what is not valid, and what would be.
    pub fn new(name: &str, options: &str) -> Result<SchemeChoice, SchemeError> {
        let name = *schemes::NAMES
            .iter()
            .find(|known| known.eq_ignore_ascii_case(name.trim()))
            .ok_or_else(|| SchemeError::Name(name.to_owned()))?;
        let mut choice = SchemeChoice { name, options: Vec::new() };
        let mut scheme = choice.build();
        for text in options.split(',').map(str::trim).filter(|text| !text.is_empty()) {
            let form = || SchemeError::Form(text.to_owned());
            let (option, value) = text.split_once('=').ok_or_else(form)?;
            let value = value.trim().parse::<f32>().map_err(|_| form())?;
            let option = option.trim().to_ascii_lowercase();
            scheme.set(&option, value).map_err(|error| SchemeError::Option {
                scheme: name,
                text: text.to_owned(),
                error,
            })?;
            let known = scheme.options().into_iter().find(|known| known.name == option);
            choice.options.extend(known.map(|known| (known.name, value)));
        }
        Ok(choice)
    }

    /// The scheme's name, as in `FI_ERD_CC`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The scheme with its parameters.
    ///
    /// # Panics
    /// Never: the name and the options were checked when this was made.
    #[must_use]
    pub fn build(&self) -> Box<dyn Scheme> {
        let mut scheme = schemes::by_name(self.name).expect("the name is of the table");
        for (option, value) in &self.options {
            scheme.set(option, *value).expect("the option was taken before");
        }
        scheme
    }

    /// True if its controllers react to congestion marks. Other schemes send packets that are not ECN-capable: a switch
    /// would otherwise mark them instead of dropping, without effect.
    #[must_use]
    pub(crate) fn uses_ecn(&self) -> bool {
        let params = FlowParams {
            now: 0,
            datagram_bytes: 1472,
            paths: 1,
            first_rtt_ns: 0,
            base_rtt_ns: 0,
            link_bytes_per_s: 0,
            burst_bytes: 0,
            trimming: false,
        };
        self.build().build(&params, 0).ecn() != Ecn::NotEct
    }
}

/// The parameters of a scheme with their ranges, units and defaults, for messages.
fn listed(name: &str) -> String {
    let options = schemes::by_name(name).map(|scheme| scheme.options()).unwrap_or_default();
    options.iter().map(OptionInfo::to_string).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scheme_can_be_chosen() {
        for name in schemes::NAMES {
            let choice = SchemeChoice::new(name, "").unwrap();
            assert_eq!((choice.name(), choice.build().name()), (*name, *name));
        }
        assert!(!SchemeChoice::new("ERD", "").unwrap().uses_ecn());
        assert!(SchemeChoice::new("dctcp", "").unwrap().uses_ecn());
    }

    #[test]
    fn options_are_taken_and_refused_with_their_reason() {
        let choice = SchemeChoice::new("erd", " window_kib = 64,").unwrap();
        assert_eq!(choice.build().options()[0].value, 64.0);
        for (name, options, part) in [
            ("cubic", "", "there are: erd,"),
            ("erd", "window_kib", "name=number"),
            ("erd", "window_kib=many", "name=number"),
            ("erd", "window_kib=0", "between 1 and 1048576 KiB"),
            ("erd", "gain=1", "parameters of erd are: window_kib 1 to 1048576 KiB (default 512)"),
            ("erd", "window_kib=NaN", "between 1 and"),
        ] {
            let text = SchemeChoice::new(name, options).unwrap_err().to_string();
            assert!(text.contains(part), "{text}");
        }
    }
}
