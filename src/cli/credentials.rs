//! `llmgw credentials`: stored secrets and the key that encrypts them.

use std::fmt::Write as _;
use std::sync::Arc;

use control::config::{self, Environment, Offline};
use control::{
    DatabaseAddress, NodesRekeyParams, NodesRekeyed, RekeyParams, Rekeyed, begin_rekey, finish_rekey,
};

use super::{CliFailure, exit, logs, place, print};

/// Makes `LLMGW_NEW_CREDENTIAL_ENCRYPTION_KEY` the key that opens the state.
pub(super) fn rekey(environment: &Arc<Environment>, finish: bool) -> Result<(), CliFailure> {
    let failed = |error| CliFailure::new(exit::CONFIG, error);
    let offline = config::offline(environment).map_err(failed)?;
    if let Some(address) = &offline.database {
        return rekey_nodes(&offline, address, finish);
    }
    if finish {
        let text = "--finish is for a database of nodes; set LLMGW_DATABASE_URL, or leave it out";
        return Err(CliFailure::new(exit::USAGE, text));
    }
    let new = offline.new_key().map_err(failed)?;
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

/// Begins or finishes the change of the key of a database that nodes use.
fn rekey_nodes(offline: &Offline, address: &DatabaseAddress, finish: bool) -> Result<(), CliFailure> {
    let failed = |error| CliFailure::new(exit::CONFIG, error);
    let old = offline.encryption_key.as_ref();
    let rekeyed = if finish {
        // The environment may be that of the restarted nodes.
        let new = offline.new_encryption_key.as_ref().map_or_else(|| offline.key(), Ok).map_err(failed)?;
        finish_rekey(NodesRekeyParams { address, old, new })
    } else {
        let new = offline.new_key().map_err(failed)?;
        begin_rekey(NodesRekeyParams { address, old, new })
    };
    let restart = "next: restart each node with LLMGW_CREDENTIAL_ENCRYPTION_KEY set to the new key, one after the other; then run \
                   'llmgw credentials rekey --finish'.";
    let done = "Backups of the database that were made before open with the old key only: keep it as long as you keep them.";
    print(&match rekeyed.map_err(|error| CliFailure::new(error.exit_code(), error))? {
        NodesRekeyed::Begun(count) => {
            format!(
                "the old and the new key open the database {address}; {count} stored secrets verified\n{restart}\n"
            )
        }
        NodesRekeyed::AlreadyBegun => {
            format!(
                "the old and the new key open the database {address} already; nothing was changed\n{restart}\n"
            )
        }
        NodesRekeyed::Finished(count) => {
            format!(
                "only the new key opens the database {address}; {count} stored secrets verified\n{done}\n"
            )
        }
        NodesRekeyed::AlreadyFinished => {
            format!("only the new key opens the database {address} already; nothing was changed\n{done}\n")
        }
    })
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
