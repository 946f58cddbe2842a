//! Refreshes the tokens of OAuth sign-ins in a background task, so that no request makes a refresh of its own.
//!
//! ```text
//!  due -> mark (commit) -> POST token_url -> tokens: store, publish (commit)
//!                                         -> invalid_grant: remove, publish (commit); no further attempt
//!                                         -> anything else: again later, with the same refresh token
//! ```

use std::time::Duration;

use jiff::Timestamp;
use shared::clock::unix_ms;

use super::Vendor;
use crate::cluster::duty::Duty;
use crate::common::actor::Actor;
use crate::common::background::{Job, JobTasks, NamedTasks, Panicked};
use crate::common::credential::oauth::{
    DueRefresh, OauthConnection, RefreshSchedule, TokenFailure, TokenSet,
};
use crate::routing::publish::Touched;
use crate::writer::WriterHandle;
use crate::writer::command::oauth::{BeginRefresh, KeepRefreshed, RefuseRefresh};
use crate::writer::command::{AdminWrite, Command, CommandRefusal};

/// The background task that refreshes tokens.
#[derive(Debug)]
pub(crate) struct Refresher {
    schedule: RefreshSchedule,
    vendor: Vendor,
    writer: WriterHandle,
    /// One node refreshes for all: a vendor replaces the token that was used.
    duty: Duty,
    /// Reports the refreshes.
    tasks: JobTasks,
}

impl Refresher {
    pub(crate) fn new(
        schedule: RefreshSchedule,
        vendor: Vendor,
        writer: WriterHandle,
        (duty, job): (Duty, Job),
    ) -> Self {
        Self { schedule, vendor, writer, duty, tasks: JobTasks::of(job) }
    }

    /// Refreshes tokens for as long as the future is polled.
    pub(crate) async fn run(mut self) {
        let mut refreshing = NamedTasks::new();
        let mut is_owing = false;
        loop {
            let due = if self.duty.is_held() { self.schedule.take_due(unix_ms()) } else { Vec::new() };
            for due in due {
                self.tasks.begins();
                let (vendor, writer) = (self.vendor.clone(), self.writer.clone());
                let provider = due.connection.provider.clone();
                refreshing.spawn(provider, async move { refresh(&vendor, &writer, &due).await });
            }
            let now_ms = unix_ms();
            let pause_ms = self.schedule.pause_ms(now_ms);
            self.tasks.waits_until(pause_ms.map(|pause_ms| now_ms.saturating_add(pause_ms)));
            let pause = pause_ms.map_or(PAUSE_MAX, Duration::from_millis);
            let pause = if self.duty.is_held() { pause } else { pause.max(PAUSE_OFF_DUTY) };
            let pause = if is_owing { PAUSE_OWING } else { pause.min(PAUSE_MAX) };
            tokio::select! {
                Some((provider, result)) = refreshing.next() => {
                    let result = result.unwrap_or_else(|Panicked| Err(Panicked::TEXT.to_owned()));
                    self.tasks.ends(result.clone(), refreshing.len());
                    is_owing |= self.schedule.learn(&provider, result, unix_ms());
                }
                () = self.schedule.wanted() => {}
                () = tokio::time::sleep(pause) => {}
            }
            if is_owing {
                is_owing = !self.writer.publish(Touched::ROUTING);
            }
        }
    }
}

/// Makes one refresh. The error is the reason why it has to be repeated.
async fn refresh(vendor: &Vendor, writer: &WriterHandle, due: &DueRefresh) -> Result<(), String> {
    let DueRefresh { connection, issuer } = due;
    let (provider, serial) = (connection.provider.clone(), connection.serial);
    let Some(token) = connection.tokens.as_ref().and_then(|tokens| tokens.refresh.as_ref()) else {
        return Ok(());
    };
    let request = issuer.refresh_request(token);
    if let Err(why) = &request {
        return Err((*why).to_owned());
    }
    if let Kept::Replaced = keep(writer, BeginRefresh { provider: provider.clone(), serial }).await? {
        return Ok(());
    }
    match vendor.tokens(request, &[token.expose()]).await {
        Ok(tokens) => store(writer, connection, tokens).await,
        Err(failure) if failure.is_final() => {
            let reason = reason(connection, &failure);
            tracing::error!(provider.id = provider, "the sign-in can no longer be used: {reason}");
            keep(writer, RefuseRefresh { provider, serial, reason }).await.map(|_| ())
        }
        Err(failure) => {
            let text = failure.text();
            tracing::warn!(provider.id = provider, "cannot refresh the access token: {text}");
            Err(text.to_owned())
        }
    }
}

/// Stores the tokens of a refresh. The vendor may have replaced the refresh token, so a busy writer is asked again for as
/// long as the process runs.
async fn store(writer: &WriterHandle, connection: &OauthConnection, tokens: TokenSet) -> Result<(), String> {
    let (provider, serial) = (&connection.provider, connection.serial);
    loop {
        let command = KeepRefreshed { provider: provider.clone(), serial, tokens: tokens.clone() };
        match keep(writer, command).await {
            Ok(_) => return Ok(()),
            Err(why) => {
                tracing::error!(provider.id = provider, "cannot store the refreshed tokens yet: {why}");
                tokio::time::sleep(STORE_PAUSE).await;
            }
        }
    }
}

/// The result of a write about a sign-in.
enum Kept {
    Done,
    /// The sign-in was replaced or removed meanwhile, so there is nothing to write.
    Replaced,
}

async fn keep(writer: &WriterHandle, command: impl Command) -> Result<Kept, String> {
    let actor = Actor::gateway();
    match writer.write(AdminWrite::unanswered(command, actor)).await {
        Ok(_) => Ok(Kept::Done),
        Err(CommandRefusal::Reported { .. }) => Ok(Kept::Replaced),
        Err(CommandRefusal::Failed(error)) => Err(error.answer().1.into()),
        Err(CommandRefusal::Seal) => Err("the tokens cannot be sealed".to_owned()),
    }
}

/// Describes a final refusal. If an earlier refresh got no stored answer, its tokens may have been lost.
fn reason(connection: &OauthConnection, failure: &TokenFailure) -> String {
    let refused = format!("the vendor refused the refresh token ({})", failure.text());
    let began = connection.refresh_began_at_ms.and_then(|at_ms| i64::try_from(at_ms).ok());
    match began.and_then(|at_ms| Timestamp::from_millisecond(at_ms).ok()) {
        Some(began) => format!(
            "{refused}; the answer to a refresh that began at {began:.0} was not stored, so the vendor may have replaced \
             the token then"
        ),
        None => refused,
    }
}

/// The longest sleep; bounds how late a step of the clock is noticed.
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// What is due waits for the node that has the duty.
const PAUSE_OFF_DUTY: Duration = Duration::from_secs(1);
const PAUSE_OWING: Duration = Duration::from_millis(200);
const STORE_PAUSE: Duration = Duration::from_secs(1);
