//! What the project's own commands know of each controller: a new controller is a new entry here.

use std::sync::Arc;

use controller_kit::config::command;
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
    pub(crate) metrics: fn(&Registry) -> Registered,
    /// Registers those of its engine, for its reasons.
    pub(crate) engine_metrics: fn(&str, &Registry) -> Registered,
    /// Its reasons; those with a place are explained on a page.
    pub(crate) reasons: fn() -> Vec<&'static About>,
    /// Which of its rules decides, and the rules in their order with why they stand there; none where they are no list yet.
    pub(crate) rules: Option<(&'static str, Rules)>,
    /// The fields that its `extend-crd` adds.
    pub(crate) needed: fn() -> Vec<Needed>,
}

type Registered = Result<(), prometheus::Error>;
type Rules = fn() -> Vec<(&'static str, &'static str)>;

impl Controller {
    /// Folder of its crate, below the checkout.
    pub(crate) fn folder(&self) -> String {
        match self.name {
            "sample" => "tests/sample".to_owned(),
            name => format!("crates/{name}"),
        }
    }
}

/// The controller of that name.
pub(crate) fn find(name: &str) -> Option<&'static Controller> {
    ALL.iter().find(|it| it.name == name)
}

/// Those that are installed as pods.
pub(crate) fn pods() -> impl Iterator<Item = &'static Controller> {
    ALL.iter().filter(|it| PODS.contains(&it.name))
}

/// Whether the controller of that name is told where Ironic is.
pub(crate) fn speaks_to_ironic(name: &str) -> bool {
    let is_told = |flag: &clap::Arg| flag.get_env() == Some("IRONIC_ENDPOINT".as_ref());
    find(name).is_some_and(|it| (it.command)().get_arguments().any(is_told))
}

const FIRST: &str = "The first that has something to say decides, in this order:";
const EACH: &str = "Each adds what it has to say, in this order:";

fn abouts<R: Reason>() -> Vec<&'static About> {
    R::ALL.iter().map(|it| it.about()).collect()
}

/// Names of those that are installed as pods: all but the sample.
pub(crate) const PODS: [&str; 5] =
    ["bmo-reboot", "capm3-reuse", "clusterpool-inventory", "host-discovery", "remediation"];

/// All of them. The sample is among them: it is the one to copy.
pub(crate) const ALL: &[Controller] = &[
    Controller {
        name: "bmo-reboot",
        command: command::<bmo_reboot::settings::Cli>,
        metrics: |registry| {
            let (hosts, _) = reflector::store();
            bmo_reboot::metrics::Metrics::new(registry, hosts).map(drop)
        },
        engine_metrics: engine::register::<bmo_reboot::reason::Reason>,
        reasons: abouts::<bmo_reboot::reason::Reason>,
        rules: Some((FIRST, bmo_reboot::decide::rules)),
        needed: bmo_reboot::settings::needed,
    },
    Controller {
        name: "capm3-reuse",
        command: command::<capm3_reuse::settings::Cli>,
        metrics: |registry| capm3_reuse::metrics::Metrics::new(registry, Arc::default()).map(drop),
        engine_metrics: engine::register::<capm3_reuse::reason::Reason>,
        reasons: abouts::<capm3_reuse::reason::Reason>,
        rules: Some((FIRST, capm3_reuse::decide::rules)),
        needed: capm3_reuse::settings::needed,
    },
    Controller {
        name: "clusterpool-inventory",
        command: command::<clusterpool_inventory::settings::Cli>,
        metrics: |registry| clusterpool_inventory::metrics::Metrics::new(registry).map(drop),
        engine_metrics: engine::register::<clusterpool_inventory::reason::Pass>,
        reasons: || {
            use clusterpool_inventory::reason::{Notice, Pass, Reason};
            [abouts::<Notice>(), abouts::<Reason>(), abouts::<Pass>()].concat()
        },
        rules: Some((EACH, clusterpool_inventory::decide::rules)),
        needed: clusterpool_inventory::settings::needed,
    },
    Controller {
        name: "host-discovery",
        command: command::<host_discovery::settings::Cli>,
        metrics: |registry| host_discovery::metrics::Metrics::new(registry).map(drop),
        engine_metrics: engine::register::<host_discovery::reason::Pass>,
        reasons: || {
            use host_discovery::reason::{Notice, Pass, Reason};
            [abouts::<Notice>(), abouts::<Reason>(), abouts::<Pass>()].concat()
        },
        rules: None,
        needed: host_discovery::settings::needed,
    },
    Controller {
        name: "remediation",
        command: command::<remediation::settings::Cli>,
        metrics: |registry| remediation::metrics::Metrics::new(registry).map(drop),
        engine_metrics: engine::register::<remediation::reason::Reason>,
        reasons: abouts::<remediation::reason::Reason>,
        rules: Some((FIRST, remediation::decide::rules)),
        needed: remediation::settings::needed,
    },
    Controller {
        name: "sample",
        command: command::<sample::settings::Cli>,
        metrics: |_| Ok(()),
        engine_metrics: engine::register::<sample::reason::Reason>,
        reasons: abouts::<sample::reason::Reason>,
        rules: None,
        needed: Vec::new,
    },
];
