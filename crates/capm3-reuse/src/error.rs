//! What can go wrong, and how it is retried.

use controller_kit::api_error;
use controller_kit::backoff::Class;
use kube::core::Status;
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

    /// How it is retried. What refuses may change without the object that is refused: a webhook, a CRD, a right.
    pub fn class(&self) -> Class {
        let Self::Api { source, .. } = self;
        match api_error::class(source) {
            Class::Invalid => Class::Transient,
            class => class,
        }
    }

    /// Whether the same request fails again until somebody changes something.
    pub(crate) fn is_refusal(&self) -> bool {
        let Self::Api { source, .. } = self;
        api_error::class(source) == Class::Invalid
            || matches!(&**source, kube::Error::Api(status) if status.is_forbidden())
    }
}

/// Whether the API server says that this very object is not there. A version that is not served is a 404 as well, in plain
/// text, and says nothing about any object.
pub(crate) fn is_gone(status: &Status) -> bool {
    status.reason == "NotFound"
}

/// What a request found; nothing if the object is gone.
pub(crate) fn unless_gone<T>(found: Result<T, kube::Error>) -> Result<Option<T>, kube::Error> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(kube::Error::Api(status)) if is_gone(&status) => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(code: u16, reason: &str) -> kube::Error {
        kube::Error::Api(Box::new(Status::failure("why", reason).with_code(code)))
    }

    #[test]
    fn an_object_is_gone_only_if_the_api_server_says_so_of_the_object() {
        assert!(matches!(unless_gone(Ok(1)), Ok(Some(1))));
        assert!(matches!(unless_gone::<()>(Err(answered(404, "NotFound"))), Ok(None)));
        // What the client makes of "404 page not found".
        for (code, reason) in [(404, "Failed to parse error data"), (404, ""), (503, "")] {
            assert!(unless_gone::<()>(Err(answered(code, reason))).is_err(), "{code} {reason}");
        }
    }

    #[test]
    fn what_is_refused_is_told_and_tried_again_later() {
        for (code, reason, refused) in [
            (422, "Invalid", true),
            (400, "BadRequest", true),
            (403, "Forbidden", true),
            (500, "InternalError", false),
            (429, "TooManyRequests", false),
        ] {
            let error = Error::api("patch a BareMetalHost")(answered(code, reason));
            assert_eq!(error.is_refusal(), refused, "{code}");
            assert_ne!(error.class(), Class::Invalid, "{code}");
        }
    }
}
