//! Compares the scanner with serde_json and tests its own rules.

use proptest::prelude::*;

use super::*;

/// A sink that logs the calls that it receives.
#[derive(Default)]
struct Log {
    lines: Vec<String>,
    text: Vec<u8>,
}

impl JsonSink for Log {
    fn open(&mut self, at: JsonPlace, object: bool) {
        self.lines.push(format!("{} {} {}", at.depth, at.offset, if object { '{' } else { '[' }));
    }
    fn close(&mut self, at: JsonPlace) {
        self.lines.push(format!("{} {} close", at.depth, at.offset));
    }
    fn text_start(&mut self, at: JsonPlace, key: bool) {
        self.text.clear();
        self.lines.push(format!("{} {} key={key}", at.depth, at.offset));
    }
    fn text_end(&mut self, at: JsonPlace, _key: bool) {
        self.lines.push(format!("{} {} {:?}", at.depth, at.offset, String::from_utf8_lossy(&self.text)));
    }
    fn scalar_start(&mut self, _at: JsonPlace) {
        self.text.clear();
    }
    fn scalar_end(&mut self, at: JsonPlace) {
        self.lines.push(format!("{} {} {}", at.depth, at.offset, String::from_utf8_lossy(&self.text)));
    }
    fn piece(&mut self, bytes: &[u8]) {
        self.text.extend_from_slice(bytes);
    }
    fn comma(&mut self, at: JsonPlace) {
        self.lines.push(format!("{} {} comma", at.depth, at.offset));
    }
}

fn scan(pieces: &[&[u8]]) -> (Vec<String>, Result<(), JsonFault>) {
    let (mut scanner, mut log) = (Scanner::new(), Log::default());
    let mut result = Ok(());
    for piece in pieces {
        result = result.and_then(|()| scanner.push(piece, &mut log));
    }
    (log.lines, result.and_then(|()| scanner.finish()))
}

#[test]
fn each_json_fault_has_its_kind_and_offset() {
    type Row = (&'static str, &'static str, Option<(usize, What)>);
    let rows: [Row; 24] = [
        ("empty object", "{}", None),
        ("white space around", " \r\n\t{ } \n", None),
        ("nested", r#"{"a":[1,{"b":[]}],"c":-0.5e+3}"#, None),
        ("escaped quotes", r#"{"a\"":"\\\"\\","b":"\\"}"#, None),
        ("nothing", "", Some((0, What::Truncated))),
        ("array root", "[1]", Some((0, What::NotObject))),
        ("string root", " \"x\"", Some((1, What::NotObject))),
        ("number root", "7", Some((0, What::NotObject))),
        ("text", "hello", Some((0, What::Unexpected(b'h')))),
        ("byte order mark", "\u{feff}{}", Some((0, What::Unexpected(0xef)))),
        ("trailing comma", r#"{"a":1,}"#, Some((7, What::Unexpected(b'}')))),
        ("comma first", "{,}", Some((1, What::Unexpected(b',')))),
        ("no colon", r#"{"a" 1}"#, Some((5, What::Unexpected(b'1')))),
        ("no value", r#"{"a":}"#, Some((5, What::Unexpected(b'}')))),
        ("wrong bracket", r#"{"a":[1}"#, Some((7, What::Unexpected(b'}')))),
        ("trailing garbage", "{} x", Some((3, What::Unexpected(b'x')))),
        ("two documents", "{}{}", Some((2, What::Unexpected(b'{')))),
        ("leading zero", r#"{"a":01}"#, Some((6, What::Unexpected(b'1')))),
        ("bare minus", r#"{"a":-}"#, Some((6, What::Unexpected(b'}')))),
        ("bare word", r#"{"a":nul}"#, Some((8, What::Unexpected(b'}')))),
        ("NaN", r#"{"a":NaN}"#, Some((5, What::Unexpected(b'N')))),
        ("single quotes", "{'a':1}", Some((1, What::Unexpected(b'\'')))),
        ("cut in a string", r#"{"a":"b"#, Some((7, What::Truncated))),
        ("cut after an escape", r#"{"a":"b\""#, Some((9, What::Truncated))),
    ];
    for (name, input, want) in rows {
        let got = scan(&[input.as_bytes()]).1.err().map(|fault| (fault.offset, fault.what));
        assert_eq!(got, want, "{name}");
    }
}

#[test]
fn depth_is_bounded() {
    let nested = |levels: usize| format!("{{\"a\":{}{}}}", "[".repeat(levels), "]".repeat(levels));
    let most = usize::try_from(DEPTH_MAX).unwrap() - 1;
    assert_eq!(scan(&[nested(most).as_bytes()]).1, Ok(()));
    let fault = scan(&[nested(most + 1).as_bytes()]).1.unwrap_err();
    assert_eq!(fault.what, What::TooDeep);
}

/// A sink that skips containers while `skips` is true.
#[derive(Default)]
struct Choosy {
    log: Log,
    skips: bool,
}

impl JsonSink for Choosy {
    fn open(&mut self, at: JsonPlace, object: bool) {
        self.log.open(at, object);
    }
    fn skips(&self, _at: JsonPlace, _object: bool) -> bool {
        self.skips
    }
    fn close(&mut self, at: JsonPlace) {
        self.log.close(at);
    }
    fn text_start(&mut self, at: JsonPlace, key: bool) {
        self.log.text_start(at, key);
    }
    fn text_end(&mut self, at: JsonPlace, key: bool) {
        self.skips = key && self.log.text == b"skipped";
        self.log.text_end(at, key);
    }
    fn piece(&mut self, bytes: &[u8]) {
        self.log.piece(bytes);
    }
}

#[test]
fn skipped_values_are_checked_and_not_reported() {
    let document = r#"{"a":["b"],"skipped":{"c":[{"d":"}"},1.5],"skipped":[]},"e":"f"}"#;
    let mut whole = Vec::new();
    for cut in 0..=document.len() {
        let (left, right) = document.as_bytes().split_at(cut);
        let (mut scanner, mut choosy) = (Scanner::new(), Choosy::default());
        scanner.push(left, &mut choosy).unwrap();
        scanner.push(right, &mut choosy).unwrap();
        assert!(scanner.is_complete());
        if cut == 0 {
            whole = choosy.log.lines.clone();
        }
        assert_eq!(choosy.log.lines, whole, "cut at {cut}");
    }
    let tokens = whole.join("; ");
    assert!(tokens.contains("1 21 {; 1 55 close; 1 56 key=true; 1 59 \"e\""), "{tokens}");
    let wrong = r#"{"skipped":{"a":[1,]}}"#;
    let (mut scanner, mut choosy) = (Scanner::new(), Choosy::default());
    let fault = scanner.push(wrong.as_bytes(), &mut choosy).unwrap_err();
    assert_eq!(fault, JsonFault { offset: 19, what: What::Unexpected(b']') });
}

fn json() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(serde_json::Value::from),
        any::<i64>().prop_map(serde_json::Value::from),
        any::<f64>().prop_map(serde_json::Value::from),
        "[\\\\\"a-c/\u{1f680}\n]{0,12}".prop_map(serde_json::Value::from),
    ];
    leaf.prop_recursive(5, 40, 5, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..5).prop_map(serde_json::Value::from),
            proptest::collection::vec(("[\\\\\"a-c]{0,6}", inner), 0..5)
                .prop_map(|pairs| serde_json::Value::Object(pairs.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn every_object_gives_the_same_tokens_at_any_split(
        value in proptest::collection::vec(("[\\\\\"a-c]{0,6}", json()), 0..5),
        pretty in any::<bool>(),
        cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..6),
    ) {
        let value = serde_json::Value::Object(value.into_iter().collect());
        let text = if pretty { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) };
        let text = text.unwrap().into_bytes();
        let whole = scan(&[&text]);
        prop_assert_eq!(&whole.1, &Ok(()));
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(text.len() + 1)).collect();
        cuts.sort_unstable();
        let mut pieces = Vec::new();
        let mut from = 0;
        for cut in cuts.into_iter().chain([text.len()]) {
            pieces.push(&text[from..cut]);
            from = cut;
        }
        prop_assert_eq!(scan(&pieces), whole);
    }

    #[test]
    fn documents_that_serde_rejects_outside_strings_are_rejected(
        text in r#"\{[ \{\}\[\],:"a\\0-9.eE+\-tfnul]{0,24}\}?"#,
    ) {
        let ours = scan(&[text.as_bytes()]).1;
        let theirs: Result<serde_json::Value, _> = serde_json::from_str(&text);
        if theirs.is_ok() {
            prop_assert_eq!(ours, Ok(()));
        } else if !text.contains('\\') && !theirs.unwrap_err().to_string().contains("out of range") {
            prop_assert!(ours.is_err(), "{text}");
        }
    }

    #[test]
    fn never_panics(pieces in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..20), 0..8)) {
        let pieces: Vec<&[u8]> = pieces.iter().map(Vec::as_slice).collect();
        let _ = scan(&pieces);
    }
}
