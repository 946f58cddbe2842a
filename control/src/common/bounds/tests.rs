//! Every bound of the source is either in a table of bounds, or in [`CLASSES`] with the reason why it needs no count.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use super::*;

/// Runs what goes beyond a bound, and asserts that this was counted.
pub(crate) fn passes<T>(bound: &'static Bound, beyond: impl FnOnce() -> T) -> T {
    let before = bound.count();
    let result = beyond();
    assert!(bound.count() > before, "{} was not counted", bound.name);
    result
}

#[test]
fn the_log_names_a_bound_once_for_all_times_since_the_last_look() {
    static LOGGED: Bound = Bound::new("logged", 1, "", "");
    let mut log = BoundLog::new(&Bounds([&LOGGED].as_slice().into()));
    let mut due = || log.due().into_iter().map(|(bound, times)| (bound.name, times)).collect::<Vec<_>>();
    assert_eq!(due(), []);
    LOGGED.reach_times(3);
    LOGGED.reach();
    assert_eq!((due(), due()), (vec![("logged", 4)], vec![]));
}

#[test]
fn the_bounds_that_were_reached_are_shown_the_latest_first() {
    static NEVER: Bound = Bound::new("never", 1, "", "");
    static OFTEN: Bound = Bound::new("often", 0, "a", "b");
    passes(&OFTEN, || OFTEN.reach_times(2));
    let shown = Bounds([&NEVER, &OFTEN].as_slice().into()).reached();
    let shown = serde_json::to_value(&shown).unwrap();
    let at_ms = OFTEN.last_at_ms().unwrap();
    let want = serde_json::json!([
        {"bound": "often", "max": null, "reached": 2, "last_at_ms": at_ms, "gives_way": "a", "remedy": "b"}
    ]);
    assert_eq!(shown, want);
}

/// A source file: its path from the root of the repository, its code, and the code of its tests.
pub(crate) struct Source {
    pub(crate) path: String,
    pub(crate) code: String,
    tests: String,
}

/// Returns the sources of the crates that have a table of bounds.
pub(crate) fn sources() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut files: Vec<PathBuf> = Vec::new();
    for name in CRATES {
        collect(&root.join(name).join("src"), &mut files);
    }
    files.sort();
    let source = |file: PathBuf| {
        let path = file.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
        let text = fs::read_to_string(&file).unwrap();
        let is_test = path.ends_with("/tests.rs") || path.contains("/tests/");
        let at = if is_test { 0 } else { text.find("mod tests {").unwrap_or(text.len()) };
        Source { path, code: text[..at].to_owned(), tests: text[at..].to_owned() }
    };
    files.into_iter().map(source).collect()
}

fn collect(dir: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            files.push(path);
        }
    }
}

/// Returns the names of the constants of a file that bound a number of things, and the literals at which it cuts.
fn bounds_of(code: &str) -> Vec<String> {
    let mut found: Vec<String> = code.lines().filter_map(constant).map(str::to_owned).collect();
    for (opening, name) in [(".take(", "take"), ("truncate(", "truncate"), (" LIMIT ", "LIMIT")] {
        for (at, _) in code.match_indices(opening) {
            let number: String =
                code[at + opening.len()..].chars().take_while(|char| char.is_ascii_digit()).collect();
            if number.parse::<u64>().is_ok_and(|number| number > 1) {
                found.push(format!("{name}({number})"));
            }
        }
    }
    found
}

/// Returns the name of the constant that a line declares, if it bounds a number of things.
fn constant(line: &str) -> Option<&str> {
    let (_, rest) = line.trim_start().split_once("const ")?;
    let (name, rest) = rest.split_once(": ")?;
    let words: BTreeSet<&str> = name.split('_').collect();
    let is_number =
        ["usize", "u64", "u32", "u16", "u8", "i64", "i32"].iter().any(|kind| rest.starts_with(kind));
    let bounds = BOUNDING.iter().any(|word| words.contains(word));
    (is_number && bounds && !UNITS.iter().any(|unit| words.contains(unit))).then_some(name)
}

#[test]
fn every_bound_is_in_a_table_or_has_a_reason_why_it_needs_no_count() {
    let listed: BTreeMap<(&str, &str), &str> = CLASSES
        .trim()
        .lines()
        .map(|line| {
            let mut words = line.split_whitespace();
            ((words.next().unwrap(), words.next().unwrap()), words.next().unwrap())
        })
        .collect();
    for class in listed.values() {
        assert!(REASONS.iter().any(|(name, _)| name == class), "unknown reason {class}");
    }
    let sources = sources();
    let mut found = BTreeSet::new();
    for source in &sources {
        found.extend(bounds_of(&source.code).into_iter().map(|name| (source.path.as_str(), name)));
    }
    let unlisted: Vec<_> =
        found.iter().filter(|(path, name)| !listed.contains_key(&(*path, name.as_str()))).collect();
    assert!(
        unlisted.is_empty(),
        "bounds that may be silent: count them in a table (`bounds` of the crate), or add them to CLASSES in \
         control/src/common/bounds/tests.rs with a reason: {unlisted:#?}"
    );
    let gone: Vec<_> =
        listed.keys().filter(|(path, name)| !found.contains(&(*path, (*name).to_owned()))).collect();
    assert!(gone.is_empty(), "CLASSES has bounds that the source no longer has: {gone:#?}");
}

#[test]
fn every_bound_of_the_tables_is_used_and_has_a_test_that_goes_beyond_it() {
    let sources = sources();
    let tables = sources.iter().filter(|source| is_table(&source.path));
    let names: Vec<&str> = tables.flat_map(|table| table.code.lines().filter_map(declared)).collect();
    assert!(names.len() > 50, "{names:?}");
    let (mut unused, mut untested) = (Vec::new(), Vec::new());
    for name in names {
        let is_used = |source: &Source| !is_table(&source.path) && has_word(&source.code, name);
        if !sources.iter().any(is_used) {
            unused.push(name);
        }
        let calls = [format!("passes(&{name}"), format!("passes(&bounds::{name}"), format!("{name}.count()")];
        let is_tested = |source: &Source| calls.iter().any(|call| source.tests.contains(call));
        if sources.iter().any(is_tested) == UNTESTED.iter().any(|(known, _)| *known == name) {
            untested.push(name);
        }
    }
    assert!(unused.is_empty(), "nothing reaches {unused:?}");
    assert!(
        untested.is_empty(),
        "no test goes beyond these bounds, or UNTESTED has them needlessly: {untested:?}"
    );
}

fn is_table(path: &str) -> bool {
    path.ends_with("/bounds.rs") || path.ends_with("/bounds/mod.rs")
}

/// Returns the name of the bound that a line of a table declares.
fn declared(line: &str) -> Option<&str> {
    let (name, rest) = line.strip_prefix("    ")?.split_once('(')?;
    let is_name = name.chars().all(|char| char.is_ascii_uppercase() || char == '_');
    (is_name && !name.is_empty() && rest.starts_with('"')).then_some(name)
}

fn has_word(text: &str, word: &str) -> bool {
    text.match_indices(word).any(|(at, _)| {
        let is_part = |char: char| char.is_alphanumeric() || char == '_';
        !text[..at].ends_with(is_part) && !text[at + word.len()..].starts_with(is_part)
    })
}

#[test]
fn names_of_bounds_are_unique() {
    let all = [TABLE, shared::bounds::TABLE].concat();
    let names: BTreeSet<&str> = all.iter().map(|bound| bound.name).collect();
    assert_eq!(names.len(), all.len());
    for bound in all {
        assert!(
            bound.gives_way.ends_with('.') && bound.remedy.ends_with('.'),
            "{} has no sentences",
            bound.name
        );
    }
}

const CRATES: [&str; 3] = ["control", "dataplane", "shared"];
/// Words in the names of bounds.
const BOUNDING: &[&str] =
    &["MAX", "MOST", "LIMIT", "KEPT", "SHOWN", "AHEAD", "ROWS", "FOUND", "SLOTS", "CAPACITY"];
/// Units of sizes and times. What is longer than such a bound is refused, or is a text that is cut where one sees it.
const UNITS: &[&str] =
    &["BYTES", "CHARS", "SECONDS", "MS", "US", "S", "TIME", "DIGITS", "DAYS", "HOUR", "LOG"];

/// Why bounds need no count.
const REASONS: &[(&str, &str)] = &[
    ("refuses", "what is beyond it gets an error that names the bound"),
    ("pages", "the next page, or the next cursor, has the rest"),
    ("told", "the answer has the number of what is left out, or a field that says so"),
    ("steps", "the work is done in steps: the next step has the rest"),
    ("parallel", "it bounds what happens at the same time; the rest waits"),
    ("tries", "it bounds tries, and the failure is reported"),
    ("cache", "what is dropped is read again when it is needed"),
    ("latest", "it is the latest of something by its meaning"),
    ("range", "it is the range of a number"),
    ("asked", "the caller or the configuration asks for it"),
];

/// Bounds without a test that goes beyond them in this crate or those below.
const UNTESTED: &[(&str, &str)] = &[
    ("UNUSABLE_PROVIDERS", "one call of `cut` on the list of the answer"),
    ("REPORT_GROUPS", "100,001 groups take a minute to store"),
    ("TELEMETRY_COUNTED", "10,001 targets need 80 full minutes"),
    ("LISTED_BACKUPS", "one call of `cut` on the names of the folder"),
    ("ALERT_CHANGES", "one call of `cut` on the changes of an evaluation"),
    ("LISTING_PAGES", "the loop ends by the bound itself"),
    ("KEY_HOLDERS", "a holder waits 5 s for the place: tests/own_key.rs"),
    ("CLIENT_TELEMETRY", "the same function as PUBLIC_REQUESTS"),
    ("SCRAPES", "the same function as PUBLIC_REQUESTS"),
    ("CHANGES_WAITING", "needs a failing disk while a thousand circuits change"),
    ("RECALLED_ANSWERS", "one row more or less of what a start recalls"),
    ("CONNECTIONS", "tests/variables.rs"),
    ("WAITING_UNPACKS", "threads must hang to fill the queue"),
    ("LOOK_UP_MESSAGES", "threads must hang to fill the queue"),
    ("LATE_USAGE", "needs 513 answers whose clients have left"),
    ("QUOTA_WARNING_BYTES", "needs ten limits that warn: tests/quota"),
];

/// `path name reason` of each bound that is in no table.
const CLASSES: &str = "
control/src/admin/alerts.rs OBJECTS_MAX refuses
control/src/admin/audit.rs PAGE_ROWS steps
control/src/admin/backups/mod.rs DOWNLOADS_MAX refuses
control/src/admin/device/polls.rs POLLED_MAX latest
control/src/admin/endpoints.rs MEMBERS_MAX refuses
control/src/admin/endpoints.rs NAMES_MAX refuses
control/src/admin/explain.rs CASES_MAX refuses
control/src/admin/explain.rs FAULTS_MAX refuses
control/src/admin/field.rs ENTRIES_MAX refuses
control/src/admin/gate/cookie.rs COOKIES_MAX range
control/src/admin/gate/wrong_keys.rs ADDRESSES_MAX refuses
control/src/admin/list.rs LIMIT_DEFAULT pages
control/src/admin/live/hub.rs KEPT_MAX latest
control/src/admin/live/others.rs SEEN_SHOWN latest
control/src/admin/live/seen.rs KEPT_MAX latest
control/src/admin/outbox.rs CLAIMED_MAX refuses
control/src/admin/query.rs MOMENT_MAX range
control/src/admin/query.rs PARAMETERS_MAX refuses
control/src/admin/quotas.rs KEY_LIMITS_MAX refuses
control/src/admin/quotas.rs LIMIT_MAX refuses
control/src/admin/search.rs FOUND_DEFAULT told
control/src/admin/search.rs FOUND_MAX refuses
control/src/admin/search.rs REQUESTS_FOUND told
control/src/admin/series.rs DIMENSIONS_MAX refuses
control/src/admin/stream.rs PIECES_MAX parallel
control/src/admin/trials.rs OUTPUT_TOKENS_MAX asked
control/src/admin/usage/charge.rs RATE_MAX refuses
control/src/admin/usage/mod.rs DIMENSIONS_MAX refuses
control/src/admin/usage/mod.rs LINES_MAX pages
control/src/admin/usage/reconcile/file.rs SKIPPED_MAX told
control/src/cluster/shares/mod.rs ORDERS_MAX refuses
control/src/common/credential/oauth/answer.rs SCOPES_MAX range
control/src/common/model_facts.rs LACKS_MAX refuses
control/src/common/recorded.rs PIECES_MAX told
control/src/common/regular_file.rs THREADS_MAX refuses
control/src/db/alert_rules.rs RULES_MAX refuses
control/src/db/audit_pages.rs LOOKED_AT_MAX pages
control/src/db/chain.rs ROWS_A_PAGE steps
control/src/db/circuit_changes.rs ROWS_PER_STEP steps
control/src/db/cluster/changes.rs FOLLOWED_MAX cache
control/src/db/cluster/changes.rs KEPT cache
control/src/db/engine/postgres/session.rs TEXTS_MAX cache
control/src/db/engine/session.rs TOGETHER_MAX steps
control/src/db/names.rs LABELS_MAX cache
control/src/db/outbox/lease.rs ENDED_MAX steps
control/src/db/quotas/shares/merge.rs LIMIT(256) steps
control/src/db/quotas/shares/mod.rs LIMIT_MOST range
control/src/db/quotas/used.rs USED_MAX range
control/src/db/read_queue.rs RUNNING_OF_HUMANS_MAX parallel
control/src/db/read_queue.rs WAITING_OF_HUMANS_MAX refuses
control/src/db/read_queue.rs WAITING_OF_HUMAN_MAX refuses
control/src/db/sealed.rs UNOPENED_MAX told
control/src/db/sqlite_state/copy.rs TRIES_MAX tries
control/src/db/sqlite_state/lock.rs take(16) range
control/src/db/sqlite_state/moment_file.rs take(2) range
control/src/db/sqlite_state/open.rs WAL_PAGES_MAX steps
control/src/fuzzing.rs PATHS_MAX range
control/src/fuzzing.rs UNPACKED_MAX range
control/src/jobs/anonymous/mod.rs OUTPUT_TOKENS_MAX asked
control/src/jobs/otlp/span_exporter.rs TRIES_MAX tries
control/src/jobs/outbox/mod.rs PER_WEBHOOK_MAX parallel
control/src/jobs/outbox/mod.rs ROWS steps
control/src/routing/catalog/sync.rs AT_ONCE_MAX parallel
control/src/routing/config/descriptors.rs MAX range
control/src/routing/config/env/schedule.rs LENGTH_MAX refuses
control/src/routing/config/file.rs FAULTS_MAX told
control/src/routing/config/file.rs NOTES_MAX told
control/src/routing/config/identity.rs BACKUPS_KEPT asked
control/src/routing/config/oauth.rs PARAMS_MAX refuses
control/src/routing/config/order.rs TIER_MAX refuses
control/src/routing/config/order.rs WEIGHT_MAX refuses
control/src/routing/config/otlp.rs ATTRIBUTES_MAX refuses
control/src/routing/config/schema.rs FAULTS_MAX told
control/src/routing/config/validate.rs NAMES_MAX refuses
control/src/routing/config/yaml/mod.rs BRACKETS_MAX refuses
control/src/routing/config/yaml/mod.rs DEPTH_MAX refuses
control/src/routing/config/yaml/mod.rs NODES_MAX refuses
control/src/routing/config/yaml/mod.rs REPEATS_MAX refuses
control/src/routing/config/yaml/mod.rs STRUCTURE_MAX refuses
control/src/routing/extension/probe.rs AT_ONCE_MAX parallel
control/src/routing/extension/probe.rs MODELS_SHOWN_MAX told
control/src/routing/extension/protocol.rs PROVIDERS_MAX refuses
control/src/routing/publish/cancels.rs WAITING_MAX refuses
control/src/routing/publish/effects/mod.rs KEYS_SHOWN told
control/src/routing/publish/effects/mod.rs SHOWN_MAX told
control/src/routing/publish/effects/warnings.rs NAMED_MAX told
control/src/routing/publish/touched.rs CHANGED_MAX cache
control/src/serve/alert_watch/joined.rs NAMED_MAX told
control/src/state/backup/archive.rs RATIO_MAX refuses
control/src/state/backup/archive.rs take(80) told
control/src/state/backup/create.rs PIECES_AHEAD parallel
control/src/state/backup/temporary_directory.rs ATTEMPTS_MAX tries
control/src/state/backup/temporary_directory.rs REMOVALS_MAX tries
control/src/state/log_lines/rolling.rs FILES_MAX latest
control/src/usage/ingest/mod.rs BATCH_MAX steps
control/src/usage/ingest/mod.rs LEFT_MAX steps
control/src/usage/journal/resting.rs RESTING_AT_NODE_MAX cache
control/src/usage/journal/resting.rs RESTING_MAX cache
control/src/usage/journal/spare_files.rs AHEAD steps
control/src/usage/journal/spare_files.rs KEPT_MAX cache
control/src/usage/journal/spare_files.rs SPARES_MAX cache
control/src/usage/origins/allowance.rs AT_ONCE_MAX refuses
control/src/usage/origins/allowance.rs OWNERS_MAX refuses
control/src/usage/origins/allowance.rs UNKNOWN_MAX refuses
control/src/usage/origins/mod.rs WAITING_MAX refuses
control/src/usage/origins/table.rs LIMIT(256) steps
control/src/usage/periods/follower.rs STEP_EXCHANGES_MAX steps
control/src/usage/periods/rest.rs FEW_ROWS range
control/src/usage/periods/table.rs LIMIT(16) steps
control/src/usage/periods/table.rs ROWS_TOGETHER steps
control/src/usage/periods/tally.rs ALIKE_MAX steps
control/src/usage/recent/feed.rs BATCHES_MAX cache
control/src/usage/recent/mod.rs MINUTES_KEPT latest
control/src/usage/report/mod.rs SORTED_MAX refuses
control/src/usage/report/strip.rs PIECE_ROWS steps
control/src/usage/report/strip.rs TALLY_MAX steps
control/src/usage/reprice.rs REQUESTS_MAX refuses
control/src/usage/requests/attempts.rs RESULTS_MAX told
control/src/usage/retention/mod.rs AUDIT_ROWS steps
control/src/usage/retention/mod.rs OUTBOX_ROWS steps
control/src/usage/retention/mod.rs SESSION_ROWS steps
control/src/usage/retention/tables.rs LIMIT(16) steps
control/src/usage/retention/tables.rs LIMIT(64) steps
control/src/usage/rollup/merge.rs ROWS steps
control/src/usage/series/mod.rs GROUPS_COUNTED_MAX refuses
control/src/usage/series/mod.rs GROUPS_MAX told
control/src/usage/series/mod.rs POINTS_MAX refuses
control/src/writer/command/alerts.rs WARNED_OBJECTS_MAX told
control/src/writer/command/catalog.rs OVERRIDES_MAX refuses
control/src/writer/command/extensions.rs EXTENSIONS_MAX refuses
control/src/writer/command/providers.rs FAULTS_TOLD_MAX told
control/src/writer/command/webhooks.rs WEBHOOKS_MAX refuses
control/src/writer/mod.rs FLUSH_ROUNDS_MAX steps
control/src/writer/mod.rs WRITES_MAX steps
control/src/writer/webhook/backoff.rs FAILURES_MAX tries
dataplane/src/adapt/mod.rs OUTPUT_TOKENS_UNASKED_MAX asked
dataplane/src/dataplane.rs BLOCKING_THREADS_MAX parallel
dataplane/src/operation/videos/poll.rs REDIRECTS_MAX refuses
dataplane/src/plan/lanes.rs LANES_TRIED_MAX tries
dataplane/src/plan/response_affinity/mod.rs SLOTS cache
dataplane/src/plan/response_affinity/mod.rs TOKENS_MAX range
dataplane/src/server/balance.rs MOVES_MAX steps
dataplane/src/server/gate/head/mod.rs HEADERS_MAX refuses
dataplane/src/server/gate/head/mod.rs LENGTH_MAX range
dataplane/src/server/gate/remaining_body.rs TRAILERS_MAX refuses
dataplane/src/server/http2.rs STREAMS_MAX parallel
dataplane/src/server/unpack.rs THREADS_MAX parallel
dataplane/src/upstream/echo/prompt.rs WORDS_MAX asked
dataplane/src/upstream/http2/connection.rs STREAMS_MAX parallel
dataplane/src/upstream/http2/sharing.rs DIALS_MAX parallel
dataplane/src/upstream/http2/socket.rs INTERIM_MAX refuses
dataplane/src/upstream/pool.rs IDLE_MAX cache
dataplane/src/upstream/pool.rs ORIGINS_MAX cache
dataplane/src/upstream/send.rs SENDS_MAX tries
dataplane/src/upstream/voice.rs PIECES_AHEAD parallel
dataplane/src/worker.rs TIMERS_MAX cache
shared/src/body_members.rs COUNT_MAX refuses
shared/src/key_hash.rs take(8) told
shared/src/lanes.rs KEYS_MAX refuses
shared/src/prices/form.rs PARTS_MAX refuses
shared/src/quota/counter.rs AMOUNT_MAX range
shared/src/quota/counter_share/mod.rs WINDOWS_MAX cache
shared/src/quota/line/mod.rs PLACES_MAX refuses
shared/src/quota/line/service_times.rs SLOTS latest
shared/src/quota/minute.rs SUM_MAX range
shared/src/quota/minute.rs TURN_MAX range
shared/src/quota/share/mod.rs ACTIONS_MAX steps
shared/src/quota/share/mod.rs WAITERS_MAX refuses
shared/src/sanitize/mod.rs ROUNDS_MAX tries
shared/src/tags.rs TAGS_MAX refuses
shared/src/trace_context.rs MEMBERS_MAX refuses
";
