//! The search: every order of events within the bounds of a scene.

use crate::bugs::Bug;
use crate::properties::Property;
use crate::rules::Rule;
use crate::world::{Action, Scene, World};
use stateright::{Checker, HasDiscoveries, Model, Property as Checked};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

/// A scene to be searched.
#[derive(Clone, Debug)]
pub struct Search {
    /// Its bounds.
    pub scene: Scene,
    /// The bug that is planted, if any.
    pub bug: Option<Bug>,
    used: Arc<Mutex<BTreeSet<Rule>>>,
}

/// What a search found.
#[derive(Clone, Debug)]
pub struct Found {
    /// States that differ.
    pub unique_states: usize,
    /// States, with those that were met again.
    pub states: usize,
    /// The rules that were used.
    pub used: BTreeSet<Rule>,
    /// Properties that do not hold, each with the events that break it.
    pub broken: Vec<(&'static str, Vec<String>)>,
}

impl Search {
    /// Searches the scene. With a bug it ends at the first broken property.
    #[must_use]
    pub fn run(scene: &Scene, bug: Option<Bug>) -> Found {
        let used = Arc::default();
        let search = Search { scene: scene.clone(), bug, used: Arc::clone(&used) };
        let until = if bug.is_some() { HasDiscoveries::Any } else { HasDiscoveries::All };
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let checker = search.checker().threads(threads).finish_when(until).spawn_bfs().join();
        let broken = checker.discoveries().into_iter().map(|(name, path)| {
            let events = path.into_actions().iter().map(|action| format!("{action:?}")).collect();
            (name, events)
        });
        let broken = broken.collect();
        let used = used.lock().expect("no search panics").clone();
        let (unique_states, states) = (checker.unique_state_count(), checker.state_count());
        Found { unique_states, states, used, broken }
    }
}

impl Model for Search {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        vec![self.scene.begin(self.bug)]
    }

    fn actions(&self, state: &World, actions: &mut Vec<Action>) {
        state.protocol_actions(&self.scene, actions);
        state.other_actions(&self.scene, actions);
    }

    fn next_state(&self, state: &World, action: Action) -> Option<World> {
        let (rules, next) = state.step(&self.scene, &action);
        self.used.lock().expect("no search panics").extend(rules);
        next
    }

    fn properties(&self) -> Vec<Checked<Search>> {
        Property::checked()
    }
}
