//! The check of each setting's text against its declaration.

#[cfg(test)]
mod bounds;

use super::declared::{AUTO, Kind, PARAMETERS, Parameter};
use crate::fabric_names::FabricNames;
use crate::key_file::KeyFile;
use crate::scheme::SchemeChoice;
use erd_port::udp::{FaultRates, PortRange};
use rustix::thread::CpuSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use thiserror::Error;

/// Longest name of a provider.
const PROV_NAME_BYTES_MAX: usize = 31;
/// libfabric takes providers with such names for layers over others.
const LAYER_PREFIXES: [&str; 3] = ["ofi_", "off_", "lnx"];
/// Its provider serves local peers of others, which ask it even where it is hidden, and would get erd.
const SHARED_MEMORY: &str = "shm";

/// The text of a parameter, `None` if it is not set, or the error of reading it.
pub type Found = Result<Option<String>, BadSetting>;

/// A parameter has a value that is not valid.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("{variable} is \"{value}\"; valid: {valid}")]
pub struct BadSetting {
    /// The parameter's name in the environment.
    pub variable: String,
    /// The value found.
    pub value: String,
    /// The valid values.
    pub valid: String,
}

/// Looks parameters up and checks them against the table.
pub(super) struct Reader<L> {
    pub(super) lookup: L,
}

impl<L: Fn(&'static Parameter) -> Found> Reader<L> {
    pub(super) fn text(&self, name: &str) -> Result<(&'static Parameter, String), BadSetting> {
        let parameter = PARAMETERS
            .iter()
            .find(|parameter| parameter.name == name)
            .expect("only parameters of the table are asked for");
        let text = (self.lookup)(parameter)?.unwrap_or_else(|| parameter.default.to_owned());
        Ok((parameter, text.trim().to_owned()))
    }

    pub(super) fn scheme(&self) -> Result<Option<SchemeChoice>, BadSetting> {
        let name = self.choice("cc")?;
        let (parameter, options) = self.text("cc_options")?;
        let refused = |valid: String| BadSetting {
            variable: parameter.variable(),
            value: options.clone(),
            valid,
        };
        match name {
            AUTO if options.is_empty() => Ok(None),
            AUTO => Err(refused("nothing, unless FI_ERD_CC names the scheme".to_owned())),
            _ => SchemeChoice::new(name, &options)
                .map(Some)
                .map_err(|error| refused(error.to_string())),
        }
    }

    pub(super) fn faults(&self, name: &str) -> Result<Option<FaultRates>, BadSetting> {
        let (parameter, text) = self.text(name)?;
        if text.is_empty() {
            return Ok(None);
        }
        let valid = "loss, dup and reorder from 0 to 1, seed a number: loss=0.01,seed=1".to_owned();
        let refused = || BadSetting { variable: parameter.variable(), value: text.clone(), valid };
        FaultRates::parse(&text).map(Some).ok_or_else(refused)
    }

    pub(super) fn fabrics(&self, name: &str) -> Result<FabricNames, BadSetting> {
        let (_, text) = self.text(name)?;
        let valid = "one name for all, or domain=name for some, such as mlx5_0=rail0,mlx5_1=rail1";
        FabricNames::parse(&text).ok_or_else(|| self.refuse(name, valid))
    }

    pub(super) fn ports(&self, name: &str) -> Result<Option<PortRange>, BadSetting> {
        let (_, text) = self.text(name)?;
        if text.is_empty() {
            return Ok(None);
        }
        let range = PortRange::parse(&text).map(Some);
        range.ok_or_else(|| self.refuse(name, "two ports in order, such as 20000-20999"))
    }

    /// A partition: the top bit is its membership, and no more.
    pub(super) fn partition(&self, name: &str) -> Result<Option<u16>, BadSetting> {
        match self.auto_number::<u16>(name)? {
            Some(0x8000) => Err(self.refuse(name, "a P_Key whose lower 15 bits are not all 0")),
            partition => Ok(partition),
        }
    }

    /// A list of processors, in the kernel's form.
    pub(super) fn processors(&self, name: &str) -> Result<Option<CpuSet>, BadSetting> {
        let (_, text) = self.text(name)?;
        if text.is_empty() {
            return Ok(None);
        }
        let valid = format!("numbers and ranges below {}, such as 0-3,8", CpuSet::MAX_CPU);
        cpu_set(&text).map(Some).ok_or_else(|| self.refuse(name, &valid))
    }

    /// The file of a key that a parameter names.
    pub(super) fn key(&self, name: &str) -> Result<Option<Arc<KeyFile>>, BadSetting> {
        let (_, text) = self.text(name)?;
        if text.is_empty() {
            return Ok(None);
        }
        let file = KeyFile::open(Path::new(&text));
        file.map(Some).map_err(|bad| self.refuse(name, &format!("the file of a key; {bad}")))
    }

    /// The error of a parameter whose present value is not valid.
    pub(super) fn refuse(&self, name: &str, valid: &str) -> BadSetting {
        match self.text(name) {
            Ok((parameter, value)) => {
                BadSetting { variable: parameter.variable(), value, valid: valid.to_owned() }
            }
            Err(error) => error,
        }
    }

    /// A name for the provider in libfabric.
    pub(super) fn prov_name(&self) -> Result<String, BadSetting> {
        let (_, text) = self.text("prov_name")?;
        let text = text.to_ascii_lowercase();
        let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        let shaped = (1..=PROV_NAME_BYTES_MAX).contains(&text.len()) && text.bytes().all(is_word);
        let taken = LAYER_PREFIXES.iter().any(|prefix| text.starts_with(prefix));
        if shaped && !taken && text != SHARED_MEMORY {
            return Ok(text);
        }
        Err(self.refuse(
            "prov_name",
            &format!(
                "up to {PROV_NAME_BYTES_MAX} letters, digits and underscores, such as tcp or efa, \
                 and no name of a layer or of shared memory"
            ),
        ))
    }

    /// A folder, `None` if the text is empty.
    pub(super) fn folder(&self, name: &str) -> Result<Option<PathBuf>, BadSetting> {
        let (_, text) = self.text(name)?;
        Ok(Some(text).filter(|text| !text.is_empty()).map(PathBuf::from))
    }

    pub(super) fn list(&self, name: &str) -> Result<Vec<String>, BadSetting> {
        let (_, text) = self.text(name)?;
        let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
        Ok(parts.map(str::to_owned).collect())
    }

    pub(super) fn number<T: TryFrom<u64>>(&self, name: &str) -> Result<T, BadSetting> {
        let (parameter, text) = self.text(name)?;
        parse_number(parameter, &text)
    }

    pub(super) fn auto_number<T: TryFrom<u64>>(&self, name: &str) -> Result<Option<T>, BadSetting> {
        let (parameter, text) = self.text(name)?;
        if text.eq_ignore_ascii_case("auto") {
            return Ok(None);
        }
        parse_number(parameter, &text).map(Some)
    }

    pub(super) fn auto_thousandths(&self, name: &str) -> Result<Option<u64>, BadSetting> {
        let (parameter, text) = self.text(name)?;
        let Kind::AutoThousandths { min, max } = parameter.kind else {
            unreachable!("{name} is not a number of thousandths");
        };
        if text.eq_ignore_ascii_case("auto") {
            return Ok(None);
        }
        let number = thousandths(&text).filter(|number| (min..=max).contains(number));
        number.map(Some).ok_or_else(|| bad(parameter, text))
    }

    /// A choice between yes, no and auto (`None`).
    pub(super) fn decision(&self, name: &str) -> Result<Option<bool>, BadSetting> {
        Ok(match self.choice(name)? {
            "yes" => Some(true),
            "no" => Some(false),
            _ => None,
        })
    }

    pub(super) fn choice(&self, name: &str) -> Result<&'static str, BadSetting> {
        let (parameter, text) = self.text(name)?;
        let Kind::Choice(words) = parameter.kind else {
            unreachable!("{name} is not a choice");
        };
        let found = words.iter().find(|word| word.eq_ignore_ascii_case(&text));
        found.copied().ok_or_else(|| bad(parameter, text))
    }

    pub(super) fn switch(&self, name: &str) -> Result<bool, BadSetting> {
        let (parameter, text) = self.text(name)?;
        match text.to_ascii_lowercase().as_str() {
            "1" | "yes" | "on" | "true" => Ok(true),
            "0" | "no" | "off" | "false" => Ok(false),
            _ => Err(bad(parameter, text)),
        }
    }
}

fn parse_number<T: TryFrom<u64>>(
    parameter: &'static Parameter,
    text: &str,
) -> Result<T, BadSetting> {
    let (Kind::Number { min, max } | Kind::AutoNumber { min, max }) = parameter.kind else {
        unreachable!("{} is not a number", parameter.name);
    };
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse::<u64>().ok(),
    };
    let number = parsed.filter(|number| (min..=max).contains(number));
    number
        .and_then(|number| T::try_from(number).ok())
        .ok_or_else(|| bad(parameter, text.to_owned()))
}

fn cpu_set(text: &str) -> Option<CpuSet> {
    let mut set = CpuSet::new();
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let number = |text: &str| text.trim().parse().ok().filter(|at| *at < CpuSet::MAX_CPU);
        let (first, last): (usize, usize) = (number(first)?, number(last)?);
        if first > last {
            return None;
        }
        (first..=last).for_each(|at| set.set(at));
    }
    (set.count() > 0).then_some(set)
}

/// A decimal number such as 2.5, in thousandths.
fn thousandths(text: &str) -> Option<u64> {
    let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(part) || part.len() > 3 {
        return None;
    }
    let part = format!("{part:0<3}").parse::<u64>().ok()?;
    whole.parse::<u64>().ok()?.checked_mul(1000)?.checked_add(part)
}

fn bad(parameter: &'static Parameter, value: String) -> BadSetting {
    BadSetting { variable: parameter.variable(), value, valid: parameter.kind.to_string() }
}
