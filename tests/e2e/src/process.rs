//! Running programs within a time limit, with a log of commands and outputs, and with nothing left behind.

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Environment variable that marks every process of a job, to find those that outlive it.
const MARK: &str = "ERD_XTASK_JOB";
/// Time between two looks at a running job.
const POLL: Duration = Duration::from_millis(10);

static JOBS: AtomicU32 = AtomicU32::new(0);

/// A program to run.
#[derive(Clone, Debug)]
pub struct Job {
    program: OsString,
    args: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    dir: Option<PathBuf>,
    limit: Duration,
}

/// End of a job.
#[derive(Debug)]
pub struct Ended {
    /// The exit status; `None` when it ran past its limit and was killed.
    pub status: Option<ExitStatus>,
    /// Its text on both outputs.
    pub output: String,
    /// The command as one could type it.
    pub shown: String,
}

/// A job under way. Dropping it kills it with all its offspring.
#[derive(Debug)]
pub struct Running {
    child: Child,
    mark: String,
    output: PathBuf,
    shown: String,
    deadline: Instant,
    limit: Duration,
    swept: bool,
}

impl Job {
    /// A job that may take a minute.
    pub fn new(program: impl AsRef<OsStr>) -> Job {
        Job {
            program: program.as_ref().to_owned(),
            args: Vec::new(),
            env: Vec::new(),
            dir: None,
            limit: Duration::from_secs(60),
        }
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<I: IntoIterator<Item = S>, S: AsRef<OsStr>>(mut self, args: I) -> Job {
        self.args.extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    /// Sets a variable of its environment.
    #[must_use]
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Job {
        self.env.push((name.as_ref().to_owned(), value.as_ref().to_owned()));
        self
    }

    /// Where it runs.
    #[must_use]
    pub fn dir(mut self, dir: impl AsRef<Path>) -> Job {
        self.dir = Some(dir.as_ref().to_owned());
        self
    }

    /// How long it may take.
    #[must_use]
    pub fn limit(mut self, limit: Duration) -> Job {
        self.limit = limit;
        self
    }

    /// The same job under another program, such as a name space or a memory checker.
    #[must_use]
    pub fn under<I: IntoIterator<Item = S>, S: AsRef<OsStr>>(mut self, wrapper: I) -> Job {
        let mut words: Vec<OsString> =
            wrapper.into_iter().map(|word| word.as_ref().to_owned()).collect();
        if words.is_empty() {
            return self;
        }
        words.push(self.program);
        words.append(&mut self.args);
        self.program = words.remove(0);
        self.args = words;
        self
    }

    /// The command as one could type it.
    #[must_use]
    pub fn shown(&self) -> String {
        let mut line = String::new();
        if let Some(dir) = &self.dir {
            let _ = write!(line, "cd {} && ", quoted(dir.as_os_str()));
        }
        for (name, value) in &self.env {
            let _ = write!(line, "{}={} ", name.to_string_lossy(), quoted(value));
        }
        line.push_str(&quoted(&self.program));
        for arg in &self.args {
            line.push(' ');
            line.push_str(&quoted(arg));
        }
        line
    }

    /// Starts it; its outputs are appended to `log`.
    ///
    /// # Errors
    /// A program that cannot be started, a log that cannot be written.
    pub fn start(&self, log: &Path) -> Result<Running> {
        let number = JOBS.fetch_add(1, Ordering::Relaxed);
        let mark = format!("{}.{number}", std::process::id());
        let output = log.with_extension(format!("{number}.out"));
        let shown = self.shown();
        append(log, &format!("$ {shown}\n"))?;
        let file = File::create(&output).with_context(|| format!("making {}", output.display()))?;
        let mut command = Command::new(&self.program);
        command.args(&self.args).env(MARK, &mark).process_group(0).stdin(Stdio::null());
        command.stdout(file.try_clone()?).stderr(file);
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        if let Some(dir) = &self.dir {
            command.current_dir(dir);
        }
        let child = command
            .spawn()
            .with_context(|| format!("starting {}", self.program.to_string_lossy()))?;
        let deadline = Instant::now() + self.limit;
        Ok(Running { child, mark, output, shown, deadline, limit: self.limit, swept: false })
    }

    /// Runs it to its end, however it ends.
    ///
    /// # Errors
    /// A program that cannot be started, a log that cannot be written.
    pub fn finish(&self, log: &Path) -> Result<Ended> {
        self.start(log)?.finish(log)
    }

    /// Runs it and demands success; returns its output.
    ///
    /// # Errors
    /// Failure or lateness of the program.
    pub fn run(&self, log: &Path) -> Result<String> {
        self.finish(log)?.success()
    }
}

impl Running {
    /// The number of the process that was started.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether it has ended by itself.
    ///
    /// # Errors
    /// The system refuses to tell.
    pub fn has_ended(&mut self) -> Result<bool> {
        Ok(self.child.try_wait()?.is_some())
    }

    /// Waits for its end or its limit, and makes sure that nothing of it is left.
    ///
    /// # Errors
    /// A log that cannot be written.
    pub fn finish(mut self, log: &Path) -> Result<Ended> {
        let status = loop {
            if let Some(status) = self.child.try_wait()? {
                break Some(status);
            }
            if Instant::now() >= self.deadline {
                break None;
            }
            thread::sleep(POLL);
        };
        self.kill_all();
        let output = String::from_utf8_lossy(&fs::read(&self.output)?).into_owned();
        let how = match status {
            Some(status) => status.to_string(),
            None => format!("killed after {} s, its limit", self.limit.as_secs()),
        };
        append(log, &format!("{output}\n[{how}]\n"))?;
        let shown = std::mem::take(&mut self.shown);
        Ok(Ended { status, output, shown })
    }

    /// Kills the job's group and every process that carries its mark, however it detached itself.
    fn kill_all(&mut self) {
        if std::mem::replace(&mut self.swept, true) {
            return;
        }
        let group = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        if let Some(group) = group {
            let _ = kill_process_group(group, Signal::KILL);
        }
        // Twice: the second look sees a process that was being forked during the first.
        for _ in 0..2 {
            for pid in marked(&self.mark) {
                let _ = kill_process(pid, Signal::KILL);
            }
        }
        let _ = self.child.wait();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill_all();
        let _ = fs::remove_file(&self.output);
    }
}

impl Ended {
    /// Whether it ended with status 0.
    #[must_use]
    pub fn is_success(&self) -> bool {
        self.status.is_some_and(|status| status.success())
    }

    /// Its output, if it succeeded.
    ///
    /// # Errors
    /// Its failure or lateness, with its last words.
    pub fn success(self) -> Result<String> {
        let how = match self.status {
            Some(status) if status.success() => return Ok(self.output),
            Some(status) => match status.signal() {
                Some(signal) => format!("killed by signal {signal}"),
                None => format!("exit status {}", status.code().unwrap_or(-1)),
            },
            None => "ran past its time limit".to_owned(),
        };
        bail!("{how}: {}\n{}", self.shown, last_lines(&self.output, 15))
    }
}

/// The last lines of a text.
#[must_use]
pub fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.trim_end().lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

/// Appends to a log.
///
/// # Errors
/// A file that cannot be written.
pub fn append(log: &Path, text: &str) -> Result<()> {
    let mut file = OpenOptions::new()
        .create(true)
        .append(true)
        .open(log)
        .with_context(|| format!("opening {}", log.display()))?;
    file.write_all(text.as_bytes()).with_context(|| format!("writing {}", log.display()))
}

fn marked(mark: &str) -> Vec<Pid> {
    let entry = format!("{MARK}={mark}").into_bytes();
    let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
    processes
        .flatten()
        .filter_map(|process| {
            let pid: i32 = process.file_name().to_str()?.parse().ok()?;
            let environment = fs::read(process.path().join("environ")).ok()?;
            let hit = environment.split(|&byte| byte == 0).any(|variable| variable == entry);
            if hit { Pid::from_raw(pid) } else { None }
        })
        .collect()
}

fn quoted(word: &OsStr) -> String {
    let word = word.to_string_lossy();
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=/.,:+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.into_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}
