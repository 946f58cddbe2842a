//! Failures of a request.

use std::borrow::Cow;
use std::time::Duration;

use bytes::Bytes;
use shared::error_kind::{ErrorKind, ErrorRow};
use shared::operation::Dialect;
use shared::quota::Period;
use wire::envelope::{self, EnvelopeFamily, GatewayError, StreamError};
use wire::native;
use wire::stream::{StreamOptions, Trouble};

/// A quota that is used up.
#[derive(Debug)]
pub(crate) struct UsedUpQuota {
    /// Its name in Google's envelope.
    pub(crate) name: Box<str>,
    /// Set if it limits cost and running requests do not hold the rest of it.
    pub(crate) cap: Option<ReachedCap>,
    /// True if Anthropic's envelope reports a billing error.
    pub(crate) is_billing: bool,
}

/// A limit on cost that is reached.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReachedCap {
    pub(crate) period: Option<Period>,
    /// The end of its period, in milliseconds since the Unix epoch.
    pub(crate) resets_at_ms: Option<u64>,
}

/// A failure as reported to the client.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) kind: ErrorKind,
    pub(crate) message: Cow<'static, str>,
    pub(crate) param: Option<Cow<'static, str>>,
    /// The upstream's status, if it replaces the kind's own.
    pub(crate) status: Option<u16>,
    /// The upstream's error, sanitized.
    pub(crate) error: Option<Box<StreamError>>,
    pub(crate) retry_after: Option<Duration>,
    /// The quota that is used up.
    pub(crate) quota: Option<Box<UsedUpQuota>>,
    /// The value of the `Allow` header, for 405.
    pub(crate) allow: Option<&'static str>,
    /// True if the rest of the request has not been read, so that the connection must be closed.
    pub(crate) close: bool,
}

/// The status of a refusal that is worded as a policy.
const POLICY_STATUS: u16 = 400;

impl Fault {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<Cow<'static, str>>) -> Self {
        Self {
            kind,
            message: message.into(),
            param: None,
            status: None,
            error: None,
            retry_after: None,
            quota: None,
            allow: None,
            close: false,
        }
    }

    /// The failure of a request that an administrator has cancelled.
    pub(crate) fn cancelled() -> Self {
        Self::new(ErrorKind::Cancelled, "An administrator cancelled this request.")
    }

    pub(crate) fn param(mut self, param: impl Into<Cow<'static, str>>) -> Self {
        self.param = Some(param.into());
        self
    }

    pub(crate) fn closing(mut self) -> Self {
        self.close = true;
        self
    }

    pub(crate) fn retry_after(mut self, wait: Duration) -> Self {
        self.retry_after = Some(wait);
        self
    }

    /// Returns the body sent to the client.
    pub(crate) fn answer_body(&self, family: EnvelopeFamily, request_id: &str) -> Bytes {
        match (&self.error, self.status) {
            (Some(error), Some(status)) => {
                envelope::diagnosed(family, status, error, self.retry_after, request_id)
            }
            (Some(_) | None, _) => {
                let quota = self.quota.as_deref();
                let error = GatewayError {
                    row: self.row(),
                    message: &self.message,
                    param: self.param.as_deref(),
                    retry_after: self.retry_after,
                    quota: quota.map(|quota| &*quota.name),
                    request_id,
                };
                envelope::error_body(family, &error)
            }
        }
    }

    /// Returns the status and the types of the error.
    fn row(&self) -> ErrorRow {
        let row = self.kind.row();
        if self.status == Some(POLICY_STATUS) && self.is_by_allowlist() {
            ErrorRow { status: POLICY_STATUS, anthropic: "policy_blocked", ..row }
        } else if self.quota.as_ref().is_some_and(|quota| quota.is_billing) {
            ErrorRow { anthropic: "billing_error", ..row }
        } else {
            row
        }
    }

    /// Words a refusal by an allowlist as a policy of the organization, which Claude Code shows once. Only the status changes: a
    /// further field would enlarge the future of every exchange.
    pub(crate) fn make_policy(&mut self) {
        if self.is_by_allowlist() {
            self.status = Some(POLICY_STATUS);
        }
    }

    fn is_by_allowlist(&self) -> bool {
        matches!(self.kind, ErrorKind::NotAllowed | ErrorKind::PrivateProvider)
    }

    /// Returns the text of the error that the client reads.
    pub(crate) fn text(&self) -> &str {
        self.error.as_ref().map_or(&self.message, |error| &error.message)
    }

    /// Returns the event sent to a client of `dialect` whose stream has no content yet.
    pub(crate) fn event(&self, dialect: Dialect, request_id: &str) -> Bytes {
        if let Some(error) = &self.error {
            return native::error_event(dialect, error, request_id);
        }
        let trouble = Trouble { row: self.row(), message: &self.message, request_id };
        native::stream(dialect, StreamOptions::default()).trouble(trouble)
    }

    /// Returns the status sent to the client.
    pub(crate) fn status(&self) -> u16 {
        let of_upstream =
            self.status.map(|status| self.error.as_ref().map_or(status, |error| error.client_status(status)));
        of_upstream.unwrap_or_else(|| self.row().status)
    }
}
