//! Mutants: bugs of the simulator that a test switches on, one at a time, to prove that random fabrics find them
//! (`tests/mutants.rs`). The engine has its own ([`mod@erd_rd::mutants`]).

erd_rd::mutants! {
    /// Bugs of links, queues and the threads of a run.
    LINKS {
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
    }
    /// Bugs of switches that pause.
    PAUSES {
        /// A switch lets no sender go on that it has paused.
        PausesForGood,
        /// A switch drops what comes after its pause frame.
        HasNoHeadroom,
        /// The packets that a dying link loses keep their memory of a switch that pauses.
        KeepsMemoryOfTheDead,
    }
    /// Bugs of routes, flowlets and hosts' rings.
    ROUTES {
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
    }
    /// Bugs of the order of arrival, which costs time.
    ORDER {
        /// A host holds packets of one sender against those of another.
        MixesUpSenders,
        /// A host takes longer for packets in order, too.
        ChargesPacketsInOrder,
    }
    /// Bugs of information paths.
    STREAMS {
        /// A frame that came before comes out of its stream again.
        HandsFramesOutAgain,
        /// A stream acknowledges a frame that is missing.
        AcknowledgesMissingFrames,
    }
    /// Bugs of RoCEv2.
    ROCE {
        /// A RoCEv2 receiver goes on after a packet that is missing.
        SkipsWhatIsMissing,
        /// A RoCEv2 receiver takes packets again that came before.
        TakesRepeatsAgain,
        /// A RoCEv2 queue pair that waits for its rate loses its turn.
        LosesPacedTurns,
    }
    /// Bugs of EQDS.
    EQDS {
        /// An EQDS receiver takes a trimmed packet for a whole one.
        TakesTrimmedForWhole,
        /// An EQDS sender asks once for the pulls that lost packets need.
        AsksOnce,
        /// An EQDS sender reads the bits of an acknowledgement one place off.
        ReadsBitsOneOff,
    }
    /// Bugs of the samples.
    SERIES {
        /// A series lacks its last, short interval.
        OmitsTheLastSample,
        /// Two intervals of a series that become one have the bytes of the second.
        HalvesSamples,
    }
}
