//! What a host is good for, judged by the host alone.

use api_types::capi::is_watched;
use api_types::metal3::{BareMetalHost, OperationalStatus, ProvisioningState};
use api_types::names;

pub use api_types::capm3::{consumer_machine, is_elsewhere, is_of};

/// How often the operator may fail at a host before that counts as more than a passing trouble. It waits longer each time, so
/// this is about a quarter of an hour.
const FAILURES: i64 = 3;

/// Why a host is not newly claimed, whatever its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exclusion {
    /// It is being deleted.
    Deleting,
    /// Somebody marked it as unhealthy.
    Unhealthy,
    /// An operation on it failed.
    Failed,
    /// The operator leaves it alone.
    Paused,
    /// It is taken out of Ironic.
    Detached,
}

/// All that keeps this host from being newly claimed, whatever its state.
fn exclusions(host: &BareMetalHost) -> impl Iterator<Item = Exclusion> {
    let all = [
        (host.metadata.deletion_timestamp.is_some(), Exclusion::Deleting),
        (error(host).is_some(), Exclusion::Failed),
        (host.is_paused(), Exclusion::Paused),
        (host.is_detached(), Exclusion::Detached),
        (host.is_marked_unhealthy(), Exclusion::Unhealthy),
    ];
    all.into_iter().filter_map(|(is_so, why)| is_so.then_some(why))
}

/// Why this host is not newly claimed, whatever its state.
pub fn exclusion(host: &BareMetalHost) -> Option<Exclusion> {
    exclusions(host).next()
}

/// The same, as far as it stops the operator as well: that a host is marked as unhealthy holds up nothing that is under way.
pub fn held_up(host: &BareMetalHost) -> Option<Exclusion> {
    exclusions(host).find(|it| *it != Exclusion::Unhealthy)
}

/// Whether `bmo-reboot` has paused it, which takes its own pause off a host that nobody has.
pub fn is_paused_by_bmo_reboot(host: &BareMetalHost) -> bool {
    host.annotation(names::metal3::PAUSED) == Some(names::ferrite::PAUSED_BY_BMO_REBOOT)
}

/// Whether another installation looks after it, by the host's own label. One without is anybody's.
pub fn is_of_others(host: &BareMetalHost, watch_filter: Option<&str>) -> bool {
    host.label(names::capi::WATCH_FILTER).is_some() && !is_watched(&host.metadata, watch_filter)
}

/// What failed on it last, if that was not overcome.
pub fn error(host: &BareMetalHost) -> Option<String> {
    let status = host.status.as_ref()?;
    let kind = status.error_type.as_ref().map(api_types::metal3::ErrorType::as_str);
    match (kind, status.error_message.as_str()) {
        (None, "") => (status.operational_status == OperationalStatus::Error)
            .then(|| "its operationalStatus is error".to_owned()),
        (Some(kind), "") => Some(kind.to_owned()),
        (_, message) => Some(message.to_owned()),
    }
}

/// Whether its spec says what to install, whoever wrote that. An image without a URL is none to the operator: so people told
/// a host to forget its image.
pub fn is_told_what_to_install(host: &BareMetalHost) -> bool {
    host.spec.image.as_ref().is_some_and(|image| !image.url.is_empty())
        || host.spec.custom_deploy.as_ref().is_some_and(|deploy| !deploy.method.is_empty())
}

/// Whether it is or may be still running what a machine had installed on it.
pub fn may_run(host: &BareMetalHost) -> bool {
    is_told_what_to_install(host) || host.provisioning_state().is_provisioned()
}

/// Whether it could be claimed now by whom it is free or kept for.
pub fn is_ready(host: &BareMetalHost) -> bool {
    host.provisioning_state().is_available()
        && exclusion(host).is_none()
        && !is_told_what_to_install(host)
}

/// Whether nothing comes of it without somebody's help. What failed a few times the operator tries again by itself, and a pause
/// may pass: who left such a host for another would leave its disks.
fn is_stuck(host: &BareMetalHost) -> bool {
    let failures = host.status.as_ref().map_or(0, |status| status.error_count);
    exclusions(host).any(|it| match it {
        Exclusion::Failed => failures > FAILURES,
        Exclusion::Paused => !is_paused_by_bmo_reboot(host),
        Exclusion::Deleting | Exclusion::Detached | Exclusion::Unhealthy => true,
    })
}

/// Whether it will be ready without anybody's help. One that is told what to install will not.
pub fn is_on_its_way(host: &BareMetalHost) -> bool {
    use ProvisioningState::{Deleting, Other, PoweringOffBeforeDelete};
    // Provisioned and provisioning: its image was taken away and the operator has not noticed yet.
    !is_stuck(host)
        && may_be_ready(host)
        && !matches!(host.provisioning_state(), PoweringOffBeforeDelete | Deleting | Other(_))
}

/// Whether it is ready but for what may pass. Without credentials, or installed by others, it is none of those that come.
pub fn may_be_ready(host: &BareMetalHost) -> bool {
    use ProvisioningState::{ExternallyProvisioned, Unmanaged};
    host.metadata.deletion_timestamp.is_none()
        && !is_told_what_to_install(host)
        && !matches!(host.provisioning_state(), Unmanaged | ExternallyProvisioned)
}

/// Whether nothing that a consumer installed is on it any more, or ever was. An empty state says nothing of what is on it. One
/// that somebody else installed is never cleared, only switched off, unless that is forbidden.
pub fn is_cleared(host: &BareMetalHost) -> bool {
    use ProvisioningState::{
        Available, ExternallyProvisioned, Inspecting, MatchProfile, Ready, Registering, Unmanaged,
    };
    let is_on = host.status.as_ref().is_some_and(|status| status.powered_on);
    match host.provisioning_state() {
        Unmanaged | Registering | MatchProfile | Inspecting | Ready | Available => true,
        ExternallyProvisioned => !is_on || host.spec.disable_power_off == Some(true),
        _ => false,
    }
}

/// The failure domain that it stands in. An empty label says none, and the machine's schema takes no empty one.
pub fn failure_domain(host: &BareMetalHost) -> Option<&str> {
    host.label(names::capm3::FAILURE_DOMAIN).filter(|domain| !domain.is_empty())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::decide::tests::{host, with};

    #[test]
    fn an_image_without_a_url_and_a_method_without_a_name_are_none() {
        for (spec, told) in [
            (json!({}), false),
            (json!({"image": {"url": ""}}), false),
            (json!({"customDeploy": {"method": ""}}), false),
            (json!({"image": {"url": "http://a/b"}}), true),
            (json!({"customDeploy": {"method": "mine"}}), true),
        ] {
            let host = with(&host("h", "available"), &json!({"spec": spec.clone()}));
            assert_eq!((is_told_what_to_install(&host), is_ready(&host)), (told, !told), "{spec}");
        }
    }

    #[test]
    fn a_host_that_is_told_what_to_install_is_not_on_its_way_to_anybody_else() {
        for (url, coming) in [("", true), ("http://a/b", false)] {
            let image = json!({"spec": {"image": {"url": url}}});
            let host = with(&host("h", "provisioned"), &image);
            assert_eq!(is_on_its_way(&host), coming, "{url}");
        }
    }

    #[test]
    fn a_trouble_that_passes_by_itself_takes_no_host_off_its_way() {
        let marked = |key: &str, value: &str| json!({"metadata": {"annotations": {key: value}}});
        let failed =
            |count: i64| json!({"status": {"errorMessage": "no power", "errorCount": count}});
        let both = with(&host("h", "deprovisioning"), &marked(names::capm3::UNHEALTHY, ""));
        assert!(!is_on_its_way(&with(&both, &failed(1))), "no error hides what is for good");
        for (patch, comes) in [
            (failed(1), true),
            (failed(FAILURES), true),
            (failed(FAILURES + 1), false),
            (marked(names::metal3::PAUSED, names::ferrite::PAUSED_BY_BMO_REBOOT), true),
            (marked(names::metal3::PAUSED, names::capm3::PAUSED_BY_CAPM3), false),
            (marked(names::metal3::PAUSED, ""), false),
            (marked(names::metal3::DETACHED, ""), false),
            (marked(names::capm3::UNHEALTHY, ""), false),
            (json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}), false),
        ] {
            // An available one is switched off with the write that clears it, and that may fail as well.
            for state in ["deprovisioning", "available"] {
                let host = with(&host("h", state), &patch);
                assert_eq!(is_on_its_way(&host), comes, "{state} {patch}");
                assert!(!is_ready(&host), "{state} {patch}");
            }
        }
    }

    #[test]
    fn an_empty_label_is_no_failure_domain() {
        for (value, domain) in [("", None), ("west", Some("west"))] {
            let labels = json!({"metadata": {"labels": {names::capm3::FAILURE_DOMAIN: value}}});
            assert_eq!(failure_domain(&with(&host("h", "available"), &labels)), domain);
        }
    }
}
