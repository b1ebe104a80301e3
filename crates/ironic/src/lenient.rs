//! Reading what a stranger's machine says about itself.
//!
//! An inventory is whatever the hardware and its firmware reported. One odd value must not cost
//! the rest: what does not have the expected shape counts as absent.

use serde::de::{Deserialize, DeserializeOwned, Deserializer};
use serde_json::Value;

/// The value, or nothing if it has another shape. Text loses surrounding white space nowhere:
/// what is done with it is the reader's decision.
pub(crate) fn option<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned,
{
    let value = Value::deserialize(deserializer)?;
    Ok(serde_json::from_value(value).ok())
}

/// The value, or its default if it has another shape.
pub(crate) fn or_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned + Default,
{
    Ok(option(deserializer)?.unwrap_or_default())
}

/// The elements that have the expected shape.
pub(crate) fn list<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned,
{
    let value = Value::deserialize(deserializer)?;
    let Value::Array(items) = value else {
        return Ok(Vec::new());
    };
    Ok(items.into_iter().filter_map(|item| serde_json::from_value(item).ok()).collect())
}

/// A whole number, also where it came as a fraction or as text. Fractions are cut off.
pub(crate) fn int<'de, D>(deserializer: D) -> Result<Option<i64>, D::Error>
where
    D: Deserializer<'de>,
{
    let value = Value::deserialize(deserializer)?;
    if let Some(whole) = value.as_i64() {
        return Ok(Some(whole));
    }
    let text = match &value {
        Value::Number(number) => number.to_string(),
        Value::String(text) => text.trim().to_owned(),
        _ => return Ok(None),
    };
    Ok(text.parse().ok().or_else(|| {
        let number = text.parse::<f64>().ok()?;
        // Beyond 2^53 a fraction no longer says which whole number was meant.
        #[expect(clippy::cast_possible_truncation, reason = "the range was just checked")]
        (number.abs() < 9e15).then_some(number as i64)
    }))
}
