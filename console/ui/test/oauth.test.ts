// The bodies that create providers to which humans sign in.
import { expect, test } from "vitest";
import type { ExtensionProvider } from "../api/types";
import { signInBody } from "../page/extension_sign_in";
import { oauthBody } from "../page/oauth";

const FIELDS = {
  id: "house",
  base_url: " https://api.example/v1 ",
  owner: "prn_1",
  models: "a, b",
  authorize_url: "https://id.example/authorize",
  token_url: "https://id.example/token ",
  userinfo_url: "",
  revocation_url: " ",
  device_authorization_url: "",
  scopes: "openid  offline_access",
  timeout: 60,
  stream_idle_timeout: "" as const,
  first_content_timeout: "" as const,
};

test("addresses left empty are not sent, and lists are split", () => {
  expect(oauthBody(FIELDS)).toEqual({
    id: "house",
    type: "oauth_partner",
    base_url: "https://api.example/v1",
    owner: "prn_1",
    models: ["a", "b"],
    timeout: 60,
    oauth: {
      authorize_url: "https://id.example/authorize",
      token_url: "https://id.example/token",
      scopes: ["openid", "offline_access"],
    },
  });
  expect(oauthBody({ ...FIELDS, models: " " })).not.toHaveProperty("models");
});

test("a provider of an extension names its owner, and its models only if some are given", () => {
  const of: ExtensionProvider = {
    id: "lab",
    name: null,
    protocols: ["messages"],
    credential: "sign_in",
    models: [],
    model_count: 0,
    error: null,
  };
  const body = {
    id: "mine",
    type: "extension",
    extension: "e",
    extension_provider: "lab",
    protocols: ["messages"],
    auth: "oauth",
    owner: "prn_1",
  };
  expect(signInBody("e", of, { id: "mine", owner: "prn_1", models: " " })).toEqual(body);
  expect(signInBody("e", of, { id: "mine", owner: "prn_1", models: "a b" })).toEqual({ ...body, models: ["a", "b"] });
});
