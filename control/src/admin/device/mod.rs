//! The sign-in of Claude Code at the gateway: `/login` gets a project key after a person has approved it in the console, by the
//! device flow of OAuth (RFC 8628). The routes are those that Claude Code calls at a gateway. All of them answer 404 while
//! `claude_code.sign_in` of the file is not true.

mod codes;
mod decide;
mod held;
mod oauth;
mod otlp;
mod polls;
mod spend;

use std::net::IpAddr;

use shared::error_kind::{ErrorKind, not_served};

pub(super) use self::decide::ROUTES;
pub(super) use self::held::answer as answer_holder;
pub(super) use self::oauth::{answer, is_known};
pub(super) use self::otlp::takes as takes_telemetry;
pub(crate) use self::polls::PollTimes;
use super::{ApiError, App};
use crate::routing::config::ClaudeCode;

/// The address of the client, as an extension of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClientAddress(pub(crate) IpAddr);

/// Returns the settings of the sign-in. If it is off, the path does not exist.
fn settings<'a>(app: &'a App, path: &str) -> Result<&'a ClaudeCode, ApiError> {
    app.config.claude_code.as_ref().ok_or_else(|| ApiError::new(ErrorKind::NotFound, not_served(path)))
}
