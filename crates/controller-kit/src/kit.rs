//! What a running controller is given.

use std::sync::Arc;

use kube::Client;

use crate::backoff;
use crate::config::Settings;
use crate::events::Events;
use crate::leadership::Leadership;
use crate::liveness::Liveness;
use crate::metrics::Metrics;
use crate::readiness::Readiness;
use crate::shared::Shared;
use crate::shutdown::Shutdown;
use crate::unread::Undecodable;

/// Handles to everything that the process shares; a clone is cheap.
#[derive(Clone)]
pub struct Kit {
    /// The common settings.
    pub config: Arc<Settings>,
    /// This process among its replicas: the pod's name and a random suffix.
    pub identity: Arc<str>,
    /// Client without retries: what fails is retried by the next reconcile.
    pub client: Client,
    /// The process' metrics.
    pub metrics: Metrics,
    /// Conditions of `/readyz`.
    pub readiness: Readiness,
    /// Loops of `/livez`.
    pub liveness: Liveness,
    /// Whether this process may act among its replicas.
    pub leadership: Leadership,
    /// Events on objects.
    pub events: Events,
    /// When to end.
    pub shutdown: Shutdown,
    /// Objects of the kinds that are kept which cannot be decoded: the engine tells their owners.
    pub(crate) undecodable: Arc<Shared<Vec<Undecodable>>>,
}

impl Kit {
    /// All handles for one process.
    pub fn new(config: Settings, client: Client, metrics: Metrics, shutdown: Shutdown) -> Self {
        let host =
            std::env::var("POD_NAME").or_else(|_| std::env::var("HOSTNAME")).unwrap_or_default();
        let host = if host.is_empty() { config.controller } else { &host };
        let identity = format!("{host}_{:08x}", backoff::random() >> 32);
        let events = Events::new(client.clone(), config.controller, host);
        let leadership =
            if config.leader_elect { Leadership::default() } else { Leadership::always() };
        metrics.most_active.set(i64::from(config.concurrency));
        Self {
            config: Arc::new(config),
            identity: identity.into(),
            client,
            metrics,
            readiness: Readiness::default(),
            liveness: Liveness::default(),
            leadership,
            events,
            shutdown,
            undecodable: Arc::default(),
        }
    }

    /// Whether anything may be written now: we lead, and every condition that gates the work holds.
    pub fn may_act(&self) -> bool {
        self.leadership.is_held() && self.readiness.may_act() && !self.shutdown.is_requested()
    }
}
