// The body that creates an OAuth provider.
import { expect, test } from "vitest";
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
};

test("addresses left empty are not sent, and lists are split", () => {
  expect(oauthBody(FIELDS)).toEqual({
    id: "house",
    type: "oauth_partner",
    base_url: "https://api.example/v1",
    owner: "prn_1",
    models: ["a", "b"],
    oauth: {
      authorize_url: "https://id.example/authorize",
      token_url: "https://id.example/token",
      scopes: ["openid", "offline_access"],
    },
  });
  expect(oauthBody({ ...FIELDS, models: " " })).not.toHaveProperty("models");
});
