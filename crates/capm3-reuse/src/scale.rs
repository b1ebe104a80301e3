//! How replicas follow hosts, as an annotation asks for it. The chart's policy reads it the same way.

use crate::text;

/// What the annotation of a deployment, or of a set of machines, asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The fewest replicas.
    pub min: i32,
    /// The most.
    pub max: i32,
    /// Whether replicas may shrink.
    pub down: bool,
}

impl Bounds {
    /// Reads the annotation; the error says what to change.
    pub fn read(asked: &str) -> Result<Self, String> {
        let (mut min, mut max, mut down) = (None, None, None);
        for word in asked.split(',') {
            let is_new = match word.split_once('=') {
                Some(("min", it)) => number(it).is_some_and(|it| min.replace(it).is_none()),
                Some(("max", it)) => number(it).is_some_and(|it| max.replace(it).is_none()),
                Some(("down", it)) => it.parse().is_ok_and(|it: bool| down.replace(it).is_none()),
                _ => false,
            };
            if !is_new {
                return Err(text::scale_word(word));
            }
        }
        match (min, max) {
            (Some(min), Some(max)) if min <= max => Ok(Self { min, max, down: down == Some(true) }),
            (Some(min), Some(max)) => Err(text::scale_bounds(min, max)),
            _ => Err(text::scale_word(asked)),
        }
    }
}

/// A number without a sign.
fn number(text: &str) -> Option<i32> {
    let is_plain = text.len() <= 5 && text.bytes().all(|it| it.is_ascii_digit());
    is_plain.then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_annotation_is_read_or_refused_with_what_to_change() {
        let bounds = |min, max, down| Bounds { min, max, down };
        for (asked, wanted) in [
            ("min=2,max=50", bounds(2, 50, false)),
            ("max=50,min=2,down=true", bounds(2, 50, true)),
            ("down=false,min=0,max=0", bounds(0, 0, false)),
        ] {
            assert_eq!(Bounds::read(asked), Ok(wanted), "{asked}");
        }
        for (asked, told) in [
            ("", "\"\" in annotation"),
            ("min=2", "\"min=2\" in annotation"),
            ("max=2", "\"max=2\" in annotation"),
            ("min=2,max=50,", "\"\" in annotation"),
            ("min=2, max=50", "\" max=50\" in annotation"),
            ("min=2,max=50,up=true", "\"up=true\" in annotation"),
            ("min=2,max=50,down", "\"down\" in annotation"),
            ("min=2,max=50,down=yes", "\"down=yes\" in annotation"),
            ("min=2,min=3,max=50", "\"min=3\" in annotation"),
            ("min=-1,max=50", "\"min=-1\" in annotation"),
            ("min=+1,max=50", "\"min=+1\" in annotation"),
            ("min=1,max=100000", "\"max=100000\" in annotation"),
            ("min=3,max=2", "Lower min or raise max"),
        ] {
            let why = Bounds::read(asked).unwrap_err();
            assert!(why.contains(told), "{asked}: {why}");
        }
    }
}
