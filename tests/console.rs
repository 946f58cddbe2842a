//! The console's files as the built binary serves them (CON-1). Chromium drives the pages in `tests/console/run.sh`.

use std::io::Read as _;

use bytes::Bytes;
use flate2::read::GzDecoder;

use crate::support::client::Whole;
use crate::support::gateway::{ADMIN_KEY, Setup};
use crate::support::{Client, Gateway, Yaml};

async fn get(gateway: &Gateway, path: &str, headers: &[(&str, &str)]) -> Whole {
    let client = Client::new(gateway.address(), None);
    let client = headers.iter().fold(client, |client, (name, value)| client.with(name, value));
    client.send("GET", path, Bytes::new()).await.unwrap()
}

/// The paths of the script and the style sheet that the page refers to.
fn assets(page: &Whole) -> Vec<String> {
    let text = String::from_utf8(page.body.to_vec()).unwrap();
    let paths = text.split('"').filter(|part| part.starts_with("/console/assets/"));
    paths.filter(|path| path.ends_with(".js") || path.ends_with(".css")).map(str::to_owned).collect()
}

#[tokio::test]
async fn every_console_link_returns_the_page() {
    let gateway = Gateway::start(&Yaml::new()).await;
    let start = get(&gateway, "/console", &[]).await;
    for path in
        ["/console/", "/console/requests", "/console/routes/claude-opus-5.5", "/console/keys/key_1?edit=1"]
    {
        let page = get(&gateway, path, &[]).await;
        assert_eq!((page.status, &page.body), (200, &start.body), "{path}");
        let policy = page.header("content-security-policy").unwrap();
        assert!(policy.ends_with("require-trusted-types-for 'script'; trusted-types 'none'"), "{policy}");
    }
    let etag = start.header("etag").unwrap();
    assert_eq!(get(&gateway, "/console/keys", &[("if-none-match", etag)]).await.status, 304);
}

#[tokio::test]
async fn the_address_of_the_gateway_leads_a_browser_to_the_console_and_lists_paths_for_programs() {
    let gateway = Gateway::start(&Yaml::new()).await;
    let browser = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";
    let answer = get(&gateway, "/", &[("accept", browser)]).await;
    assert_eq!((answer.status, answer.header("location")), (303, Some("/console")));
    for accept in ["*/*", "application/json, text/html;q=0"] {
        let answer = get(&gateway, "/", &[("accept", accept)]).await;
        assert_eq!((answer.status, answer.header("vary")), (200, Some("accept")), "{accept}");
        let paths = answer.json();
        for path in paths["clients"].as_array().unwrap().iter().chain(paths["monitoring"].as_array().unwrap())
        {
            assert_ne!(get(&gateway, path.as_str().unwrap(), &[]).await.status, 404, "{path}");
        }
        assert_eq!((&paths["console"], &paths["admin_api"]), (&"/console".into(), &"/admin/api".into()));
    }
    let client = Client::new(gateway.address(), None);
    let answer = client.send("POST", "/", Bytes::new()).await.unwrap();
    assert_eq!((answer.status, answer.header("allow")), (405, Some("GET, HEAD")));
}

#[tokio::test]
async fn below_a_base_path_everything_is_served_as_at_the_root() {
    let gateway = Setup::new(&Yaml::new()).env("LLMGW_BASE_PATH", "/tools/llm/").start().await;
    let leads = get(&gateway, "/tools/llm", &[("accept", "text/html")]).await;
    assert_eq!((leads.status, leads.header("location")), (303, Some("/tools/llm/console")));
    // The proxy passes the path on, or cuts it off.
    for base in ["/tools/llm", ""] {
        let page = get(&gateway, &format!("{base}/console/keys"), &[]).await;
        let text = String::from_utf8(page.body.to_vec()).unwrap();
        let files: Vec<&str> =
            text.split('"').filter_map(|part| part.strip_prefix("/tools/llm/console/assets/")).collect();
        assert!(files.len() >= 3 && !text.contains("\"/console/"), "{text}");
        for file in files {
            assert_eq!(
                get(&gateway, &format!("{base}/console/assets/{file}"), &[]).await.status,
                200,
                "{file}"
            );
        }
        assert_eq!(gateway.client().get(&format!("{base}/v1/models?limit=1")).await.unwrap().status, 200);
        let named = get(&gateway, &format!("{base}/"), &[]).await.json();
        assert_eq!(named["console"], "/tools/llm/console");
        let key = serde_json::json!({"key": ADMIN_KEY}).to_string();
        let signed_in =
            Client::new(gateway.address(), None).post(&format!("{base}/admin/api/session"), key).await;
        let cookie = signed_in.header("set-cookie").unwrap();
        assert!(cookie.contains("; Path=/tools/llm/admin/api; "), "{cookie}");
        // A vendor's error in the form of its protocol.
        let refused = get(&gateway, &format!("{base}/v1/messages"), &[("x-api-key", "wrong")]).await;
        assert_eq!(refused.json()["type"], "error", "{refused:?}");
    }
    assert_eq!(get(&gateway, "/tools/llms/v1/models", &[]).await.status, 404);
}

#[tokio::test]
async fn console_assets_are_compressed_and_cached() {
    let gateway = Gateway::start(&Yaml::new()).await;
    let paths = assets(&get(&gateway, "/console", &[]).await);
    assert_eq!(paths.len(), 2, "{paths:?}");
    for path in paths {
        let plain = get(&gateway, &path, &[]).await;
        let brotli = get(&gateway, &path, &[("accept-encoding", "gzip, deflate, br, zstd")]).await;
        let gzip = get(&gateway, &path, &[("accept-encoding", "gzip")]).await;
        assert_eq!(
            (brotli.header("content-encoding"), gzip.header("content-encoding")),
            (Some("br"), Some("gzip"))
        );
        assert!(brotli.body.len() < gzip.body.len() && gzip.body.len() < plain.body.len() / 2, "{path}");
        let mut unpacked = Vec::new();
        GzDecoder::new(&gzip.body[..]).read_to_end(&mut unpacked).unwrap();
        assert_eq!(unpacked, plain.body, "{path}");
        for answer in [plain, brotli, gzip] {
            assert_eq!(answer.header("cache-control"), Some("public, max-age=31536000, immutable"));
            assert_eq!(answer.header("vary"), Some("accept-encoding"));
        }
    }
}
