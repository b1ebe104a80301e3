//! Patches, tried before a cluster is wanted, and what their authors have to know.

use std::collections::BTreeMap;

use crate::patch::{InstallConfig, Refusal};

/// A customization's patches, tried.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trial {
    version: String,
    template: String,
    /// Why the patches cannot be used, if they cannot.
    pub refused: Option<String>,
    /// What was accepted and should not be relied on.
    notes: Vec<String>,
    told: bool,
}

impl Trial {
    /// What came of trying this version of the patches with this template, after the trial before. Where this process tried
    /// none before and the version is the `stored` one, another process has told the notes.
    pub fn new(
        version: &str,
        template: &str,
        tried: Result<InstallConfig, Refusal>,
        before: Option<&Self>,
        stored: Option<&str>,
    ) -> Self {
        let (refused, notes): (_, Vec<String>) = match tried {
            Ok(config) => (None, config.notes.iter().map(ToString::to_string).collect()),
            Err(refusal) => (Some(refusal.to_string()), Vec::new()),
        };
        let told = match before {
            Some(before) => before.told && before.version == version && before.notes == notes,
            None => stored == Some(version),
        };
        let (version, template) = (version.to_owned(), template.to_owned());
        Self { version, template, refused, notes, told }
    }

    /// Whether it was made of this version and template.
    pub fn is_of(&self, version: &str, template: &str) -> bool {
        self.version == version && self.template == template
    }

    /// Whether there is something to tell.
    pub fn has_news(&self) -> bool {
        !self.told && !self.notes.is_empty()
    }
}

/// The notes to tell now, by customization, each once.
pub fn news(trials: &mut BTreeMap<String, Trial>) -> BTreeMap<String, String> {
    let news = trials.iter_mut().filter(|(_, it)| it.has_news());
    news.map(|(name, trial)| {
        trial.told = true;
        (name.clone(), trial.notes.join("; "))
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::patch::Note;

    fn config(paths: &[&str]) -> InstallConfig {
        let note = |path: &&str| Note::SlashAdded { operation: 0, path: (*path).to_owned() };
        let notes = paths.iter().map(note).collect();
        InstallConfig { text: String::new(), name: String::new(), notes }
    }

    fn trial(
        version: &str,
        template: &str,
        paths: &[&str],
        before: Option<&Trial>,
    ) -> BTreeMap<String, Trial> {
        // The stored version is the first one.
        let trial = Trial::new(version, template, Ok(config(paths)), before, Some("1"));
        BTreeMap::from([("a".to_owned(), trial)])
    }

    #[test]
    fn notes_are_told_once_with_the_version_that_they_are_about() {
        let mut trials = trial("2", "7", &["x"], None);
        assert_eq!(news(&mut trials).len(), 1);
        assert!(news(&mut trials).is_empty());
        // Another process told them when it stored the version.
        let mut trials = trial("1", "7", &["x"], None);
        assert!(news(&mut trials).is_empty());
        // The same notes of the next version.
        trials = trial("2", "7", &["x"], trials.get("a"));
        assert_eq!(news(&mut trials).len(), 1);
    }

    #[test]
    fn notes_that_come_with_a_template_are_told_although_the_version_is_stored() {
        // There was none to try the patches with.
        let mut trials = trial("1", "7", &["x"], Some(&Trial::default()));
        assert_eq!(news(&mut trials).len(), 1);
        assert!(news(&mut trials).is_empty());
        // Another template, with which they mean the same, and one with which they do not.
        for (paths, told) in [(vec!["x"], 0), (vec!["x", "y"], 1), (vec![], 0), (vec!["x"], 1)] {
            trials = trial("1", "8", &paths, trials.get("a"));
            assert_eq!(news(&mut trials).len(), told, "{paths:?}");
        }
    }
}
