//! The BMC that a discovery gives its hosts: which address is used, and of whom nobody gets one.

#![allow(
    clippy::unwrap_used,
    reason = "all of this is test code, also what stands outside of a test function"
)]

mod world;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use host_discovery::NodeId;
use host_discovery::decide::decide;
use host_discovery::hardware::{HardwareDetails, LateFields};
use host_discovery::host::new_host;
use host_discovery::index::Index;
use host_discovery::machine::{Machine, Reading};
use host_discovery::model::{HostPlan, Observed, Verdict};
use host_discovery::nodes::{Look, Nodes};
use host_discovery::reason::{Pass, Reason, Sort};
use host_discovery::refusals::{Cause, Refusals};
use host_discovery::report::{report, trouble};
use host_discovery::resource::Resource;
use host_discovery::settings::Policy;
use ironic::{Class, Inventory};
use proptest::prelude::*;
use serde_json::{Value, json};
use world::{Facts, among, facts, host, mac, machine, node, port, resource};

const TEMPLATE: &str = "redfish-virtualmedia+https://{bmcAddress}:8443/redfish/v1/Systems/1";

fn spec(template: &str, more: &Value) -> Value {
    let mut spec = json!({
        "bmc": {
            "addressTemplate": template, "credentialsName": "racks-bmc",
            "subnets": ["192.0.2.0/24", "2001:db8:7::/64"],
        },
    });
    for (key, value) in more.as_object().unwrap() {
        spec[key] = value.clone();
    }
    spec
}

fn racks() -> Resource {
    resource("racks", &spec(TEMPLATE, &json!({})))
}

/// A machine that names these addresses of its BMC.
fn naming(number: u8, bmc: &[&str]) -> Machine {
    let bmc = bmc.iter().map(|it| it.parse().unwrap()).collect();
    let inventory = Reading::Facts(Box::new(Facts { bmc, ..facts(number) }));
    Machine { inventory, ..machine(number) }
}

fn pass(machines: &[Machine], racks: &Resource, hosts: &Index, complete: bool) -> HostPlan {
    let seen = Observed {
        nodes: &host_discovery::nodes::Nodes::default(),
        machines: machines.iter().collect(),
        resources: std::slice::from_ref(racks),
        hosts,
        refused: &BTreeMap::new(),
        answers: true,
        allowance: 9,
        complete,
    };
    decide(&seen, &Policy::default())
}

/// Why, and which BMC is shown, of each of these machines.
fn verdicts(machines: &[Machine], hosts: &Index) -> Vec<(Reason, Option<String>)> {
    let found = pass(machines, &racks(), hosts, true).verdicts;
    found.into_iter().map(|it| (it.reason, it.bmc)).collect()
}

fn address_of(ip: &str) -> String {
    TEMPLATE.replace("{bmcAddress}", ip)
}

/// Facts of a machine that posts these texts as addresses of its BMC, and others elsewhere.
fn posted(v4: &str, v6: &str, hostname: &str) -> Facts {
    let inventory: Inventory = serde_json::from_value(json!({
        "inventory": {
            "hostname": hostname, "bmc_address": v4, "bmc_v6address": v6,
            "system_vendor": {"serial_number": hostname, "product_name": hostname},
            "interfaces": [{"name": "p1", "mac_address": mac(1, 0).to_string()}],
        },
        "plugin_data": {"auto_discovered": true},
    }))
    .unwrap();
    Facts::read(&inventory, &[port(1, 0)]).unwrap()
}

#[test]
fn address_in_a_subnet_becomes_the_bmc_and_nothing_else_is_pasted() {
    let racks = racks();
    for (v4, v6, used) in [
        ("192.0.2.7", "::/0", Some(address_of("192.0.2.7"))),
        ("192.0.2.7", "2001:db8:7::7/64", Some(address_of("192.0.2.7"))),
        ("0.0.0.0", "2001:db8:7::7", Some(address_of("[2001:db8:7::7]"))),
        // The one of two that lies in a subnet.
        ("198.51.100.7", "2001:db8:7::7", Some(address_of("[2001:db8:7::7]"))),
        // An IPv4 address in the clothes of IPv6 is that IPv4 address.
        ("", "::ffff:192.0.2.7", Some(address_of("192.0.2.7"))),
        // Outside: shown, and never used.
        ("198.51.100.7", "::", None),
        ("::ffff:198.51.100.7", "", None),
        // No address of one machine.
        ("0.0.0.0", "::", None),
        ("127.0.0.1", "::1", None),
        ("169.254.0.17", "fe80::1", None),
        ("224.0.0.1", "ff02::1", None),
        ("::ffff:127.0.0.1", "::ffff:169.254.0.1", None),
        // Texts that would lead elsewhere.
        ("evil.example.org", "evil.example.org", None),
        ("192.0.2.7@evil.example.org", "", None),
        ("evil.example.org#192.0.2.7", "", None),
        ("{bmcAddress}", "%31", None),
        ("192.0.2.7:80", "[2001:db8:7::7]", None),
        ("192.0.2.7%eth0", "2001:db8:7::7%eth0", None),
        ("192.0.2.07", "3221225991", None),
        // What stands behind a slash is no part of the address.
        ("192.0.2.7/../@evil.example.org", "", Some(address_of("192.0.2.7"))),
    ] {
        let bmc = racks.bmc_of(&posted(v4, v6, "{bmcAddress}@x/%2f#"));
        assert_eq!(bmc.map(|it| it.address), used, "{v4} {v6}");
    }
}

#[test]
fn host_gets_the_bmc_with_the_credentials_that_its_discovery_names() {
    let made = |more: &Value, facts: &Facts| {
        let details = HardwareDetails::read(&Inventory::default(), LateFields::default());
        let racks = resource("racks", more);
        new_host(&racks, "n1", node(1), facts, &details).spec
    };
    let facts = posted("192.0.2.7", "::", "{}%/@#");
    let bmc = made(&spec(TEMPLATE, &json!({})), &facts).bmc.unwrap();
    assert_eq!(
        (Some(bmc.address), &*bmc.credentials_name),
        (Some(address_of("192.0.2.7")), "racks-bmc")
    );
    assert_eq!(bmc.disable_certificate_verification, None, "only where a person says so");
    let mut lax = spec(TEMPLATE, &json!({}));
    lax["bmc"]["disableCertificateVerification"] = json!(true);
    assert_eq!(made(&lax, &facts).bmc.unwrap().disable_certificate_verification, Some(true));
    assert_eq!(made(&json!({}), &facts).bmc, None, "without the field nothing changes");
}

#[test]
fn machine_without_a_bmc_of_its_own_waits_and_shows_what_it_names() {
    let none = Index::default();
    let one = |bmc: &[&str]| verdicts(&[naming(1, bmc)], &none).remove(0);
    assert_eq!(one(&["192.0.2.7"]), (Reason::Created, Some(address_of("192.0.2.7"))));
    assert_eq!(one(&[]), (Reason::BmcAddressMissing, None));
    assert_eq!(
        one(&["198.51.100.7"]),
        (Reason::BmcOutsideSubnets, Some(address_of("198.51.100.7")))
    );
    assert_eq!(Reason::BmcOutsideSubnets.sort(), Sort::Pending);
    // Another BMC beside it, as its machine says.
    let two = [naming(1, &["192.0.2.7"]), naming(2, &["192.0.2.8"])];
    assert!(verdicts(&two, &none).iter().all(|(reason, _)| *reason == Reason::Created));
    // Without the field the same machines become hosts.
    let plain = resource("racks", &json!({}));
    for bmc in [&["198.51.100.7"][..], &[]] {
        let found = pass(&[naming(1, bmc)], &plain, &none, false).verdicts;
        assert_eq!((found[0].reason, &found[0].bmc), (Reason::Created, &None));
    }
}

#[test]
fn two_machines_that_name_one_bmc_both_wait() {
    let none = Index::default();
    for other in [&["192.0.2.7"][..], &["::ffff:192.0.2.7"], &["192.0.2.8", "192.0.2.7"]] {
        let both = [naming(1, &["192.0.2.7"]), naming(2, other)];
        let plan = pass(&both, &racks(), &none, true);
        for verdict in &plan.verdicts {
            assert_eq!((verdict.reason, &verdict.mark), (Reason::BmcAddressShared, &None));
        }
        assert!(plan.verdicts[0].note.as_ref().unwrap().contains(&node(2).to_string()));
        let listed = report(0, &plan, among(&both), 0, 0).conflicts;
        // The newest first.
        let proposed = listed.last().and_then(|it| it.proposed_bmc.clone());
        assert_eq!((listed.len(), proposed), (2, Some(address_of("192.0.2.7"))));
    }
    // Also one of which nothing else can be made.
    let mut strange = naming(2, &["192.0.2.7"]);
    strange.ports.clear();
    let inventory = Reading::TooLarge(vec!["192.0.2.7".parse().unwrap()]);
    for strange in [strange, Machine { inventory, ..machine(2) }] {
        let found = verdicts(&[naming(1, &["192.0.2.7"]), strange], &none);
        assert_eq!(found[0].0, Reason::BmcAddressShared);
    }
}

#[test]
fn bmc_of_a_host_in_any_namespace_is_given_to_no_other_and_no_approval_changes_that() {
    let inspected = |number: u8, more: Value| {
        let nics = [json!({"mac": mac(number, 0).to_string()})];
        let mut body = json!({
            "spec": {"bootMACAddress": mac(number, 0).to_string()},
            "status": {"hardware": {"nics": nics}},
        });
        for (key, value) in more.as_object().unwrap() {
            for (field, value) in value.as_object().unwrap() {
                body[key][field] = value.clone();
            }
        }
        host("elsewhere", "old", &body)
    };
    let said = json!({"metadata": {"annotations": {"ferrite.metal3.io/bmc-address": "192.0.2.7"}}});
    let has =
        json!({"spec": {"bmc": {"address": "ipmi://192.0.2.7:6230", "credentialsName": "x"}}});
    let mut approving = racks();
    approving.approved.insert(node(1));
    for old in [inspected(9, said), inspected(9, has)] {
        let mut hosts = Index::default();
        hosts.apply(&old);
        for racks in [&racks(), &approving] {
            let verdict =
                pass(&[naming(1, &["192.0.2.7"])], racks, &hosts, true).verdicts.remove(0);
            assert_eq!((verdict.reason, verdict.mark), (Reason::BmcAddressShared, None));
            assert_eq!(verdict.hosts[0].to_string(), "elsewhere/old");
        }
        assert_eq!(verdicts(&[naming(1, &["192.0.2.8"])], &hosts)[0].0, Reason::Created);
    }
}

/// A machine that is not read yet may name the same.
#[test]
fn no_host_gets_a_bmc_before_every_machine_is_read() {
    let none = Index::default();
    let machines = [naming(1, &["192.0.2.7"])];
    let verdict = pass(&machines, &racks(), &none, false).verdicts.remove(0);
    assert_eq!((verdict.reason, verdict.mark), (Reason::RateLimited, None));
    assert!(verdict.again.is_some() && verdict.note.is_some());
    assert_eq!(pass(&machines, &racks(), &none, true).verdicts[0].reason, Reason::Created);
}

/// A stranger names the BMC of a machine for which Ironic fails, and would get its credentials.
#[test]
fn machine_that_ironic_does_not_tell_of_holds_back_hosts_with_a_bmc() {
    let unread = |number: u8| Machine::unread(node(number));
    let fails = |class| {
        let failing = Machine { unanswered: Some((class, "no".to_owned())), ..unread(3) };
        (vec![unread(2), failing], true)
    };
    let (none, stranger) = (Index::default(), naming(1, &["192.0.2.7"]));
    for (others, is_named) in
        [(vec![unread(2)], false), fails(Class::Server), fails(Class::Invalid)]
    {
        let machines = [vec![stranger.clone()], others].concat();
        let plan = pass(&machines, &racks(), &none, true);
        let verdict = &plan.verdicts[0];
        // To be read takes moments; for what Ironic fails may last, and is told.
        let (reason, ends) = if is_named {
            (Reason::BmcAddressUncompared, Pass::BmcsUncompared)
        } else {
            (Reason::RateLimited, Pass::AllDecided)
        };
        // What is read of the other one is decided upon at once.
        assert_eq!((verdict.reason, &verdict.mark, verdict.again), (reason, &None, None));
        assert_eq!((plan.pass(true), plan.pass(false)), (ends, Pass::IronicAway));
        assert_eq!(trouble(0, &plan, 0).is_some(), is_named);
        let listed = report(0, &plan, among(&machines), 0, 0).pending.remove(0).reason.unwrap();
        assert_eq!(listed.contains(&node(3).to_string()), is_named, "{listed}");
        let without = pass(&machines, &resource("racks", &json!({})), &none, true);
        assert_eq!(without.verdicts[0].reason, Reason::Created, "without a BMC none waits");
    }
    // One that has no inventory yet, or becomes no host, holds back none.
    let mut hosts = Index::default();
    hosts.apply(&host(
        "metal",
        "n5",
        &json!({"status": {"provisioning": {"ID": node(5).to_string()}}}),
    ));
    for other in [
        Machine { inventory: Reading::None, ..unread(2) },
        Machine { name: Some("metal~x".to_owned()), ..unread(2) },
        Machine { enrolled: false, ..unread(2) },
        unread(5),
    ] {
        let plan = pass(&[stranger.clone(), other], &racks(), &hosts, true);
        assert_eq!(plan.verdicts[0].reason, Reason::Created, "{:?}", plan.verdicts[1]);
    }
}

/// Its first attempt had no answer, and another machine came since.
#[test]
fn host_with_a_bmc_is_not_tried_again_before_every_machine_is_read() {
    let (mut refusals, at) = (Refusals::default(), Instant::now());
    refusals.failed(node(1), Cause::Unknown, "metal/n1: no answer", at, 0.0);
    refusals.now(at + Duration::from_secs(60), |_| true);
    let machines = [naming(1, &["192.0.2.7"]), Machine::unread(node(2))];
    for (machines, tried) in [(&machines[..1], true), (&machines[..], false)] {
        let seen = Observed {
            nodes: &host_discovery::nodes::Nodes::default(),
            machines: machines.iter().collect(),
            resources: &[racks()],
            hosts: &Index::default(),
            refused: refusals.all(),
            answers: true,
            allowance: 9,
            complete: true,
        };
        let plan = decide(&seen, &Policy::default());
        assert_eq!(plan.verdicts[0].creates(), tried);
    }
}

#[test]
fn list_shows_address_and_bmc_before_anybody_approves() {
    let manual = resource("racks", &spec(TEMPLATE, &json!({"approval": "Manual"})));
    let machines = [naming(1, &["192.0.2.7"])];
    let plan = pass(&machines, &manual, &Index::default(), true);
    let entry = report(0, &plan, among(&machines), 0, 0).pending.remove(0);
    assert_eq!(entry.reason.as_deref(), Some("AwaitsApproval"));
    assert_eq!(
        (entry.bmc_address.as_deref(), entry.proposed_bmc),
        (Some("192.0.2.7"), Some(address_of("192.0.2.7")))
    );
}

/// An object may be older than the rules of the CRD.
#[test]
fn template_that_makes_no_address_makes_no_host() {
    for template in [
        "",
        "{bmcAddress}",
        "https://{bmcAddress}/",
        "pigeon://{bmcAddress}",
        "redfish+https://192.0.2.1/redfish/v1/Systems/1",
        "redfish+https://evil.example.org/{bmcAddress}",
        "redfish+https://u@{bmcAddress}/",
        "redfish+https://{bmcAddress}.evil.example.org/",
        "redfish+https://{bmcAddress}@evil.example.org/",
        "redfish+https://{bmcAddress}/{serial}",
        "redfish+https://{bmcAddress}/{bmcAddress}",
        "redfish+https://{bmcAddress}/%2e%2e",
        "redfish+https://{bmcAddress}/#x",
        "redfish+https://{bmcAddress}/?a",
        "redfish://a://{bmcAddress}",
    ] {
        let racks = resource("racks", &spec(template, &json!({})));
        let found = pass(&[naming(1, &["192.0.2.7"])], &racks, &Index::default(), true).verdicts;
        assert_eq!(
            (found[0].reason, &found[0].mark),
            (Reason::TemplateInvalid, &None),
            "{template}"
        );
        assert!(racks.mistakes[0].contains("bmc.addressTemplate"), "{:?}", racks.mistakes);
    }
    for template in
        ["ipmi://{bmcAddress}", "redfish+http://{bmcAddress}:8000/redfish/v1/Systems/a-b_c.d~e"]
    {
        let racks = resource("racks", &spec(template, &json!({})));
        assert_eq!((racks.mistakes.len(), racks.makes_hosts()), (0, true), "{template}");
    }
    // Networks that cannot be read hold nothing.
    let mut odd = spec(TEMPLATE, &json!({}));
    odd["bmc"]["subnets"] = json!(["all"]);
    let racks = resource("racks", &odd);
    assert!(racks.mistakes[0].contains("bmc.subnets"), "{:?}", racks.mistakes);
    let found = pass(&[naming(1, &["192.0.2.7"])], &racks, &Index::default(), true).verdicts;
    assert_eq!(found[0].reason, Reason::BmcOutsideSubnets);
}

/// What Ironic, or something before it, answers of one machine.
#[derive(Clone, Debug)]
enum Answer {
    /// What it is.
    All,
    /// Its inventory, with more ports than are looked at.
    TooManyPorts,
    /// Nothing that can be read.
    None(Class),
}

#[derive(Clone, Debug)]
enum Event {
    /// All nodes are listed; of these nothing but the identity can be read.
    Listed(Vec<u8>),
    /// A machine is being read.
    Reads(u8),
    /// That ends.
    Read(u8, Answer),
    /// The process ends, and another one knows nothing.
    Restart,
}

fn events() -> impl Strategy<Value = Event> {
    // That there is no inventory is an answer, and the first machine that names a BMC gets it.
    let fails = prop::sample::select(Class::ALL[1..].to_vec()).prop_map(Answer::None);
    let answer = prop_oneof![2 => Just(Answer::All), 1 => Just(Answer::TooManyPorts), 3 => fails];
    prop_oneof![
        2 => prop::collection::vec(1..4_u8, 0..2).prop_map(Event::Listed),
        2 => (1..4_u8).prop_map(Event::Reads),
        6 => (1..4_u8, answer).prop_map(|(number, answer)| Event::Read(number, answer)),
        1 => Just(Event::Restart),
    ]
}

/// Machine 1, a pretender that names its BMC, and one with a BMC of its own, as they are known.
struct Rack {
    nodes: Nodes,
    is_listed: bool,
    at: Instant,
}

impl Rack {
    fn new() -> Self {
        Self { nodes: Nodes::new(9), is_listed: false, at: Instant::now() }
    }

    fn happens(&mut self, event: &Event) {
        self.at += Duration::from_secs(1);
        match event {
            Event::Listed(odd) => {
                self.nodes.begin();
                for number in 1..4 {
                    let id = node(number).to_string();
                    if odd.contains(&number) {
                        self.nodes.note_unread(&[id], self.at);
                        continue;
                    }
                    let shown = json!({"uuid": id, "provision_state": "enroll"});
                    let shown = serde_json::from_value(shown).unwrap();
                    self.nodes.note(&shown, &Index::default(), self.at);
                }
                self.nodes.end();
                self.is_listed = true;
            }
            Event::Reads(number) => self.nodes.reads(node(*number), None, self.at),
            Event::Read(number, answer) => self.read(*number, answer),
            Event::Restart => *self = Self { at: self.at, ..Self::new() },
        }
    }

    fn read(&mut self, number: u8, answer: &Answer) {
        let bmc = if number == 3 { "192.0.2.8" } else { "192.0.2.7" };
        let Machine { inventory, ports, .. } = naming(number, &[bmc]);
        let (inventory, ports) = match answer {
            Answer::All => (inventory, ports),
            Answer::TooManyPorts => (Reading::TooLarge(inventory.bmc().to_vec()), Vec::new()),
            Answer::None(class) => {
                let look = Look::Failed(*class, "no".to_owned());
                return self.nodes.read(node(number), look, self.at);
            }
        };
        let shown = json!({"uuid": node(number).to_string(), "provision_state": "enroll"});
        let shown = Some(Box::new(serde_json::from_value(shown).unwrap()));
        let look = Look::Read { node: shown, inventory, details: None, ports };
        self.nodes.read(node(number), look, self.at);
    }

    /// The machines that get a host.
    fn made(&self) -> Vec<NodeId> {
        let machines: Vec<Machine> = self.nodes.machines().into_iter().cloned().collect();
        let plan = pass(&machines, &racks(), &Index::default(), self.is_listed);
        plan.verdicts.into_iter().filter(Verdict::creates).map(|it| it.node).collect()
    }
}

proptest! {
    /// However Ironic fails, and whenever the process ends: a stranger never gets the BMC of another machine. Others do get
    /// theirs once all are read.
    #[test]
    fn no_pretender_gets_the_bmc_of_another_machine(events in prop::collection::vec(events(), 0..24)) {
        let mut rack = Rack::new();
        for event in &events {
            rack.happens(event);
            let made = rack.made();
            prop_assert!(made.iter().all(|it| *it == node(3)), "{:?}", made);
        }
        rack.happens(&Event::Listed(Vec::new()));
        for number in 1..4 {
            rack.happens(&Event::Read(number, Answer::All));
        }
        prop_assert_eq!(rack.made(), [node(3)]);
    }
}
