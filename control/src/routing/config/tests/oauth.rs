//! The `oauth` settings of a provider and the operator's client: faults, warnings, and what they mean.

use super::*;

/// Returns a file with one provider `p` whose members are `base_url` and these.
fn place(members: &str) -> Place {
    Place::with(&format!("providers:\n  p: {{base_url: 'https://api.example/v1', {members}}}\n"))
}

const GOOD: &str = "authorize_url: 'https://id.example/a?tenant=1', token_url: 'https://id.example/t'";

#[test]
fn faulty_oauth_settings_are_named() {
    for (members, want) in [
        ("type: oauth_partner", "oauth is missing: set authorize_url, token_url and scopes"),
        ("type: oauth_partner, oauth: {authorize_url: 'https://id.example/a'}", "token_url is missing"),
        (
            "type: oauth_partner, oauth: {token_url: 'https://id.example/t'}",
            "authorize_url is missing; set it, or device",
        ),
        (
            "type: oauth_partner, oauth: {GOOD, revocation_url: 'http://id.example/r'}",
            "revocation_url: must begin with https://",
        ),
        (
            "type: oauth_partner, oauth: {GOOD, userinfo_url: 'https://169.254.169.254/'}",
            "metadata addresses are not allowed",
        ),
        (
            "type: oauth_partner, oauth: {GOOD, userinfo_url: 'https://u:p@id.example/'}",
            "must not contain a user name",
        ),
        ("type: oauth_partner, oauth: {GOOD, userinfo_url: 'https://id.example/#x'}", "or a fragment"),
        (
            "type: oauth_partner, oauth: {GOOD, userinfo_url: 'file:///etc/passwd'}",
            "must be an address such as https://auth",
        ),
        (
            "type: oauth_partner, oauth: {GOOD, scopes: ['a b']}",
            "'a b' is not a scope: write each scope as one item",
        ),
        (
            "type: oauth_partner, oauth: {GOOD, authorize_params: {state: x}}",
            "authorize_params.state: is set by llmgw itself",
        ),
        ("type: oauth_partner, oauth: {GOOD, token: x}", "oauth.token: unknown key"),
        ("type: oauth_partner, api_key: k, oauth: {GOOD}", "auth oauth cannot be combined with api_key"),
        (
            "type: oauth_partner, headers: {Authorization: x}, oauth: {GOOD}",
            "the header authorization cannot be combined",
        ),
        ("type: local_server, oauth: {GOOD}", "auth local has no oauth settings; omit them"),
    ] {
        let faults = place(&members.replace("GOOD", GOOD)).faults(&[]);
        assert!(faults.len() == 1 && faults[0].contains(want), "{members}: {faults:#?}");
    }
}

#[test]
fn any_kind_with_a_key_may_be_signed_in_to_instead() {
    for (kind, base) in [
        ("oauth_partner", "https://api.example/v1"),
        ("compatible", "https://api.example/v1"),
        ("openai", "https://api.example/v1"),
        ("anthropic", "https://api.example"),
    ] {
        let text = format!("providers:\n  p: {{base_url: '{base}', type: {kind}, oauth: {{{GOOD}}}}}\n");
        let config = Place::with(&text).config(&[("LLMGW_PARTNER_CLIENT_ID", "c")]);
        let provider = &config.routing.providers[0];
        assert_eq!((provider.auth, provider.kept_key), (ConnectionAuth::Oauth, KeptKey::Ignored), "{kind}");
        assert!(!provider.lacks_key(), "{kind}");
        let issuer = provider.issuer.as_ref().unwrap();
        assert_eq!(issuer.client().map(|client| client.id.as_str()), Some("c"));
    }
}

#[test]
fn what_cannot_work_without_a_client_or_an_origin_is_a_warning() {
    const ID: (&str, &str) = ("LLMGW_PARTNER_CLIENT_ID", "c");
    const SECRET: (&str, &str) = ("LLMGW_PARTNER_CLIENT_SECRET", "s");
    const ORIGIN: (&str, &str) = ("LLMGW_OAUTH_PUBLIC_BASE_URL", "https://llm.example");
    let signed_in = place(&format!("type: oauth_partner, oauth: {{{GOOD}}}"));
    let bare = Place::empty();
    for (name, place, variables, want) in [
        ("nothing", &bare, &[][..], None),
        ("all", &signed_in, &[ID, SECRET, ORIGIN], None),
        (
            "no client",
            &signed_in,
            &[ORIGIN],
            Some("no sign-in to the OAuth providers of the file (p) can begin"),
        ),
        ("an origin alone, for extensions", &bare, &[ORIGIN], None),
        ("a secret alone", &bare, &[SECRET], Some("LLMGW_PARTNER_CLIENT_SECRET has no effect")),
        ("no origin", &signed_in, &[ID], Some("work with a device code only")),
    ] {
        let warnings = place.load(variables).unwrap().warnings;
        match want {
            None => assert!(warnings.is_empty(), "{name}: {warnings:?}"),
            Some(want) => assert!(warnings.len() == 1 && warnings[0].contains(want), "{name}: {warnings:?}"),
        }
    }
    let config = bare.config(&[ID, ORIGIN]);
    assert_eq!(config.redirect_uri().as_deref(), Some("https://llm.example/oauth/callback/partner"));
    let config = bare.config(&[ID, ORIGIN, ("LLMGW_BASE_PATH", "/gw")]);
    assert_eq!(config.redirect_uri().as_deref(), Some("https://llm.example/gw/oauth/callback/partner"));
}
