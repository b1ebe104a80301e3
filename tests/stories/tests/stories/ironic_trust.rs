//! Whom the client trusts and as whom it is let in, while both change under it.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bench::cache::RunDir;
use bench::certs::Authority;
use bench::ironic::{Ironic, Options, secured};
use bench::proxy::Proxy;
use ironic::{Class, Client, Error};

use crate::ironic_client::{client, settings};

/// A secret as a kubelet mounts it: the files are links through a link, and an update swaps that one.
struct Mounted {
    dir: PathBuf,
    updates: u32,
}

impl Mounted {
    fn new(dir: PathBuf, files: &[(&str, &str)]) -> Self {
        std::fs::create_dir_all(&dir).unwrap();
        let mut mounted = Self { dir, updates: 0 };
        mounted.update(files);
        for (name, _) in files {
            let link = mounted.dir.join(name);
            std::os::unix::fs::symlink(Path::new("..data").join(name), link).unwrap();
        }
        mounted
    }

    fn update(&mut self, files: &[(&str, &str)]) {
        self.updates += 1;
        let version = format!("..version-{}", self.updates);
        std::fs::create_dir(self.dir.join(&version)).unwrap();
        for (name, content) in files {
            std::fs::write(self.dir.join(&version).join(name), content).unwrap();
        }
        let new = self.dir.join("..data_tmp");
        std::os::unix::fs::symlink(&version, &new).unwrap();
        std::fs::rename(new, self.dir.join("..data")).unwrap();
    }
}

/// Asks until the answer is the wanted one: files are looked at once a second.
async fn eventually(client: &Client, what: &str, wanted: impl Fn(Result<(), Error>) -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        let answer = client.check().await.map(drop);
        let shown = format!("{answer:?}");
        if wanted(answer) {
            return;
        }
        assert!(Instant::now() < deadline, "never {what}: {shown}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

fn assert_sentence(error: &Error, words: &[&str]) {
    let text = error.to_string();
    assert_eq!(text.lines().count(), 1, "{text}");
    for word in words {
        assert!(text.contains(word), "{word} is not in: {text}");
    }
}

#[tokio::test]
async fn credentials_and_authorities_are_taken_over_from_their_files_while_it_runs() {
    let mut ironic = Ironic::start(Options {
        login: Some(("admin".to_owned(), "one".to_owned())),
        tls: true,
        ..Options::default()
    })
    .await
    .unwrap();
    let dir = RunDir::new("trust").unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let authority = ironic.authority.clone().unwrap();
    let mut login = Mounted::new(
        dir.path().join("auth/ironic"),
        &[("username", "admin\n"), ("password", "wrong\n")],
    );
    let mut trust = Mounted::new(dir.path().join("ca"), &[("tls.crt", &authority)]);
    let (auth, ca) = (path("auth"), path("ca/tls.crt"));
    let environment =
        [("METAL3_AUTH_ROOT_DIR", auth.as_str()), ("IRONIC_CACERT_FILE", ca.as_str())];
    let client = Client::new(settings(&ironic.endpoint, &environment)).unwrap();

    // The API's own root asks nobody for a password, so that what follows is told in the right words.
    client.ping().await.unwrap();
    let error = client.check().await.unwrap_err();
    assert_eq!(error.class(), Class::Unauthorized, "{error}");
    assert!(!error.class().is_transient());
    assert_sentence(&error, &["401", "username and password", "METAL3_AUTH_ROOT_DIR"]);
    assert!(!error.to_string().contains("wrong"), "the password is repeated: {error}");

    login.update(&[("username", "admin\n"), ("password", "one\n")]);
    client.check().await.expect("the refusal makes it look at the files at once");

    // Rotation: first Ironic changes, and the secret follows.
    ironic.change_password("two").unwrap();
    assert_eq!(client.check().await.unwrap_err().class(), Class::Unauthorized);
    login.update(&[("username", "admin\n"), ("password", "two\n")]);
    client.check().await.unwrap();

    // An authority's rotation: both are trusted for a while, then the certificate changes, then the old one goes.
    let old = authority;
    ironic.renew_authority().await.unwrap();
    let new = ironic.authority.clone().unwrap();
    let error = client.check().await.unwrap_err();
    assert_eq!(error.class(), Class::Unreachable, "{error}");
    assert_sentence(&error, &["IRONIC_CACERT_FILE"]);
    trust.update(&[("tls.crt", "")]);
    trust.update(&[("tls.crt", &format!("{old}{new}"))]);
    eventually(&client, "trusted by the new authority", |answer| answer.is_ok()).await;
    trust.update(&[("tls.crt", &new)]);
    // Half a file is what somebody is writing: the earlier one stays in force.
    tokio::time::sleep(Duration::from_millis(1100)).await;
    client.check().await.unwrap();
    trust.update(&[("tls.crt", &new[..new.len() / 2])]);
    tokio::time::sleep(Duration::from_millis(1100)).await;
    client.check().await.unwrap();
    trust.update(&[("tls.crt", &old)]);
    eventually(&client, "refused without the authority", |answer| {
        answer.is_err_and(|error| error.class() == Class::Unreachable)
    })
    .await;
}

#[tokio::test]
async fn a_private_authority_is_trusted_when_it_is_named_and_alone() {
    let ironic = secured().await;
    let dir = RunDir::new("authority").unwrap();
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let right = file("right.crt", ironic.authority.as_ref().unwrap());
    let wrong = file("wrong.crt", &Authority::new().unwrap().pem());
    let asked = |environment: Vec<(&'static str, String)>| {
        let environment: Vec<(&str, &str)> =
            environment.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let client = Client::new(settings(&ironic.endpoint, &environment)).unwrap();
        // The root of the API asks nobody for a login.
        async move { client.ping().await }
    };
    asked(vec![("IRONIC_CACERT_FILE", right)]).await.unwrap();
    asked(vec![("IRONIC_INSECURE", "true".to_owned())]).await.unwrap();
    for environment in [vec![], vec![("IRONIC_CACERT_FILE", wrong)]] {
        let error = asked(environment).await.unwrap_err();
        assert_eq!(error.class(), Class::Unreachable, "{error}");
        assert_sentence(&error, &["GET /v1/", "IRONIC_CACERT_FILE"]);
    }
    // The right port with the wrong scheme, both ways round.
    let plain = client(&ironic.endpoint.replace("https", "http")).ping().await.unwrap_err();
    assert!(matches!(plain.class(), Class::Unreachable | Class::Invalid), "{plain}");
    assert_sentence(&plain, &["GET /v1/", "IRONIC_ENDPOINT"]);
    let proxy = Proxy::start(ironic).await.unwrap();
    let secured = client(&proxy.endpoint.replace("http", "https")).check().await.unwrap_err();
    assert_eq!(secured.class(), Class::Unreachable, "{secured}");
    assert_sentence(&secured, &["GET /v1/", "IRONIC_ENDPOINT"]);
}
