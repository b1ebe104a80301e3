//! How a machine that is being deleted gives its host back. Needs the machine and its host, nothing else.
//!
//! The image goes in one write with the verdict for whom the host will be kept, so that owner and template may vanish
//! afterwards. While the host is cleared its consumer becomes that owner; when nothing is on it any more, the machine goes.

use api_types::capm3::Metal3Machine;
use api_types::metal3::{BareMetalHost, ProvisioningState};
use api_types::names;
use kube::ResourceExt as _;

use super::obtain::is_same;
use super::{Decision, Reason, Step, look_closer, was_associated};
use crate::host;
use crate::reservation::{self, Owner};
use crate::seen::{Data, HostSeen, MachineSeen, Verdict};

/// A machine that is being deleted.
pub(super) fn about_leaving(seen: &MachineSeen) -> Decision {
    let machine = &seen.machine;
    let finalizer = names::capm3::MACHINE_FINALIZER;
    if !machine.metadata.finalizers.iter().flatten().any(|it| it == finalizer) {
        return Decision::rest(Reason::LetGo);
    }
    if !seen.live {
        return look_closer(Reason::Releasing);
    }
    let host = match &seen.host {
        HostSeen::Here(host) => host,
        HostSeen::None | HostSeen::Gone(_) => return let_go(seen, Vec::new()),
    };
    if host::is_of(host, machine) {
        return about_own(seen, host);
    }
    if !is_same(machine, host) {
        return let_go(seen, Vec::new());
    }
    if was_associated(machine) {
        return match host.provisioning_state() {
            ProvisioningState::Deprovisioning => waits(host),
            _ => let_go(seen, Vec::new()),
        };
    }
    // It was never seen to have the host: a claim may still be on its way, and would succeed.
    let claimable = host::looks_claimable(host);
    let first = claimable.then(|| Step::PassOver { host: host.name_any() });
    let_go(seen, first.into_iter().collect())
}

/// The host is still its own.
fn about_own(seen: &MachineSeen, host: &BareMetalHost) -> Decision {
    let name = host.name_any();
    if host.annotation(names::metal3::PAUSED) == Some(names::capm3::PAUSED_BY_CAPM3) {
        let steps = vec![Step::Unpause { host: name }];
        return step(steps, Reason::Releasing, String::new());
    }
    let pending = reservation::pending(host);
    let verdict = pending.clone().unwrap_or_else(|| match &seen.verdict {
        Verdict::For(owner) => Some(owner.clone()),
        Verdict::Unasked | Verdict::Nobody(_) | Verdict::Unreadable(_) => None,
    });
    let fields = ours(&seen.machine, host);
    let installs = host::is_told_what_to_install(host);
    let undecided = pending.is_none() && (!fields.is_empty() || !is_cleared(host));
    if installs || undecided {
        let why = match (&pending, &seen.verdict) {
            (None, Verdict::Nobody(why)) => format!("it is kept for nobody: {why}"),
            (None, Verdict::Unreadable(why)) => format!("it is kept for nobody: {why}"),
            _ => kept_for(verdict.as_ref()),
        };
        let switch_off = host.spec.online && host.spec.disable_power_off != Some(true);
        // Whether disks are wiped is read when the host is cleared, so the last word must be there by then.
        let cleaning = seen.machine.spec.automated_cleaning_mode.clone();
        let cleaning = cleaning.filter(|it| Some(it) != host.spec.automated_cleaning_mode.as_ref());
        let steps = vec![Step::Clear { host: name.clone(), fields, switch_off, cleaning, verdict }];
        return step(steps, Reason::Releasing, format!("Host {name} is being cleared; {why}"));
    }
    let release = |keep_for: Option<Owner>| Step::Release {
        host: name.clone(),
        keep_for,
        annotations: annotations(host),
    };
    if is_cleared(host) {
        let reason = if verdict.is_some() { Reason::Reserved } else { Reason::Released };
        let text = format!("Host {name} is given back; {}", kept_for(verdict.as_ref()));
        let decision = let_go(seen, vec![release(verdict)]);
        return Decision { reason, message: text, news: true, ..decision };
    }
    let is_clearing = *host.provisioning_state() == ProvisioningState::Deprovisioning;
    if is_clearing && verdict.is_some() {
        let text = format!("Host {name} is being cleared; {}", kept_for(verdict.as_ref()));
        return step(vec![release(verdict)], Reason::Reserved, text);
    }
    waits(host)
}

fn kept_for(owner: Option<&Owner>) -> String {
    match owner {
        Some(owner) => format!("it is kept for {} {}", owner.kind, owner.name),
        None => "it is kept for nobody".to_owned(),
    }
}

fn waits(host: &BareMetalHost) -> Decision {
    let mut message = format!("Host {} is being cleared", host.name_any());
    if let Some(why) = host::exclusion(host) {
        message = format!("{message} and {}", why.as_str());
    }
    Decision { message, ..Decision::rest(Reason::Deprovisioning) }
}

fn step(steps: Vec<Step>, reason: Reason, message: String) -> Decision {
    Decision { news: !message.is_empty(), steps, message, ..Decision::rest(reason) }
}

/// Nothing of the machine is left on a host.
fn let_go(seen: &MachineSeen, mut steps: Vec<Step>) -> Decision {
    if !matches!(seen.data, Data::NotWanted | Data::NotAskedFor | Data::Unserved) {
        steps.push(Step::WithdrawData);
    }
    steps.push(Step::LetGo);
    Decision { steps, ..Decision::rest(Reason::LetGo) }
}

/// Whether nothing is on the host any more. A host that somebody else installed is never cleared, only switched off.
fn is_cleared(host: &BareMetalHost) -> bool {
    let external = *host.provisioning_state() == ProvisioningState::ExternallyProvisioned;
    let off = !host.status.as_ref().is_some_and(|status| status.powered_on);
    host::is_cleared(host) || (external && off)
}

/// Fields of the host's spec that were written for the machine. A network configuration that somebody gave the host
/// itself stays.
fn ours(machine: &Metal3Machine, host: &BareMetalHost) -> Vec<&'static str> {
    let (spec, templated) = (&machine.spec, machine.spec.data_template.is_some());
    let all = [
        ("image", host.spec.image.is_some()),
        ("customDeploy", host.spec.custom_deploy.is_some()),
        ("userData", host.spec.user_data.is_some()),
        ("metaData", host.spec.meta_data.is_some() && (templated || spec.meta_data.is_some())),
        (
            "networkData",
            host.spec.network_data.is_some() && (templated || spec.network_data.is_some()),
        ),
    ];
    all.iter().filter(|(_, is_set)| *is_set).map(|(field, _)| *field).collect()
}

/// Annotations on the host that are the machine's.
fn annotations(host: &BareMetalHost) -> Vec<String> {
    let ours = [
        names::ferrite::PENDING_RESERVATION,
        names::ferrite::PASSED_OVER_BY,
        names::capi::BLOCK_MOVE,
    ];
    let is_ours = |key: &&String| {
        ours.contains(&key.as_str()) || key.starts_with(names::metal3::REBOOT_FOR_REMEDIATION)
    };
    host.metadata
        .annotations
        .iter()
        .flatten()
        .map(|(key, _)| key)
        .filter(is_ours)
        .cloned()
        .collect()
}
