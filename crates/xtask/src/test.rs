//! `cargo xtask test`: everything that has to hold, from nothing.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::bail;
use bench::image;
use bench::ironic::Release;
use bench::programs::Profile;
use bench::skip::FILE_VARIABLE;
use bench::steps::step;
use bench::{cache, go, process};

use crate::controllers::PODS;
use crate::{cargo, lint};

/// A story in which seconds count: it runs after the others, with the machine to itself.
const ALONE: &str =
    "pods::upgrade::upgrades_of_the_other_four_under_load_do_nothing_twice_and_leave_no_gap";

/// Checks the text, installs the real parts, runs the tests, and ends with one line that counts them.
///
/// # Errors
/// When a check or a test fails, or no test was run.
pub(crate) fn run(name: Option<&str>) -> anyhow::Result<()> {
    let started = Instant::now();
    eprintln!("real parts (kept in {})", cache::root().display());
    // They wait for the network or for one processor most of the time, and so does the compiler: side by side both end
    // minutes earlier.
    let parts = std::thread::spawn(real_parts);
    if name.is_none() {
        eprintln!("checks");
        lint::run()?;
    }
    step("compiling the tests", || {
        if !is_done(cargo().args(["test", "--quiet", "--workspace", "--locked", "--no-run"]))? {
            bail!("the tests do not compile");
        }
        // Stories start the controllers as programs, which cargo makes for nobody but their own crate's tests.
        let programs = ["build", "--quiet", "--workspace", "--exclude", "xtask", "--bins"];
        if !is_done(cargo().args(programs).args(["--examples", "--locked"]))? {
            bail!("the programs do not compile");
        }
        Ok(())
    })?;
    parts
        .join()
        .map_err(|_| anyhow::anyhow!("the making of the real parts ended in a panic"))??;
    // Tests write there which of them this machine is not fit for.
    let skipped = cache::RunDir::new("skipped")?;
    let skipped = skipped.path().join("tests");
    let tests = |which: &[&str], how: &[&str]| {
        let mut tests = cargo();
        // The time of each test is told only under this variable, which must not reach the compiler.
        tests.args(["--config", "target.'cfg(unix)'.runner=['env','RUSTC_BOOTSTRAP=1']"]);
        tests.args(["test", "--workspace", "--locked", "--no-fail-fast"]).args(which);
        tests.args(["--", "-Zunstable-options", "--report-time"]).args(how);
        tests.env(FILE_VARIABLE, &skipped);
        tests
    };
    // Most of a story is waiting for somebody else's timer, so more of them go on than there are processors.
    let processors = std::thread::available_parallelism().map_or(2, usize::from);
    let threads = format!("--test-threads={}", 3 * processors);
    let mut how = vec![threads.as_str()];
    how.extend(name);
    let mut tally = follow(&tests(&["--lib", "--bins", "--tests"], &how))?;
    if name.is_none_or(|name| ALONE.contains(name)) {
        tally.add(follow(&tests(&["--test", "stories"], &["--ignored", "--exact", ALONE]))?);
    }
    tally.skip(&std::fs::read_to_string(&skipped).unwrap_or_default());
    cache::sweep();
    println!("\nthe slowest:");
    for (seconds, test) in tally.slowest() {
        println!("{seconds:>7.1} s  {test}");
    }
    println!("\nall of it took {:.0} s", started.elapsed().as_secs_f64());
    for line in &tally.skipped {
        println!("{line}");
    }
    println!("{}", tally.last_line());
    if tally.failed > 0 || !tally.succeeded {
        bail!("tests failed");
    }
    if tally.passed == 0 && tally.skipped.is_empty() {
        bail!("no test has that name");
    }
    Ok(())
}

/// Makes all that the tests run beside the project's own code, and the images of its own.
fn real_parts() -> anyhow::Result<()> {
    let python = std::thread::spawn(|| -> anyhow::Result<()> {
        let runtime = tokio::runtime::Runtime::new()?;
        for release in [Release::Current, Release::FirstWithDiscovery, Release::Oldest] {
            runtime.block_on(bench::ironic::environment(release))?;
        }
        Ok(())
    });
    for program in go::FOR_TESTS {
        go::program(program)?;
    }
    if bench::node::forbidden().is_none() {
        step("building the images of the pods", || image::build(Profile::Pods, &PODS))?;
    }
    python.join().map_err(|_| anyhow::anyhow!("the installation of Ironic ended in a panic"))?
}

/// What the test programs said together.
#[derive(Debug, Default, PartialEq)]
struct Tally {
    passed: u64,
    failed: u64,
    skipped: Vec<String>,
    succeeded: bool,
    times: Vec<(f64, String)>,
}

impl Tally {
    /// Adds a line such as `test result: ok. 3 passed; 0 failed; …` or `test a::b ... ok <0.123s>`.
    fn read(&mut self, line: &str) {
        let Some(counts) = line.strip_prefix("test result: ") else {
            let timed = line.strip_prefix("test ").and_then(|test| test.strip_suffix("s>"));
            if let Some((test, seconds)) = timed.and_then(|test| test.rsplit_once(" <"))
                && let Ok(seconds) = seconds.parse()
            {
                self.times.push((seconds, test.replace(" ... ", " ")));
            }
            return;
        };
        for part in counts.split([';', '.']) {
            let mut words = part.split_whitespace();
            if let (Some(Ok(count)), Some(what)) =
                (words.next().map(str::parse::<u64>), words.next())
            {
                match what {
                    "passed" => self.passed += count,
                    "failed" => self.failed += count,
                    _ => {}
                }
            }
        }
    }
}

impl Tally {
    /// Counts those of another run as well.
    fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.succeeded &= other.succeeded;
        self.times.extend(other.times);
    }

    /// Takes back those that the harness counted as passed, although they only said why they cannot be run here.
    fn skip(&mut self, lines: &str) {
        self.skipped.extend(lines.lines().map(str::to_owned));
        self.passed -= lines.lines().count() as u64;
    }

    /// What is left of all the lines above it.
    fn last_line(&self) -> String {
        let (passed, failed, skipped) = (self.passed, self.failed, self.skipped.len());
        format!("{passed} passed, {failed} failed, {skipped} skipped")
    }

    /// What to look at first when the tests take too long.
    fn slowest(&mut self) -> &[(f64, String)] {
        self.times.sort_by(|one, other| other.0.total_cmp(&one.0));
        &self.times[..self.times.len().min(10)]
    }
}

/// Whether a command that shows what it says itself succeeds.
fn is_done(command: &Command) -> anyhow::Result<bool> {
    let (mut child, _held) = process::tied(command, Stdio::inherit(), Stdio::inherit())?;
    Ok(child.wait()?.success())
}

/// Runs the tests, shows what they print, counts.
fn follow(tests: &Command) -> anyhow::Result<Tally> {
    let (mut child, _held) = process::tied(tests, Stdio::piped(), Stdio::inherit())?;
    let mut tally = Tally::default();
    if let Some(output) = child.stdout.take() {
        for line in BufReader::new(output).lines() {
            let line = line?;
            // A crate without tests of one kind prints three lines about nothing.
            if !line.is_empty()
                && line != "running 0 tests"
                && !line.contains("ok. 0 passed; 0 failed")
            {
                println!("{line}");
            }
            tally.read(&line);
        }
    }
    tally.succeeded = child.wait()?.success();
    Ok(tally)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_counts_the_tests_of_all_programs() {
        let mut tally = Tally::default();
        for line in [
            "running 3 tests",
            "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s",
            "test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.00s",
        ] {
            tally.read(line);
        }
        assert_eq!(tally, Tally { passed: 4, failed: 2, ..Tally::default() });
    }

    #[test]
    fn what_runs_alone_counts_with_the_others_and_fails_them() {
        let mut all = Tally { passed: 3, succeeded: true, ..Tally::default() };
        all.add(Tally { passed: 1, succeeded: true, ..Tally::default() });
        assert_eq!(all, Tally { passed: 4, succeeded: true, ..Tally::default() });
        all.add(Tally { failed: 1, ..Tally::default() });
        assert_eq!(all, Tally { passed: 4, failed: 1, ..Tally::default() });
    }

    #[test]
    fn a_skipped_test_is_not_counted_as_passed() {
        let mut tally = Tally { passed: 3, ..Tally::default() };
        tally.skip("skipped pods::one: a kubelet needs root\n");
        assert_eq!(tally.last_line(), "2 passed, 0 failed, 1 skipped");
    }

    #[test]
    fn the_slowest_tests_are_told_slowest_first() {
        let mut tally = Tally::default();
        for line in [
            "test fast::one ... ok <0.013s>",
            "test slow::one ... FAILED <95.084s>",
            "test slow::one has been running for over 60 seconds",
        ] {
            tally.read(line);
        }
        let told = [(95.084, "slow::one FAILED".to_owned()), (0.013, "fast::one ok".to_owned())];
        assert_eq!(tally.slowest(), told);
    }
}
