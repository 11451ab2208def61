//! Every text within bounds is the number that it says, or refused. `BOUNDS=large` widens the bounds.

use super::{parse_number, thousandths};
use crate::scheme::SchemeChoice;
use crate::settings::{BadSetting, Kind, PARAMETERS, Parameter, Settings};
use erd_port::udp::FaultRates;
use erd_rd::cc::schemes;

/// Calls `judge` with all texts of at most so many of these characters.
fn each_text(of: &[char], longest: u32, mut judge: impl FnMut(&str)) {
    for len in 0..=longest {
        for number in 0..of.len().pow(len) {
            let at = |place: u32| of[number / of.len().pow(place) % of.len()];
            judge(&(0..len).map(at).collect::<String>());
        }
    }
}

fn longest() -> u32 {
    if std::env::var_os("BOUNDS").is_some_and(|bounds| bounds == "large") { 6 } else { 5 }
}

/// Digits, signs, and what is neither, or a digit of another script.
const CHARACTERS: [char; 10] = ['0', '1', '9', '.', '+', '-', 'e', '_', ' ', '\u{663}'];

/// The number of these digits; all that are out of every range are one.
fn digits(text: &str) -> Option<u128> {
    let digit = |sum: Option<u128>, c: char| {
        Some(sum?.saturating_mul(10).saturating_add(u128::from(c.to_digit(10)?)))
    };
    if text.is_empty() { None } else { text.chars().fold(Some(0), digit) }
}

fn parameter(name: &str) -> &'static Parameter {
    PARAMETERS.iter().find(|parameter| parameter.name == name).expect("it is of the table")
}

#[test]
fn a_whole_number_is_its_digits_within_the_range() {
    let judge = |name: &str, text: &str| {
        let parameter = parameter(name);
        let (Kind::Number { min, max } | Kind::AutoNumber { min, max }) = parameter.kind else {
            panic!("{name} is no number");
        };
        // One plus may stand before the digits.
        let expected = digits(text.strip_prefix('+').unwrap_or(text));
        let expected = expected.filter(|n| (u128::from(min)..=u128::from(max)).contains(n));
        let read = parse_number::<u64>(parameter, text);
        assert_eq!(read.as_ref().ok().copied().map(u128::from), expected, "{name} is {text:?}");
        if let Err(BadSetting { value, .. }) = read {
            assert_eq!(value, text);
        }
    };
    each_text(&CHARACTERS, longest(), |text| {
        judge("paths", text);
        judge("eager_size", text);
        judge("unexpected_size", text);
    });
    for text in ["18446744073709551615", "18446744073709551616", &"9".repeat(40), &"0".repeat(40)] {
        judge("unexpected_size", text);
        judge("unexpected_size", &format!("{text}5"));
    }
}

#[test]
fn thousandths_are_exact() {
    let judge = |text: &str| {
        let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
        let part = digits(part).filter(|_| part.len() <= 3).map(|number| {
            let unit = [100, 10, 1][part.len() - 1];
            number * unit
        });
        let expected = digits(whole)
            .zip(part)
            .map(|(whole, part)| whole.saturating_mul(1000).saturating_add(part));
        let expected = expected.filter(|number| *number <= u64::MAX.into());
        assert_eq!(thousandths(text).map(u128::from), expected, "{text:?}");
    };
    each_text(&CHARACTERS, longest(), judge);
    // About the greatest number.
    for whole in 18_446_744_073_709_500_u64..18_446_744_073_709_600 {
        judge(&whole.to_string());
        (0..1000).for_each(|part| judge(&format!("{whole}.{part:03}")));
    }
}

/// The texts of numbers about the edges of a range, and whether they are in it.
fn edges(min: u64, max: u64) -> Vec<(u64, bool)> {
    let near = |edge: u64| [edge.saturating_sub(1), edge, edge.saturating_add(1)];
    let far = [0, 1, u64::from(u16::MAX) + 1, 1 << 32, 1 << 63, u64::MAX];
    let all = near(min).into_iter().chain(near(max)).chain(far);
    all.map(|number| (number, (min..=max).contains(&number))).collect()
}

/// So a range is no wider than the type behind it, and its numbers fit once they are in ns.
#[test]
fn every_number_of_a_parameters_range_is_taken_and_no_other() {
    for parameter in PARAMETERS {
        let (texts, is_auto) = match parameter.kind {
            Kind::Number { min, max } | Kind::AutoNumber { min, max } => {
                let text = |(number, is_in): (u64, bool)| (number.to_string(), is_in);
                let is_auto = matches!(parameter.kind, Kind::AutoNumber { .. });
                (edges(min, max).into_iter().map(text).collect::<Vec<_>>(), is_auto)
            }
            Kind::AutoThousandths { min, max } => {
                let text = |(number, is_in): (u64, bool)| {
                    (format!("{}.{:03}", number / 1000, number % 1000), is_in)
                };
                (edges(min, max).into_iter().map(text).collect(), true)
            }
            _ => continue,
        };
        for (text, is_valid) in texts.into_iter().chain([("auto".to_owned(), is_auto)]) {
            let read =
                Settings::read(|asked| Ok((asked.name == parameter.name).then(|| text.clone())));
            assert_eq!(read.is_ok(), is_valid, "{} is {text}", parameter.name);
        }
    }
}

#[test]
fn a_rate_of_faults_is_between_0_and_1() {
    each_text(&['0', '1', '9', '.', '-', 'e', 'i', 'n', 'f', 'a'], 4, |text| {
        for name in ["loss", "dup", "reorder", "seed", "", "lost"] {
            let Some(rates) = FaultRates::parse(&format!("{name}={text}")) else { continue };
            for rate in [rates.loss, rates.dup, rates.reorder] {
                assert!((0.0..=1.0).contains(&rate), "{name} is {text:?}");
            }
            assert!(["loss", "dup", "reorder", "seed"].contains(&name), "{name} is {text:?}");
        }
    });
}

#[test]
fn a_schemes_option_is_within_its_range() {
    let texts = [
        "",
        "0",
        "-0",
        "1",
        "-1",
        "0.5",
        "1e38",
        "1e39",
        "-1e39",
        "1e-45",
        "inf",
        "-inf",
        "NaN",
        "infinity",
        "+1",
        "1_0",
        "0x1",
        "\u{663}",
        "3.4028235e38",
    ];
    for name in schemes::NAMES {
        let options = schemes::by_name(name).expect("it is of the table").options();
        assert!(SchemeChoice::new(name, "none=1").is_err(), "{name}");
        for option in options {
            let [min, max] = option.range;
            let own = [min, max, min - 1.0, max + 1.0, max * 2.0, f32::MIN, f32::MAX];
            let own = own.map(|number| number.to_string());
            for text in texts.iter().copied().chain(own.iter().map(String::as_str)) {
                let number = text.parse::<f32>().ok().filter(|n| (min..=max).contains(n));
                let choice = SchemeChoice::new(name, &format!("{}={text}", option.name));
                assert!(number.is_some() || choice.is_err(), "{name}: {} {text}", option.name);
                let Ok(choice) = choice else { continue };
                let set = choice.build().options();
                let set = set.iter().find(|set| set.name == option.name).expect("the same option");
                assert_eq!(Some(set.value), number, "{name}: {} {text}", option.name);
            }
        }
    }
}
