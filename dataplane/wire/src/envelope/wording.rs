//! The words for clients: what an error means, in the codes and messages that each client protocol knows.

use super::EnvelopeFamily;
use super::diagnosis::StreamError;
use crate::vendor_errors::{ErrorMeaning, ErrorWords, Recognised, recognise};

impl StreamError {
    /// Returns the meaning of the error with this status, if its vendor's words are known.
    pub fn meaning(&self, status: u16) -> Option<Recognised> {
        let names = [self.code.as_deref(), self.kind.as_deref()];
        recognise(&ErrorWords { status, message: &self.message, names, param: self.param.as_deref() })
    }

    /// Returns the status for the client: the upstream's, unless it misleads about the meaning.
    pub fn client_status(&self, status: u16) -> u16 {
        match self.meaning(status).map(|read| read.meaning.row()) {
            Some(row) if !row.statuses.contains(&status) => row.status,
            Some(_) | None => status,
        }
    }

    /// Returns the error in the words that clients of `family` look for. An error without a known meaning is unchanged.
    pub(crate) fn in_words_of(&self, family: EnvelopeFamily, status: u16) -> Self {
        let Some(read) = self.meaning(status) else { return self.clone() };
        match family {
            EnvelopeFamily::OpenAi => self.in_code_of(read.meaning),
            EnvelopeFamily::Google => self.clone(),
            EnvelopeFamily::Anthropic => {
                let kind = read.meaning.row().anthropic.map(str::to_owned);
                Self {
                    kind: kind.or_else(|| self.kind.clone()),
                    message: self.for_anthropic(read),
                    ..self.clone()
                }
            }
        }
    }

    fn in_code_of(&self, meaning: ErrorMeaning) -> Self {
        let row = meaning.row();
        let is_known = self.code.as_deref().is_some_and(|code| row.codes.contains(&code));
        match row.codes.first() {
            Some(code) if !is_known => {
                Self { kind: Some(row.kind.to_owned()), code: Some((*code).to_owned()), ..self.clone() }
            }
            Some(_) | None => self.clone(),
        }
    }

    /// Claude Code summarizes its conversation only if the message says that the prompt is too long, as Anthropic does.
    fn for_anthropic(&self, read: Recognised) -> String {
        let is_said = self.message.to_ascii_lowercase().contains(TOO_LONG);
        match (read.meaning, read.tokens) {
            (ErrorMeaning::Overflow, Some((used, limit))) if !is_said => {
                format!("{TOO_LONG}: {used} tokens > {limit} maximum. The upstream said: {}", self.message)
            }
            (ErrorMeaning::Overflow, None) if !is_said => {
                format!("{TOO_LONG}. The upstream said: {}", self.message)
            }
            _ => self.message.clone(),
        }
    }
}

const TOO_LONG: &str = "prompt is too long";
