//! What the gateway does by itself on a timer, and what it sends out: deliveries, OAuth refreshes, tests of models, telemetry.

pub(crate) mod anonymous;
pub(crate) mod model_test;
pub(crate) mod oauth;
pub(crate) mod otlp;
pub(crate) mod outbox;
