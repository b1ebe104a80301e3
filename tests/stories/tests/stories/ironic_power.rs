//! Power changes through the client, on Redfish BMCs: what reaches the machine, and which refusal is which.

use std::time::{Duration, Instant};

use bench::agent::Agent;
use bench::bmc::{self, Behaviour, Machine};
use bench::ironic::shared;
use ironic::{Class, Client, Detail, Node, PatchOp, Power, PowerTarget};
use reqwest::StatusCode;
use serde_json::{Value, json};

use crate::ironic_client::{client, make, set_power};

/// Waits until Ironic has nothing left to do on the node.
async fn settled(client: &Client, node: &str) -> Node {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let seen = client.node(node, Detail::Full).await.unwrap();
        if seen.target_power_state.is_none() && seen.reservation.is_none() {
            return seen;
        }
        assert!(Instant::now() < deadline, "never settled: {seen:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// What the BMC was asked for, oldest first.
async fn requests(machine: &Machine) -> Vec<String> {
    let seen = machine.seen().await.unwrap();
    seen.history.into_iter().filter_map(|happening| happening.request).collect()
}

#[tokio::test]
async fn every_power_target_reaches_the_bmc_as_what_it_is() {
    let ironic = shared().await;
    let client = client(&ironic.endpoint);
    let machine = bmc::spare().await.unwrap();
    let node = ironic.enroll("targets", &machine).await.unwrap();
    let patience = Duration::from_secs(20);
    let mut asked: Vec<String> = Vec::new();
    for (target, resets, power) in [
        (PowerTarget::On, &["On"][..], Power::On),
        (PowerTarget::SoftReboot(patience), &["GracefulRestart"], Power::On),
        // Ironic trusts no BMC to restart: it sees the machine off before it asks for it on.
        (PowerTarget::Reboot, &["ForceOff", "On"], Power::On),
        (PowerTarget::SoftOff(patience), &["GracefulShutdown"], Power::Off),
    ] {
        set_power(&client, &node, target).await.unwrap();
        let after = settled(&client, &node).await;
        assert_eq!(after.power(), power, "{target:?}: {:?}", after.last_error);
        assert_eq!(after.last_error, None, "{target:?}");
        asked.extend(resets.iter().map(|reset| (*reset).to_owned()));
        assert_eq!(requests(&machine).await, asked, "{target:?}");
    }
}

#[tokio::test]
async fn a_node_that_is_locked_and_one_that_must_not_be_switched_off_are_told_apart() {
    let ironic = shared().await;
    let client = client(&ironic.endpoint);
    let machine = bmc::spare().await.unwrap();
    let node = ironic.enroll("contested", &machine).await.unwrap();
    machine.behave(&Behaviour { answer_after: 8.0, ..Behaviour::default() }).await.unwrap();
    set_power(&client, &node, PowerTarget::On).await.unwrap();
    let locked = set_power(&client, &node, PowerTarget::Off).await.unwrap_err();
    assert_eq!((locked.status(), locked.class()), (Some(409), Class::Locked), "{locked}");
    assert!(locked.class().is_transient() && !locked.maybe_done());
    machine.behave(&Behaviour::default()).await.unwrap();
    assert_eq!(settled(&client, &node).await.power(), Power::On);

    let protect =
        |value: bool| [PatchOp::Add { path: "/disable_power_off".to_owned(), value: value.into() }];
    let node = client.patch_node(&node, &protect(true), false).await.unwrap();
    assert_eq!(node.disable_power_off, Some(true));
    for target in [PowerTarget::Off, PowerTarget::SoftOff(Duration::from_secs(5))] {
        let error = set_power(&client, &node.uuid, target).await.unwrap_err();
        assert_eq!(
            (error.status(), error.class()),
            (Some(409), Class::PowerOffDisabled),
            "{error}"
        );
        assert!(!error.class().is_transient(), "waiting does not help: {error}");
    }

    // There is a third one, which is neither.
    let twin = ironic.enroll_fake("twin").await.unwrap();
    let taken = [PatchOp::Add { path: "/name".to_owned(), value: "contested".into() }];
    let error = client.patch_node(&twin, &taken, false).await.unwrap_err();
    assert_eq!((error.status(), error.class()), (Some(409), Class::Refused), "{error}");
    assert_eq!(requests(&machine).await, ["On"], "nothing that was refused reached the machine");
}

#[tokio::test]
async fn a_target_that_the_driver_lacks_is_told_apart_from_one_that_comes_at_the_wrong_time() {
    let ironic = shared().await;
    let client = client(&ironic.endpoint);
    // A machine that was just looked into: its agent still runs, and can do no more than restart it.
    let agent = Agent::new(4101);
    let node = ironic.enroll_fake("by-hand").await.unwrap();
    let manageable = |it: &Value| it["provision_state"] == "manageable";
    client.set_provision_state(&node, "manage").await.unwrap();
    ironic.wait(&node, "manageable", manageable).await.unwrap();
    make(ironic, "/v1/ports", json!({ "node_uuid": node, "address": agent.mac(0) })).await;
    set_power(&client, &node, PowerTarget::On).await.unwrap();
    settled(&client, &node).await;
    client.set_provision_state(&node, "inspect").await.unwrap();
    ironic.wait(&node, "inspected", |it| it["provision_state"] == "inspect wait").await.unwrap();
    let (status, body) = agent.post(ironic).await.unwrap();
    assert_eq!(status, StatusCode::ACCEPTED, "{body}");
    ironic.wait(&node, "manageable", manageable).await.unwrap();
    let set = |path: &str, value: &str| PatchOp::Add { path: path.to_owned(), value: value.into() };
    let by_hand = [
        set("/driver", "manual-management"),
        set("/power_interface", "agent"),
        set("/driver_info/fast_track", "true"),
    ];
    client.patch_node(&node, &by_hand, true).await.unwrap();
    let soft = PowerTarget::SoftOff(Duration::from_secs(5));
    let error = set_power(&client, &node, soft).await.unwrap_err();
    assert_eq!(error.class(), Class::Unsupported, "{error}");
    assert!(!error.class().is_transient());

    let early = client.set_provision_state(&node, "active").await.unwrap_err();
    assert_eq!(early.class(), Class::WrongState, "{early}");
}
