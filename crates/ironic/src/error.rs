//! One error for everything that can go wrong between us and Ironic.

use std::fmt;
use std::time::Duration;

use controller_kit::events;
use serde_json::Value;

/// Longest text of Ironic that is passed on. Some of its messages carry whole tracebacks.
const MAX_TEXT: usize = 600;

/// Each class stands once: here are its place in [`Class::ALL`] and its word.
macro_rules! classes {
    ($($(#[$about:meta])* $class:ident,)*) => {
        /// What kind of trouble it is, which says what to do about it.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Class {
            $($(#[$about])* $class,)*
        }

        impl Class {
            /// All, in the order above.
            pub const ALL: [Self; [$(stringify!($class)),*].len()] = [$(Self::$class),*];

            /// Name for metrics and conditions.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$class => stringify!($class),)*
                }
            }
        }
    };
}

classes! {
    /// Ironic has no such object. An inventory is also not found while it is being written.
    NotFound,
    /// A list was to be continued after an object that is gone: start over.
    MarkerGone,
    /// Another operation holds the node: try again in a few seconds.
    Locked,
    /// The node must not be switched off (`disable_power_off`).
    PowerOffDisabled,
    /// The driver cannot bring about that power state, such as a soft power-off.
    Unsupported,
    /// Not in the state that the node is in.
    WrongState,
    /// Ironic understood and does not want to. Repeating it is of no use.
    Refused,
    /// Credentials are missing, wrong or not sufficient.
    Unauthorized,
    /// This Ironic is too old for what was asked.
    TooOld,
    /// No free worker, or a proxy without a server behind it: try again later.
    Busy,
    /// No connection, or it broke.
    Unreachable,
    /// No complete answer in time.
    Timeout,
    /// The answer is larger than we are willing to read.
    TooLarge,
    /// Ironic failed.
    Server,
    /// An answer that is not Ironic's, or a request or file of ours that makes no sense.
    Invalid,
}

impl Class {
    /// Whether the same request may succeed later without anybody changing anything.
    pub fn is_transient(self) -> bool {
        matches!(self, Self::Locked | Self::Busy | Self::Unreachable | Self::Timeout | Self::Server)
    }

    /// What the reader can do, where the class says it.
    fn advice(self) -> Option<&'static str> {
        match self {
            Self::Unauthorized => {
                Some("check the files username and password below METAL3_AUTH_ROOT_DIR")
            }
            Self::Unreachable | Self::Timeout => {
                Some("check that Ironic runs and that IRONIC_ENDPOINT is right")
            }
            _ => None,
        }
    }
}

/// What went wrong, in a sentence for people and a [`Class`] for programs.
#[derive(Debug, Clone)]
pub struct Error {
    class: Class,
    text: String,
    request: Option<String>,
    status: Option<u16>,
    maybe_done: bool,
}

impl Error {
    pub(crate) fn new(class: Class, text: impl Into<String>) -> Self {
        Self { class, text: shorten(&text.into()), request: None, status: None, maybe_done: false }
    }

    /// Says that an answer is not Ironic's, or that a request or a file of ours makes no sense.
    pub fn invalid(text: impl Into<String>) -> Self {
        Self::new(Class::Invalid, text)
    }

    /// Says that all of several answers took longer together than somebody waits for them.
    pub fn too_slow(what: &str, limit: Duration) -> Self {
        let text = format!(
            "{what} took longer than {} s, though Ironic answers: look at its load and its database's",
            limit.as_secs()
        );
        Self::new(Class::Timeout, text)
    }

    /// Names the request, without its query and body.
    pub(crate) fn of(mut self, method: &str, path: &str) -> Self {
        self.request = Some(format!("{method} {path}"));
        self
    }

    /// Notes that Ironic may have acted although no proper answer came.
    pub(crate) fn perhaps_done(mut self, maybe: bool) -> Self {
        self.maybe_done = maybe;
        self
    }

    /// Says which version was not enough.
    pub(crate) fn at(mut self, version: impl fmt::Display) -> Self {
        self.text = format!("{} API {version} of this Ironic cannot do that", self.text);
        self
    }

    pub(crate) fn reclassify(mut self, class: Class) -> Self {
        self.class = class;
        self
    }

    /// Takes our password out of the text, should the other side have repeated it.
    pub(crate) fn without(mut self, secret: Option<&str>) -> Self {
        if let Some(secret) = secret.filter(|it| it.len() > 2) {
            self.text = self.text.replace(secret, "******");
        }
        self
    }

    /// Reads an answer that is no success.
    pub(crate) fn of_answer(status: u16, body: &[u8]) -> Self {
        let said = message(body);
        let class = classify(status, said.as_deref());
        let text = match (&said, class) {
            (Some(text), _) if !text.is_empty() => text.clone(),
            (_, Class::Invalid) if (300..400).contains(&status) => "something redirects to \
                 elsewhere, which is not followed: set IRONIC_ENDPOINT to the final URL"
                .to_owned(),
            (_, Class::Invalid) => {
                "this is not an answer of Ironic: check IRONIC_ENDPOINT".to_owned()
            }
            (_, Class::Busy) => "there is nobody to answer behind the proxy".to_owned(),
            (_, Class::NotFound) => "not found".to_owned(),
            _ => "no reason was given".to_owned(),
        };
        let mut error = Self::new(class, text);
        error.status = Some(status);
        // A proxy that gave up may have passed the request on before.
        error.maybe_done = said.is_none() && status >= 500;
        error
    }

    /// What kind of trouble it is.
    pub fn class(&self) -> Class {
        self.class
    }

    /// The HTTP status, if there was an answer.
    pub fn status(&self) -> Option<u16> {
        self.status
    }

    /// Ironic's own words, or ours where it said nothing.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether Ironic may have done what was asked in spite of the error. Read again before asking
    /// again.
    pub fn maybe_done(&self) -> bool {
        self.maybe_done
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(request) = &self.request {
            write!(f, "{request}: ")?;
        }
        if let Some(status) = self.status {
            write!(f, "{status}: ")?;
        }
        f.write_str(&self.text)?;
        if let Some(advice) = self.class.advice() {
            write!(f, " ({advice})")?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {}

/// Ironic's words in a body, or nothing if the body is not Ironic's.
///
/// There are three shapes: the part in front of the API says `error.message`; the API says
/// `error_message`, which is an object or an object written as text; and inside, the text is
/// called `faultstring` or `description`.
fn message(body: &[u8]) -> Option<String> {
    let value: Value = serde_json::from_slice(body).ok()?;
    let inner = value.get("error_message").or_else(|| value.get("error"))?;
    let text = match inner {
        Value::String(text) => match serde_json::from_str::<Value>(text) {
            Ok(inner @ Value::Object(_)) => words(&inner)?.to_owned(),
            _ => text.clone(),
        },
        Value::Object(_) => words(inner)?.to_owned(),
        _ => return None,
    };
    Some(text.trim().to_owned())
}

fn words(inner: &Value) -> Option<&str> {
    ["faultstring", "description", "message", "title"]
        .iter()
        .find_map(|key| inner.get(key)?.as_str())
}

/// One line of bounded length: it ends up in conditions, events and logs.
fn shorten(text: &str) -> String {
    let clean: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    events::shorten(clean.trim(), MAX_TEXT)
}

/// Ironic tells some causes apart by words only.
fn classify(status: u16, said: Option<&str>) -> Class {
    let says = |words: &str| said.is_some_and(|text| text.contains(words));
    match status {
        401 | 403 => Class::Unauthorized,
        408 | 504 => Class::Timeout,
        429 | 502 | 503 => Class::Busy,
        // Below here the answer has to be Ironic's own: a proxy that knows no such path must not
        // be taken for an Ironic that knows no such node.
        _ if said.is_none() && status < 500 => Class::Invalid,
        404 => Class::NotFound,
        406 => Class::TooOld,
        409 if says("is locked by host") => Class::Locked,
        409 if says("Failed to set node power state") => Class::PowerOffDisabled,
        400 if says("does not support the power state") => Class::Unsupported,
        400 if says("while it is in state") || says("can not be performed") => Class::WrongState,
        400..=499 => Class::Refused,
        500..=599 => Class::Server,
        _ => Class::Invalid,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn fault(text: &str) -> Vec<u8> {
        let inner = serde_json::json!({"faultcode": "Client", "faultstring": text});
        serde_json::json!({"error_message": inner.to_string()}).to_string().into_bytes()
    }

    fn class(status: u16, body: &[u8]) -> Class {
        Error::of_answer(status, body).class()
    }

    #[test]
    fn every_shape_gives_its_words() {
        for body in [
            r#"{"error": {"message": "go away", "code": 401}}"#,
            r#"{"error_message": {"faultstring": "go away", "faultcode": "Client"}}"#,
            r#"{"error_message": "{\"faultstring\": \"go away\", \"debuginfo\": null}"}"#,
            r#"{"error_message": "{\"title\": \"Bad\", \"description\": \"go away\"}"}"#,
            r#"{"error_message": "go away"}"#,
        ] {
            let error = Error::of_answer(400, body.as_bytes());
            assert_eq!(error.text(), "go away", "{body}");
            assert_eq!(error.status(), Some(400));
        }
    }

    #[test]
    fn the_two_conflicts_are_told_apart() {
        let locked = fault("Node 1 is locked by host a, please retry after the current one");
        assert_eq!(class(409, &locked), Class::Locked);
        let disabled = fault("Failed to set node power state to power off.");
        assert_eq!(class(409, &disabled), Class::PowerOffDisabled);
        let taken = fault("A node with name a already exists.");
        assert_eq!(class(409, &taken), Class::Refused);
    }

    #[test]
    fn a_driver_without_the_target_is_no_wrong_state() {
        let unsupported = fault("The driver x does not support the power state, soft power off");
        assert_eq!(class(400, &unsupported), Class::Unsupported);
        let cleaning =
            fault("Action \"power off\" can not be performed while it is in state \"c\"");
        assert_eq!(class(400, &cleaning), Class::WrongState);
        assert_eq!(class(400, &fault("Invalid target")), Class::Refused);
    }

    #[test]
    fn a_proxy_that_knows_no_path_is_not_an_ironic_that_knows_no_node() {
        assert_eq!(class(404, b"<html>Not Found</html>"), Class::Invalid);
        assert_eq!(class(404, br#"{"kind": "Status"}"#), Class::Invalid);
        let empty =
            br#"{"error_message": "{\"code\": 404, \"title\": \"N\", \"description\": \"\"}"}"#;
        assert_eq!(class(404, empty), Class::NotFound);
    }

    #[test]
    fn only_a_proxy_leaves_open_whether_it_was_done() {
        assert!(Error::of_answer(502, b"<html>").maybe_done());
        let full = fault("Requested action cannot be performed due to lack of free workers.");
        let error = Error::of_answer(503, &full);
        assert_eq!(error.class(), Class::Busy);
        assert!(!error.maybe_done());
    }

    #[test]
    fn what_takes_too_long_as_a_whole_may_succeed_later_and_is_named() {
        let error = Error::too_slow("the list of nodes", Duration::from_secs(90));
        assert!(error.class().is_transient());
        assert!(
            error.to_string().starts_with("the list of nodes took longer than 90 s"),
            "{error}"
        );
    }

    #[test]
    fn a_redirect_says_what_to_set() {
        let text = Error::of_answer(302, b"").to_string();
        assert!(text.contains("IRONIC_ENDPOINT"), "{text}");
    }

    #[test]
    fn secrets_are_taken_out() {
        let error = || Error::of_answer(400, &fault("bad value 'hunter2' of password"));
        assert_eq!(error().without(Some("")).text(), error().without(None).text());
        let error = error().without(Some("hunter2"));
        assert!(!format!("{error} {error:?}").contains("hunter2"));
        assert!(error.text().contains("bad value"));
    }

    proptest! {
        #[test]
        fn any_answer_is_an_error_of_one_bounded_line(
            status in 300u16..600,
            body in proptest::collection::vec(any::<u8>(), 0..2000),
            text in ".{0,2000}",
        ) {
            for body in [body, fault(&text), text.into_bytes()] {
                let shown = Error::of_answer(status, &body).to_string();
                prop_assert!(shown.chars().count() < MAX_TEXT + 200);
                prop_assert!(!shown.chars().any(char::is_control));
            }
        }
    }
}
