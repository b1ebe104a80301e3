//! The driver of a node whose host got a BMC: it follows the BMC's address. The rules are pure.

use controller_kit::engine::{Decision, Event, Next, Now, ObjectKey, Reason as _};
use ironic::{Class, Detail};

use crate::context::Context;
use crate::driver::drivers_of;
use crate::model::{Adoption, Fitting, Turn, Write};
use crate::observe;
use crate::reason::Pass;
use crate::text;
use crate::waits::{IRONIC_RETRY, IRONIC_RETRY_MAX, REFUSED_RETRY};

/// What a change of the driver depends on.
const WORK_FIELDS: Detail = Detail::Fields(&[
    "uuid",
    "driver",
    "provision_state",
    "bios_interface",
    "boot_interface",
    "firmware_interface",
    "management_interface",
    "power_interface",
    "raid_interface",
    "vendor_interface",
]);

/// How the node is; nothing where it is gone. An error is what was said by who did not answer.
pub async fn observe(
    context: &Context,
    host: &ObjectKey,
    adoption: Adoption,
) -> Result<Option<Fitting>, String> {
    let read = read(context, adoption, context.policy.adopt_driver).await;
    let read = read.inspect_err(|error| context.metrics.ironic_failed(error));
    let Some(mut fitting) = read.map_err(|error| error.to_string())? else { return Ok(None) };
    if !fitting.fits() && fitting.chosen().is_some() {
        let now = observe::host(context, host).await.map_err(|error| error.to_string())?;
        fitting.asks = now.as_ref().and_then(Adoption::of).as_ref() == Some(&fitting.adoption);
    }
    Ok(Some(fitting))
}

/// The same, whatever the host says.
pub async fn read(
    context: &Context,
    adoption: Adoption,
    adopts: bool,
) -> Result<Option<Fitting>, ironic::Error> {
    let id = adoption.node.to_string();
    let node = match context.ironic.node(&id, WORK_FIELDS).await {
        Err(error) if error.class() == Class::NotFound => return Ok(None),
        answer => answer?,
    };
    let kinds = drivers_of(&adoption.address).iter().flat_map(|it| it.interfaces());
    let shown = kinds.map(|(kind, _)| (kind, node.interface(kind).unwrap_or_default().to_owned()));
    let mut fitting = Fitting {
        adoption,
        interfaces: shown.collect(),
        adopts,
        driver: node.driver.unwrap_or_default(),
        state: node.provision_state.unwrap_or_default(),
        offered: Vec::new(),
        asks: false,
    };
    if fitting.fits() || !fitting.adopts || !fitting.is_at_rest() {
        return Ok(Some(fitting));
    }
    let drivers = context.ironic.drivers(Some(&id)).await?;
    fitting.offered = drivers.into_iter().map(|it| it.name).collect();
    Ok(Some(fitting))
}

/// What to do about its driver.
pub fn decide(fitting: &Fitting, turn: Turn, now: Now) -> Decision<Write, Pass> {
    let Fitting { adoption, driver, state, .. } = fitting;
    if fitting.fits() {
        return Decision::rest(Pass::DriverAdopted);
    }
    let waited = now.moment.saturating_duration_since(turn.since);
    let next = Next::After(waited.clamp(IRONIC_RETRY, IRONIC_RETRY_MAX));
    let waits = |reason: Pass, text: String| {
        let event = Event { hourly: Some(0), ..Event::new(true, reason.as_str(), "Adopt", &text) };
        Decision { next, events: vec![event], ..Decision::rest(reason) }
    };
    if !fitting.adopts {
        let (node, has) = (adoption.node, &fitting.interfaces);
        let text = text::driver_differs(node, driver, has, fitting.wanted());
        return waits(Pass::DriverDiffers, text);
    }
    if !fitting.is_at_rest() {
        // On its way from one state to the next; in use it stays as it is until it is free.
        if waited < REFUSED_RETRY {
            return Decision { next, ..Decision::rest(Pass::DriverAdoptionWaits) };
        }
        return waits(Pass::DriverAdoptionWaits, text::driver_waits(adoption.node, driver, state));
    }
    let Some(chosen) = fitting.chosen() else {
        // Somebody may enable it.
        let text = text::no_driver(adoption.node, driver, fitting.wanted());
        return waits(Pass::DriverNotEnabled, text);
    };
    if !fitting.asks {
        // The watch may never tell of what the host asked for in between.
        return Decision { next, ..Decision::rest(Pass::DriverUnasked) };
    }
    if let Some(decision) = turn.left_alone(now) {
        return decision;
    }
    Decision::write(Pass::DriverAdopted, Write::Driver(chosen, driver.clone()))
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::model::AT_REST;
    use crate::node_id::NodeId;

    const ADDRESS: &str = "redfish://192.0.2.1/x";

    fn fitting(driver: &str, state: &str) -> Fitting {
        let adoption = Adoption { node: NodeId::from(1), address: ADDRESS.to_owned() };
        let own = drivers_of(ADDRESS)[0].interfaces();
        let interfaces = own.map(|(kind, name)| (kind, name.to_owned())).collect();
        let (driver, state) = (driver.to_owned(), state.to_owned());
        let offered = vec!["ipmi".to_owned(), "redfish".to_owned()];
        Fitting { adoption, driver, interfaces, adopts: true, state, offered, asks: true }
    }

    /// What is decided of a node that has waited for so many seconds: why, the new driver, and what is told.
    fn decided(fitting: &Fitting, seconds: u64) -> (Pass, Option<&'static str>, usize, Next) {
        let now = Now::read();
        let since = now.moment.checked_sub(Duration::from_secs(seconds)).unwrap();
        let turn = Turn { since, refused: None };
        let decision = decide(fitting, turn, now);
        let driver = decision.writes.into_iter().find_map(|write| match write {
            Write::Driver(chosen, _) => Some(chosen.driver),
            _ => None,
        });
        (decision.reason, driver, decision.events.len(), decision.next)
    }

    #[test]
    fn a_node_at_rest_gets_the_driver_of_its_bmc_once() {
        for state in AT_REST {
            let (reason, driver, told, _) = decided(&fitting("fake-hardware", state), 0);
            assert_eq!((reason, told), (Pass::DriverAdopted, 0), "{state}");
            assert_eq!(driver, Some("redfish"), "{state}");
        }
        let fits = decided(&fitting("redfish", "active"), 0);
        assert_eq!(fits, (Pass::DriverAdopted, None, 0, Next::OnChange));
    }

    /// Ironic's defaults of a driver boot by PXE: the kind of the address would be ignored in silence.
    #[test]
    fn a_node_with_the_right_driver_and_other_interfaces_gets_those_of_its_bmc() {
        let mut other = fitting("redfish", "manageable");
        other.adoption.address = "redfish-virtualmedia://192.0.2.1/x".to_owned();
        let (reason, driver, ..) = decided(&other, 0);
        assert_eq!((reason, driver), (Pass::DriverAdopted, Some("redfish")));
        other.interfaces.insert("boot", "redfish-virtual-media".to_owned());
        assert_eq!(decided(&other, 0), (Pass::DriverAdopted, None, 0, Next::OnChange));
        // As the operator sets it for volumes of software.
        other.interfaces.insert("raid", "agent".to_owned());
        assert_eq!(decided(&other, 0), (Pass::DriverAdopted, None, 0, Next::OnChange));
    }

    #[test]
    fn without_the_right_to_change_it_a_person_is_told_what_differs() {
        for (driver, state) in [("fake-hardware", "enroll"), ("fake-hardware", "active")] {
            let may_not = Fitting { adopts: false, ..fitting(driver, state) };
            let (reason, driver, told, next) = decided(&may_not, 0);
            assert_eq!((reason, driver, told), (Pass::DriverDiffers, None, 1));
            assert_eq!(next, Next::After(IRONIC_RETRY));
        }
        let mut other = Fitting { adopts: false, ..fitting("redfish", "active") };
        assert_eq!(decided(&other, 0).2, 0, "it fits");
        other.interfaces.insert("boot", "redfish-virtual-media".to_owned());
        assert_eq!(decided(&other, 0).0, Pass::DriverDiffers);
        let (node, wanted) = (other.adoption.node, other.wanted());
        let text = text::driver_differs(node, &other.driver, &other.interfaces, wanted);
        for part in ["redfish (boot redfish-virtual-media,", "redfish (boot ipxe,"] {
            assert!(text.contains(part), "{text}");
        }
    }

    #[test]
    fn a_node_in_use_keeps_its_driver_and_a_person_is_told_when_that_lasts() {
        let waits = |seconds| {
            let (reason, driver, told, next) = decided(&fitting("ipmi", "active"), seconds);
            assert_eq!((reason, driver), (Pass::DriverAdoptionWaits, None));
            let Next::After(wait) = next else { panic!("{next:?}") };
            (told, wait.as_secs())
        };
        assert_eq!([0, 10, 29, 30, 999].map(waits), [(0, 5), (0, 10), (0, 29), (1, 30), (1, 300)]);
    }

    #[test]
    fn a_driver_that_is_not_enabled_is_told_and_waited_for() {
        let none = Fitting { offered: vec!["ipmi".to_owned()], ..fitting("ipmi", "enroll") };
        let (reason, driver, told, next) = decided(&none, 0);
        assert_eq!((reason, driver, told), (Pass::DriverNotEnabled, None, 1));
        assert_eq!(next, Next::After(IRONIC_RETRY));
    }

    #[test]
    fn what_the_host_asks_for_no_longer_is_not_done() {
        let unasked = Fitting { asks: false, ..fitting("ipmi", "enroll") };
        let later = Next::After(Duration::from_secs(99));
        assert_eq!(decided(&unasked, 99), (Pass::DriverUnasked, None, 0, later));
    }

    #[test]
    fn what_ironic_refused_is_left_alone_for_a_while() {
        let now = Now::read();
        let later = Duration::from_secs(7);
        let turn = |refused| Turn { since: now.moment, refused };
        let reason = |until: Instant| {
            let turn = turn(Some((until, Pass::DriverRefused)));
            decide(&fitting("ipmi", "enroll"), turn, now).reason
        };
        assert_eq!(reason(now.moment + later), Pass::DriverRefused);
        assert_eq!(reason(now.moment), Pass::DriverAdopted);
    }
}
