//! What the nodes of a scenario's network are called.

use crate::fabric::blueprint::Blueprint;
use std::collections::HashMap;

/// How nodes are called.
pub(super) enum Names {
    /// By a letter for their kind, and their number among those. For each kind the first node and how many there are.
    Kinds(Vec<(char, u32, u32)>),
    /// Each has a name.
    Table(HashMap<String, u32>),
}

impl Names {
    /// `h0` for hosts and `s0` for switches.
    pub(super) fn numbers(plan: &Blueprint) -> Names {
        let hosts = plan.hosts();
        Names::Kinds(vec![('h', 0, hosts), ('s', hosts, plan.switches().len() as u32)])
    }

    pub(super) fn node(&self, name: &str) -> Option<u32> {
        let kinds = match self {
            Names::Table(names) => return names.get(name).copied(),
            Names::Kinds(kinds) => kinds,
        };
        let letter = name.chars().next()?;
        let number = &name[letter.len_utf8()..];
        let is_number = number.bytes().all(|byte| byte.is_ascii_digit());
        let number: u32 = number.parse().ok().filter(|_| is_number)?;
        let (_, first, count) = kinds.iter().find(|(kind, ..)| *kind == letter)?;
        (number < *count).then_some(first + number)
    }
}
