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

    /// How it is retried. What refuses may change without the object that is refused: a webhook, a CRD, a right.
    pub fn class(&self) -> Class {
        let Self::Api { source, .. } = self;
        if self.is_refusal() { Class::Transient } else { api_error::class(source) }
    }

    /// Whether the same request fails again until somebody changes something.
    pub(crate) fn is_refusal(&self) -> bool {
        let Self::Api { source, .. } = self;
        api_error::is_refusal(source)
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    fn answered(code: u16, reason: &str, message: &str) -> Error {
        let status = Status::failure(message, reason).with_code(code);
        Error::api("patch a BareMetalHost")(kube::Error::Api(Box::new(status)))
    }

    #[test]
    fn what_is_refused_is_told_and_tried_again_later() {
        let denied = answered(409, "Conflict", "admission webhook \"a.b\" denied the request: no");
        assert_eq!((denied.is_refusal(), denied.class()), (true, Class::Transient));
        for (code, reason, refused) in [
            (422, "Invalid", true),
            (400, "BadRequest", true),
            (403, "Forbidden", true),
            (500, "InternalError", false),
            (429, "TooManyRequests", false),
        ] {
            let error = answered(code, reason, "why");
            assert_eq!(error.is_refusal(), refused, "{code}");
            assert_ne!(error.class(), Class::Invalid, "{code}");
        }
    }
}
