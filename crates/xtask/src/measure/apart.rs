//! Two servers on one machine that would each have their own: while one is compared with itself, what the other does must
//! not slow it down.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use anyhow::{Context, ensure};
use bench::controller::{family, told};

/// Half of the processors are one server's alone, until this is dropped.
pub(super) struct Apart {
    everybody: BTreeSet<u32>,
    processors: Vec<u32>,
}

impl Apart {
    /// Gives one half of the processors to the processes of that group, and the other half to this process and all
    /// others that it started, and those that it starts from now on.
    pub(super) fn begin(group: u32) -> anyhow::Result<Self> {
        let status = fs::read_to_string("/proc/self/status")?;
        let processors = allowed(&status).context("the kernel does not say where we may run")?;
        ensure!(
            processors.len() > 1,
            "to measure two servers beside each other takes two processors"
        );
        let (everybody, theirs) = (family(std::process::id()), family(group));
        ensure!(everybody.contains(&group), "{group} was not started here");
        let others = &everybody - &theirs;
        let apart = Self { everybody, processors };
        let (one, other) = apart.processors.split_at(apart.processors.len() / 2);
        run_on(&theirs, one)?;
        run_on(&others, other)?;
        Ok(apart)
    }
}

impl Drop for Apart {
    fn drop(&mut self) {
        self.everybody.extend(family(std::process::id()));
        // What has ended meanwhile needs no processor.
        let _ = run_on(&self.everybody, &self.processors);
    }
}

fn run_on(processes: &BTreeSet<u32>, processors: &[u32]) -> anyhow::Result<()> {
    let list = processors.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
    for process in processes {
        let mut command = Command::new("taskset");
        let output = command
            .args(["--all-tasks", "--cpu-list", "--pid", &list, &process.to_string()])
            .output()
            .context("cannot start taskset, which is a part of util-linux")?;
        // Some are over in the moment.
        let is_there = fs::exists(format!("/proc/{process}")).unwrap_or(false);
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success() || !is_there, "taskset: {said}");
    }
    Ok(())
}

/// The processors of a process, by the kernel's word: numbers and ranges.
fn allowed(status: &str) -> Option<Vec<u32>> {
    let mut processors = Vec::new();
    for range in told(status, "Cpus_allowed_list")?.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        processors.extend(first.parse::<u32>().ok()?..=last.parse().ok()?);
    }
    Some(processors)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_numbers_and_ranges() {
        let status =
            |list: &str| format!("Cpus_allowed:\tff\nCpus_allowed_list:\t{list}\nMems:\t0\n");
        assert_eq!(allowed(&status("0-1")), Some(vec![0, 1]));
        assert_eq!(allowed(&status("1,4-6")), Some(vec![1, 4, 5, 6]));
        assert_eq!(allowed("Name:\tnone\n"), None);
    }
}
