//! What an error of the API server means for a retry, and in one sentence for a person.

use http_body_util::LengthLimitError;
use kube::core::Status;
use kube::runtime::watcher;

use crate::backoff::Class;

/// How a failed request is retried.
pub fn class(error: &kube::Error) -> Class {
    match error {
        kube::Error::Api(status) => match status.code {
            404 | 410 => Class::NotFound,
            409 | 412 => Class::Conflict,
            429 => Class::Throttled,
            // Refused by validation or by a webhook: the same request fails again.
            400 | 405 | 413 | 415 | 422 => Class::Invalid,
            _ => Class::Transient,
        },
        kube::Error::SerdeError(_) | kube::Error::BuildRequest(_) | kube::Error::HttpError(_) => {
            Class::Invalid
        }
        _ => Class::Transient,
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
        let line = inner.to_string();
        if !text.contains(&line) {
            text.push_str(": ");
            text.push_str(&line);
        }
        cause = inner.source();
    }
    text
}
