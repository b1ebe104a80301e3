//! Which hosts will do for a machine, by their labels.

use std::collections::BTreeMap;

use api_types::capm3::{HostSelector, Requirement};
use controller_kit::config::is_label_value;

use crate::seen::Operator;
use crate::text;

/// Labels of an object.
pub type Labels = BTreeMap<String, String>;

/// A host selector that was understood.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector {
    /// Labels that a host must have.
    pub equals: Labels,
    rules: Vec<LabelRule>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct LabelRule {
    key: String,
    operator: Operator,
    values: Vec<String>,
}

impl Selector {
    /// Reads a selector; the error says which part of it to change.
    pub fn read(selector: &HostSelector) -> Result<Self, String> {
        for (key, value) in &selector.match_labels {
            check_key(key)?;
            check_value(key, value)?;
        }
        let mut equals = selector.match_labels.clone();
        let mut rules = Vec::new();
        for requirement in &selector.match_expressions {
            let rule = rule(requirement)?;
            match &rule.values[..] {
                // One value is a label that a host must have, and those are found without looking at every host.
                [value] if rule.operator == Operator::OneOf && !equals.contains_key(&rule.key) => {
                    equals.insert(rule.key, value.clone());
                }
                _ => rules.push(rule),
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
        let number = |text: &str| text.parse::<i64>().ok();
        self.rules.iter().all(|LabelRule { key, operator, values }| {
            let found = label(key);
            let is_in = || found.is_some_and(|it| values.iter().any(|value| value == it));
            let numbers = || found.and_then(number).zip(number(values.first()?));
            match operator {
                Operator::OneOf => is_in(),
                Operator::NoneOf => !is_in(),
                Operator::Has => found.is_some(),
                Operator::Lacks => found.is_none(),
                Operator::Above => numbers().is_some_and(|(it, than)| it > than),
                Operator::Below => numbers().is_some_and(|(it, than)| it < than),
            }
        })
    }
}

fn rule(requirement: &Requirement) -> Result<LabelRule, String> {
    let Requirement { key, operator: word, values, .. } = requirement;
    check_key(key)?;
    // CAPM3 takes these words in any case, and those of label selectors in text form.
    let operator = match word.to_ascii_lowercase().as_str() {
        "in" | "=" | "==" => Operator::OneOf,
        "notin" | "!=" => Operator::NoneOf,
        "exists" => Operator::Has,
        "doesnotexist" | "!" => Operator::Lacks,
        "gt" => Operator::Above,
        "lt" => Operator::Below,
        _ => return Err(text::operator_unknown(word, key)),
    };
    let takes_them = match operator {
        Operator::OneOf | Operator::NoneOf => !values.is_empty(),
        Operator::Has | Operator::Lacks => values.is_empty(),
        Operator::Above | Operator::Below => {
            matches!(&values[..], [value] if value.parse::<i64>().is_ok())
        }
    };
    if !takes_them {
        return Err(text::operator_takes(operator, word, key));
    }
    if matches!(operator, Operator::OneOf | Operator::NoneOf) {
        values.iter().try_for_each(|value| check_value(key, value))?;
    }
    Ok(LabelRule { key: key.clone(), operator, values: values.clone() })
}

fn check_key(key: &str) -> Result<(), String> {
    let (prefix, name) =
        key.split_once('/').map_or((None, key), |(prefix, name)| (Some(prefix), name));
    let prefix_fits =
        prefix.is_none_or(|prefix| prefix.len() <= 253 && prefix.split('.').all(is_label_value));
    let fits = is_label_value(name) && prefix_fits;
    if fits { Ok(()) } else { Err(text::no_label_key(key)) }
}

fn check_value(key: &str, value: &str) -> Result<(), String> {
    let fits = value.is_empty() || is_label_value(value);
    if fits { Ok(()) } else { Err(text::no_label_value(value, key)) }
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
            ("rack", "Gt", &["a"][..], "needs one whole number"),
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
