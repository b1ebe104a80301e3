//! A table that follows what happens: on a terminal it is drawn over itself, elsewhere each row that changed is a line.

use std::fmt::Write as _;
use std::io::{IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

use bench::objects;
use serde_json::Value;

/// How long a chapter waits for what it shows.
pub(super) const PATIENCE: Duration = Duration::from_secs(300);

/// A table of text with a fixed head.
pub(crate) struct Table {
    head: Vec<&'static str>,
    rows: Rows,
    widths: Vec<usize>,
    started: Instant,
    /// Lines that the last drawing took, to be drawn over.
    drawn: usize,
    on_terminal: bool,
}

impl Table {
    /// A table without rows; the clock of its lines starts now. A word of the head that is padded keeps its column that wide,
    /// so that lines which come later do not shift.
    pub(crate) fn new(head: &[&'static str]) -> Self {
        Self {
            head: head.to_vec(),
            rows: Vec::new(),
            widths: head.iter().map(|word| word.chars().count()).collect(),
            started: Instant::now(),
            drawn: 0,
            on_terminal: std::io::stdout().is_terminal(),
        }
    }

    /// Says what is done next, above the rows that will show its effect.
    pub(crate) fn say(&mut self, what: &str) {
        // What was drawn stays as it was; the next drawing begins below.
        self.drawn = 0;
        println!("\n  {what}");
        if self.on_terminal {
            self.draw();
        }
    }

    /// Shows the rows, if they are not what was shown last.
    fn show(&mut self, rows: Rows) {
        if rows == self.rows {
            return;
        }
        for row in &rows {
            for (width, cell) in self.widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        let before = std::mem::replace(&mut self.rows, rows);
        if self.on_terminal {
            self.draw();
            return;
        }
        if before.is_empty() {
            println!("    {:>7}  {}", "", self.line(&self.head));
        }
        let seconds = self.started.elapsed().as_secs_f64();
        for row in self.rows.iter().filter(|row| !before.contains(row)) {
            println!("    {seconds:>6.1}s  {}", self.line(row));
        }
    }

    /// Looks again and again, and shows the rows, until they are as the chapter wants them.
    pub(crate) async fn until(
        &mut self,
        what: &str,
        mut look: impl AsyncFnMut() -> anyhow::Result<(Rows, bool)>,
    ) -> anyhow::Result<()> {
        objects::until(what, PATIENCE, async || {
            let (rows, is_so) = look().await?;
            self.show(rows);
            Ok(is_so.then_some(()))
        })
        .await
    }

    fn draw(&mut self) {
        let mut text = String::new();
        if self.drawn > 0 {
            let _ = write!(text, "\x1b[{}A", self.drawn);
        }
        let seconds = self.started.elapsed().as_secs_f64();
        let _ =
            writeln!(text, "\x1b[2K    \x1b[1m{}\x1b[0m  {seconds:.1} s", self.line(&self.head));
        for row in &self.rows {
            let _ = writeln!(text, "\x1b[2K    {}", self.line(row));
        }
        self.drawn = self.rows.len() + 1;
        print!("{text}");
        let _ = std::io::stdout().flush();
    }

    fn line(&self, cells: &[impl AsRef<str>]) -> String {
        let mut line = String::new();
        for (cell, width) in cells.iter().zip(&self.widths) {
            let _ = write!(line, "{:width$}  ", cell.as_ref());
        }
        line.trim_end().to_owned()
    }
}

/// What a table shows: the cells of each row.
pub(crate) type Rows = Vec<Vec<String>>;

/// A text of an object as a cell shows it.
pub(crate) fn text(value: &Value) -> String {
    value.as_str().unwrap_or("-").to_owned()
}
