//! Patches, tried before a cluster is wanted, and what their authors have to know.

use std::collections::BTreeMap;

use api_types::hive::{ClusterPoolStatus, EntryState};

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
    telling: Telling,
}

/// When the notes are told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Telling {
    /// When the entry's version is stored: where it was before, another process has told them.
    #[default]
    WithVersion,
    /// Now: they are others than before, or there was no template to try the patches with.
    Now,
    /// They were told.
    Told,
}

impl Trial {
    /// What came of trying this version of the patches with this template.
    pub fn new(
        version: &str,
        template: &str,
        tried: Result<InstallConfig, Refusal>,
        before: Option<&Self>,
    ) -> Self {
        let (refused, notes): (_, Vec<String>) = match tried {
            Ok(config) => (None, config.notes.iter().map(ToString::to_string).collect()),
            Err(refusal) => (Some(refusal.to_string()), Vec::new()),
        };
        let telling = match before {
            Some(before) if before.notes != notes => Telling::Now,
            Some(before) if before.version == version => before.telling,
            _ => Telling::WithVersion,
        };
        let (version, template) = (version.to_owned(), template.to_owned());
        Self { version, template, refused, notes, telling }
    }

    /// Whether it was made of this version and template.
    pub fn is_of(&self, version: &str, template: &str) -> bool {
        self.version == version && self.template == template
    }

    /// Whether there is something to tell, whatever becomes of the status.
    pub fn has_news(&self) -> bool {
        self.telling == Telling::Now && !self.notes.is_empty()
    }
}

/// The notes to tell now, by customization, each once: `stored` is the status that was just stored in place of the entries
/// `before`.
pub fn news(
    trials: &mut BTreeMap<String, Trial>,
    before: &BTreeMap<String, EntryState>,
    stored: Option<&ClusterPoolStatus>,
) -> BTreeMap<String, String> {
    let version = |all: &BTreeMap<String, EntryState>, name: &str| {
        all.get(name).and_then(|it| it.version.clone())
    };
    let is_due = |name: &str, trial: &Trial| match trial.telling {
        Telling::WithVersion => stored.is_some_and(|it| {
            it.inventory.contains_key(name) && version(&it.inventory, name) != version(before, name)
        }),
        Telling::Now => true,
        Telling::Told => false,
    };
    let mut news = BTreeMap::new();
    for (name, trial) in trials.iter_mut().filter(|(_, it)| !it.notes.is_empty()) {
        if is_due(name, trial) {
            trial.telling = Telling::Told;
            news.insert(name.clone(), trial.notes.join("; "));
        }
    }
    news
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

    fn inventory(version: &str) -> BTreeMap<String, EntryState> {
        let entry = EntryState { version: Some(version.to_owned()), ..EntryState::default() };
        BTreeMap::from([("a".to_owned(), entry)])
    }

    fn of(trial: Trial) -> BTreeMap<String, Trial> {
        BTreeMap::from([("a".to_owned(), trial)])
    }

    #[test]
    fn notes_are_told_once_with_the_version_that_they_are_about() {
        let mut trials = of(Trial::new("1", "7", Ok(config(&["x"])), None));
        let stored =
            ClusterPoolStatus { inventory: inventory("1"), ..ClusterPoolStatus::default() };
        let none = BTreeMap::new();
        assert!(news(&mut trials, &none, None).is_empty());
        assert_eq!(news(&mut trials, &none, Some(&stored)).len(), 1);
        assert!(news(&mut trials, &none, Some(&stored)).is_empty());
        // Another process told them when it stored the version.
        let mut trials = of(Trial::new("1", "7", Ok(config(&["x"])), None));
        assert!(news(&mut trials, &inventory("1"), None).is_empty());
        assert!(news(&mut trials, &inventory("1"), Some(&stored)).is_empty());
        // The same notes of the next version.
        trials = of(Trial::new("2", "7", Ok(config(&["x"])), trials.get("a")));
        assert!(news(&mut trials, &inventory("1"), None).is_empty());
        let stored =
            ClusterPoolStatus { inventory: inventory("2"), ..ClusterPoolStatus::default() };
        assert_eq!(news(&mut trials, &inventory("1"), Some(&stored)).len(), 1);
    }

    #[test]
    fn notes_that_come_with_a_template_are_told_although_the_version_is_stored() {
        let before = inventory("1");
        let tell = |trials: &mut BTreeMap<String, Trial>| news(trials, &before, None);
        // There was none to try the patches with.
        let mut trials = of(Trial::new("1", "7", Ok(config(&["x"])), Some(&Trial::default())));
        assert_eq!(tell(&mut trials).len(), 1);
        assert!(tell(&mut trials).is_empty());
        // Another template, with which they mean the same, and one with which they do not.
        for (paths, told) in [(vec!["x"], 0), (vec!["x", "y"], 1), (vec![], 0), (vec!["x"], 1)] {
            trials = of(Trial::new("1", "8", Ok(config(&paths)), trials.get("a")));
            assert_eq!(tell(&mut trials).len(), told, "{paths:?}");
        }
    }
}
