//! `llmgw credentials`: stored secrets and the key that encrypts them.

use std::fmt::Write as _;
use std::sync::Arc;

use control::config::{self, Environment};
use control::{RekeyParams, Rekeyed};

use super::{CliFailure, exit, logs, place, print};

/// Makes `LLMGW_NEW_CREDENTIAL_ENCRYPTION_KEY` the key that opens the state.
pub(super) fn rekey(environment: &Arc<Environment>) -> Result<(), CliFailure> {
    let failed = |error| CliFailure::new(exit::CONFIG, error);
    let offline = config::offline(environment).map_err(failed)?;
    let new = offline.new_key().map_err(failed)?;
    offline.expect_files("the key of a database of nodes cannot be changed yet").map_err(failed)?;
    let params = RekeyParams { dir: &offline.state_dir, old: offline.encryption_key.as_ref(), new };
    let rekeyed = control::rekey(params).map_err(|error| CliFailure::new(error.exit_code(), error))?;
    let first = match rekeyed {
        Rekeyed::Done(count) => format!("the state opens with the new key; {count} stored secrets verified"),
        Rekeyed::Already => "the state already opens with the new key; nothing was changed".to_owned(),
    };
    print(&format!(
        "{first}\nnext: set LLMGW_CREDENTIAL_ENCRYPTION_KEY to the new key and remove \
         LLMGW_NEW_CREDENTIAL_ENCRYPTION_KEY.\nBackups that were made before open with the old key only: keep it \
         as long as you keep them, or make new ones.\n"
    ))
}

/// Seals the keys of `secrets.json` in the database and removes that file.
pub(super) fn import(environment: &Arc<Environment>) -> Result<(), CliFailure> {
    let failed = |error| CliFailure::new(exit::CONFIG, error);
    let offline = config::offline(environment).map_err(failed)?;
    let key = offline.key().map_err(failed)?;
    offline.expect_files("enter the keys of providers in the console").map_err(failed)?;
    let imported = control::import_credentials(&offline.state_dir, key)
        .map_err(|error| CliFailure::new(error.exit_code(), error))?;
    let Some(removed) = imported.removed else {
        let dir = offline.state_dir.display();
        return print(&format!("there is no secrets.json in {dir}; nothing was changed\n"));
    };
    let mut text = String::new();
    for id in &imported.stored {
        let _ = writeln!(text, "the key of '{id}' is sealed in the database");
    }
    if imported.known > 0 {
        let _ = writeln!(text, "{} keys were already stored", imported.known);
    }
    let _ = writeln!(text, "{} is removed; copies of it elsewhere are not", removed.display());
    print(&text)
}

/// Opens every stored secret and names those that do not open.
pub(super) fn verify(environment: &Arc<Environment>) -> Result<(), CliFailure> {
    let failed = |error| CliFailure::new(exit::CONFIG, error);
    let offline = config::offline(environment).map_err(failed)?;
    let key = offline.key().map_err(failed)?;
    let survey = control::verify_credentials(place(&offline), key)
        .map_err(|error| CliFailure::new(error.exit_code(), error))?;
    if survey.unopened_count == 0 {
        return print(&format!("all {} stored secrets open\n", survey.opened));
    }
    let mut lines = String::new();
    for unopened in &survey.unopened {
        let _ = writeln!(lines, "{}.{} of {} does not open", unopened.table, unopened.column, unopened.id);
    }
    logs::report(&lines);
    Err(CliFailure::new(
        exit::UNSOUND,
        format!(
            "{} of {} stored secrets do not open",
            survey.unopened_count,
            survey.unopened_count + survey.opened
        ),
    ))
}
