//! Install configs as text: read as the installer reads them, written so that it reads the same.
//!
//! The installer's YAML library resolves plain scalars by YAML 1.1 (`yes` is true, `010` is 8) and
//! knows merge keys. A reader of YAML 1.2 would silently change such a template, so the scalars
//! are resolved here, over the parser's events.
//!
//! What is written is JSON, which every YAML reader reads the same once what YAML 1.1 forbids or
//! folds in quoted text is escaped: that includes DEL, the C1 controls and the Unicode line
//! breaks. Characters beyond the BMP stand as themselves, since YAML has no surrogate pairs.

use std::collections::HashMap;
use std::fmt::Write as _;

use serde_json::{Map, Number, Value};
use serde_saphyr::granit_parser::{Event, Parser, ScalarStyle, Tag};

/// Nesting that is read at most: far more than an install config has, far less than a stack.
pub const MAX_DEPTH: usize = 100;
/// What a document may weigh in memory, with its aliases expanded and beside what anchors keep: hundreds of bare-metal hosts with
/// their networks.
const MAX_WEIGHT: usize = 12 << 20;
/// What a mapping takes, however few its keys are: small as text (`{a: 1}`), it is large in memory.
pub(crate) const MAPPING: usize = 640;
/// What a key or a value takes beside its text.
pub(crate) const SCALAR: usize = 64;
const CORE: &str = "tag:yaml.org,2002:";

/// Why a text cannot be used as an install config.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// The text is not YAML.
    #[error("it is not valid YAML: {0}")]
    Syntax(String),
    /// The installer would read only the first.
    #[error("it holds several YAML documents; keep one")]
    SeveralDocuments,
    /// A list, a scalar or nothing.
    #[error("it is not a mapping but {0}")]
    NotAMapping(&'static str),
    /// What JSON cannot hold, or what would be read in two ways.
    #[error("line {line}: {what}")]
    Unusable {
        /// Line in the text, from 1.
        line: usize,
        /// What is wrong and what to do.
        what: String,
    },
}

/// Reads an install config: one YAML document whose root is a mapping.
pub fn read(text: &str) -> Result<Value, ReadError> {
    let mut reader =
        Reader { parser: Parser::new_from_str(text), anchors: HashMap::new(), weight: 0, line: 1 };
    let root = reader.document()?;
    match root {
        Some(root @ Value::Object(_)) => Ok(root),
        Some(Value::Array(_)) => Err(ReadError::NotAMapping("a list")),
        Some(Value::Null) | None => Err(ReadError::NotAMapping("empty")),
        Some(_) => Err(ReadError::NotAMapping("a single value")),
    }
}

struct Reader<'a> {
    parser: Parser<'a, serde_saphyr::granit_parser::StrInput<'a>>,
    /// What each anchor stands for, and its weight.
    anchors: HashMap<usize, (Value, usize)>,
    weight: usize,
    line: usize,
}

impl<'a> Reader<'a> {
    fn event(&mut self) -> Result<Event<'a>, ReadError> {
        loop {
            let Some(next) = self.parser.next_event() else { return Ok(Event::StreamEnd) };
            let (event, span) = next.map_err(|error| ReadError::Syntax(error.to_string()))?;
            self.line = span.start.line();
            if !matches!(event, Event::Comment(..) | Event::Anchor(..)) {
                return Ok(event);
            }
        }
    }

    fn unusable<T>(&self, what: impl Into<String>) -> Result<T, ReadError> {
        Err(ReadError::Unusable { line: self.line, what: what.into() })
    }

    fn weigh(&mut self, weight: usize) -> Result<(), ReadError> {
        self.weight += weight;
        if self.weight > MAX_WEIGHT {
            return self.unusable("it is larger than an install config can be; shorten it");
        }
        Ok(())
    }

    fn document(&mut self) -> Result<Option<Value>, ReadError> {
        let mut root = None;
        loop {
            match self.event()? {
                Event::StreamStart | Event::DocumentEnd => {}
                Event::StreamEnd => return Ok(root),
                Event::DocumentStart(..) => {
                    let event = self.event()?;
                    let document = self.node(event, 0)?;
                    // A line `---` at the end begins one without content.
                    if document.is_null() {
                        continue;
                    }
                    if root.is_some() {
                        return Err(ReadError::SeveralDocuments);
                    }
                    root = Some(document);
                }
                _ => return self.unusable("it is not valid YAML here"),
            }
        }
    }

    fn node(&mut self, event: Event<'a>, depth: usize) -> Result<Value, ReadError> {
        if depth > MAX_DEPTH {
            return self.unusable(format!("it is nested more than {MAX_DEPTH} deep"));
        }
        let before = self.weight;
        let (value, anchor) = match event {
            Event::Scalar(text, style, anchor, tag) => {
                self.weigh(SCALAR + text.len())?;
                (self.scalar(&text, style, tag.as_deref())?, anchor)
            }
            Event::SequenceStart(_, anchor, tag) => {
                self.weigh(SCALAR)?;
                self.collection(tag.as_deref(), "seq")?;
                let mut items = Vec::new();
                loop {
                    match self.event()? {
                        Event::SequenceEnd => break (Value::Array(items), anchor),
                        event => items.push(self.node(event, depth + 1)?),
                    }
                }
            }
            Event::MappingStart(_, anchor, tag) => {
                self.weigh(MAPPING)?;
                self.collection(tag.as_deref(), "map")?;
                (Value::Object(self.mapping(depth)?), anchor)
            }
            Event::Alias(id) => {
                let Some((_, weight)) = self.anchors.get(&id) else {
                    return self.unusable("an alias stands inside what it refers to");
                };
                self.weigh(*weight)?;
                let value = self.anchors[&id].0.clone();
                if depth + self::depth(&value) > MAX_DEPTH {
                    return self.unusable(format!("it is nested more than {MAX_DEPTH} deep"));
                }
                (value, 0)
            }
            _ => return self.unusable("it is not valid YAML here"),
        };
        if anchor != 0 {
            let weight = self.weight - before;
            self.weigh(weight)?;
            self.anchors.insert(anchor, (value.clone(), weight));
        }
        Ok(value)
    }

    fn collection(&self, tag: Option<&Tag>, core: &str) -> Result<(), ReadError> {
        let core_tag = tag.and_then(|tag| tag.suffix_in_namespace(CORE));
        match core_tag.as_deref() {
            Some(name) if name != core => {
                self.unusable(format!("the tag !!{name} has no place in an install config"))
            }
            _ => Ok(()),
        }
    }

    /// What stands later wins, as for the installer: also a merge (a key that is none) over keys that stand before it,
    /// where YAML itself would let those win. Of a list that is merged the first wins.
    fn mapping(&mut self, depth: usize) -> Result<Map<String, Value>, ReadError> {
        let mut map = Map::new();
        loop {
            let event = self.event()?;
            let is_alias = matches!(event, Event::Alias(_));
            let key = match event {
                Event::MappingEnd => return Ok(map),
                Event::Scalar(text, ScalarStyle::Plain, ..) if text == "<<" => {
                    self.weigh(SCALAR + text.len())?;
                    None
                }
                Event::Scalar(..) | Event::Alias(_) => Some(match self.node(event, depth)? {
                    Value::String(name) => name,
                    Value::Bool(flag) if !is_alias => flag.to_string(),
                    Value::Number(number) if !is_alias => number.to_string(),
                    Value::Null => return self.unusable("a key must not be null; quote it"),
                    _ => return self.unusable("a key must be text"),
                }),
                _ => return self.unusable("a key must be text, not a list or a mapping"),
            };
            let event = self.event()?;
            let value = self.node(event, depth + 1)?;
            let sources = match (key, value) {
                (Some(key), value) => {
                    map.insert(key, value);
                    continue;
                }
                (None, Value::Array(sources)) => sources,
                (None, source) => vec![source],
            };
            for source in sources.into_iter().rev() {
                let Value::Object(source) = source else {
                    return self.unusable("`<<` can only merge mappings");
                };
                map.extend(source);
            }
        }
    }

    fn scalar(
        &self,
        text: &str,
        style: ScalarStyle,
        tag: Option<&Tag>,
    ) -> Result<Value, ReadError> {
        let Some(tag) = tag else {
            return match style {
                ScalarStyle::Plain => self.resolved(text),
                _ => Ok(Value::String(text.to_owned())),
            };
        };
        let name = tag.suffix_in_namespace(CORE);
        let fits: fn(&Value) -> bool = match name.as_deref() {
            Some("null") => Value::is_null,
            Some("bool") => Value::is_boolean,
            Some("int") => |it| it.is_i64() || it.is_u64(),
            Some("float") => Value::is_number,
            Some("binary") => {
                return self.unusable("binary data has no place in an install config");
            }
            _ => return Ok(Value::String(text.to_owned())),
        };
        match self.resolved(text)? {
            value if fits(&value) => Ok(value),
            // It is not repeated: a password may have been given a tag, and this is told to many.
            _ => self.unusable("a value is not what its tag says"),
        }
    }

    fn resolved(&self, text: &str) -> Result<Value, ReadError> {
        match plain(text) {
            Some(value) => Ok(value),
            None => self.unusable(format!("{text} is not a number that JSON can hold; quote it")),
        }
    }
}

/// What a plain scalar stands for in YAML 1.1; nothing for infinities and for "not a number".
fn plain(text: &str) -> Option<Value> {
    Some(match text {
        "" | "~" | "null" | "Null" | "NULL" => Value::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            Value::Bool(true)
        }
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            Value::Bool(false)
        }
        ".nan" | ".NaN" | ".NAN" | ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF"
        | "-.inf" | "-.Inf" | "-.INF" => return None,
        _ => match number(text) {
            Some(number) => Value::Number(number),
            None => Value::String(text.to_owned()),
        },
    })
}

fn number(text: &str) -> Option<Number> {
    if !text.starts_with(|it: char| it.is_ascii_digit() || "+-.".contains(it)) {
        return None;
    }
    let text = text.replace('_', "");
    let (negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text.as_str()),
    };
    let prefixes = [("0x", 16), ("0X", 16), ("0o", 8), ("0O", 8), ("0b", 2), ("0B", 2)];
    let based = prefixes.iter().find_map(|(it, base)| Some((*base, digits.strip_prefix(it)?)));
    let octal = || Some((8, digits.strip_prefix('0').filter(|it| !it.is_empty())?));
    let (base, digits) = based.or_else(octal).unwrap_or((10, digits));
    // `from_str_radix` takes a sign of its own.
    if digits.starts_with(|it: char| it.is_ascii_alphanumeric())
        && let Ok(size) = i128::from_str_radix(digits, base)
        && let Some(number) = Number::from_i128(if negative { -size } else { size })
    {
        return Some(number);
    }
    // Rust reads the same floats, and words for what is no number beside them.
    let is_float = text.bytes().all(|it| it.is_ascii_digit() || b"+-.eE".contains(&it));
    if is_float { text.parse().ok().and_then(simplest) } else { None }
}

/// A whole number is one however it was spelled: `1.0` in a field for integers is meant as 1.
fn simplest(value: f64) -> Option<Number> {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if value.fract() == 0.0 && value.abs() <= EXACT {
        #[allow(clippy::cast_possible_truncation, reason = "whole and within 2^53")]
        return Some((value as i64).into());
    }
    Number::from_f64(value)
}

/// How deep a value is nested.
pub(crate) fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(map) => 1 + map.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

/// Writes a value as JSON in the part of JSON that YAML 1.1 reads alike. What is escaped here stands in quotes only.
pub fn write(value: &Value) -> String {
    let mut text = String::new();
    for it in value.to_string().chars() {
        if is_alike(it) {
            text.push(it);
        } else {
            let _ = write!(text, "\\u{:04x}", u32::from(it));
        }
    }
    text
}

/// Whether a character is itself for JSON and for YAML 1.1.
fn is_alike(it: char) -> bool {
    matches!(it, ' '..='~' | '\u{a0}'..='\u{2027}' | '\u{202a}'..='\u{fefe}' | '\u{ff00}'..='\u{fffd}' | '\u{10000}'..)
}
