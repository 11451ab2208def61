//! Readers of files that describe networks and work. Each takes a text, checks all of it, and gives what the simulator
//! runs; a mistake names file, line and what was expected.
//!
//! [`topo`] and [`matrix`] read htsim's topologies and connection matrices, [`goal`] reads GOAL schedules, [`scenario`]
//! reads the simulator's own scenarios. Texts come from anywhere, so what a few bytes can ask for is bounded here.

pub mod goal;
pub mod matrix;
pub mod scenario;

pub mod topo;

use std::fmt::Display;
use std::path::Path;
use std::str::SplitWhitespace;

/// Most hosts that a file can ask for.
pub const HOSTS_MAX: u32 = 1 << 20;
/// Most messages of a file.
pub const MESSAGES_MAX: usize = 1 << 26;
/// Most tasks of a file, two for each message among them.
pub const TASKS_MAX: usize = 1 << 28;
/// Longest message.
pub const MESSAGE_BYTES_MAX: u64 = 1 << 40;
/// Latest time and longest span: 11 days.
pub const TIME_NS_MAX: u64 = 1_000_000_000_000_000;
/// Fastest link.
pub const GBPS_MAX: u64 = 100_000;
/// Longest file.
pub const FILE_BYTES_MAX: u64 = 1 << 32;
/// Characters of a wrong word that an error shows.
const SHOWN_MAX: usize = 40;

/// Why a file was refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ReadError {
    /// It cannot be read.
    #[error("{file}: {why}")]
    Unreadable {
        /// Which.
        file: String,
        /// What the system says.
        why: String,
    },
    /// Something is wrong in a line.
    #[error("{file}:{line}: {what}")]
    Line {
        /// Which file.
        file: String,
        /// Which line, from 1.
        line: usize,
        /// What is wrong, and what is valid.
        what: String,
    },
    /// Something is wrong with the whole.
    #[error("{file}: {what}")]
    Whole {
        /// Which file.
        file: String,
        /// What is wrong, and what is valid.
        what: String,
    },
}

impl ReadError {
    fn line(file: &str, line: usize, what: impl Display) -> ReadError {
        ReadError::Line { file: file.to_owned(), line, what: what.to_string() }
    }

    fn whole(file: &str, what: impl Display) -> ReadError {
        ReadError::Whole { file: file.to_owned(), what: what.to_string() }
    }
}

/// The text of a file.
///
/// # Errors
/// It cannot be read, is no UTF-8, or is longer than [`FILE_BYTES_MAX`].
pub fn text_of(path: &Path) -> Result<String, ReadError> {
    let file = path.display().to_string();
    let unreadable = |error: std::io::Error| {
        let why = error.to_string();
        ReadError::Unreadable { file: path.display().to_string(), why }
    };
    let len_bytes = std::fs::metadata(path).map_err(unreadable)?.len();
    if len_bytes > FILE_BYTES_MAX {
        let why = format!("{len_bytes} bytes are more than {FILE_BYTES_MAX}");
        return Err(ReadError::Unreadable { file, why });
    }
    std::fs::read_to_string(path).map_err(unreadable)
}

/// What an error shows of a word.
fn shown(word: &str) -> String {
    match word.char_indices().nth(SHOWN_MAX) {
        Some((end, _)) => format!("{:?}...", &word[..end]),
        None => format!("{word:?}"),
    }
}

/// A line of a file, taken word by word.
struct Line<'a> {
    file: &'a str,
    number: usize,
    words: SplitWhitespace<'a>,
}

/// The lines of a text that are neither empty nor comments: those begin with `#`.
fn lines<'a>(file: &'a str, text: &'a str) -> impl Iterator<Item = Line<'a>> {
    let lines = text.lines().enumerate();
    lines.filter_map(move |(at, line)| {
        let words = line.split_whitespace();
        let first = words.clone().next()?;
        (!first.starts_with('#')).then_some(Line { file, number: at + 1, words })
    })
}

impl<'a> Line<'a> {
    fn error(&self, what: impl Display) -> ReadError {
        ReadError::line(self.file, self.number, what)
    }

    /// The next word, if there is one.
    fn word(&mut self) -> Option<&'a str> {
        self.words.next()
    }

    /// The next word is a number within bounds.
    fn number(&mut self, what: &str, min: u64, max: u64) -> Result<u64, ReadError> {
        let Some(word) = self.word() else {
            return Err(
                self.error(format_args!("expected {what} from {min} to {max} at the line's end"))
            );
        };
        self.number_in(word, what, min, max)
    }

    fn number_in(&self, word: &str, what: &str, min: u64, max: u64) -> Result<u64, ReadError> {
        // `parse` takes a sign.
        let digits = word.bytes().all(|byte| byte.is_ascii_digit());
        match word.parse() {
            Ok(number) if digits && (min..=max).contains(&number) => Ok(number),
            _ => Err(self
                .error(format_args!("expected {what} from {min} to {max}, found {}", shown(word)))),
        }
    }

    /// No word follows.
    fn end(&mut self) -> Result<(), ReadError> {
        match self.word() {
            Some(word) => {
                Err(self.error(format_args!("expected the line's end, found {}", shown(word))))
            }
            None => Ok(()),
        }
    }
}

#[cfg(test)]
pub(crate) mod fuzz {
    //! Texts that no one would write.

    use rand_pcg::Pcg32;
    use rand_pcg::rand_core::{Rng, SeedableRng};

    /// Texts of each kind that a test tries.
    const ROUNDS: u64 = 400;

    /// Hands `read` the beginnings of a valid text, the text with some of its bytes, words and lines changed, and noise.
    pub(crate) fn try_texts(valid: &str, mut read: impl FnMut(&str)) {
        for end in (0..valid.len()).filter(|end| valid.is_char_boundary(*end)) {
            read(&valid[..end]);
        }
        for seed in 0..ROUNDS {
            let mut rng = Pcg32::seed_from_u64(seed);
            read(&changed_bytes(valid, &mut rng));
            read(&changed_words(valid, &mut rng));
            let noise: Vec<u8> = (0..rng.next_u32() % 300).map(|_| rng.next_u32() as u8).collect();
            read(&String::from_utf8_lossy(&noise));
        }
    }

    fn changed_bytes(valid: &str, rng: &mut Pcg32) -> String {
        let mut bytes = valid.as_bytes().to_vec();
        for _ in 0..=rng.next_u32() % 8 {
            let at = rng.next_u32() as usize % bytes.len();
            bytes[at] = match rng.next_u32() % 3 {
                0 => rng.next_u32() as u8,
                1 => b"0123456789 \n#->{}:;[]=.\"b"[rng.next_u32() as usize % 25],
                _ => bytes[rng.next_u32() as usize % bytes.len()],
            };
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Puts words in each other's places, and numbers at the edges of their ranges.
    fn changed_words(valid: &str, rng: &mut Pcg32) -> String {
        const EDGES: &[&str] = &[
            "0",
            "1",
            "-1",
            "4294967295",
            "4294967296",
            "18446744073709551615",
            "1e300",
            "nan",
            "",
        ];
        let mut words: Vec<&str> = valid.split_inclusive(char::is_whitespace).collect();
        for _ in 0..=rng.next_u32() % 6 {
            let at = rng.next_u32() as usize % words.len();
            match rng.next_u32() % 4 {
                0 => words[at] = EDGES[rng.next_u32() as usize % EDGES.len()],
                1 => words[at] = words[rng.next_u32() as usize % words.len()],
                2 => words.swap(at, 0),
                _ => words.insert(at, words[rng.next_u32() as usize % words.len()]),
            }
        }
        words.join(" ").replace("\n ", "\n")
    }
}
