//! The rules of a controller as data: an ordered list, of which the first that has something to say decides. Its reference is
//! made from that.

/// A rule.
#[derive(Clone, Copy, Debug)]
pub struct Rule<F> {
    /// Where it stands in the code.
    pub path: &'static str,
    /// Why it stands where it stands in the order.
    pub why: &'static str,
    /// What it decides.
    pub decide: F,
}

impl<F> Rule<F> {
    /// What it is called.
    pub fn name(&self) -> &'static str {
        self.path.rsplit(':').next().unwrap_or_default().trim()
    }

    /// How it is shown: its name, and why it stands where it stands.
    pub fn shown(&self) -> (&'static str, &'static str) {
        (self.name(), self.why)
    }
}

/// Makes the rules of a controller, one line each: the function, and why it stands there.
#[macro_export]
macro_rules! rule_book {
    ($($rule:path: $why:literal,)+) => {
        [$($crate::engine::Rule { path: stringify!($rule), why: $why, decide: $rule }),+]
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    type Decide = fn(u8) -> Option<&'static str>;

    mod part {
        pub(super) fn is_odd(number: u8) -> Option<&'static str> {
            (number % 2 == 1).then_some("odd")
        }
    }

    fn is_small(number: u8) -> Option<&'static str> {
        (number < 3).then_some("small")
    }

    #[test]
    fn a_rule_is_called_like_its_function_and_the_first_that_says_something_decides() {
        const RULES: [Rule<Decide>; 2] =
            crate::rule_book![part::is_odd: "First.", is_small: "What is left.",];
        let shown = [("is_odd", "First."), ("is_small", "What is left.")];
        assert_eq!(RULES.map(|it| it.shown()), shown);
        let decided = [1, 2, 4].map(|number| RULES.iter().find_map(|it| (it.decide)(number)));
        assert_eq!(decided, [Some("odd"), Some("small"), None]);
    }
}
