//! Reads a form in pieces. Keeps the values of its known fields and the positions of `model`.

#![expect(
    clippy::indexing_slicing,
    reason = "positions come from searches of the same bytes; a wrong one must fail in the fuzzer"
)]

use std::fmt;
use std::ops::Range;

use memchr::memmem::{self, Finder};

use super::disposition::part_name;
use crate::tokens::{WAVE_HEAD_BYTES, wave_ms};

/// The maximum length of one part's header lines in bytes.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// The maximum length of a field that is read, in bytes.
const VALUE_BYTES_MAX: usize = 1 << 10;
/// The maximum number of parts in one form.
const PARTS_MAX: usize = 1_000;

/// The facts of a form.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FormFields {
    /// The selector; the last one if repeated.
    pub model: String,
    /// True if the client requests a stream.
    pub stream: bool,
    /// The ranges of the model values in the body.
    pub models: Vec<Range<usize>>,
    /// The length of the whole body in bytes.
    pub bytes: u64,
    /// The duration of the form's only file if that is uncompressed audio, in milliseconds.
    pub wave_ms: Option<u64>,
}

/// The reason why a body is not a form with a model. `Display` is the text for the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FormFault {
    /// A boundary or its line end is malformed, or the last boundary is missing.
    Broken,
    /// More parts than allowed (LIM-2).
    TooManyParts,
    /// Header lines longer than allowed (LIM-2).
    HeadTooLong,
    /// The value of this field is too long.
    ValueTooLong(&'static str),
    /// `model` is missing.
    ModelMissing,
    /// `model` is not text.
    ModelNotText,
}

impl FormFault {
    /// Returns the field that the error refers to.
    pub fn param(self) -> Option<&'static str> {
        match self {
            Self::ValueTooLong(name) => Some(name),
            Self::ModelMissing | Self::ModelNotText => Some("model"),
            Self::Broken | Self::TooManyParts | Self::HeadTooLong => None,
        }
    }
}

impl fmt::Display for FormFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Broken => f.write_str(
                "The body is not valid multipart/form-data: its parts must be delimited by the boundary of \
                 Content-Type, and it must end with the closing boundary.",
            ),
            Self::TooManyParts => write!(f, "The form has more than {PARTS_MAX} parts."),
            Self::HeadTooLong => write!(f, "A part's headers are longer than {HEAD_BYTES_MAX} bytes."),
            Self::ValueTooLong(name) => write!(f, "'{name}' is longer than {VALUE_BYTES_MAX} bytes."),
            Self::ModelMissing => f.write_str("Missing required part: 'model'."),
            Self::ModelNotText => f.write_str("'model' must be text."),
        }
    }
}

impl std::error::Error for FormFault {}

/// An incremental scan of one form.
#[derive(Debug)]
pub struct FormScan {
    /// The delimiter that ends a part: a line end, two dashes and the boundary.
    delimiter: Finder<'static>,
    state: FormScanState,
    /// The bytes read so far of the element that the state expects, or the last bytes that may start a delimiter.
    kept: Vec<u8>,
    /// The number of bytes read.
    read: usize,
    parts: usize,
    /// The last file; `files` is the number of files so far.
    file: FormFile,
    files: usize,
    form: FormFields,
}

/// A file of the form.
#[derive(Debug, Default)]
struct FormFile {
    /// The offset of its content while the content is being read.
    from: Option<usize>,
    /// The first bytes of its content.
    head: Vec<u8>,
}

/// The state of the scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FormScanState {
    /// In an ignored part, or before the first one; ends at a delimiter.
    Skip,
    /// After a delimiter: a line end follows, or the two dashes that end the form.
    Line,
    /// In the header lines of a part.
    Head,
    /// In the value of this field, which started at this offset.
    Value(FormField, usize),
    /// After the last delimiter.
    End,
}

/// The fields that are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FormField {
    Model,
    Stream,
}

impl FormField {
    fn named(name: &str) -> Option<Self> {
        match name {
            "model" => Some(Self::Model),
            "stream" => Some(Self::Stream),
            _ => None,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Model => "model",
            Self::Stream => "stream",
        }
    }
}

/// The name of the part with the audio.
const FILE: &str = "file";
const LINE_END: &[u8] = b"\r\n";
const HEAD_END: &[u8] = b"\r\n\r\n";
/// The maximum number of spaces between a delimiter and its line end.
const PADDING_BYTES_MAX: usize = 256;

impl FormScan {
    /// Creates a scan for a new body with this boundary.
    pub fn new(boundary: &str) -> Self {
        let delimiter = format!("\r\n--{boundary}");
        Self {
            delimiter: Finder::new(&delimiter).into_owned(),
            state: FormScanState::Skip,
            // The first delimiter needs no line end before it.
            kept: LINE_END.to_vec(),
            read: 0,
            parts: 0,
            file: FormFile::default(),
            files: 0,
            form: FormFields::default(),
        }
    }

    /// Reads the next piece of the body.
    pub fn push(&mut self, mut piece: &[u8]) -> Result<(), FormFault> {
        while !piece.is_empty() {
            let taken = match self.state {
                FormScanState::Skip => self.skip(piece),
                FormScanState::Line => self.line(piece)?,
                FormScanState::Head => self.head(piece)?,
                FormScanState::Value(wanted, from) => self.value(wanted, from, piece)?,
                FormScanState::End => piece.len(),
            };
            self.read += taken;
            piece = &piece[taken..];
        }
        Ok(())
    }

    /// Ends the body and returns its fields.
    pub fn finish(self) -> Result<FormFields, FormFault> {
        if self.state != FormScanState::End {
            Err(FormFault::Broken)
        } else if self.form.models.is_empty() {
            Err(FormFault::ModelMissing)
        } else {
            let bytes = self.read.try_into().unwrap_or(u64::MAX);
            Ok(FormFields { bytes, ..self.form })
        }
    }

    fn enter(&mut self, state: FormScanState) {
        self.state = state;
        self.kept.clear();
        if state == FormScanState::Head {
            // A part without header lines then ends like any other.
            self.kept.extend_from_slice(LINE_END);
        }
    }

    /// Searches for a delimiter, including one that started in earlier bytes. Returns the number of bytes read.
    fn skip(&mut self, piece: &[u8]) -> usize {
        let length = self.delimiter.needle().len();
        if self.file.from.is_some() {
            let room = WAVE_HEAD_BYTES - self.file.head.len();
            self.file.head.extend_from_slice(&piece[..room.min(piece.len())]);
        }
        let reach = length - 1;
        let before = self.kept.len();
        self.kept.extend_from_slice(&piece[..reach.min(piece.len())]);
        let found = match self.delimiter.find(&self.kept) {
            Some(at) => Some(at + length - before),
            None => self.delimiter.find(piece).map(|at| at + length),
        };
        if let Some(end) = found {
            self.file_ends(self.read + end);
            self.enter(FormScanState::Line);
            return end;
        }
        if piece.len() >= reach {
            self.kept.clear();
            self.kept.extend_from_slice(&piece[piece.len() - reach..]);
        } else {
            // Nothing, as long as the kept bytes fit.
            let surplus = self.kept.len().saturating_sub(reach);
            self.kept.drain(..surplus);
        }
        piece.len()
    }

    /// Ends the ignored part, whose delimiter ends at offset `end`. If the part is the form's only file, sets its duration.
    fn file_ends(&mut self, end: usize) {
        if let Some(from) = self.file.from.take() {
            let length = end - self.delimiter.needle().len() - from;
            let length = u64::try_from(length).unwrap_or(u64::MAX);
            let wave_ms = wave_ms(&self.file.head, length);
            self.form.wave_ms = wave_ms.filter(|_| self.files == 1);
        }
    }

    fn line(&mut self, piece: &[u8]) -> Result<usize, FormFault> {
        let (taken, found) = gather(&mut self.kept, piece, LINE_END, PADDING_BYTES_MAX);
        if self.kept.starts_with(b"--") {
            self.enter(FormScanState::End);
        } else if found == FormSearch::End {
            if !self.kept.trim_ascii().is_empty() {
                return Err(FormFault::Broken);
            }
            self.parts += 1;
            if self.parts > PARTS_MAX {
                return Err(FormFault::TooManyParts);
            }
            self.enter(FormScanState::Head);
        } else if found == FormSearch::TooMuch {
            return Err(FormFault::Broken);
        }
        Ok(taken)
    }

    fn head(&mut self, piece: &[u8]) -> Result<usize, FormFault> {
        let (taken, found) = gather(&mut self.kept, piece, HEAD_END, HEAD_BYTES_MAX);
        if found == FormSearch::End {
            let name = part_name(&self.kept);
            let wanted = name.as_deref().and_then(FormField::named);
            let from = self.read + taken;
            if name.is_some_and(|name| name == FILE) {
                self.files += 1;
                self.file = FormFile { from: Some(from), head: Vec::new() };
            }
            self.enter(wanted.map_or(FormScanState::Skip, |wanted| FormScanState::Value(wanted, from)));
        } else if found == FormSearch::TooMuch {
            return Err(FormFault::HeadTooLong);
        }
        Ok(taken)
    }

    fn value(&mut self, wanted: FormField, from: usize, piece: &[u8]) -> Result<usize, FormFault> {
        let (taken, found) = gather(&mut self.kept, piece, self.delimiter.needle(), VALUE_BYTES_MAX);
        if found == FormSearch::End {
            let value = String::from_utf8(std::mem::take(&mut self.kept));
            match wanted {
                FormField::Model => {
                    let model = value.map_err(|_| FormFault::ModelNotText)?;
                    self.form.models.push(from..from + model.len());
                    self.form.model = model;
                }
                FormField::Stream => {
                    self.form.stream =
                        value.is_ok_and(|value| value.eq_ignore_ascii_case("true") || value == "1");
                }
            }
            self.enter(FormScanState::Line);
        } else if found == FormSearch::TooMuch {
            return Err(FormFault::ValueTooLong(wanted.name()));
        }
        Ok(taken)
    }
}

/// The result of [`gather`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FormSearch {
    /// The end was found within the limit.
    End,
    /// The limit was exceeded, with or without an end.
    TooMuch,
    /// Neither so far.
    Nothing,
}

/// Appends `piece` to `kept` up to `end`, which is not kept, or until more than `bytes_max` bytes precede it. Returns
/// the number of bytes read from `piece`. The result does not depend on how the bytes are cut: trailing bytes that may
/// start an `end` do not count towards the limit.
fn gather(kept: &mut Vec<u8>, piece: &[u8], end: &[u8], bytes_max: usize) -> (usize, FormSearch) {
    let before = kept.len();
    let surely_more = bytes_max + end.len();
    let piece = &piece[..(surely_more - before).min(piece.len())];
    kept.extend_from_slice(piece);
    // An end may have started in the bytes before.
    let from = before.saturating_sub(end.len());
    match memmem::find(&kept[from..], end) {
        Some(at) => {
            let length = from + at;
            kept.truncate(length);
            (length + end.len() - before, FormSearch::End)
        }
        None if kept.len() >= surely_more => (piece.len(), FormSearch::TooMuch),
        None => (piece.len(), FormSearch::Nothing),
    }
}
