// A vendor: the certified authorization server `oidc-provider`, and an API that accepts only access tokens of its own.

import { createServer } from "node:http";
import { once } from "node:events";
import Provider from "oidc-provider";

export const CLIENT = { id: "client-of-the-operator", secret: "planted-secret-of-the-client" };

export class Vendor {
  /** Grants of requests to the token address, in order. */
  grants = [];
  /** The tokens that the API has accepted. */
  accepted = new Set();

  async start(redirectUri, accessSeconds) {
    const server = createServer((request, response) => this.handle(request, response));
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    this.server = server;
    this.origin = `http://127.0.0.1:${server.address().port}`;
    this.provider = new Provider(this.origin, {
      clients: [
        {
          client_id: CLIENT.id,
          client_secret: CLIENT.secret,
          redirect_uris: [redirectUri],
          grant_types: ["authorization_code", "refresh_token", "urn:ietf:params:oauth:grant-type:device_code"],
          response_types: ["code"],
          token_endpoint_auth_method: "client_secret_basic",
        },
      ],
      scopes: ["openid", "offline_access", "email"],
      claims: { openid: ["sub"], email: ["email"] },
      features: { devInteractions: { enabled: true }, revocation: { enabled: true }, deviceFlow: { enabled: true } },
      findAccount: (_context, id) => ({ accountId: id, claims: () => ({ sub: id, email: `${id}@vendor.example` }) }),
      rotateRefreshToken: true,
      ttl: { AccessToken: accessSeconds, RefreshToken: 3600, Grant: 3600, Session: 3600, Interaction: 600, DeviceCode: 600, AuthorizationCode: 60, IdToken: 600 },
      cookies: { keys: ["of-the-test"] },
    });
    this.provider.on("grant.success", (context) => this.grants.push(context.oidc.params.grant_type));
  }

  /** The members of a provider's settings that name this vendor. */
  settings() {
    return {
      type: "oauth_partner",
      base_url: `${this.origin}/api/v1`,
      models: ["m"],
      oauth: {
        authorize_url: `${this.origin}/auth`,
        token_url: `${this.origin}/token`,
        userinfo_url: `${this.origin}/me`,
        revocation_url: `${this.origin}/token/revocation`,
        device_authorization_url: `${this.origin}/device/auth`,
        issuer: this.origin,
        scopes: ["openid", "offline_access", "email"],
        authorize_params: { prompt: "consent" },
      },
    };
  }

  async handle(request, response) {
    if (!request.url.startsWith("/api/")) return this.provider.callback()(request, response);
    const token = (request.headers.authorization ?? "").replace(/^Bearer /, "");
    const found = await this.provider.AccessToken.find(token);
    const isValid = found !== undefined && found.isValid;
    if (isValid) this.accepted.add(token);
    const body = isValid
      ? { id: "c-1", object: "chat.completion", created: 1, model: "m", choices: [{ index: 0, message: { role: "assistant", content: "hello" }, finish_reason: "stop" }], usage: { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 } }
      : { error: { message: "The access token is not valid.", type: "invalid_request_error", code: "invalid_token" } };
    request.resume();
    response.writeHead(isValid ? 200 : 401, { "content-type": "application/json" });
    response.end(JSON.stringify(body));
  }

  stop() {
    this.server.closeAllConnections();
    this.server.close();
  }
}
