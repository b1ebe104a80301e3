//! What can go wrong, and how it is retried.

use controller_kit::api_error;
use controller_kit::backoff::Class;
use thiserror::Error;

/// Where a webhook should have been asked and was not to be had.
const UNASKED: &str = "failed calling webhook";
/// How the API server names who has something against a write, or should have been asked about it.
const ADMISSION: [&str; 3] = [UNASKED, "admission webhook \"", "ValidatingAdmissionPolicy '"];

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
            || matches!(&**source, kube::Error::Api(status) if is_of_admission(&status.message))
    }
}

/// Whether a webhook or a policy refused a write, or could not be asked about it. They answer with whatever code they like,
/// and one that is not there is an internal error.
pub(crate) fn is_of_admission(message: &str) -> bool {
    ADMISSION.iter().any(|it| message.contains(it))
}

/// Whether a write was refused only because a webhook could not be asked.
pub(crate) fn is_of_absence(message: &str) -> bool {
    message.contains(UNASKED)
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

    #[test]
    fn who_decides_about_writes_is_told_whatever_code_it_answers_with_and_when_it_is_not_there() {
        let away = "Internal error occurred: failed calling webhook \"a.b\": connection refused";
        let denied = "admission webhook \"a.b\" denied the request: not this host";
        let policy = "baremetalhosts \"h\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no";
        for (code, reason, message) in [
            (500, "InternalError", away),
            (500, "", denied),
            (409, "Conflict", denied),
            (404, "NotFound", denied),
            (401, "Unauthorized", policy),
        ] {
            let error = answered(code, reason, message);
            assert!(error.is_refusal(), "{code} {message}");
            assert_eq!(error.class(), Class::Transient, "{code} {message}");
            assert_eq!(is_of_absence(&error.to_string()), message == away);
        }
    }
}
