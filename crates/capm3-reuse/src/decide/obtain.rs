//! How a machine comes to a host: what it asks for is checked, a host is chosen, the choice is written on the machine,
//! and then the host is claimed.

use std::time::Duration;

use api_types::capi::{Cluster, Machine};
use api_types::capm3::{HostSelector, Metal3Machine};
use api_types::metal3::BareMetalHost;
use api_types::names;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt as _;
use serde_json::{Map, json};

use super::entry::{self, Lack};
use super::{look_closer, not_paused, reported, told, with_report};
use crate::decision::{Decision, Install, Step};
use crate::index::Wants;
use crate::machine::{PROVIDER_ID, is_same, provider_id, was_associated};
use crate::reason::Reason;
use crate::reservation::{Kept, Owner, looks_claimable};
use crate::seen::{Data, HostSeen, MachineSeen, Reuse};
use crate::selector::Selector;
use crate::settings::Policy;
use crate::status::{Report, Said};

/// Waiters are woken; this is for what nobody thought of.
const RESYNC: Duration = Duration::from_secs(300);

/// A machine that may have a host and has none.
pub(super) fn about_homeless(
    seen: &MachineSeen,
    parent: &Machine,
    cluster: &Cluster,
    policy: &Policy,
    now: Timestamp,
) -> Decision {
    let machine = &seen.machine;
    if let Some(Lack { reason, text, again }) = entry::lack(seen, parent, cluster) {
        let decision = told(seen, now, reason, &text);
        return Decision { again: again.or(decision.again), ..decision };
    }
    let selector = match Selector::read(&machine.spec.host_selector.clone().unwrap_or_default()) {
        Ok(selector) => selector,
        Err(why) => return told(seen, now, Reason::SelectorInvalid, &why),
    };
    if let Reuse::Unreadable(why) = &seen.reuse {
        return told(seen, now, Reason::TemplateInvalid, why);
    }
    let given_up = machine.annotation(names::ferrite::GIVES_UP_HOST);
    let intended = machine.host_name().filter(|_| given_up.is_none());
    if intended.is_some() || given_up.is_some() {
        // Host first, machine second: only in this order the host's version proves that nobody changed their mind.
        if !seen.live {
            return look_closer(Reason::HostGivenUp);
        }
    }
    let named = match &seen.host {
        HostSeen::Here(host) if is_same(machine, host) => Some(&**host),
        _ => None,
    };
    let fits = |host: &&BareMetalHost| fits(seen, &selector, policy, host);
    if let Some(name) = intended {
        return match named.filter(fits).filter(|host| !is_better_left(seen, host)) {
            Some(host) => {
                // Somebody else's word: a machine that is deleted just after its claim would leave the host behind.
                let first = if is_intent(machine) { Vec::new() } else { vec![intend(host)] };
                take(seen, parent, host, now, first)
            }
            None => give_up(seen, name, now),
        };
    }
    let mut first = Vec::new();
    if let Some(host) = named {
        if fits(&host) && !is_better_left(seen, host) {
            return take(seen, parent, host, now, vec![intend(host)]);
        }
        // A claim of it may still be on its way, and would succeed.
        if looks_claimable(host) {
            first.push(pass_over(seen, host));
        }
    }
    choose(seen, parent, policy, now, first)
}

/// A machine without host picks one, or says for what it waits.
fn choose(
    seen: &MachineSeen,
    parent: &Machine,
    policy: &Policy,
    now: Timestamp,
    mut first: Vec<Step>,
) -> Decision {
    let choice = &seen.choice;
    let owner = seen.keeps_for();
    if let Some(owner) = owner {
        if let Some(host) = &choice.kept {
            first.push(intend(host));
            return take(seen, parent, host, now, first);
        }
        // One host is one machine's: who has as many before it as hosts are on their way waits for nothing.
        let strict = is_strict(seen, policy);
        if let Some(host) = choice.on_its_way.as_ref().filter(|_| strict || !choice.behind) {
            let text = format!("Host {host} is kept for {owner} and will be ready");
            let wants = if choice.behind { Wants::OnlyKept } else { Wants::Kept };
            return waits(seen, now, first, Reason::WaitingForKeptHost, &text, wants);
        }
    }
    let unfit = unfit(seen);
    if let Some(owner) = owner.filter(|_| is_strict(seen, policy)) {
        let text = format!(
            "No host is kept for {owner}{unfit}; with --strict-reuse this machine gets no other: free one for it, or set nodeReuse to false"
        );
        return waits(seen, now, first, Reason::NoKeptHost, &text, Wants::OnlyKept);
    }
    if let Some(host) = &choice.free {
        first.push(intend(host));
        return take(seen, parent, host, now, first);
    }
    if let Some(host) = &choice.too_long {
        let text = format!(
            "Host {host} would do, but the provider ID {} would have more than {PROVIDER_ID} bytes{unfit}: use shorter names, or add a host with a shorter one",
            provider_id(&seen.machine, host)
        );
        return waits(seen, now, first, Reason::NameTooLong, &text, Wants::Any);
    }
    let selector = &seen.machine.spec.host_selector;
    let labels = match selector.as_ref().map(wanted_labels).filter(|it| !it.is_empty()) {
        Some(labels) => format!("and has the labels of hostSelector ({labels})"),
        None => "whatever its labels, as there is no hostSelector".to_owned(),
    };
    let labelled = choice.labelled.as_ref().map_or_else(String::new, |host| {
        format!(
            "; host {host} would fit but is reserved by its label {}: remove the label if nobody needs the reservation, or set --collect-capm3-reservations",
            names::capm3::NODE_REUSE
        )
    });
    let text = format!(
        "No free host matches: one that is available, healthy, not paused, {labels}{unfit}{labelled}"
    );
    waits(seen, now, first, Reason::NoHostAvailable, &text, Wants::Any)
}

/// Whether it may have only a host that is kept for its owner. A template that is gone cannot be asked for that.
fn is_strict(seen: &MachineSeen, policy: &Policy) -> bool {
    policy.strict_reuse && seen.reuse == Reuse::On && seen.owner.is_some()
}

/// A host that is kept for its owner and no good, or for another machine, if one is known.
fn unfit(seen: &MachineSeen) -> String {
    if seen.keeps_for().is_none() {
        return String::new();
    }
    match (&seen.choice.on_its_way, &seen.choice.unfit) {
        (Some(host), _) => {
            format!("; host {host} is kept for it and will be ready, but others wait before it")
        }
        (None, Some((host, why))) => format!("; host {host} is kept for it but {why}"),
        (None, None) => String::new(),
    }
}

/// Why it got a free host.
fn why_free(seen: &MachineSeen, owner: &Owner) -> String {
    match (&seen.choice.on_its_way, &seen.choice.unfit) {
        (Some(host), _) => {
            format!("for host {host}, which is kept for {owner}, other machines wait before it")
        }
        (None, Some((host, why))) => {
            format!("no host that is kept for {owner} will do: host {host} {why}")
        }
        (None, None) => format!("none is kept for {owner}"),
    }
}

/// A selector as people write it on a command line.
fn wanted_labels(selector: &HostSelector) -> String {
    let equal = selector.match_labels.iter().map(|(key, value)| format!("{key}={value}"));
    let rules = selector.match_expressions.iter().map(|it| {
        let values = it.values.join(", ");
        if values.is_empty() {
            format!("{} {}", it.key, it.operator)
        } else {
            format!("{} {} ({values})", it.key, it.operator)
        }
    });
    equal.chain(rules).collect::<Vec<_>>().join(", ")
}

fn waits(
    seen: &MachineSeen,
    now: Timestamp,
    first: Vec<Step>,
    reason: Reason,
    text: &str,
    wants: Wants,
) -> Decision {
    let mut first = first;
    if seen.machine.annotation(names::ferrite::GIVES_UP_HOST).is_some() {
        first.push(Step::Forget);
    }
    let mut decision = reported(seen, now, reason, text, |_| {});
    decision.steps.splice(0..0, first);
    Decision { wants: Some(wants), again: Some(RESYNC), ..decision }
}

/// Whether this machine may claim now the host that it names.
fn fits(seen: &MachineSeen, selector: &Selector, policy: &Policy, host: &BareMetalHost) -> bool {
    let may_have = match Kept::of(host) {
        None => !is_strict(seen, policy),
        Some(kept) => seen.keeps_for().is_some_and(|owner| kept.is_for(owner)),
    };
    may_have
        && !seen.host_of_others
        && provider_id(&seen.machine, &host.name_any()).len() <= PROVIDER_ID
        && looks_claimable(host)
        && selector.matches(host.metadata.labels.as_ref())
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
pub(super) fn pass_over(seen: &MachineSeen, host: &BareMetalHost) -> Step {
    Step::PassOver { host: host.name_any(), insists: !is_refused(seen, host) }
}

/// Whether the machine names its host as we write it, with the finalizer and the host's uid.
fn is_intent(machine: &Metal3Machine) -> bool {
    let finalizer = names::capm3::MACHINE_FINALIZER;
    machine.annotation(names::ferrite::HOST_UID).is_some()
        && machine.metadata.finalizers.iter().flatten().any(|it| it == finalizer)
}

fn intend(host: &BareMetalHost) -> Step {
    Step::Intend { host: host.name_any(), uid: host.metadata.uid.clone().unwrap_or_default() }
}

/// The claim, after what has to be written before it.
fn take(
    seen: &MachineSeen,
    parent: &Machine,
    host: &BareMetalHost,
    now: Timestamp,
    mut steps: Vec<Step>,
) -> Decision {
    let name = host.name_any();
    let wants_data = seen.data != Data::NotWanted;
    let install = (!wants_data).then(|| install(&seen.machine, parent, &seen.data, host));
    steps.push(Step::Claim { host: name.clone(), install });
    let (reason, why) = match (Kept::of(host), seen.keeps_for()) {
        (Some(_), _) => (Reason::HostReused, String::new()),
        (None, Some(owner)) => (Reason::HostClaimed, format!(": {}", why_free(seen, owner))),
        (None, None) => (Reason::HostClaimed, String::new()),
    };
    let text = format!("Host {name}{why}");
    let next = "The host is being installed";
    let report = Report {
        associated: Some(Said::yes(reason, &text)),
        ready: Some(Said::no(Reason::Provisioning, next)),
        paused: Some(not_paused()),
        secrets: if wants_data {
            Default::default()
        } else {
            secrets(&seen.machine, parent, &seen.data)
        },
        ..Report::default()
    };
    let decision = with_report(seen, now, steps, reason, &text, &report);
    // That it gets a host is in its conditions; that it gets a strange one is told.
    Decision { news: decision.news || !why.is_empty(), ..decision }
}

/// The host that it was going to take is not to be had any more. Nothing else is done before the host was read again.
pub(super) fn give_up(seen: &MachineSeen, host: &str, now: Timestamp) -> Decision {
    let text = format!("Host {host} is not to be had any more");
    // What was rendered tells of this host and would be wrong on the next. First, or a crash would leave it there.
    let mut steps: Vec<Step> = withdraw(seen).into_iter().collect();
    steps.push(Step::GiveUp { host: host.to_owned() });
    let associated = Said::no(Reason::HostGivenUp, &text);
    // An undisturbed second try needs no word of this.
    let associated = was_associated(&seen.machine).then_some(associated);
    let report = Report { associated, withdrawn: true, ..Report::default() };
    let decision = with_report(seen, now, steps, Reason::HostGivenUp, &text, &report);
    Decision { again: Some(Duration::ZERO), ..decision }
}

/// The request for rendered secrets is taken back, if there is one. Where the machine had its host there may be one that the
/// cache does not show yet.
pub(super) fn withdraw(seen: &MachineSeen) -> Option<Step> {
    let asked = match seen.data {
        Data::NotWanted | Data::Unserved => false,
        Data::NotAskedFor => was_associated(&seen.machine),
        Data::Awaited | Data::Failed(_) | Data::Rendered { .. } => true,
    };
    asked.then_some(Step::WithdrawData)
}

/// What the host is told to install. What the user left out is left out.
pub(super) fn install(
    machine: &Metal3Machine,
    parent: &Machine,
    data: &Data,
    host: &BareMetalHost,
) -> Install {
    let mut fields = Map::new();
    let mut put = |name: &str, value: serde_json::Value| fields.insert(name.to_owned(), value);
    let spec = &machine.spec;
    let deploy = spec.custom_deploy.as_ref().filter(|deploy| !deploy.method.is_empty());
    if let Some(deploy) = deploy {
        put("customDeploy", json!({ "method": deploy.method }));
    } else if let Some(image) = &spec.image {
        let mut told = json!({ "url": image.url });
        if host.spec.image.is_some() {
            // What is left beside an empty URL is of another image.
            for field in ["checksum", "checksumType", "format"] {
                told[field] = json!(null);
            }
        }
        let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        if let Some(checksum) = given(&image.checksum) {
            told["checksum"] = json!(checksum);
        }
        if let Some(kind) = given(&image.checksum_type) {
            told["checksumType"] = json!(kind);
        }
        if let Some(format) = image.disk_format() {
            told["format"] = json!(format);
        }
        put("image", told);
    }
    let namespace = machine.metadata.namespace.as_deref().unwrap_or_default();
    for (field, secret) in
        ["userData", "metaData", "networkData"].iter().zip(secrets(machine, parent, data))
    {
        if let Some(name) = secret {
            put(field, json!({ "name": name, "namespace": namespace }));
        }
    }
    if let Some(mode) = &spec.automated_cleaning_mode {
        put("automatedCleaningMode", json!(mode));
    }
    if !host.spec.online {
        put("online", json!(true));
    }
    Install { fields }
}

/// The secrets of a machine: first boot, facts, network.
pub(super) fn secrets(
    machine: &Metal3Machine,
    parent: &Machine,
    data: &Data,
) -> [Option<String>; 3] {
    let named = |reference: &Option<api_types::reference::NamedRef>| {
        reference.as_ref().and_then(|it| it.name.clone()).filter(|name| !name.is_empty())
    };
    let boot = parent.spec.bootstrap.data_secret_name.clone();
    let mut secrets = [boot, named(&machine.spec.meta_data), named(&machine.spec.network_data)];
    if let Data::Rendered { meta_data, network_data, .. } = data {
        for (secret, rendered) in secrets[1..].iter_mut().zip([meta_data, network_data]) {
            if rendered.is_some() {
                secret.clone_from(rendered);
            }
        }
    }
    secrets
}
