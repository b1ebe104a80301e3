//! What may name a host, and what may not.

#![allow(
    clippy::unwrap_used,
    reason = "all of this is test code, also what stands outside of a test function"
)]

use api_types::metal3::HardwareDetail::{
    self, BootMac, Hostname, Ip, ProvisioningId, SerialNumber,
};
use api_types::name::is_name;
use host_discovery::inventory::Facts;
use host_discovery::naming::{ROOMY, Template, Unusable, choose, is_uuid, value};
use host_discovery::{Mac, NodeId};
use proptest::prelude::*;

const NODE: &str = "0f92160d-b665-4476-943a-f4dd47419207";
const SERIAL_UUID: &str = "9f1c2d3e-4b5a-4c6d-8e7f-0a1b2c3d4e5f";

/// What can stand in a name of a machine that says this, whatever it is asked.
fn value_of(detail: HardwareDetail, text: Option<&str>) -> Result<String, Unusable> {
    let ip = text.and_then(|text| text.split('%').next()?.trim().parse().ok());
    let facts = Facts {
        hostname: text.map(Into::into),
        serial_number: text.map(Into::into),
        boot_mac: text.and_then(Mac::parse_usable),
        ip,
        ..Facts::default()
    };
    value(detail, &facts, node())
}

fn name_of(
    template: &Template,
    detail: HardwareDetail,
    text: Option<&str>,
) -> Result<String, Unusable> {
    template.name(&value_of(detail, text)?, "")
}

fn name_beside(template: &Template, text: &str) -> Result<String, Unusable> {
    template.name(&value_of(Hostname, Some(text))?, "-aabb01")
}

fn plain(detail: HardwareDetail, text: &str) -> Result<String, Unusable> {
    name_of(&Template::default(), detail, Some(text))
}

fn node() -> NodeId {
    NodeId::parse(NODE).unwrap()
}

/// Whether it is an RFC 1123 label.
fn is_label(text: &str) -> bool {
    text.len() <= 63 && !text.contains('.') && is_name(text)
}

fn mac() -> Mac {
    Mac::parse("52:54:00:aa:bb:01").unwrap()
}

#[test]
fn the_missions_example_is_the_missions_name() {
    let template = Template::new("string-literal1-", "-string-literal2").unwrap();
    let name = name_of(&template, Hostname, Some("the-host-name")).unwrap();
    assert_eq!(name, "string-literal1-the-host-name-string-literal2");
}

#[test]
fn good_values_of_all_five_details_name_a_host() {
    for (detail, text, name) in [
        (Hostname, "Node01.Lab.Example.COM", "node01-lab-example-com"),
        (Hostname, "node_01", "node-01"),
        (Hostname, "node-01.", "node-01"),
        (Hostname, "a--.--b", "a-b"),
        (Hostname, "-x-", "x"),
        (Hostname, "höst", "h-st"),
        (Hostname, "4u-left", "4u-left"),
        (Ip, "172.22.0.10", "172-22-0-10"),
        (Ip, " 10.0.0.7 ", "10-0-0-7"),
        (Ip, "::ffff:10.0.0.7", "10-0-0-7"),
        (Ip, "fd00::1", "fd00-0000-0000-0000-0000-0000-0000-0001"),
        (Ip, "2001:db8::%eno1", "2001-0db8-0000-0000-0000-0000-0000-0000"),
        (SerialNumber, "7QX00001", "7qx00001"),
        (SerialNumber, "CZ3 1234 XYZ ", "cz3-1234-xyz"),
        (SerialNumber, "VMware-56 4d 1e 2f 00", "vmware-56-4d-1e-2f-00"),
        (SerialNumber, ".ABC/123.", "abc-123"),
        (BootMac, "52:54:00:AA:BB:01", "52-54-00-aa-bb-01"),
        (BootMac, "01-52-54-00-aa-bb-01", "52-54-00-aa-bb-01"),
    ] {
        assert_eq!(plain(detail, text).as_deref(), Ok(name), "{detail:?} {text:?}");
    }
}

#[test]
fn what_a_machine_does_not_say_names_nobody() {
    for detail in [Hostname, Ip, SerialNumber, BootMac] {
        assert_eq!(value_of(detail, None), Err(Unusable::Missing));
        assert_eq!(plain(detail, " \t"), Err(Unusable::Missing));
    }
}

#[test]
fn names_that_a_ramdisk_has_by_default_are_placeholders() {
    for text in [
        "localhost",
        "localhost.localdomain",
        "LocalHost4",
        "localhost.",
        "ubuntu",
        "ironic-python-agent.example.com",
    ] {
        assert!(matches!(plain(Hostname, text), Err(Unusable::Placeholder(_))), "{text}");
    }
    assert!(plain(Hostname, "ubuntu-17").is_ok());
}

#[test]
fn a_host_name_that_is_an_address_is_refused() {
    for text in ["10.0.0.7", "10.0.0.7.", "fd00::1", "fe80::1%eno1"] {
        assert!(matches!(plain(Hostname, text), Err(Unusable::HostnameIsAddress(_))), "{text}");
    }
}

#[test]
fn addresses_that_several_machines_can_have_are_refused() {
    for text in [
        "127.0.0.1",
        "169.254.1.2",
        "0.0.0.0",
        "0.1.2.3",
        "224.0.0.1",
        "255.255.255.255",
        "::1",
        "::",
        "fe80::1%eno1",
        "ff02::1",
        "::ffff:127.0.0.1",
    ] {
        assert!(matches!(plain(Ip, text), Err(Unusable::NotGlobal(_))), "{text}");
    }
    for text in ["10.0.0", "10.0.0.300", "::/0", "eno1", "10.0.0.1/24"] {
        assert_eq!(plain(Ip, text), Err(Unusable::Missing), "{text}");
    }
}

#[test]
fn serial_numbers_that_makers_leave_behind_are_placeholders() {
    for text in [
        "To Be Filled By O.E.M.",
        "to be filled  by oem",
        "Default string",
        "Not Specified",
        "NOT AVAILABLE",
        "System Serial Number",
        "N/A",
        "none",
        "0000000000",
        "0-0.0 0",
        "...",
        "XXXXXXXX",
        "XX",
        "0123456789",
        "123456789",
    ] {
        assert!(matches!(plain(SerialNumber, text), Err(Unusable::Placeholder(_))), "{text}");
    }
    for text in ["a1", "é1", "序列号"] {
        assert!(matches!(plain(SerialNumber, text), Err(Unusable::TooShort(_))), "{text}");
    }
}

#[test]
fn addresses_of_no_interface_or_of_many_are_refused() {
    let infiniband = "a0:00:02:20:fe:80:00:00:00:00:00:00:00:02:c9:03:00:00:00:01";
    for text in ["00:00:00:00:00:00", "ff:ff:ff:ff:ff:ff", "33:33:00:00:00:01", infiniband, "x"] {
        assert_eq!(plain(BootMac, text), Err(Unusable::Missing), "{text}");
    }
}

#[test]
fn a_name_that_is_a_uuid_is_refused_until_there_is_a_prefix_or_a_suffix() {
    let digits = SERIAL_UUID.replace('-', "");
    for (detail, text) in
        [(SerialNumber, SERIAL_UUID), (SerialNumber, &digits), (ProvisioningId, NODE)]
    {
        assert!(matches!(plain(detail, text), Err(Unusable::Uuid(_))), "{text}");
    }
    let template = Template::new("vm-", "").unwrap();
    let name = name_of(&template, SerialNumber, Some(SERIAL_UUID)).unwrap();
    assert_eq!(name, format!("vm-{SERIAL_UUID}"));
    let name = name_of(&Template::new("", "-bm").unwrap(), ProvisioningId, None).unwrap();
    assert_eq!(name, format!("{NODE}-bm"));
    // Prefix and value together can make one as well.
    let template = Template::new("9f1c2d3e-4b5a-4c6d-8e7f-", "").unwrap();
    let name = name_of(&template, Hostname, Some("0a1b2c3d4e5f"));
    assert_eq!(name, Err(Unusable::Uuid(SERIAL_UUID.to_owned())));
}

#[test]
fn a_uuid_between_two_characters_is_taken_for_one_and_another_detail_names_the_host() {
    let template = Template::new("m", "x").unwrap();
    let name = name_of(&template, ProvisioningId, None);
    assert_eq!(name, Err(Unusable::Uuid(format!("m{NODE}x"))));
    assert!(!is_uuid(&format!("mm{NODE}")) && !is_uuid(&format!("m{NODE}xx")));
    let mac = Mac::parse("52:54:00:00:00:01").unwrap();
    let facts = Facts { boot_mac: Some(mac), ..Facts::default() };
    let value_of = |detail| value(detail, &facts, node());
    let named = choose(&template, ProvisioningId, BootMac, mac, value_of).unwrap();
    assert_eq!(named.name, "m52-54-00-00-00-01x");
}

#[test]
fn an_over_long_value_is_cut_and_keeps_a_digest_of_the_whole() {
    let name = plain(Hostname, &"a".repeat(80)).unwrap();
    assert_eq!(name, format!("{}-0f45e858", "a".repeat(54)));
    let other = plain(Hostname, &"a".repeat(81)).unwrap();
    assert_eq!((name.len(), other.len()), (63, 63));
    assert_ne!(name, other);
    // A cut at a hyphen does not leave two.
    let name = plain(Hostname, &format!("{}-{}", "a".repeat(53), "b".repeat(40))).unwrap();
    assert!(name.starts_with(&format!("{}-", "a".repeat(53))) && !name.contains("--"), "{name}");
    // The suffix stays whole.
    let template = Template::new("rack-", "-berlin").unwrap();
    let name = name_of(&template, Hostname, Some(&"n".repeat(90))).unwrap();
    assert!(name.starts_with("rack-nnn") && name.ends_with("-berlin") && name.len() == 63);
}

#[test]
fn a_name_of_exactly_63_characters_is_not_cut() {
    assert_eq!(plain(Hostname, &"a".repeat(63)), Ok("a".repeat(63)));
    let template = Template::new(&"p".repeat(60), "").unwrap();
    assert_eq!(name_of(&template, Hostname, Some("n1")), Ok(format!("{}n1", "p".repeat(60))));
    assert_eq!(name_of(&template, Hostname, Some("n123")), Err(Unusable::NoRoom));
}

#[test]
fn what_leaves_no_room_says_how_short_prefix_and_suffix_have_to_be() {
    let named = |length: usize| {
        let template = Template::new(&"p".repeat(length), "").unwrap();
        name_of(&template, Hostname, Some(&"n".repeat(90)))
    };
    assert!(named(ROOMY).is_ok_and(|name| name.len() == 63));
    let why = named(ROOMY + 1).unwrap_err().to_string();
    assert!(why.ends_with("shorten them to 50 characters together"), "{why}");
}

#[test]
fn a_template_that_makes_no_legal_name_is_none() {
    for (prefix, suffix) in [("Rack_A-", ""), ("", "-\n"), ("a.", ""), ("-a", ""), ("", "-")] {
        assert_eq!(Template::new(prefix, suffix), None, "{prefix} {suffix}");
    }
    let long = |length| Template::new(&"a".repeat(40), &"b".repeat(length));
    assert!(long(22).is_some() && long(23).is_none());
}

#[test]
fn a_machine_whose_name_is_taken_gets_the_end_of_its_address() {
    let template = Template::new("n-", "").unwrap();
    let beside = name_beside(&template, "web").unwrap();
    assert_eq!(beside, "n-web-aabb01");
    let beside = name_beside(&template, &"w".repeat(90)).unwrap();
    assert!(beside.ends_with("-aabb01") && beside.len() == 63 && is_label(&beside), "{beside}");
}

fn named(
    template: &Template,
    detail: HardwareDetail,
    fallback: HardwareDetail,
) -> (String, HardwareDetail, usize) {
    let facts = Facts {
        hostname: Some("localhost".into()),
        serial_number: Some("CZ31234".into()),
        boot_mac: Some(mac()),
        ..Facts::default()
    };
    let value_of = |detail| value(detail, &facts, node());
    let named = choose(template, detail, fallback, mac(), value_of).unwrap();
    (named.name, named.from, named.passed_over.len())
}

#[test]
fn an_unusable_value_falls_back_step_by_step_and_tells_what_was_passed_over() {
    let bare = Template::default();
    let found = named(&bare, SerialNumber, BootMac);
    assert_eq!(found, ("cz31234".to_owned(), SerialNumber, 0));
    let found = named(&bare, Hostname, SerialNumber);
    assert_eq!(found, ("cz31234".to_owned(), SerialNumber, 1));
    let found = named(&bare, Hostname, Ip);
    assert_eq!(found, ("52-54-00-aa-bb-01".to_owned(), BootMac, 2));
    let found = named(&bare, ProvisioningId, Hostname);
    assert_eq!(found, ("52-54-00-aa-bb-01".to_owned(), BootMac, 2));
}

#[test]
fn the_last_resort_is_the_identifier_behind_a_word() {
    let only_id = |detail| value_of(detail, None);
    let named = choose(&Template::default(), Hostname, Ip, mac(), only_id).unwrap();
    assert_eq!(named.name, format!("host-{NODE}"));
    let template = Template::new("", "-lab").unwrap();
    let named = choose(&template, Hostname, Ip, mac(), only_id).unwrap();
    assert_eq!(named.name, format!("{NODE}-lab"));
    assert_eq!(named.passed_over.len(), 3);
}

#[test]
fn a_template_that_leaves_no_room_for_a_second_name_makes_the_first_one() {
    let template = Template::new(&"p".repeat(60), "").unwrap();
    let n1 = |detail| value_of(detail, Some("n1"));
    let named = choose(&template, Hostname, BootMac, mac(), n1).unwrap();
    assert_eq!(named.name, format!("{}n1", "p".repeat(60)));
    assert_eq!((named.beside, named.from), (None, Hostname));
    let only_id = |detail| value_of(detail, None);
    let template = Template::new(&"p".repeat(20), &"s".repeat(24)).unwrap();
    let named = choose(&template, Hostname, Ip, mac(), only_id).unwrap();
    assert!(is_label(&named.name) && named.beside.is_none(), "{named:?}");
}

#[test]
fn a_strangers_text_is_quoted_on_one_line_and_cut() {
    let evil = format!("x\u{1b}[2J\n\u{202e}\"{}", "y".repeat(500));
    let message = plain(Hostname, &format!("localhost{evil}")).unwrap_err().to_string();
    assert!(!message.contains(['\u{1b}', '\n', '\u{202e}']), "{message}");
    assert!(message.len() < 200, "{message}");
}

fn details() -> impl Strategy<Value = HardwareDetail> {
    prop::sample::select(vec![Hostname, Ip, SerialNumber, BootMac, ProvisioningId])
}

fn texts() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<String>(),
        "[a-zA-Z0-9._ -]{0,120}",
        "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}",
        "[0-9a-f]{32}",
        "[0-9.:%a-f]{0,40}",
        "([0-9a-fA-F]{2}[:-]){5,6}[0-9a-fA-F]{2}",
        "\\PC{0,20}[\\x00-\\x1f\u{202e}]{1,5}\\PC{0,20}",
    ]
}

proptest! {
    #[test]
    fn whatever_a_machine_says_its_name_is_a_label_or_there_is_a_reason(
        detail in details(), fallback in details(), text in texts(),
        prefix in "([a-z0-9-]{0,46}|\\PC{0,8})", suffix in "[a-z0-9-]{0,24}",
    ) {
        let Some(template) = Template::new(&prefix, &suffix) else { return Ok(()) };
        let value = value_of(detail, Some(&text));
        for tail in ["", "-aabb01"] {
            let name = value.clone().and_then(|value| template.name(&value, tail));
            match name {
                Ok(name) => {
                    prop_assert!(is_label(&name) && name.len() <= 63, "{:?}", name);
                    prop_assert!(!is_uuid(&name), "{:?}", name);
                    prop_assert!(name.starts_with(&prefix), "{:?}", name);
                }
                Err(why) => prop_assert!(!why.to_string().contains(char::is_control)),
            }
        }
        let one = choose(&template, detail, fallback, mac(), |it| value_of(it, Some(&text)));
        let two = choose(&template, detail, fallback, mac(), |it| value_of(it, Some(&text)));
        prop_assert_eq!(&one, &two);
        if let Ok(named) = one {
            let beside = named.beside.as_deref();
            prop_assert!(is_label(&named.name) && beside.is_none_or(is_label), "{:?}", named);
            prop_assert_ne!(Some(named.name), named.beside);
        }
    }

    #[test]
    fn every_machine_has_a_name_as_long_as_the_template_leaves_room(
        prefix in "([a-z0-9][a-z0-9-]{0,19})?", suffix in "([a-z0-9-]{0,19}[a-z0-9])?",
        detail in details(), fallback in details(), text in texts(),
    ) {
        let template = Template::new(&prefix, &suffix).unwrap();
        let named = choose(&template, detail, fallback, mac(), |it| match it {
            BootMac => value_of(it, Some(&mac().to_string())),
            _ => value_of(it, Some(&text)),
        });
        prop_assert!(named.is_ok(), "{:?}", named);
    }
}
