//! Decoding that says where an object is wrong.

use serde::de::DeserializeOwned;
use serde_json::Value;

/// Why an object could not be read, and which of its fields is to be corrected.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {reason}")]
pub struct DecodeError {
    /// The field, such as `spec.online`; `.` for the whole object.
    pub path: String,
    /// What is wrong with it.
    pub reason: String,
}

/// Reads an object of any kind of this crate.
///
/// Watches use kube's `DeserializeGuard` instead, which keeps one malformed object from stopping
/// them; this is for the error text that the object's owner is shown.
pub fn decode<K: DeserializeOwned>(value: Value) -> Result<K, DecodeError> {
    serde_path_to_error::deserialize(value).map_err(|error| DecodeError {
        path: error.path().to_string(),
        reason: error.into_inner().to_string(),
    })
}
