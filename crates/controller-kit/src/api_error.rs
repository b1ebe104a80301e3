//! What an error of the API server means for a retry, and in one sentence for a person.

use std::time::Duration;

use http_body_util::LengthLimitError;
use kube::core::Status;
use kube::runtime::watcher;

use crate::backoff::Class;

/// How long one request is waited for where somebody waits for what it does; the client has no limit of its own.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// The same of a write. By default the API server waits ten seconds for a webhook, and begins after us; where the webhook's
/// failure is to be ignored, the write is made then. It is given up if we hang up before.
pub const WRITE_PATIENCE: Duration = Duration::from_secs(15);
/// Where a webhook should have been asked and was not to be had.
const UNASKED: &str = "failed calling webhook";
/// How the API server names who has something against a write, or should have been asked about it.
const ADMISSION: [&str; 3] = [UNASKED, "admission webhook \"", "ValidatingAdmissionPolicy '"];

/// How a failed request is retried.
pub fn class(error: &kube::Error) -> Class {
    match error {
        kube::Error::Api(status) if is_unasked(&status.message) => Class::Transient,
        kube::Error::Api(status) if is_of_admission(&status.message) => Class::Invalid,
        kube::Error::Api(status) => match status.code {
            404 | 409 | 410 | 412 => Class::Conflict,
            // Refused by validation: the same request fails again.
            400 | 405 | 413 | 415 | 422 => Class::Invalid,
            _ => Class::Transient,
        },
        kube::Error::SerdeError(_) | kube::Error::BuildRequest(_) | kube::Error::HttpError(_) => {
            Class::Invalid
        }
        _ => Class::Transient,
    }
}

/// Whether the API server or a webhook does not want the request as it is, so that the same fails again until somebody
/// changes something: the object, a rule, a right, a webhook that is not there.
pub fn is_refusal(error: &kube::Error) -> bool {
    let by_others = |status: &Status| status.code == 403 || is_of_admission(&status.message);
    class(error) == Class::Invalid || matches!(error, kube::Error::Api(status) if by_others(status))
}

/// Whether a webhook or a policy refused a write, or could not be asked about it. They answer with whatever code they like,
/// and one that is not there is an internal error.
fn is_of_admission(message: &str) -> bool {
    ADMISSION.iter().any(|it| message.contains(it))
}

/// Whether a write was refused only because a webhook could not be asked.
fn is_unasked(message: &str) -> bool {
    message.contains(UNASKED)
}

/// Whether somebody else wrote first, or has taken the name. A webhook may say in the same code what it has against the
/// write, and would say that again at once.
pub fn is_conflict(status: &Status) -> bool {
    status.code == 409 && !is_of_admission(&status.message)
}

/// Whether the API server says that this very object is not there. A version that is not served, and whatever stands
/// between, answers 404 as well and says nothing about any object: `Status::is_not_found` takes that for an answer. Nor is
/// a webhook that refuses in these words.
pub fn is_gone(status: &Status) -> bool {
    status.reason == "NotFound" && !is_of_admission(&status.message)
}

/// What a request found; nothing if the object is gone. To be asked instead of `Api::get_opt`.
///
/// # Errors
/// When the API server says anything else, or nothing.
pub fn unless_gone<T>(found: kube::Result<T>) -> kube::Result<Option<T>> {
    match found {
        Err(kube::Error::Api(status)) if is_gone(&status) => Ok(None),
        found => found.map(Some),
    }
}

/// What a write left; nothing if somebody else wrote first or the object is gone: look again.
///
/// # Errors
/// When the API server says anything else, or nothing.
pub fn unless_superseded<T>(written: kube::Result<T>) -> kube::Result<Option<T>> {
    match written {
        Err(kube::Error::Api(status)) if is_conflict(&status) || is_gone(&status) => Ok(None),
        written => written.map(Some),
    }
}

/// What a request brought, if that came in time; else why not, in one line.
pub async fn within<T>(
    patience: Duration,
    request: impl Future<Output = kube::Result<T>>,
) -> Result<T, String> {
    match tokio::time::timeout(patience, request).await {
        Ok(answer) => answer.map_err(|error| explain(&error)),
        Err(_) => Err("the API server did not answer in time".to_owned()),
    }
}

/// The error in one line, without the structures around it.
pub fn explain(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => explain_status(status),
        kube::Error::Service(error) => {
            // The outer ones only say that there was a client and that it failed.
            let mut cause: &dyn std::error::Error = &**error;
            while let Some(inner) = cause.source() {
                cause = inner;
            }
            if cause.is::<LengthLimitError>() {
                return "the API server's answer is longer than any that was asked for".to_owned();
            }
            let why = match cause.to_string() {
                elapsed if elapsed == "deadline has elapsed" => "no connection in time".to_owned(),
                why => why,
            };
            format!("the API server does not answer: {why}")
        }
        other => chain(other),
    }
}

fn explain_status(status: &Status) -> String {
    if status.message.is_empty() {
        return format!("the API server answered {} {}", status.code, status.reason);
    }
    format!("{} ({})", status.message, status.code)
}

/// Why a watch failed, in one line, and what it needs.
pub fn explain_watch(error: &watcher::Error) -> String {
    match error {
        watcher::Error::InitialListFailed(inner)
        | watcher::Error::WatchStartFailed(inner)
        | watcher::Error::WatchFailed(inner) => {
            let needs = match inner {
                kube::Error::Api(status) if status.code == 404 => "; its CRD is needed",
                kube::Error::Api(status) if status.code == 403 => {
                    "; permission to list and watch it is needed"
                }
                _ => "",
            };
            explain(inner) + needs
        }
        watcher::Error::WatchError(status) => explain_status(status),
        watcher::Error::NoResourceVersion => chain(error),
    }
}

/// An error with its causes, each once: many errors already print their cause.
pub fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        // The client's own text of an answer is all that the answer consists of.
        let answer = inner.downcast_ref::<Box<kube::Error>>().map(|it| &**it);
        let answer = answer.or_else(|| inner.downcast_ref());
        let answer =
            answer.filter(|it| matches!(it, kube::Error::Api(_) | kube::Error::Service(_)));
        let line = answer.map_or_else(|| inner.to_string(), explain);
        if !text.contains(&line) {
            text.push_str(": ");
            text.push_str(&line);
        }
        if answer.is_some() {
            break;
        }
        cause = inner.source();
    }
    text
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
    fn a_write_is_superseded_by_who_wrote_first_and_by_a_deletion_and_by_no_refusal() {
        assert!(matches!(unless_superseded(Ok(1)), Ok(Some(1))));
        for (code, reason) in [(409, "Conflict"), (409, "AlreadyExists"), (404, "NotFound")] {
            assert!(matches!(unless_superseded::<()>(Err(answered(code, reason))), Ok(None)));
        }
        let denied = "admission webhook \"a.b\" denied the request: no";
        let denied = Status::failure(denied, "Conflict").with_code(409);
        assert!(unless_superseded::<()>(Err(kube::Error::Api(Box::new(denied)))).is_err());
        assert!(unless_superseded::<()>(Err(answered(404, ""))).is_err());
    }

    #[test]
    fn what_nobody_wants_as_it_is_is_told_apart_from_what_may_do_the_next_time() {
        assert!([400, 403, 413, 422].into_iter().all(|code| is_refusal(&answered(code, ""))));
        assert!(![404, 409, 429, 500, 503].into_iter().any(|code| is_refusal(&answered(code, ""))));
    }

    #[test]
    fn who_decides_about_writes_is_told_whatever_code_it_answers_with_and_when_it_is_not_there() {
        let away = "Internal error occurred: failed calling webhook \"a.b\": connection refused";
        let denied = "admission webhook \"a.b\" denied the request: not this host";
        let policy = "baremetalhosts \"h\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no";
        for (code, reason, message, expected) in [
            (500, "InternalError", away, Class::Transient),
            (500, "", denied, Class::Invalid),
            (409, "Conflict", denied, Class::Invalid),
            (404, "NotFound", denied, Class::Invalid),
            (401, "Unauthorized", policy, Class::Invalid),
        ] {
            let status = Status::failure(message, reason).with_code(code);
            assert!(!is_conflict(&status) && !is_gone(&status), "{code} {message}");
            assert_eq!(is_unasked(message), message == away);
            let error = kube::Error::Api(Box::new(status));
            assert!(is_refusal(&error), "{code} {message}");
            assert_eq!(class(&error), expected, "{code} {message}");
        }
    }

    #[test]
    fn a_write_that_came_too_late_is_told_from_one_that_is_refused() {
        let changed = "the object has been modified; apply your changes to the latest version";
        for (code, reason) in [(409, "Conflict"), (409, "AlreadyExists")] {
            assert!(is_conflict(&Status::failure(changed, reason).with_code(code)), "{reason}");
        }
        assert!(!is_conflict(&Status::failure(changed, "InternalError").with_code(500)));
    }

    #[derive(Debug)]
    struct Failed(Box<kube::Error>);

    impl std::fmt::Display for Failed {
        fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            out.write_str("could not read it")
        }
    }

    impl std::error::Error for Failed {
        fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
            Some(&self.0)
        }
    }

    #[test]
    fn a_refusal_is_told_in_one_line_and_without_the_structures_around_it() {
        let text = chain(&Failed(Box::new(answered(403, "Forbidden"))));
        assert_eq!(text, "could not read it: why (403)");
    }
}
