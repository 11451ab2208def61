//! What must hold in every state.

use crate::search::Search;
use stateright::Property as Checked;

macro_rules! properties {
    ($($property:ident: $text:literal;)*) => {
        /// A property.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum Property {
            $(#[doc = $text] $property,)*
        }

        impl Property {
            /// All of them, with what they say.
            pub const ALL: &[(Property, &str)] = &[$((Property::$property, $text),)*];

            /// All of them, as the search wants them.
            #[must_use]
            pub fn checked() -> Vec<Checked<Search>> {
                vec![$(Checked::always(stringify!($property), |search: &Search, world| {
                    Property::$property.holds(search, world)
                }),)*]
            }
        }
    };
}

properties! {
    TakenOnce: "No message takes effect twice, whatever session it is in.";
    TakenAtItsTarget: "A message takes effect only at a process of the name to which it was posted.";
    TakenFromItsWriter: "A message takes effect only under the name and the epoch of the process that posted it, and nobody takes what nobody posted.";
    BothMeanOneSession: "A receiver takes a message only in the session in which its writer sent it: each side knows the other by the id that the other chose.";
    InOrder: "A process gets the messages of another process in the order of their posts.";
    CompletedIsTaken: "A send completes only after its message took effect.";
    EndsOnce: "Every send ends at most once.";
    GoodbyeTellsTheTruth: "A send that a goodbye fails has not been delivered, and never will be.";
    NothingHangs: "While a send to an open endpoint is outstanding, something can still change without a deadline, a restart or another post.";
    NoLostSends: "A send that has not ended belongs to a session that has not ended.";
    HellosAreFresh: "A session opens only by a hello that answers a challenge to its writer's process, made after the last session of the two ended here.";
    CountersAreUsedOnce: "No two packets have the same secret, direction and counter.";
    EndsHaveAReason: "A session ends as \"peer restarted\" or by a goodbye only if the peer has left it, and as \"other version\" only if the keys differ.";
}

impl Property {
    fn holds(self, search: &Search, world: &crate::world::World) -> bool {
        match self {
            Property::NothingHangs => !world.hangs(&search.scene),
            Property::NoLostSends => world.knows_its_sends(),
            _ => !world.broken.contains(&self),
        }
    }
}
