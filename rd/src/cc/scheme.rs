//! Schemes as data: a [`SchemeTable`] describes a scheme, and [`TableScheme`] is the scheme itself with the values of
//! its options. All schemes of `schemes.rs` are made so; each table is in its controller's file. Flows share the values
//! that they began with: a change makes a copy.

use super::options::{Bdps, OptionError, OptionInfo, OptionRow};
use super::{AckPolicy, Controller, FlowParams, LossDetection, Scheme};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// The option that all schemes have: see [`Scheme::link_share_bdps`].
const LINK_SHARE: &str = "link_share";
/// Its default: more than controllers keep on the way by themselves (docs/cc/shared.md).
const LINK_SHARE_BDPS: f32 = 3.0;
/// Its range.
const LINK_SHARE_RANGE: [f32; 2] = [0.0, 64.0];

/// The description of a scheme; `O` has a field for each of its options.
pub struct SchemeTable<O: 'static> {
    /// Name as in `FI_ERD_CC`.
    pub name: &'static str,
    /// A row for each option.
    pub options: &'static [OptionRow<O>],
    /// The options before the rows have set their defaults.
    pub start: fn() -> O,
    /// The acknowledgements that its controllers need from receivers.
    pub ack_policy: fn(&O) -> AckPolicy,
    /// How its senders find lost packets.
    pub loss_detection: fn(&O) -> LossDetection,
    /// See [`Scheme::learns`].
    pub learns: fn(&O) -> bool,
    /// Makes the controller of one flow; the number is all the randomness it gets.
    pub build: fn(&Arc<O>, &FlowParams, u64) -> Box<dyn Controller>,
}

impl<O> SchemeTable<O> {
    /// The scheme with the defaults of its options.
    #[must_use]
    pub fn scheme(&'static self) -> TableScheme<O> {
        let mut options = (self.start)();
        for row in self.options {
            *row.field.of(&mut options).0 = row.default;
        }
        TableScheme { table: self, options: Arc::new(options), link_share: Bdps(LINK_SHARE_BDPS) }
    }
}

/// A scheme of a table, with the values of its options.
pub struct TableScheme<O: 'static> {
    table: &'static SchemeTable<O>,
    options: Arc<O>,
    /// The option [`LINK_SHARE`].
    link_share: Bdps,
}

impl<O> TableScheme<O> {
    fn link_share_info(&self) -> OptionInfo {
        OptionInfo {
            name: LINK_SHARE,
            unit: Bdps::UNIT,
            value: self.link_share.0,
            default: LINK_SHARE_BDPS,
            range: LINK_SHARE_RANGE,
            source: "shared.md: A link that many share",
        }
    }

    #[cfg(test)]
    /// The values that the next flow gets.
    #[must_use]
    pub fn shared(&self) -> &Arc<O> {
        &self.options
    }
}

impl<O: Clone + Send + Sync> Scheme for TableScheme<O> {
    fn name(&self) -> &'static str {
        self.table.name
    }

    fn ack_policy(&self) -> AckPolicy {
        (self.table.ack_policy)(&self.options)
    }

    fn loss_detection(&self) -> LossDetection {
        (self.table.loss_detection)(&self.options)
    }

    fn learns(&self) -> bool {
        (self.table.learns)(&self.options)
    }

    fn link_share_bdps(&self) -> f32 {
        self.link_share.0
    }

    fn options(&self) -> Vec<OptionInfo> {
        let mut options = O::clone(&self.options);
        let info = |row: &OptionRow<O>| {
            let (value, unit) = row.field.of(&mut options);
            let OptionRow { name, default, range, source, .. } = *row;
            OptionInfo { name, unit, value: *value, default, range, source }
        };
        self.table.options.iter().map(info).chain([self.link_share_info()]).collect()
    }

    fn set(&mut self, name: &str, value: f32) -> Result<(), OptionError> {
        let row = self.table.options.iter().find(|row| row.name == name);
        let (at, name, [min, max], unit) = match row {
            Some(row) => {
                let (at, unit) = row.field.of(Arc::make_mut(&mut self.options));
                (at, row.name, row.range, unit)
            }
            None if name == LINK_SHARE => {
                (&mut self.link_share.0, LINK_SHARE, LINK_SHARE_RANGE, Bdps::UNIT)
            }
            None => return Err(OptionError::Unknown),
        };
        // A NaN lies in no range.
        if !(min..=max).contains(&value) {
            return Err(OptionError::Range { name, min, max, unit });
        }
        *at = value;
        Ok(())
    }

    fn build(&self, params: &FlowParams, seed: u64) -> Box<dyn Controller> {
        (self.table.build)(&self.options, params, seed)
    }
}
