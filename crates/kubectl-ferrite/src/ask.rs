//! Requests to the API server, and what an error means for the person who asked.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use api_types::name::is_name;
use controller_kit::api_error::{PATIENCE, explain, is_gone};
use controller_kit::{connection, kubeconfig};
use k8s_openapi::jiff::Timestamp;
use k8s_openapi::jiff::fmt::rfc2822;
use kube::api::{Api, ApiResource, DynamicObject, GetParams, ListParams};
use kube::client::Body;
use kube::core::{ObjectList, PartialObjectMeta, Request};
use kube::{Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;

use crate::model::{Look, Object, Sketch, name_of};
use crate::text;

/// How long a connection may take; an answer may take longer.
const CONNECTING: Duration = Duration::from_secs(5);
/// The namespace where neither the command line nor the kubeconfig names one.
const NAMESPACE: &str = "default";
/// Objects of a kind among which the nearest names are looked for.
const NAMES: u32 = 500;

/// The exit code where something that was asked about could not be read.
pub(crate) const UNREAD: u8 = 4;

type Names = ObjectList<PartialObjectMeta>;

/// Why there is no answer, in one sentence.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The command line is wrong.
    Usage(String),
    /// The object, or its kind, does not exist.
    NotFound(String),
    /// A right is missing, or the API server does not answer.
    Unanswered(String),
    /// What was asked for is refused, or did not come about.
    No(String),
    /// The reader has enough, as `head` has: no failure of the program.
    Unread,
}

impl Failure {
    pub(crate) fn message(&self) -> &str {
        match self {
            Self::Usage(why) | Self::NotFound(why) | Self::Unanswered(why) | Self::No(why) => why,
            Self::Unread => "",
        }
    }

    pub(crate) fn code(&self) -> ExitCode {
        ExitCode::from(match self {
            Self::Unread => 0,
            Self::No(_) => 1,
            Self::Usage(_) => 2,
            Self::NotFound(_) => 3,
            Self::Unanswered(_) => UNREAD,
        })
    }
}

/// What the API server says to one request.
#[derive(Debug)]
pub(crate) enum Answer<T> {
    Here(T),
    Gone,
    Unserved,
    Forbidden,
    Unreadable(String),
}

/// Who asks, with the rights of the user.
#[derive(Clone)]
pub(crate) struct Asking {
    client: Client,
    /// The namespace that is meant where none is named.
    pub(crate) namespace: String,
}

impl Asking {
    /// # Errors
    /// When the kubeconfig makes no client.
    pub(crate) async fn new(
        path: Option<&Path>,
        context: Option<&str>,
        namespace: Option<&str>,
    ) -> Result<Self, Failure> {
        let mut config = kubeconfig::of_user(path, context).await.map_err(Failure::Usage)?;
        config.connect_timeout = Some(CONNECTING);
        let builder = connection::builder(config, "kubectl")
            .map_err(|error| Failure::Usage(explain(&error)))?;
        let client = builder.build();
        let namespace = namespace_of(namespace, client.default_namespace())?;
        Ok(Self { client, namespace })
    }

    /// With a client that a test has made.
    #[cfg(test)]
    pub(crate) fn of(client: Client) -> Self {
        let namespace = client.default_namespace().to_owned();
        Self { client, namespace }
    }

    /// The objects of a kind, to be followed.
    pub(crate) fn api(&self, version: &ApiResource, namespace: Option<&str>) -> Api<DynamicObject> {
        let client = self.client.clone();
        match namespace {
            Some(namespace) => Api::namespaced_with(client, namespace, version),
            None => Api::all_with(client, version),
        }
    }

    /// The time of the API server's clock; none where its answer has none. That of the user's machine may be wrong by more
    /// than a lease lasts.
    ///
    /// # Errors
    /// When the API server does not answer.
    pub(crate) async fn clock(&self) -> Result<Option<Timestamp>, Failure> {
        let request = Request::new("").get("version", &GetParams::default());
        let request = request.map_err(|error| Failure::Usage(error.to_string()))?;
        // Any answer has it, also one that refuses.
        Ok(match within(self.client.send(request.map(Body::from))).await? {
            Answer::Here(answer) => {
                answer.headers().get("date").and_then(|it| date(it.to_str().ok()?))
            }
            _ => None,
        })
    }

    /// Asks something that needs several requests.
    ///
    /// # Errors
    /// When the API server does not answer.
    pub(crate) async fn ask<T>(
        &self,
        question: impl AsyncFnOnce(Client) -> kube::Result<T>,
    ) -> Result<Answer<T>, Failure> {
        within(question(self.client.clone())).await
    }

    /// Reads one object, in the first of these versions that the API server has.
    ///
    /// # Errors
    /// When the API server does not answer.
    pub(crate) async fn get<K>(
        &self,
        versions: &[K::DynamicType],
        namespace: &str,
        name: &str,
    ) -> Result<Look<K>, Failure>
    where
        K: Resource + DeserializeOwned,
    {
        let mut found = Look::Unasked;
        for version in versions {
            let object = Object::new(&name_of::<K>(version), namespace, name);
            // People write references, and a controller may be half through with one.
            if !is_name(name) || !is_name(namespace) {
                return Ok(Look::Gone(object));
            }
            let request = Request::new(K::url_path(version, Some(namespace)));
            let request = request
                .get(name, &GetParams::default())
                .map_err(|_| Failure::Usage(text::no_name(name)))?;
            found = match reading(self.client.request::<K>(request)).await? {
                Answer::Here(found) => Look::Here(found),
                Answer::Gone => Look::Gone(object),
                Answer::Unserved => Look::Unserved(object),
                Answer::Forbidden => {
                    let right = right::<K>("get", version, Some(namespace));
                    Look::Forbidden(object, right)
                }
                Answer::Unreadable(why) => Look::Unreadable(object, why),
            };
            if !matches!(found, Look::Unserved(_)) {
                break;
            }
        }
        Ok(found)
    }

    /// Reads the metadata of one object.
    ///
    /// # Errors
    /// When the API server does not answer.
    pub(crate) async fn metadata<K: Resource>(
        &self,
        version: &K::DynamicType,
        namespace: &str,
        name: &str,
    ) -> Result<Look<PartialObjectMeta>, Failure> {
        let object = Object::new(&name_of::<K>(version), namespace, name);
        let request = Request::new(K::url_path(version, Some(namespace)));
        let request = request
            .get_metadata(name, &GetParams::default())
            .map_err(|_| Failure::Usage(text::no_name(name)))?;
        Ok(match reading(self.client.request::<PartialObjectMeta>(request)).await? {
            Answer::Here(found) => Look::Here(found),
            Answer::Gone => Look::Gone(object),
            Answer::Unserved => Look::Unserved(object),
            Answer::Forbidden => {
                Look::Forbidden(object, right::<K>("get", version, Some(namespace)))
            }
            Answer::Unreadable(why) => Look::Unreadable(object, why),
        })
    }

    /// Reads a page of objects as any type.
    ///
    /// # Errors
    /// When the API server does not answer.
    pub(crate) async fn page<K: Resource, T: DeserializeOwned>(
        &self,
        version: &K::DynamicType,
        namespace: Option<&str>,
        params: &ListParams,
    ) -> Result<Answer<T>, Failure> {
        let request = Request::new(K::url_path(version, namespace));
        let request = request.list(params).map_err(|error| Failure::Usage(error.to_string()))?;
        reading(self.client.request::<T>(request)).await
    }

    /// Reads a page of objects as it is sent.
    ///
    /// # Errors
    /// When the API server does not answer.
    pub(crate) async fn text<K: Resource>(
        &self,
        version: &K::DynamicType,
        namespace: Option<&str>,
        params: &ListParams,
    ) -> Result<Answer<String>, Failure> {
        let request = Request::new(K::url_path(version, namespace));
        let request = request.list(params).map_err(|error| Failure::Usage(error.to_string()))?;
        reading(self.client.request_text(request)).await
    }

    /// Reads a page of the objects of a namespace.
    ///
    /// # Errors
    /// When the API server does not answer.
    pub(crate) async fn first<K>(
        &self,
        version: &K::DynamicType,
        namespace: &str,
        params: &ListParams,
    ) -> Result<Look<ObjectList<K>>, Failure>
    where
        K: Resource + DeserializeOwned + Clone,
    {
        let object = Object::new(&name_of::<K>(version), namespace, "");
        let page = self.page::<K, ObjectList<K>>(version, Some(namespace), params);
        Ok(match page.await? {
            Answer::Here(list) => Look::Here(list),
            Answer::Gone | Answer::Unserved => Look::Unserved(object),
            Answer::Forbidden => {
                Look::Forbidden(object, right::<K>("list", version, Some(namespace)))
            }
            Answer::Unreadable(why) => Look::Unreadable(object, why),
        })
    }

    /// Reads the names and annotations of a page of objects; nothing where they cannot be read.
    ///
    /// # Errors
    /// When the API server does not answer.
    pub(crate) async fn sketches<K: Resource>(
        &self,
        version: &K::DynamicType,
        namespace: &str,
        params: &ListParams,
    ) -> Result<Option<ObjectList<Sketch>>, Failure> {
        let request = Request::new(K::url_path(version, Some(namespace)));
        let request =
            request.list_metadata(params).map_err(|error| Failure::Usage(error.to_string()))?;
        Ok(match reading(self.client.request::<ObjectList<Sketch>>(request)).await? {
            Answer::Here(list) => Some(list),
            _ => None,
        })
    }

    /// Reads those objects of a namespace that are wanted, page by page: only they are kept.
    ///
    /// # Errors
    /// When the API server does not answer.
    pub(crate) async fn list<K>(
        &self,
        version: &K::DynamicType,
        namespace: &str,
        page: u32,
        is_wanted: impl Fn(&K) -> bool,
    ) -> Result<Look<Vec<K>>, Failure>
    where
        K: Resource + DeserializeOwned + Clone,
    {
        let (mut params, mut wanted) = (ListParams::default().limit(page), Vec::new());
        loop {
            let list = match self.first::<K>(version, namespace, &params).await? {
                Look::Here(list) => list,
                absent => return Ok(absent.map(|list| list.items)),
            };
            wanted.extend(list.items.into_iter().filter(&is_wanted));
            match list.metadata.continue_.filter(|it| !it.is_empty()) {
                Some(next) => params = params.continue_token(&next),
                None => return Ok(Look::Here(wanted)),
            }
        }
    }

    /// What was asked about, or a sentence that ends the program.
    ///
    /// # Errors
    /// When it is not there.
    pub(crate) async fn must_be_here<K: Resource, T>(
        &self,
        versions: &[K::DynamicType],
        look: Look<T>,
    ) -> Result<Look<T>, Failure> {
        match look {
            Look::Gone(object) => {
                let near = self.near::<K>(versions, &object).await?;
                Err(Failure::NotFound(text::missing(&object, &near)))
            }
            Look::Unserved(object) => Err(Failure::NotFound(text::unserved(&object.kind))),
            Look::Forbidden(object, right) => {
                Err(Failure::Unanswered(text::forbidden(&object, &right)))
            }
            Look::Unreadable(object, why) => {
                Err(Failure::Unanswered(text::unreadable(&object, &why)))
            }
            here => Ok(here),
        }
    }

    /// The names of the namespace that are nearest to one that does not exist.
    async fn near<K: Resource>(
        &self,
        versions: &[K::DynamicType],
        missing: &Object,
    ) -> Result<Vec<String>, Failure> {
        let params = ListParams::default().limit(NAMES);
        for version in versions {
            let namespace = Some(missing.namespace.as_str());
            let request = Request::new(K::url_path(version, namespace));
            let Ok(request) = request.list_metadata(&params) else { break };
            if let Answer::Here(list) = reading(self.client.request::<Names>(request)).await? {
                let names = list.items.iter().map(ResourceExt::name_any);
                return Ok(nearest(&missing.name, names));
            }
        }
        Ok(Vec::new())
    }
}

/// The namespace that is meant. An empty one is none, as for kubectl: a shell gives it for a variable that is not set.
fn namespace_of(named: Option<&str>, of_context: &str) -> Result<String, Failure> {
    let mut given = named.into_iter().chain([of_context]).filter(|it| !it.is_empty());
    let namespace = given.next().unwrap_or(NAMESPACE);
    // In a URL it would lead elsewhere, and what is not there would be taken for a kind that is not installed.
    if is_name(namespace) {
        Ok(namespace.to_owned())
    } else {
        Err(Failure::Usage(text::no_name(namespace)))
    }
}

/// The right that a request needs.
pub(crate) fn right<K: Resource>(
    verb: &str,
    version: &K::DynamicType,
    namespace: Option<&str>,
) -> String {
    text::right(verb, &K::plural(version), &K::group(version), namespace)
}

/// What a read gives. The API server cannot read a kind whose conversion webhook is away, as while Cluster API's pods do not run:
/// that says nothing of the others.
async fn reading<T>(request: impl Future<Output = kube::Result<T>>) -> Result<Answer<T>, Failure> {
    let answer = tokio::time::timeout(PATIENCE, request).await.ok();
    match &answer {
        Some(Err(error @ kube::Error::Api(status))) if status.code == 500 => {
            Ok(Answer::Unreadable(explain(error)))
        }
        _ => answered(answer),
    }
}

async fn within<T>(request: impl Future<Output = kube::Result<T>>) -> Result<Answer<T>, Failure> {
    answered(tokio::time::timeout(PATIENCE, request).await.ok())
}

fn answered<T>(answer: Option<kube::Result<T>>) -> Result<Answer<T>, Failure> {
    let error = match answer {
        None => return Err(Failure::Unanswered(text::unanswered(text::ANSWER))),
        Some(Ok(found)) => return Ok(Answer::Here(found)),
        Some(Err(error)) => error,
    };
    match &error {
        kube::Error::Api(status) if is_gone(status) => Ok(Answer::Gone),
        kube::Error::Api(status) if status.code == 404 => Ok(Answer::Unserved),
        kube::Error::Api(status) if status.code == 403 => Ok(Answer::Forbidden),
        kube::Error::Api(status) if status.code == 401 => {
            Err(Failure::Unanswered(text::no_credentials(&explain(&error))))
        }
        kube::Error::SerdeError(why) => Ok(Answer::Unreadable(why.to_string())),
        error => Err(Failure::Unanswered(text::unanswered(&explain(error)))),
    }
}

/// A time as HTTP writes it.
fn date(text: &str) -> Option<Timestamp> {
    rfc2822::DateTimeParser::new().parse_timestamp(text).ok()
}

/// Up to three names that need the fewest changes, and not more than a third of their letters.
pub(crate) fn nearest(wanted: &str, names: impl Iterator<Item = String>) -> Vec<String> {
    let most = (wanted.len() / 3).max(2);
    let is_part = |name: &str| name.contains(wanted) || wanted.contains(name);
    let mut near: Vec<(usize, String)> = names
        .map(|name| (changes(wanted, &name), name))
        .filter(|(changes, name)| *changes <= most || is_part(name))
        .collect();
    near.sort();
    near.into_iter().take(3).map(|(_, name)| name).collect()
}

/// How many letters have to be added, removed or replaced.
fn changes(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (above, letter) in from.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = above + 1;
        for (column, other) in to.iter().enumerate() {
            let replaced = diagonal + usize::from(letter != *other);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use api_types::metal3::BareMetalHost;

    use super::*;

    #[test]
    fn the_nearest_names_need_few_changes() {
        let names = ["rack1-7", "rack1-8", "rack11-7", "other", "rack1-70"];
        let near = nearest("rack1-77", names.into_iter().map(str::to_owned));
        assert_eq!(near, ["rack1-7", "rack1-70", "rack1-8"]);
        assert!(nearest("zzzzzz", names.into_iter().map(str::to_owned)).is_empty());
        assert_eq!(
            (changes("", "abc"), changes("abc", "abc"), changes("kitten", "sitting")),
            (3, 0, 3)
        );
    }

    #[test]
    fn a_namespace_is_that_of_the_context_unless_one_is_named() {
        let of = |named, context| namespace_of(named, context).ok();
        assert_eq!(of(Some("a"), "b").as_deref(), Some("a"));
        assert_eq!(of(Some(""), "b").as_deref(), Some("b"), "-n \"$NAMESPACE\"");
        assert_eq!(of(None, "").as_deref(), Some("default"));
        for odd in ["a/b", "..", "a?x=y", "A"] {
            assert_eq!(namespace_of(Some(odd), "b"), Err(Failure::Usage(text::no_name(odd))));
        }
    }

    /// Each would be a request for something else, which says nothing of the object.
    #[tokio::test]
    async fn a_name_that_no_object_can_have_is_not_asked_for() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let nowhere = kube::Config::new("http://127.0.0.1:1".parse().unwrap());
        let asking = Asking::of(Client::try_from(nowhere).unwrap());
        for (namespace, name) in [("rack", "a/b"), ("../x", "h"), ("rack", "")] {
            let found = asking.get::<BareMetalHost>(&[()], namespace, name).await.unwrap();
            assert!(matches!(found, Look::Gone(_)), "{namespace} {name}: {found:?}");
        }
    }

    #[test]
    fn a_time_is_read_as_http_writes_it() {
        assert_eq!(date("Sun, 06 Nov 1994 08:49:37 GMT"), "1994-11-06T08:49:37Z".parse().ok());
        assert_eq!(date("yesterday"), None);
    }

    #[test]
    fn each_answer_has_its_meaning() {
        use kube::core::Status;
        let api = |code, reason: &str| {
            let status = Status::failure("why", reason).with_code(code);
            answered::<()>(Some(Err(kube::Error::Api(Box::new(status)))))
        };
        assert!(matches!(api(404, "NotFound"), Ok(Answer::Gone)));
        assert!(matches!(api(404, ""), Ok(Answer::Unserved)), "a kind that is not installed");
        assert!(matches!(api(403, "Forbidden"), Ok(Answer::Forbidden)));
        for silent in [api(401, "Unauthorized"), api(503, ""), answered::<()>(None)] {
            assert!(matches!(silent, Err(Failure::Unanswered(_))), "{silent:?}");
        }
    }
}
