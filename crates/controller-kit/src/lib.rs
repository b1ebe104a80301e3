//! What the five controllers share: start-up, probes, metrics, lease, watches. No domain word.
