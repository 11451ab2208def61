//! Half round trips between two processes that poll: medians and tails.
//!
//! ```sh
//! cargo run --release --example latency                       # 64 bytes, 20000 rounds
//! cargo run --release --example latency -- 1024 5000 0,1      # the processes on CPUs 0 and 1
//! ```

mod together;

use erd::verbs::{
    AddressHandle, Device, Error, Opcode, OwningQueuePair, ProtectionDomain, QpSizes,
};
use std::process::Command;
use std::time::Instant;
use together::Other;

/// Rounds before those that are measured.
const WARM_UP: usize = 2000;
/// Sends whose completions were not polled yet.
const SENDS_MAX: usize = 64;

/// One side, and what it has done so far.
struct Player {
    qp: OwningQueuePair,
    pd: ProtectionDomain,
    bytes: usize,
    /// Buffers that completions gave back.
    spare: Vec<Vec<u8>>,
    received: usize,
    sent: usize,
}

impl Player {
    fn new(bytes: usize) -> Result<Player, Error> {
        let context = Device::find("127.0.0.1")?.open()?;
        let pd = context.alloc_pd();
        let qp = OwningQueuePair::new(&context, &pd, QpSizes::default())?;
        Ok(Player { qp, pd, bytes, spare: Vec::new(), received: 0, sent: 0 })
    }

    fn knows(&self, name: &str) -> Result<AddressHandle, Error> {
        self.pd.create_ah(name.parse().expect("a name"))
    }

    fn buffer(&mut self) -> Vec<u8> {
        self.spare.pop().unwrap_or_else(|| vec![0; self.bytes])
    }

    fn post_recv(&mut self) -> Result<(), Error> {
        let buffer = self.buffer();
        Ok(self.qp.recv(0, buffer)?)
    }

    fn send(&mut self, to: &AddressHandle, number: usize) -> Result<(), Error> {
        while number >= self.sent + SENDS_MAX {
            self.step()?;
        }
        let buffer = self.buffer();
        Ok(self.qp.send(0, to, buffer, None)?)
    }

    fn step(&mut self) -> Result<(), Error> {
        let Some(done) = self.qp.poll()? else { return Ok(()) };
        assert!(done.completion.is_ok(), "{}", done.completion.reason());
        let received = done.completion.opcode == Opcode::Recv;
        *if received { &mut self.received } else { &mut self.sent } += 1;
        self.spare.push(done.buffer);
        Ok(())
    }

    /// Answers every message with another. The first receive is posted.
    fn answer(&mut self, to: &AddressHandle, rounds: usize) -> Result<(), Error> {
        for round in 0..rounds {
            while self.received <= round {
                self.step()?;
            }
            if round + 1 < rounds {
                self.post_recv()?;
            }
            self.send(to, round)?;
        }
        self.finish(rounds)
    }

    /// Answers the other process, which says its name first.
    fn serve(&mut self, other: &mut Other, rounds: usize) -> Result<(), Error> {
        let to = self.knows(&other.line())?;
        self.answer(&to, rounds + WARM_UP)
    }

    /// Half the time of each round, in ns.
    fn ask(&mut self, to: &AddressHandle, rounds: usize) -> Result<Vec<u64>, Error> {
        let mut samples = Vec::with_capacity(rounds);
        for round in 0..rounds {
            self.post_recv()?;
            let start = Instant::now();
            self.send(to, round)?;
            while self.received <= round {
                self.step()?;
            }
            samples.push(start.elapsed().as_nanos() as u64 / 2);
        }
        self.finish(rounds)?;
        Ok(samples)
    }

    fn finish(&mut self, rounds: usize) -> Result<(), Error> {
        while self.sent < rounds {
            self.step()?;
        }
        Ok(())
    }
}

fn tell(bytes: usize, samples: &mut [u64]) {
    samples.sort_unstable();
    let at = |thousandths: usize| samples[samples.len() * thousandths / 1000] as f64 / 1e3;
    let (p50, p99, p999) = (at(500), at(990), at(999));
    println!(
        "{{\"test\":\"latency\",\"size\":{bytes},\"count\":{},\"p50_us\":{p50:.3},\
         \"p99_us\":{p99:.3},\"p999_us\":{p999:.3}}}",
        samples.len(),
    );
}

/// Starts another process, which asks, and answers it. `cpus` is "this,other".
fn both(bytes: usize, rounds: usize, cpus: Option<&str>) -> Result<(), Error> {
    let cpus = cpus.and_then(|cpus| cpus.split_once(','));
    if let Some((own, _)) = cpus {
        let pid = std::process::id().to_string();
        let pinned = Command::new("taskset").args(["-cp", own, &pid]).output();
        assert!(pinned.is_ok_and(|ran| ran.status.success()), "cannot use CPU {own}");
    }
    let mut player = Player::new(bytes)?;
    player.post_recv()?;
    let program = std::env::args().next().expect("a program has a name");
    let mut command = Command::new(if cpus.is_some() { "taskset" } else { &program });
    if let Some((_, other)) = cpus {
        command.args(["-c", other, &program]);
    }
    command.args(["ask", &bytes.to_string(), &rounds.to_string(), &player.qp.name().to_string()]);
    let mut other = Other::start(&mut command);
    player.serve(&mut other, rounds)?;
    other.finish();
    Ok(())
}

/// The other process.
fn ask(bytes: usize, rounds: usize, whom: &str) -> Result<(), Error> {
    together::end_with_first();
    let mut player = Player::new(bytes)?;
    println!("{}", player.qp.name());
    let to = player.knows(whom)?;
    let mut samples = player.ask(&to, rounds + WARM_UP)?;
    tell(bytes, &mut samples[WARM_UP..]);
    Ok(())
}

fn main() -> Result<(), Error> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let number = |text: &str| text.parse().unwrap_or_else(|_| panic!("{text} is not a number"));
    match words[..] {
        [] => both(64, 20_000, None),
        ["ask", bytes, rounds, whom] => ask(number(bytes), number(rounds), whom),
        [bytes, rounds] => both(number(bytes), number(rounds), None),
        [bytes, rounds, cpus] => both(number(bytes), number(rounds), Some(cpus)),
        _ => panic!("latency [BYTES ROUNDS [CPU,CPU]]"),
    }
}
