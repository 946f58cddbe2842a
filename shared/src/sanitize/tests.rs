//! Tests of redacted text, of kept text, and of arbitrary input.

use proptest::prelude::*;

use super::*;

const KEY: &str = "upstream+K3y/with=odd";

#[test]
fn credentials_of_known_shapes_are_redacted() {
    let rows = [
        ("OpenAI's own message", "Incorrect API key provided: sk-abcdE****wxyZ. You can find", "abcdE"),
        ("OpenAI project key", "key sk-proj-Ab3dEf6hIj9lMn2p is disabled", "Ab3dEf"),
        ("Anthropic", "invalid x-api-key sk-ant-api03-AbCdEf123456", "api03"),
        ("OpenRouter", "sk-or-v1-0123456789abcdef0123456789abcdef", "0123456789"),
        ("Google", "API key AIzaSyA1234567890abcdefghijklmnopqrstu not valid", "SyA123"),
        ("Groq", "gsk_abcDEF123456789", "abcDEF"),
        ("xAI", "xai-abcDEF123456789", "abcDEF"),
        ("Hugging Face", "token hf_AbCdEfGhIjKlMnOp is invalid", "AbCdEf"),
        ("Replicate", "r8_AbCd1234EfGh", "AbCd1234"),
        ("the gateway's", "llmgw_AbCd1234EfGh5678", "AbCd1234"),
        ("AWS", "The security token AKIAIOSFODNN7EXAMPLE is invalid", "IOSFODNN"),
        ("AWS, for a time", "ASIAIOSFODNN7EXAMPLE", "IOSFODNN"),
        ("Bedrock", "key ABSKQmVkcm9ja0FQSUtleS1hYmNk is bad", "QmVkcm9ja"),
        ("ElevenLabs", "sk_0123456789abcdef0123456789abcdef0123456789abcdef", "0123456789"),
        ("Perplexity", "pplx-0123456789abcdefABCDEF", "0123456789"),
        ("NVIDIA", "nvapi-0123456789abcdefABCDEF", "0123456789"),
        ("Fireworks", "fw_0123456789abcdefABCDEF", "0123456789"),
        ("Cerebras", "csk-0123456789abcdefABCDEF", "0123456789"),
        ("Together", "tgp_v1_0123456789abcdef", "0123456789"),
        ("Google, for an hour", "ya29.a0AfH6SMBx0123456789", "a0AfH6"),
        ("OpenAI service account", "sk-svcacct-Ab3dEf6hIj9lMn2pT3BlbkFJ", "Ab3dEf"),
        ("GitHub, fine-grained", "github_pat_11ABCDEFG0abcdef", "11ABC"),
        ("GitHub's OAuth", "gho_0123456789abcdefABCDEF", "0123456789"),
        ("GitHub", "ghp_0123456789abcdefABCDEF", "0123456789"),
        ("JWT", "bad token eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl", "eyJ"),
        ("bearer", "Authorization: Bearer abc123def456", "abc123"),
        ("bearer alone", "got 'bearer 0a1b2c3d4e'", "0a1b2c"),
        ("basic", "Basic dXNlcjpwYXNz was refused", "dXNl"),
        ("query", "GET https://host/v1?key=s3cr3tvalue&alt=sse failed", "s3cr3t"),
        ("encoded query", "url=https%3A%2F%2Fh%3Fkey%3Ds3cr3tvalue", "s3cr3t"),
        ("token parameter", "token=abcdefghijklmnopqrstuvwxyz", "abcdefghijk"),
        ("header in JSON", r#"{"x-api-key": "plainsecretvalue99"}"#, "plainsecret"),
        ("escaped JSON", r#"{\"api_key\":\"hunter2hunter2\"}"#, "hunter2"),
        ("environment", "OPENAI_API_KEY=abcdefgh", "abcdefgh"),
        ("password", "password=correcthorse", "correcthorse"),
        ("URL", "connect to http://user:pa55@10.0.0.1:80/x", "pa55"),
        ("UUID as key", "Invalid token: 123e4567-e89b-12d3-a456-426614174000", "426614174000"),
        ("opaque after key", "The key 'q8w7e6r5t4y3u2i1' does not exist", "q8w7"),
        ("PEM", "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBg\n-----END PRIVATE KEY-----", "MIIE"),
    ];
    for (name, text, gone) in rows {
        let clean = diagnostic(text, &[]);
        assert!(!clean.contains(gone), "{name}: {clean}");
        assert!(clean.contains(MARK), "{name}: {clean}");
    }
}

#[test]
fn known_secrets_are_redacted_in_every_encoding() {
    use std::fmt::Write as _;
    let mut hex = String::new();
    let mut percent = String::new();
    for byte in KEY.bytes() {
        write!(hex, "{byte:02x}").unwrap();
        write!(percent, "%{byte:02X}").unwrap();
    }
    let rows = [
        ("verbatim", format!("<{KEY}>")),
        ("hex", format!("<{hex}>")),
        ("upper hex", format!("<{}>", hex.to_uppercase())),
        ("all percent", format!("<{percent}>")),
        ("some percent", "<upstream%2bK3y%2Fwith=odd>".to_owned()),
        ("base64", "<dXBzdHJlYW0rSzN5L3dpdGg9b2Rk>".to_owned()),
        ("base64 of user and key", "<dXNlcjp1cHN0cmVhbStLM3kvd2l0aD1vZGQ=>".to_owned()),
        ("base64 at the third place", "<YWI6dXBzdHJlYW0rSzN5L3dpdGg9b2RkIQ==>".to_owned()),
        ("masked", "<upstream****odd>".to_owned()),
        ("masked with an ellipsis", "<upstream+K\u{2026}>".to_owned()),
    ];
    for (name, text) in rows {
        let clean = diagnostic(&text, &[KEY]);
        assert!(clean.starts_with("<[redacted]"), "{name}: {clean}");
        assert!(clean.len() < 32, "{name}: {clean}");
    }
}

#[test]
fn prose_and_names_are_not_redacted() {
    let rows = [
        "The model 'gpt-4o-2024-08-06' does not exist or you do not have access to it.",
        "Token limit exceeded for claude-3-5-sonnet-20241022",
        "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens.",
        "Rate limit reached for requests per min (RPM): Limit 3, Used 3, Requested 1. Please try again in 20s.",
        "Invalid value for 'key': must be a string",
        "max_tokens: 4096 is greater than 2048",
        "Missing bearer authentication in header",
        "Basic authentication is not supported",
        "You didn't provide an API key. You need to provide your API key in an Authorization header",
        "api_key: missing",
        "Unexpected token: expected value at line 1",
        "see https://platform.openai.com/docs/guides/error-codes/api-errors.",
        "meta-llama/Llama-3.3-70B-Instruct-Turbo is overloaded (request req_011CSHoEeqs5C35K2UUqR7Fy)",
        "pip install sk-learn-extras",
        "Schlüssel fehlt \u{2026} キーがありません",
        "",
    ];
    for text in rows {
        assert_eq!(diagnostic(text, &[KEY, "test", ""]), text);
    }
}

#[test]
fn short_secrets_of_local_servers_do_not_blank_prose() {
    assert_eq!(diagnostic("the list is EMPTY", &["EMPTY", "none"]), "the list is EMPTY");
}

#[test]
fn the_redaction_mark_is_not_redacted() {
    assert_eq!(diagnostic("it was redacted", &["redacted"]), "it was redacted");
}

#[test]
fn megabytes_of_almost_credentials_take_linear_time() {
    // Quadratic work on any of these would take minutes.
    for piece in ["key=", "sk-", "eyJ.", "://", "bearer ", "%", "token: ", "-----BEGIN ", "upstream", "key "]
    {
        let text = piece.repeat(1_000_000 / piece.len());
        let clean = diagnostic(&text, &[KEY]);
        assert!(clean.len() <= text.len().saturating_mul(4));
    }
}

fn texts() -> impl Strategy<Value = String> {
    let words = prop_oneof![
        "[ -~]{0,12}",
        "\\PC{0,6}",
        Just("sk-".to_owned()),
        Just("Bearer ".to_owned()),
        Just("api_key=".to_owned()),
        Just("key: ".to_owned()),
        Just("eyJ".to_owned()),
        Just("://a:b@".to_owned()),
        Just("[redacted]".to_owned()),
        Just("abc123DEF456ghi789".to_owned()),
        Just("%2".to_owned()),
    ];
    proptest::collection::vec(words, 0..12).prop_map(|words| words.concat())
}

proptest! {
    #[test]
    fn redaction_is_idempotent(text in texts(), secret in "[ -~]{6,14}") {
        let once = diagnostic(&text, &[&secret]).into_owned();
        prop_assert_eq!(diagnostic(&once, &[&secret]), once.as_str());
    }

    #[test]
    fn no_known_secret_survives(before in texts(), after in texts(), secret in "[!-~]{6,24}") {
        prop_assume!(!MARK.contains(&secret));
        let text = format!("{before}{secret}{after}");
        prop_assert!(!diagnostic(&text, &[&secret]).contains(&secret));
    }

    #[test]
    fn unchanged_text_is_borrowed(text in texts()) {
        if let Cow::Owned(clean) = diagnostic(&text, &[]) {
            prop_assert!(clean.contains(MARK));
        }
    }
}
