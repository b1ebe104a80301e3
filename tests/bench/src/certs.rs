//! Certificates of the bench's own authority: the API server's, its users', the webhooks', Ironic's.

use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose,
};

/// A certificate with its key, both PEM.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The certificate.
    pub certificate: String,
    /// Its private key.
    pub key: String,
}

impl Identity {
    /// Writes `<name>.crt` and `<name>.key` into a folder.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn write(&self, dir: &Path, name: &str) -> anyhow::Result<(PathBuf, PathBuf)> {
        let (crt, key) = (dir.join(format!("{name}.crt")), dir.join(format!("{name}.key")));
        std::fs::write(&crt, &self.certificate)?;
        std::fs::write(&key, &self.key)?;
        Ok((crt, key))
    }
}

/// A certificate authority that lives as long as the bench.
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Authority")
    }
}

impl Authority {
    /// A new one.
    ///
    /// # Errors
    /// When the machine has no randomness.
    pub fn new() -> anyhow::Result<Self> {
        let mut params = CertificateParams::new(Vec::new())?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        params.distinguished_name = name("bench-ca", &[]);
        Ok(Self(CertifiedIssuer::self_signed(params, KeyPair::generate()?)?))
    }

    /// Its own certificate, for those who have to trust it.
    pub fn pem(&self) -> String {
        self.0.pem()
    }

    /// A server on loopback, which pods reach under the address that their node has for it.
    ///
    /// # Errors
    /// When the certificate cannot be signed.
    pub fn server(&self) -> anyhow::Result<Identity> {
        let names = ["127.0.0.1", "localhost", crate::node::Node::ADDRESS];
        let mut params = CertificateParams::new(names.map(str::to_owned).to_vec())?;
        params.distinguished_name = name("bench-server", &[]);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.sign(&params)
    }

    /// A client: to the API server the common name is the user and each organization a group.
    ///
    /// # Errors
    /// When the certificate cannot be signed.
    pub fn client(&self, user: &str, groups: &[&str]) -> anyhow::Result<Identity> {
        self.sign(&client(user, groups)?)
    }

    /// The same client years later: its certificate was not renewed.
    ///
    /// # Errors
    /// When the certificate cannot be signed.
    pub fn expired_client(&self, user: &str, groups: &[&str]) -> anyhow::Result<Identity> {
        let mut params = client(user, groups)?;
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        params.not_after = rcgen::date_time_ymd(2021, 1, 1);
        self.sign(&params)
    }

    fn sign(&self, params: &CertificateParams) -> anyhow::Result<Identity> {
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.0)?;
        Ok(Identity { certificate: certificate.pem(), key: key.serialize_pem() })
    }
}

fn client(user: &str, groups: &[&str]) -> anyhow::Result<CertificateParams> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.distinguished_name = name(user, groups);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    Ok(params)
}

/// A key pair for signing ServiceAccount tokens: public and private PEM.
///
/// # Errors
/// When the machine has no randomness.
pub fn signing_key() -> anyhow::Result<(String, String)> {
    let key = KeyPair::generate()?;
    Ok((key.public_key_pem(), key.serialize_pem()))
}

fn name(common: &str, organizations: &[&str]) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, common);
    // rcgen keeps one value per type; a user of the bench is in one group at most.
    for organization in organizations {
        name.push(DnType::OrganizationName, *organization);
    }
    name
}

/// Chooses the TLS provider of this process. Safe to call often.
pub fn install_provider() {
    let _ = rustls::crypto::ring::default_provider().install_default();
}
