//! Every row of every table of losses has a test case, in `fixtures/loss/<client>_over_<target>.json`:
//!
//! ```text
//! {"base": {a request}, "cases": [
//!   {"field": "top_k", "target": {"top_k": true}, "patch": {"top_k": 5}, "expect": {"at": "/top_k", "is": 5}},
//!   {"field": "top_k", "patch": {"top_k": 5}, "expect": {"reject": "top_k"}},
//!   {"field": "metadata", "patch": {"metadata": {"user_id": "u"}}, "expect": {"without": "/metadata"}}]}
//! ```
//!
//! `dropped` lists the members that the rules of the target's model leave out.
//!
//! The request of a case is `base` with `patch` merged into it (RFC 7396). `field` is the field of a row. `reject` is
//! the path in the rejection. `at` is a JSON pointer into the prepared body, and `is` the value there. `absent` is a
//! pointer to which the prepared body has no value. `without` is a pointer into the request: removing its value does
//! not change the prepared body.

use serde_json::{Value, json};
use shared::operation::Dialect;
use wire::adapt::{ADAPTATIONS, Adaptation, Fate, Flaw, Rejection};

use crate::pair::{fixture_json, prepare, traits};

#[test]
fn every_loss_row_has_a_case() {
    let pairs = || ADAPTATIONS.iter().filter(|pair| pair.via.is_none());
    let name = |pair: &Adaptation| format!("{}_over_{}", pair.client.name(), pair.target.name());
    let strict = pairs().map(|pair| (pair, name(pair), pair.losses));
    let agents = pairs().filter(|pair| !pair.agents.is_empty());
    let agents = agents.map(|pair| (pair, name(pair) + "_for_agents", pair.agents));
    for (pair, name, losses) in strict.chain(agents) {
        let file = fixture_json(&format!("loss/{name}.json"));
        let cases = file["cases"].as_array().unwrap();
        for (position, case) in cases.iter().enumerate() {
            let field = case["field"].as_str().unwrap();
            let row = losses.iter().find(|loss| loss.field == field);
            let row = row.unwrap_or_else(|| panic!("{name}: no row is called {field}"));
            Case { name: format!("{name}: {field} (case {position})"), pair, case, fate: row.fate }
                .check(&file["base"]);
        }
        for (position, loss) in losses.iter().enumerate() {
            let field = loss.field;
            assert!(cases.iter().any(|case| case["field"] == field), "{name}: {field} has no case");
            let first = losses.iter().position(|other| other.field == field);
            assert_eq!(first, Some(position), "{name}: {field} has two rows");
            assert!(!loss.note.is_empty(), "{name}: {field} has no note");
        }
    }
}

/// A chain has the losses of both its steps. A field that the first step rejects is rejected with the same path; a
/// rejection by the second step has a path into the client's request.
#[test]
fn every_loss_of_a_first_step_applies_to_its_chains() {
    let mut chains = 0;
    for pair in ADAPTATIONS.iter().filter(|pair| pair.via == Some(Dialect::Chat)) {
        let first = format!("{}_over_chat", pair.client.name());
        let file = fixture_json(&format!("loss/{first}.json"));
        for (position, case) in file["cases"].as_array().unwrap().iter().enumerate() {
            let name =
                format!("{first} and on to {}: {} (case {position})", pair.target.name(), case["field"]);
            let mut request = file["base"].clone();
            merge(&mut request, &case["patch"]);
            let prepared = prepare(pair, request.to_string().as_bytes(), &traits(&case["target"]));
            match (&case["expect"]["reject"], prepared) {
                // The intermediate dialect supports files and any stop sequences, so the second step decides.
                (Value::String(_), _)
                    if ["[document]", "[input_file]", "file_data", "stop_sequences", "stopSequences"]
                        .iter()
                        .any(|part| case["field"].as_str().unwrap().contains(part)) => {}
                (Value::String(param), Err(rejection)) => assert_eq!(rejection.param, *param, "{name}"),
                (Value::String(param), Ok(prepared)) => {
                    panic!("{name}: {param} passed: {}", String::from_utf8_lossy(&prepared.body))
                }
                (_, Ok(_)) => {}
                (_, Err(rejection)) => {
                    let place = format!("/{}", rejection.param.replace('.', "/"));
                    assert!(request.pointer(&place).is_some(), "{name}: {rejection:?}");
                }
            }
        }
        chains += 1;
    }
    assert_eq!(chains, 9);
}

/// `dropped` lists the request members that no table contains, and no others. Nulls, names with characters other than
/// letters, digits, `_` and `-`, and members of the gateway's API such as `affinity_key` are not listed.
#[test]
fn unknown_request_members_are_listed_as_dropped() {
    for pair in ADAPTATIONS.iter().filter(|pair| pair.client != Dialect::Responses) {
        let first = format!("{}_over_{}", pair.client.name(), pair.via.unwrap_or(pair.target).name());
        let file = fixture_json(&format!("loss/{first}.json"));
        let dropped = |request: &Value, target: &Value| {
            let prepared = prepare(pair, request.to_string().as_bytes(), &traits(target));
            let dropped = prepared.map(|prepared| prepared.dropped).unwrap_or_default();
            // Content that was left out is named by its path.
            dropped.into_iter().filter(|name| !name.contains('.')).collect::<Vec<_>>()
        };
        for case in file["cases"].as_array().unwrap().iter().filter(|case| case["field"] != "*") {
            let mut request = file["base"].clone();
            merge(&mut request, &case["patch"]);
            // What the rules of the model leave out of the request.
            let by_rules = case.get("dropped").cloned().unwrap_or(json!([]));
            assert_eq!(json!(dropped(&request, &case["target"])), by_rules, "{first}: {case}");
        }
        let mut request = file["base"].clone();
        request["min_p"] = 0.1.into();
        request["affinity_key"] = "k".into();
        request["none"] = Value::Null;
        request["bad\r\nname"] = 1.into();
        assert_eq!(dropped(&request, &Value::Null), ["min_p"], "{first}");
    }
}

struct Case<'a> {
    name: String,
    pair: &'static Adaptation,
    case: &'a Value,
    fate: Fate,
}

impl Case<'_> {
    fn check(&self, base: &Value) {
        let mut request = base.clone();
        merge(&mut request, &self.case["patch"]);
        assert!(holds(&request, self.case["field"].as_str().unwrap()), "{}: not in the request", self.name);
        let expect = self.case["expect"].as_object().unwrap();
        self.check_kind(&expect.keys().map(String::as_str).collect::<Vec<_>>());
        if let Some(param) = expect.get("reject") {
            let rejection = self.prepared(&request).unwrap_err();
            assert_eq!(rejection.param, *param, "{}", self.name);
            let flaw = if self.fate == Fate::Rejected { Flaw::Unsupported } else { rejection.flaw };
            assert_eq!(rejection.flaw, flaw, "{}: {}", self.name, rejection.message);
            return;
        }
        let got = self.prepared(&request).unwrap_or_else(|why| panic!("{}: {why:?}", self.name));
        if let Some(place) = expect.get("at").and_then(Value::as_str) {
            assert_eq!(got.pointer(place), Some(&expect["is"]), "{}: {got}", self.name);
            if self.fate == Fate::Exact {
                assert_eq!(request.pointer(place), Some(&expect["is"]), "{}: not exact", self.name);
            }
        }
        if let Some(place) = expect.get("absent").and_then(Value::as_str) {
            assert_eq!(got.pointer(place), None, "{}: {got}", self.name);
        }
        if let Some(place) = expect.get("without").and_then(Value::as_str) {
            let mut rest = request.clone();
            take_out(&mut rest, place);
            assert_eq!(self.prepared(&rest).unwrap(), got, "{}", self.name);
        }
    }

    /// Checks that the case expects an effect that demonstrates the fate of its row.
    fn check_kind(&self, keys: &[&str]) {
        let fits = match self.fate {
            Fate::Rejected => keys == ["reject"],
            Fate::Exact => keys == ["at", "is"] || keys == ["reject"],
            Fate::Mapped => keys == ["at", "is"] || keys == ["absent"] || keys == ["reject"],
            Fate::Hint => keys == ["at", "is"] || keys == ["absent"] || keys == ["without"],
        };
        assert!(fits, "{}: {keys:?} does not show {:?}", self.name, self.fate);
    }

    fn prepared(&self, request: &Value) -> Result<Value, Rejection> {
        let prepared = prepare(self.pair, request.to_string().as_bytes(), &traits(&self.case["target"]))?;
        Ok(serde_json::from_slice(&prepared.body).unwrap())
    }
}

fn merge(value: &mut Value, patch: &Value) {
    let Some(members) = patch.as_object() else {
        assert!(patch.is_null(), "a patch is an object");
        return;
    };
    for (name, change) in members {
        match value.get_mut(name) {
            Some(inner) if inner.is_object() && change.is_object() => merge(inner, change),
            _ if change.is_null() => drop(value.as_object_mut().unwrap().remove(name)),
            _ => value[name] = change.clone(),
        }
    }
}

fn take_out(value: &mut Value, place: &str) {
    let (parent, last) = place.rsplit_once('/').unwrap();
    match value.pointer_mut(parent) {
        Some(Value::Object(members)) => assert!(members.remove(last).is_some(), "{place}"),
        Some(Value::Array(items)) => drop(items.remove(last.parse().unwrap())),
        _ => panic!("nothing stands at {place}"),
    }
}

/// True if `value` has the member that a row's `field` denotes. `[kind]` may end with `*`.
fn holds(value: &Value, field: &str) -> bool {
    let Some(field) = Some(field).filter(|field| !field.is_empty()) else { return true };
    let (step, rest) = split_step(field);
    let (step, wanted) = step.split_once('=').map_or((step, None), |(step, value)| (step, Some(value)));
    let (name, kind) = match step.split_once('[') {
        Some((name, kind)) => (name, kind.strip_suffix(']')),
        None => (step, None),
    };
    let fits = |inner: &Value| {
        let is_kind = kind.is_none_or(|kind| {
            let inner_kind = inner["type"].as_str().unwrap_or_default();
            kind.strip_suffix('*').map_or(inner_kind == kind, |start| inner_kind.starts_with(start))
        });
        let is_value = wanted.is_none_or(|wanted| inner.to_string().trim_matches('"') == wanted);
        is_kind && is_value && holds(inner, rest)
    };
    match (name, value) {
        ("*", Value::Array(items)) => items.iter().any(fits),
        ("*", Value::Object(members)) => members.values().any(fits),
        _ => value.get(name).is_some_and(fits),
    }
}

/// Splits a field at its first dot. Dots in brackets and in values (after `=`) do not count.
fn split_step(field: &str) -> (&str, &str) {
    let mut depth = 0;
    for (at, letter) in field.char_indices() {
        match letter {
            '[' => depth += 1,
            ']' => depth -= 1,
            '=' => return (field, ""),
            '.' if depth == 0 => return (&field[..at], &field[at + 1..]),
            _ => {}
        }
    }
    (field, "")
}

#[test]
fn loss_fields_are_found_by_name_and_value() {
    let request = serde_json::json!({
        "speed": "fast", "n": 2,
        "messages": [{"content": [{"type": "image", "source": {"type": "file", "x": 1}}]}],
    });
    let rows = [
        ("speed", true),
        ("speed=fast", true),
        ("speed=slow", false),
        ("n=2", true),
        ("messages.*.content.*[image].source[file]", true),
        ("messages.*.content.*[ima*].source[file].x", true),
        ("messages.*.content.*[image].source[url]", false),
        ("messages.*.content.*[text]", false),
        ("top_k", false),
    ];
    for (field, want) in rows {
        assert_eq!(holds(&request, field), want, "{field}");
    }
}
