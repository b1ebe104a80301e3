//! Where Ironic is and how to speak to it, by the Metal3 operator's own names.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use controller_kit::config::{Command, Given, Mistakes, duration, given, reads};
use reqwest::Url;

/// Calls to nodes that answer, at the same time. More of them make Ironic slower, not faster.
pub const CALLS: usize = 6;
/// Most calls at the same time that may be asked for.
pub const MOST_CALLS: usize = 8;
const DEFAULT_AUTH_ROOT: &str = "/opt/metal3/auth";
const DEFAULT_CA: &str = "/opt/metal3/certs/ca/tls.crt";
const DEFAULT_CLIENT_CERT: &str = "/opt/metal3/certs/client/tls.crt";
const DEFAULT_CLIENT_KEY: &str = "/opt/metal3/certs/client/tls.key";
/// How long a call may hold up others. Ironic answers what needs no machine within a fraction of it.
const CALL_PATIENCE: Duration = Duration::from_secs(1);
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);

/// Flags of a controller that speaks to Ironic.
#[derive(Args, Clone, Debug)]
pub struct Flags {
    /// URL of the Ironic API; the other variables of the operator's Ironic client are read too
    #[arg(long, env = "IRONIC_ENDPOINT", default_value = "", value_parser = reads(given))]
    pub ironic_endpoint: Given<String>,
    /// Look only at nodes of this conductor group of Ironic, where each group has an instance of its own
    #[arg(long, env = "IRONIC_CONDUCTOR_GROUP", default_value = "", value_parser = reads(group))]
    pub conductor_group: Given<String>,
}

impl Flags {
    /// How to reach Ironic, by these flags and the environment. Commands that do not speak to it do not ask for its address.
    pub fn settings(self, command: Option<&Command>, mistakes: &mut Mistakes) -> Option<Settings> {
        if matches!(command, Some(Command::Crds | Command::ExtendCrd { .. })) {
            return None;
        }
        let lookup = |name: &str| std::env::var(name).ok();
        let read = Settings::from_lookup(self.ironic_endpoint.as_deref(), lookup);
        let read = read.map_err(|lines| lines.into_iter().for_each(|line| mistakes.note(line)));
        Some(Settings { conductor_group: self.conductor_group, ..read.ok()? })
    }
}

/// Settings of the client. They hold paths, never the secrets themselves, so they may be logged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Root of the API, without the trailing `v1/`.
    pub endpoint: Url,
    /// Trust anchors for the server's certificate. If the file exists, only these are trusted;
    /// otherwise the system's.
    pub ca_file: PathBuf,
    /// Certificate shown to a proxy that asks for one. Used when it and its key exist.
    pub client_cert_file: PathBuf,
    /// Key of that certificate.
    pub client_key_file: PathBuf,
    /// Folder with the files `username` and `password`. No such folder means no authentication.
    pub auth_dir: PathBuf,
    /// Accept any certificate. For laboratories.
    pub insecure: bool,
    /// Only nodes of this conductor group are listed; `None`: all.
    pub conductor_group: Option<String>,
    /// Limit of a whole request, from connecting to the last byte of the answer. The time that a
    /// request waits for a free connection is not part of it.
    pub timeout: Duration,
    /// How long a call may hold up those to other nodes.
    pub patience: Duration,
    /// How many calls are under way at the same time, of those that are answered within that time.
    pub calls: usize,
}

impl Settings {
    /// Reads the environment, given as a function. `endpoint` is what the command line says, and wins.
    ///
    /// All mistakes are returned at once: who starts a pod wants to correct them in one go.
    pub fn from_lookup(
        endpoint: Option<&str>,
        lookup: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, Vec<String>> {
        // An empty variable is what a chart renders for a value that was left out.
        let var = |name: &str| {
            lookup(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
        };
        let mut mistakes = Vec::new();

        let endpoint = match endpoint {
            Some(text) => parse_endpoint("--ironic-endpoint", text),
            None => match var("IRONIC_ENDPOINT") {
                Some(text) => parse_endpoint("IRONIC_ENDPOINT", &text),
                None => Err(no_endpoint(var("IRONIC_NAME"))),
            },
        };
        let endpoint = endpoint.map_err(|mistake| mistakes.push(mistake)).ok();

        // A file named on purpose has to be there; one at its usual place may be.
        let mut file = |name: &str, default: &str| match var(name) {
            Some(path) => {
                let path = PathBuf::from(path);
                if let Err(error) = std::fs::File::open(&path) {
                    mistakes.push(format!("{name}: cannot read {}: {error}", path.display()));
                }
                (path, true)
            }
            None => (PathBuf::from(default), false),
        };
        let (ca_file, _) = file("IRONIC_CACERT_FILE", DEFAULT_CA);
        let (client_cert_file, cert_named) = file("IRONIC_CLIENT_CERT_FILE", DEFAULT_CLIENT_CERT);
        let (client_key_file, key_named) =
            file("IRONIC_CLIENT_PRIVATE_KEY_FILE", DEFAULT_CLIENT_KEY);
        if cert_named != key_named {
            mistakes.push(
                "IRONIC_CLIENT_CERT_FILE and IRONIC_CLIENT_PRIVATE_KEY_FILE belong together: \
                 set both or none"
                    .to_owned(),
            );
        }

        let root = var("METAL3_AUTH_ROOT_DIR");
        let auth_dir = Path::new(root.as_deref().unwrap_or(DEFAULT_AUTH_ROOT)).join("ironic");
        if auth_dir.is_dir() {
            for name in ["username", "password"] {
                let path = auth_dir.join(name);
                match std::fs::read_to_string(&path) {
                    Ok(text) if text.trim().is_empty() => mistakes.push(format!(
                        "{} is empty: fill it, or remove the folder if Ironic asks for no \
                         credentials",
                        path.display()
                    )),
                    Ok(text) if text.trim().chars().any(char::is_control) => {
                        mistakes.push(format!(
                            "{} has more than one line: keep only the {name}",
                            path.display()
                        ));
                    }
                    Ok(_) => {}
                    Err(error) => {
                        mistakes.push(format!("cannot read {}: {error}", path.display()));
                    }
                }
            }
        }

        let insecure = var("IRONIC_INSECURE").map(|value| value.to_ascii_lowercase());
        let insecure = match insecure.as_deref() {
            None | Some("false" | "0") => false,
            Some("true" | "1") => true,
            Some(value) => {
                mistakes.push(format!("IRONIC_INSECURE is {value:?}: say true or false"));
                false
            }
        };
        let timeout = match var("IRONIC_CLIENT_TIMEOUT") {
            None => DEFAULT_TIMEOUT,
            Some(text) => parse_duration(&text).unwrap_or_else(|| {
                mistakes.push(format!(
                    "IRONIC_CLIENT_TIMEOUT is {text:?}: give seconds between 1 and 600, such as \
                     30 or 30s, or minutes, such as 1m"
                ));
                DEFAULT_TIMEOUT
            }),
        };

        match endpoint {
            Some(endpoint) if mistakes.is_empty() => Ok(Self {
                endpoint,
                ca_file,
                client_cert_file,
                client_key_file,
                auth_dir,
                insecure,
                conductor_group: None,
                timeout,
                patience: CALL_PATIENCE,
                calls: CALLS,
            }),
            _ => Err(mistakes),
        }
    }
}

/// What to set where nothing says where Ironic is. The operator can be given the name of an object instead, which it looks up.
fn no_endpoint(named: Option<String>) -> String {
    match named {
        Some(name) => format!(
            "IRONIC_NAME names the Ironic {name:?}, which is not looked up: set IRONIC_ENDPOINT (or --ironic-endpoint) to \
             the URL of its service, such as https://<name>.<namespace>.svc, and mount its credentials and its CA as files"
        ),
        None => "IRONIC_ENDPOINT (or --ironic-endpoint) is missing: set it to the URL of the Ironic API, for example \
                 https://ironic.example.org:6385/"
            .to_owned(),
    }
}

fn group(name: &str) -> Result<Given<String>, String> {
    let is_letter = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    if !name.chars().all(is_letter) {
        return Err("a name as Ironic knows it: letters, digits, '-', '_' and '.'".to_owned());
    }
    given(name)
}

/// The root of the API. The text is never quoted back if it holds a password.
fn parse_endpoint(source: &str, text: &str) -> Result<Url, String> {
    let text = text.trim();
    let mut url = Url::parse(text).map_err(|error| {
        // Even a broken URL can carry a password in front of an @.
        let shown = if text.contains('@') { "the value" } else { text };
        format!("{source}: {shown} is no URL ({error}): give http(s)://host:port/")
    })?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(format!(
            "{source}: {} is not a way to reach Ironic: give http://… or https://…",
            url.scheme()
        ));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(format!(
            "{source} holds credentials: leave them out and mount them as files, see \
             METAL3_AUTH_ROOT_DIR"
        ));
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(format!(
            "{source} has a query or fragment: give only http(s)://host:port/path"
        ));
    }
    let path = url.path().trim_end_matches('/');
    let path = path.strip_suffix("/v1").unwrap_or(path);
    let path = format!("{}/", path.trim_end_matches('/'));
    url.set_path(&path);
    Ok(url)
}

fn parse_duration(text: &str) -> Option<Duration> {
    let seconds = text.parse().ok().map(Duration::from_secs);
    seconds.or_else(|| duration(text)).filter(|it| (1..=600).contains(&it.as_secs()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(endpoint: Option<&str>, vars: &[(&str, &str)]) -> Result<Settings, Vec<String>> {
        Settings::from_lookup(endpoint, |name| {
            let mut vars = vars.iter().chain(&[("METAL3_AUTH_ROOT_DIR", "/nonexistent")]);
            vars.find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn all_mistakes_are_listed_at_once() {
        let mistakes = read(
            None,
            &[
                ("IRONIC_CACERT_FILE", "/nonexistent/ca"),
                ("IRONIC_CLIENT_CERT_FILE", "/nonexistent/cert"),
                ("IRONIC_INSECURE", "perhaps"),
                ("IRONIC_CLIENT_TIMEOUT", "0"),
            ],
        )
        .unwrap_err();
        for name in [
            "IRONIC_ENDPOINT",
            "/nonexistent/ca",
            "/nonexistent/cert",
            "belong together",
            "IRONIC_INSECURE",
            "IRONIC_CLIENT_TIMEOUT",
        ] {
            let hits = mistakes.iter().filter(|m| m.contains(name)).count();
            assert!(hits >= 1, "{name} is not in {mistakes:#?}");
        }
        assert_eq!(mistakes.len(), 6, "{mistakes:#?}");
    }

    #[test]
    fn the_command_line_wins_over_the_environment() {
        let settings = read(Some("http://a:1"), &[("IRONIC_ENDPOINT", "http://b:2/v1/")]).unwrap();
        assert_eq!(settings.endpoint.as_str(), "http://a:1/");
    }

    #[test]
    fn a_conductor_group_that_ironic_cannot_have_is_a_mistake() {
        assert_eq!(group("hall-1.b_2").unwrap().as_deref(), Some("hall-1.b_2"));
        assert!(group("hall 1&x").is_err());
    }

    #[test]
    fn an_empty_variable_is_one_that_is_not_set() {
        let settings =
            read(Some("http://a"), &[("IRONIC_CACERT_FILE", ""), ("IRONIC_INSECURE", " ")])
                .unwrap();
        assert_eq!(settings.ca_file, Path::new(DEFAULT_CA));
        assert!(!settings.insecure);
    }

    #[test]
    fn the_endpoint_may_or_may_not_end_in_v1() {
        for (given, root) in [
            ("http://h:6385", "http://h:6385/"),
            ("http://h:6385/", "http://h:6385/"),
            ("http://h:6385/v1", "http://h:6385/"),
            ("https://h/baremetal/v1/", "https://h/baremetal/"),
            ("https://[fd00::1]:6385/v1//", "https://[fd00::1]:6385/"),
        ] {
            let settings = read(Some(given), &[]).unwrap();
            assert_eq!(settings.endpoint.as_str(), root, "{given}");
        }
    }

    #[test]
    fn a_password_in_the_endpoint_is_refused_and_not_repeated() {
        for given in ["https://admin:hunter2@h/", "admin:hunter2@h", "http://a:hunter2@:x/"] {
            let mistakes = read(Some(given), &[]).unwrap_err();
            assert!(!format!("{mistakes:?}").contains("hunter2"), "{mistakes:?}");
        }
    }

    #[test]
    fn half_of_the_credentials_is_a_mistake() {
        let root = std::env::temp_dir().join(format!("ironic-settings-{}", std::process::id()));
        std::fs::create_dir_all(root.join("ironic")).unwrap();
        std::fs::write(root.join("ironic/username"), "admin\n").unwrap();
        std::fs::write(root.join("ironic/password"), "\n").unwrap();
        let read = || {
            Settings::from_lookup(Some("http://h"), |name| {
                (name == "METAL3_AUTH_ROOT_DIR").then(|| root.display().to_string())
            })
        };
        let mistakes = read().unwrap_err();
        assert!(mistakes[0].contains("password is empty"), "{mistakes:?}");
        std::fs::remove_file(root.join("ironic/password")).unwrap();
        let mistakes = read().unwrap_err();
        assert!(mistakes[0].contains("cannot read"), "{mistakes:?}");
        std::fs::write(root.join("ironic/password"), "secret").unwrap();
        assert!(read().is_ok());
        std::fs::remove_dir_all(&root).unwrap();
    }

    proptest! {
        #[test]
        fn any_text_is_an_endpoint_or_a_mistake(text in ".*") {
            match read(Some(&text), &[]) {
                Ok(settings) => {
                    prop_assert!(settings.endpoint.path().ends_with('/'));
                    prop_assert!(settings.endpoint.password().is_none());
                }
                Err(mistakes) => prop_assert_eq!(mistakes.len(), 1),
            }
        }
    }
}
