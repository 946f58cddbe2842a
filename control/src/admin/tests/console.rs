//! The files of the console: which path is the page, compression, caching and the security policy.

use http::Method;
use serde_json::json;

use super::Gateway;

#[test]
fn every_console_path_except_assets_returns_the_page() {
    let gateway = Gateway::start();
    for path in [
        "/console",
        "/console/",
        "/console/index.html",
        "/console/requests",
        "/console/requests/req_1",
        "/console/routes/claude-opus-5.5",
        "/console/keys?q=%2e%2e",
        "/console/none.js",
        "/console/assets",
    ] {
        let (status, page, response) = gateway.call(Method::GET, path, &[]);
        assert_eq!((status.as_u16(), page), (200, json!("<p>the page</p>")), "{path}");
        assert_eq!(response.headers()["content-type"], "text/html; charset=utf-8", "{path}");
    }
    let (status, page, _) = gateway.call(Method::HEAD, "/console/", &[]);
    assert_eq!((status.as_u16(), page), (200, json!("")));
    for path in ["/console/assets/none.js", "/console/assets/", "/console/assets/a.js.br", "/consoles"] {
        assert_eq!(gateway.call(Method::GET, path, &[]).0, 404, "{path}");
    }
    gateway.stop();
}

#[test]
fn the_page_needs_no_key_and_forbids_foreign_scripts() {
    let gateway = Gateway::start();
    let (_, _, response) = gateway.call(Method::GET, "/console/keys", &[]);
    let value = |name: &str| response.headers()[name].to_str().unwrap().to_owned();
    let policy = value("content-security-policy");
    for rule in [
        "default-src 'none'",
        "script-src 'self'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    ] {
        assert!(policy.split("; ").any(|part| part == rule), "{rule}: {policy}");
    }
    assert!(!policy.contains("unsafe"));
    assert_eq!(value("cross-origin-opener-policy"), "same-origin");
    assert_eq!(value("x-content-type-options"), "nosniff");
    assert_eq!(value("x-frame-options"), "DENY");
    gateway.stop();
}

#[test]
fn the_page_is_revalidated_and_assets_are_cached() {
    let gateway = Gateway::start();
    let (_, _, response) = gateway.call(Method::GET, "/console/", &[]);
    assert_eq!(response.headers()["cache-control"], "no-cache");
    let etag = response.headers()["etag"].to_str().unwrap().to_owned();
    for known in [etag.clone(), format!("W/{etag}"), format!("\"x\", {etag}"), "*".to_owned()] {
        let (status, page, again) = gateway.call(Method::GET, "/console/keys", &[("if-none-match", &known)]);
        assert_eq!((status.as_u16(), page), (304, json!("")), "{known}");
        assert_eq!(again.headers()["etag"], etag.as_str());
    }
    assert_eq!(gateway.call(Method::GET, "/console/", &[("if-none-match", "\"x\"")]).0, 200);
    let (_, _, file) = gateway.call(Method::GET, "/console/assets/a.js", &[]);
    assert_eq!(file.headers()["cache-control"], "public, max-age=31536000, immutable");
    gateway.stop();
}

#[test]
fn a_file_is_sent_in_the_smallest_form_that_the_client_accepts() {
    let gateway = Gateway::start();
    for (accepted, coding, bytes) in [
        ("gzip, deflate, br, zstd", Some("br"), "brotli"),
        ("gzip;q=1.0, br; q=0.5", Some("br"), "brotli"),
        ("GZIP", Some("gzip"), "gzip"),
        ("br;q=0, gzip;q=0.1", Some("gzip"), "gzip"),
        ("br;q=0, gzip; q=0.000", None, "plain"),
        ("identity", None, "plain"),
        ("", None, "plain"),
    ] {
        let (status, body, response) =
            gateway.call(Method::GET, "/console/assets/a.js", &[("accept-encoding", accepted)]);
        let sent = response.headers().get("content-encoding").map(|coding| coding.to_str().unwrap());
        assert_eq!((status.as_u16(), body, sent), (200, json!(bytes), coding), "{accepted}");
        assert_eq!(response.headers()["content-type"], "text/javascript; charset=utf-8");
        assert_eq!(response.headers()["vary"], "accept-encoding");
    }
    let (_, font, response) =
        gateway.call(Method::GET, "/console/assets/a.woff2", &[("accept-encoding", "br")]);
    assert_eq!((font, response.headers().get("content-encoding")), (json!("font"), None));
    gateway.stop();
}
