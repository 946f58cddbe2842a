//! Reads the memory and CPU time of a process from `/proc`. These are the kernel's own figures, not estimates.

use std::fs;
use std::time::Duration;

/// Returns the resident memory in bytes.
pub(crate) fn resident_bytes(pid: u32) -> u64 {
    status_kib(pid, "VmRSS:") * 1024
}

/// Returns the CPU time, user and system, of all living threads of the process and of its direct children.
pub(crate) fn cpu_time(pid: u32) -> Duration {
    let own = threads_cpu_time(pid);
    children(pid).into_iter().map(threads_cpu_time).fold(own, |sum, child| sum + child)
}

/// Returns the direct children of all threads.
pub(crate) fn children(pid: u32) -> Vec<u32> {
    let texts = threads(pid, "children");
    texts.iter().flat_map(|text| text.split_whitespace()).filter_map(|child| child.parse().ok()).collect()
}

/// Sums the scheduler's CPU time of each thread, which is in nanoseconds; `/proc/PID/stat` counts in 10 ms.
fn threads_cpu_time(pid: u32) -> Duration {
    let texts = threads(pid, "schedstat");
    let nanos = texts.iter().filter_map(|text| text.split_whitespace().next()?.parse::<u64>().ok());
    Duration::from_nanos(nanos.sum())
}

/// Reads a file of `/proc/PID/task/TID` for each living thread.
pub(crate) fn threads(pid: u32, file: &str) -> Vec<String> {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    threads.flatten().filter_map(|thread| fs::read_to_string(thread.path().join(file)).ok()).collect()
}

/// Returns a value in KiB from `/proc/PID/status`.
pub(crate) fn status_kib(pid: u32, field: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap_or_default();
    line.split_whitespace().next().and_then(|number| number.parse().ok()).unwrap_or_default()
}
