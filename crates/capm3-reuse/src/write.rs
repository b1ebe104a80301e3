//! All writes. Each insists on the version of the object that was observed, or that our last write left.

use std::time::Instant;

use api_types::capm3::{Metal3DataClaim, Metal3DataClaimSpec, Metal3Machine};
use api_types::names;
use api_types::names::ferrite::{GIVES_UP_HOST, HOST_UID, INTENDS_HOST, RESERVED_HOST_UID};
use api_types::names::metal3::HOST;
use api_types::reference::ObjectRef;
use controller_kit::api_error::unless_gone;
use controller_kit::backoff::Class as Retry;
use controller_kit::engine::{
    Error, Event, Next, ObjectKey, Outcome, Reason as _, asked, sent, written,
};
use controller_kit::events::shorten;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Resource, ResourceExt as _};
use serde_json::{Map, Value, json};

use crate::context::Context;
use crate::decide::refused;
use crate::index::Wants;
use crate::machine::created;
use crate::model::{Claimed, Key, MachineSeen, Memory, Observed, Seen, ToldRefusal, Write};
use crate::observe::wish;
use crate::reason::Reason;
use crate::reservation::{self, Owner};
use crate::seen::Node;

/// What of a refusal is told, in bytes: some repeat the whole object.
const MESSAGE: usize = 1024;

/// Makes one write, and takes notice of what became of it.
pub async fn write(
    context: &Context,
    key: &Key,
    seen: &Seen,
    write: &Write,
    memory: &mut Memory,
) -> Result<Outcome, Error> {
    // Who stood still for so long, as while a process is stopped, goes by what it read before that.
    if Instant::now() >= seen.until {
        return Err(Error::Superseded);
    }
    let (host, before) = match write {
        Write::Claim { host, .. } | Write::PassOver { host, .. } => {
            (Some(host), memory.tries(host))
        }
        _ => (None, None),
    };
    let mut pass = Pass { context, key, seen, memory, left: None, found: false };
    let done = pass.write(write).await;
    if let Some(host) = host {
        pass.memory.tried(host, before, done.as_ref().err(), Instant::now());
    }
    match done {
        Ok(()) => Ok(pass.done(write)),
        Err(error)
            if error.is_refusal() && matches!(write, Write::PassOver { insists: false, .. }) =>
        {
            Ok(Outcome::default())
        }
        Err(error) => {
            if matches!(error, Error::Superseded) {
                context.metrics.superseded();
            }
            if is_told(&error, write) {
                pass.tell_refusal(&error).await;
            }
            Err(error)
        }
    }
}

/// Whether the machine says why this write of it failed. A single one without an answer is told as well: the next write that
/// is made takes that back, and until then no other host is sought.
fn is_told(error: &Error, write: &Write) -> bool {
    error.may_last() && !matches!(write, Write::Report(_) | Write::NameNode(_))
}

/// One write of a pass.
struct Pass<'a> {
    context: &'a Context,
    key: &'a Key,
    seen: &'a Seen,
    memory: &'a mut Memory,
    /// The version of the key's object after it.
    left: Option<String>,
    /// Whether what the machine waits for is there already.
    found: bool,
}

impl<'a> Pass<'a> {
    /// What is known of the machine. Nothing that is decided about a host is about one.
    fn machine_seen(&self) -> Result<&'a MachineSeen, Error> {
        match &self.seen.observed {
            Observed::Machine(seen) => Ok(seen),
            Observed::Kept(_) | Observed::Left(_) | Observed::Scaled(_) => Err(Error::Superseded),
        }
    }

    fn machine(&self) -> Result<&'a Metal3Machine, Error> {
        Ok(&self.machine_seen()?.machine)
    }

    /// The cluster of the machine.
    fn cluster(&self) -> &'a str {
        let parent = self.machine_seen().ok().and_then(|seen| seen.parent.here());
        parent.map_or("", |parent| &parent.spec.cluster_name)
    }

    fn machine_key(&self) -> Key {
        Key::Machine(self.key.object().clone())
    }

    fn name(&self) -> &'a str {
        &self.key.object().name
    }

    fn namespace(&self) -> &'a str {
        &self.key.object().namespace
    }

    /// What follows from a write that was made.
    fn done(&mut self, write: &Write) -> Outcome {
        let mut events = Vec::new();
        match write {
            Write::Claim { claimed: Some(claimed), .. } => events.extend(self.claimed(claimed)),
            Write::Report(_) => self.memory.claimed = None,
            Write::Free { why, .. } => self.context.metrics.dropped(*why),
            // Another number has its own time.
            Write::Scale { .. } => self.memory.settles(None, Instant::now()),
            _ => {}
        }
        let next = self.found.then_some(Next::Now);
        Outcome { version: self.left.take(), events, next, ..Outcome::default() }
    }

    /// The machine has a new host.
    fn claimed(&mut self, claimed: &Claimed) -> Option<Event> {
        let Claimed { host, reason, message, is_news } = claimed;
        self.context.index.with(|index| index.took(self.namespace(), host));
        self.memory.has_host();
        self.memory.claimed = Some(claimed.clone());
        let born = self.machine().map(created).unwrap_or_default();
        let age = Timestamp::now().duration_since(born).as_secs_f64();
        self.context.metrics.claimed(*reason == Reason::HostReused, age.max(0.0));
        is_news.then(|| Event::new(reason.is_warning(), reason.as_str(), "Assign", message))
    }

    /// The machine says what the API server refused to it.
    async fn tell_refusal(&mut self, error: &Error) {
        let Ok(seen) = self.machine_seen() else { return };
        let generation = seen.machine.metadata.generation;
        let refusal = ToldRefusal { generation, is_final: error.retry() == Retry::Invalid };
        let why = shorten(&error.to_string(), MESSAGE);
        let report = refused(seen, refusal, &why, Timestamp::now());
        let is_told = match report {
            // What it was refused first is what is told and tried again.
            Some(report) => self.write(&report).await.is_ok(),
            None => true,
        };
        if is_told {
            self.memory.told = self.memory.told.max(Some(refusal));
        }
    }

    async fn write(&mut self, write: &Write) -> Result<(), Error> {
        match write {
            Write::Intend { .. } | Write::Name { .. } => {
                let mut finalizers =
                    self.machine()?.metadata.finalizers.clone().unwrap_or_default();
                if !finalizers.iter().any(|it| it == names::capm3::MACHINE_FINALIZER) {
                    finalizers.push(names::capm3::MACHINE_FINALIZER.to_owned());
                }
                let notes = notes_of_host(write, self.namespace());
                let metadata = json!({ "annotations": notes, "finalizers": finalizers });
                self.write_machine(json!({ "metadata": metadata })).await
            }
            Write::GiveUp { .. } | Write::Forget => {
                let notes = notes_of_host(write, self.namespace());
                self.write_machine(json!({ "metadata": { "annotations": notes } })).await
            }
            Write::Identify { provider_id, failure_domain, .. } => {
                let mut spec = json!({ "providerID": provider_id });
                if let Some(domain) = failure_domain {
                    spec["failureDomain"] = json!(domain);
                }
                let metadata = json!({ "annotations": notes_of_host(write, self.namespace()) });
                self.write_machine(json!({ "metadata": metadata, "spec": spec })).await
            }
            Write::LetGo => {
                let all = self.machine()?.metadata.finalizers.iter().flatten();
                let others: Vec<&String> =
                    all.filter(|it| *it != names::capm3::MACHINE_FINALIZER).collect();
                self.write_machine(json!({ "metadata": { "finalizers": others } })).await
            }
            Write::Report(status) => {
                let patch = json!({ "status": status });
                let what = "patch the status of a Metal3Machine";
                self.patch(self.machine_key(), Some("status"), what, patch).await
            }
            Write::AskForData => self.ask_for_data().await,
            Write::WithdrawData => self.withdraw_data().await,
            Write::Claim { host, install, .. } => {
                let version = &self.context.served.infrastructure;
                let mut consumer = json!(self.machine()?.object_ref(version));
                // Whatever the reference before had and ours has not.
                for field in ["fieldPath", "resourceVersion"] {
                    consumer[field] = Value::Null;
                }
                let mut spec = install.clone().unwrap_or_default();
                spec.insert("consumerRef".to_owned(), consumer);
                let labels = json!({
                    names::capi::CLUSTER_NAME: self.cluster(),
                    names::capm3::NODE_REUSE: null,
                });
                let metadata = json!({ "labels": labels, "annotations": without_notes() });
                self.write_host(host, metadata, Value::Object(spec)).await
            }
            Write::Install { host, install } => {
                self.write_host(host, json!({}), Value::Object(install.clone())).await
            }
            Write::Unpause { host } => {
                let metadata = json!({ "annotations": { names::metal3::PAUSED: null } });
                self.write_host(host, metadata, json!({})).await
            }
            Write::PassOver { host, .. } => {
                // Different each time, or the version would not move.
                let by = format!(
                    "{}/{}",
                    self.machine()?.uid().unwrap_or_default(),
                    self.version(self.key).unwrap_or_default()
                );
                let metadata = json!({ "annotations": { names::ferrite::PASSED_OVER_BY: by } });
                self.write_host(host, metadata, json!({})).await
            }
            Write::Clear { host, fields, switch_off, cleaning, verdict, uid } => {
                let mut spec: Map<String, Value> =
                    fields.iter().map(|field| ((*field).to_owned(), Value::Null)).collect();
                if *switch_off {
                    spec.insert("online".to_owned(), json!(false));
                }
                if let Some(mode) = cleaning {
                    spec.insert("automatedCleaningMode".to_owned(), json!(mode));
                }
                let pending = reservation::as_pending(verdict.as_ref(), self.namespace());
                let annotations = json!({
                    names::ferrite::PENDING_RESERVATION: pending,
                    names::ferrite::PENDING_RESERVATION_OF: self.name(),
                    RESERVED_HOST_UID: uid,
                });
                let metadata = json!({ "annotations": annotations });
                self.write_host(host, metadata, Value::Object(spec)).await
            }
            Write::Release { host, keep_for, uid, annotations } => {
                let gone = annotations.iter().map(|key| (key.clone(), Value::Null));
                let uid = uid.iter().map(|uid| (RESERVED_HOST_UID.to_owned(), json!(uid)));
                let annotations: Map<String, Value> = gone.chain(uid).collect();
                let labels = json!({
                    names::capi::CLUSTER_NAME: null,
                    names::capm3::NODE_REUSE: keep_for.as_ref().map(Owner::label),
                });
                let consumer = keep_for.as_ref().map(|owner| owner.reference(self.namespace()));
                let mut consumer = json!(consumer);
                if consumer.is_object() && consumer.get("uid").is_none() {
                    consumer["uid"] = Value::Null;
                }
                let metadata = json!({ "labels": labels, "annotations": annotations });
                self.write_host(host, metadata, json!({ "consumerRef": consumer })).await
            }
            Write::Free { host, .. } => {
                self.write_host(host, of_free_host(), json!({ "consumerRef": null })).await
            }
            Write::NameNode(node) => self.name_node(node).await,
            // By the version it is known how many there were.
            Write::Scale { replicas } => {
                let patch = json!({ "spec": { "replicas": replicas } });
                self.patch(self.key.clone(), Some("scale"), "scale to hosts", patch).await
            }
            Write::Wait(wants) => self.wait(*wants),
        }
    }

    /// The machine waits its turn, if it is known for what.
    fn wait(&mut self, wants: Wants) -> Result<(), Error> {
        if let Some(wish) = wish(self.machine_seen()?) {
            self.found = self.context.index.with(|index| index.wait(wish, wants));
        }
        Ok(())
    }

    /// The version of an object, as observed or as our last write left it.
    fn version(&self, object: &Key) -> Option<String> {
        self.seen.versions.with(|all| all.get(object).cloned())
    }

    /// Patches an object, or the part of it that is written apart, and insists on that version. One that was not observed has
    /// none to insist on: nothing must be written to it.
    async fn patch(
        &mut self,
        object: Key,
        part: Option<&str>,
        what: &'static str,
        mut patch: Value,
    ) -> Result<(), Error> {
        let version = self.version(&object).ok_or(Error::Superseded)?;
        patch["metadata"]["resourceVersion"] = json!(version);
        let (patch, params) = (Patch::Merge(patch), PatchParams::default());
        let (api, name) = (self.context.written(&object), &object.object().name);
        let sent = async {
            Ok(match part {
                Some(part) => api.patch_subresource(part, name, &params, &patch).await?.metadata,
                None => api.patch_metadata(name, &params, &patch).await?.metadata,
            })
        };
        let written = written(what, sent).await;
        if matches!(written, Err(Error::Superseded)) {
            self.memory.superseded(object.clone(), &version);
        }
        let Some(left) = written?.resource_version else { return Ok(()) };
        self.left = (object == *self.key).then(|| left.clone());
        self.memory.echoes.wrote(object.clone(), &left, true);
        self.seen.versions.with(|all| all.insert(object, left));
        Ok(())
    }

    async fn write_machine(&mut self, patch: Value) -> Result<(), Error> {
        self.patch(self.machine_key(), None, "patch a Metal3Machine", patch).await
    }

    async fn write_host(&mut self, name: &str, metadata: Value, spec: Value) -> Result<(), Error> {
        let host = Key::Host(ObjectKey::new(self.namespace(), name));
        let patch = json!({ "metadata": metadata, "spec": spec });
        self.patch(host, None, "patch a BareMetalHost", patch).await
    }

    async fn ask_for_data(&self) -> Result<(), Error> {
        let (machine, version) = (self.machine()?, self.context.served.infrastructure);
        let template = ObjectRef {
            name: machine.spec.data_template.as_ref().and_then(|it| it.name.clone()),
            namespace: Some(self.namespace().to_owned()),
            ..ObjectRef::default()
        };
        let spec = Metal3DataClaimSpec { template, ..Metal3DataClaimSpec::default() };
        let mut claim = Metal3DataClaim::new(self.namespace(), self.name(), spec);
        claim.api_version = Some(format!("{}/{version}", names::capm3::GROUP));
        // Whoever sees the machine, by whatever filter, is to see its claim.
        let filter = machine.label(names::capi::WATCH_FILTER);
        let filter = filter.map(|it| (names::capi::WATCH_FILTER.to_owned(), it.to_owned()));
        let cluster = (names::capi::CLUSTER_NAME.to_owned(), self.cluster().to_owned());
        claim.metadata.labels = Some(filter.into_iter().chain([cluster]).collect());
        claim.metadata.owner_references =
            Some(machine.controller_owner_ref(&version).into_iter().collect());
        let claims: Api<Metal3DataClaim> = self.context.metal3(self.namespace());
        match sent("make a Metal3DataClaim", claims.create(&PostParams::default(), &claim)).await {
            // No version is asked for, so it can only be the name.
            Ok(_) | Err(Error::Superseded) => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn withdraw_data(&self) -> Result<(), Error> {
        let claims: Api<Metal3DataClaim> = self.context.metal3(self.namespace());
        let name = self.name();
        let named = ListParams::default().fields(&format!("metadata.name={name}"));
        let listed = asked("read a Metal3DataClaim", claims.list_metadata(&named)).await?;
        let Some(claim) = listed.items.into_iter().next() else { return Ok(()) };
        // What comes late must not take a later claim's addresses from a machine that runs with them.
        let seen = &self.machine_seen()?.claim;
        if seen.is_some() && *seen != claim.metadata.uid {
            return Err(Error::Superseded);
        }
        if let Some(patch) = without_finalizer_of_capm3(&claim.metadata) {
            let params = PatchParams::default();
            let request = claims.patch_metadata(name, &params, &patch);
            written("patch a Metal3DataClaim", request).await?;
        }
        let uid = Preconditions { uid: claim.metadata.uid, ..Preconditions::default() };
        let params = DeleteParams { preconditions: Some(uid), ..DeleteParams::default() };
        let deletion = async { unless_gone(claims.delete(name, &params).await) };
        sent("delete a Metal3DataClaim", deletion).await.map(drop)
    }

    /// Gives a Node of a workload cluster its provider ID. One that says another by now, and one made anew, has another version.
    async fn name_node(&self, node: &Node) -> Result<(), Error> {
        let Node { name, version, provider_id, .. } = node;
        let nodes = self.seen.nodes.as_ref().ok_or(Error::Superseded)?;
        let patch = Patch::Merge(json!({
            "metadata": { "resourceVersion": version },
            "spec": { "providerID": provider_id },
        }));
        let params = PatchParams::default();
        let request = nodes.patch_metadata(name, &params, &patch);
        written("patch a Node of the workload cluster", request).await?;
        tracing::info!(
            object.namespace = self.namespace(),
            object.name = self.name(),
            node.name = name,
            provider_id,
            "A Node got its provider ID"
        );
        Ok(())
    }
}

/// What stands on a machine of its host after a write; what is left out stays as it is. The first is CAPM3's, which takes that host
/// for one that the machine has.
fn notes_of_host(write: &Write, namespace: &str) -> Value {
    let full = |host: &str| format!("{namespace}/{host}");
    match write {
        Write::Intend { host, uid } => {
            json!({ HOST: null, INTENDS_HOST: host, GIVES_UP_HOST: null, HOST_UID: uid })
        }
        Write::Name { host, uid } => {
            json!({ HOST: full(host), INTENDS_HOST: null, GIVES_UP_HOST: null, HOST_UID: uid })
        }
        Write::Identify { host, .. } => json!({ HOST: full(host), INTENDS_HOST: null }),
        Write::GiveUp { host } => json!({ HOST: null, INTENDS_HOST: null, GIVES_UP_HOST: host }),
        Write::Forget => json!({ GIVES_UP_HOST: null, HOST_UID: null }),
        _ => json!({}),
    }
}

/// CAPM3's controller of machines left its finalizer on the claims that it made. It takes that off only while the machine goes, and
/// not at all where it does not see the machine; and then nothing of the claim would ever go.
fn without_finalizer_of_capm3(claim: &ObjectMeta) -> Option<Patch<Value>> {
    let all = claim.finalizers.as_ref()?;
    let others: Vec<&String> =
        all.iter().filter(|it| *it != names::capm3::MACHINE_FINALIZER).collect();
    let metadata = json!({ "resourceVersion": claim.resource_version, "finalizers": others });
    (others.len() < all.len()).then(|| Patch::Merge(json!({ "metadata": metadata })))
}

/// What is told of a reservation, or of a claim that was not made, is old where a host begins anew.
fn without_notes() -> Value {
    json!({
        names::ferrite::PASSED_OVER_BY: null,
        names::ferrite::PENDING_RESERVATION: null,
        names::ferrite::PENDING_RESERVATION_OF: null,
        RESERVED_HOST_UID: null,
    })
}

/// The metadata of a host that is kept for nobody any more.
fn of_free_host() -> Value {
    json!({ "labels": { names::capm3::NODE_REUSE: null }, "annotations": without_notes() })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::context::tests::{no_caches, nowhere};
    use crate::decide::tests::host;
    use crate::model::LeftSeen;

    #[test]
    fn a_webhook_that_hangs_is_told_like_a_refusal() {
        let forget = Write::Forget;
        let failed = |code: u16| {
            let status = kube::core::Status::failure("why", "").with_code(code);
            Error::Api {
                what: "patch a machine",
                source: Box::new(kube::Error::Api(status.boxed())),
            }
        };
        assert!(is_told(&Error::Silent("patch a machine"), &forget));
        assert!(is_told(&failed(403), &forget) && !is_told(&failed(500), &forget));
        // What could not be told is not told in the same way.
        let report = Write::Report(Value::Null);
        assert!(!is_told(&Error::Silent("patch a status"), &report));
    }

    #[tokio::test]
    async fn a_pass_that_stood_still_for_longer_than_it_may_take_writes_nothing() {
        let context = nowhere(no_caches(), None);
        for (left, asks) in [(Duration::ZERO, false), (Duration::from_secs(60), true)] {
            let host = host("h", "available");
            let key = Key::Host(ObjectKey::of(&host));
            let left_seen = LeftSeen { host, is_gone: true, of_others: false, paused: false };
            let observed = Observed::Left(Box::new(left_seen));
            let seen = Seen::of(observed, None, Instant::now() + left);
            let free = Write::Free { host: "h".to_owned(), why: Reason::OwnerGone };
            let outcome = write(&context, &key, &seen, &free, &mut Memory::default()).await;
            assert_eq!(matches!(outcome, Err(Error::Superseded)), !asks, "{outcome:?}");
        }
    }

    #[test]
    fn a_claim_that_is_withdrawn_keeps_no_finalizer_of_capm3_s_machines() {
        let of = |finalizers: &[&str]| ObjectMeta {
            resource_version: Some("7".to_owned()),
            finalizers: Some(finalizers.iter().map(|it| (*it).to_owned()).collect()),
            ..ObjectMeta::default()
        };
        let others = "metal3dataclaim.infrastructure.cluster.x-k8s.io";
        for (all, left) in [
            (&[][..], None),
            (&[others], None),
            (&[names::capm3::MACHINE_FINALIZER], Some(json!([]))),
            (&[others, names::capm3::MACHINE_FINALIZER], Some(json!([others]))),
        ] {
            let patch = without_finalizer_of_capm3(&of(all)).map(|it| match it {
                Patch::Merge(patch) => patch["metadata"].clone(),
                other => panic!("{other:?}"),
            });
            let wanted = left.map(|it| json!({"resourceVersion": "7", "finalizers": it}));
            assert_eq!(patch, wanted, "{all:?}");
        }
    }

    #[test]
    fn a_host_that_is_kept_no_longer_keeps_no_note_of_ours() {
        let metadata = of_free_host();
        assert!(metadata["labels"].get(names::capm3::NODE_REUSE).is_some_and(Value::is_null));
        for note in [
            names::ferrite::PASSED_OVER_BY,
            names::ferrite::PENDING_RESERVATION,
            names::ferrite::PENDING_RESERVATION_OF,
            names::ferrite::RESERVED_HOST_UID,
        ] {
            assert!(metadata["annotations"].get(note).is_some_and(Value::is_null), "{note}");
        }
    }
}
