//! Log lines: text for people, JSON for machines; field names have dots (`object.ref`, `duration.ms`).

use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::config::{Config, LogFormat};

/// Installs the process' logger. A second call changes nothing, so tests may call it freely.
pub fn init(config: &Config) {
    let filter: Targets = config.log.parse().unwrap_or_default();
    let registry = tracing_subscriber::registry().with(filter);
    let _ = match config.log_format {
        LogFormat::Text => registry.with(tracing_subscriber::fmt::layer()).try_init(),
        LogFormat::Json => {
            let layer =
                tracing_subscriber::fmt::layer().json().flatten_event(true).with_span_list(false);
            registry.with(layer).try_init()
        }
    };
}
