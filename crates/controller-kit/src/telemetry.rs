//! Log lines: text for people, JSON for machines; field names have dots (`object.ref`, `duration.ms`).

use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::layer;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::config::{LogFormat, Settings};

/// Whose own lines say nothing that ours do not.
const LIBRARY: &str = "kube_client";

/// Installs the process' logger. A second call changes nothing, so tests may call it freely.
pub fn init(config: &Settings) {
    let mut filter: Targets = config.log.parse().unwrap_or_default();
    // Each failed request once more, several a second while nobody answers, with neither address nor cause. Whoever asks
    // for them gets them.
    if !config.log.contains(LIBRARY) {
        filter = filter.with_target(LIBRARY, LevelFilter::OFF);
    }
    let registry = tracing_subscriber::registry().with(filter);
    let _ = match config.log_format {
        LogFormat::Text => registry.with(layer()).try_init(),
        LogFormat::Json => {
            registry.with(layer().json().flatten_event(true).with_span_list(false)).try_init()
        }
    };
}
