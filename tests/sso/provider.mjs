// An OpenID Connect provider on loopback, with the forms of oidc-provider for development: a person signs in by typing a name.

import { once } from "node:events";
import { createServer } from "node:http";
import Provider from "oidc-provider";

/** The client of the operator, with which people connect accounts of their own. */
export const PARTNER = { id: "partner", secret: "secret-of-the-partner-client" };

export class IdentityProvider {
  /** The groups by name. */
  groups = {};

  async start(origin) {
    this.server = createServer((request, response) => this.answer(request, response));
    this.server.listen(0, "127.0.0.1");
    await once(this.server, "listening");
    this.origin = `http://127.0.0.1:${this.server.address().port}`;
    const client = {
      client_id: "llmgw",
      client_secret: "secret-of-the-client",
      redirect_uris: [`${origin}/oidc/callback`],
      post_logout_redirect_uris: [`${origin}/signed-out`],
    };
    const partner = {
      client_id: PARTNER.id,
      client_secret: PARTNER.secret,
      grant_types: ["authorization_code", "refresh_token", "urn:ietf:params:oauth:grant-type:device_code"],
      redirect_uris: [`${origin}/oauth/callback/partner`],
    };
    const provider = new Provider(this.origin, {
      clients: [client, partner],
      features: { revocation: { enabled: true }, deviceFlow: { enabled: true } },
      claims: { openid: ["sub"], email: ["email"], profile: ["name"], groups: ["groups"] },
      scopes: ["openid", "email", "profile", "groups", "offline_access"],
      conformIdTokenClaims: false,
      cookies: { keys: ["a key of the test"] },
      pkce: { required: () => false },
      findAccount: (_ctx, name) => ({
        accountId: name,
        claims: () => ({ sub: name, email: `${name}@example.com`, name: `Person ${name}`, groups: this.groups[name] ?? [] }),
      }),
    });
    this.answer = provider.callback();
  }

  /** The addresses of a connection with an account of the provider. */
  partnerAddresses() {
    const at = (path) => `${this.origin}/${path}`;
    return {
      authorize_url: at("auth"),
      token_url: at("token"),
      userinfo_url: at("me"),
      revocation_url: at("token/revocation"),
      device_authorization_url: at("device/auth"),
    };
  }

  stop() {
    this.server.closeAllConnections();
    this.server.close();
  }
}
