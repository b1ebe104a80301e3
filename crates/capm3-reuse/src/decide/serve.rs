//! What is done with the host that a machine has, until the machine is up and after.

use std::collections::BTreeSet;

use api_types::capi::{Cluster, Machine};
use api_types::capm3::Metal3Machine;
use api_types::metal3::BareMetalHost;
use api_types::names;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt as _;
use serde_json::json;

use super::obtain::{give_up, install, secrets};
use super::{CONDITION_ASSOCIATED, entry, look_closer, node, not_paused, says, told, with_report};
use crate::decision::{Decision, Install, Step};
use crate::host;
use crate::machine::{is_same, provider_id, was_up};
use crate::reason::Reason;
use crate::seen::{Data, HostSeen, MachineSeen};
use crate::status::{self, Report, Said};

/// What the schema of the machine's status takes.
const ADDRESSES: usize = 32;

/// A machine that has this host.
pub(super) fn about_host(
    seen: &MachineSeen,
    parent: &Machine,
    cluster: &Cluster,
    host: &BareMetalHost,
    now: Timestamp,
) -> Decision {
    let machine = &seen.machine;
    let name = host.name_any();
    let finalizer = names::capm3::MACHINE_FINALIZER;
    let keeps = machine.metadata.finalizers.iter().flatten().any(|it| it == finalizer);
    let knows = machine.host_name() == Some(&name)
        && machine.annotation(names::ferrite::GIVES_UP_HOST).is_none();
    let uid = host.metadata.uid.clone().unwrap_or_default();
    if !keeps || !knows || !is_same(machine, host) {
        let steps = vec![Step::Intend { host: name.clone(), uid }];
        return step(steps, Reason::HostAdopted, format!("Host {name} names this machine"));
    }
    // After a move to another cluster every uid is another.
    let consumer = host.spec.consumer_ref.as_ref().and_then(|it| it.uid.as_deref());
    if consumer.is_some_and(|uid| !uid.is_empty() && Some(uid) != machine.metadata.uid.as_deref()) {
        let steps = vec![Step::Claim { host: name.clone(), install: None }];
        return step(steps, Reason::HostAdopted, format!("Host {name} names this machine"));
    }
    if host.annotation(names::metal3::PAUSED) == Some(names::capm3::PAUSED_BY_CAPM3) {
        let steps = vec![Step::Unpause { host: name.clone() }];
        let text =
            format!("Host {name} names this machine, and the pause that CAPM3 set on it is lifted");
        return step(steps, Reason::HostAdopted, text);
    }
    let mut steps = Vec::new();
    let mut ready = None;
    let mut data_ready = None;
    let mut again = None;
    let mut in_use = <[Option<String>; 3]>::default();
    let is_told = host::is_told_what_to_install(host);
    let up = host.provisioning_state().is_provisioned() && is_told;
    let has_no_id = machine.spec.provider_id.as_deref().unwrap_or_default().is_empty();
    if is_told || machine.is_provisioned() {
        if seen.data != Data::NotWanted {
            data_ready = Some(rendered());
        }
        if !machine.is_provisioned() {
            in_use = untold_secrets(seen, parent);
        }
        let wanted = &seen.cleaning;
        // Where that is refused nothing else is written: that the machine is up comes first, and wakes it for this.
        let comes_up = up && (has_no_id || !machine.is_provisioned());
        if !comes_up && wanted.is_some() && *wanted != host.spec.automated_cleaning_mode {
            let fields =
                [("automatedCleaningMode".to_owned(), json!(wanted))].into_iter().collect();
            steps.push(Step::Install { host: name.clone(), install: Install { fields } });
        }
    } else if let Some(lack) = entry::lack(seen, parent, cluster) {
        ready = Some(Said::no(lack.reason, &lack.text));
        again = lack.again;
    } else {
        match &seen.data {
            Data::NotWanted | Data::Rendered { .. } => {
                let install = install(machine, parent, &seen.data, host);
                steps.push(Step::Install { host: name.clone(), install });
                in_use = secrets(machine, parent, &seen.data);
            }
            Data::NotAskedFor => {
                steps.push(Step::AskForData);
                ready = Some(awaits_data(machine));
            }
            Data::Awaited => ready = Some(awaits_data(machine)),
            Data::Failed(why) => ready = Some(Said::no(Reason::DataFailed, why)),
            // It is told before, with everything else that is missing.
            Data::Unserved => {}
        }
        data_ready = match (&seen.data, &ready) {
            (Data::Rendered { .. }, None) => Some(rendered()),
            _ => ready.clone(),
        };
    }
    let ready = ready.unwrap_or_else(|| readiness(machine, host, up));
    let mut report = Report {
        associated: Some(associated(seen, &name)),
        data_ready,
        paused: Some(not_paused()),
        secrets: in_use,
        rendered: match &seen.data {
            Data::Rendered { name, .. } => Some(name.clone()),
            _ => None,
        },
        ..Report::default()
    };
    if !machine.is_provisioned() && up {
        if !seen.live {
            return look_closer(Reason::Provisioning);
        }
        report.provisioned = true;
        report.addresses = addresses(host);
    }
    if up && has_no_id {
        steps.push(Step::Identify {
            provider_id: provider_id(machine, &name),
            failure_domain: host::failure_domain(host)
                .filter(|domain| machine.spec.failure_domain.as_deref() != Some(domain))
                .map(str::to_owned),
        });
    }
    let node = node::about_node(seen, now);
    // Without its host it is not up, whatever is known of its Node.
    let ready = node.said.filter(|_| ready.holds).unwrap_or(ready);
    let (reason, text) = (ready.reason, ready.message.clone());
    let is_back = ready.holds && says(seen, Reason::HostLost);
    report.ready = Some(ready);
    let decision = with_report(seen, now, steps, reason, &text, &report);
    let decision = Decision { again: again.or(node.again), naming: node.naming, ..decision };
    // Or the last that is told of the machine is that it has to be replaced.
    if is_back { back(&name, decision) } else { decision }
}

fn back(host: &str, decision: Decision) -> Decision {
    let message = format!("Host {host} is this machine's again. {}", decision.message);
    Decision { news: true, message, ..decision }
}

/// Whether the machine is up, by its host.
fn readiness(machine: &Metal3Machine, host: &BareMetalHost, up: bool) -> Said {
    let name = host.name_any();
    if machine.is_provisioned() {
        let lost = if host.metadata.deletion_timestamp.is_some() {
            "is being deleted"
        } else if host::is_told_what_to_install(host) {
            return Said::yes(Reason::Provisioned, "The host is installed");
        } else {
            "has no image any more: somebody took it away"
        };
        let text = format!("Host {name} {lost}; delete the Machine to have it replaced");
        return Said::no(Reason::HostLost, &text);
    }
    match host::error(host) {
        _ if up => Said::yes(Reason::Provisioned, "The host is installed"),
        Some(why) => Said::no(Reason::HostFailed, &format!("Host {name}: {why}")),
        None => match host::held_up(host) {
            Some(why) => {
                let text = format!("Host {name} is to be installed and {}", why.as_str());
                Said::no(Reason::Provisioning, &text)
            }
            None => Said::no(Reason::Provisioning, "The host is being installed"),
        },
    }
}

fn step(steps: Vec<Step>, reason: Reason, message: String) -> Decision {
    Decision {
        steps,
        message,
        news: true,
        again: Some(std::time::Duration::ZERO),
        ..Decision::rest(reason)
    }
}

fn rendered() -> Said {
    Said::yes(Reason::Provisioning, "The secrets are rendered")
}

/// The secrets that the host was told and the status does not name yet. What it names stays: the machine's spec may say
/// something else by now.
fn untold_secrets(seen: &MachineSeen, parent: &Machine) -> [Option<String>; 3] {
    let told = seen.machine.status.as_ref();
    let mut all = secrets(&seen.machine, parent, &seen.data);
    let known = told.map(|it| [&it.user_data, &it.meta_data, &it.network_data]);
    for (secret, known) in all.iter_mut().zip(known.into_iter().flatten()) {
        if known.is_some() {
            *secret = None;
        }
    }
    all
}

fn awaits_data(machine: &Metal3Machine) -> Said {
    let name = machine.metadata.name.as_deref().unwrap_or_default();
    Said::no(
        Reason::WaitingForData,
        &format!("The secrets of Metal3DataClaim {name} are not rendered yet"),
    )
}

/// How it came to its host, and why to that one, stays as it was said first.
fn associated(seen: &MachineSeen, host: &str) -> Said {
    let before = status::reported(&seen.machine, CONDITION_ASSOCIATED).filter(|it| it.is_true());
    let said_why =
        |reason: &Reason| before.is_some_and(|it| it.reason.as_deref() == Some(reason.as_str()));
    // Who was stopped between claim and report did not say whether the host was kept; the host does not say it any more.
    let known = [Reason::HostReused, Reason::HostClaimed].into_iter().find(said_why);
    if let (None, Some(claimed)) = (known, seen.claimed.as_ref().filter(|it| it.host == host)) {
        return Said::yes(claimed.reason, &claimed.message);
    }
    let reason = known.unwrap_or(Reason::HostAdopted);
    let text = format!("Host {host}");
    let said = before.and_then(|it| it.message.as_deref());
    let is_of_it = |said: &&str| said.strip_prefix(&text).is_some_and(|why| why.starts_with(':'));
    Said::yes(reason, said.filter(is_of_it).unwrap_or(&text))
}

/// A machine that had a host and has it no more.
pub(super) fn about_loss(seen: &MachineSeen, now: Timestamp) -> Decision {
    let machine = &seen.machine;
    let text = match &seen.host {
        HostSeen::None => "This machine was up and names no host any more".to_owned(),
        HostSeen::Gone(name) => format!("Host {name} is gone"),
        HostSeen::Here(host) if !is_same(machine, host) => {
            let name = host.name_any();
            format!("Host {name} is gone, and the one that has its name now is another")
        }
        HostSeen::Here(host) => match &host.spec.consumer_ref {
            None if runs(host) => format!(
                "Host {} was taken from this machine and is nobody's, and what was installed on it still runs: take its image off, or name this machine in its consumerRef again",
                host.name_any()
            ),
            None => format!("Host {} was taken from this machine and is free", host.name_any()),
            Some(other) => format!(
                "Host {} was taken from this machine: {} {} has it",
                host.name_any(),
                other.kind.as_deref().unwrap_or_default(),
                other.name.as_deref().unwrap_or_default()
            ),
        },
    };
    if let Some(name) = machine.host_name().filter(|_| !was_up(machine)) {
        if !seen.live {
            return look_closer(Reason::HostLost);
        }
        return give_up(seen, name, now);
    }
    told(seen, now, Reason::HostLost, &format!("{text}; delete the Machine to have it replaced"))
}

/// Whether it is or may be still running what a machine had installed on it.
fn runs(host: &BareMetalHost) -> bool {
    host::is_told_what_to_install(host) || host.provisioning_state().is_provisioned()
}

/// Every address of the host, and its names, each once.
fn addresses(host: &BareMetalHost) -> Vec<(&'static str, String)> {
    let hardware = host.status.as_ref().and_then(|status| status.hardware.as_ref());
    let Some(hardware) = hardware else { return Vec::new() };
    let mut seen = BTreeSet::new();
    let ips = hardware.nics.iter().filter_map(|nic| nic.ip.as_deref());
    let mut all: Vec<(&'static str, String)> = ips
        .filter(|ip| !ip.is_empty() && seen.insert(*ip))
        .map(|ip| ("InternalIP", ip.to_owned()))
        .collect();
    if let Some(name) = hardware.hostname.as_deref().filter(|name| !name.is_empty()) {
        all.truncate(ADDRESSES - 2);
        all.extend([("Hostname", name.to_owned()), ("InternalDNS", name.to_owned())]);
    }
    all.truncate(ADDRESSES);
    all
}
