//! What is done with the host that a machine has, until the machine is up and after.

use std::collections::BTreeSet;

use api_types::capi::MachineAddress;
use api_types::capm3::Metal3Machine;
use api_types::metal3::BareMetalHost;
use api_types::names;
use controller_kit::engine::{Next, Reason as _};
use kube::ResourceExt as _;
use serde_json::json;

use super::obtain::{awaits_data, give_up, install, name_host};
use super::{
    CONDITION_ASSOCIATED, Case, RESYNC, UNWATCHED_AGAIN, entry, look_closer, node, not_paused,
    on_machine, reported, says, step, told, with_report,
};
use crate::machine::{intended, is_held, is_same, provider_id, was_associated, was_up};
use crate::model::{Decision, MachineSeen, Write};
use crate::reason::Reason;
use crate::seen::{Data, HostSeen};
use crate::status::{self, Report, Said};
use crate::{host, text};

/// What the schema of the machine's status takes.
const ADDRESSES: usize = 32;

/// The machine names the host, and has the finalizer, before anything else is done with it. Where nothing goes by that before the
/// machine is up, the write that says so then names it, and until then the intent does.
pub(super) fn adopt(case: &Case<'_>) -> Option<Decision> {
    let (host, machine) = (case.seen.own_host()?, case.machine);
    let name = host.name_any();
    let is_intent = machine.annotation(names::ferrite::INTENDS_HOST).is_some();
    let knows = intended(machine) == Some(&name)
        && (!is_intent || (case.seen.data == Data::NotWanted && has_no_id(machine)));
    if is_held(machine) && knows && is_same(machine, host) {
        return None;
    }
    let text = text::names_machine(&name);
    let mut decision = adopts(name_host(host), &text);
    // What was told of how it came to its host was told of another one. First, or the uid would not say that after a crash.
    if !is_same(machine, host) && was_associated(machine) {
        let associated = Some(Said::yes(Reason::HostAdopted, &text::host(&name)));
        let report = Report { associated, ..Report::default() };
        let told = status::patch(machine, &report, case.now).map(Write::Report);
        decision.writes.splice(0..0, told);
    }
    Some(decision)
}

fn has_no_id(machine: &Metal3Machine) -> bool {
    machine.spec.provider_id.as_deref().unwrap_or_default().is_empty()
}

/// After a move to another cluster every uid is another.
pub(super) fn claim_after_move(case: &Case<'_>) -> Option<Decision> {
    let host = case.seen.own_host()?;
    let uid = host.spec.consumer_ref.as_ref()?.uid.as_deref().filter(|uid| !uid.is_empty())?;
    if Some(uid) == case.machine.metadata.uid.as_deref() {
        return None;
    }
    Some(claim_again(host, &text::names_machine(&host.name_any())))
}

pub(super) fn lift_pause(case: &Case<'_>) -> Option<Decision> {
    let host = case.seen.own_host()?;
    let pause = host.annotation(names::metal3::PAUSED);
    let is_capm3s = pause == Some(names::capm3::PAUSED_BY_CAPM3);
    let name = host.name_any();
    let text = text::lifts_pause(&name);
    is_capm3s.then(|| adopts(Write::Unpause { host: name }, &text))
}

/// A machine and its host know each other.
pub(super) fn serve(case: &Case<'_>) -> Option<Decision> {
    let (seen, machine, now) = (case.seen, case.machine, case.now);
    let (host, (parent, cluster)) = (case.seen.own_host()?, case.parents()?);
    let name = host.name_any();
    let mut writes = Vec::new();
    let mut ready = None;
    let mut data_ready = None;
    let mut again = None;
    let mut references = Vec::new();
    let is_told = host::is_told_what_to_install(host);
    let up = host.provisioning_state().is_provisioned() && is_told;
    let has_no_id = has_no_id(machine);
    let by_host = readiness(machine, host, up);
    if !seen.is_to_be_installed() {
        if seen.data != Data::NotWanted {
            data_ready = Some(rendered());
        }
        if !machine.is_provisioned() {
            references = untold_secrets(seen);
        }
        let wanted = &seen.cleaning;
        // Where that is refused nothing else is written: that the machine is up comes first, and wakes it for this. Whose host is
        // lost says nothing but that.
        let comes_up = up && (has_no_id || !machine.is_provisioned());
        let is_lost = by_host.reason == Reason::HostLost;
        if !comes_up && !is_lost && wanted.is_some() && *wanted != host.spec.automated_cleaning_mode
        {
            let fields =
                [("automatedCleaningMode".to_owned(), json!(wanted))].into_iter().collect();
            writes.push(Write::Install { host: name.clone(), install: fields });
        }
    } else if let Some(lack) = entry::lack(seen, parent, cluster) {
        ready = Some(lack);
        again = entry::again(seen);
    } else {
        match &seen.data {
            Data::NotWanted | Data::Rendered { .. } => {
                let install = install(seen, host);
                writes.push(Write::Install { host: name.clone(), install });
                references = seen.secrets();
            }
            Data::NotAskedFor => {
                writes.push(Write::AskForData);
                ready = Some(awaits_data(machine));
            }
            Data::Awaited => ready = Some(awaits_data(machine)),
            Data::Withdrawn(what) => {
                ready = Some(Said::no(Reason::WaitingForData, what));
                again = Some(UNWATCHED_AGAIN);
            }
            Data::Failed(why) => ready = Some(Said::no(Reason::DataFailed, why)),
            // It is told before, with everything else that is missing.
            Data::Unserved => {}
        }
        data_ready = match (&seen.data, &ready) {
            (Data::Rendered { .. }, None) => Some(rendered()),
            _ => ready.clone(),
        };
    }
    if let Data::Rendered { name, .. } = &seen.data {
        references.push(("renderedData", name.clone()));
    }
    let ready = ready.unwrap_or(by_host);
    let mut report = Report {
        associated: Some(associated(seen, &name)),
        data_ready,
        paused: Some(not_paused()),
        references,
        ..Report::default()
    };
    if !machine.is_provisioned() && up {
        if !seen.live {
            return Some(look_closer(Reason::Provisioning));
        }
        report.provisioned = true;
        report.addresses = addresses(host);
    }
    if up && has_no_id {
        writes.push(Write::Identify {
            host: name.clone(),
            provider_id: provider_id(machine, &name),
            failure_domain: host::failure_domain(host)
                .filter(|domain| machine.spec.failure_domain.as_deref() != Some(domain))
                .map(str::to_owned),
        });
    }
    let node = node::about_node(seen, now);
    // Without its host it is not up, whatever is known of its Node.
    let doubt = seen.unreadable_owner.as_ref().map(|why| text::owner_unreadable(why));
    let doubt = doubt.map(|text| Said::yes(Reason::OwnerUnreadable, &text));
    // Nobody tells when it can be read.
    again = again.or(node.again).or(doubt.as_ref().map(|_| RESYNC));
    let ready = node.said.or(doubt).filter(|_| ready.holds).unwrap_or(ready);
    let (reason, text) = (ready.reason, ready.message.clone());
    let is_back = ready.holds && says(seen, Reason::HostLost);
    report.ready = Some(ready);
    let mut decision = with_report(seen, now, writes, (reason, &text), &report);
    if is_back {
        // Or the last that is told of the machine is that it has to be replaced.
        decision.events = vec![on_machine(reason, &text::is_back(&name, &text))];
    }
    decision.writes.extend(node.named.map(Write::NameNode));
    Some(Decision { next: again.map_or(Next::OnChange, Next::After), ..decision })
}

/// Whether the machine is up, by its host.
fn readiness(machine: &Metal3Machine, host: &BareMetalHost, up: bool) -> Said {
    let name = host.name_any();
    if machine.is_provisioned() {
        let lost = if host.metadata.deletion_timestamp.is_some() {
            text::host_deleting(&name)
        } else if host::is_told_what_to_install(host) {
            return Said::yes(Reason::Provisioned, text::INSTALLED);
        } else {
            text::image_gone(&name)
        };
        return Said::no(Reason::HostLost, &text::lost(&lost));
    }
    match host::error(host) {
        _ if up => Said::yes(Reason::Provisioned, text::INSTALLED),
        Some(why) => Said::no(Reason::HostFailed, &text::host_failed(&name, &why)),
        None => match host::held_up(host) {
            Some(why) => Said::no(Reason::Provisioning, &text::held_up(&name, why)),
            None => Said::no(Reason::Provisioning, text::INSTALLING),
        },
    }
}

fn rendered() -> Said {
    Said::yes(Reason::Provisioning, text::RENDERED)
}

/// The secrets that the host was told and the status does not name yet. What it names stays: the machine's spec may say
/// something else by now.
fn untold_secrets(seen: &MachineSeen) -> Vec<(&'static str, String)> {
    let told = seen.machine.status.as_ref();
    let is_told = |field: &str| told.is_some_and(|it| status::reference(it, field).is_some());
    seen.secrets().into_iter().filter(|(field, _)| !is_told(field)).collect()
}

/// How it came to its host, and why to that one, stays as it was said first: see [`adopt`].
fn associated(seen: &MachineSeen, host: &str) -> Said {
    let before = status::reported(&seen.machine, CONDITION_ASSOCIATED).filter(|it| it.is_true());
    let said_why =
        |reason: &Reason| before.is_some_and(|it| it.reason.as_deref() == Some(reason.as_str()));
    // Who was stopped between claim and report did not say whether the host was kept; the host does not say it any more.
    let known = [Reason::HostReused, Reason::HostClaimed].into_iter().find(said_why);
    if let (None, Some(claimed)) = (known, seen.claimed.as_ref().filter(|it| it.host == host)) {
        return Said::yes(claimed.reason, &claimed.message);
    }
    let text = text::host(host);
    let said = before.and_then(|it| it.message.as_deref()).filter(|_| known.is_some());
    Said::yes(known.unwrap_or(Reason::HostAdopted), said.unwrap_or(&text))
}

/// A machine that had a host and has it no more. One that was not up yet looks for another.
pub(super) fn lost(case: &Case<'_>) -> Option<Decision> {
    let (seen, machine) = (case.seen, case.machine);
    let was_up = was_up(machine);
    let had_one = was_associated(machine) && !matches!(seen.host, HostSeen::None);
    if !was_up && !had_one {
        return None;
    }
    if let Some(name) = machine.host_name().filter(|_| !was_up) {
        if !seen.live {
            return Some(look_closer(Reason::HostLost));
        }
        return Some(match case.seen.host.here().filter(|host| installs_for(case, host)) {
            Some(host) if is_nobodys(host) => {
                claim_again(host, &text::takes_back(&host.name_any()))
            }
            // It still has the host as far as it has not given it up: the image may go, or the reference come back.
            Some(host) => {
                let text = text::still_installs(host);
                let stays = |report: &mut Report| report.associated = None;
                reported(seen, case.now, Reason::HostLost, &text, stays)
            }
            None => give_up(seen, name, case.now),
        });
    }
    Some(told(case, Reason::HostLost, &text::lost(&text::loss(machine, &seen.host))))
}

/// Whether the host is still told to install what the machine begins with, whoever has it now. It would boot all the same, and
/// with another host beside it there were two servers of one identity.
fn installs_for(case: &Case<'_>, host: &BareMetalHost) -> bool {
    let boot =
        case.parents().and_then(|(parent, _)| parent.spec.bootstrap.data_secret_name.as_ref());
    let told = host.spec.user_data.as_ref().and_then(|it| it.name.as_ref());
    is_same(case.machine, host)
        && host::is_told_what_to_install(host)
        && told.is_some()
        && told == boot
}

fn is_nobodys(host: &BareMetalHost) -> bool {
    host.spec.consumer_ref.is_none() && host.metadata.deletion_timestamp.is_none()
}

/// The host is the machine's as far as it goes by its name, or is to be that again.
fn claim_again(host: &BareMetalHost, text: &str) -> Decision {
    adopts(Write::Claim { host: host.name_any(), install: None, claimed: None }, text)
}

fn adopts(write: Write, text: &str) -> Decision {
    step(write, Reason::HostAdopted, on_machine(Reason::HostAdopted, text))
}

/// Every address of the host, and its names, each once.
fn addresses(host: &BareMetalHost) -> Vec<MachineAddress> {
    let hardware = host.status.as_ref().and_then(|status| status.hardware.as_ref());
    let Some(hardware) = hardware else { return Vec::new() };
    let address = |kind: &str, address: &str| MachineAddress {
        r#type: kind.to_owned(),
        address: address.to_owned(),
        ..MachineAddress::default()
    };
    let mut seen = BTreeSet::new();
    let ips = hardware.nics.iter().filter_map(|nic| nic.ip.as_deref());
    let ips = ips.filter(|ip| !ip.is_empty() && seen.insert(*ip));
    let mut all: Vec<_> = ips.map(|ip| address("InternalIP", ip)).collect();
    if let Some(name) = hardware.hostname.as_deref().filter(|name| !name.is_empty()) {
        all.truncate(ADDRESSES - 2);
        all.extend([address("Hostname", name), address("InternalDNS", name)]);
    }
    all.truncate(ADDRESSES);
    all
}
