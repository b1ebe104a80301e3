//! What the project's own commands know of each controller: a new controller is a new entry here.

use clap::CommandFactory;
use controller_kit::crd::Needed;
use controller_kit::engine::{self, Reason, reasons::About};
use kube::runtime::reflector;
use prometheus::Registry;

/// A controller, as far as its reference, the demo and the bench are concerned.
pub(crate) struct Controller {
    /// Crate and binary.
    pub(crate) name: &'static str,
    /// Its command line.
    pub(crate) command: fn() -> clap::Command,
    /// Registers its own metrics, all series of them.
    pub(crate) metrics: fn(&Registry) -> Result<(), prometheus::Error>,
    /// Its reasons; those with a place are explained on a page.
    pub(crate) reasons: fn() -> Vec<&'static About>,
    /// Its rules in their order, and why they stand there; none where they are no list yet.
    pub(crate) rules: fn() -> Vec<(&'static str, &'static str)>,
    /// Which of them decides.
    pub(crate) deciding: &'static str,
    /// The fields that its `extend-crd` adds.
    pub(crate) needed: fn() -> Vec<Needed>,
    /// Whether it is told where Ironic is.
    pub(crate) speaks_to_ironic: bool,
}

/// The controller of that name.
pub(crate) fn find(name: &str) -> Option<&'static Controller> {
    ALL.iter().find(|it| it.name == name)
}

const FIRST: &str = "The first that has something to say decides, in this order:";
const EACH: &str = "Each adds what it has to say, in this order:";

fn abouts<R: Reason>() -> Vec<&'static About> {
    R::ALL.iter().map(|it| it.about()).collect()
}

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
        reasons: abouts::<bmo_reboot::reason::Reason>,
        rules: bmo_reboot::decide::rules,
        deciding: FIRST,
        needed: bmo_reboot::settings::needed,
        speaks_to_ironic: true,
    },
    Controller {
        name: "capm3-reuse",
        command: capm3_reuse::settings::Cli::command,
        metrics: |registry| {
            capm3_reuse::metrics::Metrics::new(registry)?;
            engine::register::<capm3_reuse::reason::Reason>("capm3-reuse", registry)
        },
        reasons: abouts::<capm3_reuse::reason::Reason>,
        rules: capm3_reuse::decide::rules,
        deciding: FIRST,
        needed: capm3_reuse::settings::needed,
        speaks_to_ironic: false,
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
        reasons: || {
            use clusterpool_inventory::reason::{Notice, Pass, Reason};
            [abouts::<Notice>(), abouts::<Reason>(), abouts::<Pass>()].concat()
        },
        rules: clusterpool_inventory::decide::rules,
        deciding: EACH,
        needed: clusterpool_inventory::settings::needed,
        speaks_to_ironic: false,
    },
    Controller {
        name: "host-discovery",
        command: host_discovery::settings::Cli::command,
        metrics: |registry| {
            host_discovery::metrics::Metrics::new(registry)?;
            engine::register::<host_discovery::reason::Pass>("host-discovery", registry)
        },
        reasons: || {
            use host_discovery::reason::{Notice, Pass, Reason};
            [abouts::<Notice>(), abouts::<Reason>(), abouts::<Pass>()].concat()
        },
        rules: Vec::new,
        deciding: FIRST,
        needed: host_discovery::settings::needed,
        speaks_to_ironic: true,
    },
    Controller {
        name: "remediation",
        command: remediation::settings::Cli::command,
        metrics: |registry| {
            remediation::metrics::Metrics::new(registry)?;
            engine::register::<remediation::reason::Reason>("remediation", registry)
        },
        reasons: abouts::<remediation::reason::Reason>,
        rules: remediation::decide::rules,
        deciding: FIRST,
        needed: remediation::settings::needed,
        speaks_to_ironic: false,
    },
    Controller {
        name: "sample",
        command: sample::settings::Cli::command,
        metrics: |registry| engine::register::<sample::reason::Reason>("sample", registry),
        reasons: abouts::<sample::reason::Reason>,
        rules: Vec::new,
        deciding: FIRST,
        needed: Vec::new,
        speaks_to_ironic: false,
    },
];
