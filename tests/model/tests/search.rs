//! The search of the model's scenes: every property holds in every state, and each planted bug breaks one.
//!
//! `BOUNDS=large` adds the large scenes, `SCENE=title` picks one. `--nocapture` shows the numbers of docs/model.md.

use erd_model::bugs::Bug;
use erd_model::rules::Rule;
use erd_model::scenes;
use erd_model::search::Search;
use erd_model::world::Scene;
use std::collections::BTreeSet;
use std::time::Instant;

/// Rules that no small scene uses. All but the last drop a packet, which is what their scenes would show.
const UNUSED: &[Rule] = &[
    Rule::ConfirmationStale,
    Rule::VersionStale,
    // A large scene does ([`scenes::OF_PSNS`]).
    Rule::DataOutside,
    Rule::AckImpossible,
    Rule::OtherKey,
    // The model has no sizes; traces do.
    Rule::SizeTried,
];

fn scenes_at_hand() -> Vec<Scene> {
    let is_large = std::env::var_os("BOUNDS").is_some_and(|bounds| bounds == "large");
    let mut all = scenes::small();
    if is_large {
        all.extend(scenes::large());
    }
    if let Ok(title) = std::env::var("SCENE") {
        all = scenes::small().into_iter().chain(scenes::large()).collect();
        all.retain(|scene| scene.title == title);
        assert!(!all.is_empty(), "no scene is called {title:?}");
    }
    all
}

#[test]
fn every_property_holds() {
    let (mut unique_states, mut states, mut used) = (0, 0, BTreeSet::new());
    for scene in scenes_at_hand() {
        let start = Instant::now();
        let found = Search::run(&scene, None);
        let seconds = start.elapsed().as_secs_f32();
        println!(
            "{:<45} {:>9} of {:>9} states, {seconds:6.1} s",
            scene.title, found.unique_states, found.states
        );
        assert!(found.broken.is_empty(), "{}: {:#?}", scene.title, found.broken);
        unique_states += found.unique_states;
        states += found.states;
        used.extend(found.used);
    }
    println!("{unique_states} of {states} states");
    if std::env::var_os("SCENE").is_none() {
        let all: BTreeSet<Rule> = Rule::ALL.iter().map(|(rule, ..)| *rule).collect();
        let unused: Vec<Rule> = all.difference(&used).copied().collect();
        let expected = |rule: &&Rule| !used.contains(rule);
        let expected: Vec<Rule> = UNUSED.iter().filter(expected).copied().collect();
        assert_eq!(unused, expected, "rules that no scene uses");
    }
}

#[test]
fn every_planted_bug_is_found() {
    let of_psns = scenes::large().into_iter().filter(|scene| scene.title == scenes::OF_PSNS);
    let scenes: Vec<Scene> = scenes::small().into_iter().chain(of_psns).collect();
    let mut missed = Vec::new();
    for (bug, text) in Bug::ALL {
        let broken = scenes.iter().find_map(|scene| {
            let found = Search::run(scene, Some(*bug));
            found.broken.first().map(|(property, events)| (scene.title, *property, events.len()))
        });
        println!("{bug:?} ({text}): {broken:?}");
        if broken.is_none() {
            missed.push(bug);
        }
    }
    assert!(missed.is_empty(), "no scene finds {missed:?}");
}
