//! What an observer sees of a job's datagrams, as proof that a key was used: nftables counts them by what docs/protocol.md
//! leaves in the clear. A program that ignored its key would pass its own checks, but not this one.

use crate::process::Job;
use anyhow::{Context, Result, ensure};

/// How a job's key protects its packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protection {
    /// They are proven, and their payload is hidden.
    Encrypt,
    /// They are proven only.
    Auth,
}

impl Protection {
    /// The value of `FI_ERD_PROTECTION`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Protection::Encrypt => "encrypt",
            Protection::Auth => "auth",
        }
    }
}

/// Received datagrams of a job.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    /// Of the version with a key.
    keyed: u64,
    /// Of the version without.
    keyless: u64,
    /// Acknowledgement packets.
    acks: u64,
    /// Those whose counts of words, ranges and records can be read (docs/protocol.md, 6.2): the greatest are 64, 64 and 48,
    /// and 0 follows them. Hidden, one of 2^43 looks so.
    readable: u64,
    /// Bundles of the version with a key.
    bundles: u64,
    /// Those that begin as a bundle does (docs/protocol.md, 5.2): with fewer than 256 records, of which the first has a kind
    /// and flags that there are. Hidden, one of 2^15 looks so.
    readable_bundles: u64,
}

impl Seen {
    /// Whether packets show how they were sent: where every answer carries its acknowledgement, only bundles can.
    fn shows(&self) -> bool {
        self.acks + self.bundles > 0
    }

    /// Chance may make a bundle look readable.
    fn is_hidden(&self) -> bool {
        self.readable == 0 && self.readable_bundles <= self.bundles / 20
    }

    /// A large bundle may have more records.
    fn is_as_sent(&self) -> bool {
        self.readable == self.acks && self.readable_bundles >= self.bundles - self.bundles / 20
    }
}

/// The rule of each field: Type, version and kind are in the first byte after the UDP header, the counts of an
/// acknowledgement in bytes 80 to 87, the count of a bundle and its first record's kind and flags in bytes 40 to 43.
const RULES: [(&str, &str); 6] = [
    ("keyed", "@th,64,8 & 0x70 == 0x30"),
    ("keyless", "@th,64,8 & 0x70 == 0x20"),
    ("acks", "@th,64,8 & 0x8f == 0x01"),
    ("readable", "@th,64,8 & 0x8f == 0x01 @th,704,64 & 0xff80ff80ff80ffff == 0"),
    ("bundles", "@th,64,8 == 0x30"),
    ("readable bundles", "@th,64,8 == 0x30 @th,320,32 & 0xff00f0c8 == 0"),
];

/// `job` with its datagrams counted, in the network namespace that the caller gives it. The counts are its last output.
#[must_use]
pub fn watched(job: Job) -> Job {
    let rules: String = RULES
        .iter()
        .map(|(name, rule)| {
            let rule = format!("meta l4proto udp {rule} counter comment \"{name}\"");
            format!("nft 'add rule inet wire in {rule}' && ")
        })
        .collect();
    // Before the rules that lose datagrams.
    let chain = "type filter hook input priority -10;";
    let script = format!(
        "nft add table inet wire && nft 'add chain inet wire in {{ {chain} }}' && {rules} \
         {{ \"$@\"; rc=$?; nft list chain inet wire in; exit $rc; }}"
    );
    job.under(["sh", "-c", &script, "sh"])
}

/// Checks the counts at the end of `output`; a remark for the report.
///
/// # Errors
/// A datagram without a key, payload that can be read although it is to be hidden, or the opposite.
pub fn check(protection: Protection, output: &str) -> Result<String> {
    let seen = seen(output)?;
    ensure!(seen.keyless == 0 && seen.keyed > 0, "the key was not used: {seen:?}");
    ensure!(seen.shows(), "nothing shows whether they are hidden: {seen:?}");
    match protection {
        Protection::Encrypt => ensure!(seen.is_hidden(), "not hidden: {seen:?}"),
        Protection::Auth => ensure!(seen.is_as_sent(), "not as sent: {seen:?}"),
    }
    Ok(format!("{} datagrams with a key, none without", seen.keyed))
}

fn seen(output: &str) -> Result<Seen> {
    let count = |name: &str| -> Result<u64> {
        let comment = format!(" comment \"{name}\"");
        let mut lines = output.lines();
        let line = lines.find_map(|line| line.trim_end().strip_suffix(&comment));
        let (_, counts) = line
            .and_then(|line| line.split_once(" counter packets "))
            .with_context(|| format!("nothing counted the datagrams ({name})"))?;
        counts.split(' ').next().unwrap_or_default().parse().context("the count of datagrams")
    };
    Ok(Seen {
        keyed: count("keyed")?,
        keyless: count("keyless")?,
        acks: count("acks")?,
        readable: count("readable")?,
        bundles: count("bundles")?,
        readable_bundles: count("readable bundles")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(counts: [u64; 6]) -> String {
        let line = |((name, rule), count)| {
            format!(
                "\t\tmeta l4proto udp {rule} counter packets {count} bytes 9 comment \"{name}\"\n"
            )
        };
        RULES.into_iter().zip(counts).map(line).collect()
    }

    #[test]
    fn a_key_that_was_not_used_is_seen() {
        let verdict = |protection, counts| check(protection, &listed(counts)).is_ok();
        let (hidden, proven) = (Protection::Encrypt, Protection::Auth);
        assert!(verdict(hidden, [9, 0, 3, 0, 6, 0]));
        assert!(verdict(proven, [9, 0, 3, 3, 6, 6]));
        assert!(verdict(hidden, [9, 0, 0, 0, 9, 0]), "every answer carries its acknowledgement");
        assert!(verdict(proven, [9, 0, 0, 0, 9, 9]), "the same");
        assert!(verdict(hidden, [99, 0, 3, 0, 96, 1]), "chance");
        assert!(verdict(proven, [99, 0, 3, 3, 96, 95]), "a large bundle");
        assert!(!verdict(hidden, [9, 1, 3, 0, 6, 0]), "one without a key");
        assert!(!verdict(hidden, [0, 0, 0, 0, 0, 0]), "none at all");
        assert!(!verdict(hidden, [9, 0, 3, 1, 6, 0]), "an acknowledgement is not hidden");
        assert!(!verdict(hidden, [9, 0, 3, 0, 6, 1]), "a bundle is not hidden");
        assert!(!verdict(hidden, [9, 0, 0, 0, 0, 0]), "nothing shows whether they are hidden");
        assert!(
            !verdict(proven, [9, 0, 3, 0, 6, 6]),
            "acknowledgements hidden against the setting"
        );
        assert!(!verdict(proven, [9, 0, 3, 3, 6, 0]), "bundles hidden against the setting");
        assert!(check(hidden, "ok transfers\n").is_err(), "nothing counted");
    }
}
