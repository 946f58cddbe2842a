//! The form of the vectors of an embeddings answer. OpenAI's clients ask for base64 unless told otherwise, and decode a list
//! of numbers to silent nonsense of a quarter of the length; many servers ignore what was asked. Vectors in the other form
//! are rewritten while the answer is read; everything else passes byte for byte.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use memchr::memchr;
use memchr::memmem;

use crate::request::VectorForm;

/// Rewrites the vectors of one answer. Memory is bounded by `VECTOR_BYTES_MAX` and the size of a piece.
#[derive(Debug)]
pub struct VectorRewriter {
    form: VectorForm,
    /// The beginning of a vector, or of the name of its member.
    held: Vec<u8>,
}

/// The maximum bytes of a vector. A longer one passes as it is.
const VECTOR_BYTES_MAX: usize = 1 << 20;
/// The member with a vector. Inside of a string its quotes would be escaped.
const NAME: &[u8] = br#""embedding""#;

/// What follows the name of a member at the beginning of some bytes.
enum Value {
    /// A vector in the form that was not asked for: the range of its inside, without brackets or quotes.
    Other(std::ops::Range<usize>),
    /// Anything else, which ends here or later.
    Alike(usize),
    /// The bytes end within the value.
    Incomplete,
}

impl VectorRewriter {
    /// Creates a rewriter for an answer whose vectors have to be in this form.
    pub fn new(form: VectorForm) -> Self {
        Self { form, held: Vec::new() }
    }

    /// Reads the next piece and appends the bytes for the client to `out`.
    pub fn push(&mut self, piece: Bytes, out: &mut Vec<Bytes>) {
        let bytes = match self.held.is_empty() {
            true => piece,
            false => {
                self.held.extend_from_slice(&piece);
                std::mem::take(&mut self.held).into()
            }
        };
        let mut from = 0;
        while let Some(found) = memmem::find(rest(&bytes, from), NAME) {
            let at = from + found;
            match self.value(&bytes, at + NAME.len()) {
                Value::Other(inside) => match self.rewritten(bytes.get(inside.clone()).unwrap_or_default()) {
                    Some(vector) => {
                        pass(&bytes, from..inside.start - 1, out);
                        out.push(vector.into());
                        from = inside.end + 1;
                    }
                    None => {
                        pass(&bytes, from..inside.end + 1, out);
                        from = inside.end + 1;
                    }
                },
                Value::Alike(end) => {
                    pass(&bytes, from..end, out);
                    from = end;
                }
                Value::Incomplete if bytes.len() - at <= VECTOR_BYTES_MAX => {
                    pass(&bytes, from..at, out);
                    self.held = rest(&bytes, at).to_vec();
                    return;
                }
                Value::Incomplete => break,
            }
        }
        let end = bytes.len() - name_begun(rest(&bytes, from));
        pass(&bytes, from..end, out);
        self.held = rest(&bytes, end).to_vec();
    }

    /// Ends the answer: appends what is held back to `out`.
    pub fn release(&mut self, out: &mut Vec<Bytes>) {
        if !self.held.is_empty() {
            out.push(std::mem::take(&mut self.held).into());
        }
    }

    /// Returns a whole answer with its vectors in the form that was asked for.
    pub fn whole(mut self, answer: Bytes) -> Bytes {
        let (mut out, length) = (Vec::new(), answer.len());
        self.push(answer, &mut out);
        self.release(&mut out);
        match (out.pop(), out.is_empty()) {
            (Some(only), true) if only.len() == length => only,
            (Some(last), _) => {
                out.push(last);
                out.concat().into()
            }
            (None, _) => Bytes::new(),
        }
    }

    /// Reads the value after the name that ends at `at`.
    fn value(&self, bytes: &[u8], at: usize) -> Value {
        let Some(colon) = at_text(bytes, at) else { return Value::Incomplete };
        if bytes.get(colon) != Some(&b':') {
            return Value::Alike(at);
        }
        let Some(start) = at_text(bytes, colon + 1) else { return Value::Incomplete };
        let (opening, closing) = match self.form {
            VectorForm::Base64 => (b'[', b']'),
            VectorForm::Numbers => (b'"', b'"'),
        };
        if bytes.get(start) != Some(&opening) {
            return Value::Alike(start);
        }
        match memchr(closing, rest(bytes, start + 1)) {
            Some(length) => Value::Other(start + 1..start + 1 + length),
            None => Value::Incomplete,
        }
    }

    /// Returns a vector in the form that was asked for; `None` if the value is no vector.
    fn rewritten(&self, inside: &[u8]) -> Option<Vec<u8>> {
        match self.form {
            VectorForm::Base64 => in_base64(inside),
            VectorForm::Numbers => in_numbers(inside),
        }
    }
}

/// Returns the numbers between the brackets of a list as 32-bit floats, little-endian, in base64 between quotes.
pub(crate) fn in_base64(list: &[u8]) -> Option<Vec<u8>> {
    let mut floats = Vec::with_capacity(list.len() / 2);
    if !list.trim_ascii().is_empty() {
        for number in list.split(|byte| *byte == b',') {
            let number = std::str::from_utf8(number).ok()?.trim_ascii();
            // Rust also reads words, such as `inf`.
            let is_number = number.bytes().next().is_some_and(|byte| byte.is_ascii_digit() || byte == b'-');
            let float: f32 = number.parse().ok().filter(|_| is_number)?;
            floats.extend_from_slice(&float.to_le_bytes());
        }
    }
    Some(["\"", &STANDARD.encode(floats), "\""].concat().into_bytes())
}

/// Returns the floats in base64 as a list of numbers.
pub(crate) fn in_numbers(base64: &[u8]) -> Option<Vec<u8>> {
    // A slash may be escaped.
    let base64: Vec<u8> = base64.iter().copied().filter(|byte| *byte != b'\\').collect();
    let bytes = STANDARD.decode(base64).ok()?;
    let (floats, odd) = bytes.as_chunks::<4>();
    if !odd.is_empty() {
        return None;
    }
    let floats: Vec<f32> = floats.iter().map(|float| f32::from_le_bytes(*float)).collect();
    serde_json::to_vec(&floats).ok()
}

/// Returns the position of the first byte at or after `at` that is not white space.
fn at_text(bytes: &[u8], at: usize) -> Option<usize> {
    Some(at + rest(bytes, at).iter().position(|byte| !byte.is_ascii_whitespace())?)
}

/// Returns the number of bytes at the end of `bytes` that may begin a name.
fn name_begun(bytes: &[u8]) -> usize {
    let longest = bytes.len().min(NAME.len() - 1);
    (1..=longest).rev().find(|length| NAME.starts_with(rest(bytes, bytes.len() - length))).unwrap_or(0)
}

fn rest(bytes: &[u8], from: usize) -> &[u8] {
    bytes.get(from..).unwrap_or_default()
}

fn pass(bytes: &Bytes, range: std::ops::Range<usize>, out: &mut Vec<Bytes>) {
    if !range.is_empty() {
        out.push(bytes.slice(range));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewrite(form: VectorForm, pieces: &[&[u8]]) -> String {
        let (mut rewriter, mut out) = (VectorRewriter::new(form), Vec::new());
        for piece in pieces {
            rewriter.push(Bytes::copy_from_slice(piece), &mut out);
        }
        rewriter.release(&mut out);
        String::from_utf8(out.concat()).unwrap()
    }

    const FLOATS: &str = r#"{"object":"list","data":[{"object":"embedding","index":0,"embedding":[0.1, -2.5e-3,1],"x":1},{"embedding" : []}],"usage":{"embedding":1}}"#;
    const BASE64: &str = r#"{"object":"list","data":[{"object":"embedding","index":0,"embedding":"zczMPQrXI7sAAIA/","x":1},{"embedding" : ""}],"usage":{"embedding":1}}"#;
    const NUMBERS: &str = r#"{"object":"list","data":[{"object":"embedding","index":0,"embedding":[0.1,-0.0025,1.0],"x":1},{"embedding" : []}],"usage":{"embedding":1}}"#;

    #[test]
    fn vectors_get_the_form_that_was_asked_for_however_the_answer_is_cut() {
        for (form, answer, want) in [
            (VectorForm::Base64, FLOATS, BASE64),
            (VectorForm::Base64, BASE64, BASE64),
            (VectorForm::Numbers, BASE64, NUMBERS),
            (VectorForm::Numbers, FLOATS, FLOATS),
        ] {
            let answer = answer.as_bytes();
            for at in 0..=answer.len() {
                assert_eq!(rewrite(form, &[&answer[..at], &answer[at..]]), want, "{form:?}, cut at {at}");
            }
            let bytes: Vec<&[u8]> = answer.chunks(1).collect();
            assert_eq!(rewrite(form, &bytes), want, "{form:?}, byte by byte");
            let whole = VectorRewriter::new(form).whole(Bytes::copy_from_slice(answer));
            assert_eq!(whole, want.as_bytes(), "{form:?}, whole");
        }
    }

    #[test]
    fn the_base64_is_that_of_the_nearest_floats() {
        for (number, want) in [
            ("0.1", 0.1_f32),
            ("0.10000000149011612", 0.1),
            ("-1e-45", -1e-45),
            ("1e400", f32::INFINITY),
            ("16777217", 16_777_216.0),
            ("-0", -0.0),
        ] {
            let vector = in_base64(number.as_bytes()).unwrap();
            let bytes = STANDARD.decode(&vector[1..vector.len() - 1]).unwrap();
            assert_eq!(bytes, want.to_le_bytes(), "{number}");
        }
    }

    #[test]
    fn a_value_that_is_no_vector_passes() {
        for (form, answer) in [
            (VectorForm::Base64, r#"{"embedding":[[0.1],[0.2]]}"#),
            (VectorForm::Base64, r#"{"embedding":[0.1,null]}"#),
            (VectorForm::Base64, r#"{"embedding":[inf,nan]}"#),
            (VectorForm::Base64, r#"{"embedding":{"dense":[0.1]}}"#),
            (VectorForm::Base64, r#"{"text":"\"embedding\":[0.1]","embedding":[0.1"#),
            (VectorForm::Base64, r#"["embedding",[0.1]]"#),
            (VectorForm::Numbers, r#"{"embedding":"AAA="}"#),
            (VectorForm::Numbers, r#"{"embedding":"none"}"#),
            (VectorForm::Numbers, r#"{"embedding":"no base64!"}"#),
        ] {
            assert_eq!(rewrite(form, &[answer.as_bytes()]), answer);
        }
    }

    #[test]
    fn a_vector_that_is_too_long_passes() {
        let vector = |numbers: usize| format!(r#"{{"embedding":[{}]}}"#, vec!["1"; numbers].join(","));
        let (fits, over) = (vector(VECTOR_BYTES_MAX / 2 - 16), vector(VECTOR_BYTES_MAX / 2 + (64 << 10)));
        let cut =
            |text: &str| rewrite(VectorForm::Base64, &text.as_bytes().chunks(64 << 10).collect::<Vec<_>>());
        assert!(cut(&fits).starts_with(r#"{"embedding":"AACAP"#));
        assert_eq!(cut(&over), over);
    }
}
