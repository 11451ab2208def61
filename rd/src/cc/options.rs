//! Options of the schemes: the fields of a row in a scheme's table, and the types of the fields that the rows set. The
//! tables are in the schemes' files, and `scheme.rs` reads and sets values by them. Each row names its unit by the type
//! of its field, so a controller cannot take a number of packets for a number of round trips.

use core::fmt;

/// Packet that the papers' increases count, in bytes (STrack, section 4.2; htsim). Larger datagrams
/// count as several.
pub const REFERENCE_PACKET_BYTES: f32 = 4096.0;
/// Round trip that the papers' constants are for, in ns (STrack, table 1; htsim).
pub const REFERENCE_RTT_NS: f32 = 12_000.0;
/// Bandwidth-delay product of that network in bytes: 100 Gb/s times 12 us.
pub const REFERENCE_BDP_BYTES: f32 = 150_000.0;

/// A part of a whole, or a probability: 0 to 1.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Share(pub f32);
/// A multiplier without a unit.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Factor(pub f32);
/// A number of events.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Count(pub f32);
/// One of several ways, by its number.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Choice(pub f32);
/// A span in round trips without queues, jitter included.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct TypicalRtts(pub f32);
/// A span in least round trips.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct BaseRtts(pub f32);
/// A delay in the target delays of the scheme.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct TargetDelays(pub f32);
/// A span in microseconds.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Micros(pub f32);
/// A number of packets.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Packets(pub f32);
/// Packets of [`REFERENCE_PACKET_BYTES`] in a network of [`REFERENCE_BDP_BYTES`]; elsewhere as many
/// more as its bandwidth-delay product is larger.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct ScaledPackets(pub f32);
/// Bytes in bandwidth-delay products.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Bdps(pub f32);
/// Bytes in KiB.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Kib(pub f32);

impl Bdps {
    /// What its number counts.
    pub const UNIT: &str = "BDP";
}

impl Choice {
    /// Its number.
    #[must_use]
    pub fn number(self) -> u8 {
        self.0 as u8
    }

    /// For the option `law`: whether the algorithm is the paper's, or a reference's, as printed. 0 is the product's.
    #[must_use]
    pub fn is_printed(self) -> bool {
        self.0 > 0.0
    }
}

impl ScaledPackets {
    /// In bandwidth-delay products.
    #[must_use]
    pub fn bdps(self) -> f32 {
        self.0 * (REFERENCE_PACKET_BYTES / REFERENCE_BDP_BYTES)
    }
}

/// The field of `O` that an option sets; the type of the field is the option's unit.
#[derive(Debug)]
pub enum Field<O> {
    /// See [`Share`].
    Share(fn(&mut O) -> &mut Share),
    /// See [`Factor`].
    Factor(fn(&mut O) -> &mut Factor),
    /// See [`Count`].
    Count(fn(&mut O) -> &mut Count),
    /// See [`Choice`].
    Choice(fn(&mut O) -> &mut Choice),
    /// See [`TypicalRtts`].
    TypicalRtts(fn(&mut O) -> &mut TypicalRtts),
    /// See [`BaseRtts`].
    BaseRtts(fn(&mut O) -> &mut BaseRtts),
    /// See [`TargetDelays`].
    TargetDelays(fn(&mut O) -> &mut TargetDelays),
    /// See [`Micros`].
    Micros(fn(&mut O) -> &mut Micros),
    /// See [`Packets`].
    Packets(fn(&mut O) -> &mut Packets),
    /// See [`ScaledPackets`].
    ScaledPackets(fn(&mut O) -> &mut ScaledPackets),
    /// See [`Bdps`].
    Bdps(fn(&mut O) -> &mut Bdps),
    /// See [`Kib`].
    Kib(fn(&mut O) -> &mut Kib),
}

impl<O> Field<O> {
    /// The number in the field, and what it counts.
    pub fn of<'a>(&self, options: &'a mut O) -> (&'a mut f32, &'static str) {
        match self {
            Field::Share(at) => (&mut at(options).0, "share"),
            Field::Factor(at) => (&mut at(options).0, "factor"),
            Field::Count(at) => (&mut at(options).0, "count"),
            Field::Choice(at) => (&mut at(options).0, "choice"),
            Field::TypicalRtts(at) => (&mut at(options).0, "typical round trips"),
            Field::BaseRtts(at) => (&mut at(options).0, "base round trips"),
            Field::TargetDelays(at) => (&mut at(options).0, "targets"),
            Field::Micros(at) => (&mut at(options).0, "us"),
            Field::Packets(at) => (&mut at(options).0, "packets"),
            Field::ScaledPackets(at) => (&mut at(options).0, "packets for 150 kB of BDP"),
            Field::Bdps(at) => (&mut at(options).0, Bdps::UNIT),
            Field::Kib(at) => (&mut at(options).0, "KiB"),
        }
    }
}

/// A row of a scheme's table.
#[derive(Debug)]
pub struct OptionRow<O> {
    /// Its name, in lower case; the field has the same one.
    pub name: &'static str,
    /// The field that it sets.
    pub field: Field<O>,
    /// Value unless set.
    pub default: f32,
    /// Least and greatest valid value.
    pub range: [f32; 2],
    /// The source of the default: the paper's section, table or algorithm, htsim, or after "docs:" a passage of
    /// docs/cc/NAME.md, which lists the rows (rd/tests/options.rs).
    pub source: &'static str,
}

/// An [`OptionRow`] in one line.
#[must_use]
pub const fn row<O>(
    name: &'static str,
    field: Field<O>,
    default: f32,
    range: [f32; 2],
    source: &'static str,
) -> OptionRow<O> {
    OptionRow { name, field, default, range, source }
}

/// A scheme's description of one of its options.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct OptionInfo {
    /// Its name, in lower case.
    pub name: &'static str,
    /// Its unit.
    pub unit: &'static str,
    /// Its value now.
    pub value: f32,
    /// Its value unless set.
    pub default: f32,
    /// Least and greatest valid value.
    pub range: [f32; 2],
    /// See [`OptionRow::source`].
    pub source: &'static str,
}

impl fmt::Display for OptionInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let OptionInfo { name, unit, default, range: [min, max], .. } = self;
        write!(f, "{name} {min} to {max} {unit} (default {default})")
    }
}

/// Reason why an option was not set.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum OptionError {
    /// The scheme has no such option.
    #[error("the scheme has no such parameter")]
    Unknown,
    /// Out of range.
    #[error("{name} must lie between {min} and {max} {unit}")]
    Range {
        /// The option.
        name: &'static str,
        /// Least valid value.
        min: f32,
        /// Greatest valid value.
        max: f32,
        /// Its unit.
        unit: &'static str,
    },
}
