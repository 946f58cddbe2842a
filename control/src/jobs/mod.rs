//! Background tasks and outgoing requests: deliveries, OAuth refreshes, tests of models, telemetry.

pub(crate) mod anonymous;
pub(crate) mod model_test;
pub(crate) mod oauth;
pub(crate) mod otlp;
pub(crate) mod outbox;
