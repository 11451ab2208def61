//! The scenes that are searched: small ones by `cargo test`, large ones in minutes.

use crate::packet::{Key, Name};
use crate::world::Scene;

const KEYED: Option<Key> = Some(1);

/// Endpoints without a key.
fn plain(title: &'static str, endpoints: usize, posts: &[(Name, Name, u8)]) -> Scene {
    Scene { title, keys: vec![None; endpoints], posts: posts.to_vec(), ..Scene::default() }
}

/// Endpoints with a key.
fn keyed(title: &'static str, endpoints: usize, posts: &[(Name, Name, u8)]) -> Scene {
    Scene { keys: vec![KEYED; endpoints], ..plain(title, endpoints, posts) }
}

/// The scene in which the ids of a session do not suffice (docs/model.md): the random first PSNs do.
pub const OF_PSNS: &str = "two and one, crossing, a silence";

/// Both of two endpoints post one message.
const CROSSING: &[(Name, Name, u8)] = &[(0, 1, 1), (1, 0, 1)];

/// Those that end in seconds; the smallest first.
#[must_use]
pub fn small() -> Vec<Scene> {
    vec![
        plain("one message", 2, &[(0, 1, 1)]),
        Scene { random_psns: true, ..plain("three messages", 2, &[(0, 1, 3)]) },
        plain("crossing", 2, CROSSING),
        Scene { silences: 1, ..plain("a silence", 2, &[(0, 1, 2)]) },
        Scene { restarts: vec![(1, 1)], ..plain("the target restarts", 2, &[(0, 1, 2)]) },
        Scene { restarts: vec![(0, 1)], ..plain("the initiator restarts", 2, &[(0, 1, 2)]) },
        Scene { closes: vec![1], ..plain("the target closes", 2, &[(0, 1, 2)]) },
        Scene {
            closes: vec![1],
            restarts: vec![(1, 1)],
            ..plain("the target closes and restarts", 2, &[(0, 1, 2)])
        },
        Scene { forgets: vec![(1, 0)], ..plain("the target forgets", 2, &[(0, 1, 2)]) },
        Scene { silences: 1, ..plain("three endpoints, one target", 3, &[(0, 2, 1), (1, 2, 1)]) },
        keyed("a key", 2, &[(0, 1, 2)]),
        Scene { repeats: 1, ..keyed("a key, a repetition", 2, &[(0, 1, 2)]) },
        Scene { silences: 1, ..keyed("a key, a silence", 2, &[(0, 1, 2)]) },
        Scene { hostile: true, ..keyed("a key, an adversary", 2, &[(0, 1, 1)]) },
        Scene {
            hostile: true,
            restarts: vec![(1, 1)],
            ..keyed("a key, an adversary, a restart", 2, &[(0, 1, 1)])
        },
        Scene {
            hostile: true,
            ..keyed("a key, an adversary, three endpoints", 3, &[(0, 1, 1), (0, 2, 1)])
        },
        Scene {
            repeats: 1,
            restarts: vec![(1, 1)],
            ..keyed("a key, a repetition, a restart", 2, &[(0, 1, 1)])
        },
        Scene {
            silences: 1,
            restarts: vec![(0, 1)],
            keys: vec![None, KEYED],
            ..plain("one has a key", 2, CROSSING)
        },
        Scene { silences: 1, ..plain("crossing, a silence", 2, CROSSING) },
        Scene { forgets: vec![(1, 0)], ..plain("crossing, one forgets", 2, CROSSING) },
        Scene { restarts: vec![(0, 1)], ..plain("crossing, one restarts", 2, CROSSING) },
        Scene { closes: vec![0], ..plain("crossing, one closes", 2, CROSSING) },
        Scene {
            restarts: vec![(0, 1)],
            silences: 1,
            ..plain("the initiator restarts, a silence", 2, &[(0, 1, 2)])
        },
        Scene { closes: vec![0], silences: 1, ..plain("the initiator closes", 2, &[(0, 1, 2)]) },
        Scene { silences: 2, ..plain("crossing, two silences", 2, CROSSING) },
        Scene {
            restarts: vec![(1, 1)],
            silences: 1,
            ..plain("the target restarts, a silence", 2, &[(0, 1, 2)])
        },
        Scene {
            restarts: vec![(2, 1)],
            ..plain("three endpoints, the target restarts", 3, &[(0, 2, 1), (1, 2, 1)])
        },
        plain("three endpoints in a ring", 3, &[(0, 1, 1), (1, 2, 1), (2, 0, 1)]),
        Scene { closes: vec![0, 1], ..plain("crossing, both close", 2, CROSSING) },
        Scene { hostile: true, ..keyed("a key, an adversary, crossing", 2, CROSSING) },
    ]
}

/// Those that take up to minutes.
#[must_use]
pub fn large() -> Vec<Scene> {
    vec![
        Scene { restarts: vec![(0, 1), (1, 1)], ..plain("both restart", 2, CROSSING) },
        Scene {
            restarts: vec![(0, 1)],
            silences: 1,
            ..plain("crossing, one restarts, a silence", 2, CROSSING)
        },
        Scene { forgets: vec![(1, 0), (0, 1)], ..plain("crossing, both forget", 2, CROSSING) },
        Scene {
            hostile: true,
            silences: 1,
            ..keyed("a key, an adversary, crossing, a silence", 2, CROSSING)
        },
        Scene { random_psns: true, silences: 1, ..plain(OF_PSNS, 2, &[(0, 1, 2), (1, 0, 1)]) },
        Scene {
            restarts: vec![(0, 1)],
            ..plain("two and one, crossing, the first restarts", 2, &[(0, 1, 2), (1, 0, 1)])
        },
        Scene {
            restarts: vec![(1, 1)],
            ..plain("two and one, crossing, the second restarts", 2, &[(0, 1, 2), (1, 0, 1)])
        },
        Scene {
            closes: vec![1],
            ..plain("two and one, crossing, one closes", 2, &[(0, 1, 2), (1, 0, 1)])
        },
        Scene {
            closes: vec![0],
            restarts: vec![(1, 1)],
            ..plain("crossing, one closes, the other restarts", 2, CROSSING)
        },
        Scene {
            silences: 1,
            ..plain("three endpoints in a ring, a silence", 3, &[(0, 1, 1), (1, 2, 1), (2, 0, 1)])
        },
        Scene {
            hostile: true,
            restarts: vec![(0, 1)],
            ..keyed("a key, an adversary, crossing, a restart", 2, CROSSING)
        },
        Scene {
            forgets: vec![(1, 0)],
            restarts: vec![(0, 1)],
            ..plain("crossing, one forgets, the other restarts", 2, CROSSING)
        },
        Scene { restarts: vec![(0, 2)], ..plain("crossing, one restarts twice", 2, CROSSING) },
    ]
}
