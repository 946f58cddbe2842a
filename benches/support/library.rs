//! The gateway inside the bench's own binary, for configurations that do not fit into an environment, such as any
//! number of keys.

use std::sync::Arc;

use control::config::{self, AdminKey, Environment};
use control::log_lines::{self, LogLines};
use llmgw::Gateway;
use shared::secret::Secret;

/// Serves as `llmgw serve` does, with `keys` additional static keys.
pub(crate) fn run(keys: usize) {
    let environment = Arc::new(Environment::of_process().with_tls_reader(llmgw::tls_reader()));
    let mut loaded = config::load(&environment).unwrap_or_else(|error| panic!("{error}"));
    let key = |index| AdminKey { id: "admin".into(), key: Secret::new(format!("bench-key-{index:033}")) };
    loaded.config.admin_keys.extend((0..keys).map(key));
    let log = log_lines::to_stderr().and_then(|stderr| LogLines::new(stderr, None)).expect("a thread");
    let gateway =
        Gateway::start(loaded.config, loaded.warnings, log).unwrap_or_else(|error| panic!("{error}"));
    eprintln!("listening on http://{}", gateway.address());
    gateway.run_until_stopped().unwrap_or_else(|error| panic!("{error}"));
}
