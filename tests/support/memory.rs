//! Measures the memory of a process over time, with the peak that the kernel records.

use super::proc;

/// The increase of a process's resident memory since a point in time.
pub(crate) struct Memory {
    pid: u32,
    base: u64,
}

impl Memory {
    /// Starts a measurement.
    pub(crate) fn of(pid: u32) -> Self {
        // 5 resets the kernel's record of the peak to the current value.
        std::fs::write(format!("/proc/{pid}/clear_refs"), "5").unwrap();
        Self { pid, base: proc::resident_bytes(pid) }
    }

    /// Returns the peak increase in bytes since the start, however short.
    pub(crate) fn peak(&self) -> u64 {
        (proc::status_kib(self.pid, "VmHWM:") * 1024).saturating_sub(self.base)
    }

    /// Returns the current increase in bytes since the start.
    pub(crate) fn kept(&self) -> u64 {
        proc::resident_bytes(self.pid).saturating_sub(self.base)
    }
}
