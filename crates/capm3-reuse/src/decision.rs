//! What a pass is to do, as plain data that can be compared.

use std::time::Duration;

use serde_json::{Map, Value};

use crate::index::Wants;
use crate::reason::Reason;
use crate::reservation::Owner;

/// What to do, and why.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// In this order; the first that is superseded ends the pass.
    pub steps: Vec<Step>,
    /// Why.
    pub reason: Reason,
    /// Why, for a person.
    pub message: String,
    /// Whether this is news, to be told by an event.
    pub news: bool,
    /// When to look again without being told.
    pub again: Option<Duration>,
    /// For what it waits, if for a host.
    pub wants: Option<Wants>,
    /// Whether a kept host's owner needs no host more than it has; the time of that is remembered.
    pub settled: bool,
    /// Which Node gets its provider ID, when all steps are done: the one write to a workload cluster.
    pub naming: Option<Naming>,
}

/// A Node that says no provider ID gets that of its machine, if nobody wrote to it since.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Naming {
    /// The Node.
    pub node: String,
    /// The version of it that was read.
    pub version: String,
    /// The provider ID.
    pub provider_id: String,
}

/// One write. Each insists on the version of the object that was observed, or that the step before it left.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// On the machine: which host it is going to take, and the finalizer. Before the host is touched.
    Intend {
        /// The host.
        host: String,
        /// The host's uid.
        uid: String,
    },
    /// On the host: the machine that has it, and what to install if that is known.
    Claim {
        /// The host.
        host: String,
        /// What to install.
        install: Option<Install>,
    },
    /// On the host that the machine has: what to install.
    Install {
        /// The host.
        host: String,
        /// What to install.
        install: Install,
    },
    /// On the host: CAPM3's pause of a paused cluster is lifted.
    Unpause {
        /// The host.
        host: String,
    },
    /// On the machine: it will not have the host that it was going to take.
    GiveUp {
        /// The host.
        host: String,
    },
    /// On the machine: the host that it gave up was read since, and no claim of it can succeed any more.
    Forget,
    /// On a host that will not be taken: only its version is moved, so that no claim of it is left on its way.
    PassOver {
        /// The host.
        host: String,
        /// Whether the pass ends where that is refused.
        insists: bool,
    },
    /// Asks for rendered secrets.
    AskForData,
    /// Withdraws what was asked for.
    WithdrawData,
    /// On the machine: its provider ID, and where it stands.
    Identify {
        /// The provider ID.
        provider_id: String,
        /// The host's failure domain.
        failure_domain: Option<String>,
    },
    /// On the machine's status.
    Report(Value),
    /// On the host: nothing to install any more, and for whom it will be kept.
    Clear {
        /// The host.
        host: String,
        /// Fields of the spec that are taken away.
        fields: Vec<&'static str>,
        /// Whether it is switched off.
        switch_off: bool,
        /// Whether its disks are wiped, if that has changed.
        cleaning: Option<String>,
        /// For whom it will be kept.
        verdict: Option<Owner>,
        /// The host's uid, if it will be kept: by it a move to another cluster is known.
        uid: Option<String>,
    },
    /// On the host: the machine has it no longer; it is kept for an owner, or free.
    Release {
        /// The host.
        host: String,
        /// For whom it is kept.
        keep_for: Option<Owner>,
        /// The host's uid, if it was decided just now for whom it is kept. What stands there since an earlier verdict stays.
        uid: Option<String>,
        /// Annotations of ours that go with it.
        annotations: Vec<String>,
    },
    /// On the machine: the finalizer goes.
    LetGo,
    /// On a kept host: it is free.
    Free {
        /// The host.
        host: String,
    },
}

/// What a host is told to install. What the user left out is left out.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Install {
    /// Fields of the host's spec.
    pub fields: Map<String, Value>,
}

impl Decision {
    /// Nothing to do.
    pub(crate) fn rest(reason: Reason) -> Self {
        Self {
            steps: Vec::new(),
            reason,
            message: String::new(),
            news: false,
            again: None,
            wants: None,
            settled: false,
            naming: None,
        }
    }
}
