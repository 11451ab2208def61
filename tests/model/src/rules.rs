//! The rules by name: what a search or a trace has used.

macro_rules! rules {
    ($($rule:ident: $section:literal, $text:literal;)*) => {
        /// A rule of the protocol.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum Rule {
            $(#[doc = $text] $rule,)*
        }

        impl Rule {
            /// All of them, with their section of docs/protocol.md and what they say.
            pub const ALL: &[(Rule, &str, &str)] = &[$((Rule::$rule, $section, $text),)*];
        }
    };
}

rules! {
    HelloChallenged: "3.1", "A hello without a right cookie gets a challenge, and leaves nothing behind.";
    HelloFirst: "3.1", "A hello with a right cookie opens a session where there was none.";
    HelloCrossing: "3.1", "A hello meets a hello of the reader's own, and the ids that both chose make one session.";
    HelloOfAnother: "3.1", "A hello of a greater epoch than the one that may know our id: the reader renews its id first.";
    HelloGaveUp: "3.1", "A hello names our id as given up: the reader renews its id first.";
    HelloRepeated: "3.1", "A hello comes again since its welcome was lost: the reader sends that again.";
    HelloLate: "3.1", "A hello of the standing session whose writer has used our id already: dropped.";
    HelloRestarted: "3.1", "A greater greeting ends the standing session and opens the next.";
    HelloStale: "3.1", "A lesser greeting: dropped.";
    HelloUsedId: "3.1", "A hello with an id that the reader gave up: answered with a reset that names it twice.";
    HelloOtherKey: "11.1", "A hello of another key, or without one: answered with \"other version\".";
    HelloClosed: "3.3", "A closed endpoint drops hellos.";
    ChallengeTaken: "3.1", "The next hello carries the challenge's cookie.";
    ChallengeKnown: "3.1", "The challenge is repeated.";
    ChallengeOfAnother: "3.1", "A challenge of a greater epoch: the initiator renews its id first.";
    ChallengeStale: "3.1", "A challenge of a lesser epoch, or without a hello under way: dropped.";
    WelcomeTaken: "3.1", "The welcome opens the session.";
    WelcomeAgain: "3.1", "The welcome of the standing session comes again.";
    WelcomeStale: "3.1", "A welcome of another process than the one that gave the cookie, or of an ended session: dropped.";
    ResetUsedId: "3.1", "A reset that names our id twice: the initiator renews its id.";
    ResetRestarted: "3.3", "A reset to our asker id that names the peer's id: the session ends with \"peer restarted\".";
    ResetStale: "3.3", "Any other reset: dropped.";
    ProbeAnswered: "7.2", "A probe of the standing session is answered with what has arrived.";
    ProbeEarly: "7.2", "A probe of a session that is not open yet: it brings the next hello.";
    ProbeUnknown: "3.3", "A probe of an unknown session, or by another asker: answered with a reset.";
    GoodbyeTaken: "3.3", "A goodbye: the reader takes its state, confirms it, and ends the session.";
    GoodbyeUnknown: "3.3", "A goodbye of an unknown session: confirmed, no more.";
    GoodbyeOfAnother: "3.3", "A goodbye by another asker, or before the session is open: it ends nothing.";
    ConfirmationTaken: "3.3", "A confirmation ends the session of the side that said goodbye.";
    ConfirmationStale: "3.3", "Any other confirmation: dropped.";
    VersionEnds: "3.4", "\"Other version\" ends the set-up of an initiator without a key.";
    VersionHint: "11.1", "\"Other version\" is a hint to an initiator with a key: it goes on.";
    VersionStale: "3.4", "\"Other version\" where no hello is under way: dropped.";
    DataTaken: "4.2", "A new packet takes effect and is acknowledged.";
    DataDuplicate: "4.2", "A packet that has taken effect is acknowledged again.";
    DataEarly: "3.1", "Data of a session that is not open yet: it brings the next hello.";
    DataOutside: "4.1", "Data outside the PSN window, as that of another session is whose first PSN is another random number: dropped.";
    AckTaken: "6.2", "An acknowledgement says what has arrived.";
    AckImpossible: "8", "An acknowledgement of what was never sent changes nothing.";
    AckEarly: "8", "An acknowledgement of a session that is not open: dropped.";
    UnknownSession: "3.1", "A packet to an id that the reader did not choose for a session at hand: dropped.";
    Forged: "11.2", "A packet whose proof is wrong: dropped before anything else.";
    Replayed: "11.4", "A counter that was taken, or is far beyond those: dropped.";
    OtherKey: "11.2", "A packet of another key than the peer's: dropped.";
    Posted: "3.1", "The first message begins a session.";
    HelloSaid: "3.1", "An initiator says hello until it is answered.";
    WelcomeSaid: "3.1", "A responder welcomes an initiator whose hello it took.";
    DataSent: "4.1", "A sender sends the next packet.";
    DataRepeated: "4.3", "A sender repeats a packet that was lost.";
    AckSaid: "6.2", "A receiver acknowledges what has arrived.";
    ProbeSent: "7.2", "A sender that waits for acknowledgements probes.";
    SizeTried: "4.6", "Sizes of datagrams are tried in an open session.";
    GoodbyeSaid: "3.3", "A side that leaves says goodbye until it is confirmed.";
    Silence: "7.3", "The deadline ends a session whose peer owes an answer.";
    Left: "3.3", "A side gives up its goodbyes.";
    Closed: "3.3", "An endpoint leaves all sessions.";
    Forgot: "3.3", "An endpoint forgets a peer.";
    Restarted: "3.1", "A process takes the name of another, with a greater epoch.";
}
