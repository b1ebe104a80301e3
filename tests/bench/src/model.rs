//! Explores a small model of a controller's world: every state up to the bounds, with the
//! controller's own `decide` in it.
//!
//! Invariants are the model's own `always` properties and are left to stateright. Progress is
//! checked here, since stateright's `eventually` overlooks cycles: from *each* reachable state the
//! goal must be within reach by the steps of the controller alone, without another disturbance.

use std::collections::HashMap;
use std::collections::hash_map::{DefaultHasher, Entry};
use std::fmt::{self, Debug, Write as _};
use std::hash::{Hash, Hasher};
use std::time::{Duration, Instant};

use stateright::{Checker, Expectation, HasDiscoveries, Model};

/// Where to stop, if the model does not end before.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Different states.
    pub states: usize,
    /// Steps from the beginning.
    pub depth: usize,
    /// Time.
    pub time: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { states: 5_000_000, depth: 1_000, time: Duration::from_secs(120) }
    }
}

/// What must be within reach from every state.
pub struct Progress<M: Model> {
    /// The goal as a sentence.
    pub name: &'static str,
    /// Whether it is reached.
    pub goal: fn(&M, &M::State) -> bool,
    /// Which steps count: those of the controller, not those of clients and of bad luck.
    pub own: fn(&M::Action) -> bool,
}

/// What the exploration found.
#[derive(Debug)]
pub struct Report {
    /// Different states.
    pub states: usize,
    /// Steps of the longest of all shortest ways to a state.
    pub depth: usize,
    /// How long it took.
    pub time: Duration,
    /// Whether every reachable state was visited.
    pub complete: bool,
    /// Rules that do not hold, each with a way to where it does not.
    pub failures: Vec<Failure>,
}

/// A rule that does not hold.
#[derive(Debug)]
pub struct Failure {
    /// The rule.
    pub rule: String,
    /// One line for each step on the way there.
    pub timeline: String,
}

impl Report {
    /// Whether every state was visited and every rule holds.
    pub fn passed(&self) -> bool {
        self.complete && self.failures.is_empty()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "{} states, depth {}, {:.1} s, {}",
            self.states,
            self.depth,
            self.time.as_secs_f64(),
            if self.complete { "all of them" } else { "cut short" }
        )?;
        if self.failures.is_empty() {
            return write!(out, ": every rule holds");
        }
        for failure in &self.failures {
            write!(out, "\nbroken: {}\n{}", failure.rule, failure.timeline)?;
        }
        Ok(())
    }
}

/// Visits every state. The model should word its steps in `format_action` and what they did in
/// `format_step`: the timeline is made of both.
///
/// A `sometimes` property that never holds is a failure too: it shows that a model is too small to
/// prove anything.
pub fn explore<M>(model: &M, progress: &[Progress<M>], bounds: Bounds) -> Report
where
    M: Model + Clone + Send + Sync + 'static,
    M::State: Clone + Debug + Hash + PartialEq + Send + Sync + 'static,
    M::Action: Clone + Debug + PartialEq,
{
    let began = Instant::now();
    let checker = model
        .clone()
        .checker()
        .target_max_depth(bounds.depth)
        .target_state_count(bounds.states.saturating_mul(64))
        .timeout(bounds.time)
        .finish_when(HasDiscoveries::AnyFailures)
        .spawn_bfs();
    // Both cores: stateright on its own thread, the graph on this one.
    let graph = Graph::of(model, progress, bounds);
    let checker = checker.join();
    let mut found = checker.discoveries();
    let mut failures = Vec::new();
    for property in model.properties() {
        if property.expectation.discovery_is_failure()
            && let Some(path) = found.remove(property.name)
        {
            let mut way = path.into_vec();
            // The way found may be one that goes on after the rule was broken.
            let broken = |(state, _): &(M::State, _)| !(property.condition)(model, state);
            if property.expectation == Expectation::Always
                && let Some(end) = way.iter().position(broken)
            {
                way.truncate(end + 1);
                way[end].1 = None;
            }
            failures.push(Failure { rule: property.name.to_owned(), timeline: told(model, &way) });
        }
    }
    let holds = failures.is_empty();
    for property in model.properties() {
        let wanted = property.expectation == Expectation::Sometimes;
        if holds && wanted && !found.contains_key(property.name) {
            failures.push(Failure {
                rule: format!("{} (it never comes about)", property.name),
                timeline: String::new(),
            });
        }
    }
    failures.extend(graph.stuck(model, progress));
    Report {
        states: graph.nodes.len(),
        depth: graph.depth,
        time: began.elapsed(),
        // An exploration that found a failure ends there.
        complete: graph.complete && (!holds || checker.unique_state_count() >= graph.nodes.len()),
        failures,
    }
}

/// A state as the graph knows it: the first step that led there.
struct Node {
    from: u32,
    action: u32,
    depth: u32,
    /// Whether its own steps were followed; otherwise nothing is known of what comes after.
    followed: bool,
}

struct Graph {
    nodes: Vec<Node>,
    /// For each goal, the nodes in which it is reached.
    goals: Vec<Vec<u32>>,
    /// For each goal, the steps that count, as (to, from), sorted.
    own: Vec<Vec<(u32, u32)>>,
    depth: usize,
    complete: bool,
}

const ROOT: u32 = u32::MAX;

impl Graph {
    fn of<M>(model: &M, progress: &[Progress<M>], bounds: Bounds) -> Self
    where
        M: Model,
        M::State: Hash,
        M::Action: Clone,
    {
        let mut graph = Self {
            nodes: Vec::new(),
            goals: progress.iter().map(|_| Vec::new()).collect(),
            own: progress.iter().map(|_| Vec::new()).collect(),
            depth: 0,
            complete: true,
        };
        let end = Instant::now() + bounds.time;
        let mut known: HashMap<u128, u32> = HashMap::new();
        let mut layer = Vec::new();
        for (action, state) in (0..).zip(model.init_states()) {
            if let Entry::Vacant(place) = known.entry(fingerprint(&state)) {
                let index = graph.add(model, progress, &state, (ROOT, action, 0));
                place.insert(index);
                layer.push((index, state));
            }
        }
        let mut actions = Vec::new();
        while !layer.is_empty() {
            let mut next = Vec::new();
            for (from, state) in layer {
                let depth = graph.nodes[from as usize].depth;
                graph.depth = graph.depth.max(depth as usize);
                let full = graph.nodes.len() >= bounds.states;
                if full || depth as usize >= bounds.depth || Instant::now() > end {
                    graph.complete = false;
                    continue;
                }
                graph.nodes[from as usize].followed = true;
                actions.clear();
                model.actions(&state, &mut actions);
                for (number, action) in (0..).zip(actions.drain(..)) {
                    let Some(after) = model.next_state(&state, action.clone()) else {
                        continue;
                    };
                    if !model.within_boundary(&after) {
                        continue;
                    }
                    let to = match known.entry(fingerprint(&after)) {
                        Entry::Occupied(place) => *place.get(),
                        Entry::Vacant(place) => {
                            let origin = (from, number, depth + 1);
                            let index = graph.add(model, progress, &after, origin);
                            place.insert(index);
                            next.push((index, after));
                            index
                        }
                    };
                    for (own, wanted) in graph.own.iter_mut().zip(progress) {
                        if (wanted.own)(&action) {
                            own.push((to, from));
                        }
                    }
                }
            }
            layer = next;
        }
        for own in &mut graph.own {
            own.sort_unstable();
        }
        graph
    }

    fn add<M: Model>(
        &mut self,
        model: &M,
        progress: &[Progress<M>],
        state: &M::State,
        (from, action, depth): (u32, u32, u32),
    ) -> u32 {
        let index = u32::try_from(self.nodes.len()).unwrap_or(ROOT);
        for (reached, wanted) in self.goals.iter_mut().zip(progress) {
            if (wanted.goal)(model, state) {
                reached.push(index);
            }
        }
        self.nodes.push(Node { from, action, depth, followed: false });
        index
    }

    /// For each goal, the nearest state from which it is out of reach.
    fn stuck<M>(&self, model: &M, progress: &[Progress<M>]) -> Vec<Failure>
    where
        M: Model,
        M::State: Clone + Debug,
        M::Action: Clone + Debug,
    {
        let mut failures = Vec::new();
        for (index, wanted) in progress.iter().enumerate() {
            let own = &self.own[index];
            // What was not followed may lead anywhere.
            let open = (0..).zip(&self.nodes).filter(|(_, node)| !node.followed);
            let mut left: Vec<u32> = self.goals[index].clone();
            left.extend(open.map(|(index, _): (u32, _)| index));
            let mut reaches = vec![false; self.nodes.len()];
            while let Some(to) = left.pop() {
                if std::mem::replace(&mut reaches[to as usize], true) {
                    continue;
                }
                let first = own.partition_point(|(it, _)| *it < to);
                let before = own[first..].iter().take_while(|(it, _)| *it == to);
                left.extend(before.map(|(_, from)| *from));
            }
            if let Some(lost) = reaches.iter().position(|it| !it) {
                let mut timeline = told(model, &self.way(model, lost));
                timeline.push_str("     and from here on no step of its own leads there\n");
                failures.push(Failure { rule: wanted.name.to_owned(), timeline });
            }
        }
        failures
    }

    fn way<M>(&self, model: &M, to: usize) -> Vec<(M::State, Option<M::Action>)>
    where
        M: Model,
        M::State: Clone,
        M::Action: Clone,
    {
        let mut numbers = Vec::new();
        let mut node = &self.nodes[to];
        while node.from != ROOT {
            numbers.push(node.action as usize);
            node = &self.nodes[node.from as usize];
        }
        let start = model.init_states().into_iter().nth(node.action as usize);
        let mut way = Vec::new();
        let Some(mut state) = start else { return way };
        for number in numbers.into_iter().rev() {
            let mut actions = Vec::new();
            model.actions(&state, &mut actions);
            let Some(action) = actions.into_iter().nth(number) else {
                break;
            };
            let after = model.next_state(&state, action.clone());
            way.push((state.clone(), Some(action)));
            state = after.unwrap_or(state);
        }
        way.push((state, None));
        way
    }
}

/// Two independent hashes, so that no two states are taken for one.
fn fingerprint(state: &impl Hash) -> u128 {
    let half = |salt: u8| {
        let mut hasher = DefaultHasher::new();
        salt.hash(&mut hasher);
        state.hash(&mut hasher);
        u128::from(hasher.finish())
    };
    half(0) << 64 | half(1)
}

fn told<M>(model: &M, way: &[(M::State, Option<M::Action>)]) -> String
where
    M: Model,
    M::State: Debug,
    M::Action: Clone + Debug,
{
    let mut text = String::new();
    let steps = way.iter().filter_map(|(state, action)| Some((state, action.as_ref()?)));
    for (number, (state, action)) in steps.enumerate() {
        let what = model.format_action(action);
        let came = model.format_step(state, action.clone()).unwrap_or_default();
        let _ = writeln!(text, "{:>4} {what:<44} {came}", number + 1);
    }
    text
}
