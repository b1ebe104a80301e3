//! How a machine comes to a host: what it asks for is checked, a host is chosen, the choice is written on the machine,
//! and then the host is claimed.

use api_types::capm3::Metal3Machine;
use api_types::metal3::BareMetalHost;
use api_types::names;
use controller_kit::engine::Next;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt as _;
use serde_json::{Map, Value, json};

use super::{Case, RESYNC, entry, is_known, not_paused, reported, told, with_report};
use crate::index::Wants;
use crate::machine::{
    PROVIDER_ID, given_up, host_name_bytes, intended, is_held, is_same, provider_id, was_associated,
};
use crate::model::{Claimed, Decision, MachineSeen, Write};
use crate::reason::Reason;
use crate::reservation::{Kept, looks_claimable};
use crate::seen::{Data, Reuse};
use crate::selector::Selector;
use crate::status::{Report, Said};
use crate::{host, text};

/// What is not there or not right, before anything is taken for it.
pub(super) fn lacks(case: &Case<'_>) -> Option<Decision> {
    let (parent, cluster) = case.parents()?;
    let lack = entry::lack(case.seen, parent, cluster)?;
    let decision = told(case, lack.reason, &lack.message);
    Some(Decision { next: entry::again(case.seen).map_or(decision.next, Next::After), ..decision })
}

pub(super) fn selects_wrongly(case: &Case<'_>) -> Option<Decision> {
    let why = Selector::of(case.machine.spec.host_selector.as_ref()).err()?;
    Some(told(case, Reason::SelectorInvalid, &why))
}

pub(super) fn template_unreadable(case: &Case<'_>) -> Option<Decision> {
    let Reuse::Unreadable(why) = &case.seen.reuse else { return None };
    Some(told(case, Reason::TemplateInvalid, why))
}

/// It names a host, or gives one up, and neither was read as it is now.
pub(super) fn look_closer(case: &Case<'_>) -> Option<Decision> {
    let names = intended(case.machine).is_some() || given_up(case.machine).is_some();
    (names && !case.seen.live).then(|| super::look_closer(Reason::HostGivenUp))
}

/// Claims the host that it has named, if that is still to be had.
pub(super) fn go_on(case: &Case<'_>) -> Option<Decision> {
    let name = intended(case.machine)?;
    Some(match still_wanted(case) {
        Some(host) => {
            let ours = [names::ferrite::INTENDS_HOST, names::ferrite::HOST_UID];
            let is_intent = ours.iter().all(|key| case.machine.annotation(key).is_some())
                && is_held(case.machine);
            // Somebody else's word, or that of an earlier release. A machine that is deleted just after its claim would leave the
            // host behind, and CAPM3 takes the host for one that the machine has.
            let first = if is_intent { Vec::new() } else { vec![intend(host)] };
            take(case, host, first)
        }
        None => give_up(case.seen, name, case.now),
    })
}

pub(super) fn take_after_all(case: &Case<'_>) -> Option<Decision> {
    let host = still_wanted(case)?;
    Some(take(case, host, vec![intend(host)]))
}

pub(super) fn take_kept(case: &Case<'_>) -> Option<Decision> {
    let host = case.seen.choice.kept.as_ref().filter(|_| case.seen.keeps_for().is_some())?;
    Some(choose(case, host))
}

/// One host is one machine's: who has as many before it as hosts are on their way waits for nothing.
pub(super) fn await_kept(case: &Case<'_>) -> Option<Decision> {
    let (choice, owner) = (&case.seen.choice, case.seen.keeps_for()?);
    let host = choice.on_its_way.as_ref().filter(|_| is_strict(case) || !choice.behind)?;
    let text = text::will_be_ready(host, owner);
    let wants = if choice.behind { Wants::OnlyKept } else { Wants::Kept };
    Some(waits(case, Reason::WaitingForKeptHost, &text, wants))
}

/// A reserved host that was given up for a trouble that passes is on its way. Before the cache shows that, a free host would be
/// taken, and the disks of the reserved one would be lost.
pub(super) fn await_cache(case: &Case<'_>) -> Option<Decision> {
    let host = named(case).filter(|host| Kept::of(host).is_some() && suits(case, host))?;
    let is_shown = case.seen.choice.on_its_way.is_some();
    (!is_shown && host::is_on_its_way(host)).then(|| super::look_closer(Reason::WaitingForKeptHost))
}

pub(super) fn has_none_kept(case: &Case<'_>) -> Option<Decision> {
    let owner = case.seen.keeps_for().filter(|_| is_strict(case))?;
    let text = text::none_kept(owner, &unfit(case.seen));
    Some(waits(case, Reason::NoKeptHost, &text, Wants::OnlyKept))
}

pub(super) fn take_free(case: &Case<'_>) -> Option<Decision> {
    Some(choose(case, case.seen.choice.free.as_ref()?))
}

pub(super) fn names_too_long(case: &Case<'_>) -> Option<Decision> {
    let text = text::name_too_long(host_name_bytes(case.machine)?, &unfit(case.seen));
    Some(waits(case, Reason::NameTooLong, &text, Wants::Any))
}

/// Nothing that it may have is to be had.
pub(super) fn finds_none(case: &Case<'_>) -> Decision {
    let labelled = case.seen.choice.labelled.as_deref();
    let selector = case.machine.spec.host_selector.as_ref();
    let text = text::none_free(selector, &unfit(case.seen), labelled);
    waits(case, Reason::NoHostAvailable, &text, Wants::Any)
}

/// The very host that it names or gives up.
pub(super) fn named<'a>(case: &Case<'a>) -> Option<&'a BareMetalHost> {
    case.seen.host.here().filter(|host| is_same(case.machine, host))
}

/// What comes before another host: a claim of the one that was given up may still be on its way, and would succeed.
fn first(case: &Case<'_>) -> Vec<Write> {
    let host = named(case).filter(|host| looks_claimable(host));
    host.map(|host| pass_over(case.seen, host)).into_iter().collect()
}

/// Takes a host that it had not named before.
fn choose(case: &Case<'_>, host: &BareMetalHost) -> Decision {
    let mut first = first(case);
    first.push(intend(host));
    take(case, host, first)
}

/// Whether it may have only a host that is kept for its owner. A template that is gone cannot be asked for that.
fn is_strict(case: &Case<'_>) -> bool {
    let seen = case.seen;
    case.policy.strict_reuse && seen.reuse == Reuse::On && seen.owner.is_some()
}

/// A host that is kept for its owner and that it cannot have, if it may have one.
fn unfit(seen: &MachineSeen) -> String {
    seen.keeps_for().map_or_else(String::new, |owner| text::unfit(&seen.choice, owner))
}

fn waits(case: &Case<'_>, reason: Reason, text: &str, wants: Wants) -> Decision {
    let mut writes = first(case);
    let forgets = given_up(case.machine).is_some();
    if forgets {
        writes.push(Write::Forget);
    }
    let decision = reported(case.seen, case.now, reason, text, |_| {});
    writes.extend(decision.writes);
    writes.push(Write::Wait(wants));
    // Once it is forgotten, the host that it gave up may do again.
    let next = if forgets { Next::Now } else { Next::After(RESYNC) };
    Decision { writes, next, ..decision }
}

/// The host that it names or gives up, if it may claim that now and is not better off with another.
fn still_wanted<'a>(case: &Case<'a>) -> Option<&'a BareMetalHost> {
    let may_claim = |it: &&BareMetalHost| suits(case, it) && looks_claimable(it);
    named(case).filter(may_claim).filter(|it| !is_better_left(case.seen, it))
}

/// Whether this machine may have the host, whatever state that is in.
fn suits(case: &Case<'_>, host: &BareMetalHost) -> bool {
    let may_have = match Kept::of(host) {
        None => !is_strict(case),
        Some(kept) => case.seen.keeps_for().is_some_and(|owner| kept.is_for(owner)),
    };
    may_have
        && !case.seen.host_of_others
        && provider_id(case.machine, &host.name_any()).len() <= PROVIDER_ID
        && Selector::of(case.machine.spec.host_selector.as_ref())
            .is_ok_and(|it| it.matches(host.metadata.labels.as_ref()))
}

/// Whether the claim of this host was refused for long and there is another. One that is kept is left only for one that is
/// kept as well: its disks are what it is kept for.
fn is_better_left(seen: &MachineSeen, host: &BareMetalHost) -> bool {
    let choice = &seen.choice;
    let is_other = choice.kept.is_some() || (choice.free.is_some() && Kept::of(host).is_none());
    is_other && is_refused(seen, host)
}

/// Whether the API server has refused this host to the machine for long.
fn is_refused(seen: &MachineSeen, host: &BareMetalHost) -> bool {
    seen.refused.as_ref().is_some_and(|refused| *refused == host.name_any())
}

/// No claim of this host is to succeed any more. Who refuses even that, and has refused this host for longer than any claim
/// is on its way, would refuse the claim as well: a machine neither waits for such a host nor stays for it.
pub(super) fn pass_over(seen: &MachineSeen, host: &BareMetalHost) -> Write {
    Write::PassOver { host: host.name_any(), insists: !is_refused(seen, host) }
}

fn intend(host: &BareMetalHost) -> Write {
    Write::Intend { host: host.name_any(), uid: host.metadata.uid.clone().unwrap_or_default() }
}

/// Whoever renders its secrets is waited for.
pub(super) fn awaits_data(machine: &Metal3Machine) -> Said {
    let name = machine.metadata.name.as_deref().unwrap_or_default();
    let filter = machine.label(names::capi::WATCH_FILTER);
    Said::no(Reason::WaitingForData, &text::not_rendered(name, filter))
}

/// The machine names the host that it has.
pub(super) fn name_host(host: &BareMetalHost) -> Write {
    Write::Name { host: host.name_any(), uid: host.metadata.uid.clone().unwrap_or_default() }
}

/// The claim, after what has to be written before it.
fn take(case: &Case<'_>, host: &BareMetalHost, mut writes: Vec<Write>) -> Decision {
    let (seen, name) = (case.seen, host.name_any());
    let wants_data = seen.data != Data::NotWanted;
    let install = (!wants_data).then(|| install(seen, host));
    let (reason, why) = match (Kept::of(host), seen.keeps_for()) {
        (Some(_), _) => (Reason::HostReused, String::new()),
        (None, Some(owner)) => (Reason::HostClaimed, text::why_free(&seen.choice, owner)),
        (None, None) => (Reason::HostClaimed, String::new()),
    };
    let message = text::host(&name) + &why;
    let references = if wants_data { Vec::new() } else { seen.secrets() };
    let awaits = (seen.data == Data::NotAskedFor).then(|| awaits_data(case.machine));
    let installs = || Said::no(Reason::Provisioning, text::INSTALLING);
    let report = Report {
        associated: Some(Said::yes(reason, &message)),
        data_ready: awaits.clone(),
        ready: Some(awaits.unwrap_or_else(installs)),
        paused: Some(not_paused()),
        references,
        ..Report::default()
    };
    // That it gets a host is in its conditions; that it gets a strange one is told, whatever becomes of the report.
    let is_news = !is_known(seen, reason) || !why.is_empty();
    let claimed = Claimed { host: name.clone(), reason, message: message.clone(), is_news };
    writes.push(Write::Claim { host: name, install, claimed: Some(claimed) });
    if wants_data {
        // Whoever renders secrets goes by that.
        writes.push(name_host(host));
    }
    let decision = with_report(seen, case.now, writes, (reason, &message), &report);
    Decision { events: Vec::new(), ..decision }
}

/// The host that it was going to take is not to be had any more. Nothing else is done before the host was read again.
pub(super) fn give_up(seen: &MachineSeen, host: &str, now: Timestamp) -> Decision {
    let text = text::not_to_be_had(host);
    // What was rendered tells of this host and would be wrong on the next. First, or a crash would leave it there.
    let mut writes: Vec<Write> = withdraw(seen).into_iter().collect();
    writes.push(Write::GiveUp { host: host.to_owned() });
    let associated = Said::no(Reason::HostGivenUp, &text);
    // An undisturbed second try needs no word of this.
    let associated = was_associated(&seen.machine).then_some(associated);
    let report = Report { associated, withdrawn: true, ..Report::default() };
    with_report(seen, now, writes, (Reason::HostGivenUp, &text), &report)
}

/// The request for rendered secrets is taken back, if there is one. Where the machine had its host there may be one that the
/// cache does not show yet.
pub(super) fn withdraw(seen: &MachineSeen) -> Option<Write> {
    let asked = match seen.data {
        Data::NotWanted | Data::Unserved => false,
        Data::NotAskedFor => was_associated(&seen.machine),
        Data::Awaited | Data::Withdrawn(_) | Data::Failed(_) | Data::Rendered { .. } => true,
    };
    asked.then_some(Write::WithdrawData)
}

/// What the host is told to install. What the user left out is left out.
pub(super) fn install(seen: &MachineSeen, host: &BareMetalHost) -> Map<String, Value> {
    let mut fields = Map::new();
    let mut put = |name: &str, value: Value| fields.insert(name.to_owned(), value);
    let (metadata, spec) = (&seen.machine.metadata, &seen.machine.spec);
    let deploy = spec.custom_deploy.as_ref().filter(|deploy| !deploy.method.is_empty());
    if let Some(deploy) = deploy {
        put("customDeploy", json!({ "method": deploy.method }));
    }
    // A method of somebody else's gets the image as well, if there is one: without it the operator takes it from the method.
    if let Some(image) = spec.image.as_ref().filter(|it| deploy.is_none() || !it.url.is_empty()) {
        let mut told = json!({ "url": image.url });
        let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        for (field, value) in [
            ("checksum", given(&image.checksum)),
            ("checksumType", given(&image.checksum_type)),
            ("format", image.disk_format().map(str::to_owned)),
        ] {
            // What is left beside an empty URL is of another image.
            if value.is_some() || host.spec.image.is_some() {
                told[field] = json!(value);
            }
        }
        put("image", told);
    }
    for (field, name) in seen.secrets() {
        put(field, json!({ "name": name, "namespace": metadata.namespace }));
    }
    // The machine's own is older than the template's, and all that is left where that is gone.
    if let Some(mode) = seen.cleaning.as_ref().or(spec.automated_cleaning_mode.as_ref()) {
        put("automatedCleaningMode", json!(mode));
    }
    if !host.spec.online {
        put("online", json!(true));
    }
    fields
}
