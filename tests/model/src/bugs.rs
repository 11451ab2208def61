//! Planted bugs of the protocol: the search must find each of them.

macro_rules! bugs {
    ($($bug:ident: $text:literal;)*) => {
        /// A planted bug.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum Bug {
            $(#[doc = $text] $bug,)*
        }

        impl Bug {
            /// All of them, with what they do.
            pub const ALL: &[(Bug, &str)] = &[$((Bug::$bug, $text),)*];
        }
    };
}

bugs! {
    TakesHellosUnasked: "A responder opens a session without a cookie.";
    CookieOutlivesSession: "A cookie does not cover the id of the session that ended last.";
    KeepsItsIdForAnother: "An initiator keeps its id when another process answers.";
    KeepsGivenUpIds: "An initiator keeps an id that the peer's hello gives up.";
    ForgetsGivenUpIds: "An endpoint that forgets a peer forgets the id that it gave up.";
    TakesUsedIds: "A responder takes a hello with an id that it gave up.";
    TakesStaleHellos: "A lesser greeting counts as a greater one.";
    RestartsOnARepeatedHello: "An equal greeting ends the standing session.";
    TakesDataEarly: "An initiator takes data before the welcome.";
    AnySession: "A receiver takes packets to any id.";
    NoReset: "Nobody answers a probe of an unknown session.";
    GoodbyeWithoutState: "The reader of a goodbye does not take its state.";
    SamePsns: "The first PSN is the same in each session.";
    TakesDuplicates: "A receiver forgets what it has taken.";
    NoOrder: "A receiver reports messages as they arrive.";
    EndsEarly: "A send completes when it is sent.";
    AcksAhead: "An acknowledgement says that everything up to the highest PSN has arrived.";
    LosesOperations: "The end of a session forgets its operations.";
    CountersStartAgain: "A welcome that comes again starts the counters again.";
    RepeatsUnderTheSameCounter: "A repetition has the counter of the first transmission.";
    SecretWithoutIds: "The session secret does not depend on ids and incarnations.";
    BelievesNotices: "\"Other version\" ends the set-up of an initiator with a key.";
    TrustsProofs: "A receiver with a key does not check proofs.";
    AnswersProveNothing: "The proof of an answer covers neither names nor the question.";
}
