//! What people read, held to its lengths: pages, cells and sentences that are written by hand, and the subjects of commits.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::links::prose;
use crate::{files, root};

const PAGE_WORDS: usize = 1_500;
const CELL_CHARACTERS: usize = 150;
const SENTENCE_WORDS: usize = 40;
const SUBJECT_CHARACTERS: usize = 72;
/// Words that no trade uses: a page that was rewritten once must not get them back.
const OLD_WORDS: &[&str] = &["anew", "crowd", "told", "whoever"];
/// So many commits back subjects are looked at: what is older cannot be changed any more.
const COMMITS: &str = "-50";
/// First words of sentences about the code, where the subject of a commit says what to do.
const NO_VERBS: &[&str] = &[
    "A", "An", "Each", "Every", "It", "Its", "No", "Nobody", "One", "That", "The", "This", "What",
    "Who", "Whose",
];

/// One line for each page that is too long, or has a cell or a sentence that is.
pub(crate) fn long_pages() -> Vec<String> {
    let shown = |page: &Path| page.strip_prefix(root()).unwrap_or(page).display().to_string();
    let pages = files(root(), "md").into_iter().map(|page| (shown(&page), page));
    let by_hand = |page: &str| {
        let generated = page.starts_with("docs/reference/");
        !generated
            && (!page.contains('/') || page.starts_with("docs/") || page.starts_with("deploy/"))
    };
    let text = |page: &Path| fs::read_to_string(page).unwrap_or_default();
    let by_hand = pages.filter(|(shown, _)| by_hand(shown));
    by_hand.flat_map(|(shown, page)| long(&shown, &text(&page))).collect()
}

fn long(page: &str, text: &str) -> Vec<String> {
    let (mut broken, mut words, mut sentence) = (Vec::new(), 0, 0);
    for (number, line) in prose(text) {
        let mut of_line = line.split_whitespace().peekable();
        words += of_line.clone().count();
        if line.starts_with('|') {
            let cells = line.trim_matches('|').split('|').map(|it| it.trim().chars().count());
            broken.extend(cells.filter(|it| *it > CELL_CHARACTERS).map(|length| {
                format!("{page}:{number}: a cell of {length} characters ({CELL_CHARACTERS} at most): make it a section")
            }));
        }
        // A heading is no sentence. A gap, an item of a list and a cell begin one.
        let first = of_line.peek().copied().unwrap_or("#");
        let is_number = |it: &str| !it.is_empty() && it.chars().all(|it| it.is_ascii_digit());
        if first.starts_with('#') {
            sentence = 0;
            continue;
        }
        if matches!(first, "*" | "-") || first.strip_suffix('.').is_some_and(is_number) {
            sentence = 0;
            of_line.next();
        }
        for word in of_line {
            let plain = word.trim_matches(|it: char| !it.is_alphanumeric()).to_lowercase();
            if OLD_WORDS.contains(&plain.as_str()) {
                broken.push(format!("{page}:{number}: `{plain}`: use a word of the trade"));
            }
            sentence = if word.contains('|') { 0 } else { sentence + 1 };
            if sentence == SENTENCE_WORDS + 1 {
                broken.push(format!(
                    "{page}:{number}: a sentence of over {SENTENCE_WORDS} words: cut it"
                ));
            }
            if word.ends_with(['.', '!', '?']) {
                sentence = 0;
            }
        }
    }
    // The list of changes grows with each release.
    if words > PAGE_WORDS && page != "CHANGELOG.md" {
        broken.push(format!(
            "{page}: {words} words ({PAGE_WORDS} at most): cut it where the task changes"
        ));
    }
    broken
}

/// One line for each of the last commits whose subject is not what CONTRIBUTING.md asks for. Sources without a history have none.
pub(crate) fn odd_subjects() -> Vec<String> {
    if !root().join(".git").exists() {
        return Vec::new();
    }
    let mut git = Command::new("git");
    // Under sudo the checkout is another user's, and git reads that only when it is told so.
    git.args(["-c", "safe.directory=*", "-C"]).arg(root());
    let log = git.args(["log", COMMITS, "--no-merges", "--format=%an%x09%s"]).output();
    let log = log.map(|it| String::from_utf8_lossy(&it.stdout).into_owned()).unwrap_or_default();
    let subjects = log.lines().filter_map(|line| line.split_once('\t'));
    // Nobody here words what a bot writes.
    let odd = subjects.filter(|(author, it)| !author.ends_with("[bot]") && is_odd(it));
    odd.map(|(_, it)| {
        format!("commit `{it}`: write `area: Verb what`, {SUBJECT_CHARACTERS} characters at most")
    })
    .collect()
}

fn is_odd(subject: &str) -> bool {
    let Some((area, change)) = subject.split_once(": ") else { return true };
    let is_area = area.chars().all(|it| it.is_ascii_alphanumeric() || "_./, -".contains(it));
    let verb = change.split(' ').next().unwrap_or_default().trim_end_matches(',');
    let mut letters = verb.chars();
    let is_word = letters.next().is_some_and(|it| it.is_ascii_uppercase())
        && verb.len() > 1
        && letters.all(|it| it.is_ascii_lowercase());
    // `Adds`, `Added` and `Adding` tell of the change, which the subject is to ask for.
    let tells = verb.ends_with('s') && !verb.ends_with("ss")
        || verb.ends_with("ed") && !verb.ends_with("eed")
        || verb.ends_with("ing") && verb != "Bring";
    !is_area
        || !is_word
        || tells
        || NO_VERBS.contains(&verb)
        || subject.chars().count() > SUBJECT_CHARACTERS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_page_cell_or_sentence_is_told_with_its_place_and_what_to_do() {
        let words = |count: usize| "word ".repeat(count);
        let told = |text: &str| long("docs/a.md", text);
        assert_eq!(told(&format!("# A\n\n{}.\n{}\n", words(39), words(40))), Vec::<String>::new());
        assert_eq!(told(&format!("# A\n\n{}\nand.\n", words(40))).len(), 1);
        assert!(told(&words(41))[0].starts_with("docs/a.md:1: a sentence of over 40 words"));
        // Each begins a sentence of its own.
        for begin in ["* ", "- ", "12. ", "\n", "## ", "| "] {
            let text = format!("{}\n{begin}{}\n", words(30), words(30));
            assert_eq!(told(&text), Vec::<String>::new(), "{begin:?}");
        }
        let cell = |length: usize| format!("| a | {} |\n", "x".repeat(length));
        assert_eq!(told(&cell(150)), Vec::<String>::new());
        assert!(told(&cell(151))[0].contains(":1: a cell of 151 characters"));
        assert_eq!(told(&format!("```\n{}\n```\n", cell(151))), Vec::<String>::new());
        let page = "word.\n".repeat(1_501);
        assert!(told(&page)[0].starts_with("docs/a.md: 1501 words"));
        assert_eq!(long("CHANGELOG.md", &page), Vec::<String>::new());
    }

    #[test]
    fn an_old_word_on_a_page_is_named() {
        let found = |text: &str| long("docs/a.md", text);
        for old in ["Made anew.", "**Whoever** asks", "is (told) so"] {
            assert_eq!(found(old).len(), 1, "{old}");
        }
        assert_eq!(found("renewed, crowded\n```\nanew\n```\n"), Vec::<String>::new());
        assert!(found("anew")[0].starts_with("docs/a.md:1: `anew`"));
    }

    #[test]
    fn a_subject_that_is_no_order_or_has_no_area_or_is_long_is_odd() {
        for fine in [
            "xtask: Compare two runs",
            ".github, docs: Need a person",
            "a/b: Wait, pass",
            "x: Bring it",
        ] {
            assert!(!is_odd(fine), "{fine}");
        }
        for odd in [
            "Compare two runs",
            "xtask: compare",
            "xtask: The bench compares",
            "x: Adds it",
            "x: Added it",
            "x: Adding it",
            "x(y): Add it",
            "x: ",
        ] {
            assert!(is_odd(odd), "{odd}");
        }
        assert!(
            !is_odd(&format!("x: Add {}", "y".repeat(65)))
                && is_odd(&format!("x: Add {}", "y".repeat(66)))
        );
    }
}
