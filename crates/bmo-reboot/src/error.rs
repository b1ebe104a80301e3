//! What can go wrong in a pass, and how it is retried. What Ironic does or says is no error: decisions are made of it.

use controller_kit::api_error;
use controller_kit::backoff::Class;
use thiserror::Error;

/// Why a pass ended early.
#[derive(Debug, Error)]
pub enum Error {
    /// Somebody else wrote first. No failure: look again.
    #[error("the host changed since it was read")]
    Superseded,
    /// The API server refused or did not answer.
    #[error("could not {what}: {}", api_error::explain(source))]
    Api {
        /// What was tried.
        what: &'static str,
        /// What came of it.
        source: Box<kube::Error>,
    },
    /// The API server did not answer in time.
    #[error("could not {0}: the API server did not answer in time")]
    Silent(&'static str),
    /// All that a pass waits for took too long together.
    #[error("the pass did not end in time")]
    Slow,
    /// The record was written and is not there: nothing may be switched off without this memory.
    #[error(
        "the API server dropped status.conditions: the CRD baremetalhosts.metal3.io lacks them, run `bmo-reboot extend-crd`"
    )]
    Dropped,
}

/// Waits for a request to the API server, but not for ever.
pub(crate) async fn asked<T>(
    what: &'static str,
    request: impl Future<Output = kube::Result<T>>,
) -> Result<T, Error> {
    let answer = tokio::time::timeout(api_error::PATIENCE, request).await;
    answer.map_err(|_| Error::Silent(what))?.map_err(|error| match error {
        kube::Error::Api(status) if api_error::is_conflict(&status) => Error::Superseded,
        other => Error::Api { what, source: Box::new(other) },
    })
}

impl Error {
    /// Whether somebody has to allow or correct something: a webhook, or one that does not answer, a schema, a permission.
    pub fn is_refusal(&self) -> bool {
        matches!(self, Self::Api { source, .. } if api_error::is_refusal(source))
    }

    /// How it is retried. Somebody waits for a machine to be off, so nothing here waits for minutes, nor for a change of
    /// the host: what is refused today by a webhook or a schema is corrected there.
    pub fn class(&self) -> Class {
        match self {
            Self::Superseded => Class::Conflict,
            Self::Api { source, .. } => api_error::class(source).urgent(),
            Self::Silent(_) | Self::Slow | Self::Dropped => Class::Urgent,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_takes_too_long_is_tried_again_soon() {
        assert_eq!(Error::Slow.class(), Class::Urgent);
        assert_eq!(Error::Silent("read the host").class(), Class::Urgent);
    }

    #[test]
    fn what_the_api_server_refuses_is_tried_again_without_a_change_of_the_host() {
        for code in [400, 403, 422, 429, 500] {
            let status = kube::core::Status { code, ..Default::default() };
            let source = Box::new(kube::Error::Api(Box::new(status)));
            let error = Error::Api { what: "change annotations", source };
            assert_eq!(error.class(), Class::Urgent, "{code}");
            assert_eq!(error.is_refusal(), [400, 403, 422].contains(&code), "{code}");
        }
    }
}
