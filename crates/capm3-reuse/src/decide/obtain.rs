//! How a machine comes to a host: what it asks for is checked, a host is chosen, the choice is written on the machine,
//! and then the host is claimed.

use std::time::Duration;

use api_types::capi::Machine;
use api_types::capm3::Metal3Machine;
use api_types::metal3::BareMetalHost;
use api_types::names;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt as _;
use serde_json::{Map, json};

use super::{
    Decision, Install, Reason, Step, look_closer, not_paused, reported, told, with_report,
};
use crate::config::Policy;
use crate::host;
use crate::index::Wants;
use crate::reservation::Kept;
use crate::seen::{Data, HostSeen, MachineSeen, Reuse};
use crate::selector::Selector;
use crate::status::{Report, Said};

/// How soon to look for a secret again: secrets are not watched.
const SECRET: Duration = Duration::from_secs(10);
/// Waiters are woken; this is for what nobody thought of.
const RESYNC: Duration = Duration::from_secs(300);
/// What the CRD accepts.
const PROVIDER_ID: usize = 512;

/// A machine that may have a host and has none.
pub(super) fn about_homeless(
    seen: &MachineSeen,
    parent: &Machine,
    policy: &Policy,
    now: Timestamp,
) -> Decision {
    let machine = &seen.machine;
    let selector = match Selector::read(&machine.spec.host_selector.clone().unwrap_or_default()) {
        Ok(selector) => selector,
        Err(why) => return told(seen, now, Reason::SelectorInvalid, &why),
    };
    if let Some(why) = wrong_image(machine) {
        return told(seen, now, Reason::ImageInvalid, &why);
    }
    if let Some(why) = foreign(machine) {
        return told(seen, now, Reason::ForeignNamespace, &why);
    }
    if let Reuse::Unreadable(why) = &seen.reuse {
        return told(seen, now, Reason::TemplateInvalid, why);
    }
    if seen.bootstrap_secret == Some(false) {
        let name = parent.spec.bootstrap.data_secret_name.as_deref().unwrap_or_default();
        let text = format!("Secret {name} with the bootstrap data is not there");
        let decision = told(seen, now, Reason::BootstrapSecretMissing, &text);
        return Decision { again: Some(SECRET), ..decision };
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
        return match named.filter(fits) {
            Some(host) => take(seen, parent, host, now, Vec::new()),
            None => give_up(seen, name, now),
        };
    }
    let mut first = Vec::new();
    if let Some(host) = named {
        if fits(&host) {
            return take(seen, parent, host, now, vec![intend(host)]);
        }
        // A claim of it may still be on its way, and would succeed.
        if host::looks_claimable(host) {
            first.push(Step::PassOver { host: host.name_any() });
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
    let reuses = seen.reuse == Reuse::On && seen.owner.is_some();
    let owner = seen.owner.as_ref().map(|owner| format!("{} {}", owner.kind, owner.name));
    let owner = owner.unwrap_or_default();
    if reuses {
        if let Some(host) = &choice.kept {
            first.push(intend(host));
            return take(seen, parent, host, now, first);
        }
        if let Some(host) = &choice.on_its_way {
            let text = format!("Host {host} is kept for {owner} and will be ready");
            return waits(seen, now, first, Reason::WaitingForKeptHost, &text, Wants::Kept);
        }
    }
    let unfit = choice.unfit.as_ref().filter(|_| reuses);
    let unfit = unfit.map(|(host, why)| format!("; host {host} is kept for it but {why}"));
    let unfit = unfit.unwrap_or_default();
    if reuses && policy.strict_reuse {
        let text = format!(
            "No host is kept for {owner}{unfit}; with --strict-reuse this machine gets no other: free one for it, or set nodeReuse to false"
        );
        return waits(seen, now, first, Reason::NoKeptHost, &text, Wants::OnlyKept);
    }
    if let Some(host) = &choice.free {
        first.push(intend(host));
        let mut decision = take(seen, parent, host, now, first);
        if reuses && decision.reason == Reason::HostClaimed {
            decision.news = true;
            decision.message = format!("{}: none is kept for {owner}{unfit}", decision.message);
        }
        return decision;
    }
    let text = format!(
        "No free host matches: one that is available, healthy, not paused and has the labels of hostSelector{unfit}"
    );
    waits(seen, now, first, Reason::NoHostAvailable, &text, Wants::Any)
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

/// Whether the host is the one that the machine named: one of the same name made later is another.
pub(super) fn is_same(machine: &Metal3Machine, host: &BareMetalHost) -> bool {
    let uid = machine.annotation(names::ferrite::HOST_UID);
    uid.is_none() || uid == host.metadata.uid.as_deref()
}

/// Whether this machine may claim this host now.
fn fits(seen: &MachineSeen, selector: &Selector, policy: &Policy, host: &BareMetalHost) -> bool {
    let reuses = seen.reuse == Reuse::On && seen.owner.is_some();
    let may_have = match Kept::of(host) {
        None => !(reuses && policy.strict_reuse),
        Some(kept) => reuses && seen.owner.as_ref().is_some_and(|owner| kept.is_for(owner)),
    };
    may_have && host::looks_claimable(host) && selector.matches(host.metadata.labels.as_ref())
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
    let id = provider_id(&seen.machine, &name);
    if id.len() > PROVIDER_ID {
        let text = format!(
            "The provider ID {id} would have {} bytes, {PROVIDER_ID} are allowed: use shorter names",
            id.len()
        );
        return told(seen, now, Reason::NameTooLong, &text);
    }
    let wants_data = seen.data != Data::NotWanted;
    let install = (!wants_data).then(|| install(&seen.machine, parent, &seen.data, host));
    steps.push(Step::Claim { host: name.clone(), install });
    let reason = if Kept::of(host).is_some() { Reason::HostReused } else { Reason::HostClaimed };
    let text = format!("Host {name}");
    let next = "The host is being installed";
    let report = Report {
        associated: Some(Said::yes(reason, &text)),
        ready: Some(Said::no(Reason::Provisioning, next)),
        paused: Some(not_paused()),
        ..Report::default()
    };
    with_report(seen, now, steps, reason, &text, &report)
}

/// The host that it was going to take is not to be had any more. Nothing else is done before the host was read again.
pub(super) fn give_up(seen: &MachineSeen, host: &str, now: Timestamp) -> Decision {
    let text = format!("Host {host} is not to be had any more");
    let steps = vec![Step::GiveUp { host: host.to_owned() }];
    let associated = Some(Said::no(Reason::HostGivenUp, &text));
    // An undisturbed second try needs no word of this.
    let report = if super::was_associated(&seen.machine) {
        Report { associated, ..Report::default() }
    } else {
        Report::default()
    };
    let decision = with_report(seen, now, steps, Reason::HostGivenUp, &text, &report);
    Decision { again: Some(Duration::ZERO), ..decision }
}

/// The machine's identity, in CAPM3's form.
pub(super) fn provider_id(machine: &Metal3Machine, host: &str) -> String {
    let namespace = machine.metadata.namespace.as_deref().unwrap_or_default();
    let name = machine.metadata.name.as_deref().unwrap_or_default();
    format!("metal3://{namespace}/{host}/{name}")
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
    if let Some(deploy) = &spec.custom_deploy {
        put("customDeploy", json!({ "method": deploy.method }));
    } else if let Some(image) = &spec.image {
        let mut told = json!({ "url": image.url });
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
        reference.as_ref().and_then(|it| it.name.clone())
    };
    let boot = parent.spec.bootstrap.data_secret_name.clone();
    let mut secrets = [boot, named(&machine.spec.meta_data), named(&machine.spec.network_data)];
    if let Data::Rendered { meta_data, network_data } = data {
        for (secret, rendered) in secrets[1..].iter_mut().zip([meta_data, network_data]) {
            if rendered.is_some() {
                secret.clone_from(rendered);
            }
        }
    }
    secrets
}

/// What is wrong with the image, if it is not somebody else's method that installs.
fn wrong_image(machine: &Metal3Machine) -> Option<String> {
    let spec = &machine.spec;
    if spec.custom_deploy.as_ref().is_some_and(|deploy| !deploy.method.is_empty()) {
        return None;
    }
    let Some(image) = &spec.image else {
        return Some(
            "spec.image is missing: name an image, or a method in spec.customDeploy".to_owned(),
        );
    };
    let Some((scheme, rest)) =
        image.url.split_once("://").filter(|(scheme, rest)| !scheme.is_empty() && !rest.is_empty())
    else {
        return Some(format!("spec.image.url {:?} is no URL", image.url));
    };
    let _ = rest;
    let checksum = image.checksum.as_deref().unwrap_or_default();
    let kind = image.checksum_type.as_deref().unwrap_or_default();
    if scheme.eq_ignore_ascii_case("oci") {
        let too_much = !checksum.is_empty() || !kind.is_empty();
        return too_much.then(|| {
            "spec.image: an image of a registry takes no checksum and no checksumType".to_owned()
        });
    }
    let needs_checksum = image.disk_format() != Some("live-iso");
    (needs_checksum && checksum.is_empty())
        .then(|| "spec.image.checksum is missing: give one, or use diskFormat live-iso".to_owned())
}

/// What names another namespace: secrets are read with the rights of whoever may write a host here.
fn foreign(machine: &Metal3Machine) -> Option<String> {
    let own = machine.metadata.namespace.as_deref().unwrap_or_default();
    let spec = &machine.spec;
    let secrets = [
        ("userData", &spec.user_data),
        ("metaData", &spec.meta_data),
        ("networkData", &spec.network_data),
    ];
    let secrets =
        secrets.iter().filter_map(|(field, it)| Some((*field, it.as_ref()?.namespace.as_deref()?)));
    let template = spec.data_template.as_ref().and_then(|it| it.namespace.as_deref());
    let mut all = secrets.chain(template.map(|it| ("dataTemplate", it)));
    let (field, other) = all.find(|(_, it)| !it.is_empty() && *it != own)?;
    Some(format!(
        "spec.{field}.namespace is {other:?}: only the machine's own namespace {own:?} may be named"
    ))
}
