//! What hosts are called.

use serde_json::{Value, json};

use super::{Site, quick};

#[tokio::test(flavor = "multi_thread")]
async fn each_of_the_five_sources_names_a_host_with_prefix_and_suffix() {
    let site = Site::new("names").await;
    // Each takes the machines of its own product.
    for source in ["hostname", "ip", "serial-number", "boot-mac", "provisioning-id"] {
        let spec = json!({
            "resourceNameTemplate": { "prefix": "p-", "suffix": "-s", "hardwareDetails": source },
            "selector": { "products": [source] },
        });
        site.discovery(source, spec).await;
    }
    let _running = site.start(quick());
    let mut wanted = Vec::new();
    for (number, source) in
        ["hostname", "ip", "serial-number", "boot-mac", "provisioning-id"].into_iter().enumerate()
    {
        let mut agent = site.agent(u32::try_from(number).unwrap() + 1);
        "Rack_7.Example.ORG".clone_into(&mut agent.hostname);
        let mut report = agent.report();
        report["inventory"]["system_vendor"]["product_name"] = source.into();
        let node = site.post(&report).await;
        let value = match source {
            "hostname" => "rack-7-example-org".to_owned(),
            "ip" => agent.address().replace('.', "-"),
            "serial-number" => agent.serial.clone().unwrap().to_lowercase(),
            "boot-mac" => agent.mac(0).replace(':', "-"),
            _ => node,
        };
        wanted.push(format!("p-{value}-s"));
    }
    let wanted: Vec<&str> = wanted.iter().map(String::as_str).collect();
    site.wait_names(&wanted).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn awkward_and_hostile_values_make_legal_names_or_fall_back() {
    let site = Site::new("hostile").await;
    site.discovery("racks", json!({ "labelsFromHardware": { "maker": "manufacturer" } })).await;
    let _running = site.start(quick());
    let mac = |number: u32| site.agent(number).mac(0).replace(':', "-");
    let long = "a".repeat(200);
    let cases = [
        (1, json!("localhost.localdomain"), Some(mac(1))),
        (2, json!("192.0.2.7"), Some(mac(2))),
        (3, json!("../../etc/passwd\n{{.}}"), Some("etc-passwd".to_owned())),
        (4, Value::Null, Some(mac(4))),
        (5, json!("0f92160d-b665-4476-943a-f4dd47419207"), Some(mac(5))),
        (6, json!(long), None),
        (7, json!("same"), Some("same".to_owned())),
        (8, json!("\u{202e}evil\u{0007}"), Some("evil".to_owned())),
    ];
    let mut wanted = Vec::new();
    for (number, hostname, name) in cases {
        let mut report = site.agent(number).report();
        report["inventory"]["hostname"] = hostname;
        report["inventory"]["system_vendor"]["manufacturer"] =
            json!("Evil\u{0000} <b>Corp</b>\r\n");
        site.post(&report).await;
        wanted.extend(name);
    }
    let deadline = std::time::Instant::now() + super::PATIENCE;
    let hosts = loop {
        let hosts = site.hosts().await;
        if hosts.len() == 8 {
            break hosts;
        }
        assert!(std::time::Instant::now() < deadline, "{:?}", site.names().await);
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    };
    let names = site.names().await;
    for name in &wanted {
        assert!(names.contains(name), "{name} is not in {names:?}");
    }
    let cut = names.iter().find(|name| name.starts_with("aaaa")).unwrap();
    assert_eq!(cut.len(), 63);
    for host in hosts {
        let maker = host["metadata"]["labels"]["maker"].as_str().unwrap();
        assert!(maker.starts_with("Evil"), "{maker:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_taken_name_of_another_machine_gets_the_last_bytes_of_the_address() {
    let site = Site::new("taken").await;
    site.host("m1", json!({})).await;
    site.discovery("racks", json!({})).await;
    let _running = site.start(quick());
    let agent = site.agent(1);
    site.boot(&agent).await;
    let tail: String = agent.mac(0).split(':').skip(3).collect();
    site.wait_names(&["m1", &format!("m1-{tail}")]).await;
}
