//! `llmgw quickstart`: sets up an empty machine and runs the gateway. Existing settings and files are used unchanged.

use std::path::Path;
use std::sync::Arc;

use control::config::{self, Environment, SecretsError, SecretsFile};
use control::detect::{self, Detected};

use super::loopback::Loopback;
use super::{CliFailure, exit, logs, serve};

/// Creates what is missing, runs the gateway, and prints how to use it.
pub(super) fn run(environment: &Arc<Environment>) -> Result<(), CliFailure> {
    let failed = |error| CliFailure::new(exit::CONFIG, error);
    let (state_dir, file) = config::places_of(environment).map_err(failed)?;
    let kept = config::keep_secrets(environment, &state_dir).map_err(|error| match error {
        SecretsError::KeyLost { .. } => CliFailure::new(exit::CONFIG, error),
        SecretsError::File(..) => CliFailure::new(exit::IO, error),
    })?;
    let environment = Environment::of_process_with(kept.variables.iter().cloned());
    let environment = Arc::new(environment.with_tls_reader(llmgw::tls_reader()));
    let (bind, _) = config::listens_at(&environment).map_err(failed)?;
    serve::expect_free(bind)?;
    let found = if environment.names_seed() { Vec::new() } else { first_file(&file)? };
    let loaded = serve::load(&environment)?;
    let endpoint = loaded.config.routing.endpoints.first().map(|endpoint| endpoint.name.to_string());
    let (tls, base) = (loaded.config.server.tls.is_some(), loaded.config.server.base_path.clone());
    let gateway = serve::start(loaded)?;
    let origin = format!("{}://{}{base}", if tls { "https" } else { "http" }, gateway.address());
    let model = gateway.create_first_endpoint(&found).map(str::to_owned).or(endpoint);
    let model = model.as_deref().unwrap_or("MODEL");
    logs::announce(&notice_text(&QuickstartNotice {
        origin: &origin,
        kept: &kept,
        file: &file,
        state_dir: &state_dir,
        found: &found,
        model,
    }));
    serve::until_stopped(gateway)
}

/// Writes the first configuration if none exists, and returns the model servers that it contains.
fn first_file(file: &Path) -> Result<Vec<Detected>, CliFailure> {
    if file.exists() {
        return Ok(Vec::new());
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .map_err(|error| CliFailure::new(exit::INTERNAL, error))?;
    let found = runtime.block_on(detect::local_servers(&Loopback));
    config::write_new(file, detect::first_file(&found).as_bytes())
        .map_err(|error| CliFailure::new(exit::IO, format!("{}: {error}", file.display())))?;
    Ok(found)
}

struct QuickstartNotice<'a> {
    origin: &'a str,
    kept: &'a SecretsFile,
    file: &'a Path,
    state_dir: &'a Path,
    found: &'a [Detected],
    model: &'a str,
}

/// Returns the instructions for the operator. The key itself is never printed: the command reads it from its file.
fn notice_text(notice: &QuickstartNotice<'_>) -> String {
    let QuickstartNotice { origin, kept, file, state_dir, found, model } = notice;
    let in_file = kept.variables.iter().any(|(name, _)| name == "LLMGW_API_KEY");
    let secrets = kept.file.display();
    let (key, place) = if in_file {
        (format!("$(sed -n 's/^LLMGW_API_KEY=//p' {})", quoted(&kept.file)), format!("in {secrets}"))
    } else {
        ("$LLMGW_API_KEY".to_owned(), "the one in LLMGW_API_KEY".to_owned())
    };
    let servers: String = found
        .iter()
        .map(|server| {
            format!(
                "  found          {} at {}, {} models\n",
                server.name,
                server.base_url,
                server.models.len()
            )
        })
        .collect();
    let made = if kept.made { " (made now; keep that file, no backup of the state holds it)" } else { "" };
    format!(
        "
llmgw is running.

  console        {origin}/console
  administrator  key {place}{made}
  configuration  {file}
  state          {state}
{servers}
Paste this into another terminal; the answer streams in at once:

  curl -N {origin}/v1/chat/completions \\
    -H \"Authorization: Bearer {key}\" -H \"Content-Type: application/json\" \\
    -d '{{\"model\":\"{model}\",\"stream\":true,\"messages\":[{{\"role\":\"user\",\"content\":\"Hello from the gateway, word by word.\"}}]}}'

This is the administrator's key, which opens everything. Sign in to the console with it: its page \"Set up\" connects providers,
makes keys for clients, and shows what to paste into them.

",
        file = file.display(),
        state = state_dir.display(),
    )
}

/// Quotes a path as one word of a shell command.
fn quoted(path: &Path) -> String {
    format!("'{}'", path.display().to_string().replace('\'', "'\\''"))
}
