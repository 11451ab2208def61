//! Every scheme of the registry against arbitrary legal feedback (see [`erd_world::controllers`]).
//!
//! `CONTROLLER_SEEDS=5000` sets how many seeds each scheme gets, `CONTROLLER_SEED=n` replays one,
//! `CONTROLLER_SCHEME=name` picks one scheme.

use erd_rd::cc::{
    AckPolicy, AckSample, Controller, FlowParams, Loss, LossDetection, Scheme, SentBurst, Timeout,
    View, schemes,
};
use erd_rd::{Ecn, Nanos};
use erd_world::controllers::{Seen, drive};
use erd_world::rng::Rng;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// Seeds of each scheme in a plain test run.
const SEEDS_DEFAULT: u64 = 200;
/// Bytes of a run's input: some thousand steps.
const INPUT_BYTES: usize = 12_000;

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} must be a number, not {text}")))
}

fn input(seed: u64) -> Vec<u8> {
    let mut rng = Rng::new(seed, 0);
    (0..INPUT_BYTES / 8).flat_map(|_| rng.bits().to_le_bytes()).collect()
}

fn run(name: &str, seed: u64) -> Seen {
    let scheme = schemes::by_name(name).expect("a known name");
    catch_unwind(AssertUnwindSafe(|| drive(&*scheme, &input(seed)))).unwrap_or_else(|panic| {
        eprintln!(
            "replay: CONTROLLER_SCHEME={name} CONTROLLER_SEED={seed} \
             cargo test -p erd-world --test controllers"
        );
        resume_unwind(panic)
    })
}

#[test]
fn every_scheme_withstands_any_feedback() {
    let only = std::env::var("CONTROLLER_SCHEME").ok();
    let wanted = |name: &&&str| only.as_deref().is_none_or(|only| only == **name);
    let names: Vec<_> = schemes::NAMES.iter().filter(wanted).collect();
    assert!(!names.is_empty(), "{only:?} is none of {:?}", schemes::NAMES);
    for name in names {
        if let Some(seed) = number("CONTROLLER_SEED") {
            println!("{name} {:#?}", run(name, seed));
            continue;
        }
        let mut sum = Seen::default();
        for seed in 0..number("CONTROLLER_SEEDS").unwrap_or(SEEDS_DEFAULT) {
            sum.add(&run(name, seed));
        }
        println!("{name} {sum:?}");
    }
}

/// The model reaches what it is for: thousands of steps with losses, timeouts and idle hours.
#[test]
fn runs_are_long_and_varied() {
    let mut sum = Seen::default();
    for seed in 0..20 {
        sum.add(&run("swift", seed));
    }
    assert!(sum.steps > 20 * 2_000, "{sum:?}");
    assert!(sum.acks > 10_000 && sum.losses > 1_000 && sum.timeouts > 1_000, "{sum:?}");
    assert!(sum.rest_ns > 3_600_000_000_000, "{sum:?}");
}

/// Breaks one promise of a controller.
#[derive(Clone, Copy, Debug)]
enum Fault {
    None,
    NoWindow,
    EndlessWindow,
    ForeignPath,
    NoPace,
    EndlessGap,
    StaysSmall,
}

struct Faulty {
    fault: Fault,
    datagram_bytes: u64,
    paths: u16,
    is_hurt: bool,
}

impl Controller for Faulty {
    fn on_sent(&mut self, _: &SentBurst) {}

    fn on_ack(&mut self, _: &AckSample) {}

    fn on_loss(&mut self, _: &Loss) {
        self.is_hurt = true;
    }

    fn on_timeout(&mut self, _: &Timeout) {}

    fn window_bytes(&self) -> u64 {
        match self.fault {
            Fault::NoWindow if self.is_hurt => 0,
            Fault::EndlessWindow if self.is_hurt => 1 << 40,
            Fault::StaysSmall if self.is_hurt => self.datagram_bytes,
            _ => 4 * self.datagram_bytes,
        }
    }

    fn pace_bytes_per_s(&self) -> Option<u64> {
        match self.fault {
            Fault::NoPace if self.is_hurt => Some(0),
            Fault::EndlessGap if self.is_hurt => Some(1),
            _ => None,
        }
    }

    fn next_path(&mut self, _: Nanos) -> u16 {
        let is_foreign = matches!(self.fault, Fault::ForeignPath) && self.is_hurt;
        if is_foreign { self.paths } else { 0 }
    }

    fn ecn(&self) -> Ecn {
        Ecn::NotEct
    }

    fn view(&self) -> View {
        View::default()
    }
}

impl Scheme for Fault {
    fn name(&self) -> &'static str {
        "faulty"
    }

    fn ack_policy(&self) -> AckPolicy {
        AckPolicy::PerPacket
    }

    fn loss_detection(&self) -> LossDetection {
        LossDetection::Receiver
    }

    fn learns(&self) -> bool {
        false
    }

    fn build(&self, params: &FlowParams, _: u64) -> Box<dyn Controller> {
        Box::new(Faulty {
            fault: *self,
            datagram_bytes: u64::from(params.datagram_bytes),
            paths: params.paths,
            is_hurt: false,
        })
    }
}

#[test]
fn the_model_finds_every_broken_promise() {
    let complaint = |fault: Fault| {
        let panic = catch_unwind(|| drive(&fault, &input(1))).err()?;
        panic
            .downcast_ref::<String>()
            .cloned()
            .or_else(|| panic.downcast_ref::<&str>().map(|&text| text.to_owned()))
    };
    assert_eq!(complaint(Fault::None), None);
    for (fault, words) in [
        (Fault::NoWindow, "the window is 0"),
        (Fault::EndlessWindow, "a window of 1099511627776 B"),
        (Fault::ForeignPath, "path "),
        (Fault::NoPace, "a pace of 0"),
        (Fault::EndlessGap, "a pace of 1"),
        (Fault::StaysSmall, "quiet round trips"),
    ] {
        let found = complaint(fault).unwrap_or_default();
        assert!(found.contains(words), "{fault:?}: {found}");
    }
}
