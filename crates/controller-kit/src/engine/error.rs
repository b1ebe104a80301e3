//! Why a pass ended early, and how it is retried: the same in all controllers.

use std::time::Duration;

use crate::backoff::Class as Retry;
use crate::{api_error, reasons};

/// Why a pass ended early.
#[derive(Debug)]
pub enum Error {
    /// Somebody else wrote first: the copy that was decided upon is old. No failure.
    Superseded,
    /// The API server refused, or failed.
    Api {
        /// What was tried: `write the status`.
        what: &'static str,
        /// What came of it.
        source: Box<kube::Error>,
    },
    /// The API server did not answer in time.
    Silent(&'static str),
    /// Anything else, in words that say what to do, and how it is retried.
    Other(String, Retry),
}

impl Error {
    /// Whether a person has to allow or correct something: a webhook, a schema, a permission.
    pub fn is_refusal(&self) -> bool {
        matches!(self, Self::Api { source, .. } if api_error::is_refusal(source))
    }

    /// Whether the same write may fail for long: it is refused, or a webhook is asked and does not answer. One that has longer
    /// than we wait, or several, nobody tells of.
    pub fn may_last(&self) -> bool {
        self.is_refusal() || matches!(self, Self::Silent(_))
    }

    /// How it is retried.
    pub fn retry(&self) -> Retry {
        match self {
            Self::Superseded => Retry::Conflict,
            Self::Api { source, .. } => api_error::class(source),
            Self::Silent(_) => Retry::Transient,
            Self::Other(_, retry) => *retry,
        }
    }

    /// For what a key waits after it.
    pub fn failing(&self) -> Failing {
        match self {
            Self::Superseded => Failing::Superseded,
            Self::Api { .. } if self.is_refusal() => Failing::Refused,
            Self::Api { .. } | Self::Silent(_) => Failing::ApiFailed,
            Self::Other(..) => Failing::Failed,
        }
    }
}

/// Passes that fail longer than this wait for a person: what passes by itself has passed by then.
const FAILURE: Duration = Duration::from_secs(600);

reasons! {
    /// For what a key waits after a pass that did not come to its end.
    pub enum Failing {
        Superseded: Kind::EndsWithin(FAILURE), "Somebody else wrote first, again and again.";
        Refused: Kind::EndsWithin(FAILURE),
            "A webhook, a policy, a quota or a missing permission refuses a write.";
        ApiFailed: Kind::EndsWithin(FAILURE), "The API server fails, or does not answer.";
        Failed: Kind::EndsWithin(FAILURE), "Something else failed.";
        TimedOut: Kind::EndsWithin(FAILURE),
            "The pass did not end in time, or was given up for others.";
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Superseded => f.write_str("the object changed since it was read"),
            Self::Api { what, source } => {
                write!(f, "could not {what}: {}", api_error::explain(source))
            }
            Self::Silent(what) => {
                write!(f, "could not {what}: the API server did not answer in time")
            }
            Self::Other(text, _) => f.write_str(text),
        }
    }
}

impl std::error::Error for Error {}

/// Waits for an answer of the API server, but not for ever.
pub async fn asked<T>(
    what: &'static str,
    request: impl Future<Output = kube::Result<T>>,
) -> Result<T, Error> {
    asked_within(api_error::PATIENCE, what, request).await
}

/// The same with another patience.
pub async fn asked_within<T>(
    patience: Duration,
    what: &'static str,
    request: impl Future<Output = kube::Result<T>>,
) -> Result<T, Error> {
    let answer = tokio::time::timeout(patience, request).await;
    answer.map_err(|_| Error::Silent(what))?.map_err(|error| match error {
        kube::Error::Api(status) if api_error::is_conflict(&status) => Error::Superseded,
        other => Error::Api { what, source: Box::new(other) },
    })
}

/// Asks for an object that may be gone.
pub async fn found<T>(
    what: &'static str,
    request: impl Future<Output = kube::Result<T>>,
) -> Result<Option<T>, Error> {
    asked(what, async { api_error::unless_gone(request.await) }).await
}

/// Waits for a write, also for longer than a webhook has by default.
pub async fn sent<T>(
    what: &'static str,
    request: impl Future<Output = kube::Result<T>>,
) -> Result<T, Error> {
    asked_within(api_error::WRITE_PATIENCE, what, request).await
}

/// The same. Where the object changed, or is gone, it comes too late.
pub async fn written<T>(
    what: &'static str,
    request: impl Future<Output = kube::Result<T>>,
) -> Result<T, Error> {
    let written = async { api_error::unless_superseded(request.await) };
    sent(what, written).await?.ok_or(Error::Superseded)
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
            let error = asked("write", request).await.unwrap_err();
            assert_eq!(matches!(error, Error::Superseded), is_superseded, "{reason}");
        }
    }

    /// It is made once the webhook had its time, if its failure may be ignored, and given up if we are gone before.
    #[tokio::test]
    async fn a_write_is_waited_for_longer_than_a_webhook_has_by_default() {
        let answer = async {
            tokio::time::sleep(Duration::from_millis(10_200)).await;
            Ok(())
        };
        assert!(written("write", answer).await.is_ok());
    }

    #[tokio::test]
    async fn a_write_may_fail_for_long_if_it_is_refused_or_nobody_answers() {
        let silence = std::future::pending::<kube::Result<()>>();
        let error = asked_within(Duration::ZERO, "write", silence).await.unwrap_err();
        assert!(error.may_last() && !error.is_refusal(), "{error}");
        for (code, lasts) in [(403, true), (500, false)] {
            let status = Status::failure("no", "").with_code(code);
            let request = async { Err::<(), _>(kube::Error::Api(status.boxed())) };
            assert_eq!(asked("write", request).await.unwrap_err().may_last(), lasts, "{code}");
        }
    }
}
