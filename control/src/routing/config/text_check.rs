//! Checks the text of a configuration file that is not in use yet.

use std::path::Path;

use super::env::Environment;
use super::fault::ConfigError;
use super::file::{FileReading, Notes, parse};
use super::validate;

/// Checks `text` by the rules of `config check`, as if each of `variables` were set.
pub(crate) fn check_text<'a>(
    text: &str,
    variables: impl IntoIterator<Item = &'a String>,
) -> Result<(), ConfigError> {
    let environment = Environment::read(variables.into_iter().map(|name| (name.into(), "value".into())));
    let FileReading { raw, mut notes, .. } = parse(text.to_owned(), Notes::new(Path::new("")));
    validate::policies(&raw, &mut notes, &mut Vec::new());
    validate::routing(&raw, &environment, &mut notes, &mut Vec::new());
    ConfigError::check(notes.into_faults())
}
