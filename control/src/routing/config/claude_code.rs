//! `claude_code` of the file: the sign-in of Claude Code at the gateway, and the settings that it serves to those who are
//! signed in. Off by default.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::file::Notes;
use super::provider::key;
use super::{Config, raw};
use crate::common::digest::Hasher;

/// The sign-in of Claude Code; read at start-up only.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "ClaudeCode")]
pub(super) struct Written {
    /// Serve the sign-in, by which `/login` in Claude Code gets a project key after a person has approved it in the console.
    sign_in: bool,
    /// Days until the key of a sign-in expires; 30 by default.
    #[schemars(range(min = 1, max = 365))]
    key_days: Option<u64>,
    /// One line that Claude Code shows beside the code, up to 500 characters.
    login_notice: Option<String>,
    /// Claude Code's managed settings for everyone who is signed in, as in its `managed-settings.json`; absent: none.
    settings: Option<Map<String, Value>>,
}

/// The sign-in of Claude Code, which is on.
#[derive(Clone, Debug)]
pub struct ClaudeCode {
    /// Days until the key of a sign-in expires.
    pub key_days: u64,
    /// The line that Claude Code shows beside the code.
    pub login_notice: Option<String>,
    /// The managed settings.
    pub settings: Option<ManagedSettings>,
}

/// Managed settings of Claude Code.
#[derive(Clone, Debug)]
pub struct ManagedSettings {
    /// The settings themselves.
    pub settings: Value,
    /// `sha256:` and the hexadecimal digits of SHA-256 over the settings as JSON with sorted keys and no spaces. Claude Code
    /// computes the same value.
    pub checksum: String,
    /// The name of this version of the settings, in the form of a UUID.
    pub uuid: String,
}

impl ManagedSettings {
    fn of(settings: Map<String, Value>) -> Self {
        // The maps of serde_json are sorted.
        let settings = Value::Object(settings);
        let mut hasher = Hasher::default();
        hasher.update(settings.to_string().as_bytes());
        let digits = hasher.hex();
        let part = |from, to| digits.get(from..to).unwrap_or_default();
        let uuid = [part(0, 8), part(8, 12), part(12, 16), part(16, 20), part(20, 32)].join("-");
        Self { settings, checksum: format!("sha256:{digits}"), uuid }
    }
}

/// Checks the section. Returns `None` if the sign-in is off.
pub(super) fn claude_code(
    file: &raw::File,
    notes: &mut Notes,
    warnings: &mut Vec<String>,
) -> Option<ClaudeCode> {
    let Written { sign_in, key_days, login_notice, settings } = &file.claude_code;
    let mut note = |field: &str, message: String| notes.add(&[key("claude_code"), key(field)], message);
    let days = key_days.unwrap_or(KEY_DAYS);
    if !(1..=KEY_DAYS_MAX).contains(&days) {
        note("key_days", format!("must be a number from 1 to {KEY_DAYS_MAX}"));
    }
    let is_notice =
        |text: &String| text.chars().count() <= NOTICE_CHARS_MAX && !text.chars().any(char::is_control);
    if login_notice.as_ref().is_some_and(|text| !is_notice(text)) {
        note("login_notice", format!("must be one line of at most {NOTICE_CHARS_MAX} characters"));
    }
    let settings = settings.clone().map(ManagedSettings::of);
    if settings.as_ref().is_some_and(|served| served.settings.to_string().len() > SETTINGS_BYTES_MAX) {
        note("settings", format!("must have at most {SETTINGS_BYTES_MAX} bytes as JSON"));
    }
    if !sign_in {
        if settings.is_some() || key_days.is_some() || login_notice.is_some() {
            warnings.push("claude_code has no effect, because its sign_in is not true".to_owned());
        }
        return None;
    }
    Some(ClaudeCode { key_days: days, login_notice: login_notice.clone(), settings })
}

impl Config {
    /// Returns a line about the sign-in of Claude Code, for display.
    pub(super) fn claude_code_line(&self) -> String {
        let Some(ClaudeCode { key_days, settings, .. }) = &self.claude_code else {
            return "sign_in false".to_owned();
        };
        let settings = settings.as_ref().map_or_else(|| "none".to_owned(), |served| served.checksum.clone());
        format!("sign_in true, key_days {key_days}, settings {settings}")
    }
}

const KEY_DAYS: u64 = 30;
const KEY_DAYS_MAX: u64 = 365;
/// The most that Claude Code shows.
const NOTICE_CHARS_MAX: usize = 500;
const SETTINGS_BYTES_MAX: usize = 256 << 10;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_checksum_is_of_sorted_json_without_spaces() {
        let Value::Object(settings) = json!({"b": [1, "x"], "a": {"d": true, "c": null}}) else { panic!() };
        let served = ManagedSettings::of(settings);
        assert_eq!(served.settings.to_string(), r#"{"a":{"c":null,"d":true},"b":[1,"x"]}"#);
        assert_eq!(
            served.checksum,
            "sha256:49bd9631390b56109ef9a77080d397067fdd5bfde2d9f67de64a11d73af2e3d3"
        );
        assert!(served.checksum.starts_with(&format!("sha256:{}", &served.uuid[..8])));
        assert_eq!(served.uuid.len(), 36);
    }
}
