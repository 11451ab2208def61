//! The processes of an example end together, however one of them ends.
//!
//! The first process holds a pipe to the standard input of each that it starts: the pipe closes when the first
//! process ends, and then the other ends too. A thread waits for each that was started: if it fails, the first
//! process ends too. They tell each other what they need over the pipes, and not in messages: a message could
//! take the place of one that is waited for.

#![allow(dead_code, reason = "every example compiles this module and uses its part of it")]

use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio, exit};
use std::sync::mpsc::{Receiver, channel};
use std::thread::{self, JoinHandle};

/// A process that this one has started.
pub struct Other {
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    watch: JoinHandle<()>,
}

impl Other {
    /// Starts it.
    pub fn start(command: &mut Command) -> Other {
        let started = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = started.expect("another process");
        let input = child.stdin.take().expect("its input");
        let output = BufReader::new(child.stdout.take().expect("its output"));
        Other { input, output, watch: thread::spawn(move || watch(child)) }
    }

    /// Starts this program again.
    pub fn with_args(args: &[String]) -> Other {
        let program = std::env::current_exe().expect("a program has a file");
        Other::start(Command::new(program).args(args))
    }

    /// Tells it a line.
    pub fn tell(&mut self, line: &str) {
        writeln!(self.input, "{line}").expect("it listens");
    }

    /// The next line that it tells.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        let bytes = self.output.read_line(&mut line).expect("text");
        assert!(bytes > 0, "the other process ended");
        line.trim_end().to_owned()
    }

    /// Shows what else it tells, until it has ended.
    pub fn finish(mut self) {
        io::copy(&mut self.output, &mut io::stdout()).expect("an output");
        self.watch.join().expect("no panic");
    }
}

fn watch(mut child: Child) {
    let status = child.wait().expect("its end");
    if !status.success() {
        eprintln!("the other process: {status}");
        exit(1);
    }
}

/// Called once by a started process: it ends when the first one does. Answers the lines that it is told.
pub fn end_with_first() -> Receiver<String> {
    let (heard, lines) = channel();
    thread::spawn(move || {
        for line in io::stdin().lines().map_while(Result::ok) {
            let _ = heard.send(line);
        }
        exit(1);
    });
    lines
}
