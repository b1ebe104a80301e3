//! Two servers on one machine that would each have their own: while one is compared with itself, what the other does must
//! not slow it down.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::Command;

use anyhow::{Context, ensure};

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
        let (theirs, others) = family(std::process::id(), &processes())
            .into_iter()
            .partition::<BTreeMap<_, _>, _>(|(_, its)| *its == group);
        ensure!(!theirs.is_empty(), "there is no process of the group {group}");
        let everybody = others.keys().chain(theirs.keys()).copied().collect();
        let apart = Self { everybody, processors };
        let (one, other) = apart.processors.split_at(apart.processors.len() / 2);
        run_on(theirs.keys(), one)?;
        run_on(others.keys(), other)?;
        Ok(apart)
    }
}

impl Drop for Apart {
    fn drop(&mut self) {
        let now = family(std::process::id(), &processes()).into_keys();
        self.everybody.extend(now);
        // What has ended meanwhile needs no processor.
        let _ = run_on(self.everybody.iter(), &self.processors);
    }
}

fn run_on<'a>(processes: impl Iterator<Item = &'a u32>, processors: &[u32]) -> anyhow::Result<()> {
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
    let ranges = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    let mut processors = Vec::new();
    for range in ranges.trim().split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        processors.extend(first.parse::<u32>().ok()?..=last.parse().ok()?);
    }
    Some(processors)
}

/// What the kernel says of a process.
#[derive(Clone, Copy)]
struct Process {
    id: u32,
    parent: u32,
    group: u32,
}

fn processes() -> Vec<Process> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| process(&fs::read_to_string(entry.path().join("stat")).ok()?))
        .collect()
}

/// Behind the name, which may hold anything, come a letter, the parent and the group.
fn process(stat: &str) -> Option<Process> {
    let (before, after) = stat.rsplit_once(')')?;
    let id = before.split_whitespace().next()?.parse().ok()?;
    let mut fields = after.split_whitespace().skip(1);
    let (parent, group) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    Some(Process { id, parent, group })
}

/// A process and all that it started, with their groups.
fn family(root: u32, all: &[Process]) -> BTreeMap<u32, u32> {
    let mut family: BTreeMap<u32, u32> =
        all.iter().filter(|it| it.id == root).map(|it| (it.id, it.group)).collect();
    loop {
        let before = family.len();
        let children = all.iter().filter(|it| family.contains_key(&it.parent));
        let children: Vec<(u32, u32)> = children.map(|it| (it.id, it.group)).collect();
        family.extend(children);
        if family.len() == before {
            return family;
        }
    }
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

    #[test]
    fn a_family_is_everybody_that_was_started_in_whatever_order_the_kernel_tells() {
        let stats = [
            "30 (a) b) S 20 30 30 0 -1",
            "20 (sh) S 10 20 20 0 -1",
            "10 (xtask) S 1 10 10 0 -1",
            "40 (other) S 1 40 40 0 -1",
        ];
        let all: Vec<Process> = stats.iter().filter_map(|it| process(it)).collect();
        assert_eq!(family(10, &all), [(10, 10), (20, 20), (30, 30)].into());
    }
}
