//! CPU time per thread of a process.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

/// Returns the CPU time so far of each living thread, by name.
pub(crate) fn cpu_times(pid: u32) -> BTreeMap<String, Duration> {
    let mut times = BTreeMap::new();
    for thread in fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
        let read = |file| fs::read_to_string(thread.path().join(file)).unwrap_or_default();
        let nanos = read("schedstat").split_whitespace().next().and_then(|nanos| nanos.parse().ok());
        *times.entry(read("comm").trim().to_owned()).or_default() += Duration::from_nanos(nanos.unwrap_or(0));
    }
    times
}

/// Returns the increase since `before`.
pub(crate) fn since(
    before: &BTreeMap<String, Duration>,
    now: BTreeMap<String, Duration>,
) -> BTreeMap<String, Duration> {
    let earlier = |name: &String| before.get(name).copied().unwrap_or_default();
    now.into_iter()
        .map(|(name, time)| {
            let added = time.saturating_sub(earlier(&name));
            (name, added)
        })
        .collect()
}
