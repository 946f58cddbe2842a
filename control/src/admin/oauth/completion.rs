//! The end of a sign-in: its tokens are stored, or its failure is recorded.

use std::sync::Arc;

use shared::error_kind::ErrorKind;

use super::super::App;
use super::super::gate::Gate;
use super::flows::SignIn;
use crate::common::credential::oauth::{TokenIssuer, TokenSet};
use crate::jobs::oauth::Vendor;
use crate::routing::config::{ConnectionAuth, Provider};
use crate::routing::connection::{ProviderStanding, ViewCell};
use crate::routing::publish::BegunSignIns;
use crate::writer::WriterHandle;
use crate::writer::command::oauth::KeepSignIn;
use crate::writer::command::sign_in_flows::{FailSignIn, TakeSignIn};
use crate::writer::command::{AdminWrite, CommandRefusal};

/// The parts of the process that complete a sign-in.
#[derive(Debug)]
pub(super) struct Completion {
    pub(super) vendor: Vendor,
    pub(super) begun: BegunSignIns,
    gate: Arc<Gate>,
    writer: WriterHandle,
    view: ViewCell,
}

/// The tokens of a sign-in, and the issuer that granted them.
#[derive(Debug)]
pub(super) struct Granted {
    pub(super) tokens: TokenSet,
    pub(super) issuer: Arc<TokenIssuer>,
}

impl Completion {
    pub(super) fn of(app: &App) -> Self {
        Self {
            vendor: Vendor::new(&app.http),
            begun: app.sign_ins.clone(),
            gate: Arc::clone(&app.gate),
            writer: app.writer.clone(),
            view: app.view.clone(),
        }
    }

    /// Fails if the session or key that began the sign-in is no longer valid.
    pub(super) fn still_admitted(&self, sign_in: &SignIn) -> Result<(), String> {
        let ended =
            || "the session that began the sign-in has ended; sign in to the console again".to_owned();
        self.gate.is_open(&sign_in.admission).then_some(()).ok_or_else(ended)
    }

    /// Returns the issuer of the sign-in's provider. Fails if another one has taken its place since the sign-in began.
    pub(super) fn issuer(&self, sign_in: &SignIn) -> Result<Arc<TokenIssuer>, String> {
        let view = self.view.read();
        let mut found = view.providers.iter().filter(|connection| connection.id == sign_in.provider);
        let found = found.find(|connection| !matches!(connection.standing, ProviderStanding::Shadowed(_)));
        let provider = found.and_then(|connection| connection.read.as_ref());
        let is_same = |provider: &&Arc<Provider>, issuer: &TokenIssuer| {
            provider.auth == ConnectionAuth::Oauth
                && issuer.binding(provider.origin.as_ref()) == sign_in.binding
        };
        let issuer = provider.and_then(|provider| {
            provider.issuer.as_ref().filter(|issuer| is_same(&provider, issuer)).map(Arc::clone)
        });
        issuer.ok_or_else(|| "the settings of the provider were changed during the sign-in".to_owned())
    }

    /// Takes the right to complete a sign-in. Returns false if it was completed, cancelled or replaced.
    pub(super) async fn take(&self, sign_in: &SignIn) -> Result<bool, CommandRefusal> {
        let take = TakeSignIn { id: sign_in.id.clone() };
        match self.writer.write(AdminWrite::unanswered(take, sign_in.actor.clone())).await {
            Ok(_) => Ok(true),
            Err(CommandRefusal::Reported { kind: ErrorKind::NotFound, .. }) => Ok(false),
            Err(refusal) => Err(refusal),
        }
    }

    /// Stores the tokens, or records why there are none. Returns the name of the account, or the reason of the failure.
    pub(super) async fn complete(
        &self,
        sign_in: SignIn,
        granted: Result<Granted, String>,
    ) -> Result<Option<String>, String> {
        let (provider, id, actor) = (sign_in.provider.clone(), sign_in.id.clone(), sign_in.actor.clone());
        let result = match granted {
            Ok(granted) => self.keep(sign_in, granted).await,
            Err(why) => Err(why),
        };
        if let Err(why) = &result {
            let failed = FailSignIn { provider, id, failure: why.clone() };
            // A failure that cannot be recorded is still reported to the human.
            let _ = self.writer.write(AdminWrite::unanswered(failed, actor)).await;
        }
        result
    }

    async fn keep(&self, sign_in: SignIn, granted: Granted) -> Result<Option<String>, String> {
        let Granted { tokens, issuer } = granted;
        let account = self.vendor.account(&issuer, &tokens.access).await;
        let account = account.or_else(|| tokens.account.clone());
        let command = KeepSignIn {
            provider: sign_in.provider,
            owner: sign_in.owner,
            binding: sign_in.binding,
            tokens,
            account: account.clone(),
            scopes: issuer.scopes().to_vec(),
        };
        match self.writer.write(AdminWrite::unanswered(command, sign_in.actor)).await {
            Ok(_) => Ok(account),
            Err(CommandRefusal::Reported { message, .. }) => Err(message.trim_end_matches('.').to_owned()),
            Err(CommandRefusal::Failed(error)) => Err(error.answer().1.to_string()),
            Err(CommandRefusal::Seal) => Err("the tokens could not be sealed".to_owned()),
        }
    }
}
