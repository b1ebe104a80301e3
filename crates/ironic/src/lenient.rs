//! Reading what a stranger's machine says about itself.
//!
//! An inventory is whatever the hardware and its firmware reported. One odd value must not cost
//! the rest: what does not have the expected shape counts as absent.
//!
//! Anybody can post one, so no tree of the whole is made first: an empty object takes two bytes
//! of an inventory and hundreds in memory. What is not wanted is passed over as it is read, and
//! of a list no more is kept than [`MOST`] entries.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{
    Deserialize, DeserializeOwned, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess,
    Visitor,
};
use serde_json::Value;

/// Entries of one list that are kept; more than any machine has. The rest is passed over.
pub(crate) const MOST: usize = 1024;

/// A shape that a value may have. Nothing is kept of a value that has another one.
trait Shape<'de> {
    /// What is made of a value.
    type Out: Default;

    /// Takes a value without parts.
    fn scalar(_value: Value) -> Self::Out {
        Self::Out::default()
    }

    /// Takes a list.
    fn seq<A: SeqAccess<'de>>(mut seq: A) -> Result<Self::Out, A::Error> {
        while seq.next_element_seed(Reader::<Nothing>::new())?.is_some() {}
        Ok(Self::Out::default())
    }

    /// Takes an object.
    fn map<A: MapAccess<'de>>(mut map: A) -> Result<Self::Out, A::Error> {
        while map.next_key::<IgnoredAny>()?.is_some() {
            map.next_value_seed(Reader::<Nothing>::new())?;
        }
        Ok(Self::Out::default())
    }
}

/// Reads a value of this shape.
struct Reader<S>(PhantomData<S>);

impl<S> Reader<S> {
    fn new() -> Self {
        Self(PhantomData)
    }
}

impl<'de, S: Shape<'de>> DeserializeSeed<'de> for Reader<S> {
    type Value = S::Out;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<S::Out, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, S: Shape<'de>> Visitor<'de> for Reader<S> {
    type Value = S::Out;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<S::Out, E> {
        Ok(S::scalar(Value::from(value)))
    }

    fn visit_i64<E>(self, value: i64) -> Result<S::Out, E> {
        Ok(S::scalar(Value::from(value)))
    }

    fn visit_u64<E>(self, value: u64) -> Result<S::Out, E> {
        Ok(S::scalar(Value::from(value)))
    }

    fn visit_f64<E>(self, value: f64) -> Result<S::Out, E> {
        Ok(S::scalar(Value::from(value)))
    }

    fn visit_str<E>(self, value: &str) -> Result<S::Out, E> {
        Ok(S::scalar(Value::from(value)))
    }

    fn visit_unit<E>(self) -> Result<S::Out, E> {
        Ok(S::Out::default())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<S::Out, A::Error> {
        S::seq(seq)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<S::Out, A::Error> {
        S::map(map)
    }
}

/// Nothing is kept. What is deeper than `serde_json` reads makes the whole unreadable.
struct Nothing;

impl Shape<'_> for Nothing {
    type Out = ();
}

/// A value without parts; null for any other.
struct Scalar;

impl Shape<'_> for Scalar {
    type Out = Value;

    fn scalar(value: Value) -> Value {
        value
    }
}

/// A text.
struct Text;

impl Shape<'_> for Text {
    type Out = Option<String>;

    fn scalar(value: Value) -> Option<String> {
        match value {
            Value::String(text) => Some(text),
            _ => None,
        }
    }
}

/// An object with known fields.
struct Object<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Shape<'de> for Object<T> {
    type Out = Option<T>;

    fn map<A: MapAccess<'de>>(map: A) -> Result<Self::Out, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map)).map(Some)
    }
}

/// The first elements that have this shape.
struct List<S>(PhantomData<S>);

impl<'de, S, T> Shape<'de> for List<S>
where
    S: Shape<'de, Out = Option<T>>,
{
    type Out = Vec<T>;

    fn seq<A: SeqAccess<'de>>(mut seq: A) -> Result<Self::Out, A::Error> {
        let mut kept = Vec::new();
        while kept.len() < MOST {
            let Some(element) = seq.next_element_seed(Reader::<S>::new())? else {
                return Ok(kept);
            };
            kept.extend(element);
        }
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(kept)
    }
}

/// The first entries that are objects with known fields.
struct Entries<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Shape<'de> for Entries<T> {
    type Out = BTreeMap<String, T>;

    fn map<A: MapAccess<'de>>(mut map: A) -> Result<Self::Out, A::Error> {
        let mut kept = BTreeMap::new();
        while kept.len() < MOST {
            let Some(key) = map.next_key::<String>()? else {
                return Ok(kept);
            };
            let value = map.next_value_seed(Reader::<Object<T>>::new())?;
            kept.extend(value.map(|value| (key, value)));
        }
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(kept)
    }
}

/// A value without parts, or null.
pub(crate) fn scalar<'de, D>(deserializer: D) -> Result<Value, D::Error>
where
    D: Deserializer<'de>,
{
    deserializer.deserialize_any(Reader::<Scalar>::new())
}

/// The value, which has no parts, or nothing if it has another shape. Text loses surrounding white
/// space nowhere: what is done with it is the reader's decision.
pub(crate) fn option<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned,
{
    Ok(serde_json::from_value(scalar(deserializer)?).ok())
}

/// Whether it is true.
pub(crate) fn flag<'de, D>(deserializer: D) -> Result<bool, D::Error>
where
    D: Deserializer<'de>,
{
    Ok(scalar(deserializer)? == Value::Bool(true))
}

/// The object, or its default if the value has another shape.
pub(crate) fn or_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    let object = deserializer.deserialize_any(Reader::<Object<T>>::new())?;
    Ok(object.unwrap_or_default())
}

/// The elements that are objects.
pub(crate) fn list<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    deserializer.deserialize_any(Reader::<List<Object<T>>>::new())
}

/// The elements that are texts.
pub(crate) fn texts<'de, D>(deserializer: D) -> Result<Vec<String>, D::Error>
where
    D: Deserializer<'de>,
{
    deserializer.deserialize_any(Reader::<List<Text>>::new())
}

/// The entries that are objects.
pub(crate) fn entries<'de, D, T>(deserializer: D) -> Result<BTreeMap<String, T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    deserializer.deserialize_any(Reader::<Entries<T>>::new())
}

/// A whole number, also where it came as a fraction or as text. Fractions are cut off.
pub(crate) fn int<'de, D>(deserializer: D) -> Result<Option<i64>, D::Error>
where
    D: Deserializer<'de>,
{
    let value = scalar(deserializer)?;
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
