//! Which hosts will do for a machine, by their labels.

use std::collections::BTreeMap;

use api_types::capm3::{HostSelector, Requirement};
use controller_kit::config::is_label_value;

/// Labels of an object.
pub type Labels = BTreeMap<String, String>;

/// A host selector that was understood.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector {
    /// Labels that a host must have.
    pub equals: Labels,
    rules: Vec<Rule>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Rule {
    OneOf(String, Vec<String>),
    NoneOf(String, Vec<String>),
    Has(String),
    Lacks(String),
    Above(String, i64),
    Below(String, i64),
}

impl Selector {
    /// Reads a selector; the error says which part of it to change.
    pub fn read(selector: &HostSelector) -> Result<Self, String> {
        for (key, value) in &selector.match_labels {
            check_key(key, "matchLabels")?;
            check_value(value, key)?;
        }
        let mut equals = selector.match_labels.clone();
        let mut rules = Vec::new();
        for requirement in &selector.match_expressions {
            match rule(requirement)? {
                // One value is a label that a host must have, and those are found without looking at every host.
                Rule::OneOf(key, mut values) if values.len() == 1 && !equals.contains_key(&key) => {
                    equals.extend(values.pop().map(|value| (key, value)));
                }
                rule => rules.push(rule),
            }
        }
        Ok(Self { equals, rules })
    }

    /// The same where there may be none: then any host will do.
    pub fn of(selector: Option<&HostSelector>) -> Result<Self, String> {
        selector.map_or_else(|| Ok(Self::default()), Self::read)
    }

    /// Whether an object with these labels will do.
    pub fn matches(&self, labels: Option<&Labels>) -> bool {
        let label = |key: &str| labels.and_then(|labels| labels.get(key)).map(String::as_str);
        self.equals.iter().all(|(key, value)| label(key) == Some(value)) && self.allows(label)
    }

    /// Whether an object with these labels breaks none of the rules that are no plain label. Where there is none, no
    /// label is read.
    pub fn allows<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        let is_in = |values: &[String], it: &str| values.iter().any(|value| value == it);
        let number = |key: &str| label(key).and_then(|it| it.parse::<i64>().ok());
        self.rules.iter().all(|rule| match rule {
            Rule::OneOf(key, values) => label(key).is_some_and(|it| is_in(values, it)),
            Rule::NoneOf(key, values) => label(key).is_none_or(|it| !is_in(values, it)),
            Rule::Has(key) => label(key).is_some(),
            Rule::Lacks(key) => label(key).is_none(),
            Rule::Above(key, than) => number(key).is_some_and(|it| it > *than),
            Rule::Below(key, than) => number(key).is_some_and(|it| it < *than),
        })
    }
}

fn rule(requirement: &Requirement) -> Result<Rule, String> {
    let Requirement { key, operator, values, .. } = requirement;
    check_key(key, "matchExpressions")?;
    let needs_values = || {
        if values.is_empty() {
            return Err(format!("hostSelector: operator {operator} of {key:?} needs values"));
        }
        values.iter().try_for_each(|value| check_value(value, key))?;
        Ok((key.clone(), values.clone()))
    };
    let takes_none = || {
        if values.is_empty() {
            return Ok(key.clone());
        }
        Err(format!("hostSelector: operator {operator} of {key:?} takes no values: empty the list"))
    };
    let takes_number = || match values.as_slice() {
        [value] => value.parse::<i64>().map(|than| (key.clone(), than)).map_err(|_| {
            format!(
                "hostSelector: operator {operator} of {key:?} needs a whole number, not {value:?}"
            )
        }),
        _ => Err(format!("hostSelector: operator {operator} of {key:?} needs one whole number")),
    };
    // CAPM3 takes these words in any case, and those of label selectors in text form.
    match operator.to_ascii_lowercase().as_str() {
        "in" | "=" | "==" => needs_values().map(|(key, values)| Rule::OneOf(key, values)),
        "notin" | "!=" => needs_values().map(|(key, values)| Rule::NoneOf(key, values)),
        "exists" => takes_none().map(Rule::Has),
        "doesnotexist" | "!" => takes_none().map(Rule::Lacks),
        "gt" => takes_number().map(|(key, than)| Rule::Above(key, than)),
        "lt" => takes_number().map(|(key, than)| Rule::Below(key, than)),
        _ => Err(format!(
            "hostSelector: operator {operator:?} of {key:?} is not known: use In, NotIn, Exists or DoesNotExist, or Gt or Lt for numbers"
        )),
    }
}

fn check_key(key: &str, place: &str) -> Result<(), String> {
    let (prefix, name) =
        key.split_once('/').map_or((None, key), |(prefix, name)| (Some(prefix), name));
    let prefix_fits =
        prefix.is_none_or(|prefix| prefix.len() <= 253 && prefix.split('.').all(is_label_value));
    if is_label_value(name) && prefix_fits {
        return Ok(());
    }
    Err(format!("hostSelector.{place}: {key:?} is no label key"))
}

fn check_value(value: &str, key: &str) -> Result<(), String> {
    if value.is_empty() || is_label_value(value) {
        return Ok(());
    }
    Err(format!("hostSelector: {value:?} of {key:?} is no label value"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(key: &str, operator: &str, values: &[&str]) -> Result<Selector, String> {
        let values = values.iter().map(|value| (*value).to_owned()).collect();
        let requirement = Requirement {
            key: key.to_owned(),
            operator: operator.to_owned(),
            values,
            ..Requirement::default()
        };
        Selector::read(&HostSelector {
            match_expressions: vec![requirement],
            ..HostSelector::default()
        })
    }

    fn fits(selector: &Selector, value: Option<&str>) -> bool {
        let labels = value.map(|value| [("rack".to_owned(), value.to_owned())].into());
        selector.matches(labels.as_ref())
    }

    #[test]
    fn each_operator_means_what_kubernetes_means_by_it() {
        for (operator, values, with_a, with_b, without) in [
            ("In", &["a"][..], true, false, false),
            ("NotIn", &["a"][..], false, true, true),
            ("Exists", &[][..], true, true, false),
            ("DoesNotExist", &[][..], false, false, true),
            ("in", &["a", "b"][..], true, true, false),
            ("!", &[][..], false, false, true),
        ] {
            let selector = read("rack", operator, values).unwrap();
            let found = [Some("a"), Some("b"), None].map(|value| fits(&selector, value));
            assert_eq!(found, [with_a, with_b, without], "{operator}");
        }
    }

    #[test]
    fn a_number_is_compared_as_one_and_what_is_none_is_neither_above_nor_below() {
        for (operator, with_9, with_10, with_11) in
            [("Gt", false, false, true), ("lt", true, false, false)]
        {
            let selector = read("rack", operator, &["10"]).unwrap();
            let found = [Some("9"), Some("10"), Some("11")].map(|value| fits(&selector, value));
            assert_eq!(found, [with_9, with_10, with_11], "{operator}");
            assert!(!fits(&selector, Some("many")) && !fits(&selector, None), "{operator}");
        }
    }

    #[test]
    fn a_rule_with_one_value_is_a_label_that_is_looked_up_and_two_of_them_still_contradict() {
        let selector = read("rack", "In", &["a"]).unwrap();
        assert_eq!(selector.equals, [("rack".to_owned(), "a".to_owned())].into());
        let requirement = Requirement {
            key: "rack".to_owned(),
            operator: "In".to_owned(),
            values: vec!["b".to_owned()],
            ..Requirement::default()
        };
        let both = HostSelector {
            match_labels: selector.equals,
            match_expressions: vec![requirement],
            ..HostSelector::default()
        };
        let both = Selector::read(&both).unwrap();
        assert!(!fits(&both, Some("a")) && !fits(&both, Some("b")));
    }

    #[test]
    fn what_cannot_be_read_is_refused_with_what_to_change() {
        for (key, operator, values, told) in [
            ("rack", "Near", &["a"][..], "use In, NotIn, Exists or DoesNotExist, or Gt"),
            ("rack", "Gt", &["a"][..], "needs a whole number"),
            ("rack", "Gt", &["1", "2"][..], "needs one whole number"),
            ("rack", "In", &[][..], "needs values"),
            ("rack", "Exists", &["a"][..], "takes no values"),
            ("", "Exists", &[][..], "is no label key"),
            ("a/b/c", "Exists", &[][..], "is no label key"),
            ("rack", "In", &["not a value"][..], "is no label value"),
        ] {
            let why = read(key, operator, values).unwrap_err();
            assert!(why.contains(told), "{why}");
        }
    }
}
