//! Mutants: bugs of the simulator that a test switches on, one at a time, to prove that random fabrics find them
//! (`tests/mutants.rs`). The engine has its own ([`erd_rd::mutants`]).
//!
//! Without the feature `mutants` each call of [`mutant`] is the constant `false` and compiles to nothing.
//! The whole process has one switch, so tests that use it run alone.

#[cfg(feature = "mutants")]
use std::sync::atomic::{AtomicUsize, Ordering};

/// Declares the mutants once, so that none can be missing from their list.
macro_rules! mutants {
    ($(#[doc = $effect:literal] $name:ident,)+) => {
        /// A bug that a test can switch on. A new one needs a line here, and a place that asks for it.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Mutant {
            $(#[doc = $effect] $name,)+
        }

        impl Mutant {
            /// All of them.
            pub const ALL: &[Mutant] = &[$(Mutant::$name,)+];

            /// The sentence that says what it does.
            #[must_use]
            pub fn effect(self) -> &'static str {
                match self {
                    $(Mutant::$name => $effect.trim_ascii(),)+
                }
            }
        }
    };
}

mutants! {
    /// A link that is dead carries packets.
    CarriesOverDeadLinks,
    /// A link does not count the packets that its health costs among those offered.
    LeavesLossesUncounted,
    /// A link that dies keeps the places of the packets that waited.
    LeaksPacketsOfTheDead,
    /// A packet with a wrong bit is delivered.
    DeliversWrongBits,
    /// A queue loses what it trims.
    LosesWhatItTrims,
    /// A packet to another part of the network is a picosecond late.
    MailsLate,
    /// A switch lets no sender go on that it has paused.
    PausesForGood,
    /// A switch drops what comes after its pause frame.
    HasNoHeadroom,
    /// The packets that a dying link loses keep their memory of a switch that pauses.
    KeepsMemoryOfTheDead,
    /// A switch leads packets to other switches that have no way left.
    LeadsIntoDeadEnds,
    /// Switches do not learn that a link is back.
    ForgetsRecoveries,
    /// A packet that finds no link keeps its place.
    LeaksRoutelessPackets,
    /// All switches that one thread runs share a table of flowlets.
    SharesFlowlets,
    /// A host's ring keeps the places of packets that its engine has seen.
    FillsRings,
    /// A RoCEv2 receiver goes on after a packet that is missing.
    SkipsWhatIsMissing,
    /// A RoCEv2 receiver takes packets again that came before.
    TakesRepeatsAgain,
    /// A RoCEv2 queue pair that waits for its rate loses its turn.
    LosesPacedTurns,
    /// An EQDS receiver takes a trimmed packet for a whole one.
    TakesTrimmedForWhole,
    /// An EQDS sender asks once for the pulls that lost packets need.
    AsksOnce,
    /// An EQDS sender reads the bits of an acknowledgement one place off.
    ReadsBitsOneOff,
    /// A series lacks its last, short interval.
    OmitsTheLastSample,
    /// Two intervals of a series that become one have the bytes of the second.
    HalvesSamples,
}

/// What is on: a mutant's place in the list, from 1; 0 for none.
#[cfg(feature = "mutants")]
static ON: AtomicUsize = AtomicUsize::new(0);

/// Switches one mutant on, and any other off.
#[cfg(feature = "mutants")]
pub fn switch_on(mutant: Mutant) {
    ON.store(mutant as usize + 1, Ordering::Relaxed);
}

/// Switches off what is on.
#[cfg(feature = "mutants")]
pub fn switch_off() {
    ON.store(0, Ordering::Relaxed);
}

/// Whether this mutant is on.
#[must_use]
#[cfg(feature = "mutants")]
pub fn mutant(which: Mutant) -> bool {
    ON.load(Ordering::Relaxed) == which as usize + 1
}

/// Whether this mutant is on.
#[must_use]
#[cfg(not(feature = "mutants"))]
pub const fn mutant(_: Mutant) -> bool {
    false
}
