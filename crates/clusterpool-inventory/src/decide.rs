//! The rules, in the order in which they apply: each sees what those before it decided. Pure: no client, no clock.
//!
//! A pool that another controller works on is left to it, and one that is new is adopted first.
//!
//! A cluster whose failure costs its entry an attempt is not removed before that is stored, nor one
//! whose entry is to be deleted or updated before the entry says so. A pool that is gone counts as
//! one that is being deleted: a process that had not heard of it may have made something for it
//! since. What is installed stays then, unless its claim is gone: a backup may have brought it back
//! before its pool. Claims that wait for a pool that is gone or goes are told so.

mod balance;
mod care;
mod claims;
mod leases;
mod leaving;
mod takeover;

use api_types::names::ferrite::CONDITION_SOLE_CONTROLLER;
use controller_kit::engine::{Reason as _, Rule};
use controller_kit::rule_book;
use k8s_openapi::jiff::Timestamp;

use crate::decision::{Decision, Step, event};
use crate::plan::Plan;
use crate::reason::Reason;
use crate::seen::Observed;
use crate::settings::Policy;
use crate::status;
use crate::usage::Uses;

/// All of them apply, one after the other.
const RULES: [Rule<fn(&mut Plan<'_>)>; 10] = rule_book![
    leases::release: "What is being deleted gives its entry back: others wait for that.",
    leases::put_leases_right: "Whoever has an entry is known before anything is made from one.",
    claims::serve_claims: "Claims are served before anything slow.",
    balance::balance: "What is left is completed, removed and added within one budget, no reason excluding another: leases without a cluster, claims that are gone, entries that were removed, missing clusters, broken ones, too many, one stale one.",
    leases::verify: "Leases of new clusters are verified, unless the cluster goes.",
    care::look_after: "Clusters that Hive does not begin to install are looked after, unless they go.",
    balance::power: "Those that stay run or hibernate.",
    leaving::leave: "A pool that is being deleted, or gone, has only its clusters and leases to lose.",
    leaving::tidy: "What is left over goes, but nothing that was just begun.",
    leaving::let_go: "The pool goes after all that is its own.",
];

/// The rules in their order, and why each stands where it stands.
pub fn rules() -> Vec<(&'static str, &'static str)> {
    RULES.iter().map(Rule::shown).collect()
}

/// Decides about a pool.
pub fn decide(seen: &Observed, policy: &Policy, now: Timestamp) -> Decision {
    let pool = &seen.pool;
    if let Some(rival) = &pool.rival {
        return leave_to(rival, seen, now);
    }
    let uses = Uses::of(seen, policy, now);
    let mut plan = Plan::new(seen, &uses, policy, now);
    let note = plan.takeover().filter(|_| !pool.deleting);
    let is_new = note.is_some();
    if !pool.kept && !pool.deleting {
        plan.push(Reason::PoolAdopted, [Step::KeepPool]);
    } else if let Some(note) = note {
        plan.push(Reason::PoolAdopted, [Step::NoteVersion(note)]);
    } else {
        for rule in &RULES {
            (rule.decide)(&mut plan);
        }
    }
    // Where the pool is gone there is nowhere to store a status, and waiting to store it would make one pass after the other.
    if !pool.absent {
        status::events(&mut plan);
    }
    // What to note is told by what Hive said last, which stays until it is noted.
    let status = if is_new || pool.absent { None } else { status::wanted(&plan) };
    Decision { status, ..plan.decision }
}

/// Nothing is done, and the pool says why: two that decide about one pool undo each other's work.
fn leave_to(rival: &str, seen: &Observed, now: Timestamp) -> Decision {
    let mut status = seen.pool.status.clone();
    let reason = Reason::HiveControllerActive;
    let said = ("False", reason.as_str(), rival.to_owned());
    status::say(&mut status.conditions, CONDITION_SOLE_CONTROLLER, said, now, true);
    if status == seen.pool.status {
        return Decision::default();
    }
    let events = vec![event(reason, "Decide", rival)];
    Decision { status: Some(status), events, ..Decision::default() }
}
