//! A relay between two network namespaces, for tests. It makes two TUN devices, which the caller
//! moves to the namespaces, and hands packets from one to the other over several paths, each a link
//! of the simulator with its own queue. A packet's path goes by its UDP source port.
//!
//! Commands come in lines on standard input: `dead N` and `up N` take path N away and bring it
//! back, `report` prints what happened since the last report as a line of JSON, `end` reports
//! and ends the relay, as the end of the input does.
#![forbid(unsafe_code)]

mod ip;
mod line;
mod path;
mod relay;

use anyhow::{Context, Result, bail};
use clap::Parser;
use erd_sim::link::{Jitter, LinkConfig, Red};
use erd_sim::time::{PS_PER_NS, PS_PER_S, Picos, from_ns};
use relay::Relay;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::time::{ClockId, Timespec, clock_gettime};
use std::io::{ErrorKind, Stdin};
use std::num::NonZeroU64;
use std::os::fd::AsFd;
use tun_rs::{DeviceBuilder, Layer, SyncDevice};

/// Packets taken from a device before what is due is handed on.
const BATCH: usize = 32;
/// Longest packet of a device.
const PACKET_BYTES: usize = 65_536;
/// Packets that wait in a device. A sender's window is the bound that should be felt, not this.
const DEVICE_PACKETS: u32 = 8192;
/// Longest line of a command.
const LINE_BYTES: usize = 256;

/// Options. Sizes of the links count 66 bytes beside each IP packet: what the simulator counts.
#[derive(Debug, Parser)]
#[command(name = "erd-relay", about = "Test relay between network namespaces")]
struct Args {
    /// Names of the two devices, separated by a comma
    #[arg(long, default_value = "relay-a,relay-b")]
    devices: String,
    /// Paths, each way
    #[arg(long, default_value_t = 4)]
    paths: usize,
    /// Rate of each path in Mb/s
    #[arg(long, default_value_t = 250)]
    mbps: u64,
    /// Delay of each path, one way, in us
    #[arg(long, default_value_t = 1000)]
    delay_us: u64,
    /// Mean of the jitter, one way, in us; 0 for none
    #[arg(long, default_value_t = 0)]
    jitter_us: u64,
    /// Packets of a million that are lost on each path
    #[arg(long, default_value_t = 0)]
    loss_ppm: u32,
    /// Queue of each path, in bytes
    #[arg(long, default_value_t = 1 << 20)]
    buffer_bytes: u64,
    /// Depth from which packets are marked, in bytes; no marks without it
    #[arg(long, requires = "red_max_bytes")]
    red_min_bytes: Option<u64>,
    /// Depth from which every packet is marked, in bytes
    #[arg(long, requires = "red_min_bytes")]
    red_max_bytes: Option<u64>,
    /// Seed of losses, marks and jitter
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

impl Args {
    fn link(&self) -> LinkConfig {
        let us = |us: u64| from_ns(us * 1000);
        let red = self.red_min_bytes.zip(self.red_max_bytes);
        let jitter = Jitter { mean_ps: us(self.jitter_us), spike_ps: 0, spikes_ppm: 0 };
        LinkConfig {
            bytes_per_s: Some(self.mbps * 125_000),
            buffer_bytes: self.buffer_bytes,
            red: red.map(|(min_bytes, max_bytes)| Red::linear(min_bytes, max_bytes)),
            jitter: (self.jitter_us > 0).then_some(jitter),
            depth_unit_bytes: Some(1),
            ..LinkConfig::delay(us(self.delay_us))
        }
    }
}

fn main() -> Result<()> {
    let args = Args::parse();
    if args.paths == 0 || args.mbps == 0 {
        bail!("a relay needs a path and a rate");
    }
    // Timers are late by 50 us otherwise, which would be jitter that nobody asked for.
    rustix::thread::set_current_timer_slack(NonZeroU64::new(1))?;
    let (a, b) = args.devices.split_once(',').context("--devices wants two names")?;
    let devices = [device(a)?, device(b)?];
    let loss = f64::from(args.loss_ppm) / 1e6;
    let mut running = Running {
        relay: Relay::new(args.link(), loss, args.paths, args.seed),
        devices,
        input: std::io::stdin(),
        line: Vec::new(),
        packet: vec![0; PACKET_BYTES],
        began: clock(ClockId::Monotonic),
        cpu_before: 0,
        refused: 0,
    };
    println!("ready");
    while running.turn()? {}
    Ok(())
}

fn device(name: &str) -> Result<SyncDevice> {
    let device = DeviceBuilder::new()
        .name(name)
        .layer(Layer::L3)
        .enable(false)
        .with(|options| {
            options.tx_queue_len(DEVICE_PACKETS);
        })
        .build_sync()
        .with_context(|| format!("making the device {name}"))?;
    device.set_nonblocking(true)?;
    Ok(device)
}

fn clock(id: ClockId) -> Picos {
    let time = clock_gettime(id);
    time.tv_sec as u64 * PS_PER_S + time.tv_nsec as u64 * PS_PER_NS
}

/// The relay with its devices and its input.
struct Running {
    relay: Relay,
    devices: [SyncDevice; 2],
    input: Stdin,
    line: Vec<u8>,
    packet: Vec<u8>,
    began: Picos,
    cpu_before: Picos,
    /// Packets that a device did not take.
    refused: u64,
}

impl Running {
    fn now(&self) -> Picos {
        clock(ClockId::Monotonic) - self.began
    }

    /// Sleeps until something is due or there, and does it; false at the end.
    fn turn(&mut self) -> Result<bool> {
        let commanded = self.wait()?;
        self.hand_on();
        for from in 0..2 {
            self.take(from)?;
        }
        if commanded { self.commands() } else { Ok(true) }
    }

    /// Whether there is something on standard input.
    fn wait(&self) -> Result<bool> {
        let timeout = self.relay.wake_at().map(|at| {
            let left = at.saturating_sub(self.now());
            Timespec {
                tv_sec: (left / PS_PER_S) as i64,
                tv_nsec: (left % PS_PER_S / PS_PER_NS) as i64,
            }
        });
        let [a, b] = &self.devices;
        let fds = [a.as_fd(), b.as_fd(), self.input.as_fd()];
        let mut fds = fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(!fds[2].revents().is_empty()),
            Err(error) => Err(error).context("poll"),
        }
    }

    /// Does everything that is due; answers the time up to which that is.
    fn hand_on(&mut self) -> Picos {
        let now = self.now();
        let (devices, refused) = (&self.devices, &mut self.refused);
        self.relay.run(now, |to, packet| {
            *refused += u64::from(devices[to].send(packet).is_err());
        });
        now
    }

    fn take(&mut self, from: usize) -> Result<()> {
        for _ in 0..BATCH {
            match self.devices[from].recv(&mut self.packet) {
                Ok(len) => {
                    // Nothing may come into a queue before what left it earlier has left.
                    let now = self.hand_on();
                    self.relay.take(now, from, &self.packet[..len]);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                // The device is down: it was just moved, or its namespace is going away.
                Err(error) if error.raw_os_error() == Some(Errno::BADFD.raw_os_error()) => break,
                Err(error) => return Err(error).context("reading a device"),
            }
        }
        Ok(())
    }

    /// Reads what there is on standard input and does what it says; false at its end.
    fn commands(&mut self) -> Result<bool> {
        let mut bytes = [0; LINE_BYTES];
        // Not through the standard library's buffer, of which poll knows nothing.
        let got = rustix::io::read(&self.input, &mut bytes)?;
        if got == 0 {
            self.report();
            return Ok(false);
        }
        self.line.extend_from_slice(&bytes[..got]);
        while let Some(end) = self.line.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.line.drain(..=end).collect();
            if !self.command(String::from_utf8_lossy(&line).trim())? {
                return Ok(false);
            }
        }
        if self.line.len() > LINE_BYTES {
            bail!("a command of more than {LINE_BYTES} bytes");
        }
        Ok(true)
    }

    fn command(&mut self, line: &str) -> Result<bool> {
        let (word, number) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "report" => self.report(),
            "dead" | "up" => {
                let path = number.parse().with_context(|| line.to_owned())?;
                let now = self.hand_on();
                if !self.relay.set_dead(now, path, word == "dead") {
                    bail!("{line}: there is no such path");
                }
            }
            "end" => {
                self.report();
                return Ok(false);
            }
            _ => bail!("unknown command: {line}"),
        }
        Ok(true)
    }

    fn report(&mut self) {
        let (now, cpu) = (self.hand_on(), clock(ClockId::ThreadCPUTime));
        let mut report = self.relay.report(now, cpu - self.cpu_before);
        report["refused"] = std::mem::take(&mut self.refused).into();
        self.cpu_before = cpu;
        println!("{report}");
    }
}
