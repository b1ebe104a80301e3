//! Prints how many microseconds it takes to choose a host among so many: `selection 10000`.

use std::sync::Arc;
use std::time::Instant;

use api_types::metal3::CachedHost;
use capm3_reuse::index::{Index, Wish};
use capm3_reuse::selector::Selector;

const RACKS: usize = 10;
/// Enough that one slow moment of the machine does not count.
const CHOICES: usize = 20_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let hosts: usize = std::env::args().nth(1).ok_or("usage: selection <hosts>")?.parse()?;
    let mut index = Index::default();
    for number in 0..hosts {
        let name = format!("host-{number}");
        let host: CachedHost = serde_json::from_value(serde_json::json!({
            "metadata": {"name": name, "namespace": "fleet", "labels": {"rack": format!("r{}", number % RACKS)}},
            "spec": {"online": false},
            "status": {"provisioning": {"state": "available"}, "operationalStatus": "OK"},
        }))?;
        index.update("fleet", &name, Some(Arc::new(host)));
    }
    let mut found = 0;
    let began = Instant::now();
    for number in 0..CHOICES {
        let mut selector = Selector::default();
        selector.equals.insert("rack".to_owned(), format!("r{}", number % RACKS));
        let wish = Wish {
            namespace: "fleet".to_owned(),
            machine: "machine".to_owned(),
            selector,
            ..Wish::default()
        };
        let chance = number as u64 * (u64::MAX / CHOICES as u64);
        found += usize::from(index.choose(&wish, chance).free.is_some());
        index.settle("fleet", "machine");
    }
    let micros = began.elapsed().as_secs_f64() * 1e6 / CHOICES as f64;
    if found < CHOICES {
        return Err("not every machine found a host".into());
    }
    println!("{micros}");
    Ok(())
}
