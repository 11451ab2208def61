//! The table of schemes, by their name in `FI_ERD_CC`. A new one is one more row. `profiles.rs` has the constants of
//! their profiles.

use super::Scheme;
use super::dctcp::DCTCP;
use super::fixed::{ERD, SINGLE, SPRAY};
use super::laps::LAPS;
use super::mprdma::MPRDMA;
use super::nscc::{NSCC, SMARTT};
use super::options::OptionError;
use super::profiles::{PRODUCT, PROFILES};
use super::strack::STRACK;
use super::swift::SWIFT;
use super::udmp::UDMP;
use alloc::boxed::Box;
use alloc::string::String;

/// Name and default scheme.
type Row = (&'static str, fn() -> Box<dyn Scheme>);

const TABLE: [Row; 11] = [
    // ERD's best effort: a fixed window, sprayed; NACKs only.
    (ERD.name, || Box::new(ERD.scheme())),
    // STrack: window by marks and delay, adaptive spray over unmarked paths.
    (STRACK.name, || Box::new(STRACK.scheme())),
    // NSCC of the Ultra Ethernet consortium: delay and marks, recycled paths.
    (NSCC.name, || Box::new(NSCC.scheme())),
    // SMaRTT, the paper that NSCC grew from.
    (SMARTT.name, || Box::new(SMARTT.scheme())),
    // UDMP: gradient of the round trip, acknowledgements clock packets onto their paths.
    (UDMP.name, || Box::new(UDMP.scheme())),
    // LAPS: bursts by softmax of the paths' round trips, AIMD on the rate.
    (LAPS.name, || Box::new(LAPS.scheme())),
    // Swift: AIMD on delay, paced below one packet; oblivious spray.
    (SWIFT.name, || Box::new(SWIFT.scheme())),
    // DCTCP: a decrease by the share of marked bytes; oblivious spray or one path.
    (DCTCP.name, || Box::new(DCTCP.scheme())),
    // MP-RDMA: a window by marks of single packets, acknowledgements choose the paths.
    (MPRDMA.name, || Box::new(MPRDMA.scheme())),
    // A fixed window over all paths.
    (SPRAY.name, || Box::new(SPRAY.scheme())),
    // A fixed window on one path, as ECMP hashes it.
    (SINGLE.name, || Box::new(SINGLE.scheme())),
];

/// All names that [`by_name`] knows.
pub const NAMES: &[&str] = &names();

const fn names() -> [&'static str; TABLE.len()] {
    let mut names = [""; TABLE.len()];
    let mut at = 0;
    while at < TABLE.len() {
        names[at] = TABLE[at].0;
        at += 1;
    }
    names
}

/// A scheme with its default parameters; `None` for an unknown name.
#[must_use]
pub fn by_name(name: &str) -> Option<Box<dyn Scheme>> {
    TABLE.iter().find(|row| row.0 == name).map(|row| row.1())
}

/// Reason why there is no scheme of a name and a profile.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ProfileError {
    /// No scheme has that name.
    #[error("name \"{name}\" is no scheme; valid: {list}", list = NAMES.join(", "))]
    Scheme {
        /// What was asked for.
        name: String,
    },
    /// The scheme has no such profile.
    #[error("profile \"{profile}\" is none of {scheme}; valid: {list}", list = profiles(scheme).join(", "))]
    Profile {
        /// The scheme.
        scheme: &'static str,
        /// What was asked for.
        profile: String,
    },
    /// A constant of the profile is none that the scheme takes.
    #[error("option {option} of profile {profile}: {error}")]
    Option {
        /// The profile.
        profile: &'static str,
        /// The option.
        option: &'static str,
        /// Reason.
        error: OptionError,
    },
}

/// The profiles of a scheme: [`PRODUCT`], and those of its sources. Empty for an unknown name.
#[must_use]
pub fn profiles(name: &str) -> &'static [&'static str] {
    if !NAMES.contains(&name) {
        return &[];
    }
    PROFILES.iter().find(|row| row.scheme == name).map_or(&[PRODUCT], |row| row.names)
}

/// A scheme with the constants of a profile: [`PRODUCT`] is the same as [`by_name`].
///
/// # Errors
/// There is no such scheme, or no such profile of it.
pub fn by_profile(name: &str, profile: &str) -> Result<Box<dyn Scheme>, ProfileError> {
    let mut scheme = by_name(name).ok_or_else(|| ProfileError::Scheme { name: name.into() })?;
    let unknown = ProfileError::Profile { scheme: scheme.name(), profile: profile.into() };
    let names = profiles(name);
    let at = names.iter().position(|known| *known == profile).ok_or(unknown)?;
    let row = PROFILES.iter().find(|row| row.scheme == name);
    for setting in row.map_or(&[][..], |row| row.settings[at]) {
        let (option, profile) = (setting.option, names[at]);
        let failed = |error| ProfileError::Option { profile, option, error };
        scheme.set(option, setting.value).map_err(failed)?;
    }
    Ok(scheme)
}

#[cfg(test)]
mod tests {
    use super::super::options::OptionInfo;
    use super::super::scheme::SchemeTable;
    use super::*;
    use alloc::format;
    use alloc::string::ToString;
    use alloc::vec::Vec;
    use core::fmt::Debug;

    #[test]
    fn every_name_builds_its_scheme() {
        for &name in NAMES {
            assert_eq!(by_name(name).unwrap().name(), name);
        }
        assert!(by_name("cubic").is_none() && by_name("").is_none());
    }

    #[test]
    fn every_profile_builds_and_sets_each_option_once() {
        for row in PROFILES {
            assert_eq!(row.names.len(), row.settings.len(), "{}", row.scheme);
            assert_eq!((row.names[0], row.settings[0].len()), (PRODUCT, 0), "{}", row.scheme);
            for (name, settings) in row.names.iter().zip(row.settings).skip(1) {
                let options = by_profile(row.scheme, name).unwrap().options();
                // All of them: what the product is tuned to next does not move a profile.
                let mut expected: Vec<_> = options.iter().map(|option| option.name).collect();
                let mut set: Vec<_> = settings.iter().map(|setting| setting.option).collect();
                expected.sort_unstable();
                set.sort_unstable();
                assert_eq!(set, expected, "{}, {name}", row.scheme);
                assert!(settings.iter().all(|setting| !setting.source.is_empty()), "{name}");
                assert!(!by_profile(row.scheme, name).unwrap().learns(), "{}, {name}", row.scheme);
            }
        }
    }

    #[test]
    fn the_product_is_what_the_name_alone_gives() {
        for &name in NAMES {
            assert_eq!(profiles(name)[0], PRODUCT);
            let product = by_profile(name, PRODUCT).unwrap();
            assert_eq!(product.options(), by_name(name).unwrap().options());
        }
    }

    #[test]
    fn an_unknown_scheme_or_profile_is_told_what_there_is() {
        let scheme = by_profile("cubic", PRODUCT).err().unwrap().to_string();
        assert!(scheme.contains("\"cubic\"") && scheme.contains("nscc, smartt"), "{scheme}");
        let profile = by_profile("nscc", "linux").err().unwrap().to_string();
        assert!(profile.ends_with("none of nscc; valid: product, paper, htsim"), "{profile}");
        assert!(profiles("cubic").is_empty());
    }

    #[test]
    fn options_have_names_of_their_own_and_defaults_within_their_ranges() {
        for &name in NAMES {
            let options = by_name(name).unwrap().options();
            assert!(!options.is_empty(), "{name}");
            for (at, option) in options.iter().enumerate() {
                let [min, max] = option.range;
                assert!(min < max && (min..=max).contains(&option.default), "{name}: {option}");
                assert_eq!(option.value, option.default, "{name}: {option}");
                let same = options[..at].iter().find(|other| other.name == option.name);
                assert!(same.is_none() && !option.source.is_empty(), "{name}: {option}");
            }
        }
    }

    /// Asserts that each row sets only the field of its name, and that each field has a row.
    fn assert_rows_are_the_fields<O: Clone + Debug>(table: &'static SchemeTable<O>) {
        let mut options = O::clone(table.scheme().shared());
        let mut expected = Vec::new();
        for (row, value) in table.options.iter().zip(1_u8..) {
            *row.field.of(&mut options).0 = value.into();
            expected.push(format!("{}: {value}.0", row.name));
        }
        let text = format!("{options:?}");
        // "Name { field: Type(1.0), ... }"; a field that is no number is no option.
        let fields = text.split(['{', '}', ',']).filter_map(|field| {
            let (name, value) = field.split_once(": ")?;
            let (_, number) = value.trim_end().strip_suffix(')')?.split_once('(')?;
            Some(format!("{}: {number}", name.trim()))
        });
        assert_eq!(fields.collect::<Vec<_>>(), expected, "{}", table.name);
    }

    #[test]
    fn every_field_has_the_row_of_its_name() {
        assert_rows_are_the_fields(&ERD);
        assert_rows_are_the_fields(&STRACK);
        assert_rows_are_the_fields(&NSCC);
        assert_rows_are_the_fields(&SMARTT);
        assert_rows_are_the_fields(&UDMP);
        assert_rows_are_the_fields(&LAPS);
        assert_rows_are_the_fields(&SWIFT);
        assert_rows_are_the_fields(&DCTCP);
        assert_rows_are_the_fields(&MPRDMA);
        assert_rows_are_the_fields(&SPRAY);
        assert_rows_are_the_fields(&SINGLE);
    }

    #[test]
    fn what_is_set_shows_and_what_is_not_valid_is_refused() {
        for &name in NAMES {
            let mut scheme = by_name(name).unwrap();
            assert_eq!(scheme.set("none", 1.0), Err(OptionError::Unknown));
            for option in scheme.options() {
                let [min, max] = option.range;
                for wrong in [min - 1.0, f32::NAN, 2.0 * max + 1.0] {
                    let refused = scheme.set(option.name, wrong).unwrap_err();
                    assert!(refused.to_string().contains(option.unit), "{name}: {refused}");
                }
                scheme.set(option.name, max).unwrap();
                let now = scheme.options().into_iter().find(|now| now.name == option.name);
                assert_eq!(now, Some(OptionInfo { value: max, ..option }), "{name}");
            }
        }
    }
}
