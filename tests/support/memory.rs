//! The memory of a process over a time, by the kernel's own record of its peak.

use super::proc;

/// How far the resident memory of a process has risen since a moment.
pub(crate) struct Memory {
    pid: u32,
    base: u64,
}

impl Memory {
    /// From now on.
    pub(crate) fn of(pid: u32) -> Self {
        // 5 sets the kernel's record of the peak back to what is resident now.
        std::fs::write(format!("/proc/{pid}/clear_refs"), "5").unwrap();
        Self { pid, base: proc::resident_bytes(pid) }
    }

    /// The most that it has been above where it was, in bytes, however short.
    pub(crate) fn peak(&self) -> u64 {
        (proc::status_kib(self.pid, "VmHWM:") * 1024).saturating_sub(self.base)
    }

    /// What it is above where it was now, in bytes.
    pub(crate) fn kept(&self) -> u64 {
        proc::resident_bytes(self.pid).saturating_sub(self.base)
    }
}
