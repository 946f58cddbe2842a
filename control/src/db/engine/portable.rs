//! The rules of portable SQL: what another engine than SQLite would refuse, or understand otherwise. Debug builds compare
//! each statement with them when it is prepared, so that every test of a statement also tests its text.
//!
//! Statements about what only SQLite has (`PRAGMA`, `ATTACH`, `sqlite_schema`) are not compared: they cannot run anywhere
//! else.

/// Checks a statement in a debug build.
pub(super) fn check(sql: &str) {
    debug_assert!(broken_rule(sql).is_none(), "{}: {sql}", broken_rule(sql).unwrap_or_default());
}

/// Returns the first rule that a statement breaks.
fn broken_rule(sql: &str) -> Option<&'static str> {
    if is_only_sqlite(sql) {
        return None;
    }
    let words = FORBIDDEN.iter().find(|(word, _)| sql.contains(word)).map(|(_, rule)| *rule);
    let calls = || CALLS.iter().find_map(|(call, rule)| calls_of(sql, call).find_map(rule));
    words.or_else(calls)
}

/// True if a statement is about what only SQLite has.
pub(super) fn is_only_sqlite(sql: &str) -> bool {
    SQLITE_ONLY.iter().any(|word| sql.contains(word))
}

/// A call of a function: the texts before it, between its parentheses, and behind it.
#[derive(Clone, Copy, Debug)]
struct Call<'a> {
    before: &'a str,
    inside: &'a str,
    behind: &'a str,
}

/// Returns the rule that a call breaks.
type CallRule = fn(Call<'_>) -> Option<&'static str>;

/// Returns each call of a function, whose name comes with an opening parenthesis.
fn calls_of<'a>(sql: &'a str, name: &'a str) -> impl Iterator<Item = Call<'a>> {
    sql.match_indices(name).filter_map(move |(at, _)| {
        let before = sql.get(..at)?;
        let is_whole = !before.ends_with(|letter: char| letter.is_alphanumeric() || letter == '_');
        let rest = sql.get(at + name.len()..).filter(|_| is_whole)?;
        let mut depth = 1;
        let end = rest.find(|letter| {
            depth += step(letter);
            depth == 0
        })?;
        Some(Call { before, inside: rest.get(..end)?, behind: rest.get(end + 1..)? })
    })
}

/// True if the arguments of a call are more than one.
fn is_list(inside: &str) -> bool {
    let mut depth = 0;
    inside.chars().any(|letter| {
        depth += step(letter);
        letter == ',' && depth == 0
    })
}

/// Returns by how much a letter changes the depth of parentheses.
fn step(letter: char) -> i32 {
    match letter {
        '(' => 1,
        ')' => -1,
        _ => 0,
    }
}

const SQLITE_ONLY: &[&str] = &["PRAGMA", "ATTACH", "DETACH", "VACUUM", "sqlite_schema", "pragma_"];
const FORBIDDEN: &[(&str, &str)] = &[
    ("?", "parameters have names"),
    ("REPLACE INTO", "INSERT ... ON CONFLICT (columns) DO UPDATE replaces a row"),
    ("INSERT OR", "ON CONFLICT (columns) says what happens"),
    ("ON CONFLICT DO", "ON CONFLICT names its columns"),
    ("->", "JSON is read in Rust"),
    ("json_extract", "JSON is read in Rust"),
    ("json_valid", "JSON is read in Rust"),
    (" GLOB ", "patterns are compared in Rust"),
    (" IS :", "IS NOT DISTINCT FROM compares with NULL"),
    (" IS NOT :", "IS DISTINCT FROM compares with NULL"),
    (" NOT :", "a flag is compared with 0"),
    ("randomblob", "random bytes are made in Rust"),
    ("rowid", "tables have a key of their own"),
];
const CALLS: &[(&str, CallRule)] = &[
    ("instr(", |call| {
        let is_compared = call.behind.starts_with(" > ") || call.behind.starts_with(" = ");
        (!is_compared).then_some("instr(a, b) > 0 is a condition")
    }),
    ("max(", |call| is_list(call.inside).then_some("CASE chooses the larger of two")),
    ("min(", |call| is_list(call.inside).then_some("CASE chooses the smaller of two")),
    ("sum(", |call| {
        let is_cast = call.before.ends_with("CAST(") || call.before.ends_with("CAST(coalesce(");
        (!is_cast).then_some("CAST(sum(x) AS BIGINT) is an integer")
    }),
    ("FROM (", |call| (!call.behind.starts_with(" AS ")).then_some("a subquery has a name")),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_another_engine_would_refuse_is_found() {
        for (sql, rule) in [
            ("SELECT 1 FROM keys WHERE id = ?", "parameters have names"),
            ("REPLACE INTO t (a) VALUES (:a)", "INSERT ... ON CONFLICT"),
            ("INSERT INTO t (a) VALUES (:a) ON CONFLICT DO NOTHING", "ON CONFLICT names"),
            ("SELECT detail ->> '$.a' FROM audit", "JSON"),
            ("SELECT 1 FROM t WHERE a IS :a", "IS NOT DISTINCT FROM"),
            ("SELECT 1 FROM t WHERE instr(lower(a), :q) OR b = 1", "instr"),
            ("SELECT max(a, min(b)) FROM t", "CASE"),
            ("SELECT coalesce(sum(a), 0) FROM t", "CAST"),
            ("SELECT a FROM (SELECT a FROM t) WHERE a = 1", "a subquery has a name"),
        ] {
            assert!(
                broken_rule(sql).is_some_and(|broken| broken.starts_with(rule)),
                "{sql}: {:?}",
                broken_rule(sql)
            );
        }
    }

    #[test]
    fn portable_statements_and_those_of_sqlite_alone_pass() {
        for sql in [
            "SELECT max(a), CAST(coalesce(sum(b), 0) AS BIGINT) FROM (SELECT a, b FROM t) AS rows WHERE instr(c, :q) > 0",
            "INSERT INTO t (a) VALUES (:a) ON CONFLICT (a) DO UPDATE SET b = t.b + excluded.b",
            "SELECT consumption(a, b) FROM t WHERE a IS NOT NULL",
            "ATTACH ? AS other",
        ] {
            assert_eq!(broken_rule(sql), None, "{sql}");
        }
    }
}
