//! htsim's connection matrices (`.cm`): messages with start times and triggers.
//!
//! A header gives `Nodes`, `Connections`, and `Triggers` and `Failures` if there are any. Then each line is one of
//!
//! ```text
//! SRC->DST [id N] start T size BYTES [send_done_trigger N] [recv_done_trigger N] [prio N] [msg [N]]
//! SRC->DST id N trigger N size BYTES ...
//! trigger id N oneshot|multishot|barrier [count N]
//! failure switch_type AGG switch_id N link_id N
//! ```
//!
//! A oneshot trigger starts all its messages when it is activated, a barrier when it has been activated `count` times, and
//! each activation of a multishot trigger starts the next message. A message activates its `send_done_trigger` when the
//! sender knows that all has arrived, and its `recv_done_trigger` when all has. Triggers that join messages of one host
//! become dependencies of tasks; the others stay triggers ([`crate::work::Trigger`]).
//!
//! htsim reads `start` in microseconds, though some of its generators write picoseconds: [`StartUnit`]. It ignores `prio`.
//! Its failed links crash it, as its switches look for them when they make their tables; here they are returned as data.
//! Messages with `msg` share the connection of their `id`; here all messages between two hosts do.

use super::{
    HOSTS_MAX, Line, MESSAGE_BYTES_MAX, MESSAGES_MAX, ReadError, TIME_NS_MAX, lines, shown,
};
use crate::fabric::blueprint::{Blueprint, NodeId};
use crate::fabric::clos::Clos;
use crate::ids::{HostId, LinkId};
use crate::time::Picos;
use crate::work::{FlowId, Shots, Work};
use std::collections::BTreeMap;

/// Most of a number that names something.
const ID_MAX: u64 = u32::MAX as u64;

/// What the numbers after `start` count.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum StartUnit {
    /// As uet-htsim reads them.
    #[default]
    Micros,
    /// As its generators write them.
    Picos,
}

/// When a message starts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Beginning {
    /// At a time.
    At(Picos),
    /// By the trigger of this number.
    Trigger(u32),
}

/// A message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Connection {
    /// Its line.
    pub line: usize,
    /// Who sends it.
    pub from: u32,
    /// Who receives it.
    pub to: u32,
    /// Its number; messages of one connection share it.
    pub id: Option<u32>,
    /// When it starts.
    pub start: Beginning,
    /// Its length.
    pub bytes: u64,
    /// The trigger that it activates when its sender has all acknowledgements.
    pub send_done: Option<u32>,
    /// The trigger that it activates when it has arrived.
    pub receive_done: Option<u32>,
}

/// A kind of trigger.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Starts all at its only activation.
    OneShot,
    /// Starts one at each activation.
    MultiShot,
    /// Starts all at the activation of this number.
    Barrier(u32),
}

/// A link between a switch of tier 1 and one of tier 2 that has failed, in both directions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FailedLink {
    /// Its line.
    pub line: usize,
    /// The switch of tier 1, by its place among all of them.
    pub switch: u32,
    /// Which of its bundles upwards; the first link of it has failed.
    pub bundle: u32,
}

/// A matrix, which fits together.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Matrix {
    file: String,
    /// Hosts.
    pub nodes: u32,
    /// Messages, in the file's order, which is that of the flows of [`Matrix::work`].
    pub connections: Vec<Connection>,
    /// Triggers by their numbers: kind and line.
    pub triggers: BTreeMap<u32, (Kind, usize)>,
    /// Failed links.
    pub failures: Vec<FailedLink>,
}

/// A number that the header promises.
struct Promise {
    name: &'static str,
    max: u64,
    /// Number and line.
    given: Option<(u64, usize)>,
}

struct Draft {
    unit: StartUnit,
    /// Nodes, connections, triggers, failures.
    promises: [Promise; 4],
    header: bool,
    matrix: Matrix,
}

impl Matrix {
    /// Reads a file's text.
    ///
    /// # Errors
    /// Names the line and what it should say.
    pub fn read(file: &str, text: &str, unit: StartUnit) -> Result<Matrix, ReadError> {
        let promise = |name, max| Promise { name, max, given: None };
        let messages = MESSAGES_MAX as u64;
        let mut draft = Draft {
            unit,
            promises: [
                promise("Nodes", HOSTS_MAX.into()),
                promise("Connections", messages),
                promise("Triggers", messages),
                promise("Failures", messages),
            ],
            header: true,
            matrix: Matrix {
                file: file.to_owned(),
                nodes: 0,
                connections: Vec::new(),
                triggers: BTreeMap::new(),
                failures: Vec::new(),
            },
        };
        for line in lines(file, text) {
            draft.take(line)?;
        }
        draft.finish()
    }

    /// The work of all hosts.
    ///
    /// # Errors
    /// As [`Matrix::add_to`].
    pub fn work(&self) -> Result<Work, ReadError> {
        let mut work = Work::new(self.nodes);
        self.add_to(&mut work)?;
        Ok(work)
    }

    /// Adds the messages to the work of hosts of the same numbers.
    ///
    /// # Errors
    /// There are fewer hosts than nodes, or messages wait for each other; some may have been added then.
    pub fn add_to(&self, work: &mut Work) -> Result<(), ReadError> {
        if self.nodes > work.hosts() {
            let what = format!(
                "expected at most {} Nodes, as many as hosts, found {}",
                work.hosts(),
                self.nodes
            );
            return Err(ReadError::whole(&self.file, what));
        }
        let first = work.flows().len();
        for connection in &self.connections {
            let flow =
                work.message(HostId(connection.from), HostId(connection.to), connection.bytes);
            if let Beginning::At(at) = connection.start {
                work.start_at(flow, at);
            }
        }
        for (id, joined) in self.joined() {
            join(work, first, self.triggers[&id].0, &joined);
        }
        match work.circle() {
            None => Ok(()),
            Some((host, task)) => {
                let at = work.flows()[first..].iter().position(|flow| {
                    (flow.from, flow.send) == (host, task)
                        || (flow.to, flow.receive) == (host, task)
                });
                let line = at.map_or(0, |at| self.connections[at].line);
                let what = "expected messages that can start, but this one waits for itself by way of its trigger";
                Err(ReadError::line(&self.file, line, what))
            }
        }
    }

    /// Both directions of the failed links, in the tree that the matrix is for.
    ///
    /// # Errors
    /// The tree has no such link.
    pub fn failed_links(
        &self,
        clos: &Clos,
        plan: &Blueprint,
    ) -> Result<Vec<[LinkId; 2]>, ReadError> {
        let failed = |failure: &FailedLink| {
            let error = |what: String| ReadError::line(&self.file, failure.line, what);
            let [leaf, middle, top] = &clos.tiers[..] else {
                return Err(error("expected a tree of 3 tiers for a failed link".to_owned()));
            };
            let (hosts, bundles) = (plan.hosts(), middle.links_up / top.links_per_child);
            let leaves = hosts / leaf.children;
            let switches = leaves / middle.children * (leaf.links_up / middle.links_per_child);
            if failure.switch >= switches || failure.bundle >= bundles {
                return Err(error(format!(
                    "expected a switch_id below {switches} and a link_id below {bundles}"
                )));
            }
            let node = NodeId(hosts + leaves + failure.switch);
            let down = middle.children * middle.links_per_child;
            let up = plan.links_of(node).start + down + failure.bundle * top.links_per_child;
            let above = plan.links()[up as usize].to;
            let mut back = plan.links_of(above);
            let back = back.find(|link| plan.links()[*link as usize].to == node);
            back.map(|back| [LinkId(up), LinkId(back)])
                .ok_or_else(|| error("expected a link in both directions".to_owned()))
        };
        self.failures.iter().map(failed).collect()
    }

    /// The messages that each trigger joins.
    fn joined(&self) -> BTreeMap<u32, Joined> {
        let mut joined: BTreeMap<u32, Joined> = BTreeMap::new();
        for (at, connection) in self.connections.iter().enumerate() {
            let flow = FlowId(at as u32);
            if let Beginning::Trigger(id) = connection.start {
                joined.entry(id).or_default().started.push(flow);
            }
            for (id, end) in
                [(connection.send_done, End::Sent), (connection.receive_done, End::Arrived)]
            {
                if let Some(id) = id {
                    joined.entry(id).or_default().activators.push((flow, end));
                }
            }
        }
        joined
    }
}

/// Messages that a trigger joins.
#[derive(Default)]
struct Joined {
    activators: Vec<(FlowId, End)>,
    started: Vec<FlowId>,
}

/// What activates a trigger.
#[derive(Clone, Copy)]
enum End {
    Sent,
    Arrived,
}

/// Joins messages by dependencies of tasks, or else by a trigger. `first` is the place of the matrix's first message.
fn join(work: &mut Work, first: usize, kind: Kind, joined: &Joined) {
    let task = |work: &Work, (flow, end): (FlowId, End)| {
        let flow = work.flows()[first + flow.0 as usize];
        match end {
            End::Sent => (flow.from, flow.send),
            End::Arrived => (flow.to, flow.receive),
        }
    };
    let ends: Vec<_> = joined.activators.iter().map(|end| task(work, *end)).collect();
    let begins: Vec<_> = joined.started.iter().map(|flow| task(work, (*flow, End::Sent))).collect();
    let mut hosts = ends.iter().chain(&begins).map(|task| task.0);
    let one = hosts.next();
    let is_local = hosts.all(|host| Some(host) == one);
    // Of several activations only a trigger knows which comes first, and of several ends and beginnings each pair would
    // be a dependency.
    let is_plain = match kind {
        Kind::MultiShot => ends.len() == 1,
        Kind::OneShot | Kind::Barrier(_) => ends.len() == 1 || begins.len() == 1,
    };
    if is_local && is_plain {
        for (host, end) in ends {
            begins.iter().for_each(|begin| work.after(host, end, begin.1));
        }
        return;
    }
    let trigger = work.trigger(match kind {
        Kind::OneShot => Shots::All(1),
        Kind::MultiShot => Shots::OneEach,
        Kind::Barrier(count) => Shots::All(count),
    });
    ends.into_iter().for_each(|(host, task)| work.activate(host, task, trigger));
    begins.into_iter().for_each(|(host, task)| work.started_by(host, task, trigger));
}

impl Draft {
    fn take(&mut self, mut line: Line<'_>) -> Result<(), ReadError> {
        let word = line.word().unwrap_or_default();
        if let Some((from, to)) = word.split_once("->") {
            let connection = self.connection(from, to, &mut line)?;
            self.matrix.connections.push(connection);
        } else if word == "trigger" {
            self.trigger(&mut line)?;
        } else if word == "failure" {
            let failure = failure(&mut line)?;
            self.matrix.failures.push(failure);
        } else {
            return self.promise(word, line);
        }
        self.header = false;
        Ok(())
    }

    fn promise(&mut self, word: &str, mut line: Line<'_>) -> Result<(), ReadError> {
        let promise = self.promises.iter_mut().find(|promise| promise.name == word && self.header);
        let Some(Promise { name, max, given }) = promise else {
            let also = if self.header { "Nodes, Connections, Triggers, Failures, " } else { "" };
            let found = shown(word);
            return Err(line.error(format_args!(
                "expected {also}SRC->DST, trigger or failure, found {found}"
            )));
        };
        let min = u64::from(*name == "Nodes");
        let number = line.number(name, min, *max)?;
        if let Some((_, first)) = given.replace((number, line.number)) {
            return Err(line.error(format_args!("{name} is there twice, first in line {first}")));
        }
        line.end()
    }

    fn connection(
        &self,
        from: &str,
        to: &str,
        line: &mut Line<'_>,
    ) -> Result<Connection, ReadError> {
        let Some((nodes, _)) = self.promises[0].given else {
            return Err(line.error("expected Nodes in the header, before the first message"));
        };
        let [from, to] = [from, to].map(|host| line.number_in(host, "a host", 0, nodes - 1));
        let (from, to) = (from? as u32, to? as u32);
        if from == to {
            return Err(line.error(format_args!("expected two hosts, but {from} sends to itself")));
        }
        let mut values = Values::default();
        while let Some(word) = line.word() {
            values.take(word, self.unit, line)?;
        }
        let [id, trigger, send_done, receive_done] =
            [values.id, values.trigger, values.send_done, values.receive_done]
                .map(|number| number.map(|number| number as u32));
        let start = match (values.start, trigger) {
            (Some(at), None) => Beginning::At(at),
            (None, Some(_)) if id.is_none() => {
                return Err(line.error("expected id N in a line with a trigger"));
            }
            (None, Some(trigger)) => Beginning::Trigger(trigger),
            _ => return Err(line.error("expected either start T or trigger N")),
        };
        let Some(bytes) = values.size else { return Err(line.error("expected size BYTES")) };
        let line = line.number;
        Ok(Connection { line, from, to, id, start, bytes, send_done, receive_done })
    }

    fn trigger(&mut self, line: &mut Line<'_>) -> Result<(), ReadError> {
        let (mut id, mut kind, mut count) = (None, None, None);
        while let Some(word) = line.word() {
            let is_new = match word {
                "id" => id.replace(line.number("a trigger's number", 1, ID_MAX)? as u32).is_none(),
                "count" => count.replace(line.number("count", 1, ID_MAX)? as u32).is_none(),
                "oneshot" => kind.replace(Kind::OneShot).is_none(),
                "multishot" => kind.replace(Kind::MultiShot).is_none(),
                "barrier" => kind.replace(Kind::Barrier(0)).is_none(),
                _ => {
                    return Err(line.error(format_args!(
                        "expected id, oneshot, multishot, barrier or count, found {}",
                        shown(word)
                    )));
                }
            };
            if !is_new {
                return Err(line.error(format_args!(
                    "expected one number and one kind, found another: {word}"
                )));
            }
        }
        let Some(id) = id else { return Err(line.error("expected id N")) };
        let kind = match (kind, count) {
            (None, _) => return Err(line.error("expected oneshot, multishot or barrier")),
            (Some(Kind::Barrier(_)), None) => {
                return Err(line.error("expected count N after barrier"));
            }
            (Some(Kind::Barrier(_)), Some(count)) => Kind::Barrier(count),
            (Some(kind), _) => kind,
        };
        if let Some((_, first)) = self.matrix.triggers.insert(id, (kind, line.number)) {
            return Err(
                line.error(format_args!("trigger {id} is there twice, first in line {first}"))
            );
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Matrix, ReadError> {
        let Matrix { connections, triggers, failures, .. } = &self.matrix;
        let found = [connections.len(), triggers.len(), failures.len()];
        for (promise, found) in self.promises[1..].iter().zip(found) {
            let Promise { name, given, .. } = promise;
            match *given {
                Some((number, line)) if number != found as u64 => {
                    let what =
                        format!("expected {name} {found}, as many as follow, found {number}");
                    return Err(ReadError::line(&self.matrix.file, line, what));
                }
                None if found > 0 || *name == "Connections" => {
                    let what = format!("expected {name} {found} in the header");
                    return Err(ReadError::whole(&self.matrix.file, what));
                }
                _ => {}
            }
        }
        let Some((nodes, _)) = self.promises[0].given else {
            return Err(ReadError::whole(&self.matrix.file, "expected Nodes in the header"));
        };
        self.matrix.nodes = nodes as u32;
        self.matrix.check_ids()?;
        self.matrix.check_triggers()?;
        Ok(self.matrix)
    }
}

/// What a message's line says.
#[derive(Default)]
struct Values {
    id: Option<u64>,
    start: Option<Picos>,
    size: Option<u64>,
    trigger: Option<u64>,
    send_done: Option<u64>,
    receive_done: Option<u64>,
    /// Read for its form alone: nothing uses it, as in uet-htsim.
    priority: Option<u64>,
    msg: Option<u64>,
}

impl Values {
    fn take(&mut self, word: &str, unit: StartUnit, line: &mut Line<'_>) -> Result<(), ReadError> {
        let (entry, value) = match word {
            "id" => (&mut self.id, line.number("id", 1, ID_MAX)?),
            "size" => (&mut self.size, line.number("size", 1, MESSAGE_BYTES_MAX)?),
            "start" => (&mut self.start, start(unit, line)?),
            "trigger" => (&mut self.trigger, line.number("trigger", 1, ID_MAX)?),
            "send_done_trigger" => (&mut self.send_done, line.number(word, 1, ID_MAX)?),
            "recv_done_trigger" => (&mut self.receive_done, line.number(word, 1, ID_MAX)?),
            "prio" => (&mut self.priority, line.number("prio", 0, ID_MAX)?),
            "msg" => {
                // Its number may be left out.
                let next = line.words.clone().next();
                let is_number =
                    next.is_some_and(|next| next.bytes().all(|byte| byte.is_ascii_digit()));
                let number = if is_number { line.number("msg", 1, ID_MAX)? } else { 0 };
                (&mut self.msg, number)
            }
            _ => {
                return Err(line.error(format_args!(
                    "expected id, start, trigger, size, send_done_trigger, recv_done_trigger, prio or msg, found {}",
                    shown(word)
                )));
            }
        };
        match entry.replace(value) {
            None => Ok(()),
            Some(_) => Err(line.error(format_args!("expected {word} once, found it again"))),
        }
    }
}

/// The time after `start`, which may have a fraction.
fn start(unit: StartUnit, line: &mut Line<'_>) -> Result<Picos, ReadError> {
    let (unit_ps, name) = match unit {
        StartUnit::Micros => (1_000_000, "microseconds"),
        StartUnit::Picos => (1, "picoseconds"),
    };
    let max = crate::time::from_ns(TIME_NS_MAX) / unit_ps;
    let Some(word) = line.word() else {
        return Err(line.error(format_args!("expected {name} after start at the line's end")));
    };
    if word.bytes().all(|byte| byte.is_ascii_digit()) {
        return Ok(line.number_in(word, name, 0, max)? * unit_ps);
    }
    match word.parse::<f64>() {
        Ok(number) if (0.0..=max as f64).contains(&number) => {
            Ok((number * unit_ps as f64) as Picos)
        }
        _ => {
            Err(line.error(format_args!("expected {name} from 0 to {max}, found {}", shown(word))))
        }
    }
}

fn failure(line: &mut Line<'_>) -> Result<FailedLink, ReadError> {
    let (mut kind, mut switch, mut bundle) = (None, None, None);
    while let Some(word) = line.word() {
        match word {
            "switch_type" => kind = line.word(),
            "switch_id" => switch = Some(line.number("switch_id", 0, ID_MAX)? as u32),
            "link_id" => bundle = Some(line.number("link_id", 0, ID_MAX)? as u32),
            _ => {
                return Err(line.error(format_args!(
                    "expected switch_type, switch_id or link_id, found {}",
                    shown(word)
                )));
            }
        }
    }
    match (kind, switch, bundle) {
        (Some("AGG"), Some(switch), Some(bundle)) => {
            Ok(FailedLink { line: line.number, switch, bundle })
        }
        (Some("AGG"), ..) => Err(line.error("expected switch_id N and link_id N")),
        (kind, ..) => Err(line.error(format_args!(
            "expected switch_type AGG, since only links above tier 1 can fail, found {}",
            shown(kind.unwrap_or_default())
        ))),
    }
}

impl Matrix {
    /// Messages have numbers of their own, unless they are of one connection.
    fn check_ids(&self) -> Result<(), ReadError> {
        let mut first: BTreeMap<u32, &Connection> = BTreeMap::new();
        for connection in &self.connections {
            let Some(id) = connection.id else { continue };
            let before = *first.entry(id).or_insert(connection);
            if (before.from, before.to) != (connection.from, connection.to) {
                let what = format!(
                    "expected an id of its own, but line {} has id {id} too, for other hosts",
                    before.line
                );
                return Err(ReadError::line(&self.file, connection.line, what));
            }
        }
        Ok(())
    }

    /// Triggers are there, and are activated as often as they need.
    fn check_triggers(&self) -> Result<(), ReadError> {
        let error = |line, what: String| Err(ReadError::line(&self.file, line, what));
        for connection in &self.connections {
            let starts =
                if let Beginning::Trigger(id) = connection.start { Some(id) } else { None };
            let named = [starts, connection.send_done, connection.receive_done];
            if let Some(id) = named.into_iter().flatten().find(|id| !self.triggers.contains_key(id))
            {
                return error(
                    connection.line,
                    format!("expected a line for trigger {id}, but there is none"),
                );
            }
        }
        let joined = self.joined();
        for (id, (kind, line)) in &self.triggers {
            let (activators, started) = joined
                .get(id)
                .map_or((0, 0), |joined| (joined.activators.len(), joined.started.len()));
            let (needed, exactly) = match kind {
                Kind::OneShot => (1, true),
                Kind::Barrier(count) => (*count as usize, true),
                Kind::MultiShot => (started, false),
            };
            let fits = if exactly { activators == needed } else { activators >= needed };
            // What no message waits for does no harm.
            if !fits && started > 0 {
                let at_least = if exactly { "" } else { "at least " };
                let what = format!(
                    "expected {at_least}{needed} messages that activate trigger {id}, found {activators}"
                );
                return error(*line, what);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
