//! Progress of long work: what is being done, and how long it took.

use std::io::{IsTerminal, Write};
use std::time::Instant;

/// Does `work` and says so on standard error: the name when it begins, the time when it ends.
///
/// # Errors
/// Those of `work`, unchanged.
pub fn step<T>(what: &str, work: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
    let started = Instant::now();
    begin(what);
    let done = work();
    end(what, started, done.is_ok());
    done
}

/// [`step`] for asynchronous work.
///
/// # Errors
/// Those of `work`, unchanged.
pub async fn step_async<T>(
    what: &str,
    work: impl Future<Output = anyhow::Result<T>>,
) -> anyhow::Result<T> {
    let started = Instant::now();
    begin(what);
    let done = work.await;
    end(what, started, done.is_ok());
    done
}

fn begin(what: &str) {
    // On a terminal the line is overwritten by its end; in a log the beginning matters when the end never comes.
    let mut err = std::io::stderr();
    if err.is_terminal() {
        let _ = write!(err, "  … {what}\r");
        let _ = err.flush();
    } else {
        let _ = writeln!(err, "  … {what}");
    }
}

fn end(what: &str, started: Instant, ok: bool) {
    let mark = if ok { '✓' } else { '✗' };
    let mut err = std::io::stderr();
    // Another step may have begun since, with a longer line.
    let rest = if err.is_terminal() { "\x1b[K" } else { "" };
    let _ = writeln!(err, "  {mark} {what} ({:.1} s){rest}", started.elapsed().as_secs_f64());
}
