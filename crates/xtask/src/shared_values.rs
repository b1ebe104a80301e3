//! `values.yaml` of a controller's chart: its own values by hand, and below them those that all charts share. Helm would find
//! the shared ones in the library, too, but `helm show values` shows this file alone.

use std::fmt::Write;

use crate::chart_readme::{LIBRARY, imports, text_of};
use crate::values::{self, SHARED, Value};

/// `values.yaml` of a controller's chart.
///
/// # Errors
/// When a file of the chart cannot be read, or a line of its own values is not understood.
pub(crate) fn page(controller: &str) -> anyhow::Result<String> {
    let file = format!("charts/{controller}/values.yaml");
    let (text, library) = (text_of(&file)?, text_of(LIBRARY)?);
    let values = values::read(&file, &text)?;
    let own = text.split(SHARED).next().unwrap_or_default().trim_end();
    let mut page = format!("{own}\n\n{SHARED}\n");
    for block in imports(controller)? {
        let _ = write!(page, "\n{}\n", shared(&library, &block, &values).trim_end());
    }
    Ok(page)
}

/// What the library exports under this name, with its comments, without what the chart sets itself.
fn shared(library: &str, block: &str, own: &[Value]) -> String {
    let head = format!("  {block}:");
    let lines = library.lines().skip_while(|line| **line != head).skip(1);
    let lines = lines.take_while(|line| line.is_empty() || line.starts_with("    "));
    let (mut text, mut comments, mut kept) = (String::new(), String::new(), true);
    for line in lines.map(|line| line.get(4..).unwrap_or_default()) {
        if line.starts_with('#') {
            let _ = writeln!(comments, "{line}");
            continue;
        }
        if let Some((key, _)) = line.split_once(':').filter(|_| !line.starts_with(' ')) {
            kept = !own.iter().any(|value| value.key == key);
        }
        let comments = std::mem::take(&mut comments);
        if kept {
            let _ = writeln!(text, "{comments}{line}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::Value as Json;

    use super::*;
    use crate::controllers::PODS;

    #[test]
    fn what_a_chart_sets_itself_is_not_said_twice() {
        let library = "exports:\n  defaults:\n    # One.\n    a:\n      # Two.\n      b: 1\n\n    # Three.\n    c: {}\n    d: 2\n\n  # Others.\n  other:\n    e: 3\n";
        let own = values::read("own", "c:\n  f: 1\n").unwrap();
        let wanted = "# One.\na:\n  # Two.\n  b: 1\n\nd: 2\n\n";
        assert_eq!(shared(library, "defaults", &own), wanted);
        assert_eq!(shared(library, "other", &own), "e: 3\n");
    }

    #[test]
    fn helm_shows_all_values_of_a_chart() {
        let parsed = |text: &str| -> Json { serde_saphyr::from_str(text).unwrap() };
        let exports = &parsed(&text_of(LIBRARY).unwrap())["exports"];
        for controller in PODS {
            // A key that stood there twice would be an error.
            let shown = parsed(&page(controller).unwrap());
            for block in imports(controller).unwrap() {
                for (name, value) in exports[&block].as_object().unwrap() {
                    assert!(name == "settings" || shown[name] == *value, "{controller}: {name}");
                }
            }
        }
    }
}
