//! What can go wrong, and how it is retried.

use thiserror::Error;

/// Why a pass ended early.
#[derive(Debug, Error)]
pub enum Error {
    /// Somebody else wrote first. No failure: look again.
    #[error("{0} changed since it was read")]
    Superseded(String),
    /// The API server refused or did not answer.
    #[error("could not {what}")]
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
}
