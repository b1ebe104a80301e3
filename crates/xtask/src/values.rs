//! `values.yaml` of a chart with its comments, which a YAML parser drops and which are what the chart's README says of
//! each value. So it is read line by line as well, and what a line says has to be what the parser found at that place:
//! anything else is refused, so that no value can be missing without a word.

use anyhow::{Context, ensure};
use serde_json::Value as Json;

/// In a chart's file nothing below this line is written by hand, and none of it is the chart's own.
pub(crate) const SHARED: &str =
    "# Made from charts/ferrite-library/values.yaml by `cargo xtask crdgen`, for all charts alike:";

/// A value, or a block of values.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Value {
    /// Where it stands: `image.tag`.
    pub(crate) key: String,
    /// As it is written; none where it is a block, whose own values come after it.
    pub(crate) default: Option<String>,
    /// The comments above and beside it.
    pub(crate) about: String,
}

/// All values of a file that are written by hand, in its order.
///
/// # Errors
/// When it is no YAML, or a line is not understood: the message names it.
pub(crate) fn read(file: &str, text: &str) -> anyhow::Result<Vec<Value>> {
    let own = text.split_once(SHARED).map_or(text, |(own, _)| own);
    let parsed = serde_saphyr::from_str(own).with_context(|| file.to_owned())?;
    let mut reader =
        Reader { parsed, values: Vec::new(), blocks: Vec::new(), comments: Vec::new() };
    for (number, line) in own.lines().enumerate() {
        let place = || format!("{file}:{}: `{}`", number + 1, line.trim());
        reader.line(line).with_context(place)?;
    }
    reader.gap().with_context(|| format!("{file}: the end"))?;
    Ok(reader.values)
}

struct Reader<'a> {
    parsed: Json,
    values: Vec<Value>,
    /// Names of the blocks that the next line may be in.
    blocks: Vec<&'a str>,
    /// Comments that wait for their key.
    comments: Vec<&'a str>,
}

impl<'a> Reader<'a> {
    fn line(&mut self, line: &'a str) -> anyhow::Result<()> {
        let content = line.trim_start();
        if content.is_empty() {
            return self.gap();
        }
        if let Some(comment) = content.strip_prefix('#') {
            self.comments.push(comment.trim());
            return Ok(());
        }
        let (name, rest) =
            content.split_once(':').context("neither a comment nor `key: value` on one line")?;
        let (default, beside) = rest.split_once(" #").unwrap_or((rest, ""));
        let default = default.trim();
        // Two spaces for each block that it is in.
        self.blocks.truncate((line.len() - content.len()) / 2);
        self.blocks.push(name);
        let there = self.blocks.iter().try_fold(&self.parsed, |block, name| block.get(*name));
        let is_so = match there {
            Some(Json::Object(_)) if default.is_empty() => true,
            // Backquotes stand around what is shown.
            Some(value) if !default.is_empty() && !default.contains('`') => {
                serde_saphyr::from_str::<Json>(default).is_ok_and(|it| it == *value)
            }
            _ => false,
        };
        ensure!(is_so, "not `key: value` on one line, as it is read in that place");
        self.comments.push(beside.trim());
        let about = self.comments.drain(..).collect::<Vec<_>>().join(" ").trim().to_owned();
        let default = (!default.is_empty()).then(|| default.to_owned());
        self.values.push(Value { key: self.blocks.join("."), default, about });
        Ok(())
    }

    /// A comment above a gap is about no key. The head of the file is one; further down its words would be lost.
    fn gap(&mut self) -> anyhow::Result<()> {
        ensure!(
            self.values.is_empty() || self.comments.is_empty(),
            "the comment above this line stands above no key"
        );
        self.comments.clear();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_has_its_path_its_default_and_the_comments_above_and_beside_it() {
        let text = "# The head.\n\
                    \n\
                    # What is\n\
                    # run.\n\
                    image:\n\
                    \x20 tag: \"\" # Its tag.\n\
                    \x20 # At most.\n\
                    \x20 limits: {cpu: 1}\n\
                    drop: [ALL]\n";
        let read = read("values.yaml", text).unwrap();
        let read: Vec<_> = read
            .iter()
            .map(|it| (it.key.as_str(), it.default.as_deref(), it.about.as_str()))
            .collect();
        let wanted = [
            ("image", None, "What is run."),
            ("image.tag", Some("\"\""), "Its tag."),
            ("image.limits", Some("{cpu: 1}"), "At most."),
            ("drop", Some("[ALL]"), ""),
        ];
        assert_eq!(read, wanted);
    }

    #[test]
    fn what_was_made_from_the_library_is_not_read_as_the_charts_own() {
        let text = format!("a: 1\n\n{SHARED}\n\nb: 2\n");
        assert_eq!(read("values.yaml", &text).unwrap().len(), 1);
    }

    #[test]
    fn what_is_not_understood_is_refused_with_its_line() {
        for (text, line, told) in [
            ("a: 1\nb:\n  - c\n", 2, "not `key: value`"),
            ("a: 1\nb:\n  - c: 2\n", 2, "not `key: value`"),
            ("- a\n", 1, "neither"),
            ("\"a b\": 1\n", 1, "not `key: value`"),
            ("a: [b,\n  c]\n", 1, "not `key: value`"),
            ("a: |\n  b\n", 1, "not `key: value`"),
            ("a: b\n  c\n", 1, "not `key: value`"),
            ("a: '`'\n", 1, "not `key: value`"),
            ("a:1\n", 1, "not `key: value`"),
            ("a:\n  b:\n    c: 1\n   # d\nb:\n", 5, "not `key: value`"),
            ("a:\nb: 2\n", 1, "not `key: value`"),
            ("a: 1\n# lost\n\nb: 2\n", 3, "above no key"),
        ] {
            let error = format!("{:#}", read("values.yaml", text).unwrap_err());
            assert!(error.starts_with(&format!("values.yaml:{line}: ")), "{text}{error}");
            assert!(error.contains(told), "{text}{error}");
        }
        for text in ["a: 1\n  b: 2\n", "a: 1\n# lost\n", "a: 1\na: 2\n"] {
            let error = format!("{:#}", read("values.yaml", text).unwrap_err());
            assert!(error.starts_with("values.yaml"), "{text}{error}");
        }
    }
}
