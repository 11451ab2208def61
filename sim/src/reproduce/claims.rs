//! The papers' claims and the constants under which they are reproduced, as the files of `sim/claims` have them.

use anyhow::{Context, bail, ensure};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;
use toml::Table;

/// The file with the constants.
const CONSTANTS: &str = "constants.toml";
/// The file with the reasons why results differ.
const REASONS: &str = "reasons.toml";
/// The key of a network's form that has its seeds.
pub const SEEDS: &str = "seeds";
/// The papers' files, in the order in which they are told.
const PAPERS: [&str; 5] = ["udmp", "strack", "smartt", "laps", "erd"];

/// How large networks and work are.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize, clap::ValueEnum,
)]
#[serde(rename_all = "snake_case")]
pub enum Scale {
    /// As in the paper.
    Full,
    /// About 128 hosts.
    Scaled,
    /// What tests run: it shows that a claim can be run, not what comes of it.
    Short,
}

/// What is the same for all claims.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Constants {
    /// What goes with each size.
    pub sizes: BTreeMap<Scale, SizeFile>,
    /// Networks by name.
    pub networks: BTreeMap<String, PaperNetwork>,
}

/// What goes with a size.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SizeFile {
    /// A run for each; medians are told.
    pub seeds: Vec<u64>,
    /// Longest message; longer ones are cut.
    pub bytes_max: Option<i64>,
}

/// A network, its queues, and how engines are set up there.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PaperNetwork {
    /// The network whose keys hold where this one has none.
    pub like: Option<String>,
    /// In a few words.
    pub about: String,
    /// Where the paper says so.
    #[serde(default)]
    pub source: String,
    /// Where the paper is silent, and what was chosen.
    #[serde(default)]
    pub silent: String,
    /// Most simulated time.
    pub limit_ms: Option<i64>,
    /// `[links]` of the scenario.
    #[serde(default)]
    pub links: Table,
    /// `[switches]` of the scenario.
    #[serde(default)]
    pub switches: Table,
    /// `[hosts]` of the scenario.
    #[serde(default)]
    pub hosts: Table,
    /// `[engines]` of the scenario.
    #[serde(default)]
    pub engines: Table,
    /// What is different for a scheme that needs a network without losses.
    #[serde(default)]
    pub lossless: Lossless,
    /// Its form at each size: `topology` of the scenario, `bad_links`, and `seeds` where they differ from the size's.
    #[serde(default)]
    pub full: Table,
    /// The same.
    #[serde(default)]
    pub scaled: Table,
    /// The same.
    #[serde(default)]
    pub short: Table,
}

/// Goes before the same keys of the network.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lossless {
    /// `[links]` of the scenario.
    #[serde(default)]
    pub links: Table,
    /// `[switches]` of the scenario, with `pfc`.
    #[serde(default)]
    pub switches: Table,
}

/// A paper's file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Paper {
    /// Its scheme.
    pub paper: String,
    /// Its title.
    pub title: String,
    /// What it claims.
    pub claims: Vec<Claim>,
}

/// A claim. It is run, follows from arithmetic, or is left out with a reason.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// Its name.
    pub id: String,
    /// Section and figure of the paper.
    pub source: String,
    /// What the paper says.
    pub says: String,
    /// What is compared.
    pub measure: Option<Measure>,
    /// How.
    pub show: Option<Show>,
    /// The paper's number.
    pub figure: Option<ClaimFigure>,
    /// The network, unless a case or an arm has its own.
    pub network: Option<String>,
    /// What the claim is about.
    pub subject: Option<Arm>,
    /// What it is compared with.
    #[serde(default)]
    pub against: Vec<Arm>,
    /// Work for which the claim is made.
    #[serde(default)]
    pub cases: Vec<ClaimCase>,
    /// Seeds at full size, where the network's are too few for its few flows.
    #[serde(default)]
    pub full_seeds: Vec<u64>,
    /// Some of its runs are known not to end, as the reason of the claim tells. The command does not fail for them.
    #[serde(default)]
    pub may_not_end: bool,
    /// Why it is not run.
    pub not_run: Option<String>,
    /// What follows without a run.
    pub by_arithmetic: Option<String>,
}

/// A scheme with its settings.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Arm {
    /// In a word.
    #[serde(default)]
    pub name: String,
    /// The scheme. Without a profile it has that of the column.
    pub scheme: Option<String>,
    /// What else `[engines]` of the scenario says.
    #[serde(default)]
    pub engines: Table,
    /// Another network than the claim's.
    pub network: Option<String>,
    /// The network's lossless form.
    #[serde(default)]
    pub lossless: bool,
    /// What else `[switches]` of the scenario says.
    #[serde(default)]
    pub switches: Table,
}

/// Work.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClaimCase {
    /// In a few words.
    pub name: String,
    /// Another network than the claim's.
    pub network: Option<String>,
    /// Sizes at which it is run.
    #[serde(default = "every_size")]
    pub sizes: Vec<Scale>,
    /// `pattern` of the scenario's work.
    pub work: Table,
}

fn every_size() -> Vec<Scale> {
    vec![Scale::Full, Scale::Scaled, Scale::Short]
}

/// What is compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// Mean completion time.
    MeanUs,
    /// Completion time that 99 % of the messages do not exceed. Of equal messages, its inverse is the throughput that 99 % reach.
    P99Us,
    /// Longest completion time.
    MaxUs,
    /// Time until all have arrived.
    WholeUs,
    /// Longest completion time over the shortest.
    Spread,
    /// Longest completion time over the mean.
    WorstOverMean,
    /// Payloads cut off.
    Trims,
    /// Packets that later ones overtook, in percent.
    LatePercent,
    /// Packets that 8 or more later ones overtook, in percent.
    FarLatePercent,
    /// By how many later packets 99 % of the packets were overtaken at most: one less than a power of two.
    LateP99Packets,
    /// Packets on the shortest ways, over those that random choices would have put there.
    ShortestShare,
    /// Payload over the time until all have arrived.
    GoodputGbps,
}

/// How it is compared: S is the subject's value, A the other's.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Show {
    /// S alone.
    Own,
    /// A / S.
    Times,
    /// 1 - S / A, in percent.
    Less,
    /// A - S, in microseconds.
    LessUs,
    /// S / A - 1, in percent.
    More,
    /// The time until all have arrived, over the least that the network allows, less 1, in percent.
    OverBound,
}

/// The paper's number.
#[derive(Clone, Copy, PartialEq, Debug, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum ClaimFigure {
    /// "up to": the greatest over all cases.
    UpTo(f64),
    /// "more than": the least over all cases.
    AtLeast(f64),
    /// The least and the greatest over all cases.
    Range([f64; 2]),
    /// "at most": the greatest over all cases, where less is better.
    Within(f64),
    /// About this.
    Equal(f64),
    /// In a picture alone.
    Unstated,
}

/// Everything.
#[derive(Debug)]
pub struct Book {
    /// What is the same for all claims.
    pub constants: Constants,
    /// The papers.
    pub papers: Vec<Paper>,
    /// Why a claim's results differ from the paper's.
    pub reasons: BTreeMap<String, String>,
}

impl Book {
    /// Reads the files of a directory.
    ///
    /// # Errors
    /// Names the file, and the key or claim that is wrong.
    pub fn read(dir: &Path) -> anyhow::Result<Book> {
        let papers: Vec<Paper> = PAPERS
            .iter()
            .map(|name| read(&dir.join(format!("{name}.toml"))))
            .collect::<Result<_, _>>()?;
        let mut constants: Constants = read(&dir.join(CONSTANTS))?;
        constants.resolve()?;
        let reasons: BTreeMap<String, String> = read(&dir.join(REASONS))?;
        let book = Book { constants, papers, reasons };
        book.check()?;
        Ok(book)
    }

    /// All claims, in the order in which they are told.
    pub fn claims(&self) -> impl Iterator<Item = &Claim> {
        self.papers.iter().flat_map(|paper| &paper.claims)
    }

    fn check(&self) -> anyhow::Result<()> {
        for size in every_size() {
            let seeds = self.constants.sizes.get(&size).map_or(0, |size| size.seeds.len());
            ensure!(seeds % 2 == 1, "{CONSTANTS}: sizes.{size:?} needs an odd number of seeds");
        }
        let mut ids = Vec::new();
        for claim in self.claims() {
            ensure!(!ids.contains(&&claim.id), "claim {}: there are two of that id", claim.id);
            ids.push(&claim.id);
            claim.check().with_context(|| format!("claim {}", claim.id))?;
        }
        for claim in self.claims().filter(|claim| claim.may_not_end) {
            let id = &claim.id;
            ensure!(
                self.reasons.contains_key(id),
                "{REASONS}: claim {id} may not end, and has no reason"
            );
        }
        for id in self.reasons.keys() {
            ensure!(ids.contains(&id), "{REASONS}: there is no claim {id}");
        }
        Ok(())
    }
}

fn read<T: serde::de::DeserializeOwned>(file: &Path) -> anyhow::Result<T> {
    let name = file.display();
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {name}"))?;
    toml::from_str(&text).with_context(|| name.to_string())
}

impl Claim {
    /// It is run.
    #[must_use]
    pub fn is_run(&self) -> bool {
        !self.cases.is_empty()
    }

    /// What it is about, and what that is compared with.
    pub(super) fn arms(&self) -> impl Iterator<Item = &Arm> {
        self.subject.iter().chain(&self.against)
    }

    fn check(&self) -> anyhow::Result<()> {
        let whys = [&self.not_run, &self.by_arithmetic].into_iter().flatten().count();
        ensure!(
            usize::from(self.is_run()) + whys == 1,
            "expected one of cases, not_run, by_arithmetic"
        );
        if !self.is_run() {
            return Ok(());
        }
        let (Some(_), Some(show), Some(_), Some(_)) =
            (self.measure, self.show, self.figure, &self.subject)
        else {
            bail!("expected measure, show, figure and subject");
        };
        let alone = matches!(show, Show::Own | Show::OverBound);
        ensure!(alone == self.against.is_empty(), "{show:?} and against do not go together");
        // Switches that move flowlets choose ways themselves, and the share goes by the path numbers of the senders.
        let moves = |arm: &Arm| arm.switches.contains_key("balancing");
        ensure!(
            self.measure != Some(Measure::ShortestShare) || !self.arms().any(moves),
            "shortest_share does not go together with balancing by switches"
        );
        Ok(())
    }
}

impl Constants {
    /// The seeds of a claim's runs on a network.
    ///
    /// # Errors
    /// They are no numbers.
    pub fn seeds(
        &self,
        claim: &Claim,
        network: &PaperNetwork,
        size: Scale,
    ) -> anyhow::Result<Vec<u64>> {
        match network.form(size).get(SEEDS) {
            _ if size == Scale::Full && !claim.full_seeds.is_empty() => {
                Ok(claim.full_seeds.clone())
            }
            Some(own) => Vec::<u64>::deserialize(own.clone()).context(SEEDS),
            None => Ok(self.sizes[&size].seeds.clone()),
        }
    }

    /// Puts the keys of the networks that others are like into these.
    fn resolve(&mut self) -> anyhow::Result<()> {
        let names: Vec<String> = self.networks.keys().cloned().collect();
        for name in &names {
            let mut chain = vec![name.clone()];
            while let Some(like) = &self.networks[&chain[chain.len() - 1]].like {
                ensure!(!chain.contains(like), "{CONSTANTS}: networks.{name} is like itself");
                let known = self.networks.contains_key(like);
                ensure!(known, "{CONSTANTS}: networks.{name}: there is no network {like}");
                chain.push(like.clone());
            }
            let own = self.networks[name].clone();
            let mut all = PaperNetwork {
                about: own.about.clone(),
                source: own.source.clone(),
                silent: own.silent.clone(),
                ..PaperNetwork::default()
            };
            for link in chain.iter().rev() {
                let from = &self.networks[link];
                all.limit_ms = from.limit_ms.or(all.limit_ms);
                merge(&mut all.links, &from.links);
                merge(&mut all.switches, &from.switches);
                merge(&mut all.hosts, &from.hosts);
                merge(&mut all.engines, &from.engines);
                merge(&mut all.lossless.links, &from.lossless.links);
                merge(&mut all.lossless.switches, &from.lossless.switches);
                for size in every_size() {
                    // A network has one topology: the keys of two do not mix.
                    if from.form(size).contains_key("topology") {
                        all.form_mut(size).remove("topology");
                    }
                    merge(all.form_mut(size), from.form(size));
                }
            }
            // Nothing else is resolved through this one any more once it has all keys, and the order does not matter.
            all.like = own.like;
            self.networks.insert(name.clone(), all);
        }
        Ok(())
    }
}

impl PaperNetwork {
    /// Its form at a size.
    #[must_use]
    pub fn form(&self, size: Scale) -> &Table {
        match size {
            Scale::Full => &self.full,
            Scale::Scaled => &self.scaled,
            Scale::Short => &self.short,
        }
    }

    fn form_mut(&mut self, size: Scale) -> &mut Table {
        match size {
            Scale::Full => &mut self.full,
            Scale::Scaled => &mut self.scaled,
            Scale::Short => &mut self.short,
        }
    }
}

/// Puts `over`'s keys into `table`, those of tables within them one by one.
pub fn merge(table: &mut Table, over: &Table) {
    for (key, value) in over {
        match (table.get_mut(key), value) {
            (Some(toml::Value::Table(below)), toml::Value::Table(over)) => merge(below, over),
            _ => {
                table.insert(key.clone(), value.clone());
            }
        }
    }
}
