//! Compares the JSON scanner with serde_json: a strict scan of an object must yield the same document.

use serde_json::{Map, Value};
use wire::json::{JsonFault, JsonPlace, JsonSink, Scanner};

/// Asserts that the scanner and serde_json accept the same objects and read the same values from them, and that a scan
/// does not depend on the cuts.
pub(crate) fn json_scan(pieces: &[&[u8]]) {
    let whole = pieces.concat();
    let (lenient, _) = scan::<false>(pieces, &whole);
    let (strict, tokens) = scan::<true>(pieces, &whole);
    if lenient.is_err() {
        assert!(strict.is_err(), "{lenient:?}");
    }
    match serde_json::from_slice::<Value>(&whole) {
        Ok(theirs) if theirs.is_object() => {
            assert_eq!(strict, Ok(()));
            assert_eq!(tokens.document(), Some(theirs));
        }
        Ok(_) => assert!(strict.is_err()),
        Err(error) => assert!(strict.is_err() || is_looser(&error), "{error}"),
    }
}

/// True if the error is one that the scanner leaves to the upstream: it reads no escapes and no values of numbers.
fn is_looser(error: &serde_json::Error) -> bool {
    let error = error.to_string();
    ["escape", "surrogate", "number out of range", "recursion limit"].iter().any(|kind| error.contains(kind))
}

/// Scans the document in pieces and whole, and asserts that both scans agree.
fn scan<const STRICT: bool>(pieces: &[&[u8]], whole: &[u8]) -> (Result<(), JsonFault>, Tokens) {
    let scan = |pieces: &[&[u8]]| {
        let (mut scanner, mut tokens) = (Scanner::<STRICT>::default(), Tokens::default());
        let result = pieces.iter().try_for_each(|piece| scanner.push(piece, &mut tokens));
        (result.and_then(|()| scanner.finish()), tokens)
    };
    let (result, tokens) = scan(pieces);
    let (whole_result, whole_tokens) = scan(&[whole]);
    assert_eq!(result, whole_result);
    if result.is_ok() {
        assert_eq!(tokens, whole_tokens);
    }
    (result, tokens)
}

/// The tokens of a document, with their positions.
#[derive(Default, PartialEq, Debug)]
struct Tokens(Vec<(Kind, JsonPlace, Vec<u8>)>);

#[derive(Clone, Copy, PartialEq, Debug)]
enum Kind {
    Object,
    Array,
    Close,
    Key,
    Text,
    Scalar,
}

impl Tokens {
    fn push(&mut self, kind: Kind, at: JsonPlace) {
        self.0.push((kind, at, Vec::new()));
    }

    /// Returns the document that the tokens form. `None` if one of them has no value.
    fn document(&self) -> Option<Value> {
        let (mut open, mut keys) = (vec![Value::from(Map::new())], vec![String::new()]);
        for (kind, _, raw) in &self.0 {
            let value = match kind {
                Kind::Object | Kind::Array => {
                    open.push(if *kind == Kind::Object {
                        Value::from(Map::new())
                    } else {
                        Value::from([(); 0])
                    });
                    keys.push(String::new());
                    continue;
                }
                Kind::Key => {
                    *keys.last_mut()? = serde_json::from_slice(&[b"\"", &raw[..], b"\""].concat()).ok()?;
                    continue;
                }
                Kind::Close => {
                    keys.pop();
                    open.pop()?
                }
                Kind::Text => serde_json::from_slice(&[b"\"", &raw[..], b"\""].concat()).ok()?,
                Kind::Scalar => serde_json::from_slice(raw).ok()?,
            };
            match open.last_mut()? {
                Value::Array(elements) => elements.push(value),
                object => object[keys.last()?] = value,
            }
        }
        // The root is the value of the member without a name of the object around it.
        open.pop().map(|mut around| around[""].take())
    }
}

impl JsonSink for Tokens {
    fn open(&mut self, at: JsonPlace, object: bool) {
        self.push(if object { Kind::Object } else { Kind::Array }, at);
    }
    fn close(&mut self, at: JsonPlace) {
        self.push(Kind::Close, at);
    }
    fn text_start(&mut self, at: JsonPlace, key: bool) {
        self.push(if key { Kind::Key } else { Kind::Text }, at);
    }
    fn scalar_start(&mut self, at: JsonPlace) {
        self.push(Kind::Scalar, at);
    }
    fn piece(&mut self, bytes: &[u8]) {
        self.0.last_mut().unwrap().2.extend_from_slice(bytes);
    }
}
