//! Tests forms as clients send them, with any cuts.

use super::{FormFault, FormFields, FormScan, boundary};

const FORM: &[u8] = b"preamble\r\n--XyZ\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a \\\"b\\\".wav\"\r\n\
Content-Type: audio/wav\r\n\r\n\x00\x01\r\n--Xy\r\n--not it\r\n\r\n\r\n--XyZ  \t\r\ncontent-disposition: form-data; filename=x; NAME=model\r\n\r\n\
whisper-1\r\n--XyZ\r\nContent-Disposition: form-data; name=\"stream\"\r\n\r\nTrue\r\n--XyZ--\r\nepilogue --XyZ";

fn read(body: &[u8], cuts: impl Iterator<Item = usize>) -> Result<FormFields, FormFault> {
    let mut scan = FormScan::new("XyZ");
    let mut from = 0;
    for cut in cuts.chain([body.len()]) {
        scan.push(&body[from..cut])?;
        from = cut;
    }
    scan.finish()
}

#[test]
fn a_form_is_read_the_same_at_any_split() {
    let whole = read(FORM, std::iter::empty()).unwrap();
    assert_eq!((whole.model.as_str(), whole.stream), ("whisper-1", true));
    assert_eq!(whole.models.iter().map(|span| &FORM[span.clone()]).collect::<Vec<_>>(), [b"whisper-1"]);
    for cut in 0..=FORM.len() {
        assert_eq!(read(FORM, [cut].into_iter()).as_ref(), Ok(&whole), "{cut}");
    }
    for step in [1, 2, 3, 7, 11] {
        assert_eq!(read(FORM, (0..FORM.len()).step_by(step)).as_ref(), Ok(&whole), "{step}");
    }
}

#[test]
fn the_last_model_field_applies_and_all_are_found() {
    let body = b"--XyZ\r\ncontent-disposition: form-data; name=model\r\n\r\na\r\n--XyZ\r\n\
content-disposition: form-data; name=model\r\n\r\n\r\n--XyZ--";
    let form = read(body, std::iter::empty()).unwrap();
    assert_eq!((form.model.as_str(), form.models.len(), form.stream), ("", 2, false));
}

/// audio, transcription: names and file names are written in many ways, and a file may contain text that looks like a
/// boundary.
#[test]
fn field_names_are_read_in_every_notation() {
    for disposition in [
        "form-data; name=\"model\"",
        "form-data; name=model",
        "FORM-DATA; Name = \"model\"",
        "form-data; filename=\"a%22b.wav\"; name=\"model\"",
        "form-data; filename=\"a\\\"; name=x\"; name=\"model\"",
        "form-data; filename*=UTF-8''%e2%82%ac%20rates.wav; name=\"model\"",
        "form-data; filename=\"\u{e9}t\u{e9}.wav\"; name=\"model\"",
    ] {
        let body = format!(
            "--XyZ\r\nCONTENT-DISPOSITION: {disposition}\r\n\r\nm\r\n--XyZ\r\n\
             Content-Disposition: form-data; name=\"file\"; filename=\"model\"\r\n\r\n--XyZ-not\n--XyZ\n\r\n--XyZ--"
        );
        let form = read(body.as_bytes(), std::iter::empty());
        assert_eq!(form.map(|form| form.model).as_deref(), Ok("m"), "{disposition}");
        let form = read(body.as_bytes(), 0..body.len());
        assert_eq!(form.map(|form| form.model).as_deref(), Ok("m"), "{disposition}, byte by byte");
    }
}

#[test]
fn a_malformed_form_is_rejected_with_its_fault() {
    let long = format!("--XyZ\r\nContent-Disposition: form-data; name=model\r\n\r\n{}", "m".repeat(2_000));
    let headers = format!("--XyZ\r\nx: {}", "h".repeat(20_000));
    let parts = "--XyZ\r\n\r\n\r\n".repeat(1_001);
    let cases: [(&[u8], FormFault); 8] = [
        (b"", FormFault::Broken),
        (b"--XyZ\r\n", FormFault::Broken),
        (b"--XyZ junk\r\n", FormFault::Broken),
        (b"{\"model\":\"m\"}", FormFault::Broken),
        (b"--XyZ\r\n\r\n\r\n--XyZ--", FormFault::ModelMissing),
        (long.as_bytes(), FormFault::ValueTooLong("model")),
        (headers.as_bytes(), FormFault::HeadTooLong),
        (parts.as_bytes(), FormFault::TooManyParts),
    ];
    for (body, fault) in cases {
        assert_eq!(read(body, std::iter::empty()), Err(fault), "{fault}");
        assert_eq!(read(body, 0..body.len()), Err(fault), "{fault}, byte by byte");
    }
}

#[test]
fn the_boundary_is_read_from_a_multipart_content_type() {
    for (content_type, want) in [
        ("multipart/form-data; boundary=abc", Some("abc")),
        ("Multipart/Form-Data; charset=utf-8; Boundary=\"a b;c\"", Some("a b;c")),
        ("multipart/mixed; boundary=abc", None),
        ("multipart/form-data", None),
        ("multipart/form-data; boundary=", None),
        ("application/json", None),
    ] {
        assert_eq!(boundary(content_type).as_deref(), want, "{content_type}");
    }
}
