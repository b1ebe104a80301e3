//! What can go wrong, and how it is retried.

use controller_kit::api_error;
use controller_kit::backoff::Class;
use thiserror::Error;

use crate::patch::Refusal;

/// Why a pass ended early. Somebody else's write is not among them: see [`crate::act::Outcome`].
#[derive(Debug, Error)]
pub enum Error {
    /// The API server refused or did not answer.
    #[error("could not {what}: {}", api_error::explain(source))]
    Api {
        /// What was tried.
        what: &'static str,
        /// What came of it.
        source: Box<kube::Error>,
    },
    /// The cluster of the name that was chosen is somebody else's.
    #[error(
        "{0} is there and not of this pool: delete it, or free the customization that names it"
    )]
    Foreign(String),
    /// The namespace of the name that was chosen for a cluster is somebody else's.
    #[error("namespace {0} is there and not of this pool, so the cluster gets another name")]
    Taken(String),
    /// In the namespace of the name that was chosen for a cluster stands something of an earlier try that cannot be made anew.
    #[error(
        "what is in namespace {0} is of an earlier try and cannot be changed, so the cluster gets another name"
    )]
    Unusable(String),
    /// The patches were accepted when they were tried, and are not with the cluster's own name.
    #[error("no install config can be made for cluster {cluster}: {why}")]
    NotPatched {
        /// The cluster.
        cluster: String,
        /// What is wrong with them.
        why: Refusal,
    },
}

impl Error {
    /// Says what was tried when the API server fails us.
    pub(crate) fn api(what: &'static str) -> impl FnOnce(kube::Error) -> Self {
        move |source| Self::Api { what, source: Box::new(source) }
    }

    /// How it is retried. What was refused is tried again too: what it was made from, such as secrets, is not watched,
    /// and the rest of the pool has to be looked at.
    pub fn class(&self) -> Class {
        match self {
            Self::Api { source, .. } => match api_error::class(source) {
                Class::Invalid => Class::Transient,
                other => other,
            },
            Self::Foreign(_) | Self::Taken(_) | Self::Unusable(_) | Self::NotPatched { .. } => {
                Class::Transient
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_refused_is_looked_at_again() {
        for code in [400, 422] {
            let status = kube::core::Status { code, ..Default::default() };
            let error = Error::api("create a cluster")(kube::Error::Api(Box::new(status)));
            assert_eq!(error.class(), Class::Transient);
        }
    }
}
