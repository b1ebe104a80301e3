//! Wiring: the watch, whom a change concerns, and the rule book as the engine drives it.

use std::sync::Arc;
use std::time::Duration;

use controller_kit::engine::{self, Class, Controller, Error, Lookout, Now, ObjectKey, Outcome};
use controller_kit::{Kit, watch};
use k8s_openapi::api::core::v1::{ConfigMap, ObjectReference};
use kube::runtime::watcher;
use kube::{Api, ResourceExt};

use crate::context::Context;
use crate::decide::decide;
use crate::model::{Decision, Observed, Write};
use crate::observe::{observe, role};
use crate::reason::Reason;
use crate::settings::Policy;
use crate::write::write;
use crate::{GUEST, HOLDER, RESULT, ROLE, SEAT};

/// A pass is a few requests; one that takes longer hangs.
const PASS_DEADLINE: Duration = Duration::from_secs(60);

/// Works until the process is to end. The kit is the process' own, or one that a test made in its place.
pub async fn run(kit: Kit, policy: Policy) -> Result<(), String> {
    let ours = watch::namespaced::<ConfigMap>(&kit, &watcher::Config::default().labels(ROLE));
    let context = Context { client: kit.client.clone(), policy, objects: ours.store };
    let lookout = Lookout::default();
    let watching = watch::feed(ours.changes, |changed| {
        lookout.enqueue(ObjectKey::of(changed), Class::Normal);
        for other in concerned(&context, changed) {
            lookout.enqueue(other, Class::Normal);
        }
    });
    engine::run(&kit, &context, &lookout, watching, PASS_DEADLINE).await
}

/// A guest that waits is looked at when a seat changes, a seat when its guest does.
fn concerned(context: &Context, changed: &ConfigMap) -> Vec<ObjectKey> {
    let uid = changed.uid();
    let is_concerned = |it: &Arc<ConfigMap>| {
        it.namespace() == changed.namespace()
            && match (role(changed), role(it)) {
                (Some(SEAT), Some(GUEST)) => {
                    it.metadata.deletion_timestamp.is_some()
                        || !it.annotations().contains_key(RESULT)
                }
                (Some(GUEST), Some(SEAT)) => it.annotations().get(HOLDER) == uid.as_ref(),
                _ => false,
            }
    };
    let all = context.objects.state();
    all.iter().filter(|it| is_concerned(it)).map(|it| ObjectKey::of(&**it)).collect()
}

impl Context {
    fn api(&self, key: &ObjectKey) -> Api<ConfigMap> {
        Api::namespaced(self.client.clone(), &key.namespace)
    }
}

impl Controller for Context {
    type Key = ObjectKey;
    type Observed = Observed;
    type Write = Write;
    type Memory = ();
    type Reason = Reason;

    fn keys(&self) -> Vec<ObjectKey> {
        self.objects.state().iter().map(|it| ObjectKey::of(&**it)).collect()
    }

    fn object(&self, key: &ObjectKey) -> ObjectReference {
        key.reference::<ConfigMap>(&())
    }

    async fn observe(&self, key: &ObjectKey, (): &mut ()) -> Result<Option<Observed>, Error> {
        match self.objects.get(&key.in_store()) {
            Some(object) => observe(&self.api(key), &object).await,
            None => Ok(None),
        }
    }

    fn decide(&self, seen: &Observed, now: Now) -> Decision {
        decide(seen, &self.policy, now.wall)
    }

    async fn write(
        &self,
        key: &ObjectKey,
        _: &Observed,
        it: Write,
        (): &mut (),
    ) -> Result<Outcome, Error> {
        write(&self.api(key), &it).await
    }
}
