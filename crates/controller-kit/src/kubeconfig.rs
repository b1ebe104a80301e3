//! Kubeconfigs: what the library would end the process for, and clients from those that somebody else wrote.

use std::path::{Path, PathBuf};
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, ResourceExt as _};
use tower::util::MapResponseLayer;

use crate::api_error::chain;
use crate::bounded;
use crate::connection;

/// How long the path of a server may be. Joined with that of a request it has to be a path still.
const PATH: usize = 1024;

/// Refuses what the library ends the process for: a token that no request can carry, such as one with a line break at its
/// end, and a server to whose address no path can be added.
pub fn check(config: &kube::Config) -> Result<(), &'static str> {
    let user = serde_json::to_value(&config.auth_info).unwrap_or_default();
    let token = user["token"].as_str().unwrap_or_default();
    if !token.bytes().all(|byte| (b' '..=b'~').contains(&byte)) {
        return Err("has a token with a line break or another character that no request can carry");
    }
    let server = &config.cluster_url;
    if !matches!(server.scheme_str(), Some("http" | "https")) || server.path().len() > PATH {
        return Err("has a cluster whose server is no URL that begins with https://");
    }
    Ok(())
}

/// The configuration of whoever starts a program: that of the kubeconfigs at this path, else that of `KUBECONFIG` or the default
/// file, else the pod's own account.
///
/// # Errors
/// When there is none, or it cannot be used; the message says what to correct.
pub async fn of_user(named: Option<&Path>, context: Option<&str>) -> Result<kube::Config, String> {
    let file = match (named, context) {
        (Some(path), _) => Some(read(path).map_err(|error| unusable(Some(path), &error))?),
        (None, Some(_)) => Some(Kubeconfig::read().map_err(|error| unusable(None, &error))?),
        (None, None) => None,
    };
    let made = if let Some(file) = file {
        loaded(file, context).await.map_err(|error| unusable(named, &error))?
    } else {
        let mut made = kube::Config::infer().await.map_err(|error| {
            format!("No way to reach an API server: {}; give --kubeconfig (KUBECONFIG) or run in a pod with an account", chain(&error))
        })?;
        let has_proxy = Kubeconfig::read().is_ok_and(|file| names_a_proxy(&file));
        made.proxy_url = made.proxy_url.filter(|_| has_proxy);
        made
    };
    check(&made).map_err(|why| format!("The kubeconfig (--kubeconfig, KUBECONFIG) {why}"))?;
    Ok(made)
}

async fn loaded(file: Kubeconfig, context: Option<&str>) -> Result<kube::Config, KubeconfigError> {
    let has_proxy = names_a_proxy(&file);
    let context = context.map(str::to_owned);
    let options = KubeConfigOptions { context, ..KubeConfigOptions::default() };
    let mut made = kube::Config::from_custom_kubeconfig(file, &options).await?;
    made.proxy_url = made.proxy_url.filter(|_| has_proxy);
    Ok(made)
}

fn unusable(named: Option<&Path>, error: &KubeconfigError) -> String {
    let path = named.map(|it| format!(" {}", it.display())).unwrap_or_default();
    format!("--kubeconfig (KUBECONFIG){path}: {}", chain(error))
}

/// Reads a kubeconfig, or several as kubectl does: separated as in `PATH`, the first word about a thing counts, and what is
/// not there is left out while another is.
fn read(named: &Path) -> Result<Kubeconfig, KubeconfigError> {
    let several: Vec<PathBuf> = std::env::split_paths(named).filter(|it| it.is_file()).collect();
    let Some((first, more)) = several.split_first().filter(|_| !named.exists()) else {
        return Kubeconfig::read_from(named);
    };
    let merge = |all: Kubeconfig, next: &PathBuf| all.merge(Kubeconfig::read_from(next)?);
    more.iter().try_fold(Kubeconfig::read_from(first)?, merge)
}

/// Whether a kubeconfig names a proxy itself. One that only the environment names is meant for what is outside, and the library
/// does not ask which addresses it is not for: it would refuse every cluster.
fn names_a_proxy(kubeconfig: &Kubeconfig) -> bool {
    let mut clusters = kubeconfig.clusters.iter().filter_map(|it| it.cluster.as_ref());
    clusters.any(|it| it.proxy_url.as_ref().is_some_and(|it| !it.is_empty()))
}

/// A client from a secret that Cluster API keeps for a workload cluster. A connection has `patience`; each answer has `answer`, or
/// as long as it likes where somebody also watches: a watch is an answer that goes on.
///
/// Whoever may write secrets in a namespace decides where it connects to. So a kubeconfig that would run a program or read
/// a file of this pod is refused, and of what is wrong nothing is repeated: it is a secret.
pub async fn client(
    controller: &str,
    secret: &Secret,
    patience: Duration,
    answer: Option<Duration>,
) -> Result<Client, String> {
    let name = secret.name_any();
    let value = secret.data.as_ref().and_then(|data| data.get("value"));
    let value = value.ok_or_else(|| format!("the secret {name} has no key \"value\""))?;
    let wrong = |why: String| format!("the kubeconfig in the secret {name} {why}");
    let text = std::str::from_utf8(&value.0).map_err(|_| wrong("is no text".to_owned()))?;
    let mut config = config(text).await.map_err(wrong)?;
    config.connect_timeout = Some(patience);
    config.read_timeout = answer;
    config.write_timeout = Some(patience);
    let builder = connection::builder(config, controller).map_err(|_| {
        wrong("makes no client: correct its certificates, its key or its proxy".to_owned())
    })?;
    Ok(builder.with_layer(&MapResponseLayer::new(bounded::answer)).build())
}

async fn config(text: &str) -> Result<kube::Config, String> {
    let all = Kubeconfig::from_yaml(text).map_err(|error| explain(&error))?;
    let users = all.auth_infos.iter().filter_map(|it| it.auth_info.as_ref());
    let mut clusters = all.clusters.iter().filter_map(|it| it.cluster.as_ref());
    let mut reads_files = clusters.any(|it| it.certificate_authority.is_some());
    for user in users {
        if user.exec.is_some() || user.auth_provider.is_some() {
            return Err("runs a program, which is refused: use a token or a certificate".to_owned());
        }
        if is_somebody_else(user) {
            return Err("acts as somebody else, which is refused: take `as` away".to_owned());
        }
        reads_files |= user.token_file.is_some()
            || user.client_certificate.is_some()
            || user.client_key.is_some();
    }
    if reads_files {
        return Err("names files, which are not here: put their contents into it".to_owned());
    }
    let config = loaded(all, None).await.map_err(|error| explain(&error))?;
    check(&config)?;
    Ok(config)
}

/// No cluster's own kubeconfig does that, and each name of it would be a header of every request.
fn is_somebody_else(user: &AuthInfo) -> bool {
    user.impersonate.is_some()
        || user.impersonate_uid.is_some()
        || user.impersonate_groups.is_some()
        || user.impersonate_user_extra.is_some()
}

/// Where it is wrong, and nothing of what stands there. The library would show names, and the lines around a mistake.
fn explain(error: &KubeconfigError) -> String {
    let why = match error {
        KubeconfigError::Parse(error) => {
            let place = error.location();
            let place = place.map(|it| format!(" (line {}, column {})", it.line(), it.column()));
            let place = place.unwrap_or_default();
            return format!("cannot be read: it is no kubeconfig{place}");
        }
        KubeconfigError::CurrentContextNotSet => "it has no current-context",
        KubeconfigError::LoadContext(_) => "its current-context is none of its contexts",
        KubeconfigError::LoadClusterOfContext(_) => {
            "its context names a cluster that is none of its clusters"
        }
        KubeconfigError::MissingClusterUrl => "its cluster has no server",
        KubeconfigError::ParseClusterUrl(_) => "its cluster's server is no URL",
        KubeconfigError::ParseProxyUrl(_) => "its cluster's proxy-url is no URL",
        KubeconfigError::LoadCertificateAuthority(_) | KubeconfigError::ParseCertificates(_) => {
            "its certificate-authority-data is no certificate in base64"
        }
        KubeconfigError::LoadClientCertificate(_) => "its client-certificate-data is no base64",
        KubeconfigError::LoadClientKey(_) => "its client-key-data is no base64",
        _ => "correct its context, cluster and user",
    };
    format!("makes no client: {why}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kubeconfig with parts of a cluster, of a user and of all.
    async fn made(server: &str, user: &str, more: &str) -> Result<Client, String> {
        let text = format!(
            "apiVersion: v1\nkind: Config\n{more}\n\
             clusters: [{{name: c, cluster: {server}}}]\n\
             contexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n\
             users: [{{name: u, user: {user}}}]\n"
        );
        of(&text).await
    }

    async fn of(text: &str) -> Result<Client, String> {
        let secret = serde_json::json!({"metadata": {"name": "s"}, "stringData": {}});
        let mut secret: Secret = serde_json::from_value(secret).unwrap();
        let value = k8s_openapi::ByteString(text.as_bytes().to_vec());
        secret.data = Some([("value".to_owned(), value)].into());
        let second = Duration::from_secs(1);
        client("sample", &secret, second, Some(second)).await
    }

    const SERVER: &str = "{server: \"https://127.0.0.1:1\"}";
    const CURRENT: &str = "current-context: c";

    #[test]
    fn of_several_kubeconfigs_the_first_word_counts_and_those_that_are_not_there_are_left_out() {
        let folder = std::env::temp_dir().join(format!("kubeconfigs-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = |name: &str| folder.join(name);
        for name in ["a", "b"] {
            let text = format!(
                "current-context: {name}\ncontexts: [{{name: {name}, context: {{cluster: {name}}}}}]\n"
            );
            std::fs::write(file(name), text).unwrap();
        }
        let read = |names: &[&str]| {
            let files = names.iter().map(|name| file(name));
            read(Path::new(&std::env::join_paths(files).unwrap()))
        };
        let all = read(&["none", "b", "a"]).unwrap();
        assert_eq!(all.current_context.as_deref(), Some("b"));
        assert_eq!(all.contexts.iter().map(|it| it.name.as_str()).collect::<Vec<_>>(), ["b", "a"]);
        assert_eq!(read(&["a"]).unwrap().contexts.len(), 1);
        assert!(read(&["none"]).is_err() && read(&["none", "neither"]).is_err());
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[tokio::test]
    async fn a_kubeconfig_that_runs_a_program_or_reads_a_file_is_refused() {
        for user in [
            "{exec: {apiVersion: client.authentication.k8s.io/v1, command: sh}}",
            "{auth-provider: {name: x, config: {}}}",
            "{tokenFile: /var/run/secrets/token}",
            "{client-certificate: /etc/tls.crt, client-key: /etc/tls.key}",
            "{token: abc, as: admin}",
            "{token: abc, as-user-extra: {a: [b]}}",
        ] {
            let why = made(SERVER, user, CURRENT).await.map(drop).unwrap_err();
            assert!(why.contains("refused") || why.contains("files"), "{user}: {why}");
        }
        assert!(made(SERVER, "{token: abc}", CURRENT).await.is_ok());
        let file = "{server: \"https://127.0.0.1:1\", certificate-authority: /etc/ca.crt}";
        assert!(made(file, "{token: abc}", CURRENT).await.is_err());
    }

    #[test]
    fn a_proxy_is_a_kubeconfigs_only_where_it_names_one() {
        let of = |cluster: &str| {
            let text = format!(
                "apiVersion: v1\nkind: Config\nclusters: [{{name: c, cluster: {cluster}}}]\n"
            );
            names_a_proxy(&Kubeconfig::from_yaml(&text).unwrap())
        };
        assert!(of("{server: \"https://a\", proxy-url: \"http://proxy.example:3128\"}"));
        assert!(!of("{server: \"https://a\"}") && !of("{server: \"https://a\", proxy-url: \"\"}"));
    }

    #[tokio::test]
    async fn a_token_that_no_request_can_carry_is_refused_and_ends_nothing() {
        for token in ["abc\\n", "a\\nb", "a\\u0001", "\\u00e4"] {
            let user = format!("{{token: \"{token}\"}}");
            let why = made(SERVER, &user, CURRENT).await.map(drop).unwrap_err();
            assert!(why.contains("has a token with a line break"), "{token}: {why}");
        }
        assert!(made(SERVER, "{token: a b}", CURRENT).await.is_ok());
    }

    #[tokio::test]
    async fn a_server_to_which_no_path_can_be_added_is_refused_and_ends_nothing() {
        let long = format!("https://127.0.0.1:1/{}", "x".repeat(65_000));
        for server in ["127.0.0.1:6443", "localhost:6443", "*", "/", "ftp://a", long.as_str()] {
            let why = made(&format!("{{server: \"{server}\"}}"), "{token: abc}", CURRENT).await;
            let why = why.map(drop).unwrap_err();
            assert!(why.contains("begins with https://"), "{server}: {why}");
        }
        // What is taken can be asked.
        let taken = made("{server: \"http://127.0.0.1:1/prefix/\"}", "{token: abc}", CURRENT).await;
        assert!(taken.unwrap().apiserver_version().await.is_err(), "nobody is there");
    }

    #[tokio::test]
    async fn what_is_wrong_is_told_and_nothing_of_it_is_repeated() {
        for text in ["SECRET-1", "users:\n- SECRET-2\n", "users: {SECRET-3: [\n"] {
            let why = of(text).await.map(drop).unwrap_err();
            assert!(why.contains("is no kubeconfig") && !why.contains("SECRET"), "{why}");
            assert!(!why.contains('\n'), "{why}");
        }
        let why = of("SECRET-4").await.map(drop).unwrap_err();
        assert!(why.ends_with("(line 1, column 1)"), "{why}");
        let user = "{token: abc}";
        for (server, user, more, told) in [
            (SERVER, user, "current-context: SECRET-5", "none of its contexts"),
            (SERVER, user, "", "has no current-context"),
            ("{server: \"SECRET 6\"}", user, CURRENT, "server is no URL"),
            ("{}", user, CURRENT, "has no server"),
            (
                "{server: \"https://127.0.0.1:1\", certificate-authority-data: SECRET.7}",
                user,
                CURRENT,
                "certificate-authority-data",
            ),
            (SERVER, "{client-certificate-data: SECRET.8, client-key-data: SECRET.9}", CURRENT, ""),
        ] {
            let why = made(server, user, more).await.map(drop).unwrap_err();
            assert!(why.contains(told) && !why.contains("SECRET"), "{why}");
            assert!(why.starts_with("the kubeconfig in the secret s makes no client: "), "{why}");
        }
    }
}
