//! What can go wrong in a pass, and how it is retried. What Ironic does or says is no error: decisions are made of it.

use controller_kit::api_error;
use controller_kit::backoff::Class;
use thiserror::Error;

/// Why a pass ended early.
#[derive(Debug, Error)]
pub enum Error {
    /// Somebody else wrote first. No failure: look again.
    #[error("the object changed since it was read")]
    Superseded,
    /// The API server refused or did not answer.
    #[error("could not {what}: {}", api_error::explain(source))]
    Api {
        /// What was tried.
        what: &'static str,
        /// What came of it.
        source: Box<kube::Error>,
    },
    /// The watch on hosts did not tell of all of them.
    #[error(
        "no hosts are made for now: the watch told of {seen} hosts of {there}. If that lasts, look at the log for why the watch on BareMetalHosts fails"
    )]
    Behind {
        /// Hosts that are known.
        seen: usize,
        /// Hosts that there are.
        there: usize,
    },
    /// The API server did not answer in time.
    #[error("could not {0}: the API server did not answer in time")]
    Silent(&'static str),
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
    /// How it is retried. One pass is for all machines, so nothing here waits for long.
    pub fn class(&self) -> Class {
        match self {
            Self::Superseded => Class::Conflict,
            Self::Api { source, .. } => api_error::class(source).urgent(),
            Self::Behind { .. } | Self::Silent(_) => Class::Urgent,
        }
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[tokio::test]
    async fn a_name_that_is_taken_and_a_version_that_is_old_are_both_superseded() {
        for (reason, code, is_superseded) in
            [("AlreadyExists", 409, true), ("Conflict", 409, true), ("Forbidden", 403, false)]
        {
            let status = Status::failure("no", reason).with_code(code);
            let request = async { Err::<(), _>(kube::Error::Api(status.boxed())) };
            let error = asked("create a host", request).await.unwrap_err();
            assert_eq!(matches!(error, Error::Superseded), is_superseded, "{reason}");
        }
    }
}
