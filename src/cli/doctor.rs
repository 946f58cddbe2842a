//! `llmgw doctor`: examines the environment, the configuration, the address, the clock and the state. It changes nothing, and
//! a gateway may run meanwhile.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use control::config::{self, Config, ConfigFault, Environment, FaultPlace, Loaded};
use control::doctor::{
    ExaminedState, Finding, Level, StateToExamine, Subject, examine_state, quoted, report_json, report_text,
};
use rustix::process::{Resource, getrlimit};
use shared::clock::unix_ms;
use shared::port::HttpLimits;

use super::healthcheck::reachable;
use super::{CliFailure, exit, loopback, print};

/// Prints what was found; fails if anything is a fault.
pub(super) fn run(environment: &Arc<Environment>, json: bool) -> Result<(), CliFailure> {
    let mut found = Vec::new();
    let state_dir = examine_settings(environment, &mut found);
    if let Some(dir) = state_dir {
        let offline = config::offline(environment).ok();
        let key = offline.as_ref().and_then(|offline| offline.encryption_key.as_ref());
        let usage_db = config::load(environment).is_ok_and(|loaded| loaded.config.usage_db);
        let database = offline.as_ref().and_then(|offline| offline.database.as_ref());
        let ExaminedState { findings, is_in_use } =
            examine_state(StateToExamine { dir: &dir, encryption_key: key, usage_db, database });
        examine_address(environment, is_in_use, &mut found);
        found.extend(findings);
    }
    examine_clock(&mut found);
    examine_limits(&mut found);
    let faults = found.iter().filter(|finding| finding.level == Level::Fault).count();
    print(&if json { report_json(&found) } else { report_text(&found) })?;
    match faults {
        0 => Ok(()),
        1 => Err(CliFailure::new(exit::UNSOUND, "1 fault")),
        more => Err(CliFailure::new(exit::UNSOUND, format!("{more} faults"))),
    }
}

/// Examines the environment and the configuration. Returns the state directory, if it is known.
fn examine_settings(environment: &Arc<Environment>, found: &mut Vec<Finding>) -> Option<PathBuf> {
    let places = config::places_of(environment).ok();
    match config::load(environment) {
        Ok(Loaded { config, warnings }) => {
            examine_config(&config, found);
            for warning in warnings.iter().chain(&config::missing_keys(&config.routing)) {
                found.push(Finding::new(Subject::Configuration, Level::Warning, warning, ""));
            }
        }
        Err(error) => {
            let dir = places.as_ref().map(|(dir, _)| dir.as_path());
            found.extend(error.faults().map(|fault| finding_of(fault, dir)));
        }
    }
    places.map(|(dir, _)| dir)
}

fn examine_config(config: &Config, found: &mut Vec<Finding>) {
    let subject = Subject::Configuration;
    let routing = &config.routing;
    let text = format!(
        "{} is valid; providers: {}, endpoints: {}",
        config.file.display(),
        routing.providers.len(),
        routing.endpoints.len()
    );
    found.push(match llmgw::check_files(config) {
        Ok(()) => Finding::new(subject, Level::Ok, text, ""),
        Err(error) => {
            Finding::new(subject, Level::Fault, error.to_string(), "correct the file or its variable")
        }
    });
}

/// Returns the finding for a fault of the environment or of the file.
fn finding_of(fault: &ConfigFault, state_dir: Option<&Path>) -> Finding {
    let (subject, repair) = match &fault.place {
        FaultPlace::Variable(name) => (Subject::Environment, variable_repair(name, state_dir)),
        FaultPlace::File(file) | FaultPlace::Spot { file, .. } => {
            (Subject::Configuration, format!("edit {}, then: llmgw config check", quoted(file)))
        }
    };
    Finding::new(subject, Level::Fault, fault.to_string(), repair)
}

fn variable_repair(name: &str, state_dir: Option<&Path>) -> String {
    let is_secret = ["LLMGW_API_KEY", "LLMGW_CREDENTIAL_ENCRYPTION_KEY"].contains(&name);
    let file = state_dir.map(config::secrets_file).filter(|file| file.exists());
    match file {
        Some(file) if is_secret => format!("set -a; . {}; set +a", quoted(&file)),
        _ if is_secret => {
            format!(
                "export {name}=\"$(openssl rand -base64 32)\" for a new state; the key of an existing one"
            )
        }
        _ => match config::variable_of_file(name) {
            Some(value) => format!("correct the file that {name} names, or unset it and set {}", value.name),
            None => format!("unset {name}, or set it to a valid value"),
        },
    }
}

/// Examines the address to listen on: free, used by the gateway of this state, or by another program.
fn examine_address(environment: &Arc<Environment>, is_in_use: bool, found: &mut Vec<Finding>) {
    let Ok((bind, tls)) = config::listens_at(environment) else { return };
    let finding = |level, text: String, repair: &str| Finding::new(Subject::Address, level, text, repair);
    found.push(match TcpListener::bind(bind) {
        Ok(_) if is_in_use && bind.port() != 0 => finding(
            Level::Warning,
            format!("a gateway holds the state, but no process listens on {bind}"),
            "run this in the environment of that gateway (LLMGW_HOST, LLMGW_PORT), or wait until it has started",
        ),
        Ok(_) => finding(Level::Ok, format!("{bind} is free"), ""),
        Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => match (is_in_use, is_gateway(bind, tls)) {
            (true, true) => finding(Level::Ok, format!("a gateway answers on {bind}"), ""),
            (true, false) => finding(
                Level::Fault,
                format!("the process that listens on {bind} does not answer as a gateway"),
                "llmgw healthcheck; then restart the gateway",
            ),
            (false, is_gateway) => finding(
                Level::Fault,
                format!("{bind} is used by {}", if is_gateway { "the gateway of another state" } else { "another program" }),
                "export LLMGW_PORT=<a free port>; the program is shown by: ss -ltnp",
            ),
        },
        Err(error) => finding(
            Level::Fault,
            format!("cannot listen on {bind}: {error}"),
            "set LLMGW_HOST to an address of this machine, and LLMGW_PORT to a port from 1024 on",
        ),
    });
}

/// True if a gateway answers at `bind`. One with TLS is only known to accept connections.
fn is_gateway(bind: SocketAddr, tls: bool) -> bool {
    let address = SocketAddr::new(reachable(bind.ip()), bind.port());
    match loopback::ask(address, "/health", LIMITS) {
        Ok(_) if tls => true,
        Ok(answer) => loopback::take_apart(&answer).is_some_and(|(status, body)| {
            status == 200 && String::from_utf8_lossy(body).contains("\"version\"")
        }),
        Err(_) => false,
    }
}

/// Compares the clock with the time at which this binary was built.
fn examine_clock(found: &mut Vec<Finding>) {
    let now = unix_ms() / 1_000;
    let built = control::doctor::seconds_of(llmgw::BUILD.built_at);
    found.push(match built {
        Some(built) if now < built => Finding::new(
            Subject::Clock,
            Level::Fault,
            format!("the clock is before the build of this binary ({})", llmgw::BUILD.built_at),
            "timedatectl set-ntp true",
        ),
        _ => Finding::new(Subject::Clock, Level::Ok, "it is later than the build of this binary", ""),
    });
}

fn examine_limits(found: &mut Vec<Finding>) {
    let descriptors = getrlimit(Resource::Nofile).current;
    found.push(match descriptors {
        Some(limit) if limit < DESCRIPTORS_WANTED => Finding::new(
            Subject::Limits,
            Level::Warning,
            format!(
                "this process may open {limit} files, so the gateway accepts fewer than {} connections",
                limit / 2
            ),
            "ulimit -n 65536; or LimitNOFILE=65536 in the unit of systemd",
        ),
        Some(limit) => {
            Finding::new(Subject::Limits, Level::Ok, format!("{limit} open files are allowed"), "")
        }
        None => Finding::new(Subject::Limits, Level::Ok, "any number of open files is allowed", ""),
    });
}

const LIMITS: HttpLimits = HttpLimits { timeout: Duration::from_secs(5), body_bytes_max: 64 << 10 };
const DESCRIPTORS_WANTED: u64 = 1_024;
