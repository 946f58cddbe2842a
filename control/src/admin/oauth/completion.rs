//! The end of a sign-in: its tokens are stored, or its failure is recorded.

use std::sync::Arc;

use shared::clock::unix_ms;

use super::super::App;
use super::super::gate::Gate;
use super::flows::{SignIn, SignInFlows};
use crate::common::credential::oauth::TokenSet;
use crate::db::audit::AuditEntry;
use crate::jobs::oauth::Vendor;
use crate::writer::WriterHandle;
use crate::writer::command::audit_only::AuditOnly;
use crate::writer::command::oauth::KeepSignIn;
use crate::writer::command::{AdminWrite, CommandRefusal};

/// The parts of the process that complete a sign-in.
#[derive(Debug)]
pub(super) struct Completion {
    pub(super) vendor: Vendor,
    pub(super) flows: Arc<SignInFlows>,
    gate: Arc<Gate>,
    writer: WriterHandle,
}

impl Completion {
    pub(super) fn of(app: &App) -> Self {
        Self {
            vendor: Vendor::new(&app.http),
            flows: Arc::clone(&app.sign_ins),
            gate: Arc::clone(&app.gate),
            writer: app.writer.clone(),
        }
    }

    /// Fails if the session or key that began the sign-in is no longer valid.
    pub(super) fn still_admitted(&self, sign_in: &SignIn) -> Result<(), String> {
        let ended =
            || "the session that began the sign-in has ended; sign in to the console again".to_owned();
        self.gate.is_open(&sign_in.admission).then_some(()).ok_or_else(ended)
    }

    /// Stores the tokens, or records why there are none. Returns the name of the account, or the reason of the failure.
    pub(super) async fn complete(
        &self,
        sign_in: SignIn,
        tokens: Result<TokenSet, String>,
    ) -> Result<Option<String>, String> {
        let (provider, actor) = (sign_in.provider.clone(), sign_in.actor.clone());
        let result = match tokens {
            Ok(tokens) => self.keep(sign_in, tokens).await,
            Err(why) => Err(why),
        };
        if let Err(why) = &result {
            self.flows.failed(&provider, unix_ms(), why);
            let refused = AuditEntry::done("provider.connect", "provider", &provider).refused();
            let refused = AuditOnly::of(refused.after(serde_json::json!({"failure": why})));
            // A failure that cannot be recorded is still reported to the human.
            let _ = self.writer.write(AdminWrite::unanswered(refused, actor)).await;
        }
        result
    }

    async fn keep(&self, sign_in: SignIn, tokens: TokenSet) -> Result<Option<String>, String> {
        let account = self.vendor.account(&sign_in.issuer, &tokens.access).await;
        let account = account.or_else(|| tokens.account.clone());
        let command = KeepSignIn {
            provider: sign_in.provider,
            owner: sign_in.owner,
            binding: sign_in.binding,
            tokens,
            account: account.clone(),
            scopes: sign_in.issuer.scopes().to_vec(),
        };
        match self.writer.write(AdminWrite::unanswered(command, sign_in.actor)).await {
            Ok(_) => Ok(account),
            Err(CommandRefusal::Reported { message, .. }) => Err(message.trim_end_matches('.').to_owned()),
            Err(CommandRefusal::Failed(error)) => Err(error.answer().1.to_string()),
            Err(CommandRefusal::Seal) => Err("the tokens could not be sealed".to_owned()),
        }
    }
}
