//! `values.yaml` of a chart with its comments, which a YAML parser drops and which are what the chart's README says of
//! each value. It is read line by line, and only as much of YAML is understood as the charts use: anything else is
//! refused, so that no value can be missing without a word.

use anyhow::{Context, ensure};

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

/// All values of a file, in its order.
///
/// # Errors
/// When a line is not understood: the message names it.
pub(crate) fn read(file: &str, text: &str) -> anyhow::Result<Vec<Value>> {
    let mut reader = Reader::default();
    for (number, line) in text.lines().enumerate() {
        let place = || format!("{file}:{}: `{}`", number + 1, line.trim());
        reader.line(line).with_context(place)?;
    }
    let place = || format!("{file}:{}: the end", text.lines().count());
    reader.end().with_context(place)?;
    Ok(reader.values)
}

#[derive(Default)]
struct Reader {
    values: Vec<Value>,
    /// Names of the blocks that the next line may be in.
    blocks: Vec<String>,
    /// Comments that wait for their key, and how far they are indented.
    comments: Vec<(usize, String)>,
}

impl Reader {
    fn line(&mut self, line: &str) -> anyhow::Result<()> {
        let content = line.trim_start_matches(' ');
        let indent = line.len() - content.len();
        if content.trim().is_empty() {
            return self.gap();
        }
        if let Some(comment) = content.strip_prefix('#') {
            self.comments.push((indent, comment.trim().to_owned()));
            return Ok(());
        }
        let (name, rest) =
            content.split_once(':').context("neither a comment nor `key: value` on one line")?;
        let plain = |it: char| it.is_ascii_alphanumeric() || it == '-' || it == '_';
        ensure!(!name.is_empty() && name.chars().all(plain), "no plain key: write lists as [a, b]");
        ensure!(rest.is_empty() || rest.starts_with(' '), "no space after the colon");
        let (default, beside) = cut(rest).context("the value is not whole, or not plain")?;
        self.enter(indent, name)?;
        self.value(default, beside);
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

    /// Leaves the blocks that this key is not in, and takes it for one itself.
    fn enter(&mut self, indent: usize, name: &str) -> anyhow::Result<()> {
        let depth = indent / 2;
        ensure!(
            indent.is_multiple_of(2) && depth <= self.blocks.len(),
            "not indented by two spaces for each block that it is in"
        );
        ensure!(depth == self.blocks.len() || !self.in_empty_block(), "the key above has no value");
        ensure!(
            self.comments.iter().all(|(other, _)| *other == indent),
            "the comment above is indented otherwise"
        );
        self.blocks.truncate(depth);
        self.blocks.push(name.to_owned());
        Ok(())
    }

    fn value(&mut self, default: &str, beside: &str) {
        let key = self.blocks.join(".");
        let mut about: Vec<String> = self.comments.drain(..).map(|(_, comment)| comment).collect();
        about.push(beside.to_owned());
        let about = about.join(" ").trim().to_owned();
        if default.is_empty() {
            self.values.push(Value { key, default: None, about });
        } else {
            self.blocks.pop();
            self.values.push(Value { key, default: Some(default.to_owned()), about });
        }
    }

    fn in_empty_block(&self) -> bool {
        self.values.last().is_some_and(|it| it.default.is_none())
    }

    fn end(&self) -> anyhow::Result<()> {
        ensure!(!self.in_empty_block(), "the last key has no value");
        ensure!(self.comments.is_empty(), "the last comment stands above no key");
        Ok(())
    }
}

/// What stands after a key's colon: its value and the comment beside it. None where the value goes on in the next line,
/// or cannot be shown as it is written.
fn cut(rest: &str) -> Option<(&str, &str)> {
    let quote = rest.trim_start().chars().next().filter(|it| *it == '"' || *it == '\'');
    let (value, comment) = if let Some(quote) = quote {
        let text = rest.trim_start();
        text.split_at(text[1..].find(quote)? + 2)
    } else {
        rest.split_at(rest.find(" #").unwrap_or(rest.len()))
    };
    let (value, comment) = (value.trim(), comment.trim());
    let whole = match value.chars().next() {
        Some('[') => value.ends_with(']'),
        Some('{') => value.ends_with('}'),
        Some('|' | '>' | '&' | '*' | '!') => false,
        _ => !value.contains('`'),
    };
    let fine = whole && (comment.is_empty() || comment.starts_with('#'));
    fine.then(|| (value, comment.trim_start_matches('#').trim()))
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
    fn what_is_not_understood_is_refused_with_its_line() {
        for (text, line, told) in [
            ("a: 1\nb:\n  - c\n", 3, "neither"),
            ("a: 1\nb:\n  - c: 2\n", 3, "no plain key"),
            ("\"a b\": 1\n", 1, "no plain key"),
            ("a:1\n", 1, "no space"),
            ("a: [b,\n  c]\n", 1, "not whole"),
            ("a: |\n  b\n", 1, "not whole"),
            ("a: 'it''s'\n", 1, "not whole"),
            ("a: 1\n  b: 2\n", 2, "not indented"),
            ("a:\n   b: 2\n", 2, "not indented"),
            ("a:\nb: 2\n", 2, "has no value"),
            ("a: 1\nb:\n", 2, "has no value"),
            ("a:\n# b\n  b: 2\n", 3, "indented otherwise"),
            ("a: 1\n# lost\n\nb: 2\n", 3, "above no key"),
            ("a: 1\n# lost\n", 2, "above no key"),
        ] {
            let error = format!("{:#}", read("values.yaml", text).unwrap_err());
            assert!(error.starts_with(&format!("values.yaml:{line}: ")), "{text}{error}");
            assert!(error.contains(told), "{text}{error}");
        }
    }
}
