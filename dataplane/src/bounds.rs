//! The bounds of the data plane of which nothing but a missing part of an answer, or an error for some client, would be
//! seen. `max` 0: the configuration sets the bound.

use shared::bound_table;

bound_table! {
    /// All bounds of this crate.
    pub TABLE;
    /// Open connections of clients.
    CONNECTIONS("connections", 0, "New connections are answered with 503; those with TLS are closed.",
        "Raise LLMGW_MAX_CONNECTIONS, or run more gateways.");
    /// Messages that wait for a worker.
    WORKER_MESSAGES("worker_messages", 1_024, "New connections are closed, and questions to a worker fail with 503.",
        "The gateway has too few cores for its load: give it more, or run more gateways.");
    /// Bytes of all bodies in memory.
    HELD_BODIES("held_body_bytes", 0, "Requests with bodies, and answers that must be held, fail with 503.",
        "Raise LLMGW_MAX_BODY_MEMORY_BYTES, or send fewer large bodies at the same time.");
    /// Compressed bodies that wait for a thread.
    WAITING_UNPACKS("waiting_unpacks", 1_024, "Requests with compressed bodies fail with 503.",
        "Send bodies uncompressed, or give the gateway more cores.");
    /// Concurrent look-ups of names.
    LOOK_UPS("name_look_ups", 64, "Attempts at further names fail.",
        "The resolver does not answer: check the DNS of this machine.");
    /// Messages to the thread that looks up names.
    LOOK_UP_MESSAGES("name_look_ups_queued", 4_096, "Attempts that need a name fail.",
        "The resolver does not answer: check the DNS of this machine.");
    /// Addresses of a name that are tried.
    ADDRESSES("addresses_tried", 16, "Further addresses of an upstream's name are not tried.",
        "None needed, unless the first addresses are down.");
    /// Rate limits that one answer of an upstream reports.
    REPORTED_LIMITS("reported_limits", 16, "Further limits in the headers of an upstream are not read.", "None needed.");
    /// Answers whose client has left and whose usage is still read, by worker.
    LATE_USAGE("late_usage", 256, "Answers that clients leave are recorded with the usage reported so far.",
        "Many clients leave during answers: look for their timeouts.");
    /// Bytes of the warnings about exceeded limits in one answer.
    QUOTA_WARNING_BYTES("quota_warning_bytes", 1_024, "Further warnings about exceeded limits are left out of the header.",
        "Set fewer limits that only warn for the same requests.");
}

#[cfg(test)]
pub(crate) mod tests {
    use shared::bound::Bound;

    /// Runs what goes beyond a bound, and asserts that this was counted.
    pub(crate) fn passes<T>(bound: &'static Bound, beyond: impl FnOnce() -> T) -> T {
        let before = bound.count();
        let result = beyond();
        assert!(bound.count() > before, "{} was not counted", bound.name);
        result
    }
}
