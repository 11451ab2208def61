//! Replays the corpus of the fuzz targets (`fuzz/corpus`) through what the targets run.

use erd_rd::{DropReason, Stats};
use erd_world::swarm::add_stats;
use erd_world::{controllers, fuzz, fuzz_lane};
use std::path::Path;

fn replay(target: &str, mut run: impl FnMut(&[u8])) {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let entries = std::fs::read_dir(&dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
    let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty(), "{} is empty", dir.display());
    for file in files {
        println!("{}", file.display());
        run(&std::fs::read(&file).unwrap());
    }
}

#[test]
fn wire() {
    replay("wire", fuzz::wire);
}

/// Replays and adds up what the engines counted.
fn replay_counted(target: &str, run: fn(&[u8]) -> Stats) -> Stats {
    let mut sum = Stats::default();
    replay(target, |data| add_stats(&mut sum, &run(data)));
    sum
}

/// Every reason for which a stranger's datagram can be dropped is among the corpus.
#[test]
fn session() {
    let sum = replay_counted("session", fuzz::session);
    for reason in [
        DropReason::Malformed,
        DropReason::Version,
        DropReason::HeaderChecksum,
        DropReason::PayloadChecksum,
        DropReason::UnknownSession,
        DropReason::WrongState,
        DropReason::Duplicate,
        DropReason::Window,
        DropReason::Cookie,
        DropReason::Message,
        DropReason::Credit,
    ] {
        assert!(sum.drops_for(reason) > 0, "no input of the corpus reaches {reason:?}");
    }
}

/// So is every reason with a key, and what follows a right proof.
#[test]
fn keyed() {
    let sum = replay_counted("keyed", fuzz::keyed);
    for reason in [
        DropReason::Malformed,
        DropReason::Version,
        DropReason::HeaderChecksum,
        DropReason::UnknownSession,
        DropReason::WrongState,
        DropReason::Duplicate,
        DropReason::Window,
        DropReason::Cookie,
        DropReason::Message,
        DropReason::Credit,
        DropReason::Forged,
        DropReason::Replayed,
        DropReason::OtherKey,
    ] {
        assert!(sum.drops_for(reason) > 0, "no input of the corpus reaches {reason:?}");
    }
}

/// Every reason for which an entry of a lane can be dropped is among the corpus.
#[test]
fn lane() {
    let sum = replay_counted("lane", fuzz_lane::lane);
    for reason in [
        DropReason::Malformed,
        DropReason::UnknownSession,
        DropReason::WrongState,
        DropReason::Message,
        DropReason::Credit,
        DropReason::NoBuffer,
    ] {
        assert!(sum.drops_for(reason) > 0, "no input of the corpus reaches {reason:?}");
    }
}

#[test]
fn operations() {
    let sum = replay_counted("operations", fuzz::operations);
    assert!(sum.rtx_nack > 0 && sum.rtx_probe > 0 && sum.sessions_failed > 0, "{sum:?}");
}

#[test]
fn controllers_keep_their_promises() {
    replay("controllers", controllers::fuzz);
}
