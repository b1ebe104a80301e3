//! What can go wrong, and how it is retried.

use controller_kit::api_error;
use controller_kit::backoff::Class;
use thiserror::Error;

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
}

impl Error {
    /// Says what was tried when the API server fails us.
    pub(crate) fn api(what: &'static str) -> impl FnOnce(kube::Error) -> Self {
        move |source| Self::Api { what, source: Box::new(source) }
    }

    /// How it is retried.
    pub fn class(&self) -> Class {
        match self {
            Self::Api { source, .. } => api_error::class(source),
        }
    }
}
