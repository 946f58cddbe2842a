//! Checks the text of a configuration file that is not in use yet.

use std::path::Path;

use super::env::Environment;
use super::fault::ConfigError;
use super::file::{FileReading, Notes, parse};
use super::validate;

/// Checks `text` by the rules of `config check`, as if each of `variables` were set, to different values.
pub(crate) fn check_text<'a>(
    text: &str,
    variables: impl IntoIterator<Item = &'a String>,
) -> Result<(), ConfigError> {
    let set =
        variables.into_iter().zip(1..).map(|(name, place)| (name.into(), format!("value{place}").into()));
    let environment = Environment::read(set);
    let FileReading { raw, mut notes, .. } = parse(text.to_owned(), Notes::new(Path::new("")));
    validate::policies(&raw, &mut notes, &mut Vec::new());
    validate::routing(&raw, &environment, &mut notes, &mut Vec::new());
    ConfigError::check(notes.into_faults())
}
