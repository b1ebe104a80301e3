//! Two members of a control plane of three fail, and etcd with them. The first by name stays broken, whatever is done to it.
//! The second is healed by a power cycle, and then the workload cluster answers; or it is not, and somebody else has the cluster
//! answer some time.

use bench::model::{Progress, explore};
use remediation::decide::decide;
use remediation::settings::{Fencing, Policy};
use remediation::turns::{Asking, Try, is_about_to_begin};
use stateright::{Model, Property};

use super::{Act, Action, Site, Size, State, now};
use crate::World;

#[derive(Clone)]
struct Plane {
    sites: [Site; 2],
    /// Whether a power cycle heals the second member.
    heals: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Members {
    each: [State; 2],
    /// Who has the turn of the control plane, in the memory of the process.
    turn: Option<usize>,
    /// Whether the workload cluster answers.
    answers: bool,
}

impl Members {
    /// What one of them decides, in its turn.
    fn read(&mut self, plane: &Plane, index: usize) {
        let other = &self.each[1 - index];
        let site = &plane.sites[index];
        let requests: Vec<_> = other.request.iter().cloned().collect();
        let begun = Try::of(&other.host.history, &requests, false, now());
        let begins = || {
            requests.iter().any(|request| {
                let seen = State { member: false, ..other.clone() }.observed(request, false);
                is_about_to_begin(&seen, &decide(&seen, &site.policy, now()))
            })
        };
        let asking = Asking {
            is_begun: self.each[index].host.history.open("uid").is_some(),
            has_turn: self.turn == Some(index),
            comes_first: index == 0,
        };
        self.each[index].member = asking.waits_for(begun, begins);
        self.each[index].read(site, 0);
        if !self.sets_key(index) {
            return;
        }
        if self.turn.is_some_and(|it| it != index) {
            self.each[index].member = true;
            self.each[index].read(site, 0);
        } else {
            self.turn = Some(index);
        }
    }

    fn sets_key(&self, index: usize) -> bool {
        let mut acts = self.each[index].replicas[0].acts.iter();
        acts.any(|it| matches!(it, Act::Host(write) if write.key == Some(true)))
    }
}

impl Model for Plane {
    type State = Members;
    type Action = (usize, Action);

    fn init_states(&self) -> Vec<Members> {
        let state = |index: usize| {
            let mut state = self.sites[index].init_states().swap_remove(0);
            (state.away, state.was_away) = (true, true);
            (state.machine.control_plane, state.machine.kept) = (true, true);
            // The first has another try, which comes due while the second is in one.
            let retries = u32::from(index == 0);
            if let Some(Ok(strategy)) = state.request.as_mut().map(|it| it.strategy.as_mut()) {
                strategy.retries = retries;
            }
            state
        };
        vec![Members { each: [state(0), state(1)], turn: None, answers: false }]
    }

    fn actions(&self, state: &Members, actions: &mut Vec<Self::Action>) {
        for (index, member) in state.each.iter().enumerate() {
            let mut all = Vec::new();
            self.sites[index].actions(member, &mut all);
            // Time passes for both, whether the cluster answers is no mishap here, and the operator says at once what it did.
            let own = [Action::Age, Action::Away, Action::Back, Action::Report];
            let people = [Action::Withdraw, Action::DeleteMachine, Action::TakeHost, Action::Pause];
            all.retain(|it| !own.contains(it) && !people.contains(it));
            actions.extend(all.into_iter().map(|it| (index, it)));
        }
        actions.push((0, Action::Age));
        if !self.heals && !state.answers {
            actions.push((0, Action::Back));
        }
    }

    fn next_state(&self, before: &Members, (index, action): Self::Action) -> Option<Members> {
        let mut state = before.clone();
        match action {
            Action::Read(_) => state.read(self, index),
            Action::Back => state.answers = true,
            Action::Age => {
                for (site, it) in self.sites.iter().zip(&mut state.each) {
                    *it = site.next_state(it, Action::Age).or_else(|| {
                        // Nothing is old that was young.
                        (it.runs == it.host.powered_on).then(|| it.clone())
                    })?;
                }
            }
            Action::Switch => {
                let site = &self.sites[index];
                let switched = site.next_state(&state.each[index], Action::Switch)?;
                state.each[index] = site.next_state(&switched, Action::Report)?;
            }
            action => {
                state.each[index] = self.sites[index].next_state(&state.each[index], action)?;
            }
        }
        if state.turn == Some(index) && state.each[index].replicas[0].acts.is_empty() {
            state.turn = None;
        }
        if self.heals {
            // The third member is well, and so is one of these.
            state.answers = state.each.iter().any(|it| it.runs && it.boots > 0);
        }
        for it in &mut state.each {
            it.away = !state.answers;
        }
        (state != *before).then_some(state)
    }

    fn format_action(&self, (index, action): &Self::Action) -> String {
        format!("cp-{index}  {}", self.sites[*index].format_action(action))
    }

    fn format_step(&self, before: &Members, action: Self::Action) -> Option<String> {
        let after = self.next_state(before, action)?;
        Some(format!(
            "answers {}, turn {:?}, {:?}",
            after.answers, after.turn, after.each[action.0]
        ))
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("no rule of the moment is broken", |_, state: &Members| {
                state.each.iter().all(|it| it.broken.is_none())
            }),
            Property::always("one member at a time is held off", |_, state: &Members| {
                !state.each.iter().all(|it| it.host.held)
            }),
            Property::sometimes(
                "the second is cut off for the sake of the first",
                |_, state: &Members| {
                    let [first, second] = &state.each;
                    first.host.history.open("uid").is_some() && second.host.held
                },
            ),
            Property::sometimes("the cluster answers again", |_, state: &Members| state.answers),
        ]
    }
}

/// A control plane that lost its quorum, with so many stops of the process.
pub(super) fn world(heals: bool, stops: u8) -> World {
    let explored = move |bounds| {
        let site = |returns| {
            let size = Size { replicas: 1, mishaps: stops, returns, deletes: false, unread: false };
            Site { size, policy: Policy { fencing: Fencing::None, ..Policy::default() } }
        };
        let own = |(_, action): &(usize, Action)| !matches!(action, Action::Stop(_));
        let goal = |_: &Plane, state: &Members| state.each.iter().all(State::is_at_rest);
        let name = "both members are back or handed over, and nothing of ours is left";
        let plane = Plane { sites: [site(false), site(heals)], heals };
        explore(&plane, &[Progress { name, goal, own }], bounds)
    };
    let end = if heals { "the second comes back" } else { "none comes back" };
    let name = format!("two members of a control plane, {end}, {stops} stops");
    World { name, explore: Box::new(explored) }
}
