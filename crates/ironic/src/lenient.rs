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
    DeserializeOwned, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor,
};
use serde_json::Value;

/// Entries of one list that are kept; more than any machine has. The rest is passed over.
pub(crate) const MOST: usize = 1024;

/// A shape that a value may have. Nothing is kept of a value that has another one.
pub(crate) trait Shape<'de>: Default {
    /// Takes a value without parts.
    fn scalar(_value: Value) -> Self {
        Self::default()
    }

    /// Takes a list.
    fn seq<A: SeqAccess<'de>>(mut seq: A) -> Result<Self, A::Error> {
        while seq.next_element_seed(Reader(PhantomData::<()>))?.is_some() {}
        Ok(Self::default())
    }

    /// Takes an object.
    fn map<A: MapAccess<'de>>(mut map: A) -> Result<Self, A::Error> {
        while map.next_key::<IgnoredAny>()?.is_some() {
            map.next_value_seed(Reader(PhantomData::<()>))?;
        }
        Ok(Self::default())
    }
}

/// An object with known fields.
pub(crate) trait Object: DeserializeOwned + Default {}

/// Reads a value of any shape as one of this shape.
pub(crate) fn read<'de, D: Deserializer<'de>, S: Shape<'de>>(
    deserializer: D,
) -> Result<S, D::Error> {
    Reader(PhantomData).deserialize(deserializer)
}

/// Reads a value of this shape.
struct Reader<S>(PhantomData<S>);

impl<'de, S: Shape<'de>> DeserializeSeed<'de> for Reader<S> {
    type Value = S;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<S, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, S: Shape<'de>> Visitor<'de> for Reader<S> {
    type Value = S;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<S, E> {
        Ok(S::scalar(Value::from(value)))
    }

    fn visit_i64<E>(self, value: i64) -> Result<S, E> {
        Ok(S::scalar(Value::from(value)))
    }

    fn visit_u64<E>(self, value: u64) -> Result<S, E> {
        Ok(S::scalar(Value::from(value)))
    }

    fn visit_f64<E>(self, value: f64) -> Result<S, E> {
        Ok(S::scalar(Value::from(value)))
    }

    fn visit_str<E>(self, value: &str) -> Result<S, E> {
        Ok(S::scalar(Value::from(value)))
    }

    fn visit_unit<E>(self) -> Result<S, E> {
        Ok(S::default())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<S, A::Error> {
        S::seq(seq)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<S, A::Error> {
        S::map(map)
    }
}

/// Nothing is kept. What is deeper than `serde_json` reads makes the whole unreadable.
impl Shape<'_> for () {}

/// A value without parts; null for any other.
impl Shape<'_> for Value {
    fn scalar(value: Value) -> Self {
        value
    }
}

/// Whether it is true.
impl Shape<'_> for bool {
    fn scalar(value: Value) -> Self {
        value == true
    }
}

impl Shape<'_> for Option<bool> {
    fn scalar(value: Value) -> Self {
        value.as_bool()
    }
}

/// A text, with the white space around it: what is done with that is the reader's decision.
impl Shape<'_> for Option<String> {
    fn scalar(value: Value) -> Self {
        if let Value::String(text) = value { Some(text) } else { None }
    }
}

/// A whole number, also where it came as a fraction or as text. Fractions are cut off.
impl Shape<'_> for Option<i64> {
    fn scalar(value: Value) -> Self {
        let text = match &value {
            Value::Number(number) => number.to_string(),
            Value::String(text) => text.trim().to_owned(),
            _ => return None,
        };
        text.parse().ok().or_else(|| {
            let number = text.parse::<f64>().ok()?;
            // Beyond 2^53 a fraction no longer says which whole number was meant.
            #[expect(clippy::cast_possible_truncation, reason = "the range was just checked")]
            (number.abs() < 9e15).then_some(number as i64)
        })
    }
}

/// The number of a VLAN, only where it came as one.
impl Shape<'_> for Option<u16> {
    fn scalar(value: Value) -> Self {
        value.as_u64()?.try_into().ok()
    }
}

impl<'de, T: Object> Shape<'de> for Option<T> {
    fn map<A: MapAccess<'de>>(map: A) -> Result<Self, A::Error> {
        T::map(map).map(Some)
    }
}

/// The object, or its default.
impl<'de, T: Object> Shape<'de> for T {
    fn map<A: MapAccess<'de>>(map: A) -> Result<Self, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map))
    }
}

/// The first elements that have this shape.
impl<'de, T> Shape<'de> for Vec<T>
where
    Option<T>: Shape<'de>,
{
    fn seq<A: SeqAccess<'de>>(mut seq: A) -> Result<Self, A::Error> {
        let mut kept = Self::new();
        while kept.len() < MOST {
            let Some(element) = seq.next_element_seed(Reader(PhantomData::<Option<T>>))? else {
                return Ok(kept);
            };
            kept.extend(element);
        }
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(kept)
    }
}

/// The first entries that are objects with known fields.
impl<'de, T: Object> Shape<'de> for BTreeMap<String, T> {
    fn map<A: MapAccess<'de>>(mut map: A) -> Result<Self, A::Error> {
        let mut kept = Self::new();
        while kept.len() < MOST {
            let Some(key) = map.next_key::<String>()? else {
                return Ok(kept);
            };
            let value = map.next_value_seed(Reader(PhantomData::<Option<T>>))?;
            kept.extend(value.map(|value| (key, value)));
        }
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(kept)
    }
}
