//! Mutants: bugs that tests switch on, one at a time, to prove that the tests find them.
//!
//! Without the feature `mutants` each call of `mutant` is the constant `false` and compiles to nothing.
//! The whole process has one switch for each list of mutants, so tests that use it run alone.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use core::fmt::Debug;

/// Declares mutants once, so that none can be missing from their list, and their switch. The feature `mutants` is that of
/// the crate that declares them.
#[macro_export]
macro_rules! mutants {
    ($(#[doc = $list:literal] $group:ident { $(#[doc = $effect:literal] $name:ident,)+ })+) => {
        /// A bug that a test can switch on. A new one needs a line here, and a place that asks for it.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Mutant {
            $($(#[doc = $effect] $name,)+)+
        }

        impl Mutant {
            $(#[doc = $list] pub const $group: &[Mutant] = &[$(Mutant::$name,)+];)+

            /// All of them.
            pub const ALL: &[&[Mutant]] = &[$(Mutant::$group,)+];

            /// The sentence that says what it does.
            #[must_use]
            pub fn effect(self) -> &'static str {
                match self {
                    $($(Mutant::$name => $effect.trim_ascii(),)+)+
                }
            }
        }

        impl core::str::FromStr for Mutant {
            type Err = $crate::mutants::UnknownMutant;

            /// The mutant of this name, which is the variant's.
            fn from_str(name: &str) -> Result<Mutant, Self::Err> {
                $crate::mutants::named(Mutant::ALL, name)
            }
        }

        /// What is on: a mutant's place in the list, from 1; 0 for none.
        #[cfg(feature = "mutants")]
        static ON: core::sync::atomic::AtomicUsize = core::sync::atomic::AtomicUsize::new(0);

        /// Switches one mutant on, and any other off.
        #[cfg(feature = "mutants")]
        pub fn switch_on(mutant: Mutant) {
            ON.store(mutant as usize + 1, core::sync::atomic::Ordering::Relaxed);
        }

        /// Switches off what is on.
        #[cfg(feature = "mutants")]
        pub fn switch_off() {
            ON.store(0, core::sync::atomic::Ordering::Relaxed);
        }

        /// Whether this mutant is on.
        #[must_use]
        #[cfg(feature = "mutants")]
        pub fn mutant(which: Mutant) -> bool {
            ON.load(core::sync::atomic::Ordering::Relaxed) == which as usize + 1
        }

        /// Whether this mutant is on.
        #[must_use]
        #[cfg(not(feature = "mutants"))]
        pub const fn mutant(_: Mutant) -> bool {
            false
        }
    };
}

/// No mutant has this name.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{name} is not a mutant; these are: {all}")]
pub struct UnknownMutant {
    name: String,
    all: String,
}

/// The mutant of this name among several lists.
///
/// # Errors
/// No mutant has it.
pub fn named<M: Copy + Debug>(all: &[&[M]], name: &str) -> Result<M, UnknownMutant> {
    let all = all.concat();
    let found = all.iter().find(|mutant| format!("{mutant:?}") == name);
    found.copied().ok_or_else(|| UnknownMutant { name: name.to_owned(), all: format!("{all:?}") })
}

mutants! {
    /// Bugs of the protocol engine.
    ENGINE {
        /// The receiver takes a data packet again that it received before.
        AcceptsDuplicates,
        /// The receiver places segments in their order of arrival, not at their offsets.
        PlacesInOrderOfArrival,
        /// The receiver completes a long message with its last segment, whatever is missing.
        CompletesOnTheLastSegment,
        /// The sender completes a send when its packets are sent, not when the peer has acknowledged them.
        CompletesBeforeTheAck,
        /// The sender forgets a lost packet when the window is closed.
        DropsRetransmissionsAtAClosedWindow,
        /// The sender reads the bitmap of an acknowledgement one place off.
        ReadsSacksOneOff,
        /// The sender compares PSNs without regard to their wrap.
        IgnoresThePsnWrap,
        /// The receiver compares send orders without regard to their wrap.
        IgnoresTheOrderWrap,
        /// The endpoint takes any packet for a peer's table entry, whatever its session.
        IgnoresTheSessionId,
        /// A repeated hello starts the session again.
        RestartsOnARepeatedHello,
        /// With a key, a sender uses some counters for two packets.
        RepeatsACounter,
        /// An endpoint with several keys takes what one of them proves for packets of a peer with another.
        MixesUpItsKeys,
        /// With a new key, a sender goes over to it before the peer has told that it has it too.
        RenewsUntold,
        /// A key loses its validity as soon as another takes its place.
        RenewsAtOnce,
        /// With a key, the receiver takes packets whose proofs are wrong.
        TakesForgeries,
        /// With a key, the receiver takes packets whose counters it has taken before.
        TakesReplays,
        /// The receiver does not give the order credit of a consumed message back.
        WithholdsOrderCredit,
        /// The receiver leaves permissions to send out when it repeats their bundle.
        OmitsTheCtsFromRetransmissions,
        /// The receiver says that a message is matched when it arrives.
        NotifiesTheMatchOnArrival,
        /// The receiver reports a message at once that came before its turn.
        DeliversOutOfOrder,
        /// The sender of a waiting rendezvous does not watch for its peer's death.
        LeavesTheRendezvousUnwatched,
        /// The peer's answer does not stop the deadline.
        KeepsTheDeadlineRunning,
        /// Any packet of a peer counts as an acknowledgement that it owes.
        LetsAnyPacketPay,
        /// An answer takes the path of its question, though answers on it do not arrive.
        AnswersOnADeadPath,
        /// The receiver does not check the payload checksum.
        SkipsThePayloadChecksum,
        /// The sender counts a lost packet among those in flight.
        KeepsLostPacketsInFlight,
        /// The receive bitmap forgets its bits when it grows.
        ClearsTheBitmapOnGrowth,
        /// The end of a session does not fail its receives that are under way.
        LeavesReceivesPending,
        /// The receiver expects new bytes where it has received some.
        LowersTheHighWaterMark,
        /// The receiver counts bytes each time that they come.
        CountsDuplicateBytes,
        /// A stale acknowledgement raises the sender's limits.
        RaisesLimitsOnAStaleAck,
        /// The endpoint sets no quota for the newcomers of one address.
        SkipsTheNewcomerQuota,
        /// The receiver reports a message before one that was matched earlier.
        ReportsOutOfMatchOrder,
        /// The endpoint opens sessions with peers that its host does not admit.
        AdmitsStrangers,
        /// The endpoint does not charge the budget for what it lends to peers.
        LendsOutsideTheBudget,
    }
    /// Bugs of the library around it: its loop, its operations, receives and registered memory.
    LIBRARY {
        /// The loop wipes the places of a wrong guess after the engine has placed its datagrams there.
        WipesAfterHandingIn,
        /// The loop takes what lands in a place for what it expects there.
        TrustsEveryGuess,
        /// An operation begins at the start of a later piece of its buffers, whatever the offset.
        IgnoresTheOffsetInALaterPiece,
        /// A send that gives its buffer back at once is not copied.
        SendsWithoutCopying,
        /// A send that has completed early completes again when it is delivered.
        CompletesEarlyTwice,
        /// The parts of a buffer of many messages overlap.
        OverlapsParts,
        /// The application gets a buffer of many messages back before the last of its messages is whole.
        ReleasesBeforeTheLastPart,
        /// A message that is claimed can be received by others.
        KeepsAClaimedMessage,
        /// The engine does not hear which messages were consumed.
        ForgetsReleases,
        /// A payload that came before its receive is delivered before it is whole.
        DeliversAHalfHeldPayload,
        /// A message that is longer than its buffer completes well.
        CompletesATruncatedReceive,
        /// A receive does not look at the messages that are there.
        PostsWithoutLooking,
        /// A peer may write to what it may only read.
        IgnoresTheRights,
        /// A later part of an answer has the bytes of the first.
        ServesFromTheStart,
        /// The target hears of a write before its bytes are in place.
        TellsOfAWriteBeforeItsEnd,
    }
    /// Bugs of the data of a lane, which goes through shared memory.
    LANES {
        /// The reader takes an entry whose writer is in another session.
        TakesEntriesOfAnyWriter,
        /// The reader counts an entry of a session that is over as read.
        CountsEntriesOfEndedSessions,
        /// The reader drops the entries that came before their welcome.
        DropsEntriesBeforeTheWelcome,
        /// The writer takes an entry that found no room for written.
        CountsEntriesWithoutRoom,
        /// An operation with delivery complete ends when its entry is written.
        DeliversWhenWritten,
        /// An operation fails with its session though the peer has read its entry.
        ForgetsWhatWasReadAtTheEnd,
        /// The end of a session leaves its lane, though the peer has yet to read entries.
        KeepsTheLaneOfAnEndedSession,
        /// An endpoint that leaves gives buffers back that its peer may read.
        LeavesBuffersReadable,
        /// A greeting that has lost its lane still offers it.
        OffersALostLane,
        /// The receiver does not tell its new limits over a lane.
        WithholdsLimitsOfALane,
        /// A receiver takes the bytes that it has read for those of a writer that has closed the lane.
        TakesBytesOfAClosedLane,
        /// A message that is read in several steps begins with the same bytes in each.
        ReadsFromTheStart,
        /// The target counts an answer that it lent as given, though its memory has been closed.
        LendsClosedMemory,
    }
    /// Bugs of the verbs port's negotiation.
    NEGOTIATION {
        /// An endpoint takes an answer that it did not ask for.
        TakesAnyAnswer,
        /// An endpoint sends over verbs though no check of its own was confirmed.
        TakesAnyConfirmation,
        /// An endpoint takes the address of a third host for its peer's.
        TakesAForeignAddress,
        /// An endpoint repeats a question without a pause.
        AsksWithoutAPause,
        /// An endpoint counts a peer among those over verbs that is not reached there any more.
        CountsLostPeers,
        /// An endpoint sends an answer to its own name instead of the name in the question.
        AnswersItself,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn each_mutant_has_its_name_and_its_effect() {
        for mutant in Mutant::ALL.concat() {
            assert_eq!(alloc::format!("{mutant:?}").parse(), Ok(mutant));
            assert!(mutant.effect().ends_with('.'), "{mutant:?}");
        }
    }

    #[test]
    fn an_unknown_name_is_answered_with_all_names() {
        let text = "ReadsTheClock".parse::<Mutant>().unwrap_err().to_string();
        assert!(text.contains("ReadsTheClock is not a mutant"), "{text}");
        for mutant in Mutant::ALL.concat() {
            assert!(text.contains(&alloc::format!("{mutant:?}")), "{text}");
        }
    }
}
