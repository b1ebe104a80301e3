//! What has to be there and right before a host is told to install anything, whether the machine has its host already or
//! is still to get one.

use std::time::Duration;

use api_types::capi::{Cluster, Machine};
use api_types::capm3::Metal3Machine;

use super::UNWATCHED_AGAIN;
use crate::model::MachineSeen;
use crate::reason::Reason;
use crate::seen::Data;
use crate::status::Said;
use crate::text;

/// What is missing or wrong, the first of it.
pub(super) fn lack(seen: &MachineSeen, parent: &Machine, cluster: &Cluster) -> Option<Said> {
    let lack = |reason: Reason, text: &str| Some(Said::no(reason, text));
    if parent.metadata.deletion_timestamp.is_some() {
        return lack(Reason::MachineDeleting, text::MACHINE_DELETING);
    }
    if !cluster.infrastructure_provisioned() {
        return lack(Reason::WaitingForInfrastructure, text::NO_INFRASTRUCTURE);
    }
    if parent.spec.bootstrap.data_secret_name.as_deref().unwrap_or_default().is_empty() {
        return lack(Reason::WaitingForBootstrapData, text::NO_BOOTSTRAP_DATA);
    }
    if let Some(why) = wrong_image(&seen.machine) {
        return lack(Reason::ImageInvalid, &why);
    }
    if let Some(why) = foreign(&seen.machine) {
        return lack(Reason::ForeignNamespace, &why);
    }
    if seen.data == Data::Unserved {
        return lack(Reason::DataFailed, text::DATA_UNSERVED);
    }
    let (field, name) = seen.missing.as_ref()?;
    let (reason, text) = match *field {
        "userData" => (Reason::BootstrapSecretMissing, text::bootstrap_secret_missing(name)),
        "dataTemplate" => {
            (Reason::DataTemplateMissing, text::missing("Metal3DataTemplate", name, field))
        }
        _ => (Reason::SecretMissing, text::missing("Secret", name, field)),
    };
    lack(reason, &text)
}

/// How soon to look again for what is missing: nobody tells when it is there.
pub(super) fn again(seen: &MachineSeen) -> Option<Duration> {
    seen.missing.as_ref().map(|_| UNWATCHED_AGAIN)
}

/// What is wrong with the image, if it is not somebody else's method that installs.
fn wrong_image(machine: &Metal3Machine) -> Option<String> {
    let spec = &machine.spec;
    if spec.custom_deploy.as_ref().is_some_and(|deploy| !deploy.method.is_empty()) {
        return None;
    }
    let Some(image) = &spec.image else {
        return Some(text::IMAGE_MISSING.to_owned());
    };
    let Some((scheme, _)) =
        image.url.split_once("://").filter(|(scheme, rest)| !scheme.is_empty() && !rest.is_empty())
    else {
        return Some(text::no_url(&image.url));
    };
    // A registry vouches for its images. Older releases of Cluster API's Metal3 provider and of the operator demand a checksum
    // of those, too, and newer ones refuse it: that is for them to say.
    let is_checked = image.disk_format() != Some("live-iso") && !scheme.eq_ignore_ascii_case("oci");
    (is_checked && image.checksum.as_deref().unwrap_or_default().is_empty())
        .then(|| text::CHECKSUM_MISSING.to_owned())
}

/// What names another namespace: secrets are read with the rights of whoever may write a host here.
fn foreign(machine: &Metal3Machine) -> Option<String> {
    let own = machine.metadata.namespace.as_deref().unwrap_or_default();
    let spec = &machine.spec;
    let secrets = [
        ("userData", &spec.user_data),
        ("metaData", &spec.meta_data),
        ("networkData", &spec.network_data),
    ];
    let secrets =
        secrets.iter().filter_map(|(field, it)| Some((*field, it.as_ref()?.namespace.as_deref()?)));
    let template = spec.data_template.as_ref().and_then(|it| it.namespace.as_deref());
    let mut all = secrets.chain(template.map(|it| ("dataTemplate", it)));
    let (field, other) = all.find(|(_, it)| !it.is_empty() && *it != own)?;
    Some(text::foreign(field, other, own))
}
