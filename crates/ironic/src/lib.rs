//! Async client of the Ironic API.
