//! Functions that stand for custom tools, whose input is free text, at targets that know nothing but functions. Such a
//! function has one argument, the text.

use super::FreeTextFormat;
use crate::json::quote;
use crate::translation::read::as_text;

/// The name of the argument.
pub(crate) const ARGUMENT: &str = "input";

/// The schema of the arguments.
pub(super) const SCHEMA: &str = r#"{"type":"object","properties":{"input":{"type":"string","description":"The whole input of the tool, as plain text."}},"required":["input"],"additionalProperties":false}"#;

/// Returns the arguments of a call with the input `text`.
pub(super) fn arguments(text: &str) -> String {
    format!("{{\"{ARGUMENT}\":{}}}", quote(text))
}

impl FreeTextFormat<'_, '_> {
    /// Returns the description of the function for a tool with this description and input format.
    pub(super) fn described(&self, description: &str) -> String {
        let mut text = description.to_owned();
        if !text.is_empty() {
            text.push_str("\n\n");
        }
        text.push_str(HOW_TO_CALL);
        if let Some(definition) = self.definition.and_then(as_text).filter(|_| self.kind == "grammar") {
            let syntax = self.syntax.and_then(as_text).unwrap_or("formal");
            text.push_str(&format!(" It must match this {syntax} grammar:\n\n{definition}"));
        }
        text
    }
}

/// Descriptions of custom tools tell the model not to use JSON, which is true of the text alone.
const HOW_TO_CALL: &str = "Call this function with one argument, `input`: the whole input of the tool as plain text, without JSON inside it.";
