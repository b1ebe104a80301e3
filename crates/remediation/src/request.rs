//! A request to remediate, of whichever group: what it asks for, and what is remembered on it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use api_types::ContractVersion;
use api_types::capi::is_paused;
use api_types::capm3::UpstreamRemediation;
use api_types::names;
use api_types::names::capm3::REMEDIATION_FINALIZER as THEIRS;
use api_types::names::ferrite::REMEDIATION_FINALIZER as OURS;
use api_types::names::ferrite::{CONDITION_SUCCEEDED, REMEDIATION_STANDING};
use api_types::remediation::{Metal3Remediation, Phase, Step, StrategyType};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use kube::api::ApiResource;
use serde::{Deserialize, Serialize};

use crate::reason::Reason;
use crate::text;

/// Tries after the first where nothing is said.
const RETRIES_DEFAULT: u32 = 1;
/// What a node may take where nothing is said.
pub(crate) const TIMEOUT_DEFAULT: Duration = Duration::from_secs(600);
/// Longer is a mistake: a machine would be neither here nor there for days.
const TIMEOUT_MAX: Duration = Duration::from_secs(24 * 3600);

/// Of which group a request is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Group {
    /// `remediation.metal3.io`.
    #[default]
    Ours,
    /// CAPM3's, in the version that is read.
    Upstream(ContractVersion),
}

impl Group {
    /// Its kind.
    pub fn resource(self) -> ApiResource {
        match self {
            Self::Ours => ApiResource::erase::<Metal3Remediation>(&()),
            Self::Upstream(version) => ApiResource::erase::<UpstreamRemediation>(&version),
        }
    }
}

/// The Machine that a request belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Owner {
    /// Its name.
    pub name: String,
    /// Its identity: a later Machine of this name has another one.
    pub uid: String,
}

/// A request, as far as decisions depend on it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Request {
    /// Its group.
    pub group: Group,
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Identity.
    pub uid: String,
    /// The version that writes insist on.
    pub version: String,
    /// Generation of the spec.
    pub generation: i64,
    /// Since when it is being deleted.
    pub deleting: Option<Timestamp>,
    /// Whether it is paused by its own annotation.
    pub paused: bool,
    /// Whether our finalizer is on it, or CAPM3's: something may have to be undone.
    pub finalizer: bool,
    /// Whether CAPM3's is on it: its controller was at work on it, and would go on.
    pub theirs: bool,
    /// Finalizers of others.
    pub others: Vec<String>,
    /// The status of the condition `Succeeded`, and since when it has it.
    pub transition: Option<(String, Timestamp)>,
    /// For which installation its watch label says that it is.
    pub label: Option<String>,
    /// The Machine that owns it, or nothing if a person made it.
    pub owner: Option<Owner>,
    /// The cluster that its label names.
    pub cluster: Option<String>,
    /// What to do.
    pub strategy: Result<Strategy, Said>,
    /// What is remembered.
    pub standing: Standing,
    /// Labels and annotations of a node that was deleted.
    pub backup: Option<Backup>,
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Strategy {
    /// Tries after the first.
    pub retries: u32,
    /// How long the node may take once the host is on.
    pub timeout: Duration,
}

impl Default for Strategy {
    fn default() -> Self {
        Self { retries: RETRIES_DEFAULT, timeout: TIMEOUT_DEFAULT }
    }
}

/// How far a request is: its status, and for CAPM3's kind an annotation for what that status has no room for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Standing {
    /// The mission's word.
    #[serde(skip)]
    pub phase: Option<Phase>,
    /// Tries after the first.
    #[serde(skip)]
    pub retries: u32,
    /// When the last try began.
    #[serde(skip)]
    pub last: Option<Timestamp>,
    /// How far the try is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<Step>,
    /// Since when.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// The condition `Succeeded`. A word that is not known says nothing.
    #[serde(flatten)]
    pub said: Option<Said>,
}

/// A condition.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Said {
    /// `Some` where it is decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub succeeded: Option<bool>,
    /// Why.
    pub reason: Reason,
    /// For people.
    #[serde(default)]
    pub message: String,
}

impl Said {
    /// Nothing is done for this reason.
    pub fn no(reason: Reason, message: impl Into<String>) -> Self {
        Self { succeeded: Some(false), reason, message: message.into() }
    }
}

/// What a node had that a new one of its name does not get by itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Backup {
    /// Labels as JSON.
    pub labels: String,
    /// Annotations as JSON.
    pub annotations: String,
}

impl Backup {
    /// Whether a node lacks any of these labels. What reads annotations does not wait for them.
    pub fn is_lacked_by(&self, node: &Self) -> bool {
        let read = |text: &str| -> BTreeMap<String, String> {
            serde_json::from_str(text).unwrap_or_default()
        };
        let there = read(&node.labels);
        read(&self.labels).keys().any(|it| !there.contains_key(it))
    }
}

impl Standing {
    /// The same with another word.
    #[must_use]
    pub fn saying(
        &self,
        succeeded: Option<bool>,
        reason: Reason,
        message: impl Into<String>,
    ) -> Self {
        let said = Some(Said { succeeded, reason, message: message.into() });
        Self { said, ..self.clone() }
    }

    /// The annotation for what CAPM3's status has no room for.
    pub fn rest(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Whether the node was back once, and nothing was tried since, be it that another try waits for something. The phase counts
    /// as well: of CAPM3's kind it is written first, and the rest may be that of the try before.
    pub fn has_succeeded(&self) -> bool {
        let said = self.said.as_ref().is_some_and(|it| it.succeeded == Some(true));
        (said || self.step == Some(Step::Done)) && self.phase == Some(Phase::Waiting)
    }

    /// Whether the host was back once and the node is awaited; since when.
    pub fn awaits_node(&self) -> Option<Timestamp> {
        let awaits = self.step == Some(Step::Recover) && self.phase == Some(Phase::Waiting);
        self.since.filter(|_| awaits)
    }

    /// Whether a try is under way: begun, and neither refused nor at its end.
    pub fn is_under_way(&self) -> bool {
        let begun = matches!(self.phase, Some(Phase::Running | Phase::Waiting));
        begun && self.step.is_some() && !self.has_succeeded()
    }

    /// Whether it has been handed over, or given up. CAPM3 says `Failed` as soon as its host is to be off, be it for a moment,
    /// and not why: that is no end, nor is it one that such a request was refused since, or what CAPM3 had begun undone.
    pub fn is_over(&self) -> bool {
        match self.phase {
            Some(Phase::DeletingMachine) => true,
            Some(Phase::Failed) => self.said.as_ref().is_some_and(|it| !it.reason.is_refusal()),
            _ => false,
        }
    }
}

/// Key of the annotation on the host of the request with this uid.
pub fn key_of(uid: &str) -> String {
    format!("{}{uid}", names::metal3::REBOOT_FOR_REMEDIATION)
}

impl Request {
    /// Key of our annotation on the host.
    pub fn key(&self) -> String {
        key_of(&self.uid)
    }

    /// Whether CAPM3's controller has begun with it, and we have not.
    pub fn is_others_work(&self) -> bool {
        self.group != Group::Ours && self.theirs
    }

    /// Name of the Machine.
    pub fn machine(&self) -> &str {
        self.owner.as_ref().map_or(&self.name, |it| &it.name)
    }

    /// Whether it is about this very Machine, and not about one that had its name before.
    pub fn is_about(&self, machine: &ObjectMeta) -> bool {
        self.owner.as_ref().is_none_or(|it| machine.uid.as_ref() == Some(&it.uid))
    }

    /// Reads one of ours.
    pub fn of_ours(object: &Metal3Remediation) -> Self {
        let status = object.status.clone().unwrap_or_default();
        let said = status.conditions.iter().find(|it| it.type_ == CONDITION_SUCCEEDED);
        let strategy = match &object.spec.strategy {
            None => Err(no_strategy()),
            Some(it) => strategy(
                it.r#type.as_ref(),
                it.requested_retries(),
                it.timeout.map_or(Ok(None), |timeout| {
                    let wrong = timeout.is_negative();
                    if wrong { Err("a negative time".to_owned()) } else { Ok(Some(timeout.into())) }
                }),
            ),
        };
        let standing = Standing {
            phase: status.phase,
            retries: u32::try_from(status.retry_count).unwrap_or(0),
            last: status.last_remediated.map(|it| it.0),
            step: status.step,
            since: status.since.map(|it| it.0),
            said: said.and_then(|it| {
                let succeeded = match it.status.as_str() {
                    "True" => Some(true),
                    "False" => Some(false),
                    _ => None,
                };
                let reason = Reason::parse(&it.reason)?;
                Some(Said { succeeded, reason, message: it.message.clone() })
            }),
        };
        let transition = said.map(|it| (it.status.clone(), it.last_transition_time.0));
        Self { transition, ..Self::of(Group::Ours, &object.metadata, strategy, standing) }
    }

    /// Reads one of CAPM3's.
    pub fn of_upstream(object: &UpstreamRemediation) -> Self {
        let status = object.status.clone().unwrap_or_default();
        let text = object.annotation(REMEDIATION_STANDING).unwrap_or("{}");
        let rest: Standing = serde_json::from_str(text).unwrap_or_default();
        let strategy = match &object.spec.strategy {
            None => Err(no_strategy()),
            Some(it) => {
                let kind = it.r#type.clone().map(StrategyType::from);
                strategy(kind.as_ref(), it.retry_limit, it.timeout())
            }
        };
        let standing = Standing {
            phase: status.phase.map(Phase::from),
            retries: status.retry_count.and_then(|it| u32::try_from(it).ok()).unwrap_or(0),
            last: status.last_remediated.map(|it| it.0),
            ..rest
        };
        Self::of(Group::Upstream(object.contract()), &object.metadata, strategy, standing)
    }

    fn of(
        group: Group,
        metadata: &ObjectMeta,
        strategy: Result<Strategy, Said>,
        standing: Standing,
    ) -> Self {
        let metadata = metadata.clone();
        let annotations = metadata.annotations.as_ref();
        let note = |key: &str| annotations.and_then(|all| all.get(key)).cloned();
        let backup = note(names::capm3::NODE_LABELS_BACKUP).map(|labels| Backup {
            labels,
            annotations: note(names::capm3::NODE_ANNOTATIONS_BACKUP).unwrap_or_default(),
        });
        let finalizers = metadata.finalizers.iter().flatten();
        let has = |name: &str| finalizers.clone().any(|it| it == name);
        let label = |key: &str| metadata.labels.as_ref().and_then(|all| all.get(key)).cloned();
        let owner = metadata.owner_references.iter().flatten().find(|it| {
            it.kind == "Machine" && it.api_version.split('/').next() == Some("cluster.x-k8s.io")
        });
        Self {
            group,
            paused: is_paused(&metadata),
            finalizer: has(OURS) || has(THEIRS),
            theirs: has(THEIRS),
            others: finalizers.filter(|it| *it != OURS && *it != THEIRS).cloned().collect(),
            transition: None,
            owner: owner.map(|it| Owner { name: it.name.clone(), uid: it.uid.clone() }),
            label: label(names::capi::WATCH_FILTER),
            cluster: label(names::capi::CLUSTER_NAME).filter(|it| !it.is_empty()),
            deleting: metadata.deletion_timestamp.map(|it| it.0),
            generation: metadata.generation.unwrap_or_default(),
            namespace: metadata.namespace.unwrap_or_default(),
            name: metadata.name.unwrap_or_default(),
            uid: metadata.uid.unwrap_or_default(),
            version: metadata.resource_version.unwrap_or_default(),
            strategy,
            standing,
            backup,
        }
    }
}

/// Who wrote the status of an object since this moment, where it is more than one, by the names that the API server knows
/// them by.
pub fn writers(metadata: &ObjectMeta, since: Timestamp) -> Option<String> {
    let all = metadata.managed_fields.iter().flatten().filter(|it| {
        let late = it.time.as_ref().is_some_and(|it| it.0 > since);
        late && it.subresource.as_deref() == Some("status")
    });
    let names: BTreeSet<&str> = all.filter_map(|it| it.manager.as_deref()).collect();
    (names.len() > 1).then(|| names.into_iter().collect::<Vec<_>>().join(", "))
}

fn no_strategy() -> Said {
    Said::no(Reason::StrategyMissing, text::NO_STRATEGY)
}

fn strategy(
    kind: Option<&StrategyType>,
    retries: Option<i32>,
    timeout: Result<Option<Duration>, String>,
) -> Result<Strategy, Said> {
    match kind {
        Some(StrategyType::Reboot) => {}
        None => {
            return Err(Said::no(Reason::StrategyMissing, text::NO_STRATEGY_TYPE));
        }
        Some(StrategyType::Other(word)) => {
            return Err(Said::no(Reason::StrategyUnknown, text::strategy_unknown(word)));
        }
    }
    let invalid = |text: String| Said::no(Reason::StrategyInvalid, text);
    let retries = match retries {
        None => RETRIES_DEFAULT,
        Some(asked) => {
            u32::try_from(asked).map_err(|_| invalid(text::retry_limit_invalid(asked)))?
        }
    };
    let timeout = timeout
        .map_err(|text| invalid(text::timeout_unreadable(&text)))?
        .unwrap_or(TIMEOUT_DEFAULT);
    if timeout.is_zero() || timeout > TIMEOUT_MAX {
        return Err(invalid(text::TIMEOUT_INVALID.to_owned()));
    }
    Ok(Strategy { retries, timeout })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn ours(strategy: &serde_json::Value) -> Result<Strategy, Reason> {
        let object = json!({
            "apiVersion": "remediation.metal3.io/v1alpha1", "kind": "Metal3Remediation",
            "metadata": {"name": "m"}, "spec": {"strategy": strategy},
        });
        Request::of_ours(&serde_json::from_value(object).unwrap())
            .strategy
            .map_err(|refusal| refusal.reason)
    }

    fn upstream(strategy: &serde_json::Value) -> Result<Strategy, Reason> {
        let object = json!({
            "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta2", "kind": "Metal3Remediation",
            "metadata": {"name": "m"}, "spec": {"strategy": strategy},
        });
        Request::of_upstream(&serde_json::from_value(object).unwrap())
            .strategy
            .map_err(|refusal| refusal.reason)
    }

    #[test]
    fn the_missions_examples_are_understood() {
        let asked = Strategy { retries: 3, timeout: Duration::from_secs(300) };
        let by = |limit: &str| json!({"type": "reboot", limit: 3, "timeout": "300s"});
        assert_eq!(ours(&by("retryLimit")), Ok(asked));
        assert_eq!(ours(&by("rebootLimit")), Ok(asked));
        let theirs = json!({"type": "Reboot", "retryLimit": 3, "timeout": "300s"});
        assert_eq!(upstream(&theirs), Ok(asked));
        let newer = json!({"type": "Reboot", "retryLimit": 3, "timeoutSeconds": 300});
        assert_eq!(upstream(&newer), Ok(asked));
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_a_reason() {
        let wrong = [
            (json!(null), Reason::StrategyMissing),
            (json!({"timeout": "300s"}), Reason::StrategyMissing),
            (json!({"type": "replace"}), Reason::StrategyUnknown),
            (json!({"type": "reboot", "retryLimit": -1}), Reason::StrategyInvalid),
            (json!({"type": "reboot", "timeout": "0s"}), Reason::StrategyInvalid),
            (json!({"type": "reboot", "timeout": "20000h"}), Reason::StrategyInvalid),
        ];
        for (strategy, reason) in wrong {
            assert_eq!(ours(&strategy), Err(reason), "{strategy}");
            assert_eq!(upstream(&strategy), Err(reason), "{strategy}");
        }
        let odd = json!({"type": "Reboot", "timeout": "soon"});
        assert_eq!(upstream(&odd), Err(Reason::StrategyInvalid));
    }

    #[test]
    fn a_second_controller_is_known_by_what_it_wrote_during_the_try() {
        let entry = |manager: &str, subresource: Option<&str>, second: i64| {
            let time = Timestamp::from_second(second).unwrap().to_string();
            json!({"manager": manager, "subresource": subresource, "time": time})
        };
        let seen = |other: serde_json::Value| {
            let own = entry("remediation", Some("status"), 110);
            let metadata = json!({"name": "m", "managedFields": [own, other]});
            writers(
                &serde_json::from_value(metadata).unwrap(),
                Timestamp::from_second(100).unwrap(),
            )
        };
        let both = seen(entry("manager", Some("status"), 105));
        assert_eq!(both.as_deref(), Some("manager, remediation"));
        assert_eq!(seen(entry("manager", Some("status"), 99)), None, "before it was taken over");
        assert_eq!(seen(entry("kubectl", None, 105)), None, "anybody may label it");
        assert_eq!(seen(entry("remediation", Some("status"), 105)), None);
    }

    #[test]
    fn a_label_that_names_no_cluster_is_none() {
        let cluster = |value: &str| {
            let object = json!({
                "apiVersion": "remediation.metal3.io/v1alpha1", "kind": "Metal3Remediation",
                "metadata": {"name": "m", "labels": {names::capi::CLUSTER_NAME: value}}, "spec": {},
            });
            Request::of_ours(&serde_json::from_value(object).unwrap()).cluster
        };
        assert_eq!((cluster("c").as_deref(), cluster("")), (Some("c"), None));
    }

    #[test]
    fn what_has_no_room_in_a_status_is_read_back_from_the_annotation() {
        let standing = Standing {
            step: Some(Step::Recover),
            since: Some(Timestamp::from_second(1_800_000_000).unwrap()),
            said: Some(Said {
                succeeded: Some(true),
                reason: Reason::Recovered,
                message: "said".to_owned(),
            }),
            ..Standing::default()
        };
        let object = json!({
            "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "Metal3Remediation",
            "metadata": {"name": "m", "annotations": {REMEDIATION_STANDING: standing.rest()}},
        });
        let read = Request::of_upstream(&serde_json::from_value(object).unwrap());
        assert_eq!(read.standing, standing);
        let written = r#"{"step":"recover","since":"2027-01-15T08:00:00Z","succeeded":true,"reason":"Recovered","message":"said"}"#;
        assert_eq!(standing.rest(), written);
        assert_eq!(Standing::default().rest(), "{}");
        let unknown: Standing =
            serde_json::from_str(&written.replace("Recovered", "Unheard")).unwrap();
        assert_eq!(unknown, Standing { said: None, ..standing });
    }
}
