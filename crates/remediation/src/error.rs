//! What can go wrong in a pass, and how it is retried. A workload cluster that does not answer is no error: decisions are
//! made of it.

use controller_kit::api_error;
use controller_kit::backoff::Class;
use thiserror::Error;

/// Why a pass ended early.
#[derive(Debug, Error)]
pub enum Error {
    /// Somebody else wrote first, or the object is gone. No failure: look again.
    #[error("something changed since it was read")]
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
    /// The workload cluster did not take a write.
    #[error("could not {what} in the workload cluster: {why}")]
    Workload {
        /// What was tried.
        what: &'static str,
        /// What came of it.
        why: String,
        /// Whether the cluster answered: then it refuses this write, and may well take others.
        refused: bool,
    },
}

/// Waits for a request to the API server, but not for ever.
pub(crate) async fn asked<T>(
    what: &'static str,
    request: impl Future<Output = kube::Result<T>>,
) -> Result<T, Error> {
    let answer = tokio::time::timeout(api_error::PATIENCE, request).await;
    answer.map_err(|_| Error::Silent(what))?.map_err(|error| match error {
        kube::Error::Api(status)
            if api_error::is_conflict(&status) || api_error::is_gone(&status) =>
        {
            Error::Superseded
        }
        other => Error::Api { what, source: Box::new(other) },
    })
}

impl Error {
    /// How it is retried. Somebody waits for a machine, so nothing here waits for minutes; and the time of a step goes on
    /// while a write is refused, so that is looked at again as well.
    pub fn class(&self) -> Class {
        match self {
            Self::Superseded => Class::Conflict,
            Self::Api { source, .. } => api_error::class(source).urgent(),
            Self::Silent(_) | Self::Workload { .. } => Class::Urgent,
        }
    }

    /// Whether the write stays refused until a person does something. Wider than [`api_error::is_refusal`]: a kind that is
    /// no longer served counts, too.
    pub fn is_refusal(&self) -> bool {
        match self {
            Self::Api { source, .. } => match &**source {
                kube::Error::Api(status) if status.code == 404 => true,
                error => api_error::is_refusal(error),
            },
            Self::Workload { refused, .. } => *refused,
            Self::Superseded | Self::Silent(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    fn refused(code: u16, why: &str) -> Error {
        let status = Status { code, ..Status::failure(why, "Invalid") };
        let source = Box::new(kube::Error::Api(Box::new(status)));
        Error::Api { what: "patch the BareMetalHost", source }
    }

    #[test]
    fn a_write_that_is_refused_is_tried_again_since_the_time_of_its_step_runs_on() {
        for code in [413, 422, 500] {
            assert_eq!(refused(code, "refused").class(), Class::Urgent, "{code}");
        }
    }

    #[test]
    fn what_a_person_has_to_allow_is_told_apart_from_a_server_that_is_busy() {
        for code in [403, 413, 422] {
            assert!(refused(code, "forbidden").is_refusal(), "{code}");
        }
        assert!(refused(500, "failed calling webhook: no endpoints available").is_refusal());
        for code in [429, 500, 503] {
            assert!(!refused(code, "busy").is_refusal(), "{code}");
        }
    }
}
