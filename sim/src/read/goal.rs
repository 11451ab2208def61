//! GOAL schedules in text form, as Schedgen and ATLAHS write them: for each rank, what it does and in which order.
//!
//! ```text
//! num_ranks 2
//! rank 0 {
//!   l1: calc 1500 cpu 0
//!   l2: send 1024b to 1 tag 5 cpu 0 nic 0
//!   l2 requires l1
//! }
//! rank 1 {
//!   l1: recv 1024b from 0 tag 5
//!   l2: calc 100
//!   l2 irequires l1
//! }
//! ```
//!
//! A line break or `;` ends each item; `// ...` and `/* ... */` are comments. `calc` takes nanoseconds, and those of one
//! `cpu` follow each other. `requires` waits until the other is done, `irequires` until it could begin. A send is done when
//! the receiver has acknowledged all of it. The sends of one rank to another with one tag meet its receives in the order of
//! the text. `nic` is read and not used: hosts have one link.

use super::{HOSTS_MAX, MESSAGE_BYTES_MAX, MESSAGES_MAX, ReadError, TASKS_MAX, TIME_NS_MAX, shown};
use crate::ids::HostId;
use crate::time::from_ns;
use crate::work::{TaskId, Work};
use std::collections::{HashMap, VecDeque};

/// Largest number of a processor and of a network card.
const UNIT_MAX: u64 = 255;
/// An operation that meets none yet.
const NONE: u32 = u32::MAX;

/// A piece of the text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Token<'a> {
    Word(&'a str),
    Number(&'a str),
    Mark(char),
    /// A line break or `;`.
    Break,
    End,
}

/// The text in pieces. A token is looked at before it is taken.
struct Tokens<'a> {
    file: &'a str,
    rest: &'a str,
    /// The line of `rest`.
    next_line: usize,
    token: Token<'a>,
    /// The line of `token`.
    line: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Send { to: u32, bytes: u64, tag: u32 },
    Receive { from: u32, bytes: u64, tag: u32 },
    Calc { ns: u64, cpu: u16 },
}

struct Op {
    kind: Kind,
    line: usize,
    /// The receive that meets a send.
    partner: u32,
}

/// An operation waits for another one.
struct Wait {
    then: u32,
    first: u32,
    /// Until the other could begin, not until it is done.
    begun: bool,
}

/// What a rank does. Empty until its block is read.
#[derive(Default)]
struct Rank {
    /// Line of its block; 0 for none.
    line: usize,
    ops: Vec<Op>,
    waits: Vec<Wait>,
}

/// A schedule. Every send has its receive.
pub struct Schedule {
    file: String,
    ranks: Vec<Rank>,
}

impl<'a> Tokens<'a> {
    fn error(&self, what: impl std::fmt::Display) -> ReadError {
        ReadError::line(self.file, self.line, what)
    }

    fn expected(&self, what: &str) -> ReadError {
        self.error(match self.token {
            Token::Word(word) | Token::Number(word) => {
                format!("expected {what}, found {}", shown(word))
            }
            Token::Mark(mark) => format!("expected {what}, found {mark:?}"),
            Token::Break => format!("expected {what} at the item's end"),
            Token::End => format!("expected {what} at the file's end"),
        })
    }

    /// Goes on to the next token, and gives the one before.
    fn advance(&mut self) -> Result<Token<'a>, ReadError> {
        let before = self.token;
        self.skip_comments()?;
        self.line = self.next_line;
        let Some(first) = self.rest.chars().next() else {
            self.token = Token::End;
            return Ok(before);
        };
        let is_digit = |c: char| c.is_ascii_digit();
        let is_letter = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let signed = self.rest.strip_prefix('-').is_some_and(|rest| rest.starts_with(is_digit));
        self.token = match first {
            '\n' | ';' => {
                self.next_line += usize::from(first == '\n');
                self.rest = &self.rest[1..];
                Token::Break
            }
            _ if signed || is_digit(first) => {
                let digits = self.take_while(|c| is_digit(c) || c == '-');
                Token::Number(digits)
            }
            _ if is_letter(first) => Token::Word(self.take_while(is_letter)),
            _ => {
                self.rest = &self.rest[first.len_utf8()..];
                Token::Mark(first)
            }
        };
        Ok(before)
    }

    fn take_while(&mut self, wanted: impl Fn(char) -> bool) -> &'a str {
        let end = self.rest.find(|c| !wanted(c)).unwrap_or(self.rest.len());
        let (taken, rest) = self.rest.split_at(end);
        self.rest = rest;
        taken
    }

    /// Skips blanks and comments. A comment of several lines ends no item, as a line break in it is none.
    fn skip_comments(&mut self) -> Result<(), ReadError> {
        loop {
            self.take_while(|c| c.is_whitespace() && c != '\n');
            if self.rest.starts_with("//") {
                self.take_while(|c| c != '\n');
            } else if let Some(comment) = self.rest.strip_prefix("/*") {
                let Some(end) = comment.find("*/") else {
                    self.line = self.next_line;
                    return Err(self.error("expected */ after /*"));
                };
                self.next_line += comment[..end].matches('\n').count();
                self.rest = &comment[end + 2..];
            } else {
                return Ok(());
            }
        }
    }

    fn skip_breaks(&mut self) -> Result<(), ReadError> {
        while self.token == Token::Break {
            self.advance()?;
        }
        Ok(())
    }

    fn number(&mut self, what: &str, min: u64, max: u64) -> Result<u64, ReadError> {
        let number = match self.token {
            Token::Number(digits) => digits.parse().ok(),
            _ => None,
        };
        match number.filter(|number| (min..=max).contains(number)) {
            Some(number) => self.advance().map(|_| number),
            None => Err(self.expected(&format!("{what} from {min} to {max}"))),
        }
    }

    fn take(&mut self, token: Token<'_>, what: &str) -> Result<(), ReadError> {
        if self.token != token {
            return Err(self.expected(what));
        }
        self.advance().map(|_| ())
    }

    /// Takes a word if it is this one.
    fn take_word(&mut self, word: &str) -> Result<bool, ReadError> {
        if self.token != Token::Word(word) {
            return Ok(false);
        }
        self.advance().map(|_| true)
    }
}

/// A rank's block while it is read.
struct Block<'a> {
    rank: Rank,
    /// Number and name of this rank and of all.
    own: u32,
    ranks: u32,
    labels: HashMap<&'a str, u32>,
    /// Labels of what waits and what it waits for, the line, and whether it waits for the beginning alone.
    waits: Vec<(&'a str, &'a str, usize, bool)>,
}

impl Schedule {
    /// Reads a file's text.
    ///
    /// # Errors
    /// Names the line and what it should say: a malformed item, a rank without a block, messages that do not meet.
    pub fn read(file: &str, text: &str) -> Result<Schedule, ReadError> {
        let mut tokens = Tokens { file, rest: text, next_line: 1, token: Token::Break, line: 1 };
        tokens.advance()?;
        let mut schedule = Schedule { file: file.to_owned(), ranks: Vec::new() };
        schedule.blocks(&mut tokens)?;
        schedule.meet()?;
        Ok(schedule)
    }

    /// The work of as many hosts as there are ranks.
    ///
    /// # Errors
    /// As [`Schedule::add_to`].
    pub fn work(&self) -> Result<Work, ReadError> {
        let mut work = Work::new(self.ranks.len() as u32);
        self.add_to(&mut work)?;
        Ok(work)
    }

    fn blocks(&mut self, tokens: &mut Tokens<'_>) -> Result<(), ReadError> {
        tokens.skip_breaks()?;
        if !tokens.take_word("num_ranks")? {
            return Err(tokens.expected("num_ranks"));
        }
        let ranks = tokens.number("the number of ranks", 1, HOSTS_MAX.into())? as u32;
        self.ranks.resize_with(ranks as usize, Rank::default);
        let mut ops = 0;
        loop {
            tokens.skip_breaks()?;
            if tokens.token == Token::End {
                break;
            }
            let line = tokens.line;
            if !tokens.take_word("rank")? {
                return Err(tokens.expected("rank"));
            }
            let own = tokens.number("a rank", 0, u64::from(ranks) - 1)? as u32;
            let entry = &mut self.ranks[own as usize];
            if entry.line > 0 {
                let first = entry.line;
                let what = format!("rank {own} is there twice, first in line {first}");
                return Err(ReadError::line(&self.file, line, what));
            }
            *entry = Block::read(tokens, own, ranks, line)?;
            ops += entry.ops.len();
            if ops > TASKS_MAX {
                return Err(tokens.error(format_args!("expected at most {TASKS_MAX} operations")));
            }
        }
        match self.ranks.iter().position(|rank| rank.line == 0) {
            Some(rank) => Err(tokens.error(format_args!(
                "expected a block for each of {ranks} ranks, found none for rank {rank}"
            ))),
            None => Ok(()),
        }
    }

    /// Finds the receive of every send.
    fn meet(&mut self) -> Result<(), ReadError> {
        let mut sends: HashMap<(u32, u32, u32), VecDeque<u32>> = HashMap::new();
        let mut open = 0;
        for (rank, at, op) in self.ops() {
            if let Kind::Send { to, tag, .. } = op.kind {
                sends.entry((rank, to, tag)).or_default().push_back(at);
                open += 1;
            }
        }
        if open > MESSAGES_MAX {
            let what = format!("expected at most {MESSAGES_MAX} messages, found {open}");
            return Err(ReadError::whole(&self.file, what));
        }
        let mut met = Vec::new();
        for (rank, at, op) in self.ops() {
            let Kind::Receive { from, bytes, tag } = op.kind else { continue };
            let send = sends.get_mut(&(from, rank, tag)).and_then(VecDeque::pop_front);
            let Some(send) = send else {
                let what = format!(
                    "expected a send of rank {from} to {rank} with tag {tag} for this receive"
                );
                return Err(ReadError::line(&self.file, op.line, what));
            };
            let sent = &self.ranks[from as usize].ops[send as usize];
            if let Kind::Send { bytes: sent_bytes, .. } = sent.kind
                && sent_bytes > bytes
            {
                let what = format!(
                    "expected room for the {sent_bytes} bytes that line {} sends, found {bytes}",
                    sent.line
                );
                return Err(ReadError::line(&self.file, op.line, what));
            }
            met.push((from, send, at));
        }
        for (rank, send, receive) in met {
            self.ranks[rank as usize].ops[send as usize].partner = receive;
        }
        for (rank, _, op) in self.ops() {
            if let Kind::Send { to, tag, .. } = op.kind
                && op.partner == NONE
            {
                let what = format!(
                    "expected a receive of rank {to} from {rank} with tag {tag} for this send"
                );
                return Err(ReadError::line(&self.file, op.line, what));
            }
        }
        Ok(())
    }

    /// All operations with their rank and their place there.
    fn ops(&self) -> impl Iterator<Item = (u32, u32, &Op)> {
        self.ranks.iter().enumerate().flat_map(|(rank, entry)| {
            let ops = entry.ops.iter().enumerate();
            ops.map(move |(at, op)| (rank as u32, at as u32, op))
        })
    }

    /// Adds what the ranks do to the work of hosts of the same numbers.
    ///
    /// # Errors
    /// There are fewer hosts than ranks, or operations wait for each other; some may have been added then.
    pub fn add_to(&self, work: &mut Work) -> Result<(), ReadError> {
        let (ranks, hosts) = (self.ranks.len(), work.hosts());
        if ranks > hosts as usize {
            let what = format!("expected at most {hosts} ranks, as many as hosts, found {ranks}");
            return Err(ReadError::whole(&self.file, what));
        }
        let mut tasks: Vec<Vec<TaskId>> =
            self.ranks.iter().map(|rank| vec![TaskId(0); rank.ops.len()]).collect();
        for (rank, at, op) in self.ops() {
            let host = HostId(rank);
            match op.kind {
                Kind::Calc { ns, cpu } => {
                    tasks[rank as usize][at as usize] = work.compute_on(host, cpu, from_ns(ns));
                }
                Kind::Send { to, bytes, .. } => {
                    let flow = work.message(host, HostId(to), bytes);
                    let flow = work.flows()[flow.0 as usize];
                    tasks[rank as usize][at as usize] = flow.send;
                    tasks[to as usize][op.partner as usize] = flow.receive;
                }
                Kind::Receive { .. } => {}
            }
        }
        for ((rank, entry), tasks) in self.ranks.iter().enumerate().zip(&mut tasks) {
            entry.wait(work, HostId(rank as u32), tasks);
        }
        let Some((host, task)) = work.circle() else { return Ok(()) };
        let (rank, tasks) = (&self.ranks[host.0 as usize], &tasks[host.0 as usize]);
        let place = |task: TaskId| tasks.iter().position(|other| *other == task);
        // A gate leads to what it is for before all others.
        let at = place(task).or_else(|| place(*work.tasks(host)[task.0 as usize].then.first()?));
        let line = at.map_or(rank.line, |at| rank.ops[at].line);
        let what =
            "expected operations that can be done, but this one and others wait for each other";
        Err(ReadError::line(&self.file, line, what))
    }
}

impl Rank {
    /// Lets tasks wait for each other. Some wait only until another one could begin. Then that one gets a gate: a task
    /// without a length, which is done at that moment.
    fn wait(&self, work: &mut Work, host: HostId, tasks: &mut [TaskId]) {
        let mut gates: HashMap<u32, TaskId> = HashMap::new();
        for wait in self.waits.iter().filter(|wait| wait.begun) {
            gates.entry(wait.first).or_insert_with(|| {
                let gate = work.compute(host, 0);
                work.after(host, gate, tasks[wait.first as usize]);
                gate
            });
        }
        for Wait { then, first, begun } in &self.waits {
            let first = if *begun { gates[first] } else { tasks[*first as usize] };
            let then = gates.get(then).copied().unwrap_or(tasks[*then as usize]);
            work.after(host, first, then);
        }
    }
}

impl<'a> Block<'a> {
    /// Reads a block after `rank N`.
    fn read(tokens: &mut Tokens<'a>, own: u32, ranks: u32, line: usize) -> Result<Rank, ReadError> {
        let rank = Rank { line, ..Rank::default() };
        let mut block = Block { rank, own, ranks, labels: HashMap::new(), waits: Vec::new() };
        tokens.skip_breaks()?;
        tokens.take(Token::Mark('{'), "{")?;
        loop {
            tokens.skip_breaks()?;
            if tokens.token == Token::Mark('}') {
                tokens.advance()?;
                break;
            }
            block.item(tokens)?;
            if !matches!(tokens.token, Token::Break | Token::Mark('}')) {
                return Err(tokens.expected("the item's end"));
            }
        }
        block.finish(tokens)
    }

    fn item(&mut self, tokens: &mut Tokens<'a>) -> Result<(), ReadError> {
        let line = tokens.line;
        let Token::Word(first) = tokens.token else {
            return Err(tokens.expected("an operation, a label or }"));
        };
        if matches!(first, "send" | "recv" | "calc") {
            return self.operation(tokens, line);
        }
        tokens.advance()?;
        if tokens.token == Token::Mark(':') {
            tokens.advance()?;
            let at = self.rank.ops.len() as u32;
            if let Some(other) = self.labels.insert(first, at) {
                let other = self.rank.ops[other as usize].line;
                let what = format!("label {} is there twice, first in line {other}", shown(first));
                return Err(ReadError::line(tokens.file, line, what));
            }
            return self.operation(tokens, line);
        }
        let begun = match tokens.token {
            Token::Word("requires") => false,
            Token::Word("irequires") => true,
            _ => return Err(tokens.expected(":, requires or irequires after a label")),
        };
        tokens.advance()?;
        let Token::Word(other) = tokens.token else { return Err(tokens.expected("a label")) };
        tokens.advance()?;
        self.waits.push((first, other, line, begun));
        Ok(())
    }

    fn operation(&mut self, tokens: &mut Tokens<'a>, line: usize) -> Result<(), ReadError> {
        let kind = if tokens.take_word("calc")? {
            let ns = tokens.number("nanoseconds", 0, TIME_NS_MAX)?;
            let mut cpu = 0;
            if tokens.take_word("cpu")? {
                cpu = tokens.number("a cpu", 0, UNIT_MAX)? as u16;
            }
            Kind::Calc { ns, cpu }
        } else if tokens.take_word("send")? {
            let (to, bytes, tag) = self.message(tokens, "to")?;
            Kind::Send { to, bytes, tag }
        } else if tokens.take_word("recv")? {
            let (from, bytes, tag) = self.message(tokens, "from")?;
            Kind::Receive { from, bytes, tag }
        } else {
            return Err(tokens.expected("send, recv or calc"));
        };
        self.rank.ops.push(Op { kind, line, partner: NONE });
        Ok(())
    }

    /// The other rank, the length and the tag of a message.
    fn message(
        &self,
        tokens: &mut Tokens<'a>,
        preposition: &str,
    ) -> Result<(u32, u64, u32), ReadError> {
        let bytes = tokens.number("a length", 0, MESSAGE_BYTES_MAX)?;
        tokens.take(Token::Word("b"), "b after the length")?;
        tokens.take(Token::Word(preposition), preposition)?;
        if tokens.token == Token::Number("-1") {
            return Err(tokens.error(
                "expected a rank: a receive from any rank cannot be matched before the run",
            ));
        }
        let line = tokens.line;
        let other = tokens.number("a rank", 0, u64::from(self.ranks) - 1)? as u32;
        if other == self.own {
            let what = format!("expected another rank, but rank {other} sends to itself");
            return Err(ReadError::line(tokens.file, line, what));
        }
        let mut tag = 0;
        loop {
            if tokens.take_word("tag")? {
                if tokens.token == Token::Number("-1") {
                    return Err(tokens.error(
                        "expected a tag: a receive with any tag cannot be matched before the run",
                    ));
                }
                tag = tokens.number("a tag", 0, u32::MAX.into())? as u32;
            } else if tokens.take_word("cpu")? {
                tokens.number("a cpu", 0, UNIT_MAX)?;
            } else if tokens.take_word("nic")? {
                tokens.number("a nic", 0, UNIT_MAX)?;
            } else {
                return Ok((other, bytes, tag));
            }
        }
    }

    /// Finds the operations of the labels.
    fn finish(mut self, tokens: &Tokens<'_>) -> Result<Rank, ReadError> {
        for (then, first, line, begun) in self.waits {
            let at = |label: &str| {
                self.labels.get(label).copied().ok_or_else(|| {
                    let what = format!("expected a label of this rank, found {}", shown(label));
                    ReadError::line(tokens.file, line, what)
                })
            };
            let (then, first) = (at(then)?, at(first)?);
            if then == first {
                let what = "expected two labels, but this operation waits for itself";
                return Err(ReadError::line(tokens.file, line, what));
            }
            self.rank.waits.push(Wait { then, first, begun });
        }
        Ok(self.rank)
    }
}

#[cfg(test)]
mod tests;
