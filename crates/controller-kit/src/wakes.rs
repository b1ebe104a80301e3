//! Objects that are to be looked at because of something else than a change of their own.

use futures_util::{Stream, stream};
use kube::Resource;
use kube::runtime::reflector::ObjectRef;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};

/// Has objects of one loop looked at, by namespace and name.
#[derive(Clone)]
pub struct Wakes(UnboundedSender<(String, String)>);

impl Wakes {
    /// One end for whoever knows, the other for [`woken`].
    pub fn new() -> (Self, UnboundedReceiver<(String, String)>) {
        let (sender, receiver) = mpsc::unbounded_channel();
        (Self(sender), receiver)
    }

    /// Has these objects of a namespace looked at.
    pub fn send(&self, namespace: &str, names: impl IntoIterator<Item = String>) {
        for name in names {
            // Nobody listens any more only when the process ends.
            let _ = self.0.send((namespace.to_owned(), name));
        }
    }
}

/// What was sent, for `Controller::reconcile_on`.
pub fn woken<K>(
    receiver: UnboundedReceiver<(String, String)>,
    version: K::DynamicType,
) -> impl Stream<Item = ObjectRef<K>> + Send
where
    K: Resource + 'static,
    K::DynamicType: Clone + Send + 'static,
{
    stream::unfold((receiver, version), async |(mut receiver, version)| {
        let (namespace, name) = receiver.recv().await?;
        let key = ObjectRef::new_with(&name, version.clone()).within(&namespace);
        Some((key, (receiver, version)))
    })
}
