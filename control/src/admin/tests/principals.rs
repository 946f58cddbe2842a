//! Principals: the humans known to the gateway.

use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::Gateway;

#[test]
fn principals_are_created_edited_and_deleted_with_versions_and_replays() {
    let gateway = Gateway::start();
    let make = r#"{"name": "Ada", "email": "ada@example.com"}"#;
    let (status, ada, response) =
        gateway.send_json(Method::POST, "principals", make, &[("idempotency-key", "a")]);
    assert_eq!(
        (status, response.headers()["etag"].to_str().unwrap()),
        (StatusCode::CREATED, "\"1\""),
        "{ada}"
    );
    let (_, again, replay) = gateway.send_json(Method::POST, "principals", make, &[("idempotency-key", "a")]);
    assert_eq!((&again, replay.headers()["idempotency-replayed"].to_str().unwrap()), (&ada, "true"));
    let other = r#"{"name": "Eve"}"#;
    assert_eq!(gateway.send_json(Method::POST, "principals", other, &[("idempotency-key", "a")]).0, 409);
    assert_eq!(gateway.send_json(Method::POST, "principals", make, &[]).0, 409, "the address is taken");

    let path = format!("principals/{}", ada["id"].as_str().unwrap());
    let (status, _, _) =
        gateway.send_json(Method::PATCH, &path, r#"{"name": "Ada L."}"#, &[("if-match", "\"2\"")]);
    assert_eq!(status, 412);
    let (status, changed, _) = gateway.send_json(
        Method::PATCH,
        &path,
        r#"{"name": "Ada L.", "email": null}"#,
        &[("if-match", "\"1\"")],
    );
    assert_eq!((status.as_u16(), &changed["name"], &changed["email"]), (200, &json!("Ada L."), &Value::Null));
    for (body, param) in
        [(r#"{"nmae": "x"}"#, "nmae"), (r#"{"name": ""}"#, "name"), (r#"{"email": "nowhere"}"#, "email")]
    {
        let (status, answer, _) = gateway.send_json(Method::PATCH, &path, body, &[]);
        assert_eq!((status.as_u16(), &answer["error"]["param"]), (400, &json!(param)), "{answer}");
    }
    assert_eq!(gateway.get("/admin/api/principals")["data"], json!([changed]));
    assert_eq!(gateway.send_json(Method::DELETE, &path, "", &[]).0, 204);
    assert_eq!(gateway.send_json(Method::DELETE, &path, "", &[]).0, 404);
    gateway.stop();
}

#[test]
fn names_that_could_differ_by_what_nobody_sees_are_rejected() {
    let gateway = Gateway::start();
    let project = gateway.send_json(Method::POST, "projects", r#"{"name": "blue 👩‍💻"}"#, &[]).1["id"].clone();
    for name in ["ad\u{200b}min", "\u{202e}nimda", "admin\u{feff}", "ad\u{ad}min"] {
        for (path, body) in [
            ("principals", json!({"name": name})),
            ("projects", json!({"name": name})),
            ("keys", json!({"name": name, "project": project})),
            ("webhooks", json!({"name": name, "url": "https://example.com/hook"})),
        ] {
            let (status, answer, _) = gateway.send_json(Method::POST, path, &body.to_string(), &[]);
            assert_eq!(
                (status.as_u16(), &answer["error"]["param"]),
                (400, &json!("name")),
                "{path} {answer}"
            );
            assert!(answer["error"]["message"].as_str().unwrap().contains("U+"), "{answer}");
        }
    }
    let (status, answer, _) = gateway.send_json(
        Method::POST,
        "principals",
        &json!({"name": "Ada", "email": "a\u{200b}@b.c"}).to_string(),
        &[],
    );
    assert_eq!((status.as_u16(), &answer["error"]["param"]), (400, &json!("email")), "{answer}");
    gateway.stop();
}
