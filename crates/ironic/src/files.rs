//! Credentials and certificates, followed as they are rotated.

use std::fmt;
use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use reqwest::{Certificate, Identity};

use crate::error::Error;
use crate::settings::Settings;

/// Longest wait for a new connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Idle connections are given up before the usual proxies do so (5 seconds): a request that meets
/// a connection just being closed would fail, and whether it was acted upon would be unknown.
const IDLE_TIMEOUT: Duration = Duration::from_secs(4);

/// What the files held. Compared as a whole to see whether anything was rotated: they are small,
/// and content cannot be fooled by the coarse times of a file system.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Material {
    ca: Option<Vec<u8>>,
    cert: Option<Vec<u8>>,
    key: Option<Vec<u8>>,
    username: Option<String>,
    password: Option<String>,
}

impl fmt::Debug for Material {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Material(…)")
    }
}

impl Material {
    /// Reads all files. A file that is gone or empty keeps what `before` had: it is being replaced.
    pub(crate) fn read(settings: &Settings, before: &Self) -> Result<Self, Error> {
        let text = |name: &str, before: &Option<String>| -> Result<Option<String>, Error> {
            let path = settings.auth_dir.join(name);
            let Some(bytes) = content(&path)? else {
                return Ok(before.clone());
            };
            let text = String::from_utf8(bytes)
                .map_err(|_| Error::invalid(format!("{} is not text", path.display())))?;
            let text = text.trim();
            Ok(if text.is_empty() { before.clone() } else { Some(text.to_owned()) })
        };
        Ok(Self {
            ca: content(&settings.ca_file)?.or_else(|| before.ca.clone()),
            cert: content(&settings.client_cert_file)?.or_else(|| before.cert.clone()),
            key: content(&settings.client_key_file)?.or_else(|| before.key.clone()),
            username: text("username", &before.username)?,
            password: text("password", &before.password)?,
        })
    }

    /// User name and password, if both are there.
    pub(crate) fn credentials(&self) -> Option<(&str, &str)> {
        Some((self.username.as_deref()?, self.password.as_deref()?))
    }

    /// Whether something other than the credentials differs: then connections have to be new.
    pub(crate) fn needs_new_connections(&self, other: &Self) -> bool {
        (&self.ca, &self.cert, &self.key) != (&other.ca, &other.cert, &other.key)
    }

    /// A client with these certificates.
    pub(crate) fn connect(
        &self,
        settings: &Settings,
        connections: usize,
    ) -> Result<reqwest::Client, Error> {
        // The first one to say so wins; a program that chose a provider itself keeps it.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut builder = reqwest::Client::builder()
            .user_agent(concat!("ferrite/", env!("CARGO_PKG_VERSION")))
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .no_proxy()
            .referer(false)
            .tcp_nodelay(true)
            .connect_timeout(CONNECT_TIMEOUT.min(settings.timeout))
            .timeout(settings.timeout)
            .pool_idle_timeout(IDLE_TIMEOUT)
            .pool_max_idle_per_host(connections);
        if settings.insecure {
            builder = builder.tls_danger_accept_invalid_certs(true);
        }
        if settings.endpoint.scheme() == "http" {
            // No certificate is ever looked at, so an image without any has to do.
            builder = builder.tls_certs_only([]);
        } else if let Some(pem) = &self.ca {
            let path = settings.ca_file.display();
            let invalid =
                |why: String| Error::invalid(format!("{path} holds no certificate: {why}"));
            let certs = Certificate::from_pem_bundle(pem).map_err(|e| invalid(cause(&e)))?;
            if certs.is_empty() {
                return Err(invalid("no PEM block in it".to_owned()));
            }
            builder = builder.tls_certs_only(certs);
        }
        if let (Some(cert), Some(key)) = (&self.cert, &self.key) {
            let pem = [cert.as_slice(), b"\n", key.as_slice()].concat();
            let identity = Identity::from_pem(&pem).map_err(|error| {
                Error::invalid(format!(
                    "{} and {} are no certificate and key: {}",
                    settings.client_cert_file.display(),
                    settings.client_key_file.display(),
                    cause(&error)
                ))
            })?;
            builder = builder.identity(identity);
        }
        builder.build().map_err(|error| {
            Error::invalid(format!("the certificates cannot be used: {}", cause(&error)))
        })
    }
}

/// The innermost reason: the outer ones only say that something failed.
pub(crate) fn cause(error: &dyn std::error::Error) -> String {
    let mut inner = error;
    while let Some(source) = inner.source() {
        inner = source;
    }
    inner.to_string()
}

/// A file's bytes. Absent and empty are the same.
fn content(path: &Path) -> Result<Option<Vec<u8>>, Error> {
    match std::fs::read(path) {
        Ok(bytes) => Ok((!bytes.is_empty()).then_some(bytes)),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            Ok(None)
        }
        Err(error) => Err(Error::invalid(format!("cannot read {}: {error}", path.display()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Class;

    struct Folder(std::path::PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("ironic-{name}-{}", std::process::id()));
            std::fs::create_dir_all(path.join("ironic")).unwrap();
            Self(path)
        }

        fn write(&self, name: &str, text: &str) {
            std::fs::write(self.0.join(name), text).unwrap();
        }

        fn settings(&self, endpoint: &str) -> Settings {
            let mut settings = Settings::from_lookup(Some(endpoint), |name| {
                (name == "METAL3_AUTH_ROOT_DIR").then(|| "/nonexistent".to_owned())
            })
            .unwrap();
            settings.auth_dir = self.0.join("ironic");
            settings.ca_file = self.0.join("ca");
            settings.client_cert_file = self.0.join("cert");
            settings.client_key_file = self.0.join("key");
            settings
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_file_that_is_being_replaced_keeps_what_it_held() {
        let folder = Folder::new("replace");
        let settings = folder.settings("http://h");
        folder.write("ironic/username", "admin\n");
        folder.write("ironic/password", "one");
        let first = Material::read(&settings, &Material::default()).unwrap();
        assert_eq!(first.credentials(), Some(("admin", "one")));

        folder.write("ironic/password", "");
        let emptied = Material::read(&settings, &first).unwrap();
        assert_eq!(emptied, first);
        std::fs::remove_file(settings.auth_dir.join("username")).unwrap();
        assert_eq!(Material::read(&settings, &emptied).unwrap(), first);

        folder.write("ironic/password", "two");
        let rotated = Material::read(&settings, &emptied).unwrap();
        assert_eq!(rotated.credentials(), Some(("admin", "two")));
        assert!(!rotated.needs_new_connections(&first));
    }

    #[test]
    fn half_a_certificate_is_no_certificate() {
        let folder = Folder::new("half");
        let settings = folder.settings("https://h");
        for half in ["-----BEGIN CERTIFICATE-----\nMIIB", "garbage", "\n"] {
            folder.write("ca", half);
            let material = Material::read(&settings, &Material::default()).unwrap();
            let error = material.connect(&settings, 1).unwrap_err();
            assert_eq!(error.class(), Class::Invalid, "{half:?}");
            assert!(error.to_string().contains("ca"), "{error}");
        }
    }

    #[test]
    fn credentials_are_not_shown() {
        let folder = Folder::new("shown");
        folder.write("ironic/username", "admin");
        folder.write("ironic/password", "hunter2");
        let settings = folder.settings("http://h");
        let material = Material::read(&settings, &Material::default()).unwrap();
        assert!(!format!("{material:?}{settings:?}").contains("hunter2"));
    }
}
