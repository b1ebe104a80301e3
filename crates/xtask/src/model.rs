//! `cargo xtask model`: explores worlds that are too large for a test.

use std::io::Write;

use anyhow::{Context, bail};
use bench::model::Bounds;

/// Explores all worlds of a controller, or those whose name contains a word, and prints what was found in each.
///
/// # Errors
/// When a rule does not hold, a world was not explored to its end, or there is no such world.
pub(crate) fn run(name: &str, word: &str, bounds: Bounds) -> anyhow::Result<()> {
    let names: Vec<&str> = models::ALL.iter().map(|(name, _)| *name).collect();
    let (_, worlds) = models::ALL
        .iter()
        .find(|(known, _)| *known == name)
        .with_context(|| format!("no model {name}; there are: {}", names.join(", ")))?;
    let mut worlds = worlds();
    worlds.retain(|world| world.name.contains(word));
    if worlds.is_empty() {
        bail!("{name} has no world whose name contains {word:?}");
    }
    let mut failed = 0;
    for world in &worlds {
        print!("{}: ", world.name);
        std::io::stdout().flush()?;
        let report = (world.explore)(bounds);
        println!("{report}");
        failed += usize::from(!report.passed());
    }
    if failed > 0 {
        bail!(
            "{failed} of {} worlds: a rule does not hold, or the bounds are too small",
            worlds.len()
        );
    }
    Ok(())
}
