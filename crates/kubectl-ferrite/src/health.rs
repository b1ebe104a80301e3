//! What is wrong with an installed controller, from its objects. Pure.

use std::time::Duration;

use api_types::time::until;
use controller_kit::check::{RoleRule, RoleRules};
use controller_kit::crd::Needed;
use controller_kit::lease::LEADER_LACKS;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::jiff::Timestamp;
use serde::Serialize;

use crate::deployment::{Container, Deployment};
use crate::model::Look;
use crate::text;

/// A controller of this release, and what it needs.
pub(crate) struct Known {
    pub(crate) name: &'static str,
    pub(crate) needed: fn() -> Vec<Needed>,
    /// The rights of its account, as its chart has them.
    rules: &'static str,
}

macro_rules! known {
    ($($controller:ident),+) => {
        &[$(Known {
            name: $controller::settings::NAME,
            needed: $controller::settings::needed,
            rules: $controller::settings::RULES,
        }),+]
    };
}

/// The five.
pub(crate) const KNOWN: &[Known] =
    known![bmo_reboot, capm3_reuse, clusterpool_inventory, host_discovery, remediation];

/// A right that an account should have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Right {
    pub(crate) verb: String,
    pub(crate) group: String,
    /// With its subresource behind a slash.
    pub(crate) resource: String,
    pub(crate) name: Option<String>,
    pub(crate) namespace: Option<String>,
}

impl Right {
    pub(crate) fn shown(&self) -> String {
        let name = self.name.as_ref().map(|it| format!(" {it}")).unwrap_or_default();
        let group = if self.group.is_empty() { String::new() } else { format!(".{}", self.group) };
        let object = format!("{}{group}{name}", self.resource);
        text::right_on(&self.verb, &object, self.namespace.as_deref())
    }
}

impl Known {
    /// The rights that its chart gives an installation, in each of its namespaces; without one in all.
    pub(crate) fn rights(&self, it: &Installed) -> Vec<Right> {
        let rules = RoleRules::read(self.rules, |block| it.has_switch(block)).unwrap_or_default();
        let places: Vec<Option<String>> = it.namespaces.iter().cloned().map(Some).collect();
        let places = if places.is_empty() { vec![None] } else { places };
        let mut rights = Vec::new();
        for (rules, places) in [(&rules.namespaced, &places), (&rules.cluster, &vec![None])] {
            for rule in rules {
                for place in places {
                    rights_of(rule, place.as_ref(), &mut rights);
                }
            }
        }
        rights
    }
}

fn rights_of(rule: &RoleRule, namespace: Option<&String>, rights: &mut Vec<Right>) {
    let names: Vec<Option<String>> = rule.resource_names.iter().cloned().map(Some).collect();
    let names = if names.is_empty() { vec![None] } else { names };
    for group in &rule.api_groups {
        for resource in &rule.resources {
            for verb in &rule.verbs {
                rights.extend(names.iter().map(|name| Right {
                    verb: verb.clone(),
                    group: group.clone(),
                    resource: resource.clone(),
                    name: name.clone(),
                    namespace: namespace.cloned(),
                }));
            }
        }
    }
}

/// The flag that a chart gives its pods with a block of its values: `--scale-to-hosts` with `scaleToHosts`.
fn flag_of(block: &str) -> String {
    let mut flag = "--".to_owned();
    for letter in block.chars() {
        if letter.is_ascii_uppercase() {
            flag.push('-');
        }
        flag.push(letter.to_ascii_lowercase());
    }
    flag
}

/// A controller that is installed.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Installed {
    pub(crate) controller: &'static str,
    pub(crate) namespace: String,
    pub(crate) deployment: String,
    pub(crate) version: String,
    pub(crate) image: String,
    pub(crate) replicas: i32,
    pub(crate) ready: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) leader: Option<String>,
    #[serde(skip)]
    updated: i32,
    /// Its name; none where the controller runs without one.
    #[serde(skip)]
    pub(crate) lease: Option<String>,
    #[serde(skip)]
    pub(crate) account: String,
    #[serde(skip)]
    pub(crate) namespaces: Vec<String>,
    /// What its container is told.
    #[serde(skip)]
    arguments: Vec<String>,
}

/// What a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Weight {
    /// Something is wrong.
    Wrong,
    /// Something could not be looked at.
    Unread,
    /// It is worth to know.
    Note,
}

/// What is to be said of a controller.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Finding {
    /// The Deployment, where it is about one.
    pub(crate) deployment: String,
    pub(crate) namespace: String,
    /// Whether something is wrong.
    pub(crate) wrong: bool,
    /// Whether something could not be looked at.
    pub(crate) unread: bool,
    pub(crate) message: String,
}

impl Installed {
    /// A Deployment of one of the charts. The job that extends CRDs has another container.
    pub(crate) fn of(deployment: &Deployment) -> Option<Self> {
        let pod = &deployment.spec.template.spec;
        let is_of = |it: &Container, known: &Known| it.name == known.name;
        let (container, known) = pod
            .containers
            .iter()
            .find_map(|it| Some((it, KNOWN.iter().find(|known| is_of(it, known))?)))?;
        let argument = |name: &str| {
            container.args.iter().find_map(|it| it.strip_prefix(name)).map(str::to_owned)
        };
        let variable = |name: &str| {
            let found = container.env.iter().find(|it| it.name == name);
            found.and_then(|it| it.value.clone()).filter(|it| !it.is_empty())
        };
        let labels = deployment.metadata.labels.as_ref();
        let status = &deployment.status;
        let is_elected = variable("FERRITE_LEADER_ELECT").is_none_or(|it| it != "false");
        let lease = argument("--lease-name=").unwrap_or_else(|| format!("ferrite-{}", known.name));
        Some(Self {
            controller: known.name,
            namespace: deployment.metadata.namespace.clone().unwrap_or_default(),
            deployment: deployment.metadata.name.clone().unwrap_or_default(),
            version: labels
                .and_then(|it| it.get("app.kubernetes.io/version").cloned())
                .unwrap_or_default(),
            image: container.image.clone(),
            replicas: deployment.spec.replicas.unwrap_or(1),
            ready: status.ready_replicas,
            leader: None,
            updated: status.updated_replicas,
            lease: is_elected.then_some(lease),
            account: pod.service_account_name.clone().unwrap_or_else(|| "default".to_owned()),
            namespaces: variable("FERRITE_NAMESPACES")
                .map(|it| it.split(',').map(|it| it.trim().to_owned()).collect())
                .unwrap_or_default(),
            arguments: container.args.clone(),
        })
    }

    /// Whether a block of the chart's values is switched on.
    fn has_switch(&self, block: &str) -> bool {
        let flag = flag_of(block);
        self.arguments.iter().any(|it| *it == flag || *it == format!("{flag}=true"))
    }

    pub(crate) fn finding(&self, weight: Weight, message: String) -> Finding {
        let (deployment, namespace) = (self.deployment.clone(), self.namespace.clone());
        Finding { deployment, namespace, ..Finding::new(weight, message) }
    }

    /// What its Deployment says.
    pub(crate) fn pods(&self) -> Vec<Finding> {
        let wrong = |message| vec![self.finding(Weight::Wrong, message)];
        if self.replicas == 0 {
            return wrong(text::scaled_to_zero(&self.deployment));
        }
        if self.ready < self.replicas {
            return wrong(text::pods_not_ready(self.ready, self.replicas));
        }
        if self.updated < self.replicas {
            return wrong(text::pods_not_updated(self.updated, self.replicas));
        }
        Vec::new()
    }

    /// Who leads, by its lease. Without a clock whoever holds it leads.
    pub(crate) fn led(&mut self, lease: &Look<Lease>, now: Option<Timestamp>) -> Vec<Finding> {
        let Some(name) = self.lease.clone() else { return Vec::new() };
        let lease = match lease {
            Look::Here(lease) => lease,
            Look::Gone(_) if self.replicas == 0 => return Vec::new(),
            Look::Gone(_) => return vec![self.finding(Weight::Wrong, text::no_lease(&name))],
            Look::Forbidden(_, right) => {
                return vec![self.finding(Weight::Unread, text::not_checked(right))];
            }
            Look::Unreadable(object, why) => {
                return vec![self.finding(Weight::Wrong, text::unreadable(object, why))];
            }
            Look::Unasked | Look::Unserved(_) => return Vec::new(),
        };
        let spec = lease.spec.clone().unwrap_or_default();
        let holder = spec.holder_identity.filter(|it| !it.is_empty());
        let duration = spec.lease_duration_seconds.and_then(|it| u64::try_from(it).ok());
        let patience = Duration::from_secs(duration.unwrap_or(0));
        let silent = spec.renew_time.zip(now).map(|(it, now)| until(it.0, now));
        let is_led = holder.is_some() && silent.map_or(now.is_none(), |it| it <= patience);
        let mut findings = Vec::new();
        if is_led {
            self.leader = holder;
        } else if self.replicas > 0 {
            let silent = silent.map(text::age);
            findings
                .push(self.finding(Weight::Wrong, text::nobody_leads(&name, silent.as_deref())));
        }
        let annotations = lease.metadata.annotations.as_ref();
        if let Some(lacks) = annotations.and_then(|it| it.get(LEADER_LACKS)).filter(|_| is_led) {
            findings.push(self.finding(Weight::Wrong, text::leader_lacks(lacks)));
        }
        findings
    }
}

impl Finding {
    /// One that is about no Deployment.
    fn new(weight: Weight, message: String) -> Self {
        Self {
            deployment: String::new(),
            namespace: String::new(),
            wrong: weight == Weight::Wrong,
            unread: weight == Weight::Unread,
            message,
        }
    }
}

/// The versions that differ: of the controllers, and from that of this program, by whose needs they are judged.
pub(crate) fn skew(installed: &[Installed], own: &str) -> Option<Finding> {
    let mut versions: Vec<&str> = installed.iter().map(|it| it.version.as_str()).collect();
    versions.sort_unstable();
    versions.dedup();
    let message = match versions.as_slice() {
        [] => return None,
        [one] if *one == own => return None,
        [one] => text::other_version(own, one),
        many => text::mixed_versions(own, many),
    };
    Some(Finding::new(Weight::Note, message))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;
    use serde_json::{Value, json};

    use super::*;
    use crate::model::Object;

    const NOW: &str = "2026-01-01T00:14:00Z";

    fn deployment(ready: i32, updated: i32) -> Deployment {
        serde_json::from_value(json!({
            "metadata": {
                "name": "r-bmo-reboot", "namespace": "f",
                "labels": {"app.kubernetes.io/version": "0.1.0"},
            },
            "spec": {
                "replicas": 2, "selector": {},
                "template": {"spec": {
                    "serviceAccountName": "sa",
                    "containers": [{
                        "name": "bmo-reboot", "image": "x/bmo-reboot:0.1.0",
                        "args": ["--lease-name=own", "--concurrency=4"],
                        "env": [{"name": "FERRITE_NAMESPACES", "value": "a,b"}],
                    }],
                }},
            },
            "status": {"readyReplicas": ready, "updatedReplicas": updated},
        }))
        .unwrap()
    }

    fn installed(ready: i32, updated: i32) -> Installed {
        Installed::of(&deployment(ready, updated)).unwrap()
    }

    fn lease(holder: &str, renewed: &str, lacks: Option<&str>) -> Look<Lease> {
        let annotations = lacks.map_or(Value::Null, |it| json!({ LEADER_LACKS: it }));
        let lease = json!({
            "metadata": {"annotations": annotations},
            "spec": {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": renewed},
        });
        Look::Here(serde_json::from_value(lease).unwrap())
    }

    #[test]
    fn a_deployment_names_its_controller_lease_account_and_namespaces() {
        let it = installed(2, 2);
        assert_eq!((it.controller, it.version.as_str()), ("bmo-reboot", "0.1.0"));
        assert_eq!((it.lease.as_deref(), it.account.as_str()), (Some("own"), "sa"));
        assert_eq!(it.namespaces, ["a", "b"]);
        let mut other = deployment(2, 2);
        other.spec.template.spec.containers[0].name = "extend-crd".to_owned();
        assert_eq!(Installed::of(&other), None);
    }

    #[test]
    fn pods_that_are_missing_not_ready_or_old_are_wrong() {
        for (ready, updated, wanted) in [
            (2, 2, None),
            (1, 1, Some("1 of 2 pods are ready.")),
            (2, 1, Some("1 of 2 pods have the new version.")),
        ] {
            let said = installed(ready, updated).pods();
            let message = said.first().map(|it| it.message.as_str());
            assert_eq!(message.is_some(), wanted.is_some(), "{message:?}");
            assert!(message.unwrap_or_default().contains(wanted.unwrap_or_default()), "{said:?}");
        }
        let zero = Installed { replicas: 0, ..installed(0, 0) };
        assert!(zero.pods()[0].message.contains("scaled to 0"));
    }

    #[test]
    fn a_lease_says_who_leads_and_what_the_leader_lacks() {
        let now: Timestamp = NOW.parse().unwrap();
        let led = |lease: &Look<Lease>| {
            let mut it = installed(2, 2);
            let said = it.led(lease, Some(now)).into_iter();
            let said: Vec<String> = said.map(|it| it.message).collect();
            (it.leader, said.join(" "))
        };
        let recent = "2026-01-01T00:13:50.000000Z";
        let (leader, said) = led(&lease("pod-1", recent, None));
        assert_eq!((leader.as_deref(), said.as_str()), (Some("pod-1"), ""));
        let (leader, said) = led(&lease("pod-1", recent, Some("ironic")));
        assert!(leader.is_some() && said.contains("The leader lacks ironic."), "{said}");
        let (leader, said) = led(&lease("pod-1", "2026-01-01T00:10:00.000000Z", None));
        assert!(leader.is_none() && said.contains("was last renewed 4m ago"), "{said}");
        let unjudged = installed(2, 2).led(&lease("pod-1", recent, None), None);
        assert!(unjudged.is_empty(), "the answer had no time: {unjudged:?}");
        let (leader, said) = led(&lease("", recent, None));
        assert!(leader.is_none() && said.contains("No pod holds the Lease own"), "{said}");
        let object = Object::new("Lease", "f", "own");
        assert!(led(&Look::Gone(object.clone())).1.contains("Lease own does not exist"));
        let forbidden = Look::Forbidden(object, "get x".to_owned());
        let (_, said) = led(&forbidden);
        assert_eq!(said, "Not checked: you lack the right to get x.");
        let unseen = installed(2, 2).led(&forbidden, Some(now));
        assert_eq!((unseen[0].wrong, unseen[0].unread), (false, true));
    }

    #[test]
    fn each_right_of_a_chart_is_asked_for_once_a_namespace() {
        let rights = KNOWN[0].rights(&installed(2, 2));
        let shown: Vec<String> = rights.iter().map(Right::shown).collect();
        for wanted in [
            "patch baremetalhosts/status.metal3.io in namespace a",
            "patch baremetalhosts/status.metal3.io in namespace b",
            "watch customresourcedefinitions.apiextensions.k8s.io baremetalhosts.metal3.io in all namespaces",
        ] {
            assert_eq!(shown.iter().filter(|it| *it == wanted).count(), 1, "{wanted}: {shown:#?}");
        }
        for known in KNOWN {
            assert!(known.rights(&installed(2, 2)).len() > 4, "{}", known.name);
        }
    }

    #[test]
    fn a_right_behind_a_switch_is_asked_for_where_the_pod_has_its_flag() {
        let known = KNOWN.iter().find(|it| it.name == "capm3-reuse").unwrap();
        for (argument, is_asked) in [
            ("--concurrency=4", false),
            ("--scale-to-hosts=false", false),
            ("--scale-to-hosts=true", true),
            ("--scale-to-hosts", true),
        ] {
            let it = Installed { arguments: vec![argument.to_owned()], ..installed(2, 2) };
            let rights = known.rights(&it);
            let is_there = rights.iter().any(|it| it.resource == "machinedeployments/scale");
            assert_eq!(is_there, is_asked, "{argument}");
        }
    }

    /// A switch of a chart without a flag of its name would never be on.
    #[test]
    fn each_switch_of_a_chart_has_a_flag_of_its_name() {
        let flags = [
            bmo_reboot::settings::Cli::command(),
            capm3_reuse::settings::Cli::command(),
            clusterpool_inventory::settings::Cli::command(),
            host_discovery::settings::Cli::command(),
            remediation::settings::Cli::command(),
        ];
        for (known, flags) in KNOWN.iter().zip(flags) {
            let has = |block: &str| {
                let flag = flag_of(block);
                let mut flags = flags.get_arguments().filter_map(clap::Arg::get_long);
                assert!(flags.any(|it| flag.strip_prefix("--") == Some(it)), "{block}");
                true
            };
            assert!(RoleRules::read(known.rules, has).is_ok(), "{}", known.name);
        }
    }

    #[test]
    fn versions_that_differ_are_told_and_are_not_wrong() {
        let of = |versions: &[&str]| {
            let installed = |it: &&str| Installed { version: (*it).to_owned(), ..installed(2, 2) };
            let all: Vec<Installed> = versions.iter().map(installed).collect();
            skew(&all, "0.1.0").map(|it| (it.wrong, it.message.contains("0.2.0")))
        };
        assert_eq!((of(&[]), of(&["0.1.0", "0.1.0"])), (None, None));
        assert_eq!(of(&["0.2.0"]), Some((false, true)));
        assert_eq!(of(&["0.1.0", "0.2.0"]), Some((false, true)));
    }
}
