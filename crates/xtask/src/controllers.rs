//! What the reference says of each controller comes from its code: a new controller is a new entry here.

use clap::CommandFactory;
use controller_kit::engine;
use kube::runtime::reflector;
use prometheus::Registry;

/// A controller, as far as its reference is concerned.
pub(crate) struct Controller {
    /// Crate and binary.
    pub(crate) name: &'static str,
    /// Its command line.
    pub(crate) command: fn() -> clap::Command,
    /// Registers its own metrics, all series of them.
    pub(crate) metrics: fn(&Registry) -> Result<(), prometheus::Error>,
    /// Its rules in their order, and why they stand there; none where they are no list yet.
    pub(crate) rules: fn() -> Vec<(&'static str, &'static str)>,
    /// Which of them decides.
    pub(crate) deciding: &'static str,
}

const FIRST: &str = "The first that has something to say decides, in this order:";
const EACH: &str = "Each adds what it has to say, in this order:";

/// Those that are installed as pods: all but the sample.
pub(crate) const PODS: [&str; 5] =
    ["bmo-reboot", "capm3-reuse", "clusterpool-inventory", "host-discovery", "remediation"];

/// All of them. The sample is among them: it is the one to copy.
pub(crate) const ALL: &[Controller] = &[
    Controller {
        name: "bmo-reboot",
        command: bmo_reboot::settings::Cli::command,
        metrics: |registry| {
            let (hosts, _) = reflector::store();
            bmo_reboot::metrics::Metrics::new(registry, hosts)?;
            engine::register::<bmo_reboot::reason::Reason>("bmo-reboot", registry)
        },
        rules: bmo_reboot::decide::rules,
        deciding: FIRST,
    },
    Controller {
        name: "capm3-reuse",
        command: capm3_reuse::settings::Cli::command,
        metrics: |registry| {
            capm3_reuse::metrics::Metrics::new(registry)?;
            engine::register::<capm3_reuse::reason::Reason>("capm3-reuse", registry)
        },
        rules: capm3_reuse::decide::rules,
        deciding: FIRST,
    },
    Controller {
        name: "clusterpool-inventory",
        command: clusterpool_inventory::settings::Cli::command,
        metrics: |registry| {
            clusterpool_inventory::metrics::Metrics::new(registry)?;
            engine::register::<clusterpool_inventory::reason::Pass>(
                "clusterpool-inventory",
                registry,
            )
        },
        rules: clusterpool_inventory::decide::rules,
        deciding: EACH,
    },
    Controller {
        name: "host-discovery",
        command: host_discovery::settings::Cli::command,
        metrics: |registry| {
            host_discovery::metrics::Metrics::new(registry)?;
            engine::register::<host_discovery::reason::Pass>("host-discovery", registry)
        },
        rules: Vec::new,
        deciding: FIRST,
    },
    Controller {
        name: "remediation",
        command: remediation::settings::Cli::command,
        metrics: |registry| {
            remediation::metrics::Metrics::new(registry)?;
            engine::register::<remediation::reason::Reason>("remediation", registry)
        },
        rules: remediation::decide::rules,
        deciding: FIRST,
    },
    Controller {
        name: "sample",
        command: sample::settings::Cli::command,
        metrics: |registry| engine::register::<sample::reason::Reason>("sample", registry),
        rules: Vec::new,
        deciding: FIRST,
    },
];
