//! Messages for webhooks: the receiver's address, the body in its format, and its signature. No I/O.

mod address;
mod backoff;
mod secret;
mod template;

pub(crate) use self::address::{WebhookAddress, check_address};
pub(crate) use self::backoff::{next_try_ms, retry_after_ms};
pub(crate) use self::secret::{WebhookSecret, signature};
pub(crate) use self::template::body;
