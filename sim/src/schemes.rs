//! Congestion control schemes by name: those of the engine, as "nscc" or with a profile as "nscc:paper", and the
//! simulator's baselines. "+oblivious" after that takes the choice of paths from the scheme: each burst takes one at random.

use crate::baselines::plb::PLB;
use crate::oblivious::Oblivious;
use crate::transport;
use erd_rd::cc::Scheme;
use erd_rd::cc::profiles::PRODUCT;
use erd_rd::cc::schemes::by_profile;

pub use erd_rd::cc::schemes::{NAMES, ProfileError};

/// Names of the baselines.
pub const BASELINES: &[&str] = &[PLB.name];

/// Why there is no scheme of a name.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{engine}; baselines: {list}", list = [BASELINES, transport::BASELINES].concat().join(", "))]
pub struct NameError {
    engine: ProfileError,
}

/// After a scheme's name: paths are taken at random.
const OBLIVIOUS: &str = "+oblivious";

/// A scheme by its name and, after a colon, its profile.
///
/// # Errors
/// There is no such scheme, or no such profile of it.
pub fn named(text: &str) -> Result<Box<dyn Scheme>, NameError> {
    if let Some(scheme) = text.strip_suffix(OBLIVIOUS) {
        return Ok(Box::new(Oblivious::new(named(scheme)?)));
    }
    if text == PLB.name {
        return Ok(Box::new(PLB.scheme()));
    }
    let (name, profile) = text.split_once(':').unwrap_or((text, PRODUCT));
    by_profile(name, profile).map_err(|engine| NameError { engine })
}

/// The same; `None` for an unknown one.
#[must_use]
pub fn by_name(text: &str) -> Option<Box<dyn Scheme>> {
    named(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_is_named_after_a_colon() {
        let law =
            |text| named(text).unwrap().options().iter().find(|o| o.name == "law").unwrap().value;
        assert_eq!((law("nscc"), law("nscc:product"), law("nscc:htsim")), (0.0, 0.0, 2.0));
        let error = named("strack:htsim").err().unwrap().to_string();
        assert!(error.contains("valid: product, paper"), "{error}");
        assert!(named("strack:paper+oblivious").is_ok() && named("strack+blind").is_err());
    }

    #[test]
    fn baselines_are_named_as_schemes_are() {
        for name in BASELINES {
            assert_eq!(named(name).unwrap().name(), *name);
            assert!(!NAMES.contains(name), "{name}");
        }
        let error = named("hula").err().unwrap().to_string();
        assert!(error.contains("nscc, smartt") && error.contains("baselines: plb"), "{error}");
    }
}
