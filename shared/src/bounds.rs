//! The bounds of this crate that give way instead of refusing with an error.

use crate::bound_table;

bound_table! {
    /// All bounds of this crate.
    pub TABLE;
    /// Running exchanges in one answer.
    RUNNING_LISTED("running_listed", 200, "Running requests that were active more recently are counted, but not listed.",
        "None needed; `more` has their number.");
    /// Requests that wait to be shown to those who watch keys.
    WATCHED_QUEUED("watched_queued", 256, "Live pages miss requests of the keys they watch.",
        "Read them with GET requests: all are recorded.");
    /// Spans that wait to be exported.
    QUEUED_SPANS("queued_spans", 0, "Spans of requests are not exported.",
        "See why the collector is slow, raise OTEL_BSP_MAX_QUEUE_SIZE, or sample fewer requests.");
    /// Models of one provider with a state of their own.
    MODEL_STATES("model_states", 1_024, "Further models of a provider have no circuit and no rest of their own.",
        "Split the provider into several.");
    /// Secrets that are removed from texts of strangers.
    GUARDED_SECRETS("guarded_secrets", 20_000, "Further secrets are not recognized in errors of upstreams.",
        "Remove credentials that are not used.");
}

#[cfg(test)]
pub(crate) mod tests {
    use crate::bound::Bound;

    /// Runs what goes beyond a bound, and asserts that this was counted.
    pub(crate) fn passes<T>(bound: &'static Bound, beyond: impl FnOnce() -> T) -> T {
        let before = bound.count();
        let result = beyond();
        assert!(bound.count() > before, "{} was not counted", bound.name);
        result
    }
}
